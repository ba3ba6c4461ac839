"""As whom the producer writes: as nobody, under a plain producer id, or in a transaction.

Each identity is an object of its own that is replaced between two tasks, never changed: an answer
that comes late changes only the identity it was for, which is not used any more.

Source: ``TransactionManager.InitProducerIdHandler``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from spark_kafka_sink.base.backoff import ExponentialBackoff, RandomSource
from spark_kafka_sink.base.errors import (
    KafkaErrorCode,
    advice_for,
    error_for_code,
    transaction_advice_for,
)
from spark_kafka_sink.base.model import ProducerIdAndEpoch, UnusedToken
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.network.client import NetworkClient
from spark_kafka_sink.network.node_connection import ClientResponse
from spark_kafka_sink.producer.accumulator import RecordAccumulator
from spark_kafka_sink.producer.metadata import Metadata
from spark_kafka_sink.producer.sequences import BatchNumbering, NoNumbering, ProducerState
from spark_kafka_sink.producer.transaction_manager import (
    CONCURRENT_TRANSACTIONS_BACKOFF_MS,
    CONNECTING_RECHECK_MS,
    Backoffs,
    CheckedTransaction,
    RepeatedRequest,
    TokenCheck,
    TransactionManager,
    TransactionSettings,
)
from spark_kafka_sink.protocol.messages.transactions import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)


class IdentitySource(Protocol):
    """Gets a producer id, and whatever else batches need before they may be sent."""

    @property
    def last_failure(self) -> str | None:
        """Why there is no producer id yet, or why some batches must still wait."""
        ...

    @property
    def failure(self) -> Exception | None:
        """Why there will never be what batches need. The sender fails with it."""
        ...

    @property
    def state(self) -> BatchNumbering:
        """Numbers the batches; keeps those back that may not be sent yet."""
        ...

    @property
    def awaits_check(self) -> bool:
        """Whether something is to be known before what is written may be handed over."""
        ...

    @property
    def began_after_ms(self) -> int:
        """From the first request until a transaction has begun; 0 before, and without one."""
        ...

    def maybe_request(self, now_ms: int) -> int | None:
        """Send a request if one is needed; returns after how long to call again."""
        ...

    def retry_backoff(self, error: KafkaErrorCode) -> ExponentialBackoff | None:
        """The pause before a batch that met ``error`` is sent again; None for the usual one."""
        ...


class NoIdentity:
    """Without idempotence: there is nothing to ask for, and no batch has numbers."""

    last_failure: str | None = None
    failure: Exception | None = None
    awaits_check = False
    began_after_ms = 0

    def __init__(self) -> None:
        self.state: BatchNumbering = NoNumbering()

    def maybe_request(self, now_ms: int) -> int | None:
        """Never anything."""
        return None

    def retry_backoff(self, error: KafkaErrorCode) -> ExponentialBackoff | None:
        """Nothing special."""
        return None


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
        self._is_idempotent = config.enable_idempotence
        self._client = client
        self._metadata = metadata
        self._accumulator = accumulator
        concurrent_backoff = ExponentialBackoff(
            CONCURRENT_TRANSACTIONS_BACKOFF_MS, config.retry_backoff_max_ms, rng
        )
        self._backoffs = Backoffs(retry_backoff, concurrent_backoff)

    def first(self) -> IdentitySource:
        """What a new producer begins with."""
        return self.idempotent() if self._is_idempotent else NoIdentity()

    def idempotent(self) -> ProducerIdRequester:
        """A producer id of its own, asked for at once."""
        return self._idempotent(lambda: True)

    def idempotent_when_needed(self) -> ProducerIdRequester:
        """A producer id that is asked for when there is a batch to send."""
        return self._idempotent(lambda: self._accumulator.incomplete_count > 0)

    def transactional(
        self, settings: TransactionSettings, token: UnusedToken | None
    ) -> IdentitySource:
        """One transaction, begun at once. ``token``: of whoever is to decide on it."""
        transaction = self._transaction(settings)
        if token is None:
            return transaction
        asking = self._asking(transaction_advice_for)
        check = TokenCheck(token, self._client, self._metadata, asking, self._tell_task)
        return CheckedTransaction(transaction, check)

    def _tell_task(self) -> None:
        with self._accumulator.monitor:
            self._accumulator.monitor.notify_all()

    def _transaction(self, settings: TransactionSettings) -> TransactionManager:
        return TransactionManager(
            settings,
            self._client,
            self._metadata,
            self._accumulator.queued_partitions,
            self._asking(transaction_advice_for),
            self._backoffs,
        )

    def _idempotent(self, is_wanted: Callable[[], bool]) -> ProducerIdRequester:
        asking = self._asking(advice_for)
        return ProducerIdRequester(self._client, self._metadata, ProducerState(), asking, is_wanted)

    def _asking(self, advice: Callable[[KafkaErrorCode], str]) -> RepeatedRequest:
        return RepeatedRequest(self._client, self._backoffs, advice)


_INT_MAX = 2**31 - 1


class ProducerIdRequester:
    """Asks any broker for a producer id while the state has none.

    ``is_wanted``: whether to ask before there is something to send.
    """

    awaits_check = False
    began_after_ms = 0

    def __init__(
        self,
        client: NetworkClient,
        metadata: Metadata,
        state: ProducerState,
        asking: RepeatedRequest,
        is_wanted: Callable[[], bool] = lambda: True,
    ) -> None:
        self.state = state
        self._client = client
        self._metadata = metadata
        self._asking = asking
        self._is_wanted = is_wanted

    @property
    def last_failure(self) -> str | None:
        """Why there is no producer id yet."""
        return self._asking.last_failure

    @property
    def failure(self) -> Exception | None:
        """Why there will be no producer id."""
        return self._asking.failure

    def maybe_request(self, now_ms: int) -> int | None:
        """Send a request if one is needed; returns after how long to call again."""
        if self.state.has_producer_id or self._asking.is_in_progress or not self._is_wanted():
            return None
        if pause_ms := self._asking.pause_ms(now_ms):
            return pause_ms
        node = self._client.least_loaded_node(self._metadata.snapshot.nodes.values(), now_ms)
        if node is None or not self._client.ready(node, now_ms):
            return CONNECTING_RECHECK_MS
        request = InitProducerIdRequest(transaction_timeout_ms=_INT_MAX)
        self._asking.send(node, request, self._complete, now_ms)
        return None

    def retry_backoff(self, error: KafkaErrorCode) -> ExponentialBackoff | None:
        """Nothing special."""
        return None

    def _complete(self, result: ClientResponse, now_ms: int) -> None:
        self._asking.is_in_progress = False
        response = result.response
        what = f"no producer id from {result.node}"
        if not isinstance(response, InitProducerIdResponse):
            self._asking.retry(f"{what}: {result.failure}", now_ms)
        elif response.error_code:
            self._asking.refused(what, error_for_code(response.error_code), None, now_ms)
        else:
            self._asking.succeed()
            producer = ProducerIdAndEpoch(response.producer_id, response.producer_epoch)
            self.state.set_producer(producer)
