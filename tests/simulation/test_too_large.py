"""Records and batches that are larger than somebody accepts: refused, split, or passed."""

from __future__ import annotations

import random

import pytest

from spark_kafka_sink.base.errors import (
    DeliveryError,
    RecordTooLargeError,
)
from tests.simulation.harness import Simulation, partition_of, simulate


def test_an_oversize_record_is_refused_before_anything_of_its_arrow_batch_is_sent():
    simulation = simulate()
    with pytest.raises(RecordTooLargeError) as caught:
        simulation.append([(b"k", b"small"), (b"k", bytes(2_000_000))])
    message = str(caught.value)
    assert "2000089 bytes" in message
    assert "larger than 1048576" in message
    assert "max.request.size" in message
    simulation.producer.flush()
    assert simulation.all_values() == []


def test_a_large_record_passes_when_allowed():
    simulation = simulate(max_request_size="5000000")
    simulation.cluster.topics["t"].max_message_bytes = 5_000_000
    value = bytes(range(256)) * 12_000
    simulation.append([(b"k", value), (b"k", b"after")])
    simulation.producer.flush()
    assert simulation.values()[partition_of(b"k", 3)] == [value, b"after"]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("acks", ["1", "all"])
def test_a_batch_that_the_broker_finds_too_large_is_split(codec, acks):
    simulation = simulate(
        partitions=2,
        batch_size="100000",
        compression_type=codec,
        acks=acks,
        max_in_flight_requests_per_connection="1" if acks == "1" else "5",
    )
    simulation.cluster.topics["t"].max_message_bytes = 4000
    rows = [(b"k%d" % i, b"%05d" % i + random.Random(i).randbytes(100)) for i in range(2000)]
    for start in range(0, 2000, 100):
        simulation.append(rows[start : start + 100])
        simulation.step()
    simulation.producer.flush()
    expected: dict[int, list[bytes]] = {0: [], 1: []}
    for key, value in rows:
        expected[partition_of(key, 2)].append(value)
    assert simulation.values() == expected
    assert simulation.producer.metrics.batch_splits > 0
    sizes = [
        b.header.size_bytes
        for p in simulation.cluster.topics["t"].partitions
        for b in p.log.batches
    ]
    assert max(sizes) <= 4000
    pool = simulation.producer.pool
    assert pool.free_count == pool.pages_count


def test_records_that_are_shorter_than_a_header_are_split_too():
    """Half of such a batch, its header included, is more than all its records."""
    simulation = simulate(partitions=1)
    simulation.cluster.topics["t"].max_message_bytes = 90
    values = [b"%010d" % n for n in range(3)]
    simulation.append_to(0, values)
    simulation.producer.flush()
    assert simulation.values() == {0: values}
    assert simulation.producer.metrics.batch_splits == 1


def test_a_single_record_that_is_too_large_for_the_topic_fails_the_task():
    simulation = simulate(partitions=1)
    simulation.cluster.topics["t"].max_message_bytes = 4000
    simulation.append_to(0, [b"x" * 100, b"y" * 5000, b"z" * 100])
    with pytest.raises(DeliveryError, match=r"1 record\(s\) for t-0 refused.*MESSAGE_TOO_LARGE"):
        simulation.producer.flush()


def test_batches_get_smaller_after_the_broker_found_one_too_large():
    simulation = simulate(partitions=1, batch_size="100000")
    simulation.cluster.topics["t"].max_message_bytes = 30_000
    for start in range(0, 20_000, 500):
        simulation.append_to(0, [b"%05d" % n + bytes(100) for n in range(start, start + 500)])
        simulation.step(3)
    simulation.producer.flush()
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
    simulation.append_to(0, noise)
    simulation.producer.flush()
    assert simulation.values()[0] == [bytes(500)] * 3000 + noise
    assert max(sizes) <= 60_000
    assert simulation.producer.metrics.batch_splits > 0
    assert simulation.producer.pool.free_count == simulation.producer.pool.pages_count


def test_records_as_large_as_java_allows_pass_through_the_smallest_buffer():
    """Spark's own suite writes 1,000 records of 15,000 bytes with kafka.buffer.memory=16384."""
    simulation = simulate(partitions=1, buffer_memory="16384")
    values = [b"%04d" % number + bytes(14_996) for number in range(1000)]
    for start in range(0, 1000, 100):
        simulation.append([(None, value) for value in values[start : start + 100]])
    simulation.producer.flush()
    assert simulation.values() == {0: values}


def _lowered_after_the_first_attempt(is_appended: bool, **options: str) -> Simulation:
    """A batch of 30 records is sent; there is no answer, and the topic's limit is lowered."""
    simulation = simulate(partitions=1, **options)
    simulation.append_to(0, [b"first"])
    simulation.producer.flush()
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
        simulation.scheduler.after(
            1, lambda: setattr(simulation.cluster.topics["t"], "max_message_bytes", 500)
        )
        return None

    simulation.cluster.on_produce = fail_first
    simulation.append_to(0, [b"%02d" % n + bytes(40) for n in range(30)])
    return simulation


def test_what_is_appended_already_is_not_written_again_when_the_limit_is_lowered():
    """Nobody can learn that it is: brokers look at sizes before sequence numbers."""
    simulation = _lowered_after_the_first_attempt(is_appended=True)
    with pytest.raises(DeliveryError, match="may be in the topic already") as raised:
        simulation.producer.flush()
    assert "OUT_OF_ORDER_SEQUENCE_NUMBER" in str(raised.value)
    assert "max.message.bytes" in str(raised.value)
    assert raised.value.code == "DELIVERY-004"
    assert [v[:2] for v in simulation.values()[0]] == [b"fi", *(b"%02d" % n for n in range(30))]


def test_a_record_alone_that_may_be_appended_is_called_so_when_the_limit_is_lowered():
    simulation = simulate(partitions=1)

    def lose_answer(*_):
        simulation.cluster.on_produce = None
        simulation.network.faults.cut_next_response = True
        simulation.scheduler.after(
            1, lambda: setattr(simulation.cluster.topics["t"], "max_message_bytes", 100)
        )

    simulation.cluster.on_produce = lose_answer
    simulation.append_to(0, [bytes(200)])
    with pytest.raises(DeliveryError, match="MESSAGE_TOO_LARGE.*may be in the topic already"):
        simulation.producer.flush()
    assert simulation.values()[0] == [bytes(200)]


def test_what_was_not_appended_is_split_and_written_once_when_the_limit_is_lowered():
    simulation = _lowered_after_the_first_attempt(is_appended=False)
    simulation.producer.flush()
    assert [v[:2] for v in simulation.values()[0]] == [b"fi", *(b"%02d" % n for n in range(30))]
    assert simulation.producer.metrics.batch_splits > 0


def test_an_attempt_that_comes_late_and_whole_is_refused_behind_its_parts():
    """A socket may hold the whole batch until its parts are in the log."""
    simulation = _lowered_after_the_first_attempt(is_appended=False)
    simulation.producer.flush()
    log = simulation.cluster.topics["t"].partitions[0].log
    whole = log.batches[1].header._replace(records_count=30)
    assert log.check(whole) == ("OUT_OF_ORDER_SEQUENCE_NUMBER", -1)
    assert log.batches[-1].header.producer_epoch == 0
