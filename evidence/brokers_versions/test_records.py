"""What arrives at real brokers from Kafka 2.1 to today's, and what they refuse, read back by confluent-kafka."""

import itertools
import threading

import pyarrow as pa
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from evidence.brokers_versions.conftest import ON_BROKERS_THAT_TELL
from evidence.brokers_versions.zookeeper_kafka import WITH_ZOOKEEPER
from spark_kafka_sink.base.errors import DeliveryError, TopicError
from spark_kafka_sink.base.model import ColumnPositions
from tests.broker.producing import (
    Topics,
    append,
    creating,
    open_producer,
    producer_for,
    write,
)
from tests.broker.refused import Refusing
from tests.broker.test_records import (
    CODECS,
    batches_of,
    sent,  # noqa: F401 (a fixture)
)
from tests.patience import NO_OTHER_TIMEOUT, PATIENCE_S, eventually, reason_given_time
from tests.reading import Read, read_topic, read_values

ROWS = 2000
PARTITIONS = 3
FIRST_TIMESTAMP_MS = 1_500_000_000_000
_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_HEADERS_OF_A_ROW: tuple = ([], [("a", b"1"), ("a", None), ("größe", b"")], None)
_numbers = itertools.count()


def new_topic(broker, what, partitions=PARTITIONS):
    topic = f"{what.replace(' ', '-')}-{next(_numbers)}"
    broker.create_topic(topic, partitions)
    return topic


def all_columns():
    """Keys that are null and empty, tombstones, headers, partitions, timestamps."""
    numbers = range(ROWS)
    headers = [_HEADERS_OF_A_ROW[n % 3] for n in numbers]
    named = [h and [{"key": key, "value": value} for key, value in h] for h in headers]
    milliseconds = [FIRST_TIMESTAMP_MS + n for n in numbers]
    return pa.record_batch(
        {
            "key": pa.array([(None, b"", b"%d" % n)[n % 3] for n in numbers], pa.binary()),
            "value": pa.array(
                [None if n % 5 == 0 else b"%d:" % n + b"text" * (n % 50) for n in numbers],
                pa.binary(),
            ),
            "headers": pa.array(named, _HEADERS),
            "partition": pa.array([n % PARTITIONS for n in numbers], pa.int32()),
            "timestamp": pa.array(milliseconds, pa.timestamp("ms", "UTC")).cast(
                pa.timestamp("us", "UTC")
            ),
        }
    )


def expected(batch):
    """The records of ``all_columns``, as another client must see them."""
    offsets = [itertools.count() for _ in range(PARTITIONS)]
    records = [
        Read(
            row["partition"],
            next(offsets[row["partition"]]),
            FIRST_TIMESTAMP_MS + number,
            row["key"],
            row["value"],
            tuple((h["key"], h["value"]) for h in row["headers"] or ()),
        )
        for number, row in enumerate(batch.to_pylist())
    ]
    return sorted(records, key=lambda r: (r.partition, r.offset))


@pytest.mark.parametrize("codec", CODECS)
def test_every_column_arrives_with_each_codec(broker, shows, codec):
    topic, batch = new_topic(broker, codec), all_columns()
    positions = {name: index for index, name in enumerate(batch.schema.names)}
    with shows(f"codec {codec}"):
        options = {"compression_type": codec, "batch_size": "16384"}
        with producer_for(broker.bootstrap_servers, **options) as producer:
            producer.append(batch, ColumnPositions(topic_option=topic, **positions))
            producer.flush()
            assert producer.metrics.records == ROWS
            assert producer.metrics.requests > 0
            report = producer.report
        assert read_topic(broker.bootstrap_servers, topic) == expected(batch)
        assert sum(p.records for p in report.values()) == ROWS
        for partition in range(PARTITIONS):
            stored = {b.codec_id for b in batches_of(broker, topic, partition)}
            assert stored == {CODECS.index(codec)}


def numbered(first, count=100):
    return [b"%d" % n for n in range(first, first + count)]


def test_records_are_written_idempotently(broker, shows):
    topic = new_topic(broker, "idempotent", 1)
    with shows("idempotence"):
        with producer_for(broker.bootstrap_servers, batch_size="1024") as producer:
            for first in range(0, 1000, 100):
                append(producer, topic, numbered(first))
            producer.flush()
        batches = list(batches_of(broker, topic))
        assert len({b.producer_id for b in batches}) == 1
        assert batches[0].producer_id >= 0
        assert [b.base_sequence for b in batches] == [b.base_offset for b in batches]
        assert read_values(broker.bootstrap_servers, topic) == numbered(0, 1000)


def test_a_broker_may_forget_the_producer(broker, shows):
    """Its records were deleted, as retention does; Kafka before 2.4 forgets their producer, too."""
    topic = new_topic(broker, "forgotten", 1)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    with shows("idempotence"), producer_for(broker.bootstrap_servers) as producer:
        append(producer, topic, numbered(0))
        producer.flush()
        everything = TopicPartition(topic, 0, 100)
        (deleted,) = admin.delete_records([everything]).values()
        assert deleted.result(PATIENCE_S).low_watermark == 100
        append(producer, topic, numbered(100))
        producer.flush()
        append(producer, topic, numbered(200))
        producer.flush()
        assert producer.metrics.retries == (1 if broker.version == "2.1.1" else 0)
        records = read_topic(broker.bootstrap_servers, topic)
        assert [(r.offset, r.value) for r in records] == [(n, b"%d" % n) for n in range(100, 300)]


def test_a_broker_is_killed_in_the_middle(broker, shows):
    """A task goes on writing before, while it is away, and after it has come back."""
    topic = new_topic(broker, "restart", 1)
    options = {**NO_OTHER_TIMEOUT, "batch_size": "4096", "buffer_memory": "1048576"}
    stop, count = threading.Event(), itertools.count(step=20)
    written = [0]

    def write_on():
        while not stop.is_set():
            first = next(count)
            append(producer, topic, [b"%d:" % n + b"x" * 400 for n in range(first, first + 20)])
            written[0] = first + 20

    with shows("restart"), producer_for(broker.bootstrap_servers, **options) as producer:
        task = threading.Thread(target=write_on)
        task.start()
        try:
            assert eventually(lambda: acknowledged(producer) > 500)
            broker.kill(1)
            broker.restart(1)
            before = acknowledged(producer)
            assert eventually(lambda: acknowledged(producer) > before + 5000)
        finally:
            stop.set()
            task.join()
        producer.flush()
        assert producer.metrics.retries > 0
        records = read_values(broker.bootstrap_servers, topic)
        assert [int((value or b"").split(b":")[0]) for value in records] == list(range(written[0]))


def acknowledged(producer):
    return sum(p.records for p in list(producer.report.values()))


def test_a_record_that_a_compacted_topic_refuses(broker):
    """It has no key. Kafka before 2.4 has no error of its own for that, and it is tried again."""
    topic = f"compacted-{next(_numbers)}"

    def fails(timeout_ms):
        times = {"delivery.timeout.ms": str(2 * timeout_ms), "request.timeout.ms": str(timeout_ms)}
        numbers = {
            "partitions": "1",
            "replication_factor": "1",
            "configs": "cleanup.policy=compact",
        }
        write(creating(broker.bootstrap_servers, times, **numbers), topic, [b"v"])

    is_old = broker.version == "2.1.1"
    wanted = "without a key for a compacted topic" if is_old else "INVALID_RECORD (87)"
    assert wanted in reason_given_time(fails, DeliveryError, 1000, wanted)


class TestTopicCreation:
    def test_with_numbers(self, broker, shows):
        topic = f"created-{next(_numbers)}"
        with shows("topic creation"):
            config = creating(
                broker.bootstrap_servers,
                partitions="3",
                replication_factor="1",
                configs="retention.ms=86400000,max.message.bytes=2000000",
            )
            write(config, topic, [b"v"])
            topics = Topics(broker.bootstrap_servers)
            assert topics.replicas(topic) == {n: [1] for n in range(3)}
            assert topics.own_configs(topic) == {
                "retention.ms": "86400000",
                "max.message.bytes": "2000000",
            }
            assert read_values(broker.bootstrap_servers, topic) == [b"v"]

    def test_by_the_brokers_defaults(self, broker, shows):
        """KIP-464: from Kafka 2.4 on."""
        topic = f"created-{next(_numbers)}"
        config = creating(broker.bootstrap_servers)
        with shows("topic creation"):
            if broker.version == "2.1.1":
                with pytest.raises(TopicError, match="older than Kafka 2.4") as raised:
                    write(config, topic, [b"v"])
                assert "topic.creation.partitions" in str(raised.value)
                assert "topic.creation.replication.factor" in str(raised.value)
            else:
                write(config, topic, [b"v"])
                assert read_values(broker.bootstrap_servers, topic) == [b"v"]


def test_without_idempotence_and_with_fewer_acks(broker, shows):
    for acks in ("0", "1"):
        topic = new_topic(broker, f"acks-{acks}", 1)
        with shows("idempotence"):
            producer = open_producer(broker.bootstrap_servers, acks=acks)
            append(producer, topic, numbered(0))
            producer.flush()
            producer.close()
            found = eventually(
                lambda: read_values(broker.bootstrap_servers, topic) == numbered(0)  # noqa: B023
            )
            assert found
            assert {b.producer_id for b in batches_of(broker, topic)} == {-1}


CAUSES = ["refused", "too-large", "bad-timestamp"]
NAMES_NO_RECORDS = WITH_ZOOKEEPER[0]
"""Older than KIP-467: what a compacted topic refuses it calls corrupt, which is sent again."""


def refusing(broker, cause, **more):
    return Refusing(broker, f"refused-{cause}-{next(_numbers)}", cause, **more)


@pytest.mark.parametrize("codec", ["none", "zstd"])
@pytest.mark.parametrize("cause", CAUSES)
def test_refused_rows_are_dead_letters(broker, cause, codec):
    if broker.version == NAMES_NO_RECORDS and cause == "refused":
        given = refusing(
            broker,
            cause,
            kafka_delivery_timeout_ms="3000",
            kafka_request_timeout_ms="2000",
            kafka_compression_type=codec,
        )
        with pytest.raises(DeliveryError, match="CORRUPT_MESSAGE"):
            given.write()
        return
    given = refusing(broker, cause, kafka_compression_type=codec)
    given.check(given.write())


@ON_BROKERS_THAT_TELL
@pytest.mark.parametrize("cause", CAUSES)
def test_a_transaction_goes_on_after_a_refusal(broker, cause):
    given = refusing(
        broker,
        cause,
        delivery_guarantee="exactly-once",
        transactional_id_prefix=f"refused-{next(_numbers)}",
        transaction_log_replication_factor="1",
    )
    given.check(given.write())
