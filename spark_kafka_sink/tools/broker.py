"""``broker`` and ``registry``, real servers to try things with; ``cache``, what such runs keep."""

from __future__ import annotations

import argparse
import re
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

from spark_kafka_sink.base.machine import private_folders
from spark_kafka_sink.tools.command import (
    EXIT_FAILED,
    EXIT_OK,
    add_command,
    add_json,
    show,
    show_table,
)

if TYPE_CHECKING:
    from spark_kafka_sink.localkafka import LocalKafka, LocalRegistry, LocalSecurity
    from spark_kafka_sink.tools.command import Subparsers

_WATCH_MS = 60_000
_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
# Kafka itself would accept more, but one process on one machine would run out of files or memory.
_MOST_PARTITIONS = 2000

_DESCRIPTION = """\
Run a real Apache Kafka on this machine and print its bootstrap address, until Ctrl-C or SIGTERM.
Needs Java 17 and pyspark.

The first run of a version downloads its jars (45 MB). The data are removed at the end.

With --secure, the command creates certificates and a user, and prints the paths of two properties
files for clients. The first is for Kafka's tools (--command-config), the second for jobs and for
pykafka-sink check (--properties-file). Only this user can read them, and they are removed at the
end.
"""
_EXAMPLES = (
    ("one broker, two topics", "pykafka-sink broker --topic flights:6 alerts"),
    ("three brokers of an older version", "pykafka-sink broker --brokers 3 --version 3.9.1"),
    ("TLS and a login with a password", "pykafka-sink broker --secure"),
    ("TLS, and clients with a certificate", "pykafka-sink broker --secure ssl"),
    ("at the same address each time", "pykafka-sink broker --port 9092"),
    ("its address as JSON, for scripts", "pykafka-sink broker --json"),
)
_PROTOCOLS = ("ssl", "sasl_plaintext", "sasl_ssl")
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class TopicArgument(NamedTuple):
    """A topic from the command line, ``name:partitions``."""

    name: str
    partitions: int

    @classmethod
    def parse(cls, text: str) -> TopicArgument:
        """Parse one topic, by default with one partition. Raises ArgumentTypeError for argparse."""
        name, colon, partitions = text.partition(":")
        if not name or (colon and not (partitions.isascii() and partitions.isdigit())):
            raise argparse.ArgumentTypeError(f"'{text}' is not name or name:partitions")
        if not _TOPIC_NAME.fullmatch(name) or name in (".", ".."):
            raise argparse.ArgumentTypeError(
                f"'{name}' is not a topic name: 1 to 249 characters out of a-z A-Z 0-9 . _ -, and "
                "not . or .."
            )
        count = int(partitions) if colon else 1
        if not 1 <= count <= _MOST_PARTITIONS:
            raise argparse.ArgumentTypeError(
                f"topic {name} cannot have {count} partitions here: 1 to {_MOST_PARTITIONS}"
            )
        return cls(name, count)


def _kafka_version(text: str) -> str:
    from spark_kafka_sink.localkafka.settings import LocalKafkaError, check_version

    try:
        return check_version(text)
    except LocalKafkaError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


# --- what is kept on this machine ----------------------------------------------------------------

_CACHE = """\
Show what the sink keeps on this machine: downloaded jars of pykafka-sink broker and LocalKafka, and
temporary files of jobs. PYKAFKA_SINK_CACHE names the folder of the downloads.

--clear removes all of it, or nothing while a broker runs from a download. A running job keeps what
it has loaded.
"""
_CACHE_EXAMPLES = (
    ("what is kept where", "pykafka-sink cache"),
    ("before pip uninstall pykafka-sink", "pykafka-sink cache --clear"),
)
_MB = 1_000_000


def add_cache(subparsers: Subparsers) -> None:
    """Declare the command and its options."""
    summary = "what the sink keeps on this machine; --clear removes it"
    parser = add_command(subparsers, "cache", summary, _CACHE_EXAMPLES, _CACHE)
    parser.add_argument("--clear", action="store_true", help="remove all of it")
    add_json(parser)
    parser.set_defaults(command=_run_cache)


def _run_cache(arguments: argparse.Namespace) -> int:
    from spark_kafka_sink.localkafka.jars import cached_folders, clear_cache

    folders = [*cached_folders(), *private_folders()]
    found: list[dict[str, Any]] = [{"path": str(path), "bytes": _size(path)} for path in folders]
    if arguments.clear:
        clear_cache()
        for path in private_folders():
            shutil.rmtree(path, ignore_errors=True)
    document = {"cleared" if arguments.clear else "kept": found}
    if not found:
        return show(arguments, document, ["nothing is kept on this machine"])
    rows = [(f"{one['bytes'] / _MB:,.1f} MB", one["path"]) for one in found]
    columns = ("SIZE", "REMOVED" if arguments.clear else "FOLDER")
    return show_table(arguments, document, columns, rows)


def _size(folder: Path) -> int:
    files = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return sum(path.stat().st_size for path in files)


# --- a broker ------------------------------------------------------------------------------------


class _StoppedError(Exception):
    """A signal requested this process to stop."""


def add_broker(subparsers: Subparsers) -> None:
    """Declare the command and its options."""
    summary = "run a real Apache Kafka on this machine until Ctrl-C"
    parser = add_command(subparsers, "broker", summary, _EXAMPLES, _DESCRIPTION)
    parser.add_argument("--brokers", type=int, default=1, choices=(1, 3), help="default: 1")
    parser.add_argument(
        "--version",
        dest="kafka_version",
        metavar="VERSION",
        type=_kafka_version,
        help="of Kafka, 3.3 or newer",
    )
    parser.add_argument(
        "--port",
        type=int,
        help="of the printed address; further brokers have the ports after it. Default: a free one",
    )
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
    parser.add_argument(
        "--secure",
        metavar="PROTOCOL",
        type=str.lower,
        choices=_PROTOCOLS,
        nargs="?",
        const="sasl_ssl",
        help=f"{', '.join(_PROTOCOLS)}; default: sasl_ssl. Passwords: SCRAM-SHA-512",
    )
    add_json(parser)
    parser.set_defaults(command=lambda arguments: _run_broker(parser, arguments))


def _run_broker(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> int:
    from spark_kafka_sink.localkafka import DEFAULT_VERSION, KNOWN_VERSIONS

    names = [topic.name for topic in arguments.topics]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        parser.error(f"argument --topic: {', '.join(twice)} is given twice")

    version = arguments.kafka_version or DEFAULT_VERSION
    if version not in KNOWN_VERSIONS:
        known = ", ".join(KNOWN_VERSIONS)
        print(
            f"Apache Kafka {version} was never tried here. Known to work: {known}", file=sys.stderr
        )
    with _until_stopped():
        return _serve(arguments, version)
    return EXIT_OK


def _serve(arguments: argparse.Namespace, version: str) -> int:
    """Serve until a broker ends by itself, or until _StoppedError."""
    from spark_kafka_sink.jobs.progress import Steps
    from spark_kafka_sink.localkafka import LocalKafka
    from spark_kafka_sink.localkafka.settings import MAIN_LISTENER

    security, step = _security(arguments.secure), Steps(out=sys.stderr).step
    kafka = LocalKafka(
        arguments.brokers, version, security=security, port=arguments.port, step=step
    )
    with kafka:
        for topic in arguments.topics:
            kafka.create_topic(topic.name, topic.partitions)
        found = {"bootstrap_servers": kafka.bootstrap_servers, "version": version}
        if arguments.secure is not None:
            path = kafka.folder / "client.properties"
            found["client_properties"] = str(kafka.write_client_properties(path))
            jobs = kafka.write_spark_properties(kafka.folder / "pykafka-sink.conf", path)
            found["spark_properties"] = str(jobs)
            print(
                f"{kafka.bootstrap_servers_of(MAIN_LISTENER)} has no security, and every user "
                "of this machine can use it: the brokers need a listener in clear text",
                file=sys.stderr,
            )
        show(arguments, found, [text for name, text in found.items() if name != "version"])
        sys.stdout.flush()
        return _stay(kafka)


def _security(protocol: str | None) -> LocalSecurity | None:
    from spark_kafka_sink.localkafka import LocalSecurity

    if protocol is None:
        return None
    return LocalSecurity(protocol, client_auth="required" if protocol == "ssl" else "none")


# --- a schema registry ---------------------------------------------------------------------------

_REGISTRY = """\
Run a schema registry on this machine and print its URL for schema.registry.url, until Ctrl-C or
SIGTERM. Needs Java 17.

It is Apicurio with Confluent's REST API, and keeps its schemas in memory. The first run downloads
109 MB.
"""
_REGISTRY_EXAMPLES = (
    ("a registry beside a broker", "pykafka-sink registry"),
    ("its URL as JSON, for scripts", "pykafka-sink registry --json"),
)


def add_registry(subparsers: Subparsers) -> None:
    """Declare the command and its options."""
    summary = "run a schema registry on this machine until Ctrl-C"
    parser = add_command(subparsers, "registry", summary, _REGISTRY_EXAMPLES, _REGISTRY)
    add_json(parser)
    parser.set_defaults(command=_run_registry)


def _run_registry(arguments: argparse.Namespace) -> int:
    from spark_kafka_sink.jobs.progress import Steps
    from spark_kafka_sink.localkafka import LocalRegistry

    with _until_stopped(), LocalRegistry(step=Steps(out=sys.stderr).step) as registry:
        show(arguments, {"url": registry.url}, [registry.url])
        sys.stdout.flush()
        return _stay(registry)
    return EXIT_OK


def _stay(server: LocalKafka | LocalRegistry) -> int:
    """Return when the server has ended by itself."""
    print("Ctrl-C stops it and removes its data.", file=sys.stderr, flush=True)
    while True:
        failure = server.await_failure(_WATCH_MS)
        if failure is not None:
            print(f"pykafka-sink: {failure}", file=sys.stderr)
            return EXIT_FAILED


@contextmanager
def _until_stopped() -> Iterator[None]:
    """End the block at the first signal to stop; ignore further signals until it has ended."""

    def stop(number: int, frame: FrameType | None) -> None:
        for stop_signal in _STOP_SIGNALS:
            signal.signal(stop_signal, signal.SIG_IGN)
        raise _StoppedError

    before = {number: signal.signal(number, stop) for number in _STOP_SIGNALS}
    try:
        with suppress(_StoppedError):
            yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
