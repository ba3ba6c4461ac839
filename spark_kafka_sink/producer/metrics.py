"""What a producer has done, in numbers: totals of one task.

Names follow Kafka's producer metrics where it has one. Times are nanoseconds while counting and
milliseconds in reports.
"""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import NamedTuple

from spark_kafka_sink.base.dataclass import dataclass
from spark_kafka_sink.base.model import NO_OFFSET, TopicPartition

_NS_PER_MS = 1_000_000


@dataclass(slots=True)
class ProducerMetrics:
    """Counters. Both threads write them: those of batches by turns, as they finish batches, the
    others one thread each.

    records, uncompressed_bytes, compressed_bytes: of finished batches
    requests, retries, record_retries: produce requests sent; batches and records sent again
    batch_splits: batches that were too large
    compile_ns: time the worker spent compiling kernels for first use, before its first task's rows
    other *_ns: time the task thread spent encoding, compressing, waiting for buffer memory, waiting
        for metadata and waiting for acknowledgements
    """

    records: int = 0
    batches: int = 0
    uncompressed_bytes: int = 0
    compressed_bytes: int = 0
    requests: int = 0
    request_latency_ms: int = 0
    request_latency_max_ms: int = 0
    retries: int = 0
    record_retries: int = 0
    batch_splits: int = 0
    throttle_time_ms: int = 0
    compile_ns: int = 0
    encode_ns: int = 0
    compress_ns: int = 0
    buffer_wait_ns: int = 0
    metadata_wait_ns: int = 0
    ack_wait_ns: int = 0

    def add(self, other: ProducerMetrics) -> None:
        """Merge another task's counters into this one."""
        for field in fields(self):
            mine, theirs = getattr(self, field.name), getattr(other, field.name)
            is_maximum = field.name in _MAXIMA
            setattr(self, field.name, max(mine, theirs) if is_maximum else mine + theirs)

    def reset(self) -> None:
        """Back to nothing."""
        for field in fields(self):
            setattr(self, field.name, 0)

    def report(self) -> dict[str, int | float]:
        """For logs: times in milliseconds."""
        values: dict[str, int | float] = {}
        for name, value in asdict(self).items():
            if name.endswith("_ns"):
                values[name.removesuffix("_ns") + "_ms"] = round(value / _NS_PER_MS, 1)
            else:
                values[name] = value
        return values


_MAXIMA = ("request_latency_max_ms",)


@dataclass(slots=True)
class PartitionReport:
    """What of one partition was acknowledged.

    first_offset, last_offset: -1 when the broker did not say (acks=0). Other writers' records may
    lie between them. compressed_bytes, uncompressed_bytes: of the batches.
    """

    first_offset: int = NO_OFFSET
    last_offset: int = NO_OFFSET
    records: int = 0
    compressed_bytes: int = 0
    uncompressed_bytes: int = 0

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

    def _cover(self, first_offset: int, last_offset: int) -> None:
        is_first = self.first_offset == NO_OFFSET
        self.first_offset = first_offset if is_first else min(self.first_offset, first_offset)
        self.last_offset = max(self.last_offset, last_offset)


DeliveryReport = dict[TopicPartition, PartitionReport]


class TaskTotals(NamedTuple):
    """What one task has come to: in numbers, and what was acknowledged of which partition."""

    metrics: ProducerMetrics
    report: DeliveryReport

    def reset(self) -> None:
        """Begin another task."""
        self.metrics.reset()
        self.report.clear()
