"""Write the report from benchmarks/results: tables, plots, targets reached or not.

    python -m benchmarks.report --output docs/internals/performance.md

Pictures go into a folder beside the report with the report's name. benchmarks/log/performance.md
has the text that explains figures, such as the reasons for missed targets.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from benchmarks import cached_report, harness, plots, typed_report
from benchmarks.cold import INSTALLED
from benchmarks.targets import Results, inverse, verdicts, worker_memory

_PREVIEW = Path(__file__).parent / "report_preview.md"
_FILES = ("matrix", "kernels", "latency", "cold", "memory", "memory_typed")
_FILES += ("ten_million", "exactly_once", "tls")
_CACHED = {
    "cached": (
        "Rows cached in Spark",
        "Rows that cost nothing to make: they are in Spark's memory before the first job. A sink "
        "at no cost is the empty Python sink. **Bold**: not what was wanted.",
    ),
    "parquet": ("Rows read from Parquet", "The same rows, read from Parquet."),
}
_TYPED = (
    "The real flights (19 columns) from Parquet, lz4, batches of 128 KiB, whole jobs in turn in "
    "one session. `ours, json` and `ours, avro`: this sink's formats, Avro with a registry's id; "
    "`to_json` and `to_avro`: Spark's functions, with the same five bytes, before either sink. A "
    "sink at no cost is given the typed columns."
)
_SHOWN = ("10B-zstd", "100B-none", "100B-lz4", "1KB-none", "1KB-lz4", "10KB-lz4")
_PERCENT_OFF = 0.995


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """Return a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return ["| " + " | ".join(str(cell) for cell in line) + " |" for line in lines] + [""]


def median_of(result: Results, sink: str, field: str) -> float:
    """Return the median of a measured value over a point's rounds."""
    values = sorted(runs[sink][field] for runs in result["rounds"])
    return float(values[len(values) // 2])


def ranged(spread: Mapping[str, float]) -> str:
    """Return text such as 2.01 (1.96 to 2.08); bold if ours loses."""
    text = f"{spread['median']:.2f} ({spread['min']:.2f} to {spread['max']:.2f})"
    return f"**{text}**" if spread["median"] < _PERCENT_OFF else text


def needed(spread: Mapping[str, float]) -> str:
    """Return ours over theirs, for a figure that should be low; bold if ours needs more."""
    text = f"{spread['median']:.2f}"
    return f"**{text}**" if 1 / spread["median"] < _PERCENT_OFF else text


# --- sections ------------------------------------------------------------------------------------


def head(results: Results) -> list[str]:
    """Return the title, the machine and the versions."""
    machine = next((r["machine"] for r in results.values() if "machine" in r), {})
    others = ("cores", "memory_gib", "processor")
    versions = {k: v for k, v in machine.items() if v is not None and k not in others}
    listed = ", ".join(
        f"{name} {' '.join(value) if isinstance(value, list) else value}"
        for name, value in versions.items()
    )
    return [
        "# Performance: every figure",
        "",
        "For maintainers: every measured figure, with the goals. Users read"
        " [performance](../performance.md).",
        "Made by `python -m benchmarks.report` from `benchmarks/results/`; do not edit.",
        "[benchmarks/README.md](../../benchmarks/README.md) says how to measure again,"
        " [the log](../../benchmarks/log/performance.md) what was tried and what bounds figures.",
        "",
        f"Kafka {results['matrix'].get('kafka', '')}, broker on the same machine. Versions of the "
        f"matrix: {listed}.",
        "",
        *machines(results),
        *how_quiet(results["matrix"]),
        "Ratios are medians of alternating runs, with the least and the largest in brackets. Names"
        " of points: value size, codec, then what differs from null keys, 6 partitions, Spark's own"
        " Arrow batches. **Bold**: ours loses.",
        "",
    ]


def machines(results: Results) -> list[str]:
    """Return which machine each group of figures comes from."""
    found: dict[str, list[str]] = {}
    for name, result in results.items():
        if of := result.get("machine"):
            machine = f"{of['processor']}, {of['cores']} cores, {of['memory_gib']} GiB"
            found.setdefault(machine, []).append(name.replace("_", " "))
    rows = [(machine, ", ".join(names)) for machine, names in found.items()]
    return table(("machine", "figures of"), rows)


def how_quiet(results: Results) -> list[str]:
    """Return the pairs and the machine's load, which show busy machines and few pairs."""
    points = results.get("points", {})
    loads = sorted(point["load_before"] for point in points.values())
    if not loads:
        return []
    pairs = sorted({len(point["rounds"]) for point in points.values()})
    counts = " or ".join(str(count) for count in pairs)
    return [
        f"{len(points)} points of the matrix, {counts} alternating pairs each after one "
        f"that does not count. Load of the machine before each point: median "
        f"{loads[len(loads) // 2]}, at most {loads[-1]}.",
        "",
    ]


def targets(results: Results) -> list[str]:
    """Return the targets with computed verdicts, and the notes."""
    names = {True: "reached", False: "**not reached**", None: "not measured"}
    rows = [(v.what, v.wanted, v.measured, names[v.reached]) for v in verdicts(results)]
    about = "Goals of the matrix; the tables of cached, Parquet and typed rows have their own."
    lines = ["## Targets", "", about, "", *table(("what", "wanted", "measured", ""), rows)]
    return lines


def losses(points: Results) -> list[str]:
    """Return every comparison that ours loses to another sink with Kafka."""
    found = []
    for name, result in points.items():
        for other, ratios in result["ratios"].items():
            if other == "empty":
                continue
            if ratios["elapsed"]["median"] < _PERCENT_OFF:
                found.append((name, other, "elapsed, theirs / ours", ranged(ratios["elapsed"])))
            for measure in ("cpu", "broker_bytes"):
                if measure in ratios and inverse(ratios[measure])["median"] < _PERCENT_OFF:
                    what = f"{measure.replace('_', ' ')}, theirs / ours"
                    found.append((name, other, what, ranged(inverse(ratios[measure]))))
    lines = ["## Where ours loses", ""]
    if not found:
        return [*lines, "At no measured point.", ""]
    return [*lines, *table(("point", "against", "what", "ratio"), found)]


def matrix(points: Results, machine: Results, folder: Path) -> list[str]:
    """Return the figures of ours, the JVM sink and the empty Python sink."""
    rows = []
    for name, result in points.items():
        if "empty" not in result["ratios"]:
            continue
        count = result["point"]["rows"]
        speeds = [count / median_of(result, s, "elapsed_s") / 1e6 for s in ("ours", "jvm")]
        jvm = result["ratios"]["jvm"]
        over = inverse(result["ratios"]["empty"]["elapsed"])
        peak, limit = worker_memory(result, machine)
        cells = [f"{speed:.2f}" for speed in speeds]
        cells += [ranged(jvm["elapsed"]), needed(jvm["cpu"]), f"{over['median']:.2f}"]
        cells += [needed(jvm["broker_bytes"]), f"{peak:.0f} / {limit:.0f}"]
        rows.append([name, *cells])
    columns = ("point", "ours, M records/s", "JVM sink, M records/s", "elapsed, JVM / ours")
    columns += ("CPU, ours / JVM", "elapsed, ours / empty", "broker bytes, ours / JVM")
    columns += ("worker's peak / promised, MiB",)
    pictures = [
        ("jvm", "elapsed", "elapsed time, JVM sink / ours: above 1 ours is faster", "elapsed"),
        ("jvm", "cpu", "CPU of Spark and Python, ours / JVM sink: below 1 ours needs less", "cpu"),
    ]
    lines = ["## The matrix", ""]
    for other, measure, title, name in pictures:
        picture = plots.ratios_by_size(points, other, measure, title, folder, name)
        lines += [f"![{title}]({folder.name}/{picture})", ""]
    picture = plots.seconds_per_point(points, _SHOWN, folder, "seconds")
    lines += [f"![seconds per job]({folder.name}/{picture})", ""]
    return [*lines, *table(columns, rows)]


def limits(points: Results, cores: int) -> list[str]:
    """Return the use of the cores, and the best that a sink at no cost could reach."""
    rows = []
    for name in points:
        result = points[name]
        if "empty" not in result["ratios"]:
            continue
        parts = [median_of(result, "ours", f"{part}_cpu_s") for part in ("jvm", "python", "broker")]
        empty = [median_of(result, "empty", f"{part}_cpu_s") for part in ("jvm", "python")]
        brokers = [median_of(result, sink, "broker_cpu_s") for sink in ("ours", "jvm")]
        bounds = result["limits"]
        # Measured alone, the codec may have met a busier machine; in the job it took at most this.
        codec_s = min(bounds["codec_s"], max(0.0, parts[1] - empty[1]))
        least_s = (sum(empty) + min(brokers) + codec_s) / cores
        ours_s, jvm_s = (median_of(result, sink, "elapsed_s") for sink in ("ours", "jvm"))
        cells = (ours_s, *parts, brokers[1], sum(empty), bounds["codec_s"], bounds["memcpy_s"])
        cells += (least_s, jvm_s / ours_s, jvm_s / least_s)
        rows.append((name, *(f"{value:.2f}" for value in cells)))
    columns = ("point", "ours, s", "CPU of Spark's JVM, s", "CPU of Python, s")
    columns += ("CPU of the broker, s", "of the broker, JVM sink, s")
    columns += ("CPU of the empty sink, s", "codec alone, s", "memcpy, s")
    columns += ("a sink at no cost, s", "JVM sink / ours", "JVM sink / a sink at no cost")
    text = (
        f"Seconds of CPU of a job, all rows; broker and Spark share {cores} cores. A sink at no "
        "cost: what the empty Python sink, the broker (with ours or the JVM sink, whichever needs "
        "less) and the codec need, on all cores without a pause. So the last column is about the "
        "most that a Python sink can reach on this machine."
    )
    return ["## Limits", "", text, "", *table(columns, rows)]


def peers(points: Results) -> list[str]:
    """Return the figures of the other clients."""
    rows = []
    for name, result in points.items():
        if "empty" in result["ratios"]:
            continue
        count = result["point"]["rows"]
        for sink in result["rounds"][0]:
            speed = count / median_of(result, sink, "elapsed_s") / 1e6
            ratio = "" if sink == "ours" else ranged(result["ratios"][sink]["elapsed"])
            peak = median_of(result, sink, "worker_peak_mib")
            rows.append((name, sink, f"{speed:.2f}", ratio, f"{peak:.0f}" if peak else ""))
    columns = ("point", "client", "M records/s", "elapsed, theirs / ours", "worker's peak, MiB")
    text = (
        "`confluent`: `produce` row by row; `confluent-batch`: `produce_batch`; both in "
        "`mapInArrow`, two tasks. `kafka-python` in `foreachPartition`, two tasks. "
        "`producer-performance`: Kafka's own tool, one thread, no Spark; a new JVM each time, "
        "whose start is not counted, but whose compiler's warm-up is."
    )
    return ["## Other clients", "", text, "", *table(columns, rows)]


def kernels(results: Results, folder: Path) -> list[str]:
    """Return ns per row of the kernels."""
    rows = [
        (name, f"{stage['ns_per_row']:.1f}", f"{stage['times_memcpy']:.2f}")
        for name, stage in results["stages"].items()
    ]
    picture = plots.kernels(results["stages"], folder, "kernels")
    columns = ("stage", "ns per row", "× memcpy of the same bytes")
    return ["## Kernels", "", f"![kernels]({folder.name}/{picture})", "", *table(columns, rows)]


def latency(results: Results, folder: Path) -> list[str]:
    """Return the figures of micro-batches of one row."""
    rows = [
        (sink, *(f"{phases[name][p]:.0f}" for name in phases for p in ("p50", "p99")))
        for sink, phases in results["phases_ms"].items()
    ]
    phases = results["phases_ms"]["ours"]
    columns = ("sink", *(f"{name} {p}, ms" for name in phases for p in ("p50", "p99")))
    picture = plots.latency(results, folder, "latency")
    text = f"One row per micro-batch, a trigger of 1 s, {results['rounds']} queries of each sink"
    text += f" in turn, {results['batches']} micro-batches each."
    lines = ["## Micro-batches of one row", "", text, ""]
    return [*lines, f"![addBatch]({folder.name}/{picture})", "", *table(columns, rows)]


def cold(results: Results) -> list[str]:
    """Return the figures of the first job of a fresh session."""
    rows = [(sink, ranged_seconds(spread)) for sink, spread in results["job_s"].items()]
    text = f"{results['rows']:,} rows of {results['value_bytes']} B, "
    text += f"{results['settings']['compression.type']}: the first job of a new JVM."
    if INSTALLED in results["job_s"]:
        text += " Installed anew: the first one of an installation from the wheel."
    return ["## Cold", "", text, "", *table(("sink", "seconds"), rows)]


def ranged_seconds(spread: Mapping[str, float]) -> str:
    """Return seconds without a verdict."""
    return f"{spread['median']:.2f} ({spread['min']:.2f} to {spread['max']:.2f})"


def memory(results: Results, folder: Path) -> list[str]:
    """Return the peak memory of a worker while the broker is frozen."""
    fields = ("buffer_mib", "arrow_batch_mib", "partitions", "codec", "value_bytes", "key")
    fields += ("after_ten_rows_mib", "peak_rss_mib", "peak_pss_mib", "limit_mib")
    columns = ("buffer.memory, MiB", "Arrow batch, MiB", "partitions", "codec", "value, B", "key")
    columns += ("after ten rows, MiB", "peak, MiB", "peak as share (PSS), MiB", "promised, MiB")
    rows = [[point[field] for field in fields] for point in results["points"]]
    picture = plots.memory(results["points"], folder, "memory")
    text = "The broker is frozen for a while, so that records pile up to buffer.memory."
    lines = ["## Memory of a worker", "", text, ""]
    return [*lines, f"![memory]({folder.name}/{picture})", "", *table(columns, rows)]


def memory_typed(results: Results) -> list[str]:
    """Return the peak memory of a worker that encodes values from columns."""
    fields = ("format", "arrow_batch_mib", "encoded_mib", "codec")
    fields += ("after_ten_rows_mib", "peak_rss_mib", "peak_pss_mib", "limit_mib")
    columns = ("value.format", "Arrow batch, MiB", "encoded, MiB", "codec")
    columns += ("after ten rows, MiB", "peak, MiB", "peak as share (PSS), MiB", "promised, MiB")
    rows = [[point[field] for field in fields] for point in results["points"]]
    text = (
        "Values of the flights' 19 columns, a `kafka.buffer.memory` of 32 MiB, the same otherwise."
    )
    return [
        "### Memory of a worker that makes values of columns",
        "",
        text,
        "",
        *table(columns, rows),
    ]


def ten_million(results: Results) -> list[str]:
    """Return the result of the long run that counts every row."""
    text = (
        f"{results['rows']:,} rows, every one read back: {results['rows_lost']} lost, "
        f"{results['rows_doubled']} duplicated; JVM sink / ours {ranged(results['jvm_over_ours'])},"
        f" worker's peak {results['worker_peak_mib']:.0f} MiB."
    )
    return ["## Ten million rows", "", text, ""]


def exactly_once(results: Results) -> list[str]:
    """Return the cost of exactly-once over at-least-once."""
    lines = ["## Exactly once", ""]
    if throughput := results.get("throughput"):
        lines.append(
            f"Jobs of {throughput['rows']:,} rows of {throughput['value_bytes']} B, "
            f"{throughput['settings']['compression.type']}, exactly once and at least once in "
            f"turn: records/s {ranged(throughput['ratio'])} of at-least-once."
        )
    if commit := results.get("commit"):
        added = commit["added_ms"]
        lines.append(
            f"A query of {commit['tasks']} tasks on {commit['brokers']} brokers, "
            f"{commit['micro_batches']} micro-batches: a commit takes "
            f"{commit['commit_ms']['p50']:.0f} ms (p99 {commit['commit_ms']['p99']:.0f}). With "
            f"planning and tasks, exactly-once adds {added['median']:.0f} ms to addBatch "
            f"({added['min']:.0f} to {added['max']:.0f})."
        )
    return [*lines, ""]


def tls(results: Results) -> list[str]:
    """Return the cost of TLS, and the figures of the other sinks."""
    rows = []
    for size, point in results["points"].items():
        ratios = point["ratios"]
        for name, elapsed in ratios["elapsed"].items():
            cpu = ratios["cpu"][name]["median"]
            sink = name.split(",")[0]
            added = ratios["tls_over_plaintext"][sink]["median"] if "TLS" in name else None
            cells = [ranged(elapsed), f"{cpu:.2f}", "" if added is None else f"{added:.2f}"]
            rows.append([f"{int(size):,} B", name, *cells])
    columns = ("value", "sink", "elapsed, JVM sink with TLS / this one")
    columns += ("CPU, this one / JVM sink with TLS", "CPU with TLS / without")
    text = "lz4, TLS 1.3, an RSA certificate; CPU is that of Spark and Python together."
    return ["## TLS", "", text, "", *table(columns, rows)]


def render(results: Results, folder: Path) -> str:
    """Return the whole report, without sections that have no results."""
    points = results["matrix"].get("points", {})
    lines = [*head(results), *targets(results)]
    if points:
        machine = results["matrix"]["machine"]
        lines += [*losses(points), *matrix(points, machine, folder)]
        lines += [*peers(points), *limits(points, machine["cores"])]
    for name, (title, text) in _CACHED.items():
        if results[name]:
            lines += cached_report.section(results[name], title, text, table)
    if results["typed"]:
        lines += typed_report.section(results["typed"], _TYPED, table)
    with_pictures = {"kernels": kernels, "latency": latency, "memory": memory}
    for name, section in with_pictures.items():
        if results[name]:
            lines += section(results[name], folder)
    texts = {"memory_typed": memory_typed, "cold": cold}
    texts |= {"ten_million": ten_million, "exactly_once": exactly_once, "tls": tls}
    for name, text_section in texts.items():
        if results[name]:
            lines += text_section(results[name])
    return "\n".join(lines)


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=_PREVIEW)
    parser.add_argument("--quick", action="store_true", help="from the results of --quick runs")
    arguments = parser.parse_args()
    results = {}
    for name in (*_FILES, *_CACHED, "typed"):
        quick = harness.load(f"{name}_quick") if arguments.quick else {}
        results[name] = quick or harness.load(name)
    folder = arguments.output.with_suffix("")
    arguments.output.write_text(render(results, folder), encoding="utf-8")
    for verdict in verdicts(results):
        print(f"{verdict.reached!s:6} {verdict.what}: {verdict.measured} {verdict.wanted}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
