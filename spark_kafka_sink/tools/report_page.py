"""The page of a report: one HTML file without other files, or a local page that updates itself.

Its charts have some hundreds of points, whatever the number of lines, with the extremes of each.
Users can sort its tables, and screen readers can read them.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from math import isnan
from threading import Lock
from typing import Any, NamedTuple, Optional, Union

import numpy as np

from spark_kafka_sink import __version__
from spark_kafka_sink.base.text import printable
from spark_kafka_sink.metrics.line import (
    NAMES,
    PART_FIELDS,
    PARTS,
    batch_duration_ms,
    count,
    duration,
    largest_part,
    moment,
    part_times,
    percent,
    size,
)
from spark_kafka_sink.metrics.reading import LineTail
from spark_kafka_sink.tools.report_advice import (
    Finding,
    batch_name,
    brokers,
    left_out,
    line_findings,
    overall_findings,
)
from spark_kafka_sink.tools.report_lines import (
    MOST_LATEST,
    TIMES,
    Change,
    LineAggregate,
    Step,
    Values,
    joined,
    read_pieces,
)

# --- tables --------------------------------------------------------------------------------------


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


class Cell(NamedTuple):
    """A cell of numbers, aligned to the right. order: the sort key"""

    shown: str
    order: float


Value = Union[str, Cell]


def escape(value: str) -> str:
    """Return a text of a line as HTML, with unprintable characters as in Python.

    A page may go to a terminal, and a character of text direction would disguise a name.
    """
    return html.escape(printable(value))


def text(value: str) -> str:
    """Return the text as HTML."""
    return value if isinstance(value, Html) else escape(value)


def table(name: str, caption: str, columns: Sequence[str], rows: Iterable[Sequence[Value]]) -> Html:
    """Return a table; the first cell of each row is its header."""
    head = "".join(f'<th scope="col">{escape(column)}</th>' for column in columns)
    body = "".join(f"<tr>{_row(row)}</tr>\n" for row in rows)
    return Html(
        f'<div class="wide" tabindex="0" role="region" aria-label="{escape(caption)}">'
        f'<table class="sortable" id="{name}"><caption>{escape(caption)}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table></div>\n"
    )


def _row(row: Sequence[Value]) -> str:
    cells = []
    for number, value in enumerate(row):
        tag, scope = ("td", "") if number else ("th", ' scope="row"')
        if isinstance(value, Cell):
            order = f' class="n" data-order="{value.order:.6g}"'
            cells.append(f"<{tag}{scope}{order}>{text(value.shown)}</{tag}>")
        else:
            cells.append(f"<{tag}{scope}>{text(value)}</{tag}>")
    return "".join(cells)


_TOGETHER = re.compile(
    r"(?P<option>\(?[a-z][\w-]*(?:\.[\w*-]*[\w*])+(?:=[\w.*-]*\w)?[.,;:)]*)"
    r"|\d[\d.,]* (?:(?:ms|s|min|h|[KMGT]?i?B)\b|%)"
    r"|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?: UTC)?"
)


def unbroken(value: str) -> str:
    """Return text as HTML whose options, values and moments move to the next line as a whole."""
    found, at = "", 0
    for match in _TOGETHER.finditer(value):
        kind = "option" if match["option"] else "value"
        found += escape(value[at : match.start()])
        found += f"<span class='{kind}'>{escape(match[0])}</span>"
        at = match.end()
    return found + escape(value[at:])


# --- points of charts ----------------------------------------------------------------------------

MOST_POINTS = 400
Series = dict[str, list[Optional[float]]]


def points(columns: dict[str, Values]) -> Series:
    """Return the values of each point by name, None if unknown.

    first, last: numbers of batches, else of lines; time_ms, until_ms: time of their lines
    query: index of the query's name, -1 for batches of several
    seconds, slowest_s: mean and most of a batch, with committing
    records_per_s and bytes_per_s (compressed): from planning to committing; with ``least_`` and
    ``most_``, of one batch
    part_0 … : seconds of ``figures.NAMES``, of a mean batch
    p50_ms: median over the batches; p99_ms and max_ms: the largest over the batches
    rate: size of batches after compression, as a share of the size before
    retries, throttle_ms, aborted, attempts, errors, dead (letters): sums
    """
    lines = len(columns["time_ms"])
    if not lines:
        return {}
    starts = np.linspace(0, lines, min(lines, MOST_POINTS), endpoint=False).astype(np.int64)
    ends = np.append(starts[1:], lines)
    at = _PointReducer(starts, ends)
    batch_ids, queries = columns["batch_id"], columns["query"]
    numbers = batch_ids if not np.isnan(batch_ids).any() else np.arange(1.0, lines + 1)
    found = {
        "first": numbers[starts],
        "last": numbers[ends - 1],
        "time_ms": columns["time_ms"][starts],
        "until_ms": columns["time_ms"][ends - 1],
        "query": np.where(at.least(queries) == at.most(queries), queries[starts], -1.0),
        **_rates(columns, at),
        **_parts(columns, at),
        "p50_ms": at.median(columns["p50_ms"]),
        "p99_ms": at.most(columns["p99_ms"]),
        "max_ms": at.most(columns["request_latency_max_ms"]),
        "rate": _ratio(at.sum(columns["compressed_bytes"]), at.sum(columns["uncompressed_bytes"])),
        "retries": at.sum(columns["record_retries"]),
        "throttle_ms": at.sum(columns["throttle_time_ms"]) + at.sum(columns["throttle_left_ms"]),
        "dead": at.sum(columns["dead_letters"]),
        "aborted": at.sum(columns["aborted"]),
        "attempts": at.sum(columns["failed_attempts"]),
        "errors": at.sum(columns["record_errors"]),
    }
    return {name: [_short(value) for value in values] for name, values in found.items()}


class _PointReducer(NamedTuple):
    """Reduces columns to points. starts, ends: numbers of the lines of each point"""

    starts: Any
    ends: Any

    def sum(self, values: Values) -> Any:
        return np.add.reduceat(np.nan_to_num(values), self.starts)

    def least(self, values: Values) -> Any:
        return np.fmin.reduceat(values, self.starts)

    def most(self, values: Values) -> Any:
        return np.fmax.reduceat(values, self.starts)

    def median(self, values: Values) -> Values:
        each = (values[start:end] for start, end in zip(self.starts, self.ends))
        return np.array(list(map(_median, each)))

    def mean(self, values: Values) -> Values:
        return _ratio(self.sum(values), self.sum(np.isfinite(values).astype(np.float64)))


def _median(values: Values) -> float:
    known = values[~np.isnan(values)]
    return float(np.median(known)) if len(known) else np.nan


def _rates(columns: dict[str, Values], at: _PointReducer) -> dict[str, Values]:
    driver_ms = np.nan_to_num(columns["commit_ms"]) + np.nan_to_num(columns["planning_ms"])
    took_s = (columns["elapsed_ms"] + driver_ms) / 1000
    found = {"seconds": at.mean(took_s), "slowest_s": at.most(took_s)}
    rates = {"records_per_s": "records_acknowledged", "bytes_per_s": "compressed_bytes"}
    for name, column in rates.items():
        known = np.where(np.isnan(took_s), np.nan, columns[column])
        found[name] = _ratio(at.sum(known), at.sum(took_s))
        of_each = _ratio(columns[column], took_s)
        found[f"least_{name}"], found[f"most_{name}"] = at.least(of_each), at.most(of_each)
    return found


def _parts(columns: dict[str, Values], at: _PointReducer) -> dict[str, Values]:
    """Return the parts' seconds: tasks run in parallel, so their shares divide the elapsed time."""
    found = {name: np.nan_to_num(columns[name]) for name in PART_FIELDS}
    times = list(part_times(found, np.minimum).values())
    known = np.sum(times, axis=0)
    whole = np.fmax(known, np.nan_to_num(columns["task_ms"]))
    seconds = columns["elapsed_ms"] / 1000
    divided = [_ratio(each, whole) * seconds for each in (*times, whole - known)]
    divided += [columns[name] / 1000 for name in ("commit_ms", "planning_ms")]
    lines = at.sum(np.ones(len(seconds)))
    return {f"part_{number}": at.sum(each) / lines for number, each in enumerate(divided)}


def _ratio(values: Values, by: Values) -> Values:
    """Divide; NaN if the divisor is 0 or unknown."""
    found = np.full(len(values), np.nan)
    np.divide(values, by, out=found, where=np.nan_to_num(by) > 0)
    return found


def _short(value: float) -> float | None:
    """Return four digits, or a whole number in full, because a page has thousands of values."""
    if isnan(value):
        return None
    return int(value) if value == int(value) else float(f"{value:.4g}")


# --- sections: words and tables ------------------------------------------------------------------

Line = Mapping[str, Any]

_MOST_ROWS_OF_THE_MAP = 40
_MOST_COLUMNS_OF_THE_MAP = 30
_NOTHING = "Nothing stands out: no trouble, and no part that takes far more than its share."


def advice_section(found: Sequence[Finding], lines: int) -> Html:
    """Return what to change: the main cause, and the others."""
    if not found:
        return Html(f"<p>{_NOTHING}</p>")
    of_what = "the batch" if lines == 1 else f"all {count(lines)} batches together"
    intro = f"<p>Of {of_what}; each of the slowest and latest ones has its own words below.</p>"
    return Html(intro + _main_cause(found))


def outliers_section(aggregate: LineAggregate, median_ms: float) -> Html:
    """Return the batches that took far longer than the median batch, each with its cause."""
    least_ms = max(_TIMES_THE_MEDIAN * median_ms, _LEAST_OUTLIER_MS)
    found = [(ms, line) for ms, line in aggregate.slowest() if ms >= least_ms][:_MOST_OUTLIERS]
    items = "".join(_outlier(ms, line, median_ms) for ms, line in found)
    if not items:
        return Html("")
    title = "<h3>Took twice as long as the median batch, or longer</h3>"
    return Html(f"{title}<ul class='outliers' id='outliers'>{items}</ul>")


_TIMES_THE_MEDIAN = 2
_LEAST_OUTLIER_MS = 1000.0
_MOST_OUTLIERS = 8


def _outlier(ms: float, line: Line, median_ms: float) -> str:
    name = batch_name(line)
    times = f", {ms / median_ms:,.0f} times the median" if median_ms else ""
    why = _why(line_findings(line)) or f"Most of it: {escape(largest_part(line)[0])}."
    when = unbroken(f"{moment(line['time_ms'])} UTC: {duration(ms)}{times}.")
    return f"<li><b>{unbroken(name)}</b>, {when} {why}</li>"


def _finding(finding: Finding) -> str:
    kind = "trouble" if finding.is_trouble else "slow"
    advice = f"<p class='do'>→ {_code(finding.advice)}.</p>" if finding.advice else ""
    return (
        f"<li class='{kind}' data-kind='{finding.kind}'><h3>{escape(finding.title)}</h3>"
        f"<p>{unbroken(finding.text)}</p>{advice}</li>"
    )


def _code(advice: str) -> str:
    """Return the advice with the text between backticks as code."""
    parts = enumerate(advice.split("`"))
    return "".join(f"<code>{escape(part)}</code>" if n % 2 else unbroken(part) for n, part in parts)


def summary_section(aggregate: LineAggregate, total: Line, span: tuple[float, float]) -> Html:
    """Return the figures of all lines together."""
    metrics = total.get("metrics") or {}
    sent, before = metrics.get("compressed_bytes") or 0.0, metrics.get("uncompressed_bytes") or 0.0
    seconds = batch_duration_ms(total) / 1000
    records = float(total.get("records_acknowledged") or 0)
    letters = [total["dead_letters"]] if "dead_letters" in total else []
    rows = [
        ("micro-batches and jobs", count(aggregate.lines)),
        ("aborted", count(aggregate.aborted)),
        ("records acknowledged", count(records)),
        ("records per second, while written", count(records / seconds) if seconds else "–"),
        ("sent", size(sent)),
        ("after compression", percent(sent / before) if before else "–"),
        ("records sent again", count(metrics.get("record_retries") or 0)),
        *(("dead letters", count(sum(each.values()))) for each in letters),
        ("pauses for quotas, of all tasks", duration(metrics.get("throttle_time_ms") or 0)),
        ("first line, UTC", moment(span[0])),
        ("last line, UTC", moment(span[1])),
    ]
    items = "".join(f"<div><dt>{escape(n)}</dt><dd>{escape(v)}</dd></div>" for n, v in rows)
    return Html(f"<dl class='figures'>{items}</dl>")


def batches_table(name: str, caption: str, lines: Iterable[Line]) -> Html:
    """Return a row for each batch, with the reasons for its time."""
    columns = ("batch", "took", "why, and what to do", "most of it", "written, UTC")
    more = ("records", "records/s", "sent", "p99")
    return table(name, caption, (*columns, *more), map(_batch_row, lines))


def _batch_row(line: Line) -> list[Value]:
    metrics = line.get("metrics") or {}
    ms = batch_duration_ms(line)
    records = float(line.get("records_acknowledged") or 0)
    sent = float(metrics.get("compressed_bytes") or 0)
    p99 = (line.get("request_latency") or {}).get("p99_ms")
    return [
        _batch_cell(line.get("batch_id")),
        Cell(duration(ms), ms),
        _why(line_findings(line)),
        largest_part(line)[0],
        Cell(moment(line["time_ms"]), float(line["time_ms"])),
        Cell(count(records), records),
        Cell(count(1000 * records / ms) if ms else "–", records / ms if ms else 0.0),
        Cell(size(sent), sent),
        Cell("–" if p99 is None else duration(p99), float(p99 or 0)),
    ]


def _batch_cell(number: int | None) -> Value:
    return "job" if number is None else Cell(str(number), float(number))


def _why(found: Sequence[Finding]) -> Html:
    if not found:
        return Html("")
    said = escape(found[0].title)
    return Html(f"<details><summary>{said}</summary>{_main_cause(found)}</details>")


def _main_cause(found: Sequence[Finding]) -> str:
    """Return the first finding; the others are folded, and their titles are shown."""
    main, *others = found
    shown = f"<ul class='advice'>{_finding(main)}</ul>"
    if not others:
        return shown
    titles = escape("; ".join(finding.title for finding in others))
    items = "".join(_finding(finding) for finding in others)
    return (
        f"{shown}<details class='others'><summary>Also: {titles}</summary>"
        f"<ul class='advice'>{items}</ul></details>"
    )


def brokers_table(total: Line) -> Html:
    """Return the brokers that were written to."""
    rows: list[list[Value]] = [
        [
            Cell(broker.name.removeprefix("broker "), broker.id),
            Cell(count(broker.answers), broker.answers),
            Cell(size(broker.outgoing_bytes), broker.outgoing_bytes),
            *map(_time, (broker.mean_ms, broker.p50_ms, broker.p95_ms, broker.p99_ms)),
            *map(_time, (broker.request_latency_max_ms, broker.throttle_time_ms)),
            Cell(count(broker.record_retries), broker.record_retries),
            Cell(count(broker.connections_created), broker.connections_created),
        ]
        for broker in brokers(total)
    ]
    columns = ("broker", "produce requests", "sent", "mean", "p50", "p95", "p99", "longest")
    more = ("pauses for quotas", "records sent again", "connections made")
    return table("brokers", "Answers to produce requests, by broker", (*columns, *more), rows)


def tasks_table(total: Line) -> Html:
    """Return the slowest tasks of the slowest batches, with the parts of their time.

    Columns without any figure but 0 are omitted.
    """
    rows: list[list[Value]] = []
    for task in total.get("slowest_tasks") or ():
        parts = part_times({name: float(task.get(name) or 0) for name in PART_FIELDS})
        rows.append(
            [
                _batch_cell(task.get("batch_id")),
                Cell(str(task["task"]), float(task["task"])),
                str(task["host"]),
                Cell(moment(task["started_at_ms"]), float(task["started_at_ms"])),
                Cell(count(task["records"]), float(task["records"])),
                _time(float(task.get("task_ms") or 0)),
                Cell(str(task["attempt"]), float(task["attempt"])),
                *map(_time, parts.values()),
            ]
        )
    columns = ["batch", "task", "host", "started, UTC", "records", "took", "attempt"]
    always = len(columns) - 1
    columns += [part.name.removeprefix(_WAITING) for part in PARTS]
    shown = [n for n in range(len(columns)) if n < always or any(row[n][1] for row in rows)]
    waits = ", ".join(columns[n] for n in shown if _WAITING + columns[n] in NAMES)
    caption = "Slowest tasks of the slowest batches" + f". Waiting for: {waits}" * bool(waits)
    heads = [columns[n].replace("gements", "ge\u00adments") for n in shown]
    return table("tasks", caption, heads, ([row[n] for n in shown] for row in rows))


_WAITING = "waiting for "


def _time(ms: float) -> Cell:
    return Cell(duration(ms), ms)


def heat_map(aggregate: LineAggregate) -> Html:
    """Return the records of each partition over time, relative to the mean of partitions."""
    columns = joined(aggregate.steps, _MOST_COLUMNS_OF_THE_MAP)
    totals = joined(columns, 1)[0].counts if columns else {}
    if not totals:
        return Html("<p>The lines do not tell of partitions.</p>")
    rows = sorted(totals, key=lambda where: -totals[where])
    shown = rows[:_MOST_ROWS_OF_THE_MAP]
    whole = sum(totals.values())
    head = "".join(
        f"<th scope='col' class='n' title='{moment(step.started_ms)} UTC'>{escape(step.name)}</th>"
        for step in columns
    )
    body = "".join(_map_row(where, columns, totals[where] / whole, len(totals)) for where in shown)
    left = f" The {len(rows) - len(shown)} with the fewest are not shown." * (rows != shown)
    caption = (
        "Records of each partition from batch to batch, as times the mean of all partitions that "
        f"were written to. 1 is even; the darker, the more.{left}"
    )
    return Html(
        f"<div class='wide' tabindex='0' role='region' aria-label='Partitions over time'>"
        f"<table class='map' id='partitions'><caption>{caption}</caption><thead><tr>"
        f"<th scope='col'>partition</th><th scope='col'>share</th>{head}</tr></thead>"
        f"<tbody>{body}</tbody></table></div>"
    )


def _map_row(where: tuple[str, str], columns: Sequence[Step], share: float, number: int) -> str:
    name = escape(f"{where[0]}-{where[1]}")
    cells = []
    for step in columns:
        whole = sum(step.counts.values())
        records = step.counts.get(where, 0.0)
        times = records * number / whole if whole else 0.0
        heat = min(times / 4, 1.0)
        cells.append(
            f"<td style='--heat:{heat:.2f}' title='{name}, {moment(step.started_ms)}: "
            f"{count(records)} records'>{times:.1f}</td>"
        )
    return f"<tr><th scope='row'>{name}</th><td>{100 * share:.1f} %</td>{''.join(cells)}</tr>"


def settings_table(line: Line) -> Html:
    """Return the options in force, and related sizes."""
    metrics = line.get("metrics") or {}
    tasks = float(line.get("tasks") or 0)
    with_rows = float((line.get("tasks_summary") or {}).get("with_rows") or tasks)
    # Lines of older versions have no settings.
    guarantee = "exactly-once" if "transactions" in line else "at-least-once"
    settings = line.get("settings") or {"delivery.guarantee": guarantee}
    rows = [
        ("pykafka-sink", str(line.get("sink_version", "")), ""),
        ("kafka.client.id", str(line.get("client_id", "")), "with which brokers tell quotas apart"),
        *((name, str(value), _NOTES.get(name, "")) for name, value in settings.items()),
        ("largest record batch", size(metrics.get("batch_size_max") or 0), "as it was sent"),
        ("largest record", size(metrics.get("record_size_max") or 0), "before compression"),
        ("tasks of the last batch", count(tasks), f"{count(with_rows)} with rows"),
        ("topics of the last batch", ", ".join(line.get("topics") or {}), ""),
    ]
    return table("settings", "Settings, as the last line tells them", ("what", "is", ""), rows)


_NOTES = {"kafka.buffer.memory": "bytes, of each task", "kafka.batch.size": "bytes"}


def changes_table(changes: Iterable[Change]) -> Html:
    """Return the changes, the latest first; nothing without any."""
    rows: list[list[Value]] = [
        [
            _batch_cell(change.batch_id),
            Cell(moment(change.time_ms), change.time_ms),
            change.name,
            *("–" if value is None else value for value in (change.before, change.after)),
        ]
        for change in reversed(list(changes))
    ]
    columns = ("from batch", "written, UTC", "what", "was", "is")
    return table("changes", "Settings that have changed", columns, rows) if rows else Html("")


# --- the page ------------------------------------------------------------------------------------

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
"""The policy makes the browser reject addresses outside the page."""


def render(aggregate: LineAggregate, version: int | None = None) -> str:
    """Return the page of the lines read so far.

    version: grows with the lines, for a page that updates itself; None for a fixed page
    """
    columns = aggregate.columns()
    title = _title(aggregate)
    follow = "" if version is None else f' data-version="{version}"'
    # The address in the library's first line is in the licence, with the author.
    plotting = _asset("uPlot.iife.min.js").split("\n", 1)[1]
    body = _body(aggregate, columns) if aggregate.lines else "<p>There is no line yet.</p>"
    return (
        f'<!DOCTYPE html>\n<html lang="en"{follow}>\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(title)}</title>\n<!-- Charts: uPlot\n{_asset('uPlot.LICENSE')}-->\n"
        f"<style>{_asset('uPlot.min.css')}\n{_asset('page.css')}</style>\n</head>\n<body>\n"
        f"<header><h1>{escape(title)}</h1><p id='state' role='status'></p></header>\n"
        f"<main id='main'>\n{body}</main>\n"
        f"<footer><p>pykafka-sink {__version__}. {escape(_about(aggregate))}</p></footer>\n"
        f"<script>{plotting}</script>\n<script>{_asset('page.js')}</script>\n</body>\n</html>\n"
    )


def _title(aggregate: LineAggregate) -> str:
    names = sorted({name or query_id for query_id, name in aggregate.queries} - {""})
    of_what = ", ".join(names[:3]) + (" and others" if len(names) > 3 else "")
    return f"pykafka-sink: {of_what}" if of_what else "pykafka-sink"


def _body(aggregate: LineAggregate, columns: dict[str, Any]) -> str:
    total, latest = aggregate.total(), aggregate.latest()
    times = columns["time_ms"]
    median_ms = float(np.median(np.nansum([columns[name] for name in TIMES], axis=0)))
    span = (float(np.nanmin(times)), float(np.nanmax(times)))
    charts = "".join(_figure(*chart) for chart in _CHARTS)
    slowest = [line for _, line in aggregate.slowest()]
    longest = f"The {len(slowest)} that took longest" if len(slowest) > 1 else "The only one"
    last = min(MOST_LATEST, aggregate.lines)
    kept = f"The last {last} micro-batches and jobs" if last > 1 else "The only one"
    advice = advice_section(overall_findings(total, aggregate.causes), aggregate.lines)
    parts = (
        _section("advice", "What to change", advice + outliers_section(aggregate, median_ms)),
        _section("summary", "In figures", summary_section(aggregate, total, span)),
        _section("charts", "Over time", _CHARTS_HELP + charts),
        _section("slow", "Slowest batches", batches_table("slowest", longest, slowest)),
        _section("skew", "Partitions", heat_map(aggregate)),
        _section("nodes", "Brokers", brokers_table(total)),
        _section("slow-tasks", "Slowest tasks", tasks_table(total)),
        _section("last", "Latest batches", batches_table("latest", kept, latest)),
        _section("set", "Settings", settings_table(latest[0]) + changes_table(aggregate.changes)),
        f"<script type='application/json' id='data'>{_data(columns, aggregate.names)}</script>\n",
    )
    return "".join(parts)


_CHARTS_HELP = (
    "<p>Point at a chart, or reach it with the Tab key and use the arrow keys, for its figures; "
    "drag to enlarge a part, press twice to see all. Marks: <b>A</b> aborted, <b>D</b> dead "
    "letters, <b>E</b> records refused, <b>F</b> task attempts failed, <b>R</b> records sent "
    "again, <b>T</b> throttled. <span id='unmarked'></span></p>"
)


def _section(name: str, title: str, content: str) -> str:
    return (
        f"<section aria-labelledby='h-{name}'><h2 id='h-{name}'>{title}</h2>{content}</section>\n"
    )


def _figure(name: str, title: str, caption: str) -> str:
    return (
        f"<figure id='{name}'><figcaption><b>{title}.</b> {caption}</figcaption>"
        f"<div class='chart' tabindex='0' role='img' aria-label='{title}'></div>"
        "<p class='readout' role='status'></p>"
        "<details class='as-table'><summary>As a table</summary></details></figure>\n"
    )


def _data(columns: dict[str, Any], queries: Iterable[str]) -> str:
    """Return what the charts show. queries: names, which the axis shows if there are several"""
    found, names = points(columns), [*queries]
    shown = {int(index) for index in found["query"] if index is not None and index >= 0}
    data = {
        "parts": NAMES,
        "points": found,
        "lines": len(columns["time_ms"]),
        "queries": {n: printable(names[n]) for n in shown if len(names) > 1},
    }
    return json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")


def _about(aggregate: LineAggregate) -> str:
    about = f"Made of {count(aggregate.lines)} line{'s' * (aggregate.lines != 1)} of metrics."
    if aggregate.sampling_interval > 1:
        about += f" Partitions and brokers are those of every {aggregate.sampling_interval}th line."
    if aggregate.left_out:
        about += f" {left_out(aggregate.left_out)}."
    return about


def _asset(name: str) -> str:
    return (files(__package__) / "assets" / name).read_text(encoding="utf-8")


HOST = "127.0.0.1"


class FollowedReport:
    """The report of a growing file. The file may not exist yet, and may be rotated."""

    def __init__(self, path: str, query: str | None) -> None:
        self._lines = LineTail(path, from_end=False)
        self._aggregate = LineAggregate(query)
        self._lock = Lock()
        self._page = (-1, b"")
        for texts in read_pieces(self._lines.older()):
            self._aggregate.add(texts)

    def version(self) -> int:
        """Return a number that grows with every line."""
        with self._lock:
            return self._read()

    def page(self) -> bytes:
        """Return the current page."""
        with self._lock:
            version = self._read()
            if self._page[0] != version:
                self._page = (version, render(self._aggregate, version).encode())
            return self._page[1]

    def _read(self) -> int:
        data = self._lines.read_texts()
        if data:
            self._aggregate.add(data.splitlines())
        return self._aggregate.lines + self._aggregate.left_out


class ReportServer(ThreadingHTTPServer):
    """Answers browsers on this machine at ``/`` and ``/version``."""

    daemon_threads = True

    def __init__(self, report: FollowedReport, port: int) -> None:
        """Listen on ``port``; 0 picks a free port. Raises OSError if the port is in use."""
        super().__init__((HOST, port), _Handler)
        self.report = report

    @property
    def address(self) -> str:
        return f"http://{HOST}:{self.server_port}/"


class _Handler(BaseHTTPRequestHandler):
    server: ReportServer
    timeout = 10

    def do_GET(self) -> None:
        """Answer a request. The library gives the methods' names."""
        # Another site, whose host name resolves to this address, must not read this page.
        host = (self.headers.get("Host") or "").rpartition(":")[0]
        if host not in (HOST, "localhost") or self.path not in ("/", "/version"):
            self.send_error(404)
            return
        report = self.server.report
        kind, body = "text/plain", str(report.version()).encode()
        if self.path == "/":
            kind, body = "text/html", report.page()
        self.send_response(200)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: a line for each request of the page would hide other output."""
