"""Spark Connect: the sink runs on the server and its executors, the client has no Java."""

import json
import subprocess
from pathlib import Path

import nbclient
import nbformat
import pyspark
import pytest

from evidence.clusters.working import (
    WORK,
    check_and_record,
    client_environment,
    client_python,
    run,
    start_server,
)
from evidence.harness.standalone import StandaloneCluster
from spark_kafka_sink.__main__ import main
from tests.reading import read_topic
from tests.snippets import blocks

SESSIONS = Path(__file__).with_name("sessions.py")
REGISTER = Path(__file__).with_name("registering.py")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """With cores for two servers."""
    folder = tmp_path_factory.mktemp("standalone")
    with StandaloneCluster(folder, cores=2, memory="2g") as standalone:
        yield standalone


@pytest.fixture(scope="module")
def url(cluster):
    """Of a server whose Python has the sink."""
    return start_server(cluster, "connect", with_sink=True)


@pytest.fixture(scope="module")
def url_without_sink(cluster):
    """Of a server whose Python has what the sink needs, and not the sink."""
    return start_server(cluster, "connect-without-sink", with_sink=False)


@pytest.fixture
def sink_zip(tmp_path):
    path = tmp_path / "sink.zip"
    assert main(["package", "--output", str(path)]) == 0
    return str(path)


def test_all_kinds_of_writes_from_a_client_that_has_neither_java_nor_the_sink(url, job):
    run([client_python(), str(WORK), *job.arguments()], client_environment(url))
    check_and_record(job, "connect", pyspark.__version__)


def test_without_the_sink_on_the_server_register_says_what_is_missing(url_without_sink, sink_zip):
    """Spark sends the name of the class, not its code."""
    own = client_environment(url_without_sink, PYTHONPATH=sink_zip)
    said = run([client_python(), str(REGISTER)], own)
    assert "[DATA_SOURCE_NOT_FOUND]" in said
    assert "ConfigError: the Python of the Spark Connect server has no module" in said
    assert 'spark.addArtifacts("sink.zip", pyfile=True) before register(spark)' in said


@pytest.mark.parametrize(
    ("what", "more"),
    [
        (("batch", "exactly-once batch", "foreachBatch"), ["--register"]),
        (("foreachBatch",), ["--functions"]),
    ],
)
def test_the_sink_comes_with_the_session_as_an_artifact(
    what, more, url_without_sink, job, sink_zip
):
    own = client_environment(url_without_sink, PYTHONPATH=sink_zip)
    brought = ["--artifact", sink_zip, *more]
    run([client_python(), str(WORK), *job.arguments(*what), *brought], own)
    for one in what:
        job.check(one)


def test_tasks_of_a_stream_do_not_get_the_artifacts_of_a_session(url_without_sink, job, sink_zip):
    """A limit of Spark: docs/clusters.md names the ways around."""
    own = client_environment(url_without_sink, PYTHONPATH=sink_zip)
    brought = ["--artifact", sink_zip, "--register"]
    done = subprocess.run(
        [client_python(), str(WORK), *job.arguments("stream"), *brought],
        env=own,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    # Python names the package or the first of its modules that it does not find.
    assert "No module named 'spark_kafka_sink" in done.stderr


def test_sessions_at_once_have_each_their_own_options(url, job):
    arguments = [job.kafka.bootstrap_servers, job.topic_of("batch"), job.topic_of("stream")]
    run([client_python(), str(SESSIONS), *arguments, str(job.folder)], client_environment(url))
    records = [read_topic(arguments[0], topic) for topic in arguments[1:]]
    for number, found in enumerate(records):
        assert sorted(int(r.value or b"-1") for r in found) == list(range(600))
        assert {r.headers for r in found} == {(("session", b"%d" % number),)}
    lines = [(job.folder / f"session-{n}.jsonl").read_text().splitlines() for n in (0, 1)]
    assert [len(one) for one in lines] == [3, 3]


def test_the_document_in_a_notebook_without_java(url, kafka, tmp_path, monkeypatch):
    """Its first lines for Spark Connect; the second, which bring the sink, are in work.py."""
    documented, _ = (b for b in blocks("docs/clusters.md", "python") if b.is_for_connect)
    code = documented.text.replace("sc://server:15002", url)
    code = code.replace("broker:9092", kafka.bootstrap_servers)
    own = {**client_environment(url), "PYTHONPATH": "", "SPARK_REMOTE": ""}
    launcher = [client_python(), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    kernel = {"argv": launcher, "display_name": "client", "language": "python", "env": own}
    (tmp_path / "kernels" / "client").mkdir(parents=True)
    (tmp_path / "kernels" / "client" / "kernel.json").write_text(json.dumps(kernel))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    cells = [nbformat.v4.new_code_cell(text) for text in (code, "print(type(spark).__module__)")]
    notebook = nbformat.v4.new_notebook(cells=cells)
    nbclient.NotebookClient(notebook, timeout=None, kernel_name="client").execute()
    assert "pyspark.sql.connect.session" in notebook.cells[1].outputs[0]["text"]
    records = read_topic(kafka.bootstrap_servers, "numbers")
    assert sorted(int(r.value or b"-1") for r in records) == list(range(1000))
