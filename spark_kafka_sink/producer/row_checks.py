"""Which rows a producer cannot write although their columns are in order: too large, without a key.

``max.request.size`` and ``buffer.memory`` limit a record as it is, as in the Java producer. The
topic's ``max.message.bytes`` limits what the broker gets: a record alone in its batch, compressed.
It is looked at here only without a codec. To compress each large record once more, just to know,
would cost as much as sending it: the broker tells.

Source: ``KafkaProducer.ensureValidRecordSize``, ``LogValidator``.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from spark_kafka_sink.base.errors import RecordError, RecordTooLargeError
from spark_kafka_sink.columns.arrow_types import ArrowBatch
from spark_kafka_sink.columns.faults import (
    NULL_KEY,
    TOO_LARGE,
    RowFaults,
    decision_log_topic,
    illegal_topic,
    is_legal,
    is_null,
)
from spark_kafka_sink.columns.positions import ColumnPositions
from spark_kafka_sink.columns.record_columns import ArrowRecords, key_value_headers
from spark_kafka_sink.config.dead_letters import UNKNOWN_RULES, RowRules
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.record.compiled.records import (
    BODY_OVERHEAD,
    MAX_RECORD_OVERHEAD,
    content_sizes,
    largest_record,
)
from spark_kafka_sink.record.record_batch import RECORD_BATCH_OVERHEAD
from spark_kafka_sink.record.views import BytesView

_VARINT_BITS = 7


class RowChecks:
    """Checks rows of one producer. Used by the task thread."""

    def __init__(self, config: ProducerConfig, memory_bytes: int) -> None:
        self._limits = {
            "max.request.size": config.max_request_size,
            "buffer.memory": memory_bytes,
        }
        self._is_compressed = config.compression_type != "none"
        self._decision_log = config.decision_log
        self._legal_topics: set[str] = set()

    def check_topics(self, topics: list[str], names_too: bool) -> None:
        """Raise RecordError for the decision log, and for a name that no topic can have.

        names_too: otherwise brokers judge such a name
        """
        if self._decision_log in topics:
            raise RecordError(decision_log_topic(self._decision_log))
        for topic in topics if names_too else ():
            if topic not in self._legal_topics:
                if not is_legal(topic):
                    raise RecordError(illegal_topic(topic))
                self._legal_topics.add(topic)

    def check(self, records: ArrowRecords, rules: RowRules = UNKNOWN_RULES) -> int:
        """Raise RecordError if a row may be too large, or has no key where it needs one.

        Returns the most bytes that a record takes, without its batch's header.
        """
        size, row = largest_record(records.rows_count, records.columns)
        bytes_of_batch = size + RECORD_BATCH_OVERHEAD
        for option, limit in self._limits.items():
            if bytes_of_batch > limit:
                where = f"(row {row} of {records.rows_count} that are appended together)"
                raise RecordTooLargeError(_too_large(bytes_of_batch, option, limit, where))
        most = self._most_alone(rules)
        if most is not None and bytes_of_batch > most:
            raise RecordTooLargeError(_refused_size(bytes_of_batch, most))
        if rules.needs_key and _has_nulls(records.columns.key):
            raise RecordError(_NO_KEY)
        most_bytes: int = size
        return most_bytes

    def find(
        self, arrow_batch: ArrowBatch, positions: ColumnPositions, rules: RowRules
    ) -> RowFaults:
        """The faults of this kind."""
        faults = RowFaults(arrow_batch.num_rows)
        columns = key_value_headers(arrow_batch, positions)
        sizes = np.empty(arrow_batch.num_rows, np.int64)
        content_sizes(columns, sizes)
        upper = sizes + MAX_RECORD_OVERHEAD + RECORD_BATCH_OVERHEAD
        for option, most in self._limits.items():
            faults.add(upper > most, TOO_LARGE, partial(_too_large_at, upper, option, most))
        limit = self._most_alone(rules)
        if limit is not None:
            alone = sizes_alone(sizes)
            faults.add(alone > limit, TOO_LARGE, lambda row: _refused_size(int(alone[row]), limit))
        if rules.needs_key:
            faults.add(_lacks_keys(arrow_batch, positions), NULL_KEY, lambda row: _NO_KEY)
        return faults

    def _most_alone(self, rules: RowRules) -> int | None:
        """How large the batch of one record may be, where its size is known before it is made."""
        return None if self._is_compressed else rules.max_message_bytes


def largest_when_compressed(size: Any) -> Any:
    """A bound of what any codec makes of ``size`` bytes that it cannot make smaller: its frames,
    and for lz4 one byte in 255.
    """
    return size + size // 64 + 64


def sizes_alone(contents: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Bytes of an uncompressed batch with this record alone. contents: of key, value, headers"""
    bodies = contents + BODY_OVERHEAD
    lengths = np.ones_like(bodies)
    rest = (bodies << 1) >> _VARINT_BITS
    while rest.any():
        lengths += rest > 0
        rest >>= _VARINT_BITS
    return RECORD_BATCH_OVERHEAD + lengths + bodies


_NO_KEY = "The key is null, and the topic is compacted: each of its records needs a key"


def _has_nulls(key: BytesView) -> bool:
    is_absent = key.offset_bytes == 0
    return is_absent or key.validity_address != 0


def _lacks_keys(arrow_batch: ArrowBatch, positions: ColumnPositions) -> npt.NDArray[np.bool_]:
    if positions.key is None:
        return np.ones(arrow_batch.num_rows, np.bool_)
    column = arrow_batch.column(positions.key)
    return is_null(column) if column.null_count else np.zeros(len(column), np.bool_)


def _too_large(size: int, option: str, limit: int, where: str = "") -> str:
    return (
        f"The message is {size} bytes when serialized which is larger than {limit}, which is the "
        f"value of the {option} configuration{' ' * bool(where)}{where}. Raise kafka.{option}, and "
        "the topic's max.message.bytes if need be, or send smaller values"
    )


def _too_large_at(sizes: npt.NDArray[np.int64], option: str, limit: int, row: int) -> str:
    return _too_large(int(sizes[row]), option, limit)


def _refused_size(size: int, limit: int) -> str:
    return (
        f"The message is {size} bytes in a batch of its own, which is larger than {limit}, the "
        "topic's max.message.bytes. Raise that, or send smaller values"
    )
