"""A page of 100,000 batches: its size, the work that it takes to make it, and that a browser shows it."""

import json

import pytest

from spark_kafka_sink.tools import report_lines
from spark_kafka_sink.tools.report_lines import collect
from spark_kafka_sink.tools.report_page import render
from tests.unit.report_lines import HEALTHY, SLOW_BROKER
from tests.unit.test_report import numbered

pytestmark = pytest.mark.long

MOST_BYTES = 5_000_000
BATCHES = 100_000
SLOW = 77_777


def test_a_hundred_thousand_batches(tmp_path, monkeypatch, open_page):
    path = tmp_path / "m.log"
    with open(path, "wb") as file:
        for number in range(BATCHES):
            line = numbered(SLOW_BROKER if number == SLOW else HEALTHY, number)
            file.write(json.dumps(line).encode() + b"\n")
    parsed = []
    columns = report_lines.pa.BufferReader
    monkeypatch.setattr(
        report_lines.pa, "BufferReader", lambda data: parsed.append(len(data)) or columns(data)
    )
    whole = []
    loads = json.loads
    monkeypatch.setattr(
        report_lines.json, "loads", lambda data: whole.append(len(data)) or loads(data)
    )
    page = render(collect(str(path), None))
    # Of most lines pyarrow sees the columns alone, and Python nothing at all.
    assert sum(parsed) < path.stat().st_size / 2
    assert sum(whole) < 2 * report_lines.WHOLE_BYTES
    assert len(page.encode()) < MOST_BYTES
    monkeypatch.undo()
    report = tmp_path / "report.html"
    report.write_text(page, encoding="utf-8")
    shown = open_page(report)
    assert shown.locator("canvas").count() == 5
    first = shown.locator("#outliers li").first.inner_text()
    assert first.startswith(f"batch {SLOW}, ")
    assert "broker 2 is slow" in first
    assert shown.problems == []
