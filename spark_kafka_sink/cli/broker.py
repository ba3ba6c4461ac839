"""``pykafka-sink broker``: a real Apache Kafka on this machine until Ctrl-C."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NamedTuple

from spark_kafka_sink.cli.exit_codes import EXIT_FAILED, EXIT_OK

_WATCH_MS = 60_000
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class TopicArgument(NamedTuple):
    """``name:partitions`` of the command line."""

    name: str
    partitions: int

    @classmethod
    def parse(cls, text: str) -> TopicArgument:
        """Raises ArgumentTypeError, which argparse shows. Without a number: one partition."""
        name, colon, partitions = text.partition(":")
        if not name or (colon and not (partitions.isascii() and partitions.isdigit())):
            raise argparse.ArgumentTypeError(f"'{text}' is not name or name:partitions")
        return cls(name, int(partitions) if colon else 1)


class _StoppedError(Exception):
    """A signal asked this process to stop."""


def add_broker(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The command and its options."""
    parser = subparsers.add_parser(
        "broker",
        help="run a real Apache Kafka on this machine until Ctrl-C",
        description=(
            "Run a real Apache Kafka on this machine, print its bootstrap address and stay until "
            "Ctrl-C or SIGTERM. Needs Java 17 and pyspark. The first run of a version downloads "
            "its jars (45 MB); data are removed at the end."
        ),
    )
    parser.add_argument("--brokers", type=int, default=1, choices=(1, 3), help="default: 1")
    parser.add_argument("--version", dest="kafka_version", metavar="VERSION", help="of Kafka")
    parser.add_argument(
        "--topic",
        dest="topics",
        metavar="NAME:PARTITIONS",
        type=TopicArgument.parse,
        action="extend",
        nargs="+",
        default=[],
        help="create topics; may be repeated",
    )
    parser.set_defaults(command=_run_broker)


def _run_broker(arguments: argparse.Namespace) -> int:
    from spark_kafka_sink.localkafka import DEFAULT_VERSION, LocalKafka

    version = arguments.kafka_version or DEFAULT_VERSION
    print(f"Starting Apache Kafka {version} …", file=sys.stderr, flush=True)
    try:
        with _stop_signals_raise(), LocalKafka(arguments.brokers, version) as kafka:
            for topic in arguments.topics:
                kafka.create_topic(topic.name, topic.partitions)
            print(kafka.bootstrap_servers, flush=True)
            print("Ctrl-C stops it and removes its data.", file=sys.stderr, flush=True)
            while True:
                failure = kafka.await_failure(_WATCH_MS)
                if failure is not None:
                    print(f"pykafka-sink: {failure}", file=sys.stderr)
                    return EXIT_FAILED
    except _StoppedError:
        return EXIT_OK


@contextmanager
def _stop_signals_raise() -> Iterator[None]:
    """Within, the first signal to stop raises _StoppedError, and further ones do nothing."""

    def stop(number: int, frame: FrameType | None) -> None:
        for stop_signal in _STOP_SIGNALS:
            signal.signal(stop_signal, signal.SIG_IGN)
        raise _StoppedError

    before = {number: signal.signal(number, stop) for number in _STOP_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
