"""Producer batches for tests that care about queues and numbers, not about records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from spark_kafka_sink.base.model import ZERO_UUID, Node, TopicPartition
from spark_kafka_sink.producer.metadata import ClusterSnapshot, PartitionMetadata, TopicMetadata
from spark_kafka_sink.producer.producer_batch import ProducerBatch

T0, T1, T2 = (TopicPartition("t", partition) for partition in range(3))
NODES = {node_id: Node(node_id, f"host{node_id}", 9092) for node_id in (1, 2, 3)}


def make_batch(
    topic_partition: TopicPartition = T0,
    records_count: int = 1,
    size_bytes: int = 100,
    pages: Sequence[int] = (),
    created_at_ms: int = 0,
) -> ProducerBatch:
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


def make_cluster(leaders: Mapping[str, Sequence[tuple[int, int]]]) -> ClusterSnapshot:
    """Topics with the (leader id, leader epoch) of each partition."""
    topics = {
        name: TopicMetadata(ZERO_UUID, [PartitionMetadata(*leader) for leader in partitions])
        for name, partitions in leaders.items()
    }
    return ClusterSnapshot(NODES, topics)
