"""Transactions, tokens, decisions and plans: what tasks tell the driver, and what it writes down.

A task tells its rows as text, ``RECORDS-BYTES-w1.CONTENTS``: how many, how many bytes they have,
and in 16 hexadecimal digits the sum of their hashes, see ``record/kernels/digest.py``. ``w1`` names
this way to hash; contents that were hashed in another way, by earlier versions, are not compared.

Of transactional ids, ``{prefix}.driver`` belongs to the driver, ``{prefix}.{worker}.{index}`` to
one Python worker process for one task at a time. A worker takes another index for each task of the
same plan, whose earlier transactions wait for the driver; a new plan finds them all ended, and the
ids free. So attempts, speculation and other numbers of partitions never share an id, and ids stay
few.
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


def time_of(timestamp_ms: int) -> str:
    """``2026-03-01T12:00:00Z``; a dash for none."""
    if timestamp_ms <= 0:
        return "-"
    moment = datetime.fromtimestamp(timestamp_ms // 1000, tz=timezone.utc)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def duration_of(duration_ms: int) -> str:
    """The two largest units: ``3 min 20 s``. Clocks that differ do not make it negative."""
    seconds = max(0, duration_ms) // 1000
    units = ((seconds // 86400, "d"), (seconds // 3600 % 24, "h"), (seconds // 60 % 60, "min"))
    told = [*units, (seconds % 60, "s")]
    while len(told) > 1 and told[0][0] == 0:
        told.pop(0)
    return " ".join(f"{n} {unit}" for at, (n, unit) in enumerate(told[:2]) if n or at == 0)


_SCHEME = "w1."
_MODULUS = 2**64


class Rows(NamedTuple):
    """The rows of a task or of a unit, in whatever order and of whatever tasks.

    data_bytes: of keys, values, headers and the topic column
    digest: ``w1.CONTENTS``; something else where the contents are not known
    """

    records: int
    data_bytes: int
    digest: str

    @classmethod
    def of_contents(cls, records: int, data_bytes: int, contents: int) -> Rows:
        """contents: the sum of the rows' hashes, modulo 2**64."""
        return cls(records, data_bytes, f"{_SCHEME}{contents:016x}")

    @classmethod
    def of_task(cls, records: int, text: str) -> Rows:
        """From what a task has told of its ``records`` rows; earlier versions told it otherwise."""
        parts = text.split("-")
        is_known = len(parts) > 1 and parts[1].isdecimal()
        return cls(records, int(parts[1]) if is_known else 0, parts[-1])

    @classmethod
    def total(cls, tasks: Iterable[Rows]) -> Rows:
        """All rows of these tasks."""
        rows = list(tasks)
        records, data_bytes = sum(r.records for r in rows), sum(r.data_bytes for r in rows)
        if not all(r.has_contents for r in rows):
            return cls(records, data_bytes, "")
        contents = sum(int(r.digest.removeprefix(_SCHEME), 16) for r in rows)
        return cls.of_contents(records, data_bytes, contents % _MODULUS)

    @property
    def has_contents(self) -> bool:
        """Whether the contents can be compared."""
        return self.digest.startswith(_SCHEME)

    @property
    def text(self) -> str:
        """What a task tells of its rows."""
        return f"{self.records}-{self.data_bytes}-{self.digest}"

    def is_comparable(self, other: Rows) -> bool:
        """Whether contents of both are known, so that more than their size can be compared."""
        return self.has_contents and other.has_contents

    def may_be(self, other: Rows) -> bool:
        """Whether these are the same rows, as far as it is known."""
        if self.is_comparable(other):
            return self == other
        return (self.records, self.data_bytes) == (other.records, other.data_bytes)

    def __str__(self) -> str:
        return f"{self.records} records of {self.data_bytes} bytes"


_FORMAT = 1
_MOST_SUPERSEDED = 64
TOPICS_OF_ROWS = ""
"""In place of a topic's name: a column of the rows has it."""


class TaskTransaction(NamedTuple):
    """A transaction that a task has written and flushed, and nobody has ended.

    transaction_version: the finalized feature when it began; decides the EndTxn version
    partition_id: of Spark; digest: of its rows, as in :class:`Rows`
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


class FencedError(TransactionError):
    """Another driver works under the same ``transactional.id.prefix``. This one must stop."""


class PrefixInUseError(TransactionError):
    """The ``transactional.id.prefix`` belongs to another query."""


class TransactionLostError(TransactionError):
    """Brokers have aborted transactions before they were committed. The replay repairs that."""


class OutcomeError(TransactionError):
    """A decided batch is visible in part, and no replay can repair it: the user must choose."""


class MissingRecordError(TransactionError):
    """The decision log has no record of a prefix or query that is not new: it may be lost."""


class UnreadableRecordError(TransactionError):
    """The record of a prefix is of another version, or of something else."""

    def __init__(self, message: str, stored: StoredRecord) -> None:
        self.stored = stored
        super().__init__(message)


class ReplayError(TransactionError):
    """A micro-batch that is committed comes again with other rows, which must not be lost."""


_WORKER_CHARACTERS = 12
_DRIVER = "driver"


def driver_transactional_id(prefix: str) -> str:
    """Under which decisions are written."""
    return f"{prefix}.{_DRIVER}"


def task_id_pattern(prefix: str) -> str:
    """A regular expression, for Java and Python, of exactly the tasks' ids of ``prefix``."""
    return rf"{_quoted(prefix)}\.[0-9a-f]{{{_WORKER_CHARACTERS}}}\.[0-9]+"


def is_task_id(prefix: str, transactional_id: str) -> bool:
    """Whether a task under ``prefix`` uses this id; false for the driver's and other prefixes'."""
    return re.fullmatch(task_id_pattern(prefix), transactional_id) is not None


def _quoted(text: str) -> str:
    """``re.escape`` in what both dialects understand."""
    return "".join(c if c.isalnum() or c in "_-" else f"\\{c}" for c in text)


class WorkerTransactionalIds:
    """The transactional ids of this Python worker process."""

    def __init__(self, worker: str | None = None) -> None:
        self._worker = worker or uuid.uuid4().hex[:_WORKER_CHARACTERS]
        self._plans: dict[str, tuple[int, int]] = {}
        self._next: dict[str, int] = {}
        self._retired: set[str] = set()

    def take(self, prefix: str, token: DriverToken) -> str:
        """An id for one task of the plan that ``token`` stands for."""
        plan = (token.producer_id, token.producer_epoch)
        if self._plans.get(prefix) != plan:
            self._plans[prefix] = plan
            self._next[prefix] = 0
        while True:
            transactional_id = f"{prefix}.{self._worker}.{self._next[prefix]}"
            self._next[prefix] += 1
            if transactional_id not in self._retired:
                return transactional_id

    def retire(self, transactional_id: str) -> None:
        """Never take this id again: a request of a task that failed may reach the coordinator
        late, and would fence whoever has the id then.
        """
        self._retired.add(transactional_id)

    def renew(self) -> None:
        """Become another worker: what a forked child must do."""
        self.__init__()  # type: ignore[misc]


TRANSACTIONAL_IDS = WorkerTransactionalIds()
os.register_at_fork(after_in_child=TRANSACTIONAL_IDS.renew)


_LOCAL_FOLDERS = "SPARK_LOCAL_DIRS"


def own_environment() -> dict[str, str]:
    """What ``current_driver`` needs to know of a driver that is this process itself."""
    return {_LOCAL_FOLDERS: uuid.uuid4().hex}


def current_driver(
    environment: Mapping[str, str], started_ms: int, checkpoint: str | None, name: str | None
) -> Driver:
    """The Spark driver that this Python process works for.

    Spark gives planning neither query id nor run id. What all Python processes of one driver, and
    of no other, have in common is the folder of its block manager, which ends in a UUID.
    """
    folders = environment.get(_LOCAL_FOLDERS)
    secret = environment.get("PYTHON_WORKER_FACTORY_SECRET")
    seed = folders or secret or str(os.getppid())
    host = platform.node()
    driver_id = hashlib.sha256(f"{host}/{seed}".encode()).hexdigest()[:16]
    return Driver(driver_id, host, started_ms, checkpoint, name)
