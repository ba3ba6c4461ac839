"""Limits the bytes of record batches that a producer sends in a second.

A token bucket: a batch is sent when the bucket holds as many bytes as it has. The bucket starts
empty and holds at most one second's bytes, so a larger batch is sent when the bucket is full, and
the bucket is in debt afterwards. A batch that has to wait keeps back everything after it, so that
small batches do not overtake it for ever.

The bucket belongs to the producer, which tasks of one worker share one after another: many short
tasks send no more than a long one.
"""

from __future__ import annotations

from collections.abc import Iterable

from spark_kafka_sink.base.errors import TransactionError
from spark_kafka_sink.base.model import TopicPartition
from spark_kafka_sink.producer.producer_batch import ProducerBatch

MAX_BYTES = "max.bytes.per.second.per.task"
_MS_PER_S = 1000


class RateLimit:
    """Used by the sender thread; ``begin_task`` and ``begin_transaction`` between two tasks.

    bytes_per_second: of record batches, compressed, each attempt counted
    now_ms: when the bucket begins to fill

    held: batches of the present round that wait for the limit, in the order in which they are sent
    """

    def __init__(self, bytes_per_second: int, now_ms: int) -> None:
        self._bytes_per_second = bytes_per_second
        self._filled_at_ms = now_ms
        # In thousandths of a byte, so that no part of a millisecond is lost.
        self._tokens = 0
        self._transaction_timeout_ms: int | None = None
        self._sent_since_ms: int | None = None
        self.held: list[ProducerBatch] = []
        self._held_since_ms = now_ms

    def begin_task(self) -> None:
        """Forget the transaction of the task before; the bucket stays as it is."""
        self._transaction_timeout_ms = self._sent_since_ms = None

    def begin_transaction(self, timeout_ms: int) -> None:
        """The task writes in a transaction, which its coordinator aborts after ``timeout_ms``."""
        self._transaction_timeout_ms = timeout_ms

    def begin_round(self, now_ms: int) -> tuple[set[TopicPartition], int]:
        """Fill the bucket. Return the partitions that were held since the last round began to hold
        them, and since when.
        """
        most = self._bytes_per_second * _MS_PER_S
        earned = (now_ms - self._filled_at_ms) * self._bytes_per_second
        self._tokens, self._filled_at_ms = min(self._tokens + earned, most), now_ms
        held, since_ms = {batch.topic_partition for batch in self.held}, self._held_since_ms
        self.held, self._held_since_ms = [], now_ms
        return held, since_ms

    def admit(self, heads: Iterable[ProducerBatch]) -> list[TopicPartition]:
        """Return the partitions whose batch may be sent now; the other batches are held."""
        tokens, admitted = self._tokens, []
        for batch in heads:
            if self.held or tokens < self._needed(batch):
                self.held.append(batch)
            else:
                tokens -= batch.size_bytes * _MS_PER_S
                admitted.append(batch.topic_partition)
        return admitted

    def spend(self, batches: Iterable[ProducerBatch], now_ms: int) -> None:
        """Take the bytes of batches that are sent now out of the bucket."""
        for batch in batches:
            self._tokens -= batch.size_bytes * _MS_PER_S
            if self._sent_since_ms is None:
                self._sent_since_ms = now_ms

    @property
    def wait_ms(self) -> int:
        """After how long the first held batch may be sent; there must be one."""
        missing = self._needed(self.held[0]) - self._tokens
        return -(-missing // self._bytes_per_second)

    def check_transaction(self, queued_bytes: int, now_ms: int) -> None:
        """Raise TransactionError if the transaction times out before all that is queued is sent.

        A batch must be held. The last one is taken to be as large, and is paid for afterwards.
        """
        timeout_ms, wait_ms = self._transaction_timeout_ms, self.wait_ms
        if timeout_ms is None:
            return
        since_ms = now_ms + wait_ms if self._sent_since_ms is None else self._sent_since_ms
        others_bytes = queued_bytes - self.held[0].size_bytes
        needed_ms = wait_ms + others_bytes * _MS_PER_S // self._bytes_per_second
        if now_ms + needed_ms > since_ms + timeout_ms:
            raise TransactionError(
                f"{queued_bytes} bytes of this task are still to be sent, which takes "
                f"{needed_ms // _MS_PER_S} s for {MAX_BYTES} = {self._bytes_per_second}; by then "
                "the coordinator has aborted its transaction: kafka.transaction.timeout.ms = "
                f"{timeout_ms}. Raise either, or write less in a micro-batch or job"
            )

    def _needed(self, batch: ProducerBatch) -> int:
        return min(batch.size_bytes, self._bytes_per_second) * _MS_PER_S
