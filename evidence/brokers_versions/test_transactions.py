"""Exactly-once without Spark, and batches and streams of this Spark, on brokers of each version."""

import itertools

import pyspark
import pytest

from evidence.brokers_versions.conftest import COMMAND, ON_BROKERS_THAT_DO_NOT, ON_BROKERS_THAT_TELL
from evidence.compatibility import results
from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.config.sink_keys import ExactlyOnceConfig
from spark_kafka_sink.network.admin import AdminClient
from spark_kafka_sink.transactions.decision_log import check_brokers
from spark_kafka_sink.transactions.model import Unit
from tests.broker.test_transactions import (
    LOG_TOPIC,
    TIMEOUT_MS,
    assert_committed,
    committed,
    json_of,
    open_query,
)
from tests.patience import PATIENCE_MS, PATIENCE_S
from tests.spark.test_exactly_once import AS_RECORDS, exactly_once, ids
from tests.spark.test_streaming import ROWS_PER_FILE, read_files, start, write_file

ROWS = 600
UNIT = Unit("query-1", 7, None)


@pytest.fixture
def query(broker, request):
    """A driver of its own."""
    with open_query(broker, request.node.originalname.replace("_", "-")) as opened:
        yield opened


@ON_BROKERS_THAT_TELL
class TestTransactions:
    def test_are_invisible_until_they_are_committed(self, query, shows):
        with shows("transactions"):
            plan, written = query.begin()
            assert committed(query.kafka, query.topic, "read_uncommitted") == list(range(ROWS))
            assert committed(query.kafka, query.topic) == []
            query.protocol.commit(plan, UNIT, written)
            assert_committed(query.kafka, query.topic, range(ROWS))

    def test_that_are_aborted_are_never_visible(self, query, shows):
        with shows("transactions"):
            plan, _ = query.begin()
            query.protocol.abort(plan.driver)
            plan, written = query.begin()
            query.protocol.commit(plan, UNIT, written)
            assert_committed(query.kafka, query.topic, range(ROWS))
            assert len(committed(query.kafka, query.topic, "read_uncommitted")) == 2 * ROWS

    def test_that_were_decided_are_committed_after_a_restart_of_the_broker(self, query, shows):
        with shows("transactions"):
            query.decide()
            query.kafka.kill(1)
            query.kafka.restart(1)
            plan, _ = query.begin()
            assert_committed(query.kafka, query.topic, range(ROWS))
            query.protocol.abort(plan.driver)
            assert committed(query.kafka, query.topic) == list(range(ROWS))


@ON_BROKERS_THAT_TELL
class TestCommands:
    def test_show_and_finish_what_was_decided(self, query, shows, capsys):
        with shows("operators' commands"):
            names = sorted(t.transactional_id for t in query.decide())
            assert query.command("list", "--json") == 0
            [shown] = [p for p in json_of(capsys)["prefixes"] if p["prefix"] == query.prefix]
            assert [t["transactional_id"] for t in shown["open_transactions"]] == names
            assert query.command("describe", "--topic", query.topic, "--json") == 0
            assert sorted(p["transactional_id"] for p in json_of(capsys)["parts"]) == names
            assert query.command("resolve", "--yes") == 0
            assert_committed(query.kafka, query.topic, range(ROWS))

    def test_abort_what_was_not(self, query, shows):
        with shows("operators' commands"):
            query.begin()
            assert query.command("abort", "--yes") == 0
            assert committed(query.kafka, query.topic, "read_uncommitted") == list(range(ROWS))
            assert query.command("release", "--yes") == 0
            assert committed(query.kafka, query.topic) == []


@ON_BROKERS_THAT_DO_NOT
@pytest.mark.parametrize("what", ["transactions", "operators' commands"])
def test_brokers_that_cannot_tell_what_became_of_a_transaction(broker, what):
    """The driver refuses them before anything is written; then there is nothing to operate on."""
    run = {"what": what, "where": results.BROKER, "kafka": broker.version, "command": COMMAND}
    config = ExactlyOnceConfig("refused", TIMEOUT_MS, LOG_TOPIC, 1, False)
    with (
        results.of(**run, no="needs what brokers tell of transactions since Kafka 3.0 (KIP-664)"),
        AdminClient.connect(broker.bootstrap_servers) as admin,
        pytest.raises(ConfigError, match="does not offer DescribeTransactions.*Use at-least-once"),
    ):
        check_brokers(admin, config, admin.deadline_in(PATIENCE_MS))


FILES = 4
SPARK_ROWS = 400
NEEDS_3_0 = "does not offer DescribeTransactions, ListTransactions, which delivery.guarantee"
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
    frame = spark.range(0, SPARK_ROWS, 1, 4).selectExpr(*AS_RECORDS)
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
        assert ids(broker, topic) == list(range(SPARK_ROWS))


def test_stream(spark, broker, topic, shown_in_spark, tmp_path):
    with shown_in_spark("stream"):
        run_stream(spark, broker, topic, tmp_path)
        assert ids(broker, topic) == list(range(FILES * ROWS_PER_FILE))


@ON_BROKERS_THAT_TELL
def test_exactly_once_batch(spark, broker, topic, shown_in_spark):
    with shown_in_spark("exactly-once batch"):
        write(spark, broker, topic, **exactly_once("batch"))
        assert ids(broker, topic) == list(range(SPARK_ROWS))


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
