"""One run of each way to lose an executor; `make evidence NAME=lost` has twenty of the kills."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from evidence.lost.faults import FAULTS

_REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.mark.timeout(7200)
def test_nothing_is_lost_and_exactly_once_is_exact():
    done = subprocess.run(
        [sys.executable, "-m", "evidence", "lost", "--runs", "1"],
        cwd=_REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    results = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert {r["fault"] for r in results} == set(FAULTS)
    assert sum(r["doubled"] for r in results if r["guarantee"] == "at-least-once") > 0
