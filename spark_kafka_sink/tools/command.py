"""Shared parts of all commands: exit codes, declaration, output, connections.

People get a table, in colour if stdout is a terminal and ``rich`` is installed (the extra ``cli``).
Programs get one JSON document in one line.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from spark_kafka_sink.base.errors import BrokerError, KafkaSinkError, coded
from spark_kafka_sink.base.text import printable

if TYPE_CHECKING:
    from spark_kafka_sink.config.producer_config import ProducerConfig
    from spark_kafka_sink.network.admin import AdminClient

    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

EXIT_OK = 0
"""Done, or nothing to do."""
EXIT_FAILED = 1
"""Failed; the message is on stderr."""
EXIT_REFUSED = 2
"""Wrong usage, rejected, not confirmed, or a choice is open."""


class RefusedError(KafkaSinkError):
    """Wrong usage, or an operation that is rejected or not confirmed: the command did nothing."""


# --- declaring and printing ----------------------------------------------------------------------

Examples = Sequence[tuple[str, str]]
"""Pairs of (purpose, command line)."""

_COLUMN_GAP = "  "
_STYLES = (
    (r"^[A-Z][A-Z ]*$", "bold cyan"),
    (r"\b(PARTIAL|UNKNOWN|UNREADABLE|to be confirmed)\b", "bold red"),
    (r"\b(DECIDED|Ongoing|Prepare\w+)\b", "yellow"),
    (r"\bDONE\b", "green"),
)
"""Colours of headers of tables, and of states by the remaining work."""


def add_command(
    subparsers: Subparsers, name: str, summary: str, examples: Examples, description: str = ""
) -> argparse.ArgumentParser:
    """Return the parser of one command, with examples at the end of its help.

    description: by default the summary, as a sentence
    """
    lines = (f"  # {what}\n  {command}" for what, command in examples)
    return subparsers.add_parser(
        name,
        help=summary,
        description=description or f"{summary[0].upper()}{summary[1:]}.",
        epilog="examples:\n" + "\n".join(lines),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def add_group(
    subparsers: Subparsers, name: str, summary: str, examples: Examples, description: str
) -> Subparsers:
    """Declare a command with subcommands; return where to declare these."""
    parser = add_command(subparsers, name, summary, examples, description)
    parser.set_defaults(command=lambda arguments: print_usage(parser))
    return parser.add_subparsers(title="commands", metavar="COMMAND")


def print_usage(parser: argparse.ArgumentParser) -> int:
    """Print the help for a command without its subcommand; return the exit code."""
    parser.print_help(sys.stderr)
    return EXIT_REFUSED


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add ``--json`` and ``--format``, which both set ``arguments.json``."""
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument(
        "--json",
        action="store_true",
        help="print one JSON document, in one line, to stdout; times are ms since 1970 in UTC",
    )
    choice.add_argument(
        "--format",
        choices=("table", "json"),
        action=_FormatAction,
        help="table for people (default), or json, which is --json",
    )


class _FormatAction(argparse.Action):
    """``--format json`` has the effect of ``--json``."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        namespace.json = values == "json"


def add_bootstrap_servers(parser: argparse.ArgumentParser) -> None:
    """Add ``arguments.bootstrap_servers``, with both option names of Kafka's own tools."""
    parser.add_argument(
        "--bootstrap-server",
        "--bootstrap-servers",
        dest="bootstrap_servers",
        metavar="HOST:PORT,…",
        required=True,
        help="of the cluster",
    )


def printable_lines(text: object) -> str:
    """Return ``text`` with its line breaks, and all other unprintable characters escaped.

    The text is that of an error, or of a question for confirmation.
    """
    return "\n".join(map(printable, str(text).split("\n")))


def print_json(document: Any) -> None:
    """Print one line: other alphabets unchanged, unprintable characters as JSON escapes."""
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    print(_NOT_ASCII.sub(lambda found: _escaped(found[0]), text))


_NOT_ASCII = re.compile("[\x7f-\U0010ffff]+")
"""Characters that ``json.dumps`` leaves without ``ensure_ascii``.

It escapes the control characters of ASCII, except DEL.
"""


def _escaped(text: str) -> str:
    return "".join(
        c if c.isprintable() else json.dumps(c)[1:-1].replace("\x7f", "\\u007f") for c in text
    )


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return lines of columns that are as wide as their longest text."""
    widths = [max(map(len, texts)) for texts in zip(columns, *rows)]
    padded = ([text.ljust(width) for text, width in zip(row, widths)] for row in (columns, *rows))
    return [_COLUMN_GAP.join(cells).rstrip() for cells in padded]


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table, with unprintable characters escaped."""
    rows = [[printable(text) for text in row] for row in rows]
    console = _console(markup=False, emoji=False)
    if console is None:
        print("\n".join(table(columns, rows)))
        return
    from rich import box
    from rich.table import Table

    shown = Table(*columns, box=box.SIMPLE_HEAD, header_style="bold cyan", pad_edge=False)
    for row in rows:
        shown.add_row(*row)
    console.print(shown)


def print_lines(lines: Sequence[str]) -> None:
    """Print aligned lines without wrapping; on a terminal with headers and states in colour.

    Unprintable characters are escaped, because names in them come from brokers and records.
    """
    lines = [printable(line) for line in lines]
    console = _console(soft_wrap=True)
    if console is None:
        print("\n".join(lines))
        return
    from rich.text import Text

    for line in lines:
        text = Text(line)
        for pattern, style in _STYLES:
            text.highlight_regex(pattern, style)
        console.print(text)


def show(arguments: argparse.Namespace, document: Any, lines: Sequence[str]) -> int:
    """Print ``document`` with ``--json``, otherwise the lines; return the exit code."""
    if arguments.json:
        print_json(document)
    else:
        print_lines(lines)
    return EXIT_OK


def show_table(
    arguments: argparse.Namespace,
    document: Any,
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
) -> int:
    """Print ``document`` with ``--json``, otherwise the table; return the exit code."""
    if arguments.json:
        print_json(document)
    else:
        print_table(columns, rows)
    return EXIT_OK


def _console(**options: Any) -> Any:
    """Return a console in colour; None if stdout is no terminal, or ``rich`` is not installed."""
    if not sys.stdout.isatty():
        return None
    try:
        from rich.console import Console
    except ImportError:
        return None
    return Console(highlight=False, **options)


# --- connections and questions -------------------------------------------------------------------

_CLIENT_ID = "pykafka-sink-admin"
_TIMEOUT_MS = 30_000
_REACH_TIMEOUT_MS = 6_000


def add_connection(parser: argparse.ArgumentParser) -> None:
    """Add ``--bootstrap-server``, ``--command-config`` and ``--timeout``."""
    add_bootstrap_servers(parser)
    parser.add_argument(
        "--command-config",
        metavar="FILE",
        help="properties file with Kafka's client options, such as security.protocol and "
        "sasl.jaas.config, as for Kafka's own tools; --bootstrap-server wins over it",
    )
    parser.add_argument(
        "--timeout",
        metavar="MS",
        type=_positive,
        default=_TIMEOUT_MS,
        dest="timeout_ms",
        help=f"longest wait for brokers, per step; default: {_TIMEOUT_MS}",
    )


def _positive(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of milliseconds")
    return int(text)


@contextmanager
def connected(arguments: argparse.Namespace) -> Iterator[AdminClient]:
    """Yield a client with reachable brokers. Raises BootstrapError in seconds."""
    from spark_kafka_sink.network.admin import AdminClient

    if arguments.command_config is None:
        client = AdminClient.connect(arguments.bootstrap_servers)
    else:
        client = AdminClient.of(producer_config(arguments))
    with client as admin:
        _check_address(admin, min(_REACH_TIMEOUT_MS, arguments.timeout_ms))
        yield admin


def _check_address(admin: AdminClient, timeout_ms: int) -> None:
    """Report a wrong address in seconds; slow brokers have the whole of --timeout.

    A connection alone proves nothing: a listener with SASL closes the connection of a client
    without SASL only at its first request.
    """
    with suppress(BrokerError):  # a broker has the request, but is slow
        admin.nodes(admin.deadline_in(timeout_ms))


def producer_config(arguments: argparse.Namespace) -> ProducerConfig:
    """Return the config of ``--command-config``, if given. Options without effect go to stderr."""
    from spark_kafka_sink.config.producer_config import ProducerConfig
    from spark_kafka_sink.config.sink_options import read_command_config

    if arguments.command_config is None:
        return ProducerConfig.parse({"bootstrap.servers": arguments.bootstrap_servers})
    found = read_command_config(
        arguments.command_config, arguments.bootstrap_servers, {"client.id": _CLIENT_ID}
    )
    for note in found.notes:
        print(f"pykafka-sink: {coded(note, 'OPTION-018')}", file=sys.stderr)
    return found.producer


_NOT_CONFIRMED = "TOOL-006"


def confirmation(
    arguments: argparse.Namespace, refused: type[KafkaSinkError] = RefusedError
) -> Callable[[str], None]:
    """Return a function that asks on the terminal, and raises ``refused`` for a no.

    Stdout stays free for results.
    """

    def confirm(what: str) -> None:
        if arguments.yes:
            return
        if not sys.stdin.isatty():
            text = f"{what}\nNothing was done: there is nobody to ask. --yes confirms"
            raise refused(text, code=_NOT_CONFIRMED)
        print(f"{printable_lines(what)}\nGo on? [y/N] ", end="", file=sys.stderr, flush=True)
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            raise refused("not confirmed, nothing was done", code=_NOT_CONFIRMED)

    return confirm
