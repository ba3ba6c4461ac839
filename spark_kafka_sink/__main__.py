"""The command ``pykafka-sink``.

A command is a row of COMMANDS, and two functions of a module of ``tools``. One declares the
command. The other runs it and returns the exit code; it imports its modules when it runs.
"""

from __future__ import annotations

import argparse
import functools
import io
import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from spark_kafka_sink import __version__
from spark_kafka_sink.base.errors import KafkaSinkError
from spark_kafka_sink.tools.broker import add_broker, add_cache, add_registry
from spark_kafka_sink.tools.check import add_check, add_quota
from spark_kafka_sink.tools.command import (
    EXIT_FAILED,
    EXIT_REFUSED,
    RefusedError,
    print_usage,
    printable_lines,
)
from spark_kafka_sink.tools.dead_letters import add_dead_letters
from spark_kafka_sink.tools.report import add_metrics, add_report, add_top
from spark_kafka_sink.tools.shipped import add_conf, add_docs, add_explain, add_jobs, add_package
from spark_kafka_sink.tools.transactions import add_transactions

if TYPE_CHECKING:
    from spark_kafka_sink.tools.command import Subparsers

Command = Callable[[argparse.Namespace], int]
Declare = Callable[["Subparsers"], None]

COMMANDS: tuple[Declare, ...] = (
    add_broker,
    add_registry,
    add_cache,
    add_check,
    add_explain,
    add_quota,
    add_transactions,
    add_dead_letters,
    add_metrics,
    add_report,
    add_top,
    add_package,
    add_jobs,
    add_conf,
    add_docs,
)
"""Commands in the order in which help shows them."""

_DESCRIPTION = "Tools around the PySpark data source pykafka-sink."
_EPILOG = """\
examples:
  # a Kafka to try things with
  pykafka-sink broker --topic flights:6
  # what every command can do, with examples
  pykafka-sink package --help
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    0 done, 1 failed with a message on stderr, 2 wrong usage.
    """
    # A record's text may contain characters that the terminal's encoding lacks.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    parser = _parser()
    arguments = parser.parse_args(argv)
    command: Command | None = arguments.command
    if command is None:
        return print_usage(parser)
    try:
        code = command(arguments)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # A pager has ended before it has read all. Python writes the rest when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILED
    except KafkaSinkError as error:
        print(f"pykafka-sink: {printable_lines(error)}", file=sys.stderr)
        return EXIT_REFUSED if isinstance(error, RefusedError) else EXIT_FAILED
    except KeyboardInterrupt:
        print("pykafka-sink: interrupted", file=sys.stderr)
        return EXIT_FAILED


@functools.cache
def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="pykafka-sink",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"pykafka-sink {__version__}")
    parser.set_defaults(command=None)
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND")
    for declare in COMMANDS:
        declare(subparsers)
    return parser


if __name__ == "__main__":
    sys.exit(main())
