"""Records in real brokers' logs, of the oldest and the newest Kafka: what their own tools and other clients say."""

from __future__ import annotations

import logging
import re
import struct
from collections import Counter
from contextlib import closing
from typing import NamedTuple

import pytest
from confluent_kafka import Producer, TopicPartition

from evidence.harness.jobs import Verdict, judge
from spark_kafka_sink.network import admin as admin_module
from spark_kafka_sink.network.transport import SelectorNetwork
from spark_kafka_sink.producer import producer as producer_module
from spark_kafka_sink.protocol.messages.client import GetTelemetrySubscriptionsRequest
from tests.broker.producing import (
    batch_of,
    open_producer,
    plan_of,
    producer_for,
    send,
)
from tests.patience import PATIENCE_S, eventually
from tests.reading import consumer, read_topic
from tests.unit.record_api_versions import FUTURE_VERSION, ask, recorded

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
ROWS = 3000
PRODUCE, METADATA, API_VERSIONS, CREATE_TOPICS, INIT_PRODUCER_ID = 0, 3, 18, 19, 22
# The highest version of each API that the broker and this client have. Source: the message
# definitions of Kafka 3.9 and 4.4; this client has Produce to 13, Metadata to 13.
HIGHEST_COMMON = {
    "3.9.1": {PRODUCE: {11}, METADATA: {12}, API_VERSIONS: {4}, INIT_PRODUCER_ID: {5}},
    # ApiVersions 5 names the broker, which is unknown of an address of bootstrap.servers.
    "4.4.0": {PRODUCE: {13}, METADATA: {13}, API_VERSIONS: {4, 5}, INIT_PRODUCER_ID: {5}},
}


@pytest.fixture(scope="module", params=HIGHEST_COMMON)
def broker(request):
    name = {"3.9.1": "kafka_3_9", "4.4.0": "kafka"}[request.param]
    local_kafka = request.getfixturevalue(name)
    assert local_kafka.version == request.param
    return local_kafka


@pytest.fixture
def sent(monkeypatch):
    """API key and version of each request, as they stand in the bytes on their way to a socket."""
    seen = []

    class Noting(SelectorNetwork):
        def send(self, channel_id, buffers):
            seen.append(struct.unpack_from(">4xhh", b"".join(buffers)))
            return super().send(channel_id, buffers)

    for module in (producer_module, admin_module):
        monkeypatch.setattr(module, "SelectorNetwork", Noting)
    return seen


class Batch(NamedTuple):
    """What a broker has in its log. Source: ``DefaultRecordBatch``."""

    base_offset: int
    magic: int
    codec_id: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records_count: int


def batches_of(kafka, topic, partition=0):
    """The record batches in the broker's log."""
    log = kafka.data_directory(1) / f"{topic}-{partition}" / "00000000000000000000.log"
    data, at = log.read_bytes(), 0
    while at < len(data):
        base_offset, size, magic, attributes, producer_id, epoch, sequence, count = (
            struct.unpack_from(">qi4xb4xh4x16xqhii", data, at)
        )
        yield Batch(base_offset, magic, attributes & 7, producer_id, epoch, sequence, count)
        at += 12 + size


def rows(start=0):
    numbers = range(start, start + ROWS)
    return batch_of(
        key=[b"%d" % n for n in numbers],
        value=[b"%d:" % n + b"abcdefgh" * (n % 9) for n in numbers],
    )


def topic_for(broker, what, partitions=1):
    topic = f"bv-{what}-{broker.version}"
    broker.create_topic(topic, partitions)
    return topic


class TestRecords:
    def test_without_idempotence_carry_no_producer_id(self, broker, sent):
        topic = topic_for(broker, "not-idempotent")
        send(broker.bootstrap_servers, topic, [rows()], enable_idempotence="false")
        [producer_ids] = {(b.producer_id, b.base_sequence) for b in batches_of(broker, topic)}
        assert producer_ids == (-1, -1)
        assert INIT_PRODUCER_ID not in dict(sent)
        assert len(read_topic(broker.bootstrap_servers, topic)) == ROWS

    @pytest.mark.parametrize("acks", ["0", "1"])
    def test_with_fewer_acks_arrive(self, broker, acks):
        topic = topic_for(broker, f"acks-{acks}")
        with producer_for(broker.bootstrap_servers, acks=acks) as producer:
            producer.append(rows(), plan_of(rows(), topic))
            producer.flush()
            # With acks=0 they may still be on their way.
            assert eventually(lambda: len(read_topic(broker.bootstrap_servers, topic)) == ROWS)


class TestVersions:
    def test_are_the_highest_common_ones(self, broker, sent):
        topic = topic_for(broker, "versions")
        send(broker.bootstrap_servers, topic, [rows()])
        versions = {}
        for api_key, version in sent:
            versions.setdefault(api_key, set()).add(version)
        assert versions == HIGHEST_COMMON[broker.version]

    def test_the_recorded_answers_are_those_of_this_broker(self, broker):
        """test_network_client works with them."""
        answers = recorded(broker.version)
        for version in (0, 1, 2, FUTURE_VERSION):
            assert ask(broker.address(1), version) == answers[version]


SEGMENT_ROWS = 20_000
BATCH_LINE = re.compile(
    r"baseOffset: (\d+) lastOffset: (\d+) count: (\d+) baseSequence: (\d+) lastSequence: (\d+) "
    r"producerId: (\d+) producerEpoch: (\d+) .* compresscodec: (\w+) .* isvalid: (\w+)"
)


def segment_rows(start=0, count=SEGMENT_ROWS):
    numbers = range(start, start + count)
    return batch_of(
        key=[str(n % 500).encode() for n in numbers],
        value=[(f"{n}:" + "abcdefghij" * (n % 20)).encode() for n in numbers],
    )


@pytest.mark.parametrize("codec", CODECS)
def test_kafka_reads_our_segments(kafka, codec):
    topic = f"segments-{codec}"
    kafka.create_topic(topic, 2)
    producer = send(
        kafka.bootstrap_servers,
        topic,
        [segment_rows(), segment_rows(SEGMENT_ROWS)],
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
        for *numbers, name, valid in batches:
            base, last, count, first_sequence, last_sequence, producer_id, epoch = map(int, numbers)
            assert (name, valid, epoch) == (codec, "true", 0)
            assert producer_id >= 0
            assert (base, first_sequence) == (next_offset, next_sequence)
            assert last - base + 1 == last_sequence - first_sequence + 1 == count
            next_offset, next_sequence = last + 1, last_sequence + 1
        assert len({batch[5] for batch in batches}) == 1
        assert "isvalid: false" not in text
        total += next_offset
    assert total == 2 * SEGMENT_ROWS
    assert sum(report.records for report in producer.report.values()) == total
    values = Counter(r.value for r in read_topic(kafka.bootstrap_servers, topic))
    assert values == Counter(
        value.as_py() for b in (segment_rows(), segment_rows(SEGMENT_ROWS)) for value in b.column(1)
    )


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
    with closing(consumer(kafka.bootstrap_servers)) as reader:
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
    folder = kafka.data_directory(1) / f"{topic}-0"
    indexes = [str(path) for path in sorted(folder.glob("*.*index")) if path.suffix != ".snapshot"]
    text = kafka.run_tool("DumpLogSegments", "--verify-index-only", "--files", ",".join(indexes))
    assert "Found mismatches" not in text
    assert "not found" not in text


def test_many_small_flushes_with_no_linger(kafka):
    """Both threads want to close batches all the time here: nothing may get lost between them."""
    topic = "small-flushes"
    kafka.create_topic(topic, 3)
    with producer_for(kafka.bootstrap_servers, linger_ms="0", compression_type="lz4") as producer:
        for number in range(400):
            batch = batch_of(
                key=[b"%d" % number] * 5, value=[b"%d-%d" % (number, i) for i in range(5)]
            )
            producer.append(batch, plan_of(batch, topic))
            if number % 2:
                producer.flush()
        producer.flush()
    values = Counter(r.value for r in read_topic(kafka.bootstrap_servers, topic))
    assert values == Counter(b"%d-%d" % (n, i) for n in range(400) for i in range(5))


def test_a_broker_without_a_plugin_is_asked_nothing(kafka, caplog):
    caplog.set_level(logging.DEBUG, "spark_kafka_sink")
    kafka.create_topic("unwatched", 1)
    producer = open_producer(kafka.bootstrap_servers, linger_ms="0")
    batch = batch_of(value=[b"a", b"b"])
    for _ in range(2):
        producer.append(batch, plan_of(batch, "unwatched"))
        producer.flush()
    (node,) = producer._metadata.snapshot.nodes.values()
    versions = producer.client.api_versions(node)
    assert not versions.supports(GetTelemetrySubscriptionsRequest)
    producer.close()
    assert producer.telemetry.subscription is None
    assert len(read_topic(kafka.bootstrap_servers, "unwatched")) == 4
    assert [record for record in caplog.records if "telemetry" in record.name] == []


def judged(kafka, topic, ids, records, padding=b"x" * 90):
    kafka.create_topic(topic)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for number in ids:
        producer.produce(topic, b"%010d" % number + padding, b"key")
    assert producer.flush(30) == 0
    return judge(kafka.bootstrap_servers, topic, 1, records)


def test_all_well(kafka):
    verdict = judged(kafka, "verdict-good", [0, 1, 2, 3], 4)
    assert verdict == Verdict(read=4, lost=0, doubled=0, out_of_order=0)
    assert verdict.is_good


def test_lost_doubled_and_out_of_order_are_counted(kafka):
    verdict = judged(kafka, "verdict-bad", [0, 2, 1, 2, 2], 5)
    assert verdict == Verdict(read=5, lost=2, doubled=2, out_of_order=1)
    assert not verdict.is_good


def test_a_value_that_no_job_has_written_ends_the_run(kafka):
    with pytest.raises(AssertionError, match="not a value of the job"):
        judged(kafka, "verdict-other", [0], 1, padding=b"x" * 89 + b"y")
