"""The figures of README.md, docs/performance.md and docs/choosing.md are those of the results."""

import json
import re
from pathlib import Path

import pytest

from benchmarks import cost, harness
from release import figures_document
from release.figures_document import BLOCKS, rendered
from tests.tables import each_row

ROOT = Path(__file__).resolve().parents[2]
STORED = figures_document.load()
_BLOCK = re.compile(r"<!-- [^>]+: generated -->.*?: end -->", re.DOTALL)


def text_of(document):
    return (ROOT / document).read_text(encoding="utf-8")


@pytest.mark.parametrize("document", BLOCKS)
def test_documents_have_the_stored_figures(document):
    text = text_of(document)
    assert text == rendered(document, text, STORED), "run python -m release.figures_document"


@pytest.mark.parametrize("document", ["README.md", "docs/performance.md"])
def test_no_figure_stands_outside_of_the_tables(document):
    prose = _BLOCK.sub("", text_of(document))
    prose = re.sub(r"^## Try it$.*?^## ", "", prose, flags=re.DOTALL | re.MULTILINE)
    assert re.findall(r"\d[\d.,]* (?:ns|µs|ms|s|MiB)\b", prose) == []


def test_readme_shows_losses_beside_wins():
    rows = re.findall(r"^\| .* \| ([\d.]+) \|$", text_of("README.md"), re.MULTILINE)
    ratios = [float(ratio) for ratio in rows]
    assert min(ratios) < 1 < max(ratios)


@each_row("part", [None, *STORED])
def test_a_run_may_have_any_part_alone(part):
    of_all = ("machine", "code", "days", "made_by")
    results = {name: found for name, found in STORED.items() if name in (*of_all, part)}
    whole = text_of("docs/performance.md")
    text = rendered("docs/performance.md", whole, {"points": {}, **results})
    # Each row is one of the whole run's.
    rows = [set(re.findall(r"^\| .+", one, re.MULTILINE)) for one in (text, whole)]
    assert rows[0] <= rows[1]
    nothing = rendered("docs/performance.md", whole, {})
    for block in _BLOCK.findall(nothing):
        assert "Not measured in this run." in block
        assert "|" not in block


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(harness, "RESULTS", tmp_path)
    monkeypatch.setattr(harness, "code_version", lambda: "abc")
    cost.Results("cost", keep=True).add("100B-lz4", {"rows": 1}, load=0.5)
    return tmp_path


def stored(folder):
    return json.loads((folder / "cost.json").read_text(encoding="utf-8"))


def test_a_resumed_run_keeps_results(folder):
    results = cost.Results("cost", keep=True)
    assert results.has("100B-lz4")
    results.add("tls", {"points": {}}, load=0.5)
    assert {"100B-lz4"} == set(stored(folder)["points"])
    assert stored(folder)["tls"] == {"load_before": 0.5, "points": {}}
    assert len(stored(folder)["days"]) == 1


def test_results_of_other_code_are_dropped(folder, monkeypatch):
    monkeypatch.setattr(harness, "code_version", lambda: "def")
    results = cost.Results("cost", keep=True)
    assert not results.has("100B-lz4")
    results.add("json-lz4", {}, load=0.5)
    assert set(stored(folder)["points"]) == {"json-lz4"}


@pytest.mark.parametrize(
    ("point", "label"),
    [("100B-lz4-clients", "100-byte values"), ("1KB-lz4-clients", "1-KB values")],
)
def test_other_clients(point, label):
    matrix = json.loads((ROOT / "benchmarks" / "results" / "matrix.json").read_text("utf-8"))
    ratios = matrix["points"][point]["ratios"]
    for client, call in (
        ("confluent", "`produce` row by row"),
        ("confluent-batch", "`produce_batch`"),
    ):
        median = ratios[client]["elapsed"]["median"]
        assert f"| {label}, lz4, {call} | {median:.2f} |" in text_of("docs/choosing.md")
