"""``pykafka-sink transactions``: show and repair the transactions of exactly-once delivery.

This module has arguments and output; ``transactions/operations.py`` has the operations.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from spark_kafka_sink.base.clock import SystemClock
from spark_kafka_sink.tools.command import (
    EXIT_FAILED,
    EXIT_OK,
    EXIT_REFUSED,
    Examples,
    add_command,
    add_connection,
    add_group,
    add_json,
    confirmation,
    connected,
    show,
)

if TYPE_CHECKING:
    from spark_kafka_sink.tools.command import Subparsers
    from spark_kafka_sink.transactions.client import TransactionClient
    from spark_kafka_sink.transactions.operations import Confirm, Operations, Result

Run = Callable[[argparse.Namespace, "TransactionClient"], int]
Repair = Callable[["Operations", argparse.Namespace, "Confirm"], "Result"]

_LOG_TOPIC = "pykafka-sink-transactions"

_DESCRIPTION = """\
Show and repair the transactions and decisions of exactly-once delivery in a cluster.

list and describe change nothing. resolve, abort, rebind and release stop a query or job that runs
under the prefix, and ask before they change anything. In a script, --yes is the answer.

exit codes: 0 done, or nothing to do; 1 failed, message on stderr; 2 rejected, not confirmed, or a
choice is open, which the message names
"""
_COMMAND = "pykafka-sink transactions"
_SERVER = "--bootstrap-server broker:9092"
_EXAMPLES: dict[str, Examples] = {
    "list": (
        ("all open and decided transactions", f"{_COMMAND} list {_SERVER}"),
        ("for a monitor", f"{_COMMAND} list {_SERVER} --json"),
        (
            "a cluster with TLS and passwords",
            f"{_COMMAND} list {_SERVER} --command-config client.properties",
        ),
    ),
    "describe": (
        (
            "a query, and what holds back readers of its topic",
            f"{_COMMAND} describe {_SERVER} --prefix events --topic flights",
        ),
    ),
    "resolve": (
        (
            "what is known, and which choice is open",
            f"{_COMMAND} resolve {_SERVER} --prefix events",
        ),
        (
            "drop a replay",
            f"{_COMMAND} resolve {_SERVER} --prefix events --as-written",
        ),
    ),
    "abort": (
        ("all open transactions of a prefix", f"{_COMMAND} abort {_SERVER} --prefix events"),
    ),
    "rebind": (
        (
            "a checkpoint that has a new name",
            f"{_COMMAND} rebind {_SERVER} --prefix events "
            "--checkpoint s3a://lake/checkpoints/events",
        ),
    ),
    "release": (
        (
            "a query whose checkpoint was deleted",
            f"{_COMMAND} release {_SERVER} --prefix events",
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


def add_transactions(subparsers: Subparsers) -> None:
    """Declare the command and its subcommands."""
    summary = "exactly-once: what is open, decided, blocking readers; repairs"
    examples = (*_EXAMPLES["list"], *_EXAMPLES["describe"])
    actions = add_group(subparsers, "transactions", summary, examples, _DESCRIPTION)

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

    shown = _add_repair(actions, "resolve", _resolve, "finish what was decided", _RESOLVE)
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

    summary = "abort the tasks' open transactions that are not decided"
    shown = _add_repair(
        actions,
        "abort",
        lambda of, arguments, ask: of.abort(arguments.transactional_id, ask),
        summary,
    )
    shown.add_argument("--transactional-id", metavar="ID", help="only this transactional id")
    _add_yes(shown)

    summary = "give a prefix the new location of its checkpoint"
    shown = _add_repair(
        actions, "rebind", lambda of, arguments, ask: of.rebind(arguments.checkpoint, ask), summary
    )
    shown.add_argument(
        "--checkpoint",
        metavar="LOCATION",
        required=True,
        help="the new location, as the query spells it",
    )
    _add_yes(shown)

    summary = "forget a prefix whose query is gone or starts again from nothing"
    _add_yes(_add_repair(actions, "release", lambda of, _, ask: of.release(ask), summary))


def _add(
    actions: Subparsers, name: str, run: Run, summary: str, description: str = ""
) -> argparse.ArgumentParser:
    parser = add_command(actions, name, summary, _EXAMPLES[name], description)
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


def _add_repair(
    actions: Subparsers, name: str, repair: Repair, summary: str, description: str = ""
) -> argparse.ArgumentParser:
    def run(arguments: argparse.Namespace, client: TransactionClient) -> int:
        from spark_kafka_sink.tools.transaction_report import result_document
        from spark_kafka_sink.transactions.operations import Operations, RefusedError

        confirm = confirmation(arguments, RefusedError)
        log_topic, prefix = arguments.log_topic, arguments.prefix
        operations = Operations(client, log_topic, prefix, SystemClock(), arguments.timeout_ms)
        result = repair(operations, arguments, confirm)
        lines = [*result.message.split("\n"), *(f"aborted {name}" for name in result.aborted)]
        show(arguments, result_document(prefix, result), lines)
        return EXIT_REFUSED if result.needs_choice else EXIT_OK

    parser = _add(actions, name, run, summary, description)
    _add_prefix(parser)
    return parser


# --- running -----------------------------------------------------------------------------------


def _connected(run: Run, arguments: argparse.Namespace) -> int:
    from spark_kafka_sink.transactions.client import TransactionClient
    from spark_kafka_sink.transactions.operations import RefusedError

    try:
        with connected(arguments) as admin:
            return run(arguments, TransactionClient(admin))
    except RefusedError as error:
        print(f"pykafka-sink: {error}", file=sys.stderr)
        return EXIT_REFUSED
    except KeyboardInterrupt:
        print("pykafka-sink: interrupted; the command may be repeated", file=sys.stderr)
        return EXIT_FAILED


def _list(arguments: argparse.Namespace, client: TransactionClient) -> int:
    from spark_kafka_sink.tools import transaction_report
    from spark_kafka_sink.transactions.inspection import Inspection

    inspection = Inspection(client, arguments.log_topic, arguments.timeout_ms)
    found = inspection.overview(arguments.prefix)
    now_ms = SystemClock().timestamp_ms()
    document = {"prefixes": [transaction_report.overview_document(one, now_ms) for one in found]}
    lines = transaction_report.overview_lines(found, arguments.log_topic, now_ms)
    return show(arguments, document, lines)


def _describe(arguments: argparse.Namespace, client: TransactionClient) -> int:
    from spark_kafka_sink.tools import transaction_report
    from spark_kafka_sink.transactions.inspection import Inspection

    inspection = Inspection(client, arguments.log_topic, arguments.timeout_ms)
    found = inspection.describe(arguments.prefix, arguments.topics)
    now_ms = SystemClock().timestamp_ms()
    lines = transaction_report.description_lines(found, arguments.log_topic, now_ms)
    return show(arguments, transaction_report.description_document(found, now_ms), lines)


def _resolve(of: Operations, arguments: argparse.Namespace, confirm: Confirm) -> Result:
    from spark_kafka_sink.transactions.operations import Choice

    choice = None
    if arguments.as_written or arguments.as_not_written:
        choice = Choice.AS_WRITTEN if arguments.as_written else Choice.AS_NOT_WRITTEN
    return of.resolve(choice, confirm)
