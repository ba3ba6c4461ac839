"""Topics that do not exist are created, by the driver or a task, if the user wants that.

Several drivers and tasks may do so at once: whoever is second finds the topic there.
"""

from __future__ import annotations

from collections.abc import Sequence

from spark_kafka_sink.base.errors import TopicError
from spark_kafka_sink.client.admin import AdminClient
from spark_kafka_sink.config.topic_creation import TopicCreation
from spark_kafka_sink.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig

CREATION_TIMEOUT_MS = 8_000


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
            raise TopicError(
                f"topic '{topic}' cannot be created by topic.creation.enable: {error}", error.error
            )
