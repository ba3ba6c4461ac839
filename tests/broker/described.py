"""What confluent-kafka's AdminClient says of topics, and does to them."""

from typing import TypeVar

from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    OffsetSpec,
    ResourceType,
)

from tests.broker.processes import eventually
from tests.patience import PATIENCE_S

T = TypeVar("T")

_UNSETTLED = {
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
}


def _settled(ask):
    """What ``ask`` returns, once all brokers have heard of the topic: a new partition's leader that
    nobody has written to may not know of it yet.
    """
    answers = []

    def is_answered():
        try:
            answers.append(ask())
        except KafkaException as error:
            reason = error.args[0]
            if not reason.retriable() and reason.code() not in _UNSETTLED:
                raise
        return bool(answers)

    assert eventually(is_answered), "no broker leads the topic"
    return answers[0]


class Topics:
    """The topics of a cluster, always as they are now."""

    def __init__(self, bootstrap_servers):
        self._admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})

    def replicas(self, topic):
        """The brokers of each partition, sorted; nothing for a topic that does not exist."""
        # All topics are asked for: asking for one could create it.
        known = self._admin.list_topics(timeout=PATIENCE_S).topics
        if topic not in known:
            return {}
        return {index: sorted(p.replicas) for index, p in known[topic].partitions.items()}

    def created(self, topic):
        """``replicas`` of a topic that exists: the broker that is asked may not know it yet."""
        seen = []

        def is_known():
            seen.append(self.replicas(topic))
            return bool(seen[-1])

        assert eventually(is_known), f"no broker knows {topic}"
        return seen[-1]

    def leaders(self, topic):
        """The leader of each partition."""
        partitions = self._admin.list_topics(timeout=PATIENCE_S).topics[topic].partitions
        return {index: p.leader for index, p in partitions.items()}

    def records_count(self, topic):
        """How many offsets the topic's partitions have given out."""
        latest = {
            TopicPartition(topic, index): OffsetSpec.latest() for index in self.created(topic)
        }

        def count():
            asked = self._admin.list_offsets(latest)
            return sum(future.result(PATIENCE_S).offset for future in asked.values())

        return _settled(count)

    def own_configs(self, topic):
        """The configs that were set for the topic itself."""
        resource = ConfigResource(ResourceType.TOPIC, topic)
        entries = _settled(
            lambda: self._admin.describe_configs([resource])[resource].result(PATIENCE_S)
        )
        own = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
        return {name: entry.value for name, entry in entries.items() if entry.source == own}

    def topic_id(self, topic):
        """None for a topic that does not exist."""
        if not self.replicas(topic):
            return None
        asked = TopicCollection([topic])
        described = _settled(lambda: self._admin.describe_topics(asked)[topic].result(PATIENCE_S))
        return str(described.topic_id)

    def grow(self, topic, partitions):
        growth = self._admin.create_partitions([NewPartitions(topic, partitions)])
        growth[topic].result(PATIENCE_S)

    def delete(self, topic):
        """Delete a topic, and wait until the brokers no longer know it."""
        self._admin.delete_topics([topic])[topic].result(PATIENCE_S)
        assert eventually(lambda: not self.replicas(topic))
