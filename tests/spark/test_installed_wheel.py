"""The wheel in a virtual environment of its own: its command, the files in it, and a job."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from typing import NamedTuple

import pyspark
import pytest

from tests.reading import read_topic
from tests.spark.test_jobs import QUIET
from tests.spark.test_streaming import write_file

pytestmark = pytest.mark.timeout(1800)
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


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    made = Installed(tmp_path_factory.mktemp("installed"))
    venv.create(made.folder, with_pip=False, symlinks=True)
    install = ["-m", "pip", "--python", str(made.python), "install", "--quiet", "--no-deps"]
    subprocess.run([sys.executable, *install, str(wheel)], check=True)
    # The other packages are those of this environment; a plain line leaves out its .pth files.
    others = made.site_packages / "others.pth"
    others.write_text(sysconfig.get_paths()["purelib"] + "\n", encoding="utf-8")
    return made


def test_jobs_conf_and_docs_are_installed(installed):
    share = installed.site_packages / "spark_kafka_sink" / "share"
    for kind, file in [("jobs", "demo.py"), ("conf", "throughput.conf"), ("docs", "options.md")]:
        assert installed.command(kind, "--where") == str(share / kind)
        assert (share / kind / file).is_file()
    job = installed.command("job", "stream_to_kafka")
    assert job == str(share / "jobs" / "stream_to_kafka.py")
    assert installed.command("conf", "throughput") == str(share / "conf" / "throughput.conf")
    assert installed.command("docs", "tuning") == str(share / "docs" / "tuning.md")


def test_a_batch_job_of_the_wheel(installed, kafka, new_topic, tmp_path):
    topic, folder = new_topic(2), tmp_path / "in"
    folder.mkdir()
    write_file(folder, 0)
    conf = tmp_path / "job.conf"
    shipped = Path(installed.command("conf", "throughput")).read_text(encoding="utf-8")
    conf.write_text(shipped + QUIET, encoding="utf-8")
    done = installed.run(
        str(SPARK_HOME / "bin" / "spark-submit"),
        "--properties-file",
        str(conf),
        installed.command("job", "batch_to_kafka"),
        "--bootstrap-servers",
        kafka.bootstrap_servers,
        "--topic",
        topic,
        "--input",
        str(folder),
        "--key",
        "id",
        "--option",
        f"metrics.path={tmp_path / 'metrics.jsonl'}",
    )
    assert done.returncode == 0, done.stderr
    written = read_topic(kafka.bootstrap_servers, topic)
    assert sorted(int(record.key) for record in written if record.key) == list(range(20))
    [line] = (tmp_path / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    metrics = json.loads(line)["metrics"]
    assert metrics["load_ms"] > 0
