"""Lineage: the events of jobs and queries, which process has which, and backends that do not answer."""

import json
import logging
import os
import sys
import tempfile
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from uuid import UUID, uuid4

import psutil
import pytest
from pyspark.sql.types import (
    ArrayType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
)

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.base.model import TopicPartition
from spark_kafka_sink.config.sink_keys import MetricsOutputs
from spark_kafka_sink.config.sink_options import SinkOptions
from spark_kafka_sink.metrics.lineage import MOST_TOPICS, OpenRuns, Run, job_of
from spark_kafka_sink.metrics.outputs import check_outputs
from spark_kafka_sink.producer.metrics import PartitionReport
from spark_kafka_sink.spark.commit import BatchSummary, KafkaCommitMessage, PlanningSpan
from spark_kafka_sink.spark.lineage import report_lineage, written_schema
from spark_kafka_sink.spark.row_planning import plan_rows
from tests.lineage import backend, check_event, events_in, kinds, outputs_of, to_file
from tests.patience import eventually
from tests.tables import each_row

# Events are sent by processes, on a machine of any load.
pytestmark = pytest.mark.timeout(600)

needs_client = pytest.mark.skipif(
    find_spec("openlineage") is None, reason="openlineage-python is not installed"
)
NOW_MS = 1_764_338_400_000
PARENT, ROOT = str(uuid4()), str(uuid4())
FIELDS = [{"name": "value", "type": "binary"}]


def a_line(number=None, event="commit", at_ms=NOW_MS, topics=None, **more):
    """The line of a batch. topics: records and bytes, by name"""
    reports = {
        TopicPartition(name, 0): PartitionReport(records=records, compressed_bytes=size)
        for name, (records, size) in (topics or {}).items()
    }
    message = KafkaCommitMessage(0, 0, partitions=reports, planned=PlanningSpan(at_ms - 5_000, 2.0))
    own = {"client_id": "app", "topic": "t", "commit_started_at_ms": at_ms - 10}
    if number is not None:
        own["query_id"] = "q"
    line = BatchSummary.merge([message]).line(event, number, **{**own, **more})
    return {**line, "time_ms": at_ms}


class Driver:
    """The processes of one driver that commit. run: of a query"""

    def __init__(self, folder, owner="1-1", **options):
        self.run = str(uuid4())
        self._folder = folder
        self._options = {"topic": "t", "dead_letter_topic": None, "checkpoint": None, **options}
        self._owner = owner

    def reports(self, line, origin=None):
        """The events of a process that knows nothing of the others."""
        options = dict(self._options)
        new = Run(
            job_of(line),
            "broker:9092",
            options["topic"],
            options["dead_letter_topic"],
            FIELDS,
            line.get("query_id"),
            options["checkpoint"],
            self._owner,
        )
        origin = {"spark.jobGroup.id": self.run} if origin is None else origin
        _, events = OpenRuns(self._folder).take(new, line, origin)
        return [check_event(event) for event in events]


@pytest.fixture
def driver(tmp_path):
    return Driver(tmp_path)


def only(values):
    (value,) = set(values)
    return value


# --- events ---------------------------------------------------------------------------------------


def test_a_job_begins_with_its_planning_and_completes_with_what_was_acknowledged(tmp_path):
    driver = Driver(tmp_path, dead_letter_topic="letters")
    line = a_line(topics={"t": (5, 70), "letters": (1, 9)})
    start, complete = driver.reports(line)
    assert kinds([start, complete]) == ["START", "COMPLETE"]
    assert start["eventTime"] == "2025-11-28T13:59:55.000Z"
    assert complete["eventTime"] == "2025-11-28T14:00:00.000Z"
    assert start["run"] == complete["run"]
    assert outputs_of(start) == {"t": None, "letters": None}
    assert outputs_of(complete) == {"t": (5, 70), "letters": (1, 9)}
    data, letters = complete["outputs"]
    assert data["namespace"] == letters["namespace"] == "kafka://broker:9092"
    assert data["facets"]["schema"]["fields"] == FIELDS
    assert "facets" not in letters
    assert complete["job"]["namespace"] == "default"
    assert complete["job"]["facets"]["jobType"]["processingType"] == "BATCH"
    assert list(tmp_path.iterdir()) == []


def test_two_jobs_are_two_runs(driver):
    assert driver.reports(a_line())[0]["run"] != driver.reports(a_line())[0]["run"]


def test_a_query_is_running_once_a_minute_whichever_process_commits(driver):
    seconds = (0, 1, 59, 60, 61, 200)
    reported = [
        driver.reports(a_line(number, at_ms=NOW_MS + s * 1000, topics={"t": (1, 10)}))
        for number, s in enumerate(seconds)
    ]
    sent = [["START", "RUNNING"], [], [], ["RUNNING"], [], ["RUNNING"]]
    assert [kinds(events) for events in reported] == sent
    events = [*chain(*reported)]
    assert only(event["run"]["runId"] for event in events) != driver.run
    assert [outputs_of(event)["t"] for event in events] == [None, (1, 10), (4, 40), (6, 60)]
    assert events[0]["job"]["facets"]["jobType"]["processingType"] == "STREAMING"


def test_a_clock_that_was_set_back_does_not_silence_a_query(driver):
    driver.reports(a_line(0))
    assert kinds(driver.reports(a_line(1, at_ms=NOW_MS - 3_600_000))) == ["RUNNING"]


@each_row(
    ("error", "kind"),
    [
        ("ValueError: row 'secret'", "FAIL"),
        (None, "FAIL"),
        ("KeyboardInterrupt: ", "ABORT"),
    ],
)
def test_the_end_of_an_aborted_write(error, kind):
    more = {} if error is None else {"error": error}
    with tempfile.TemporaryDirectory() as folder:
        driver = Driver(Path(folder))
        events = driver.reports(a_line(event="abort", topics={"t": (5, 70)}, **more))
        assert kinds(events) == ["START", kind]
        assert outputs_of(events[1]) == {"t": (0, 0)}
        assert "secret" not in json.dumps(events)
        driver.reports(a_line(0, topics={"t": (5, 70)}))
        (end,) = driver.reports(a_line(1, "abort", topics={"t": (5, 70)}, **more))
        assert (end["eventType"], outputs_of(end)) == (kind, {"t": (5, 70)})
        assert list(Path(folder).iterdir()) == []


def test_a_query_whose_tasks_have_all_failed_is_known_by_its_options(tmp_path):
    mine = Driver(tmp_path, checkpoint="/c/1")
    others = Driver(tmp_path, checkpoint="/c/2"), Driver(tmp_path, owner="2-2", checkpoint="/c/1")
    begun = [one.reports(a_line(0, query_id=f"q{n}"))[0] for n, one in enumerate((mine, *others))]
    (failed,) = mine.reports(a_line(1, "abort"), origin={})
    assert (failed["eventType"], failed["run"]) == ("FAIL", begun[0]["run"])
    assert kinds(mine.reports(a_line(0, "abort"), origin={})) == ["START", "FAIL"]


def test_of_two_queries_with_equal_options_none_is_chosen(tmp_path):
    first, second = Driver(tmp_path), Driver(tmp_path)
    begun = [one.reports(a_line(0, query_id=f"q{n}"))[0] for n, one in enumerate((first, second))]
    events = first.reports(a_line(1, "abort"), origin={})
    assert kinds(events) == ["START", "FAIL"]
    assert events[0]["run"] not in [event["run"] for event in begun]


def test_a_micro_batch_without_its_query_is_a_run_of_its_own(driver):
    events = driver.reports(a_line(3, topics={"t": (5, 70)}), {"spark.jobGroup.id": "the user's"})
    assert kinds(events) == ["START", "COMPLETE"]


def test_a_replay_does_not_count(driver):
    driver.reports(a_line(0, topics={"t": (5, 70)}))
    line = a_line(1, at_ms=NOW_MS + 60_000, topics={"t": (7, 90)}, replay="written before")
    (event,) = driver.reports(line)
    assert outputs_of(event) == {"t": (5, 70)}


def test_a_query_that_starts_again_ends_its_earlier_run(tmp_path):
    killed, again = Driver(tmp_path, owner="1-1"), Driver(tmp_path, owner="2-2")
    first = killed.reports(a_line(0, topics={"t": (5, 70)}))[0]
    Driver(tmp_path).reports(a_line(0, query_id="another"))
    events = again.reports(a_line(1, at_ms=NOW_MS + 9_000, topics={"t": (1, 10)}))
    assert kinds(events) == ["ABORT", "START", "RUNNING"]
    assert [event["run"] == first["run"] for event in events] == [True, False, False]
    assert outputs_of(events[0]) == {"t": (5, 70)}
    assert events[0]["eventTime"] == "2025-11-28T14:00:00.000Z"
    assert outputs_of(events[2]) == {"t": (1, 10)}


def test_topics_of_a_column_are_those_written_and_at_most_a_hundred(tmp_path):
    driver = Driver(tmp_path, topic=None, dead_letter_topic="letters")
    many = {f"t-{n:03}": (1, 10) for n in range(150)}
    driver.reports(a_line(0, topic=None, topics=many))
    line = a_line(1, at_ms=NOW_MS + 60_000, topic=None, topics={"t-000": (1, 10), "new": (1, 10)})
    (event,) = driver.reports(line)
    found = outputs_of(event)
    assert len(found) == MOST_TOPICS
    assert (found["t-000"], found["t-098"], found["letters"]) == ((2, 20), (1, 10), (0, 0))
    assert "new" not in found
    assert event["job"]["name"] == "app.topics"


_P = {
    "spark.openlineage.parentRunId": PARENT,
    "spark.openlineage.parentJobNamespace": "airflow",
    "spark.openlineage.parentJobName": "dag.task",
}
_R = {
    "spark.openlineage.rootParentRunId": ROOT,
    "spark.openlineage.rootParentJobNamespace": "airflow",
    "spark.openlineage.rootParentJobName": "dag",
}


@each_row(
    ("origin", "parent", "root"),
    [
        ({}, None, None),
        (_P, PARENT, None),
        ({**_P, **_R}, PARENT, ROOT),
        (_R, None, None),
        ({**_P, "spark.openlineage.parentRunId": "no id"}, None, None),
        ({k: v for k, v in _P.items() if not k.endswith("Name")}, None, None),
    ],
)
def test_parents(origin, parent, root):
    with tempfile.TemporaryDirectory() as folder:
        for event in Driver(Path(folder)).reports(a_line(), origin):
            facet = event["run"]["facets"].get("parent")
            if parent is None:
                assert facet is None
                continue
            assert facet["run"]["runId"] == parent
            assert facet["job"] == {"namespace": "airflow", "name": "dag.task"}
            assert facet.get("root", {}).get("run") == (root and {"runId": root})


def test_names_of_jobs(driver, monkeypatch):
    monkeypatch.setenv("OPENLINEAGE_NAMESPACE", "team")
    named = driver.reports(a_line(0, query_name="orders"))[0]["job"]
    assert (named["namespace"], named["name"]) == ("team", "app.orders")
    assert driver.reports(a_line())[0]["job"]["name"] == "app.t"


def test_a_file_that_cannot_be_read_and_an_old_one(tmp_path):
    driver, old = Driver(tmp_path), Driver(tmp_path)
    old.reports(a_line(0, query_id="old", at_ms=NOW_MS - 8 * 24 * 3600 * 1000))
    driver.reports(a_line(0))
    (mine,) = tmp_path.iterdir()  # the old one is forgotten
    mine.write_text('{"of": "another version"}', encoding="utf-8")
    assert kinds(driver.reports(a_line(1))) == ["START", "RUNNING"]
    assert UUID(mine.name.split(".")[0]) == UUID(driver.run)


# --- the written columns --------------------------------------------------------------------------

_ALL = StructType(
    [
        StructField("id", LongType()),
        StructField("price", DecimalType(10, 2)),
        StructField("at", TimestampNTZType()),
        StructField("tags", ArrayType(StringType())),
        StructField("place", StructType().add("x", IntegerType()).add("y", DoubleType())),
        StructField("counts", MapType(StringType(), IntegerType())),
        StructField("value", StringType()),
        StructField("topic", StringType()),
    ]
)
_FIELDS = [
    {"name": "id", "type": "long"},
    {"name": "price", "type": "decimal(10,2)"},
    {"name": "at", "type": "timestamp_ntz"},
    {"name": "tags", "type": "array", "fields": [{"name": "_element", "type": "string"}]},
    {
        "name": "place",
        "type": "struct",
        "fields": [{"name": "x", "type": "integer"}, {"name": "y", "type": "double"}],
    },
    {
        "name": "counts",
        "type": "map",
        "fields": [{"name": "key", "type": "string"}, {"name": "value", "type": "integer"}],
    },
    {"name": "value", "type": "string"},
    {"name": "topic", "type": "string"},
]


@each_row(
    ("more", "names"),
    [
        ({}, ["value"]),
        ({"value.format": "json"}, ["id", "price", "at", "tags", "place", "counts", "value"]),
        ({"value.format": "json", "value.columns": "id, place.x"}, ["id", "place"]),
        (
            {"value.format": "json", "value.columns": "id", "topic.column": "topic"},
            ["id"],
        ),
    ],
)
def test_written_columns(more, names):
    topic = {} if "topic.column" in more or not more else {"topic": "t"}
    options = options_with(**{**topic, **more})
    found = json.loads(written_schema(_ALL, plan_rows(_ALL, options)))
    assert [field["name"] for field in found] == names
    assert all(field in _FIELDS for field in found)


def options_with(**more):
    servers = {"kafka.bootstrap.servers": "broker:9092,other:9092"}
    return SinkOptions.parse({**servers, "metrics.openlineage.enable": "true", **more})


# --- sending --------------------------------------------------------------------------------------


@pytest.fixture
def _own_files(tmp_path, monkeypatch):
    """Runs of these tests are kept in a folder of their own, and no configuration is found."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in [name for name in os.environ if name.startswith("OPENLINEAGE")]:
        monkeypatch.delenv(name)
    yield
    for process in psutil.Process().children():
        process.kill()
        process.wait()


class Log:
    """What this process and those that it starts have logged."""

    def __init__(self, capfd, caplog):
        caplog.set_level(logging.INFO, "spark_kafka_sink")
        self._capfd = capfd
        self._caplog = caplog
        self._text = ""

    def count(self, text):
        self._text += self._capfd.readouterr().err
        return (self._text + self._caplog.text).count(text)

    def has(self, text):
        return self.count(text) > 0


@pytest.fixture
def log(capfd, caplog):
    return Log(capfd, caplog)


@needs_client
@pytest.mark.usefixtures("_own_files")
def test_the_client_s_own_configuration_names_the_backend(tmp_path, monkeypatch):
    events = tmp_path / "events"
    for name, value in to_file(events).items():
        monkeypatch.setenv(name, value)
    report_lineage(options_with(topic="t"), a_line(topics={"t": (5, 70)}), _P)
    assert eventually(lambda: kinds(events_in(events)) == ["START", "COMPLETE"])
    monkeypatch.setenv("OPENLINEAGE_DISABLED", "true")
    report_lineage(options_with(topic="t"), a_line(), _P)
    complete = events_in(events)[1]
    assert complete["outputs"][0]["namespace"] == "kafka://broker:9092"
    assert complete["run"]["facets"]["parent"]["run"]["runId"] == PARENT


@needs_client
@pytest.mark.usefixtures("_own_files")
def test_a_backend_by_http_gets_the_key_and_no_secret_of_the_options(monkeypatch):
    secrets = {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "PLAIN"}
    secrets |= {"kafka.sasl.username": "user", "kafka.sasl.password": "hidden-word"}
    with backend() as running:
        monkeypatch.setenv("OPENLINEAGE_URL", running.url)
        monkeypatch.setenv("OPENLINEAGE_API_KEY", "the-key")
        report_lineage(options_with(topic="t", **secrets), a_line(), {})
        assert eventually(lambda: kinds(running.events) == ["START", "COMPLETE"])
    assert set(running.keys) == {"Bearer the-key"}
    assert "hidden-word" not in json.dumps(running.events)
    assert "the-key" not in json.dumps(running.events)


@needs_client
@pytest.mark.usefixtures("_own_files")
def test_a_backend_that_hangs_delays_nothing_and_bounds_what_waits(monkeypatch, log):
    with backend(status=None) as running:
        monkeypatch.setenv("OPENLINEAGE_URL", running.url)
        for _ in range(10):  # while nothing is answered
            report_lineage(options_with(topic="t"), a_line(), {})
        assert log.count("PKS-METRICS-012") == 1
        assert log.has("too slow")
        assert running.asked.wait(900)


@needs_client
@pytest.mark.usefixtures("_own_files")
def test_one_warning_for_a_query_whose_backend_refuses_and_one_line_when_it_is_back(
    monkeypatch, log, tmp_path
):
    origin = {"spark.jobGroup.id": str(uuid4())}
    lines = [a_line(n, at_ms=NOW_MS + n * 60_000, topics={"t": (1, 10)}) for n in range(4)]
    with backend(status=401) as refusing:
        monkeypatch.setenv("OPENLINEAGE_URL", refusing.url)
        for sent, line in enumerate(lines[:2], 1):
            report_lineage(options_with(topic="t"), line, origin)
            assert eventually(lambda sent=sent: len(refusing.keys) == sent)
    with backend() as running:
        monkeypatch.setenv("OPENLINEAGE_URL", running.url)
        report_lineage(options_with(topic="t"), lines[2], origin)
        assert eventually(lambda: log.has("lineage events are sent again"))
        report_lineage(options_with(topic="t"), {**lines[3], "event": "abort"}, origin)
        assert eventually(lambda: kinds(running.events) == ["RUNNING", "FAIL"])
    assert log.count("PKS-METRICS-012") == 1
    assert log.has("401")
    assert eventually(lambda: list(tmp_path.glob("pykafka-sink-lineage-*/*")) == [])


@needs_client
@pytest.mark.usefixtures("_own_files")
def test_without_a_backend_the_log_says_what_to_set(log):
    report_lineage(options_with(topic="t"), a_line(), {})
    assert eventually(lambda: log.has("set OPENLINEAGE_URL"))
    assert log.count("PKS-METRICS-012") == 1


@pytest.mark.usefixtures("_own_files")
def test_a_folder_that_cannot_be_made_fails_no_commit(monkeypatch, tmp_path, log):
    tmp_path.chmod(0o777)  # others could replace what is in it
    report_lineage(options_with(topic="t"), a_line(), {})
    report_lineage(options_with(topic="t"), a_line(), {})
    assert log.count("lineage events are not sent") == 1


def test_a_missing_package_is_an_error_before_the_first_task(monkeypatch):
    monkeypatch.setitem(sys.modules, "openlineage", None)
    check_outputs(MetricsOutputs())
    with pytest.raises(ConfigError, match=r"pip install 'pykafka-sink\[lineage\]'"):
        check_outputs(MetricsOutputs(openlineage=True))
