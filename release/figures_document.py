"""Write the tables of figures of README.md, docs/performance.md and docs/choosing.md.

    python -m release.figures_document

The figures are those of benchmarks/results/cost.json, which `make bench-cost` writes. They stand
between markers. A table has a row for each point that was measured.
"""

from __future__ import annotations

import json
import re
import statistics
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "cost.json"
EXACTLY_ONCE = "ours, exactly-once"
# Rounds of one point differ by more than this, so a smaller difference decides nothing.
_LOSES, _WINS = 0.97, 1.03
_JVM = "Spark's JVM sink"
_CODECS = ("none", "lz4", "zstd")
_FORMS = {"json": "JSON", "avro": "Avro", "protobuf": "Protobuf"}
Results = Mapping[str, Any]


# --- cells and tables ----------------------------------------------------------------------------


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table with numbers on the right."""
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def ratio_of(spread: Mapping[str, float], with_range: bool = True) -> str:
    """Return JVM time ÷ our time; bold if this sink loses."""
    median = f"{spread['median']:.2f}"
    shown = f"**{median}**" if spread["median"] < _LOSES else median
    return f"{shown} {range_of(spread)}" if with_range else shown


def range_of(spread: Mapping[str, float]) -> str:
    """Return the smallest and the largest value in brackets."""
    return f"({spread['min']:.2f} to {spread['max']:.2f})"


def seconds(spread: Mapping[str, float]) -> str:
    """Return the median, the smallest and the largest of some seconds."""
    return f"{spread['median']:.2f} s {range_of(spread)}"


def inverse(spread: Mapping[str, float]) -> dict[str, float]:
    """Return the spread of the reciprocal values."""
    turned = {"median": "median", "min": "max", "max": "min"}
    return {name: 1 / spread[other] for name, other in turned.items()}


def value(point: Results, points: Iterable[Results]) -> str:
    """Return the values of a point: 1 KB, lz4. Keys are named if points differ in keys."""
    about = point["point"]
    size = about["value_bytes"]
    shown = f"{size // 1_000} KB" if size >= 1_000 else f"{size} B"
    codec = "no codec" if about["codec"] == "none" else about["codec"]
    keys = {other["point"]["key_bytes"] for other in points}
    key = about["key_bytes"] if len(keys) > 1 else 0
    return f"{shown}, {codec}" + (f", {key}-byte keys" if key else "")


# --- what was measured ---------------------------------------------------------------------------


def raw_points(results: Results) -> list[Results]:
    """Return the points whose values are bytes, by size."""
    found = [point for point in results.get("points", {}).values() if not point["point"]["form"]]
    return sorted(found, key=_size_and_codec)


def _size_and_codec(point: Results) -> tuple[int, int]:
    return point["point"]["value_bytes"], _CODECS.index(point["point"]["codec"])


def typed_points(results: Results) -> list[Results]:
    """Return the points whose values are made of columns."""
    return [point for point in results.get("points", {}).values() if point["point"]["form"]]


def elapsed(point: Results, sink: str) -> float:
    """Return seconds per million records."""
    return float(point["per_million"][sink]["elapsed_s"])


def processor(results: Results) -> str:
    """Return the processor's name without marks."""
    return re.sub(r"\((?:R|TM)\)| Processor\b", "", results["machine"]["processor"])


def when(results: Results) -> str:
    """Return the day of the measurements, or the first and the last."""
    days = results["days"]
    return days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"


def peak_of_json(results: Results) -> Results | None:
    """Return the memory of a worker that writes the flights as JSON."""
    found = results.get("memory", {}).get("points", [])
    return next((point for point in found if point.get("format") == "json"), None)


# --- README.md and docs/choosing.md --------------------------------------------------------------


def wins_and_losses(results: Results) -> str:
    """Return README's table: lz4, both kinds of rows, and what is no job."""

    def row(work: str, times: Sequence[float], unit: str, ratio: float) -> Sequence[str]:
        form = "{:.0f} ms" if unit == "ms" else "{:.2f} s"
        cells = [form.format(time) for time in times]
        if not _LOSES <= ratio <= _WINS:
            winner = 0 if ratio < _LOSES else 1
            cells[winner] = f"**{cells[winner]}**"
        return (work, *cells, f"{ratio:.2f}")

    rows, raw = [], [p for p in raw_points(results) if p["point"]["codec"] == "lz4"]
    for point in [*raw, *typed_points(results)]:
        if "jvm_over_ours" in point:
            form = point["point"]["form"]
            work = f"flights as {_FORMS[form]}, lz4" if form else f"rows of {value(point, raw)}"
            times = [elapsed(point, sink) for sink in ("jvm", "ours")]
            rows.append(row(f"a million {work}", times, "s", point["jvm_over_ours"]["median"]))
    if found := results.get("micro-batch"):
        times = [found["phases_ms"][sink]["addBatch"]["p50"] for sink in ("jvm", "ours")]
        work = "micro-batch of one row (`addBatch`, p50)"
        rows.append(row(work, times, "ms", times[0] / times[1]))
    if found := results.get("first-job"):
        times = [found["job_s"][sink]["median"] for sink in ("jvm", "ours")]
        ratio = inverse(found["ours_over"]["jvm"])["median"]
        work = f"first job of a new session, {found['rows'] / 1e6:g} million rows of 100 B"
        rows.append(row(work, times, "s", ratio))
    if memory := peak_of_json(results):
        peak = f"{memory['peak_rss_mib']:.0f} MiB more"
        rows.append(("memory per task slot, flights as JSON", "**in the JVM's heap**", peak, ""))
    if not rows:
        return not_measured(folder="docs/internals")
    machine = results["machine"]
    head = ("work", "JVM sink", "pykafka-sink", "JVM time ÷ our time")
    return (
        f"{table(head, rows)}\n\n"
        "Nothing is bold where the sinks differ by less than 3 %. All but the first job use Unix\n"
        "domain sockets. Times of a million rows are scaled from fewer or more rows.\n"
        f"Medians of jobs that took turns, on {machine['cores']} cores "
        f"({processor(results)}, broker on the same machine),\n{when(results)}."
    )


def ratios(results: Results) -> str:
    """Return all ratios to Spark's JVM sink, the largest first."""
    found: list[tuple[str, Mapping[str, float]]] = []
    raw = raw_points(results)
    for point in [*raw, *typed_points(results)]:
        if "jvm_over_ours" in point:
            form = point["point"]["form"]
            work = f"flights as {_FORMS[form]}" if form else f"values of {value(point, raw)}"
            found.append((work, point["jvm_over_ours"]))
    if part := results.get("first-job"):
        found.append(("first job of a new session", inverse(part["ours_over"]["jvm"])))
    if part := results.get("micro-batch"):
        p50s = [part["phases_ms"][sink]["addBatch"]["p50"] for sink in ("jvm", "ours")]
        found.append(("micro-batch of one row", {"median": p50s[0] / p50s[1]}))
    if not found:
        return not_measured()
    found.sort(key=lambda one: -one[1]["median"])
    rows = [(work, ratio_of(spread, with_range=False)) for work, spread in found]
    head = f"against {_JVM} ({processor(results)}, {when(results)})"
    return table((head, "JVM time ÷ our time"), rows)


# --- docs/performance.md -------------------------------------------------------------------------


def not_measured(anchor: str = "", folder: str = "internals") -> str:
    """Return the text of a table without rows, with a link to a section of the report."""
    link = f"{folder}/performance.md" + (f"#{anchor}" if anchor else "")
    return f"Not measured in this run. [Earlier figures]({link})"


def machine(results: Results) -> str:
    """Return machine, versions, rounds and load of the run."""
    if not results:
        return not_measured()
    of = results["machine"]
    jars = dict(jar.split(":") for jar in of["jvm sink"])
    rounds = sorted({len(point["rounds"]) for point in results["points"].values()})
    parts = [part for part in results.values() if isinstance(part, dict)]
    measured = [*results["points"].values(), *parts]
    loads = [one["load_before"] for one in measured if "load_before" in one]
    load = f" The machine's load before a point was {max(loads)} at most." if loads else ""
    broker = f" (Kafka {results['kafka']})" if "kafka" in results else ""
    shape = f"{processor(results)}, {of['cores']} cores, {of['memory_gib']} GiB"
    pairs = " or ".join(str(count) for count in rounds) or "no"
    sink = f"{jars['spark-sql-kafka-0-10_2.13']} with kafka-clients {jars['kafka-clients']}"
    return (
        f"- **Machine.** {shape}. It also runs the broker{broker}.\n"
        f"- **Run.** {when(results)}, by `{results['made_by']}`. Rounds of a point: {pairs}."
        f"{load}\n"
        f"- **Versions.** This sink at commit `{results['code']}`, Spark {of['pyspark']}, "
        f"Python {of['python']}, Spark's Kafka sink\n  {sink}."
    )


def points(results: Results) -> str:
    """Return time and CPU of rows that are in Spark's memory."""
    raw = raw_points(results)
    if not raw:
        return not_measured()
    rows = [
        (
            value(point, raw),
            f"{1_000 / elapsed(point, 'ours'):,.0f}",
            ratio_of(point["jvm_over_ours"]),
            f"{point['cpu_ours_over_jvm']['median']:.2f}",
        )
        for point in raw
    ]
    head = ("values", "thousand rows per second here", "JVM time ÷ our time")
    keys = {point["point"]["key_bytes"] for point in raw}
    note = f"\n\nEach row has a key of {keys.pop()} bytes." if len(keys) == 1 else ""
    return table((*head, "CPU of Spark and Python, ours ÷ JVM sink"), rows) + note


def typed(results: Results) -> str:
    """Return time and CPU of rows whose values are made of columns."""
    rows = []
    for point in typed_points(results):
        cells = [f"{elapsed(point, 'ours'):.2f} s", "", ""]
        if "jvm" in point["per_million"]:
            theirs = f"{elapsed(point, 'jvm'):.2f} s"
            cells = [cells[0], theirs, ratio_of(point["jvm_over_ours"])]
        rows.append((_FORMS[point["point"]["form"]], *cells))
    head = ("format", "this sink", "JVM sink", "JVM time ÷ our time")
    return table(head, rows) if rows else not_measured()


def floor(results: Results) -> str:
    """Return the part of our time that an empty Python sink needs, too."""
    kinds = {
        "rows that are ready": raw_points(results),
        "typed rows": typed_points(results),
    }
    ranges = []
    for kind, found in kinds.items():
        shares = [elapsed(point, "empty") / elapsed(point, "ours") for point in found]
        if shares:
            ranges.append(f"{min(shares):.2f} to {max(shares):.2f} of our time with {kind}")
    return f"An empty Python sink takes {' and '.join(ranges)}." if ranges else not_measured()


def micro_batch(results: Results) -> str:
    """Return the phases of micro-batches of one row."""
    if not (found := results.get("micro-batch")):
        return not_measured("micro-batches-of-one-row")
    names = {"ours": "this sink", "empty": "an empty Python sink", "jvm": _JVM}
    rows = []
    for sink, name in names.items():
        batch, trigger = (found["phases_ms"][sink][key] for key in ("addBatch", "triggerExecution"))
        figures = (batch["p50"], batch["p99"], trigger["p50"])
        rows.append((name, *(f"{figure:.0f} ms" for figure in figures)))
    head = ("sink", "`addBatch` p50", "`addBatch` p99", "whole trigger, p50")
    return (
        f"{table(head, rows)}\n\n{found['rounds'] * found['batches']} micro-batches of each sink."
    )


def first_job(results: Results) -> str:
    """Return seconds of the first job of a session."""
    if not (found := results.get("first-job")):
        return not_measured("cold")
    names = {"ours": "this sink", "jvm": _JVM, "empty": "an empty Python sink"}
    rows = [(name, seconds(found["job_s"][sink])) for sink, name in names.items()]
    return table(("sink", f"{found['rows'] / 1e6:g} million rows of 100 bytes, lz4"), rows)


def exactly_once(results: Results) -> str:
    """Return the throughput beside at-least-once, and the time of a commit."""
    shares = [
        statistics.median(
            turn["ours"]["elapsed_s"] / turn[EXACTLY_ONCE]["elapsed_s"] for turn in point["rounds"]
        )
        for point in raw_points(results)
        if EXACTLY_ONCE in point["per_million"]
    ]
    sentences = []
    if shares:
        sentences.append(
            f"Jobs write {statistics.median(shares):.2f} times as many records per second as with "
            f"at-least-once\n(median; {min(shares):.2f} to {max(shares):.2f} at single points)."
        )
    if found := results.get("commits"):
        took, added = found["commit_ms"], found["added_ms"]
        sentences.append(
            f"In a query of {found['tasks']} tasks on {found['brokers']} brokers, which share "
            "these\ncores, the commit of a\n"
            f"micro-batch takes {took['p50']:.0f} ms (p50) or {took['p99']:.0f} ms (p99). "
            f"With planning and tasks,\nexactly-once adds {added['median']:.0f} ms to `addBatch`."
        )
    return " ".join(sentences) or not_measured("exactly-once")


def tls(results: Results) -> str:
    """Return time and CPU with TLS."""
    if not (found := results.get("tls")):
        return not_measured("tls")
    rows = []
    for size, point in found["points"].items():
        of = point["ratios"]
        shown = f"{int(size) // 1_000} KB" if int(size) >= 1_000 else f"{size} B"
        added = [of["tls_over_plaintext"][sink]["median"] for sink in ("ours", "jvm")]
        rows.append((shown, ratio_of(of["elapsed"]["ours, TLS"]), *(f"{one:.2f}" for one in added)))
    head = ("values, lz4, TLS 1.3", "JVM time ÷ our time")
    cpu = ("CPU here, with TLS ÷ without", "CPU of the JVM sink, with TLS ÷ without")
    return table((*head, *cpu), rows)


def memory(results: Results) -> str:
    """Return peaks of a worker."""
    found = results.get("memory", {}).get("points", [])
    rows = []
    for point in found:
        size = point.get("value_bytes", 0)
        raw = f"{size // 1_000} KB" if size >= 1_000 else f"{size} B"
        rows.append(
            (
                f"flights as {_FORMS[point['format']]}" if "format" in point else raw,
                f"{point['buffer_mib']} MiB",
                f"{point['arrow_batch_mib']:.0f} MiB",
                f"{point['peak_rss_mib']:.0f} MiB",
            )
        )
    head = ("values", "`kafka.buffer.memory`", "largest Arrow batch", "worker's peak")
    return table(head, rows) if rows else not_measured("memory-of-a-worker")


# --- documents -----------------------------------------------------------------------------------

BLOCKS: Mapping[str, Mapping[str, Callable[[Results], str]]] = {
    "README.md": {"wins and losses": wins_and_losses},
    "docs/choosing.md": {"ratios": ratios},
    "docs/performance.md": {
        "machine": machine,
        "points": points,
        "typed": typed,
        "floor": floor,
        "micro-batch": micro_batch,
        "first job": first_job,
        "exactly-once": exactly_once,
        "tls": tls,
        "memory": memory,
    },
}
"""The generated blocks of each document."""


def rendered(document: str, text: str, results: Results) -> str:
    """Return the document with its blocks. Raise ValueError if a marker is missing."""
    for name, block in BLOCKS[document].items():
        begin, end = f"<!-- {name}: generated -->", f"<!-- {name}: end -->"
        before, _, rest = text.partition(begin)
        _, found, after = rest.partition(end)
        if not found:
            raise ValueError(f"{document} has no block {name}")
        text = f"{before}{begin}\n\n{block(results)}\n\n{end}{after}"
    return text


def load() -> Results:
    """Return the stored results; empty if there are none."""
    return json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}


def main() -> int:
    """Run the command line."""
    results = load()
    for document in BLOCKS:
        path = ROOT / document
        text = path.read_text(encoding="utf-8")
        path.write_text(rendered(document, text, results), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
