"""Metadata and answers of brokers about it."""

from __future__ import annotations

from uuid import UUID

from spark_kafka_sink.base.clock import ExponentialBackoff
from spark_kafka_sink.base.model import ZERO_UUID, TopicPartition
from spark_kafka_sink.producer.metadata import (
    Metadata,
    MetadataSettings,
)
from spark_kafka_sink.protocol.messages.topics import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

T0 = TopicPartition("t", 0)
UNKNOWN_TOPIC, LEADER_NOT_AVAILABLE, TOPIC_AUTHORIZATION_FAILED = 3, 5, 29
MIB = 1024 * 1024


class NoJitter:
    def random(self) -> float:
        return 0.5


def make_metadata(
    max_age_ms: int = 300_000,
    max_idle_ms: int = 300_000,
    may_rebootstrap: bool = True,
    rebootstrap_trigger_ms: int = 5_000,
    topics: tuple[str, ...] = ("t",),
) -> Metadata:
    settings = MetadataSettings(max_age_ms, max_idle_ms, may_rebootstrap, rebootstrap_trigger_ms)
    backoff = ExponentialBackoff(100, 1_000, NoJitter())
    metadata = Metadata([("b1", 9092), ("b2", 9092)], settings, backoff)
    for topic in topics:
        metadata.add_topic(topic, 0)
    return metadata


def topic(
    *leaders: tuple[int, int],
    name: str = "t",
    topic_id: UUID = ZERO_UUID,
    error_code: int = 0,
) -> MetadataResponseTopic:
    """A topic whose partitions have these (leader id, leader epoch)."""
    partitions = [
        MetadataResponsePartition(0, index, leader_id, leader_epoch)
        for index, (leader_id, leader_epoch) in enumerate(leaders)
    ]
    return MetadataResponseTopic(error_code, name, topic_id, partitions=partitions)


def answer(*topics: MetadataResponseTopic, brokers: tuple[int, ...] = (1, 2)) -> MetadataResponse:
    nodes = [MetadataResponseBroker(b, f"host{b}", 9092, "rack") for b in brokers]
    return MetadataResponse(brokers=nodes, cluster_id="c", topics=list(topics))
