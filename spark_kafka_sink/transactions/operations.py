"""Changes that operators make: finish a decided unit, abort transactions, release a prefix.

Each operation reads first, then asks for confirmation, then takes ``{prefix}.driver``. This stops
the owner of the prefix and settles a decision in progress. Then the operation reads again, and only
then changes anything. Every operation may be interrupted at any point and repeated.

A record that this version cannot read was written by another version, or by another program. Its
replacement keeps what can be recovered: the owner of the prefix, the unit, and the completed
writes.
"""

from __future__ import annotations

import platform
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import Enum
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

from spark_kafka_sink.base.clock import Clock
from spark_kafka_sink.base.errors import TransactionError
from spark_kafka_sink.base.text import bounded_json
from spark_kafka_sink.config.sink_keys import ExactlyOnceConfig
from spark_kafka_sink.transactions import fencing
from spark_kafka_sink.transactions.checkpoints import qualified, query_id_at
from spark_kafka_sink.transactions.client import TransactionClient
from spark_kafka_sink.transactions.commit_protocol import CommitProtocol
from spark_kafka_sink.transactions.decision_log import max_transaction_timeout_ms
from spark_kafka_sink.transactions.inspection import Inspection
from spark_kafka_sink.transactions.model import (
    NO_UNIT,
    Decision,
    Driver,
    DriverToken,
    Phase,
    StoredRecord,
    Unit,
    UnreadableRecordError,
    Write,
    Written,
    driver_transactional_id,
    is_task_id,
    name_of,
    written_of,
)
from spark_kafka_sink.transactions.ownership import OPERATOR

_MAX_SHOWN = 4_000

_Found = TypeVar("_Found")
_Other = TypeVar("_Other")


class UnreadableRecord(NamedTuple):
    """``stored`` and what can be recovered from it; the rest is as in a new record.

    version: its format; empty if it has none
    phase: the text of its phase; empty if it has none
    checkpoint, query_id: of the owner
    """

    stored: StoredRecord
    version: str
    phase: str
    unit: Unit
    records: int
    checkpoint: str | None
    query_id: str | None
    is_query: bool
    superseded: tuple[str, ...]
    write: Write | None
    written: tuple[Written, ...]
    former: Driver | None
    retired: tuple[str, ...]

    @classmethod
    def of(cls, stored: StoredRecord) -> UnreadableRecord:
        """Recover what is possible. Never raises, because ``stored`` may be anything."""
        body = _recover(lambda: bounded_json(stored.value), None)
        body = body if isinstance(body, dict) else {}
        unit = _recover(lambda: _unit(body["unit"]), NO_UNIT)
        checkpoint, query_id = _query_of(body, "owner")
        former = None
        if body.get("former") is not None:
            location, former_id = _query_of(body, "former")
            former = Driver("", "", 0, location, None, former_id)
        return cls(
            stored,
            str(body.get("format", "")),
            _recover(lambda: _text(body["phase"]), ""),
            unit,
            # 1 if unknown, because only the replay of a unit with records is dropped.
            _recover(lambda: _number(body["records"]), 1),
            checkpoint,
            query_id,
            bool(body.get("is_query")) or checkpoint is not None or unit.query_id is not None,
            _recover(lambda: tuple(_text(one) for one in body["superseded"]), ()),
            _recover(lambda: _write(body["write"]), None),
            _recover(lambda: tuple(written_of(one) for one in body["written"]), ()),
            former,
            _recover(lambda: tuple(_text(one) for one in body["retired"]), ()),
        )

    def replacement(self, owner: Driver, decided_ms: int, is_written: bool) -> Decision:
        """Return a readable record.

        is_written: the unit counts as written
        """
        claimed = Decision(
            owner,
            superseded=self.superseded,
            is_query=self.is_query,
            may_begin_later=(name_of(self.write),),
            written=self.written,
            former=self.former,
            retired=self.retired,
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
        shown = text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"
        unit = "a unit that cannot be made out" if self.unit == NO_UNIT else str(self.unit)
        return (
            f"the record has offset {self.stored.offset}, {len(self.stored.value)} bytes, format "
            f"{self.version or 'unknown'}, phase {self.phase or 'unknown'}, and is of {unit}:\n\n"
            f"{shown}\n\nIf a newer version of pykafka-sink wrote it, use that one, which can read "
            "it. Otherwise a choice replaces it"
        )

    def consequence(self, is_written: bool) -> str:
        """Describe the effect of the choice."""
        unit = "whatever it was of" if self.unit == NO_UNIT else str(self.unit)
        if not is_written:
            return (
                f"{unit} counts as not written: what comes next is written, so that rows of it "
                "which are visible become duplicates if they come again."
            )
        return (
            f"{unit} counts as written: a replay of it is dropped, and rows of it that are not "
            "visible stay missing, as do those of transactions that are open now."
        )


def _recover(find: Callable[[], _Found], other: _Other) -> _Found | _Other:
    try:
        return find()
    except (ValueError, TypeError, LookupError, RecursionError):
        return other


def _query_of(body: dict[str, Any], driver: str) -> tuple[str | None, str | None]:
    """Return checkpoint and query id of a driver in a record, as far as they are known."""
    checkpoint = _recover(lambda: _text(body[driver]["checkpoint"]), None)
    return checkpoint, _recover(lambda: _text(body[driver]["query_id"]), None)


def _unit(found: Any) -> Unit:
    unit = Unit(**found)
    if unit.job_id is not None:
        return Unit(None, None, _text(unit.job_id))
    return Unit(_text(unit.query_id), _number(unit.batch_id), None)


def _write(found: Any) -> Write:
    write_id, version, topic, query_id = found
    known = None if query_id is None else _text(query_id)
    return Write(_text(write_id), _number(version), _text(topic), known)


def _text(found: Any) -> str:
    if not isinstance(found, str):
        raise TypeError(f"{found!r} is no text")
    return found


def _number(found: Any) -> int:
    if not isinstance(found, int) or isinstance(found, bool) or found < 0:
        raise TypeError(f"{found!r} is no number")
    return found


# For ids that are taken to abort what is open under them, or to write one record.
_TIMEOUT_MS = 60_000
_QUERY_NAME = "pykafka-sink transactions"

Confirm = Callable[[str], None]
"""Receives a description of the change; raises RefusedError unless the operator agrees."""


class RefusedError(TransactionError):
    """The operation was not done: the state forbids it, or the operator did not confirm it."""


def _record_changed(state: str) -> RefusedError:
    return RefusedError(
        "the record has changed since it was read, because another driver or operator works under "
        f"this prefix: {state}. That process was stopped, and nothing else was done. Look again",
        code="TXN-034",
    )


def _of_two_queries(former: Driver, owner: Driver, prefix: str) -> RefusedError:
    return RefusedError(
        f"'{prefix}' belongs to the query of checkpoint {former.checkpoint}; that of checkpoint "
        f"{owner.checkpoint} was accepted in its place, and has not committed its micro-batch 0 "
        "yet. Nothing tells which of the two has moved: start the one that is to go on where the "
        "record has it, and rebind after its first micro-batch. If that is impossible: "
        f"pykafka-sink transactions release --prefix {prefix}",
        code="TXN-033",
    )


class Choice(Enum):
    """The user's choice for a unit that is visible in part, or to an unknown extent."""

    AS_WRITTEN = "as-written"
    AS_NOT_WRITTEN = "as-not-written"


class Result(NamedTuple):
    """The result of an operation.

    message: what was done
    decision: the record now; None if there is none
    aborted: transactional ids
    needs_choice: the unit is finished, and the user must settle it
    """

    message: str
    decision: Decision | None
    aborted: tuple[str, ...] = ()
    needs_choice: bool = False


class Operations:
    """Operations on one prefix. Errors: RefusedError, and those of CommitProtocol."""

    def __init__(
        self,
        client: TransactionClient,
        log_topic: str,
        prefix: str,
        clock: Clock,
        patience_ms: int,
    ) -> None:
        self._client = client
        self._log_topic = log_topic
        self._prefix = prefix
        self._clock = clock
        self._patience_ms = patience_ms
        self._inspection = Inspection(client, log_topic, patience_ms)

    @cached_property
    def _protocol(self) -> CommitProtocol:
        """The commit protocol, with a timeout that the brokers allow."""
        longest_ms = max_transaction_timeout_ms(self._client.admin, self._deadline())
        timeout_ms = _TIMEOUT_MS if longest_ms is None else min(_TIMEOUT_MS, longest_ms)
        config = ExactlyOnceConfig(self._prefix, timeout_ms, self._log_topic, 1)
        return CommitProtocol(self._client, config, self._clock, self._patience_ms)

    # --- resolve -------------------------------------------------------------------------------

    def resolve(self, choice: Choice | None, confirm: Confirm) -> Result:
        """Finish a DECIDED unit; settle a PARTIAL or UNKNOWN unit, or a job's, as ``choice`` says.

        For a micro-batch that is DONE, ``choice`` decides about a replay with other rows.

        Raises RefusedError if a choice is needed and missing, or given and impossible.
        """
        try:
            decision = self._read_decision()
        except UnreadableRecordError as error:
            return self._replace(UnreadableRecord.of(error.stored), choice, confirm)
        if decision is None:
            return Result(f"'{self._prefix}' has no record: there is nothing to resolve", None)
        if decision.is_settled and (choice is None or not _is_replay_compared(decision)):
            message = f"there is nothing to resolve: {state_of(decision, self._prefix)}"
            if _is_replay_compared(decision):
                message += f"\n\n{_options(decision)}"
            return Result(message, decision)
        if decision.phase is not Phase.DECIDED:
            return self._settle_as(decision, choice, confirm)
        if choice is Choice.AS_NOT_WRITTEN:
            raise RefusedError(
                f"{state_of(decision, self._prefix)}. Once decided, it cannot be taken back: "
                "resolve without --as-not-written finishes it",
                code="TXN-033",
            )
        confirm(
            f"{decision.unit} was decided: {len(decision.transactions)} transaction(s) will be "
            f"committed, {decision.records} records visible. {self._stop_warning()}"
        )
        claimed, token = self._claim(decision)
        return self._finish(claimed, token, choice)

    def _finish(self, decision: Decision, token: DriverToken, choice: Choice | None) -> Result:
        concluded, token = self._protocol.resolve(decision, token)
        is_complete = concluded.phase is Phase.DONE
        if is_complete and choice is Choice.AS_WRITTEN:
            concluded = replace(concluded, needs_confirmation=False)
            token = self._write_decision(concluded, token)
        aborted = self._protocol.abort_open_transactions(token, self._deadline())
        message = f"finished: {state_of(concluded, self._prefix)}"
        if concluded.phase in (Phase.PARTIAL, Phase.UNKNOWN):
            message += f"\n\n{_options(concluded)}"
        return Result(message, concluded, aborted, not concluded.is_settled)

    def _settle_as(self, decision: Decision, choice: Choice | None, confirm: Confirm) -> Result:
        known = state_of(decision, self._prefix)
        if choice is None:
            raise RefusedError(f"{known}\n\n{_options(decision)}", code="TXN-032")
        confirm(f"{known}\n\n{_consequence(decision, choice)} {self._stop_warning()}")
        claimed, token = self._claim(decision)
        settled = claimed.done()
        if choice is Choice.AS_NOT_WRITTEN:
            settled = replace(settled, phase=Phase.VOID, written=claimed.written)
        # The operator has decided about any replay, so its rows are not compared.
        settled = replace(settled, needs_confirmation=False, rows=None)
        token = self._write_decision(settled, token)
        aborted = self._protocol.abort_open_transactions(token, self._deadline())
        return Result(f"settled: {_consequence(decision, choice)}", settled, aborted)

    def _replace(self, record: UnreadableRecord, choice: Choice | None, confirm: Confirm) -> Result:
        """Replace an unreadable record by a readable one, as ``choice`` says."""
        if choice is None:
            options = "\n".join(
                f"  --{one.value}: {record.consequence(one is Choice.AS_WRITTEN)}" for one in Choice
            )
            raise RefusedError(f"{record}:\n{options}", code="TXN-032")
        is_written = choice is Choice.AS_WRITTEN
        if is_written and record.unit == NO_UNIT:
            raise RefusedError(
                f"{record}.\n\n--as-written needs to know which micro-batch or job it is of, to "
                "recognise a replay: only --as-not-written can replace it",
                code="TXN-033",
            )
        names = self._open_ids(None)
        consequence = record.consequence(is_written)
        confirm(
            f"{record}.\n\n{consequence} {len(names)} open transaction(s) will be aborted. "
            f"{self._stop_warning()}"
        )
        found, token = self._protocol.fence_and_read_stored()
        if found != record.stored:
            raise _record_changed("it has another offset or value")
        owner = self._operator(record.checkpoint, record.query_id)
        decision = record.replacement(owner, self._clock.timestamp_ms(), is_written)
        token = self._write_decision(decision, token)
        aborted = self._protocol.abort_open_transactions(token, self._deadline())
        return Result(f"replaced: {consequence}", decision, aborted)

    def rebind(self, checkpoint: str, confirm: Confirm) -> Result:
        """Note that the same checkpoint has another location or spelling; the record stays.

        Raises RefusedError without a record, for a job's prefix, which has no checkpoint, and while
        the record is of two queries.
        """
        decision = self._read_decision()
        location = qualified(checkpoint)
        if decision is None or not (decision.is_query or decision.unit.query_id):
            raise RefusedError(
                f"'{self._prefix}' has no record of a query: nothing to rebind", code="TXN-033"
            )
        before = decision.owner.checkpoint
        if decision.former is not None:
            raise _of_two_queries(decision.former, decision.owner, self._prefix)
        if before is not None and qualified(before) == location:
            return Result(f"'{self._prefix}' belongs to checkpoint {location} already", decision)
        query_id, found = decision.owner_query_id, query_id_at(location)
        if None not in (query_id, found) and query_id != found:
            raise RefusedError(
                f"'{self._prefix}' belongs to query {query_id}, and checkpoint {location} to query "
                f"{found}: it would be refused. If query {query_id} is gone for good: pykafka-sink "
                f"transactions release --prefix {self._prefix}",
                code="TXN-033",
            )
        confirm(
            f"'{self._prefix}' will belong to checkpoint {location} instead of {before}. It must "
            "be the same checkpoint, with all that is in it: an empty one begins anew, and another "
            f"one is another query. {self._stop_warning()}"
        )
        claimed, _ = self._claim(decision, str(location))
        return Result(f"'{self._prefix}' belongs to checkpoint {location}", claimed)

    def _claim(self, seen: Decision, checkpoint: str | None = None) -> tuple[Decision, DriverToken]:
        """Become the owner of the record that was ``seen``, so that its driver aborts nothing."""
        found, token = self._protocol.fence_and_read()
        if found != seen:
            state = "it is gone" if found is None else state_of(found, self._prefix)
            raise _record_changed(state)
        # The checkpoint stays, so that another query's claim to the prefix is still detected. The
        # owner is not superseded, because the repaired query may restart in the same process.
        owner = self._operator(checkpoint or seen.owner.checkpoint, seen.owner_query_id)
        claimed = replace(seen, owner=owner)
        return claimed, self._write_decision(claimed, token)

    def _operator(self, checkpoint: str | None, query_id: str | None = None) -> Driver:
        driver_id = f"{OPERATOR}{uuid.uuid4().hex[:12]}"
        now_ms = self._clock.timestamp_ms()
        return Driver(driver_id, platform.node(), now_ms, checkpoint, _QUERY_NAME, query_id)

    # --- abort and release ---------------------------------------------------------------------

    def abort(self, transactional_id: str | None, confirm: Confirm) -> Result:
        """Fence the open transactions of the prefix's tasks, or one of these.

        Raises RefusedError while a unit is DECIDED, and for an id that is no task's of this prefix.
        """
        if transactional_id is not None and not is_task_id(self._prefix, transactional_id):
            raise RefusedError(
                f"'{transactional_id}' is not the id of a task under '{self._prefix}': those are "
                f"{self._prefix}.WORKER.NUMBER, as list shows them",
                code="TXN-033",
            )
        decision = self._read_decision()
        self._reject_decided(decision)
        if not (names := self._open_ids(transactional_id)):
            which = f"'{self._prefix}'" if transactional_id is None else f"'{transactional_id}'"
            return Result(f"nothing is open under {which}", decision)
        confirm(
            f"{len(names)} transaction(s) will be aborted, what they have written never becomes "
            f"visible: {_abbreviate(names)}. {self._stop_warning()}"
        )
        decision, token = self._protocol.fence_and_read()
        self._reject_decided(decision)
        aborted = self._protocol.abort_open_transactions(token, self._deadline(), transactional_id)
        return Result(f"{len(aborted)} transaction(s) aborted", decision, aborted)

    def release(self, confirm: Confirm) -> Result:
        """Remove the prefix's record and abort what is open, as if the prefix had never been used.

        Raises RefusedError while there is something to resolve.
        """
        decision = self._read_decision()
        self._reject_unsettled(decision)
        names = self._open_ids(None)
        if decision is None and not names and not self._is_record_missing():
            return Result(
                f"nothing is known of '{self._prefix}': there is nothing to release", None
            )
        what = f"'{self._prefix}', which has no record, will be as if it had never been used"
        if decision is not None:
            known = state_of(decision, self._prefix)
            what = f"the record of '{self._prefix}' will be removed ({known})"
        confirm(
            f"{what}, and {len(names)} open transaction(s) aborted. If the query or job comes back "
            "with its checkpoint, it may write again what it has written before. "
            f"{self._stop_warning()}"
        )
        decision, token = self._protocol.fence_and_read()
        self._reject_unsettled(decision)
        aborted = self._protocol.abort_open_transactions(token, self._deadline())
        self._write_decision(
            None, token
        )  # also without a record, because the next start must not miss one
        return Result(f"'{self._prefix}' is released", None, aborted)

    def _is_record_missing(self) -> bool:
        """Return True if the brokers know a prefix that the log has never known.

        A driver's start is rejected then.
        """
        driver_id, deadline_ms = driver_transactional_id(self._prefix), self._deadline()
        state = self._client.describe_when_complete(driver_id, deadline_ms)
        return state is not None and self._protocol.log.read_mark(deadline_ms) is None

    def _reject_decided(self, decision: Decision | None) -> None:
        if decision is not None and decision.phase is Phase.DECIDED:
            raise RefusedError(
                f"{state_of(decision, self._prefix)}. To abort a part of it would lose records: "
                f"pykafka-sink transactions resolve --prefix {self._prefix} finishes it",
                code="TXN-033",
            )

    def _reject_unsettled(self, decision: Decision | None) -> None:
        if decision is not None and not decision.is_settled:
            raise RefusedError(
                f"{state_of(decision, self._prefix)}\n\nFirst: pykafka-sink transactions resolve "
                f"--prefix {self._prefix}",
                code="TXN-033",
            )

    # --- steps ---------------------------------------------------------------------------------

    def _read_decision(self) -> Decision | None:
        self._inspection.check_log()
        # A decision whose marker is not written yet would be invisible.
        self._client.describe_when_complete(driver_transactional_id(self._prefix), self._deadline())
        return self._protocol.log.read(self._deadline())

    def _write_decision(self, decision: Decision | None, token: DriverToken) -> DriverToken:
        return self._protocol.log.write(decision, token, self._deadline())

    def _open_ids(self, only: str | None) -> list[str]:
        listed = self._client.open_task_transactions(self._prefix, self._deadline())
        return sorted(t.transactional_id for t in listed if only in (None, t.transactional_id))

    def _stop_warning(self) -> str:
        return (
            f"A query or job that is running under transactional.id.prefix '{self._prefix}' stops "
            "with an error."
        )

    def _deadline(self) -> int:
        return self._client.admin.deadline_in(self._patience_ms)


def state_of(decision: Decision, prefix: str) -> str:
    """Describe the state of a record's unit."""
    if decision.phase is Phase.DECIDED:
        return (
            f"{decision.unit} is decided and not finished: its {decision.records} records become "
            "visible when its query or job is started again, or by pykafka-sink transactions "
            f"resolve --prefix {prefix}"
        )
    if decision.phase is Phase.VOID:
        return f"{decision.unit} is void: a replay of it writes everything"
    if not decision.is_settled:
        return fencing.explain(decision, prefix).strip()
    if decision.decided_ms == 0:
        return "nothing was decided under this prefix yet"
    done = f"{decision.unit} is done, {decision.records} records"
    if decision.unit.batch_id is not None and decision.records > 0 and decision.rows is None:
        done += "; a replay of it is dropped, whatever rows it has"
    return done


def _is_replay_compared(decision: Decision) -> bool:
    """Return True if a replay of the unit would be compared, and perhaps rejected."""
    is_done = decision.phase is Phase.DONE and decision.unit.batch_id is not None
    return is_done and decision.records > 0 and decision.rows is not None


def _options(decision: Decision) -> str:
    first = "Choose one:"
    if decision.is_settled:
        first = "If it has come again with other rows, and was refused, choose one:"
    elif decision.phase is Phase.PARTIAL and decision.unit.job_id is None:
        first = "Start the query again, which fills in the rest; if it cannot, choose one:"
    elif decision.phase is Phase.PARTIAL and decision.write is not None:
        first = f"Run {decision.write} again, which fills in the rest; if it cannot, choose one:"
    lines = [f"  --{choice.value}: {_consequence(decision, choice)}" for choice in Choice]
    return "\n".join([first, *lines])


def _consequence(decision: Decision, choice: Choice) -> str:
    """Describe the effect of a choice on a unit that is not settled."""
    if decision.is_settled:
        return _consequence_for_replay(decision, choice)
    is_job = decision.unit.job_id is not None
    rest = sum(t.records for t in decision.transactions)
    if choice is Choice.AS_NOT_WRITTEN:
        again = "the next run of the job" if is_job else "a replay of it"
        return (
            f"{decision.unit} counts as not written: {again} writes everything again, so the "
            f"{decision.records - rest} records that are known to be visible become duplicates."
        )
    text = f"{decision.unit} counts as written"
    if decision.phase is Phase.PARTIAL:
        text += f": the {rest} records that were lost stay missing"
    elif rest:
        text += f": of {rest} records, those that are not visible stay missing"
    return f"{text}." if is_job else f"{text}. A replay of it is dropped."


def _consequence_for_replay(decision: Decision, choice: Choice) -> str:
    """Describe the effect of a choice on a micro-batch that is done."""
    if choice is Choice.AS_WRITTEN:
        return (
            f"{decision.unit} counts as written, with its {decision.records} records: a replay of "
            "it is dropped, whatever rows it has."
        )
    return (
        f"{decision.unit} counts as not written: a replay of it writes all its rows, so those of "
        f"the {decision.records} visible records that come again become duplicates."
    )


def _abbreviate(names: Sequence[str]) -> str:
    text = ", ".join(names[:5])
    return f"{text}, … ({len(names)} in all)" if len(names) > 5 else text
