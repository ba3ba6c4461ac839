"""Gets a producer id from the cluster.

Source: ``TransactionManager.InitProducerIdHandler``.
"""

from __future__ import annotations

from collections.abc import Callable

from spark_kafka_sink.base.backoff import ExponentialBackoff
from spark_kafka_sink.base.errors import (
    BrokerError,
    KafkaErrorCode,
    UnsupportedVersionError,
    error_for_code,
)
from spark_kafka_sink.base.model import ProducerIdAndEpoch
from spark_kafka_sink.network.client import NetworkClient
from spark_kafka_sink.network.node_connection import ClientResponse
from spark_kafka_sink.producer.metadata import Metadata
from spark_kafka_sink.producer.sequences import ProducerState
from spark_kafka_sink.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)

_INT_MAX = 2**31 - 1
_CONNECTING_RECHECK_MS = 1000


class ProducerIdRequester:
    """Asks any broker for a producer id while the state has none.

    ``is_wanted``: whether to ask before there is something to send.
    """

    def __init__(
        self,
        client: NetworkClient,
        metadata: Metadata,
        state: ProducerState,
        retry_backoff: ExponentialBackoff,
        fail: Callable[[Exception], None],
        is_wanted: Callable[[], bool] = lambda: True,
    ) -> None:
        self._client = client
        self._metadata = metadata
        self.state = state
        self._retry_backoff = retry_backoff
        self._fail = fail
        self._is_wanted = is_wanted
        self._is_in_progress = False
        self._failed_attempts = 0
        self._retry_at_ms = 0
        self.last_failure: str | None = None

    def maybe_request(self, now_ms: int) -> int | None:
        """Send a request if one is needed; returns after how long to call again."""
        if self.state.has_producer_id or self._is_in_progress or not self._is_wanted():
            return None
        if now_ms < self._retry_at_ms:
            return self._retry_at_ms - now_ms
        node = self._client.least_loaded_node(self._metadata.snapshot.nodes.values(), now_ms)
        if node is None or not self._client.ready(node, now_ms):
            return _CONNECTING_RECHECK_MS
        request = InitProducerIdRequest(transaction_timeout_ms=_INT_MAX)
        try:
            self._client.send(node, request, now_ms, self._complete)
        except UnsupportedVersionError as error:
            self._fail(error)
        else:
            self._is_in_progress = True
        return None

    def retry_backoff(self, error: KafkaErrorCode) -> ExponentialBackoff | None:
        """Nothing special."""
        return None

    def _complete(self, result: ClientResponse, now_ms: int) -> None:
        self._is_in_progress = False
        response = result.response
        if not isinstance(response, InitProducerIdResponse):
            self._retry(f"no producer id from {result.node}: {result.failure}", now_ms)
            return
        error = error_for_code(response.error_code)
        if response.error_code == 0:
            self.last_failure = None
            self._failed_attempts = 0
            identity = ProducerIdAndEpoch(response.producer_id, response.producer_epoch)
            self.state.set_producer(identity)
        elif error.retriable:
            self._retry(f"no producer id from {result.node}: {error}", now_ms)
        else:
            self._fail(BrokerError(error, f"no producer id from {result.node}"))

    def _retry(self, failure: str, now_ms: int) -> None:
        self.last_failure = failure
        self._retry_at_ms = now_ms + self._retry_backoff.backoff_ms(self._failed_attempts)
        self._failed_attempts += 1
