"""The table of all programs: what each runs, what it proves, how long it takes, and what it needs.

Nothing is imported here but the standard library: ``make evidence`` reads the table before there is
an environment to run the program in.
"""

from __future__ import annotations

from typing import NamedTuple

LONG, ALL = "long", "long or not long"


class Program(NamedTuple):
    """One row.

    module: has ``main(words)``, which returns an exit code; "" if it is a suite of pytest
    tests: files and folders of the suite; marks: which of its tests, as pytest takes it
    document: the module whose ``PAGES`` are written afterwards, with the suite's results
    environment: the extra of pyproject.toml, beside ``dev``; "release" has an environment of its own
    machine: what has to be installed on the machine, beside Java
    usual: words that it is given if there are none
    before: what is merged, or done, when it has been run
    """

    proves: str
    takes: str
    module: str = ""
    tests: tuple[str, ...] = ()
    marks: str = LONG
    document: str = ""
    environment: str = "dev"
    machine: str = ""
    usual: tuple[str, ...] = ()
    before: str = "a release"


_LONG_TESTS = (
    "evidence/long",
    "tests/broker",
    "tests/spark",
    "tests/kernels",
    "tests/simulation",
    "tests/golden",
)

PROGRAMS = {
    "chaos": Program(
        "2 million records each arrive once, through brokers that are killed, paused, restarted, cut off",
        "20 min",
        "evidence.chaos.brokers",
        before="a change of producer/ or network/",
    ),
    "exactly-once": Program(
        "400 micro-batches are exact although drivers, workers and brokers die at every step, per Kafka",
        "2 h",
        "evidence.chaos.exactly_once",
        before="a change of transactions/",
    ),
    "lost": Program(
        "nothing is missing after 20 kills each of Python workers, executors and nodes, while Spark writes",
        "2 h",
        "evidence.lost.run",
        usual=("--missing", "--keep"),
    ),
    "planted": Program(
        "`chaos`, `lost` and `exactly-once` turn red with bugs in a copy of the package",
        "20 min",
        "evidence.chaos.planted",
    ),
    "stops": Program(
        "200 streams and jobs that are stopped, interrupted or ended at any point leave no transaction open",
        "50 min",
        "evidence.stops.run",
        usual=("--keep",),
        before="a change of transactions/",
    ),
    "pairs": Program(
        "every two capabilities work together, a worker killed in each job, in Spark 3.5 to 4.3",
        "10 min",
        "evidence.pairs.run",
        environment="registry",
    ),
    "week": Program(
        "all capabilities work together, on secured brokers and a cluster, under a seeded schedule of faults",
        "1 h",
        "evidence.week.run",
        usual=("--keep",),
        environment="registry",
        machine="Debian's prometheus and gcc are used if they are there",
    ),
    "fleet": Program(
        "10,000 simulated producers start at once, and a broker restarts: all are served",
        "20 min",
        "evidence.scale.fleet",
    ),
    "everything": Program(
        "all others, and the long targets of the Makefile, have passed on one commit; goes on where it stopped",
        "12 h",
        "evidence.everything",
    ),
    "pages": Program(
        "the pages of docs/ say what the kept results say; `make docs` runs it, too",
        "1 s",
        "evidence.pages",
    ),
    "versions": Program(
        "everything works in Spark 3.5 to 4.3 with Python 3.9 to 3.14, clusters and Connect of each, and "
        "with brokers of Kafka 2.1 to today's and others",
        "1 h",
        tests=("evidence/brokers_versions", "evidence/kfake", "evidence/versions"),
        document="evidence.compatibility.table",
        machine="Go; Pythons on the PATH, or pyenv's",
    ),
    "pipelines": Program(
        "the example of a declarative pipeline is exact in each Spark that has them, through failures and "
        "full refreshes",
        "40 min",
        "evidence.pipelines.run",
        machine="Pythons on the PATH, or pyenv's",
    ),
    "clusters": Program(
        "Spark's own clusters, Connect, every way to bring the package; one run of each loss",
        "30 min",
        tests=("evidence/clusters", "evidence/lost"),
    ),
    "parity": Program(
        "the cases of Spark's own suites do the same through both sinks, in Spark 3.5 to 4.3",
        "10 min",
        tests=("evidence/parity",),
        document="evidence.parity.results",
    ),
    "registry": Program(
        "what is written with a real schema registry is read back by Confluent's own deserializers",
        "3 min",
        tests=("evidence/registry",),
        environment="registry",
    ),
    "formats": Program(
        "a million random rows of 100 schemas are those of Spark's to_json and to_avro; FORMATS_SEED=…",
        "4 min",
        tests=("evidence/formats",),
        environment="registry",
    ),
    "security": Program(
        "every login and store works through both of Spark's sinks, also when sessions end and keys change, "
        "and no secret is written anywhere; KAFKA_VERSION=3.9.1 for older brokers",
        "35 min",
        tests=(
            "tests/security/test_matrix.py",
            "evidence/security",
        ),
        marks=ALL,
    ),
    "mistakes": Program(
        "each mistake of users in mistakes.txt, made for real, shows its cause and its cure",
        "2 min",
        tests=("evidence/mistakes",),
        before="a change of an error",
    ),
    "first-lines": Program(
        "what the log says first in each of 21 outages, and after how long, beside Spark's own sink",
        "15 min",
        "evidence.outage.first_lines",
    ),
    "telemetry": Program(
        "a broker that asks for metrics (KIP-714) gets them, as from librdkafka; Prometheus and its push "
        "gateway read them, and the dashboard's queries answer",
        "2 min",
        tests=("evidence/telemetry", "evidence/monitoring"),
        machine="a JDK; Debian's prometheus and prometheus-pushgateway",
    ),
    "report": Program(
        "the page of `pykafka-sink report` works in a real browser, and finds the cause where a batch was made "
        "slow in six ways",
        "4 min",
        tests=("evidence/browser",),
        environment="browser",
        machine="Debian's chromium-headless-shell",
    ),
    "macos": Program(
        "kernels, sockets, a local Kafka, quickstart, tutorial and demo work on a Mac, with a report to "
        "paste into an issue; without make: `python3 -m evidence macos`",
        "10 min",
        "evidence.macos.laptop",
        machine="a Mac",
    ),
    "publishing": Program(
        "the files of a release: types, licences, the recipe for conda, all unit tests from the sdist",
        "6 min",
        tests=("evidence/publishing",),
        marks=ALL,
        environment="release",
        machine="Debian's lld",
    ),
    "long": Program(
        "what takes a minute each beside quicker tests of the same: executors in JVMs of their own, two "
        "drivers, Ctrl-C, the tutorial in a fresh environment, clusters of three brokers, an outage at planning",
        "12 min",
        tests=_LONG_TESTS,
        before="a push",
    ),
}


def table() -> str:
    """Return the table of README.md."""
    lines = ["| name | proves | takes | needs | run it before |", "| --- | --- | --- | --- | --- |"]
    for name, p in PROGRAMS.items():
        extra = "" if p.environment == "dev" else f"the extra `{p.environment}`"
        needs = "; ".join(filter(None, (extra, p.machine))) or "–"
        lines.append(f"| `{name}` | {p.proves} | {p.takes} | {needs} | {p.before} |")
    return "\n".join(lines)
