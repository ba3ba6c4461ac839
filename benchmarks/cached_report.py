"""The report's section of the results of `benchmarks.cached`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

Table = Callable[[Sequence[str], Iterable[Sequence[object]]], list[str]]

WANTED = {
    "10B-zstd": 2.1,
    "100B-lz4": 1.5,
    "100B-none": 1.5,
    "1KB-none": 1.35,
    "1KB-lz4-key36": 1.15,
    "10KB-none": 1.15,
    "10KB-lz4": 0.95,
}
"""Least elapsed time of the JVM sink over ours."""
AT_NO_COST = 1.25
"""Highest elapsed time of ours over that of a sink at no cost."""
CPU = {1_000: 1.0, 10_000: 1.25}
"""Highest CPU of Spark and Python with ours over that with the JVM sink, by value bytes."""
MANY_PARTITIONS = ("1KB-lz4-key36-100p", "1KB-lz4-key36", 0.95)
"""Least ratio JVM sink / ours at the first point over the same ratio at the second."""
_SINKS = ("ours", "jvm", "empty")
_PARTS = ("jvm_cpu_s", "python_cpu_s", "broker_cpu_s")


def section(results: Mapping[str, Any], title: str, text: str, table: Table) -> list[str]:
    """Return the ratios of all points, then the seconds of each part."""
    points: Mapping[str, Any] = results["points"]
    conf = ", ".join(f"`{name}={value}`" for name, value in results["spark_conf"].items())
    cores: int = results["machine"]["cores"]
    with_conf = f" Spark's configuration: {conf}." if conf else ""
    machine = results["machine"]
    text += f" Machine: {machine['processor']}, {machine['cores']} cores."
    ratios = ("point", "pairs", "JVM sink / ours", "wanted", "ours / a sink at no cost", "wanted")
    seconds = ("point", "sink", "elapsed, s", "CPU of Spark's JVM, s", "of Python, s")
    return [
        f"## {title}",
        "",
        text + with_conf,
        "",
        *table((*ratios, "CPU, ours / JVM sink", "wanted"), map(_ratios, points, points.values())),
        *_many_partitions(points),
        *table((*seconds, "of the broker, s", "cores idle"), _seconds(points, cores)),
    ]


def _ratios(name: str, point: Mapping[str, Any]) -> list[str]:
    wanted = WANTED.get(name)
    jvm, empty = point["jvm_over_ours"], point["ours_over_empty"]
    return [
        name,
        str(len(point["rounds"])),
        _marked(jvm, wanted is not None and jvm["median"] < wanted),
        "" if wanted is None else f"≥ {wanted:.2f}",
        _marked(empty, empty["median"] > AT_NO_COST),
        f"≤ {AT_NO_COST:.2f}",
        *_cpu(point["cpu_ours_over_jvm"]["median"], CPU.get(point["point"]["value_bytes"])),
    ]


def _cpu(ratio: float, wanted: float | None) -> tuple[str, str]:
    if wanted is None:
        return f"{ratio:.2f}", ""
    return (f"**{ratio:.2f}**" if ratio > wanted else f"{ratio:.2f}"), f"≤ {wanted:.2f}"


def _many_partitions(points: Mapping[str, Any]) -> list[str]:
    """Return what more partitions cost ours, compared with the JVM sink."""
    many, few, wanted = MANY_PARTITIONS
    if many not in points or few not in points:
        return []
    with_many, with_few = (points[name]["jvm_over_ours"]["median"] for name in (many, few))
    return [
        f"100 partitions beside 6, JVM sink / ours: {with_many / with_few:.2f} of the ratio "
        f"(wanted: ≥ {wanted}).",
        "",
    ]


def _marked(spread: Mapping[str, float], is_missed: bool) -> str:
    """Return the spread; bold if a target is missed."""
    text = f"{spread['median']:.2f} ({spread['min']:.2f} to {spread['max']:.2f})"
    return f"**{text}**" if is_missed else text


def _seconds(points: Mapping[str, Any], cores: int) -> Iterator[list[str]]:
    """Yield the seconds; idle is the cores' time without Spark, Python and the broker."""
    for name, point in points.items():
        for sink in _SINKS:
            figures = point["seconds"][sink]
            parts = [f"{figures[part]:.2f}" for part in _PARTS]
            used = sum(figures[part] for part in _PARTS)
            idle = 1 - used / (cores * figures["elapsed_s"])
            yield [name, sink, f"{figures['elapsed_s']:.2f}", *parts, f"{max(0.0, idle):.0%}"]
