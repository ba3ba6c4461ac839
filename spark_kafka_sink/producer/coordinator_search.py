"""Which broker coordinates a transactional id: found, connected, and found again when it has moved.

Source: ``TransactionManager.FindCoordinatorHandler``; KIP-98, KIP-699.
"""

from __future__ import annotations

from typing import NamedTuple

from spark_kafka_sink.base.errors import KafkaErrorCode, error_named
from spark_kafka_sink.base.model import Node
from spark_kafka_sink.client.coordinators import Verdict, find_requests, found_in
from spark_kafka_sink.network.client import NetworkClient
from spark_kafka_sink.network.node_connection import ClientResponse
from spark_kafka_sink.producer.metadata import Metadata
from spark_kafka_sink.producer.repeated_request import CONNECTING_RECHECK_MS, RepeatedRequest
from spark_kafka_sink.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

_NONE = error_named("NONE")


class Step(NamedTuple):
    """The coordinator, if it can be asked now; else after how long to look again."""

    coordinator: Node | None
    wait_ms: int | None


class CoordinatorSearch:
    """The coordinator of ``transactional_id``; asks under the monitor, with ``asking``.

    expected: who has coordinated it a moment ago, as far as anybody has told
    """

    def __init__(
        self,
        transactional_id: str,
        client: NetworkClient,
        metadata: Metadata,
        asking: RepeatedRequest,
        expected: Node | None = None,
    ) -> None:
        self.subject = f"transaction {transactional_id}"
        self._transactional_id = transactional_id
        self._client = client
        self._metadata = metadata
        self._asking = asking
        self._coordinator = expected

    def step(self, now_ms: int) -> Step:
        """Find it, or connect to it. To be called while no request is under way."""
        if self._coordinator is None:
            return Step(None, self._find(now_ms))
        if not self._client.ready(self._coordinator, now_ms):
            return Step(None, self._await_connection(self._coordinator, now_ms))
        return Step(self._coordinator, None)

    def lose(self, coordinator: Node, reason: str | None, now_ms: int) -> None:
        """It cannot be reached: a broker that is down does not coordinate for long."""
        self._coordinator = None
        failure = f"{self.subject}: the coordinator, {coordinator}, cannot be reached: {reason}"
        self._asking.retry(failure, now_ms)

    def distrust(self, coordinator: Node, reason: str, now_ms: int) -> None:
        """It is the coordinator of the past: find the present one, after a pause."""
        self._coordinator = None
        self._asking.retry(
            f"{self.subject}: {coordinator} does not coordinate it: {reason}", now_ms
        )

    def refused(self, what: str, error: KafkaErrorCode, detail: str | None, now_ms: int) -> None:
        """An answer that is an error: again after a pause, or never."""
        if self._asking.refused(what, error, detail, now_ms) is Verdict.FIND_AGAIN:
            self._coordinator = None

    def _find(self, now_ms: int) -> int | None:
        node = self._client.least_loaded_node(self._metadata.snapshot.nodes.values(), now_ms)
        if node is None or not self._client.ready(node, now_ms):
            return CONNECTING_RECHECK_MS
        versions = self._client.api_versions(node)
        assert versions is not None, "the node is ready"
        (request,) = find_requests([self._transactional_id], versions)
        self._asking.send(node, request, self._complete_find, now_ms)
        return None

    def _complete_find(self, result: ClientResponse, now_ms: int) -> None:
        self._asking.is_in_progress = False
        what = f"{self.subject}: no coordinator found"
        if not isinstance(result.response, FindCoordinatorResponse):
            self._asking.retry(f"{what}: {result.node}: {result.failure}", now_ms)
            return
        assert isinstance(result.request, FindCoordinatorRequest)
        (found,) = found_in(result.request, result.response)
        if found.error is _NONE:
            self._coordinator = found.coordinator
        else:
            self.refused(f"{what} by {result.node}", found.error, found.detail, now_ms)

    def _await_connection(self, coordinator: Node, now_ms: int) -> int | None:
        """Wait for its connection; where there is none to be had, ask again who coordinates."""
        delay_ms = self._client.poll_delay_ms(coordinator, now_ms)
        if delay_ms is None or self._client.api_versions(coordinator) is not None:
            return delay_ms
        self.lose(coordinator, self._client.last_failure(coordinator), now_ms)
        return self._asking.pause_ms(now_ms)
