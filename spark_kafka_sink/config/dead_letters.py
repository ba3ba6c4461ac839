"""What is to become of rows that cannot be written: the options ``errors.*``, checked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.config.dead_letter_keys import DEAD_LETTER_KEYS, TOLERATE_ALL
from spark_kafka_sink.config.topic_creation import TopicCreation

TOLERATES = "errors.tolerance=all"
_TOPIC_NAME = "errors.deadletterqueue.topic.name"
_TOLERANCE = "errors.tolerance"


class RowRules(NamedTuple):
    """What the brokers accept of one topic's rows, as far as the driver has found out.

    max_message_bytes: the topic's ``max.message.bytes``, None where it is not known
    needs_key: the topic is compacted, so that a record without a key is refused
    """

    max_message_bytes: int | None = None
    needs_key: bool = False


UNKNOWN_RULES = RowRules()


class DeadLetterConfig(NamedTuple):
    """The options ``errors.*`` with a tolerance of all.

    max_rows: None for no absolute limit
    creation: of the topic, where it is missing
    target, own: what is accepted by the topic of the ``topic`` option, and by the topic of dead
    letters; found out on the driver, before the first task
    """

    topic: str
    has_context_headers: bool
    max_ratio: float
    max_rows: int | None
    is_logged: bool
    creation: TopicCreation
    target: RowRules = UNKNOWN_RULES
    own: RowRules = UNKNOWN_RULES


def dead_letters_of(sink: Mapping[str, Any]) -> DeadLetterConfig | None:
    """From parsed options; None where no error is tolerated. Raises ConfigError."""
    if sink["errors_tolerance"] != TOLERATE_ALL:
        return None
    topic = sink["errors_deadletterqueue_topic_name"]
    if topic is None:
        raise ConfigError(
            f"{TOLERATES} needs option '{_TOPIC_NAME}': rows that cannot be written would vanish"
        )
    if topic == sink["topic"]:
        raise ConfigError(
            f"'{_TOPIC_NAME}' is '{topic}', the topic of all rows: dead letters need one of their "
            "own"
        )
    replicas = sink["errors_deadletterqueue_topic_replication_factor"]
    return DeadLetterConfig(
        topic,
        sink["errors_deadletterqueue_context_headers_enable"],
        sink["errors_deadletterqueue_max_ratio"],
        sink["errors_deadletterqueue_max_rows"],
        sink["errors_log_enable"],
        TopicCreation(
            sink["topic_creation_partitions"],
            replicas,
            asked_by=_TOPIC_NAME,
            replicas_by="errors.deadletterqueue.topic.replication.factor",
        ),
    )


def notes_on_dead_letters(sink: Mapping[str, Any], own: Iterable[str]) -> Iterator[str]:
    """Sentences about options without effect. ``own``: names that were given."""
    if sink["errors_tolerance"] != TOLERATE_ALL:
        names = {key.name for key in DEAD_LETTER_KEYS} - {_TOLERANCE}
        for name in own:
            if name in names:
                yield f"option '{name}' has no effect without {TOLERATES}"
