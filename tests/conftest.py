"""Fixtures that several folders of tests use, and what holds for all tests."""

import functools
import gc
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import hypothesis
import pytest

from spark_kafka_sink.localkafka.cluster import PORTS_VARIABLE, usual_ports
from spark_kafka_sink.spark.commit import BatchSummary
from tests.lines import check_text, lines_in
from tests.local_kafka import PatientKafka

# How long an example takes is a matter of the machine's load, and so is "too slow".
hypothesis.settings.register_profile(
    "any-load",
    deadline=None,
    # What replays an example, from CI's log alone.
    print_blob=True,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("any-load")


def _ports_of_this_process():
    """A part of the ports of its own: a broker that is stopped must find its port free again."""
    count = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    ports = usual_ports()
    if count == 1 or len(ports) < count:
        return None
    number = int(os.environ["PYTEST_XDIST_WORKER"].removeprefix("gw"))
    mine = ports[len(ports) * number // count : len(ports) * (number + 1) // count]
    return f"{mine[0]}-{mine[-1]}"


if (_ports := _ports_of_this_process()) is not None:
    os.environ[PORTS_VARIABLE] = _ports

# Tests that start Spark, or a part of it, in processes of their own. All others share two sessions.
WITH_A_SPARK_OF_THEIR_OWN = (
    *("test_jobs.py", "TestKilledDriver"),
    *("test_the_notebook", "test_the_quickstart", "test_the_tutorial"),
)
WITH_SPARK = "tests/spark/"
WITH_THE_OTHER_SPARK = ("test_rows.py", "test_refusals.py", "test_formats.py")
"""Half of the tests of the session, by their time."""
# These share two secured brokers.
SECURED = "tests/security/"
ONE_BY_ONE = ("::test_a_planted_bug_is_caught",)
LONGEST_FIRST = (
    "a session of Spark",
    "another session of Spark",
    "tests/spark",
    SECURED,
    "tests/broker",
    "tests/simulation",
    "tests/golden",
)


def group_of(nodeid):
    """Tests of a group run in one process, one after the other: what `make test` shares."""
    if any(test in nodeid for test in ONE_BY_ONE):
        return nodeid
    file = nodeid.split("::")[0]
    has_its_own = any(part in nodeid for part in WITH_A_SPARK_OF_THEIR_OWN)
    if file.startswith(WITH_SPARK) and not has_its_own:
        is_other = file.endswith(WITH_THE_OTHER_SPARK)
        return "another session of Spark" if is_other else "a session of Spark"
    return SECURED if file.startswith(SECURED) else file


def place_of(nodeid):
    """Long groups begin first, so that no process is left alone with one at the end."""
    group = group_of(nodeid)
    places = (n for n, start in enumerate(LONGEST_FIRST) if group.startswith(start))
    return next(places, len(LONGEST_FIRST))


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Without the garbage collector, which walks over all tests again and again, then and later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
        # After each 700 new objects, as by default, it takes a fifth of the time of some tests.
        gc.set_threshold(50_000)


UNIT_S, LONG_S = 60, 2700
"""A test that has not ended by then hangs; others have the 300 s of pyproject.toml."""


def pytest_collection_modifyitems(items):
    for item in items:
        if item.get_closest_marker("timeout") is None:
            if item.get_closest_marker("long") is not None:
                item.add_marker(pytest.mark.timeout(LONG_S))
            elif item.nodeid.startswith("tests/unit/"):
                item.add_marker(pytest.mark.timeout(UNIT_S))
    if "PYTEST_XDIST_WORKER" in os.environ:
        items.sort(key=lambda item: place_of(item.nodeid))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Not by xdist's own groups: those of xdist 3.8 have no effect with pytest 9.2."""
    from xdist.scheduler import LoadScopeScheduling

    class ByGroup(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            return group_of(nodeid)

    return ByGroup(config, log)


EXPECTED_SKIPS = re.compile(
    "this machine has no |there is no Python |no JDK|needs a JDK|is not installed|no program |"
    "pip install 'pykafka-sink|module named 'authlib'|No module named 'tomllib'|"
    "the compiler needs Python|two processors of x86_64|Python 3.14 does not list|"
    "benchmarks need Spark 4.1|this protobuf knows no editions|PR_SET_PDEATHSIG|it is Linux's|Linux has |it is glibc's|"
    "code of the reader's own|root may read everything|only root can |acts as another user"
)
"""What a machine may lack, or a test leave out by its nature. Any other skip is a test that is lost."""


def _refuse_skip(report):
    if report.skipped and isinstance(report.longrepr, tuple) and not hasattr(report, "wasxfail"):
        reason = str(report.longrepr[2])
        if not EXPECTED_SKIPS.search(reason):
            report.outcome = "failed"
            report.longrepr = f"{reason}: a skip that EXPECTED_SKIPS in tests/conftest.py lacks"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    report = yield
    _refuse_skip(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    report = yield
    _refuse_skip(report)
    return report


MOST_CHECKED_LINES = 20
"""Of one test in this process: simulated lives make thousands."""


_made = []
_make = BatchSummary.line


@functools.wraps(_make)
def _noted(*arguments, **more):
    line = _make(*arguments, **more)
    if len(_made) < MOST_CHECKED_LINES:
        _made.append(json.dumps(line))
    return line


BatchSummary.line = _noted


@pytest.fixture(autouse=True)
def lines_as_the_schema_says(request):
    """Of each line that a test makes, here or in other processes that write to its folder."""
    _made.clear()
    has_folder = "tmp_path" in request.fixturenames
    folder = request.getfixturevalue("tmp_path") if has_folder else None
    yield
    for text in (*_made, *(lines_in(folder) if folder else ())):
        check_text(text)


@pytest.fixture(scope="session")
def wheel(tmp_path_factory):
    """The package, built from this checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(folder), "."],
        cwd=Path(__file__).resolve().parents[1],
        check=True,
    )
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="session")
def kafka():
    """One real broker for the whole session. Do not stop it; give topics names of your own."""
    with PatientKafka() as local_kafka:
        yield local_kafka


@pytest.fixture(scope="session")
def strict_kafka():
    """A real broker that does not create topics by itself."""
    with PatientKafka(server_properties={"auto.create.topics.enable": "false"}) as local_kafka:
        yield local_kafka
