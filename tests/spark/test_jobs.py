"""The jobs, run by spark-submit as in production; the demo on a terminal; the installed wheel."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import sysconfig
import venv
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pyspark
import pytest
from confluent_kafka import Producer

from benchmarks.harness import JVM_SINK
from spark_kafka_sink.localkafka import fetch_jars
from spark_kafka_sink.transactions.crash_points import VARIABLE as CRASH_HOOK
from tests.killing import HOLD_AT, HOLD_FILE
from tests.lineage import HAS_LINEAGE, events_in, kinds, to_file
from tests.patience import PATIENCE_S, eventually
from tests.reading import read_topic
from tests.spark.test_streaming import write_file
from tests.unit.registry.server import fresh_registry

# Minutes of CPU, on a machine of any load.
pytestmark = pytest.mark.timeout(1800)

REPOSITORY = Path(__file__).resolve().parents[2]
SPARK_SUBMIT = Path(sys.executable).parent / "spark-submit"
QUIET = """
spark.master            local[2]
spark.ui.enabled        false
spark.ui.showConsoleProgress false
spark.log.level         ERROR
# Short runs: with the quick compiler they take half of the CPU.
spark.driver.extraJavaOptions -XX:TieredStopAtLevel=1 -XX:+UseSerialGC
"""


def own_tracebacks(text):
    """Return the tracebacks in ``text`` without those of Spark's own daemon, whose JVM ended first."""
    found = re.findall(r"^Traceback .*?^\S*(?:Error|Exception|Interrupt)\b.*?$", text, re.S | re.M)
    return [one for one in found if "pyspark/daemon.py" not in one or "spark_kafka_sink" in one]


class Job:
    """A running spark-submit and its output."""

    def __init__(self, arguments, folder, environment):
        self.output = folder / f"output-{len(list(folder.iterdir()))}.txt"
        with self.output.open("w", encoding="utf-8") as output:
            self.process = subprocess.Popen(
                [str(SPARK_SUBMIT), *arguments],
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYSPARK_PYTHON": sys.executable, **environment},
                start_new_session=True,
            )

    def text(self):
        return self.output.read_text(encoding="utf-8")

    def wait(self, timeout_s=PATIENCE_S):
        return self.process.wait(timeout_s)

    def kill(self):
        """kill -9, of the JVM and of the driver's Python."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.wait()


@pytest.fixture
def conf(kafka, tmp_path):
    """Writes a properties file."""

    def create(base=QUIET, **lines):
        path = tmp_path / "job.conf"
        settings = {"kafka.bootstrap.servers": kafka.bootstrap_servers, **lines}
        text = "".join(f"spark.pykafka.{name} {value}\n" for name, value in settings.items())
        path.write_text(base + text, encoding="utf-8")
        return path

    return create


@pytest.fixture
def submit(tmp_path):
    """Starts jobs, and leaves none behind."""
    jobs = []

    def run(conf, script, *arguments, **environment):
        command = ["--properties-file", str(conf), str(REPOSITORY / "jobs" / script), *arguments]
        jobs.append(Job(command, tmp_path, environment))
        return jobs[-1]

    yield run
    for job in jobs:
        if job.process.poll() is None:
            job.kill()


def ids(kafka, topic):
    records = read_topic(kafka.bootstrap_servers, topic)
    assert all(json.loads(r.value)["id"] == int(r.key) for r in records)
    return sorted(int(r.key) for r in records)


def test_batch_job(kafka, new_topic, conf, submit, tmp_path):
    topic, folder = new_topic(2), tmp_path / "in"
    folder.mkdir()
    for number in range(3):
        write_file(folder, number)
    settings = conf(
        **{"job.key": "id", "topic": "overridden-below", "kafka.compression.type": "zstd"}
    )
    job = submit(settings, "batch_to_kafka.py", "--input", str(folder), "--topic", topic)
    assert job.wait() == 0, job.text()
    assert ids(kafka, topic) == list(range(60))
    assert "\n60 rows written | " in job.text()
    (line,) = [text for text in job.text().splitlines() if "spark_kafka_sink.spark.commit" in text]
    assert f" INFO spark_kafka_sink.spark.commit: job to {topic}: 60 records, " in line
    assert len(line) <= 200


# Two drivers for a minute. tests/unit/test_jobs.py has what a job does when it is told to stop, and
# tests/spark/test_streaming.py a query that goes on where it was.
@pytest.mark.long
@pytest.mark.parametrize("how", ["SIGTERM to spark-submit", "Ctrl-C in the terminal"])
def test_stream_job_stops_cleanly_and_goes_on_where_it_stopped(
    kafka, new_topic, conf, submit, tmp_path, how
):
    topic, folder = new_topic(2), tmp_path / "in"
    folder.mkdir()
    for number in range(3):
        write_file(folder, number)
    settings = conf(
        **{
            "topic": topic,
            "job.key": "id",
            "job.schema": "id BIGINT, file INT",
            "job.max.files": "1",
            "job.input": str(folder),
            "job.checkpoint": str(tmp_path / "checkpoint"),
            "metrics.log": "false",
            "metrics.openlineage.enable": HAS_LINEAGE,
        }
    )
    events = tmp_path / "events"
    job = submit(settings, "stream_to_kafka.py", "--trigger", "1 second", **to_file(events))
    assert eventually(lambda: "0 of 3 files left" in job.text()), job.text()
    if how.startswith("SIGTERM"):
        job.process.send_signal(signal.SIGTERM)
        assert job.wait() == 128 + signal.SIGTERM
    else:
        os.killpg(job.process.pid, signal.SIGINT)
        assert job.wait() == 0
    assert "60 rows" in job.text()
    assert not own_tracebacks(job.text()), job.text()
    for number in range(3, 5):
        write_file(folder, number)
    job = submit(settings, "stream_to_kafka.py", "--trigger", "available-now", **to_file(events))
    assert job.wait() == 0, job.text()
    assert "40 rows" in job.text()
    assert ids(kafka, topic) == list(range(100))
    if HAS_LINEAGE == "true":
        assert eventually(lambda: kinds(events_in(events)).count("COMPLETE") == 2)
        sent = [event for event in events_in(events) if event["eventType"] != "RUNNING"]
        assert kinds(sent) == ["START", "COMPLETE"] * 2
        assert sent[0]["run"] == sent[1]["run"] != sent[2]["run"] == sent[3]["run"]


@contextmanager
def started(command, folder, **more):
    """A process in a group of its own and the file of its output; nothing of the group is left."""
    output = folder / "output.txt"
    with output.open("w", encoding="utf-8") as out:
        process = subprocess.Popen(
            command,
            stdout=out,
            stderr=subprocess.STDOUT,
            cwd=REPOSITORY,
            start_new_session=True,
            **more,
        )
    try:
        yield process, output
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.mark.parametrize(
    ("program", "until"),
    [
        pytest.param(sys.executable, "Spark Command: ", marks=pytest.mark.long),
        pytest.param(sys.executable, "Setting Spark log level", marks=pytest.mark.long),
        (str(SPARK_SUBMIT), "Setting Spark log level"),
    ],
)
def test_ctrl_c_while_spark_starts_ends_a_job_with_one_line(tmp_path, program, until):
    """Spark's launcher prints its command. Then Spark waits a minute for a master that is silent."""
    master = socket.create_server(("127.0.0.1", 0))
    port = master.getsockname()[1]
    given = ["--master", f"spark://127.0.0.1:{port}", "--conf", "spark.log.level=WARN"]
    given += ["--conf", "spark.ui.enabled=false"]
    environment = {
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_PRINT_LAUNCH_COMMAND": "1",
        "PYSPARK_SUBMIT_ARGS": shlex.join([*given, "pyspark-shell"]),
        "TMPDIR": str(tmp_path),
    }
    given = given if program == str(SPARK_SUBMIT) else []
    job = [str(REPOSITORY / "jobs" / "batch_to_kafka.py"), "--input", str(tmp_path)]
    # What a shell starts in the background ignores Ctrl-C, and so would the job.
    heeds_ctrl_c = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    more = {"env": {**os.environ, **environment}, "preexec_fn": heeds_ctrl_c}
    with master, started([program, *given, *job], tmp_path, **more) as (process, output):

        def has_ended():
            try:
                os.killpg(process.pid, 0)
            except ProcessLookupError:
                return True
            return False

        assert eventually(lambda: until in output.read_text(encoding="utf-8")), output.read_text()
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(PATIENCE_S) == 130, output.read_text()
        assert eventually(has_ended), "the JVM goes on"
    shown = output.read_text(encoding="utf-8")
    assert "\nbatch_to_kafka: interrupted\n" in shown
    assert not re.search("Traceback|Exception|KeyboardInterrupt|ERROR", shown), shown


# A driver of its own for a sentence and a code that tests/unit/test_jobs.py has, without Spark's launcher.


def produce_in_transactions(kafka, topic, transactions):
    """Each range as one transaction of records with these ids; True: committed."""
    producer = Producer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "transactional.id": f"input-of-{topic}",
            "log_level": 0,
        }
    )
    producer.init_transactions(PATIENCE_S)
    for numbers, is_committed in transactions.items():
        producer.begin_transaction()
        for number in numbers:
            producer.produce(topic, json.dumps({"id": number}), headers=[("n", str(number))])
        producer.flush(PATIENCE_S)
        if is_committed:
            producer.commit_transaction(PATIENCE_S)
        else:
            producer.abort_transaction(PATIENCE_S)


A_TIME_MS = 1_700_000_000_123


@pytest.mark.long
def test_kafka_to_kafka_copies_each_record_once_though_its_driver_is_killed(
    kafka, new_topic, conf, submit, tmp_path
):
    """Killed when the third micro-batch is decided, and only one of its transactions committed."""
    source, topic, ready = new_topic(2), new_topic(3), tmp_path / "ready"
    ids = range(4000)
    produce_in_transactions(
        kafka, source, {ids[:1000]: True, range(9000, 9500): False, ids[1000:]: True}
    )
    jars = ",".join(map(str, fetch_jars(JVM_SINK, "jvm-sink", transitive=False)))
    delivered = (REPOSITORY / "conf" / "kafka-to-kafka.conf").read_text(encoding="utf-8")
    settings = conf(
        f"{delivered}\n{QUIET}\nspark.jars {jars}\n",
        **{
            "topic": topic,
            "job.input": source,
            "job.checkpoint": str(tmp_path / "checkpoint"),
            "job.max.offsets": "700",
            "job.trigger": "available-now",
            "job.select": "get_json_object(cast(value as string), '$.id') as key, value, headers, "
            f"timestamp_millis({A_TIME_MS}) as timestamp",
            "job.where": "not get_json_object(cast(value as string), '$.id') like '%7'",
            "transactional.id.prefix": f"copy-of-{source}",
            "transaction.log.replication.factor": "1",
            "metrics.path": str(tmp_path / "metrics.jsonl"),
        },
    )
    environment = {
        CRASH_HOOK: "tests.killing:hold",
        HOLD_AT: "commit.ending:3",
        HOLD_FILE: str(ready),
        "PYTHONPATH": str(REPOSITORY),
    }
    job = submit(settings, "kafka_to_kafka.py", **environment)
    assert eventually(lambda: ready.exists() or job.process.poll() is not None)
    assert ready.exists(), job.text()
    job.kill()
    job = submit(settings, "kafka_to_kafka.py")
    assert job.wait() == 0, job.text()
    assert "lag 0" in job.text()

    wanted = [number for number in ids if number % 10 != 7]
    copied = read_topic(kafka.bootstrap_servers, topic)
    assert sorted(int(r.key) for r in copied) == wanted
    for record in copied:
        assert json.loads(record.value) == {"id": int(record.key)}
        assert record.headers == (("n", record.key),)
        assert record.timestamp == A_TIME_MS
    # The replay has written again what was there: the test could have failed.
    written = read_topic(kafka.bootstrap_servers, topic, **{"isolation.level": "read_uncommitted"})
    assert len(written) > len(copied)
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert {line["event"] for line in lines} == {"commit"}
    assert [line["batch_id"] for line in lines] == list(range(len(lines)))


# `.ci/run` runs the demo itself.


def test_the_demo_without_java_ends_with_a_sentence(tmp_path):
    done = subprocess.run(
        [sys.executable, str(REPOSITORY / "jobs" / "demo.py"), "--flights", "100"],
        env={**os.environ, "JAVA_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert f"JAVA_HOME is {tmp_path}, but there is no" in done.stderr


SPARK_HOME = Path(pyspark.__file__).parent


class Installed(NamedTuple):
    """A virtual environment. Nothing of the checkout is on its path."""

    folder: Path

    @property
    def python(self):
        return self.folder / "bin" / "python"

    @property
    def site_packages(self):
        [found] = self.folder.glob("lib/python*/site-packages")
        return found

    def run(self, *command, **variables):
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        environment = {
            **kept,
            "SPARK_HOME": str(SPARK_HOME),
            "PYSPARK_PYTHON": str(self.python),
            **variables,
        }
        return subprocess.run(
            command,
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )

    def command(self, *arguments):
        """What ``pykafka-sink`` prints."""
        done = self.run(str(self.folder / "bin" / "pykafka-sink"), *arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout.removesuffix("\n")

    @classmethod
    def create(cls, folder, wheel):
        made = cls(folder)
        venv.create(folder, with_pip=False, symlinks=True)
        install = ["-m", "pip", "--python", str(made.python), "install", "--quiet", "--no-deps"]
        subprocess.run([sys.executable, *install, str(wheel)], check=True)
        return made


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    made = Installed.create(tmp_path_factory.mktemp("installed"), wheel)
    # The other packages are those of this environment; a plain line leaves out its .pth files.
    others = made.site_packages / "others.pth"
    others.write_text(sysconfig.get_paths()["purelib"] + "\n", encoding="utf-8")
    return made


def test_the_demo_of_a_wheel_without_its_extra_ends_with_a_sentence(wheel, tmp_path):
    made = Installed.create(tmp_path, wheel)
    done = made.run(str(made.python), made.command("job", "demo"))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "demo: the demo needs the Python package pyspark: pip install 'pykafka-sink[demo]' "
        "[PKS-JOB-007]\n"
    )


def test_jobs_conf_and_docs_are_installed(installed):
    share = installed.site_packages / "spark_kafka_sink" / "share"
    for kind, file in [("jobs", "demo.py"), ("conf", "throughput.conf"), ("docs", "options.md")]:
        assert installed.command(kind, "--where") == str(share / kind)
        assert (share / kind / file).is_file()
    job = installed.command("job", "stream_to_kafka")
    assert job == str(share / "jobs" / "stream_to_kafka.py")
    assert installed.command("conf", "throughput") == str(share / "conf" / "throughput.conf")
    assert installed.command("docs", "tuning", "--where") == str(share / "docs" / "tuning.md")
    assert installed.command("docs", "dead-letters").startswith("# Dead letters\n")


@pytest.mark.long
def test_a_batch_job_of_the_wheel(installed, kafka, new_topic, tmp_path):
    topic, folder = new_topic(2), tmp_path / "in"
    folder.mkdir()
    write_file(folder, 0)
    conf = tmp_path / "job.conf"
    shipped = Path(installed.command("conf", "throughput")).read_text(encoding="utf-8")
    conf.write_text(shipped + QUIET, encoding="utf-8")
    job = installed.command("job", "batch_to_kafka")
    given = ("--bootstrap-servers", kafka.bootstrap_servers, "--topic", topic, "--key", "id")
    given += ("--input", str(folder), "--option", f"metrics.path={tmp_path / 'metrics.jsonl'}")
    submit = str(SPARK_HOME / "bin" / "spark-submit")
    done = installed.run(submit, "--properties-file", str(conf), job, *given)
    assert done.returncode == 0, done.stderr
    written = read_topic(kafka.bootstrap_servers, topic)
    assert sorted(int(record.key) for record in written if record.key) == list(range(20))
    [line] = (tmp_path / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    metrics = json.loads(line)["metrics"]
    assert metrics["load_ms"] > 0


OWN_SCRIPT = """
import os, sys
from pyspark.sql import SparkSession
os.environ["PYSPARK_PYTHON"] = sys.executable
# Without a bar: Spark draws one when a stage takes longer than half a second.
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").config(
    "spark.ui.showConsoleProgress", "false").config("spark.log.level", "WARN").getOrCreate()
query = (
    spark.readStream.format("rate").option("rowsPerSecond", "100").load()
    .selectExpr("CAST(value AS STRING) AS value").writeStream.format("pykafka-sink")
    .option("kafka.bootstrap.servers", sys.argv[1]).option("topic", sys.argv[2])
    .option("checkpointLocation", sys.argv[3]).start()
)
"""


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_script_of_ones_own_ends_its_query_without_noise(kafka, new_topic, tmp_path, number):
    """Follow the recipe while micro-batches run without a pause.

    Ctrl-C of a terminal goes to all processes of the script.
    """
    page = (REPOSITORY / "docs" / "cookbook.md").read_text(encoding="utf-8")
    recipe = (
        page.partition("## Stop a query with Ctrl-C")[2].split("```python\n")[1].split("```")[0]
    )
    script, topic = tmp_path / "own.py", new_topic(1)
    script.write_text(f"{OWN_SCRIPT}{recipe}print('ended', flush=True)\n", encoding="utf-8")
    command = [sys.executable, str(script), kafka.bootstrap_servers, topic, str(tmp_path / "c")]
    with started(command, tmp_path) as (process, output):
        assert eventually(lambda: len(list(tmp_path.glob("c/commits/*"))) > 1), output.read_text()
        # Up to the end of a line: the script goes on to write.
        before = output.read_text(encoding="utf-8").rpartition("\n")[:2]
        if number == signal.SIGINT:
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)
        assert process.wait(PATIENCE_S) == 0, output.read_text()
    shown = output.read_text(encoding="utf-8")[len("".join(before)) :].splitlines()
    # A micro-batch that has begun just now is aborted: one line of the sink's, and one line of
    # Spark's for the task that it kills.
    aborted = r" WARNING .* batch [0-9]+(?: of \w+)? to \S+ was aborted: .* was stopped"
    expected = f" INFO |{aborted}| WARN TaskSetManager: .* TaskKilled .* was stopped"
    assert [line for line in shown if not re.search(expected, line)] == ["ended"], shown


BUSY_SCRIPT = """
import os, sys, threading
from pyspark.sql import SparkSession
import spark_kafka_sink
os.environ["PYSPARK_PYTHON"] = sys.executable
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
def write(rows, batch):
    print("busy", flush=True)
    threading.Event().wait()
query = spark.readStream.format("rate").load().writeStream.foreachBatch(write).start()
spark_kafka_sink.await_termination(query)
"""


@pytest.mark.long
def test_a_second_ctrl_c_interrupts_a_foreach_batch_that_does_not_end(tmp_path):
    with started([sys.executable, "-c", BUSY_SCRIPT], tmp_path) as (process, output):

        def has_ended():
            os.killpg(process.pid, signal.SIGINT)
            return process.poll() is not None

        assert eventually(lambda: "busy\n" in output.read_text(encoding="utf-8"))
        assert eventually(has_ended)
        assert "KeyboardInterrupt" in output.read_text(encoding="utf-8")


@pytest.mark.long
def test_what_a_registry_has_answered_ends_with_its_driver(kafka, new_topic, tmp_path):
    """The folder of temporary files is empty after a query whose processes shared an answer."""
    script, temporary = tmp_path / "own.py", tmp_path / "temporary"
    temporary.mkdir()
    more = '.option("value.format", "avro").option("schema.registry.url", sys.argv[4]).start()'
    ending = """
while query.isActive and not os.path.exists(sys.argv[3] + "/commits/1"):
    time.sleep(0.1)
print(sum("pykafka-sink-registry" in path for path, _, _ in os.walk(os.environ["TMPDIR"])))
query.stop()
spark.stop()
"""
    code = OWN_SCRIPT.replace("AS value", "AS n").replace(".start()", more) + ending
    script.write_text(f"import time\n{code}", encoding="utf-8")
    with fresh_registry() as registry:
        done = subprocess.run(
            [
                *(sys.executable, str(script), kafka.bootstrap_servers, new_topic(1)),
                *(str(tmp_path / "c"), registry.url),
            ],
            env={
                **os.environ,
                "TMPDIR": str(temporary),
                "JAVA_TOOL_OPTIONS": f"-Djava.io.tmpdir={temporary}",
            },
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["1"], done.stderr
    assert [path for path in temporary.rglob("*") if "registry" in path.name] == []
