"""Records that brokers have refused, as rows: those of a task become dead letters, and dead letters
whose own timestamp was refused are written with the current time.

What was appended is all that is known of a row then. So its partition is the one that was chosen.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from spark_kafka_sink.base.clock import SystemClock
from spark_kafka_sink.base.errors import DeliveryError
from spark_kafka_sink.columns.dead_letters import (
    BAD_TIMESTAMP,
    REFUSED,
    TOO_LARGE,
    Fault,
    Row,
    positions_of,
    row_batch,
)
from spark_kafka_sink.columns.positions import ColumnPositions
from spark_kafka_sink.columns.record_columns import ArrowBatch
from spark_kafka_sink.producer.refusals import (
    INVALID_TIMESTAMP,
    MESSAGE_TOO_LARGE,
    RefusedRecord,
)


class FoundRows(NamedTuple):
    """faults: one for each of ``rows``"""

    rows: ArrowBatch
    faults: list[Fault]


class RefusedRows:
    """Of a task with these columns, whose dead letters are in ``own_topic``.

    positions, own_positions: of the columns of ``rows_of`` and ``own_again``
    """

    def __init__(self, positions: ColumnPositions, own_topic: str) -> None:
        self._own_topic = own_topic
        self._clock = SystemClock()
        self._current_ms: set[int] = set()
        timestamp = None if positions.timestamp is None else 5
        self.positions = ColumnPositions(
            value=0, key=1, headers=2, topic=3, partition=4, timestamp=timestamp
        )
        self.own_positions = positions_of(own_topic)._replace(timestamp=5)

    def rows_of(self, refused: Sequence[RefusedRecord]) -> FoundRows | None:
        """The rows among them; None if there are none."""
        mine = [r for r in refused if r.topic_partition.topic != self._own_topic]
        if not mine:
            return None
        faults = [Fault(_cause(r), _words(r)) for r in mine]
        return FoundRows(_batch(mine), faults)

    def own_again(self, refused: Sequence[RefusedRecord]) -> ArrowBatch | None:
        """Dead letters among them, with the current time; None if there are none.

        Raises DeliveryError where it was the current time that is refused.
        """
        own = [r for r in refused if r.topic_partition.topic == self._own_topic]
        if not own:
            return None
        for letter in own:
            if letter.record.timestamp_ms in self._current_ms:
                raise DeliveryError(
                    f"{letter.topic_partition}, of errors.deadletterqueue.topic.name, refuses a "
                    f"record with the current time: {letter.message}. Compare the clocks of this "
                    "machine and of the brokers, and see the topic's message.timestamp.*.max.ms"
                )
        now_ms = self._clock.timestamp_ms()
        self._current_ms.add(now_ms)
        return _batch(own, now_ms)


def _cause(refused: RefusedRecord) -> str:
    """One error is for all records of a batch, INVALID_TIMESTAMP if any of them has a bad one: what
    is said of each tells them apart. Source: ``LogValidator.processRecordErrors``.
    """
    if refused.error is MESSAGE_TOO_LARGE:
        return TOO_LARGE
    is_timestamp = refused.error is INVALID_TIMESTAMP and "timestamp" in refused.message.lower()
    return BAD_TIMESTAMP if is_timestamp else REFUSED


def _words(refused: RefusedRecord) -> str:
    return f"{refused.topic_partition} refuses it with {refused.error}: {refused.message}"


def _batch(refused: Sequence[RefusedRecord], timestamp_ms: int | None = None) -> ArrowBatch:
    """timestamp_ms: of all; None: each has its own"""
    rows = [
        Row(
            r.record.value,
            r.record.key,
            r.record.headers,
            r.topic_partition.topic,
            r.topic_partition.partition,
            r.record.timestamp_ms if timestamp_ms is None else timestamp_ms,
            "",
        )
        for r in refused
    ]
    found: ArrowBatch = row_batch(rows)
    return found
