"""The report in a headless browser: what its scripts make of the page, and how large it becomes.

Needs chromium-headless-shell or chromium: apt-get install --no-install-recommends chromium-headless-shell
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from spark_kafka_sink.report.collecting import Collected
from spark_kafka_sink.report.making import collect
from spark_kafka_sink.report.page import render
from tests.unit.report_lines import HEALTHY, SLOW_BROKER
from tests.unit.test_report import numbered, text

pytestmark = pytest.mark.long

MOST_BYTES = 5_000_000
BATCHES = 100_000


def browsed(page: Path, *arguments: str) -> str:
    names = ("chromium-headless-shell", "chromium", "google-chrome")
    found = next((path for name in names if (path := shutil.which(name))), None)
    assert found, "no browser: apt-get install --no-install-recommends chromium-headless-shell"
    command = [found, "--headless", "--no-sandbox", "--disable-gpu", *arguments, page.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def dom(page: Path, width: int) -> str:
    return browsed(page, f"--window-size={width},2000", "--dump-dom")


@pytest.mark.parametrize("width", [400, 1280])
def test_what_the_scripts_make(tmp_path: Path, width: int) -> None:
    lines = [numbered(HEALTHY, number) for number in range(40)]
    lines[17] = numbered(SLOW_BROKER, 17)
    collected = Collected()
    collected.add(text(*lines))
    path = tmp_path / "report.html"
    path.write_text(render(collected), encoding="utf-8")
    shown = dom(path, width)
    assert shown.count("<canvas") == 5
    assert len(re.findall(r'<th[^>]* aria-sort="none"[^>]*><button type="button">', shown)) > 30
    assert re.search(r"records/s: [\d,]+ to [\d,]+ records/s\.", shown)
    for name in ("waiting for buffer memory", "waiting for acknowledgements", "encoding"):
        assert re.search(rf'<th>(<div[^>]*></div>)?<div class="u-label">{name}</div>', shown)
    # uPlot's legend; nothing of it is wider than the window, nor is the page.
    widths = [int(width) for width in re.findall(r'<canvas width="(\d+)"', shown)]
    assert max(widths) <= width


def test_a_hundred_thousand_batches(tmp_path: Path) -> None:
    path = tmp_path / "m.log"
    with open(path, "wb") as file:
        for number in range(BATCHES):
            file.write(b" " + json.dumps(numbered(HEALTHY, number)).encode() + b"\n")
    # CPU beside what reading JSON alone takes: the same on a machine of any load.
    started = time.process_time()
    with open(path, "rb") as file:
        for line in file:
            json.loads(line)
    alone = time.process_time() - started
    started = time.process_time()
    page = render(collect(str(path), None))
    took = time.process_time() - started
    print(f"{took:.1f} s of CPU, {alone:.1f} s for json alone, {len(page)} bytes")
    assert len(page.encode()) < MOST_BYTES
    assert took < 1.5 * alone
    report = tmp_path / "report.html"
    report.write_text(page, encoding="utf-8")
    assert dom(report, 1280).count("<canvas") == 5
