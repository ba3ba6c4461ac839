"""Reads dead letters, and groups them.

A partition is read as a consumer with ``read_committed`` reads it.
Source: ``CompletedFetch.nextFetchedRecord``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from spark_kafka_sink.base.errors import (
    BrokerError,
    TopicError,
    advice_for,
    error_for_code,
    error_named,
)
from spark_kafka_sink.base.model import TopicPartition
from spark_kafka_sink.base.text import MOST_SHOWN
from spark_kafka_sink.client.admin import AdminClient
from spark_kafka_sink.columns import dead_letters as headers
from spark_kafka_sink.columns.dead_letters import CAUSES
from spark_kafka_sink.protocol.messages import inspection
from spark_kafka_sink.record.record_reader import ReadBatch, Record, read_batches
from spark_kafka_sink.transactions.log_partition import LogPartition, bytes_of

# --- the committed records of a partition --------------------------------------------------------


class CommittedPartition(LogPartition):
    """Reads up to the last stable offset, without records of aborted transactions."""

    isolation_level = inspection.READ_COMMITTED

    def records(self, first: int, end: int, timeout_ms: int) -> Iterator[Record]:
        """Yield the records from offset ``first`` to before ``end``.

        timeout_ms: time limit for each response of the leader

        Raises BrokerError if the leader does not reach ``end`` in time.
        """
        attempts, at = 0, first
        deadline_ms = self._admin.deadline_in(timeout_ms)
        while at < end:
            found = self._fetch(at, deadline_ms)
            before = at
            for batch in _committed(found):
                at = batch.last_offset + 1
                yield from (r for r in batch.records if before <= r.offset < end)
            if at > before:
                attempts, deadline_ms = 0, self._admin.deadline_in(timeout_ms)
            elif found.last_stable_offset >= end:
                return  # no record is left before the end
            elif not self._admin.pause(attempts, deadline_ms):
                where = f"{self._topic_partition}: readable to {found.last_stable_offset}"
                raise BrokerError(error_named("OFFSET_NOT_AVAILABLE"), f"{where}, not to {end}")
            else:
                attempts += 1


def _committed(found: inspection.PartitionData) -> Iterator[ReadBatch]:
    """Yield all batches; control batches and aborted ones without their records."""
    begun = sorted((a.first_offset, a.producer_id) for a in found.aborted_transactions or ())
    aborted: set[int] = set()
    for batch in read_batches(bytes_of(found.records)):
        while begun and begun[0][0] <= batch.last_offset:
            aborted.add(begun.pop(0)[1])
        is_aborted = batch.is_transactional and batch.producer_id in aborted
        if batch.marker is not None:
            aborted.discard(batch.producer_id)
        yield batch._replace(records=[]) if batch.is_control or is_aborted else batch


# --- dead letters --------------------------------------------------------------------------------

CAUSE_HEADER = headers.CAUSE
UNKNOWN_CAUSE = "unknown"
"""Cause of a record without the header, which may not be a dead letter of this sink."""
ALL_CAUSES = (*CAUSES, UNKNOWN_CAUSE)
_LONGEST = 250
"""One more than the longest topic name. Any client with write access chooses a record's headers."""
_CUT = (headers.VALUE_SIZE, headers.KEY_SIZE, headers.HEADERS_DROPPED)


class DeadLetter(NamedTuple):
    """One dead letter.

    ``told``: its context headers as text, by their names without the prefix
    """

    partition: int
    record: Record
    told: Mapping[str, str]

    @property
    def cause(self) -> str:
        return (self.text(headers.CAUSE) or UNKNOWN_CAUSE)[:_LONGEST]

    @property
    def topic(self) -> str | None:
        """Return the topic that the row was for; a longer name than a topic can have is cut."""
        found = self.text(headers.TOPIC)
        return None if found is None else found[:_LONGEST]

    @property
    def is_cut(self) -> bool:
        """Return True if a part of the row is missing."""
        return any(self.text(name) is not None for name in _CUT)

    @property
    def own_headers(self) -> list[tuple[str, bytes | None]]:
        """Return the headers of the row itself."""
        return [h for h in self.record.headers if not h[0].startswith(headers.PREFIX)]

    def text(self, name: str) -> str | None:
        """Return a context header, by its full name; None without it."""
        return self.told.get(name.removeprefix(headers.PREFIX))

    @classmethod
    def of(cls, partition: int, record: Record) -> DeadLetter:
        """Build a dead letter. If a context header repeats, the last one counts.

        Earlier ones are headers of the row itself.
        """
        told = {
            name.removeprefix(headers.PREFIX): (value or b"").decode(errors="replace")
            for name, value in record.headers
            if name.startswith(headers.PREFIX)
        }
        return cls(partition, record, told)


class LetterFilter(NamedTuple):
    """Filter of dead letters.

    causes: wanted causes; empty for all
    query_id: wanted query; None for any
    first_offsets: where to begin, by partition; other partitions begin at their first offset
    asks_for_unknown: records of an unknown cause are wanted only if ``causes`` has it
    """

    causes: Collection[str] = ()
    query_id: str | None = None
    first_offsets: Mapping[int, int] = {}
    asks_for_unknown: bool = False

    def skip_reason(self, letter: DeadLetter) -> str | None:
        """Return why this dead letter is not wanted; None if it is."""
        is_unknown = letter.cause == UNKNOWN_CAUSE
        if is_unknown and self.asks_for_unknown and UNKNOWN_CAUSE not in self.causes:
            return f"no {CAUSE_HEADER} header, so perhaps no dead letter; --cause unknown takes it"
        if self.causes and letter.cause not in self.causes:
            which = f"cause {letter.cause}" if letter.cause in ALL_CAUSES else "another cause"
            return f"of {which}, which --cause does not name"
        if self.query_id is not None and letter.text(headers.QUERY) != self.query_id:
            return "not of the query that --query-id names"
        return None


class Topic:
    """A topic of dead letters, up to its current end.

    ends: end offset of each partition

    Raises TopicError if the topic does not exist.
    """

    def __init__(self, admin: AdminClient, name: str, timeout_ms: int) -> None:
        self._timeout_ms = timeout_ms
        deadline_ms = admin.deadline_in(timeout_ms)
        (described,) = admin.metadata([name], False, deadline_ms).topics
        if described.error_code:
            error = error_for_code(described.error_code)
            raise TopicError(f"topic '{name}': {error}: {advice_for(error)}", error)
        numbers = sorted(p.partition_index for p in described.partitions)
        self._partitions = {n: CommittedPartition(admin, TopicPartition(name, n)) for n in numbers}
        self._firsts = {n: p.first_offset(deadline_ms) for n, p in self._partitions.items()}
        self.ends = {n: p.end_offset(deadline_ms) for n, p in self._partitions.items()}

    def beyond(self, first_offsets: Mapping[int, int]) -> str | None:
        """Return the first of ``first_offsets`` that the topic lacks; None if it lacks none."""
        for number, offset in first_offsets.items():
            if number not in self.ends:
                return f"partition {number}: it has {len(self.ends)}, numbered from 0"
            if offset > self.ends[number]:
                return f"{number}:{offset}: partition {number} ends at {self.ends[number]}"
        return None

    def letters(
        self, wanted: LetterFilter, left_out: Counter[str] | None = None
    ) -> Iterator[DeadLetter]:
        """Yield the wanted dead letters, partition by partition, each in order.

        left_out: counts the others, by reason

        Raises BrokerError.
        """
        for number, partition in self._partitions.items():
            first = max(self._firsts[number], wanted.first_offsets.get(number, 0))
            for record in partition.records(first, self.ends[number], self._timeout_ms):
                letter = DeadLetter.of(number, record)
                reason = wanted.skip_reason(letter)
                if reason is None:
                    yield letter
                elif left_out is not None:
                    left_out[reason] += 1


class Group(NamedTuple):
    """Dead letters of one cause for one topic. Times in ms since 1970."""

    cause: str
    topic: str | None
    letters: int
    cut: int
    first_ms: int
    last_ms: int
    example: str


def grouped(letters: Iterable[DeadLetter]) -> list[Group]:
    """Return the groups, the largest one first."""
    groups: dict[tuple[str, str | None], Group] = {}
    for letter in letters:
        key = (letter.cause, letter.topic)
        at_ms = letter.record.timestamp_ms
        known = groups.get(key)
        if known is None:
            example = (letter.text(headers.MESSAGE) or "")[:MOST_SHOWN]
            known = Group(*key, letters=0, cut=0, first_ms=at_ms, last_ms=at_ms, example=example)
        groups[key] = known._replace(
            letters=known.letters + 1,
            cut=known.cut + letter.is_cut,
            first_ms=min(known.first_ms, at_ms),
            last_ms=max(known.last_ms, at_ms),
        )
    return sorted(
        groups.values(), key=lambda group: (-group.letters, group.cause, group.topic or "")
    )
