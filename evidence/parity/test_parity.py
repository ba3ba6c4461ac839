"""The cases in each version of Spark: written by ``cases.py`` there, read back and compared here.

What it has found goes into docs/internals/parity.md, which is what
its results say.
"""

from __future__ import annotations

import datetime
import json
import os
import subprocess
from collections import Counter
from typing import Any, NamedTuple

import pytest

from evidence.harness.environments import ROOT, Pair, environment, interpreter
from evidence.parity import results
from evidence.parity.results import EXPECTED, SKIPPED, Expected, Result
from evidence.parity.world import CASES, OURS, SPARKS, topic_name
from spark_kafka_sink.localkafka import fetch_jars
from tests.local_kafka import PatientKafka
from tests.reading import read_topic


class Sink(NamedTuple):
    """Versions of Spark's own sink and of what it needs, as far as Maven Central has them."""

    scala: str
    sink: str
    tokens: str
    client: str

    def modules(self):
        return [
            f"org.apache.spark:spark-sql-kafka-0-10_{self.scala}:{self.sink}",
            f"org.apache.spark:spark-token-provider-kafka-0-10_{self.scala}:{self.tokens}",
            f"org.apache.kafka:kafka-clients:{self.client}",
            "org.apache.commons:commons-pool2:2.12.1",
        ]


SINKS = {
    Pair("3.5.9", "3.11"): Sink("2.12", "3.5.7", "3.5.7", "3.4.1"),
    Pair("4.0.2", "3.12"): Sink("2.13", "4.0.2", "4.0.0", "3.9.1"),
    Pair("4.1.4", "3.10"): Sink("2.13", "4.1.3", "4.1.1", "3.9.1"),
    Pair("4.2.1", "3.12"): Sink("2.13", "4.2.0", "4.2.0", "3.9.1"),
    Pair("4.3.0", "3.11"): Sink("2.13", "4.2.0", "4.2.0", "3.9.1"),
}


class Told(NamedTuple):
    """What cases.py says of one case and one sink."""

    error: str | None
    refused: list[str]
    seen: dict[str, Any] | None


class Run(NamedTuple):
    """All that one program said, and where it wrote."""

    versions: dict[str, str]
    prefix: str
    servers: str
    told: dict[tuple[str, str], Told]


@pytest.fixture(scope="module")
def broker():
    """As Spark's suites have it: topics are not created by writing to them."""
    with PatientKafka(server_properties={"auto.create.topics.enable": "false"}) as kafka:
        yield kafka


@pytest.fixture(scope="module", params=SINKS, ids=str)
def run(request, broker, tmp_path_factory):
    pair = request.param
    python = interpreter(pair.python)
    if python is None:
        pytest.skip(f"there is no Python {pair.python} on this machine")
    prefix = f"{pair}."
    for case in CASES.values():
        for topic, partitions in case.topics.items():
            for sink in (OURS, SPARKS):
                broker.create_topic(topic_name(prefix, case.name, topic, sink), partitions)
    jars = fetch_jars(SINKS[pair].modules(), f"jvm-sink-of-{pair}", transitive=False)
    told = _program(
        environment(pair, python), broker, tmp_path_factory.mktemp(str(pair)), prefix, jars
    )
    found = {(t.pop("case"), t.pop("sink")): Told(**t) for t in told[1:]}
    return Run(told[0], prefix, broker.bootstrap_servers, found)


def _program(python, broker, folder, prefix, jars):
    joined = ",".join(map(str, jars))
    words = ("-m", "evidence.parity.cases", broker.bootstrap_servers, folder, prefix, joined)
    variables = {"PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": str(python)}
    done = subprocess.run(
        [str(python), *map(str, words)],
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.timeout(3600)
def test_every_case(run):
    """One test, so that the results of a version are of one run."""
    problems, found = [], []
    today = datetime.date.today().isoformat()
    spark, python = run.versions["spark"], run.versions["python"]
    sink = next(own.sink for pair, own in SINKS.items() if pair.spark == spark)
    for name in CASES:
        outcome = SKIPPED
        if (name, OURS) in run.told and "skipped" not in (run.told[name, OURS].seen or {}):
            expected = EXPECTED.get(name, Expected())
            outcome = expected.outcome
            problems += [f"{name}: {problem}" for problem in differences(run, name, expected)]
        found.append(Result(spark, python, sink, name, outcome, today))
    assert not problems, "\n".join(problems)
    results.replace(found, spark)


def differences(run, name, expected):
    """What is not as expected."""
    ours, sparks = run.told[name, OURS], run.told[name, SPARKS]
    if sparks.error:
        yield f"Spark's sink failed: {sparks.error}"
    is_as_expected = (expected.error is None) == (ours.error is None)
    if not is_as_expected or (expected.error or "") not in (ours.error or ""):
        yield f"this sink raised {ours.error}, not {expected.error}"
    yield from unsaid(ours.refused, expected.ours or expected.says, "this sink")
    yield from unsaid(sparks.refused, expected.sparks or expected.says, "Spark's sink")
    if expected.seen is not None:
        if (ours.seen, sparks.seen) != (expected.seen, dict.fromkeys(expected.seen, True)):
            yield f"seen {ours.seen}, Spark's {sparks.seen}"
    elif expected.error is None and ours.seen != sparks.seen:
        yield f"seen {ours.seen}, Spark's {sparks.seen}"
    elif False in (sparks.seen or {}).values():
        yield f"seen of both: {sparks.seen}"
    is_written = expected.error is None and expected.seen is None and not sparks.refused
    for topic in CASES[name].topics:
        if topic != "source":
            yield from other_rows(run, name, topic, is_written)


def unsaid(refused, says, who):
    if len(refused) != len(says):
        yield f"{who} refused {len(refused)} times, not {len(says)}"
    for text, part in zip(refused, says):
        if part not in text.replace("`", "").lower():
            yield f"{who} does not say '{part}' in: {text}"


def other_rows(run, name, topic, is_written):
    """Of the topic of both sinks; if not ``is_written``, this sink's has none."""
    ours, theirs = (
        read_topic(run.servers, topic_name(run.prefix, name, topic, sink))
        for sink in (OURS, SPARKS)
    )
    if not is_written:
        if ours:
            yield f"{len(ours)} records in {topic}, which should be empty"
        return
    if content(ours) != content(theirs):
        yield f"other records in {topic}: {content(ours) - content(theirs)}, Spark's "
        yield f"{content(theirs) - content(ours)}"
    if not ours:
        yield f"nothing in {topic}"


def content(records):
    """Records; those without key count on any partition."""
    return Counter(
        (r.partition if r.key is not None else None, r.key, r.value, r.headers) for r in records
    )
