"""``max.bytes.per.second.per.task`` with a real Spark and a real Kafka: never faster, nothing lost."""

import json

import pytest
from pyspark.errors import PythonException

from tests.reading import read_topic

RATE = 200_000
ROWS = 1_000
TASKS = 2


def write(spark, options):
    """Rows of 1,000 bytes, in two tasks."""
    rows = spark.range(0, ROWS, 1, TASKS)
    rows = rows.selectExpr("rpad(lpad(id, 7, '0'), 1000, '.') AS value")
    rows.write.format("pykafka-sink").mode("append").options(**options).save()


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_no_task_is_faster_than_its_limit(spark, kafka, new_topic, tmp_path, guarantee):
    topic, path = new_topic(4), tmp_path / "metrics.jsonl"
    options = {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "topic": topic,
        "delivery.guarantee": guarantee,
        "transactional.id.prefix": topic,
        "transaction.log.replication.factor": "1",
        "max.bytes.per.second.per.task": str(RATE),
        "kafka.delivery.timeout.ms": "1500",
        "kafka.request.timeout.ms": "1000",
        "kafka.linger.ms": "0",
        "metrics.path": str(path),
    }
    if guarantee == "at-least-once":
        for name in ("transactional.id.prefix", "transaction.log.replication.factor"):
            del options[name]
    write(spark, options)
    found = read_topic(kafka.bootstrap_servers, topic)
    assert sorted(int((record.value or b"")[:7]) for record in found) == list(range(ROWS))
    (line,) = map(json.loads, path.read_text().splitlines())
    metrics = line["metrics"]
    # A bucket begins empty: what is sent is earned before.
    due_ms = metrics["compressed_bytes"] * 1000 / (RATE * TASKS)
    assert line["elapsed_ms"] >= due_ms
    assert metrics["limit_wait_ms"] > 0
    assert metrics["throttle_left_ms"] == metrics["retries"] == 0


def test_a_transaction_that_cannot_end_in_time(spark, kafka, new_topic):
    topic = new_topic(1)
    options = {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "topic": topic,
        "delivery.guarantee": "exactly-once",
        "transactional.id.prefix": topic,
        "transaction.log.replication.factor": "1",
        "max.bytes.per.second.per.task": "1000",
        "kafka.transaction.timeout.ms": "20000",
    }
    both = r"max\.bytes\.per\.second\.per\.task = 1000.*kafka\.transaction\.timeout\.ms = 20000"
    with pytest.raises(PythonException, match=both):
        write(spark, options)
    assert read_topic(kafka.bootstrap_servers, topic) == []
