"""``pykafka-sink metrics``: what the JSON line of a batch looks like."""

from __future__ import annotations

import argparse
import json

from spark_kafka_sink.cli.exit_codes import EXIT_OK
from spark_kafka_sink.cli.output import add_command, print_usage

_DESCRIPTION = """\
The sink writes one JSON line for each micro-batch or job: to the log, and to the file that option
metrics.path names. docs/metrics.md has every field of it, and which of Kafka's metrics it gives.
"""
_EXAMPLES = (
    ("the JSON Schema of a line", "pykafka-sink metrics schema"),
    (
        "whether a file has nothing else, with a validator of your choice",
        "pykafka-sink metrics schema > line.schema.json",
    ),
)
_SCHEMA = "Print the JSON Schema (draft 2020-12) of the lines that this package writes."


def add_metrics(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The command and its subcommands."""
    parser = add_command(
        subparsers, "metrics", "the schema of the JSON line", _DESCRIPTION, _EXAMPLES
    )
    parser.set_defaults(command=lambda arguments: print_usage(parser))
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    schema = add_command(commands, "schema", "print the schema", _SCHEMA, _EXAMPLES)
    schema.set_defaults(command=_schema)


def _schema(arguments: argparse.Namespace) -> int:
    from spark_kafka_sink.metrics.schema import line_schema

    print(json.dumps(line_schema(), indent=2))
    return EXIT_OK
