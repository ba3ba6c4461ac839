"""``pykafka-sink dead-letters``: count, show and replay the dead letters of a topic."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timezone
from itertools import islice
from typing import TYPE_CHECKING, Any

from spark_kafka_sink.base.text import MOST_SHOWN, printable
from spark_kafka_sink.tools.command import (
    EXIT_FAILED,
    EXIT_OK,
    Examples,
    RefusedError,
    add_command,
    add_connection,
    add_group,
    add_json,
    confirmation,
    connected,
    print_json,
    print_lines,
    printable_lines,
    producer_config,
    show,
    show_table,
)

if TYPE_CHECKING:
    from spark_kafka_sink.network.admin import AdminClient
    from spark_kafka_sink.tools.command import Subparsers
    from spark_kafka_sink.tools.dead_letter_replay import (
        DeadLetter,
        Group,
        LetterFilter,
        Replay,
        Topic,
    )

Run = Callable[[argparse.Namespace, "AdminClient"], int]

_DESCRIPTION = """\
Count, show and replay rows that could not be written, from the topic of option
errors.deadletterqueue.topic.name.

count and show change nothing. replay asks before it writes, and deletes nothing. All three read
committed records up to the end that the topic has at their start.

exit codes: 0 done; 1 failed, message on stderr, or replay has written nothing; 2 rejected, or not
confirmed
"""
_REPLAY = """\
Write dead letters again, with the key, value, headers, timestamp and partition of their row, and
wait for all acknowledgements.

You name the topic: --to-topic for all rows, or --allow-topic for rows whose dead letter names this
topic. The name in a dead letter alone is no permission, because other programs may have written it.
The decision log and Kafka's internal topics are rejected.

Truncated rows, and rows that could not be encoded, are omitted and counted, unless --mend names a
function that repairs them. The function gets and returns a pyarrow.RecordBatch with the columns
value, key, headers, topic, partition, timestamp and cause. It may drop rows. It must be importable
here.

A row that is written again comes behind newer rows of its key. If the topic is compacted, it
replaces them. --skip-superseded leaves such rows out, and calls the function of --mend twice.

A record without the header of its cause may be no dead letter. It is omitted, unless you give
--cause unknown, for dead letters without errors.deadletterqueue.context.headers.enable.

Dead letters stay in their topic. At its end, the command prints a command that continues from
there, with the same --cause and --query-id. After a failure, a repetition may write rows twice.
"""
_AT = "--bootstrap-server broker:9092 --topic flights-dead-letters"
_EXAMPLES: dict[str, Examples] = {
    "count": (("how many, of which cause", f"pykafka-sink dead-letters count {_AT}"),),
    "show": (
        ("the first ones", f"pykafka-sink dead-letters show {_AT}"),
        ("of one cause", f"pykafka-sink dead-letters show {_AT} --cause too-large --limit 100"),
    ),
    "replay": (
        (
            "after max.message.bytes was raised",
            f"pykafka-sink dead-letters replay {_AT} --cause too-large --allow-topic flights",
        ),
        (
            "into a compacted topic",
            f"pykafka-sink dead-letters replay {_AT} --cause too-large --allow-topic flights "
            "--skip-superseded",
        ),
        (
            "with a function that gives rows a topic",
            f"pykafka-sink dead-letters replay {_AT} --cause null-topic --allow-topic flights "
            "--mend mending:with_topic",
        ),
    ),
}
_MAX_PREVIEW = 60
_MAX_NAME_LENGTH = 249
_MAX_NAMED = 20


def add_dead_letters(subparsers: Subparsers) -> None:
    """Declare the command and its subcommands."""
    summary = "rows that could not be written: count, show, write again"
    examples = (*_EXAMPLES["count"], *_EXAMPLES["show"])
    actions = add_group(subparsers, "dead-letters", summary, examples, _DESCRIPTION)
    _add(actions, "count", _count, "the number for each cause and topic")
    shown = _add(actions, "show", _show, "single rows, partition by partition")
    shown.add_argument(
        "--limit", type=_number, default=20, metavar="N", help="the most rows to show; default: 20"
    )
    parser = _add(actions, "replay", _replay, "write dead letters again, after a repair", _REPLAY)
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--to-topic", metavar="T", help="write all rows to this topic")
    where.add_argument(
        "--allow-topic",
        metavar="T",
        dest="allowed",
        action="append",
        default=[],
        help="write rows to this topic if their dead letter names it; may be repeated",
    )
    parser.add_argument(
        "--without-partition",
        action="store_true",
        help="let the key choose the partition, also for rows that named one",
    )
    parser.add_argument(
        "--mend", metavar="MODULE:FUNCTION", help="a function that repairs rows first"
    )
    parser.add_argument(
        "--skip-superseded",
        action="store_true",
        help="leave out rows whose key has a later record in the topic, by timestamps; reads the "
        "topic from the time of the oldest row on",
    )
    parser.add_argument("--yes", action="store_true", help="do it without asking")


def _add(
    actions: Subparsers, name: str, run: Run, summary: str, description: str = ""
) -> argparse.ArgumentParser:
    def run_connected(arguments: argparse.Namespace) -> int:
        with connected(arguments) as admin:
            return run(arguments, admin)

    parser = add_command(actions, name, summary, _EXAMPLES[name], description)
    add_connection(parser)
    parser.add_argument("--topic", metavar="T", required=True, help="topic of the dead letters")
    parser.add_argument(
        "--cause",
        dest="causes",
        type=_cause,
        action="append",
        default=[],
        help="only this cause; may be repeated",
    )
    parser.add_argument(
        "--query-id", metavar="ID", help="only dead letters of this streaming query"
    )
    parser.add_argument(
        "--from",
        dest="first_offsets",
        metavar="PARTITION:OFFSET,…",
        type=_offsets,
        default={},
        help="first offsets; other partitions from their beginning",
    )
    parser.add_argument(
        "--skip-unreadable",
        action="store_true",
        help="leave out records that are too large to read, instead of failing",
    )
    add_json(parser)
    parser.set_defaults(command=run_connected)
    return parser


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"'{text}' is not a number")
    return int(text)


def _cause(text: str) -> str:
    from spark_kafka_sink.tools.dead_letter_replay import ALL_CAUSES

    if text not in ALL_CAUSES:
        raise argparse.ArgumentTypeError(f"'{text}' is none of {', '.join(ALL_CAUSES)}")
    return text


def _offsets(text: str) -> dict[int, int]:
    found: dict[int, int] = {}
    for part in text.split(","):
        partition, colon, offset = part.strip().partition(":")
        if not colon:
            raise argparse.ArgumentTypeError(f"'{part}' is not PARTITION:OFFSET")
        found[_number(partition)] = _number(offset)
    return found


# --- running ----------------------------------------------------------------------------------


def _opened(
    arguments: argparse.Namespace, admin: AdminClient, asks_for_unknown: bool = False
) -> tuple[Topic, LetterFilter]:
    """Open the topic. Raises RefusedError if --from is behind the topic's end."""
    from spark_kafka_sink.tools.dead_letter_replay import LetterFilter, Topic

    wanted = LetterFilter(
        arguments.causes, arguments.query_id, arguments.first_offsets, asks_for_unknown
    )
    skips = arguments.skip_unreadable
    topic = Topic(admin, arguments.topic, arguments.timeout_ms, skips)
    problem = topic.beyond(wanted.first_offsets)
    if problem is not None:
        raise RefusedError(
            f"--from: topic '{arguments.topic}' does not have {problem}. It is of another topic, "
            "or this one was deleted and created again since: leave --from out",
            code="DEADLETTER-004",
        )
    return topic, wanted


def _count(arguments: argparse.Namespace, admin: AdminClient) -> int:
    from spark_kafka_sink.tools.dead_letter_replay import CAUSE_HEADER, UNKNOWN_CAUSE, grouped

    topic, wanted = _opened(arguments, admin)
    left_out = Counter[str]()
    groups = grouped(topic.letters(wanted, left_out))
    found = [group._asdict() for group in groups]
    document = {"count": sum(group.letters for group in groups), "groups": found}
    rows = [
        (str(letters), cause, topic or "-", str(cut), _time(first_ms), _time(last_ms))
        for cause, topic, letters, cut, first_ms, last_ms, _ in groups
    ]
    columns = ("COUNT", "CAUSE", "TOPIC", "CUT OFF", "FIRST", "LAST")
    code = show_table(arguments, document, columns, rows)
    _print_unreadable(left_out)
    if not arguments.json and any(group.cause == UNKNOWN_CAUSE for group in groups):
        print(
            f"pykafka-sink: {UNKNOWN_CAUSE}: no {CAUSE_HEADER} header, so perhaps no dead letters",
            file=sys.stderr,
        )
    return code


def _show(arguments: argparse.Namespace, admin: AdminClient) -> int:
    topic, wanted = _opened(arguments, admin)
    left_out = Counter[str]()
    letters = islice(topic.letters(wanted, left_out), arguments.limit)
    if arguments.json:
        print_json({"dead_letters": [_document(letter) for letter in letters]})
        _print_unreadable(left_out)
        return EXIT_OK
    for letter in letters:
        record = letter.record
        print_lines(
            [
                f"{letter.partition}:{record.offset}  {_time(record.timestamp_ms)}  {letter.cause}"
                f"  {letter.topic or '-'}",
                f"  {letter.context.get('exception.message', '')[:MOST_SHOWN]}",
                f"  key {_preview(record.key)}  value {_preview(record.value)}",
            ]
        )
    _print_unreadable(left_out)
    return EXIT_OK


def _print_unreadable(left_out: Counter[str]) -> None:
    """Print the number of records that --skip-unreadable has left out, if any, to stderr."""
    from spark_kafka_sink.tools.dead_letter_replay import UNREADABLE

    if left_out[UNREADABLE]:
        print(f"pykafka-sink: {left_out[UNREADABLE]} left out: {UNREADABLE}", file=sys.stderr)


def _replay(arguments: argparse.Namespace, admin: AdminClient) -> int:
    from spark_kafka_sink.tools.dead_letter_replay import Replayed, grouped

    if arguments.to_topic == arguments.topic:
        raise RefusedError(
            f"--to-topic: '{arguments.topic}' is the topic that is read: its records would be "
            "written behind themselves. Name the one that the rows were to go to",
            code="DEADLETTER-003",
        )
    replay = _replay_of(arguments)
    topic, wanted = _opened(arguments, admin, asks_for_unknown=True)
    replayable, left_out, not_wanted = Counter[str](), Counter[str](), Counter[str]()
    letters = topic.letters(wanted, not_wanted)
    groups = grouped(_counted(letters, replay, arguments, replayable, left_out))
    _check_destinations(arguments, admin, groups)
    done = Replayed(Counter(), left_out)
    if replayable:
        question = f"Dead letters are written again: {_most_frequent(replayable)}"
        if left_out:
            question += f"\nNot written: {_most_frequent(left_out)}"
        warnings = _compaction_warnings(arguments, admin)
        if arguments.yes and warnings:
            print(
                printable_lines("\n".join(f"pykafka-sink: {w}" for w in warnings)), file=sys.stderr
            )
        confirmation(arguments)("\n".join([question, *warnings]))
        superseded = None
        if arguments.skip_superseded:
            superseded = replay.superseded(admin, topic.letters(wanted), arguments.timeout_ms)
        done = replay.write(topic.letters(wanted), superseded)
    left_out = done.left_out + not_wanted
    next_offsets = ",".join(f"{number}:{end}" for number, end in topic.ends.items())
    command = _next_command(arguments, next_offsets)
    document = {"written": done.written, "left_out": left_out}
    lines = [f"{count} written to {name}" for name, count in done.written.items()]
    reasons = [f"{count} not written: {reason}" for reason, count in left_out.most_common()]
    if not done.written:
        lines = ["nothing written" if reasons else "nothing written: there is no dead letter"]
    lines += [*reasons, f"next time: {command}"]
    show(arguments, {**document, "from": next_offsets, "next": command}, lines)
    return EXIT_OK if done.written else EXIT_FAILED


def _counted(
    letters: Iterable[DeadLetter],
    replay: Replay,
    arguments: argparse.Namespace,
    replayable: Counter[str],
    left_out: Counter[str],
) -> Iterator[DeadLetter]:
    """Yield all letters, and count each by cause and destination, or by the reason to omit it."""
    from spark_kafka_sink.tools.dead_letter_replay import ALL_CAUSES, OTHER_CAUSE

    for letter in letters:
        reason = replay.skip_reason(letter)
        if reason is None:
            cause = letter.cause if letter.cause in ALL_CAUSES else OTHER_CAUSE
            # Records may name any number of topics; only a function of the user's reads those.
            named = letter.topic if letter.topic in arguments.allowed else None
            where = arguments.to_topic or named or "a topic that --mend names"
            replayable[f"{_shown(cause)} to {where}"] += 1
        else:
            left_out[reason] += 1
        yield letter


def _most_frequent(counts: Counter[str]) -> str:
    """Return the most frequent names, and the count of all others: records may have any names."""
    most = counts.most_common(_MAX_NAMED)
    others_count = sum(counts.values()) - sum(count for _, count in most)
    named = [f"{count} {name}" for name, count in most]
    return "; ".join(named + [f"{others_count} others"] * (others_count > 0))


def _check_destinations(
    arguments: argparse.Namespace, admin: AdminClient, groups: Sequence[Group]
) -> None:
    """Raise RefusedError unless the operator names destinations that may be written to."""
    from spark_kafka_sink.tools.dead_letter_replay import replay_forbidden_reason

    if arguments.to_topic is None and not arguments.allowed:
        named = Counter[str]()
        for group in groups:
            named[_shown(group.topic)] += group.letters
        said = ", ".join(f"{name} ({count})" for name, count in named.most_common(_MAX_NAMED))
        raise RefusedError(
            f"name where the rows go: --to-topic T for all, or --allow-topic T, which may be "
            f"repeated, for those that were to go to T. The dead letters say: {said or 'none'}",
            code="DEADLETTER-003",
        )
    # At most one of the two options is given.
    option = "--to-topic" if arguments.to_topic else "--allow-topic"
    for name in filter(None, [arguments.to_topic, *arguments.allowed]):
        reason = replay_forbidden_reason(admin, name, arguments.timeout_ms)
        if reason is not None:
            raise RefusedError(f"{option}: '{_shown(name)}': {reason}", code="DEADLETTER-003")


def _compaction_warnings(arguments: argparse.Namespace, admin: AdminClient) -> list[str]:
    """Return a sentence for each destination where a row that is replayed replaces newer ones."""
    from spark_kafka_sink.tools.dead_letter_replay import CLEANUP_POLICY, is_compacted

    warnings = []
    names = [] if arguments.skip_superseded else [arguments.to_topic, *arguments.allowed]
    for name in filter(None, names):
        compacted = is_compacted(admin, name, arguments.timeout_ms)
        if compacted is False:
            continue
        what = "is" if compacted else f"may be (no right to read its {CLEANUP_POLICY})"
        warnings.append(
            f"Topic '{name}' {what} compacted: a row that is written again comes behind newer rows "
            "of its key, and replaces them. --skip-superseded leaves such rows out"
        )
    return warnings


def _replay_of(arguments: argparse.Namespace) -> Replay:
    """Return the replay. Raises ConfigError for a function that cannot be loaded."""
    from spark_kafka_sink.base.entry_points import Hook, load
    from spark_kafka_sink.tools.dead_letter_replay import Replay

    mend = None
    if arguments.mend is not None:
        mend = Hook(f"'{arguments.mend}'", load(arguments.mend, "--mend"))
    config, keeps_partition = producer_config(arguments), not arguments.without_partition
    to_topic, allowed = arguments.to_topic, arguments.allowed
    return Replay(config, arguments.topic, to_topic, allowed, keeps_partition, mend)


def _next_command(arguments: argparse.Namespace, next_offsets: str) -> str:
    """Return the same command for letters behind ``next_offsets``, without ``--yes``.

    The command repeats every selection; without its causes, it would skip letters of other causes.
    """
    words = ["pykafka-sink", "dead-letters", "replay"]
    options = [
        ("--bootstrap-server", arguments.bootstrap_servers),
        ("--command-config", arguments.command_config),
        ("--topic", arguments.topic),
        *(("--cause", cause) for cause in arguments.causes),
        ("--query-id", arguments.query_id),
        ("--to-topic", arguments.to_topic),
        *(("--allow-topic", name) for name in arguments.allowed),
        ("--mend", arguments.mend),
        ("--from", next_offsets),
    ]
    for name, value in options:
        words += [] if value is None else [name, value]
    words += ["--without-partition"] * arguments.without_partition
    words += ["--skip-superseded"] * arguments.skip_superseded
    words += ["--skip-unreadable"] * arguments.skip_unreadable
    return shlex.join(words)


# --- output ---------------------------------------------------------------------------------------


def _document(letter: DeadLetter) -> dict[str, Any]:
    return {
        "partition": letter.partition,
        "offset": letter.record.offset,
        "timestamp_ms": letter.record.timestamp_ms,
        "key": _text(letter.record.key),
        "value": _text(letter.record.value),
        "headers": [[name, _text(value)] for name, value in letter.own_headers],
        "told": dict(letter.context),
    }


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode(errors="backslashreplace")


def _preview(data: bytes | None) -> str:
    """Return the beginning of ``data``, in one line."""
    if data is None:
        return "null"
    start = data[:_MAX_PREVIEW].decode(errors="backslashreplace")
    length_note = f"… ({len(data)} bytes)" if len(data) > _MAX_PREVIEW else ""
    return f"{printable(start)}{length_note}"


def _shown(text: str | None) -> str:
    """Return a record's text in one line, a dash for no text."""
    return printable(text[:_MAX_NAME_LENGTH]) if text else "-"


def _time(at_ms: int) -> str:
    try:
        moment = datetime.fromtimestamp(at_ms / 1000, timezone.utc)
    except (ValueError, OverflowError, OSError):  # a record's timestamp may be any 64 bits
        return f"{at_ms} ms"
    return moment.strftime("%Y-%m-%d %H:%M:%S")
