"""The sender, one round at a time, under simulated clock, network and brokers; and the task thread,
while buffer.memory is full: how often it is woken, and that it goes on.
"""

from __future__ import annotations

import pytest

from spark_kafka_sink.base.errors import BufferExhaustedError, DeliveryError, TopicError
from tests.simulation.harness import (
    Simulation,
    SteppingMonitor,
    assert_has,
    connected,
    keyed,
    partition_of,
    simulate,
)
from tests.tables import each_row


@each_row("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@each_row("acks", ["0", "1", "all"])
def test_everything_arrives_once_in_its_partition_in_order(codec, acks):
    simulation = simulate(compression_type=codec, acks=acks)
    rows = keyed(3000, size=300)
    simulation.write_rows(rows)
    simulation.run_for(100)
    expected = {0: [], 1: [], 2: []}
    for key, value in rows:
        expected[partition_of(key, 3)].append(value)
    assert simulation.values() == expected
    for topic_partition, report in simulation.producer.report.items():
        count = len(expected[topic_partition.partition])
        assert report.records == count
        offsets = (-1, -1) if acks == "0" else (0, count - 1)
        assert (report.first_offset, report.last_offset) == offsets
    assert simulation.has_all_memory


def test_a_lost_answer_is_asked_for_again_with_the_same_bytes_and_doubles_nothing():
    simulation = simulate()
    seen = simulation.lose_first_answer()
    simulation.write(0, b"a", b"b")
    assert seen == [seen[0]] * 2
    assert simulation.values()[0] == [b"a", b"b"]
    assert simulation.producer.metrics.retries == 1


def test_a_moved_leader_is_found_through_the_answer():
    simulation = connected()
    requests = simulation.cluster.metadata_requests
    simulation.cluster.move_leader("t", 0, to=2)
    # No back-off for a partition whose new leader the answer named.
    assert simulation.write(0, b"b") < 100
    assert simulation.values()[0] == [b"a", b"b"]
    assert simulation.cluster.metadata_requests <= requests + 1


def test_a_fatal_error_fails_the_task_and_says_why():
    simulation = simulate()
    simulation.cluster.on_produce = lambda *_: "TOPIC_AUTHORIZATION_FAILED"
    message = simulation.refused(2, b"a")
    reason = "TOPIC_AUTHORIZATION_FAILED (29)"
    assert_has(message, "t-2", "broker 3 (broker-3:9092)", reason, "grant", "[PKS-BROKER-029]")
    with pytest.raises(DeliveryError):
        simulation.append_to(2, [b"b"])


def test_a_broker_dead_for_good_fails_within_the_delivery_timeout():
    simulation = connected()
    simulation.cluster.stop(1)
    with simulation.within(121_000, 120_000):
        message = simulation.refused(0, b"b")
    parts = "delivery.timeout.ms = 120000", "1 record(s)", "[PKS-DELIVERY-001]"
    assert_has(message, "t-0", *parts)


def test_a_slow_broker_does_not_block_the_others():
    simulation = simulate()
    simulation.write_rows(keyed(10))
    simulation.cluster.brokers[1].is_paused = True
    simulation.append_to(0, [b"slow"])
    simulation.append_to(1, [b"quick"])
    simulation.run_for(200)
    assert simulation.values()[1][-1] == b"quick"
    assert b"slow" not in simulation.values()[0]


def test_a_batch_is_sent_a_second_after_it_was_opened_whenever_others_were():
    simulation = simulate(linger_ms="900")
    for partition, value in enumerate([b"a", b"b", b"c"]):
        simulation.append_to(partition, [value])
        simulation.run_for(500)
    simulation.append_to(2, [b"d"])
    simulation.run_for(200)
    assert simulation.values() == {0: [b"a"], 1: [b"b"], 2: []}


def test_memory_that_never_comes_back_is_an_error_that_names_who_holds_it():
    simulation = connected(buffer_memory="131072", max_block_ms="5000")
    simulation.cluster.brokers[1].is_paused = True
    started_ms = simulation.clock.ms
    with pytest.raises(BufferExhaustedError) as caught:
        simulation.append_to(0, [bytes(1000)] * 1000)
    assert simulation.clock.ms - started_ms == 5000
    assert_has(str(caught.value), "kafka.max.block.ms = 5000", "of 131072 bytes", "t-0:")


def test_without_an_answer_a_partition_is_not_known_to_be_missing():
    """It may have been added: the row is no dead letter because brokers were away."""
    simulation = connected(max_block_ms="5000")
    simulation.cluster.add_partitions("t", 8)
    simulation.cluster.stop_all()
    message = r"Partition 7 of topic t not present .* = 5000: .*(reachable|refused|reset)"
    with pytest.raises(TopicError, match=message):
        simulation.append_to(7, [b"b"])


def test_an_unknown_topic_is_waited_for_and_then_named():
    simulation = Simulation(max_block_ms="3000")
    with pytest.raises(TopicError, match=r"topic 'nope': UNKNOWN_TOPIC_OR_PARTITION"):
        simulation.append(keyed(1), topic="nope")
    assert simulation.clock.ms - 1_000_000 < 4000


def test_a_topic_that_is_being_created_is_waited_for():
    simulation = Simulation()
    simulation.cluster.auto_create_partitions = 2
    simulation.write_rows(keyed(4), topic="new")
    assert len(simulation.all_values("new")) == 4


def test_rows_without_key_fill_one_batch_after_the_other_evenly():
    simulation = simulate(partitions=5, batch_size="1000")
    simulation.write_rows([(None, b"x" * 50)] * 4000)
    counts = [len(values) for values in simulation.values().values()]
    assert sum(counts) == 4000
    assert max(counts) < 1.2 * 4000 / 5
    sizes = {
        len(b.records) for p in simulation.cluster.topics["t"].partitions for b in p.log.batches
    }
    assert len(sizes) <= 2  # full batches, and the last one


def test_lingering_batches_go_when_the_input_pauses():
    simulation = simulate(linger_ms="50")
    simulation.append_to(0, [b"a"])
    simulation.run_for(40)
    assert simulation.all_values() == []
    simulation.run_for(50)
    assert simulation.all_values() == [b"a"]


def test_a_batch_is_not_kept_open_longer_than_a_second():
    simulation = simulate(linger_ms="400")
    for index in range(10):
        simulation.append_to(0, [b"%d" % index])
        simulation.run_for(200)
    assert len(simulation.all_values()) >= 5


def test_full_batches_wake_the_sender_only_if_their_node_takes_more():
    simulation = connected(
        partitions=1, batch_size="100", max_in_flight_requests_per_connection="2"
    )
    woken = []
    wakeup = simulation.network.wakeup
    simulation.network.wakeup = lambda: (woken.append(1), wakeup())
    values = [bytes(100)] * 10
    simulation.append_to(0, values)
    assert len(woken) == 10  # nine full batches, and the end of the append
    simulation.cluster.brokers[1].is_paused = True
    simulation.run_for(100)
    assert simulation.producer.client.in_flight_count() == 2
    woken.clear()
    simulation.append_to(0, values)
    assert len(woken) == 1
    simulation.cluster.brokers[1].is_paused = False
    simulation.flush()
    assert len(simulation.values()[0]) == 21


# --- the task thread, while buffer.memory is full -----------------------------------------------

_MEMORY = 1_000_000
_BATCH_SIZE = 10_000
_VALUE = bytes(1000)


def writing(partitions=1, **options):
    """Connected: the leader of partition 0 has the first record."""
    options = {"batch_size": str(_BATCH_SIZE), "buffer_memory": str(_MEMORY), **options}
    return connected(b"first", partitions=partitions, **options)


def count_waits(simulation):
    """Grows by one with each wait of the task thread."""
    monitor, waits = simulation.producer._monitor, []
    wait = monitor.wait

    def counted(timeout_ms):
        waits.append(timeout_ms)
        wait(timeout_ms)

    monitor.wait = counted
    return waits


def test_a_task_is_not_woken_by_each_answer():
    simulation = writing(batch_size=str(_BATCH_SIZE * 3))
    waits = count_waits(simulation)
    count = 8000
    simulation.append_to(0, [_VALUE] * count)
    most_waits = count * len(_VALUE) / (_MEMORY / 4)
    answers = simulation.producer.metrics.responses
    assert most_waits / 1.5 <= len(waits) <= 1.5 * most_waits < answers / 4
    simulation.flush()
    assert len(simulation.values()[0]) == 1 + count


def test_a_flush_is_woken_once():
    simulation = writing()
    simulation.append_to(0, [_VALUE] * 500)
    waits = count_waits(simulation)
    simulation.flush()
    assert len(waits) == 1
    assert len(simulation.values()[0]) == 501


def test_a_task_goes_on_with_little_memory_where_brokers_are_slow():
    """There are 30 pages, one for each batch: a quarter would take 6 seconds, one of them one."""
    simulation = writing(max_in_flight_requests_per_connection="1")
    simulation.network.faults.latency_ms = 400, 400
    simulation.append_to(0, [_VALUE] * 270)
    started_ms = simulation.clock.ms
    simulation.append_to(0, [_VALUE] * 20)
    assert simulation.producer.metrics.buffer_wait_ns > 0, "there was enough memory"
    assert simulation.clock.ms - started_ms < 5_000
    simulation.flush()


def test_a_task_that_may_wait_for_a_moment_only_takes_what_is_free_by_then():
    """Each answer gives one page back: after 20 ms there is the one that is needed, no quarter."""
    simulation = writing(max_in_flight_requests_per_connection="1", max_block_ms="20")
    simulation.network.faults.latency_ms = 5, 5
    simulation.append_to(0, [_VALUE] * 500)
    assert simulation.producer.metrics.buffer_wait_ns > 0, "there was enough memory"
    simulation.flush()
    assert len(simulation.values()[0]) == 501


def test_a_record_that_takes_more_than_a_quarter_is_waited_for_once():
    simulation = writing()
    simulation.append_to(0, [_VALUE] * 280)
    waits = count_waits(simulation)
    simulation.append_to(0, [bytes(900_000)])
    assert len(waits) == 1
    simulation.flush()
    assert simulation.values()[0][-1] == bytes(900_000)


def test_nobody_waits_for_memory_that_it_has_already():
    """There are 16 pages: 15 are held when the record needs one more, so 4 cannot become free."""
    simulation = writing(buffer_memory="65536")
    large = bytes(62_000)
    simulation.append_to(0, [_VALUE, large])
    assert 0 < simulation.producer.metrics.buffer_wait_ns < 50_000_000
    simulation.flush()
    assert simulation.values()[0] == [b"first", _VALUE, large]


def test_a_failure_ends_the_wait():
    simulation = writing(request_timeout_ms="500", delivery_timeout_ms="1000", linger_ms="0")
    simulation.cluster.brokers[1].is_paused = True
    with simulation.within(2_000), pytest.raises(DeliveryError):
        simulation.append_to(0, [_VALUE] * 2000)


@pytest.mark.parametrize("size", [1000, 600_000])
def test_as_much_is_finished_as_is_waited_for(size):
    """All 30 pages are of open batches: a quarter of them or as many as a record needs is sent."""
    simulation = writing(partitions=31, linger_ms="100000", max_block_ms="2000")
    for partition in range(30):
        simulation.append_to(partition, [_VALUE])
    assert simulation.producer.metrics.batches == 1
    simulation.append_to(30, [bytes(size)])
    assert 0 < simulation.producer.metrics.buffer_wait_ns < 50_000_000
    simulation.flush()
    assert simulation.values()[30] == [bytes(size)]


def test_the_largest_batches_are_finished_when_memory_runs_out():
    """Small ones go on growing."""
    simulation = simulate(
        partitions=3, buffer_memory="65536", batch_size="60000", linger_ms="100000"
    )
    produced = []
    simulation.cluster.on_produce = lambda broker, topic, index, batch: produced.append(index)
    for partition in (1, 2):
        simulation.append_to(partition, [_VALUE])
    simulation.append_to(0, [_VALUE] * 30)
    simulation.append_to(1, [_VALUE] * 30)
    assert produced == [0]
    simulation.flush()
    assert set(produced) == {0, 1, 2}


def test_the_sender_is_woken_before_a_task_waits():
    """It may wait for the network, and know nothing of what was finished just now."""
    simulation = writing(partitions=31, linger_ms="100000")
    for partition in range(30):
        simulation.append_to(partition, [_VALUE])
    simulation.run_for(100)
    monitor, network = simulation.producer._monitor, simulation.network
    wait, was_woken = monitor.wait, []

    def noting(timeout_ms):
        was_woken.append(network._is_woken)
        wait(timeout_ms)

    monitor.wait = noting
    simulation.append_to(30, [_VALUE])
    assert was_woken == [True]
    simulation.flush()


def test_the_sender_does_not_take_the_monitor_to_see_that_the_task_is_at_work(monkeypatch):
    simulation = writing()
    appender = simulation.producer._appender
    with appender._turns.task_turn():
        monkeypatch.delattr(SteppingMonitor, "__enter__")
        assert appender.finish_expired_linger(simulation.clock.ms) is None
        monkeypatch.undo()
