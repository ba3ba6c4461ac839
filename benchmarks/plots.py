"""The report's pictures: SVG files that change only if the figures do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt

from benchmarks.points import CODECS, VALUE_BYTES, size_name

_COLOURS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee")
_GREY = "#888888"
# Place the legend beside the plot, where it hides nothing.
_LEGEND: dict[str, Any] = {
    "loc": "upper left",
    "bbox_to_anchor": (1, 1),
    "frameon": False,
    "fontsize": 8,
}
mpl.rcParams.update(
    {
        "svg.hashsalt": "pykafka-sink",
        "svg.fonttype": "none",
        "font.size": 9,
        "axes.spines.top": False,
        "axes.spines.right": False,
    }
)
Results = Mapping[str, Any]


def _save(figure: Any, folder: Path, name: str) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    figure.tight_layout()
    figure.savefig(folder / f"{name}.svg", metadata={"Date": None})
    plt.close(figure)
    return f"{name}.svg"


def ratios_by_size(
    points: Results, other: str, measure: str, title: str, folder: Path, name: str
) -> str:
    """Draw bars by value size and codec; whiskers range from the least to the largest ratio."""
    figure, axes = plt.subplots(figsize=(7.2, 3.2))
    width = 0.8 / len(CODECS)
    for index, codec in enumerate(CODECS):
        places, medians, low, high = [], [], [], []
        for group, size in enumerate(VALUE_BYTES):
            ratios = points.get(f"{size_name(size)}-{codec}", {}).get("ratios", {})
            spread = ratios.get(other, {}).get(measure)
            if spread is None:
                continue
            places.append(group + (index - 2) * width)
            medians.append(spread["median"])
            low.append(spread["median"] - spread["min"])
            high.append(spread["max"] - spread["median"])
        axes.bar(
            places,
            medians,
            width * 0.9,
            yerr=[low, high],
            label=codec,
            color=_COLOURS[index],
            error_kw={"elinewidth": 0.8, "ecolor": "#333333"},
        )
    axes.axhline(1, color=_GREY, linewidth=0.8)
    axes.set_xticks(range(len(VALUE_BYTES)), [size_name(size) for size in VALUE_BYTES])
    axes.set_xlabel("value size")
    axes.set_title(title, loc="left")
    axes.legend(**_LEGEND)
    return _save(figure, folder, name)


def seconds_per_point(points: Results, names: Sequence[str], folder: Path, name: str) -> str:
    """Draw the elapsed time of each contender."""
    shown = [point for point in names if point in points]
    figure, axes = plt.subplots(figsize=(7.2, 0.6 + 0.55 * len(shown)))
    sinks = ("jvm", "ours", "empty")
    for row, point in enumerate(shown):
        rounds = points[point]["rounds"]
        for index, sink in enumerate(sinks):
            times = sorted(runs[sink]["elapsed_s"] for runs in rounds)
            place = row + (index - 1) * 0.26
            colour = (_COLOURS[1], _COLOURS[0], _GREY)[index]
            label = {"jvm": "JVM sink", "empty": "empty Python sink"}.get(sink, sink)
            axes.barh(
                place, times[len(times) // 2], 0.24, color=colour, label=None if row else label
            )
    axes.set_yticks(range(len(shown)), shown)
    axes.invert_yaxis()
    axes.set_xlabel("seconds per job, median")
    axes.legend(**_LEGEND)
    return _save(figure, folder, name)


def latency(results: Results, folder: Path, name: str) -> str:
    """Draw addBatch of micro-batches with one row."""
    figure, axes = plt.subplots(figsize=(5.0, 2.4))
    sinks = {"empty": "empty Python sink", "ours": "ours", "jvm": "JVM sink"}
    for index, percentile in enumerate(("p50", "p99")):
        values = [results["phases_ms"][sink]["addBatch"][percentile] for sink in sinks]
        places = [row + (index - 0.5) * 0.36 for row in range(len(sinks))]
        axes.barh(places, values, 0.34, color=_COLOURS[index], label=percentile)
    axes.set_yticks(range(len(sinks)), list(sinks.values()))
    axes.invert_yaxis()
    axes.set_xlabel("addBatch, ms")
    axes.legend(**_LEGEND)
    return _save(figure, folder, name)


def memory(points: Sequence[Mapping[str, Any]], folder: Path, name: str) -> str:
    """Draw the peak memory of a worker against its limit."""
    figure, axes = plt.subplots(figsize=(4.4, 3.4))
    limits = [point["limit_mib"] for point in points]
    for index, (key, label) in enumerate(
        (("peak_rss_mib", "resident"), ("peak_pss_mib", "its share (PSS)"))
    ):
        peaks = [point[key] for point in points]
        axes.scatter(limits, peaks, s=18, color=_COLOURS[index], label=label)
    ends = [min(limits), max(limits)]
    axes.plot(ends, ends, color=_GREY, linewidth=0.8, label="promised")
    axes.set_xlabel("240 MiB + buffer.memory + 3 × Arrow batch, MiB")
    axes.set_ylabel("peak of a worker, MiB")
    axes.legend(**_LEGEND)
    return _save(figure, folder, name)


def kernels(stages: Results, folder: Path, name: str) -> str:
    """Draw ns per row by stage at 100 B with 8-byte keys."""
    prefix = "100B key8 "
    shown = {key.removeprefix(prefix): s for key, s in stages.items() if key.startswith(prefix)}
    figure, axes = plt.subplots(figsize=(5.0, 2.6))
    axes.barh(list(shown), [stage["ns_per_row"] for stage in shown.values()], color=_COLOURS[0])
    axes.invert_yaxis()
    axes.set_xlabel("ns per row, 100-B values, 8-byte keys")
    return _save(figure, folder, name)
