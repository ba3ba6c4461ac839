"""A request that the sender repeats, with pauses, for as long as its errors may pass.

Source: ``TransactionManager.TxnRequestHandler``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from spark_kafka_sink.base.backoff import ExponentialBackoff
from spark_kafka_sink.base.errors import BrokerError, KafkaErrorCode, UnsupportedVersionError
from spark_kafka_sink.base.model import Node
from spark_kafka_sink.client.coordinators import Verdict, verdict_on
from spark_kafka_sink.network.client import NetworkClient
from spark_kafka_sink.network.node_connection import OnComplete
from spark_kafka_sink.protocol.schema import Request

CONNECTING_RECHECK_MS = 1_000
"""When to look again at a connection that is being made; its end wakes the sender before."""


class Backoffs(NamedTuple):
    """Pauses after errors in general, and while a previous transaction is being ended."""

    retry: ExponentialBackoff
    concurrent: ExponentialBackoff


class RepeatedRequest:
    """At most one request under way, and the pause before the next.

    last_failure: why the last one did not succeed
    failure: an error that does not pass; whoever sees it asks no more
    advice_for: what a user can do about such an error
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
        """How long the pause still is, 0 if there is none."""
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
        """The request has succeeded: the next pause is a short one."""
        self.last_failure = None
        self._failures = self._conflicts = 0

    def retry(self, failure: str, now_ms: int) -> None:
        """Again after a pause, each longer than the one before."""
        self._pause(failure, self._backoffs.retry.backoff_ms(self._failures), now_ms)
        self._failures += 1

    def refused(self, what: str, error: KafkaErrorCode, detail: str | None, now_ms: int) -> Verdict:
        """An answer that is an error: again after a pause, or never."""
        verdict = verdict_on(error)
        if verdict is Verdict.FATAL:
            self.failure = BrokerError(error, what, detail, self._advice_for(error))
        elif verdict is Verdict.RETRY_SOON:
            pause_ms = self._backoffs.concurrent.backoff_ms(self._conflicts)
            self._conflicts += 1
            self._pause(f"{what}: {error}", pause_ms, now_ms)
        else:
            self.retry(f"{what}: {error}", now_ms)
        return verdict

    def _pause(self, failure: str, pause_ms: int, now_ms: int) -> None:
        self.last_failure = failure
        self._retry_at_ms = now_ms + pause_ms
