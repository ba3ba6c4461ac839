"""The figures of README.md, docs/performance.md and docs/choosing.md are those of the results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
POINTS = {
    "10B-zstd": ("10-byte values, zstd", "10 B, zstd"),
    "100B-none": ("100-byte values, no codec", "100 B, no codec"),
    "100B-lz4": ("100-byte values, lz4", "100 B, lz4"),
    "1KB-none": ("1-KB values, no codec", "1 KB, no codec"),
    "1KB-lz4-key36": ("1-KB values, lz4, 36-byte keys", "1 KB, lz4, 36-byte keys"),
    "1KB-lz4-key36-100p": ("", "1 KB, lz4, 36-byte keys, 100 partitions"),
    "10KB-none": ("10-KB values, no codec", "10 KB, no codec"),
    "10KB-lz4": ("10-KB values, lz4", "10 KB, lz4"),
}
"""Points of benchmarks.cached: how README.md and docs/choosing.md name them, and the report."""


def results(name: str) -> Any:
    path = ROOT / "benchmarks" / "results" / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8"))


def text_of(document: str) -> str:
    return (ROOT / document).read_text(encoding="utf-8")


def spread(ratio: dict[str, float], bold: bool = False) -> str:
    median = f"{ratio['median']:.2f}"
    shown = f"**{median}**" if bold else median
    return f"{shown} ({ratio['min']:.2f} to {ratio['max']:.2f})"


def compared(label: str, theirs: float, ours: float, unit: str, ratio: float) -> str:
    """Return a row of README's table; the winner is bold."""
    form = "{:.2f} s" if unit == "s" else "{:.0f} ms"
    cells = [form.format(theirs), form.format(ours)]
    winner = 0 if theirs < ours else 1
    cells[winner] = f"**{cells[winner]}**"
    return f"| {label} | {cells[0]} | {cells[1]} | {ratio:.2f} |"


@pytest.mark.parametrize("name", POINTS)
def test_rows_that_are_ready(name: str) -> None:
    point = results("cached")["points"][name]
    label, in_report = POINTS[name]
    ratio, seconds = point["jvm_over_ours"], point["seconds"]
    rows_per_s = point["point"]["rows"] / seconds["ours"]["elapsed_s"] / 1e6
    bold = ratio["median"] < 1
    cells = (in_report, f"{rows_per_s:.2f} M", spread(ratio, bold))
    expected = " | ".join((*cells, f"{point['cpu_ours_over_jvm']['median']:.2f}"))
    assert f"| {expected} |" in text_of("docs/performance.md")
    if label:
        median = f"{ratio['median']:.2f}"
        expected = f"| {label} | {f'**{median}**' if bold else median} |"
        assert expected in text_of("docs/choosing.md")
    in_readme = [row for row in text_of("README.md").splitlines() if row.startswith(f"| {label} |")]
    for row in in_readme:
        elapsed = (seconds[sink]["elapsed_s"] for sink in ("jvm", "ours"))
        assert row == compared(label, *elapsed, "s", ratio["median"])


def test_readme_shows_losses_beside_wins() -> None:
    rows = [row for row in text_of("README.md").splitlines() if row.startswith("| 1")]
    ratios = [float(row.split("|")[-2]) for row in rows]
    assert min(ratios) < 1 < max(ratios)


@pytest.mark.parametrize("kind", ["json", "avro"])
def test_typed_rows(kind: str) -> None:
    found = results("typed")
    theirs = found["medians"][f"jvm, to_{kind}"]["elapsed_s"]
    ours = found["medians"][f"ours, {kind}"]["elapsed_s"]
    ratio = found["over_ours"][f"jvm, to_{kind} / ours, {kind}"]
    name = {"json": "JSON", "avro": "Avro"}[kind]
    row = f"| {name} | {theirs:.2f} s | {ours:.2f} s | {spread(ratio)} |"
    assert row in text_of("docs/performance.md")
    assert f"| flights as {name} | {ratio['median']:.2f} |" in text_of("docs/choosing.md")
    if kind == "json":
        label = "2 million flights as JSON"
        assert compared(label, theirs, ours, "s", ratio["median"]) in text_of("README.md")


def test_micro_batches_of_one_row() -> None:
    phases = results("latency")["phases_ms"]
    theirs, ours = (phases[sink]["addBatch"]["p50"] for sink in ("jvm", "ours"))
    label = "micro-batch of one row (`addBatch`, p50)"
    assert compared(label, theirs, ours, "ms", theirs / ours) in text_of("README.md")
    for sink, shown in (("ours", "this sink"), ("empty", "an empty Python sink")):
        of = phases[sink]
        figures = (of["addBatch"]["p50"], of["addBatch"]["p99"], of["triggerExecution"]["p50"])
        cells = " | ".join(f"{figure:.0f} ms" for figure in figures)
        assert f"| {shown} | {cells} |" in text_of("docs/performance.md")
    assert f"| micro-batch of one row | **{theirs / ours:.2f}** |" in text_of("docs/choosing.md")


def test_first_jobs() -> None:
    found = results("cold")
    theirs, ours = (found["job_s"][sink] for sink in ("jvm", "ours"))
    ratio = 1 / found["ours_over"]["jvm"]["median"]
    label = "first job of a new session"
    row = compared(label, theirs["median"], ours["median"], "s", ratio)
    assert row in text_of("README.md")
    assert f"| {label} | **{ratio:.2f}** |" in text_of("docs/choosing.md")
    assert f"| this sink | {spread(ours)} |" in text_of("docs/performance.md")
    assert f"| Spark's JVM sink | {spread(theirs, bold=True)} |" in text_of("docs/performance.md")


def test_memory_of_a_worker() -> None:
    points = results("memory")["points"]
    typed = results("memory_typed")["points"][0]
    of_json = round(typed["peak_rss_mib"])
    for document in ("README.md", "docs/choosing.md"):
        assert f"{of_json} MiB" in text_of(document)
    rows = [line for line in text_of("docs/performance.md").splitlines() if "MiB |" in line]
    shown = [int(row.split("|")[-2].split()[0]) for row in rows]
    assert shown[0] == of_json
    assert len(shown) == 5
    assert set(shown[1:]) <= {round(point["peak_rss_mib"]) for point in points}


@pytest.mark.parametrize(
    ("point", "label"),
    [("100B-lz4-clients", "100-byte values"), ("1KB-lz4-clients", "1-KB values")],
)
def test_other_clients(point: str, label: str) -> None:
    ratios = results("matrix")["points"][point]["ratios"]
    for client, call in (
        ("confluent", "`produce` row by row"),
        ("confluent-batch", "`produce_batch`"),
    ):
        median = ratios[client]["elapsed"]["median"]
        assert f"| {label}, lz4, {call} | {median:.2f} |" in text_of("docs/choosing.md")
