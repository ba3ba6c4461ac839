"""Handle batches that brokers reject: split them, remove records, or describe the failure.

:class:`RejectionHandler` splits a batch after MESSAGE_TOO_LARGE. If the task writes dead letters,
the handler also removes rejected records from a batch, and keeps them for the task. All other
retries are the decision of ``sender.py``.

The functions after the class make the messages of failed deliveries. A message names the partition,
the broker, the error, and what the user can do.

Source: ``Sender.completeBatch``, ``LogValidator``; KIP-467.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from spark_kafka_sink.base.errors import (
    DeliveryError,
    KafkaErrorCode,
    advice_for,
    broker_code,
    code_of,
    error_named,
    transaction_advice_for,
)
from spark_kafka_sink.base.model import TopicPartition
from spark_kafka_sink.network.node_connection import LARGE_REQUESTS
from spark_kafka_sink.producer.accumulator import RecordAccumulator
from spark_kafka_sink.producer.appender import Appender
from spark_kafka_sink.producer.metrics import ProducerMetrics
from spark_kafka_sink.producer.producer_batch import ProducerBatch
from spark_kafka_sink.producer.sequences import SequenceTracker
from spark_kafka_sink.protocol.messages.topics import PartitionProduceResponse
from spark_kafka_sink.record.record_batch import Record

MESSAGE_TOO_LARGE = error_named("MESSAGE_TOO_LARGE")
INVALID_TIMESTAMP = error_named("INVALID_TIMESTAMP")
INVALID_RECORD = error_named("INVALID_RECORD")
_RECORD_ERRORS = (MESSAGE_TOO_LARGE, INVALID_TIMESTAMP, INVALID_RECORD)
_NO_ANSWER = (None, error_named("NETWORK_EXCEPTION"), error_named("REQUEST_TIMED_OUT"))


class RejectedRecord(NamedTuple):
    """A record that a broker rejected.

    record: its offset is the position in the batch
    message: the broker's message, without contents of the record
    """

    topic_partition: TopicPartition
    record: Record
    error: KafkaErrorCode
    message: str


class RejectionHandler:
    """Splits batches, and keeps records that brokers rejected until the task takes them.

    A batch that is too large is always split. If rejections are tolerated, rejected records are
    removed from the batch and kept for the task. The rest of the batch is sent again. Brokers name
    rejected records from Kafka 2.4 on (KIP-467). If a broker names none, halves are sent until a
    rejected record is alone.

    Used by the sender thread. The task thread only sets what is tolerated, and takes the records.
    """

    def __init__(
        self, appender: Appender, accumulator: RecordAccumulator, metrics: ProducerMetrics
    ) -> None:
        self._appender = appender
        self._accumulator = accumulator
        self._metrics = metrics
        self._is_tolerant = False
        self._strict_topic: str | None = None
        self._records: list[RejectedRecord] = []

    # --- task thread ---------------------------------------------------------------------------

    def tolerate(self, strict_topic: str | None) -> None:
        """Keep the task's rejected records instead of failing. Call it before the first ``append``.

        A rejection still fails the producer if an earlier attempt of the batch, or of a batch
        behind it, may have been appended. Otherwise records could be duplicated.

        strict_topic: topic in which only rejected timestamps are tolerated
        """
        self._is_tolerant = True
        self._strict_topic = strict_topic

    def reset(self) -> None:
        """Tolerate nothing, because another task begins."""
        self._is_tolerant = False

    def take_rejected(self) -> list[RejectedRecord]:
        """Return the records rejected since the last call; after ``flush``, none is missing."""
        if not self._records:
            return []
        with self._accumulator.monitor:
            taken, self._records = self._records, []
        return taken

    # --- sender thread -------------------------------------------------------------------------

    def handle(
        self,
        batch: ProducerBatch,
        error: KafkaErrorCode,
        answer: PartitionProduceResponse,
        tracker: SequenceTracker,
        now_ms: int,
    ) -> list[ProducerBatch] | None:
        """Queue the part of ``batch`` that must be sent again after the answer ``error``.

        Returns the queued batches; None if the answer counts as a failed attempt.
        """
        if tracker.is_behind_rejected(batch, error):
            self._accumulator.reenqueue_now(batch, now_ms)
            return [batch]
        if error is MESSAGE_TOO_LARGE and batch.records_count > 1:
            parts = self._appender.split_too_large(batch)
        elif not self._tolerates(batch, error) or not tracker.can_remove_records(batch):
            return None
        elif rows := rejected_rows(batch.records_count, error, answer):
            return self._remove_records(batch, error, rows, tracker, now_ms)
        else:
            parts = self._appender.halve(batch)
        # A split is not counted as an attempt.
        tracker.replace(batch, parts)
        self._replace(batch, parts, now_ms)
        return parts

    def _tolerates(self, batch: ProducerBatch, error: KafkaErrorCode) -> bool:
        if not self._is_tolerant or error not in _RECORD_ERRORS:
            return False
        return batch.topic_partition.topic != self._strict_topic or error is INVALID_TIMESTAMP

    def _replace(self, batch: ProducerBatch, parts: list[ProducerBatch], now_ms: int) -> None:
        if parts:
            parts[0].record_retries = batch.record_retries
        self._accumulator.replace(batch, parts, now_ms)

    def _remove_records(
        self,
        batch: ProducerBatch,
        error: KafkaErrorCode,
        rows: Mapping[int, str],
        tracker: SequenceTracker,
        now_ms: int,
    ) -> list[ProducerBatch]:
        parts, removed = self._appender.without_records(batch, rows)
        refused = [
            RejectedRecord(batch.topic_partition, record, error, message)
            for record, message in zip(removed, rows.values())
        ]
        self._metrics.record_errors += len(refused)
        tracker.remove_records(batch, parts)
        with self._accumulator.monitor:
            # Before the batch is complete, because a waiting flush then takes these records.
            self._records += refused
            self._replace(batch, parts, now_ms)
        return parts


def rejected_rows(
    records_count: int, error: KafkaErrorCode, answer: PartitionProduceResponse
) -> dict[int, str]:
    """Return the positions of rejected records, ascending, and why; empty if no record is named."""
    if records_count == 1:
        named = answer.record_errors[0].batch_index_error_message if answer.record_errors else None
        return {0: named or answer.error_message or str(error)}
    named_rows = {e.batch_index: e.batch_index_error_message for e in answer.record_errors}
    return {
        row: named_rows[row] or answer.error_message or str(error)
        for row in sorted(named_rows)
        if 0 <= row < records_count
    }


# --- Messages of failed deliveries ----------------------------------------------------------------


_MAX_ROWS = 3
_MAY_BE_IN_LOG = (
    "The answer to an earlier attempt was lost, so the records may be in the topic already. "
)
_MAY_BE_IN_LOG_ADVICE = (
    "keep max.message.bytes of the topic, and message.max.bytes of brokers, at least as large as "
    "kafka.batch.size while producers write"
)
_IN_DOUBT_ADVICE = {
    error_named("OUT_OF_ORDER_SEQUENCE_NUMBER"): (
        "give the topic several replicas, so that a broker that remembers more takes over, or set "
        "kafka.max.in.flight.requests.per.connection=1, because a broker that restarts remembers "
        "one batch"
    ),
    error_named("UNKNOWN_PRODUCER_ID"): (
        "keep the records of the topic for longer (retention.ms), because brokers before Kafka 2.4 "
        "forget a producer with its last record"
    ),
}
_REPEATED = ". A task that is repeated writes its records again; exactly-once shows them once"


def expiry_error(
    batch: ProducerBatch, delivery_timeout_ms: int, now_ms: int, why: str, advice: str
) -> DeliveryError:
    """Return the error for a batch that expired after ``delivery.timeout.ms``.

    why: the last known reason why the batch could not be sent
    advice: about ``why``; empty for the advice about the batch's last error
    """
    age_ms = now_ms - batch.created_at_ms
    if not advice and batch.last_error is not None:
        advice = advice_about(batch, batch.last_error)
    sentences = (
        f"{_subject(batch)} not acknowledged within kafka.delivery.timeout.ms = "
        f"{delivery_timeout_ms} ({_attempts(batch)}, {age_ms} ms old). {_last_error(batch)}{why}.",
        _advice_sentence(advice),
        "To wait longer, raise kafka.delivery.timeout.ms",
    )
    return DeliveryError(" ".join(filter(None, sentences)), code=_code(batch.last_error))


def rejection_error(
    batch: ProducerBatch,
    error: KafkaErrorCode,
    now_ms: int,
    in_doubt: Sequence[ProducerBatch] = (),
) -> DeliveryError:
    """Return the error for a batch whose retry would not help, or whose retries are used up.

    in_doubt: in-flight batches of the partition that may be in the log, in sequence order
    """
    age_ms = now_ms - batch.created_at_ms
    known, advice, code = "", advice_about(batch, error), _code(error)
    repeated = "" if batch.transactional_id else _REPEATED
    if batch.is_probe or (batch.may_be_appended and error is MESSAGE_TOO_LARGE):
        known, advice, code = _MAY_BE_IN_LOG, _MAY_BE_IN_LOG_ADVICE + repeated, "DELIVERY-004"
    elif in_doubt and error in _IN_DOUBT_ADVICE and not batch.transactional_id:
        known, advice = _in_doubt(in_doubt), _IN_DOUBT_ADVICE[error] + repeated
        code = "DELIVERY-008"
    return DeliveryError(
        f"{_subject(batch)} refused ({_attempts(batch)}, {age_ms} ms old). {_last_error(batch)}"
        f"{known}{_advice_sentence(advice)}",
        code=code,
    )


def response_message(batch: ProducerBatch, answer: PartitionProduceResponse) -> str | None:
    """Return the broker's message, and its messages about single records (KIP-467)."""
    messages = [
        f"record {e.batch_index} of the batch's {batch.records_count}: "
        f"{e.batch_index_error_message or 'refused'}"
        for e in answer.record_errors[:_MAX_ROWS]
    ]
    if len(answer.record_errors) > _MAX_ROWS:
        messages.append(f"and {len(answer.record_errors) - _MAX_ROWS} more")
    words = [*([answer.error_message] if answer.error_message else []), *messages]
    return "; ".join(word.rstrip(".") for word in words) or None


def _in_doubt(batches: Sequence[ProducerBatch]) -> str:
    first, last = batches[0], batches[-1]
    return (
        f"Earlier attempts may have succeeded, but the broker no longer recognises their records: "
        f"{sum(batch.records_count for batch in batches)} record(s), sequences "
        f"{first.base_sequence} to {last.last_sequence} of producer id {first.producer.producer_id}"
        f", epoch {first.producer.producer_epoch}. They may be in the topic already. "
    )


def _subject(batch: ProducerBatch) -> str:
    within = "" if batch.transactional_id is None else f" in transaction {batch.transactional_id}"
    return f"{batch.records_count} record(s) for {batch.topic_partition}{within}"


def advice_about(batch: ProducerBatch, error: KafkaErrorCode) -> str:
    """Return the advice to the user about ``error``; empty if there is none.

    Empty too if the text of the batch's last failure gives advice on large requests.
    """
    if code_of(batch.last_error_detail or "") == LARGE_REQUESTS:
        return ""
    return advice_for(error) if batch.transactional_id is None else transaction_advice_for(error)


def _code(error: KafkaErrorCode | None) -> str:
    return "DELIVERY-001" if error in _NO_ANSWER else broker_code(error)


def _attempts(batch: ProducerBatch) -> str:
    return f"{batch.attempts} failed attempt{'' if batch.attempts == 1 else 's'}"


def _last_error(batch: ProducerBatch) -> str:
    if batch.last_error is None:
        return ""
    node = "" if batch.last_node is None else f" from {batch.last_node}"
    detail = "" if not batch.last_error_detail else f": {batch.last_error_detail.rstrip('.')}"
    return f"Last error{node}: {batch.last_error}{detail}. "


def _advice_sentence(advice: str) -> str:
    return f"What to do: {advice}." if advice else ""
