"""Begins a transaction with its coordinator, and follows a coordinator that moves.

What is asked for next follows from what is known:

1. no coordinator: FindCoordinator, of the least loaded node
2. no producer id: InitProducerId, which fences whoever used the transactional id before; again
   near the last producer epoch, so that none runs out while the transaction is open
3. below transaction.version 2, partitions with batches: AddPartitionsToTxn

One request is under way at a time. After an error that passes, the same is asked again after a
pause, or 1 when the coordinator has moved or cannot be reached. The transaction is not ended here:
whoever has its :class:`PreparedTransaction` does that.

Versions follow from the finalized feature transaction.version as the coordinator told it when
InitProducerId succeeded, never from the versions that brokers offer: one below that level takes the
newer versions too, and then never ends the transaction.

Source: ``TransactionManager``; KIP-98, KIP-360, KIP-890.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from spark_kafka_sink.base.backoff import ExponentialBackoff
from spark_kafka_sink.base.errors import KafkaErrorCode, error_for_code, error_named
from spark_kafka_sink.base.model import Node, ProducerIdAndEpoch, TopicPartition
from spark_kafka_sink.client.coordinators import (
    Verdict,
    add_partitions_request,
    results_in,
    verdict_on,
    worst_of,
)
from spark_kafka_sink.network.client import NetworkClient
from spark_kafka_sink.network.node_connection import ClientResponse
from spark_kafka_sink.producer.coordinator_search import CoordinatorSearch
from spark_kafka_sink.producer.metadata import Metadata
from spark_kafka_sink.producer.repeated_request import (
    Backoffs,
    RepeatedRequest,
)
from spark_kafka_sink.producer.transaction_state import TransactionState
from spark_kafka_sink.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
)
from spark_kafka_sink.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)

CONCURRENT_TRANSACTIONS_BACKOFF_MS = 20
"""First pause after CONCURRENT_TRANSACTIONS: a transaction takes that long to end. Source:
``TransactionManager.ADD_PARTITIONS_RETRY_BACKOFF_MS``."""

_NONE = error_named("NONE")


class TransactionSettings(NamedTuple):
    """What a transaction is begun with. ``timeout_ms``: the coordinator aborts it after that."""

    transactional_id: str
    timeout_ms: int


class TransactionManager:
    """The sender thread's side of one transaction; asks under the monitor."""

    awaits_check = False

    def __init__(
        self,
        settings: TransactionSettings,
        client: NetworkClient,
        metadata: Metadata,
        queued_partitions: Callable[[], Iterable[TopicPartition]],
        asking: RepeatedRequest,
        backoffs: Backoffs,
    ) -> None:
        """``queued_partitions``: those with batches to send."""
        self.state = TransactionState(settings.transactional_id)
        self._settings = settings
        self._client = client
        self._metadata = metadata
        self._queued_partitions = queued_partitions
        self._asking = asking
        self._backoffs = backoffs
        self._coordinator = CoordinatorSearch(settings.transactional_id, client, metadata, asking)
        self._transaction_version = 0
        self._asking_since_ms: int | None = None
        self.began_after_ms = 0

    @property
    def last_failure(self) -> str | None:
        """Why the transaction, or some of its batches, must wait."""
        return self._asking.last_failure

    @property
    def failure(self) -> Exception | None:
        """Why there will be no producer id, or no place in the transaction."""
        return self._asking.failure

    def retry_backoff(self, error: KafkaErrorCode) -> ExponentialBackoff | None:
        """A leader that still ends the id's previous transaction is done soon."""
        return self._backoffs.concurrent if verdict_on(error) is Verdict.RETRY_SOON else None

    def maybe_request(self, now_ms: int) -> int | None:
        """Send the next request if one is needed; returns after how long to call again."""
        if self._asking_since_ms is None:
            self._asking_since_ms = now_ms
        if self._asking.is_in_progress:
            return None
        partitions = self._partitions_to_add()
        if self.state.has_producer_id and not partitions:
            return None
        if pause_ms := self._asking.pause_ms(now_ms):
            return pause_ms
        coordinator, wait_ms = self._coordinator.step(now_ms)
        if coordinator is None:
            return wait_ms
        if self.state.has_producer_id:
            self._add_partitions(coordinator, partitions, now_ms)
        else:
            self._init_producer_id(coordinator, now_ms)
        return None

    def _partitions_to_add(self) -> list[TopicPartition]:
        if not self.state.adds_partitions:
            return []
        return [tp for tp in self._queued_partitions() if tp not in self.state.partitions]

    # --- the producer id -----------------------------------------------------------------------

    def _init_producer_id(self, coordinator: Node, now_ms: int) -> None:
        versions = self._client.api_versions(coordinator)
        assert versions is not None, "the coordinator is ready"
        # Of this connection; when the answer is here, it may be closed already.
        self._transaction_version = versions.transaction_version
        name, timeout_ms = self._settings
        request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=timeout_ms)
        self._asking.send(coordinator, request, self._complete_init, now_ms)

    def _complete_init(self, result: ClientResponse, now_ms: int) -> None:
        self._asking.is_in_progress = False
        response = result.response
        if not isinstance(response, InitProducerIdResponse):
            self._coordinator.lose(result.node, result.failure, now_ms)
        elif response.error_code:
            what = f"{self._coordinator.subject}: no producer id from {result.node}"
            self._coordinator.refused(what, error_for_code(response.error_code), None, now_ms)
        else:
            identity = ProducerIdAndEpoch(response.producer_id, response.producer_epoch)
            if not identity.is_near_the_end:  # otherwise another one is asked for
                self.state.begin(identity, self._transaction_version)
                assert self._asking_since_ms is not None, "it was asked"
                self.began_after_ms = now_ms - self._asking_since_ms
            self._asking.succeed()

    # --- partitions, below transaction.version 2 -----------------------------------------------

    def _add_partitions(
        self, coordinator: Node, partitions: list[TopicPartition], now_ms: int
    ) -> None:
        name = self._settings.transactional_id
        request = add_partitions_request(name, self.state.producer, partitions)
        self._asking.send(coordinator, request, self._complete_add, now_ms)

    def _complete_add(self, result: ClientResponse, now_ms: int) -> None:
        self._asking.is_in_progress = False
        if not isinstance(result.response, AddPartitionsToTxnResponse):
            self._coordinator.lose(result.node, result.failure, now_ms)
            return
        assert isinstance(result.request, AddPartitionsToTxnRequest)
        results = results_in(result.request, result.response)
        self.state.partitions.update(tp for tp, error in results.items() if error is _NONE)
        topic_partition, error = worst_of(results)
        if error is _NONE:
            self._asking.succeed()
            return
        if error.refresh_metadata:
            self._metadata.request_update()
        what = f"{self._coordinator.subject}: {result.node} did not add {topic_partition}"
        self._coordinator.refused(what, error, None, now_ms)
