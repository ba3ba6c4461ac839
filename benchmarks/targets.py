"""The package's performance targets, compared with measured figures. All figures are computed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

BASE_MIB = 240
ARROW_BATCHES = 3
ENCODED = 2
PANDAS_MIB = 40
"""MiB of pandas, which Spark imports into every worker if it is installed."""
_MIB = 1 << 20
_DEFAULT_BUFFER_MIB = 32
Results = Mapping[str, Any]


class Verdict(NamedTuple):
    """One target. ``reached`` is None if the target was not measured."""

    what: str
    wanted: str
    measured: str
    reached: bool | None


_JVM_TARGETS = {
    "10B-zstd": 2.1,
    "100B-none": 2.0,
    "100B-lz4": 1.6,
    "1KB-lz4": 1.2,
    "1KB-none": 1.4,
    "1KB-none-arrow2000": 1.4,
    "10KB-none": 1.0,
    "10KB-lz4": 1.0,
    "10KB-zstd": 1.0,
    "100B-defaults": 2.0,
}
_EMPTY_TARGETS = {
    "10B-zstd": 1.2,
    "100B-lz4": 1.2,
    "1KB-lz4": 1.2,
    "100B-none": 1.5,
    "1KB-none": 1.5,
    "1KB-none-arrow2000": 1.5,
}
_CPU_TARGETS = {"10B-zstd": 0.6, "100B-none": 0.6, "100B-lz4": 0.6}
_CONFLUENT_TARGETS = {"100B-lz4-clients": 3.0, "100B-none-clients": 3.0}
_COLD_TARGET = 0.6
_INSTALLED_TARGET = 1.3
_KERNEL = "100B key8 whole"
_KERNEL_NS = 45.0
_KERNEL_TIMES_MEMCPY = 12.0
_LATENCY_MS = 3.0
_EXACTLY_ONCE_RATIO = 0.9
_MOST_COMMIT_MS = 100
TLS_RATIO = 1.3
"""Least elapsed time of the JVM sink with TLS over ours with TLS."""


def verdicts(results: Results) -> list[Verdict]:
    """Return all targets, the most important first. ``results`` by file name."""
    matrix = results.get("matrix", {})
    points, machine = matrix.get("points", {}), matrix.get("machine", {})
    return [
        *_over_jvm(points),
        *_over_empty(points),
        *_cpu(points),
        *_cold(results.get("cold", {})),
        *_over_confluent(points),
        _kernels(results.get("kernels", {})),
        _latency(results.get("latency", {})),
        _memory(points, machine, results),
        *exactly_once_verdicts(results.get("exactly_once", {})),
        *_tls(results.get("tls", {})),
    ]


def _tls(results: Results) -> Iterator[Verdict]:
    for size, point in results.get("points", {}).items():
        ratio = point["ratios"]["elapsed"]["ours, TLS"]
        what = f"{int(size):,} B lz4 with TLS: JVM sink / ours, elapsed"
        yield Verdict(what, f"≥ {TLS_RATIO}", _range(ratio), ratio["median"] >= TLS_RATIO)


def _range(spread: Mapping[str, float]) -> str:
    return f"{spread['median']:.2f} ({spread['min']:.2f} to {spread['max']:.2f})"


def _ratio(
    points: Results, name: str, other: str, measure: str = "elapsed"
) -> Mapping[str, float] | None:
    found: Mapping[str, float] | None = (
        points.get(name, {}).get("ratios", {}).get(other, {}).get(measure)
    )
    return found


def _at_least(what: str, wanted: float, spread: Mapping[str, float] | None) -> Verdict:
    if spread is None:
        return Verdict(what, f"≥ {wanted:.2f}", "", None)
    return Verdict(what, f"≥ {wanted:.2f}", _range(spread), spread["median"] >= wanted)


def _at_most(what: str, wanted: float, spread: Mapping[str, float] | None) -> Verdict:
    if spread is None:
        return Verdict(what, f"≤ {wanted:.2f}", "", None)
    return Verdict(what, f"≤ {wanted:.2f}", _range(spread), spread["median"] <= wanted)


def inverse(spread: Mapping[str, float]) -> dict[str, float]:
    """Return B over A for a measured A over B."""
    return {
        "median": 1 / spread["median"],
        "min": 1 / spread["max"],
        "max": 1 / spread["min"],
    }


def _over_jvm(points: Results) -> Iterator[Verdict]:
    for name, wanted in _JVM_TARGETS.items():
        spread = _ratio(points, name, "jvm")
        yield _at_least(f"JVM sink / ours, elapsed, {name}", wanted, spread)


def _over_empty(points: Results) -> Iterator[Verdict]:
    for name, wanted in _EMPTY_TARGETS.items():
        spread = _ratio(points, name, "empty")
        over = None if spread is None else inverse(spread)
        yield _at_most(f"ours / empty Python sink, elapsed, {name}", wanted, over)
    for has_codec, what, wanted in ((True, "with a codec", 1.2), (False, "without", 1.5)):
        worst = _furthest_above_empty(points, has_codec)
        if worst is not None:
            name, over = worst
            what = f"ours / empty Python sink, elapsed, at the worst point {what}: {name}"
            yield _at_most(what, wanted, over)


def _furthest_above_empty(points: Results, has_codec: bool) -> tuple[str, dict[str, float]] | None:
    """Return the worst point with given settings, including keys, headers and many partitions."""
    overs = {
        name: inverse(result["ratios"]["empty"]["elapsed"])
        for name, result in points.items()
        if "empty" in result["ratios"]
        and (result["point"]["codec"] != "none") == has_codec
        and not result["point"]["with_defaults"]
    }
    return max(overs.items(), key=lambda over: over[1]["median"], default=None)


def _cpu(points: Results) -> Iterator[Verdict]:
    for name, wanted in _CPU_TARGETS.items():
        spread = _ratio(points, name, "jvm", "cpu")
        yield _at_most(f"ours / JVM sink, CPU of Spark and Python, {name}", wanted, spread)


def _over_confluent(points: Results) -> Iterator[Verdict]:
    for name, wanted in _CONFLUENT_TARGETS.items():
        for client in ("confluent", "confluent-batch"):
            spread = _ratio(points, name, client)
            yield _at_least(f"{client} / ours, elapsed, {name}", wanted, spread)


def _cold(cold: Results) -> Iterator[Verdict]:
    over_jvm = cold.get("ours_over", {}).get("jvm")
    yield _at_most("first job of a fresh session, ours / JVM sink", _COLD_TARGET, over_jvm)
    what = "first job of a fresh installation, ours / empty Python sink"
    yield _at_most(what, _INSTALLED_TARGET, cold.get("installed_over_empty"))


def _kernels(kernels: Results) -> Verdict:
    stage = kernels.get("stages", {}).get(_KERNEL)
    what = "view, size, group, gather and encode 100-B values with 8-byte keys"
    wanted = f"≤ {_KERNEL_NS:.0f} ns per row or ≤ {_KERNEL_TIMES_MEMCPY:.0f} × memcpy"
    if stage is None:
        return Verdict(what, wanted, "", None)
    measured = f"{stage['ns_per_row']:.1f} ns, {stage['times_memcpy']:.1f} × memcpy"
    is_reached = stage["ns_per_row"] <= _KERNEL_NS or stage["times_memcpy"] <= _KERNEL_TIMES_MEMCPY
    return Verdict(what, wanted, measured, is_reached)


def _latency(latency: Results) -> Verdict:
    spread = latency.get("add_batch_p50_ms", {}).get("ours - empty")
    what = "micro-batch of one row, addBatch p50, ours - empty Python sink"
    wanted = f"≤ {_LATENCY_MS:.0f} ms"
    if spread is None:
        return Verdict(what, wanted, "", None)
    measured = f"{spread['median']:.0f} ms ({spread['min']:.0f} to {spread['max']:.0f})"
    return Verdict(what, wanted, measured, spread["median"] <= _LATENCY_MS)


def promised_mib(
    machine: Results, buffer_mib: int, arrow_mib: float, encoded_mib: float = 0.0
) -> float:
    """Return the documented limit of a worker's memory on ``machine``, in MiB.

    encoded_mib: size of the keys and values that are encoded from columns of an Arrow batch
    """
    pandas_mib = PANDAS_MIB if machine.get("pandas") else 0
    own_mib = BASE_MIB + pandas_mib + buffer_mib
    return own_mib + ARROW_BATCHES * arrow_mib + ENCODED * encoded_mib


def worker_memory(result: Results, machine: Results) -> tuple[float, float]:
    """Return (peak, limit) of a point of the matrix, in MiB."""
    peak = max(runs["ours"]["worker_peak_mib"] for runs in result["rounds"])
    arrow_mib = result["largest_arrow_batch_bytes"] / _MIB
    return peak, promised_mib(machine, _DEFAULT_BUFFER_MIB, arrow_mib)


def _memory(points: Results, machine: Results, results: Results) -> Verdict:
    what = "peak memory of a worker at every point"
    if machine.get("pandas"):
        what += f", {PANDAS_MIB} MiB of pandas besides"
    wanted = f"≤ {BASE_MIB} MiB + buffer.memory + {ARROW_BATCHES} × Arrow batch"
    found = [results.get(name, {}).get("points", []) for name in ("memory", "memory_typed")]
    if found[1]:
        wanted += f" + {ENCODED} × what it is encoded to"
    of_jobs = _all_memory(points, machine, [*found[0], *found[1]])
    margins = [(limit - peak, name) for name, (peak, limit) in of_jobs]
    if not margins:
        return Verdict(what, wanted, "", None)
    over = [name for margin, name in margins if margin < 0]
    least, name = min(margins)
    measured = f"{len(over)} of {len(margins)} points above; nearest or worst {name}: "
    return Verdict(what, wanted, f"{measured}{-least:+.0f} MiB", not over)


def _all_memory(
    points: Results, machine: Results, of_memory: Sequence[Results]
) -> Iterator[tuple[str, tuple[float, float]]]:
    for name, result in points.items():
        yield name, worker_memory(result, machine)
    for point in of_memory:
        name = f"{point['buffer_mib']} MiB buffer, {point['arrow_batch_mib']} MiB Arrow batch"
        yield name, (point["peak_rss_mib"], point["limit_mib"])


def exactly_once_verdicts(results: Results) -> Iterator[Verdict]:
    """Yield the targets of exactly-once delivery."""
    ratio = results.get("throughput", {}).get("ratio")
    yield _at_least("records/s, exactly-once / at-least-once", _EXACTLY_ONCE_RATIO, ratio)
    commit = results.get("commit", {})
    what, wanted = "commit of a micro-batch exactly once, 8 tasks, p50", f"≤ {_MOST_COMMIT_MS} ms"
    commit_ms = commit.get("commit_ms", {}).get("p50")
    if commit_ms is None:
        yield Verdict(what, wanted, "", None)
    else:
        yield Verdict(what, wanted, f"{commit_ms:.0f} ms", commit_ms <= _MOST_COMMIT_MS)
    what = "producer ids and transactional ids on the broker, exactly once"
    seen = results.get("ids", {}).get("seen", [])
    if not seen:
        yield Verdict(what, "flat", "", None)
    else:
        names = ("producer_ids", "transactional_ids")
        first, last = ([at[name] for name in names] for at in (seen[0], seen[-1]))
        counts = f"{first} after {seen[0]['micro_batches']}, {last} after "
        measured = f"{counts}{seen[-1]['micro_batches']} micro-batches"
        is_flat = all(at[name] <= seen[0][name] for at in seen for name in names)
        yield Verdict(what, "flat", measured, is_flat)
