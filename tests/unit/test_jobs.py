"""The jobs: what they show while they run, how they end, and their settings."""

import io
import shlex
import signal
import subprocess
import sys
import threading
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyspark.errors import AnalysisException, PySparkException

from spark_kafka_sink.base.errors import ConfigError, sentence
from spark_kafka_sink.config.sink_options import UNIX_SOCKETS, SinkOptions
from spark_kafka_sink.jobs.failures import EXIT_FAILED, EXIT_REFUSED, report
from spark_kafka_sink.jobs.progress import ProgressLine, Steps, Totals
from spark_kafka_sink.jobs.settings import JobArguments, JobSettings
from spark_kafka_sink.jobs.shutdown import GracefulStop
from spark_kafka_sink.jobs.streams import Follower
from spark_kafka_sink.jobs.watched import CancellableAction
from tests.simulation.time import SimClock


class Terminal(io.StringIO):
    def isatty(self):
        return True


def progress(batch_id, rows, duration_ms=1_000):
    """A StreamingQueryProgress, as far as it is read."""
    return {
        "batchId": batch_id,
        "numInputRows": rows,
        "durationMs": {"triggerExecution": duration_ms},
    }


# --- totals ---------------------------------------------------------------------------------------


def test_totals():
    totals = Totals()
    # A micro-batch without rows does not count.
    for empty in (progress(0, 0), {"batchId": 1, "numInputRows": None}, {"batchId": 2}):
        totals.add(empty)
    assert totals == Totals()
    for duration in (None, {}, {"triggerExecution": 0}):
        totals.add({"numInputRows": 1, "durationMs": duration})
    assert totals.describe() == "3 rows | 0 rows/s | 3 batches"
    totals = Totals()
    totals.add(progress(0, 1_000, 500))
    assert totals.describe() == "1,000 rows | 2,000 rows/s | 1 batch"
    totals.add(progress(1, 335_776, 2_000))
    totals.files = (5, 12)
    assert totals.describe() == "336,776 rows | 167,888 rows/s | 2 batches | 7 of 12 files left"
    # Some were deleted, or moved to an archive, after they were read.
    assert Totals(files=(12, 5)).describe().endswith("0 of 5 files left")


def kafka_progress(*sources):
    names = ("description", "endOffset", "latestOffset")
    return progress(0, 10) | {"sources": [dict(zip(names, s)) for s in sources]}


OF_A, OF_B = "KafkaV2[Subscribe[a]]", "KafkaV2[Subscribe[b]]"


@pytest.mark.parametrize(
    ("sources", "lag"),
    [
        ([], None),
        ([("FileStreamSource[file:/in]", '{"logOffset":0}', None)], None),
        ([(OF_A, '{"a":{"0":5,"1":7}}', '{"a":{"0":9,"1":7}}')], 4),
        # A partition that was added since, and one that lost records meanwhile.
        ([(OF_A, '{"a":{"0":5}}', '{"a":{"0":2,"1":3}}')], 3),
        ([(OF_A, '{"a":{"0":1}}', '{"a":{"0":2}}'), (OF_B, '{"b":{"0":1}}', '{"b":{"0":12}}')], 12),
        ([(OF_A, '{"a":{"0":5}}', None)], None),
        ([(OF_A, '{"a":{"0":5}}', "null")], None),
    ],
)
def test_the_lag_of_a_stream_from_kafka(sources, lag):
    totals = Totals()
    totals.add(kafka_progress(*sources))
    assert totals.lag == lag
    assert totals.describe().endswith("1 batch" if lag is None else f"| lag {lag}")


# --- the line -------------------------------------------------------------------------------------


@pytest.mark.parametrize("output", [io.StringIO, Terminal])
def test_a_whole_line_every_five_seconds_if_it_has_changed(output):
    """On a terminal too, where lines of the log may come at any time."""
    clock, out = SimClock(), output()
    line = ProgressLine(clock, out)
    for text, ms in (("one", 0), ("two", 4_999), ("three", 1), ("three", 9_000), ("four", 0)):
        clock.ms += ms
        line.show(text)
    line.finish("done")
    assert out.getvalue() == "one\nthree\nfour\ndone\n"


# --- following a stream ---------------------------------------------------------------------------


class Stream:
    """A query, the files it reads and the wish to stop it, all driven by the follower's own waits.

    Each wait runs the next step of the script; after the last one the query has ended by itself.
    """

    def __init__(self, clock, *script):
        self.clock = clock
        self.script = list(script)
        self.isActive = True
        self.is_requested = False
        self.was_stopped = False
        self.recentProgress = []
        self.status = {"isTriggerActive": True}
        self.files = (0, 3)
        self.files_counted = 0

    def wait(self, timeout_s):
        self.pause(timeout_s)
        return self.is_requested

    def pause(self, timeout_s):
        self.clock.ms += int(timeout_s * 1000)
        if self.script:
            self.script.pop(0)(self)
        elif not self.is_requested:
            self.isActive = False

    def count(self):
        self.files_counted += 1
        return self.files

    def end(self, query):
        assert query is self
        self.was_stopped = True
        self.isActive = False


def ended(batch_id, rows):
    """Step: a micro-batch has ended."""

    def step(stream):
        stream.recentProgress.append(progress(batch_id, rows))
        stream.files = (batch_id + 1, 3)

    return step


def stop_requested(stream):
    stream.is_requested = True


def idle(stream):
    stream.status = {"isTriggerActive": False}


def nothing(stream):
    """Step: a quarter of a second goes by."""


def follow(*script, lag=None):
    clock, out = SimClock(), Terminal()
    stream = Stream(clock, *script)
    query = stream
    follower = Follower(query, query if lag is None else lag, query, clock, out)
    follower.follow()
    return stream, follower, out.getvalue()


def test_a_stream_that_ends_by_itself():
    stream, follower, shown = follow(ended(0, 10), nothing, ended(1, 0), ended(2, 5))
    assert not stream.was_stopped
    assert (follower.totals.rows, follower.totals.batches) == (15, 2)
    assert shown.endswith("15 rows | 5 rows/s | 2 batches | 0 of 3 files left\n")
    stream, out = Stream(SimClock(), ended(0, 10)), Terminal()
    Follower(stream, None, stream, stream.clock, out).follow()
    assert out.getvalue().endswith("10 rows | 10 rows/s | 1 batch\n")


def test_a_request_to_stop_waits_for_the_end_of_the_micro_batch():
    stream, follower, shown = follow(stop_requested, nothing, nothing, ended(0, 7))
    assert stream.was_stopped
    assert stream.script == []
    assert follower.totals.rows == 7
    assert "| stopping" in shown
    assert shown.endswith("7 rows | 7 rows/s | 1 batch | 2 of 3 files left\n")


def test_an_idle_stream_is_stopped_at_once_and_another_after_twenty_seconds():
    stream, _, _ = follow(idle, stop_requested, ended(0, 7))
    assert stream.was_stopped
    assert len(stream.script) == 1
    # Files are counted at the first look, after two and four seconds, and at the end.
    assert follow(*[nothing] * 17)[0].files_counted == 4
    stream, _, _ = follow(stop_requested, *[nothing] * 200)
    assert stream.was_stopped
    # The request took one step; 20 seconds are 80 more.
    assert 200 - len(stream.script) == 80


# --- watching an action ---------------------------------------------------------------------------


def a_stage(number, records):
    return SimpleNamespace(
        stageId=lambda: number,
        inputRecords=lambda: records,
        numCompleteTasks=lambda: 3,
        numTasks=lambda: 8,
    )


class Store:
    """The way from a session to its status store, which has the stage of an earlier action."""

    def __init__(self):
        self.cancelled = threading.Event()
        self.stages = [a_stage(4, 1_500)]
        stages = SimpleNamespace(
            size=lambda: len(self.stages), apply=lambda index: self.stages[index]
        )
        store = SimpleNamespace(stageList=lambda *_: stages)
        self.sparkContext = SimpleNamespace(
            _jsc=SimpleNamespace(
                sc=lambda: SimpleNamespace(
                    statusStore=lambda: store,
                    listenerBus=lambda: SimpleNamespace(waitUntilEmpty=lambda timeout_ms: None),
                )
            ),
            _gateway=SimpleNamespace(
                jvm=SimpleNamespace(double=float), new_array=lambda kind, length: []
            ),
            cancelAllJobs=self.cancelled.set,
        )


def watched(monkeypatch, stop):
    out = io.StringIO()
    store, clock = Store(), SimClock()
    monkeypatch.setattr("sys.stderr", out)
    action = CancellableAction(store, stop, clock)
    clock.ms += 3_000
    return action, store, out


def test_a_watched_action_is_described_at_its_end(monkeypatch):
    action, store, out = watched(monkeypatch, Stream(SimClock()))
    done = []
    action.run(lambda: (done.append(1), store.stages.append(a_stage(5, 1_200))))
    assert done == [1]
    assert not action.was_cancelled
    assert not store.cancelled.is_set()
    assert out.getvalue() == "1,200 rows written | 400 rows/s | 3.0 s\n"


def broken(*arguments):
    raise TypeError("'JavaPackage' object is not callable")


@pytest.mark.parametrize("fails", [True, False])
@pytest.mark.parametrize("is_broken", [True, False])
def test_progress_does_not_replace_the_result(monkeypatch, is_broken, fails):
    """Spark's status store is private: another version may not have it."""
    action, store, out = watched(monkeypatch, Stream(SimClock()))
    if is_broken:
        store.sparkContext._jsc = SimpleNamespace(sc=broken)
    done = []

    def work():
        done.append(1)
        if fails:
            raise RuntimeError("the write failed")

    with pytest.raises(RuntimeError, match="the write failed") if fails else nullcontext():
        action.run(work)
    assert done == [1]
    shown = out.getvalue()
    if is_broken:
        assert shown.startswith("progress cannot be shown: TypeError(")
    else:
        assert shown.endswith("tasks left\n" if fails else "| 3.0 s\n")


def test_a_lag_that_cannot_be_counted_does_not_end_a_stream():
    class BrokenLag:
        def count(self):
            return broken()

    stream, _, shown = follow(ended(0, 7), idle, stop_requested, lag=BrokenLag())
    assert stream.was_stopped
    assert shown.endswith("7 rows | 7 rows/s | 1 batch\n")


@pytest.mark.parametrize("before", [[], [broken], [lambda: None]])
@pytest.mark.parametrize("can_be_shown", [True, False])
def test_a_request_to_stop_cancels_the_jobs(monkeypatch, before, can_be_shown):
    """Again where that fails, or finds no job because the driver still plans."""
    stop = Stream(SimClock())
    stop.is_requested = can_be_shown
    action, store, _ = watched(monkeypatch, stop)

    def fail_and_ask():
        stop.is_requested = True
        broken()

    if not can_be_shown:
        store.sparkContext._jsc = SimpleNamespace(sc=fail_and_ask)
    attempts = iter(before)
    store.sparkContext.cancelAllJobs = lambda: next(attempts, store.cancelled.set)()
    action.run(lambda: None if store.cancelled.wait(60) else pytest.fail("not cancelled"))
    assert action.was_cancelled


def test_signals_are_as_before_if_the_jvm_cannot_be_prepared():
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.getsignal(number) for number in numbers]
    try:
        with pytest.raises(AttributeError), GracefulStop(SimpleNamespace()):
            pass  # Spark Connect has no sparkContext
        assert [signal.getsignal(number) for number in numbers] == before
    finally:
        for number, handler in zip(numbers, before):
            signal.signal(number, handler)


class AwaitedTerminal(io.StringIO):
    """A terminal that knows when the text it waits for has been written."""

    def __init__(self, awaited):
        super().__init__()
        self._awaited = awaited
        self.has_shown = threading.Event()

    def isatty(self):
        return True

    def write(self, text):
        written = super().write(text)
        if self._awaited in text:
            self.has_shown.set()
        return written


def test_a_terminal_sees_the_step_while_it_is_at_work(monkeypatch):
    """In a line that does not wrap."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("COLUMNS", "40")
    clock, out = SimClock(), AwaitedTerminal("half of the rows")
    steps = Steps(clock, out)
    with steps.step("Streaming") as step:
        clock.ms += 1_500
        step.say("Streaming: half of the rows, and what does not fit")
        assert out.has_shown.wait(60)
        step.say("Streamed")
    steps.succeed("Equal")
    shown = out.getvalue()
    assert "\r\033[K\033[34m…\033[0m Streaming: half of the rows" in shown
    assert "not fit" not in shown
    assert shown.endswith(
        "\r\033[K\033[32m✓\033[0m Streamed  1.5 s\n\033[32mEqual  (total 1.5 s)\033[0m\n"
    )


def test_the_steps_of_a_log():
    """A line when a step begins, and one at its end; the error of one that fails goes on."""
    clock, out = SimClock(), io.StringIO()
    steps = Steps(clock, out)
    with steps.step("Starting Kafka") as step:
        assert out.getvalue() == "Starting Kafka …\n"
        clock.ms += 4_200
        step.say("Kafka is ready")
    with pytest.raises(RuntimeError), steps.step("Streaming"):
        raise RuntimeError
    steps.fail("The stream failed")
    steps.succeed("Done")
    assert out.getvalue().splitlines()[1:] == [
        "✓ Kafka is ready  4.2 s",
        *("Streaming …", "✗ Streaming  0.0 s"),
        *("The stream failed  (total 4.2 s)", "Done  (total 4.2 s)"),
    ]


CONF = Path(__file__).resolve().parents[2] / "conf"


def arguments():
    declared = JobArguments("A job.")
    for name in ("input", "max_files", "key"):
        declared.add(name, "help")
    return declared


def parse(*command_line, conf=None):
    return arguments().parse(command_line, (conf or {}).items())


CONF_OF_A_JOB = {
    "spark.master": "local[2]",
    "spark.pykafka.Topic": "from-conf",
    "spark.pykafka.kafka.acks": "1",
    "spark.pykafka.kafka.linger.ms": "50",
    "spark.pykafka.job.input": "/conf",
    "spark.pykafka.job.max.files": "2",
    "spark.pykafka.job.reader.nullValue": "NA",
}


@pytest.mark.parametrize(
    ("line", "conf", "sink", "reader", "values"),
    [
        ("", {}, {}, {}, (None, None, None)),
        (
            "",
            CONF_OF_A_JOB,
            {"Topic": "from-conf", "kafka.acks": "1", "kafka.linger.ms": "50"},
            {"nullValue": "NA"},
            ("/conf", "2", None),
        ),
        (
            "--bootstrap-servers a:1,b:2 --option 'kafka.linger.ms = 7' --option metrics.path=/a=b "
            "--reader-option header=true --reader-option sep=, --key ''",
            {"spark.pykafka.job.key": "dest"},
            {
                "kafka.bootstrap.servers": "a:1,b:2",
                "kafka.linger.ms": "7",
                "metrics.path": "/a=b",
            },
            {"header": "true", "sep": ","},
            (None, None, ""),
        ),
        (
            "--bootstrap-server a:1 --option topic=long --topic short --option kafka.acks=all "
            "--input /cli --reader-option nullValue=x",
            {name.replace("Topic", "topic"): value for name, value in CONF_OF_A_JOB.items()},
            {
                "kafka.bootstrap.servers": "a:1",
                "topic": "short",
                "kafka.acks": "all",
                "kafka.linger.ms": "50",
            },
            {"nullValue": "x"},
            ("/cli", "2", None),
        ),
    ],
    ids=["nothing", "the properties file", "the command line", "the command line wins"],
)
def test_settings(line, conf, sink, reader, values):
    settings = parse(*shlex.split(line), conf=conf)
    assert settings.sink_options == sink
    assert settings.reader_options == reader
    assert tuple(settings.get(name) for name in ("input", "max_files", "key")) == values
    assert settings.get("input", "default") == (values[0] or "default")


def test_a_missing_argument_names_both_ways():
    assert parse("--max-files", "3").require("max_files") == "3"
    both = r"--max-files .* spark\.pykafka\.job\.max\.files .*JOB-001"
    with pytest.raises(ConfigError, match=both):
        parse().require("max_files")


@pytest.mark.parametrize(
    ("line", "key", "message"),
    [
        ("", "spark.pykafka.job.inptu", "argument. It has: input, max.files, key"),
        ("", "spark.pykafka.topc", "Did you mean 'topic'?"),
        ("", "spark.pykafka.linger.ms", "Did you mean 'kafka.linger.ms'?"),
        ("", "spark.pykafka.zzzzzzz", "the sink has no option 'zzzzzzz'"),
        ("--option delivery.guarante=1", "--option delivery.guarante", "'delivery.guarantee'?"),
        ("--option kafka.acks", "'kafka.acks'", "is not NAME=VALUE"),
        ("--reader-option ''", "''", "is not NAME=VALUE"),
        ("--option =1", "'…'", "is not NAME=VALUE"),
        ("--reader-option 'sasl.password: x'", "'sasl.password…'", "is not NAME=VALUE"),
    ],
)
def test_typing_errors(line, key, message):
    with pytest.raises(ConfigError) as raised:
        parse(*shlex.split(line), conf={} if line else {key: "1"})
    refused = sentence(raised.value)
    assert refused.startswith(key)
    assert refused.endswith(message)


KEY = {"spark.pykafka.kafka.ssl.keystore.key": "marked-hush"}


def warnings(caplog, *line, **conf):
    caplog.clear()
    parse(*line, conf={name.replace("__", "."): value for name, value in conf.items()})
    assert "marked-hush" not in caplog.text
    return caplog.messages


def test_a_secret_that_spark_shows_is_told(caplog):
    """By the session's own expression: the environment page has all of Spark's configuration."""
    (warning,) = warnings(caplog, **KEY)
    assert warning.startswith("spark.pykafka.kafka.ssl.keystore.key: a secret in clear text, which")
    assert "the default of spark.redaction.regex" in warning
    assert warnings(caplog, **KEY, spark__redaction__regex="(?i)keystore[.]key") == []
    password = {"spark.pykafka.kafka.sasl.password": "marked-hush"}
    assert warnings(caplog, **password) == []
    (warning,) = warnings(caplog, **password, spark__redaction__regex="(?i)token")
    assert warning.startswith("spark.pykafka.kafka.sasl.password: a secret in clear text, which")
    assert "the default of" not in warning
    assert warnings(caplog, **{"spark.pykafka.kafka.ssl.keystore.key": "${env:KEY}"}) == []


def test_a_secret_on_the_command_line_is_told(caplog):
    (warning,) = warnings(caplog, "--option", "kafka.sasl.password=marked-hush")
    assert warning.startswith("--option kafka.sasl.password: ")
    assert "PKS-JOB-006" in warning
    assert warnings(caplog, "--option", "kafka.sasl.password=${env:P}") == []


def properties(path):
    """As spark-submit reads them: a key, white space, the rest of the line."""
    pairs = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.strip() and not line.startswith("#"):
            name, _, value = line.partition(" ")
            pairs[name] = value.strip()
    return pairs


@pytest.mark.parametrize("path", sorted(CONF.glob("*.conf")), ids=lambda path: path.name)
def test_the_files_in_conf_are_understood(path):
    """Whoever starts from one of them must not be told of an unknown option, nor of slow sockets."""
    assert properties(path)[UNIX_SOCKETS] == "true"
    declared = arguments()
    for name in ("format", "schema", "trigger", "checkpoint", "max_offsets"):
        declared.add(name, "help")
    settings = declared.parse([], properties(path).items())
    assert settings.sink_options
    options = SinkOptions.parse({"kafka.bootstrap.servers": "b:1", **settings.sink_options})
    assert options.notes == ()


JOBS = sorted(path.stem for path in (CONF.parent / "jobs").glob("*_to_kafka.py"))


@pytest.mark.slow
@pytest.mark.parametrize("job", JOBS)
@pytest.mark.parametrize(("argument", "code"), [("--help", 0), ("--inputt", 2)])
def test_help_and_wrong_arguments_are_answered_without_spark(tmp_path, job, argument, code):
    (tmp_path / "pyspark").mkdir()
    (tmp_path / "pyspark" / "__init__.py").write_text("raise AssertionError('Spark is imported')")
    done = subprocess.run(
        [sys.executable, str(CONF.parent / "jobs" / f"{job}.py"), argument],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "", "PYTHONPATH": f"{tmp_path}:{CONF.parent}"},
    )
    assert done.returncode == code, done.stderr
    assert "--bootstrap-servers" in (done.stderr if code else done.stdout)


# --- how a job fails ------------------------------------------------------------------------------

CONFIG_ERROR = "spark_kafka_sink.base.errors.ConfigError: the sentence"
PLANNING = """[PYTHON_DATA_SOURCE_ERROR] Failed to initialize Python data source writer: Traceback:
  File "source.py", line 109, in writer
spark_kafka_sink.base.errors.{}: the sentence
 SQLSTATE: 38000"""


@pytest.mark.parametrize(
    ("kind", "text", "status", "line"),
    [
        (AnalysisException, PLANNING.format("ConfigError"), EXIT_REFUSED, "the sentence"),
        (AnalysisException, PLANNING.format("SchemaError"), EXIT_REFUSED, "the sentence"),
        (AnalysisException, f"Failed to plan: {CONFIG_ERROR}", EXIT_REFUSED, "the sentence"),
        (AnalysisException, PLANNING.format("BootstrapError"), EXIT_FAILED, "failed: the sentence"),
        (
            PySparkException,
            f"a task failed\n{PLANNING.format('DeliveryError')}\n\tat org.x.Y",
            *(EXIT_FAILED, "failed: the sentence"),
        ),
        (
            AnalysisException,
            "[PATH_NOT_FOUND] Path does not exist: file:/x. SQLSTATE: 42K03",
            *(EXIT_REFUSED, "[PATH_NOT_FOUND] Path does not exist: file:/x."),
        ),
        (
            PySparkException,
            "[STREAM_FAILED] Query [id = 1] terminated with exception: a disk is full "
            "SQLSTATE: 38000 SQLSTATE: XXKST\n=== Streaming Query ===",
            *(EXIT_FAILED, "failed: a disk is full"),
        ),
        (PySparkException, "", EXIT_FAILED, "failed: Spark gives no reason"),
    ],
)
def test_a_failure_is_one_line_and_a_users_mistake_has_a_status_of_its_own(
    kind, text, status, line, capsys
):
    assert report("the_job", kind(text), "failed: ") == status
    assert capsys.readouterr().err == f"the_job: {line}\n"


@pytest.mark.parametrize("value", ["many", "0", "-1", "1.5", "٣", ""])
def test_an_argument_that_counts_is_a_positive_number(value):
    with pytest.raises(ConfigError, match=f"--max-files: '{value}' is not a positive number"):
        JobSettings({"max_files": value}, {}).count("max_files")
    assert JobSettings({"max_files": "7"}, {}).count("max_files") == "7"
    assert JobSettings({"max_files": None}, {}).count("max_files") is None
