"""Fixtures that several folders of tests use, and what holds for all tests."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

from spark_kafka_sink.localkafka import LocalKafka
from spark_kafka_sink.localkafka.ports import PORTS_VARIABLE, usual_ports
from tests.local_kafka import PatientKafka

# How long an example takes is a matter of the machine's load, and so is "too slow".
hypothesis.settings.register_profile(
    "any-load", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("any-load")


def _ports_of_this_process() -> str | None:
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

# What is expensive to start is started in one process, when tests run in several (make test).
SHARED = ("spark", "pair", "kafka_3_9")
LONGEST_FIRST = (
    "spark",
    "tests/spark",
    "tests/broker/test_localkafka.py",
    "kafka_3_9",
    "pair",
    "tests/simulation/test_seeds.py",
    "tests/simulation/test_queries.py",
    "tests/broker",
    "tests/golden",
    "tests/simulation",
)


def group_of(item: pytest.Item) -> str:
    """Tests of a group run in one process, one after the other."""
    used = getattr(item, "fixturenames", ())
    of_file = item.nodeid.split("::")[0]
    is_alone = item.get_closest_marker("slow") is not None
    return next((name for name in SHARED if name in used), item.nodeid if is_alone else of_file)


def place_of(group: str) -> int:
    """Long groups begin first, so that no process is left alone with one at the end."""
    places = (n for n, start in enumerate(LONGEST_FIRST) if group.startswith(start))
    return next(places, len(LONGEST_FIRST))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("dist", "no") == "no":
        return
    for item in items:
        item.add_marker(pytest.mark.xdist_group(group_of(item)))
    items.sort(key=lambda item: place_of(group_of(item)))


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
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
def kafka() -> Iterator[LocalKafka]:
    """One real broker for the whole session. Do not stop it; give topics names of your own."""
    with PatientKafka() as local_kafka:
        yield local_kafka


@pytest.fixture(scope="session")
def strict_kafka() -> Iterator[LocalKafka]:
    """A real broker that does not create topics by itself."""
    with PatientKafka(server_properties={"auto.create.topics.enable": "false"}) as local_kafka:
        yield local_kafka
