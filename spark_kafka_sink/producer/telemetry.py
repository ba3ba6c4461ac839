"""Pushes metrics to brokers that ask for them (KIP-714): a state machine of the sender.

Telemetry begins after the first response to a produce request. It uses existing connections. A
telemetry request is sent only if a produce request could still follow it at once, or if no batch
waits. Failures of telemetry never fail a task. Most brokers lack this feature, and receive no
request.

Brokers answer the requests of a connection in order. Rows behind a telemetry request on its
connection therefore wait for its response. If rows wait, and the response takes longer than
``RESPONSE_MS`` after all earlier responses, the connection is closed. The rows then go over a new
connection.

A client instance, as brokers call it, lasts from a producer's first task until its last push, the
terminating push. The last push is sent at the end of a job's task, or when the producer is closed.
The last push is also sent after half a minute without a task, because Spark ends idle processes. A
later task begins another client instance.

Source: ``ClientTelemetryReporter``, ``NetworkClient.TelemetrySender``,
``ClientTelemetryState``, ``ClientTelemetryUtils``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import Enum, auto
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar
from uuid import UUID

from spark_kafka_sink.base.clock import Clock, RandomSource
from spark_kafka_sink.base.errors import KafkaErrorCode, coded, error_for_code, error_named
from spark_kafka_sink.base.model import Node, PreparedTransaction
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.network.client import NetworkClient
from spark_kafka_sink.network.node_connection import ClientResponse, OnComplete
from spark_kafka_sink.producer.accumulator import RecordAccumulator
from spark_kafka_sink.producer.metadata import Metadata
from spark_kafka_sink.producer.metrics import TaskTotals
from spark_kafka_sink.protocol.messages.client import (
    NO_INSTANCE,
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
    PushTelemetryRequest,
    PushTelemetryResponse,
)
from spark_kafka_sink.protocol.schema import Request
from spark_kafka_sink.record.compression import CODEC_IDS

if TYPE_CHECKING:
    from spark_kafka_sink.producer.telemetry_figures import TelemetryCollector

logger = logging.getLogger(__name__)


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
LEAST_PUSH_INTERVAL_MS = 100
"""Brokers store no smaller one. Source: ``interval.ms`` of ``ClientMetricsConfigs``."""
MOST_PREFIXES = 1_000
"""Producers have some hundred metrics, and a broker may request each by its name."""

_ALL_METRICS = ["*"]
_CODECS = {codec_id: codec for codec, codec_id in CODEC_IDS.items()}
_NO_CODEC = "none"
_AT_ONCE = frozenset(map(error_named, ("UNKNOWN_SUBSCRIPTION_ID", "UNSUPPORTED_COMPRESSION_TYPE")))
_LATER = frozenset(map(error_named, ("TELEMETRY_TOO_LARGE", "THROTTLING_QUOTA_EXCEEDED")))


class Subscription(NamedTuple):
    """Subscription of a broker: which metrics to push, how often, and in which form.

    instance_id: the broker's name for this client
    prefixes: prefixes of the metrics' names; None for all metrics, as if more than
        ``MOST_PREFIXES`` are requested
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
        wants_all = requested == _ALL_METRICS or len(requested) > MOST_PREFIXES
        interval_ms, most_bytes = response.push_interval_ms, response.telemetry_max_bytes
        interval_ms = interval_ms if interval_ms > 0 else DEFAULT_PUSH_INTERVAL_MS
        return cls(
            response.client_instance_id,
            response.subscription_id,
            max(interval_ms, LEAST_PUSH_INTERVAL_MS),
            None if wants_all else tuple(requested),
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


MAX_IDLE_MS = 30_000
"""Idle time before the last push: Spark ends a Python worker that was idle for a minute."""
CLOSE_TIMEOUT_MS = 500
"""Time limit of closing for the response to a push in flight and for the last push."""
RESPONSE_MS = 5_000
"""Time limit of rows for a telemetry response, from the last earlier response on."""

_NONE = error_named("NONE")
_LEAST_JITTER, _JITTER = 0.5, 1.0
_RECHECK_MS = 1_000


_T = TypeVar("_T")

_warned: set[str] = set()
"""Warnings that this process has logged: its many tasks and producers would repeat them."""


class Telemetry:
    """Telemetry of one producer. Used by the sender, except what is marked for the task thread."""

    def __init__(
        self, sources: TelemetrySources, config: ProducerConfig, rng: RandomSource
    ) -> None:
        self._sources = sources
        self._client = sources.client
        self._rack = config.client_rack
        self._max_in_flight = config.max_in_flight_requests_per_connection
        self._clock = sources.clock
        self._rng = rng
        self.state = State.SUBSCRIPTION_NEEDED
        self.subscription: Subscription | None = None
        self._is_enabled = True
        self._has_begun = False
        self._due_ms = 0
        self._node: Node | None = None
        self._request_in_flight: Request | None = None
        self._response_deadline_ms: int | None = None
        self._paused_until_ms = 0
        self._figures: TelemetryCollector | None = None
        self._task_began_at_ms = sources.clock.timestamp_ms()
        self._idle_until_ms: int | None = None

    # --- for the task thread -------------------------------------------------------------------

    def begin_task(self) -> None:
        """Keep the counters, because they are about to be reset. The caller holds the monitor."""
        if self._figures is not None:
            self._call_or_disable(self._figures.end_task)
        self._task_began_at_ms = self._clock.timestamp_ms()
        self._idle_until_ms = None

    def mark_idle(self, max_idle_ms: int = MAX_IDLE_MS) -> None:
        """Record that no task uses the producer until ``begin_task``.

        max_idle_ms: length of the idle time before the last push. The first call counts
        """
        if self._idle_until_ms is None:
            self._idle_until_ms = self._clock.now_ms() + max_idle_ms

    @property
    def may_request(self) -> bool:
        """Return True unless brokers do not offer telemetry, or ask for no metrics now."""
        is_paused = self.state is State.SUBSCRIPTION_NEEDED and self._clock.now_ms() < self._due_ms
        return self._is_enabled and not is_paused

    # --- for the sender ------------------------------------------------------------------------

    def maybe_request(self, now_ms: int) -> int | None:
        """Send a request if one is due and has room; return after how many ms to call again."""
        return self._call_or_disable(self._advance, now_ms)

    def _advance(self, now_ms: int) -> int | None:
        if not self._is_enabled or not self._may_begin():
            return None
        if self.state in IN_PROGRESS:
            return self._await_response(now_ms)
        idle_until_ms = self._idle_until_ms
        if self.state is State.TERMINATED:
            if idle_until_ms is not None:
                return None
            self._begin_new_instance()
            return 0
        if (
            idle_until_ms is not None
            and now_ms >= idle_until_ms
            and not self._must_subscribe(now_ms)
        ):
            self._begin_terminating_push()
        if self.state in (State.SUBSCRIPTION_NEEDED, State.PUSH_NEEDED) and now_ms < self._due_ms:
            due_ms = self._due_ms if idle_until_ms is None else min(self._due_ms, idle_until_ms)
            return due_ms - now_ms
        return self._request(now_ms)

    def finish(self) -> None:
        """Send the last push if brokers wait for one, because the producer is being closed.

        Waits for its response, and first for the response to a push in flight, so that nothing is
        pushed twice. Waits at most ``CLOSE_TIMEOUT_MS``, and not at all without a connection.
        """
        until_ms = self._clock.now_ms() + CLOSE_TIMEOUT_MS
        nodes = self._sources.metadata.snapshot.nodes.values()
        while self._is_enabled:
            now_ms = self._clock.now_ms()
            if self.state is not State.PUSH_IN_PROGRESS:
                self._begin_terminating_push()
            is_done = self.state is State.TERMINATED or now_ms >= until_ms
            if is_done or not self._client.is_any_connected(nodes):
                break
            if self.state is State.TERMINATING_PUSH_NEEDED:
                self._call_or_disable(self._request, now_ms, True)
            if self._is_enabled:
                self._client.poll(until_ms - now_ms, now_ms)
        self._is_enabled = False

    def _may_begin(self) -> bool:
        """Return True after the first produce response, which must not wait for telemetry."""
        if not self._has_begun:
            metrics = self._sources.totals.metrics
            is_sent = metrics.requests > 0 and not self._sources.accumulator.incomplete_count
            self._has_begun = metrics.responses > 0 or is_sent  # with acks=0 there is no response
        return self._has_begun

    def _must_subscribe(self, now_ms: int) -> bool:
        """Return True if the first subscription request is due, as after a short task."""
        return self.subscription is None and now_ms >= self._due_ms

    def _begin_new_instance(self) -> None:
        """Begin another client instance, because brokers accept nothing after the last push."""
        with self._sources.accumulator.monitor:
            self.state = State.SUBSCRIPTION_NEEDED
            self.subscription = self._figures = None
            self._has_begun = False
            self._due_ms = self._paused_until_ms

    def _begin_terminating_push(self) -> None:
        if self.state is State.PUSH_NEEDED:
            self.state = State.TERMINATING_PUSH_NEEDED
        elif self.state not in TERMINATING:
            self.state = State.TERMINATED

    def _request(self, now_ms: int, is_closing: bool = False) -> int | None:
        """Send the request that the state needs."""
        if self.state is State.TERMINATED:
            return None
        node = self._node_with_room(now_ms, is_closing)
        if node is None:
            nodes = self._sources.metadata.snapshot.nodes.values()
            return _RECHECK_MS if self._client.is_any_connected(nodes) else None
        if not self._supports_telemetry(node):
            # Another broker may offer telemetry later: a newer version, or a broker with a plugin.
            self._pause(DEFAULT_PUSH_INTERVAL_MS, now_ms)
        elif self.state is State.SUBSCRIPTION_NEEDED:
            instance_id = (
                NO_INSTANCE if self.subscription is None else self.subscription.instance_id
            )
            request = GetTelemetrySubscriptionsRequest(instance_id)
            self._send(node, request, self._complete_subscription, now_ms)
            self.state = State.SUBSCRIPTION_IN_PROGRESS
        else:
            self._push(node, now_ms)
        return None

    def _node_with_room(self, now_ms: int, is_closing: bool) -> Node | None:
        """Return a ready node with room: the one used last, or else the least busy one."""
        nodes = self._sources.metadata.snapshot.nodes
        places = self._max_in_flight - 1
        if is_closing or not self._sources.accumulator.incomplete_count:
            places = self._max_in_flight

        def rank(node: Node) -> tuple[bool, int, float]:
            in_flight = self._client.in_flight_count(node)
            return node != self._node, in_flight, self._rng.random()

        for node in sorted(nodes.values(), key=rank):
            has_room = self._client.in_flight_count(node) < places
            if has_room and self._client.is_ready(node, now_ms):
                return node
        return None

    def _supports_telemetry(self, node: Node) -> bool:
        versions = self._client.api_versions(node)
        return versions is not None and all(
            versions.supports(request)
            for request in (GetTelemetrySubscriptionsRequest, PushTelemetryRequest)
        )

    def _send(self, node: Node, request: Request, on_complete: OnComplete, now_ms: int) -> None:
        self._node = node
        self._request_in_flight, self._response_deadline_ms = request, None
        self._client.send(node, request, now_ms, partial(self._call_or_disable, on_complete))

    def _await_response(self, now_ms: int) -> int | None:
        """Close the connection if rows, or requests for them, wait too long behind a request."""
        node, request = self._node, self._request_in_flight
        if node is None or request is None or not self._client.is_oldest(node, request):
            return None
        if self._response_deadline_ms is None:
            self._response_deadline_ms = now_ms + RESPONSE_MS
        is_awaited = self._client.in_flight_count(node) > 1  # a task waits for metadata
        if not is_awaited and not self._sources.accumulator.incomplete_count:
            return None
        if now_ms < self._response_deadline_ms:
            return self._response_deadline_ms - now_ms
        self._node = None
        self._paused_until_ms = now_ms + DEFAULT_PUSH_INTERVAL_MS
        why = f"no answer within {RESPONSE_MS} ms about this producer's metrics"
        text = "%s: %s (kafka.enable.metrics.push); rows go over a new connection"
        _warn("METRICS-010", text, node, why)
        self._client.disconnect(node, why)
        return 0

    def _pause(self, pause_ms: int, now_ms: int) -> None:
        self.state = State.SUBSCRIPTION_NEEDED
        self._due_ms = now_ms + pause_ms

    # --- subscription --------------------------------------------------------------------------

    def _complete_subscription(self, result: ClientResponse, now_ms: int) -> None:
        response = result.response
        if not isinstance(response, GetTelemetrySubscriptionsResponse):
            self._pause(DEFAULT_PUSH_INTERVAL_MS, now_ms)
        elif response.error_code:
            # If the request itself is the cause, a retry at once would repeat for ever.
            self._handle_error(result.node, response.error_code, now_ms, self._interval_ms)
        else:
            self._subscribe(result.node, Subscription.of(response), now_ms)

    @property
    def _interval_ms(self) -> int:
        known = self.subscription
        return DEFAULT_PUSH_INTERVAL_MS if known is None else known.push_interval_ms

    def _subscribe(self, node: Node, subscription: Subscription | None, now_ms: int) -> None:
        if subscription is None:
            self._disable(f"{node} gave this client no instance id")
            return
        if subscription.wants_any:
            logger.debug(
                "brokers ask for this producer's metrics every %s ms (kafka.enable.metrics.push), "
                "as client instance %s",
                subscription.push_interval_ms,
                subscription.instance_id,
            )
        self.subscription = subscription
        self._pause(subscription.push_interval_ms, now_ms)
        if subscription.wants_any:
            self.state = State.PUSH_NEEDED
            # Clients that begin together would all push together.
            jitter = _LEAST_JITTER + _JITTER * self._rng.random()
            self._due_ms = now_ms + round(jitter * subscription.push_interval_ms)
            self._record_metrics()

    def _record_metrics(self) -> None:
        """Record figures from the beginning of the task on."""
        # Imported only if brokers want figures.
        from spark_kafka_sink.producer.telemetry_figures import TelemetryCollector

        with self._sources.accumulator.monitor:
            if self._figures is None:
                self._figures = TelemetryCollector(self._sources, self._task_began_at_ms)

    # --- push ----------------------------------------------------------------------------------

    def _push(self, node: Node, now_ms: int) -> None:
        is_last = self.state is State.TERMINATING_PUSH_NEEDED
        assert self.subscription is not None
        request = self._push_request(self.subscription, is_last)
        if request is None:
            self._pause(self._interval_ms, now_ms)
            return
        self._send(node, request, self._complete_push, now_ms)
        self.state = State.TERMINATING_PUSH_IN_PROGRESS if is_last else State.PUSH_IN_PROGRESS

    def _push_request(
        self, subscription: Subscription, is_last: bool
    ) -> PushTelemetryRequest | None:
        """Return None if even the metrics without nodes and topics are too large."""
        from spark_kafka_sink.producer.telemetry_figures import packed

        figures = self._figures
        assert figures is not None
        with self._sources.accumulator.monitor:
            payloads = figures.collect(subscription, self._rack)
        metrics = packed(payloads, subscription)
        if metrics is None:
            return None
        return PushTelemetryRequest(
            subscription.instance_id,
            subscription.subscription_id,
            is_last,
            metrics.codec_id,
            metrics.data,
        )

    def _complete_push(self, result: ClientResponse, now_ms: int) -> None:
        if self.state is State.TERMINATING_PUSH_IN_PROGRESS:
            self.state = State.TERMINATED
        if self.state is not State.PUSH_IN_PROGRESS or self._figures is None:
            return
        response = result.response
        if not isinstance(response, PushTelemetryResponse):
            self._figures.mark_pushed()  # the broker may have received the figures
            self._pause(DEFAULT_PUSH_INTERVAL_MS, now_ms)
        elif response.error_code:
            self._handle_error(result.node, response.error_code, now_ms)
        else:
            self._figures.mark_pushed()
            self.state = State.PUSH_NEEDED
            self._due_ms = now_ms + self._interval_ms

    # --- errors --------------------------------------------------------------------------------

    def _handle_error(self, node: Node, error_code: int, now_ms: int, least_ms: int = 0) -> None:
        """Request the subscription again, after at least ``least_ms``, or disable telemetry."""
        error = error_for_code(error_code)
        pause_ms = pause_after(error, self._interval_ms)
        if pause_ms is None:
            self._disable(f"{node}: {error}")
        else:
            self._pause(max(pause_ms, least_ms), now_ms)

    def _disable(self, why: str) -> None:
        self._is_enabled = False
        _warn(
            "METRICS-011",
            "this producer's metrics are not pushed to brokers any more "
            "(kafka.enable.metrics.push): %s",
            why,
        )

    def _call_or_disable(self, step: Callable[..., _T], *args: object) -> _T | None:
        """Call ``step``. If it fails, disable telemetry, because a task must not fail for it."""
        try:
            return step(*args)
        except Exception:
            self._is_enabled = False
            _warn(
                "METRICS-009", "this producer's metrics cannot be pushed to brokers", exc_info=True
            )
            return None


def _warn(code: str, message: str, *args: object, exc_info: bool = False) -> None:
    """Log each ``message`` as a warning once per process."""
    level = logging.DEBUG if message in _warned else logging.WARNING
    _warned.add(message)
    logger.log(level, "%s", coded(message % args, code), exc_info=exc_info)
