"""``pykafka-sink top``: the latest batches in a terminal, while a query runs."""

from __future__ import annotations

import argparse
import os
import sys

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.cli.exit_codes import EXIT_FAILED, EXIT_OK
from spark_kafka_sink.cli.output import Examples, add_command

_DESCRIPTION = """\
Show the latest micro-batches of a file of metrics (option metrics.path) in a terminal, each with
why it was slow, and draw them again when there are more, until q or Ctrl-C is pressed. Needs the
extra cli: pip install 'pykafka-sink[cli]'.
"""
_EXAMPLES: Examples = (
    ("while a query runs", "pykafka-sink top /var/log/kafka-sink.jsonl"),
    ("of one query, printed once", "pykafka-sink top metrics.jsonl --query orders --once"),
)


def add_top(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The command and its options."""
    summary = "the latest micro-batches in a terminal, while a query runs"
    parser = add_command(subparsers, "top", summary, _DESCRIPTION, _EXAMPLES)
    parser.add_argument("metrics", help="the file that option metrics.path names")
    parser.add_argument("--query", help="only this streaming query, by its name or id")
    parser.add_argument(
        "--once",
        action="store_true",
        help="print what is there, and end; with exit code 1 if there is nothing",
    )
    parser.set_defaults(command=_run)


def _run(arguments: argparse.Namespace) -> int:
    if os.path.isdir(arguments.metrics):
        raise ConfigError("top reads a file that grows, not a folder with a file for each line")
    if "://" in arguments.metrics:
        raise ConfigError(f"top reads a file of this machine that grows, not {arguments.metrics}")
    try:
        from spark_kafka_sink.report.terminal import follow
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "rich":
            raise
        print("pykafka-sink: top needs rich: pip install 'pykafka-sink[cli]'", file=sys.stderr)
        return EXIT_FAILED
    try:
        follow(arguments.metrics, arguments.query, arguments.once)
    except KeyboardInterrupt:
        pass
    return EXIT_OK
