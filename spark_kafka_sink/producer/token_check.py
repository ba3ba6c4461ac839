"""Whether somebody may still decide on a transaction, asked once it has begun.

A transaction that begins after its unit was decided is not in the decision, and after the sweep
that follows nobody looks for it: readers would wait until it times out. So whoever plans hands out
a token that nobody has used, and the decision uses it up before the sweep lists what is open. One
look after the transaction has begun is enough. If the token is unused then, the sweep is still to
come, and finds the transaction; else the task fails, and aborts it.
"""

from __future__ import annotations

from collections.abc import Callable

from spark_kafka_sink.base.backoff import ExponentialBackoff
from spark_kafka_sink.base.errors import (
    KafkaErrorCode,
    SupersededError,
    error_for_code,
    error_named,
)
from spark_kafka_sink.base.model import UnusedToken
from spark_kafka_sink.network.client import NetworkClient
from spark_kafka_sink.network.node_connection import ClientResponse
from spark_kafka_sink.producer.coordinator_search import CoordinatorSearch
from spark_kafka_sink.producer.metadata import Metadata
from spark_kafka_sink.producer.repeated_request import RepeatedRequest
from spark_kafka_sink.producer.transaction_manager import TransactionManager
from spark_kafka_sink.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)

_NONE = error_named("NONE")
_NOT_FOUND = error_named("TRANSACTIONAL_ID_NOT_FOUND")
_UNUSED = "Empty"


class TokenCheck:
    """Of one transaction; asks under the monitor. ``on_done``: called when the token is unused."""

    def __init__(
        self,
        token: UnusedToken,
        client: NetworkClient,
        metadata: Metadata,
        asking: RepeatedRequest,
        on_done: Callable[[], None],
    ) -> None:
        self._token = token
        self._asking = asking
        self._on_done = on_done
        self._coordinator = CoordinatorSearch(
            token.transactional_id, client, metadata, asking, token.coordinator
        )
        self._superseded: SupersededError | None = None
        self.is_done = False

    @property
    def last_failure(self) -> str | None:
        """Why there is no answer yet."""
        return self._asking.last_failure

    @property
    def failure(self) -> Exception | None:
        """The token is used up, or nobody will tell."""
        return self._superseded or self._asking.failure

    def maybe_request(self, has_begun: bool, now_ms: int) -> int | None:
        """Send the next request if one is needed; returns after how long to call again.

        has_begun: the transaction has; until then only the coordinator is found and connected to
        """
        if self.is_done or self._asking.is_in_progress:
            return None
        if pause_ms := self._asking.pause_ms(now_ms):
            return pause_ms
        coordinator, wait_ms = self._coordinator.step(now_ms)
        if coordinator is None or not has_begun:
            return wait_ms
        request = DescribeTransactionsRequest([self._token.transactional_id])
        self._asking.send(coordinator, request, self._complete, now_ms)
        return None

    def _complete(self, result: ClientResponse, now_ms: int) -> None:
        self._asking.is_in_progress = False
        response = result.response
        if not isinstance(response, DescribeTransactionsResponse):
            self._coordinator.lose(result.node, result.failure, now_ms)
            return
        if len(response.transaction_states) != 1:
            self._coordinator.lose(result.node, "one id asked for, another number told", now_ms)
            return
        (state,) = response.transaction_states
        error = error_for_code(state.error_code)
        if error is _NONE and self._is_unused(state):
            self._asking.succeed()
            self.is_done = True
            self._on_done()
        elif error is _NOT_FOUND or (error is _NONE and self._is_of_the_past(state)):
            # Whoever plans has initialized the id: a broker that is cut off may not know of that.
            self._coordinator.distrust(result.node, "it knows an older state", now_ms)
        elif error is _NONE:
            self._superseded = SupersededError(
                "this task attempt has begun to write too late: its micro-batch or job was decided "
                "without it, has failed, or was planned again. Nothing of it becomes visible, and "
                "its transaction is aborted. With speculation, or after an executor was cut off, "
                "this is as it should be. Otherwise see whether somebody else writes under the "
                f"same transactional.id.prefix: {self._token.transactional_id} has changed hands"
            )
        else:
            what = f"{self._coordinator.subject}: {result.node} does not tell its state"
            self._coordinator.refused(what, error, None, now_ms)

    def _is_unused(self, state: TransactionState) -> bool:
        held_by = (state.producer_id, state.producer_epoch)
        return held_by == self._token.producer and state.transaction_state == _UNUSED

    def _is_of_the_past(self, state: TransactionState) -> bool:
        token = self._token.producer
        return (
            state.producer_id == token.producer_id and state.producer_epoch < token.producer_epoch
        )


class CheckedTransaction:
    """A transaction, and the check that somebody may still decide on it."""

    def __init__(self, transaction: TransactionManager, check: TokenCheck) -> None:
        self.state = transaction.state
        self._transaction = transaction
        self._check = check

    @property
    def last_failure(self) -> str | None:
        """Why the transaction, or some of its batches, must wait."""
        return self._transaction.last_failure or self._check.last_failure

    @property
    def failure(self) -> Exception | None:
        """Why the transaction cannot go on."""
        return self._transaction.failure or self._check.failure

    @property
    def began_after_ms(self) -> int:
        """From the first request until the transaction has begun."""
        return self._transaction.began_after_ms

    @property
    def awaits_check(self) -> bool:
        """Whether it has begun, and the check is not done."""
        return self.state.has_begun and not self._check.is_done

    def maybe_request(self, now_ms: int) -> int | None:
        """Send the next requests if they are needed; returns after how long to call again."""
        waits = (
            self._transaction.maybe_request(now_ms),
            self._check.maybe_request(self.state.has_begun, now_ms),
        )
        return min((wait_ms for wait_ms in waits if wait_ms is not None), default=None)

    def retry_backoff(self, error: KafkaErrorCode) -> ExponentialBackoff | None:
        """The pause before a batch that met ``error`` is sent again; None for the usual one."""
        return self._transaction.retry_backoff(error)
