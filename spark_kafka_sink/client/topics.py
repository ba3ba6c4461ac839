"""Topics that do not exist are created, by the driver or a task, if the user wants that.

Several drivers and tasks may do so at once: whoever is second finds the topic there.
"""

from __future__ import annotations

from collections.abc import Sequence

from spark_kafka_sink.base.errors import TopicError
from spark_kafka_sink.client.admin import AdminClient
from spark_kafka_sink.config.topic_creation import BROKER_DEFAULT, TopicCreation
from spark_kafka_sink.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig

CREATION_TIMEOUT_MS = 60_000
"""Time for three answers, each given twice as long as the one before: a controller that takes ten
seconds for each is waited for. Source: ``default.api.timeout.ms``."""


def create_missing(
    admin: AdminClient,
    topics: Sequence[str],
    creation: TopicCreation,
    timeout_ms: int = CREATION_TIMEOUT_MS,
) -> None:
    """Create ``topics``. One that exists already is left as it is.

    Raises TopicError with the brokers' reason, e.g. a replication factor beyond their number.
    """
    configs = [CreatableTopicConfig(name, value) for name, value in creation.configs]
    wanted = [
        CreatableTopic(topic, creation.partitions, creation.replication_factor, configs=configs)
        for topic in topics
    ]
    for topic, error in admin.create_topics(wanted, timeout_ms).items():
        if error is not None and error.error.name != "TOPIC_ALREADY_EXISTS":
            hint = _hint(error.error.name, creation)
            raise TopicError(
                f"topic '{topic}' cannot be created by {creation.asked_by}: {error}{hint}",
                error.error,
            )


def _hint(error_name: str, creation: TopicCreation) -> str:
    """The option to set, for errors that an option causes."""
    if error_name == "INVALID_PARTITIONS" and creation.partitions == BROKER_DEFAULT:
        both = creation.replication_factor == BROKER_DEFAULT
        return (
            " Brokers older than Kafka 2.4 have no default to use: set topic.creation.partitions"
            + (f" and {creation.replicas_by}" if both else "")
        )
    if error_name != "INVALID_REPLICATION_FACTOR":
        return ""
    if creation.replication_factor == BROKER_DEFAULT:
        return (
            ". The brokers' default.replication.factor is more than there are brokers, or they are "
            f"older than Kafka 2.4 and have no default: set {creation.replicas_by}, to "
            "1 for a cluster of one broker"
        )
    return (
        f". {creation.replicas_by} = {creation.replication_factor} is more than there "
        "are brokers: set it to their number at most, to 1 for a cluster of one broker"
    )
