"""Reports of transactions for operators: aligned text, and documents for JSON.

Times are ms since 1970 in UTC; ages use the clock of this machine, not of the brokers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from spark_kafka_sink.tools.command import table
from spark_kafka_sink.transactions.inspection import (
    PrefixDescription,
    PrefixOverview,
    ReadPosition,
    TransactionDetails,
)
from spark_kafka_sink.transactions.model import NO_UNIT, Decision, format_duration, format_time
from spark_kafka_sink.transactions.operations import Result, state_of

_MOST_PARTITIONS = 8
_NONE = "-"
_TOPICS_OF_ROWS = "the topics of its rows"

Document = dict[str, Any]


# --- text --------------------------------------------------------------------------------------


def overview_lines(found: Sequence[PrefixOverview], log_topic: str, now_ms: int) -> list[str]:
    """Return tables: of prefixes, of their named writes if there are any, of open transactions."""
    if not found:
        return [f"no prefix has a record in {log_topic}, and nothing is open"]
    header = ["PREFIX", "PHASE", "UNIT", "OPEN", "OWNER"]
    rows = [[o.prefix, *_phase_and_unit(o), str(len(o.transactions))] for o in found]
    for row, overview in zip(rows, found):
        row.append(_NONE if overview.decision is None else str(overview.decision.owner))
    transactions = [t for overview in found for t in overview.transactions]
    return [*table(header, rows), *_named_writes(found), "", *_transactions(transactions, now_ms)]


def _named_writes(found: Sequence[PrefixOverview]) -> list[str]:
    """Return an empty line and a table; nothing without a named write."""
    rows = [
        [overview.prefix, written.write_id, written.topic or _TOPICS_OF_ROWS, str(written)]
        for overview in found
        if overview.decision is not None
        for written in overview.decision.written
    ]
    return ["", *table(["PREFIX", "WRITE ID", "TOPIC", "VERSIONS"], rows)] if rows else []


def _phase_and_unit(overview: PrefixOverview) -> list[str]:
    decision = overview.decision
    if decision is None:
        return ["UNREADABLE" if overview.problem else "no record", _NONE]
    if decision.unit == NO_UNIT:
        return ["CLAIMED", _NONE]
    mark = " (to be confirmed)" if decision.needs_confirmation else ""
    return [decision.phase.value + mark, str(decision.unit)]


def _transactions(transactions: Sequence[TransactionDetails], now_ms: int) -> list[str]:
    if not transactions:
        return ["No open transactions."]
    header = ["TRANSACTIONAL ID", "STATE", "SINCE", "AGE", "TIMEOUT"]
    header += ["PRODUCER ID", "EPOCH", "PARTITIONS"]
    rows = [
        [
            t.transactional_id,
            t.state,
            format_time(t.started_ms),
            format_duration(now_ms - t.started_ms),
            format_duration(t.timeout_ms),
            str(t.producer_id),
            str(t.producer_epoch),
            _some([str(partition) for partition in t.partitions]),
        ]
        for t in transactions
    ]
    return table(header, rows)


def description_lines(described: PrefixDescription, log_topic: str, now_ms: int) -> list[str]:
    """Return the record, its parts, open transactions, and the producers that hold back readers."""
    overview = described.overview
    lines = [f"Prefix:      {overview.prefix}", f"Log topic:   {log_topic}"]
    if overview.decision is not None:
        lines += _decision_lines(overview.decision, overview.prefix, now_ms)
    else:
        lines.append(f"Record:      {overview.problem or 'none'}")
    if overview.problem:
        command = f"pykafka-sink transactions resolve --prefix {overview.prefix}"
        lines.append(f"State:       cannot be read; {command} shows it, and replaces it")
    lines += _named_writes([overview])
    if described.parts:
        header = ["TRANSACTIONAL ID", "SPARK PARTITION", "RECORDS", "RECORDED", "NOW"]
        rows = [
            [t.transactional_id, str(t.partition_id), str(t.records), recorded, now]
            for t, recorded, now in described.parts
        ]
        lines += ["", "Transactions of the unit", *table(header, rows)]
    lines += ["", "Open transactions", *_transactions(overview.transactions, now_ms)]
    return [*lines, "", "Readers of committed records", *_positions(described.positions, now_ms)]


def _decision_lines(decision: Decision, prefix: str, now_ms: int) -> list[str]:
    owner = decision.owner
    pairs = [
        ("Owner", f"driver {owner.driver_id}"),
        ("Query name", owner.query_name or _NONE),
        ("Host", owner.host),
        ("Since", _time_and_age(owner.started_ms, now_ms)),
        ("Checkpoint", owner.checkpoint or _NONE),
    ]
    if decision.former is not None:
        pairs.append(("Former", f"{decision.former}, until the owner has decided"))
    if decision.unit != NO_UNIT:
        pairs += [
            ("Unit", str(decision.unit)),
            ("Phase", decision.phase.value),
            ("Decided", _time_and_age(decision.decided_ms, now_ms)),
            ("Records", str(decision.records)),
        ]
    pairs.append(("State", state_of(decision, prefix)))
    return [f"{name + ':':<12} {value}" for name, value in pairs]


def _positions(positions: Sequence[ReadPosition], now_ms: int) -> list[str]:
    if not positions:
        return ["No partitions to tell of; --topic names more."]
    header = ["PARTITION", "LAST STABLE OFFSET", "HIGH WATERMARK", "WAITING", "HELD BACK BY"]
    header += ["PRODUCER ID", "EPOCH", "FROM OFFSET", "LAST WRITE"]
    rows = [row for position in positions for row in _position_rows(position, now_ms)]
    return table(header, rows)


def _position_rows(position: ReadPosition, now_ms: int) -> list[list[str]]:
    """Return one row per open producer: the first holds back readers now, the others after it."""
    offsets = (position.last_stable_offset, position.high_watermark, position.readers_lag)
    known = position.high_watermark >= 0 and position.last_stable_offset >= 0
    row = [str(position.topic_partition), *(str(o) if known else _NONE for o in offsets)]
    if position.problem:
        return [[*row, f"not known: {position.problem}", *[_NONE] * 4]]
    if not position.producers:
        return [[*row, "nobody", *[_NONE] * 4]]
    rows = []
    for producer in position.producers:
        name = producer.transactional_id or "no coordinator knows it: a hanging transaction"
        written_ms = producer.last_write_ms
        age = f"{format_duration(now_ms - written_ms)} ago" if written_ms >= 0 else _NONE
        numbers = (producer.producer_id, producer.producer_epoch, producer.first_offset)
        rows.append([*row, name, *map(str, numbers), age])
    return [rows[0], *([*[""] * 4, f"then {other[4]}", *other[5:]] for other in rows[1:])]


def _time_and_age(timestamp_ms: int, now_ms: int) -> str:
    return f"{format_time(timestamp_ms)} ({format_duration(now_ms - timestamp_ms)} ago)"


def _some(names: Sequence[str]) -> str:
    text = ",".join(names[:_MOST_PARTITIONS]) or _NONE
    return f"{text},… ({len(names)})" if len(names) > _MOST_PARTITIONS else text


# --- documents ---------------------------------------------------------------------------------


def overview_document(overview: PrefixOverview, now_ms: int) -> Document:
    """Return one prefix. ``record`` is null without a readable record: see ``problem``.

    ``written`` of the record has, by write.id, ``ranges`` of versions, first and last; and
    ``folded``: other versions up to this one are not known, -1 if there are none.
    """
    return {
        "prefix": overview.prefix,
        "record": _record(overview.decision, overview.prefix),
        "problem": overview.problem or None,
        "open_transactions": [_transaction(t, now_ms) for t in overview.transactions],
    }


def _record(decision: Decision | None, prefix: str) -> Document | None:
    if decision is None:
        return None
    return {
        "phase": decision.phase.value,
        "unit": None if decision.unit == NO_UNIT else decision.unit._asdict(),
        "decided_ms": decision.decided_ms or None,
        "records": decision.records,
        "needs_confirmation": decision.needs_confirmation,
        "is_settled": decision.is_settled,
        "state": state_of(decision, prefix),
        "owner": decision.owner._asdict(),
        "former": None if decision.former is None else decision.former._asdict(),
        "written": [written._asdict() for written in decision.written],
    }


def _transaction(details: TransactionDetails, now_ms: int) -> Document:
    partitions = [partition._asdict() for partition in details.partitions]
    age_ms = max(0, now_ms - details.started_ms)
    return {**details._asdict(), "age_ms": age_ms, "partitions": partitions}


def description_document(described: PrefixDescription, now_ms: int) -> Document:
    """Return the overview with ``parts`` of the unit and ``partitions`` as readers see them."""
    return {
        **overview_document(described.overview, now_ms),
        "parts": [
            {**part.transaction._asdict(), "recorded": part.recorded, "now": part.now}
            for part in described.parts
        ],
        "partitions": [_position(position) for position in described.positions],
    }


def _position(position: ReadPosition) -> Document:
    return {
        **position.topic_partition._asdict(),
        "last_stable_offset": position.last_stable_offset,
        "high_watermark": position.high_watermark,
        "producers": [producer._asdict() for producer in position.producers],
        "problem": position.problem or None,
    }


def result_document(prefix: str, result: Result) -> Document:
    """Return the result of an operation."""
    return {
        "prefix": prefix,
        "message": result.message,
        "aborted": list(result.aborted),
        "needs_choice": result.needs_choice,
        "record": _record(result.decision, prefix),
    }
