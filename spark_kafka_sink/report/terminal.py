"""The latest batches in a terminal, drawn by rich, and drawn again when there are more."""

from __future__ import annotations

from threading import Event
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from spark_kafka_sink.metrics.following import FollowedLines
from spark_kafka_sink.report.advice import findings
from spark_kafka_sink.report.collecting import Collected
from spark_kafka_sink.report.figures import count, duration, moment, size
from spark_kafka_sink.report.parts import PARTS, largest, shares
from spark_kafka_sink.report.skew import brokers
from spark_kafka_sink.report.summing import OF_ALL, OF_WHOLE, add

_SHOWN = 12
_BAR = 40
_SECONDS = 1.0


class Screen:
    """What a file holds by now, as a screen. The file may come later, and be rotated."""

    def __init__(self, path: str, query: str | None) -> None:
        self._path = path
        self._lines = FollowedLines(path, from_end=False)
        self._collected = Collected(query)

    def drawn(self) -> Group:
        """The screen of now."""
        data = self._lines.read_texts()
        if data:
            self._collected.add(data)
        latest = self._collected.latest()[:_SHOWN]
        if not latest:
            return Group(Text(f"no line of metrics in {self._path} yet"))
        total = _together(latest)
        head = f"{count(self._collected.lines)} batches, the last at {moment(latest[0]['time_ms'])}"
        return Group(
            Text(f"{head} UTC", style="bold"),
            _batches(latest),
            Text(f"where the time of the last {len(latest)} goes", style="bold"),
            _parts(total),
            _brokers(total),
            *_words(total),
        )


def follow(path: str, query: str | None, once: bool) -> None:
    """Show the screen until Ctrl-C; once: print it and return."""
    screen, console = Screen(path, query), Console(highlight=False)
    if once:
        console.print(screen.drawn())
        return
    waiting = Event()
    with Live(screen.drawn(), console=console, screen=True, auto_refresh=False) as live:
        while not waiting.wait(_SECONDS):
            live.update(screen.drawn(), refresh=True)


def _together(lines: list[dict[str, Any]]) -> dict[str, Any]:
    total: dict[str, Any] = {"aborted": sum(line["event"] == "abort" for line in lines)}
    for line in lines:
        add(total, {name: line[name] for name in (*OF_ALL, *OF_WHOLE) if name in line})
    return total


def _batches(lines: list[dict[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in ("batch", "took", "records", "records/s", "sent", "p99"):
        table.add_column(name, justify="right")
    table.add_column("most of it")
    table.add_column("why")
    for line in lines:
        metrics = line.get("metrics") or {}
        ms = float(line.get("elapsed_ms") or 0) + float(line.get("commit_ms") or 0)
        records = float(line.get("records_acknowledged") or 0)
        p99 = (line.get("request_latency") or {}).get("p99_ms")
        table.add_row(
            str(line.get("batch_id", "job")),
            duration(ms),
            count(records),
            count(1000 * records / ms) if ms else "–",
            size(float(metrics.get("compressed_bytes") or 0)),
            "–" if p99 is None else duration(p99),
            largest(line),
            Text("; ".join(finding.title for finding in findings(line)), style="yellow"),
        )
    return table


def _parts(total: dict[str, Any]) -> Table:
    found = shares(total.get("metrics") or {})
    names = {part.field: part.name for part in PARTS}
    table = Table(box=None, pad_edge=False, show_header=False)
    for field, share in found.items():
        if share >= 0.005:
            bar = Text("█" * max(round(share * _BAR), 1), style="cyan")
            table.add_row(names.get(field, field), f"{100 * share:3.0f} %", bar)
    return table


def _brokers(total: dict[str, Any]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("broker")
    for name in ("requests", "sent", "p50", "p95", "p99", "pauses", "sent again"):
        table.add_column(name, justify="right")
    for broker in brokers(total):
        times = (broker.p50_ms, broker.p95_ms, broker.p99_ms, broker.throttle_time_ms)
        figures = (count(broker.answers), size(broker.outgoing_bytes), *map(duration, times))
        table.add_row(broker.name, *figures, count(broker.record_retries))
    return table


def _words(total: dict[str, Any]) -> list[Text]:
    words = []
    for finding in findings(total)[:3]:
        style = "bold red" if finding.is_trouble else "bold yellow"
        words.append(Text.assemble((finding.title, style), ": ", finding.text))
        words.append(Text(f"→ {finding.advice}"))
    return words
