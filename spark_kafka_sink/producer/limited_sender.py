"""A sender whose query has a limit: what it sends to a broker it has reserved before.

What waits for the limit is not late. A batch is *held* while it is in the queue, its leader is
ready for it, and it is not reserved yet; that time counts neither for ``delivery.timeout.ms`` nor
for ``max.block.ms``. Time in which its leader is away, or in which it is in flight, counts. While
the query is paused all that is queued is held: whether a leader is away makes no difference then.

A transaction does not begin before something of it is reserved: one that is open times out.
"""

from __future__ import annotations

from spark_kafka_sink.base.backoff import ExponentialBackoff
from spark_kafka_sink.base.clock import Clock
from spark_kafka_sink.base.model import Node, TopicPartition
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.limits.client import LimitClient, LimitedNetwork
from spark_kafka_sink.network.interface import Network
from spark_kafka_sink.producer.holds import Holds
from spark_kafka_sink.producer.producer_batch import ProducerBatch
from spark_kafka_sink.producer.sender import Sender
from spark_kafka_sink.producer.transaction_state import TransactionState

_LONGEST_WAIT_MS = 1000


def limited(
    config: ProducerConfig, network: Network, clock: Clock, backoff: ExponentialBackoff
) -> tuple[LimitClient | None, Network]:
    """What the query's limit allows, and the network beside which it is asked; None without one."""
    if config.limits is None:
        return None, network
    limit = LimitClient(config.limits, network, clock, backoff, config.request_timeout_ms)
    return limit, LimitedNetwork(network, limit.handle)


class LimitedSender(Sender):
    """Sends what a :class:`LimitClient` has reserved."""

    def keep_to(self, limit: LimitClient) -> None:
        """What it may send. To be called before the first round."""
        self._limit = limit
        self._holds = Holds()
        # Of the last round: what was held, in the order in which it is to be sent.
        self._held: list[ProducerBatch] = []
        self._was_paused = False
        self._held_since_ms = 0

    def _identify(self, now_ms: int) -> int | None:
        with self._accumulator.monitor:  # or it could be replaced in between
            state = self._state
            if isinstance(state, TransactionState):
                state.is_held = not self._limit.has_begun
            return super()._identify(now_ms)

    def _send_ready(self, now_ms: int) -> int | None:
        self._note_held(now_ms)
        had_begun = self._limit.has_begun
        self._limit.advance(now_ms)
        wait_ms = super()._send_ready(now_ms)
        if self._held and self._limit.is_idle:
            self._limit.reserve(*self._wanted(), now_ms)
        limit_wait_ms = self._limit.advance(now_ms)
        if self._limit.failure is not None:
            self.fail(self._limit.failure)
            return 0  # nothing is waited for any more
        waits = [wait_ms, limit_wait_ms]
        if self._limit.has_begun and not had_begun:
            waits.append(0)  # partitions may be added to the transaction now
        self._was_paused = self._limit.is_paused
        if self._held or self._was_paused:
            # Whoever waits for memory or acknowledgements is told again before that is over.
            self._client.pauses.hold(now_ms + 2 * _LONGEST_WAIT_MS)
            waits.append(_LONGEST_WAIT_MS)
        return min((wait for wait in waits if wait is not None), default=None)

    def _note_held(self, now_ms: int) -> None:
        """From the last round until now, what it has held was held."""
        if self._held or self._was_paused:
            since_ms = self._held_since_ms
            self._metrics.limit_wait_ms += now_ms - since_ms
            oldest = self._accumulator.oldest_incomplete()
            self._holds.forget_before(now_ms if oldest is None else oldest.created_at_ms)
            if self._was_paused:
                self._holds.note_all(since_ms, now_ms)
            else:
                self._holds.note((b.topic_partition for b in self._held), since_ms, now_ms)
        self._held = []
        self._held_since_ms = now_ms

    def _drain(
        self, node: Node, partitions: list[TopicPartition], now_ms: int
    ) -> list[ProducerBatch]:
        limit = self._limit
        bytes_left, records_left = limit.bytes_left, limit.records_left
        reserved = []
        for batch in self._accumulator.heads(partitions):
            if self._state.must_wait(batch) and not self._awaits_begin():
                continue
            bytes_left -= batch.size_bytes
            records_left -= batch.records_count
            # Once one is held, so are all after it: small ones must not overtake it for ever.
            if self._held or not limit.has_begun or bytes_left < 0 or records_left < 0:
                self._held.append(batch)
            else:
                reserved.append(batch.topic_partition)
        if not reserved:
            return []
        batches = super()._drain(node, reserved, now_ms)
        for batch in batches:
            limit.spend(batch.size_bytes, batch.records_count)
            batch.held_ms += self._held_in_queue_ms(batch, now_ms)
        return batches

    def _awaits_begin(self) -> bool:
        """Whether batches wait for partitions, which are not added before something is reserved."""
        state = self._state
        is_held = isinstance(state, TransactionState) and state.adds_partitions
        return is_held and not self._limit.has_begun

    def _wanted(self) -> tuple[int, int]:
        """Bytes and records of what is queued: of one batch at least, then what 100 ms allow.

        Also of what is behind the first ones: a partition would else wait for the server's answer
        before each of its batches.
        """
        most_bytes, most_records = self._limit.chunk
        size_bytes = records = 0
        for batch in (*self._held, *self._accumulator.behind(self._held)):
            size_bytes += batch.size_bytes
            records += batch.records_count
            if size_bytes > most_bytes or records > most_records:
                if batch is not self._held[0]:
                    size_bytes -= batch.size_bytes
                    records -= batch.records_count
                break
        return size_bytes, records

    def _paused_ms(self, batch: ProducerBatch, now_ms: int) -> int:
        paused_ms = super()._paused_ms(batch, now_ms) + batch.held_ms
        if batch.is_queued:
            paused_ms += self._held_in_queue_ms(batch, now_ms)
        return paused_ms

    def _held_in_queue_ms(self, batch: ProducerBatch, now_ms: int) -> int:
        return self._holds.held_ms(batch.topic_partition, batch.queued_at_ms, now_ms)
