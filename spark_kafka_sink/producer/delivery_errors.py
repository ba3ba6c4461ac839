"""Messages of failed deliveries: which partition, which broker, which error, what to do."""

from __future__ import annotations

from spark_kafka_sink.base.errors import (
    DeliveryError,
    KafkaErrorCode,
    advice_for,
    transaction_advice_for,
)
from spark_kafka_sink.producer.producer_batch import ProducerBatch
from spark_kafka_sink.protocol.messages.produce import PartitionProduceResponse

_MOST_ROWS = 3
_MAY_BE_THERE = (
    "The answer to an earlier attempt was lost, so the records may be in the topic already. "
)
_MAY_BE_THERE_ADVICE = (
    "keep max.message.bytes of the topic, and message.max.bytes of brokers, at least as large as "
    "kafka.batch.size while producers write"
)
_REPEATED = ". A task that is repeated writes its records again; exactly-once shows them once"


def expired(batch: ProducerBatch, delivery_timeout_ms: int, now_ms: int, why: str) -> DeliveryError:
    """A batch ran out of ``delivery.timeout.ms``. ``why`` it could not be sent, as last seen."""
    age_ms = now_ms - batch.created_at_ms
    advice = _advice(batch, batch.last_error) if batch.last_error is not None else ""
    return DeliveryError(
        f"{_subject(batch)} not acknowledged within kafka.delivery.timeout.ms = "
        f"{delivery_timeout_ms} ({_attempts(batch)}, {age_ms} ms old). {_last_error(batch)}{why}. "
        f"{_what_to_do(advice)} To wait longer, raise kafka.delivery.timeout.ms"
    )


def refused(
    batch: ProducerBatch, error: KafkaErrorCode, now_ms: int, may_be_there: bool = False
) -> DeliveryError:
    """The broker's answer says that sending again will not help, or retries are used up.

    may_be_there: the answer to an attempt before the last one was lost
    """
    age_ms = now_ms - batch.created_at_ms
    advice = _advice(batch, error)
    if may_be_there:
        advice = _MAY_BE_THERE_ADVICE + ("" if batch.transactional_id else _REPEATED)
    return DeliveryError(
        f"{_subject(batch)} refused ({_attempts(batch)}, {age_ms} ms old). {_last_error(batch)}"
        f"{_MAY_BE_THERE if may_be_there else ''}{_what_to_do(advice)}"
    )


def answered(batch: ProducerBatch, answer: PartitionProduceResponse) -> str | None:
    """What the broker says in words, and of which records of the batch (KIP-467)."""
    told = [
        f"record {e.batch_index} of the batch's {batch.records_count}: "
        f"{e.batch_index_error_message or 'refused'}"
        for e in answer.record_errors[:_MOST_ROWS]
    ]
    if len(answer.record_errors) > _MOST_ROWS:
        told.append(f"and {len(answer.record_errors) - _MOST_ROWS} more")
    words = [*([answer.error_message] if answer.error_message else []), *told]
    return "; ".join(word.rstrip(".") for word in words) or None


def _subject(batch: ProducerBatch) -> str:
    within = "" if batch.transactional_id is None else f" in transaction {batch.transactional_id}"
    return f"{batch.records_count} record(s) for {batch.topic_partition}{within}"


def _advice(batch: ProducerBatch, error: KafkaErrorCode) -> str:
    return advice_for(error) if batch.transactional_id is None else transaction_advice_for(error)


def _attempts(batch: ProducerBatch) -> str:
    return f"{batch.attempts} failed attempt{'' if batch.attempts == 1 else 's'}"


def _last_error(batch: ProducerBatch) -> str:
    if batch.last_error is None:
        return ""
    node = "" if batch.last_node is None else f" from {batch.last_node}"
    detail = "" if not batch.last_error_detail else f": {batch.last_error_detail.rstrip('.')}"
    return f"Last error{node}: {batch.last_error}{detail}. "


def _what_to_do(advice: str) -> str:
    return f"What to do: {advice}." if advice else ""
