"""Dead letters with a real broker: its topic, what the driver reads of topics, what brokers take."""

import random
from collections import Counter

import pytest

from spark_kafka_sink.base.errors import ConfigError, TopicError
from spark_kafka_sink.config.sink_keys import RowRules
from spark_kafka_sink.config.sink_options import SinkOptions
from spark_kafka_sink.spark.commit import KafkaCommitMessage
from spark_kafka_sink.spark.preflight import check_cluster
from spark_kafka_sink.spark.task import write_rows
from tests.broker.described import Topics
from tests.broker.producing import batch_of, plan_of
from tests.broker.refused import Refusing
from tests.patience import AN_HOUR_MS
from tests.reading import read_topic

DEAD = "errors.deadletterqueue.topic."
PATIENT = {
    "preflight.timeout.ms": str(AN_HOUR_MS),
    "kafka.max.block.ms": str(AN_HOUR_MS),
}


def options(kafka, topic, **more):
    return SinkOptions.parse(
        {
            "kafka.bootstrap.servers": kafka.bootstrap_servers,
            "topic": topic,
            "errors.tolerance": "all",
            f"{DEAD}name": f"{topic}-dead",
            "errors.deadletterqueue.max.ratio": "1",
            **PATIENT,
            **more,
        }
    )


def checked(given):
    return check_cluster(given, is_stream=False)


def rules(given):
    assert given.dead_letters is not None
    return given.dead_letters


def causes(records):
    headers = [dict(record.headers).get("__connect.errors.cause") for record in records]
    return Counter(None if cause is None else cause.decode() for cause in headers)


def test_the_topic_is_created_as_the_options_say(strict_kafka):
    strict_kafka.create_topic("dl-made", 1)
    given = options(
        strict_kafka,
        "dl-made",
        **{f"{DEAD}replication.factor": "1", "topic.creation.partitions": "3"},
    )
    assert rules(checked(given)).own == RowRules(1_048_588, False)
    topics = Topics(strict_kafka.bootstrap_servers)
    assert topics.created("dl-made-dead") == {0: [1], 1: [1], 2: [1]}
    assert topics.own_configs("dl-made-dead") == {}
    assert checked(given) == checked(given)


def test_a_topic_that_cannot_be_created_names_the_option(strict_kafka):
    strict_kafka.create_topic("dl-three", 1)
    with pytest.raises(TopicError) as raised:
        checked(options(strict_kafka, "dl-three", **{f"{DEAD}replication.factor": "3"}))
    assert "cannot be created by errors.deadletterqueue.topic.name" in str(raised.value)
    assert "errors.deadletterqueue.topic.replication.factor = 3 is more" in str(raised.value)


def test_a_compacted_topic_is_refused(strict_kafka):
    strict_kafka.create_topic("dl-compact", 1)
    strict_kafka.create_topic("dl-compact-dead", 1, configs={"cleanup.policy": "compact,delete"})
    with pytest.raises(ConfigError, match="'dl-compact-dead'.* is compacted"):
        checked(options(strict_kafka, "dl-compact"))


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_the_broker_takes_what_is_no_dead_letter_and_nothing_else_would_fit(strict_kafka, codec):
    """Around the topic's limit, which the driver has read; and rows without a key."""
    topic = f"dl-limits-{codec}"
    configs = {"max.message.bytes": "5000", "cleanup.policy": "compact"}
    strict_kafka.create_topic(topic, 2, configs=configs)
    given = checked(options(strict_kafka, topic, **{"kafka.compression.type": codec}))
    assert rules(given).target == RowRules(5000, True)
    noise = random.Random(1).randbytes(6000)
    values = [*(noise[:size] for size in range(4880, 4960)), bytes(20_000), b"without a key"]
    keys = [b"%02d" % (n % 90) for n in range(81)]
    batch = batch_of(key=[*keys, None], value=values)
    message = KafkaCommitMessage(0, 0)
    write_rows([batch], given, plan_of(batch, topic), message)
    good = read_topic(strict_kafka.bootstrap_servers, topic)
    dead = read_topic(strict_kafka.bootstrap_servers, f"{topic}-dead")
    assert len(good) + len(dead) == message.records == 82
    found = causes(dead)
    assert found == message.dead_letters
    assert (found["null-key"], len(found)) == (1, 2)
    assert {r.value for r in good} <= set(values)
    assert (bytes(20_000) in {r.value for r in good}) == (codec != "none")
    if codec == "none":
        assert max(len(r.value or b"") for r in good) == 5000 - 61 - 2 - 3 - 3 - 2 - 1


@pytest.mark.parametrize("cause", ["refused", "too-large", "bad-timestamp"])
def test_what_the_broker_refuses_is_a_dead_letter(strict_kafka, cause):
    refusing = Refusing(
        strict_kafka,
        f"dl-refused-{cause}",
        cause,
        delivery_guarantee="exactly-once",
        transactional_id_prefix=f"dl-refused-{cause}",
        transaction_log_replication_factor="1",
    )
    refusing.check(refusing.write())
