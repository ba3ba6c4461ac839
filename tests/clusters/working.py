"""Running work.py, and reading back what it has written."""

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

from spark_kafka_sink.localkafka.settings import DEFAULT_VERSION
from tests.clusters.work import BATCH_ROWS
from tests.compatibility import results
from tests.compatibility.refused import NOT_IN_3_5
from tests.patience import PATIENCE_S
from tests.reading import read_topic

REPOSITORY = Path(__file__).resolve().parents[2]
WORK = Path(__file__).with_name("work.py")
BATCHES = ("batch", "exactly-once batch")
FILES = 3
ROWS_PER_FILE = 500
PARTITIONS = 3
COMMAND = "make test-clusters"
KAFKA = DEFAULT_VERSION
_OF_SPARK = ("PYTHON", "PYSPARK", "SPARK")
_numbers = itertools.count(1)


class Job:
    """One run of work.py: its topics, its input and its checks."""

    def __init__(self, kafka, folder):
        self.kafka = kafka
        self.folder = folder
        self.topic = f"work-{os.getpid()}-{next(_numbers)}"
        for what in results.WHAT:
            kafka.create_topic(self.topic_of(what), PARTITIONS)
        (folder / "in").mkdir(parents=True)
        for number in range(FILES):
            lines = "".join(f"{n}\n" for n in _rows_of_file(number))
            (folder / "in" / f"{number}.txt").write_text(lines, encoding="utf-8")
            # Spark takes the oldest first.
            os.utime(folder / "in" / f"{number}.txt", (1_700_000_000 + number,) * 2)

    def topic_of(self, what):
        return f"{self.topic}-{what.replace(' ', '-')}"

    def arguments(self, *what, conf=None):
        """Of work.py."""
        settings = [w for name, value in (conf or {}).items() for w in ("--set", f"{name}={value}")]
        servers = self.kafka.bootstrap_servers
        return [servers, self.topic, str(self.folder), *settings, *what]

    def check(self, what):
        """Every row is there, once; and one line of metrics for each unit."""
        records = read_topic(self.kafka.bootstrap_servers, self.topic_of(what))
        wanted = range(BATCH_ROWS) if what in BATCHES else range(FILES * ROWS_PER_FILE)
        assert sorted(int(r.value or b"-1") for r in records) == list(wanted)
        assert all(r.key == r.value for r in records)
        assert [line["event"] for line in self.metrics(what)] == ["commit"] * self.units(what)

    def check_refused(self, what):
        """Spark has refused it, and nothing was written."""
        assert (self.folder / f"refused-{what}").exists()
        assert read_topic(self.kafka.bootstrap_servers, self.topic_of(what)) == []

    def units(self, what):
        return 1 if what in BATCHES else FILES

    def metrics(self, what):
        path = self.folder / f"metrics-{what.replace(' ', '-')}.jsonl"
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _rows_of_file(number):
    return range(number * ROWS_PER_FILE, (number + 1) * ROWS_PER_FILE)


def clean_environment(**more):
    """Without what names a Spark or a Python."""
    kept = {n: v for n, v in os.environ.items() if not n.startswith(_OF_SPARK)}
    return {**kept, **more}


def run(command, environment, cwd=None):
    """What a command prints on stdout and stderr. It must succeed."""
    done = subprocess.run(
        command,
        env=dict(environment),
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:]
    return done.stdout


def with_this_python(**more):
    """Driver and Python workers are this interpreter, with this checkout."""
    return clean_environment(PYSPARK_PYTHON=sys.executable, PYTHONPATH=str(REPOSITORY), **more)


def check_and_record(job, where, spark, python="", command=COMMAND):
    """Once the job has ended: each kind of work is checked, and its result kept."""
    for what in results.WHAT:
        refused = NOT_IN_3_5 if (what, spark[:2]) == ("stream", "3.") else ""
        with results.of(
            what=what,
            where=where,
            kafka=KAFKA,
            spark=spark,
            python=python,
            command=command,
            no=refused,
        ):
            if refused:
                job.check_refused(what)
            else:
                job.check(what)
