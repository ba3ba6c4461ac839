"""Counters of a producer: totals of one task.

Names follow Kafka's producer metrics if a metric exists. Counters in ns are reported in ms. A new
counter also needs its row in the table of ``metrics/line.py``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from spark_kafka_sink.base.model import NO_OFFSET, TopicPartition, dataclass

if TYPE_CHECKING:
    from spark_kafka_sink.producer.producer_batch import ProducerBatch

_NS_PER_MS = 1_000_000


@dataclass(slots=True)
class ProducerMetrics:
    """Counters. Both threads write batch counters in turns; one thread writes each other counter.

    All counters are sums, except those in ``MAXIMA``. ``metrics/line.py`` describes each counter.
    """

    records: int = 0
    batches: int = 0
    uncompressed_bytes: int = 0
    compressed_bytes: int = 0
    batch_size_max: int = 0
    compression_rate_sum: float = 0.0
    record_size_max: int = 0
    requests: int = 0
    records_sent: int = 0
    batches_sent: int = 0
    queue_time_ms: int = 0
    queue_time_max_ms: int = 0
    requests_in_flight_max: int = 0
    responses: int = 0
    request_latency_ms: int = 0
    request_latency_max_ms: int = 0
    retries: int = 0
    record_retries: int = 0
    record_errors: int = 0
    batch_splits: int = 0
    throttle_time_ms: int = 0
    throttle_time_max_ms: int = 0
    throttle_left_ms: int = 0
    limit_wait_ms: int = 0
    same_rack_bytes: int = 0
    connections: int = 0
    metadata_age_max_ms: int = 0
    buffer_total_bytes: int = 0
    buffer_used_max_bytes: int = 0
    load_ns: int = 0
    input_wait_ns: int = 0
    encode_ns: int = 0
    compress_ns: int = 0
    buffer_wait_ns: int = 0
    metadata_wait_ns: int = 0
    ack_wait_ns: int = 0
    transaction_begin_ns: int = 0
    task_ns: int = 0

    def __reduce__(self) -> tuple[object, ...]:
        # Without names of fields, because a driver holds the messages of all tasks.
        return ProducerMetrics, _counters(self)

    def copy(self) -> ProducerMetrics:
        """Return a copy, which the producer does not go on counting in."""
        return ProducerMetrics(*_counters(self))

    def add(self, other: ProducerMetrics) -> None:
        """Merge another task's counters into this one."""
        for name in _NAMES:
            mine, theirs = getattr(self, name), getattr(other, name)
            setattr(self, name, max(mine, theirs) if name in MAXIMA else mine + theirs)

    def reset(self) -> None:
        """Reset all counters."""
        for name, value in _INITIAL:
            setattr(self, name, value)

    @property
    def task_ms(self) -> float:
        """Return ``task_ns`` in ms, as reports contain it."""
        return round(self.task_ns / _NS_PER_MS, 1)

    def record_sent(self, batches: Iterable[ProducerBatch]) -> None:
        """Count one produce request, which may hold batches that were sent before."""
        self.requests += 1
        for batch in batches:
            self.batches_sent += 1
            self.records_sent += batch.records_count
            queue_time_ms = batch.drained_at_ms - batch.opened_at_ms
            self.queue_time_ms += queue_time_ms
            self.queue_time_max_ms = max(self.queue_time_max_ms, queue_time_ms)

    def record_response(self, latency_ms: int, throttle_time_ms: int) -> None:
        """Count one response to a produce request."""
        self.responses += 1
        self.request_latency_ms += latency_ms
        self.request_latency_max_ms = max(self.request_latency_max_ms, latency_ms)
        self.throttle_time_ms += throttle_time_ms
        self.throttle_time_max_ms = max(self.throttle_time_max_ms, throttle_time_ms)

    def report(self) -> dict[str, int | float]:
        """Return all counters for logs, with times in ms."""
        values: dict[str, int | float] = {}
        for name in _NAMES:
            value = getattr(self, name)
            if name.endswith("_ns"):
                values[name.removesuffix("_ns") + "_ms"] = round(value / _NS_PER_MS, 1)
            else:
                values[name] = value if isinstance(value, int) else round(value, 3)
        return values


MAXIMA = frozenset(
    {
        "batch_size_max",
        "record_size_max",
        "queue_time_max_ms",
        "requests_in_flight_max",
        "request_latency_max_ms",
        "throttle_time_max_ms",
        "metadata_age_max_ms",
        "buffer_used_max_bytes",
    }
)
"""Counters that merge as the maximum over several tasks; all others add up."""

_INITIAL = tuple((field.name, field.default) for field in fields(ProducerMetrics))
_NAMES = tuple(name for name, _ in _INITIAL)
_counters = attrgetter(*_NAMES)


@dataclass(slots=True)
class PartitionReport:
    """Acknowledged records of one partition.

    first_offset, last_offset: -1 if the broker returned no offset (acks=0). Other writers' records
        may lie between them
    compressed_bytes, uncompressed_bytes: sizes of the batches
    record_retries: records that were sent again, once per retry
    """

    first_offset: int = NO_OFFSET
    last_offset: int = NO_OFFSET
    records: int = 0
    compressed_bytes: int = 0
    uncompressed_bytes: int = 0
    record_retries: int = 0

    def __reduce__(self) -> tuple[object, ...]:
        return PartitionReport, _reported(self)

    def acknowledge(
        self, base_offset: int, records: int, compressed_bytes: int, uncompressed_bytes: int
    ) -> None:
        """Count one acknowledged batch."""
        if base_offset != NO_OFFSET:
            self._cover(base_offset, base_offset + records - 1)
        self.records += records
        self.compressed_bytes += compressed_bytes
        self.uncompressed_bytes += uncompressed_bytes

    def add(self, other: PartitionReport) -> None:
        """Merge another task's report of the same partition."""
        if other.first_offset != NO_OFFSET:
            self._cover(other.first_offset, other.last_offset)
        self.records += other.records
        self.compressed_bytes += other.compressed_bytes
        self.uncompressed_bytes += other.uncompressed_bytes
        self.record_retries += other.record_retries

    def _cover(self, first_offset: int, last_offset: int) -> None:
        is_first = self.first_offset == NO_OFFSET
        self.first_offset = first_offset if is_first else min(self.first_offset, first_offset)
        self.last_offset = max(self.last_offset, last_offset)


_reported = attrgetter(*(field.name for field in fields(PartitionReport)))


DeliveryReport = dict[TopicPartition, PartitionReport]


class LongestWait(NamedTuple):
    """The longest wait of rows for brokers that the log reported. cause: a few words"""

    ms: int
    cause: str


class TaskTotals(NamedTuple):
    """Totals of one task: counters, and acknowledged records per partition."""

    metrics: ProducerMetrics
    report: DeliveryReport

    def reset(self) -> None:
        """Reset the totals for another task."""
        self.metrics.reset()
        self.report.clear()
