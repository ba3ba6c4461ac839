"""Brokers refuse, die or do not answer what a producer tells them of itself (KIP-714), its end, and mistakes
in it: never at the cost of a task.
"""

from __future__ import annotations

import logging

import pytest

from spark_kafka_sink.base.errors import DeliveryError
from spark_kafka_sink.producer import telemetry
from spark_kafka_sink.producer.telemetry import (
    CLOSE_TIMEOUT_MS,
    DEFAULT_PUSH_INTERVAL_MS,
    MAX_IDLE_MS,
    RESPONSE_MS,
    State,
    Subscription,
    Telemetry,
)
from spark_kafka_sink.producer.telemetry_figures import TelemetryCollector
from tests.simulation.harness import assert_has, keyed
from tests.simulation.test_telemetry import INTERVAL_MS, TOTAL, TelemetrySources


@pytest.fixture(autouse=True)
def a_process_that_has_not_warned(monkeypatch):
    monkeypatch.setattr(telemetry, "_warned", set())


# --- errors -----------------------------------------------------------------------------------


@pytest.mark.parametrize("error", ["INVALID_REQUEST", "INVALID_RECORD", "UNSUPPORTED_VERSION"])
@pytest.mark.parametrize("is_push", [False, True])
def test_errors_that_would_come_again_end_it_with_one_warning(error, is_push, caplog):
    errors = ["NONE", error] if is_push else [error]
    watched = TelemetrySources().offering(errors=errors).write()
    watched.run_for(2 * DEFAULT_PUSH_INTERVAL_MS).finish()
    assert watched.plugin.requests == 1 + is_push
    (warning,) = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    assert_has(warning, error, "kafka.enable.metrics.push", " [PKS-METRICS-011]")
    watched.write()


@pytest.mark.parametrize("error", ["UNKNOWN_SUBSCRIPTION_ID", "UNSUPPORTED_COMPRESSION_TYPE"])
def test_another_subscription_is_fetched_at_once(error):
    watched = TelemetrySources().offering(errors=["NONE", error]).write().run_for(4 * INTERVAL_MS)
    refused_at_ms, _ = watched.plugin.refused[0]
    asked_at_ms, instance_id, answer = watched.plugin.asked[1]
    assert asked_at_ms - refused_at_ms < 100
    assert answer == "NONE"
    pushed = watched.plugin.pushes[0]
    assert pushed.instance_id == instance_id
    assert pushed.at_ms - asked_at_ms >= INTERVAL_MS / 2
    assert pushed.value(TOTAL) == 10, "what a broker refused is told with the next push"


@pytest.mark.parametrize("error", ["TELEMETRY_TOO_LARGE", "THROTTLING_QUOTA_EXCEEDED"])
def test_too_much_is_tried_again_after_the_interval(error):
    watched = TelemetrySources().offering(errors=["NONE", error]).write().run_for(5 * INTERVAL_MS)
    refused_at_ms, _ = watched.plugin.refused[0]
    assert watched.plugin.asked[1][0] - refused_at_ms >= INTERVAL_MS
    assert watched.plugin.pushes[0].value(TOTAL) == 10


@pytest.mark.parametrize(
    "errors", [["THROTTLING_QUOTA_EXCEEDED"], ["UNKNOWN_SUBSCRIPTION_ID"] * 100]
)
def test_what_is_refused_before_there_was_a_subscription_is_tried_after_five_minutes(errors):
    watched = TelemetrySources().offering(errors=errors).write()
    watched.run_for(DEFAULT_PUSH_INTERVAL_MS - 1_000)
    assert len(watched.plugin.asked) == 1
    watched.run_for(2_000)
    assert len(watched.plugin.asked) == 2


def test_a_client_without_an_instance_id_pushes_nothing_and_says_so(caplog):
    watched = TelemetrySources().offering(gives_ids=False).write().run_for(3 * INTERVAL_MS)
    assert watched.plugin.requests == 1
    (warning,) = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    assert_has(warning, "gave this client no instance id", " [PKS-METRICS-011]")
    watched.write()


# --- brokers that die, and places -------------------------------------------------------------


@pytest.mark.parametrize("is_push", [False, True])
def test_a_broker_that_dies_in_the_middle_costs_the_task_nothing(is_push):
    watched = TelemetrySources(request_timeout_ms="2000", delivery_timeout_ms="30000")
    cluster = watched.simulation.cluster
    cluster.create_topic("copied", partitions=3, replicas=3)
    watched.plugin.hangs = not is_push
    watched.write(topic="copied")
    if is_push:
        watched.run_for(1_000)
        watched.plugin.hangs = True
        watched.begin_push()
    else:
        assert watched.state is State.SUBSCRIPTION_IN_PROGRESS
    dead = watched.producer.telemetry._node.node_id
    cluster.crash(dead, election_delay_ms=500)
    watched.plugin.hangs = False
    watched.write(topic="copied")
    assert len(watched.simulation.all_values("copied")) == 20
    assert watched.state is State.SUBSCRIPTION_NEEDED
    asked = len(watched.plugin.asked)
    watched.run_for(DEFAULT_PUSH_INTERVAL_MS + 2_000)
    watched.write(topic="copied").run_for(2 * INTERVAL_MS)
    assert len(watched.plugin.asked) == asked + 1
    assert watched.plugin.pushes[-1].node_id != dead
    # The broker may have had what it did not answer.
    told = sum(p.value(TOTAL) - p.value("record.retry.total") for p in watched.plugin.pushes)
    assert told == (20 if is_push else 30)


@pytest.mark.parametrize("places", [1, 2, 5])
def test_the_last_place_of_a_connection_is_left_to_produce_requests(places):
    """A hundred batches for one broker, which answers slowly, from before the first subscription."""
    watched = TelemetrySources(max_in_flight_requests_per_connection=str(places), batch_size="100")
    in_flight = []
    plugin, client = watched.plugin, watched.producer.client
    take = plugin.handle

    def look(node_id, request, reply):
        waiting = watched.producer.accumulator.incomplete_count
        in_flight.append((client.in_flight_count(), waiting))
        take(node_id, request, reply)

    plugin.handle = look
    watched.simulation.write(0, *[b"%050d" % number for number in range(200)])
    watched.run_for(1_000)
    assert in_flight
    for count, waiting in in_flight:
        assert count < places or not waiting


def hanging(free):
    """A subscribed producer whose only broker hangs, with all places taken but ``free``."""
    places = 5
    watched = TelemetrySources(brokers=1, batch_size="100", request_timeout_ms="60000")
    broker = watched.write().run_for(1_000).pause()
    for number in range(places - free):
        watched.simulation.hand_over(0, b"%03d" % number)
        watched.run_for(10)
    assert watched.producer.client.in_flight_count() == places - free
    return watched, broker


@pytest.mark.parametrize("free", [0, 1, 2])
def test_while_rows_are_under_way_a_push_needs_two_free_places(free):
    watched, broker = hanging(free)
    watched.run_for(2 * INTERVAL_MS)
    assert (watched.state is State.PUSH_IN_PROGRESS) == (free == 2)
    watched.resume(broker)


@pytest.mark.parametrize("free", [0, 1])
def test_the_last_push_may_take_the_last_place(free):
    watched, broker = hanging(free)
    watched.finish()
    watched.resume(broker).run_for(100)
    assert watched.are_last == [True] * free


def test_a_push_follows_the_pause_that_a_broker_asks_for():
    watched = TelemetrySources(brokers=1).write().run_for(1_000)
    watched.simulation.cluster.throttle_time_ms = 2 * INTERVAL_MS
    watched.write()
    pause_ends_at_ms = watched.simulation.clock.ms + 2 * INTERVAL_MS
    watched.run_for(4 * INTERVAL_MS)
    assert -100 < watched.plugin.pushes[0].at_ms - pause_ends_at_ms < 1_100


def test_without_a_connection_the_sender_sleeps():
    watched = TelemetrySources(connections_max_idle_ms="3000").write().run_for(2 * INTERVAL_MS)
    assert watched.state is State.PUSH_NEEDED
    polls = watched.simulation.network.polls
    watched.run_for(6 * INTERVAL_MS)
    assert watched.simulation.network.polls - polls < 20


# --- the end ----------------------------------------------------------------------------------


def test_a_task_shorter_than_the_interval_pushes_once_at_the_end():
    watched = TelemetrySources().write().run_for(100)
    assert watched.finish() < 100
    assert (watched.are_last, watched.totals) == ([True], [10])
    assert watched.state is State.TERMINATED
    watched.finish()
    assert len(watched.plugin.pushes) == 1
    watched.write().run_for(1_000)
    assert watched.plugin.requests == 2, "a closed producer does not begin another instance"


def test_closing_waits_for_a_hung_broker_no_longer_than_half_a_second():
    watched = TelemetrySources().write().run_for(100)
    watched.plugin.hangs = True
    assert watched.finish() <= CLOSE_TIMEOUT_MS


@pytest.mark.parametrize("is_subscribed", [False, True])
def test_closing_does_not_wait_without_a_connection(is_subscribed):
    watched = TelemetrySources().write()
    if is_subscribed:
        watched.run_for(100)
    cluster = watched.simulation.cluster
    cluster.stop_all()
    watched.simulation.step(3)
    assert watched.finish() == 0
    assert watched.plugin.pushes == []


@pytest.mark.parametrize("places", [1, 5])
def test_a_push_under_way_is_followed_by_the_last_one_which_tells_nothing_again(places):
    options = {"brokers": 1, "max_in_flight_requests_per_connection": str(places)}
    watched = TelemetrySources(**options).write().run_for(100).begin_push()
    watched.finish()
    assert (watched.are_last, watched.totals) == ([False, True], [10, 0])
    assert watched.plugin.refused == []
    assert watched.producer.client.in_flight_count() == 0, "the last one was answered as well"


def test_a_failed_task_says_so_too():
    watched = TelemetrySources(retries="0", enable_idempotence="false").write().run_for(100)
    watched.simulation.cluster.on_produce = lambda *_: "INVALID_RECORD"
    with pytest.raises(DeliveryError):
        watched.write()
    watched.finish()
    (push,) = watched.plugin.pushes
    assert push.is_last
    assert push.value("record.error.total") > 0


def test_a_producer_that_rests_for_long_takes_its_leave_and_comes_back_as_another():
    watched = TelemetrySources().offering(interval_ms=3 * MAX_IDLE_MS, is_delta=False)
    watched.write().run_for(100)
    watched.producer.telemetry.mark_idle()
    watched.run_for(MAX_IDLE_MS - 1_000)
    assert watched.plugin.pushes == []
    watched.run_for(1_500)
    (push,) = watched.plugin.pushes
    assert push.is_last
    polls = watched.simulation.network.polls
    watched.run_for(10 * MAX_IDLE_MS)
    assert watched.plugin.requests == 2
    assert watched.simulation.network.polls - polls < 20
    watched.next_task().write(3).run_for(5 * MAX_IDLE_MS)
    last = watched.plugin.pushes[1]
    assert last.instance_id != push.instance_id
    assert not last.is_last
    assert last.value(TOTAL) == 3
    assert watched.plugin.refused == []


def test_tasks_that_follow_each_other_are_one_client():
    watched = TelemetrySources().offering(is_delta=False)
    for _ in range(10):
        watched.write(4)
        watched.producer.telemetry.mark_idle()
        watched.run_for(INTERVAL_MS // 2)
        watched.next_task()
    assert len(watched.plugin.instances) == 1
    assert len(watched.plugin.asked) == 1
    assert len(watched.totals) >= 4
    assert watched.totals == sorted(watched.totals)
    assert watched.totals[-1] in (36, 40)


@pytest.mark.parametrize("is_subscribed", [False, True])
def test_at_the_end_of_a_jobs_task_it_takes_leave_at_once(is_subscribed):
    """The process may end before it is asked to; another task may come as well."""
    watched = TelemetrySources().write()
    if is_subscribed:
        watched.run_for(1_000)
    watched.producer.push_final_telemetry()
    watched.producer.telemetry.mark_idle()
    watched.run_for(100)
    assert (watched.are_last, watched.totals) == ([True], [10])
    watched.next_task()
    watched.run_for(1_000)
    assert watched.plugin.requests == 2, "each task's first produce request goes first"
    watched.write(3)
    watched.producer.push_final_telemetry()
    watched.run_for(100)
    assert watched.are_last == [True, True]
    assert watched.plugin.pushes[1].value(TOTAL) == 3
    assert len(watched.plugin.instances) == 2
    assert watched.plugin.refused == []


def test_a_task_that_ends_before_it_is_subscribed_still_pushes():
    watched = TelemetrySources()
    watched.simulation.append(keyed(10))
    watched.producer.push_final_telemetry()
    watched.producer.flush()
    watched.run_for(1_000)
    assert watched.are_last == [True]


def test_a_push_that_is_late_at_the_end_of_a_task_is_the_last_one():
    """The only broker hangs, so that there is no place for the push when it is due."""
    watched = TelemetrySources(
        brokers=1, max_in_flight_requests_per_connection="1", request_timeout_ms="60000"
    )
    watched.write().run_for(1_000)
    broker = watched.pause()
    watched.append(3).run_for(2 * INTERVAL_MS)
    assert watched.state is State.PUSH_NEEDED
    watched.producer.push_final_telemetry()
    watched.resume(broker).run_for(1_000)
    assert watched.are_last == [True]


# --- mistakes, and brokers that do not answer ---------------------------------------------------


@pytest.mark.parametrize("step", ["of", "_record_metrics", "end_task", "collect", "mark_pushed"])
def test_a_mistake_ends_it_and_not_the_task(step, caplog, monkeypatch):
    """At the answer with a subscription, at a new task, at a push, and at its answer."""
    watched = TelemetrySources()

    def fail():
        where = {"of": Subscription, "_record_metrics": Telemetry}.get(step, TelemetryCollector)
        monkeypatch.setattr(where, step, lambda *_: 1 / 0)

    if step in ("of", "_record_metrics"):
        fail()
    watched.write().run_for(100)
    if step not in ("of", "_record_metrics"):
        fail()
    watched.next_task().write().run_for(3 * INTERVAL_MS)
    assert "ZeroDivisionError" in caplog.text
    watched.write()
    assert len(watched.plugin.pushes) == (1 if step == "mark_pushed" else 0)
    assert len(watched.simulation.all_values()) == 30


def test_a_process_warns_once(caplog):
    for _ in range(3):
        watched = TelemetrySources().offering(errors=["INVALID_REQUEST"]).write().run_for(1_000)
        assert watched.plugin.requests == 1
    assert len([r for r in caplog.records if r.levelno >= logging.WARNING]) == 1


@pytest.mark.parametrize("places", [1, 5])
def test_rows_do_not_wait_long_behind_a_push_that_is_not_answered(places, caplog):
    """Brokers answer the requests of a connection in their order; this is the only one."""
    options = {"brokers": 1, "max_in_flight_requests_per_connection": str(places)}
    watched = TelemetrySources(**options).write().run_for(1_000)
    watched.plugin.hangs = True
    watched.begin_push()
    with watched.simulation.within(RESPONSE_MS + 500, RESPONSE_MS - 200):
        watched.write()
    assert "rows go over a new connection [PKS-METRICS-010]" in caplog.text
    with watched.simulation.within(100):
        watched.write()
    assert len(watched.simulation.all_values()) == 30


def test_after_a_broker_that_did_not_answer_the_least_busy_one_is_asked():
    for seed in range(8):
        watched = TelemetrySources(seed, request_timeout_ms="60000").write().run_for(1_000)
        watched.plugin.hangs = True
        watched.begin_push()
        silent = watched.producer.telemetry._node.node_id
        watched.write(30)
        watched.plugin.hangs = False
        watched.run_for(DEFAULT_PUSH_INTERVAL_MS - 1_000)
        assert watched.state is State.SUBSCRIPTION_NEEDED
        watched.write(30)  # metadata and connections are new again
        broker = watched.simulation.cluster.brokers[silent]
        broker.is_paused = True
        watched.append(30).run_for(2_000)
        assert len(watched.plugin.asked) == 2
        assert watched.producer.telemetry._node.node_id != silent
        watched.resume(broker)


def test_without_rows_an_answer_may_take_longer():
    watched = TelemetrySources(brokers=1).write().run_for(1_000)
    watched.plugin.hangs = True
    watched.begin_push()
    watched.run_for(RESPONSE_MS + 1_000)
    assert watched.state is State.PUSH_IN_PROGRESS


def test_a_mistake_in_the_last_push_takes_no_time(monkeypatch):
    watched = TelemetrySources().write().run_for(100)
    monkeypatch.setattr(TelemetryCollector, "collect", lambda *_: 1 / 0)
    assert watched.finish() == 0


def test_what_was_not_answered_is_not_asked_again_by_each_task():
    watched = TelemetrySources(brokers=1).offering(hangs=True)
    for _ in range(10):
        watched.next_task().write()
        watched.write()
        watched.producer.push_final_telemetry()
        watched.run_for(RESPONSE_MS)
    assert watched.plugin.requests == 1
    watched.plugin.hangs = False
    watched.run_for(DEFAULT_PUSH_INTERVAL_MS)
    watched.next_task().write().run_for(100)
    assert watched.plugin.requests == 2


def test_what_a_push_waits_behind_may_take_its_time():
    """A batch that the broker is slow to answer is not given up for the push after it."""
    watched = TelemetrySources(brokers=1).write().run_for(1_000)
    broker = watched.pause()
    watched.append(3).run_for(2 * INTERVAL_MS)
    assert watched.state is State.PUSH_IN_PROGRESS
    watched.resume(broker).run_for(100)
    assert watched.producer.metrics.retries == 0
    assert len(watched.plugin.pushes) == 1
