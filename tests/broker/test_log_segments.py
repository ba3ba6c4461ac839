"""What Kafka's own tools and other clients say of the logs that we wrote."""

import re
import threading
from collections import Counter

import pytest
from confluent_kafka import TopicPartition

from tests.broker.producing import batch_of, send
from tests.patience import PATIENCE_S
from tests.reading import consumer, read_topic

ROWS = 20_000
BATCH_LINE = re.compile(
    r"baseOffset: (\d+) lastOffset: (\d+) count: (\d+) baseSequence: (\d+) lastSequence: (\d+) "
    r"producerId: (\d+) producerEpoch: (\d+) .* compresscodec: (\w+) .* isvalid: (\w+)"
)


def rows(start=0, count=ROWS):
    numbers = range(start, start + count)
    return batch_of(
        key=[str(n % 500).encode() for n in numbers],
        value=[(f"{n}:" + "abcdefghij" * (n % 20)).encode() for n in numbers],
    )


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_kafka_reads_our_segments(kafka, codec):
    topic = f"segments-{codec}"
    kafka.create_topic(topic, 2)
    producer = send(
        kafka.bootstrap_servers,
        topic,
        [rows(), rows(ROWS)],
        compression_type=codec,
        batch_size="50000",
    )
    total = 0
    for partition in range(2):
        log = kafka.data_directory(1) / f"{topic}-{partition}" / "00000000000000000000.log"
        text = kafka.run_tool("DumpLogSegments", "--deep-iteration", "--files", str(log))
        batches = [match.groups() for match in BATCH_LINE.finditer(text)]
        assert len(batches) > 1
        next_offset = next_sequence = 0
        for (
            base,
            last,
            count,
            base_sequence,
            last_sequence,
            producer_id,
            epoch,
            name,
            valid,
        ) in batches:
            assert (name, valid, epoch) == (codec, "true", "0")
            assert int(producer_id) >= 0
            assert int(base) == next_offset
            assert int(base_sequence) == next_sequence
            assert int(last) - int(base) + 1 == int(count)
            assert int(last_sequence) - int(base_sequence) + 1 == int(count)
            next_offset, next_sequence = int(last) + 1, int(last_sequence) + 1
        assert len({batch[5] for batch in batches}) == 1
        assert "isvalid: false" not in text
        total += next_offset
    assert total == 2 * ROWS
    assert sum(report.records for report in producer.report.values()) == total
    values = Counter(r.value for r in read_topic(kafka.bootstrap_servers, topic))
    assert values == Counter(value.as_py() for b in (rows(), rows(ROWS)) for value in b.column(1))


def test_indexes_and_timestamps(kafka):
    topic, first = "timestamps", 1_600_000_000_000
    kafka.create_topic(
        topic, 1, configs={"segment.bytes": "1048576", "index.interval.bytes": "1024"}
    )
    batches = [
        batch_of(
            value=[b"%d" % n for n in range(start, start + 5000)],
            timestamp=[first + n * 10 for n in range(start, start + 5000)],
        )
        for start in range(0, 50_000, 5000)
    ]
    send(kafka.bootstrap_servers, topic, batches, batch_size="16384")
    reader = consumer(kafka.bootstrap_servers)
    try:
        for n in (0, 1, 777, 25_000, 49_999):
            for at, expected in ((first + n * 10, n), (first + n * 10 - 5, n)):
                (found,) = reader.offsets_for_times(
                    [TopicPartition(topic, 0, at)], timeout=PATIENCE_S
                )
                assert found.offset == expected
        (beyond,) = reader.offsets_for_times(
            [TopicPartition(topic, 0, first + 10**7)], timeout=PATIENCE_S
        )
        assert beyond.offset == -1
    finally:
        reader.close()
    folder = kafka.data_directory(1) / f"{topic}-0"
    indexes = [str(path) for path in sorted(folder.glob("*.*index")) if path.suffix != ".snapshot"]
    text = kafka.run_tool("DumpLogSegments", "--verify-index-only", "--files", ",".join(indexes))
    assert "Found mismatches" not in text
    assert "not found" not in text


def test_a_group_of_three_reads_every_record_once(kafka):
    topic = "group-of-three"
    kafka.create_topic(topic, 6)
    seen = []
    shares = [0, 0, 0]
    group_is_complete = threading.Event()
    done = threading.Event()
    lock = threading.Lock()

    def read(number):
        reader = consumer(
            kafka.bootstrap_servers,
            **{
                "group.id": "three",
                "auto.offset.reset": "earliest",
                "enable.partition.eof": False,
                "partition.assignment.strategy": "cooperative-sticky",
            },
        )
        reader.subscribe([topic])
        try:
            while not done.is_set():
                messages = reader.consume(500, timeout=0.2)
                with lock:
                    shares[number] = len(reader.assignment())
                    if shares == [2, 2, 2]:
                        group_is_complete.set()
                if not messages:
                    continue
                reader.commit(asynchronous=False)
                with lock:
                    assert all(m.error() is None for m in messages)
                    seen.extend(m.value() for m in messages)
                    if len(seen) >= ROWS:
                        done.set()
        finally:
            reader.close()

    threads = [threading.Thread(target=read, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    try:
        # Sent once the group is stable: a rebalance in the middle may rightly deliver a record twice.
        assert group_is_complete.wait(PATIENCE_S), f"partitions per member: {shares}"
        send(kafka.bootstrap_servers, topic, [rows()], compression_type="lz4")
        done.wait(PATIENCE_S)
    finally:
        done.set()
        for thread in threads:
            thread.join(PATIENCE_S)
    assert Counter(seen) == Counter(value.as_py() for value in rows().column(1))


def test_many_small_flushes_with_no_linger(kafka):
    """Both threads want to close batches all the time here: nothing may get lost between them."""
    topic = "small-flushes"
    kafka.create_topic(topic, 3)
    from tests.broker.producing import open_producer, plan_of

    producer = open_producer(kafka.bootstrap_servers, linger_ms="0", compression_type="lz4")
    try:
        for number in range(400):
            batch = batch_of(
                key=[b"%d" % number] * 5, value=[b"%d-%d" % (number, i) for i in range(5)]
            )
            producer.append(batch, plan_of(batch, topic))
            if number % 2:
                producer.flush()
        producer.flush()
    finally:
        producer.close()
    values = Counter(r.value for r in read_topic(kafka.bootstrap_servers, topic))
    assert values == Counter(b"%d-%d" % (n, i) for n in range(400) for i in range(5))
