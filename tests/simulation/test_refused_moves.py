"""Brokers refuse records while their partition gets another leader: answers come in any order."""

from __future__ import annotations

from spark_kafka_sink.base.model import TopicPartition
from tests.simulation.harness import simulate
from tests.simulation.refusing import refusing


def test_answers_of_the_old_leader_come_after_that_of_the_new_one() -> None:
    """The new leader refuses the third batch as out of order; then the old one refuses all of the
    first, and of the second all but two.
    """
    simulation = simulate(partitions=1, brokers=3, linger_ms="0", request_timeout_ms="5000")
    producer, cluster = simulation.producer, simulation.cluster
    producer.rejections.tolerate(None)
    cluster.on_validate = refusing(lambda _, r: r.value[:1] == b"x", most=100)
    simulation.append_to(0, [b"before"])
    producer.flush()
    partition = TopicPartition("t", 0)
    old = cluster.partition(partition).leader_id
    new = next(broker_id for broker_id in cluster.brokers if broker_id != old)
    handle = cluster.handle

    def handle_late(broker, request, version, reply):  # type: ignore[no-untyped-def]
        delay_ms = 300 if broker.node_id == old and type(request).api_key == 0 else 0
        simulation.scheduler.after(delay_ms, lambda: handle(broker, request, version, reply))

    cluster.handle = handle_late  # type: ignore[method-assign]
    for kept in ([], [b"B8", b"B9"]):
        simulation.append_to(0, [b"x"] * (10 - len(kept)) + kept)
        simulation.run_for(30)
    cluster.unaware_until_ms[old] = simulation.clock.ms + 2_000
    cluster.move_leader("t", 0, new)
    producer._metadata.request_update()
    simulation.run_for(60)
    third = [b"C%d" % n for n in range(10)]
    simulation.append_to(0, third)
    simulation.run_for(100)
    waiting = [b.last_error and b.last_error.name for b in producer.accumulator._incomplete]
    assert waiting == [None, None, "OUT_OF_ORDER_SEQUENCE_NUMBER"]

    flushed_at_ms = simulation.clock.ms
    producer.flush()
    assert simulation.clock.ms - flushed_at_ms < 5_000
    assert simulation.values() == {0: [b"before", b"B8", b"B9", *third]}
    assert len(producer.rejections.take_rejected()) == 18
