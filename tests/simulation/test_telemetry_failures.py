"""What is told of a producer (KIP-714) when brokers refuse it or die, and at its end: never at the
cost of a task.
"""

from __future__ import annotations

import logging

import pytest

from spark_kafka_sink.base.errors import DeliveryError
from spark_kafka_sink.producer import telemetry
from spark_kafka_sink.producer.telemetry import CLOSE_TIMEOUT_MS, MAX_IDLE_MS
from spark_kafka_sink.producer.telemetry_subscription import DEFAULT_PUSH_INTERVAL_MS, State
from tests.simulation.harness import keyed
from tests.simulation.telemetry_world import INTERVAL_MS, TOTAL, TelemetrySources, first_push


@pytest.fixture(autouse=True)
def a_process_that_has_not_warned(monkeypatch):
    monkeypatch.setattr(telemetry, "_warned", set())


# --- errors -----------------------------------------------------------------------------------


@pytest.mark.parametrize("error", ["INVALID_REQUEST", "INVALID_RECORD", "UNSUPPORTED_VERSION"])
@pytest.mark.parametrize("is_push", [False, True])
def test_errors_that_would_come_again_end_it_with_one_warning(error, is_push, caplog):
    watched = TelemetrySources()
    watched.plugin.errors.extend(["NONE", error] if is_push else [error])
    watched.write()
    watched.run_for(2 * DEFAULT_PUSH_INTERVAL_MS)
    watched.producer.telemetry.finish()
    assert watched.plugin.requests == 1 + is_push
    (warning,) = [r for r in caplog.records if r.levelno >= logging.WARNING]
    assert error in warning.getMessage()
    assert "kafka.enable.metrics.push" in warning.getMessage()
    assert warning.getMessage().endswith(" [PKS-METRICS-011]")
    watched.write()


@pytest.mark.parametrize("error", ["UNKNOWN_SUBSCRIPTION_ID", "UNSUPPORTED_COMPRESSION_TYPE"])
def test_another_subscription_is_fetched_at_once(error):
    watched = TelemetrySources()
    watched.plugin.errors.extend(["NONE", error])
    watched.write()
    watched.run_for(4 * INTERVAL_MS)
    (refused_at_ms, _), (asked_at_ms, instance_id, answer) = (
        watched.plugin.refused[0],
        watched.plugin.asked[1],
    )
    assert asked_at_ms - refused_at_ms < 100
    assert answer == "NONE"
    pushed = watched.plugin.pushes[0]
    assert pushed.instance_id == instance_id
    assert pushed.at_ms - asked_at_ms >= INTERVAL_MS / 2
    assert pushed.value(TOTAL) == 10, "what a broker refused is told with the next push"


def test_a_changed_subscription_is_taken_up():
    watched = TelemetrySources()
    watched.write()
    first_push(watched)
    watched.plugin.subscription_id = 8
    watched.plugin.requested = ["org.apache.kafka.producer.record.send.total"]
    watched.run_for(3 * INTERVAL_MS)
    assert watched.plugin.refused[0][1] == "UNKNOWN_SUBSCRIPTION_ID"
    assert watched.plugin.pushes[-1].names == ["org.apache.kafka.producer.record.send.total"]
    assert {push.value(TOTAL) for push in watched.plugin.pushes[1:]} == {0}, "told before"
    assert len(watched.plugin.asked) == 2


@pytest.mark.parametrize("error", ["TELEMETRY_TOO_LARGE", "THROTTLING_QUOTA_EXCEEDED"])
def test_too_much_is_tried_again_after_the_interval(error):
    watched = TelemetrySources()
    watched.plugin.errors.extend(["NONE", error])
    watched.write()
    watched.run_for(5 * INTERVAL_MS)
    refused_at_ms, _ = watched.plugin.refused[0]
    assert watched.plugin.asked[1][0] - refused_at_ms >= INTERVAL_MS
    assert watched.plugin.pushes[0].value(TOTAL) == 10


def test_throttled_before_there_was_a_subscription_is_tried_after_five_minutes():
    watched = TelemetrySources()
    watched.plugin.errors.append("THROTTLING_QUOTA_EXCEEDED")
    watched.write()
    watched.run_for(DEFAULT_PUSH_INTERVAL_MS - 1_000)
    assert len(watched.plugin.asked) == 1
    watched.run_for(2_000)
    assert len(watched.plugin.asked) == 2


def test_a_subscription_that_is_unknown_again_and_again_is_no_loop():
    watched = TelemetrySources()
    watched.plugin.errors.extend(["UNKNOWN_SUBSCRIPTION_ID"] * 100)
    watched.write()
    watched.run_for(DEFAULT_PUSH_INTERVAL_MS + 1_000)
    assert len(watched.plugin.asked) == 2


def test_a_client_without_an_instance_id_pushes_nothing():
    watched = TelemetrySources()
    watched.plugin.gives_ids = False
    watched.write()
    watched.run_for(3 * INTERVAL_MS)
    assert watched.plugin.requests == 1
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
        while watched.state is not State.PUSH_IN_PROGRESS:
            watched.simulation.step()
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
    watched.write(topic="copied")
    watched.run_for(2 * INTERVAL_MS)
    assert len(watched.plugin.asked) == asked + 1
    assert watched.plugin.pushes[-1].node_id != dead
    # The broker may have had what it did not answer.
    told = sum(p.value(TOTAL) - p.value("record.retry.total") for p in watched.plugin.pushes)
    assert told == (20 if is_push else 30)


def test_an_answer_that_never_comes_ends_a_connection_and_no_task():
    watched = TelemetrySources(request_timeout_ms="2000", delivery_timeout_ms="30000")
    watched.plugin.hangs = True
    watched.write()
    watched.simulation.append(keyed(10))
    watched.producer.flush()
    watched.run_for(5_000)
    watched.write()
    assert len(watched.simulation.all_values()) == 30


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
    watched.simulation.append_to(0, [b"%050d" % number for number in range(200)])
    watched.producer.flush()
    watched.run_for(1_000)
    assert in_flight
    for count, waiting in in_flight:
        assert count < places or not waiting


def hanging(free):
    """A subscribed producer whose only broker hangs, with all places taken but ``free``."""
    places = 5
    watched = TelemetrySources(brokers=1, batch_size="100", request_timeout_ms="60000")
    watched.write()
    watched.run_for(1_000)
    (broker,) = watched.simulation.cluster.brokers.values()
    broker.is_paused = True
    for number in range(places - free):
        watched.simulation.append_to(0, [b"%03d" % number])
        watched.producer._appender.finish_open()
        watched.run_for(10)
    assert watched.producer.client.in_flight_count() == places - free
    return watched, broker


@pytest.mark.parametrize("free", [0, 1, 2])
def test_while_rows_are_under_way_a_push_needs_two_free_places(free):
    watched, broker = hanging(free)
    watched.run_for(2 * INTERVAL_MS)
    assert (watched.state is State.PUSH_IN_PROGRESS) == (free == 2)
    broker.resume()
    watched.producer.flush()


@pytest.mark.parametrize("free", [0, 1])
def test_the_last_push_may_take_the_last_place(free):
    watched, broker = hanging(free)
    watched.producer.telemetry.finish()
    broker.resume()
    watched.producer.flush()
    watched.run_for(100)
    assert [push.is_last for push in watched.plugin.pushes] == [True] * free


def test_a_push_follows_the_pause_that_a_broker_asks_for():
    watched = TelemetrySources(brokers=1)
    watched.write()
    watched.run_for(1_000)
    watched.simulation.cluster.throttle_time_ms = 2 * INTERVAL_MS
    watched.write()
    pause_ends_at_ms = watched.simulation.clock.ms + 2 * INTERVAL_MS
    watched.run_for(4 * INTERVAL_MS)
    assert -100 < watched.plugin.pushes[0].at_ms - pause_ends_at_ms < 1_100


def test_without_a_connection_the_sender_sleeps():
    watched = TelemetrySources(connections_max_idle_ms="3000")
    watched.write()
    watched.run_for(2 * INTERVAL_MS)
    assert watched.state is State.PUSH_NEEDED
    polls = watched.simulation.network.polls
    watched.run_for(6 * INTERVAL_MS)
    assert watched.simulation.network.polls - polls < 20


# --- the end ----------------------------------------------------------------------------------


def test_a_task_shorter_than_the_interval_pushes_once_at_the_end():
    watched = TelemetrySources()
    watched.write()
    watched.run_for(100)
    started_ms = watched.simulation.clock.ms
    watched.producer.telemetry.finish()
    assert watched.simulation.clock.ms - started_ms < 100
    (push,) = watched.plugin.pushes
    assert push.is_last
    assert push.value(TOTAL) == 10
    assert watched.state is State.TERMINATED
    watched.producer.telemetry.finish()
    assert len(watched.plugin.pushes) == 1
    watched.write()
    watched.run_for(1_000)
    assert watched.plugin.requests == 2, "a closed producer does not begin another instance"


def test_closing_waits_for_a_hung_broker_no_longer_than_half_a_second():
    watched = TelemetrySources()
    watched.write()
    watched.run_for(100)
    watched.plugin.hangs = True
    started_ms = watched.simulation.clock.ms
    watched.producer.telemetry.finish()
    assert watched.simulation.clock.ms - started_ms <= CLOSE_TIMEOUT_MS


@pytest.mark.parametrize("is_subscribed", [False, True])
def test_closing_does_not_wait_without_a_connection(is_subscribed):
    watched = TelemetrySources()
    watched.write()
    if is_subscribed:
        watched.run_for(100)
    cluster = watched.simulation.cluster
    for node_id in cluster.brokers:
        cluster.stop(node_id)
    watched.simulation.step(3)
    started_ms = watched.simulation.clock.ms
    watched.producer.telemetry.finish()
    assert watched.simulation.clock.ms == started_ms
    assert watched.plugin.pushes == []


def test_a_push_under_way_is_followed_by_the_last_one():
    watched = TelemetrySources()
    watched.write()
    watched.run_for(100)
    while watched.state is not State.PUSH_IN_PROGRESS:
        watched.simulation.step()
    watched.producer.telemetry.finish()
    assert [push.is_last for push in watched.plugin.pushes] == [False, True]
    assert watched.plugin.refused == []


@pytest.mark.parametrize("places", [1, 5])
def test_what_a_push_under_way_has_told_is_not_told_again(places):
    watched = TelemetrySources(brokers=1, max_in_flight_requests_per_connection=str(places))
    watched.write()
    watched.run_for(100)
    while watched.state is not State.PUSH_IN_PROGRESS:
        watched.simulation.step()
    watched.producer.telemetry.finish()
    assert [push.value(TOTAL) for push in watched.plugin.pushes] == [10, 0]
    assert watched.producer.client.in_flight_count() == 0, "the last one was answered as well"


def test_a_failed_task_says_so_too():
    watched = TelemetrySources(retries="0", enable_idempotence="false")
    watched.write()
    watched.run_for(100)
    watched.simulation.cluster.on_produce = lambda *_: "INVALID_RECORD"
    with pytest.raises(DeliveryError):
        watched.write()
    watched.producer.telemetry.finish()
    (push,) = watched.plugin.pushes
    assert push.is_last
    assert push.value("record.error.total") == 10 or push.value("record.error.total") > 0


def test_a_producer_that_rests_for_long_takes_its_leave_and_comes_back_as_another():
    watched = TelemetrySources()
    watched.plugin.interval_ms, watched.plugin.is_delta = 3 * MAX_IDLE_MS, False
    watched.write()
    watched.run_for(100)
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
    watched.next_task()
    watched.write(3)
    watched.run_for(5 * MAX_IDLE_MS)
    last = watched.plugin.pushes[1]
    assert last.instance_id != push.instance_id
    assert not last.is_last
    assert last.value(TOTAL) == 3
    assert watched.plugin.refused == []


def test_tasks_that_follow_each_other_are_one_client():
    watched = TelemetrySources()
    watched.plugin.is_delta = False
    for _ in range(10):
        watched.write(4)
        watched.producer.telemetry.mark_idle()
        watched.run_for(INTERVAL_MS // 2)
        watched.next_task()
    assert len(watched.plugin.instances) == 1
    assert len(watched.plugin.asked) == 1
    totals = [push.value(TOTAL) for push in watched.plugin.pushes]
    assert len(totals) >= 4
    assert totals == sorted(totals)
    assert totals[-1] in (36, 40)


@pytest.mark.parametrize("is_subscribed", [False, True])
def test_at_the_end_of_a_jobs_task_it_takes_leave_at_once(is_subscribed):
    """The process may end before it is asked to; another task may come as well."""
    watched = TelemetrySources()
    watched.write()
    if is_subscribed:
        watched.run_for(1_000)
    watched.producer.push_final_telemetry()
    watched.producer.telemetry.mark_idle()
    watched.run_for(100)
    (push,) = watched.plugin.pushes
    assert push.is_last
    assert push.value(TOTAL) == 10
    watched.next_task()
    watched.run_for(1_000)
    assert watched.plugin.requests == 2, "each task's first produce request goes first"
    watched.write(3)
    watched.producer.push_final_telemetry()
    watched.run_for(100)
    assert [push.is_last for push in watched.plugin.pushes] == [True, True]
    assert watched.plugin.pushes[1].value(TOTAL) == 3
    assert len(watched.plugin.instances) == 2
    assert watched.plugin.refused == []


def test_a_task_that_ends_before_it_is_subscribed_still_pushes():
    watched = TelemetrySources()
    watched.simulation.append(keyed(10))
    watched.producer.push_final_telemetry()
    watched.producer.flush()
    watched.run_for(1_000)
    assert [push.is_last for push in watched.plugin.pushes] == [True]


def test_a_push_that_is_late_at_the_end_of_a_task_is_the_last_one():
    """The only broker hangs, so that there is no place for the push when it is due."""
    watched = TelemetrySources(
        brokers=1, max_in_flight_requests_per_connection="1", request_timeout_ms="60000"
    )
    watched.write()
    watched.run_for(1_000)
    (broker,) = watched.simulation.cluster.brokers.values()
    broker.is_paused = True
    watched.simulation.append(keyed(3))
    watched.producer._appender.finish_open()
    watched.run_for(2 * INTERVAL_MS)
    assert watched.state is State.PUSH_NEEDED
    watched.producer.push_final_telemetry()
    broker.resume()
    watched.producer.flush()
    watched.run_for(1_000)
    assert [push.is_last for push in watched.plugin.pushes] == [True]


def test_without_the_api_taking_leave_asks_nothing():
    watched = TelemetrySources()
    del watched.simulation.cluster.api_versions[71], watched.simulation.cluster.api_versions[72]
    for _ in range(3):
        watched.write()
        watched.producer.push_final_telemetry()
        watched.run_for(100)
        watched.next_task()
    assert watched.plugin.requests == 0
