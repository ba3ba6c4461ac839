"""Begins a transaction with its coordinator, and moves along when the coordinator does.

What is asked for next follows from what is known:

1. no coordinator: FindCoordinator, of the least loaded node
2. no producer id: InitProducerId, which fences whoever used the transactional id before; again
   near the last producer epoch, so that none runs out while the transaction is open
3. below transaction.version 2, partitions with batches: AddPartitionsToTxn

One request is under way at a time. Errors that pass lead back to where they came from, after a
pause, or to 1 when the coordinator has moved or cannot be reached. The transaction is not ended
here: whoever has its :class:`PreparedTransaction` does that.

Versions follow from the finalized feature transaction.version as the coordinator told it when
InitProducerId succeeded, never from the versions that brokers offer: one below that level takes the
newer versions too, and then never ends the transaction.

Source: ``TransactionManager``; KIP-98, KIP-360, KIP-890.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from spark_kafka_sink.base.backoff import ExponentialBackoff
from spark_kafka_sink.base.errors import (
    BrokerError,
    KafkaErrorCode,
    UnsupportedVersionError,
    error_for_code,
    error_named,
    transaction_advice_for,
)
from spark_kafka_sink.base.model import Node, ProducerIdAndEpoch, TopicPartition
from spark_kafka_sink.network.client import NetworkClient
from spark_kafka_sink.network.node_connection import ClientResponse, OnComplete
from spark_kafka_sink.producer.metadata import Metadata
from spark_kafka_sink.producer.transaction_state import TransactionState
from spark_kafka_sink.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from spark_kafka_sink.protocol.messages.find_coordinator import (
    BATCHED_VERSION,
    TRANSACTION_KEY_TYPE,
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from spark_kafka_sink.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from spark_kafka_sink.protocol.schema import Request

CONCURRENT_TRANSACTIONS_BACKOFF_MS = 20
"""First pause after CONCURRENT_TRANSACTIONS: a transaction takes that long to end. Source:
``TransactionManager.ADD_PARTITIONS_RETRY_BACKOFF_MS``."""

_CONNECTING_RECHECK_MS = 1000
_CONCURRENT_TRANSACTIONS = error_named("CONCURRENT_TRANSACTIONS")
_OPERATION_NOT_ATTEMPTED = error_named("OPERATION_NOT_ATTEMPTED")
_COORDINATOR_MOVED = frozenset(
    error_named(name) for name in ("COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR")
)


class TransactionSettings(NamedTuple):
    """What a transaction is begun with. ``timeout_ms``: the coordinator aborts it after that."""

    transactional_id: str
    timeout_ms: int


@dataclass(slots=True)
class _Pauses:
    """One pause after the other, for as long as nothing succeeds."""

    backoff: ExponentialBackoff
    failures: int = 0

    def next_ms(self) -> int:
        self.failures += 1
        return self.backoff.backoff_ms(self.failures - 1)


class TransactionManager:
    """The sender thread's side of one transaction; asks under the monitor."""

    def __init__(
        self,
        settings: TransactionSettings,
        client: NetworkClient,
        metadata: Metadata,
        queued_partitions: Callable[[], Iterable[TopicPartition]],
        retry_backoff: ExponentialBackoff,
        concurrent_backoff: ExponentialBackoff,
        fail: Callable[[Exception], None],
    ) -> None:
        """``queued_partitions``: those with batches to send. ``fail``: ends the producer."""
        self.state = TransactionState(settings.transactional_id)
        self.last_failure: str | None = None
        self._settings = settings
        self._client = client
        self._metadata = metadata
        self._queued_partitions = queued_partitions
        self._concurrent_backoff = concurrent_backoff
        self._fail = fail
        self._failures = _Pauses(retry_backoff)
        self._conflicts = _Pauses(concurrent_backoff)
        self._retry_at_ms = 0
        self._is_in_progress = False
        self._coordinator: Node | None = None
        self._transaction_version = 0
        self._asked_for: list[TopicPartition] = []

    def retry_backoff(self, error: KafkaErrorCode) -> ExponentialBackoff | None:
        """A leader that still ends the id's previous transaction is done soon."""
        return self._concurrent_backoff if error is _CONCURRENT_TRANSACTIONS else None

    def maybe_request(self, now_ms: int) -> int | None:
        """Send the next request if one is needed; returns after how long to call again."""
        if self._is_in_progress:
            return None
        partitions = self._partitions_to_add()
        if self.state.has_producer_id and not partitions:
            return None
        if now_ms < self._retry_at_ms:
            return self._retry_at_ms - now_ms
        if self._coordinator is None:
            return self._find_coordinator(now_ms)
        if not self._client.ready(self._coordinator, now_ms):
            return self._await_connection(self._coordinator, now_ms)
        if self.state.has_producer_id:
            self._add_partitions(self._coordinator, partitions, now_ms)
        else:
            self._init_producer_id(self._coordinator, now_ms)
        return None

    def _partitions_to_add(self) -> list[TopicPartition]:
        if not self.state.adds_partitions:
            return []
        return [tp for tp in self._queued_partitions() if tp not in self.state.partitions]

    # --- the coordinator -----------------------------------------------------------------------

    def _find_coordinator(self, now_ms: int) -> int | None:
        node = self._client.least_loaded_node(self._metadata.snapshot.nodes.values(), now_ms)
        if node is None or not self._client.ready(node, now_ms):
            return _CONNECTING_RECHECK_MS
        versions = self._client.api_versions(node)
        assert versions is not None, "the node is ready"
        name = self._settings.transactional_id
        request = FindCoordinatorRequest(key_type=TRANSACTION_KEY_TYPE)
        if (
            versions.supports(FindCoordinatorRequest)
            and versions.highest(FindCoordinatorRequest) >= BATCHED_VERSION
        ):
            request.coordinator_keys = [name]
        else:
            request.key = name
        self._send(node, request, self._complete_find, now_ms)
        return None

    def _complete_find(self, result: ClientResponse, now_ms: int) -> None:
        self._is_in_progress = False
        what = f"{self._subject}: no coordinator found"
        if not isinstance(result.response, FindCoordinatorResponse):
            self._retry(f"{what}: {result.node}: {result.failure}", self._failures, now_ms)
            return
        found = self._found_in(result.response)
        if found is None:
            self._retry(f"{what}: {result.node} knows of none", self._failures, now_ms)
        elif found.error_code:
            error = error_for_code(found.error_code)
            self._refused(f"{what} by {result.node}", error, found.error_message, now_ms)
        else:
            self._coordinator = Node(found.node_id, found.host, found.port)

    def _found_in(self, response: FindCoordinatorResponse) -> Coordinator | None:
        """The answer about the one id that was asked for, in whichever version it came."""
        name = self._settings.transactional_id
        if response.coordinators:
            return next((c for c in response.coordinators if c.key == name), None)
        if response.error_code == 0 and not response.host:
            return None
        return Coordinator(
            name,
            response.node_id,
            response.host,
            response.port,
            response.error_code,
            response.error_message,
        )

    def _await_connection(self, coordinator: Node, now_ms: int) -> int | None:
        """Wait for the coordinator's connection; where there is none to be had, ask again who
        coordinates: a broker that is down does not do so for long.
        """
        delay_ms = self._client.poll_delay_ms(coordinator, now_ms)
        if delay_ms is None or self._client.api_versions(coordinator) is not None:
            return delay_ms
        self._lose_coordinator(coordinator, self._client.last_failure(coordinator), now_ms)
        return max(self._retry_at_ms - now_ms, 0)

    def _lose_coordinator(self, coordinator: Node, reason: str | None, now_ms: int) -> None:
        self._coordinator = None
        failure = f"{self._subject}: the coordinator, {coordinator}, cannot be reached: {reason}"
        self._retry(failure, self._failures, now_ms)

    # --- the producer id -----------------------------------------------------------------------

    def _init_producer_id(self, coordinator: Node, now_ms: int) -> None:
        versions = self._client.api_versions(coordinator)
        assert versions is not None, "the coordinator is ready"
        # Of this connection; when the answer is here, it may be closed already.
        self._transaction_version = versions.transaction_version
        name, timeout_ms = self._settings
        request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=timeout_ms)
        self._send(coordinator, request, self._complete_init, now_ms)

    def _complete_init(self, result: ClientResponse, now_ms: int) -> None:
        self._is_in_progress = False
        response = result.response
        if not isinstance(response, InitProducerIdResponse):
            self._lose_coordinator(result.node, result.failure, now_ms)
        elif response.error_code:
            what = f"{self._subject}: no producer id from {result.node}"
            self._refused(what, error_for_code(response.error_code), None, now_ms)
        else:
            identity = ProducerIdAndEpoch(response.producer_id, response.producer_epoch)
            if not identity.is_near_the_end:  # otherwise another one is asked for
                self.state.begin(identity, self._transaction_version)
            self._succeeded()

    # --- partitions, below transaction.version 2 -----------------------------------------------

    def _add_partitions(
        self, coordinator: Node, partitions: list[TopicPartition], now_ms: int
    ) -> None:
        topics: dict[str, AddPartitionsToTxnTopic] = {}
        for topic, partition in partitions:
            topics.setdefault(topic, AddPartitionsToTxnTopic(topic)).partitions.append(partition)
        self._asked_for = partitions
        request = AddPartitionsToTxnRequest(
            self._settings.transactional_id,
            *self.state.producer,
            v3_and_below_topics=list(topics.values()),
        )
        self._send(coordinator, request, self._complete_add, now_ms)

    def _complete_add(self, result: ClientResponse, now_ms: int) -> None:
        self._is_in_progress = False
        if not isinstance(result.response, AddPartitionsToTxnResponse):
            self._lose_coordinator(result.node, result.failure, now_ms)
            return
        errors = {
            TopicPartition(topic.name, partition.partition_index): error_for_code(
                partition.partition_error_code
            )
            for topic in result.response.results_by_topic_v3_and_below
            for partition in topic.results_by_partition
        }
        failed: dict[TopicPartition, KafkaErrorCode] = {}
        for topic_partition in self._asked_for:
            error = errors.get(topic_partition, _OPERATION_NOT_ATTEMPTED)
            if error.code == 0:
                self.state.partitions.add(topic_partition)
            else:
                failed[topic_partition] = error
        if failed:
            self._could_not_add(failed, result.node, now_ms)
        else:
            self._succeeded()

    def _could_not_add(
        self, failed: dict[TopicPartition, KafkaErrorCode], node: Node, now_ms: int
    ) -> None:
        """All or nothing: one partition's error keeps the others from being attempted."""
        causes = [(tp, e) for tp, e in failed.items() if e is not _OPERATION_NOT_ATTEMPTED]
        if not causes:
            topic_partition = next(iter(failed))
            failure = f"{self._subject}: {node} did not add {topic_partition}"
            self._retry(failure, self._failures, now_ms)
            return
        # What will not pass comes first: it is what the task has to be told.
        topic_partition, error = min(causes, key=lambda cause: cause[1].retriable)
        if error.refresh_metadata:
            self._metadata.request_update()
        self._refused(f"{self._subject}: {node} did not add {topic_partition}", error, None, now_ms)

    # --- what becomes of requests --------------------------------------------------------------

    @property
    def _subject(self) -> str:
        return f"transaction {self._settings.transactional_id}"

    def _send(self, node: Node, request: Request, on_complete: OnComplete, now_ms: int) -> None:
        try:
            self._client.send(node, request, now_ms, on_complete)
        except UnsupportedVersionError as error:
            self._fail(error)
        else:
            self._is_in_progress = True

    def _succeeded(self) -> None:
        self.last_failure = None
        self._failures.failures = self._conflicts.failures = 0

    def _refused(self, what: str, error: KafkaErrorCode, detail: str | None, now_ms: int) -> None:
        """An answer that is an error: again after a pause, or never."""
        if error in _COORDINATOR_MOVED:
            self._coordinator = None
        if error is _CONCURRENT_TRANSACTIONS:
            self._retry(f"{what}: {error}", self._conflicts, now_ms)
        elif error.retriable:
            self._retry(f"{what}: {error}", self._failures, now_ms)
        else:
            self._fail(BrokerError(error, what, detail, transaction_advice_for(error)))

    def _retry(self, failure: str, pauses: _Pauses, now_ms: int) -> None:
        self.last_failure = failure
        self._retry_at_ms = now_ms + pauses.next_ms()
