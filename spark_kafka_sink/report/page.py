"""The page: one HTML file that needs nothing from elsewhere."""

from __future__ import annotations

import json
from html import escape
from importlib.resources import files
from typing import Any

import numpy as np

from spark_kafka_sink import __version__
from spark_kafka_sink.report.causes import overall
from spark_kafka_sink.report.collecting import MOST_LATEST, TIMES, Collected
from spark_kafka_sink.report.figures import count, left_out
from spark_kafka_sink.report.parts import NAMES
from spark_kafka_sink.report.sections import (
    advice_section,
    batches_table,
    brokers_table,
    heat_map,
    outliers_section,
    settings_section,
    summary_section,
    tasks_table,
)
from spark_kafka_sink.report.series import points
from spark_kafka_sink.report.tables import Html

_CHARTS = (
    ("throughput", "Throughput", "Records per second, from planning to committing."),
    (
        "time",
        "Where the time goes",
        "Seconds of a batch: of its tasks, as they have spent theirs, of planning and committing.",
    ),
    ("latency", "Latency of produce requests", "From request to answer, in milliseconds."),
    ("bytes", "Bytes", "MiB per second that were sent, after compression."),
    ("rate", "Compression", "Size after compression, as a percentage of the size before."),
)
_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'"
)
"""The browser itself refuses addresses outside."""


def render(collected: Collected, version: int | None = None) -> str:
    """The page of what was read so far.

    version: of a page that goes on updating, grows with what was read; None: it stays as it is
    """
    columns = collected.columns()
    title = _title(collected)
    follow = "" if version is None else f' data-version="{version}"'
    body = _body(collected, columns) if collected.lines else "<p>There is no line yet.</p>"
    return (
        f'<!DOCTYPE html>\n<html lang="en"{follow}>\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(title)}</title>\n{_licence()}"
        f"<style>{_asset('uPlot.min.css')}\n{_asset('page.css')}</style>\n</head>\n<body>\n"
        f"<header><h1>{escape(title)}</h1><p id='state' role='status'></p></header>\n"
        f"<main id='main'>\n{body}</main>\n"
        f"<footer><p>pykafka-sink {__version__}. {escape(_about(collected))}</p></footer>\n"
        f"<script>{_plotting()}</script>\n<script>{_asset('page.js')}</script>\n</body>\n</html>\n"
    )


def _title(collected: Collected) -> str:
    names = sorted({name or query_id for query_id, name in collected.queries} - {""})
    of_what = ", ".join(names[:3]) + (" and others" if len(names) > 3 else "")
    return f"pykafka-sink: {of_what}" if of_what else "pykafka-sink"


def _body(collected: Collected, columns: dict[str, Any]) -> str:
    total, latest = collected.total(), collected.latest()
    times = columns["time_ms"]
    median_ms = float(np.median(np.nansum([columns[name] for name in TIMES], axis=0)))
    span = (float(np.nanmin(times)), float(np.nanmax(times)))
    charts = "".join(_figure(*chart) for chart in _CHARTS)
    slowest = [line for _, line in collected.slowest()]
    last = min(MOST_LATEST, collected.lines)
    kept = f"The last {last} micro-batches and jobs" if last > 1 else "The only one"
    parts = (
        _section(
            "advice",
            "What to change",
            Html(
                advice_section(overall(total, collected.causes), collected.lines)
                + outliers_section(collected, median_ms)
            ),
        ),
        _section("summary", "In figures", summary_section(collected, total, span)),
        _section("charts", "Over time", Html(_CHARTS_HELP + charts)),
        _section(
            "slow",
            "Slowest batches",
            batches_table(
                "slowest",
                f"The {len(slowest)} that took longest" if len(slowest) > 1 else "The only one",
                slowest,
            ),
        ),
        _section("skew", "Partitions", heat_map(collected)),
        _section("nodes", "Brokers", brokers_table(total)),
        _section("slow-tasks", "Slowest tasks", tasks_table(total)),
        _section("last", "Latest batches", batches_table("latest", kept, latest)),
        _section("set", "Settings", settings_section(collected, latest[0])),
        f"<script type='application/json' id='data'>{_data(columns)}</script>\n",
    )
    return "".join(parts)


_CHARTS_HELP = (
    "<p>Point at a chart, or reach it with the Tab key and use the arrow keys, for its figures; "
    "drag to enlarge a part, press twice to see all. Marks: <b>A</b> aborted, <b>D</b> dead "
    "letters, <b>E</b> records refused, <b>F</b> task attempts failed, <b>R</b> records sent "
    "again, <b>T</b> throttled.</p>"
)


def _section(name: str, title: str, content: str) -> str:
    return (
        f"<section aria-labelledby='h-{name}'><h2 id='h-{name}'>{title}</h2>{content}</section>\n"
    )


def _figure(name: str, title: str, caption: str) -> str:
    return (
        f"<figure id='{name}'><figcaption><b>{title}.</b> {caption}</figcaption>"
        f"<div class='chart' tabindex='0' role='img' aria-label='{title}'></div>"
        "<p class='told' role='status'></p>"
        "<details class='as-table'><summary>As a table</summary></details></figure>\n"
    )


def _data(columns: dict[str, Any]) -> str:
    data = {"parts": NAMES, "points": points(columns), "lines": len(columns["time_ms"])}
    return json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")


def _about(collected: Collected) -> str:
    told = f"Made of {count(collected.lines)} line{'s' * (collected.lines != 1)} of metrics."
    if collected.every > 1:
        told += f" Partitions and brokers are those of every {collected.every}th line."
    if collected.left_out:
        told += f" {left_out(collected.left_out)}."
    return told


def _asset(name: str) -> str:
    return (files(__package__) / "assets" / name).read_text(encoding="utf-8")


def _plotting() -> str:
    """Without the address in its first line: the licence has its author's name."""
    return _asset("uPlot.iife.min.js").split("\n", 1)[1]


def _licence() -> str:
    return f"<!-- Charts: uPlot\n{_asset('uPlot.LICENSE')}-->\n"
