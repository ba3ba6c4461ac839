"""The connection to one node: its state, its addresses, its back-off, its requests in flight.

The states are a table, ``TRANSITIONS``. What comes between CONNECTING and CHECKING_API_VERSIONS in
a secured connection, a TLS handshake and authentication, would be further rows of it.

Source: ``ClusterConnectionStates``, ``InFlightRequests``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import NamedTuple

from spark_kafka_sink.base.errors import LocalProtocolError
from spark_kafka_sink.base.model import Node
from spark_kafka_sink.network.interface import Address
from spark_kafka_sink.protocol.api import BrokerApiVersions
from spark_kafka_sink.protocol.connection import Connection, SentRequest
from spark_kafka_sink.protocol.schema import Message, Request

NO_CHANNEL = -1


class ConnectionState(Enum):
    """In which state a connection is. Only READY takes a request."""

    DISCONNECTED = auto()
    BACKING_OFF = auto()
    RESOLVING = auto()
    CONNECTING = auto()
    CHECKING_API_VERSIONS = auto()
    READY = auto()
    SENDING = auto()
    THROTTLED = auto()
    SENDING_THROTTLED = auto()


class ConnectionEvent(Enum):
    """What happens to a connection."""

    RESOLVE = auto()
    CONNECT = auto()
    CONNECTED = auto()
    VERSIONS_TOLD = auto()
    SEND = auto()
    SENT = auto()
    THROTTLE = auto()
    PAUSE_OVER = auto()
    FAIL = auto()
    CLOSE = auto()


class Transition(NamedTuple):
    """In ``state`` ``event`` leads to ``next_state``, because of ``reason``."""

    state: ConnectionState
    event: ConnectionEvent
    next_state: ConnectionState
    reason: str


_S, _E = ConnectionState, ConnectionEvent
TRANSITIONS = (
    Transition(_S.DISCONNECTED, _E.RESOLVE, _S.RESOLVING, "no address is left to be tried"),
    Transition(_S.DISCONNECTED, _E.CONNECT, _S.CONNECTING, "another address of the same name"),
    Transition(
        _S.BACKING_OFF, _E.PAUSE_OVER, _S.DISCONNECTED, "the pause after a failed attempt is over"
    ),
    Transition(_S.RESOLVING, _E.CONNECT, _S.CONNECTING, "the first address of the name"),
    Transition(_S.RESOLVING, _E.FAIL, _S.BACKING_OFF, "the host name has no address"),
    Transition(_S.CONNECTING, _E.CONNECTED, _S.CHECKING_API_VERSIONS, "the versions come first"),
    Transition(_S.CONNECTING, _E.FAIL, _S.BACKING_OFF, "refused, unreachable or too slow"),
    Transition(_S.CHECKING_API_VERSIONS, _E.SENT, _S.CHECKING_API_VERSIONS, "its own request"),
    Transition(_S.CHECKING_API_VERSIONS, _E.VERSIONS_TOLD, _S.READY, "any request may follow"),
    Transition(_S.CHECKING_API_VERSIONS, _E.FAIL, _S.BACKING_OFF, "no answer, or a useless one"),
    Transition(_S.READY, _E.SEND, _S.SENDING, "one request is written at a time"),
    Transition(_S.READY, _E.THROTTLE, _S.THROTTLED, "an answer asks for a pause"),
    Transition(_S.READY, _E.FAIL, _S.BACKING_OFF, "the connection is lost"),
    Transition(_S.READY, _E.CLOSE, _S.DISCONNECTED, "idle: nothing went wrong, so no back-off"),
    Transition(_S.SENDING, _E.SENT, _S.READY, "the operating system has the whole request"),
    Transition(_S.SENDING, _E.THROTTLE, _S.SENDING_THROTTLED, "an earlier request's answer"),
    Transition(_S.SENDING, _E.FAIL, _S.BACKING_OFF, "the connection is lost"),
    Transition(_S.SENDING_THROTTLED, _E.SENT, _S.THROTTLED, "the pause still lasts"),
    Transition(_S.SENDING_THROTTLED, _E.THROTTLE, _S.SENDING_THROTTLED, "the longer pause counts"),
    Transition(_S.SENDING_THROTTLED, _E.PAUSE_OVER, _S.SENDING, "the request is still written"),
    Transition(_S.SENDING_THROTTLED, _E.FAIL, _S.BACKING_OFF, "the connection is lost"),
    Transition(_S.THROTTLED, _E.THROTTLE, _S.THROTTLED, "the longer pause counts"),
    Transition(_S.THROTTLED, _E.PAUSE_OVER, _S.READY, "throttle_time_ms is over (KIP-219)"),
    Transition(_S.THROTTLED, _E.FAIL, _S.BACKING_OFF, "the connection is lost"),
    Transition(_S.THROTTLED, _E.CLOSE, _S.DISCONNECTED, "idle: nothing went wrong, so no back-off"),
)
_NEXT = {(state, event): next_state for state, event, next_state, _ in TRANSITIONS}

_PREPARING = frozenset({_S.RESOLVING, _S.CONNECTING, _S.CHECKING_API_VERSIONS})
_PAUSING = frozenset(t.state for t in TRANSITIONS if t.event is _E.PAUSE_OVER)
_WITHOUT_CHANNEL = frozenset({_S.DISCONNECTED, _S.BACKING_OFF})


class ClientResponse(NamedTuple):
    """What became of a request. One of ``response`` and ``failure`` is None, or both for a
    request without response (acks=0) that was sent.

    ``failure``: why the connection was lost before the answer. ``is_timeout``: because the
    request took longer than its timeout.
    """

    node: Node
    request: Request
    response: Message | None
    failure: str | None
    is_timeout: bool
    latency_ms: int


OnComplete = Callable[[ClientResponse, int], None]
"""Called with the response and the time in milliseconds."""


class InFlightRequest(NamedTuple):
    """A request that was given to the connection and has no answer yet."""

    sent: SentRequest
    expect_response: bool
    sent_at_ms: int
    deadline_ms: int
    on_complete: OnComplete | None


@dataclass(slots=True)
class NodeConnection:
    """State of the connection to ``node``; a node that was never tried is DISCONNECTED.

    failed_attempts: how often in a row it did not become ready
    failed_connects: how often in a row there was no answer at the address. Only these make the next
        attempt's timeout longer; a connection that was lost later says nothing about it
    resume_at_ms: when a state that is a pause, BACKING_OFF or a throttled one, ends
    """

    node: Node
    state: ConnectionState = ConnectionState.DISCONNECTED
    channel_id: int = NO_CHANNEL
    protocol: Connection | None = None
    api_versions: BrokerApiVersions | None = None
    in_flight: deque[InFlightRequest] = field(default_factory=deque)
    addresses: list[Address] = field(default_factory=list)
    failed_attempts: int = 0
    failed_connects: int = 0
    connect_started_ms: int = 0
    connect_deadline_ms: int = 0
    last_used_ms: int = 0
    resume_at_ms: int = 0
    last_failure: str | None = None

    @property
    def is_connected(self) -> bool:
        """Whether requests can be sent, now or after those before them or a pause."""
        return self.state not in _PREPARING and self.state not in _WITHOUT_CHANNEL

    @property
    def is_connecting(self) -> bool:
        return self.state in _PREPARING

    @property
    def has_channel(self) -> bool:
        return self.state not in _WITHOUT_CHANNEL

    def change(self, event: ConnectionEvent) -> None:
        """Go to the state that follows ``event``.

        Raises LocalProtocolError where nothing follows: this side made a mistake.
        """
        next_state = _NEXT.get((self.state, event))
        if next_state is None:
            raise LocalProtocolError(f"{self.node}: {event.name} while {self.state.name}")
        self.state = next_state

    def throttle(self, until_ms: int) -> None:
        """Send nothing before ``until_ms``."""
        self.change(ConnectionEvent.THROTTLE)
        self.resume_at_ms = max(self.resume_at_ms, until_ms)

    def fail(self, reason: str, retry_at_ms: int) -> None:
        """The connection is lost or does not come about: not again before ``retry_at_ms``."""
        was_connecting = self.state is ConnectionState.CONNECTING
        self.failed_connects = self.failed_connects + 1 if was_connecting else 0
        self.failed_attempts += 1
        self._forget_channel(ConnectionEvent.FAIL)
        self.last_failure = reason
        self.resume_at_ms = retry_at_ms

    def close(self) -> None:
        """The connection is closed although nothing is wrong with it."""
        self._forget_channel(ConnectionEvent.CLOSE)

    def can_connect(self, now_ms: int) -> bool:
        self._end_pause(now_ms)
        return self.state is ConnectionState.DISCONNECTED

    def can_send(self, now_ms: int, max_in_flight: int) -> bool:
        """One request is written at a time, and at most ``max_in_flight`` wait for an answer."""
        self._end_pause(now_ms)
        return self.state is ConnectionState.READY and len(self.in_flight) < max_in_flight

    def poll_delay_ms(self, now_ms: int) -> int | None:
        """After how many ms a pause ends; 0: it can be connected to; None: there is no pause."""
        if self.can_connect(now_ms):
            return 0
        return self.resume_at_ms - now_ms if self.state in _PAUSING else None

    def next_deadline_ms(self, max_idle_ms: int) -> int | None:
        """When a timeout of this connection ends; None: it has none."""
        if self.state is ConnectionState.RESOLVING:
            return None
        if self.state is ConnectionState.CONNECTING:
            return self.connect_deadline_ms
        if not self.in_flight:
            return self.last_used_ms + max_idle_ms if max_idle_ms >= 0 else None
        # At most max.in.flight.requests.per.connection of them.
        return min((request.deadline_ms for request in self.in_flight), default=None)

    def _end_pause(self, now_ms: int) -> None:
        if self.state in _PAUSING and now_ms >= self.resume_at_ms:
            self.change(ConnectionEvent.PAUSE_OVER)

    def _forget_channel(self, event: ConnectionEvent) -> None:
        """Forget the channel and all that was learned through it."""
        self.change(event)
        self.channel_id = NO_CHANNEL
        self.protocol = None
        self.api_versions = None
        self.in_flight = deque()
