"""``pykafka-sink transactions``: show and repair the transactions of exactly-once delivery.

This module has arguments and output; ``transactions/operations.py`` has the operations.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from spark_kafka_sink.tools.command import (
    EXIT_FAILED,
    EXIT_OK,
    EXIT_REFUSED,
    Examples,
    add_command,
    add_connection,
    add_json,
    confirmation,
    connected,
    examples_text,
    print_json,
    print_lines,
    print_usage,
)

if TYPE_CHECKING:
    from spark_kafka_sink.transactions.client import TransactionClient
    from spark_kafka_sink.transactions.operations import Confirm, Operations, Result

Run = Callable[[argparse.Namespace, "TransactionClient"], int]

_LOG_TOPIC = "pykafka-sink-transactions"

_DESCRIPTION = """\
Show and repair the transactions and decisions of exactly-once delivery in a cluster.

list and describe change nothing. resolve, abort, rebind and release stop a query or job that runs
under the prefix, and ask before they change anything. In a script, --yes is the answer.

exit codes: 0 done, or nothing to do; 1 failed, message on stderr; 2 rejected, not confirmed, or a
choice is open, which the message names
"""
_SERVER = "--bootstrap-server broker:9092"
_EXAMPLES: dict[str, Examples] = {
    "list": (
        ("all open and decided transactions", f"pykafka-sink transactions list {_SERVER}"),
        ("for a monitor", f"pykafka-sink transactions list {_SERVER} --json"),
        (
            "a cluster with TLS and passwords",
            f"pykafka-sink transactions list {_SERVER} --command-config client.properties",
        ),
    ),
    "describe": (
        (
            "a query, and what holds back readers of its topic",
            f"pykafka-sink transactions describe {_SERVER} --prefix events --topic flights",
        ),
    ),
    "resolve": (
        (
            "what is known, and which choice is open",
            f"pykafka-sink transactions resolve {_SERVER} --prefix events",
        ),
        (
            "drop a replay",
            f"pykafka-sink transactions resolve {_SERVER} --prefix events --as-written",
        ),
    ),
    "abort": (
        (
            "all open transactions of a prefix",
            f"pykafka-sink transactions abort {_SERVER} --prefix events",
        ),
    ),
    "rebind": (
        (
            "a checkpoint that has a new name",
            f"pykafka-sink transactions rebind {_SERVER} --prefix events "
            "--checkpoint s3a://lake/checkpoints/events",
        ),
    ),
    "release": (
        (
            "a query whose checkpoint was deleted",
            f"pykafka-sink transactions release {_SERVER} --prefix events",
        ),
    ),
}
_RESOLVE = """\
Commit the rest of the transactions that a driver has decided and not finished.

You must choose what a repetition does if brokers have aborted a part (PARTIAL), do not know any
more (UNKNOWN), or a job ended unseen. Without a choice, the command prints what is known. A choice
also replaces a record that cannot be read (UNREADABLE).

If Spark has repeated a finished micro-batch with other rows and the query has stopped, a choice
decides about the replay of this micro-batch only.
"""


def add_transactions(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command and its subcommands."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = subparsers.add_parser(
        "transactions",
        help="exactly-once: what is open, decided, blocking readers; repairs",
        description=_DESCRIPTION,
        epilog=examples_text((*_EXAMPLES["list"], *_EXAMPLES["describe"])),
        formatter_class=raw,
    )
    parser.set_defaults(command=lambda arguments: print_usage(parser))
    actions = parser.add_subparsers(title="commands", metavar="COMMAND")
    _add_looks(actions)
    _add_resolve(actions)
    _add_other_repairs(actions)


def _add_looks(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    shown = _add(actions, "list", _list, "records and open transactions of all prefixes, or of one")
    shown.add_argument("--prefix", metavar="P", help="transactional.id.prefix; default: all")

    shown = _add(actions, "describe", _describe, "one prefix, and what holds back its readers")
    _add_prefix(shown)
    shown.add_argument(
        "--topic",
        dest="topics",
        metavar="T",
        action="append",
        default=[],
        help="show all partitions of this topic, too; may be repeated",
    )


def _add_resolve(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    shown = _add(actions, "resolve", _resolve, "finish what was decided", _RESOLVE)
    _add_prefix(shown)
    choice = shown.add_mutually_exclusive_group()
    choice.add_argument(
        "--as-written",
        action="store_true",
        help="count it as written: a replay is dropped, and rows that are not visible stay missing",
    )
    choice.add_argument(
        "--as-not-written",
        action="store_true",
        help="a replay writes everything again, and duplicates rows that are visible already",
    )
    _add_yes(shown)


def _add_other_repairs(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    shown = _add(
        actions, "abort", _abort, "abort the tasks' open transactions that are not decided"
    )
    _add_prefix(shown)
    shown.add_argument("--transactional-id", metavar="ID", help="only this transactional id")
    _add_yes(shown)

    shown = _add(actions, "rebind", _rebind, "give a prefix the new location of its checkpoint")
    _add_prefix(shown)
    shown.add_argument(
        "--checkpoint",
        metavar="LOCATION",
        required=True,
        help="the new location, as the query spells it",
    )
    _add_yes(shown)

    shown = _add(
        actions,
        "release",
        _release,
        "forget a prefix whose query is gone or starts again from nothing",
    )
    _add_prefix(shown)
    _add_yes(shown)


def _add(
    actions: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    run: Run,
    summary: str,
    description: str | None = None,
) -> argparse.ArgumentParser:
    description = description or f"{summary[0].upper()}{summary[1:]}."
    parser = add_command(actions, name, summary, description, _EXAMPLES[name])
    add_connection(parser)
    parser.add_argument(
        "--log-topic",
        metavar="TOPIC",
        default=_LOG_TOPIC,
        help=f"the decision log, transaction.log.topic of the query; default: {_LOG_TOPIC}",
    )
    add_json(parser)
    parser.set_defaults(command=lambda arguments: _connected(run, arguments))
    return parser


def _add_prefix(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--prefix", metavar="P", required=True, help="transactional.id.prefix")


def _add_yes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--yes", action="store_true", help="do it without asking")


# --- running -----------------------------------------------------------------------------------


def _connected(run: Run, arguments: argparse.Namespace) -> int:
    from spark_kafka_sink.transactions.operations import RefusedError

    try:
        with _client(arguments) as client:
            return run(arguments, client)
    except RefusedError as error:
        print(f"pykafka-sink: {error}", file=sys.stderr)
        return EXIT_REFUSED
    except KeyboardInterrupt:
        print("pykafka-sink: interrupted; the command may be repeated", file=sys.stderr)
        return EXIT_FAILED


@contextmanager
def _client(arguments: argparse.Namespace) -> Iterator[TransactionClient]:
    from spark_kafka_sink.transactions.client import TransactionClient

    with connected(arguments) as admin:
        yield TransactionClient(admin)


def _list(arguments: argparse.Namespace, client: TransactionClient) -> int:
    from spark_kafka_sink.base.clock import SystemClock
    from spark_kafka_sink.tools import transaction_report
    from spark_kafka_sink.transactions.inspection import Inspection

    inspection = Inspection(client, arguments.log_topic, arguments.timeout_ms)
    found = inspection.overview(arguments.prefix)
    now_ms = SystemClock().timestamp_ms()
    if arguments.json:
        print_json(
            {"prefixes": [transaction_report.overview_document(one, now_ms) for one in found]}
        )
    else:
        print_lines(transaction_report.overview_lines(found, arguments.log_topic, now_ms))
    return EXIT_OK


def _describe(arguments: argparse.Namespace, client: TransactionClient) -> int:
    from spark_kafka_sink.base.clock import SystemClock
    from spark_kafka_sink.tools import transaction_report
    from spark_kafka_sink.transactions.inspection import Inspection

    inspection = Inspection(client, arguments.log_topic, arguments.timeout_ms)
    described = inspection.describe(arguments.prefix, arguments.topics)
    now_ms = SystemClock().timestamp_ms()
    if arguments.json:
        print_json(transaction_report.description_document(described, now_ms))
    else:
        print_lines(transaction_report.description_lines(described, arguments.log_topic, now_ms))
    return EXIT_OK


def _operations(arguments: argparse.Namespace, client: TransactionClient) -> Operations:
    from spark_kafka_sink.base.clock import SystemClock
    from spark_kafka_sink.transactions.operations import Operations

    return Operations(
        client, arguments.log_topic, arguments.prefix, SystemClock(), arguments.timeout_ms
    )


def _resolve(arguments: argparse.Namespace, client: TransactionClient) -> int:
    from spark_kafka_sink.transactions.operations import Choice

    choice = None
    if arguments.as_written or arguments.as_not_written:
        choice = Choice.AS_WRITTEN if arguments.as_written else Choice.AS_NOT_WRITTEN
    confirm = _confirmation(arguments)
    return _finish(arguments, _operations(arguments, client).resolve(choice, confirm))


def _abort(arguments: argparse.Namespace, client: TransactionClient) -> int:
    operations, confirm = _operations(arguments, client), _confirmation(arguments)
    return _finish(arguments, operations.abort(arguments.transactional_id, confirm))


def _rebind(arguments: argparse.Namespace, client: TransactionClient) -> int:
    operations, confirm = _operations(arguments, client), _confirmation(arguments)
    return _finish(arguments, operations.rebind(arguments.checkpoint, confirm))


def _release(arguments: argparse.Namespace, client: TransactionClient) -> int:
    operations, confirm = _operations(arguments, client), _confirmation(arguments)
    return _finish(arguments, operations.release(confirm))


def _confirmation(arguments: argparse.Namespace) -> Confirm:
    from spark_kafka_sink.transactions.operations import RefusedError

    return confirmation(arguments, RefusedError)


def _finish(arguments: argparse.Namespace, result: Result) -> int:
    from spark_kafka_sink.tools import transaction_report

    if arguments.json:
        print_json(transaction_report.result_document(arguments.prefix, result))
    else:
        print_lines([*result.message.split("\n"), *(f"aborted {name}" for name in result.aborted)])
    return EXIT_REFUSED if result.needs_choice else EXIT_OK
