"""What a producer tells brokers of itself (KIP-714), and when."""

from __future__ import annotations

import logging
from collections import deque
from uuid import UUID

import pytest

from spark_kafka_sink.producer.telemetry import (
    DEFAULT_PUSH_INTERVAL_MS,
    MOST_PREFIXES,
    State,
    Subscription,
)
from spark_kafka_sink.producer.telemetry_figures import Payload, metrics_data, packed
from tests.simulation.harness import keyed, simulate

INTERVAL_MS = 10_000
TOTAL, RATE, LATENCY = "record.send.total", "record.send.rate", "node.request.latency.avg"


class TelemetrySources:
    """A simulation whose brokers take metrics."""

    def __init__(self, seed=0, brokers=3, **options):
        self.simulation = simulate(seed, brokers=brokers, linger_ms="0", **options)
        self.plugin = self.simulation.cluster.enable_telemetry()
        self.plugin.interval_ms = INTERVAL_MS

    def offering(self, **fields):
        """What brokers offer and answer."""
        for name, value in fields.items():
            setattr(self.plugin, name, deque(value) if name == "errors" else value)
        return self

    @property
    def producer(self):
        return self.simulation.producer

    @property
    def state(self):
        return self.producer.telemetry.state

    def write(self, rows=10, topic="t", size=20):
        self.simulation.write_rows(keyed(rows, size), topic)
        return self

    def append(self, rows):
        """Append rows, of which the sender has all from then on."""
        self.simulation.append(keyed(rows))
        self.producer._appender.finish_open()
        return self

    def run_for(self, duration_ms):
        self.simulation.run_for(duration_ms)
        return self

    def next_task(self):
        self.producer.begin_task(["t"])
        return self

    def without(self, *api_keys):
        """Brokers do not offer these."""
        for api_key in api_keys:
            del self.simulation.cluster.api_versions[api_key]
        return self

    def pause(self):
        """The only broker hangs from now on."""
        (broker,) = self.simulation.cluster.brokers.values()
        broker.is_paused = True
        return broker

    def resume(self, broker):
        broker.resume()
        self.producer.flush()
        return self

    def first_push(self):
        return self.run_for(INTERVAL_MS * 3 // 2 + 100).plugin.pushes[0]

    def begin_push(self):
        """Until a push is under way."""
        while self.state is not State.PUSH_IN_PROGRESS:
            self.simulation.step()
        return self

    def finish(self):
        """What closing does; returns how many milliseconds that took."""
        started_ms = self.simulation.clock.ms
        self.producer.telemetry.finish()
        return self.simulation.clock.ms - started_ms

    @property
    def are_last(self):
        """Of each push, whether it takes leave."""
        return [push.is_last for push in self.plugin.pushes]

    @property
    def totals(self):
        return [push.value(TOTAL) for push in self.plugin.pushes]


def by_node(push, name):
    return {p.attributes[0].value.string_value: p.as_double for p in push.points(name)}


# --- when -------------------------------------------------------------------------------------


def test_the_first_request_follows_the_first_answer_to_a_produce_request():
    watched = TelemetrySources()
    produced_at = []
    watched.simulation.cluster.on_produce = lambda *_: produced_at.append(
        (watched.simulation.clock.ms, len(watched.plugin.asked))
    )
    watched.run_for(5_000)
    assert watched.plugin.asked == []
    watched.write().run_for(1_000)
    assert produced_at[0][1] == 0
    assert len(watched.plugin.asked) == 1
    assert watched.plugin.asked[0][0] > produced_at[0][0]


@pytest.mark.parametrize("brokers", [1, 3])
def test_with_acks_0_it_follows_the_first_request(brokers):
    watched = TelemetrySources(acks="0", brokers=brokers).write().run_for(1_000)
    assert len(watched.plugin.asked) == 1


def test_the_first_push_is_somewhere_between_half_an_interval_and_one_and_a_half():
    delays = []
    for seed in range(20):
        watched = TelemetrySources(seed).write()
        delays.append(watched.first_push().at_ms - watched.plugin.asked[0][0])
    assert min(delays) >= INTERVAL_MS / 2
    assert max(delays) <= INTERVAL_MS * 3 / 2 + 50
    assert max(delays) - min(delays) > INTERVAL_MS / 2


def test_pushes_follow_at_the_interval_to_the_same_broker_as_the_same_client():
    watched = TelemetrySources().write().run_for(10 * INTERVAL_MS)
    pushes = watched.plugin.pushes
    assert len(pushes) in (9, 10)
    gaps = [later.at_ms - push.at_ms for push, later in zip(pushes, pushes[1:])]
    assert all(INTERVAL_MS <= gap <= INTERVAL_MS + 50 for gap in gaps)
    assert len({(push.instance_id, push.node_id) for push in pushes}) == 1
    assert not any(push.is_last for push in pushes)
    assert len(watched.plugin.asked) == 1
    assert watched.plugin.refused == []


def test_clients_do_not_all_ask_the_same_broker():
    asked = {TelemetrySources(seed).write().first_push().node_id for seed in range(20)}
    assert asked == {1, 2, 3}


@pytest.mark.parametrize("keys", [(71,), (72,), (71, 72)])
def test_brokers_without_it_or_half_of_it_are_asked_nothing_and_nothing_is_logged(caplog, keys):
    caplog.set_level(logging.DEBUG)
    watched = TelemetrySources().without(*keys).write()
    watched.producer.push_final_telemetry()
    watched.run_for(3 * DEFAULT_PUSH_INTERVAL_MS).next_task().write().finish()
    assert watched.plugin.requests == 0
    assert caplog.records == []


def test_the_option_switches_it_off():
    watched = TelemetrySources(enable_metrics_push="false").write().run_for(INTERVAL_MS)
    assert watched.plugin.requests == 0


def test_a_subscription_of_no_metrics_is_looked_at_again_after_its_interval():
    watched = TelemetrySources().offering(requested=[]).write().run_for(4 * INTERVAL_MS + 1_000)
    assert len(watched.plugin.asked) == 5
    assert watched.plugin.pushes == []
    assert {asked[2] for asked in watched.plugin.asked} == {"NONE"}
    watched.plugin.requested = ["org.apache.kafka.producer.record"]
    watched.run_for(3 * INTERVAL_MS)
    assert watched.plugin.pushes
    asked_as = [instance_id for _, instance_id, _ in watched.plugin.asked]
    assert len({*asked_as[1:], watched.plugin.pushes[0].instance_id}) == 1


@pytest.mark.parametrize("interval_ms", [0, -1])
def test_an_interval_that_is_none_is_five_minutes(interval_ms):
    watched = TelemetrySources().offering(interval_ms=interval_ms).write()
    watched.run_for(DEFAULT_PUSH_INTERVAL_MS // 2 - 1_000)
    assert len(watched.plugin.pushes) == 0
    watched.run_for(DEFAULT_PUSH_INTERVAL_MS + 2_000)
    assert len(watched.plugin.pushes) == 1


@pytest.mark.parametrize("requested", [["*"], []])
def test_an_interval_below_that_of_every_broker_takes_no_more_than_ten_requests_a_second(requested):
    """Brokers of Kafka store no interval below 100 ms."""
    watched = TelemetrySources().offering(interval_ms=1, requested=requested).write()
    before = watched.plugin.requests
    watched.run_for(10_000)
    assert 50 < watched.plugin.requests - before <= 101


# --- what -------------------------------------------------------------------------------------


def test_totals_are_sums_and_everything_else_is_a_gauge():
    watched = TelemetrySources().write(30)
    push = watched.first_push()
    kinds = {metric.name: metric.WhichOneof("data") for metric in push.metrics}
    assert len(kinds) == len(push.metrics) > 60
    for name, kind in kinds.items():
        assert kind == ("sum" if name.endswith(".total") else "gauge"), name
    assert push.value(TOTAL) == 30
    assert push.value("connection.count") == push.value("connection.creation.total")
    assert push.value("record.size.max") > 0
    (topic,) = push.points("topic.record.send.total")
    assert [(pair.key, pair.value.string_value) for pair in topic.attributes] == [("topic", "t")]
    assert topic.as_double == 30
    assert by_node(push, LATENCY).keys() <= {"node-1", "node-2", "node-3"}


def test_deltas_are_of_the_time_since_the_push_before():
    watched = TelemetrySources().write(30)
    first = watched.first_push()
    watched.write(5).run_for(INTERVAL_MS)
    second = watched.plugin.pushes[1]
    assert (first.value(TOTAL), second.value(TOTAL)) == (30, 5)
    assert first.is_delta(TOTAL)
    (before,), (after,) = first.points(TOTAL), second.points(TOTAL)
    assert after.start_time_unix_nano == before.time_unix_nano
    elapsed_s = (after.time_unix_nano - after.start_time_unix_nano) / 1e9
    assert second.value(RATE) == pytest.approx(5 / elapsed_s)


def test_cumulative_totals_go_on_over_tasks_while_averages_are_of_the_time_between():
    watched = TelemetrySources().offering(is_delta=False).write(30)
    first = watched.first_push()
    watched.write(3)
    watched.next_task().write(2).run_for(INTERVAL_MS)
    second = watched.plugin.pushes[1]
    assert (first.value(TOTAL), second.value(TOTAL)) == (30, 35)
    assert not second.is_delta(TOTAL)
    (before,), (after,) = first.points(TOTAL), second.points(TOTAL)
    assert after.start_time_unix_nano == before.start_time_unix_nano
    assert second.value("topic.record.send.total") == 35
    assert second.value(RATE) * INTERVAL_MS / 1000 == pytest.approx(5, rel=0.01)
    watched.run_for(INTERVAL_MS)
    third = watched.plugin.pushes[2]
    assert third.value(TOTAL) == 35
    assert f"org.apache.kafka.producer.{LATENCY}" not in third.names  # an average of nothing


def test_totals_begin_with_the_task_in_which_brokers_ask():
    watched = TelemetrySources().offering(requested=[]).write(30).run_for(1_000)
    watched.next_task()
    began_at_ms = watched.simulation.clock.timestamp_ms()
    watched.plugin.requested = ["*"]
    watched.write(3).run_for(3 * INTERVAL_MS)
    push = watched.plugin.pushes[0]
    (point,) = push.points(TOTAL)
    assert (point.as_double, point.start_time_unix_nano) == (3, began_at_ms * 1_000_000)
    nodes = by_node(push, "node.request.total")
    assert nodes, "the brokers of this task"
    assert all(nodes.values()), "without the address of the task before"


def test_maxima_are_of_the_tasks_since_the_push_before():
    watched = TelemetrySources().write(size=500).run_for(100)
    watched.next_task().write(size=20)
    largest = watched.first_push().value("record.size.max")
    assert 500 < largest < 560
    watched.next_task().write(size=50).run_for(INTERVAL_MS)
    assert 50 < watched.plugin.pushes[1].value("record.size.max") < 150


def test_a_brokers_maxima_are_the_largest_of_its_tasks():
    watched, maxima = TelemetrySources(brokers=1), []
    for _ in range(5):
        node = watched.write().run_for(100).producer.client.nodes[1]
        maxima.append((node.request_latency_max_ms, node.request_max_bytes))
        watched.next_task()
    push = watched.first_push()
    for name, each in zip(("latency", "size"), zip(*maxima)):
        assert by_node(push, f"node.request.{name}.max")["node-1"] == max(each) > 0


NOWHERE = [f"prefix.{number}." for number in range(MOST_PREFIXES)]


@pytest.mark.parametrize(
    ("requested", "is_asked_for"),
    [
        (["*"], lambda name: True),
        ([""], lambda name: True),
        (["org.apache.kafka.producer.node."], lambda name: ".node." in name),
        (
            ["org.apache.kafka.producer.topic.byte.total", "org.apache.kafka.producer.metadata"],
            lambda name: (
                name.endswith(("topic.byte.total", "metadata.age")) or "metadata.w" in name
            ),
        ),
        (["*", "org.apache.kafka.producer.flush"], lambda name: ".flush." in name),
        ([*NOWHERE[1:], "org.apache.kafka.producer.flush"], lambda name: ".flush." in name),
        # Each name would be compared with each prefix, while the task's thread waits.
        ([*NOWHERE, "org.apache.kafka.producer.flush"], lambda name: True),
    ],
)
def test_only_metrics_of_the_prefixes_are_told(requested, is_asked_for):
    names = TelemetrySources().write().first_push().names
    told = TelemetrySources().offering(requested=requested).write().first_push().names
    assert told == [name for name in names if is_asked_for(name)]
    assert told


@pytest.mark.parametrize(
    ("codecs", "used"), [([4, 3, 1, 2], 4), ([3], 3), ([9, 1, 4], 1), ([2], 2), ([], 0), ([9], 0)]
)
def test_it_is_compressed_with_the_first_codec_that_brokers_take_and_it_knows(codecs, used):
    push = TelemetrySources().offering(codecs=codecs).write().first_push()
    assert (push.codec_id, push.value(TOTAL)) == (used, 10)


def test_what_would_be_too_large_is_left_out_topics_first_and_then_brokers():
    size_bytes = TelemetrySources().offering(codecs=[]).write().first_push().size_bytes
    for most_bytes, has_nodes in ((size_bytes - 1, True), (size_bytes * 4 // 5, False)):
        push = TelemetrySources().offering(codecs=[], most_bytes=most_bytes).write().first_push()
        assert push.size_bytes <= most_bytes
        assert not any(".topic." in name for name in push.names)
        assert any(".node." in name for name in push.names) == has_nodes
        assert push.value(TOTAL) == 10
    watched = TelemetrySources().offering(codecs=[], most_bytes=10).write()
    watched.run_for(5 * INTERVAL_MS)
    assert watched.plugin.pushes == watched.plugin.refused == []
    watched.plugin.most_bytes = 0
    assert watched.first_push().value(TOTAL) == 10, "the limit is asked for again"


def test_the_resource_names_rack_and_transaction():
    for options in ({"client_rack": "zone-b"}, {}):
        assert TelemetrySources(**options).write().first_push().resource == options
    watched = TelemetrySources()
    watched.simulation.cluster.enable_transactions()
    watched.next_task().producer.begin_transaction("prefix-0", 60_000)
    assert watched.write().first_push().resource == {"transactional_id": "prefix-0"}


def test_a_push_of_the_largest_size_that_brokers_take():
    payload = Payload({"client": "c"}, [], 0, is_delta=True)
    data = metrics_data(payload)
    for most_bytes, taken in ((len(data), data), (len(data) - 1, None)):
        subscription = Subscription(UUID(int=1), 1, INTERVAL_MS, None, "none", most_bytes, True)
        found = packed([payload], subscription)
        assert (None if found is None else found.data) == taken
