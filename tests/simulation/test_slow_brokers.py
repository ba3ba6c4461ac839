"""Brokers that take their time, and answer: nobody gives up before."""

from __future__ import annotations

import pytest

from spark_kafka_sink.base.errors import BrokerError
from spark_kafka_sink.client.admin import create_missing
from spark_kafka_sink.config.producer_config import TopicCreation
from spark_kafka_sink.config.sink_keys import ExactlyOnceConfig
from spark_kafka_sink.protocol.messages.topics import CreateTopicsRequest
from spark_kafka_sink.transactions.decision_log import prepare_log_topic
from tests.simulation.harness import Simulation
from tests.simulation.operating import PATIENCE_MS, TIMEOUT_MS, Prefix, driver

SLOW_MS = 10_000


@pytest.fixture
def made() -> Prefix:
    """Its controller has a queue of ten seconds: each request to create topics waits as long."""
    made = Prefix()
    handle = made.world.cluster.handle

    def handle_late(broker, request, version, reply):
        delay_ms = SLOW_MS if isinstance(request, CreateTopicsRequest) else 0
        made.world.scheduler.after(delay_ms, lambda: handle(broker, request, version, reply))

    made.world.cluster.handle = handle_late
    return made


def test_topics_of_the_data_are_created(made: Prefix) -> None:
    create_missing(made.client.admin, ["new"], TopicCreation(1, 1, ()))
    assert "new" in made.world.cluster.topics


def test_the_log_is_created(made: Prefix) -> None:
    config = ExactlyOnceConfig("p", TIMEOUT_MS, "new-log", 3)
    prepare_log_topic(made.client.admin, config, made.world.clock.ms + PATIENCE_MS)
    assert "new-log" in made.world.cluster.topics


def test_the_log_is_waited_for_until_the_deadline(made: Prefix) -> None:
    config = ExactlyOnceConfig("p", TIMEOUT_MS, "new-log", 3)
    deadline_ms = made.world.clock.ms + SLOW_MS - 1_000
    with pytest.raises(BrokerError, match="CreateTopics: no answer"):
        prepare_log_topic(made.client.admin, config, deadline_ms)
    assert made.world.clock.ms == deadline_ms


@pytest.fixture
def slow() -> Prefix:
    """A prefix that a driver has. All brokers take five seconds for each answer from then on."""
    made = Prefix()
    made.protocol.plan(driver(1), None)
    handle = made.world.cluster.handle

    def handle_late(broker, request, version, reply):
        made.world.scheduler.after(5_000, lambda: handle(broker, request, version, reply))

    made.world.cluster.handle = handle_late
    return made


def test_what_any_broker_can_answer_is_waited_for(slow: Prefix) -> None:
    """The first one asked may hang, as far as one can see, and is left; the next one is not."""
    took_ms = []
    for _ in range(2):
        started_ms = slow.world.clock.ms
        assert len(slow.client.admin.nodes(started_ms + PATIENCE_MS)) == 3
        took_ms.append(slow.world.clock.ms - started_ms)
    assert took_ms[0] < 15_000
    assert took_ms[1] < 5_100


def test_planning_takes_its_requests_one_after_the_other(slow: Prefix) -> None:
    """About ten, each once: it is within max.block.ms."""
    started_ms = slow.world.clock.ms
    slow.protocol.plan(driver(1), None)
    assert slow.world.clock.ms - started_ms < PATIENCE_MS


def test_creating_may_take_longer_than_metadata() -> None:
    """max.block.ms is for what the cluster is asked for, and does not run out meanwhile."""
    simulation = Simulation(max_block_ms="5000")

    def create(topics: list[str]) -> None:
        simulation.clock.ms += SLOW_MS
        for topic in topics:
            simulation.cluster.create_topic(topic, 1)

    waiter = simulation.producer._topics
    waiter._create, waiter._creates_topics = create, True
    simulation.append_to(0, [b"a"])
    simulation.producer.flush()
    assert simulation.values() == {0: [b"a"]}
