"""As whom the producer writes: under a plain producer id, or in a transaction.

Each identity is an object of its own that is replaced between two tasks, never changed: an answer
that comes late reaches the one it was for, which nobody asks any more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from spark_kafka_sink.base.backoff import ExponentialBackoff, RandomSource
from spark_kafka_sink.base.errors import KafkaErrorCode
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.network.client import NetworkClient
from spark_kafka_sink.producer.accumulator import RecordAccumulator
from spark_kafka_sink.producer.metadata import Metadata
from spark_kafka_sink.producer.producer_id import ProducerIdRequester
from spark_kafka_sink.producer.sequences import ProducerState
from spark_kafka_sink.producer.transaction_manager import (
    CONCURRENT_TRANSACTIONS_BACKOFF_MS,
    TransactionManager,
    TransactionSettings,
)


class IdentitySource(Protocol):
    """Gets a producer id, and whatever else batches need before they may be sent.

    last_failure: why there is no producer id yet, or why some batches must still wait
    """

    last_failure: str | None

    @property
    def state(self) -> ProducerState:
        """Numbers the batches; keeps those back that may not be sent yet."""
        ...

    def maybe_request(self, now_ms: int) -> int | None:
        """Send a request if one is needed; returns after how long to call again."""
        ...

    def retry_backoff(self, error: KafkaErrorCode) -> ExponentialBackoff | None:
        """The pause before a batch that met ``error`` is sent again; None for the usual one."""
        ...


class Identities:
    """Makes the identities of one producer."""

    def __init__(
        self,
        config: ProducerConfig,
        client: NetworkClient,
        metadata: Metadata,
        accumulator: RecordAccumulator,
        retry_backoff: ExponentialBackoff,
        rng: RandomSource,
    ) -> None:
        self._client = client
        self._metadata = metadata
        self._accumulator = accumulator
        self._retry_backoff = retry_backoff
        self._concurrent_backoff = ExponentialBackoff(
            CONCURRENT_TRANSACTIONS_BACKOFF_MS, config.retry_backoff_max_ms, rng
        )

    def idempotent(self) -> ProducerIdRequester:
        """A producer id of its own, asked for at once."""
        return self._idempotent(lambda: True)

    def idempotent_when_needed(self) -> ProducerIdRequester:
        """A producer id that is asked for when there is a batch to send."""
        return self._idempotent(lambda: self._accumulator.incomplete_count > 0)

    def transactional(self, settings: TransactionSettings) -> TransactionManager:
        """One transaction, begun at once."""
        return TransactionManager(
            settings,
            self._client,
            self._metadata,
            self._accumulator.queued_partitions,
            self._retry_backoff,
            self._concurrent_backoff,
            self._accumulator.fail,
        )

    def _idempotent(self, is_wanted: Callable[[], bool]) -> ProducerIdRequester:
        return ProducerIdRequester(
            self._client,
            self._metadata,
            ProducerState(),
            self._retry_backoff,
            self._accumulator.fail,
            is_wanted,
        )
