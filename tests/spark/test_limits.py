"""Limits with a real Spark and a real Kafka: never faster, nothing lost, nothing late.

That nothing is slower than it must be is shown by benchmarks/rate_limit.py, on a quiet machine.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PythonException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import spark_kafka_sink
from spark_kafka_sink.localkafka import LocalKafka
from tests.broker.processes import eventually
from tests.patience import PATIENCE_S
from tests.reading import read_topic

pytestmark = pytest.mark.long

RATE = 1_000_000
ROWS = 3_000
BURST_MS = 1_000
GUARANTEES = ("at-least-once", "exactly-once")


def rows(spark: SparkSession, folder: Path, tasks: int, count: int = ROWS) -> DataFrame:
    """Of 1,000 bytes each."""
    return spark.range(0, count, 1, tasks).selectExpr(
        "rpad(lpad(id, 7, '0'), 1000, '.') AS value", f"'{folder}' AS folder"
    )


def options(kafka: LocalKafka, topic: str, folder: Path, **more: str) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "topic": topic,
        "transactional.id.prefix": topic,
        "transaction.log.replication.factor": "1",
        "max.bytes.per.second": str(RATE),
        "metrics.path": str(folder / "metrics.jsonl"),
        **{name.replace("_", "."): value for name, value in more.items()},
    }


def lines(folder: Path) -> list[dict[str, Any]]:
    text = (folder / "metrics.jsonl").read_text()
    return [line for line in map(json.loads, text.splitlines()) if line["event"] == "commit"]


def ids(kafka: LocalKafka, topic: str) -> list[int]:
    records = read_topic(kafka.bootstrap_servers, topic)
    return sorted(int((record.value or b"")[:7]) for record in records)


def assert_never_faster(
    committed: list[dict[str, Any]], is_first: bool = True, rate: int = RATE
) -> None:
    """is_first: nothing was sent under this limit before, so that no second was saved up."""
    sent = sum(line["metrics"]["compressed_bytes"] for line in committed)
    began_ms = committed[0]["started_at_ms"]
    ended_ms = committed[-1]["started_at_ms"] + committed[-1]["elapsed_ms"]
    assert ended_ms - began_ms >= sent * 1000 / rate - (0 if is_first else BURST_MS)
    assert sum(line["metrics"]["limit_wait_ms"] for line in committed) > 0


@pytest.mark.parametrize("guarantee", GUARANTEES)
@pytest.mark.parametrize("tasks", [1, 2, 8])
def test_the_limit_is_that_of_all_tasks_together(
    spark: SparkSession,
    kafka: LocalKafka,
    new_topic: Callable[..., str],
    tmp_path: Path,
    tasks: int,
    guarantee: str,
) -> None:
    """Two of them run at a time."""
    topic = new_topic(3)
    given = options(kafka, topic, tmp_path, delivery_guarantee=guarantee)
    frame = rows(spark, tmp_path, tasks)
    frame.write.format("pykafka-sink").options(**given).mode("append").save()
    committed = lines(tmp_path)
    assert_never_faster(committed)
    assert committed[0]["metrics"]["retries"] == 0
    assert ids(kafka, topic) == list(range(ROWS))


def test_what_waits_longer_than_all_timeouts_is_not_late(
    spark: SparkSession, kafka: LocalKafka, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    """3 MB, which wait in memory for 30 seconds."""
    topic, rate = new_topic(3), 100_000
    given = options(kafka, topic, tmp_path, max_bytes_per_second=str(rate))
    given |= {"kafka.delivery.timeout.ms": "15000", "kafka.request.timeout.ms": "10000"}
    given |= {"kafka.linger.ms": "0", "kafka.max.block.ms": "10000"}
    frame = rows(spark, tmp_path, 1)
    frame.write.format("pykafka-sink").options(**given).mode("append").save()
    assert_never_faster(lines(tmp_path), rate=rate)
    assert ids(kafka, topic) == list(range(ROWS))


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_task_is_killed_in_the_middle(
    spark: SparkSession,
    kafka: LocalKafka,
    new_topic: Callable[..., str],
    tmp_path: Path,
    guarantee: str,
) -> None:
    """Its query begins again, and so do the micro-batches after it."""
    topic = new_topic(3)
    given = options(kafka, topic, tmp_path, delivery_guarantee=guarantee)
    frame = rows(spark, tmp_path, 4)
    frame.write.parquet(str(tmp_path / "input"))
    writer = (
        spark.readStream.schema(frame.schema)
        .option("maxFilesPerTrigger", 2)
        .parquet(str(tmp_path / "input"))
        .writeStream.format("pykafka-sink")
        .options(**given)
        .option("interceptors", "tests.killing:KillOnce")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
    )
    before = spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch")
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "200")
    try:
        with pytest.raises(StreamingQueryException):
            writer.start().awaitTermination(PATIENCE_S)
        assert writer.start().awaitTermination(PATIENCE_S)
    finally:
        spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", before)
    committed = lines(tmp_path)
    assert len(committed) == 2
    assert_never_faster(committed, is_first=False)
    found = ids(kafka, topic)
    assert sorted(set(found)) == list(range(ROWS))
    if guarantee == "exactly-once":
        assert len(found) == ROWS


def test_a_query_is_held_by_a_file(
    spark: SparkSession, kafka: LocalKafka, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = new_topic(1)
    held = tmp_path / "held"
    held.touch()
    frame = rows(spark, tmp_path, 2)
    frame.write.parquet(str(tmp_path / "input"))
    query = (
        spark.readStream.schema(frame.schema)
        .parquet(str(tmp_path / "input"))
        .writeStream.format("pykafka-sink")
        .options(**options(kafka, topic, tmp_path, pause_path=str(held)))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    tracker = spark.sparkContext.statusTracker()
    try:
        assert eventually(lambda: tracker.getActiveStageIds() or not query.isActive)
        # Longer than any of its timeouts that are not longer than a minute.
        assert not query.awaitTermination(5)
        assert query.isActive
        assert ids(kafka, topic) == []
        held.unlink()
        assert query.awaitTermination(PATIENCE_S)
    finally:
        query.stop()
    assert ids(kafka, topic) == list(range(ROWS))
    assert lines(tmp_path)[0]["metrics"]["limit_wait_ms"] > 1_500


def test_writes_without_a_data_source_have_limits(
    spark: SparkSession, kafka: LocalKafka, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = new_topic(3)
    spark_kafka_sink.write(rows(spark, tmp_path, 4), options(kafka, topic, tmp_path))
    assert_never_faster(lines(tmp_path))
    assert ids(kafka, topic) == list(range(ROWS))


def test_who_cannot_reach_the_driver_is_told_what_to_set(
    spark: SparkSession, kafka: LocalKafka, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = new_topic(1)
    given = options(kafka, topic, tmp_path, limit_server_host="no-such-driver.invalid")
    given["kafka.request.timeout.ms"] = "3000"
    with pytest.raises(PythonException, match=r"no-such-driver\.invalid:\d+.*limit\.server\.port"):
        spark_kafka_sink.write(rows(spark, tmp_path, 2), given)
    assert ids(kafka, topic) == []
