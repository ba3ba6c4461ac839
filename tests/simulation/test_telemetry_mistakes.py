"""Mistakes in what is told of a producer (KIP-714), and brokers that do not answer it: what that costs
a task, and what a process says of it.
"""

from __future__ import annotations

import logging

import pytest

from spark_kafka_sink.producer import telemetry
from spark_kafka_sink.producer.telemetry import RESPONSE_MS, Telemetry
from spark_kafka_sink.producer.telemetry_figures import TelemetryCollector
from spark_kafka_sink.producer.telemetry_subscription import (
    DEFAULT_PUSH_INTERVAL_MS,
    State,
    Subscription,
)
from tests.simulation.harness import keyed
from tests.simulation.telemetry_world import INTERVAL_MS, TelemetrySources


@pytest.fixture(autouse=True)
def a_process_that_has_not_warned(monkeypatch):
    monkeypatch.setattr(telemetry, "_warned", set())


@pytest.mark.parametrize("step", ["of", "_record_metrics", "end_task", "collect", "mark_pushed"])
def test_a_mistake_ends_it_and_not_the_task(step, caplog, monkeypatch):
    """At the answer with a subscription, at a new task, at a push, and at its answer."""
    watched = TelemetrySources()

    def fail():
        where = {"of": Subscription, "_record_metrics": Telemetry}.get(step, TelemetryCollector)
        monkeypatch.setattr(where, step, lambda *_: 1 / 0)

    if step in ("of", "_record_metrics"):
        fail()
    watched.write()
    watched.run_for(100)
    if step not in ("of", "_record_metrics"):
        fail()
    watched.next_task()
    watched.write()
    watched.run_for(3 * INTERVAL_MS)
    assert "ZeroDivisionError" in caplog.text
    watched.write()
    assert len(watched.plugin.pushes) == (1 if step == "mark_pushed" else 0)
    assert len(watched.simulation.all_values()) == 30


@pytest.mark.parametrize("offered", [71, 72])
def test_a_broker_that_offers_one_half_of_it_is_asked_nothing(offered, caplog):
    watched = TelemetrySources()
    del watched.simulation.cluster.api_versions[{71: 72, 72: 71}[offered]]
    watched.write()
    watched.run_for(2 * DEFAULT_PUSH_INTERVAL_MS)
    watched.write()
    assert watched.plugin.requests == 0
    assert caplog.records == []


def test_a_process_warns_once(caplog):
    for _ in range(3):
        watched = TelemetrySources()
        watched.plugin.errors.append("INVALID_REQUEST")
        watched.write()
        watched.run_for(1_000)
        assert watched.plugin.requests == 1
    assert len([r for r in caplog.records if r.levelno >= logging.WARNING]) == 1


@pytest.mark.parametrize("places", [1, 5])
def test_rows_do_not_wait_long_behind_a_push_that_is_not_answered(places):
    """Brokers answer the requests of a connection in their order; this is the only one."""
    watched = TelemetrySources(brokers=1, max_in_flight_requests_per_connection=str(places))
    watched.write()
    watched.run_for(1_000)
    watched.plugin.hangs = True
    while watched.state is not State.PUSH_IN_PROGRESS:
        watched.run_for(100)
    started_ms = watched.simulation.clock.ms
    watched.write()
    assert RESPONSE_MS - 200 < watched.simulation.clock.ms - started_ms < RESPONSE_MS + 500
    watched.write()
    assert watched.simulation.clock.ms - started_ms < RESPONSE_MS + 600
    assert len(watched.simulation.all_values()) == 30


def test_after_a_broker_that_did_not_answer_the_least_busy_one_is_asked():
    for seed in range(8):
        watched = TelemetrySources(seed, request_timeout_ms="60000")
        watched.write()
        watched.run_for(1_000)
        watched.plugin.hangs = True
        while watched.state is not State.PUSH_IN_PROGRESS:
            watched.run_for(100)
        silent = watched.producer.telemetry._node.node_id
        watched.write(30)
        watched.plugin.hangs = False
        watched.run_for(DEFAULT_PUSH_INTERVAL_MS - 1_000)
        assert watched.state is State.SUBSCRIPTION_NEEDED
        watched.write(30)  # metadata and connections are new again
        broker = watched.simulation.cluster.brokers[silent]
        broker.is_paused = True
        watched.simulation.append(keyed(30))
        watched.producer._appender.finish_open()
        watched.run_for(2_000)
        assert len(watched.plugin.asked) == 2
        assert watched.producer.telemetry._node.node_id != silent
        broker.resume()
        watched.producer.flush()


def test_without_rows_an_answer_may_take_longer():
    watched = TelemetrySources(brokers=1)
    watched.write()
    watched.run_for(1_000)
    watched.plugin.hangs = True
    while watched.state is not State.PUSH_IN_PROGRESS:
        watched.run_for(100)
    watched.run_for(RESPONSE_MS + 1_000)
    assert watched.state is State.PUSH_IN_PROGRESS


def test_a_mistake_in_the_last_push_takes_no_time(monkeypatch):
    watched = TelemetrySources()
    watched.write()
    watched.run_for(100)
    monkeypatch.setattr(TelemetryCollector, "collect", lambda *_: 1 / 0)
    started_ms = watched.simulation.clock.ms
    watched.producer.telemetry.finish()
    assert watched.simulation.clock.ms == started_ms


def test_what_was_not_answered_is_not_asked_again_by_each_task():
    watched = TelemetrySources(brokers=1)
    watched.plugin.hangs = True
    for _ in range(10):
        watched.next_task()
        watched.write()
        watched.write()
        watched.producer.push_final_telemetry()
        watched.run_for(RESPONSE_MS)
    assert watched.plugin.requests == 1
    watched.plugin.hangs = False
    watched.run_for(DEFAULT_PUSH_INTERVAL_MS)
    watched.next_task()
    watched.write()
    watched.run_for(100)
    assert watched.plugin.requests == 2


def test_what_a_push_waits_behind_may_take_its_time():
    """A batch that the broker is slow to answer is not given up for the push after it."""
    watched = TelemetrySources(brokers=1)
    watched.write()
    watched.run_for(1_000)
    (broker,) = watched.simulation.cluster.brokers.values()
    broker.is_paused = True
    watched.simulation.append(keyed(3))
    watched.producer._appender.finish_open()
    watched.run_for(2 * INTERVAL_MS)
    assert watched.state is State.PUSH_IN_PROGRESS
    broker.resume()
    watched.producer.flush()
    watched.run_for(100)
    assert watched.producer.metrics.retries == 0
    assert len(watched.plugin.pushes) == 1
