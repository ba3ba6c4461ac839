"""Second checks, forgetting and limits of the producer that need a cluster, each with a case."""

from __future__ import annotations

from typing import Any

import pytest

from spark_kafka_sink.base.errors import TopicError
from spark_kafka_sink.protocol.messages.transactions import InitProducerIdRequest
from tests.simulation.harness import Simulation, simulate
from tests.simulation.test_dead_letters import Task, plain
from tests.simulation.test_refused_records import ALL, ONE
from tests.simulation.transactional import NAME, Transactional
from tests.unit.batches import make_batch


def test_rows_of_partitions_from_before_others_were_added_are_not_overtaken():
    """They are in a batch of their own, which nobody appends to any more."""
    simulation = simulate(partitions=1, batch_size="200", linger_ms="100000")
    simulation.append_to(0, [b"a"])
    simulation.cluster.add_partitions("t", 1)
    simulation.producer._metadata.request_update_now()
    simulation.run_for(500)
    assert simulation.producer._metadata.snapshot.partitions_count("t") == 2
    later = [b"b" * 150, b"c" * 150]
    simulation.append_to(0, later)
    simulation.producer.flush()
    assert simulation.values()[0] == [b"a", *later]


def creating(simulation: Simulation, create: Any) -> list[list[str]]:
    """Have missing topics created by ``create``. Returns what it is called with."""
    asked: list[list[str]] = []

    def noting(topics: list[str]) -> None:
        asked.append(topics)
        assert len(asked) < 3, "created again and again"
        create(topics)

    waiter = simulation.producer._topics
    waiter._creates_topics, waiter._create = True, noting
    return asked


def test_the_time_that_creating_takes_is_not_that_of_metadata():
    simulation = simulate(max_block_ms="2000")

    def create(topics: list[str]) -> None:
        simulation.clock.ms += 5_000
        simulation.cluster.create_topic("u", 1)

    assert creating(simulation, create) == []
    simulation.append([(None, b"a")], "u")
    simulation.producer.flush()
    assert simulation.all_values("u") == [b"a"]


def test_a_topic_that_brokers_do_not_know_yet_is_created_once():
    simulation = simulate()
    asked = creating(
        simulation,
        lambda topics: simulation.scheduler.after(
            5_000, lambda: simulation.cluster.create_topic("u", 1)
        ),
    )
    simulation.append([(None, b"a")], "u")
    assert asked == [["u"]]


def test_a_topic_stays_known_while_another_one_is_waited_for():
    simulation = simulate(metadata_max_idle_ms="5000", partitions=1)
    simulation.append([(None, b"a")])
    simulation.producer.flush()
    simulation.scheduler.after(20_000, lambda: simulation.cluster.create_topic("u", 1))
    cluster = simulation.producer._topics.wait_for(["t", "u"])
    assert {*cluster.topics} == {"t", "u"}


def test_a_topic_that_nobody_may_write_to_is_told_at_once():
    simulation = simulate()
    simulation.cluster.on_describe = lambda topic: "TOPIC_AUTHORIZATION_FAILED"
    began_ms = simulation.clock.ms
    with pytest.raises(TopicError, match="TOPIC_AUTHORIZATION_FAILED"):
        simulation.append([(None, b"a")])
    assert simulation.clock.ms - began_ms < 1_000


def waiting_for_partitions(**options: str) -> Simulation:
    """Whose ``t`` has two partitions, and 20 s later four. ``u`` has one."""
    simulation = simulate(partitions=2, **options)
    simulation.cluster.create_topic("u", 1)
    for topic in ("t", "u"):
        simulation.append_to(0, [b"a"], topic)
    simulation.producer.flush()
    simulation.scheduler.after(20_000, lambda: simulation.cluster.add_partitions("t", 2))
    return simulation


def test_a_topic_whose_partitions_are_waited_for_stays_of_interest():
    simulation = waiting_for_partitions(metadata_max_idle_ms="5000")
    requests = simulation.cluster.metadata_requests
    simulation.append_to(3, [b"b"])
    simulation.producer.flush()
    assert simulation.values()[3] == [b"b"]
    # And brokers are asked with a back-off.
    assert simulation.cluster.metadata_requests - requests < 60


def test_a_topic_that_is_away_when_the_partitions_of_another_come_is_waited_for():
    simulation = waiting_for_partitions()
    cluster = simulation.cluster

    def answer_of(error: str) -> None:
        cluster.on_describe = lambda topic: error if topic == "u" else "NONE"

    simulation.scheduler.after(15_000, lambda: answer_of("LEADER_NOT_AVAILABLE"))
    simulation.scheduler.after(30_000, lambda: answer_of("NONE"))
    found = simulation.producer._topics.wait_for(["t", "u"], {"t": 3})
    assert {*found.topics} == {"t", "u"}
    assert found.partitions_count("t") == 4


def test_what_is_appended_and_not_flushed_is_not_clean():
    simulation = simulate(batch_size="1000")
    simulation.append_to(0, [b"a" * 900] * 3)
    assert not simulation.producer.is_clean
    simulation.producer.flush()
    assert simulation.producer.is_clean


def test_tasks_after_a_transaction_share_a_producer_id():
    """Each would cost a request, and what brokers remember of it for a day."""
    simulation = Transactional()
    prepared = simulation.task(NAME, 0, b"a")
    simulation.end(prepared)
    asked = []
    for value in (b"b", b"c"):
        simulation.producer.begin_task(["t"])
        simulation.write(0, value)
        asked.append(simulation.count(InitProducerIdRequest))
    assert asked[0] == asked[1]


def test_other_errors_than_those_of_records_make_no_dead_letters():
    given = Task(ONE, **ALL)
    errors = iter(["NOT_ENOUGH_REPLICAS"] * 3)
    given.simulation.cluster.on_produce = lambda *_: next(errors, None)
    given.write(plain((b"k", b"a")))
    assert not given.message.dead_letters
    assert [r.value for r in given.records("t0")] == [b"a"]


def test_a_batch_of_before_does_not_make_batches_larger_again():
    """It was too large as well, and was on its way when others had to be split twice."""
    simulation = simulate()
    simulation.append([(None, b"a")])
    appender: Any = simulation.producer._appender
    appender._sender_finisher = type("", (), {"halve": staticmethod(lambda batch: [])})
    for size in (1_000, 400, 2_000):
        appender.split_too_large(make_batch(size_bytes=size))
    assert appender._topics.known("t").cap_bytes == 200


def test_batches_are_open_for_as_long_as_linger_ms_says():
    """More than the second after which others are finished."""
    simulation = simulate(linger_ms="5000")
    simulation.append([(None, b"a")])
    simulation.run_for(2_000)
    simulation.append([(None, b"b")])
    assert simulation.producer.metrics.batches == 0


class SlowFinish:
    """Finishing a batch takes 3 ms. count: of finished batches"""

    def __init__(self, simulation: Simulation) -> None:
        self.appender: Any = simulation.producer._appender
        self.count = 0
        finish = self.appender._finish

        def slow(slot: int, finisher: Any) -> Any:
            simulation.clock.ms += 3
            self.count += 1
            return finish(slot, finisher)

        self.appender._finish = slow


def test_the_sender_finishes_lingering_batches_for_a_few_milliseconds():
    """Neither the task thread nor the network waits longer."""
    simulation = simulate(partitions=5, linger_ms="100000")
    for partition in range(5):
        simulation.append_to(partition, [b"a"])
    slow, now_ms = SlowFinish(simulation), simulation.clock.ms
    assert 0 < slow.appender.finish_expired_linger(now_ms) <= 100_000
    assert [slow.appender.finish_expired_linger(now_ms + 100_000) for _ in range(3)] == [0, 0, None]
    assert slow.count == 5


def test_an_append_finishes_old_batches_for_no_longer_than_it_took():
    simulation = simulate(partitions=5, linger_ms="0")
    appender: Any = simulation.producer._appender
    appender.finish_expired_linger = lambda now_ms: None
    for partition in range(5):
        simulation.append_to(partition, [b"a"])
    slow = SlowFinish(simulation)
    simulation.clock.ms += 2_000
    appender._finish_old(simulation.clock.ms)
    assert slow.count == 2
    appender._finish_old(simulation.clock.ms - 8)
    assert slow.count == 5
