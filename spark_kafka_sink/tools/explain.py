"""``pykafka-sink explain``: what an error's code means, how to fix the cause, and how to verify.

A file of ``codes/`` has the causes of one area. It begins with a title, a paragraph about the whole
area, and how to verify that a cause is gone. A cause follows as below; ``verify:`` may be absent.
``…`` stands for names and numbers, and ``(log)`` before the cause for a WARNING of the log.

    OPTION-004 A required option is missing.
      Option '…' must be specified for writing to Kafka, as host:port.
    fix: Set the option that the message names.

The causes of the area BROKER are the rows of ``base.errors``.
"""

from __future__ import annotations

import argparse
import difflib
import re
import shutil
import textwrap
from collections.abc import Iterator
from importlib.resources import files
from typing import TYPE_CHECKING, NamedTuple

from spark_kafka_sink.base.codes import PREFIX
from spark_kafka_sink.base.errors import (
    ERRORS,
    ConfigError,
    KafkaErrorCode,
    advice_for,
    broker_code,
    error_for_code,
    transaction_advice_for,
)
from spark_kafka_sink.tools.command import EXIT_OK, add_command, print_table

if TYPE_CHECKING:
    from spark_kafka_sink.tools.command import Subparsers

AREAS = (
    *("option", "column", "format", "row", "registry", "topic", "connect", "tls", "auth"),
    *("broker", "delivery", "txn", "deadletter", "hook", "metrics", "spark", "job", "tool"),
    "local",
)
"""Files of ``codes/``, in the order of docs/errors.md."""

IN_TRANSACTION = "In a transaction: "
"""Comes before the part of a fix that is for transactions alone."""
_BROKER = "broker"
_INDENT = " " * 13
_LOG = "(log) "
_CODE = re.compile(r"([A-Z]+)-(\d{3})(?!\d)")
_LINK = re.compile(r"\[([^\]]+)\]\(([\w-]+)\.md[^)]*\)")


class Cause(NamedTuple):
    """One row. code: without ``PKS-``; is_logged: a WARNING has it; texts: Markdown in one line"""

    code: str
    cause: str
    is_logged: bool
    messages: tuple[str, ...]
    fix: str
    verify: str


class Area(NamedTuple):
    """The causes of one file. verify: of causes without their own"""

    name: str
    title: str
    about: str
    verify: str
    causes: tuple[Cause, ...]


def read_areas() -> list[Area]:
    """Return all areas, in the order of AREAS."""
    return [_read_area(name) for name in AREAS]


def _read_area(name: str) -> Area:
    text = (files(__package__) / "codes" / f"{name}.txt").read_text(encoding="utf-8")
    head, *rows = text.strip().split("\n\n")
    title, about, verify = head.split("\n")
    verify = verify.removeprefix("verify: ")
    causes = [_cause(row.split("\n"), verify) for row in rows]
    if name == _BROKER:
        causes = [_broker_cause(error, verify) for error in ERRORS.values() if error.code]
    return Area(name.upper(), title.removeprefix("# "), about, verify, tuple(causes))


def _cause(lines: list[str], verify: str) -> Cause:
    code, _, cause = lines[0].partition(" ")
    messages = tuple(line.strip() for line in lines[1:] if line.startswith("  "))
    fields = dict(line.split(": ", 1) for line in lines[1:] if not line.startswith("  "))
    is_logged = cause.startswith(_LOG)
    fix, verify = fields["fix"], fields.get("verify", verify)
    return Cause(code, cause.removeprefix(_LOG), is_logged, messages, fix, verify)


def _broker_cause(error: KafkaErrorCode, verify: str) -> Cause:
    advice, in_transaction = advice_for(error), transaction_advice_for(error)
    fix = _as_sentence(advice) if advice else ""
    if in_transaction != advice:
        fix += f" {IN_TRANSACTION}{in_transaction}."
    fix = fix.strip() or "The log of the broker that the message names has the reason."
    cause = f"Brokers answer {error.name}."
    return Cause(broker_code(error), cause, False, (str(error),), fix, verify)


def _as_sentence(advice: str) -> str:
    # An option's name keeps its small letters.
    is_name = re.match(r"[\w-]+\.", advice) is not None
    return f"{advice if is_name else advice[0].upper() + advice[1:]}."


def add_explain(subparsers: Subparsers) -> None:
    """Declare ``explain``."""
    summary = "what an error's code means: cause, fix, how to verify"
    examples = (
        ("the code at the end of a message", "pykafka-sink explain PKS-OPTION-004"),
        ("all codes", "pykafka-sink explain"),
    )
    text = (
        "Print message, cause, fix and how to verify, for codes such as PKS-OPTION-004. "
        "Without a code, list all codes."
    )
    parser = add_command(subparsers, "explain", summary, examples, text)
    parser.add_argument(
        "codes", metavar="CODE", nargs="*", help="of an error or a warning; with or without PKS-"
    )
    parser.set_defaults(command=_run)


def _run(arguments: argparse.Namespace) -> int:
    areas = read_areas()
    if not arguments.codes:
        rows = [(PREFIX + one.code, one.cause) for area in areas for one in area.causes]
        print_table(("CODE", "CAUSE"), rows)
        return EXIT_OK
    found = [_find(text, areas) for text in arguments.codes]
    print("\n\n".join("\n".join(_lines(cause)) for cause in found))
    return EXIT_OK


def _find(text: str, areas: list[Area]) -> Cause:
    """Return the cause of a code, which may have other text around it. Raises ConfigError."""
    causes = {cause.code: cause for area in areas for cause in area.causes}
    match = _CODE.search(text.upper())
    code = match[0] if match else text.upper().removeprefix(PREFIX)
    if match and match[0] not in causes and match[1].lower() == _BROKER:
        verify = areas[AREAS.index(_BROKER)].verify
        return _broker_cause(error_for_code(int(match[2])), verify)
    if code not in causes:
        near = difflib.get_close_matches(code, causes, n=1, cutoff=0.6)
        hint = f". Did you mean {PREFIX}{near[0]}?" if near else ""
        problem = f"this version has no code {text}{hint} pykafka-sink explain lists all codes"
        raise ConfigError(problem, code="TOOL-001")
    return causes[code]


def _lines(cause: Cause) -> Iterator[str]:
    yield PREFIX + cause.code
    width = max(min(shutil.get_terminal_size().columns, 100), 40)
    where = "in the log" if cause.is_logged else "message"
    parts = [(where, one) for one in cause.messages]
    parts += [("cause", cause.cause), ("fix", cause.fix), ("verify", cause.verify)]
    last = ""
    for name, text in parts:
        # A link names the command that prints the page.
        plain = _LINK.sub(r"\1 (pykafka-sink docs \2)", text)
        shown = textwrap.wrap(plain, width, initial_indent=_INDENT, subsequent_indent=_INDENT)
        yield f"  {'' if name == last else name:11}{shown[0].strip()}"
        yield from shown[1:]
        last = name
