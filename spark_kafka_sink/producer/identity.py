"""Identities of the producer: without a producer id, with a plain one, or in a transaction.

Each identity is a separate object, which is replaced between two tasks and never reused. So a late
response changes only the identity that it was for, which is no longer in use.

Source: ``TransactionManager.InitProducerIdHandler``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from spark_kafka_sink.base.clock import ExponentialBackoff, RandomSource
from spark_kafka_sink.base.errors import (
    KafkaErrorCode,
    advice_for,
    error_for_code,
    transaction_advice_for,
)
from spark_kafka_sink.base.model import ProducerIdAndEpoch, UnusedProducerIdentity
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.network.client import NetworkClient
from spark_kafka_sink.network.node_connection import ClientResponse
from spark_kafka_sink.producer.accumulator import RecordAccumulator
from spark_kafka_sink.producer.metadata import Metadata
from spark_kafka_sink.producer.sequences import NoSequences, ProducerState, SequenceTracker
from spark_kafka_sink.producer.transaction_manager import (
    CONCURRENT_TRANSACTIONS_BACKOFF_MS,
    CONNECTING_RECHECK_MS,
    Backoffs,
    CheckedTransaction,
    RequestRetrier,
    TokenCheck,
    TransactionManager,
    TransactionSettings,
)
from spark_kafka_sink.protocol.messages.transactions import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)


class ProducerIdentity(Protocol):
    """Requests a producer id, and everything else that batches need before they may be sent."""

    @property
    def last_failure(self) -> str | None:
        """Return why there is no producer id yet, or batches must wait; None without a failure."""
        ...

    @property
    def failure(self) -> Exception | None:
        """Return the fatal error with which the sender fails; None without one."""
        ...

    @property
    def state(self) -> SequenceTracker:
        """Return the tracker, which assigns sequences and holds back batches that must wait."""
        ...

    @property
    def awaits_check(self) -> bool:
        """Return True if a check must succeed before the task may hand over its transaction."""
        ...

    @property
    def began_after_ms(self) -> int:
        """Return the ms from the first request until a transaction had begun; 0 before that."""
        ...

    def maybe_request(self, now_ms: int) -> int | None:
        """Send a request if one is needed; return after how many ms to call again."""
        ...

    def retry_backoff(self, error: KafkaErrorCode) -> ExponentialBackoff | None:
        """Return the backoff of a batch that failed with ``error``; None for the usual one."""
        ...


class NoIdentity:
    """The identity without idempotence: it requests nothing, and batches have no sequences."""

    last_failure: str | None = None
    failure: Exception | None = None
    awaits_check = False
    began_after_ms = 0

    def __init__(self) -> None:
        self.state: SequenceTracker = NoSequences()

    def maybe_request(self, now_ms: int) -> int | None:
        """Return None: no request is ever needed."""
        return None

    def retry_backoff(self, error: KafkaErrorCode) -> ExponentialBackoff | None:
        """Return None: the usual backoff applies."""
        return None


class ProducerIdentities:
    """Creates the identities of one producer."""

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

    def first(self) -> ProducerIdentity:
        """Return the first identity of a new producer."""
        return self.idempotent() if self._is_idempotent else NoIdentity()

    def idempotent(self) -> ProducerIdRequester:
        """Return an identity that requests a producer id at once."""
        return self._idempotent(lambda: True)

    def idempotent_when_needed(self) -> ProducerIdRequester:
        """Return an identity that requests a producer id when there is a batch to send."""
        return self._idempotent(lambda: self._accumulator.incomplete_count > 0)

    def transactional(
        self, settings: TransactionSettings, token: UnusedProducerIdentity | None
    ) -> ProducerIdentity:
        """Return the identity of one transaction, which begins at once.

        ``token``: the right to decide on the transaction; None for no check.
        """
        transaction = self._transaction(settings)
        if token is None:
            return transaction
        retrier = self._retrier_with(transaction_advice_for)
        check = TokenCheck(token, self._client, self._metadata, retrier, self._notify_task)
        return CheckedTransaction(transaction, check)

    def _notify_task(self) -> None:
        with self._accumulator.monitor:
            self._accumulator.monitor.notify_all()

    def _transaction(self, settings: TransactionSettings) -> TransactionManager:
        return TransactionManager(
            settings,
            self._client,
            self._metadata,
            self._accumulator.queued_partitions,
            self._retrier_with(transaction_advice_for),
            self._backoffs,
        )

    def _idempotent(self, is_wanted: Callable[[], bool]) -> ProducerIdRequester:
        retrier = self._retrier_with(advice_for)
        return ProducerIdRequester(
            self._client, self._metadata, ProducerState(), retrier, is_wanted
        )

    def _retrier_with(self, advice: Callable[[KafkaErrorCode], str]) -> RequestRetrier:
        return RequestRetrier(self._client, self._backoffs, advice)


_INT_MAX = 2**31 - 1


class ProducerIdRequester:
    """Requests a producer id from any broker while the state has none.

    ``is_wanted`` returns True if the request may be sent now.
    """

    awaits_check = False
    began_after_ms = 0

    def __init__(
        self,
        client: NetworkClient,
        metadata: Metadata,
        state: ProducerState,
        retrier: RequestRetrier,
        is_wanted: Callable[[], bool] = lambda: True,
    ) -> None:
        self.state = state
        self._client = client
        self._metadata = metadata
        self._retrier = retrier
        self._is_wanted = is_wanted

    @property
    def last_failure(self) -> str | None:
        """Return why there is no producer id yet; None without a failure."""
        return self._retrier.last_failure

    @property
    def failure(self) -> Exception | None:
        """Return why there will be no producer id; None without an error."""
        return self._retrier.failure

    def maybe_request(self, now_ms: int) -> int | None:
        """Send a request if one is needed; return after how many ms to call again."""
        if self.state.has_producer_id or self._retrier.is_in_progress or not self._is_wanted():
            return None
        if pause_ms := self._retrier.pause_ms(now_ms):
            return pause_ms
        node = self._client.least_loaded_node(self._metadata.snapshot.nodes.values(), now_ms)
        if node is None or not self._client.ready(node, now_ms):
            return CONNECTING_RECHECK_MS
        request = InitProducerIdRequest(transaction_timeout_ms=_INT_MAX)
        self._retrier.send(node, request, self._complete, now_ms)
        return None

    def retry_backoff(self, error: KafkaErrorCode) -> ExponentialBackoff | None:
        """Return None: the usual backoff applies."""
        return None

    def _complete(self, result: ClientResponse, now_ms: int) -> None:
        self._retrier.is_in_progress = False
        response = result.response
        what = f"no producer id from {result.node}"
        if not isinstance(response, InitProducerIdResponse):
            self._retrier.retry(f"{what}: {result.failure}", now_ms)
        elif response.error_code:
            self._retrier.handle_error(what, error_for_code(response.error_code), None, now_ms)
        else:
            self._retrier.succeed()
            producer = ProducerIdAndEpoch(response.producer_id, response.producer_epoch)
            self.state.set_producer(producer)
