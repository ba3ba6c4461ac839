"""How large batches may get: what the driver finds out of a real broker, and what that takes."""

from __future__ import annotations

import pytest

from spark_kafka_sink.config.batch_growth import BatchGrowth
from spark_kafka_sink.config.sink_options import SinkOptions
from spark_kafka_sink.localkafka import LocalKafka
from spark_kafka_sink.spark.commit import KafkaCommitMessage
from spark_kafka_sink.spark.preflight import check_cluster
from spark_kafka_sink.spark.task import write_rows
from tests.broker.test_dead_letters import PATIENT, batch_of, plan_of
from tests.reading import read_topic

DEFAULT = 1_048_588


def checked(kafka: LocalKafka, **given: str) -> SinkOptions:
    servers = {"kafka.bootstrap.servers": kafka.bootstrap_servers}
    grows = {"batch.growth.enable": "true"}
    options = {name: text for name, text in {**grows, **given}.items() if text}
    return check_cluster(SinkOptions.parse({**servers, **PATIENT, **options}), is_stream=False)


def test_the_driver_finds_out_what_the_topic_accepts(strict_kafka: LocalKafka) -> None:
    strict_kafka.create_topic("grow-default", 1)
    strict_kafka.create_topic("grow-less", 1, configs={"max.message.bytes": "50000"})
    strict_kafka.create_topic(
        "grow-segment", 1, configs={"max.message.bytes": "2000000", "segment.bytes": "1048576"}
    )
    sizes = {"grow-default": DEFAULT, "grow-less": 50_000, "grow-segment": 1_048_576}
    for topic, size in sizes.items():
        for _ in range(2):  # the second time it is remembered
            given = checked(strict_kafka, topic=topic)
            assert given.producer.batch_growth == BatchGrowth(topic, size)


@pytest.mark.parametrize(
    "given",
    [
        {"batch.growth.enable": ""},  # as by default
        {"max.bytes.per.second": "1000000"},
        {"kafka.batch.size": "1048576"},
    ],
    ids=lambda given: next(iter(given)),
)
def test_nothing_is_asked_where_nothing_may_grow(
    strict_kafka: LocalKafka, given: dict[str, str]
) -> None:
    strict_kafka.create_topic(f"grow-{next(iter(given))}", 1)
    found = checked(strict_kafka, topic=f"grow-{next(iter(given))}", **given)
    assert found.producer.batch_growth is None


def test_nothing_is_known_without_the_topic_option(strict_kafka: LocalKafka) -> None:
    assert checked(strict_kafka).producer.batch_growth is None


def test_no_batch_is_larger_than_a_segment(kafka_3_9: LocalKafka) -> None:
    """A broker refuses it, and for another reason than one larger than max.message.bytes."""
    topic = "grow-small-segments"
    kafka_3_9.create_topic(topic, 1, configs={"segment.bytes": "20000"})
    given = checked(kafka_3_9, topic=topic, **{"kafka.batch.size": "4000"})
    assert given.producer.batch_growth == BatchGrowth(topic, 20_000)
    batch = batch_of(value=[b"%08d" % number * 10 for number in range(20_000)])
    write_rows([batch], given, plan_of(batch, topic), KafkaCommitMessage(0, 0))
    assert len(read_topic(kafka_3_9.bootstrap_servers, topic)) == 20_000


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_the_broker_takes_all_batches_as_they_are(strict_kafka: LocalKafka, codec: str) -> None:
    """However far they have grown: that depends on how busy the machine is."""
    topic = f"grow-all-{codec}"
    strict_kafka.create_topic(topic, 2, configs={"max.message.bytes": "50000"})
    given = checked(
        strict_kafka,
        topic=topic,
        **{"kafka.compression.type": codec, "kafka.batch.size": "4000"},
    )
    values = [b"%08d" % number * 50 for number in range(20_000)]
    batch = batch_of(key=[b"%d" % (number % 7) for number in range(len(values))], value=values)
    message = KafkaCommitMessage(0, 0)
    write_rows([batch], given, plan_of(batch, topic), message)
    assert message.metrics is not None
    assert message.metrics.batch_splits == message.metrics.retries == 0
    assert sorted(r.value or b"" for r in read_topic(strict_kafka.bootstrap_servers, topic)) == (
        values
    )
