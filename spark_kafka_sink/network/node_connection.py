"""The connection to one node: its state, its addresses, its back-off, its requests in flight.

Source: ``ClusterConnectionStates``, ``InFlightRequests``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import NamedTuple

from spark_kafka_sink.base.model import Node
from spark_kafka_sink.network.transport import Address
from spark_kafka_sink.protocol.api import BrokerApiVersions
from spark_kafka_sink.protocol.connection import Connection, SentRequest
from spark_kafka_sink.protocol.schema import Message, Request

NO_CHANNEL = -1


class ConnectionState(Enum):
    """DISCONNECTED → CONNECTING → CHECKING_API_VERSIONS → READY, and back on any failure."""

    DISCONNECTED = auto()
    CONNECTING = auto()
    CHECKING_API_VERSIONS = auto()
    READY = auto()


class ClientResponse(NamedTuple):
    """What became of a request. Exactly one of ``response`` and ``failure`` says something,
    except for a request that expected no response: there both are None.

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
    """State of the connection to ``node``; a node that was never tried is DISCONNECTED."""

    node: Node
    state: ConnectionState = ConnectionState.DISCONNECTED
    channel_id: int = NO_CHANNEL
    protocol: Connection | None = None
    api_versions: BrokerApiVersions | None = None
    in_flight: deque[InFlightRequest] = field(default_factory=deque)
    is_sending: bool = False
    addresses: list[Address] = field(default_factory=list)
    failed_attempts: int = 0
    retry_at_ms: int = 0
    connect_started_ms: int = 0
    connect_deadline_ms: int = 0
    last_used_ms: int = 0
    throttled_until_ms: int = 0
    last_failure: str | None = None

    @property
    def is_ready(self) -> bool:
        return self.state is ConnectionState.READY

    @property
    def is_connecting(self) -> bool:
        return self.state in (ConnectionState.CONNECTING, ConnectionState.CHECKING_API_VERSIONS)

    def can_connect(self, now_ms: int) -> bool:
        return self.state is ConnectionState.DISCONNECTED and now_ms >= self.retry_at_ms

    def can_send(self, now_ms: int, max_in_flight: int) -> bool:
        """One request is written at a time, and at most ``max_in_flight`` wait for an answer."""
        return (
            self.is_ready
            and not self.is_sending
            and len(self.in_flight) < max_in_flight
            and now_ms >= self.throttled_until_ms
        )

    def poll_delay_ms(self, now_ms: int) -> int | None:
        """After how long it is worth to ask again; None: an event will tell."""
        if self.state is ConnectionState.DISCONNECTED:
            return max(0, self.retry_at_ms - now_ms)
        if self.is_ready and now_ms < self.throttled_until_ms:
            return self.throttled_until_ms - now_ms
        return None

    def next_deadline_ms(self, max_idle_ms: int) -> int | None:
        """When this connection needs attention although nothing happens on it."""
        if self.is_connecting:
            return self.connect_deadline_ms
        if not self.in_flight:
            return self.last_used_ms + max_idle_ms if max_idle_ms >= 0 else None
        # Deadlines differ only by the timeout of the request, and there are at most a handful.
        return min((request.deadline_ms for request in self.in_flight), default=None)

    def reset(self) -> None:
        """Forget the channel and all that was learned through it."""
        self.state = ConnectionState.DISCONNECTED
        self.channel_id = NO_CHANNEL
        self.protocol = None
        self.api_versions = None
        self.in_flight = deque()
        self.is_sending = False
        self.throttled_until_ms = 0
