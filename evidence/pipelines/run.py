"""The example of a pipeline, with the real ``spark-pipelines`` and a real Kafka, per version of Spark.

python -m evidence pipelines                                      # all versions, both guarantees
python -m evidence pipelines --spark 4.3.0 --guarantee exactly-once

Each case copies examples/pipeline into a folder of its own and adds to it: a materialised view
beside the sink, a flow that fails until it has been tried twice, and a catalogue that lasts. After
each update, another client reads what a consumer of committed records gets, and the orders in it
are compared with those in the folders. Every step is run and judged, also after one that is wrong.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from evidence.harness.environments import (
    ON_CLUSTERS,
    ROOT,
    clean_environment,
    environment,
    interpreter,
)
from evidence.harness.planning import parser_of, show
from tests.local_kafka import PatientKafka
from tests.reading import read_topic

PAIRS = tuple(pair for pair in ON_CLUSTERS if pair.spark >= "4.1")
AT_LEAST_ONCE, EXACTLY_ONCE = "at-least-once", "exactly-once"
EXAMPLE = ROOT / "examples" / "pipeline"
_CONF = {
    # Tables of an update are known to the next one.
    "spark.sql.catalogImplementation": "hive",
    "spark.sql.shuffle.partitions": "1",
    "spark.ui.enabled": "false",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
_TIMEOUT_S = 1800
_BESIDE = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession

spark = SparkSession.active()


@dp.materialized_view
def orders_of_customers():
    schema = "id BIGINT, customer STRING, amount DOUBLE"
    return spark.read.schema(schema).json("ORDERS/web").groupBy("customer").count()
"""
_FAILING = '''
from pyspark.sql.functions import udf


@udf("BIGINT")
def shaken(number):
    """Fail as long as there are marks, and take one away."""
    marks = os.path.join(os.environ["ORDERS"], "marks")
    for mark in os.listdir(marks):
        os.remove(os.path.join(marks, mark))
        raise RuntimeError("a mood")
    return number


@dp.append_flow(target="orders_topic")
def moody_orders() -> DataFrame:
    return new_orders("moody").withColumn("id", shaken("id"))
'''
"""Each attempt takes one mark away. Spark analyses nothing within a flow, so it is a function of a column."""


class Update:
    """What one run of ``spark-pipelines`` has said. lines: of both outputs"""

    def __init__(self, status, text, took_s):
        self.status = status
        self.text = text
        self.took_s = took_s

    @property
    def lines(self):
        return self.text.splitlines()

    @property
    def ours(self):
        """The lines that the sink has logged, or that name a module of it."""
        return [line for line in self.lines if "spark_kafka_sink" in line]


class Project:
    """A copy of the example. python: that of the environment with Spark"""

    def __init__(self, folder, python, servers, topic, guarantee):
        self.folder = folder
        self.orders = folder / "orders"
        self.topic = topic
        self._python = python
        self._servers = servers
        self._next_id = 0
        self.written = Counter()
        shutil.copytree(EXAMPLE, folder / "pipeline")
        for flow in ("web", "shop", "moody", "marks"):
            (self.orders / flow).mkdir(parents=True)
        self._spec = folder / "pipeline" / "spark-pipeline.yml"
        self._code = folder / "pipeline" / "transformations" / "orders.py"
        self._replace(self._spec, "file:///tmp/orders-pipeline", f"file://{folder}/storage")
        self._replace(self._code, '"topic": "orders"', f'"topic": "{topic}"')
        self._replace(self._code, '"exactly-once"', f'"{guarantee}"')
        self._replace(self._code, '"orders-{query}"', f'"{topic}-{{query}}"')
        self._code.write_text(self._code.read_text(encoding="utf-8") + _FAILING, encoding="utf-8")
        beside = _BESIDE.replace("ORDERS", str(self.orders))
        self._code.with_name("beside.py").write_text(beside, encoding="utf-8")

    @staticmethod
    def _replace(path, text, by):
        content = path.read_text(encoding="utf-8")
        assert text in content, f"{path} has no {text}"
        path.write_text(content.replace(text, by), encoding="utf-8")

    def accept(self, what):
        """Add the option transaction.accept."""
        last = '"value.format": "json",'
        self._replace(self._code, last, f'{last} "transaction.accept": "{what}",')

    def add_orders(self, flow, count=3):
        """Write a file of new orders."""
        numbers = range(self._next_id, self._next_id + count)
        self._next_id += count
        rows = [{"id": n, "customer": f"c{n % 2}", "amount": n / 2} for n in numbers]
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (self.orders / flow / f"{numbers[0]}.json").write_text(text, encoding="utf-8")
        self.written.update(numbers)

    def run(self, *words):
        """Run ``spark-pipelines`` with these words."""
        folder = Path(self._python).parent
        conf = [word for pair in _CONF.items() for word in ("--conf", "=".join(pair))]
        environment = clean_environment(
            PATH=f"{folder}:{os.environ['PATH']}",
            PYSPARK_PYTHON=str(self._python),
            PYTHONPATH=str(ROOT),
            KAFKA=self._servers,
            ORDERS=str(self.orders),
        )
        command = [folder / "spark-pipelines", *conf, *words]
        started = time.monotonic()
        done = subprocess.run(
            [*map(str, command), "--spec", str(self._spec)],
            cwd=self.folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=_TIMEOUT_S,
        )
        return Update(done.returncode, done.stdout, time.monotonic() - started)

    def read(self):
        """How often each order is in the topic, to a reader of committed records."""
        settings = {"isolation.level": "read_committed"}
        records = read_topic(self._servers, self.topic, **settings)
        found = Counter(json.loads(record.value)["id"] for record in records)
        keys = Counter(int(record.key) for record in records)
        assert keys == found, "keys are not the ids of their orders"
        return found


class Case:
    """All steps of one version and one guarantee; ``failures`` says which were wrong."""

    def __init__(self, project, guarantee, logs):
        self._project = project
        self._guarantee = guarantee
        self._logs = logs
        self.failures = []

    def _step(self, name, *words, succeeds=True, tells="", expected=None):
        """Run one update, and compare. expected: how often each order is there; None: as written"""
        update = self._project.run(*words)
        (self._logs / f"{name.replace(' ', '-')}.log").write_text(update.text, encoding="utf-8")
        expected = self._project.written if expected is None else expected
        wrong = []
        if (update.status == 0) != succeeds:
            wrong.append(f"exit code {update.status}")
        if not re.search(tells, update.text):
            wrong.append(f"no {tells!r} in its output")
        found = self._project.read()
        if not self._fits(found, expected):
            wrong.append(_difference(found, expected))
        text = f"{name}: {'; '.join(wrong) or 'as it must be'}"
        print(f"  {text} ({update.took_s:.0f} s, {len(update.lines)} lines, "
              f"{len(update.ours)} of the sink)", flush=True)  # fmt: skip
        if wrong:
            self.failures.append(text)
        return update

    def _fits(self, found, expected):
        if self._guarantee == EXACTLY_ONCE:
            return found == expected
        return found.keys() == expected.keys() and all(
            found[order] >= count for order, count in expected.items()
        )

    def run(self):
        """Run all steps in order."""
        project = self._project
        project.add_orders("web")
        project.add_orders("shop")
        self._step("dry-run", "dry-run", expected=Counter())
        self._step("first update", "run", tells=f"batch 0 of web_orders to {project.topic}: 3 rec")
        project.add_orders("web")
        self._step("second update", "run", tells="batch 1 of web_orders")
        project.add_orders("shop")
        project.add_orders("web")
        self._step("third update", "run", tells="batch 2 of web_orders")
        project.add_orders("web")
        before = project.read()
        self._step(
            "refresh of the view", "run", "--refresh", "orders_of_customers", expected=before
        )
        self._step("update after the refresh", "run")
        self._fail_twice()
        self._refresh_all()

    def _fail_twice(self):
        """A task that fails in two attempts of its flow: the third is the same micro-batch."""
        project = self._project
        project.add_orders("moody")
        for number in range(2):
            (project.orders / "marks" / str(number)).touch()
        self._step("flow that fails twice", "run", tells="a mood")

    def _refresh_all(self):
        """A full refresh writes everything again: with exactly-once, after the user has said so."""
        project = self._project
        if self._guarantee == EXACTLY_ONCE:
            self._step(
                "full refresh without a word",
                *("run", "--full-refresh-all"),
                succeeds=False,
                tells="PKS-TXN-013",
            )
            project.accept("new-query")
        everything = Counter({order: 2 * count for order, count in project.written.items()})
        self._step("full refresh", "run", "--full-refresh-all", expected=everything)
        project.add_orders("shop")
        everything.update(project.written - everything)
        self._step("update after the full refresh", "run", expected=everything)


def _difference(found, expected):
    """The first of the orders that differ, and their number."""
    orders = [n for n in sorted({*found, *expected}) if found[n] != expected[n]]
    first = ", ".join(f"order {n} is there {found[n]} times, not {expected[n]}" for n in orders[:1])
    return f"{first}, and {len(orders) - 1} more"


def run_case(python, spark, guarantee, logs):
    """Run all steps with the Spark of ``python``; return what was wrong."""
    with PatientKafka() as kafka, tempfile.TemporaryDirectory() as folder:
        topic = f"orders-{guarantee}"
        kafka.create_topic(topic, 2)
        project = Project(Path(folder), python, kafka.bootstrap_servers, topic, guarantee)
        print(f"Spark {spark}, {guarantee}, Kafka {kafka.version}:", flush=True)
        into = logs / f"{spark}-{guarantee}"
        into.mkdir(parents=True, exist_ok=True)
        case = Case(project, guarantee, into)
        case.run()
        return [f"Spark {spark}, {guarantee}: {text}" for text in case.failures]


def main(words=None):
    parser = parser_of(__doc__)
    parser.add_argument("--spark", action="append", help="versions of Spark; default: all")
    parser.add_argument("--guarantee", choices=(AT_LEAST_ONCE, EXACTLY_ONCE))
    parser.add_argument("--python", help="that of an environment which has one version of Spark")
    parser.add_argument("--logs", type=Path, default=ROOT / "build" / "pipelines")
    arguments = parser.parse_args(words)
    pairs = [pair for pair in PAIRS if arguments.spark is None or pair.spark in arguments.spark]
    guarantees = [arguments.guarantee] if arguments.guarantee else [AT_LEAST_ONCE, EXACTLY_ONCE]
    if arguments.plan:
        return show(f"Spark {pair.spark}, {one}" for pair in pairs for one in guarantees)
    failures = []
    for pair in pairs:
        python = arguments.python or environment(pair, interpreter(pair.python))
        for guarantee in guarantees:
            failures += run_case(python, pair.spark, guarantee, arguments.logs)
    print(*(failures or ["all is as it must be"]), sep="\n")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
