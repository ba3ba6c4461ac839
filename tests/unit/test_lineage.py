"""Lineage: the events of jobs and queries, and backends that do not answer."""

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from uuid import uuid4

import psutil
import pytest
from pyspark.sql.types import BooleanType, LongType, StringType, StructType

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.base.machine import private_folder, process_identity
from spark_kafka_sink.base.model import TopicPartition
from spark_kafka_sink.config.sink_keys import MetricsOutputs
from spark_kafka_sink.config.sink_options import SinkOptions
from spark_kafka_sink.metrics import lineage
from spark_kafka_sink.metrics.outputs import check_outputs
from spark_kafka_sink.producer.metrics import PartitionReport
from spark_kafka_sink.spark.commit import BatchSummary, KafkaCommitMessage, PlanningSpan
from spark_kafka_sink.spark.row_planning import plan_rows, written_columns
from spark_kafka_sink.spark.writer import commit_batch
from spark_kafka_sink.transactions.model import Unit
from tests.lineage import backend, check_event, events_in, kinds, outputs_of, to_file
from tests.patience import eventually
from tests.tables import each_row

# Events are sent by processes, on a machine of any load.
pytestmark = pytest.mark.timeout(600)

needs_client = pytest.mark.skipif(
    find_spec("openlineage") is None, reason="openlineage-python is not installed"
)
NOW_MS = 1_764_338_400_000
COLUMNS = (("value", "binary"), ("at", "struct<x:int>"))


def options_with(**more):
    servers = {"kafka.bootstrap.servers": "broker:9092,other:9092"}
    return SinkOptions.parse({**servers, "metrics.openlineage.enable": "true", **more})


def a_line(number=None, event="commit", at_ms=NOW_MS, topics=None, **more):
    """The line of a batch. topics: records and bytes, by name"""
    reports = {
        TopicPartition(name, 0): PartitionReport(records=records, compressed_bytes=size)
        for name, (records, size) in (topics or {}).items()
    }
    message = KafkaCommitMessage(0, 0, partitions=reports, planned=PlanningSpan(at_ms - 5_000, 2.0))
    own = {"client_id": "app", "topic": "t", **more}
    line = BatchSummary.merge([message]).line(event, number, **own)
    return {**line, "time_ms": at_ms}


class Driver:
    """A driver, of which each commit is another process's. run: of its query, as Spark has it"""

    def __init__(self, folder, name="1-1", **options):
        self.run = str(uuid4())
        self._files = f"{folder}/{name}"
        self._options = replace(options_with(**options), written_columns=COLUMNS)

    def reports(self, line, **origin):
        origin = {"spark.jobGroup.id": self.run, **origin}
        events = lineage.due_events(self._options, line, origin, self._files)
        return [check_event(event) for event in json.loads(json.dumps(events))]


@pytest.fixture
def driver(tmp_path):
    return Driver(tmp_path, topic="t")


def runs_of(events):
    return {event["run"]["runId"] for event in events}


# --- events ---------------------------------------------------------------------------------------


def test_a_job_begins_with_its_planning_and_completes_with_what_was_acknowledged(tmp_path):
    letters = {"errors.tolerance": "all", "errors.deadletterqueue.topic.name": "letters"}
    driver = Driver(tmp_path, topic="t", **letters)
    start, complete = driver.reports(a_line(topics={"t": (5, 70), "letters": (1, 9)}))
    assert kinds([start, complete]) == ["START", "COMPLETE"]
    assert start["eventTime"] == "2025-11-28T13:59:55.000+00:00"
    assert complete["eventTime"] == "2025-11-28T14:00:00.000+00:00"
    assert start["run"] == complete["run"]
    assert outputs_of(start) == {"t": None, "letters": None}
    assert outputs_of(complete) == {"t": (5, 70), "letters": (1, 9)}
    data, dead = complete["outputs"]
    assert data["namespace"] == dead["namespace"] == "kafka://broker:9092"
    fields = [{"name": name, "type": kind} for name, kind in COLUMNS]
    assert data["facets"]["schema"]["fields"] == fields
    assert "facets" not in dead
    assert complete["job"]["facets"]["jobType"]["processingType"] == "BATCH"
    assert runs_of(driver.reports(a_line())) != runs_of([start])
    assert list(tmp_path.iterdir()) == []


def test_a_query_is_running_once_a_minute_whichever_process_commits(driver):
    seconds = (0, 1, 59, 60, 61, 200, -3600)  # a clock that was set back does not silence it
    reported = [
        driver.reports(a_line(number, at_ms=NOW_MS + s * 1000, topics={"t": (1, 10)}))
        for number, s in enumerate(seconds)
    ]
    running = ["RUNNING"]
    sent = [["START", "RUNNING"], [], [], running, [], running, running]
    assert [kinds(events) for events in reported] == sent
    events = [*chain(*reported)]
    assert len(runs_of(events)) == 1
    counts = [None, (1, 10), (4, 40), (6, 60), (7, 70)]
    assert [outputs_of(event)["t"] for event in events] == counts
    assert events[0]["job"]["facets"]["jobType"]["processingType"] == "STREAMING"


@each_row(
    ("number", "error", "kind"),
    [
        (None, "ValueError: row 'secret'", "FAIL"),
        (None, None, "FAIL"),
        (None, "KeyboardInterrupt: ", "ABORT"),
        (1, "ValueError: row 'secret'", "FAIL"),
    ],
)
def test_a_batch_that_fails_is_a_run_of_its_own(number, error, kind):
    more = {} if error is None else {"error": error}
    with tempfile.TemporaryDirectory() as folder:
        driver = Driver(folder, topic="t")
        begun = driver.reports(a_line(0, topics={"t": (5, 70)}))
        failed = driver.reports(a_line(number, "abort", topics={"t": (5, 70)}, **more))
        assert kinds(failed) == ["START", kind]
        assert len(runs_of(failed) | runs_of(begun)) == 2
        assert outputs_of(failed[1]) == {"t": None}
        assert "secret" not in json.dumps(failed)
        (later,) = driver.reports(a_line(2, at_ms=NOW_MS + 60_000, topics={"t": (5, 70)}))
        assert runs_of([later]) == runs_of(begun)
        assert outputs_of(later) == {"t": (10, 140)}


def test_each_topic_of_one_function_for_foreach_batch_is_a_run(tmp_path):
    clean, audit = Driver(tmp_path, topic="clean"), Driver(tmp_path, topic="audit")
    audit.run = clean.run
    first = clean.reports(a_line(0, topic="clean", query_name="q", topics={"clean": (1, 10)}))
    second = audit.reports(a_line(0, topic="audit", query_name="q", topics={"audit": (1, 10)}))
    assert [e["job"]["name"] for e in (first[0], second[0])] == ["app.q.clean", "app.q.audit"]
    elsewhere = Driver(tmp_path, topic="clean", **{"kafka.bootstrap.servers": "elsewhere:9092"})
    elsewhere.run = clean.run
    third = elsewhere.reports(a_line(0, topic="clean", query_name="q", topics={"clean": (1, 10)}))
    assert len(runs_of(first + second + third)) == 3
    assert outputs_of(second[1]) == {"audit": (1, 10)}


def test_two_programs_with_one_checkpoint_do_not_end_each_other(tmp_path):
    blue, green = Driver(tmp_path, "1-1", topic="t"), Driver(tmp_path, "2-2", topic="t")
    found = [kinds(one.reports(a_line(n))) for n in range(2) for one in (blue, green)]
    assert found == [["START", "RUNNING"], ["START", "RUNNING"], [], []]


def test_a_micro_batch_without_its_query_has_no_event(driver):
    assert driver.reports(a_line(3), **{"spark.jobGroup.id": "the user's"}) == []


def test_a_committed_batch_does_not_fail_where_nothing_can_be_imported(monkeypatch, caplog):
    monkeypatch.setitem(sys.modules, lineage.__name__, None)  # no file can be opened, for example
    commit_batch(options_with(topic="t"), [KafkaCommitMessage(0, 0)], Unit("q", 7, None))
    assert "PKS-METRICS-012" in caplog.text


def test_a_replay_does_not_count(driver):
    driver.reports(a_line(0, topics={"t": (5, 70)}))
    line = a_line(1, at_ms=NOW_MS + 60_000, topics={"t": (7, 90)}, replay="written before")
    (event,) = driver.reports(line)
    assert outputs_of(event) == {"t": (5, 70)}


def test_topics_of_a_column_are_those_written_and_at_most_a_hundred(tmp_path):
    driver = Driver(tmp_path)
    many = {f"t-{n:03}": (1, 10) for n in range(150)}
    start, _ = driver.reports(a_line(0, topic=None, topics=many))
    line = a_line(1, at_ms=NOW_MS + 60_000, topic=None, topics={"t-000": (1, 10), "new": (1, 10)})
    (event,) = driver.reports(line)
    found = outputs_of(event)
    assert len(found) == len(outputs_of(start)) == 100
    assert (found["t-000"], found["t-099"]) == ((2, 20), (1, 10))
    assert "new" not in found
    assert event["job"]["name"] == "app.topics"


PARENT = {
    "spark.openlineage.parentRunId": str(uuid4()),
    "spark.openlineage.parentJobNamespace": "airflow",
    "spark.openlineage.parentJobName": "dag.task",
}


@each_row(
    ("change", "is_shown"),
    [
        ({}, True),
        ({"spark.openlineage.parentRunId": "no id"}, False),
        ({"spark.openlineage.parentRunId": None}, False),
        ({"spark.openlineage.parentJobName": None}, False),
    ],
)
def test_the_parent_run(change, is_shown):
    for event in Driver("/nowhere", topic="t").reports(a_line(), **{**PARENT, **change}):
        facet = event["run"]["facets"].get("parent")
        assert (facet is not None) == is_shown
        if is_shown:
            assert [facet["run"]["runId"], *facet["job"].values()] == [*PARENT.values()]


def test_the_namespace_of_jobs(driver, monkeypatch):
    assert driver.reports(a_line())[0]["job"]["namespace"] == "default"
    monkeypatch.setenv("OPENLINEAGE_NAMESPACE", "team")
    assert driver.reports(a_line())[0]["job"]["namespace"] == "team"


_PLACE = StructType().add("x", LongType())
_ALL = StructType().add("id", LongType()).add("place", _PLACE).add("is_gone", BooleanType())
_ALL = _ALL.add("value", StringType()).add("key", StringType()).add("topic", StringType())


@each_row(
    ("more", "names"),
    [
        ({}, ["value", "key"]),
        ({"value.format": "json"}, ["id", "place", "is_gone", "value", "key"]),
        ({"value.format": "json", "value.columns": "id, place.x"}, ["id", "place", "key"]),
        ({"value.format": "json", "value.column": "place", "key.column": ""}, ["place"]),
        ({"value.format": "json", "value.null.when": "is_gone"}, ["id", "place", "value", "key"]),
        ({"value.format": "string", "value.column": "id"}, ["id", "key"]),
    ],
)
def test_written_columns(more, names):
    found = written_columns(_ALL, plan_rows(_ALL, options_with(**more)))
    assert [name for name, _ in found] == names
    assert set(found) <= {(field.name, field.dataType.simpleString()) for field in _ALL.fields}


# --- sending --------------------------------------------------------------------------------------

PROGRAM = """
import json, sys
from spark_kafka_sink.config.sink_options import SinkOptions
from spark_kafka_sink.metrics import lineage

options, line, driver_id, lineage.TIMEOUT_S = json.loads(sys.argv[1])
lineage.report_lineage(SinkOptions.parse(options), line, None, driver_id)
"""


def commit(**options):
    lineage.report_lineage(options_with(topic="t", **options), a_line(), None, os.getpid())


def commit_elsewhere(timeout_s=3_600):
    """Commit in a process of its own; return what it has logged, once nothing holds its pipes."""
    options = {"kafka.bootstrap.servers": "broker:9092", "topic": "t"}
    arguments = json.dumps([options, a_line(), os.getpid(), timeout_s])
    program = [sys.executable, "-c", PROGRAM, arguments]
    return subprocess.run(program, capture_output=True, text=True, check=True).stderr


def sending():
    """The processes that send."""
    folder = tempfile.gettempdir()
    return [p for p in psutil.process_iter(["cmdline"]) if f"{folder}/" in str(p.info["cmdline"])]


def left():
    """Return what the next commit will log, once nothing sends; None if nothing is left."""
    assert eventually(lambda: not sending())
    path = private_folder("lineage") / f"{process_identity(os.getpid())}.problem"
    return path.read_text(encoding="utf-8") if path.exists() else None


@pytest.fixture
def folder(monkeypatch):
    """Where temporary files are, and no configuration of the client."""
    with tempfile.TemporaryDirectory() as path:
        monkeypatch.setenv("TMPDIR", path)
        monkeypatch.setattr(tempfile, "tempdir", path)
        monkeypatch.setenv("HOME", path)
        for name in [name for name in os.environ if name.startswith("OPENLINEAGE")]:
            monkeypatch.delenv(name)
        yield Path(path)
        for process in sending():
            process.kill()


@needs_client
def test_the_client_s_own_configuration_names_the_backend(folder, monkeypatch):
    events = folder / "events"
    for name, value in to_file(events).items():
        monkeypatch.setenv(name, value)
    commit()
    assert left() is None
    assert kinds(events_in(events)) == ["START", "COMPLETE"]
    monkeypatch.setenv("OPENLINEAGE_DISABLED", "true")
    commit()
    assert left() is None
    assert len(events_in(events)) == 2


@needs_client
@pytest.mark.usefixtures("folder")
def test_a_backend_by_http_gets_the_key_and_no_secret_of_the_options(monkeypatch):
    secrets = {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "PLAIN"}
    secrets |= {"kafka.sasl.username": "user", "kafka.sasl.password": "hidden-word"}
    with backend() as running:
        monkeypatch.setenv("OPENLINEAGE_URL", running.url)
        monkeypatch.setenv("OPENLINEAGE_API_KEY", "the-key")
        commit(**secrets)
        assert left() is None
    assert kinds(running.events) == ["START", "COMPLETE"]
    assert set(running.keys) == {"Bearer the-key"}
    assert "hidden-word" not in json.dumps(running.events)
    assert "the-key" not in json.dumps(running.events)


@needs_client
@pytest.mark.usefixtures("folder")
def test_a_backend_that_hangs_holds_no_commit_and_no_caller(monkeypatch):
    with backend(status=None) as running:
        monkeypatch.setenv("OPENLINEAGE_URL", running.url)
        assert commit_elsewhere() == ""
        assert running.asked.wait(900)
        (process,) = sending()
        outputs = [os.readlink(f"/proc/{process.pid}/fd/{number}") for number in (1, 2)]
        assert outputs == ["/dev/null"] * 2


@needs_client
@pytest.mark.usefixtures("folder")
def test_what_sends_ends_at_its_deadline_and_the_next_commits_tell_once(monkeypatch):
    with backend(status=None) as running:
        monkeypatch.setenv("OPENLINEAGE_URL", running.url)
        assert commit_elsewhere(timeout_s=1) == ""
        assert left() == "no answer within 1 s"
        logged = commit_elsewhere(timeout_s=1)
        assert left() == ""
        logged += commit_elsewhere(timeout_s=1)
    assert logged.count("no answer within 1 s") == logged.count("PKS-METRICS-012") == 1


KEY = "s3cr3t-key-0123456789"
WITH_KEY = {"type": "http", "url": "{url}", "auth": {"type": "api_key", "apiKey": f"{KEY}\n"}}


@needs_client
@pytest.mark.slow
@each_row(
    ("environment", "file", "problem"),
    [
        ({"URL": "{url}", "API_KEY": f"{KEY}\n"}, None, "InvalidHeader"),
        ({}, WITH_KEY, "InvalidHeader"),
        ({"URL": f"http://user:{KEY}@127.0.0.1:99999"}, None, "ValueError: LocationParseError"),
        ({"URL": "{url}", "API_KEY": KEY}, None, "HTTPError 401"),
        (
            {"URL": f"http://user:{KEY}@127.0.0.1:9/?key={KEY}"},
            None,
            "ConnectionError: ConnectionRefusedError: Connection refused",
        ),
        ({}, None, "set OPENLINEAGE_URL or a transport that is not the console"),
    ],
)
def test_what_is_left_has_the_reason_and_no_secret(environment, file, problem, folder):
    with pytest.MonkeyPatch.context() as patch, backend(status=401) as refusing:
        settings = folder / "openlineage.yml"
        patch.setenv("OPENLINEAGE_CONFIG", str(settings))
        text = json.dumps({"transport": file}).replace("{url}", refusing.url)
        settings.write_text("" if file is None else text, encoding="utf-8")
        for name, value in environment.items():
            patch.setenv(f"OPENLINEAGE_{name}", value.replace("{url}", refusing.url))
        commit()
        assert left() == problem
        (path,) = folder.glob("*/*.problem")
        path.unlink()  # each row is another driver


@pytest.mark.usefixtures("folder")
def test_a_process_that_cannot_send_is_told_by_the_next_commit(monkeypatch, caplog):
    monkeypatch.setattr(sys, "executable", "false")  # it ends with 1
    for _ in range(2):
        commit()
        assert eventually(lambda: all(p.poll() is not None for p in lineage._sending))
    assert "a process that was to send them has failed" in caplog.text


@needs_client
@pytest.mark.usefixtures("folder")
def test_one_process_has_eight_that_send(monkeypatch, caplog):
    with backend(status=None) as running:
        monkeypatch.setenv("OPENLINEAGE_URL", running.url)
        for _ in range(12):  # while nothing is answered
            commit()
        assert len(sending()) == lineage.MOST_SENDING
    assert caplog.text.count("PKS-METRICS-012") == 1


@each_row(
    "spoil",
    [
        lambda path: path.chmod(0o777),  # others could replace what is in it
        lambda path: path.rmdir(),
    ],
)
def test_a_temporary_folder_that_cannot_be_used_fails_no_commit(spoil, folder):
    parent = Path(tempfile.mkdtemp())
    spoil(parent)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(parent))
        commit()
        lineage.end_runs(str(uuid4()), "COMPLETE")
    assert not any(folder.glob("*/*"))


@pytest.mark.usefixtures("folder")
def test_files_of_drivers_that_have_ended_are_removed():
    folder = private_folder("lineage")
    living = folder / f"{process_identity(os.getpid())}.run.json"
    for path in (living, *(folder / name for name in ("1-2.run.json", "1-2.problem", "1a-b.json"))):
        path.write_text("{}", encoding="utf-8")
    lineage.end_runs(str(uuid4()), "COMPLETE")
    assert [*folder.iterdir()] == [living]


def test_a_missing_package_is_an_error_before_the_first_task(monkeypatch):
    monkeypatch.setitem(sys.modules, "openlineage", None)
    check_outputs(MetricsOutputs())
    with pytest.raises(ConfigError, match=r"pip install 'pykafka-sink\[lineage\]'"):
        check_outputs(MetricsOutputs(openlineage=True))
