"""What documents and the notebook show, run as it stands; where Spark finds sink and files."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import threading
import venv
from dataclasses import dataclass
from pathlib import Path

import nbclient
import nbformat
import pytest
from pyspark import InheritableThread
from pyspark.sql.datasource import DataSource, DataSourceReader

import pyspark_kafka_sink
from spark_kafka_sink.security.references import find_file, process_description
from tests.reading import read_topic
from tests.snippets import REPOSITORY, blocks, documents

_OF_PYTHON_AND_SPARK = ("PYTHON", "PYSPARK", "SPARK", "VIRTUAL_ENV")


@dataclass(frozen=True)
class FreshPython:
    """The Python of a virtual environment, run by its path."""

    python: Path
    environment: dict[str, str]

    @classmethod
    def create(cls, folder):
        """Two environments: one sees what is installed for these tests, the other's ``python3``
        comes first on the PATH and has no packages at all.
        """
        for name in ("with-sink", "on-path"):
            venv.create(folder / name, symlinks=True)
        (packages,) = (folder / "with-sink").glob("lib/python*/site-packages")
        found = f"{REPOSITORY}\n{sysconfig.get_path('purelib')}\n"
        (packages / "packages-of-the-tests.pth").write_text(found, encoding="utf-8")
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(_OF_PYTHON_AND_SPARK)
        }
        environment["PATH"] = f"{folder / 'on-path' / 'bin'}{os.pathsep}{environment['PATH']}"
        return cls(folder / "with-sink" / "bin" / "python", environment)

    def run(self, script):
        """Run ``script`` in its own folder."""
        return subprocess.run(
            [str(self.python), str(script)],
            env=self.environment,
            cwd=script.parent,
            capture_output=True,
            text=True,
            check=False,
        )


# Some start Kafka and Spark of their own, and compile: on a busy machine that takes minutes.
pytestmark = pytest.mark.timeout(1800)

# Its blocks build on each other, and run as one program.
TUTORIAL = "docs/getting-started.md"
# tests/spark/test_cookbook.py
COOKBOOK = "docs/cookbook.md"
# Its block is of a pipeline: make evidence NAME=pipelines.
PIPELINES = "docs/pipelines.md"
SNIPPETS = [
    block
    for document in documents()
    for block in blocks(document, "python")
    if not block.is_for_connect and document not in (TUTORIAL, COOKBOOK, PIPELINES)
]
QUICKSTART, SNIPPETS_IN_A_SESSION = SNIPPETS[0], SNIPPETS[1:]
EVENTS = 20
ONE_BROKER = {"transaction.log.replication.factor": "1"}


class Options(dict[str, str]):
    """What lines of ``.option(…)`` say, without the reader's own code, which is tested apart."""

    def option(self, name, value):
        if ":" not in value:
            self[name] = value
        return self


@pytest.fixture
def events(spark, tmp_path):
    """A stream of rows that each have a user."""
    folder = str(tmp_path / "input")
    rows = spark.range(EVENTS).selectExpr("CAST(id % 3 AS STRING) AS user_id", "id AS clicks")
    rows.write.parquet(folder)
    return spark.readStream.schema(rows.schema).parquet(folder)


@pytest.mark.parametrize("block", SNIPPETS_IN_A_SESSION, ids=lambda block: block.name)
def test_snippet(block, spark, kafka, events, tmp_path):
    """A block starts a query, or is lines of options, or has definitions."""
    own = f"events-{re.sub('[^a-z0-9]', '-', block.name.lower())}"
    code = block.text.replace("broker:9092", kafka.bootstrap_servers)
    code = code.replace('"/checkpoints/', f'"{tmp_path}/').replace('"/var/log/', f'"{tmp_path}/')
    code = code.replace("port=9404", "port=0")
    code = re.sub(r'"events(-to-kafka)?"', rf'"{own}\1"', code)
    for action in (".start()", ".save()"):
        code = code.replace(action, f".options(**one_broker){action}")
    one_broker = ONE_BROKER if "exactly-once" in code else {}
    if code.lstrip().startswith("."):
        options = eval(f"(options{code})", {"options": Options(one_broker)})
        if not options:
            pytest.skip("it names code of the reader's own: tests/unit/test_your_own_code.py")
        rows = spark.range(EVENTS).selectExpr("CAST(id AS STRING) AS value")
        writer = rows.write.format("pykafka-sink").mode("append").options(**options)
        writer.option("kafka.bootstrap.servers", kafka.bootstrap_servers).save(topic=own)
        assert len(read_topic(kafka.bootstrap_servers, own)) == EVENTS
        return
    names = {"spark": spark, "events": events, "one_broker": one_broker}
    exec(compile(code, block.name, "exec"), names)
    if "listening" in names:
        names["listening"].close()
    if "query" in names:
        names["query"].processAllAvailable()
        names["query"].stop()
        assert len(read_topic(kafka.bootstrap_servers, own)) == EVENTS


@pytest.mark.long
def test_the_quickstart_in_a_virtual_environment_that_is_not_activated(tmp_path):
    script = tmp_path / "quickstart.py"
    script.write_text(QUICKSTART.text, encoding="utf-8")
    done = FreshPython.create(tmp_path).run(script)
    assert done.returncode == 0, done.stderr
    values = done.stdout.split()
    (shown,) = blocks("README.md", "text")
    assert values == shown.text.split()


@pytest.mark.long
def test_the_tutorial_prints_what_it_shows(tmp_path):
    script = tmp_path / "tutorial.py"
    script.write_text("\n".join(block.text for block in blocks(TUTORIAL, "python")), "utf-8")
    done = FreshPython.create(tmp_path).run(script)
    assert done.returncode == 0, done.stderr
    printed = [line for line in done.stdout.splitlines() if line]
    assert printed == [
        line for shown in blocks(TUTORIAL, "text") for line in shown.text.splitlines()
    ]


@pytest.mark.long
def test_the_notebook(tmp_path):
    notebook = nbformat.read(REPOSITORY / "examples" / "quickstart.ipynb", as_version=4)
    assert all(not cell.get("outputs") for cell in notebook.cells), "clear the outputs"
    resources = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(
        notebook, timeout=None, kernel_name="python3", resources=resources
    ).execute()
    printed = [
        output["text"]
        for cell in notebook.cells
        for output in cell.get("outputs", ())
        if output.get("name") == "stdout"
    ]
    assert any("1000 records acknowledged" in text for text in printed)
    assert sum(text.count('"square":') for text in printed) >= 5 + 3


ISSUE = "docs/upstream/spark-continuous-trigger.md"
# Instead of some seconds: until the first epoch is committed, or the query has ended.
FIRST_COMMIT = (
    "query.awaitTermination(15)",
    "next(n for n in range(10**6) if query.awaitTermination(1) or os.path.exists(folder + '/commits/0'))",
)


def run_reproduction(folder, *changes):
    [block] = blocks(ISSUE, "python")
    code = block.text
    for old, new in changes:
        assert old in code
        code = code.replace(old, new)
    script = folder / "reproduction.py"
    script.write_text(code, encoding="utf-8")
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    return subprocess.run(
        [sys.executable, str(script)], env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.long
def test_a_continuous_trigger_commits_rows_that_no_python_sink_was_given(tmp_path):
    done = run_reproduction(tmp_path, FIRST_COMMIT)
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"ended: \d+ exception: None\ncommitted: \[0.*\]\n", done.stdout)
    assert "rows were handed over" not in done.stderr


NOT_FOUND = "[DATA_SOURCE_NOT_FOUND] Failed to find the data source: pykafka-sink."

STARTED_WITHOUT_PYSPARK_PYTHON = """
from pyspark.sql import SparkSession

import pyspark_kafka_sink
import spark_kafka_sink

builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
spark = builder.config("spark.log.level", "ERROR").getOrCreate()
rows = spark.range(10).selectExpr("CAST(id AS STRING) AS value")
writer = rows.write.format("pykafka-sink").mode("append").option("topic", "{topic}")
writer = writer.option("kafka.bootstrap.servers", "{servers}")
try:
    writer.save()
except Exception as error:
    print(error)
try:
    spark_kafka_sink.configure(builder)
except Exception as error:
    print(error)
pyspark_kafka_sink.register(spark)
writer.save()
print("the interpreter of everything else is still", spark.sparkContext.pythonExec)
"""


class Errors(list[BaseException]):
    """What was raised in threads."""

    def run(self, thread_class, *steps):
        """Call ``steps``, one after the other, in a thread of their own."""
        thread = thread_class(target=self._call, args=steps)
        thread.start()
        thread.join()

    def _call(self, *steps):
        try:
            for step in steps:
                step()
        except Exception as error:
            self.append(error)


@pytest.mark.parametrize("thread_class", [threading.Thread, InheritableThread])
def test_a_thread_finds_the_sink_after_register(spark, kafka, new_topic, write, thread_class):
    topic, errors = new_topic(1), Errors()
    rows = spark.range(10).selectExpr("CAST(id AS STRING) AS value")
    errors.run(thread_class, lambda: write(rows, topic))
    (error,) = errors
    assert NOT_FOUND in str(error)
    assert read_topic(kafka.bootstrap_servers, topic) == []
    errors.clear()
    errors.run(thread_class, lambda: pyspark_kafka_sink.register(spark), lambda: write(rows, topic))
    assert errors == []
    records = read_topic(kafka.bootstrap_servers, topic)
    assert sorted(r.value for r in records) == [b"%d" % number for number in range(10)]


def test_a_stream_started_in_a_thread_finds_the_sink_after_register(
    spark, kafka, new_topic, tmp_path
):
    topic, errors = new_topic(1), Errors()
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "rows.txt").write_text("a\nb\n", encoding="utf-8")

    def stream():
        query = (
            spark.readStream.text(str(tmp_path / "in"))
            .writeStream.format("pykafka-sink")
            .option("kafka.bootstrap.servers", kafka.bootstrap_servers)
            .option("topic", topic)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    errors.run(threading.Thread, lambda: pyspark_kafka_sink.register(spark), stream)
    assert errors == []
    assert sorted(r.value for r in read_topic(kafka.bootstrap_servers, topic)) == [b"a", b"b"]


@pytest.mark.long
def test_a_running_session_with_another_python_finds_the_sink_after_register(
    kafka, new_topic, tmp_path
):
    topic, script = new_topic(1), tmp_path / "write.py"
    code = STARTED_WITHOUT_PYSPARK_PYTHON.format(topic=topic, servers=kafka.bootstrap_servers)
    script.write_text(code, encoding="utf-8")
    done = FreshPython.create(tmp_path).run(script)
    assert done.returncode == 0, done.stderr
    assert NOT_FOUND in done.stdout
    assert "Spark runs already, with the Python python3, which does not have" in done.stdout
    assert "the interpreter of everything else is still python3" in done.stdout
    assert len(read_topic(kafka.bootstrap_servers, topic)) == 10


NAME = "shipped-to-everywhere.pem"
OPTION = "kafka.ssl.truststore.location"


class WhereFilesAre(DataSource):
    """Its rows: who looks, and what is in the file that was found."""

    @classmethod
    def name(cls):
        return "where-files-are"

    def schema(self):
        return "place string, content string"

    def reader(self, schema):
        return Reader(found())


class Reader(DataSourceReader):
    def __init__(self, on_driver):
        self._on_driver = on_driver

    def read(self, partition):
        yield self._on_driver
        yield found()


def found():
    return process_description(), find_file(NAME, OPTION).read_text()


@pytest.mark.slow
def test_by_name_on_the_driver_and_in_tasks(spark, tmp_path):
    path = tmp_path / NAME
    path.write_text("content")
    spark.sparkContext.addFile(str(path))
    assert found() == (process_description(), "content"), "in the process that has the session"
    spark.dataSource.register(WhereFilesAre)
    rows = spark.read.format(WhereFilesAre.name()).load().collect()
    assert [row.content for row in rows] == ["content", "content"]
    on_driver, in_task = (row.place for row in rows)
    assert on_driver.startswith("this process on host ")
    assert in_task.startswith("a Spark task on host ")
