"""The sender, one round at a time, under simulated clock, network and brokers."""

from __future__ import annotations

import pytest

from spark_kafka_sink.base.errors import (
    BufferExhaustedError,
    DeliveryError,
    TopicError,
)
from tests.simulation.cluster import KAFKA_2_1
from tests.simulation.harness import Simulation, keyed, partition_of, simulate


def test_everything_arrives_once_in_its_partition_in_order():
    simulation = simulate()
    rows = keyed(2000, size=100)
    simulation.append(rows)
    simulation.producer.flush()
    expected: dict[int, list[bytes]] = {0: [], 1: [], 2: []}
    for key, value in rows:
        expected[partition_of(key, 3)].append(value)
    assert simulation.values() == expected
    report = simulation.producer.report
    assert sum(r.records for r in report.values()) == 2000
    for topic_partition, partition in report.items():
        count = len(expected[topic_partition.partition])
        assert (partition.first_offset, partition.last_offset) == (0, count - 1)
    pool = simulation.producer.pool
    assert pool.free_count == pool.pages_count


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_codec_and_acks(codec, acks):
    simulation = simulate(compression_type=codec, acks=acks)
    rows = keyed(3000, size=300)
    simulation.append(rows)
    simulation.producer.flush()
    simulation.run_for(100)
    assert simulation.all_values() == sorted(value for _, value in rows)
    offsets = {r.last_offset for r in simulation.producer.report.values()}
    assert (offsets == {-1}) == (acks == "0")
    pool = simulation.producer.pool
    assert pool.free_count == pool.pages_count


def test_old_brokers_get_old_versions():
    simulation = simulate()
    simulation.cluster.api_versions = dict(KAFKA_2_1)
    simulation.append(keyed(10))
    simulation.producer.flush()
    assert len(simulation.all_values()) == 10


def test_a_lost_answer_is_asked_for_again_with_the_same_bytes_and_doubles_nothing():
    simulation = simulate()
    seen = []

    def lose_first_answer(broker, topic, index, batch):
        seen.append((index, batch.header))
        simulation.network.faults.cut_next_response = len(seen) == 1

    simulation.cluster.on_produce = lose_first_answer
    simulation.append_to(0, [b"a", b"b"])
    simulation.producer.flush()
    assert [header for _, header in seen] == [seen[0][1]] * 2
    assert simulation.values()[0] == [b"a", b"b"]
    assert simulation.producer.metrics.retries == 1


def test_a_cut_in_the_middle_of_a_request_loses_nothing():
    simulation = simulate()
    simulation.append_to(0, [b"first"])
    simulation.producer.flush()
    simulation.network.faults.cut_during_request = 1.0
    simulation.append_to(0, [b"second"])
    simulation.producer._appender.finish_open()
    simulation.step(3)
    simulation.network.faults.cut_during_request = 0.0
    simulation.producer.flush()
    assert simulation.values()[0] == [b"first", b"second"]


def test_a_moved_leader_is_found_through_the_answer():
    simulation = simulate()
    simulation.append_to(0, [b"a"])
    simulation.producer.flush()
    requests = simulation.cluster.metadata_requests
    simulation.cluster.move_leader("t", 0, to=2)
    started_ms = simulation.clock.ms
    simulation.append_to(0, [b"b"])
    simulation.producer.flush()
    assert simulation.values()[0] == [b"a", b"b"]
    # No back-off for a partition whose new leader the answer named.
    assert simulation.clock.ms - started_ms < 100
    assert simulation.cluster.metadata_requests <= requests + 1


def test_a_moved_leader_is_found_through_metadata():
    simulation = simulate()
    simulation.cluster.reports_new_leader = False
    simulation.append_to(1, [b"a"])
    simulation.producer.flush()
    simulation.cluster.move_leader("t", 1, to=3)
    simulation.append_to(1, [b"b"])
    simulation.producer.flush()
    assert simulation.values()[1] == [b"a", b"b"]


def test_a_dead_leader_whose_partition_moves():
    simulation = simulate()
    simulation.append_to(0, [b"a"])
    simulation.producer.flush()
    leader = simulation.cluster.topics["t"].partitions[0].leader_id
    simulation.cluster.stop(leader)
    simulation.append_to(0, [b"b"])
    simulation.scheduler.after(5000, lambda: simulation.cluster.move_leader("t", 0, to=2))
    simulation.producer.flush()
    assert simulation.values()[0] == [b"a", b"b"]


@pytest.mark.parametrize(
    "error", ["NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS_AFTER_APPEND", "KAFKA_STORAGE_ERROR"]
)
def test_retriable_errors_are_retried_until_they_pass(error):
    simulation = simulate()
    failures = iter([error] * 4)
    simulation.cluster.on_produce = lambda *_: next(failures, None)
    simulation.append_to(0, [b"a"])
    simulation.producer.flush()
    assert simulation.values()[0] == [b"a"]
    assert simulation.producer.metrics.retries == 4


def test_order_is_kept_when_the_first_of_several_batches_fails():
    simulation = simulate(partitions=1, batch_size="200", linger_ms="0")
    failures = iter(["NOT_ENOUGH_REPLICAS"])
    simulation.cluster.on_produce = lambda *_: next(failures, None)
    values = [b"%03d" % i for i in range(100)]
    for value in values:
        simulation.append_to(0, [value])
        simulation.step()
    simulation.producer.flush()
    assert simulation.values()[0] == values


def test_a_fatal_error_fails_the_task_and_says_why():
    simulation = simulate()
    simulation.cluster.on_produce = lambda *_: "TOPIC_AUTHORIZATION_FAILED"
    simulation.append_to(2, [b"a"])
    with pytest.raises(DeliveryError) as caught:
        simulation.producer.flush()
    message = str(caught.value)
    for part in ("t-2", "broker 3 (broker-3:9092)", "TOPIC_AUTHORIZATION_FAILED (29)", "grant"):
        assert part in message
    assert caught.value.code == "BROKER-029"
    with pytest.raises(DeliveryError):
        simulation.append_to(2, [b"b"])


def test_a_broker_dead_for_good_fails_within_the_delivery_timeout():
    simulation = simulate()
    simulation.append_to(0, [b"a"])
    simulation.producer.flush()
    simulation.cluster.stop(1)
    simulation.append_to(0, [b"b"])
    started_ms = simulation.clock.ms
    with pytest.raises(DeliveryError) as caught:
        simulation.producer.flush()
    assert 120_000 <= simulation.clock.ms - started_ms < 121_000
    message = str(caught.value)
    for part in ("t-0", "delivery.timeout.ms = 120000", "1 record(s)"):
        assert part in message
    assert caught.value.code == "DELIVERY-001"


def test_a_broker_that_stops_answering_is_given_up_after_the_request_timeout():
    simulation = simulate()
    simulation.append_to(0, [b"a"])
    simulation.producer.flush()
    simulation.cluster.brokers[1].is_paused = True
    simulation.append_to(0, [b"b"])
    simulation.scheduler.after(35_000, simulation.cluster.brokers[1].resume)
    started_ms = simulation.clock.ms
    simulation.producer.flush()
    assert 30_000 <= simulation.clock.ms - started_ms < 70_000
    # The broker got the batch twice and kept it once.
    assert simulation.values()[0] == [b"a", b"b"]


def test_a_slow_broker_does_not_block_the_others():
    simulation = simulate()
    simulation.append(keyed(10))
    simulation.producer.flush()
    simulation.cluster.brokers[1].is_paused = True
    simulation.append_to(0, [b"slow"])
    simulation.append_to(1, [b"quick"])
    simulation.run_for(200)
    assert simulation.values()[1][-1] == b"quick"
    assert b"slow" not in simulation.values()[0]


def test_back_pressure_waits_for_memory_and_loses_nothing():
    simulation = simulate(buffer_memory="262144", batch_size="16384")
    rows = keyed(5000, size=500)
    for start in range(0, 5000, 1000):
        simulation.append(rows[start : start + 1000])
    simulation.producer.flush()
    assert simulation.all_values() == sorted(value for _, value in rows)
    assert simulation.producer.metrics.buffer_wait_ns > 0
    assert simulation.producer.pool.free_count == simulation.producer.pool.pages_count


def test_a_batch_is_sent_a_second_after_it_was_opened_whenever_others_were():
    simulation = simulate(linger_ms="900")
    for partition, value in enumerate([b"a", b"b", b"c"]):
        simulation.append_to(partition, [value])
        simulation.run_for(500)
    simulation.append_to(2, [b"d"])
    simulation.run_for(200)
    assert simulation.values() == {0: [b"a"], 1: [b"b"], 2: []}


def test_memory_that_never_comes_back_is_an_error_that_names_who_holds_it():
    simulation = simulate(buffer_memory="131072", max_block_ms="5000")
    simulation.append_to(0, [b"a"])
    simulation.producer.flush()
    simulation.cluster.brokers[1].is_paused = True
    started_ms = simulation.clock.ms
    with pytest.raises(BufferExhaustedError) as caught:
        simulation.append_to(0, [bytes(1000)] * 1000)
    assert 5000 <= simulation.clock.ms - started_ms < 6000
    for part in ("kafka.max.block.ms = 5000", "of 131072 bytes", "t-0:"):
        assert part in str(caught.value)


def test_a_partition_that_does_not_exist_is_refused():
    simulation = simulate()
    with pytest.raises(TopicError, match=r"Invalid partition 7 for topic 't', which has 3"):
        simulation.append_to(7, [b"a"])


def test_without_an_answer_a_partition_is_not_known_to_be_missing():
    """It may have been added: the row is no dead letter because brokers were away."""
    simulation = simulate(max_block_ms="5000")
    simulation.append_to(0, [b"a"])
    simulation.producer.flush()
    simulation.cluster.add_partitions("t", 8)
    for node_id in list(simulation.cluster.brokers):
        simulation.cluster.stop(node_id)
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
    simulation.append(keyed(4), topic="new")
    simulation.producer.flush()
    assert len(simulation.all_values("new")) == 4


def test_rows_without_key_fill_one_batch_after_the_other_evenly():
    simulation = simulate(partitions=5, batch_size="1000")
    simulation.append([(None, b"x" * 50)] * 4000)
    simulation.producer.flush()
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


def test_throttling_is_honoured():
    simulation = simulate()
    simulation.append_to(0, [b"a"])
    simulation.producer.flush()
    simulation.cluster.throttle_time_ms = 700
    simulation.append_to(0, [b"b"])
    simulation.producer.flush()
    started_ms = simulation.clock.ms
    simulation.cluster.throttle_time_ms = 0
    simulation.append_to(0, [b"c"])
    simulation.producer.flush()
    assert simulation.clock.ms - started_ms >= 690
    assert simulation.producer.metrics.throttle_time_ms == 700


def test_in_flight_requests_stay_within_the_limit():
    simulation = simulate(partitions=1, batch_size="100", max_in_flight_requests_per_connection="2")
    simulation.append_to(0, [b"a"])
    simulation.producer.flush()
    simulation.cluster.brokers[1].is_paused = True
    simulation.append_to(0, [bytes(100)] * 10)
    simulation.producer._appender.finish_open()
    for _ in range(30):
        simulation.step()
        assert simulation.producer.client.in_flight_count() <= 2


def test_full_batches_wake_the_sender_only_if_their_node_takes_more():
    simulation = simulate(partitions=1, batch_size="100", max_in_flight_requests_per_connection="2")
    simulation.append_to(0, [b"a"])
    simulation.producer.flush()
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
    simulation.producer.flush()
    assert len(simulation.values()[0]) == 21


def test_a_recreated_topic_gets_no_data_and_a_clear_error():
    simulation = simulate(metadata_max_age_ms="1000")
    simulation.append_to(0, [b"a"])
    simulation.producer.flush()
    simulation.cluster.create_topic("t", 3)
    simulation.append_to(0, [b"b"])
    with pytest.raises(DeliveryError, match=r"deleted and created again.* \[PKS-TOPIC-005\]$"):
        simulation.producer.flush()
    assert simulation.all_values() == []


def test_partitions_added_while_the_job_runs_are_used():
    simulation = simulate(metadata_max_age_ms="1000", partitions=2)
    simulation.append(keyed(100))
    simulation.producer.flush()
    old = simulation.cluster.topics["t"]
    grown = simulation.cluster.create_topic("grown", 4)
    old.partitions.extend(grown.partitions[2:])
    simulation.cluster.publish(now=True)
    simulation.run_for(3000)
    simulation.append(keyed(100))
    simulation.producer.flush()
    assert all(len(values) for values in simulation.values().values())


def test_sequences_wrap_after_the_last_integer():
    simulation = simulate(partitions=1)
    simulation.append_to(0, [b"a"])
    simulation.producer.flush()
    state = simulation.producer.sender._state
    sequences = next(iter(state._partitions.values()))
    sequences.next_sequence = 2**31 - 2
    log = simulation.cluster.topics["t"].partitions[0].log
    log.producers[simulation.cluster.next_producer_id].batches[-1].last_sequence = 2**31 - 3
    for value in (b"b", b"c", b"d"):
        simulation.append_to(0, [value, value])
        simulation.producer.flush()
    bases = [batch.header.base_sequence for batch in log.batches]
    assert bases == [0, 2**31 - 2, 0, 2]
