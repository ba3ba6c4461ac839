"""Gets a producer id from the cluster.

Source: ``TransactionManager.InitProducerIdHandler``.
"""

from __future__ import annotations

from collections.abc import Callable

from spark_kafka_sink.base.backoff import ExponentialBackoff
from spark_kafka_sink.base.errors import KafkaErrorCode, error_for_code
from spark_kafka_sink.base.model import ProducerIdAndEpoch
from spark_kafka_sink.network.client import NetworkClient
from spark_kafka_sink.network.node_connection import ClientResponse
from spark_kafka_sink.producer.metadata import Metadata
from spark_kafka_sink.producer.repeated_request import CONNECTING_RECHECK_MS, RepeatedRequest
from spark_kafka_sink.producer.sequences import ProducerState
from spark_kafka_sink.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)

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
