"""Replays corrected dead letters to topics that the operator names.

The operator decides that rows are corrected: a limit was raised, partitions were added, or a
function of the operator corrects the rows. A record of the topic that is read has no authority of
its own, because any client with write access chooses its headers.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, NamedTuple

from spark_kafka_sink.base.entry_points import Hook, HookError, run
from spark_kafka_sink.base.text import printable
from spark_kafka_sink.client.admin import AdminClient
from spark_kafka_sink.columns import dead_letters as headers
from spark_kafka_sink.columns.dead_letters import (
    NOT_ENCODABLE,
    Row,
    changed_rows,
    is_legal,
    row_batch,
)
from spark_kafka_sink.columns.positions import ColumnPositions
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.config.sink_keys import SINK_OPTIONS
from spark_kafka_sink.dead_letters.letters import DeadLetter
from spark_kafka_sink.producer.producer import ThreadedProducer
from spark_kafka_sink.transactions.decision_log import is_decision_log

_ROWS_AT_ONCE = 1000
_LATEST_MS = (2**63 - 1) // 1000
"""Arrow's rows count microseconds."""
NO_PARTITION = -1
_PARTITION = re.compile(r"[0-9]{1,10}")
_HIGHEST_PARTITION = 2**31 - 1
POSITIONS = ColumnPositions(value=0, key=1, headers=2, topic=3, partition=4, timestamp=5)
Mend = Callable[[Any], Any]


class Replayed(NamedTuple):
    """Counts of a replay.

    written: records by topic
    left_out: dead letters by reason
    """

    written: Counter[str]
    left_out: Counter[str]


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


class Replay:
    """Writes dead letters again, but never to ``read_from``, where the next replay would read them.

    to_topic: replaces the topic of the rows, if given
    allowed: the topics that rows may go to, in addition to ``to_topic``
    keeps_partition: True if a row goes to the partition that it named, if any
    mend: the user's own function, or None
    """

    def __init__(
        self,
        config: ProducerConfig,
        read_from: str,
        to_topic: str | None = None,
        allowed: Collection[str] = (),
        keeps_partition: bool = True,
        mend: Hook | None = None,
    ) -> None:
        self._config = config
        self._read_from = read_from
        self._to_topic = to_topic
        self._allowed = {*allowed} if to_topic is None else {*allowed, to_topic}
        self._keeps_partition = keeps_partition
        self._mend = mend

    def skip_reason(self, letter: DeadLetter) -> str | None:
        """Return why this dead letter is omitted; None if it is to be written."""
        if not 0 <= letter.record.timestamp_ms <= _LATEST_MS:
            return "its timestamp is none that a row can have"
        if self._keeps_partition and self._partition_of(letter) is None:
            return "its partition is no number; --without-partition leaves it to the key"
        if self._mend is not None:
            return None
        if letter.cause == NOT_ENCODABLE:
            return "its value is the row's columns as JSON, which only a function of yours can mend"
        if letter.is_cut:
            return "a part of the row is missing: it was cut off"
        if self._to_topic is None and not is_legal(letter.topic or ""):
            return "no topic is known that it was to go to"
        if self._to_topic is None and letter.topic == self._read_from:
            return (
                f"it was to go to '{self._read_from}' itself, the topic that is read: it would be "
                "read once more by the next replay. Name another one with --to-topic"
            )
        if self._to_topic is None and letter.topic not in self._allowed:
            return "it was to go to a topic that --allow-topic does not name"
        return None

    def _partition_of(self, letter: DeadLetter) -> int | None:
        """Return the partition that the row named, NO_PARTITION for none; None for no number."""
        text = letter.text(headers.PARTITION)
        if text is None:
            return NO_PARTITION
        is_number = _PARTITION.fullmatch(text) is not None and int(text) <= _HIGHEST_PARTITION
        return int(text) if is_number else None

    def write(self, letters: Iterable[DeadLetter]) -> Replayed:
        """Write all dead letters and wait until they are acknowledged.

        Raises the producer's errors, and HookError. Some records may have been written then.
        """
        done = Replayed(Counter(), Counter())
        producer = ThreadedProducer(self._config)
        try:
            chunk: list[DeadLetter] = []
            for letter in letters:
                reason = self.skip_reason(letter)
                if reason is not None:
                    done.left_out[reason] += 1
                    continue
                chunk.append(letter)
                if len(chunk) == _ROWS_AT_ONCE:
                    self._append(producer, chunk)
                    chunk = []
            self._append(producer, chunk)
            producer.flush()
            for where, report in producer.report.items():
                done.written[where.topic] += report.records
        finally:
            producer.close()
        return done

    def _append(self, producer: ThreadedProducer, letters: Sequence[DeadLetter]) -> None:
        if not letters:
            return
        batch = self.mended(self.rows(letters))
        if batch.num_rows:
            producer.append(batch, POSITIONS)

    def rows(self, letters: Sequence[DeadLetter]) -> Any:
        """Return an Arrow batch of letters for which ``skip_reason`` has no reason."""
        return row_batch([self._row(letter) for letter in letters])

    def mended(self, batch: Any) -> Any:
        """Return the Arrow batch to write, after the user's function. Raises HookError."""
        if self._mend is None:
            return batch
        after = run(self._mend, lambda after: changed_rows(batch, after), batch)
        named = set(after.column(POSITIONS.topic).unique().to_pylist())
        if self._read_from in named:
            raise HookError(
                f"{self._mend.name} returned a row for '{self._read_from}', the topic that is "
                "read: it would be read once more by the next replay. Have it name another topic"
            )
        refused = sorted(named - self._allowed - {None})
        if refused:
            raise HookError(
                f"{self._mend.name} returned a row for '{printable(refused[0])}', which neither "
                "--to-topic nor --allow-topic names. Name it there, or leave such rows out"
            )
        return after

    def _row(self, letter: DeadLetter) -> Row:
        partition = self._partition_of(letter) if self._keeps_partition else NO_PARTITION
        record = letter.record
        return Row(
            record.value,
            record.key,
            letter.own_headers,
            self._to_topic or letter.topic,
            None if partition == NO_PARTITION else partition,
            record.timestamp_ms,
            letter.cause,
        )
