"""What tasks tell the driver of their transactions, and what the driver writes down of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, NamedTuple

from spark_kafka_sink.base.model import Node, ProducerIdAndEpoch
from spark_kafka_sink.transactions.rows import Rows
from spark_kafka_sink.transactions.times import time_of

_FORMAT = 1
_MOST_SUPERSEDED = 64
TOPICS_OF_ROWS = ""
"""In place of a topic's name: a column of the rows has it."""


class TaskTransaction(NamedTuple):
    """A transaction that a task has written and flushed, and nobody has ended.

    transaction_version: the finalized feature when it began; decides the EndTxn version
    partition_id: of Spark; digest: of its rows, as in ``rows.py``
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    transaction_version: int
    partition_id: int
    records: int
    digest: str

    @property
    def producer(self) -> ProducerIdAndEpoch:
        return ProducerIdAndEpoch(self.producer_id, self.producer_epoch)

    @property
    def rows(self) -> Rows:
        """What it has written."""
        return Rows.of_task(self.records, self.digest)


class Write(NamedTuple):
    """What a job writes, for one that may be run again: the write of an application.

    topic: where it goes, TOPICS_OF_ROWS without the option; None where nobody has written that down

    Source: Delta Lake's ``txnAppId`` and ``txnVersion``.
    """

    write_id: str
    version: int
    topic: str | None = None

    def is_same(self, other: Write | None) -> bool:
        """Whether ``other`` has this name and version."""
        return other is not None and self[:2] == other[:2]

    def goes_elsewhere(self, other: Write) -> bool:
        """Whether it is known to be for another topic than ``other``."""
        return None not in (self.topic, other.topic) and self.topic != other.topic

    def __str__(self) -> str:
        return f"version {self.version} of write.id '{self.write_id}'"


class DriverToken(NamedTuple):
    """The right to write decisions: identity and next sequence of ``{prefix}.driver``.

    Whoever initializes that transactional id later makes this token useless (KIP-98).
    """

    producer_id: int
    producer_epoch: int
    next_sequence: int
    transaction_version: int

    @property
    def producer(self) -> ProducerIdAndEpoch:
        return ProducerIdAndEpoch(self.producer_id, self.producer_epoch)


class Driver(NamedTuple):
    """Who plans and commits.

    driver_id: of the Spark driver's process; started_ms: when it took the prefix, since 1970
    checkpoint: of the streaming query, where Spark tells it; None for jobs
    """

    driver_id: str
    host: str
    started_ms: int
    checkpoint: str | None
    query_name: str | None

    def __str__(self) -> str:
        name = f" of query '{self.query_name}'" if self.query_name else ""
        where = f", checkpoint {self.checkpoint}" if self.checkpoint else ""
        return f"driver {self.driver_id}{name} on {self.host}{where}"

    def since(self) -> str:
        """With the time when it took the prefix."""
        return f"{self}, since {time_of(self.started_ms)}"


class Unit(NamedTuple):
    """What is committed as one: a micro-batch of a query, or a batch job."""

    query_id: str | None
    batch_id: int | None
    job_id: str | None

    def __str__(self) -> str:
        if self.job_id is not None:
            return f"job {self.job_id}"
        return f"micro-batch {self.batch_id} of query {self.query_id}"


NO_UNIT = Unit(None, None, None)


def checkpoint_of(query_id: str) -> str:
    """What stands for a checkpoint's location where the query is known, and the location is not."""
    return f"of query {query_id}"


class StoredRecord(NamedTuple):
    """A record of the decision log as it is; an empty value stands for one that was removed."""

    offset: int
    value: bytes


class Phase(Enum):
    """How far a unit is.

    DECIDED: its transactions are to be committed, whatever happens
    DONE: they are
    VOID: the brokers had aborted all of them before; its replay is written afresh
    PARTIAL: they had aborted some of them; its replay may fill in the rest
    UNKNOWN: the brokers can no longer tell what became of some of them
    """

    DECIDED = "DECIDED"
    DONE = "DONE"
    VOID = "VOID"
    PARTIAL = "PARTIAL"
    UNKNOWN = "UNKNOWN"


@dataclass(frozen=True)
class Decision:
    """The one record that a prefix has in the decision log: its owner, and its latest unit.

    transactions: to be committed (DECIDED), lost (PARTIAL, VOID) or unknown (UNKNOWN)
    committed: those known to be visible, from earlier attempts at the same unit too
    records: of the whole unit
    write: of a job that names one; written: the last version of each write.id that is done
    rows: what the unit has written; None where nobody knows, or it does not matter any more
    needs_confirmation: a job's driver died in the middle; it was finished without anybody knowing
    superseded: ids of earlier drivers, which must not come back
    is_query: a streaming query has the prefix, even if none of its micro-batches is decided yet
    may_begin_later: the first micro-batch under the prefix may have another number than 0
    """

    owner: Driver
    phase: Phase = Phase.DONE
    unit: Unit = NO_UNIT
    decided_ms: int = 0
    records: int = 0
    transactions: tuple[TaskTransaction, ...] = ()
    committed: tuple[TaskTransaction, ...] = ()
    needs_confirmation: bool = False
    superseded: tuple[str, ...] = ()
    is_query: bool = False
    may_begin_later: bool = False
    rows: Rows | None = None
    write: Write | None = None
    written: tuple[Write, ...] = ()

    def has(self, write: Write | None) -> bool:
        """Whether ``write``, or a later version, is done."""
        return write is not None and any(
            w.write_id == write.write_id and w.version >= write.version for w in self.written
        )

    def is_of(self, unit: Unit, write: Write | None) -> bool:
        """Whether this is about ``unit``, or about an earlier run of the same write."""
        return self.unit == unit or (write is not None and write.is_same(self.write))

    def in_place_of(self, write: Write) -> Write | None:
        """What is there already of the same name, so that ``write`` is dropped or fills it in."""
        there = self.written
        if self.phase is Phase.PARTIAL and self.write is not None:
            there = (*there, self.write)
        same = (w for w in there if w.write_id == write.write_id and w.version >= write.version)
        return next(same, None)

    def done(self) -> Decision:
        """Its unit is complete."""
        written = self.written
        if self.write is not None:
            others = (w for w in written if w.write_id != self.write.write_id)
            written = (*others, self.write)
        return replace(self, phase=Phase.DONE, transactions=(), committed=(), written=written)

    def deciding(
        self,
        unit: Unit,
        transactions: Sequence[TaskTransaction],
        committed: tuple[TaskTransaction, ...],
        write: Write | None,
    ) -> Decision:
        """To commit ``transactions`` of ``unit``, of which ``committed`` are visible already."""
        everything = (*transactions, *committed)
        return replace(
            self,
            phase=Phase.DECIDED,
            unit=unit,
            records=sum(t.records for t in everything),
            transactions=tuple(transactions),
            committed=committed,
            rows=Rows.total(t.rows for t in everything),
            write=write,
        )

    @staticmethod
    def claimed_by(before: Decision | None, driver: Driver, is_query: bool) -> Decision:
        """The record with ``driver`` as its owner, who supersedes another one."""
        if before is None:
            return Decision(driver, is_query=is_query)
        if before.owner.driver_id == driver.driver_id:
            return replace(before, is_query=is_query)
        superseded = (*before.superseded, before.owner.driver_id)[-_MOST_SUPERSEDED:]
        return replace(before, owner=driver, superseded=superseded, is_query=is_query)

    def to_json(self) -> str:
        """One line, for the log and for operators."""
        body = {
            "format": _FORMAT,
            "phase": self.phase.value,
            "unit": self.unit._asdict(),
            "decided_ms": self.decided_ms,
            "records": self.records,
            "transactions": [list(t) for t in self.transactions],
            "committed": [list(t) for t in self.committed],
            "needs_confirmation": self.needs_confirmation,
            "owner": self.owner._asdict(),
            "superseded": list(self.superseded),
            "is_query": self.is_query,
            "may_begin_later": self.may_begin_later,
            "write": None if self.write is None else self.write[:2],
            "written": [w[:2] for w in self.written],
            "topics": self._topics(),
            "rows": None if self.rows is None else self.rows._asdict(),
        }
        return json.dumps(body, separators=(",", ":"))

    def _topics(self) -> dict[str, str]:
        """Of writes, by their names: apart from them, for earlier versions of the sink."""
        writes = self.written if self.write is None else (*self.written, self.write)
        return {w.write_id: w.topic for w in writes if w.topic is not None}

    @classmethod
    def from_json(cls, text: str | bytes) -> Decision:
        """Raises ValueError for what no version of this sink has written."""
        try:
            body: dict[str, Any] = json.loads(text)
            if body["format"] != _FORMAT:
                raise ValueError(f"format {body['format']}: written by another version")
            topics, write = body.get("topics", {}), body.get("write")
            return cls(
                owner=Driver(**body["owner"]),
                phase=Phase(body["phase"]),
                unit=Unit(**body["unit"]),
                decided_ms=body["decided_ms"],
                records=body["records"],
                transactions=tuple(TaskTransaction(*t) for t in body["transactions"]),
                committed=tuple(TaskTransaction(*t) for t in body["committed"]),
                needs_confirmation=body["needs_confirmation"],
                superseded=tuple(body["superseded"]),
                # Older records do not say; theirs was a query's if Spark told a checkpoint.
                is_query=body.get("is_query", body["owner"]["checkpoint"] is not None),
                may_begin_later=body.get("may_begin_later", True),
                write=None if write is None else _write_of(write, topics),
                written=tuple(_write_of(w, topics) for w in body.get("written", ())),
                rows=None if body.get("rows") is None else Rows(**body["rows"]),
            )
        except (KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(f"not a decision: {error!r}") from error


def _write_of(found: Sequence[Any], topics: dict[str, str]) -> Write:
    write_id, version = found
    return Write(write_id, version, topics.get(write_id))


@dataclass(frozen=True)
class Plan:
    """What planning hands to the tasks and, through them, to ``commit``.

    decision: the prefix's record when the token was made; nobody else can have changed it as long
    as the token is good
    write: of a job that names one; is_repeated: it is done, and the tasks have nothing to write
    coordinator: of the driver's id when the token was made, so that no task has to look for it
    """

    prefix: str
    driver: Driver
    token: DriverToken
    decision: Decision
    job_id: str | None
    timeout_ms: int
    write: Write | None = None
    is_repeated: bool = False
    coordinator: Node | None = None
