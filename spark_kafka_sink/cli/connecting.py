"""What commands share that connect to a cluster, and ask before they change something."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from spark_kafka_sink.base.errors import BrokerError
from spark_kafka_sink.cli.output import add_bootstrap_servers, in_lines

if TYPE_CHECKING:
    from spark_kafka_sink.client.admin import AdminClient
    from spark_kafka_sink.config.producer_config import ProducerConfig

_CLIENT_ID = "pykafka-sink-admin"
_TIMEOUT_MS = 30_000
_REACH_TIMEOUT_MS = 6_000


def add_connection(parser: argparse.ArgumentParser) -> None:
    """``--bootstrap-server``, ``--command-config`` and ``--timeout``."""
    add_bootstrap_servers(parser)
    parser.add_argument(
        "--command-config",
        metavar="FILE",
        help="properties file with Kafka's client options, such as security.protocol and "
        "sasl.jaas.config, as for Kafka's own tools; --bootstrap-server wins over the one in it",
    )
    parser.add_argument(
        "--timeout",
        metavar="MS",
        type=_positive,
        default=_TIMEOUT_MS,
        dest="timeout_ms",
        help=f"how long brokers are waited for, per step; default: {_TIMEOUT_MS}",
    )


def _positive(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of milliseconds")
    return int(text)


@contextmanager
def connected(arguments: argparse.Namespace) -> Iterator[AdminClient]:
    """A client whose brokers can be reached. Raises BootstrapError in seconds."""
    from spark_kafka_sink.client.admin import AdminClient

    if arguments.command_config is None:
        client = AdminClient.connect(arguments.bootstrap_servers)
    else:
        client = AdminClient.of(producer_config(arguments))
    with client as admin:
        _check_address(admin, min(_REACH_TIMEOUT_MS, arguments.timeout_ms))
        yield admin


def _check_address(admin: AdminClient, timeout_ms: int) -> None:
    """A wrong address is told in seconds; brokers that are slow have the whole of --timeout.

    To be connected does not prove it: a listener with SASL closes a client's connection without
    SASL at the first request only.
    """
    with suppress(BrokerError):  # a broker has the request, and is slow
        admin.nodes(admin.deadline_in(timeout_ms))


def producer_config(arguments: argparse.Namespace) -> ProducerConfig:
    """Of ``--command-config``, if there is one. What has no effect is told on stderr."""
    from spark_kafka_sink.config.command_config import read_command_config
    from spark_kafka_sink.config.producer_config import ProducerConfig

    if arguments.command_config is None:
        return ProducerConfig.parse({"bootstrap.servers": arguments.bootstrap_servers})
    found = read_command_config(
        arguments.command_config, arguments.bootstrap_servers, {"client.id": _CLIENT_ID}
    )
    for note in found.notes:
        print(f"pykafka-sink: {note}", file=sys.stderr)
    return found.producer


def confirmation(arguments: argparse.Namespace, refused: type[Exception]) -> Callable[[str], None]:
    """What asks on the terminal; stdout is for results. It raises ``refused`` for a no."""

    def confirm(what: str) -> None:
        if arguments.yes:
            return
        if not sys.stdin.isatty():
            raise refused(f"{what}\nNothing was done: there is nobody to ask. --yes confirms")
        print(f"{in_lines(what)}\nGo on? [y/N] ", end="", file=sys.stderr, flush=True)
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            raise refused("not confirmed, nothing was done")

    return confirm
