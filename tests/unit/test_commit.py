"""What tasks tell the driver, merged; the JSON line; where it goes."""

from __future__ import annotations

import json
import logging
import pickle
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import WriterCommitMessage

from spark_kafka_sink.base.model import TopicPartition
from spark_kafka_sink.columns.positions import ColumnPositions
from spark_kafka_sink.config.sink_keys import MetricsOutputs
from spark_kafka_sink.config.sink_options import SinkOptions
from spark_kafka_sink.metrics.line import MOST_LOGGED_PARTITIONS
from spark_kafka_sink.producer.metrics import PartitionReport, ProducerMetrics
from spark_kafka_sink.spark.commit import (
    AT_LEAST_ONCE_JOB_NOTE,
    AT_LEAST_ONCE_NOTE,
    BatchSummary,
    KafkaCommitMessage,
    Planned,
    report_abort,
    report_commit,
)
from spark_kafka_sink.spark.writer import (
    KafkaBatchWriter,
    KafkaStreamWriter,
    RowsNotHandedOverError,
)

NOWHERE = MetricsOutputs()
A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def message(
    partitions: dict[TopicPartition, PartitionReport] | None = None,
    query_id: str | None = None,
    **metrics: int,
) -> KafkaCommitMessage:
    return KafkaCommitMessage(3, 1, query_id, partitions or {}, ProducerMetrics(**metrics))


def to(path: Path) -> MetricsOutputs:
    return MetricsOutputs(str(path))


# --- counters -------------------------------------------------------------------------------------


def test_counters_add_up_and_maxima_do_not() -> None:
    total = ProducerMetrics(records=1, request_latency_ms=10, request_latency_max_ms=7)
    total.add(ProducerMetrics(records=2, request_latency_ms=20, request_latency_max_ms=5))
    assert total == ProducerMetrics(records=3, request_latency_ms=30, request_latency_max_ms=7)
    total.add(ProducerMetrics(request_latency_max_ms=9))
    assert total.request_latency_max_ms == 9
    total.reset()
    assert total == ProducerMetrics()


def test_times_are_reported_in_milliseconds() -> None:
    report = ProducerMetrics(
        records=5, load_ns=15_000_000_000, encode_ns=1_234_567, ack_wait_ns=2_000_000_000
    ).report()
    assert report["load_ms"] == 15_000.0
    assert report["records"] == 5
    assert report["encode_ms"] == 1.2
    assert report["ack_wait_ms"] == 2000.0
    assert not [name for name in report if name.endswith("_ns")]


def test_offsets_of_acknowledged_batches() -> None:
    report = PartitionReport()
    report.acknowledge(100, 10, 50, 80)
    report.acknowledge(40, 5, 20, 30)
    report.acknowledge(70, 1, 1, 1)
    assert report == PartitionReport(40, 109, 16, 71, 111)


def test_offsets_that_the_broker_did_not_tell() -> None:
    """acks=0, or a duplicate that the broker no longer knows: counted, at no offset."""
    report = PartitionReport()
    report.acknowledge(-1, 10, 50, 80)
    assert report == PartitionReport(-1, -1, 10, 50, 80)
    report.acknowledge(0, 2, 1, 1)
    assert (report.first_offset, report.last_offset) == (0, 1)
    report.acknowledge(-1, 1, 1, 1)
    assert (report.first_offset, report.last_offset, report.records) == (0, 1, 13)


def test_reports_of_one_partition_by_several_tasks() -> None:
    merged = PartitionReport()
    for report in (
        PartitionReport(-1, -1, 1, 1, 1),
        PartitionReport(10, 19, 10, 5, 8),
        PartitionReport(3, 7, 5, 2, 3),
        PartitionReport(-1, -1, 1, 1, 1),
    ):
        merged.add(report)
    assert merged == PartitionReport(3, 19, 17, 9, 13)


# --- merging --------------------------------------------------------------------------------------


def test_messages_are_merged() -> None:
    summary = BatchSummary.merge(
        [
            message({A0: PartitionReport(0, 4, 5, 50, 60)}, query_id="q", records=5, retries=1),
            None,
            message({}),
            message(
                {A0: PartitionReport(5, 6, 2, 20, 30), B0: PartitionReport(9, 9, 1, 1, 1)},
                query_id="q",
                records=3,
            ),
        ]
    )
    assert (summary.tasks, summary.failed_tasks, summary.query_id) == (4, 1, "q")
    assert summary.metrics == ProducerMetrics(records=8, retries=1)
    assert summary.partitions == {
        A0: PartitionReport(0, 6, 7, 70, 90),
        B0: PartitionReport(9, 9, 1, 1, 1),
    }


@pytest.mark.parametrize("first", [True, False])
def test_the_planning_of_whichever_task_has_it_is_told(first: bool) -> None:
    """Of Spark partition 0 alone, whose message may come anywhere."""
    one, other = message(), message()
    one.planned = Planned(1, 2.5)
    messages = [one, other] if first else [other, one]
    assert BatchSummary.merge(messages).planned == Planned(1, 2.5)


def test_merging_leaves_the_messages_alone() -> None:
    one = message({A0: PartitionReport(0, 4, 5, 50, 60)}, records=5)
    copy = pickle.loads(pickle.dumps(one))
    BatchSummary.merge([one, message({A0: PartitionReport(5, 9, 5, 50, 60)}, records=5)])
    assert one == copy


def test_messages_that_are_not_ours_count_as_failed() -> None:
    summary = BatchSummary.merge([WriterCommitMessage(), None])
    assert (summary.tasks, summary.failed_tasks) == (2, 2)


def test_no_messages() -> None:
    assert BatchSummary.merge([]) == BatchSummary()


def test_a_message_survives_pickling() -> None:
    one = message({A0: PartitionReport(0, 4, 5, 50, 60)}, query_id="q", records=5)
    assert pickle.loads(pickle.dumps(one)) == one
    assert one.records == 5


def test_what_interceptors_are_told() -> None:
    summary = message({A1: PartitionReport(7, 8, 2, 20, 30)}, records=2).summary()
    assert summary["records"] == 2
    assert (summary["partition_id"], summary["attempt_number"]) == (3, 1)
    assert summary["query_id"] is None
    assert summary["metrics"]["records"] == 2
    assert summary["partitions"]["a"][1]["first_offset"] == 7


# --- the line -------------------------------------------------------------------------------------


def test_the_line() -> None:
    summary = BatchSummary.merge(
        [message({B0: PartitionReport(1, 1, 1, 2, 3), A1: PartitionReport(4, 5, 2, 6, 7)}), None]
    )
    line = json.loads(json.dumps(summary.line("commit", 12)))
    assert {name: line[name] for name in list(line)[:6]} == {
        "sink": "pykafka-sink",
        "event": "commit",
        "batch_id": 12,
        "tasks": 2,
        "failed_tasks": 1,
        "records_acknowledged": 3,
    }
    assert line["partitions"] == {
        "a": {
            "1": {
                "first_offset": 4,
                "last_offset": 5,
                "records": 2,
                "compressed_bytes": 6,
                "uncompressed_bytes": 7,
            }
        },
        "b": {
            "0": {
                "first_offset": 1,
                "last_offset": 1,
                "records": 1,
                "compressed_bytes": 2,
                "uncompressed_bytes": 3,
            }
        },
    }
    assert line["metrics"]["encode_ms"] == 0


def test_what_is_unknown_is_left_out_and_zeros_are_not() -> None:
    line = BatchSummary().line("commit", None)
    assert "query_id" not in line
    assert "batch_id" not in line
    assert line["failed_tasks"] == line["records_acknowledged"] == 0
    assert BatchSummary().line("commit", 0)["batch_id"] == 0


def test_partitions_are_in_order_of_their_number() -> None:
    partitions = {TopicPartition("a", index): PartitionReport() for index in (10, 2, 1)}
    line = BatchSummary(partitions=partitions).line("commit", None)
    assert list(line["partitions"]["a"]) == [1, 2, 10]


# --- where it goes --------------------------------------------------------------------------------


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_commits_and_aborts_are_appended(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    one = message({TopicPartition("Flughäfen", 0): PartitionReport(0, 0, 1, 1, 1)}, query_id="q")
    report_commit([one], 0, False, to(path))
    report_abort([one, None], 1, to(path))
    commit_line, abort_line = lines_of(path)
    assert (commit_line["event"], commit_line["batch_id"]) == ("commit", 0)
    assert list(commit_line["partitions"]) == ["Flughäfen"]
    assert (abort_line["event"], abort_line["failed_tasks"]) == ("abort", 1)
    assert "will be written again when the batch is retried" in abort_line["note"]


def test_a_batch_job_is_not_told_of_a_retry() -> None:
    assert AT_LEAST_ONCE_JOB_NOTE == (
        "records_acknowledged by finished tasks are in Kafka and stay there, failed tasks may have "
        "written more; running the job again writes all rows once more"
    )


@pytest.mark.parametrize(
    ("kind", "note"), [("batch", AT_LEAST_ONCE_JOB_NOTE), ("stream", AT_LEAST_ONCE_NOTE)]
)
def test_what_an_abort_says(kind: str, note: str, tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    options = SinkOptions.parse({"kafka.bootstrap.servers": "b:1", "metrics.path": str(path)})
    if kind == "batch":
        KafkaBatchWriter(options, ColumnPositions(0)).abort([None])
    else:
        KafkaStreamWriter(options, ColumnPositions(0)).abort([None], 3)
    assert [line["note"] for line in lines_of(path)] == [note]


def test_rows_that_spark_did_not_hand_over_are_not_committed(tmp_path: Path) -> None:
    """With a continuous trigger Spark drops them, and has no message of any task."""
    path = tmp_path / "metrics.jsonl"
    options = SinkOptions.parse({"kafka.bootstrap.servers": "b:1", "metrics.path": str(path)})
    writer = KafkaStreamWriter(options, ColumnPositions(0))
    with pytest.raises(RowsNotHandedOverError) as raised:
        writer.commit([KafkaCommitMessage(0, 0), None, None], 7)
    assert str(raised.value) == (
        "2 of 3 tasks of epoch 7 never ran the sink: Spark drops all rows for a Python sink when the "
        "trigger is continuous. Nothing was written, and the epoch is not committed. Stop the query, "
        "and start it with trigger(processingTime=...) or trigger(availableNow=True), and with a new "
        "checkpoint: Spark does not go on from a continuous one"
    )
    assert not path.exists()
    writer.commit([KafkaCommitMessage(0, 0)], 7)
    assert [line["event"] for line in lines_of(path)] == ["commit"]


@pytest.mark.parametrize("topics", [1, 10_000])
def test_a_line_of_the_log_is_bounded_and_the_file_has_everything(
    topics: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="spark_kafka_sink")
    partitions = {
        TopicPartition(f"{number % topics}".rjust(249, "t"), number // topics): PartitionReport(
            10**12, 10**12 + number, number + 1, 10**11 + number, 10**12 + number
        )
        for number in range(10_000)
    }
    path = tmp_path / "metrics.jsonl"
    one = message(partitions, "7a1b" * 9, records=10**15)
    report_commit([one], 10**9, True, to(path), transactions=10_000, commit_ms=10**6)
    report_abort([one, None], 10**9, to(path), error="\u00e9" * 500, application_id="a" * 64)
    assert [len(record.message) < 16 * 1024 for record in caplog.records] == [True, True]
    logged = json.loads(caplog.records[0].message)
    assert "partitions" not in logged
    summary = logged["partitions_summary"]
    assert (summary["topics"], summary["partitions"]) == (topics, 10_000)
    assert summary["least_records"]["records"] == 1
    assert summary["most_records"]["records"] == 10_000
    assert len(summary["most_compressed_bytes"]["topic"]) == 249
    for line in lines_of(path):
        assert sum(len(of_topic) for of_topic in line["partitions"].values()) == 10_000


def test_as_many_partitions_as_are_logged_one_by_one_are_within_the_bound(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, logger="spark_kafka_sink")
    partitions = {
        TopicPartition(f"{number}".rjust(249, "t"), 10**6): PartitionReport(*[10**15] * 5)
        for number in range(MOST_LOGGED_PARTITIONS)
    }
    report_commit([message(partitions, "7a1b" * 9)], 10**9, True, NOWHERE)
    (record,) = caplog.records
    assert len(record.message) < 16 * 1024
    assert len(json.loads(record.message)["partitions"]) == MOST_LOGGED_PARTITIONS


def test_commits_are_logged_on_demand_and_aborts_always(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="spark_kafka_sink")
    report_commit([], None, False, NOWHERE)
    assert caplog.records == []
    report_commit([], 5, True, NOWHERE)
    report_abort([None], 6, NOWHERE)
    levels = [record.levelname for record in caplog.records]
    events = [json.loads(record.message) for record in caplog.records]
    assert levels == ["INFO", "WARNING"]
    assert [(e["event"], e["batch_id"]) for e in events] == [("commit", 5), ("abort", 6)]


def test_a_metrics_file_that_cannot_be_written_does_not_undo_a_commit(tmp_path: Path) -> None:
    """Everything is in Kafka: an exception here makes Spark repeat, and double, the whole batch."""
    report_commit([message()], 1, False, to(tmp_path / "no such folder" / "metrics.jsonl"))
