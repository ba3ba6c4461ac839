"""A producer beside its sender: what it counts, what is too large, durations at their maximum, and second
checks, forgetting and limits that need a cluster, each with a case.
"""

from __future__ import annotations

import random

import pytest

from spark_kafka_sink.base.errors import DeliveryError, RecordTooLargeError, TopicError
from spark_kafka_sink.base.kafka_metrics import sum_of
from spark_kafka_sink.config.producer_config import PRODUCER_CONFIG
from tests.simulation.faults import refusing
from tests.simulation.harness import (
    NAME,
    assert_has,
    connected,
    keyed,
    partition_of,
    simulate,
)
from tests.tables import each_row
from tests.unit.batches import make_batch


def check(simulation):
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
    assert sum(nodes.record_retries_by_error.values()) == retries
    assert metrics.records_sent == metrics.records + metrics.record_retries


def test_a_round_without_work_ends_when_its_caller_wants():
    simulation = simulate()
    simulation.write_rows(keyed(1))
    now_ms = simulation.clock.ms
    simulation.producer.sender.run_once(now_ms, now_ms + 7)
    assert simulation.clock.ms == now_ms + 7


def test_everything_that_is_sent_once():
    simulation = simulate(batch_size="2000")
    simulation.write_rows(keyed(500, size=100))
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


def test_what_is_sent_again():
    simulation = simulate()
    simulation.lose_first_answer()
    simulation.append_to(0, [b"a", b"b"])
    simulation.write(1, b"c")
    check(simulation)
    metrics = simulation.producer.metrics
    assert metrics.records == 3
    assert metrics.records_sent > 3
    assert metrics.requests > metrics.responses
    assert sum(node.connections_closed for node in simulation.producer.nodes.values()) == 1


def test_queue_time_is_from_the_first_record_until_it_is_sent():
    simulation = connected(b"warm", linger_ms="400")
    before_ms = simulation.producer.metrics.queue_time_ms
    simulation.append_to(0, [b"a"])
    simulation.run_for(300)
    simulation.append_to(0, [b"b"])
    simulation.run_for(500)
    simulation.flush()
    metrics = simulation.producer.metrics
    assert metrics.batches_sent == 2
    assert 700 <= metrics.queue_time_ms - before_ms <= 720
    assert metrics.queue_time_max_ms == max(before_ms, metrics.queue_time_ms - before_ms)


def test_throttling_and_the_age_of_metadata():
    simulation = simulate()
    simulation.append_to(0, [b"a"])
    simulation.cluster.throttle_time_ms = 700
    simulation.flush()
    simulation.cluster.throttle_time_ms = 30
    simulation.write(0, b"b")
    check(simulation)
    metrics = simulation.producer.metrics
    assert (metrics.throttle_time_ms, metrics.throttle_time_max_ms) == (730, 700)
    assert 700 <= metrics.metadata_age_max_ms <= simulation.clock.ms


def test_the_next_task_begins_at_nothing_with_its_connections():
    simulation = simulate()
    simulation.write_rows(keyed(100))
    connections = simulation.producer.metrics.connections
    simulation.producer.begin_task(["t"])
    assert simulation.producer.metrics.records_sent == 0
    nodes = sum_of(simulation.producer.nodes.values())
    assert (nodes.requests, nodes.latencies, nodes.connections) == (0, {}, connections)
    simulation.write_rows(keyed(100))
    check(simulation)
    assert simulation.producer.metrics.records_sent == 100
    assert simulation.producer.metrics.connections == connections
    assert sum_of(simulation.producer.nodes.values()).connections_created == 0


def test_how_long_a_transaction_took_to_begin(simulation):
    simulation.begin()
    begun_ms = simulation.clock.ms
    simulation.write_rows(keyed(10))
    assert simulation.producer.transaction.transactional_id == NAME
    took_ms = simulation.producer.metrics.transaction_begin_ns / 1e6
    assert 0 < took_ms <= simulation.clock.ms - begun_ms
    check(simulation)


def test_what_is_sent_again_and_then_split():
    simulation = simulate(partitions=1, batch_size="20000")
    simulation.cluster.refuse("NOT_ENOUGH_REPLICAS", None, "NOT_ENOUGH_REPLICAS")
    simulation.cluster.topics["t"].max_message_bytes = 2000
    simulation.write(0, *[b"%02d" % n + bytes(100) for n in range(30)])
    check(simulation)
    metrics = simulation.producer.metrics
    assert metrics.batch_splits >= 1
    assert metrics.records == 30
    # Sent three times as a whole: at first, again, and in parts, one of them twice.
    assert 60 < metrics.record_retries < 90
    errors = sum_of(simulation.producer.nodes.values()).record_retries_by_error
    assert set(errors) == {"NOT_ENOUGH_REPLICAS", "MESSAGE_TOO_LARGE"}
    assert errors["MESSAGE_TOO_LARGE"] == 30


def test_what_is_refused_for_another_batch_and_sent_again():
    simulation = connected(b"first", partitions=1, batch_size="100", linger_ms="0")
    simulation.producer.rejections.tolerate(None)
    simulation.cluster.on_validate = refusing(lambda topic, record: record.value[:2] == b"00")
    simulation.write(0, *[b"%02d" % n + bytes(40) for n in range(6)])
    (refused,) = simulation.producer.rejections.take_rejected()
    assert refused.record.value[:2] == b"00"
    check(simulation)
    assert simulation.producer.metrics.record_retries > 0


@pytest.mark.parametrize("retries", [0, 1, 3])
def test_a_batch_is_tried_again_as_often_as_retries_says(retries):
    simulation = simulate(partitions=1, retries=str(retries))
    simulation.cluster.on_produce = lambda *_: "NOT_ENOUGH_REPLICAS"
    with pytest.raises(DeliveryError, match=rf"\({retries + 1} failed attempt"):
        simulation.write(0, b"a")
    assert simulation.producer.metrics.requests == retries + 1


# --- records and batches that are larger than somebody accepts ----------------------------------


def test_an_oversize_record_is_refused_before_anything_of_its_arrow_batch_is_sent():
    simulation = simulate()
    with pytest.raises(RecordTooLargeError) as caught:
        simulation.append([(b"k", b"small"), (b"k", bytes(2_000_000))])
    assert_has(str(caught.value), "2000089 bytes", "larger than 1048576", "max.request.size")
    simulation.flush()
    assert simulation.all_values() == []


@each_row("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@each_row("acks", ["1", "all"])
def test_a_batch_that_the_broker_finds_too_large_is_split(codec, acks):
    simulation = simulate(
        partitions=2,
        batch_size="100000",
        compression_type=codec,
        acks=acks,
        max_in_flight_requests_per_connection="1" if acks == "1" else "5",
    )
    simulation.cluster.topics["t"].max_message_bytes = 4000
    rows = [(b"k%d" % i, b"%05d" % i + random.Random(i).randbytes(100)) for i in range(600)]
    for start in range(0, 600, 100):
        simulation.append(rows[start : start + 100])
        simulation.step()
    simulation.flush()
    expected = {0: [], 1: []}
    for key, value in rows:
        expected[partition_of(key, 2)].append(value)
    assert simulation.values() == expected
    assert simulation.producer.metrics.batch_splits > 0
    batches = [batch for p in range(2) for batch in simulation.log(p).batches]
    assert max(batch.header.size_bytes for batch in batches) <= 4000
    assert simulation.has_all_memory


def test_records_that_are_shorter_than_a_header_are_split_too():
    """Half of such a batch, its header included, is more than all its records."""
    simulation = simulate(partitions=1, max_message_bytes=90)
    values = [b"%010d" % n for n in range(3)]
    simulation.write(0, *values)
    assert simulation.values() == {0: values}
    assert simulation.producer.metrics.batch_splits == 1


def test_batches_get_smaller_after_the_broker_found_one_too_large():
    simulation = simulate(partitions=1, batch_size="100000", max_message_bytes=30_000)
    for start in range(0, 20_000, 500):
        simulation.append_to(0, [b"%05d" % n + bytes(100) for n in range(start, start + 500)])
        simulation.step(3)
    simulation.flush()
    assert len(simulation.all_values()) == 20_000
    assert 1 <= simulation.producer.metrics.batch_splits < 20


def test_a_codec_that_does_worse_than_estimated_makes_parts_not_oversize_requests():
    simulation = simulate(
        partitions=1, batch_size="50000", max_request_size="60000", compression_type="zstd"
    )
    sizes = []
    simulation.cluster.on_produce = lambda b, t, i, batch: sizes.append(batch.header.size_bytes)
    rng = random.Random(1)
    simulation.append_to(0, [bytes(500)] * 3000)
    noise = [rng.randbytes(500) for _ in range(2000)]
    simulation.write(0, *noise)
    assert simulation.values()[0] == [bytes(500)] * 3000 + noise
    assert max(sizes) <= 60_000
    assert simulation.producer.metrics.batch_splits > 0
    assert simulation.has_all_memory


def test_records_as_large_as_java_allows_pass_through_the_smallest_buffer():
    """Spark's own suite writes 1,000 records of 15,000 bytes with kafka.buffer.memory=16384."""
    simulation = simulate(partitions=1, buffer_memory="16384")
    values = [b"%04d" % number + bytes(14_996) for number in range(1000)]
    for start in range(0, 1000, 100):
        simulation.append([(None, value) for value in values[start : start + 100]])
    simulation.flush()
    assert simulation.values() == {0: values}


def _lowered_after_the_first_attempt(is_appended, **options):
    """A batch of 30 records is sent; there is no answer, and the topic's limit is lowered."""
    simulation = connected(b"first", partitions=1, **options)
    attempts = []

    def fail_first(broker, topic, index, batch):
        attempts.append(batch)
        if len(attempts) > 1:
            return None
        simulation.cluster.topics["t"].max_message_bytes = 500
        simulation.network.faults.cut_next_response = True
        if not is_appended:
            return "NOT_LEADER_OR_FOLLOWER"  # which a leader also says that has appended
        simulation.cluster.topics["t"].max_message_bytes = 1 << 20
        simulation.scheduler.change(1, simulation.cluster.topics["t"], max_message_bytes=500)
        return None

    simulation.cluster.on_produce = fail_first
    simulation.append_to(0, [b"%02d" % n + bytes(40) for n in range(30)])
    return simulation


def test_what_is_appended_already_is_not_written_again_when_the_limit_is_lowered():
    """Nobody can learn that it is: brokers look at sizes before sequence numbers."""
    simulation = _lowered_after_the_first_attempt(is_appended=True)
    with pytest.raises(DeliveryError, match="may be in the topic already") as raised:
        simulation.flush()
    assert_has(str(raised.value), "OUT_OF_ORDER_SEQUENCE_NUMBER", "max.message.bytes")
    assert raised.value.code == "DELIVERY-004"
    assert [v[:2] for v in simulation.values()[0]] == [b"fi", *(b"%02d" % n for n in range(30))]


def test_a_record_alone_that_may_be_appended_is_called_so_when_the_limit_is_lowered():
    simulation = simulate(partitions=1)

    def lose_answer(*_):
        simulation.cluster.on_produce = None
        simulation.network.faults.cut_next_response = True
        simulation.scheduler.change(1, simulation.cluster.topics["t"], max_message_bytes=100)

    simulation.cluster.on_produce = lose_answer
    with pytest.raises(DeliveryError, match="MESSAGE_TOO_LARGE.*may be in the topic already"):
        simulation.write(0, bytes(200))
    assert simulation.values()[0] == [bytes(200)]


def test_what_was_not_appended_is_split_and_written_once_when_the_limit_is_lowered():
    simulation = _lowered_after_the_first_attempt(is_appended=False)
    simulation.flush()
    assert [v[:2] for v in simulation.values()[0]] == [b"fi", *(b"%02d" % n for n in range(30))]
    assert simulation.producer.metrics.batch_splits > 0
    # A socket may hold the whole batch until its parts are in the log: it is refused behind them.
    log = simulation.log()
    whole = log.batches[1].header._replace(records_count=30)
    assert log.check(whole) == ("OUT_OF_ORDER_SEQUENCE_NUMBER", -1)
    assert log.batches[-1].header.producer_epoch == 0


# --- durations at their documented maximum, which users give for "for ever" ---------------------

DURATIONS = [name for name in PRODUCER_CONFIG.keys if name.endswith(".ms")]
# Kafka's rule: delivery.timeout.ms is not below the sum of the other two.
SUMMED = ("linger.ms", "request.timeout.ms")
# These say how long to wait after a lost connection, and there is none that is longer.
PAUSES = {"retry.backoff.ms", "reconnect.backoff.ms"}


@each_row("name", DURATIONS)
def test_longest_durations(name):
    longest_ms = 2**31 - 1 if PRODUCER_CONFIG.keys[name].type == "int" else 2**63 - 1
    options = {name: longest_ms}
    if name in SUMMED:
        options["delivery.timeout.ms"] = 2**31 - 1
    given = {key.replace(".", "_"): str(value) for key, value in options.items()}
    simulation = simulate(buffer_memory="65536", **given)
    for task in range(3):
        simulation.producer.begin_task(["t"])
        simulation.append(keyed(500, size=300))  # more than buffer.memory holds
        simulation.network.faults.cut_next_response = task == 2 and name not in PAUSES
        simulation.flush()
        assert len(simulation.all_values()) == 500 * (task + 1)


# --- second checks, forgetting and limits, each with a case -------------------------------------


def test_rows_of_partitions_from_before_others_were_added_are_not_overtaken():
    """They are in a batch of their own, which nobody appends to any more."""
    simulation = simulate(partitions=1, batch_size="200", linger_ms="100000")
    simulation.append_to(0, [b"a"])
    simulation.cluster.add_partitions("t", 1)
    simulation.refresh_metadata()
    simulation.run_for(500)
    later = [b"b" * 150, b"c" * 150]
    simulation.write(0, *later)
    assert simulation.values()[0] == [b"a", *later]


def creating(simulation, create):
    """Have missing topics created by ``create``. Returns what it is called with."""
    asked = []

    def noting(topics):
        asked.append(topics)
        assert len(asked) < 3, "created again and again"
        create(topics)

    waiter = simulation.producer._topics
    waiter._creates_topics, waiter._create = True, noting
    return asked


def test_the_time_that_creating_takes_is_not_that_of_metadata():
    simulation = simulate(max_block_ms="2000")

    def create(topics):
        simulation.clock.ms += 5_000
        simulation.cluster.create_topic("u", 1)

    assert creating(simulation, create) == []
    simulation.write_rows([(None, b"a")], "u")
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
    simulation.write_rows([(None, b"a")])
    simulation.scheduler.after(20_000, lambda: simulation.cluster.create_topic("u", 1))
    cluster = simulation.producer._topics.wait_for(["t", "u"])
    assert {*cluster.topics} == {"t", "u"}


def test_a_topic_that_nobody_may_write_to_is_told_at_once():
    simulation = simulate()
    simulation.cluster.on_describe = lambda topic: "TOPIC_AUTHORIZATION_FAILED"
    with simulation.within(1_000), pytest.raises(TopicError, match="TOPIC_AUTHORIZATION_FAILED"):
        simulation.append([(None, b"a")])


def test_a_topic_that_is_away_when_the_partitions_of_another_come_is_waited_for():
    simulation = simulate(partitions=2)
    cluster = simulation.cluster
    cluster.create_topic("u", 1)
    for topic in ("t", "u"):
        simulation.append_to(0, [b"a"], topic)
    simulation.flush()
    cluster.add_partitions("t", 2)
    simulation.run_for(100)
    cluster.on_describe = lambda topic: "LEADER_NOT_AVAILABLE" if topic == "u" else "NONE"
    simulation.scheduler.change(30_000, cluster, on_describe=lambda topic: "NONE")
    found = simulation.producer._topics.wait_for(["t", "u"], {"t": 3})
    assert {*found.topics} == {"t", "u"}
    assert found.partitions_count("t") == 4


def test_what_is_appended_and_not_flushed_is_not_clean():
    simulation = simulate(batch_size="1000")
    simulation.append_to(0, [b"a" * 900] * 3)
    assert not simulation.producer.is_clean
    simulation.flush()
    assert simulation.producer.is_clean


def test_a_batch_of_before_does_not_make_batches_larger_again():
    """It was too large as well, and was on its way when others had to be split twice."""
    simulation = simulate()
    simulation.append([(None, b"a")])
    appender = simulation.producer._appender
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

    def __init__(self, simulation):
        self.appender = simulation.producer._appender
        self.count = 0
        finish = self.appender._finish

        def slow(slot, finisher):
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
    appender = simulation.producer._appender
    appender.finish_expired_linger = lambda now_ms: None
    for partition in range(5):
        simulation.append_to(partition, [b"a"])
    slow = SlowFinish(simulation)
    simulation.clock.ms += 2_000
    appender._finish_old(simulation.clock.ms)
    assert slow.count == 2
    appender._finish_old(simulation.clock.ms - 8)
    assert slow.count == 5
