"""The figures of README.md, docs/performance.md and docs/choosing.md are those of the results."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks import cost, harness
from release import figures_document
from release.figures_document import BLOCKS, rendered
from tests.unit.test_sentences import faults_of_a_page

ROOT = Path(__file__).resolve().parents[2]
_BLOCK = re.compile(r"<!-- [^>]+: generated -->.*?: end -->", re.DOTALL)


def text_of(document: str) -> str:
    return (ROOT / document).read_text(encoding="utf-8")


@pytest.mark.parametrize("document", BLOCKS)
def test_documents_have_the_stored_figures(document: str) -> None:
    text = text_of(document)
    assert text == rendered(document, text, figures_document.load()), (
        "run python -m release.figures_document"
    )


@pytest.mark.parametrize("document", ["README.md", "docs/performance.md"])
def test_no_figure_stands_outside_of_the_tables(document: str) -> None:
    prose = _BLOCK.sub("", text_of(document))
    prose = re.sub(r"^## Try it$.*?^## ", "", prose, flags=re.DOTALL | re.MULTILINE)
    assert re.findall(r"\d[\d.,]* (?:ns|µs|ms|s|MiB)\b", prose) == []


def test_readme_shows_losses_beside_wins() -> None:
    rows = re.findall(r"^\| .* \| ([\d.]+) \|$", text_of("README.md"), re.MULTILINE)
    ratios = [float(ratio) for ratio in rows]
    assert min(ratios) < 1 < max(ratios)


# --- results of other runs -----------------------------------------------------------------------


def spread(median: float) -> dict[str, float]:
    return {"median": median, "min": median - 0.1, "max": median + 0.2}


def a_point(value_bytes: int, codec: str, ratio: float, form: str = "") -> dict[str, Any]:
    seconds = {"ours": 0.5, "jvm": 0.5 * ratio, "empty": 0.2, "ours, exactly-once": 0.625}
    return {
        "point": {"value_bytes": value_bytes, "codec": codec, "form": form, "key_bytes": 36},
        "per_million": {name: {"elapsed_s": value} for name, value in seconds.items()},
        "jvm_over_ours": spread(ratio),
        "cpu_ours_over_jvm": spread(0.7),
        "rounds": [{name: {"elapsed_s": value} for name, value in seconds.items()}] * 3,
        "load_before": 0.3,
    }


def whole_run() -> dict[str, Any]:
    phases = {"addBatch": {"p50": 80, "p99": 99.6}, "triggerExecution": {"p50": 150}}
    quick = {"addBatch": {"p50": 32, "p99": 40}, "triggerExecution": {"p50": 100}}
    ratios = {"elapsed": {"ours, TLS": spread(1.3)}}
    ratios["tls_over_plaintext"] = {"ours": spread(1.12), "jvm": spread(1.2)}
    peaks = {"buffer_mib": 32, "arrow_batch_mib": 1.6, "peak_rss_mib": 190.8}
    return {
        "machine": {
            "processor": "Fast(R) Processor",
            "cores": 2,
            "memory_gib": 8,
            "pyspark": "4.3.0",
            "python": "3.11.7",
            "jvm sink": ["spark-sql-kafka-0-10_2.13:4.2.0", "kafka-clients:3.9.1"],
        },
        "code": "abc",
        "days": ["2026-12-01", "2026-12-02"],
        "made_by": "benchmarks.cost",
        "kafka": "4.4.0",
        "points": {
            "10000B-lz4": a_point(10_000, "lz4", 0.9),
            "100B-zstd": a_point(100, "zstd", 2.0),
            "100B-lz4": a_point(100, "lz4", 1.5),
            "json-lz4": a_point(0, "lz4", 1.25, "json"),
        },
        "micro-batch": {
            "rounds": 3,
            "batches": 15,
            "phases_ms": {"ours": phases, "empty": phases, "jvm": quick},
        },
        "first-job": {
            "rows": 4_000_000,
            "job_s": {"ours": spread(8.0), "jvm": spread(6.0), "empty": spread(5.0)},
            "ours_over": {"jvm": {"median": 1.25, "min": 1.2, "max": 1.6}},
        },
        "memory": {"points": [{"format": "json", **peaks}, {"value_bytes": 100, **peaks}]},
        "tls": {"points": {"1000": {"ratios": ratios}}},
        "commits": {
            "tasks": 8,
            "brokers": 3,
            "commit_ms": {"p50": 35.4, "p99": 139},
            "added_ms": {"median": 66},
        },
    }


@pytest.mark.parametrize(
    ("document", "lines"),
    [
        (
            "README.md",
            [
                "| a million rows of 100 B, lz4 | 0.75 s | **0.50 s** | 1.50 |",
                "| a million rows of 10 KB, lz4 | **0.45 s** | 0.50 s | 0.90 |",
                "| a million flights as JSON, lz4 | 0.62 s | **0.50 s** | 1.25 |",
                "| micro-batch of one row (`addBatch`, p50) | **32 ms** | 80 ms | 0.40 |",
                "| first job of a new session, 4 million rows of 100 B | **6.00 s** | 8.00 s | 0.80 |",
                "| memory per task slot, flights as JSON | **in the JVM's heap** | 191 MiB more |  |",
                "2026-12-01 to 2026-12-02.",
            ],
        ),
        (
            "docs/choosing.md",
            [
                "| values of 100 B, zstd | 2.00 |",
                "| first job of a new session | **0.80** |",
                "| micro-batch of one row | **0.40** |",
            ],
        ),
        (
            "docs/performance.md",
            [
                "- **Machine.** Fast, 2 cores, 8 GiB. It also runs the broker (Kafka 4.4.0).",
                "| 100 B, lz4 | 2,000 | 1.50 (1.40 to 1.70) | 0.70 |",
                "| 10 KB, lz4 | 2,000 | **0.90** (0.80 to 1.10) | 0.70 |",
                "Each row has a key of 36 bytes.",
                "| JSON | 0.50 s | 0.62 s | 1.25 (1.15 to 1.45) |",
                "| this sink | 80 ms | 100 ms | 150 ms |",
                "| Spark's JVM sink | 6.00 s (5.90 to 6.20) |",
                "micro-batch takes 35 ms (p50) or 139 ms (p99). With planning and tasks,",
                "| 1 KB | 1.30 (1.20 to 1.50) | 1.12 | 1.20 |",
                "| flights as JSON | 32 MiB | 2 MiB | 191 MiB |",
                "| 100 B | 32 MiB | 2 MiB | 191 MiB |",
                "An empty Python sink takes 0.40 to 0.40 of our time with rows that are ready, "
                "0.40 to 0.40 of our time with typed rows.",
            ],
        ),
    ],
)
def test_tables_of_a_whole_run(document: str, lines: list[str]) -> None:
    text = rendered(document, text_of(document), whole_run())
    assert "Not measured" not in text
    assert [line for line in lines if line not in text.splitlines()] == []
    assert list(faults_of_a_page(document, text)) == []


def test_exactly_once_is_compared_round_by_round() -> None:
    text = figures_document.exactly_once(whole_run())
    assert text.startswith("Jobs write 0.80 times as many records per second")


def test_points_are_sorted_and_keys_named_where_they_differ() -> None:
    results = whole_run()
    results["points"]["100B-lz4"]["point"]["key_bytes"] = 0
    rows = re.findall(r"^\| (\d+ \w?B.*?) \|", figures_document.points(results), re.MULTILINE)
    assert rows == ["100 B, lz4", "100 B, zstd, 36-byte keys", "10 KB, lz4, 36-byte keys"]


@pytest.mark.parametrize("document", BLOCKS)
@pytest.mark.parametrize("part", [None, *whole_run()])
def test_a_run_may_have_any_part_alone(document: str, part: str | None) -> None:
    of_all = ("machine", "code", "days", "made_by")
    results = {name: found for name, found in whole_run().items() if name in (*of_all, part)}
    text = rendered(document, text_of(document), {"points": {}, **results})
    whole = rendered(document, text_of(document), whole_run())
    # Each row is one of the whole run's.
    assert set(re.findall(r"^\| .+", text, re.MULTILINE)) <= {
        *re.findall(r"^\| .+", whole, re.MULTILINE)
    }


@pytest.mark.parametrize("document", BLOCKS)
def test_without_results_no_figure_is_shown(document: str) -> None:
    text = rendered(document, text_of(document), {})
    for block in _BLOCK.findall(text):
        assert "Not measured in this run." in block
        assert "|" not in block


def test_a_document_without_a_block_is_an_error() -> None:
    with pytest.raises(ValueError, match="no block ratios"):
        rendered("docs/choosing.md", "# Choosing a sink", {})


# --- one machine, one state of the code ----------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(harness, "RESULTS", tmp_path)
    monkeypatch.setattr(harness, "code_version", lambda: "abc")
    cost.Results("cost", keep=True).add("100B-lz4", {"rows": 1}, load=0.5)
    return tmp_path


def stored(folder: Path) -> Any:
    return json.loads((folder / "cost.json").read_text(encoding="utf-8"))


def test_a_resumed_run_keeps_results(folder: Path) -> None:
    results = cost.Results("cost", keep=True)
    assert results.has("100B-lz4")
    results.add("tls", {"points": {}}, load=0.5)
    assert {"100B-lz4"} == set(stored(folder)["points"])
    assert stored(folder)["tls"] == {"load_before": 0.5, "points": {}}
    assert len(stored(folder)["days"]) == 1


def test_a_new_run_keeps_nothing(folder: Path) -> None:
    cost.Results("cost", keep=False).add("json-lz4", {}, load=0.5)
    assert set(stored(folder)["points"]) == {"json-lz4"}


def test_results_of_other_code_are_dropped(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harness, "code_version", lambda: "def")
    results = cost.Results("cost", keep=True)
    assert not results.has("100B-lz4")
    results.add("json-lz4", {}, load=0.5)
    assert set(stored(folder)["points"]) == {"json-lz4"}


# --- other clients -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("point", "label"),
    [("100B-lz4-clients", "100-byte values"), ("1KB-lz4-clients", "1-KB values")],
)
def test_other_clients(point: str, label: str) -> None:
    matrix = json.loads((ROOT / "benchmarks" / "results" / "matrix.json").read_text("utf-8"))
    ratios = matrix["points"][point]["ratios"]
    for client, call in (
        ("confluent", "`produce` row by row"),
        ("confluent-batch", "`produce_batch`"),
    ):
        median = ratios[client]["elapsed"]["median"]
        assert f"| {label}, lz4, {call} | {median:.2f} |" in text_of("docs/choosing.md")
