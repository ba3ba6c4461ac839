"""What a line holds of many tasks, what it costs them, and that the document and schema tell it."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from jsonschema import ValidationError

from release.metrics_document import render
from spark_kafka_sink.base.model import TopicPartition
from spark_kafka_sink.base.node_metrics import NodeMetrics
from spark_kafka_sink.cli import main
from spark_kafka_sink.metrics.line import COUNTERS, NODE, log_line
from spark_kafka_sink.metrics.reading import line_schema
from spark_kafka_sink.producer.metrics import PartitionReport, ProducerMetrics
from spark_kafka_sink.spark.commit import BatchSummary, KafkaCommitMessage
from tests.lines import VALIDATOR

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "metrics.md"
NS = 1_000_000


def node(*latencies_ms: int, **counts: int) -> NodeMetrics:
    metrics = NodeMetrics(**counts)
    for latency_ms in latencies_ms:
        metrics.sent(100)
        metrics.record_produce_response(latency_ms, 0)
    return metrics


def task(number: int, records: int, task_ms: float, **more: Any) -> KafkaCommitMessage:
    """One that has written to a partition of its own."""
    metrics = ProducerMetrics(records=records, task_ns=int(task_ms * NS), compressed_bytes=records)
    where = TopicPartition("t", number)
    report = PartitionReport(0, records - 1, records, records, 2 * records, number)
    message = KafkaCommitMessage(number, 0, "q", {where: report}, metrics, **more)
    message.started_at_ms = 1_700_000_000_000 + 100 * number
    return message


def line_of(*messages: KafkaCommitMessage | None, **more: Any) -> dict[str, Any]:
    line = BatchSummary.merge(messages).line("commit", 7, **more)
    read: dict[str, Any] = json.loads(json.dumps(line))
    return read


def test_when_a_batch_began_and_how_long_it_took() -> None:
    line = line_of(task(3, 10, 250), task(1, 10, 50), KafkaCommitMessage(2, 0))
    assert line["started_at_ms"] == 1_700_000_000_100
    assert line["elapsed_ms"] == 200 + 250


def test_skew_of_tasks() -> None:
    empty = KafkaCommitMessage(9, 2)
    line = line_of(*(task(n, 10 * n, 100 - n) for n in range(1, 8)), empty)
    summary = line["tasks_summary"]
    assert summary["with_rows"] == 7
    assert summary["least_records"] == {"task": 9, "records": 0}
    assert summary["most_records"] == {"task": 7, "records": 70}
    assert summary["most_task_ms"] == {"task": 1, "task_ms": 99.0}
    assert [slow["task"] for slow in line["slowest_tasks"]] == [1, 2, 3, 4, 5]
    assert line["slowest_tasks"][0]["host"] == task(1, 1, 1).host
    assert line["failed_attempts"] == 2


def test_topics_and_partitions() -> None:
    line = line_of(task(1, 10, 1), task(2, 30, 1))
    assert line["topics"] == {
        "t": {
            "partitions": 2,
            "records": 40,
            "compressed_bytes": 40,
            "uncompressed_bytes": 80,
            "record_retries": 3,
        }
    }
    summary = line["partitions_summary"]
    assert summary["most_records"] == {"topic": "t", "partition": 2, "records": 30}


def test_brokers_are_added_up_and_quantiles_are_of_all_requests() -> None:
    first = task(0, 1, 1, nodes={1: node(*[10] * 90), 2: node(*[1000] * 8)})
    second = task(1, 1, 1, nodes={2: node(2000, 2000, connections=3)})
    line = line_of(first, second)
    assert list(line["nodes"]) == ["1", "2"]
    assert line["nodes"]["2"]["produce_responses"] == 10
    assert line["nodes"]["2"]["request_latency_ms"] == 12_000
    assert line["nodes"]["2"]["request_latency_max_ms"] == 2000
    assert line["nodes"]["2"]["connections"] == 3
    latency = line["request_latency"]
    assert latency["p50_ms"] == 10
    assert latency["p95_ms"] == pytest.approx(1000, rel=0.045)
    assert latency["p99_ms"] == pytest.approx(2000, rel=0.045)
    assert sum(latency["histogram"]["counts"].values()) == 100
    assert latency["histogram"]["scale"] == 3


def test_merging_leaves_the_brokers_of_messages_alone() -> None:
    message = task(0, 1, 1, nodes={1: node(10)})
    copy = pickle.loads(pickle.dumps(message))
    BatchSummary.merge([message, task(1, 1, 1, nodes={1: node(20)})])
    assert message == copy


def test_the_log_is_told_less() -> None:
    messages = [task(n, 10, 50, nodes={n: node(10)}) for n in range(40)]
    logged = log_line(line_of(*messages, settings={"acks": "all"}))
    assert not {"topics", "nodes", "slowest_tasks", "partitions", "settings"} & logged.keys()
    assert (
        logged["partitions_summary"]["partitions"]
        == line_of(*messages)["partitions_summary"]["partitions"]
    )
    assert logged["request_latency"] == {"p50_ms": 10.0, "p95_ms": 10.0, "p99_ms": 10.0}
    assert logged["tasks_summary"]["most_records"]["records"] == 10


def test_without_rows_there_is_nothing_to_divide_by() -> None:
    line = line_of(KafkaCommitMessage(0, 0))
    assert not {"request_latency", "slowest_tasks", "started_at_ms", "elapsed_ms"} & line.keys()
    assert line["metrics"]["task_ms"] == 0


# --- messages stay small --------------------------------------------------------------------------


def test_a_message_grows_with_partitions_and_brokers_alone() -> None:
    """10,000 tasks that write to 1,000 partitions each send less than spark.driver.maxResultSize."""
    latencies = dict.fromkeys(range(-1, 140), 10**6)
    nodes = {number: NodeMetrics(*[10**9] * 13, latencies=latencies) for number in range(10)}
    partitions = {
        TopicPartition("events", n): PartitionReport(
            10**12 + n, 10**12 + 31 * n + 30_000, 30_001 + n, 10**7 + n, 10**8 + n
        )
        for n in range(1000)
    }
    metrics = ProducerMetrics(*[10**12 + n for n in range(len(COUNTERS))])
    message = KafkaCommitMessage(9_999, 0, "7a1b" * 9, partitions, metrics, nodes=nodes)
    whole = len(pickle.dumps(message))
    message.partitions = {}
    without_partitions = len(pickle.dumps(message))
    message.nodes = {}
    alone = len(pickle.dumps(message))
    assert alone < 900
    assert (whole - without_partitions) / 1000 < 50
    assert (without_partitions - alone) / 10 < 1200
    assert 10_000 * whole < 1 << 30


# --- schema and document --------------------------------------------------------------------------


def test_the_document_is_up_to_date() -> None:
    command = "python -m release.metrics_document > docs/metrics.md"
    assert DOCUMENT.read_text(encoding="utf-8") == render(), f"run: {command}"


def test_counters_are_described_as_they_are_reported() -> None:
    assert [field.name for field in COUNTERS] == list(ProducerMetrics().report())
    assert {f.name for f in NODE} - {"request_latency"} == set(NodeMetrics.__dataclass_fields__) - {
        "latencies"
    }


def test_the_command_prints_the_schema(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["metrics", "schema"]) == 0
    assert json.loads(capsys.readouterr().out) == line_schema()
    VALIDATOR.check_schema(line_schema())
    assert main(["metrics"]) == 2


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"event": "begin"},
        {"tasks": "3"},
        {"metrics": {}},
        {"made_up": 1},
        {"nodes": {"x": {}}},
        {"slowest_tasks": [{}]},
    ],
    ids=str,
)
def test_what_the_schema_does_not_allow(change: dict[str, Any]) -> None:
    line = line_of(task(1, 10, 1, nodes={1: node(10)}))
    VALIDATOR.validate(line)
    with pytest.raises(ValidationError):
        VALIDATOR.validate({**line, **change})
