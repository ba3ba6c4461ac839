"""``write`` and ``batch_writer`` with Spark Connect, in a client that has the sink."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.clusters.connect import server_python
from tests.reading import read_topic
from tests.versions.environments import ROOT
from tests.versions.test_versions import ALL, STREAMED

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]

EXPECTED = {
    "write": ALL,
    "write-exactly-once": ALL,
    "foreach": STREAMED,
    "foreach-exactly-once": STREAMED,
    "foreach-nameless": [],
}


@pytest.fixture(scope="module")
def errors(kafka, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str | None]:
    for way in EXPECTED:
        kafka.create_topic(f"connect-{way}", 2)
    program = Path(__file__).with_name("connect_program.py")
    folder = tmp_path_factory.mktemp("connect")
    done = subprocess.run(
        [server_python(), str(program), kafka.bootstrap_servers, str(folder), "connect-"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    _, *ways = (json.loads(line) for line in done.stdout.splitlines())
    return {way["way"]: way["error"] for way in ways}


@pytest.mark.parametrize("way", EXPECTED)
def test_a_way_of_writing(way: str, errors: dict[str, str | None], kafka) -> None:
    if way == "foreach-nameless":
        assert "Spark Connect does not tell: give option write.id" in (errors[way] or "")
    else:
        assert errors[way] is None
    records = read_topic(kafka.bootstrap_servers, f"connect-{way}")
    assert sorted(int(record.value or b"-1") for record in records) == EXPECTED[way]
