"""Asks the cluster for metadata whenever :class:`Metadata` says that it is due.

Source: ``NetworkClient.DefaultMetadataUpdater``.
"""

from __future__ import annotations

from spark_kafka_sink.base.errors import UnsupportedVersionError, error_for_code
from spark_kafka_sink.base.model import Node
from spark_kafka_sink.network.client import NetworkClient
from spark_kafka_sink.network.node_connection import ClientResponse
from spark_kafka_sink.producer.metadata import Metadata
from spark_kafka_sink.producer.monitor import Monitor
from spark_kafka_sink.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)

_CONNECTING_RECHECK_MS = 1000
_RELIABLE_EPOCHS_VERSION = 9


class MetadataUpdater:
    """Keeps at most one metadata request under way."""

    def __init__(
        self,
        metadata: Metadata,
        client: NetworkClient,
        monitor: Monitor,
        allow_auto_topic_creation: bool,
    ) -> None:
        self._allow_auto_topic_creation = allow_auto_topic_creation
        self._metadata = metadata
        self._client = client
        self._monitor = monitor
        self._is_in_progress = False
        self._has_epochs = True
        self.last_failure: str | None = None

    def maybe_update(self, now_ms: int) -> int:
        """Send a request if one is due and possible; returns after how long to call again."""
        if self._is_in_progress:
            return _CONNECTING_RECHECK_MS
        wait_ms = self._metadata.time_to_next_update_ms(now_ms)
        if wait_ms > 0:
            return wait_ms
        nodes = self._metadata.candidate_nodes(now_ms)
        node = self._client.least_loaded_node(nodes, now_ms)
        if node is None and self._client.is_any_connected(nodes):
            return max(self._until_usable_ms(nodes, now_ms), 1)
        if node is None:
            self._note_unreachable(nodes, now_ms)
            return max(self._until_usable_ms(nodes, now_ms), 1)
        if not self._client.ready(node, now_ms):
            reason = self._client.why_not_ready(node)
            if reason is not None and self.last_failure is None:
                self.last_failure = f"{node}: {reason}"
            return _CONNECTING_RECHECK_MS
        self._send(node, now_ms)
        return _CONNECTING_RECHECK_MS

    def _note_unreachable(self, nodes: list[Node], now_ms: int) -> None:
        """Every candidate is backing off: say why, wait, and ask the bootstrap addresses next."""
        self._metadata.rebootstrap()
        reasons = [f"{node.address} ({self._client.last_failure(node)})" for node in nodes]
        self.last_failure = f"no broker reachable: {', '.join(reasons)}"
        self._metadata.failed_update(now_ms)

    def _until_usable_ms(self, nodes: list[Node], now_ms: int) -> int:
        """After how long the pause of the first of ``nodes`` ends, a back-off or a throttling."""
        delays = (self._client.poll_delay_ms(node, now_ms) for node in nodes)
        return min((d for d in delays if d is not None), default=_CONNECTING_RECHECK_MS)

    def _send(self, node: Node, now_ms: int) -> None:
        with self._monitor:
            topics = [MetadataRequestTopic(name=name) for name in self._metadata.begin_update()]
        request = MetadataRequest(topics, self._allow_auto_topic_creation)
        try:
            self._client.send(node, request, now_ms, self._complete)
        except UnsupportedVersionError as error:
            self.last_failure = str(error)
            self._metadata.failed_update(now_ms)
        else:
            self._is_in_progress = True
            versions = self._client.api_versions(node)
            assert versions is not None, "a request was just sent"
            # Brokers before 2.4 may answer with epochs that are not the current ones (KAFKA-9212).
            self._has_epochs = versions.highest(MetadataRequest) >= _RELIABLE_EPOCHS_VERSION

    def _complete(self, result: ClientResponse, now_ms: int) -> None:
        self._is_in_progress = False
        with self._monitor:
            if not isinstance(result.response, MetadataResponse):
                self.last_failure = f"{result.node}: {result.failure}"
                self._metadata.failed_update(now_ms)
            elif result.response.error_code:
                if error_for_code(result.response.error_code).name == "REBOOTSTRAP_REQUIRED":
                    self._metadata.rebootstrap()
                self.last_failure = f"{result.node}: {error_for_code(result.response.error_code)}"
                self._metadata.failed_update(now_ms)
            elif not result.response.brokers:
                # A broker that is still starting knows of nobody, itself included.
                self.last_failure = f"{result.node}: knows of no brokers yet"
                self._metadata.failed_update(now_ms)
            else:
                self.last_failure = None
                self._metadata.update(result.response, now_ms, self._has_epochs)
            self._monitor.notify_all()
