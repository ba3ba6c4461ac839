"""Identities of a producer: without a producer id, idempotent, or in a transaction.

Java's ``TransactionManager`` also assigns sequences; here ``sequences.py`` does that. The current
state of an identity determines its next request:

1. no coordinator: FindCoordinator, to the least loaded node
2. no producer id: InitProducerId, which fences earlier users of the transactional id. Repeated near
   the last producer epoch, so that epochs do not run out while the transaction is open
3. below transaction.version 2, partitions with batches: AddPartitionsToTxn

One request is in flight at a time. After a retriable error the request is repeated with a backoff.
If the coordinator has moved or cannot be reached, step 1 follows. This module does not end the
transaction: the holder of its :class:`PreparedTransaction` does.

Versions follow from the finalized feature transaction.version, as the coordinator reported it
before InitProducerId succeeded. They never follow from the API versions that brokers offer. A
broker below that level accepts the newer versions too, and then never ends the transaction.

Each identity is a separate object, which is replaced between two tasks and never reused. So a late
response changes only the identity that it was for, which is no longer in use.

Source: ``TransactionManager``, ``TransactionManager.TxnRequestHandler``,
``TransactionManager.FindCoordinatorHandler``, ``TransactionManager.InitProducerIdHandler``; KIP-98,
KIP-360, KIP-699, KIP-890.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

from spark_kafka_sink.base.clock import ExponentialBackoff, RandomSource
from spark_kafka_sink.base.errors import (
    BrokerError,
    KafkaErrorCode,
    SupersededError,
    TransactionError,
    UnsupportedVersionError,
    advice_for,
    error_for_code,
    error_named,
    expired_id,
    transaction_advice_for,
)
from spark_kafka_sink.base.model import (
    Node,
    ProducerIdAndEpoch,
    TopicPartition,
    UnusedProducerIdentity,
)
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.network.client import NetworkClient
from spark_kafka_sink.network.coordinators import (
    Verdict,
    add_partitions_request,
    decisive_error,
    find_requests,
    parse_coordinators,
    parse_results,
    verdict_on,
)
from spark_kafka_sink.network.node_connection import HEAD_START_MS, ClientResponse, OnComplete
from spark_kafka_sink.producer.accumulator import RecordAccumulator
from spark_kafka_sink.producer.metadata import Metadata
from spark_kafka_sink.producer.sequences import (
    NoSequences,
    ProducerState,
    SequenceTracker,
    TransactionState,
)
from spark_kafka_sink.protocol.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from spark_kafka_sink.protocol.messages.transactions import (
    TransactionState as DescribedTransaction,
)
from spark_kafka_sink.protocol.schema import Request


class Backoffs(NamedTuple):
    """Backoffs after errors in general, and while a previous transaction is being ended."""

    retry: ExponentialBackoff
    concurrent: ExponentialBackoff


class RequestRetrier:
    """A request that the sender repeats, with backoffs, as long as its errors are retriable.

    At most one request is in flight.

    last_failure: why the last attempt failed
    failure: a fatal error, after which the caller sends no more requests
    advice_for: returns what a user can do about a fatal error
    """

    def __init__(
        self,
        client: NetworkClient,
        backoffs: Backoffs,
        advice_for: Callable[[KafkaErrorCode], str],
    ) -> None:
        self.last_failure: str | None = None
        self.failure: Exception | None = None
        self.is_in_progress = False
        self._client = client
        self._backoffs = backoffs
        self._advice_for = advice_for
        self._retry_at_ms = 0
        self._failures = 0
        self._conflicts = 0

    def pause_ms(self, now_ms: int) -> int:
        """Return the rest of the backoff in ms; 0 without one."""
        return max(0, self._retry_at_ms - now_ms)

    def send(self, node: Node, request: Request, on_complete: OnComplete, now_ms: int) -> None:
        """Send ``request`` to a node that is ready."""
        try:
            self._client.send(node, request, now_ms, on_complete)
        except UnsupportedVersionError as error:
            self.failure = error
        else:
            self.is_in_progress = True

    def succeed(self) -> None:
        """Record a success: the next backoff is a short one."""
        self.last_failure = None
        self._failures = self._conflicts = 0

    def retry(self, failure: str, now_ms: int) -> None:
        """Schedule a retry; each backoff is longer than the one before."""
        self._pause(failure, self._backoffs.retry.backoff_ms(self._failures), now_ms)
        self._failures += 1

    def handle_error(
        self, what: str, error: KafkaErrorCode, detail: str | None, now_ms: int
    ) -> Verdict:
        """Handle an error response: schedule a retry, or record a fatal error."""
        verdict, advice = verdict_on(error), self._advice_for(error)
        failure = f"{what}: {error}" + (f": {advice}" if advice else "")
        if verdict is Verdict.FATAL:
            self.failure = BrokerError(error, what, detail, advice)
        elif verdict is Verdict.RETRY_SOON:
            pause_ms = self._backoffs.concurrent.backoff_ms(self._conflicts)
            self._conflicts += 1
            self._pause(failure, pause_ms, now_ms)
        else:
            self.retry(failure, now_ms)
        return verdict

    def _pause(self, failure: str, pause_ms: int, now_ms: int) -> None:
        self.last_failure = failure
        self._retry_at_ms = now_ms + pause_ms


_NONE = error_named("NONE")


class CoordinatorLookup(NamedTuple):
    """The coordinator, if ready; otherwise after how many ms to check again."""

    coordinator: Node | None
    wait_ms: int | None


class CoordinatorFinder:
    """Finds the coordinator of ``transactional_id``, also after a move, and connects to it.

    Sends its requests with ``retrier``, under the monitor.

    expected: the last known coordinator, if any
    """

    def __init__(
        self,
        transactional_id: str,
        client: NetworkClient,
        metadata: Metadata,
        retrier: RequestRetrier,
        expected: Node | None = None,
    ) -> None:
        self.subject = f"transaction {transactional_id}"
        self._transactional_id = transactional_id
        self._client = client
        self._metadata = metadata
        self._retrier = retrier
        self._coordinator = expected
        # The broker that named the coordinator; None for an expected one.
        self._named_by: Node | None = None
        # A broker whose word is not taken for where the coordinator is.
        self._doubtful: Node | None = None

    @property
    def known(self) -> Node | None:
        """Return the coordinator, connected or not; None while it is being looked up."""
        return self._coordinator

    def find_or_connect(self, now_ms: int) -> CoordinatorLookup:
        """Find the coordinator, or connect to it. The caller has no request in flight."""
        if self._coordinator is None:
            return CoordinatorLookup(None, self._find_coordinator(now_ms))
        if not self._client.ready(self._coordinator, now_ms):
            return CoordinatorLookup(None, self._await_connection(self._coordinator, now_ms))
        return CoordinatorLookup(self._coordinator, None)

    def mark_unreachable(self, coordinator: Node, reason: str | None, now_ms: int) -> None:
        """Forget an unreachable coordinator, because another broker takes over if it is down."""
        self._coordinator = None
        failure = f"{self.subject}: the coordinator, {coordinator}, cannot be reached: {reason}"
        self._retrier.retry(failure, now_ms)

    def mark_moved(self, coordinator: Node, reason: str, now_ms: int) -> None:
        """Forget a former coordinator, and find the current one after a backoff."""
        self._coordinator = None
        self._retrier.retry(
            f"{self.subject}: {coordinator} does not coordinate it: {reason}", now_ms
        )

    def doubt(self, coordinator: Node) -> bool:
        """Let others name the coordinator from now on; return True if they have named this one.

        True in a cluster of one broker, too.
        """
        self._doubtful = coordinator
        is_named = self._named_by is not None and self._named_by.node_id != coordinator.node_id
        return is_named or len(self._metadata.snapshot.nodes) == 1

    def handle_error(
        self, what: str, error: KafkaErrorCode, detail: str | None, now_ms: int
    ) -> None:
        """Handle an error response: schedule a retry, find the coordinator again, or fail."""
        if self._retrier.handle_error(what, error, detail, now_ms) is Verdict.FIND_AGAIN:
            self._coordinator = None

    def _find_coordinator(self, now_ms: int) -> int | None:
        node = self._client.least_loaded_node(self._nodes_to_ask(), now_ms)
        if node is None or not self._client.ready(node, now_ms):
            return HEAD_START_MS
        versions = self._client.api_versions(node)
        assert versions is not None, "the node is ready"
        (request,) = find_requests([self._transactional_id], versions)
        self._retrier.send(node, request, self._complete_find, now_ms)
        return None

    def _nodes_to_ask(self) -> list[Node]:
        nodes = list(self._metadata.snapshot.nodes.values())
        doubtful = None if self._doubtful is None else self._doubtful.node_id
        return [node for node in nodes if node.node_id != doubtful] or nodes

    def _complete_find(self, result: ClientResponse, now_ms: int) -> None:
        self._retrier.is_in_progress = False
        what = f"{self.subject}: no coordinator found"
        if not isinstance(result.response, FindCoordinatorResponse):
            self._retrier.retry(f"{what}: {result.node}: {result.failure}", now_ms)
            return
        assert isinstance(result.request, FindCoordinatorRequest)
        (found,) = parse_coordinators(result.request, result.response)
        if found.error is _NONE:
            self._coordinator, self._named_by = found.coordinator, result.node
        else:
            self.handle_error(f"{what} by {result.node}", found.error, found.detail, now_ms)

    def _await_connection(self, coordinator: Node, now_ms: int) -> int | None:
        """Wait for the connection to the coordinator; if it fails, find the coordinator again."""
        delay_ms = self._client.poll_delay_ms(coordinator, now_ms)
        if delay_ms is None or self._client.api_versions(coordinator) is not None:
            return delay_ms
        self.mark_unreachable(coordinator, self._client.last_failure(coordinator), now_ms)
        return self._retrier.pause_ms(now_ms)


CONCURRENT_TRANSACTIONS_BACKOFF_MS = 20
"""First backoff after CONCURRENT_TRANSACTIONS: a transaction takes that long to end.

Source: ``TransactionManager.ADD_PARTITIONS_RETRY_BACKOFF_MS``.
"""


class TransactionSettings(NamedTuple):
    """Settings of a transaction, which the coordinator aborts after ``timeout_ms``."""

    transactional_id: str
    timeout_ms: int


class TransactionManager:
    """The sender thread's side of one transaction; sends requests under the monitor."""

    pending_check: TokenCheck | None = None

    def __init__(
        self,
        settings: TransactionSettings,
        client: NetworkClient,
        metadata: Metadata,
        queued_partitions: Callable[[], Iterable[TopicPartition]],
        retrier: RequestRetrier,
        backoffs: Backoffs,
    ) -> None:
        """``queued_partitions`` returns the partitions with batches to send."""
        self.state = TransactionState(settings.transactional_id)
        self._settings = settings
        self._client = client
        self._metadata = metadata
        self._queued_partitions = queued_partitions
        self._retrier = retrier
        self._backoffs = backoffs
        self._coordinator = CoordinatorFinder(settings.transactional_id, client, metadata, retrier)
        self._transaction_version = 0
        self._requested_since_ms: int | None = None
        self.began_after_ms = 0
        self.begun_at_ms: int | None = None

    @property
    def last_failure(self) -> str | None:
        """Return why the transaction, or some of its batches, must wait; None without a failure."""
        return self._retrier.last_failure

    @property
    def coordinator(self) -> Node | None:
        """Return the coordinator; None while it is being looked up."""
        return self._coordinator.known

    @property
    def failure(self) -> Exception | None:
        """Return why the producer id or a partition was refused for good; None otherwise."""
        return self._retrier.failure

    def retry_backoff(self, error: KafkaErrorCode) -> ExponentialBackoff | None:
        """Return a short backoff if a leader still ends the id's previous transaction."""
        return self._backoffs.concurrent if verdict_on(error) is Verdict.RETRY_SOON else None

    def maybe_request(self, now_ms: int) -> int | None:
        """Send the next request if one is needed; return after how many ms to call again."""
        if self._requested_since_ms is None:
            self._requested_since_ms = now_ms
        if self.begun_at_ms is None and self.state.has_begun:
            self.begun_at_ms = now_ms
        if self._retrier.is_in_progress:
            return None
        partitions = self._partitions_to_add()
        if self.state.has_producer_id and not partitions:
            return None
        if pause_ms := self._retrier.pause_ms(now_ms):
            return pause_ms
        coordinator, wait_ms = self._coordinator.find_or_connect(now_ms)
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
        # Read from the current connection, which may be closed when the response arrives.
        self._transaction_version = versions.transaction_version
        name, timeout_ms = self._settings
        request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=timeout_ms)
        self._retrier.send(coordinator, request, self._complete_init, now_ms)

    def _complete_init(self, result: ClientResponse, now_ms: int) -> None:
        self._retrier.is_in_progress = False
        response = result.response
        if not isinstance(response, InitProducerIdResponse):
            self._coordinator.mark_unreachable(result.node, result.failure, now_ms)
        elif response.error_code:
            what = f"{self._coordinator.subject}: no producer id from {result.node}"
            self._coordinator.handle_error(what, error_for_code(response.error_code), None, now_ms)
        else:
            identity = ProducerIdAndEpoch(response.producer_id, response.producer_epoch)
            if not identity.is_epoch_nearly_exhausted:  # otherwise InitProducerId is sent again
                self.state.begin(identity, self._transaction_version)
                assert self._requested_since_ms is not None, "it was asked"
                self.began_after_ms = now_ms - self._requested_since_ms
            self._retrier.succeed()

    # --- partitions, below transaction.version 2 -----------------------------------------------

    def _add_partitions(
        self, coordinator: Node, partitions: list[TopicPartition], now_ms: int
    ) -> None:
        name = self._settings.transactional_id
        request = add_partitions_request(name, self.state.producer, partitions)
        self._retrier.send(coordinator, request, self._complete_add, now_ms)

    def _complete_add(self, result: ClientResponse, now_ms: int) -> None:
        self._retrier.is_in_progress = False
        if not isinstance(result.response, AddPartitionsToTxnResponse):
            self._coordinator.mark_unreachable(result.node, result.failure, now_ms)
            return
        assert isinstance(result.request, AddPartitionsToTxnRequest)
        results = parse_results(result.request, result.response)
        self.state.partitions.update(tp for tp, error in results.items() if error is _NONE)
        topic_partition, error = decisive_error(results)
        if error is _NONE:
            self._retrier.succeed()
            return
        if error.refresh_metadata:
            self._metadata.request_update()
        what = f"{self._coordinator.subject}: {result.node} did not add {topic_partition}"
        self._coordinator.handle_error(what, error, None, now_ms)


_NOT_FOUND = error_named("TRANSACTIONAL_ID_NOT_FOUND")
_UNUSED = "Empty"
_MIN_NOT_FOUND = 3
"""Number of answers in succession, after which the id has certainly expired."""


class TokenCheck:
    """Checks once, after a transaction has begun, that its token is unused.

    ``maybe_request`` runs under the monitor.
    A transaction that begins after its unit was decided is not in the decision. The commit then
    aborts all open transactions. After that no process looks for this transaction, and readers
    would wait until it times out. So the planner hands out an unused token, and the decision uses
    the token up before the commit lists open transactions. One check after the begin is enough. If
    the token is unused then, the commit still has to list open transactions, and finds this one.
    Otherwise the task fails, and aborts the transaction.

    The planner has initialized the id. A broker that is cut off may not know that, and others name
    another coordinator then. If they keep naming the broker that does not know the id, all brokers
    have forgotten it (``transactional.id.expiration.ms``), and nothing can be committed.

    ``on_done`` is called when the check has found the token unused.
    """

    def __init__(
        self,
        token: UnusedProducerIdentity,
        client: NetworkClient,
        metadata: Metadata,
        retrier: RequestRetrier,
        on_done: Callable[[], None],
    ) -> None:
        self._token = token
        self._retrier = retrier
        self._on_done = on_done
        self._coordinator = CoordinatorFinder(
            token.transactional_id, client, metadata, retrier, token.coordinator
        )
        self._verdict: TransactionError | None = None
        self._not_found_count = 0
        self.is_done = False

    @property
    def transactional_id(self) -> str:
        """Return the id that holds the token."""
        return self._token.transactional_id

    @property
    def coordinator(self) -> Node | None:
        """Return the coordinator that is asked; None while it is being looked up."""
        return self._coordinator.known

    @property
    def last_failure(self) -> str | None:
        """Return why there is no answer yet; None without a failure."""
        return self._retrier.last_failure

    @property
    def failure(self) -> Exception | None:
        """Return SupersededError if the token is used up, or another fatal error."""
        return self._verdict or self._retrier.failure

    def maybe_request(self, has_begun: bool, now_ms: int) -> int | None:
        """Send the next request if one is needed; return after how many ms to call again.

        has_begun: True if the transaction has begun. Before that, the check only finds the
            coordinator and connects to it
        """
        if self.is_done or self._retrier.is_in_progress:
            return None
        if pause_ms := self._retrier.pause_ms(now_ms):
            return pause_ms
        coordinator, wait_ms = self._coordinator.find_or_connect(now_ms)
        if coordinator is None or not has_begun:
            return wait_ms
        request = DescribeTransactionsRequest([self._token.transactional_id])
        self._retrier.send(coordinator, request, self._complete, now_ms)
        return None

    def _complete(self, result: ClientResponse, now_ms: int) -> None:
        self._retrier.is_in_progress = False
        response = result.response
        if not isinstance(response, DescribeTransactionsResponse):
            self._coordinator.mark_unreachable(result.node, result.failure, now_ms)
            return
        if len(response.transaction_states) != 1:
            self._coordinator.mark_unreachable(
                result.node, "one id asked for, another number told", now_ms
            )
            return
        (state,) = response.transaction_states
        error = error_for_code(state.error_code)
        if error is _NOT_FOUND:
            self._complete_not_found(result.node, now_ms)
            return
        self._not_found_count = 0
        if error is _NONE and self._is_unused(state):
            self._retrier.succeed()
            self.is_done = True
            self._on_done()
        elif error is _NONE and self._is_older(state):
            # The planner has initialized the id; a broker that is cut off may not know that.
            self._coordinator.mark_moved(result.node, "it knows an older state", now_ms)
        elif error is _NONE:
            self._verdict = SupersededError(
                "this task attempt has begun to write too late: its micro-batch or job was decided "
                "without it, has failed, or was planned again. Nothing of it becomes visible, and "
                "its transaction is aborted. With speculation, or after an executor was cut off, "
                "this is as it should be. Otherwise see whether another query or driver has the "
                f"same transactional.id.prefix: {self._token.transactional_id} has a new owner",
                code="TXN-006",
            )
        else:
            what = f"{self._coordinator.subject}: {result.node} does not tell its state"
            self._coordinator.handle_error(what, error, None, now_ms)

    def _complete_not_found(self, node: Node, now_ms: int) -> None:
        is_named = self._coordinator.doubt(node)
        self._not_found_count += 1
        if not is_named or self._not_found_count < _MIN_NOT_FOUND:
            self._coordinator.mark_moved(node, "it does not know the id", now_ms)
            return
        self._verdict = expired_id(self._token.transactional_id)

    def _is_unused(self, state: DescribedTransaction) -> bool:
        held_by = (state.producer_id, state.producer_epoch)
        return held_by == self._token.producer and state.transaction_state == _UNUSED

    def _is_older(self, state: DescribedTransaction) -> bool:
        token = self._token.producer
        return (
            state.producer_id == token.producer_id and state.producer_epoch < token.producer_epoch
        )


class CheckedTransaction:
    """A transaction with the check that its token is unused."""

    def __init__(self, transaction: TransactionManager, check: TokenCheck) -> None:
        self.state = transaction.state
        self._transaction = transaction
        self._check = check

    @property
    def last_failure(self) -> str | None:
        """Return why the transaction, or some of its batches, must wait; None without a failure."""
        return self._transaction.last_failure

    @property
    def coordinator(self) -> Node | None:
        """Return the transaction's coordinator; None while it is being looked up."""
        return self._transaction.coordinator

    @property
    def failure(self) -> Exception | None:
        """Return why the transaction cannot continue; None without an error."""
        return self._transaction.failure or self._check.failure

    @property
    def began_after_ms(self) -> int:
        """Return the ms from the first request until the transaction had begun."""
        return self._transaction.began_after_ms

    @property
    def begun_at_ms(self) -> int | None:
        """Return when the transaction had begun at the latest; None before that."""
        return self._transaction.begun_at_ms

    @property
    def pending_check(self) -> TokenCheck | None:
        """Return the check if the transaction has begun and the check is not done."""
        return self._check if self.state.has_begun and not self._check.is_done else None

    def maybe_request(self, now_ms: int) -> int | None:
        """Send the next requests if needed; return after how many ms to call again."""
        waits = (
            self._transaction.maybe_request(now_ms),
            self._check.maybe_request(self.state.has_begun, now_ms),
        )
        return min((wait_ms for wait_ms in waits if wait_ms is not None), default=None)

    def retry_backoff(self, error: KafkaErrorCode) -> ExponentialBackoff | None:
        """Return the backoff of a batch that failed with ``error``; None for the usual one."""
        return self._transaction.retry_backoff(error)


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
    def coordinator(self) -> Node | None:
        """Return the broker that gives the producer id; None if any may, or none is known yet."""
        ...

    @property
    def pending_check(self) -> TokenCheck | None:
        """Return the check that must succeed before the task may hand over its transaction."""
        ...

    @property
    def began_after_ms(self) -> int:
        """Return the ms from the first request until a transaction had begun; 0 before that."""
        ...

    @property
    def begun_at_ms(self) -> int | None:
        """Return when a transaction had begun at the latest; None before that."""
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
    coordinator: Node | None = None
    pending_check: TokenCheck | None = None
    began_after_ms = 0
    begun_at_ms: int | None = None

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

    coordinator: Node | None = None
    pending_check: TokenCheck | None = None
    began_after_ms = 0
    begun_at_ms: int | None = None

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
            return HEAD_START_MS
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
