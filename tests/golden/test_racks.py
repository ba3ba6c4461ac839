"""Rows without key go where the Java producer's records go, and as often: racks, queues, slow brokers."""

import random
from collections import Counter

import pytest

from spark_kafka_sink.base.model import NO_NODE_ID, Node, TopicPartition
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.producer.partitioner import NO_SLOT, SlotAssigner, TopicSlots
from tests.golden import case_files as cases
from tests.tables import each_row
from tests.unit.batches import make_accumulator, make_batch, make_cluster

CHOICES = 1000
AVAILABILITY_TIMEOUT_MS = 100


def cluster_of(case):
    """Node i leads partition i, unless it has no leader."""
    racks = [None if rack == "-" else rack for rack in case["racks"]]
    numbers = range(len(racks))
    leaders = [NO_NODE_ID if str(i) in case["without_leader"] else i for i in numbers]
    cluster = make_cluster({"t": [(leader, 0) for leader in leaders]})
    return cluster._replace(nodes={i: Node(i, "h", 1, racks[i]) for i in numbers})


def accumulator_of(case):
    accumulator = make_accumulator(AVAILABILITY_TIMEOUT_MS)
    for partition in range(len(case["racks"])):
        for _ in range(int((case["queued"] or "000000")[partition])):
            accumulator.enqueue(make_batch(TopicPartition("t", partition)))
    for node in case["slow"]:
        for now_ms in (0, AVAILABILITY_TIMEOUT_MS + 1):
            accumulator.update_node_latency(int(node), could_send=False, now_ms=now_ms)
    return accumulator


@each_row("case", cases.load("racks"), ids=cases.name_of)
def test_shares_of_partitions_are_javas(case):
    aware = str(case["rack_aware"]).lower()
    options = {"partitioner.rack.aware": aware, "client.rack": case["rack"]}
    config = ProducerConfig.parse({"bootstrap.servers": "h:1", **options})
    assigner, cluster = SlotAssigner(config, accumulator_of(case)), cluster_of(case)
    topic, counts = TopicSlots("t", 0, cluster, random.Random(7)), Counter()
    for _ in range(CHOICES):
        topic.sticky_slot = NO_SLOT
        assigner.choose_sticky(topic, cluster)
        counts[str(topic.sticky_slot)] += 1
    shares = {partition: count / CHOICES for partition, count in counts.items()}
    assert shares == pytest.approx(case["shares"], abs=0.06)
