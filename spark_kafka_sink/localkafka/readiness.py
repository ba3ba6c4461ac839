"""When a cluster is ready, judged by the metadata of each of its brokers. Pure.

A check looks at what one broker says about the cluster, and returns why it is not good enough yet,
or None. Partitions with a replica on a broker that does not run are ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from spark_kafka_sink.base.errors import error_for_code
from spark_kafka_sink.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

Check = Callable[[MetadataResponse], "str | None"]


def is_serving(running: Collection[int]) -> Check:
    """All ``running`` brokers and a controller are known, and their partitions have leaders."""

    def check(cluster: MetadataResponse) -> str | None:
        known = {broker.node_id for broker in cluster.brokers}
        missing = sorted(set(running) - known)
        if missing:
            return f"it knows brokers {sorted(known)}, not {missing}"
        if cluster.controller_id < 0:
            return "it knows no controller"
        for topic, partition in _partitions(cluster, running):
            if partition.leader_id not in running:
                return f"{topic.name}-{partition.partition_index} has no leader"
        return None

    return check


def is_in_sync(running: Collection[int]) -> Check:
    """Serving, and every replica is in its ISR."""
    check_serving = is_serving(running)

    def check(cluster: MetadataResponse) -> str | None:
        for topic, partition in _partitions(cluster, running):
            if set(partition.isr_nodes) != set(partition.replica_nodes):
                replicas, isr = partition.replica_nodes, partition.isr_nodes
                where = f"{topic.name}-{partition.partition_index}"
                return f"{where} has replicas {replicas}, in sync are {isr}"
        return check_serving(cluster)

    return check


def has_topic(name: str, partitions: int) -> Check:
    """Topic ``name`` is known, and each partition has a leader."""

    def check(cluster: MetadataResponse) -> str | None:
        for topic in cluster.topics:
            if topic.name == name and not topic.error_code:
                led = sum(partition.leader_id >= 0 for partition in topic.partitions)
                return None if led == partitions else f"{led} of {partitions} have a leader"
            if topic.name == name:
                return str(error_for_code(topic.error_code))
        return f"topic {name} is unknown"

    return check


def _partitions(
    cluster: MetadataResponse, running: Collection[int]
) -> Iterator[tuple[MetadataResponseTopic, MetadataResponsePartition]]:
    for topic in cluster.topics:
        for partition in topic.partitions:
            if set(partition.replica_nodes) <= set(running):
                yield topic, partition
