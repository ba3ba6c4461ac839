"""``pykafka-sink report``: a page that shows what the lines of metrics tell."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.cli.exit_codes import EXIT_FAILED, EXIT_OK
from spark_kafka_sink.cli.output import Examples, add_command

_DESCRIPTION = """\
Make a page of the lines that the sink has written to option metrics.path: throughput, latency,
where the time of each micro-batch goes, partitions, brokers, slowest tasks, and what to change.
One HTML file that needs nothing from elsewhere. docs/report.md explains it.
"""
_HIGHEST_PORT = 65_535
_EXAMPLES: Examples = (
    ("of a file, and those that were rotated", "pykafka-sink report /var/log/kafka-sink.jsonl"),
    ("of one query", "pykafka-sink report metrics.jsonl --query orders --output orders.html"),
    ("while it runs, in a browser of this machine", "pykafka-sink report metrics.jsonl --follow"),
)


def add_report(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The command and its options."""
    summary = "a page of a file of metrics: what was slow, and what to change"
    parser = add_command(subparsers, "report", summary, _DESCRIPTION, _EXAMPLES)
    parser.add_argument("metrics", help="the file that option metrics.path names, or its folder")
    parser.add_argument(
        "--output", metavar="FILE", default="report.html", help="default: report.html; - is stdout"
    )
    parser.add_argument("--query", help="only this streaming query, by its name or id")
    parser.add_argument(
        "--follow",
        action="store_true",
        help="write no file; serve a page on 127.0.0.1 that goes on updating, until Ctrl-C",
    )
    parser.add_argument(
        "--port", type=int, default=0, help="of --follow; default: any that is free"
    )
    parser.set_defaults(command=_run)


def _run(arguments: argparse.Namespace) -> int:
    if arguments.follow:
        return _follow(arguments)
    from spark_kafka_sink.report.figures import left_out
    from spark_kafka_sink.report.making import collect
    from spark_kafka_sink.report.page import render

    collected = collect(arguments.metrics, arguments.query)
    if collected.left_out:
        print(f"pykafka-sink: {left_out(collected.left_out)}", file=sys.stderr)
    page = render(collected)
    if arguments.output == "-":
        sys.stdout.write(page)
        return EXIT_OK
    try:
        Path(arguments.output).write_text(page, encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"--output: cannot write {arguments.output}: {error.strerror or error}"
        ) from None
    print(arguments.output)
    return EXIT_OK


def _follow(arguments: argparse.Namespace) -> int:
    from spark_kafka_sink.report.following import FollowedReport, ReportServer

    if os.path.isdir(arguments.metrics):
        raise ConfigError(
            "--follow reads a file that grows, not a folder with a file for each line"
        )
    if not 0 <= arguments.port <= _HIGHEST_PORT:
        raise ConfigError(f"--port {arguments.port}: must be between 0 and {_HIGHEST_PORT}")
    if "://" in arguments.metrics:
        raise ConfigError(
            f"--follow reads a file of this machine that grows, not {arguments.metrics}"
        )
    report = FollowedReport(arguments.metrics, arguments.query)
    try:
        server = ReportServer(report, arguments.port)
    except OSError as error:
        print(f"pykafka-sink: --port {arguments.port}: {error.strerror}", file=sys.stderr)
        return EXIT_FAILED
    print(f"{server.address} (Ctrl-C ends it)", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        pass
    finally:
        server.server_close()
    return EXIT_OK
