"""Producer batches for tests that care about queues and numbers, not about records; a cluster as
the producer knows it, and answers of brokers about it.
"""

from spark_kafka_sink.base.clock import ExponentialBackoff
from spark_kafka_sink.base.model import ZERO_UUID, Node, TopicPartition
from spark_kafka_sink.producer.accumulator import BufferPool, RecordAccumulator
from spark_kafka_sink.producer.metadata import (
    ClusterSnapshot,
    Metadata,
    MetadataSettings,
    PartitionMetadata,
    TopicMetadata,
)
from spark_kafka_sink.producer.monitor import ThreadMonitor
from spark_kafka_sink.producer.producer_batch import ProducerBatch
from spark_kafka_sink.protocol.messages.topics import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tests.unit.simulated_time import NO_JITTER

T0, T1, T2 = (TopicPartition("t", partition) for partition in range(3))
NODES = {node_id: Node(node_id, f"host{node_id}", 9092) for node_id in (1, 2, 3)}
ALL = 10**9
"""More bytes than all batches have."""
PAGES, PAGE_SIZE = 8, 4096


def make_batch(topic_partition=T0, records_count=1, size_bytes=100, pages=(), created_at_ms=0):
    return ProducerBatch(
        topic_partition=topic_partition,
        buffers=[memoryview(bytearray(size_bytes))],
        pages=list(pages),
        size_bytes=size_bytes,
        uncompressed_bytes=size_bytes,
        records_count=records_count,
        codec_id=0,
        base_timestamp=1,
        max_timestamp=2,
        created_at_ms=created_at_ms,
        opened_at_ms=created_at_ms,
    )


def make_accumulator(availability_timeout_ms=0):
    """One with memory for ``PAGES``."""
    pool = BufferPool(PAGES * PAGE_SIZE, PAGE_SIZE)
    backoff = ExponentialBackoff(100, 1_000, NO_JITTER)
    monitor = ThreadMonitor()
    return RecordAccumulator(monitor, pool, backoff, lambda: None, availability_timeout_ms)


def make_cluster(leaders):
    """Topics with the (leader id, leader epoch) of each partition."""
    topics = {
        name: TopicMetadata(ZERO_UUID, [PartitionMetadata(*leader) for leader in partitions])
        for name, partitions in leaders.items()
    }
    return ClusterSnapshot(NODES, topics)


def make_metadata(
    max_age_ms=300_000,
    max_idle_ms=300_000,
    may_rebootstrap=True,
    rebootstrap_trigger_ms=5_000,
    topics=("t",),
):
    settings = MetadataSettings(max_age_ms, max_idle_ms, may_rebootstrap, rebootstrap_trigger_ms)
    backoff = ExponentialBackoff(100, 1_000, NO_JITTER)
    metadata = Metadata([("b1", 9092), ("b2", 9092)], settings, backoff)
    for topic in topics:
        metadata.add_topic(topic, 0)
    return metadata


def topic(*leaders, name="t", topic_id=ZERO_UUID, error_code=0):
    """What a broker says of a topic whose partitions have these (leader id, leader epoch)."""
    partitions = [
        MetadataResponsePartition(0, index, leader_id, leader_epoch)
        for index, (leader_id, leader_epoch) in enumerate(leaders)
    ]
    return MetadataResponseTopic(error_code, name, topic_id, partitions=partitions)


def answer(*topics, brokers=(1, 2)):
    nodes = [MetadataResponseBroker(b, f"host{b}", 9092, "rack") for b in brokers]
    return MetadataResponse(brokers=nodes, cluster_id="c", topics=list(topics))


def answer_of_all_nodes():
    """A broker names ``NODES`` and no topic."""
    return MetadataResponse(brokers=[MetadataResponseBroker(*n[:3]) for n in NODES.values()])
