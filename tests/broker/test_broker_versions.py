"""The producer and real brokers of the oldest and the newest Kafka: what they agree on."""

from __future__ import annotations

import struct
from typing import NamedTuple

import pytest

from spark_kafka_sink.base.errors import TopicError
from spark_kafka_sink.client import admin as admin_module
from spark_kafka_sink.network.transport import SelectorNetwork
from spark_kafka_sink.producer import producer as producer_module
from tests.broker.creating import append, creating, write
from tests.broker.described import Topics
from tests.broker.processes import eventually
from tests.broker.producing import batch_of, open_producer, plan_of, send
from tests.reading import read_topic
from tests.unit.record_api_versions import FUTURE_VERSION, ask, recorded

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
ROWS = 3000
PRODUCE, METADATA, API_VERSIONS, CREATE_TOPICS, INIT_PRODUCER_ID = 0, 3, 18, 19, 22
# The highest version of each API that the broker and this client have. Source: the message
# definitions of Kafka 3.9 and 4.3; this client has Produce to 13, Metadata to 13.
HIGHEST_COMMON = {
    "3.9.1": {PRODUCE: 11, METADATA: 12, API_VERSIONS: 4, INIT_PRODUCER_ID: 5},
    "4.3.0": {PRODUCE: 13, METADATA: 13, API_VERSIONS: 4, INIT_PRODUCER_ID: 5},
}
CREATE_TOPICS_VERSION = 7


@pytest.fixture(scope="module", params=HIGHEST_COMMON)
def broker(request):
    name = {"3.9.1": "kafka_3_9", "4.3.0": "kafka"}[request.param]
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
            super().send(channel_id, buffers)

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
    def test_of_each_codec_arrive(self, broker):
        """Each codec has its own partition."""
        topic = topic_for(broker, "codecs", len(CODECS))
        keys, texts = (column.to_pylist() for column in rows().columns)
        for codec_id, codec in enumerate(CODECS):
            batch = batch_of(key=keys, value=texts, partition=[codec_id] * ROWS)
            options = {"compression_type": codec, "batch_size": "16384"}
            send(broker.bootstrap_servers, topic, [batch], **options)
        records = read_topic(broker.bootstrap_servers, topic)
        for codec_id in range(len(CODECS)):
            got = [(r.offset, r.key, r.value) for r in records if r.partition == codec_id]
            assert got == list(zip(range(ROWS), keys, texts))
            batches = batches_of(broker, topic, codec_id)
            assert {batch.codec_id for batch in batches} == {codec_id}

    def test_are_written_idempotently(self, broker):
        topic = topic_for(broker, "idempotent")
        send(broker.bootstrap_servers, topic, [rows(), rows(ROWS)], batch_size="16384")
        batches = list(batches_of(broker, topic))
        assert len(batches) > 3
        assert {(b.magic, b.producer_epoch) for b in batches} == {(2, 0)}
        assert len({b.producer_id for b in batches}) == 1
        assert batches[0].producer_id >= 0
        # Each record of the producer's only partition has its number: offsets and sequences agree.
        assert [b.base_sequence for b in batches] == [b.base_offset for b in batches]
        assert sum(b.records_count for b in batches) == 2 * ROWS

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
        producer = open_producer(broker.bootstrap_servers, acks=acks)
        try:
            producer.append(rows(), plan_of(rows(), topic))
            producer.flush()
            # With acks=0 they may still be on their way.
            assert eventually(lambda: len(read_topic(broker.bootstrap_servers, topic)) == ROWS)
        finally:
            producer.close()


class TestVersions:
    def test_are_the_highest_common_ones(self, broker, sent):
        topic = topic_for(broker, "versions")
        send(broker.bootstrap_servers, topic, [rows()])
        versions = {}
        for api_key, version in sent:
            versions.setdefault(api_key, set()).add(version)
        assert versions == {key: {v} for key, v in HIGHEST_COMMON[broker.version].items()}

    def test_of_topic_creation(self, broker, sent):
        topic = f"bv-created-{broker.version}"
        write(creating(broker.bootstrap_servers, partitions="2"), topic, [b"v"])
        assert {version for key, version in sent if key == CREATE_TOPICS} == {CREATE_TOPICS_VERSION}
        assert [r.value for r in read_topic(broker.bootstrap_servers, topic)] == [b"v"]

    def test_the_recorded_answers_are_those_of_this_broker(self, broker):
        """test_network_client works with them."""
        answers = recorded(broker.version)
        for version in (0, 1, 2, FUTURE_VERSION):
            assert ask(broker.address(1), version) == answers[version]


def test_a_recreated_topic_is_found_out_by_metadata(kafka_3_9):
    """Until Kafka 4.1, produce requests name topics without their id: only metadata can tell."""
    servers, topic = kafka_3_9.bootstrap_servers, "bv-recreated"
    topics = Topics(servers)
    kafka_3_9.create_topic(topic)
    producer = open_producer(servers, metadata_max_age_ms="100")
    try:
        append(producer, topic, [b"old"])
        producer.flush()
        topics.delete(topic)
        kafka_3_9.create_topic(topic)
        assert eventually(lambda: not producer.is_healthy)
        with pytest.raises(TopicError, match=f"'{topic}' was deleted and created again"):
            append(producer, topic, [b"for the old one"])
    finally:
        producer.close()
    assert read_topic(servers, topic) == []
