"""The report's section of the results of `benchmarks.typed`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

Table = Callable[[Sequence[str], Iterable[Sequence[object]]], list[str]]

WANTED = {"jvm, to_json / ours, json": 1.5, "jvm, to_avro / ours, avro": 1.3}
"""Least elapsed time of Spark's JVM sink over ours."""
_CONFLUENT_WANTED = 20
_PARTS = ("jvm_cpu_s", "python_cpu_s", "broker_cpu_s")


def section(results: Mapping[str, Any], text: str, table: Table) -> list[str]:
    """Return the ratios, then the seconds of each part."""
    ratios = {**results["over_ours"]}
    ratios |= {f"{ours} / a sink at no cost": r for ours, r in results["over_empty"].items()}
    medians = results["medians"].items()
    seconds = ("what is written", "elapsed, s", "CPU of Spark's JVM, s", "of Python, s")
    rounds = len(results["rounds"])
    return [
        "## Typed rows",
        "",
        f"{text} {results['rows']:,} rows, {rounds} rounds.",
        "",
        *table(("elapsed", "median", "wanted"), (_ratio(*item) for item in ratios.items())),
        *table(
            (*seconds, "of the broker, s", "a worker's memory, MiB"),
            ([name, f"{m['elapsed_s']:.2f}", *_parts(m)] for name, m in medians),
        ),
        *_confluent(results),
    ]


def _ratio(name: str, spread: Mapping[str, float]) -> list[str]:
    wanted = WANTED.get(name)
    text = f"{spread['median']:.2f} ({spread['min']:.2f} to {spread['max']:.2f})"
    is_missed = wanted is not None and spread["median"] < wanted
    return [name, f"**{text}**" if is_missed else text, f"≥ {wanted}" if wanted else ""]


def _parts(medians: Mapping[str, float]) -> list[str]:
    return [*(f"{medians[part]:.2f}" for part in _PARTS), f"{medians['worker_peak_mib']:.0f}"]


def _confluent(results: Mapping[str, Any]) -> list[str]:
    confluent = results.get("confluent")
    if not confluent:
        return []
    elapsed, python = confluent["elapsed"], confluent["python_cpu"]
    return [
        "confluent-kafka with its AvroSerializer in `mapInArrow`, one call of each per row, "
        f"{confluent['rows']:,} rows, over ours: {elapsed['median']:.1f} × the elapsed time, "
        f"{python['median']:.0f} × the CPU of Python (wanted: {_CONFLUENT_WANTED}).",
        "",
    ]
