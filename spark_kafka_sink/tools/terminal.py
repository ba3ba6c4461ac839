"""The latest batches in a terminal, drawn by rich, and redrawn when more lines come."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Callable, Mapping
from threading import Event
from typing import Any, NamedTuple

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.base.text import printable
from spark_kafka_sink.metrics.line import (
    PARTS,
    batch_duration_ms,
    count,
    duration,
    largest_part,
    moment,
    query_text,
    shares,
    size,
    topic_text,
)
from spark_kafka_sink.metrics.reading import LineTail
from spark_kafka_sink.tools.report_advice import (
    Causes,
    brokers,
    left_out,
    line_findings,
    overall_findings,
)
from spark_kafka_sink.tools.report_lines import (
    SUMMED_FIELDS,
    SUMMED_WHOLE_FIELDS,
    LineAggregate,
    add,
    no_line_message,
)

try:
    import termios
    import tty
except ImportError:  # Windows has no termios: use Ctrl-C
    termios = tty = None  # type: ignore[assignment]


# --- single keys, while the screen is shown ------------------------------------------------------


class Keyboard:
    """Reads keys without Enter and without echo. A context manager.

    At the end it restores the terminal. Without a terminal it reads no keys.
    """

    def __init__(self) -> None:
        is_one = termios is not None and sys.stdin is not None and sys.stdin.isatty()
        self._file: int | None = sys.stdin.fileno() if is_one else None
        self._before: list[Any] = []

    def __enter__(self) -> Keyboard:
        if self._file is not None:
            self._before = termios.tcgetattr(self._file)
            # Ctrl-C keeps its effect.
            tty.setcbreak(self._file)
        return self

    def __exit__(self, *error: object) -> None:
        if self._file is not None:
            termios.tcsetattr(self._file, termios.TCSADRAIN, self._before)

    def pressed(self, seconds: float) -> str:
        """Return the keys that are pressed within a time; "" at its end."""
        if self._file is None:
            Event().wait(seconds)
            return ""
        is_there, _, _ = select.select([self._file], [], [], seconds)
        if not is_there:
            return ""
        data = os.read(self._file, 1024)
        if not data:  # the terminal has closed
            self._file = None
        return data.decode(errors="replace")


# --- the screen ----------------------------------------------------------------------------------

_SHOWN = 12
_LEAST_SHOWN = 3
_LINES_OF_THE_REST = 22
"""Approximate lines besides the batches; on a low screen the batches have the remaining lines."""
_BAR = 40
_SECONDS = 1.0
_WIDE, _NARROW = 110, 70
"""A screen of _WIDE columns shows all figures of a batch, one below _NARROW the fewest."""


class Screen:
    """The screen of a growing file. The file may not exist yet, and may be rotated."""

    def __init__(self, path: str, query: str | None) -> None:
        self._path = path
        self._lines = LineTail(path, from_end=False)
        self.aggregate = LineAggregate(query)

    def render(self, width: int = 160, height: int = 0, hint: str = "") -> Group:
        """Return the current screen.

        width, height: columns and lines of the screen; 0 lines mean no limit
        hint: how to end
        """
        data = self._lines.read_texts()
        if data:
            self.aggregate.add(data.splitlines())
        most = max(min(height - _LINES_OF_THE_REST, _SHOWN), _LEAST_SHOWN) if height else _SHOWN
        latest = [_printable(line) for line in self.aggregate.latest()[:_SHOWN]]
        end = (hint and f" ({hint})", "dim")
        if not latest:
            return Group(Text.assemble(f"no line of metrics in {self._path} yet", end))
        total = _together(latest)
        lines = self.aggregate.lines
        head = f"{count(lines)} batch{'es' * (lines != 1)}"
        head += _common(" of", query_text, latest) + _common(" to", topic_text, latest)
        head += ", the last at "
        head += f"{moment(latest[0]['time_ms'])} UTC"
        if self.aggregate.left_out:
            head += f"; {left_out(self.aggregate.left_out)}"
        return Group(
            Text.assemble((head, "bold"), end),
            _batches(latest[:most], width),
            *_words(total, latest),
            Text(f"where the time of the last {len(latest)} goes", style="bold"),
            _parts(total, width),
            _brokers(total, width),
        )


def follow(path: str, query: str | None, once: bool) -> None:
    """Show the screen until q or Ctrl-C is pressed; once: print it and return.

    Raises ConfigError if ``once`` finds no line.
    """
    screen = Screen(path, query)
    # Do not interpret names of queries and topics as markup.
    console = Console(highlight=False, markup=False, emoji=False)
    if once:
        shown = screen.render(console.width)
        if not screen.aggregate.lines:
            raise ConfigError(no_line_message(path, query), code="METRICS-008")
        console.print(shown)
        return

    def render() -> Group:
        return screen.render(console.width, console.height, "q ends it")

    live = Live(render(), console=console, screen=True, auto_refresh=False)
    with Keyboard() as keyboard, live:
        while "q" not in keyboard.pressed(_SECONDS).lower():
            live.update(render(), refresh=True)


def _printable(found: Any) -> Any:
    """Return a line whose texts cannot repaint the screen, because a query may have any name."""
    if isinstance(found, str):
        return printable(found)
    if isinstance(found, dict):
        return {printable(name): _printable(value) for name, value in found.items()}
    return [_printable(each) for each in found] if isinstance(found, list) else found


def _common(word: str, text_of: Callable[[Mapping[str, Any]], str], lines: list[Any]) -> str:
    """Return what all lines have in common, behind the word; "" if they have several."""
    first, *others = {text_of(line) for line in lines}
    return f"{word} {_shortened(first, _MOST_OF_NAME)}" if first and not others else ""


def _together(lines: list[dict[str, Any]]) -> dict[str, Any]:
    total: dict[str, Any] = {"aborted": sum(line["event"] == "abort" for line in lines)}
    names = (*SUMMED_FIELDS, *SUMMED_WHOLE_FIELDS)
    for line in lines:
        add(total, {name: line[name] for name in names if name in line})
    return total


def _batches(lines: list[dict[str, Any]], width: int) -> Table:
    table = Table(box=None, pad_edge=False)
    shown = [column for column in _COLUMNS if width >= column.least_width]
    most = _MOST_OF_NAME if width >= _NARROW else _LEAST_OF_NAME
    for name, text_of in (("topic", topic_text), ("query", query_text)):
        if len({text_of(line) for line in lines}) > 1:
            shown.insert(1, _names(name, text_of, most))
    for column in shown:
        table.add_column(column.name, justify="left" if column.is_text else "right", no_wrap=True)
    # Without this, the last column would take its width from the others.
    table.add_column("why", no_wrap=True, overflow="ellipsis", ratio=1)
    table.expand = True
    for line in lines:
        found = line_findings(line)
        why = found[0].title + (f" (+{len(found) - 1})" if found[1:] else "") if found else ""
        table.add_row(*(column.of(line) for column in shown), Text(why, style="yellow"))
    return table


class _Column(NamedTuple):
    """A column of the batches' table. least_width: of the screen"""

    name: str
    of: Callable[[dict[str, Any]], str]
    least_width: int = 0
    is_text: bool = False


_MOST_OF_NAME, _LEAST_OF_NAME = 20, 8
"""Most letters of the name of a query or a topic, on a wide and on a narrow screen."""


def _names(name: str, text_of: Callable[[Mapping[str, Any]], str], most: int) -> _Column:
    return _Column(name, lambda line: _shortened(text_of(line), most), 0, True)


def _shortened(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _rate(line: dict[str, Any]) -> str:
    ms = batch_duration_ms(line)
    return count(1000 * (line.get("records_acknowledged") or 0) / ms) if ms else "–"


def _p99(line: dict[str, Any]) -> str:
    p99 = (line.get("request_latency") or {}).get("p99_ms")
    return "–" if p99 is None else duration(p99)


_COLUMNS = (
    _Column("batch", lambda line: str(line.get("batch_id", "job"))),
    _Column("took", lambda line: duration(batch_duration_ms(line))),
    _Column("records", lambda line: count(line.get("records_acknowledged") or 0), _WIDE),
    _Column("records/s", _rate, _NARROW),
    _Column(
        "sent", lambda line: size((line.get("metrics") or {}).get("compressed_bytes") or 0), _WIDE
    ),
    _Column("p99", _p99, _NARROW),
    _Column("most of it", lambda line: largest_part(line)[0], _WIDE, True),
)


def _parts(total: dict[str, Any], width: int) -> Table:
    found = shares(total.get("metrics") or {})
    names = {part.field: part.name for part in PARTS}
    bar_width = max(min(width - _WIDTH_OF_NAMES, _BAR), 1)
    table = Table(box=None, pad_edge=False, show_header=False)
    for field, share in found.items():
        if share >= 0.005:
            bar = Text("█" * max(round(share * bar_width), 1), style="cyan")
            table.add_row(names.get(field, field), f"{100 * share:3.0f} %", bar)
    return table


_WIDTH_OF_NAMES = max(len(part.name) for part in PARTS) + 8


def _brokers(total: dict[str, Any], width: int) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("broker", no_wrap=True)
    is_wide = width >= _NARROW
    names = ("requests", "sent", "p50", "p95", "p99", "pauses", "sent again")
    for name in names if is_wide else ("p95", "pauses"):
        table.add_column(name, justify="right", no_wrap=True)
    for broker in brokers(total):
        times = (broker.p50_ms, broker.p95_ms, broker.p99_ms, broker.throttle_time_ms)
        if is_wide:
            figures = (count(broker.answers), size(broker.outgoing_bytes), *map(duration, times))
            table.add_row(broker.name, *figures, count(broker.record_retries))
        else:
            table.add_row(broker.name, duration(broker.p95_ms), duration(broker.throttle_time_ms))
    return table


def _words(total: dict[str, Any], lines: list[dict[str, Any]]) -> list[Text]:
    """Return the main cause with its advice, and the titles of the others."""
    causes = Causes()
    for line in lines:
        causes.add(line)
    found = overall_findings(total, causes)
    if not found:
        return []
    main, *others = found
    style = "bold red" if main.is_trouble else "bold yellow"
    words = [Text.assemble((main.title, style), ": ", main.text)]
    if main.advice:
        words.append(Text(f"→ {main.advice}"))
    if others:
        words.append(Text("also: " + "; ".join(finding.title for finding in others)))
    return words
