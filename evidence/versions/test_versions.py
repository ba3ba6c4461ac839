"""The sink in each version of Spark: written by ``program.py`` there, read back here.

Only ``make evidence NAME=versions`` runs it; it makes a virtual environment for each version. What it has
found goes into docs/compatibility.md.
"""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

from evidence.compatibility import results
from evidence.compatibility.table import NOT_IN_3_5
from evidence.harness.environments import PAIRS, environment, interpreter
from tests.local_kafka import PatientKafka
from tests.reading import read_topic

pytestmark = pytest.mark.timeout(3600)

PROGRAM = Path(__file__).with_name("program.py")
COMMAND = "make evidence NAME=versions"
OF_THE_DATA_SOURCE = ("format", "stream")


class Outcome(NamedTuple):
    """What a way of writing leaves for readers of committed records, and what it raises."""

    rows: list[int]
    error: str | None = None


ALL = list(range(3000))
STREAMED = list(range(8 * 50))
EXPECTED = {
    "batch": {
        "write": Outcome(ALL),
        "write-typed": Outcome(ALL),
        "write-bad-schema": Outcome([], "SchemaError: Required attribute 'value' not found"),
        "format": Outcome(ALL),
        "format-typed": Outcome(ALL),
        "format-bad-schema": Outcome([], "Required attribute 'value' not found"),
    },
    "stream": {"stream": Outcome(STREAMED)},
    "foreachBatch": {"foreach": Outcome(STREAMED)},
    "exactly-once batch": {
        "write-exactly-once": Outcome(ALL),
        "write-retried": Outcome(ALL),
        "write-failed": Outcome([], "the row that this task cannot compute"),
        "format-exactly-once": Outcome(ALL),
        "format-retried": Outcome(ALL),
    },
    "exactly-once stream": {
        "foreach-exactly-once": Outcome(STREAMED),
        "foreach-named": Outcome(STREAMED),
        "foreach-two-sinks": Outcome(sorted(STREAMED * 2)),
        "foreach-twice": Outcome(
            list(range(50)), r"micro-batch 0 of query .* is written a second time"
        ),
        "stream-exactly-once": Outcome(STREAMED),
    },
}
"""For each column of docs/compatibility.md: ways of program.py, and what comes of them."""
REFUSED_BY_3_5 = Outcome(
    [], "Failed to find the data source: pykafka-sink|needs Spark 4.0.*spark_kafka_sink.write"
)
"""The second is what ``pyspark_kafka_sink.register`` says, which a way calls first."""


class Run(NamedTuple):
    """What program.py has said."""

    spark: str
    python: str
    prefix: str
    errors: dict[str, str | None]


@pytest.fixture(scope="module")
def broker():
    with PatientKafka() as kafka:
        yield kafka


@pytest.fixture(scope="module", params=PAIRS, ids=str)
def run(request, broker, tmp_path_factory):
    pair = request.param
    python = interpreter(pair.python)
    if python is None:
        pytest.skip(f"there is no Python {pair.python} on this machine")
    prefix = f"{pair}-"
    ways = [way for ways in EXPECTED.values() for way in ways]
    for way in ways:
        broker.create_topic(prefix + way, 2)
    folder = tmp_path_factory.mktemp(str(pair))
    command = [environment(pair, python), PROGRAM, broker.bootstrap_servers, folder, prefix, *ways]
    done = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, text=True, check=True)
    versions, *ways = (json.loads(line) for line in done.stdout.splitlines())
    errors = {way["way"]: way["error"] for way in ways}
    return Run(versions["spark"], versions["python"], prefix, errors)


@pytest.mark.parametrize("what", EXPECTED)
def test_a_version_of_spark(what, run, broker):
    where = {"where": "local", "kafka": broker.version, "command": COMMAND}
    expected = dict(EXPECTED[what])
    if run.spark.startswith("3."):
        refused = {way: REFUSED_BY_3_5 for way in expected if way.startswith(OF_THE_DATA_SOURCE)}
        expected.update(refused)
    is_all_refused = all(outcome is REFUSED_BY_3_5 for outcome in expected.values())
    no = NOT_IN_3_5 if is_all_refused else ""
    with results.of(spark=run.spark, python=run.python, what=what, no=no, **where):
        for way, outcome in expected.items():
            error = run.errors[way]
            if outcome.error is None:
                assert error is None, way
            else:
                assert re.search(outcome.error, error or "", re.DOTALL), way
            records = read_topic(broker.bootstrap_servers, run.prefix + way)
            assert sorted(number_in(record.value) for record in records) == outcome.rows, way


def number_in(value):
    """The row's, of a text or of JSON with fields."""
    found = json.loads(value or b"-1")
    return int(found["id"] if isinstance(found, dict) else found)
