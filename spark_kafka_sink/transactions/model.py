"""Transactions, tokens, decisions and plans: what tasks report, and what the driver records.

A task reports its rows as text, ``RECORDS-BYTES-CONTENTS``: their number, their bytes, and the sum
of their hashes in 16 hexadecimal digits, see ``record/kernels/hashing.py``. Another hash needs
another format of the record.

The transactional id ``{prefix}.driver`` belongs to the driver, ``{prefix}.{worker}.{index}`` to one
Python worker process for one task at a time. A worker takes another index for each task of the same
plan, because its earlier transactions wait for the driver. A new plan finds them all ended, and the
ids free. So attempts, speculation and other numbers of partitions never share an id, and the number
of ids stays small.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from enum import Enum
from typing import Any, NamedTuple

from spark_kafka_sink.base.errors import TransactionError
from spark_kafka_sink.base.model import Node, ProducerIdAndEpoch
from spark_kafka_sink.base.text import bounded_json


def format_time(timestamp_ms: int) -> str:
    """Format a time as ``2026-03-01T12:00:00Z``; a dash if it is 0 or less."""
    if timestamp_ms <= 0:
        return "-"
    moment = datetime.fromtimestamp(timestamp_ms // 1000, tz=timezone.utc)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def format_duration(duration_ms: int) -> str:
    """Format a duration with its two largest units: ``3 min 20 s``; a negative one as 0."""
    seconds = max(0, duration_ms) // 1000
    units = ((seconds // 86400, "d"), (seconds // 3600 % 24, "h"), (seconds // 60 % 60, "min"))
    parts = [*units, (seconds % 60, "s")]
    while len(parts) > 1 and parts[0][0] == 0:
        parts.pop(0)
    return " ".join(f"{n} {unit}" for at, (n, unit) in enumerate(parts[:2]) if n or at == 0)


_MODULUS = 2**64


class RowSummary(NamedTuple):
    """The rows of a task or of a unit, in any order and of any tasks.

    data_bytes: of keys, values, headers and the topic column
    contents: the sum of the rows' hashes, modulo 2**64
    """

    records: int
    data_bytes: int
    contents: int

    @classmethod
    def of_task(cls, text: str) -> RowSummary:
        """Parse the text of a task. Raises ValueError for any other text."""
        records, data_bytes, contents = text.split("-")
        return cls(int(records), int(data_bytes), int(contents, 16))

    @classmethod
    def total(cls, tasks: Iterable[RowSummary]) -> RowSummary:
        """Return all rows of these tasks together."""
        rows = list(tasks)
        return cls(
            sum(r.records for r in rows),
            sum(r.data_bytes for r in rows),
            sum(r.contents for r in rows) % _MODULUS,
        )

    @property
    def text(self) -> str:
        """The text by which a task reports its rows."""
        return f"{self.records}-{self.data_bytes}-{self.contents:016x}"

    def __str__(self) -> str:
        return f"{self.records} records of {self.data_bytes} bytes"


_FORMAT = 2
_MAX_REMEMBERED = 64
_MAX_RANGES = 64
TOPICS_OF_ROWS = ""
"""Used instead of a topic's name if a column of the rows contains the topic."""
_NO_NAME = ""


class TaskTransaction(NamedTuple):
    """A transaction that a task has written and flushed, and that is still open.

    transaction_version: the finalized feature when it began; decides the EndTxn version
    partition_id: of Spark
    digest: of its rows, as in :class:`RowSummary`
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
    def rows(self) -> RowSummary:
        """The rows of the transaction."""
        return RowSummary.of_task(self.digest)


class Write(NamedTuple):
    """The write of a job that may be repeated: a write of the application.

    topic: its topic; TOPICS_OF_ROWS without the option
    query_id: of the query whose micro-batch it is, if Spark reports one

    Source: Delta Lake's ``txnAppId`` and ``txnVersion``. Here versions may come in any order.
    """

    write_id: str
    version: int
    topic: str = TOPICS_OF_ROWS
    query_id: str | None = None

    def is_same(self, other: Write | None) -> bool:
        """Return True if ``other`` has this name and version."""
        return other is not None and self[:2] == other[:2]

    def __str__(self) -> str:
        return f"version {self.version} of write.id '{self.write_id}'"


def name_of(write: Write | None) -> str:
    """Return the write.id; for the micro-batches of a query without one, an empty text."""
    return _NO_NAME if write is None else write.write_id


class Written(NamedTuple):
    """The versions of one write.id that are written.

    topic: of the latest write
    ranges: first and last version of each range, in ascending order, with gaps between them
    folded: versions up to this one that no range has may be written or not; -1 if there are none
    query_id: of the query whose micro-batches they are, if Spark has reported one
    """

    write_id: str
    topic: str
    ranges: tuple[tuple[int, int], ...] = ()
    folded: int = -1
    query_id: str | None = None

    def has(self, version: int) -> bool:
        """Return True if ``version`` is known to be written."""
        return any(first <= version <= last for first, last in self.ranges)

    def adding(self, version: int, topic: str) -> Written:
        """Return a copy with ``version``; without the lowest other range if there are too many."""
        ranges: list[tuple[int, int]] = []
        for first, last in sorted((*self.ranges, (version, version))):
            if ranges and first <= ranges[-1][1] + 1:
                ranges[-1] = (ranges[-1][0], max(last, ranges[-1][1]))
            else:
                ranges.append((first, last))
        folded = self.folded
        if len(ranges) > _MAX_RANGES:
            is_lowest = ranges[0][0] <= version <= ranges[0][1]
            folded = max(folded, ranges.pop(1 if is_lowest else 0)[1])
        return self._replace(topic=topic, ranges=tuple(ranges), folded=folded)

    def __str__(self) -> str:
        ranges = (str(f) if f == last else f"{f}–{last}" for f, last in self.ranges)
        known = ", ".join(ranges)
        return known if self.folded < 0 else f"{known}; others up to {self.folded} are not known"


class DriverToken(NamedTuple):
    """The right to write decisions: identity and next sequence of ``{prefix}.driver``.

    The next process that initializes this transactional id makes the token invalid (KIP-98).
    """

    producer_id: int
    producer_epoch: int
    next_sequence: int
    transaction_version: int

    @property
    def producer(self) -> ProducerIdAndEpoch:
        return ProducerIdAndEpoch(self.producer_id, self.producer_epoch)


class Driver(NamedTuple):
    """The process that plans and commits.

    driver_id: of the Spark driver's process
    started_ms: when it took the prefix, since 1970
    checkpoint: of the streaming query, if Spark reports it; None for jobs
    query_id: Spark's, if it is known when the driver plans
    """

    driver_id: str
    host: str
    started_ms: int
    checkpoint: str | None
    query_name: str | None
    query_id: str | None = None

    def is_same(self, other: Driver) -> bool:
        """Return True if only the time may differ."""
        return self._replace(started_ms=0) == other._replace(started_ms=0)

    def __str__(self) -> str:
        name = f" of query '{self.query_name}'" if self.query_name else ""
        where = f", checkpoint {self.checkpoint}" if self.checkpoint else ""
        return f"driver {self.driver_id}{name} on {self.host}{where}"

    def since(self) -> str:
        """Describe the driver, with the time when it took the prefix."""
        return f"{self}, since {format_time(self.started_ms)}"


class Unit(NamedTuple):
    """The unit of a commit: a micro-batch of a query, or a batch job."""

    query_id: str | None
    batch_id: int | None
    job_id: str | None

    def __str__(self) -> str:
        if self.job_id is not None:
            return f"job {self.job_id}"
        return f"micro-batch {self.batch_id} of query {self.query_id}"


NO_UNIT = Unit(None, None, None)


class StoredRecord(NamedTuple):
    """A record of the decision log, not decoded; an empty value means that it was removed."""

    offset: int
    value: bytes


class Phase(Enum):
    """The state of a unit.

    DECIDED: its transactions must be committed, in any event
    DONE: its transactions are committed
    VOID: the brokers had aborted all of its transactions; its replay writes everything
    PARTIAL: the brokers had aborted some of its transactions; its replay may write the rest
    UNKNOWN: the brokers no longer know the outcome of some of its transactions
    """

    DECIDED = "DECIDED"
    DONE = "DONE"
    VOID = "VOID"
    PARTIAL = "PARTIAL"
    UNKNOWN = "UNKNOWN"


@dataclass(frozen=True)
class Decision:
    """The one record of a prefix in the decision log: its owner, and its latest unit.

    transactions: to be committed (DECIDED), lost (PARTIAL, VOID) or unknown (UNKNOWN)
    committed: transactions known to be visible, also from earlier attempts at the same unit
    records: of the whole unit
    write: of a job with a write.id; written: the completed versions of each write.id
    rows: of the unit; None if no longer needed
    needs_confirmation: a job's driver died during the commit and another process completed it; the
        user must confirm that
    superseded: ids of earlier drivers, which must not come back
    is_query: a streaming query has the prefix, even if none of its micro-batches is decided yet
    may_begin_later: names, as of ``name_of``, whose first micro-batch may have another number than
        0, until it is decided
    former: the owner before a new query, whose ``unit`` this is until the new query decides; it may
        come back until then
    retired: checkpoints of queries that new queries have replaced
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
    may_begin_later: tuple[str, ...] = ()
    rows: RowSummary | None = None
    write: Write | None = None
    written: tuple[Written, ...] = ()
    former: Driver | None = None
    retired: tuple[str, ...] = ()

    @property
    def is_settled(self) -> bool:
        """True if there is nothing left to finish or to choose."""
        return self.phase in (Phase.DONE, Phase.VOID) and not self.needs_confirmation

    @property
    def owner_query_id(self) -> str | None:
        """Spark's id of the query that has the prefix; None if it is not known."""
        # Tasks know the id for certain, planning only from the checkpoint's folder.
        known = self.unit.query_id if self.former is None else None
        return known or self.owner.query_id

    def versions_of(self, write_id: str) -> Written | None:
        """Return the versions that are written under a name; None if there are none."""
        return next((w for w in self.written if w.write_id == write_id), None)

    def has(self, write: Write | None) -> bool:
        """Return True if ``write`` is done."""
        found = None if write is None else self.versions_of(write.write_id)
        return found is not None and write is not None and found.has(write.version)

    def knows_micro_batch(self, write: Write | None) -> bool:
        """Return True if the record has an earlier micro-batch.

        write: of a micro-batch that is a job, with a name
        """
        if write is None:
            return self.unit.batch_id is not None
        is_latest = self.write is not None and self.write.write_id == write.write_id
        return is_latest or self.versions_of(write.write_id) is not None

    def query_of(self, write_id: str) -> str | None:
        """Return the query whose micro-batches have this name; None if it is not known."""
        found = self.versions_of(write_id)
        if found is not None and found.query_id is not None:
            return found.query_id
        if self.write is None or self.write.write_id != write_id:
            return None
        return self.write.query_id

    def is_of(self, unit: Unit, write: Write | None) -> bool:
        """Return True if this is the record of ``unit``, or of an earlier run of the same write."""
        return self.unit == unit or (write is not None and write.is_same(self.write))

    def topic_of_earlier(self, write: Write) -> str | None:
        """Return the topic of the earlier run that makes ``write`` a repetition; None without one.

        That run is done, so that ``write`` is dropped, or PARTIAL, so that ``write`` completes it.
        """
        found = self.versions_of(write.write_id)
        if found is not None and found.has(write.version):
            return found.topic
        if self.phase is Phase.PARTIAL and self.write is not None and write.is_same(self.write):
            return self.write.topic
        return None

    def done(self) -> Decision:
        """Return the record with its unit complete."""
        written = self.written
        if self.write is not None:
            write_id, version, topic, _ = self.write
            before = self.versions_of(write_id) or Written(write_id, topic)
            before = before._replace(query_id=self.query_of(write_id))
            others = (w for w in written if w.write_id != write_id)
            written = (*others, before.adding(version, topic))
        return replace(self, phase=Phase.DONE, transactions=(), committed=(), written=written)

    def deciding(
        self,
        unit: Unit,
        transactions: Sequence[TaskTransaction],
        committed: tuple[TaskTransaction, ...],
        write: Write | None,
    ) -> Decision:
        """Return the record that decides to commit ``transactions`` of ``unit``.

        committed: transactions of the unit that are visible already
        """
        everything = (*transactions, *committed)
        return replace(
            self.without_former(),
            phase=Phase.DECIDED,
            unit=unit,
            records=sum(t.records for t in everything),
            transactions=tuple(transactions),
            committed=committed,
            rows=RowSummary.total(t.rows for t in everything),
            write=write,
            may_begin_later=self.later_without(write),
        )

    def accepting_later(self, write: Write | None) -> Decision:
        """Return the record in which the micro-batches of ``write`` may begin with any number."""
        name = name_of(write)
        if name in self.may_begin_later or self.knows_micro_batch(write):
            return self
        accepted = (*self.may_begin_later, name)[-_MAX_REMEMBERED:]
        return replace(self, may_begin_later=accepted)

    def later_without(self, write: Write | None) -> tuple[str, ...]:
        """Return ``may_begin_later`` after a unit of ``write``."""
        return tuple(name for name in self.may_begin_later if name != name_of(write))

    def without_former(self) -> Decision:
        """Return the record without the former query, which must not come back any more."""
        return self if self.former is None else replace(self.retiring(self.former), former=None)

    def retiring(self, driver: Driver) -> Decision:
        """Return the record in which the query of ``driver`` is replaced for good."""
        retired = (*self.retired, str(driver.checkpoint))[-_MAX_REMEMBERED:]
        return replace(self, retired=retired)

    def claimed_by(self, driver: Driver, is_query: bool) -> Decision:
        """Return the record with ``driver`` as its owner, which supersedes another driver."""
        superseded = self.superseded
        if self.owner.driver_id != driver.driver_id:
            superseded = (*superseded, self.owner.driver_id)[-_MAX_REMEMBERED:]
        # A job may come back to complete what it has begun, and not to a query's prefix.
        is_jobs = self.unit.job_id is not None and not self.is_settled
        return replace(
            self,
            owner=self.owner if driver.is_same(self.owner) else driver,
            superseded=superseded,
            is_query=is_query and not is_jobs,
        )

    def to_json(self) -> str:
        """Return one line of JSON, for the log and for operators."""
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
            "write": self.write,
            "written": self.written,
            "rows": None if self.rows is None else self.rows.text,
            "former": None if self.former is None else self.former._asdict(),
            "retired": self.retired,
        }
        return json.dumps(body, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | bytes) -> Decision:
        """Parse a record. Raises ValueError if no version of this sink has written it."""
        try:
            body: dict[str, Any] = bounded_json(text)
            if body["format"] != _FORMAT:
                raise ValueError(f"format {body['format']}: written by another version")
            write, rows, former = body["write"], body["rows"], body["former"]
            return cls(
                owner=Driver(**body["owner"]),
                phase=Phase(body["phase"]),
                unit=Unit(**body["unit"]),
                decided_ms=body["decided_ms"],
                records=body["records"],
                transactions=_tasks(body["transactions"]),
                committed=_tasks(body["committed"]),
                needs_confirmation=body["needs_confirmation"],
                superseded=tuple(body["superseded"]),
                is_query=body["is_query"],
                may_begin_later=tuple(body["may_begin_later"]),
                write=None if write is None else Write(*write),
                written=tuple(written_of(one) for one in body["written"]),
                rows=None if rows is None else RowSummary.of_task(rows),
                former=None if former is None else Driver(**former),
                retired=tuple(body["retired"]),
            )
        except (KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(f"not a decision: {error!r}") from error


def _tasks(found: Iterable[Any]) -> tuple[TaskTransaction, ...]:
    tasks = tuple(TaskTransaction(*one) for one in found)
    # Raises ValueError now, and not in the middle of a commit.
    RowSummary.total(task.rows for task in tasks)
    return tasks


def written_of(found: Any) -> Written:
    """Return the versions of one write.id in a record. Raises TypeError or ValueError."""
    write_id, topic, ranges, folded, query_id = found
    known = tuple((int(first), int(last)) for first, last in ranges)
    return Written(write_id, topic, known, int(folded), query_id)


@dataclass(frozen=True)
class TransactionPlan:
    """The result of planning for the tasks and, through them, for ``commit``.

    decision: the prefix's record when the token was issued; no other process can have changed it
        while the token is valid
    write: of a job with a write.id
    is_repeated: the write is done, and the tasks have nothing to write
    coordinator: of the driver's id when the token was issued, so that no task has to look it up
    planned_at_ms: by the monotonic clock, which the driver's processes share
    taken_from: the driver that owned the prefix until this plan
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
    planned_at_ms: int = 0
    taken_from: Driver | None = None


class FencedError(TransactionError):
    """Another driver works under the same ``transactional.id.prefix``. This driver must stop."""

    code = "TXN-015"


class PrefixInUseError(TransactionError):
    """The ``transactional.id.prefix`` belongs to another query."""

    code = "TXN-013"


class TransactionLostError(TransactionError):
    """Brokers have aborted transactions before they were committed. The replay repairs that."""

    code = "TXN-019"


class OutcomeError(TransactionError):
    """A decided batch is visible in part, and no replay can repair it: the user must choose."""


class MissingRecordError(TransactionError):
    """The decision log has no record of a prefix or query that is not new: the log may be lost."""

    code = "TXN-016"


class UnreadableRecordError(TransactionError):
    """The record of a prefix has another version's format, or is no decision."""

    code = "TXN-012"

    def __init__(self, message: str, stored: StoredRecord) -> None:
        self.stored = stored
        super().__init__(message)


class ReplayError(TransactionError):
    """A committed micro-batch comes again with other rows, which must not be lost."""

    code = "TXN-017"


_WORKER_CHARACTERS = 12
_DRIVER = "driver"


def driver_transactional_id(prefix: str) -> str:
    """Return the transactional id under which the driver writes decisions."""
    return f"{prefix}.{_DRIVER}"


def task_id_pattern(prefix: str) -> str:
    """Return a regular expression, for Java and Python, of exactly the tasks' ids of ``prefix``."""
    return rf"{_escape_regex(prefix)}\.[0-9a-f]{{{_WORKER_CHARACTERS}}}\.[0-9]+"


def is_task_id(prefix: str, transactional_id: str) -> bool:
    """Return True if a task under ``prefix`` uses this id, not its driver or another prefix."""
    return re.fullmatch(task_id_pattern(prefix), transactional_id) is not None


def _escape_regex(text: str) -> str:
    """Escape ``text`` as ``re.escape`` does, in a form that Java and Python understand."""
    return "".join(c if c.isalnum() or c in "_-" else f"\\{c}" for c in text)


class WorkerTransactionalIds:
    """The transactional ids of this Python worker process."""

    def __init__(self, worker: str | None = None) -> None:
        self._worker = worker or uuid.uuid4().hex[:_WORKER_CHARACTERS]
        self._plans: dict[str, tuple[int, int]] = {}
        self._next: dict[str, int] = {}
        self._discarded: set[str] = set()

    def next_id(self, prefix: str, token: DriverToken) -> str:
        """Return an id for one task of the plan with ``token``."""
        plan = (token.producer_id, token.producer_epoch)
        if self._plans.get(prefix) != plan:
            self._plans[prefix] = plan
            self._next[prefix] = 0
        while True:
            transactional_id = f"{prefix}.{self._worker}.{self._next[prefix]}"
            self._next[prefix] += 1
            if transactional_id not in self._discarded:
                return transactional_id

    def discard(self, transactional_id: str) -> None:
        """Never return this id again.

        A late request of a failed task may reach the coordinator, and would fence the next task
        with the id.
        """
        self._discarded.add(transactional_id)

    def renew(self) -> None:
        """Become another worker, as a forked child must."""
        self.__init__()  # type: ignore[misc]


TRANSACTIONAL_IDS = WorkerTransactionalIds()
os.register_at_fork(after_in_child=TRANSACTIONAL_IDS.renew)


_LOCAL_FOLDERS = "SPARK_LOCAL_DIRS"


def driver_environment() -> dict[str, str]:
    """Return the environment for ``current_driver`` if this process is itself the driver."""
    return {_LOCAL_FOLDERS: uuid.uuid4().hex}


def current_driver(
    environment: Mapping[str, str],
    started_ms: int,
    checkpoint: str | None,
    name: str | None,
    query_id: str | None = None,
) -> Driver:
    """Return the Spark driver that this Python process works for.

    Spark passes neither query id nor run id to planning. The folder of the block manager, which
    ends in a UUID, is common to all Python processes of one driver, and different for each driver.
    """
    folders = environment.get(_LOCAL_FOLDERS)
    secret = environment.get("PYTHON_WORKER_FACTORY_SECRET")
    seed = folders or secret or str(os.getppid())
    host = platform.node()
    driver_id = hashlib.sha256(f"{host}/{seed}".encode()).hexdigest()[:16]
    return Driver(driver_id, host, started_ms, checkpoint, name, query_id)
