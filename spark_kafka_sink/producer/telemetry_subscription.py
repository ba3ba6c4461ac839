"""Client metrics that brokers ask for (KIP-714): subscription, sources of the figures, and states.

Source: ``ClientTelemetryState``, ``ClientTelemetryUtils``.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import NamedTuple
from uuid import UUID

from spark_kafka_sink.base.clock import Clock
from spark_kafka_sink.base.errors import KafkaErrorCode, error_named
from spark_kafka_sink.base.model import PreparedTransaction
from spark_kafka_sink.network.client import NetworkClient
from spark_kafka_sink.producer.accumulator import RecordAccumulator
from spark_kafka_sink.producer.metadata import Metadata
from spark_kafka_sink.producer.metrics import TaskTotals
from spark_kafka_sink.protocol.messages.client import (
    NO_INSTANCE,
    GetTelemetrySubscriptionsResponse,
)
from spark_kafka_sink.record.compression import CODEC_IDS


class State(Enum):
    """The next request, or the one in flight."""

    SUBSCRIPTION_NEEDED = auto()
    SUBSCRIPTION_IN_PROGRESS = auto()
    PUSH_NEEDED = auto()
    PUSH_IN_PROGRESS = auto()
    TERMINATING_PUSH_NEEDED = auto()
    TERMINATING_PUSH_IN_PROGRESS = auto()
    TERMINATED = auto()


IN_PROGRESS = frozenset(
    (
        State.SUBSCRIPTION_IN_PROGRESS,
        State.PUSH_IN_PROGRESS,
        State.TERMINATING_PUSH_IN_PROGRESS,
    )
)
TERMINATING = frozenset((State.TERMINATING_PUSH_NEEDED, State.TERMINATING_PUSH_IN_PROGRESS))


class TelemetrySources(NamedTuple):
    """Sources of the figures.

    buffer_bytes: ``buffer.memory`` as allocated
    transaction: returns the current transaction
    """

    totals: TaskTotals
    client: NetworkClient
    metadata: Metadata
    accumulator: RecordAccumulator
    buffer_bytes: int
    clock: Clock
    transaction: Callable[[], PreparedTransaction | None]


DEFAULT_PUSH_INTERVAL_MS = 300_000
"""Interval if a broker names none, and after a request without a response."""

_ALL_METRICS = ["*"]
_CODECS = {codec_id: codec for codec, codec_id in CODEC_IDS.items()}
_NO_CODEC = "none"
_AT_ONCE = frozenset(map(error_named, ("UNKNOWN_SUBSCRIPTION_ID", "UNSUPPORTED_COMPRESSION_TYPE")))
_LATER = frozenset(map(error_named, ("TELEMETRY_TOO_LARGE", "THROTTLING_QUOTA_EXCEEDED")))


class Subscription(NamedTuple):
    """Subscription of a broker: which metrics to push, how often, and in which form.

    instance_id: the broker's name for this client
    prefixes: prefixes of the metrics' names; None for all metrics
    codec: as in ``compression.type``
    most_bytes: maximum compressed bytes of a push; None for no maximum
    is_delta: sums count from the last push, not from the client's beginning
    """

    instance_id: UUID
    subscription_id: int
    push_interval_ms: int
    prefixes: tuple[str, ...] | None
    codec: str
    most_bytes: int | None
    is_delta: bool

    @classmethod
    def of(cls, response: GetTelemetrySubscriptionsResponse) -> Subscription | None:
        """Return the subscription; None if the response lacks the required client instance."""
        if response.client_instance_id == NO_INSTANCE:
            return None
        requested = response.requested_metrics
        interval_ms, most_bytes = response.push_interval_ms, response.telemetry_max_bytes
        return cls(
            response.client_instance_id,
            response.subscription_id,
            interval_ms if interval_ms > 0 else DEFAULT_PUSH_INTERVAL_MS,
            None if requested == _ALL_METRICS else tuple(requested),
            _first_known(response.accepted_compression_types),
            most_bytes if most_bytes > 0 else None,
            response.delta_temporality,
        )

    @property
    def wants_any(self) -> bool:
        """Return True if any metric is requested."""
        return self.prefixes is None or bool(self.prefixes)

    def wants(self, name: str) -> bool:
        """Return True if the metric of this dotted name is requested."""
        return self.prefixes is None or name.startswith(self.prefixes)


def _first_known(codec_ids: list[int]) -> str:
    """Return the first known codec; brokers list the codecs that they accept by preference."""
    return next((_CODECS[number] for number in codec_ids if number in _CODECS), _NO_CODEC)


def pause_after(error: KafkaErrorCode, interval_ms: int) -> int | None:
    """Return after how many ms to request the subscription again; None for never.

    Never: a retry would change nothing. ``interval_ms``: push interval of the subscription.
    """
    if error in _AT_ONCE:
        return 0
    return interval_ms if error in _LATER else None
