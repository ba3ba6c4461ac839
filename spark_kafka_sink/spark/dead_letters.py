"""Write the faulty rows of a task to the dead letter topic, with the task's own producer.

Dead letters are in the same transaction as the other rows and are committed or aborted with them. A
valid Arrow batch is appended unchanged. If the producer rejects an Arrow batch,
``KafkaProducer.find_faults`` checks it row by row. Records that brokers reject follow after the
rejection, at the end of the task at the latest. Only the appended record is known then, so the dead
letter names the chosen partition. Dead letters whose own timestamp was rejected are written with
the current time.

``record/dead_letters.py`` has the causes, and the columns of a dead letter.

Imported in tasks only, because it loads NumPy and the kernels.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from spark_kafka_sink.base.clock import SystemClock
from spark_kafka_sink.base.entry_points import HookError, RefusedRowsError
from spark_kafka_sink.base.errors import DeliveryError, RecordError, TopicError, sentence, warn
from spark_kafka_sink.base.model import ColumnPositions
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.config.sink_keys import DeadLetterConfig
from spark_kafka_sink.config.sink_options import SinkOptions
from spark_kafka_sink.producer.appender import largest_when_compressed
from spark_kafka_sink.producer.producer import KafkaProducer
from spark_kafka_sink.producer.rejections import (
    INVALID_TIMESTAMP,
    MESSAGE_TOO_LARGE,
    RejectedRecord,
)
from spark_kafka_sink.record.columns import ArrowBatch
from spark_kafka_sink.record.dead_letters import (
    BAD_TIMESTAMP,
    BEFORE_INTERCEPTOR,
    CAUSES,
    INTERCEPTOR,
    REFUSED,
    TOO_LARGE,
    DeadLetterColumns,
    Fault,
    Int64Array,
    Origin,
    Row,
    RowFaults,
    content_faults,
    positions_of,
    row_batch,
    rows_of,
)
from spark_kafka_sink.record.record_batch import RECORD_BATCH_OVERHEAD
from spark_kafka_sink.spark.commit import KafkaCommitMessage


class FaultyRows(NamedTuple):
    """Rows with faults. faults: one per row"""

    rows: ArrowBatch
    faults: list[Fault]


class RefusedRows:
    """Converts records that brokers rejected back to rows. own_topic: the dead letter topic

    positions, own_positions: of the columns that ``rows_of`` and ``with_current_time`` return
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

    def rows_of(self, refused: Sequence[RejectedRecord]) -> FaultyRows | None:
        """Return the rejected records of other topics as rows with faults, or None."""
        others = [r for r in refused if r.topic_partition.topic != self._own_topic]
        if not others:
            return None
        faults = [Fault(_cause(r), _message(r)) for r in others]
        return FaultyRows(_batch(others), faults)

    def with_current_time(self, refused: Sequence[RejectedRecord]) -> ArrowBatch | None:
        """Return the rejected dead letters with the current time, or None.

        Raises DeliveryError if brokers rejected a dead letter with the current time.
        """
        letters = [r for r in refused if r.topic_partition.topic == self._own_topic]
        if not letters:
            return None
        for letter in letters:
            if letter.record.timestamp_ms in self._current_ms:
                raise DeliveryError(
                    f"{letter.topic_partition}, of errors.deadletterqueue.topic.name, refuses a "
                    f"record with the current time: {letter.message}. Compare the clocks of this "
                    "machine and of the brokers, and see the topic's message.timestamp.*.max.ms",
                    code="DEADLETTER-008",
                )
        now_ms = self._clock.timestamp_ms()
        self._current_ms.add(now_ms)
        return _batch(letters, now_ms)


def _cause(refused: RejectedRecord) -> str:
    """Return the cause of a rejected record.

    A batch has one error, INVALID_TIMESTAMP if any record has a bad timestamp. The record's own
    message shows the difference. Source: ``LogValidator.processRecordErrors``.
    """
    if refused.error is MESSAGE_TOO_LARGE:
        return TOO_LARGE
    is_timestamp = refused.error is INVALID_TIMESTAMP and "timestamp" in refused.message.lower()
    return BAD_TIMESTAMP if is_timestamp else REFUSED


def _message(refused: RejectedRecord) -> str:
    return f"{refused.topic_partition} refuses it with {refused.error}: {refused.message}"


def _batch(refused: Sequence[RejectedRecord], timestamp_ms: int | None = None) -> ArrowBatch:
    """Return rejected records as rows. timestamp_ms: of all rows; None: each record's own"""
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


logger = logging.getLogger(__name__)

ROW_ERRORS = (RecordError, RefusedRowsError, TopicError, HookError)
"""Errors that ``append`` raises before it appends a row; rows may be the cause."""

_MAX_EXAMPLES = 5
_RATIO = "errors.deadletterqueue.max.ratio"
_ROWS = "errors.deadletterqueue.max.rows"


class TooManyDeadLettersError(RecordError):
    """A task has more dead letters than the options allow."""


class DeadLetters:
    """Writes a task's rows with errors.tolerance=all. ``counts``: dead letters by cause.

    row_origin: what a row's number refers to, for messages
    """

    def __init__(
        self,
        producer: KafkaProducer,
        positions: ColumnPositions,
        options: SinkOptions,
        message: KafkaCommitMessage,
        row_origin: str,
    ) -> None:
        config = options.dead_letters
        assert config is not None
        self._producer = producer
        self._positions = positions
        self._config = config
        self._row_origin = row_origin
        self._rows_count = 0
        self._own_positions = positions_of(config.topic)
        origin = Origin(message.partition_id, message.query_id, message.batch_id)
        self._columns = DeadLetterColumns(
            max_letter_bytes(config, options.producer),
            origin if config.has_context_headers else None,
        )
        self._refused = RefusedRows(positions, config.topic)
        producer.rejections.tolerate(config.topic)
        self._examples: dict[str, str] = {}
        self.counts: Counter[str] = Counter()
        message.dead_letters = self.counts

    def refuse(self, arrow_batch: ArrowBatch, reasons: Mapping[int, str]) -> ArrowBatch:
        """Write rows that an interceptor rejects as dead letters. Return these rows.

        reasons: row of ``arrow_batch`` -> reason, ascending
        """
        faults = {row: Fault(INTERCEPTOR, reason) for row, reason in reasons.items()}
        rows = content_faults(arrow_batch, self._positions).rows
        return self._append(
            rows_of(rows, np.array([*faults], np.int64)), faults, BEFORE_INTERCEPTOR
        )

    def write(self, arrow_batch: ArrowBatch, known: RowFaults | None = None) -> list[ArrowBatch]:
        """Append all rows, to their topics or as dead letters. Return the rows as they came in.

        known: faults that were found before

        Raises TooManyDeadLettersError, and errors that are no fault of a row.
        """
        if known is not None and len(known.bad):
            return self._write_with_known_faults(arrow_batch, known)
        return self._write(arrow_batch, None)

    def _write(self, arrow_batch: ArrowBatch, numbers: Int64Array | None) -> list[ArrowBatch]:
        """Append rows. numbers: int64[n] in the Arrow batch that came in; None for all its rows"""
        self._append_refused()
        limits = self._config.data_topic_limits
        try:
            self._producer.append(arrow_batch, self._positions, limits)
        except ROW_ERRORS:
            readable = self._producer.find_faults(arrow_batch, self._positions, limits)
        else:
            self._rows_count += arrow_batch.num_rows
            return [arrow_batch]
        return self._divide(readable.rows, readable.faults, numbers)

    def _write_with_known_faults(self, rows: ArrowBatch, known: RowFaults) -> list[ArrowBatch]:
        """Write rows with a known fault as dead letters, and the others to their topics."""
        readable = content_faults(rows_of(rows, known.bad), self._positions).rows
        appended = [self._append(readable, {int(row): known.found[int(row)] for row in known.bad})]
        good = known.good
        return [*appended, *(self._write(rows_of(rows, good), good) if len(good) else [])]

    def _divide(
        self, rows: ArrowBatch, faults: RowFaults, numbers: Int64Array | None
    ) -> list[ArrowBatch]:
        good, appended = faults.good, []
        if len(good):
            # An error here is no fault of these rows. No limits are passed: a row that is too large
            # only before compression may be written.
            kept = rows_of(rows, good)
            self._producer.append(kept, self._positions)
            self._rows_count += kept.num_rows
            appended.append(kept)
        bad = faults.bad
        if len(bad):
            input_rows = bad if numbers is None else numbers[bad]
            found = {int(n): faults.found[int(row)] for n, row in zip(input_rows, bad)}
            appended.append(self._append(rows_of(rows, bad), found))
        return appended

    def _append(
        self, rows: ArrowBatch, faults: Mapping[int, Fault], row_origin: str | None = None
    ) -> ArrowBatch:
        """Append dead letters of ``rows``, in the order of ``faults``. Return ``rows``.

        faults: number in the Arrow batch that came in -> fault
        """
        origin = row_origin or self._row_origin
        examples = {row: f"row {row} of {origin}: {f.message}" for row, f in faults.items()}
        self._count([*faults.values()], [*examples.values()])
        letters = self._columns.of(rows, self._positions, [*faults.values()])
        self._producer.append(letters, self._own_positions)
        self._rows_count += rows.num_rows
        return rows

    def _append_refused(self) -> bool:
        """Append dead letters of records that brokers have rejected; return False without any.

        ``write`` has counted these rows already.
        """
        refused = self._producer.rejections.take_rejected()
        if not refused:
            return False
        renewed = self._refused.with_current_time(refused)
        if renewed is not None:
            self._producer.append(renewed, self._refused.own_positions)
        found = self._refused.rows_of(refused)
        if found is not None:
            self._count(found.faults, [fault.message for fault in found.faults])
            letters = self._columns.of(found.rows, self._refused.positions, found.faults)
            self._producer.append(letters, self._own_positions)
        return True

    def _count(self, faults: Sequence[Fault], messages: Sequence[str]) -> None:
        """Count dead letters, with one message per fault. Raises TooManyDeadLettersError."""
        counts = Counter(fault.cause for fault in faults)
        examples: dict[str, str] = {}
        for fault, message in zip(faults, messages):
            examples.setdefault(fault.cause, message)
        self.counts.update(counts)
        self._examples = {**examples, **self._examples}
        if self._config.is_logged:
            text = f"{len(faults)} dead letter(s): {_summary(counts, examples)}"
            warn(logger, "DEADLETTER-007", text)
        max_rows = self._config.max_rows
        if max_rows is not None and sum(self.counts.values()) > max_rows:
            raise self._too_many(f"{_ROWS} = {max_rows}", "so far")

    def finish(self) -> None:
        """Wait after the last row until all records and dead letters are acknowledged.

        Raises TooManyDeadLettersError by the ratio, and what ``flush`` raises.
        """
        self._check()
        self._producer.flush()
        while self._append_refused():
            self._check()
            self._producer.flush()

    def _check(self) -> None:
        ratio = self._config.max_ratio
        if sum(self.counts.values()) > math.ceil(ratio * self._rows_count):
            raise self._too_many(f"{_RATIO} = {ratio:g}", f"of its {self._rows_count} rows")

    def _too_many(self, option: str, where: str) -> TooManyDeadLettersError:
        return TooManyDeadLettersError(
            f"{sum(self.counts.values())} dead letter(s) {where}, more than {option} allows in a "
            f"task: {_summary(self.counts, self._examples)}. Correct the rows, or raise the option",
            code="DEADLETTER-006",
        )


def _summary(counts: Mapping[str, int], examples: Mapping[str, str]) -> str:
    """Return ``2 too-large (row 7 of …: The message is …); 1 null-topic (…)``, by CAUSES."""
    causes = [cause for cause in CAUSES if counts.get(cause)]
    return sentence(
        "; ".join(
            f"{counts[cause]} {cause}" + (f" ({examples[cause]})" if n < _MAX_EXAMPLES else "")
            for n, cause in enumerate(causes)
        )
    )


def max_letter_bytes(config: DeadLetterConfig, kafka: ProducerConfig) -> int:
    """Return the largest size of a dead letter's record, bytes, without the batch's header."""
    limits = [kafka.max_request_size, kafka.buffer_memory]
    if config.own_topic_limits.max_message_bytes is not None:
        limits.append(config.own_topic_limits.max_message_bytes)
    max_bytes = min(limits) - RECORD_BATCH_OVERHEAD
    if kafka.compression_type == "none":
        return max_bytes
    return max_bytes - int(largest_when_compressed(max_bytes) - max_bytes)
