"""What a producer tells brokers of itself (KIP-714), and when."""

from __future__ import annotations

import logging

import pytest

from spark_kafka_sink.producer.telemetry_subscription import DEFAULT_PUSH_INTERVAL_MS
from tests.simulation.telemetry_world import (
    INTERVAL_MS,
    LATENCY,
    RATE,
    TOTAL,
    TelemetrySources,
    first_push,
)

# --- when -------------------------------------------------------------------------------------


def test_the_first_request_follows_the_first_answer_to_a_produce_request():
    watched = TelemetrySources()
    produced_at = []
    watched.simulation.cluster.on_produce = lambda *_: produced_at.append(
        (watched.simulation.clock.ms, len(watched.plugin.asked))
    )
    watched.run_for(5_000)
    assert watched.plugin.asked == []
    watched.write()
    watched.run_for(1_000)
    assert produced_at[0][1] == 0
    assert len(watched.plugin.asked) == 1
    assert watched.plugin.asked[0][0] > produced_at[0][0]


def test_with_acks_0_it_follows_the_first_request():
    watched = TelemetrySources(acks="0")
    watched.write()
    watched.run_for(1_000)
    assert len(watched.plugin.asked) == 1


def test_the_first_push_is_somewhere_between_half_an_interval_and_one_and_a_half():
    delays = []
    for seed in range(20):
        watched = TelemetrySources(seed)
        watched.write()
        push = first_push(watched)
        delays.append(push.at_ms - watched.plugin.asked[0][0])
    assert min(delays) >= INTERVAL_MS / 2
    assert max(delays) <= INTERVAL_MS * 3 / 2 + 50
    assert max(delays) - min(delays) > INTERVAL_MS / 2


def test_pushes_follow_at_the_interval_to_the_same_broker_as_the_same_client():
    watched = TelemetrySources()
    watched.write()
    watched.run_for(10 * INTERVAL_MS)
    pushes = watched.plugin.pushes
    assert len(pushes) in (9, 10)
    gaps = [later.at_ms - push.at_ms for push, later in zip(pushes, pushes[1:])]
    assert all(INTERVAL_MS <= gap <= INTERVAL_MS + 50 for gap in gaps)
    assert len({(push.instance_id, push.node_id) for push in pushes}) == 1
    assert not any(push.is_last for push in pushes)
    assert len(watched.plugin.asked) == 1
    assert watched.plugin.refused == []


def test_clients_do_not_all_ask_the_same_broker():
    asked = []
    for seed in range(20):
        watched = TelemetrySources(seed)
        watched.write()
        asked.append(first_push(watched).node_id)
    assert set(asked) == {1, 2, 3}


def test_brokers_without_it_are_asked_nothing_and_nothing_is_logged(caplog):
    caplog.set_level(logging.DEBUG)
    watched = TelemetrySources()
    for api_key in (71, 72):
        del watched.simulation.cluster.api_versions[api_key]
    watched.write()
    watched.run_for(3 * DEFAULT_PUSH_INTERVAL_MS)
    watched.producer.telemetry.finish()
    assert watched.plugin.requests == 0
    assert caplog.records == []


def test_a_broker_that_learns_it_is_asked_later():
    watched = TelemetrySources()
    offered = dict(watched.simulation.cluster.api_versions)
    del watched.simulation.cluster.api_versions[71], watched.simulation.cluster.api_versions[72]
    watched.write()
    watched.run_for(1_000)
    watched.simulation.cluster.api_versions.update(offered)
    for broker in watched.simulation.cluster.brokers.values():
        watched.simulation.network.cut_all(broker, "restarted")
    watched.write()
    watched.run_for(DEFAULT_PUSH_INTERVAL_MS)
    watched.write()
    watched.run_for(1_000)
    assert len(watched.plugin.asked) == 1


def test_the_option_switches_it_off():
    watched = TelemetrySources(enable_metrics_push="false")
    watched.write()
    watched.run_for(INTERVAL_MS)
    assert watched.plugin.requests == 0


def test_a_subscription_of_no_metrics_is_looked_at_again_after_its_interval():
    watched = TelemetrySources()
    watched.plugin.requested = []
    watched.write()
    watched.run_for(4 * INTERVAL_MS + 1_000)
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
    watched = TelemetrySources()
    watched.plugin.interval_ms = interval_ms
    watched.write()
    watched.run_for(DEFAULT_PUSH_INTERVAL_MS // 2 - 1_000)
    assert len(watched.plugin.pushes) == 0
    watched.run_for(DEFAULT_PUSH_INTERVAL_MS + 2_000)
    assert len(watched.plugin.pushes) == 1


# --- what -------------------------------------------------------------------------------------


def test_totals_are_sums_and_everything_else_is_a_gauge():
    watched = TelemetrySources()
    watched.write(30)
    push = first_push(watched)
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
    nodes = {point.attributes[0].value.string_value for point in push.points(LATENCY)}
    assert nodes <= {"node-1", "node-2", "node-3"}


def test_deltas_are_of_the_time_since_the_push_before():
    watched = TelemetrySources()
    watched.write(30)
    first = first_push(watched)
    watched.write(5)
    watched.run_for(INTERVAL_MS)
    second = watched.plugin.pushes[1]
    assert (first.value(TOTAL), second.value(TOTAL)) == (30, 5)
    assert first.is_delta(TOTAL)
    (before,), (after,) = first.points(TOTAL), second.points(TOTAL)
    assert after.start_time_unix_nano == before.time_unix_nano
    elapsed_s = (after.time_unix_nano - after.start_time_unix_nano) / 1e9
    assert second.value(RATE) == pytest.approx(5 / elapsed_s)


def test_cumulative_totals_go_on_over_tasks_while_averages_are_of_the_time_between():
    watched = TelemetrySources()
    watched.plugin.is_delta = False
    watched.write(30)
    first = first_push(watched)
    watched.write(3)
    watched.next_task()
    watched.write(2)
    watched.run_for(INTERVAL_MS)
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
    watched = TelemetrySources()
    watched.plugin.requested = []
    watched.write(30)
    watched.run_for(1_000)
    watched.next_task()
    began_at_ms = watched.simulation.clock.timestamp_ms()
    watched.plugin.requested = ["*"]
    watched.write(3)
    watched.run_for(3 * INTERVAL_MS)
    push = watched.plugin.pushes[0]
    (point,) = push.points(TOTAL)
    assert (point.as_double, point.start_time_unix_nano) == (3, began_at_ms * 1_000_000)
    points = push.points("node.request.total")
    nodes = {point.attributes[0].value.string_value: point.as_double for point in points}
    assert nodes, "the brokers of this task"
    assert all(nodes.values()), "without the address of the task before"


def test_maxima_are_of_the_tasks_since_the_push_before():
    watched = TelemetrySources()
    watched.write(size=500)
    watched.run_for(100)
    watched.next_task()
    watched.write(size=20)
    largest = first_push(watched).value("record.size.max")
    assert 500 < largest < 560
    watched.next_task()
    watched.write(size=50)
    watched.run_for(INTERVAL_MS)
    assert 50 < watched.plugin.pushes[1].value("record.size.max") < 150


def test_a_brokers_maxima_are_the_largest_of_its_tasks():
    watched = TelemetrySources(brokers=1)
    largest = {"latency": 0, "size": 0}
    for _ in range(5):
        watched.write()
        watched.run_for(100)
        node = watched.producer.client.nodes[1]
        largest["latency"] = max(largest["latency"], node.request_latency_max_ms)
        largest["size"] = max(largest["size"], node.request_max_bytes)
        watched.next_task()
    push = first_push(watched)
    for name, expected in largest.items():
        points = push.points(f"node.request.{name}.max")
        told = {point.attributes[0].value.string_value: point.as_double for point in points}
        assert told["node-1"] == expected > 0


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
    ],
)
def test_only_metrics_of_the_prefixes_are_told(requested, is_asked_for):
    everything = TelemetrySources()
    everything.write()
    names = first_push(everything).names
    watched = TelemetrySources()
    watched.plugin.requested = requested
    watched.write()
    told = first_push(watched).names
    assert told == [name for name in names if is_asked_for(name)]
    assert told


@pytest.mark.parametrize(
    ("codecs", "used"), [([4, 3, 1, 2], 4), ([3], 3), ([9, 1, 4], 1), ([2], 2), ([], 0), ([9], 0)]
)
def test_it_is_compressed_with_the_first_codec_that_brokers_take_and_it_knows(codecs, used):
    watched = TelemetrySources()
    watched.plugin.codecs = codecs
    watched.write()
    push = first_push(watched)
    assert push.codec_id == used
    assert push.value(TOTAL) == 10


def test_what_would_be_too_large_is_left_out_topics_first_and_then_brokers():
    whole = TelemetrySources()
    whole.plugin.codecs = []
    whole.write()
    size_bytes = first_push(whole).size_bytes
    for most_bytes, has_nodes in ((size_bytes - 1, True), (size_bytes * 4 // 5, False)):
        watched = TelemetrySources()
        watched.plugin.codecs, watched.plugin.most_bytes = [], most_bytes
        watched.write()
        push = first_push(watched)
        assert push.size_bytes <= most_bytes
        assert not any(".topic." in name for name in push.names)
        assert any(".node." in name for name in push.names) == has_nodes
        assert push.value(TOTAL) == 10
    watched = TelemetrySources()
    watched.plugin.codecs, watched.plugin.most_bytes = [], 10
    watched.write()
    watched.run_for(5 * INTERVAL_MS)
    assert watched.plugin.pushes == watched.plugin.refused == []
    watched.plugin.most_bytes = 0
    assert first_push(watched).value(TOTAL) == 10, "the limit is asked for again"


def test_the_resource_names_the_rack():
    watched = TelemetrySources(client_rack="zone-b")
    watched.write()
    assert first_push(watched).resource == {"client_rack": "zone-b"}
    plain = TelemetrySources()
    plain.write()
    assert first_push(plain).resource == {}


def test_the_resource_names_the_transaction():
    watched = TelemetrySources()
    watched.simulation.cluster.enable_transactions()
    watched.next_task()
    watched.producer.begin_transaction("prefix-0", 60_000)
    watched.write()
    assert first_push(watched).resource == {"transactional_id": "prefix-0"}
