"""Batches and streams of this Spark, into brokers of each version. Read back by confluent-kafka."""

import itertools

import pyspark
import pytest

from tests.brokers_versions.conftest import (
    COMMAND,
    ON_BROKERS_THAT_DO_NOT,
    ON_BROKERS_THAT_TELL,
)
from tests.compatibility import results
from tests.patience import PATIENCE_S
from tests.spark.test_exactly_once import AS_RECORDS, exactly_once, ids
from tests.spark.test_streaming import ROWS_PER_FILE, read_files, start, write_file

pytestmark = pytest.mark.long

FILES = 4
ROWS = 400
NEEDS_3_0 = "exactly-once needs Kafka 3.0 or newer"
_numbers = itertools.count()


@pytest.fixture
def topic(broker):
    name = f"with-spark-{next(_numbers)}"
    broker.create_topic(name, 3)
    return name


@pytest.fixture
def shown_in_spark(broker):
    """Records whether its body passes, as a result of this Spark with this broker."""
    return lambda what: results.of(
        what=what,
        where="local",
        spark=pyspark.__version__,
        kafka=broker.version,
        command=COMMAND,
    )


def write(spark, broker, topic, **options):
    frame = spark.range(0, ROWS, 1, 4).selectExpr(*AS_RECORDS)
    writer = frame.write.format("pykafka-sink").mode("append").option("topic", topic)
    writer.option("kafka.bootstrap.servers", broker.bootstrap_servers).options(**options).save()


def run_stream(spark, broker, topic, folder, **options):
    """Two files, and after a restart two more."""
    (folder / "in").mkdir()
    for first in (0, FILES // 2):
        for number in range(first, first + FILES // 2):
            write_file(folder / "in", number)
        frame = read_files(spark, folder / "in").repartition(2)
        query = start(frame, broker, topic, folder / "checkpoint", **options)
        assert query.awaitTermination(PATIENCE_S)


def test_batch(spark, broker, topic, shown_in_spark):
    with shown_in_spark("batch"):
        write(spark, broker, topic)
        assert ids(broker, topic) == list(range(ROWS))


def test_stream(spark, broker, topic, shown_in_spark, tmp_path):
    with shown_in_spark("stream"):
        run_stream(spark, broker, topic, tmp_path)
        assert ids(broker, topic) == list(range(FILES * ROWS_PER_FILE))


@ON_BROKERS_THAT_TELL
def test_exactly_once_batch(spark, broker, topic, shown_in_spark):
    with shown_in_spark("exactly-once batch"):
        write(spark, broker, topic, **exactly_once("batch"))
        assert ids(broker, topic) == list(range(ROWS))


@ON_BROKERS_THAT_TELL
def test_exactly_once_stream(spark, broker, topic, shown_in_spark, tmp_path):
    with shown_in_spark("exactly-once stream"):
        run_stream(spark, broker, topic, tmp_path, **exactly_once("stream"))
        assert ids(broker, topic) == list(range(FILES * ROWS_PER_FILE))


@ON_BROKERS_THAT_DO_NOT
def test_exactly_once_is_refused(spark, broker, topic, tmp_path):
    with pytest.raises(Exception, match=NEEDS_3_0):
        write(spark, broker, topic, **exactly_once("batch"))
    with pytest.raises(Exception, match=NEEDS_3_0):
        run_stream(spark, broker, topic, tmp_path, **exactly_once("stream"))
    assert ids(broker, topic) == []
