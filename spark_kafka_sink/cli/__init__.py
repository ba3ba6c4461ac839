"""The command ``pykafka-sink``.

Every subcommand is a function from parsed arguments to the exit code, and imports what it needs
when it runs.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence

from spark_kafka_sink import __version__
from spark_kafka_sink.base.errors import KafkaSinkError
from spark_kafka_sink.cli.broker import add_broker
from spark_kafka_sink.cli.exit_codes import EXIT_FAILED, EXIT_REFUSED
from spark_kafka_sink.cli.transactions import add_transactions

Command = Callable[[argparse.Namespace], int]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    0 done, 1 failed with a message on stderr, 2 wrong usage.
    """
    parser = _parser()
    arguments = parser.parse_args(argv)
    command: Command | None = arguments.command
    if command is None:
        parser.print_help(sys.stderr)
        return EXIT_REFUSED
    try:
        return command(arguments)
    except KafkaSinkError as error:
        print(f"pykafka-sink: {error}", file=sys.stderr)
        return EXIT_FAILED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="pykafka-sink", description="Tools around the PySpark data source pykafka-sink."
    )
    parser.add_argument("--version", action="version", version=f"pykafka-sink {__version__}")
    parser.set_defaults(command=None)
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND")
    add_broker(subparsers)
    add_transactions(subparsers)
    return parser
