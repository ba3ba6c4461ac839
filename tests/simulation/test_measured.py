"""What a producer counts, beside what it has done in a simulated cluster."""

from __future__ import annotations

import pytest

from spark_kafka_sink.base.errors import DeliveryError
from spark_kafka_sink.base.node_metrics import sum_of
from tests.simulation.harness import Simulation, keyed, simulate
from tests.simulation.refusing import refusing
from tests.simulation.transactional import NAME, Transactional


def check(simulation: Simulation) -> None:
    """What is counted twice is the same."""
    metrics = simulation.producer.metrics
    nodes = sum_of(simulation.producer.nodes.values())
    assert metrics.responses == nodes.produce_responses == sum(nodes.latencies.values())
    assert metrics.request_latency_ms == nodes.request_latency_ms
    assert metrics.request_latency_max_ms == nodes.request_latency_max_ms
    assert metrics.throttle_time_ms == nodes.throttle_time_ms
    assert metrics.connections == nodes.connections
    reports = simulation.producer.report.values()
    retries = sum(report.record_retries for report in reports)
    assert metrics.record_retries == nodes.record_retries == retries
    assert metrics.records_sent == metrics.records + metrics.record_retries


def test_everything_that_is_sent_once() -> None:
    simulation = simulate(batch_size="2000")
    simulation.append(keyed(500, size=100))
    simulation.producer.flush()
    check(simulation)
    metrics = simulation.producer.metrics
    assert metrics.records_sent == metrics.records == 500
    assert metrics.batches_sent == metrics.batches > 20
    assert metrics.requests == metrics.responses
    assert 1 <= metrics.requests_in_flight_max <= 15
    assert 1900 < metrics.batch_size_max <= 2000
    assert metrics.compression_rate_sum == metrics.batches
    assert 100 < metrics.record_size_max < 130
    assert metrics.buffer_total_bytes == 32 << 20
    assert metrics.batch_size_max < metrics.buffer_used_max_bytes <= metrics.buffer_total_bytes
    nodes = sum_of(simulation.producer.nodes.values())
    assert nodes.outgoing_bytes > metrics.compressed_bytes
    assert nodes.responses == nodes.requests >= metrics.requests
    assert nodes.request_max_bytes >= metrics.batch_size_max
    assert nodes.connections == nodes.connections_created == metrics.connections > 0
    assert nodes.connections_closed == 0
    assert metrics.transaction_begin_ns == 0


def test_what_is_sent_again() -> None:
    simulation = simulate()
    faults = simulation.network.faults
    seen = []

    def lose_first_answer(broker: object, *told: object) -> None:
        seen.append(told)
        faults.cut_next_response = len(seen) == 1

    simulation.cluster.on_produce = lose_first_answer
    simulation.append_to(0, [b"a", b"b"])
    simulation.append_to(1, [b"c"])
    simulation.producer.flush()
    check(simulation)
    metrics = simulation.producer.metrics
    assert metrics.records == 3
    assert metrics.records_sent > 3
    assert metrics.requests > metrics.responses
    assert sum(node.connections_closed for node in simulation.producer.nodes.values()) == 1


def test_queue_time_is_from_the_first_record_until_it_is_sent() -> None:
    simulation = simulate(linger_ms="400")
    simulation.append_to(0, [b"warm"])
    simulation.producer.flush()
    before_ms = simulation.producer.metrics.queue_time_ms
    simulation.append_to(0, [b"a"])
    simulation.run_for(300)
    simulation.append_to(0, [b"b"])
    simulation.run_for(500)
    simulation.producer.flush()
    metrics = simulation.producer.metrics
    assert metrics.batches_sent == 2
    assert 700 <= metrics.queue_time_ms - before_ms <= 720
    assert metrics.queue_time_max_ms == max(before_ms, metrics.queue_time_ms - before_ms)


def test_throttling_and_the_age_of_metadata() -> None:
    simulation = simulate()
    simulation.append_to(0, [b"a"])
    simulation.cluster.throttle_time_ms = 700
    simulation.producer.flush()
    simulation.cluster.throttle_time_ms = 30
    simulation.append_to(0, [b"b"])
    simulation.producer.flush()
    check(simulation)
    metrics = simulation.producer.metrics
    assert (metrics.throttle_time_ms, metrics.throttle_time_max_ms) == (730, 700)
    assert 700 <= metrics.metadata_age_max_ms <= simulation.clock.ms


def test_the_next_task_begins_at_nothing_with_its_connections() -> None:
    simulation = simulate()
    simulation.append(keyed(100))
    simulation.producer.flush()
    connections = simulation.producer.metrics.connections
    simulation.producer.begin_task(["t"])
    assert simulation.producer.metrics.records_sent == 0
    nodes = sum_of(simulation.producer.nodes.values())
    assert (nodes.requests, nodes.latencies, nodes.connections) == (0, {}, connections)
    simulation.append(keyed(100))
    simulation.producer.flush()
    check(simulation)
    assert simulation.producer.metrics.records_sent == 100
    assert simulation.producer.metrics.connections == connections
    assert sum_of(simulation.producer.nodes.values()).connections_created == 0


def test_how_long_a_transaction_took_to_begin(simulation: Transactional) -> None:
    simulation.begin()
    begun_ms = simulation.clock.ms
    simulation.append(keyed(10))
    simulation.producer.flush()
    assert simulation.producer.transaction is not None
    assert simulation.producer.transaction.transactional_id == NAME
    took_ms = simulation.producer.metrics.transaction_begin_ns / 1e6
    assert 0 < took_ms <= simulation.clock.ms - begun_ms
    check(simulation)


def test_what_is_sent_again_and_then_split() -> None:
    simulation = simulate(partitions=1, batch_size="20000")
    answers = iter(["NOT_ENOUGH_REPLICAS", None, "NOT_ENOUGH_REPLICAS"])
    simulation.cluster.on_produce = lambda *_: next(answers, None)
    simulation.cluster.topics["t"].max_message_bytes = 2000
    simulation.append_to(0, [b"%02d" % n + bytes(100) for n in range(30)])
    simulation.producer.flush()
    check(simulation)
    metrics = simulation.producer.metrics
    assert metrics.batch_splits >= 1
    assert metrics.records == 30
    # Sent three times as a whole: at first, again, and in parts, one of them twice.
    assert 60 < metrics.record_retries < 90


def test_what_is_refused_for_another_batch_and_sent_again() -> None:
    simulation = simulate(partitions=1, batch_size="100", linger_ms="0")
    simulation.producer.rejections.tolerate(None)
    simulation.append_to(0, [b"first"])
    simulation.producer.flush()
    simulation.cluster.on_validate = refusing(lambda topic, record: record.value[:2] == b"00")
    simulation.append_to(0, [b"%02d" % n + bytes(40) for n in range(6)])
    simulation.producer.flush()
    (refused,) = simulation.producer.rejections.take_rejected()
    assert refused.record.value[:2] == b"00"
    check(simulation)
    assert simulation.producer.metrics.record_retries > 0


@pytest.mark.parametrize("retries", [0, 1, 3])
def test_a_batch_is_tried_again_as_often_as_retries_says(retries: int) -> None:
    simulation = simulate(partitions=1, retries=str(retries))
    simulation.cluster.on_produce = lambda *_: "NOT_ENOUGH_REPLICAS"
    simulation.append_to(0, [b"a"])
    with pytest.raises(DeliveryError, match=rf"\({retries + 1} failed attempt"):
        simulation.producer.flush()
    assert simulation.producer.metrics.requests == retries + 1
