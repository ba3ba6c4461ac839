"""The parts of the page, as HTML: what is said in words and in tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from spark_kafka_sink.report.advice import findings
from spark_kafka_sink.report.causes import batch_name
from spark_kafka_sink.report.changes import Change
from spark_kafka_sink.report.collecting import Collected, Step
from spark_kafka_sink.report.figures import count, duration, moment, percent, size
from spark_kafka_sink.report.finding import Finding
from spark_kafka_sink.report.parts import PARTS, largest, took_ms
from spark_kafka_sink.report.series import steps
from spark_kafka_sink.report.skew import brokers
from spark_kafka_sink.report.tables import Cell, Html, Value, table

Line = Mapping[str, Any]

_MOST_ROWS_OF_THE_MAP = 40
_MOST_COLUMNS_OF_THE_MAP = 30
_NOTHING = "Nothing stands out: no trouble, and no part that takes far more than its share."


def advice_section(found: Sequence[Finding], lines: int) -> Html:
    """What to change, most important first."""
    of_what = "the batch" if lines == 1 else f"all {count(lines)} batches together"
    intro = f"<p>Of {of_what}; each of the slowest and latest ones has its own words below.</p>"
    items = "".join(_finding(finding) for finding in found)
    return Html(f"{intro}<ol class='advice'>{items}</ol>" if items else f"<p>{_NOTHING}</p>")


def outliers_section(collected: Collected, median_ms: float) -> Html:
    """The batches that took far longer than the one in the middle, each with its cause."""
    least_ms = max(_TIMES_THE_MEDIAN * median_ms, _LEAST_OUTLIER_MS)
    found = [(ms, line) for ms, line in collected.slowest() if ms >= least_ms][:_MOST_OUTLIERS]
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
    why = _why(findings(line)) or f"most of it {escape(largest(line))}"
    return f"<li><b>{name}</b>, {moment(line['time_ms'])} UTC: {duration(ms)}{times}. {why}</li>"


def _finding(finding: Finding) -> str:
    kind = "trouble" if finding.is_trouble else "slow"
    advice = f"<p class='do'>→ {_code(finding.advice)}.</p>" if finding.advice else ""
    return (
        f"<li class='{kind}' data-kind='{finding.kind}'><h3>{escape(finding.title)}</h3>"
        f"<p>{escape(finding.text)}</p>{advice}</li>"
    )


def _code(advice: str) -> str:
    """What is between backticks, as code."""
    parts = escape(advice).split("`")
    return "".join(f"<code>{part}</code>" if n % 2 else part for n, part in enumerate(parts))


def summary_section(collected: Collected, total: Line, span: tuple[float, float]) -> Html:
    """What all of it comes to."""
    metrics = total.get("metrics") or {}
    sent, before = metrics.get("compressed_bytes") or 0.0, metrics.get("uncompressed_bytes") or 0.0
    seconds = took_ms(total) / 1000
    records = float(total.get("records_acknowledged") or 0)
    rows = [
        ("micro-batches and jobs", count(collected.lines)),
        ("aborted", count(collected.aborted)),
        ("records acknowledged", count(records)),
        ("records per second, while written", count(records / seconds) if seconds else "–"),
        ("sent", size(sent)),
        ("after compression", percent(sent / before) if before else "–"),
        ("records sent again", count(metrics.get("record_retries") or 0)),
        *_dead_letters(total),
        ("pauses for quotas, of all tasks", duration(metrics.get("throttle_time_ms") or 0)),
        ("first line, UTC", moment(span[0])),
        ("last line, UTC", moment(span[1])),
    ]
    items = "".join(f"<div><dt>{escape(n)}</dt><dd>{escape(v)}</dd></div>" for n, v in rows)
    return Html(f"<dl class='figures'>{items}</dl>")


def _dead_letters(total: Line) -> list[tuple[str, str]]:
    """Only where they are asked for."""
    counts = total.get("dead_letters")
    return [] if counts is None else [("dead letters", count(sum(counts.values())))]


def batches_table(name: str, caption: str, lines: Iterable[Line]) -> Html:
    """A row for each, with why it took as long as it did."""
    columns = ("batch", "took", "why, and what to do", "most of it", "written, UTC")
    more = ("records", "records/s", "sent", "p99")
    return table(name, caption, (*columns, *more), map(_batch_row, lines))


def _batch_row(line: Line) -> list[Value]:
    metrics = line.get("metrics") or {}
    ms = took_ms(line)
    records = float(line.get("records_acknowledged") or 0)
    sent = float(metrics.get("compressed_bytes") or 0)
    p99 = (line.get("request_latency") or {}).get("p99_ms")
    return [
        _batch_cell(line.get("batch_id")),
        Cell(duration(ms), ms),
        _why(findings(line)),
        largest(line),
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
    said = escape("; ".join(finding.title for finding in found))
    items = "".join(_finding(finding) for finding in found)
    return Html(f"<details><summary>{said}</summary><ul class='advice'>{items}</ul></details>")


def brokers_table(total: Line) -> Html:
    """Each one that was written to."""
    rows: list[list[Value]] = [
        [
            Cell(broker.name.removeprefix("broker "), broker.id),
            Cell(count(broker.answers), broker.answers),
            Cell(size(broker.outgoing_bytes), broker.outgoing_bytes),
            *map(_time, (broker.mean_ms, broker.p50_ms, broker.p95_ms, broker.p99_ms)),
            *map(_time, (broker.max_ms, broker.throttle_time_ms)),
            Cell(count(broker.record_retries), broker.record_retries),
            Cell(count(broker.connections_created), broker.connections_created),
        ]
        for broker in brokers(total)
    ]
    columns = ("broker", "produce requests", "sent", "mean", "p50", "p95", "p99", "longest")
    more = ("pauses for quotas", "records sent again", "connections made")
    return table("brokers", "Answers to produce requests, by broker", (*columns, *more), rows)


def tasks_table(total: Line) -> Html:
    """The slowest tasks of the slowest batches, with what they have spent their time with."""
    rows: list[list[Value]] = []
    for task in total.get("slowest_tasks") or ():
        ms = [float(task.get(name) or 0) for name in ("task_ms", *_TASK_TIMES)]
        rows.append(
            [
                _batch_cell(task.get("batch_id")),
                Cell(str(task["task"]), float(task["task"])),
                Cell(str(task["attempt"]), float(task["attempt"])),
                str(task["host"]),
                Cell(moment(task["started_at_ms"]), float(task["started_at_ms"])),
                Cell(count(task["records"]), float(task["records"])),
                *map(_time, ms),
            ]
        )
    names = {part.field: part.name for part in PARTS}
    columns = ("batch", "task", "attempt", "host", "started, UTC", "records", "took")
    caption = "Slowest tasks of the slowest batches"
    return table("tasks", caption, (*columns, *(names[name] for name in _TASK_TIMES)), rows)


_TASK_TIMES = (
    *("input_wait_ms", "encode_ms", "compress_ms", "metadata_wait_ms", "buffer_wait_ms"),
    *("ack_wait_ms", "load_ms"),
)


def _time(ms: float) -> Cell:
    return Cell(duration(ms), ms)


def heat_map(collected: Collected) -> Html:
    """Records of each partition over time, against the mean of partitions."""
    columns: list[Step] = list(steps(collected.steps, _MOST_COLUMNS_OF_THE_MAP, Step.joined))
    totals: dict[tuple[str, str], float] = {}
    for step in columns:
        for where, records in step.counts.items():
            totals[where] = totals.get(where, 0.0) + records
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


def settings_section(collected: Collected, line: Line) -> Html:
    """What the last line tells of how it was written, and what has changed before."""
    changed = collected.changes.found
    return Html(settings_table(line) + (changes_table(changed) if changed else ""))


def settings_table(line: Line) -> Html:
    """Options in force, and sizes that have to do with them."""
    metrics = line.get("metrics") or {}
    tasks = float(line.get("tasks") or 0)
    with_rows = float((line.get("tasks_summary") or {}).get("with_rows") or tasks)
    rows = [
        ("pykafka-sink", str(line.get("sink_version", "")), ""),
        ("kafka.client.id", str(line.get("client_id", "")), "with which brokers tell quotas apart"),
        *((name, str(value), _NOTES.get(name, "")) for name, value in _settings(line)),
        ("largest record batch", size(metrics.get("batch_size_max") or 0), "as it was sent"),
        ("largest record", size(metrics.get("record_size_max") or 0), "before compression"),
        ("tasks of the last batch", count(tasks), f"{count(with_rows)} with rows"),
        ("topics of the last batch", ", ".join(line.get("topics") or {}), ""),
    ]
    return table("settings", "Settings, as the last line tells them", ("what", "is", ""), rows)


_NOTES = {"kafka.buffer.memory": "bytes, of each task", "kafka.batch.size": "bytes"}


def _settings(line: Line) -> Iterable[tuple[str, str]]:
    """Lines of older versions do not tell them."""
    told = line.get("settings") or {"delivery.guarantee": _guarantee(line)}
    return told.items()


def _guarantee(line: Line) -> str:
    return "exactly-once" if "transactions" in line else "at-least-once"


def changes_table(changes: Iterable[Change]) -> Html:
    """The latest first."""
    rows: list[list[Value]] = [
        [
            _batch_cell(change.batch_id),
            Cell(moment(change.time_ms), change.time_ms),
            change.name,
            _or_none(change.before),
            _or_none(change.after),
        ]
        for change in reversed(list(changes))
    ]
    columns = ("from batch", "written, UTC", "what", "was", "is")
    return table("changes", "Settings that have changed", columns, rows)


def _or_none(value: str | None) -> str:
    return "–" if value is None else value
