"""The jobs, run by spark-submit as in production."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.broker.processes import eventually
from tests.reading import read_topic
from tests.spark.test_streaming import write_file

REPOSITORY = Path(__file__).resolve().parents[2]
SPARK_SUBMIT = Path(sys.executable).parent / "spark-submit"
QUIET = """
spark.master            local[2]
spark.ui.enabled        false
spark.ui.showConsoleProgress false
spark.log.level         ERROR
"""


class Job:
    """A running spark-submit and its output."""

    def __init__(self, arguments: list[str], folder: Path) -> None:
        self.output = folder / f"output-{len(list(folder.iterdir()))}.txt"
        with self.output.open("w", encoding="utf-8") as output:
            self.process = subprocess.Popen(
                [str(SPARK_SUBMIT), *arguments],
                stdout=output,
                stderr=subprocess.STDOUT,
                env=dict(os.environ, PYSPARK_PYTHON=sys.executable),
                start_new_session=True,
            )

    def text(self) -> str:
        return self.output.read_text(encoding="utf-8")

    def wait(self, timeout_s: float = 90) -> int:
        return self.process.wait(timeout_s)


@pytest.fixture
def conf(kafka, tmp_path):
    """Writes a properties file."""

    def create(**lines: str) -> Path:
        path = tmp_path / "job.conf"
        settings = {"kafka.bootstrap.servers": kafka.bootstrap_servers, **lines}
        text = "".join(f"spark.pykafka.{name} {value}\n" for name, value in settings.items())
        path.write_text(QUIET + text, encoding="utf-8")
        return path

    return create


@pytest.fixture
def submit(tmp_path) -> Iterator[object]:
    """Starts jobs, and leaves none behind."""
    jobs: list[Job] = []

    def run(conf: Path, script: str, *arguments: str) -> Job:
        command = ["--properties-file", str(conf), str(REPOSITORY / "jobs" / script), *arguments]
        jobs.append(Job(command, tmp_path))
        return jobs[-1]

    yield run
    for job in jobs:
        if job.process.poll() is None:
            os.killpg(job.process.pid, signal.SIGKILL)
            job.wait()


def ids(kafka, topic: str) -> list[int]:
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
    assert "rows read" in job.text()
    assert '"event": "commit"' in job.text()


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
        }
    )
    job = submit(settings, "stream_to_kafka.py", "--trigger", "1 second")
    assert eventually(lambda: "0 of 3 files left" in job.text(), 90), job.text()
    if how.startswith("SIGTERM"):
        job.process.send_signal(signal.SIGTERM)
        assert job.wait(30) == 128 + signal.SIGTERM
    else:
        os.killpg(job.process.pid, signal.SIGINT)
        assert job.wait(30) == 0
    assert "60 rows" in job.text()
    assert "Traceback" not in job.text()
    for number in range(3, 5):
        write_file(folder, number)
    job = submit(settings, "stream_to_kafka.py", "--trigger", "available-now")
    assert job.wait() == 0, job.text()
    assert "40 rows" in job.text()
    assert ids(kafka, topic) == list(range(100))


def test_wrong_settings_are_named(conf, submit, tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    write_file(folder, 0)
    settings = conf(**{"tpoic": "t"})
    job = submit(settings, "batch_to_kafka.py", "--input", str(folder))
    assert job.wait() == 2
    assert "the sink has no option 'tpoic'. Did you mean 'topic'?" in job.text()
