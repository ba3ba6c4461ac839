"""The committed records of a partition: what a reader with ``read_committed`` gets.

Source: ``CompletedFetch.nextFetchedRecord``.
"""

from __future__ import annotations

from collections.abc import Iterator

from spark_kafka_sink.base.errors import BrokerError, error_named
from spark_kafka_sink.protocol.messages import fetch
from spark_kafka_sink.record.record_reader import ReadBatch, Record, read_batches
from spark_kafka_sink.transactions.log_partition import LogPartition, bytes_of


class CommittedPartition(LogPartition):
    """Reads up to the last stable offset, without records of transactions that were aborted."""

    isolation_level = fetch.READ_COMMITTED

    def records(self, first: int, end: int, timeout_ms: int) -> Iterator[Record]:
        """From offset ``first`` to before ``end``. timeout_ms: for each answer of the leader

        Raises BrokerError when the leader does not get as far as ``end`` in time.
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
                return  # nothing is left up to the end
            elif not self._admin.pause(attempts, deadline_ms):
                where = f"{self._topic_partition}: readable to {found.last_stable_offset}"
                raise BrokerError(error_named("OFFSET_NOT_AVAILABLE"), f"{where}, not to {end}")
            else:
                attempts += 1


def _committed(found: fetch.PartitionData) -> Iterator[ReadBatch]:
    """All batches; those that are control batches, or were aborted, without their records."""
    begun = sorted((a.first_offset, a.producer_id) for a in found.aborted_transactions or ())
    aborted: set[int] = set()
    for batch in read_batches(bytes_of(found.records)):
        while begun and begun[0][0] <= batch.last_offset:
            aborted.add(begun.pop(0)[1])
        is_aborted = batch.is_transactional and batch.producer_id in aborted
        if batch.marker is not None:
            aborted.discard(batch.producer_id)
        yield batch._replace(records=[]) if batch.is_control or is_aborted else batch
