"""When a batch was planned, written and committed, as its line tells it; and why it was aborted."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyspark
import pytest

from spark_kafka_sink.columns.positions import ColumnPositions
from spark_kafka_sink.config.sink_options import SinkOptions
from spark_kafka_sink.producer.metrics import ProducerMetrics
from spark_kafka_sink.spark import frames, source
from spark_kafka_sink.spark.commit import BatchSummary, KafkaCommitMessage, Planned
from spark_kafka_sink.spark.writer import abort_batch, application_of, commit_batch, write_partition
from spark_kafka_sink.transactions.model import Unit
from tests.lines import check_text
from tests.unit.spark_frame import ONE_COLUMN, OPTIONS, Frame

MS = 1_000_000
STARTED_AT_MS = 1_700_000_000_000
PLANNED = Planned(STARTED_AT_MS - 80, 12.3)


def task(number: int, started_ms: int, task_ms: float, ack_wait_ms: float) -> KafkaCommitMessage:
    metrics = ProducerMetrics(
        records=1,
        request_latency_max_ms=number,
        task_ns=int(task_ms * MS),
        ack_wait_ns=int(ack_wait_ms * MS),
    )
    message = KafkaCommitMessage(number, 0, "q", metrics=metrics)
    message.started_at_ms = STARTED_AT_MS + started_ms
    return message


def only_line(path: Path) -> dict[str, Any]:
    text = path.read_text(encoding="utf-8")
    check_text(text)
    line: dict[str, Any] = json.loads(text)
    return line


def test_when_the_first_task_had_no_more_rows() -> None:
    tasks = [task(1, 0, 100.9, 40.2), task(2, 20, 30.5, 0.7), KafkaCommitMessage(3, 0)]
    line = BatchSummary.merge(tasks).line("commit", 7)
    assert line["flush_started_at_ms"] - STARTED_AT_MS == 20 + 29
    assert (line["started_at_ms"], line["elapsed_ms"]) == (STARTED_AT_MS, 100)
    assert [slow["request_latency_max_ms"] for slow in line["slowest_tasks"]] == [1, 2]
    assert "planning_ms" not in line


@pytest.mark.parametrize("partition", [0, 1])
def test_one_task_tells_when_the_batch_was_planned(
    partition: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = SimpleNamespace(
        partitionId=lambda: partition,
        attemptNumber=lambda: 0,
        getLocalProperty=lambda name: None,
    )
    monkeypatch.setattr(pyspark, "TaskContext", SimpleNamespace(get=lambda: context))
    options = SinkOptions.parse(OPTIONS)
    message = write_partition(iter(()), options, ColumnPositions(0), None, PLANNED)
    assert message.planned == (PLANNED if partition == 0 else None)
    line = BatchSummary.merge([pickle.loads(pickle.dumps(message))]).line("commit", 7)
    told = {name: line[name] for name in line if name.startswith("planning")}
    expected = {"planning_started_at_ms": PLANNED.started_at_ms, "planning_ms": 12.3}
    assert told == (expected if partition == 0 else {})


@pytest.mark.parametrize("method", ["writer", "streamWriter"])
def test_planning_is_timed_where_it_is_done(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "check_surroundings", lambda options, is_stream: options)
    planning = source.KafkaSinkDataSource(OPTIONS)
    planned = getattr(planning, method)(ONE_COLUMN, False)._planned
    assert planned.took_ms > 0
    if method == "streamWriter":
        committing = pickle.loads(pickle.dumps(planning))
        assert committing.streamWriter(ONE_COLUMN, False)._planned is None


def test_a_line_tells_when_its_commit_began(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    options = SinkOptions.parse({**OPTIONS, "metrics.path": str(path)})
    commit_batch(options, [task(0, 0, 1, 0)], Unit("q", 7, None))
    line = only_line(path)
    assert STARTED_AT_MS < line["commit_started_at_ms"] <= line["time_ms"]


def test_a_write_that_fails_tells_why_and_when(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Failing(Frame):
        def collect(self) -> list[tuple[bytearray]]:
            raise RuntimeError("executor lost" * 100)

    monkeypatch.setattr(frames, "check_surroundings", lambda options, is_stream: options)
    path = tmp_path / "metrics.jsonl"
    with pytest.raises(RuntimeError, match="executor lost"):
        frames.write(Failing([0]), {**OPTIONS, "metrics.path": path})  # type: ignore[arg-type]
    line = only_line(path)
    assert line["event"] == "abort"
    assert line["error"].startswith("RuntimeError: executor lost")
    assert len(line["error"]) == 500
    assert line["planning_started_at_ms"] <= line["commit_started_at_ms"] <= line["time_ms"]
    assert line["application_id"] == "local-1"


def test_without_a_reason_none_is_told(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    abort_batch(SinkOptions.parse({**OPTIONS, "metrics.path": str(path)}), [None], 7)
    assert not {"error", "application_id"} & only_line(path).keys()


@pytest.mark.parametrize(
    ("environment", "name"),
    [
        ({}, None),
        ({"SPARK_APPLICATION_ID": "spark-5f0c"}, "spark-5f0c"),
        ({"CONTAINER_ID": "container_1410901177871_0001_01_000005"}, "1410901177871_0001"),
        ({"CONTAINER_ID": "container_e17_1410901177871_0001_01_000005"}, "1410901177871_0001"),
        ({"CONTAINER_ID": "something else"}, None),
    ],
)
def test_the_application_is_what_its_platform_says(
    environment: dict[str, str], name: str | None
) -> None:
    is_yarn = name is not None and name[0] == "1"
    assert application_of(environment) == (f"application_{name}" if is_yarn else name)
