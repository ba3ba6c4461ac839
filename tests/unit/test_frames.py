"""Writes without a data source: what is settled before Spark is asked to do anything."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy
import pyarrow as pa
import pytest

import spark_kafka_sink
from spark_kafka_sink.base.errors import ConfigError, KafkaSinkError
from spark_kafka_sink.config.sink_keys import ExactlyOnceConfig
from spark_kafka_sink.config.sink_options import SinkOptions
from spark_kafka_sink.spark import frames, planning
from spark_kafka_sink.spark.commit import KafkaCommitMessage
from spark_kafka_sink.transactions import session
from spark_kafka_sink.transactions.commit_protocol import CommitProtocol
from spark_kafka_sink.transactions.model import (
    Decision,
    Driver,
    DriverToken,
    FencedError,
    MissingRecordError,
    Plan,
)
from tests.unit.spark_frame import EXACTLY_ONCE, ONE_COLUMN, OPTIONS, Frame


@pytest.fixture(autouse=True)
def _no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "check_surroundings", lambda options, is_stream: options)


def test_a_message_from_each_partition() -> None:
    frames.write(Frame([1, 0, 2]), OPTIONS)  # type: ignore[arg-type]
    for partitions in ([0, 2], [0, 1, 1], [1]):
        with pytest.raises(KafkaSinkError, match="not one for each partition"):
            frames.write(Frame(partitions), OPTIONS)  # type: ignore[arg-type]


def test_a_stream_is_told_how_it_is_written() -> None:
    stream = Frame([])
    stream.isStreaming = True
    with pytest.raises(ConfigError, match=r"foreachBatch\(spark_kafka_sink\.batch_writer\(options"):
        frames.write(stream, OPTIONS)  # type: ignore[arg-type]


def test_values_are_written_as_spark_writes_them() -> None:
    given = {"A": True, "b": 5, "c": 1.5, "d": "Text", "e": None}
    assert frames._as_text(given) == {"a": "true", "b": "5", "c": "1.5", "d": "Text"}


def test_an_option_that_is_not_given_is_not_there() -> None:
    assert frames._as_text({"topic": "a", "Topic": None, "TOPIC": None}) == {"topic": "a"}
    assert frames._as_text({"Topic": None, "topic": "a"}) == {"topic": "a"}


@pytest.mark.parametrize("value", [["a:1", "b:2"], ("a:1",), {"a": 1}, b"a:1", object()])
def test_a_value_that_is_no_text_is_refused(value: object) -> None:
    with pytest.raises(ConfigError, match=rf"'x' is of type {type(value).__name__}: .*with commas"):
        frames._as_text({"X": value})


def test_a_name_that_is_no_text_is_refused() -> None:
    for name in (1, None, b"topic"):
        with pytest.raises(ConfigError, match=f"names of options are texts: {name!r}"):
            frames._as_text({name: "x"})  # type: ignore[dict-item]


def test_a_path_and_numbers_of_other_packages_are_values() -> None:
    given = {"a": Path("/m"), "b": numpy.int64(5), "c": Decimal("1.5")}
    assert frames._as_text(given) == {"a": "/m", "b": "5", "c": "1.5"}


def test_options_are_refused_before_a_query_starts() -> None:
    with pytest.raises(ConfigError, match=r"did you mean|kafka\.acks"):
        spark_kafka_sink.batch_writer({**OPTIONS, "kafka.ack": "all"})
    with pytest.raises(ConfigError, match="option 'topic' is there twice"):
        spark_kafka_sink.batch_writer({**OPTIONS, "Topic": "u"})


def test_what_writes_a_micro_batch_can_be_pickled_and_hides_secrets() -> None:
    options = {
        **OPTIONS,
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.username": "u",
        "kafka.sasl.password": "marked-hush",
    }
    sink = spark_kafka_sink.batch_writer(options)
    pickled = pickle.dumps(sink)
    assert b"marked-hush" not in pickled
    assert pickle.loads(pickled)._options == sink._options


@pytest.mark.parametrize("partitions", [[], [0]])
def test_the_line_of_a_micro_batch_names_its_query_also_without_tasks(
    partitions: list[int], tmp_path: Path
) -> None:
    metrics = tmp_path / "metrics.jsonl"
    sink = spark_kafka_sink.batch_writer({**OPTIONS, "metrics.path": metrics})
    sink(Frame(partitions, query="q"), 7)  # type: ignore[arg-type]
    line = json.loads(metrics.read_text(encoding="utf-8"))
    assert (line["query_id"], line["batch_id"]) == ("q", 7)


@pytest.mark.parametrize("options", [OPTIONS, EXACTLY_ONCE])
def test_a_failed_abort_does_not_take_the_place_of_the_error(
    options: dict[str, str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Failing(Frame):
        def collect(self) -> list[tuple[bytearray]]:
            raise RuntimeError("the job's own")

    def abort(*arguments: object) -> None:
        raise OSError("of the abort")

    monkeypatch.setattr(frames, "plan_transactions", lambda options, is_job, unit: None)
    monkeypatch.setattr(frames, "abort_batch", abort)
    with pytest.raises(RuntimeError, match="the job's own"):
        frames.write(Failing([0]), options)  # type: ignore[arg-type]
    assert "OSError: of the abort" in caplog.text


class TestExactlyOnce:
    def test_a_micro_batch_needs_a_query(self) -> None:
        sink = spark_kafka_sink.batch_writer(EXACTLY_ONCE)
        with pytest.raises(ConfigError, match=r"a thread of your own does not tell: .*write\.id"):
            sink(Frame([0]), 7)  # type: ignore[arg-type]

    def test_the_number_of_a_named_write_is_that_of_the_micro_batch(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with pytest.raises(ConfigError, match="write.version is the number of the micro-batch"):
            spark_kafka_sink.batch_writer({**EXACTLY_ONCE, "write.id": "w", "write.version": 1})
        planned = []

        def plan(options: Any, is_job: bool, unit: None) -> None:
            planned.append((options.write_id, options.write_version, is_job))
            raise KafkaSinkError("enough")

        monkeypatch.setattr(frames, "plan_transactions", plan)
        for guarantee in ("exactly-once", " Exactly-Once "):
            given = {**EXACTLY_ONCE, "write.id": "w", "delivery.guarantee": guarantee}
            sink = spark_kafka_sink.batch_writer(given)
            with pytest.raises(KafkaSinkError, match="enough"):
                sink(Frame([0]), 7)  # type: ignore[arg-type]
        assert planned == [("w", 7, True)] * 2

    def test_a_write_that_fails_aborts_its_own_plan(self, monkeypatch: pytest.MonkeyPatch) -> None:
        token = DriverToken(7, 3, 0, 2)
        owner = Driver("d", "h", 0, None, None)
        plan = Plan("p", owner, token, Decision(owner), "job", 60_000)
        aborted = []

        class OfOthers:
            def abort(self, driver: Driver, planned: DriverToken | None) -> None:
                aborted.append(planned)
                raise FencedError("a later write of this process has taken over")

        monkeypatch.setattr(frames, "plan_transactions", lambda options, is_job, unit: plan)
        monkeypatch.setattr(session, "_protocol", lambda options: OfOthers())
        with pytest.raises(KafkaSinkError, match="not one for each partition"):
            frames.write(Frame([1]), EXACTLY_ONCE)  # type: ignore[arg-type]
        note = session.abort_unit(SinkOptions.parse(EXACTLY_ONCE), token)
        assert note == "nothing was done: a later write of this process has taken over"
        assert aborted == [token, token]

    def test_what_a_micro_batch_may_not_follow_is_refused_before_rows_are_written(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        owner = Driver("d", "h", 0, "of query q", None)
        plan = Plan("p", owner, DriverToken(7, 3, 0, 2), Decision(owner, is_query=True), None, 9)

        class New(CommitProtocol):
            def __init__(self) -> None:
                self._config = ExactlyOnceConfig("p", 60_000, "decisions", 1)

            def plan(self, *arguments: object) -> Plan:
                return plan

        monkeypatch.setattr(session, "_protocol", lambda options: New())
        monkeypatch.setattr(session, "_check_cluster", lambda options: None)
        sink = spark_kafka_sink.batch_writer(EXACTLY_ONCE)
        frame = Frame([0], "q")
        monkeypatch.setattr(frame, "mapInArrow", None)
        with pytest.raises(MissingRecordError, match="did not call the sink for the first micro"):
            sink(frame, 1)  # type: ignore[arg-type]

    def test_all_threads_of_a_process_are_one_driver_and_a_fork_is_another(self) -> None:
        """A module that is loaded anew: the first to ask are threads that begin together."""
        code = (
            "import os, threading\n"
            "from spark_kafka_sink.config.sink_options import SinkOptions\n"
            "from spark_kafka_sink.transactions import model, session\n"
            f"options = SinkOptions.parse({EXACTLY_ONCE!r})\n"
            "both, read = threading.Barrier(2, timeout=60), threading.Event()\n"
            "make = model.driver_environment\n"
            "def wait_for_both():\n"
            "    made = make()\n"
            "    if both.wait(): read.wait(60)\n"
            "    return made\n"
            "session.driver_environment = wait_for_both\n"
            "found = []\n"
            "def drive():\n"
            "    with session.as_driver(): found.append(session._driver(options).driver_id)\n"
            "    read.set()\n"
            "def run(count):\n"
            "    threads = [threading.Thread(target=drive) for _ in range(count)]\n"
            "    for thread in threads: thread.start()\n"
            "    for thread in threads: thread.join()\n"
            "run(2)\n"
            "session.driver_environment = make\n"
            "run(2)\n"
            "assert len(found) == 4 and len(set(found)) == 1, found\n"
            "pid = os.fork()\n"
            "if pid == 0:\n"
            "    found.clear(); run(2); print(*set(found), flush=True); os._exit(0)\n"
            "os.waitpid(pid, 0)\n"
            "print(*set(found))"
        )
        command = [sys.executable, "-c", code]
        run = subprocess.run(command, capture_output=True, text=True, check=True)
        assert len(set(run.stdout.split())) == 2

    def test_drivers_beside_each_other_are_told_apart(self) -> None:
        """A cluster may give all of them the same folders, as Kubernetes does."""
        code = (
            "from spark_kafka_sink.config.sink_options import SinkOptions\n"
            "from spark_kafka_sink.transactions import session\n"
            f"options = SinkOptions.parse({EXACTLY_ONCE!r})\n"
            "def driver():\n"
            "    with session.as_driver(): return session._driver(options).driver_id\n"
            "assert driver() == driver() != session._driver(options).driver_id\n"
            "print(driver())"
        )
        environment = {**os.environ, "SPARK_LOCAL_DIRS": "/var/data/spark"}
        found = {
            subprocess.run(
                [sys.executable, "-c", code],
                env=environment,
                capture_output=True,
                text=True,
                check=True,
            ).stdout
            for _ in range(2)
        }
        assert len(found) == 2


def test_importing_the_package_imports_nothing_of_it() -> None:
    code = (
        "import sys, spark_kafka_sink; assert 'write' in dir(spark_kafka_sink); print(*sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = run.stdout.split()
    assert [name for name in loaded if name.startswith("spark_kafka_sink")] == ["spark_kafka_sink"]
    assert "pyspark" not in loaded
    with pytest.raises(AttributeError, match="no attribute 'wrote'"):
        spark_kafka_sink.wrote  # type: ignore[attr-defined]  # noqa: B018


def test_a_task_has_columns_by_their_own_names_and_returns_its_message_as_a_row(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    message = KafkaCommitMessage(3, 1)
    got = []

    def write(arrow_batches: Iterator[pa.RecordBatch], *arguments: object) -> KafkaCommitMessage:
        got.extend(arrow_batches)
        return message

    monkeypatch.setattr(frames, "write_partition", write)
    options = planning.parse_options(OPTIONS)
    positions = frames.plan_rows(ONE_COLUMN, options).positions
    types = {"c0": pa.binary(), "c1": pa.list_(pa.field("element", pa.int32(), nullable=False))}
    fields = [pa.field(name, kind, nullable=name == "c1") for name, kind in types.items()]
    sent = pa.record_batch([[b"v"], [[1]]], schema=pa.schema(fields))
    task = frames.Task(options, positions, None, ["value", "a.b"]).function()
    (row,) = task(iter([sent]))
    assert row.schema.equals(pa.schema([("message", pa.binary())]))
    assert pickle.loads(row.column(0)[0].as_py()) == message
    (written,) = got
    named = [fields[0].with_name("value"), fields[1].with_name("a.b")]
    assert written.schema.equals(pa.schema(named), check_metadata=True)
    assert written.columns == sent.columns
