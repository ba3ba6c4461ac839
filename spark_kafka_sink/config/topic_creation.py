"""How topics that do not exist are created, if the user wants that."""

from __future__ import annotations

from typing import NamedTuple

from spark_kafka_sink.base.errors import ConfigError

BROKER_DEFAULT = -1
# Replicas are counted in 16 bits on the wire.
MOST_REPLICAS = 2**15 - 1


def problem_of_replicas(value: int) -> str | None:
    """What is wrong with a replication factor, if anything is."""
    if value == BROKER_DEFAULT or 1 <= value <= MOST_REPLICAS:
        return None
    return f"must be -1 or between 1 and {MOST_REPLICAS}"


class TopicCreation(NamedTuple):
    """The ``topic.creation.*`` options. BROKER_DEFAULT leaves a number to the brokers (KIP-464).

    asked_by, replicas_by: options that want the topic, and that give its replicas, for messages
    """

    partitions: int = BROKER_DEFAULT
    replication_factor: int = BROKER_DEFAULT
    configs: tuple[tuple[str, str], ...] = ()
    asked_by: str = "topic.creation.enable"
    replicas_by: str = "topic.creation.replication.factor"


def parse_topic_configs(text: str) -> tuple[tuple[str, str], ...]:
    """``"retention.ms=1000,cleanup.policy=compact,delete"`` as pairs.

    An item without ``=`` belongs to the value before it. Raises ConfigError when there is none.
    """
    pairs: list[tuple[str, str]] = []
    for item in text.split(","):
        name, separator, value = item.strip().partition("=")
        if separator and name.strip():
            pairs.append((name.strip(), value.strip()))
        elif pairs and name:
            pairs[-1] = (pairs[-1][0], f"{pairs[-1][1]},{name}")
        elif name or separator:
            raise ConfigError(f"topic.creation.configs: '{item.strip()}' is not name=value")
    return tuple(pairs)
