"""Reads dead letters, groups them, and replays corrected ones to topics that the operator names.

A partition is read as a consumer with ``read_committed`` reads it. The operator decides that rows
are corrected: a limit was raised, partitions were added, or a function of the operator corrects the
rows. A record of the topic that is read has no authority of its own, because any client with write
access chooses its headers.

Source: ``CompletedFetch.nextFetchedRecord``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from hashlib import sha256
from itertools import islice
from typing import Any, NamedTuple

from spark_kafka_sink.base.entry_points import Hook, HookError, run
from spark_kafka_sink.base.errors import (
    BrokerError,
    TopicError,
    advice_for,
    broker_code,
    error_for_code,
    error_named,
)
from spark_kafka_sink.base.model import ColumnPositions, TopicPartition
from spark_kafka_sink.base.text import MOST_SHOWN, printable
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.config.sink_keys import SINK_OPTIONS
from spark_kafka_sink.network.admin import AdminClient, configs_or_reason
from spark_kafka_sink.producer.producer import ThreadedProducer
from spark_kafka_sink.protocol.messages import inspection
from spark_kafka_sink.protocol.messages.topics import TOPIC_RESOURCE
from spark_kafka_sink.record import dead_letters as headers
from spark_kafka_sink.record.dead_letters import (
    CAUSES,
    NOT_ENCODABLE,
    Row,
    changed_rows,
    is_legal,
    row_batch,
    rows_of,
)
from spark_kafka_sink.record.record_batch import (
    ReadBatch,
    Record,
    RecordLimitError,
    read_batches,
)
from spark_kafka_sink.transactions.decision_log import LogPartition, bytes_of, is_decision_log

# --- the committed records of a partition --------------------------------------------------------


class CommittedPartition(LogPartition):
    """Reads up to the last stable offset, without records of aborted transactions."""

    isolation_level = inspection.READ_COMMITTED

    def offset_since(self, timestamp_ms: int, deadline_ms: int) -> int | None:
        """Return the offset of the first record of at least this timestamp; None without any."""
        offset = self._offset(timestamp_ms, deadline_ms)
        return None if offset < 0 else offset

    def records(
        self, first: int, end: int, timeout_ms: int, refused: Callable[[RecordLimitError], None]
    ) -> Iterator[Record]:
        """Yield the records from offset ``first`` to before ``end``.

        timeout_ms: time limit for each response of the leader
        refused: called for a record that is beyond a limit and left out

        Raises BrokerError if the leader does not reach ``end`` in time.
        """
        attempts, at = 0, first
        deadline_ms = self._admin.deadline_in(timeout_ms)
        while at < end:
            found = self._fetch(at, deadline_ms)
            before = at
            for batch, has_records in _committed(found):
                at = batch.last_offset + 1
                if has_records and at > before:
                    found_records = batch.records(refused)
                    yield from (r for r in found_records if before <= r.offset < end)
            if at > before:
                attempts, deadline_ms = 0, self._admin.deadline_in(timeout_ms)
            elif found.last_stable_offset >= end:
                return  # no record is left before the end
            elif not self._admin.pause(attempts, deadline_ms):
                where = f"{self._topic_partition}: readable to {found.last_stable_offset}"
                raise BrokerError(error_named("OFFSET_NOT_AVAILABLE"), f"{where}, not to {end}")
            else:
                attempts += 1


def _committed(found: inspection.PartitionData) -> Iterator[tuple[ReadBatch, bool]]:
    """Yield all batches, each with False for control batches and aborted ones."""
    begun = sorted((a.first_offset, a.producer_id) for a in found.aborted_transactions or ())
    aborted: set[int] = set()
    for batch in read_batches(bytes_of(found.records)):
        while begun and begun[0][0] <= batch.last_offset:
            aborted.add(begun.pop(0)[1])
        is_aborted = batch.is_transactional and batch.producer_id in aborted
        if batch.marker is not None:
            aborted.discard(batch.producer_id)
        yield batch, not (batch.is_control or is_aborted)


# --- dead letters --------------------------------------------------------------------------------

CAUSE_HEADER = headers.CAUSE
UNKNOWN_CAUSE = "unknown"
"""Cause of a record without the header, which may not be a dead letter of this sink."""
ALL_CAUSES = (*CAUSES, UNKNOWN_CAUSE)
UNREADABLE = "too large to read; several of one batch may count as one"
OTHER_CAUSE = "other"
"""Cause of the group of all records whose cause is none of ALL_CAUSES."""
_LONGEST = 250
"""One more than the longest topic name. Any client with write access chooses a record's headers."""
_CUT = (headers.VALUE_SIZE, headers.KEY_SIZE, headers.HEADERS_DROPPED)


class DeadLetter(NamedTuple):
    """One dead letter.

    ``context``: its context headers as text, by their names without the prefix
    """

    partition: int
    record: Record
    context: Mapping[str, str]

    @property
    def position(self) -> tuple[int, int]:
        """Return partition and offset, the order in which dead letters are read."""
        return self.partition, self.record.offset

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
        return self.context.get(name.removeprefix(headers.PREFIX))

    @classmethod
    def of(cls, partition: int, record: Record) -> DeadLetter:
        """Build a dead letter. If a context header repeats, the last one counts.

        Earlier ones are headers of the row itself.
        """
        context = {
            name.removeprefix(headers.PREFIX): (value or b"").decode(errors="replace")
            for name, value in record.headers
            if name.startswith(headers.PREFIX)
        }
        return cls(partition, record, context)


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
    skips_unreadable: True to leave out records that are too large to read

    Raises TopicError if the topic does not exist.
    """

    def __init__(
        self, admin: AdminClient, name: str, timeout_ms: int, skips_unreadable: bool = False
    ) -> None:
        self._admin = admin
        self._name = name
        self._skips_unreadable = skips_unreadable
        self._timeout_ms = timeout_ms
        deadline_ms = admin.deadline_in(timeout_ms)
        (described,) = admin.metadata([name], False, deadline_ms).topics
        if described.error_code:
            error = error_for_code(described.error_code)
            problem = f"topic '{name}': {error}: {advice_for(error)}"
            raise TopicError(problem, error, code=broker_code(error))
        numbers = sorted(p.partition_index for p in described.partitions)
        self._partitions = {n: CommittedPartition(admin, TopicPartition(name, n)) for n in numbers}
        self._firsts = {n: p.log_start_offset(deadline_ms) for n, p in self._partitions.items()}
        self.ends = {n: p.end_offset(deadline_ms) for n, p in self._partitions.items()}

    def records_since(self, timestamp_ms: int) -> Iterator[Record]:
        """Yield the records of each partition, from the first one of at least this timestamp on.

        Raises BrokerError, RecordLimitError.
        """

        def refuse(error: RecordLimitError) -> None:
            raise RecordLimitError(
                error.offset,
                f"{error.problem}. Topic '{self._name}' is read for --skip-superseded: without it, "
                "the row may replace a newer one",
            )

        for number, partition in self._partitions.items():
            deadline_ms = self._admin.deadline_in(self._timeout_ms)
            first = partition.offset_since(timestamp_ms, deadline_ms)
            if first is not None:
                yield from partition.records(first, self.ends[number], self._timeout_ms, refuse)

    def beyond(self, first_offsets: Mapping[int, int]) -> str | None:
        """Return the first of ``first_offsets`` that the topic lacks; None if it lacks none."""
        for number, offset in first_offsets.items():
            if number not in self.ends:
                return f"partition {number}: it has {len(self.ends)}, numbered from 0"
            if offset > self.ends[number]:
                return f"{number}:{offset}: partition {number} ends at {self.ends[number]}"
        return None

    def letters(
        self, letter_filter: LetterFilter, left_out: Counter[str] | None = None
    ) -> Iterator[DeadLetter]:
        """Yield the wanted dead letters, partition by partition, each in order.

        left_out: counts the others, by reason

        Raises BrokerError, RecordLimitError.
        """
        for number, partition in self._partitions.items():
            first = max(self._firsts[number], letter_filter.first_offsets.get(number, 0))
            refused = self._refused(number, left_out)
            for record in partition.records(first, self.ends[number], self._timeout_ms, refused):
                letter = DeadLetter.of(number, record)
                reason = letter_filter.skip_reason(letter)
                if reason is None:
                    yield letter
                elif left_out is not None:
                    left_out[reason] += 1

    def _refused(
        self, number: int, left_out: Counter[str] | None
    ) -> Callable[[RecordLimitError], None]:
        def refused(error: RecordLimitError) -> None:
            if not self._skips_unreadable:
                position = f"{number}:{error.offset}"
                raise RecordLimitError(
                    error.offset,
                    f"{error.problem}. --skip-unreadable leaves it out, and --from begins behind "
                    f"it: it is at {position} of topic '{self._name}'",
                ) from error
            if left_out is not None:
                left_out[UNREADABLE] += 1

        return refused


class Group(NamedTuple):
    """Dead letters of one cause for one topic. Times in ms since 1970."""

    cause: str
    topic: str | None
    letters: int
    cut: int
    first_ms: int
    last_ms: int
    example: str


MOST_GROUPS = 1_000
"""Limit of the groups. The records of later topics are one group for each cause."""
OTHER_TOPICS = "(other topics)"
"""Topic of such a group; no topic may have this name."""


def grouped(letters: Iterable[DeadLetter]) -> list[Group]:
    """Return the groups, the largest one first."""
    groups: dict[tuple[str, str | None], Group] = {}
    for letter in letters:
        key = (letter.cause if letter.cause in ALL_CAUSES else OTHER_CAUSE, letter.topic)
        if key not in groups and len(groups) >= MOST_GROUPS:
            key = (key[0], OTHER_TOPICS)
        at_ms = letter.record.timestamp_ms
        example = (letter.text(headers.MESSAGE) or "")[:MOST_SHOWN]
        known = groups.get(key) or Group(*key, 0, 0, at_ms, at_ms, example)
        groups[key] = known._replace(
            letters=known.letters + 1,
            cut=known.cut + letter.is_cut,
            first_ms=min(known.first_ms, at_ms),
            last_ms=max(known.last_ms, at_ms),
        )
    return sorted(groups.values(), key=lambda one: (-one.letters, one.cause, one.topic or ""))


_ROWS_AT_ONCE = 1000
_US_PER_MS = 1000
_LATEST_MS = (2**63 - 1) // 1000
"""Arrow's rows count microseconds."""
NO_PARTITION = -1
_PARTITION = re.compile(r"[0-9]{1,10}")
_HIGHEST_PARTITION = 2**31 - 1
POSITIONS = ColumnPositions(value=0, key=1, headers=2, topic=3, partition=4, timestamp=5)


class Replayed(NamedTuple):
    """Counts of a replay.

    written: records by topic
    left_out: dead letters by reason
    """

    written: Counter[str]
    left_out: Counter[str]


_MOST_LETTERS = 200_000
"""Dead letters whose keys are in memory at a time: at most 50 MB."""
_DIGEST_BYTES = 32
_NEVER_MS = -1
SUPERSEDED = "its topic has a later record of its key, or one of the same millisecond"


def _short(key: bytes) -> bytes:
    """Return a short key as it is, and the digest of a long one, to which no short one is equal."""
    return key if len(key) < _DIGEST_BYTES else sha256(key).digest()


class SupersededRows:
    """Leaves out rows whose key has a later record in their topic, by the records' timestamps.

    It keeps the keys of a limited number of dead letters. For these it reads the topics once, each
    from the time of the oldest of the rows to its current end.

    ahead: yields the dead letters that will be written, in their order
    rows_of: returns the Arrow batch that these dead letters become
    """

    def __init__(
        self,
        admin: AdminClient,
        timeout_ms: int,
        ahead: Iterator[DeadLetter],
        rows_of: Callable[[Sequence[DeadLetter]], Any],
        most_letters: int = _MOST_LETTERS,
    ) -> None:
        self._admin = admin
        self._timeout_ms = timeout_ms
        self._ahead = ahead
        self._rows_of = rows_of
        self._most_letters = most_letters
        self._latest_ms: dict[str, dict[bytes, int]] = {}
        self._end: tuple[int, int] | None = None

    def knows(self, letter: DeadLetter) -> bool:
        """Return True if the topics were read for the key of this dead letter."""
        return self._end is not None and letter.position <= self._end

    def look_ahead(self) -> None:
        """Read the topics for the keys of the next dead letters, and forget the others.

        Raises BrokerError, TopicError, HookError.
        """
        self._latest_ms = {}
        oldest_ms: dict[str, int] = {}
        following = islice(self._ahead, self._most_letters)
        while chunk := list(islice(following, _ROWS_AT_ONCE)):
            self._end = chunk[-1].position
            for topic, key, at_ms in _topics_keys_times(self._rows_of(chunk)):
                if topic is not None and key is not None and at_ms is not None:
                    self._latest_ms.setdefault(topic, {})[_short(key)] = _NEVER_MS
                    oldest_ms[topic] = min(at_ms, oldest_ms.get(topic, at_ms))
        for topic, at_ms in oldest_ms.items():
            latest_ms = self._latest_ms[topic]
            for record in Topic(self._admin, topic, self._timeout_ms).records_since(at_ms):
                key = None if record.key is None else _short(record.key)
                if key is not None and key in latest_ms:
                    latest_ms[key] = max(latest_ms[key], record.timestamp_ms)

    def without(self, batch: Any) -> Any:
        """Return the other rows of ``batch``, an Arrow batch of known dead letters."""
        rows = enumerate(_topics_keys_times(batch))
        return rows_of(
            batch,
            [
                row
                for row, (topic, key, at_ms) in rows
                if key is None or at_ms is None or self._latest(topic, key) < at_ms
            ],
        )

    def _latest(self, topic: str | None, key: bytes) -> int:
        return self._latest_ms.get(topic or "", {}).get(_short(key), _NEVER_MS)


def _topics_keys_times(batch: Any) -> Iterator[tuple[str | None, bytes | None, int | None]]:
    """Yield topic, key and timestamp in ms of each row; a null timestamp is the current time."""
    names = ("topic", "key", "timestamp")
    topics, keys, times = (batch.column(getattr(POSITIONS, name)) for name in names)
    micros = times.cast("int64").to_pylist()
    millis = [None if us is None else us // _US_PER_MS for us in micros]
    yield from zip(topics.to_pylist(), keys.to_pylist(), millis)


def replay_forbidden_reason(admin: AdminClient, topic: str, timeout_ms: int) -> str | None:
    """Return why the operator must not replay to ``topic``; None if a replay is allowed.

    A record in the decision log decides what readers see, and internal topics belong to the
    brokers.

    Raises BrokerError.
    """
    if not is_legal(topic):
        return "no topic can have this name"
    deadline_ms = admin.deadline_in(timeout_ms)
    (described,) = admin.metadata([topic], False, deadline_ms).topics
    if topic.startswith("__") or described.is_internal:
        return "it is internal to Kafka"
    is_log = topic == SINK_OPTIONS.keys["transaction.log.topic"].default
    if is_log or (not described.error_code and is_decision_log(admin, topic, deadline_ms)):
        return "it is a decision log of exactly-once delivery"
    return None


CLEANUP_POLICY = "cleanup.policy"


def is_compacted(admin: AdminClient, topic: str, timeout_ms: int) -> bool | None:
    """Return True if brokers keep the last record of each key of ``topic``; None if unreadable.

    Raises BrokerError.
    """
    deadline_ms = admin.deadline_in(timeout_ms)
    (described,) = admin.metadata([topic], False, deadline_ms).topics
    if described.error_code:
        return False  # it has no records
    node = admin.any_node(deadline_ms)
    configs, reason = configs_or_reason(
        admin, node, TOPIC_RESOURCE, topic, [CLEANUP_POLICY], deadline_ms
    )
    return None if reason else "compact" in configs.get(CLEANUP_POLICY, "")


class Replay(NamedTuple):
    """Writes dead letters again, but never to ``read_from``, where the next replay would read them.

    to_topic: replaces the topic of the rows, if given
    allowed: the topics that rows may go to, in addition to ``to_topic``
    keeps_partition: True if a row goes to the partition that it named, if any
    mend: the user's own function, or None
    """

    config: ProducerConfig
    read_from: str
    to_topic: str | None = None
    allowed: Collection[str] = ()
    keeps_partition: bool = True
    mend: Hook | None = None

    def skip_reason(self, letter: DeadLetter) -> str | None:
        """Return why this dead letter is omitted; None if it is to be written."""
        if not 0 <= letter.record.timestamp_ms <= _LATEST_MS:
            return "its timestamp is none that a row can have"
        if self.keeps_partition and self._partition_of(letter) is None:
            return "its partition is no number; --without-partition leaves it to the key"
        if self.mend is not None:
            return None
        if letter.cause == NOT_ENCODABLE:
            return "its value is the row's columns as JSON, which only a function of yours can mend"
        if letter.is_cut:
            return "a part of the row is missing: it was cut off"
        if self.to_topic is None and not is_legal(letter.topic or ""):
            return "no topic is known that it was to go to"
        if self.to_topic is None and letter.topic == self.read_from:
            return (
                f"it was to go to '{self.read_from}' itself, the topic that is read: it would be "
                "read once more by the next replay. Name another one with --to-topic"
            )
        if self.to_topic is None and letter.topic not in self.allowed:
            return "it was to go to a topic that --allow-topic does not name"
        return None

    def _partition_of(self, letter: DeadLetter) -> int | None:
        """Return the partition that the row named, NO_PARTITION for none; None for no number."""
        text = letter.text(headers.PARTITION)
        if text is None:
            return NO_PARTITION
        is_number = _PARTITION.fullmatch(text) is not None and int(text) <= _HIGHEST_PARTITION
        return int(text) if is_number else None

    def write(
        self, letters: Iterable[DeadLetter], superseded: SupersededRows | None = None
    ) -> Replayed:
        """Write all dead letters, but ``superseded``, and wait until they are acknowledged.

        Raises the producer's errors, and HookError. Some records may have been written then.
        """
        done = Replayed(Counter(), Counter())
        with closing(ThreadedProducer(self.config)) as producer:
            for chunk in self._chunks(letters, superseded, done.left_out):
                batch = mended = self.outcome(chunk)
                if superseded is not None:
                    batch = superseded.without(mended)
                    done.left_out[SUPERSEDED] += mended.num_rows - batch.num_rows
                if batch.num_rows:
                    producer.append(batch, POSITIONS)
            producer.flush()
            for where, report in producer.report.items():
                done.written[where.topic] += report.records
        return Replayed(done.written, +done.left_out)

    def _chunks(
        self,
        letters: Iterable[DeadLetter],
        superseded: SupersededRows | None,
        left_out: Counter[str],
    ) -> Iterator[list[DeadLetter]]:
        """Yield the dead letters to write; ``superseded`` knows all of a chunk, or is None."""
        chunk: list[DeadLetter] = []
        for letter in letters:
            reason = self.skip_reason(letter)
            if reason is not None:
                left_out[reason] += 1
                continue
            is_next = superseded is not None and not superseded.knows(letter)
            if chunk and (is_next or len(chunk) == _ROWS_AT_ONCE):
                yield chunk
                chunk = []
            if superseded is not None and is_next:
                superseded.look_ahead()
            chunk.append(letter)
        if chunk:
            yield chunk

    def superseded(
        self, admin: AdminClient, letters: Iterable[DeadLetter], timeout_ms: int
    ) -> SupersededRows:
        """Return what leaves out rows with a later record. letters: the same as for ``write``"""
        ahead = (letter for letter in letters if self.skip_reason(letter) is None)
        return SupersededRows(admin, timeout_ms, ahead, lambda chunk: self.mended(self.rows(chunk)))

    def outcome(self, letters: Sequence[DeadLetter]) -> Any:
        """Return the Arrow batch that letters become, perhaps without rows. Raises HookError."""
        return self.mended(self.rows(letters))

    def rows(self, letters: Sequence[DeadLetter]) -> Any:
        """Return an Arrow batch of letters for which ``skip_reason`` has no reason."""
        return row_batch([self._row(letter) for letter in letters])

    def mended(self, batch: Any) -> Any:
        """Return the Arrow batch to write, after the user's function. Raises HookError."""
        if self.mend is None:
            return batch
        after = run(self.mend, lambda after: changed_rows(batch, after), batch)
        named = set(after.column(POSITIONS.topic).unique().to_pylist())
        if self.read_from in named:
            raise HookError(
                f"{self.mend.name} returned a row for '{self.read_from}', the topic that is "
                "read: it would be read once more by the next replay. Have it name another topic",
                code="DEADLETTER-003",
            )
        refused = sorted(named - {*self.allowed, self.to_topic, None})
        if refused:
            raise HookError(
                f"{self.mend.name} returned a row for '{printable(refused[0])}', which neither "
                "--to-topic nor --allow-topic names. Name it there, or leave such rows out",
                code="DEADLETTER-003",
            )
        return after

    def _row(self, letter: DeadLetter) -> Row:
        partition = self._partition_of(letter) if self.keeps_partition else NO_PARTITION
        partition = None if partition == NO_PARTITION else partition
        record, topic = letter.record, self.to_topic or letter.topic
        where = (letter.own_headers, topic, partition, record.timestamp_ms)
        return Row(record.value, record.key, *where, letter.cause)
