"""A record that this version cannot read: what it says all the same, and a record in its place.

Another version has written it, or something else writes to the topic. Whoever replaces it keeps
what can be made out: whose prefix it is, which unit the record is of, which writes are done.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

from spark_kafka_sink.transactions.model import (
    NO_UNIT,
    Decision,
    Driver,
    Phase,
    StoredRecord,
    Unit,
    Write,
)

_MOST_SHOWN = 4_000

_Found = TypeVar("_Found")
_Other = TypeVar("_Other")


class UnreadableRecord(NamedTuple):
    """``stored`` and what can be made out of it; what cannot is as in a new record.

    version: its format; phase: its word for it; both empty where it has none
    """

    stored: StoredRecord
    version: str
    phase: str
    unit: Unit
    records: int
    checkpoint: str | None
    is_query: bool
    superseded: tuple[str, ...]
    write: Write | None
    written: tuple[Write, ...]

    @classmethod
    def of(cls, stored: StoredRecord) -> UnreadableRecord:
        """Never raises: ``stored`` may be anything."""
        body = _made_out(lambda: json.loads(stored.value), None)
        body = body if isinstance(body, dict) else {}
        unit = _made_out(lambda: _unit(body["unit"]), NO_UNIT)
        checkpoint = _made_out(lambda: _text(body["owner"]["checkpoint"]), None)
        return cls(
            stored,
            str(body.get("format", "")),
            _made_out(lambda: _text(body["phase"]), ""),
            unit,
            # Where nobody knows: a replay is dropped only of what had records.
            _made_out(lambda: _number(body["records"]), 1),
            checkpoint,
            bool(body.get("is_query")) or checkpoint is not None or unit.query_id is not None,
            _made_out(lambda: tuple(_text(one) for one in body["superseded"]), ()),
            _made_out(lambda: _write(body["write"]), None),
            _made_out(lambda: tuple(_write(one) for one in body["written"]), ()),
        )

    def replaced(self, owner: Driver, decided_ms: int, is_written: bool) -> Decision:
        """A record that can be read. ``is_written``: the unit counts as written."""
        claimed = Decision(
            owner,
            superseded=self.superseded,
            is_query=self.is_query,
            may_begin_later=True,
            written=self.written,
        )
        if self.unit == NO_UNIT:
            return claimed  # nothing is known to be decided
        void = replace(
            claimed,
            phase=Phase.VOID,
            unit=self.unit,
            decided_ms=decided_ms,
            records=self.records,
            write=self.write,
        )
        return void.done() if is_written else void

    def __str__(self) -> str:
        text = self.stored.value.decode(errors="replace")
        shown = text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…"
        unit = "a unit that cannot be made out" if self.unit == NO_UNIT else str(self.unit)
        return (
            f"the record has offset {self.stored.offset}, {len(self.stored.value)} bytes, format "
            f"{self.version or 'unknown'}, phase {self.phase or 'unknown'}, and is of {unit}:\n\n"
            f"{shown}\n\nIf a newer version of pykafka-sink wrote it, use that one, which can read "
            "it. Otherwise a choice replaces it"
        )

    def consequence(self, is_written: bool) -> str:
        """What the choice does."""
        unit = "whatever it was of" if self.unit == NO_UNIT else str(self.unit)
        if not is_written:
            return (
                f"{unit} counts as not written: what comes next is written, so that rows of it "
                "which are visible are doubled if they come again."
            )
        return (
            f"{unit} counts as written: a replay of it is dropped, and rows of it that are not "
            "visible stay missing, as do those of transactions that are open now."
        )


def _made_out(find: Callable[[], _Found], other: _Other) -> _Found | _Other:
    try:
        return find()
    except (ValueError, TypeError, LookupError, RecursionError):
        return other


def _unit(found: Any) -> Unit:
    unit = Unit(**found)
    if unit.job_id is not None:
        return Unit(None, None, _text(unit.job_id))
    return Unit(_text(unit.query_id), _number(unit.batch_id), None)


def _write(found: Any) -> Write:
    write_id, version = found
    return Write(_text(write_id), _number(version))


def _text(found: Any) -> str:
    if not isinstance(found, str):
        raise TypeError(f"{found!r} is no text")
    return found


def _number(found: Any) -> int:
    if not isinstance(found, int) or isinstance(found, bool) or found < 0:
        raise TypeError(f"{found!r} is no number")
    return found
