"""What tasks tell the driver, merged; the JSON line of a batch, when it was planned, written and
committed, and why it was aborted; where the line goes; what 10,000 tasks send; histograms.
"""

import json
import logging
import pickle
import random
from dataclasses import fields, replace

import pytest
from pyspark.sql.datasource import WriterCommitMessage

from spark_kafka_sink.base.errors import KafkaSinkError, TransactionError
from spark_kafka_sink.base.kafka_metrics import (
    NodeMetrics,
    add,
    count_up_to,
    observe,
    quantile_ms,
    upper_bound_ms,
)
from spark_kafka_sink.base.model import ColumnPositions, TopicPartition
from spark_kafka_sink.config.sink_keys import MetricsOutputs
from spark_kafka_sink.config.sink_options import SinkOptions
from spark_kafka_sink.metrics.line import MOST_IN_LOG, MOST_LOGGED_PARTITIONS, batch_text
from spark_kafka_sink.producer.metrics import LongestWait, PartitionReport, ProducerMetrics
from spark_kafka_sink.spark import commit, frames, source, worker
from spark_kafka_sink.spark import writer as writer_module
from spark_kafka_sink.spark.commit import AT_LEAST_ONCE_NOTE
from spark_kafka_sink.spark.writer import shortened
from spark_kafka_sink.transactions import model
from tests.lines import check_text
from tests.tables import each_row
from tests.unit.report_lines import INTERRUPTED
from tests.unit.spark_frame import ONE_COLUMN, OPTIONS, Frame

NOWHERE = MetricsOutputs()
A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def message(partitions=None, query_id=None, **metrics):
    return commit.KafkaCommitMessage(3, 1, query_id, partitions or {}, ProducerMetrics(**metrics))


def copied(value):
    return pickle.loads(pickle.dumps(value))


# --- counters -------------------------------------------------------------------------------------


def test_counters_add_up_and_maxima_do_not_and_times_are_in_milliseconds():
    total = ProducerMetrics(records=1, request_latency_ms=10, request_latency_max_ms=7)
    total.add(ProducerMetrics(records=2, request_latency_ms=20, request_latency_max_ms=5))
    assert total == ProducerMetrics(records=3, request_latency_ms=30, request_latency_max_ms=7)
    total.add(ProducerMetrics(load_ns=15_000_000_000, encode_ns=1_234_567))
    total.add(ProducerMetrics(request_latency_max_ms=9))
    report = total.report()
    expected = {"load_ms": 15_000.0, "records": 3, "encode_ms": 1.2, "request_latency_max_ms": 9}
    assert {name: report[name] for name in expected} == expected
    assert not [name for name in report if name.endswith("_ns")]
    total.reset()
    assert total == ProducerMetrics()


def test_offsets_of_acknowledged_batches():
    """-1 with acks=0, or for a duplicate that the broker no longer knows: counted, at no offset."""
    report = PartitionReport()
    report.acknowledge(-1, 10, 50, 80)
    assert report == PartitionReport(-1, -1, 10, 50, 80)
    report.acknowledge(100, 10, 50, 80)
    report.acknowledge(40, 5, 20, 30)
    report.acknowledge(-1, 1, 1, 1)
    report.acknowledge(70, 1, 1, 1)
    assert report == PartitionReport(40, 109, 27, 122, 192)
    merged, unknown = PartitionReport(), PartitionReport(-1, -1, 1, 1, 1)
    for other in (unknown, PartitionReport(10, 19, 10, 5, 8), PartitionReport(3, 7, 5, 2, 3)):
        merged.add(other)
    merged.add(unknown)
    assert merged == PartitionReport(3, 19, 17, 9, 13)


# --- merging --------------------------------------------------------------------------------------


def test_messages_are_merged_and_left_alone():
    first = message({A0: PartitionReport(0, 4, 5, 50, 60)}, query_id="q", records=5, retries=1)
    more = {A0: PartitionReport(5, 6, 2, 20, 30), B0: PartitionReport(9, 9, 1, 1, 1)}
    last, copy = message(more, query_id="q", records=3), copied(first)
    summary = commit.BatchSummary.merge([first, None, message({}), last])
    assert (summary.tasks, summary.failed_tasks, summary.query_id) == (4, 1, "q")
    assert summary.metrics == ProducerMetrics(records=8, retries=1)
    assert summary.partitions == {
        A0: PartitionReport(0, 6, 7, 70, 90),
        B0: PartitionReport(9, 9, 1, 1, 1),
    }
    assert first == copy  # and a message survives pickling
    assert first.records == 5


def test_messages_that_are_not_ours_count_as_failed():
    summary = commit.BatchSummary.merge([WriterCommitMessage(), None])
    assert (summary.tasks, summary.failed_tasks) == (2, 2)
    assert commit.BatchSummary.merge([]) == commit.BatchSummary()
    line = commit.BatchSummary().line("commit", None)
    assert not {"query_id", "batch_id"} & line.keys()
    assert line["failed_tasks"] == line["records_acknowledged"] == 0


def test_what_interceptors_are_told():
    summary = message({A1: PartitionReport(7, 8, 2, 20, 30)}, records=2).summary()
    assert summary["records"] == summary["metrics"]["records"] == 2
    assert (summary["partition_id"], summary["attempt_number"]) == (3, 1)
    assert summary["query_id"] is None
    assert summary["partitions"]["a"][1]["first_offset"] == 7


# --- the line -------------------------------------------------------------------------------------


def test_the_line():
    others = {TopicPartition("c", number): PartitionReport() for number in (10, 2, 1)}
    partitions = {B0: PartitionReport(1, 1, 1, 2, 3), A1: PartitionReport(4, 5, 2, 6, 7), **others}
    line = json.loads(
        json.dumps(commit.BatchSummary.merge([message(partitions), None]).line("commit", 12))
    )
    assert {name: line[name] for name in list(line)[:6]} == {
        "sink": "pykafka-sink",
        "event": "commit",
        "batch_id": 12,
        "tasks": 2,
        "failed_tasks": 1,
        "records_acknowledged": 3,
    }
    names = "first_offset", "last_offset", "records", "compressed_bytes", "uncompressed_bytes"
    assert list(line["partitions"].pop("c")) == ["1", "2", "10"]
    assert line["partitions"] == {
        "a": {"1": dict(zip(names, (4, 5, 2, 6, 7)))},
        "b": {"0": dict(zip(names, (1, 1, 1, 2, 3)))},
    }
    assert line["metrics"]["encode_ms"] == 0


# --- where it goes --------------------------------------------------------------------------------


@pytest.fixture
def path(tmp_path):
    return tmp_path / "metrics.jsonl"


@pytest.fixture
def options(path):
    return SinkOptions.parse({**OPTIONS, "metrics.path": str(path)})


@pytest.fixture
def to_path(path):
    return MetricsOutputs(str(path))


def lines_of(path):
    lines = path.read_text(encoding="utf-8").splitlines()
    for line in lines:
        check_text(line)
    return [json.loads(line) for line in lines]


def test_commits_and_aborts_are_appended(path, to_path):
    one = message({TopicPartition("Flughäfen", 0): PartitionReport(0, 0, 1, 1, 1)}, query_id="q")
    commit.report_commit([one], 0, False, to_path)
    commit.report_abort([one, None], 1, to_path)
    commit_line, abort_line = lines_of(path)
    assert (commit_line["event"], commit_line["batch_id"]) == ("commit", 0)
    assert list(commit_line["partitions"]) == ["Flughäfen"]
    assert (abort_line["event"], abort_line["failed_tasks"]) == ("abort", 1)
    assert "will be written again when the batch is retried" in abort_line["note"]


def test_a_batch_job_is_not_told_of_a_retry(options, path):
    writer_module.KafkaBatchWriter(options, ColumnPositions(0)).abort([None])
    writer_module.KafkaStreamWriter(options, ColumnPositions(0)).abort([None], 3)
    notes = [commit.AT_LEAST_ONCE_JOB_NOTE, AT_LEAST_ONCE_NOTE]
    lines = lines_of(path)
    assert [line["note"] for line in lines] == notes
    assert not {"error", "application_id"} & lines[0].keys(), "Spark tells no reason"
    assert "running the job again writes all rows once more" in notes[0]


def test_rows_that_spark_did_not_hand_over_are_not_committed(options, path, caplog):
    writer = writer_module.KafkaStreamWriter(options, ColumnPositions(0))
    with pytest.raises(writer_module.RowsNotHandedOverError) as raised:
        writer.commit([commit.KafkaCommitMessage(0, 0), None, None], 7)
    assert str(raised.value).startswith("2 of 3 tasks of epoch 7 never ran the sink")
    assert raised.value.code == "SPARK-004"
    assert caplog.messages == [str(raised.value)]
    assert not path.exists()
    writer.commit([commit.KafkaCommitMessage(0, 0)], 7)
    assert [line["event"] for line in lines_of(path)] == ["commit"]


@pytest.fixture
def logged(caplog):
    caplog.set_level(logging.INFO, logger="spark_kafka_sink")
    return caplog


@pytest.fixture
def logged_json(logged, monkeypatch):
    monkeypatch.setattr(worker, "_is_json", True)
    return logged


@pytest.mark.parametrize("topics", [1, 10_000])
def test_a_line_of_the_log_is_bounded_and_the_file_has_everything(
    topics, path, to_path, logged_json
):
    partitions = {
        TopicPartition(f"{number % topics}".rjust(249, "t"), number // topics): PartitionReport(
            10**12, 10**12 + number, number + 1, 10**11 + number, 10**12 + number
        )
        for number in range(10_000)
    }
    one = message(partitions, "7a1b" * 9, records=10**15)
    commit.report_commit([one], 10**9, True, to_path, transactions=10_000, commit_ms=10**6)
    commit.report_abort([one, None], 10**9, to_path, error="\u00e9" * 500, application_id="a" * 64)
    assert [len(record.message) < 16 * 1024 for record in logged_json.records] == [True, True]
    line = json.loads(logged_json.records[0].message)
    assert "partitions" not in line
    summary = line["partitions_summary"]
    assert (summary["topics"], summary["partitions"]) == (topics, 10_000)
    assert summary["least_records"]["records"] == 1
    assert summary["most_records"]["records"] == 10_000
    assert len(summary["most_compressed_bytes"]["topic"]) == 249
    for line in lines_of(path):
        assert sum(map(len, line["partitions"].values())) == 10_000
    # As many as are logged one by one.
    few = dict([*partitions.items()][-MOST_LOGGED_PARTITIONS:])
    commit.report_commit([message(few, "7a1b" * 9)], 10**9, True, NOWHERE)
    logged = logged_json.records[-1].message
    assert len(logged) < 16 * 1024
    assert sum(map(len, json.loads(logged)["partitions"].values())) == MOST_LOGGED_PARTITIONS


def test_commits_are_logged_on_demand(logged):
    commit.report_commit([], None, False, NOWHERE)
    assert logged.records == []
    commit.report_commit([], 5, True, NOWHERE)
    assert (logged.records[0].levelname, logged.messages) == (
        "INFO",
        ["batch 5: 0 records, 0 B in 0 ms"],
    )


CAUSE = {"error": "TopicError: no topic [PKS-TOPIC-001]"}
FORGED = {"note": "See `list`", "error": "Error: a\n  b\x1b[2J", "query_name": "q\nINFO forged"}


@pytest.mark.parametrize(
    ("batch_id", "more", "level", "begins", "ends"),
    [
        (
            6,
            {},
            "WARNING",
            "batch 6 was aborted: a task failed, or the query or job was stopped. "
            "1 of 1 tasks did not end, 0 records acknowledged. ",
            f"{AT_LEAST_ONCE_NOTE} [PKS-DELIVERY-006]",
        ),
        # In one line, with the code of the cause.
        (
            None,
            FORGED,
            "WARNING",
            "job of q\\nINFO forged was aborted. 1 of 1 tasks did not end",
            "acknowledged. See `list`. Error: a b\\x1b[2J [PKS-DELIVERY-006]",
        ),
        (5, {"note": "n", **CAUSE}, "WARNING", "batch 5", " no topic [PKS-TOPIC-001]"),
        (5, {"note": "no [PKS-TXN-015]", **CAUSE}, "WARNING", "batch 5", " [PKS-TOPIC-001]"),
        # What the user has stopped is no failure.
        *(
            (5, {"note": "n", "error": one}, "INFO", "batch 5 was stopped. n", "")
            for one in INTERRUPTED
        ),
    ],
)
def test_aborts_are_always_logged(batch_id, more, level, begins, ends, logged):
    commit.report_abort([None], batch_id, NOWHERE, **more)
    (record,) = logged.records
    assert record.levelname == level
    assert record.message.startswith(begins)
    assert record.message.endswith(ends)


@each_row("batch_id", [None, 0, 10**12])
@each_row("query_name", [None, "orders", "é" * 300])
@each_row("records", [0, 1, 10**12])
@each_row("more", [{}, {"commit_ms": 10**9, "replay": "dropped: before"}])
def test_a_batch_in_the_log_has_few_characters(batch_id, query_name, records, more):
    partitions = {A0: PartitionReport(0, 0, records, 10**15, 10**15)}
    done = message(partitions, "7a1b" * 9, ack_wait_ns=10**13, compressed_bytes=10**15)
    done.started_at_ms, done.dead_letters = 10**12, {"too-large": records}
    line = commit.BatchSummary.merge([done]).line("commit", batch_id, query_name=query_name, **more)
    text = batch_text(line)
    assert len(text) <= MOST_IN_LOG
    assert text.startswith("job" if batch_id is None else f"batch {batch_id}")
    assert f"{records:,} record" in text


def test_the_topics_of_a_batch_in_the_log(logged):
    """Of the option where no row tells, and their number where the rows name several."""
    commit.report_abort([None], 7, NOWHERE, topic="orders")
    two = message({A0: PartitionReport(0, 0, 1), A0._replace(topic="b"): PartitionReport(0, 0, 1)})
    commit.report_commit([two], 8, True, NOWHERE, query_name="q" * 40)
    first, second = logged.messages
    assert first.startswith("batch 7 to orders was aborted")
    assert second.startswith(f"batch 8 of {'q' * 29}… to 2 topics: 2 records")
    done = message({A0: PartitionReport(0, 11, 12, 50, 60)}, compressed_bytes=50)
    done.started_at_ms, done.dead_letters = 10**12, {"too-large": 2, "null-key": 1}
    done.metrics.task_ns, done.metrics.input_wait_ns = 2 * 10**9, 10**9 + 10**7
    line = commit.BatchSummary.merge([done]).line("commit", 7, query_name="orders")
    expected = "12 records, 50 B in 2.0 s, 3 dead letters, 50 % waiting for Spark's rows"
    assert batch_text(line) == f"batch 7 of orders to a: {expected}"


def test_a_batch_names_the_longest_wait_of_its_tasks_and_its_cause():
    waits = [None, (9_000, "no leader"), (30_100, "NOT_ENOUGH_REPLICAS (19) from broker 1")]
    tasks = [message({A0: PartitionReport(0, 11, 12, 50, 60)}, ack_wait_ns=10**10) for _ in waits]
    for done, wait in zip(tasks, waits):
        done.longest_wait = None if wait is None else LongestWait(*wait)
    summary = commit.BatchSummary.merge([copied(done) for done in tasks])
    line = summary.line("commit", 7, query_name="orders")
    check_text(json.dumps(line))
    assert (line["longest_wait_ms"], line["longest_wait_cause"]) == waits[2]
    text = batch_text({**line, "planning_ms": 31_000})
    assert text.endswith("in 31.0 s, 30.1 s of NOT_ENOUGH_REPLICAS (19) from broker 1")
    healthy = commit.BatchSummary.merge(tasks[:1]).line("commit", 8)
    assert not [name for name in healthy if "wait" in name]


def test_a_metrics_file_that_cannot_be_written_does_not_undo_a_commit(tmp_path):
    """Everything is in Kafka: an exception here makes Spark repeat, and double, the whole batch."""
    nowhere = tmp_path / "no such folder" / "metrics.jsonl"
    commit.report_commit([message()], 1, False, MetricsOutputs(str(nowhere)))


# --- when it was planned, written and committed, and why it was aborted ---------------------------

STARTED_AT_MS = 1_700_000_000_000
PLANNED = commit.PlanningSpan(STARTED_AT_MS - 80, 12.3)


def task(number, started_ms, task_ms, ack_wait_ms):
    times = {"task_ns": int(task_ms * 1e6), "ack_wait_ns": int(ack_wait_ms * 1e6)}
    metrics = ProducerMetrics(records=1, request_latency_max_ms=number, **times)
    done = commit.KafkaCommitMessage(number, 0, "q", metrics=metrics)
    done.started_at_ms = STARTED_AT_MS + started_ms
    return done


def test_a_line_tells_when_rows_ended_and_its_commit_began(options, path):
    tasks = [task(1, 0, 100.9, 40.2), task(2, 20, 30.5, 0.7), commit.KafkaCommitMessage(3, 0)]
    writer_module.commit_batch(options, tasks, model.Unit("q", 7, None))
    [line] = lines_of(path)
    # The first task had no more rows.
    assert line["flush_started_at_ms"] - STARTED_AT_MS == 20 + 29
    assert (line["started_at_ms"], line["elapsed_ms"]) == (STARTED_AT_MS, 100)
    assert [slow["request_latency_max_ms"] for slow in line["slowest_tasks"]] == [1, 2]
    assert "planning_ms" not in line
    assert STARTED_AT_MS < line["commit_started_at_ms"] <= line["time_ms"]


@pytest.mark.parametrize("method", ["writer", "streamWriter"])
def test_planning_is_timed_where_it_is_done(method, monkeypatch):
    monkeypatch.setattr(source, "check_surroundings", lambda options, is_stream: options)
    planning = source.KafkaSinkDataSource(OPTIONS)
    assert getattr(planning, method)(ONE_COLUMN, False)._planned.took_ms > 0
    if method == "streamWriter":
        assert copied(planning).streamWriter(ONE_COLUMN, False)._planned is None
    # Of whichever task has it.
    one, other = message(), message()
    one.planned = PLANNED
    for messages in ([one, other], [other, one]):
        line = commit.BatchSummary.merge(messages).line("commit", 7)
        assert (line["planning_started_at_ms"], line["planning_ms"]) == (*PLANNED,)


def test_a_write_that_fails_tells_why_and_when(path, monkeypatch):
    class Failing(Frame):
        def collect(self):
            self.getLocalProperty = {}.pop  # raises: the driver's JVM has ended
            raise RuntimeError("executor lost" * 100)

    monkeypatch.setattr(frames, "check_surroundings", lambda options, is_stream: options)
    with pytest.raises(RuntimeError, match="executor lost"):
        frames.write(Failing([0]), {**OPTIONS, "metrics.path": path})
    [line] = lines_of(path)
    assert line["event"] == "abort"
    assert line["error"].startswith("RuntimeError: executor lost")
    assert len(line["error"]) == 500
    assert line["planning_started_at_ms"] <= line["commit_started_at_ms"] <= line["time_ms"]
    assert line["application_id"] == "local-1"


@each_row(
    ("environment", "name"),
    [
        ({}, None),
        ({"SPARK_APPLICATION_ID": "spark-5f0c"}, "spark-5f0c"),
        ({"CONTAINER_ID": "container_141_0001_01_000005"}, "application_141_0001"),
        ({"CONTAINER_ID": "container_e17_141_0001_01_000005"}, "application_141_0001"),
        ({"CONTAINER_ID": "something else"}, None),
    ],
)
def test_the_application_is_what_its_platform_says(environment, name):
    assert writer_module.application_of(environment) == name


# --- 10,000 tasks: Spark keeps all of what they send, pickled, in the driver's memory -------------


NOT_OURS = "something else than the message of a task"


def _set(*path):
    """Return a change of a message's JSON: all of path but the last leads to a value."""

    def change(body):
        *steps, last, value = path
        for step in steps:
            body = body[step]
        body[last] = value

    return change


@each_row(
    "change",
    [
        *(_set("partition_id", value) for value in ("0", True, 0.0)),
        *(_set("metrics", 0, value) for value in ("1", float("inf"))),
        *(_set("partitions", 0, *more) for more in ((0, ["topic"]), (2, None))),
        *(_set("metrics", [0] * 200), _set("partitions", {"a": 1}), _set("planned", [1])),
        *(_set("transaction", [1]), _set("transaction", 1, "1000000"), _set("token", "abcd")),
        *(_set("dead_letters", value) for value in ({"a": {}}, [])),
        *(
            _set("host", None),
            _set("is_unordered", 1),
            _set("origin", {}),
            lambda body: body.pop("nodes"),
        ),
    ],
)
def test_each_value_of_a_message_has_its_type(change):
    body = json.loads(commit.encode_message(message_of(0, repair_plan(1))))
    change(body)
    with pytest.raises(KafkaSinkError, match=NOT_OURS):
        commit.decode_message(json.dumps(body).encode())


@pytest.mark.parametrize(
    ("data", "kind", "words"),
    [
        *((data, KafkaSinkError, NOT_OURS) for data in (b"", b"[]", b"null", b"\xff")),
        *((data, KafkaSinkError, NOT_OURS) for data in (b"[" * 100_000, b'{"sink_version": 1}')),
        (b'{"sink_version": "0.0.1\\u001b"}', commit.VersionMismatchError, r"0\.0\.1\\x1b"),
    ],
)
def test_what_is_no_message(data, kind, words):
    with pytest.raises(kind, match=words):
        commit.decode_message(data)


TASKS = 10_000
MOST_BYTES = 32 << 20
QUERY_ID = "7d0f3b1e-96c4-4f5b-8a53-0d2f6a4c9b77"


def transaction(number):
    name = f"events-to-kafka.{number:012x}.0"
    digest = f"{number:016x}-{number:016x}"
    return model.TaskTransaction(name, 1_000_000 + number, 7, 2, number, 123_456, digest)


def repair_plan(tasks, epoch=4):
    """The largest there is: of a micro-batch of which brokers have aborted a part."""
    driver = model.Driver(
        "4f1c9a7d2b3e8c60", "spark-driver-3", 1, "s3://lake/checkpoints/events", None
    )
    unit = model.Unit(QUERY_ID, 118, None)
    parts = tuple(transaction(number) for number in range(tasks))
    decision = model.Decision(
        driver, model.Phase.PARTIAL, unit, 1, 1, parts[: tasks // 2], parts[tasks // 2 :]
    )
    return model.TransactionPlan(
        "events-to-kafka", driver, model.DriverToken(12, epoch, 0, 2), decision, None, 900_000
    )


def message_of(number, plan):
    report = PartitionReport(10**12, 10**12 + 30_000, 30_000, 10**7, 10**8)
    partitions = {TopicPartition("events", n): report for n in range(4)}
    metrics = ProducerMetrics(10**6, 10**3, 10**9, 10**8, 10**4)
    done = commit.KafkaCommitMessage(number, 0, QUERY_ID, partitions, metrics, transaction(number))
    done.belong_to(plan)
    return done


def test_a_repair_of_10_000_tasks_is_small_on_the_driver():
    plan = repair_plan(TASKS)
    size = sum(len(pickle.dumps(message_of(number, plan))) for number in range(TASKS))
    assert size < MOST_BYTES
    # For comparison: what it would be if each task sent what it was told.
    assert TASKS * len(pickle.dumps(plan)) > 100 * MOST_BYTES


def test_a_message_is_the_same_after_json_and_the_plan_arrives_once():
    plan = repair_plan(3)
    messages = [copied(message_of(number, plan)) for number in range(3)]
    assert commit.common_plan(messages) == plan
    assert [m.plan is not None for m in messages] == [True, False, False]
    assert commit.common_plan([]) is None
    done = messages[0]
    done.nodes = {1: NodeMetrics(requests=5, latencies={-1: 2, 8: 1}), 2: NodeMetrics()}
    done.nodes[2].record_retries_by_error["NOT_LEADER_OR_FOLLOWER"] = 3
    done.metrics.compression_rate_sum, done.planned = 0.25, PLANNED
    done.dead_letters, done.batch_id, done.is_unordered = {"null key": 2}, 7, True
    done.started_at_ms, done.dropped_rows, done.open_ms = 1, 3, 4
    done.longest_wait, done.origin = LongestWait(5, "no leader"), "{}"
    bare = commit.KafkaCommitMessage(-1, -1, host="")
    same = [f.name for f in fields(done) if getattr(done, f.name) == getattr(bare, f.name)]
    assert same == [], "each field has a value here"
    assert commit.decode_message(commit.encode_message(done)) == replace(done, plan=None)
    bare = commit.KafkaCommitMessage(1, 0)
    assert commit.decode_message(bytearray(commit.encode_message(bare))) == bare


@pytest.mark.parametrize("tasks", [(1, 2), (0, 1)], ids=["none sent", "two plans"])
def test_tasks_that_do_not_belong_together_are_not_committed(tasks):
    """Only with the plan whose token they have: its record is what the decision goes on from."""
    first, second = repair_plan(3), repair_plan(3, epoch=5)
    with pytest.raises(TransactionError, match="plan"):
        commit.common_plan([message_of(tasks[0], first), message_of(tasks[1], second)])


# --- histograms of latencies: exact where they are small, within 4.5 % where they are not ---------


def histogram(values):
    latencies = {}
    for value in values:
        observe(latencies, value)
    return latencies


def test_buckets_are_those_of_opentelemetry():
    """Of scale 3: above the lower bound, up to and with the upper one."""
    for value in [*range(2, 3000), 2**20 - 1, 2**20, 2**20 + 1]:
        ((index, count),) = histogram([value]).items()
        assert count == 1
        assert upper_bound_ms(index - 1) < value <= upper_bound_ms(index) * (1 + 1e-12)
    assert histogram([0, 1]) == {-1: 2}
    assert list(histogram([2, 4, 8, 1024])) == [7, 15, 23, 79]


@pytest.mark.parametrize("share", [0.01, 0.5, 0.95, 0.99, 1.0])
def test_quantiles_are_within_the_promised_error(share):
    rng = random.Random(7)
    values = sorted(int(rng.lognormvariate(4, 1.5)) + 1 for _ in range(20_000))
    exact = values[max(0, int(share * len(values)) - 1)]
    assert quantile_ms(histogram(values), share) == pytest.approx(exact, rel=0.045)


def test_small_values_and_counts_at_powers_of_two_are_exact():
    for value in range(1, 12):
        assert quantile_ms(histogram([value]), 0.5) == value
    assert quantile_ms({}, 0.5) is None
    counted = histogram(range(1, 5000))
    for doublings in range(13):
        assert count_up_to(counted, doublings) == min(2**doublings, 4999)


def test_what_is_added_up_is_as_if_counted_at_once():
    first, second = [1, 5, 900], [5, 7, 60_000]
    merged = histogram(first)
    add(merged, histogram(second))
    assert merged == histogram([*first, *second])


# --- what a line tells of the error that a batch failed with -------------------------------------

TRACEBACK = "\n".join(
    [
        "PythonException: Job aborted. Traceback (most recent call last):",
        *[f'  File "/lib/part{n}.py", line {n}, in call' for n in range(40)],
        "spark_kafka_sink.base.errors.RowError: field 'note' is null",
        "\tat org.apache.spark.Runner.run(Runner.scala:1)",
        "Driver stacktrace:",
    ]
)


@pytest.mark.parametrize(
    ("text", "end"),
    [
        ("ConfigError: a", ""),
        (TRACEBACK, " … spark_kafka_sink.base.errors.RowError: field 'note' is null"),
        (TRACEBACK.replace("is null", "x" * 900), "x"),
        ("SomeError: " + "x" * 900, "x"),
        ("E: " + "x" * 900 + " [PKS-TXN-020]", " [PKS-TXN-020]"),
        ("E: " + "x" * 900 + "\nmore words [PKS-TXN-020]", " [PKS-TXN-020]"),
        (TRACEBACK.replace("is null", "is null [PKS-ROW-007]"), " [PKS-ROW-007]"),
        (TRACEBACK.replace("is null", "x" * 900 + " [PKS-ROW-007]"), " [PKS-ROW-007]"),
        (
            "AError: [PKS-ROW-001]\n" + TRACEBACK.replace("is null", "[PKS-ROW-007]"),
            "[PKS-ROW-007]",
        ),
    ],
)
def test_of_a_long_error_beginning_reason_and_code_are_told(text, end):
    told = shortened(text)
    assert told == text or 480 < len(told) <= 500
    assert told.startswith(text[: len("AError:")])
    assert told.endswith(end)
    assert told.count("PKS-") == ("PKS-" in end)
    assert ("RowError: field 'note' " in told) == (TRACEBACK[:90] in text)
