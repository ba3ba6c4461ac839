"""``pykafka-sink report``, ``top`` and ``metrics``: show the lines of metrics.

``report`` writes a page, ``top`` shows the latest batches in a terminal while a query runs, and
``metrics schema`` prints the schema of the JSON line of a batch.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.tools.command import EXIT_FAILED, EXIT_OK, Examples, add_command, add_group

if TYPE_CHECKING:
    from spark_kafka_sink.tools.command import Subparsers

_REPORT = """\
Make one HTML file from the lines in option metrics.path, which says what was slow, and what to
change. `pykafka-sink docs report` explains it.

It shows throughput, latency, the time of each micro-batch, partitions, brokers and slowest tasks.
"""
_HIGHEST_PORT = 65_535
_REPORT_EXAMPLES: Examples = (
    ("a file, and its rotated files", "pykafka-sink report /var/log/kafka-sink.jsonl"),
    ("one query", "pykafka-sink report metrics.jsonl --query orders --output orders.html"),
    ("while it runs, in a browser of this machine", "pykafka-sink report metrics.jsonl --follow"),
)


def add_report(subparsers: Subparsers) -> None:
    """Declare the command and its options."""
    summary = "a page of a file of metrics: what was slow, and what to change"
    parser = add_command(subparsers, "report", summary, _REPORT_EXAMPLES, _REPORT)
    parser.add_argument("metrics", help="the file that option metrics.path names, or its folder")
    parser.add_argument(
        "--output", metavar="FILE", default="report.html", help="default: report.html; - is stdout"
    )
    parser.add_argument("--query", help="only this streaming query, by its name or id")
    parser.add_argument(
        "--follow",
        action="store_true",
        help="serve a page on 127.0.0.1 that updates itself, until Ctrl-C; write no file",
    )
    parser.add_argument(
        "--port", type=int, default=0, help="port of --follow; default: any free one"
    )
    parser.set_defaults(command=_run_report)


def _run_report(arguments: argparse.Namespace) -> int:
    if arguments.follow:
        return _follow(arguments)
    from spark_kafka_sink.tools.report_advice import left_out
    from spark_kafka_sink.tools.report_lines import collect
    from spark_kafka_sink.tools.report_page import render

    aggregate = collect(arguments.metrics, arguments.query)
    if aggregate.left_out:
        print(f"pykafka-sink: {left_out(aggregate.left_out)}", file=sys.stderr)
    page = render(aggregate)
    if arguments.output == "-":
        sys.stdout.write(page)
        return EXIT_OK
    try:
        Path(arguments.output).write_text(page, encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"--output: cannot write {arguments.output}: {error.strerror or error}",
            code="TOOL-002",
        ) from None
    print(arguments.output)
    return EXIT_OK


def _follow(arguments: argparse.Namespace) -> int:
    from spark_kafka_sink.tools.report_page import FollowedReport, ReportServer

    _check_is_file("--follow", arguments.metrics)
    if not 0 <= arguments.port <= _HIGHEST_PORT:
        problem = f"--port {arguments.port}: must be between 0 and {_HIGHEST_PORT}"
        raise ConfigError(problem, code="OPTION-003")
    report = FollowedReport(arguments.metrics, arguments.query)
    try:
        server = ReportServer(report, arguments.port)
    except OSError as error:
        print(f"pykafka-sink: --port {arguments.port}: {error.strerror}", file=sys.stderr)
        return EXIT_FAILED
    print(f"{server.address} (Ctrl-C ends it)", flush=True)
    with server, suppress(KeyboardInterrupt):
        server.serve_forever()
    return EXIT_OK


def _check_is_file(reader: str, path: str) -> None:
    problem = ""
    if os.path.isdir(path):
        problem = f"{reader} reads a file that grows, not a folder with a file for each line"
    elif "://" in path:
        problem = f"{reader} reads a file of this machine that grows, not {path}"
    if problem:
        raise ConfigError(problem, code="METRICS-001")


# --- top -----------------------------------------------------------------------------------------

_TOP = """\
Show the latest micro-batches of a file of metrics (option metrics.path) in a terminal, each with
why it was slow. Needs the extra cli: pip install 'pykafka-sink[cli]'.

Press q or Ctrl-C to stop.
"""
_TOP_EXAMPLES: Examples = (
    ("while a query runs", "pykafka-sink top /var/log/kafka-sink.jsonl"),
    ("one query, printed once", "pykafka-sink top metrics.jsonl --query orders --once"),
)


def add_top(subparsers: Subparsers) -> None:
    """Declare the command and its options."""
    summary = "the latest micro-batches in a terminal, while a query runs"
    parser = add_command(subparsers, "top", summary, _TOP_EXAMPLES, _TOP)
    parser.add_argument("metrics", help="the file that option metrics.path names")
    parser.add_argument("--query", help="only this streaming query, by its name or id")
    parser.add_argument(
        "--once",
        action="store_true",
        help="print the latest micro-batches and exit; exit code 1 if there are none",
    )
    parser.set_defaults(command=_run_top)


def _run_top(arguments: argparse.Namespace) -> int:
    _check_is_file("top", arguments.metrics)
    try:
        from spark_kafka_sink.tools.terminal import follow
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "rich":
            raise
        print("pykafka-sink: top needs rich: pip install 'pykafka-sink[cli]'", file=sys.stderr)
        return EXIT_FAILED
    with suppress(KeyboardInterrupt):
        follow(arguments.metrics, arguments.query, arguments.once)
    return EXIT_OK


# --- metrics -------------------------------------------------------------------------------------

_METRICS = """\
The sink writes one JSON line for each micro-batch or job to the file in option metrics.path, and
with log.format=json to the log. `pykafka-sink docs metrics` explains every field.
"""
_METRICS_EXAMPLES = (
    ("the JSON Schema of a line", "pykafka-sink metrics schema"),
    ("for a validator of your choice", "pykafka-sink metrics schema > line.schema.json"),
)
_SCHEMA = "Print the JSON Schema (draft 2020-12) of the lines that this package writes."


def add_metrics(subparsers: Subparsers) -> None:
    """Declare the command and its subcommands."""
    summary = "the schema of the JSON line"
    commands = add_group(subparsers, "metrics", summary, _METRICS_EXAMPLES, _METRICS)
    schema = add_command(commands, "schema", "print the schema", _METRICS_EXAMPLES, _SCHEMA)
    schema.set_defaults(command=_schema)


def _schema(arguments: argparse.Namespace) -> int:
    from spark_kafka_sink.metrics.reading import line_schema

    print(json.dumps(line_schema(), indent=2))
    return EXIT_OK
