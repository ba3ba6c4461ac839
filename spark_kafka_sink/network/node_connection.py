"""The connection to one node: state, addresses, backoff, requests in flight; outages in the log.

The states are a table, ``TRANSITIONS``. A TLS handshake is a part of CONNECTING. The table in
``protocol/connection.py`` describes the messages of NEGOTIATING and REAUTHENTICATING.

An executor logs one WARNING when a broker becomes unavailable, and one when the broker is available
again. Each task slot of an executor has its own Python process, and each process its own
connections. A process that cannot reach a broker locks one byte of a file. The position of the byte
stands for the executor and the broker. Only the process that gets the lock logs. The operating
system releases the lock when the process ends, so no outage can stay marked as logged.

Source: ``ClusterConnectionStates``, ``InFlightRequests``.
"""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Callable, Collection
from dataclasses import field
from enum import Enum, auto
from functools import cache
from typing import NamedTuple
from zlib import crc32

from spark_kafka_sink.base.errors import LocalProtocolError, code_of, coded, joined, warn
from spark_kafka_sink.base.kafka_metrics import NodeMetrics
from spark_kafka_sink.base.machine import EXHAUSTED, PrivateFolderError, private_folder
from spark_kafka_sink.base.model import Node, dataclass
from spark_kafka_sink.network.channels import Address
from spark_kafka_sink.protocol.api import BrokerApiVersions
from spark_kafka_sink.protocol.connection import NEVER_MS, Connection, InFlightRequest
from spark_kafka_sink.protocol.schema import Message, Request

NO_CHANNEL = -1
HEAD_START_MS = 250
"""Head start of a connection attempt before the next address, or the next node, is tried as well.

Source: RFC 8305, "Connection Attempt Delay".
"""
NO_ANSWER = "no answer yet"
"""The text about an attempt, or a request, that is under way."""
_LOOKED_UP = "its host name is still being looked up"
# Once an attempt takes this long, messages name it, and the failure before it comes second.
_LASTING_MS = 1_000
# A service with a limit ends the connection at larger requests. No known limit is below this.
_LARGE_BYTES = 256 * 1024
_ENDS_UNTIL_HINT = 3
LARGE_REQUESTS = "CONNECT-013"
"""The code of a connection that ends again and again while large requests are under way."""


class ConnectionState(Enum):
    """States of a connection. Only READY accepts a request."""

    DISCONNECTED = auto()
    BACKING_OFF = auto()
    RESOLVING = auto()
    CONNECTING = auto()
    NEGOTIATING = auto()
    READY = auto()
    SENDING = auto()
    THROTTLED = auto()
    SENDING_THROTTLED = auto()
    REAUTHENTICATING = auto()
    REAUTHENTICATING_THROTTLED = auto()


class ConnectionEvent(Enum):
    """Events of a connection."""

    RESOLVE = auto()
    CONNECT = auto()
    CONNECTED = auto()
    USABLE = auto()
    SEND = auto()
    SENT = auto()
    REAUTHENTICATE = auto()
    THROTTLE = auto()
    PAUSE_OVER = auto()
    FAIL = auto()
    CLOSE = auto()


class Transition(NamedTuple):
    """``event`` in ``state`` leads to ``next_state``, because of ``reason``."""

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
    Transition(_S.CONNECTING, _E.CONNECT, _S.CONNECTING, "another address, beside the silent ones"),
    Transition(_S.CONNECTING, _E.CONNECTED, _S.NEGOTIATING, "versions first, then authentication"),
    Transition(_S.CONNECTING, _E.FAIL, _S.BACKING_OFF, "refused, unreachable or too slow"),
    Transition(_S.NEGOTIATING, _E.SENT, _S.NEGOTIATING, "the connection's own request"),
    Transition(_S.NEGOTIATING, _E.USABLE, _S.READY, "any request may follow"),
    Transition(_S.NEGOTIATING, _E.FAIL, _S.BACKING_OFF, "no answer, or a refusal"),
    Transition(_S.READY, _E.SEND, _S.SENDING, "one request is written at a time"),
    Transition(_S.READY, _E.THROTTLE, _S.THROTTLED, "an answer asks for a pause"),
    Transition(_S.READY, _E.FAIL, _S.BACKING_OFF, "the connection is lost"),
    Transition(_S.READY, _E.CLOSE, _S.DISCONNECTED, "idle: nothing went wrong, so no back-off"),
    Transition(_S.READY, _E.REAUTHENTICATE, _S.REAUTHENTICATING, "the session ends soon (KIP-368)"),
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
    Transition(_S.REAUTHENTICATING, _E.SENT, _S.REAUTHENTICATING, "the connection's own request"),
    Transition(_S.REAUTHENTICATING, _E.USABLE, _S.READY, "any request may follow"),
    Transition(
        _S.REAUTHENTICATING,
        _E.THROTTLE,
        _S.REAUTHENTICATING_THROTTLED,
        "an earlier request's answer asks for a pause",
    ),
    Transition(_S.REAUTHENTICATING, _E.FAIL, _S.BACKING_OFF, "the connection is lost, or refused"),
    Transition(
        _S.REAUTHENTICATING_THROTTLED,
        _E.SENT,
        _S.REAUTHENTICATING_THROTTLED,
        "the connection's own request: the pause is of others",
    ),
    Transition(_S.REAUTHENTICATING_THROTTLED, _E.USABLE, _S.THROTTLED, "the pause still lasts"),
    Transition(
        _S.REAUTHENTICATING_THROTTLED,
        _E.THROTTLE,
        _S.REAUTHENTICATING_THROTTLED,
        "the longer pause counts",
    ),
    Transition(
        _S.REAUTHENTICATING_THROTTLED,
        _E.PAUSE_OVER,
        _S.REAUTHENTICATING,
        "the session is still being renewed",
    ),
    Transition(
        _S.REAUTHENTICATING_THROTTLED, _E.FAIL, _S.BACKING_OFF, "the connection is lost, or refused"
    ),
)
_NEXT = {(state, event): next_state for state, event, next_state, _ in TRANSITIONS}

_PREPARING = frozenset({_S.RESOLVING, _S.CONNECTING, _S.NEGOTIATING})
_PAUSING = frozenset(t.state for t in TRANSITIONS if t.event is _E.PAUSE_OVER)
_SENDING = frozenset({_S.SENDING, _S.SENDING_THROTTLED})
_WITHOUT_CHANNEL = frozenset({_S.DISCONNECTED, _S.BACKING_OFF})


class ClientResponse(NamedTuple):
    """Outcome of a request: a response or a failure; neither for acks=0, if the request was sent.

    failure: why the connection was lost before the response
    is_timeout: True if the request took longer than its timeout
    """

    node: Node
    request: Request
    response: Message | None
    failure: str | None
    is_timeout: bool
    latency_ms: int


OnComplete = Callable[[ClientResponse, int], None]
"""Called with the response and the time in milliseconds."""


@dataclass(slots=True)
class NodeConnection:
    """State of the connection to ``node``; a node that was never tried is DISCONNECTED.

    channel_id: the channel of the look-up, then of the connected address
    addresses: addresses of the host name that may be tried next, those that have failed last
    attempts: addresses by channel, while connections to them are being set up side by side
    address: the address that is connected; None before that
    failures: address -> why it did not serve, since the host name was resolved
    next_address_ms: when the next address is tried as well, if none has been reached
    failed_attempts: consecutive attempts without becoming ready
    failed_set_ups: consecutive attempts whose setup failed or timed out. Only these attempts extend
        the next setup timeout; a connection that was lost later does not
    has_answered: True if a request other than the connection's own was answered
    answered_at_ms: when such a request was answered last, on this connection or an earlier one
    ends, ended_bytes: how often the connection ended while a large request was under way, and the
        size of the smallest of these, since one of that size was answered
    resume_at_ms: when BACKING_OFF or a throttled state ends
    is_not_kafka: True if the last failure was a first response of another protocol, at the last
        address of the host name
    ends_at_ms: no request is sent from then on, even if the session lasts longer. This side's
        certificate expires, or its credentials were replaced
    metrics: counters of the node, across all its connections
    """

    node: Node
    state: ConnectionState = ConnectionState.DISCONNECTED
    channel_id: int = NO_CHANNEL
    protocol: Connection | None = None
    addresses: list[Address] = field(default_factory=list)
    attempts: dict[int, Address] = field(default_factory=dict)
    address: Address | None = None
    failures: dict[Address, str] = field(default_factory=dict)
    next_address_ms: int = 0
    failed_attempts: int = 0
    failed_set_ups: int = 0
    has_answered: bool = False
    answered_at_ms: int = 0
    ends: int = 0
    ended_bytes: int = 0
    connect_started_ms: int = 0
    set_up_deadline_ms: int = 0
    last_used_ms: int = 0
    resume_at_ms: int = 0
    last_failure: str | None = None
    is_not_kafka: bool = False
    ends_at_ms: int = NEVER_MS
    metrics: NodeMetrics = field(default_factory=NodeMetrics)

    @property
    def in_flight(self) -> Collection[InFlightRequest]:
        """Return the requests without a response."""
        return () if self.protocol is None else self.protocol.in_flight

    @property
    def api_versions(self) -> BrokerApiVersions | None:
        """Return the node's API versions; None before the node has sent its versions."""
        return None if self.protocol is None else self.protocol.api_versions

    @property
    def is_connected(self) -> bool:
        """Return True if requests can be sent, now or after earlier requests or a pause."""
        return self.state not in _PREPARING and self.state not in _WITHOUT_CHANNEL

    @property
    def is_sending(self) -> bool:
        """Return True while a request is being written; its buffers must not change until then."""
        return self.state in _SENDING

    @property
    def is_connecting(self) -> bool:
        return self.state in _PREPARING

    @property
    def awaited(self) -> str:
        """Return what has not happened if the oldest request in flight has no response in time."""
        is_negotiating = self.state is ConnectionState.NEGOTIATING
        if is_negotiating and self.protocol is not None and self.protocol.is_authenticated:
            return "connected, but not authenticated"
        return "no answer"

    @property
    def has_channel(self) -> bool:
        return self.state not in _WITHOUT_CHANNEL

    def change(self, event: ConnectionEvent) -> None:
        """Change to the state that follows ``event``.

        Raises LocalProtocolError if no state follows, because that is a defect of this client.
        """
        next_state = _NEXT.get((self.state, event))
        if next_state is None:
            raise LocalProtocolError(f"{self.node}: {event.name} while {self.state.name}")
        self.state = next_state

    @property
    def channel_ids(self) -> list[int]:
        """Return the ids of all channels that are open or being opened."""
        return [*self.attempts] or [self.channel_id]

    def begin_attempt(self, channel_id: int, now_ms: int, timeout_ms: int) -> Address:
        """Take the next address, which has ``timeout_ms``; return it."""
        self.change(ConnectionEvent.CONNECT)
        self.set_up_deadline_ms = now_ms + timeout_ms
        self.next_address_ms = now_ms + HEAD_START_MS
        address = self.attempts[channel_id] = self.addresses.pop(0)
        return address

    def has_other_addresses(self, channel_id: int) -> bool:
        """Return True if an attempt at ``channel_id`` may fail without failing the connection."""
        return channel_id in self.attempts and len(self.attempts) + len(self.addresses) > 1

    def win(self, channel_id: int) -> list[int]:
        """Record that an address is connected. Return the other channels, which must be closed."""
        self.change(ConnectionEvent.CONNECTED)
        others = self.leave_others(channel_id)
        self.channel_id, self.address = channel_id, self.attempts.pop(channel_id)
        return others

    def leave_others(self, channel_id: int) -> list[int]:
        """End all attempts but one; return their channels."""
        others = [other for other in self.attempts if other != channel_id]
        for other in others:
            address = self.attempts.pop(other)
            self.failures[address] = NO_ANSWER
            self.addresses.append(address)
        return others

    @property
    def has_untried(self) -> bool:
        """Return True if there is an address that has not failed since the name was resolved."""
        return any(address not in self.failures for address in self.addresses)

    def describe_attempts(self) -> str | None:
        """Return what each address did, while several are tried; None with a single one."""
        open_ones = dict.fromkeys(self.attempts.values(), NO_ANSWER)
        texts = [f"{address}: {why}" for address, why in {**self.failures, **open_ones}.items()]
        return joined(texts) if len(texts) > 1 else None

    def why_unusable(self, now_ms: int) -> str | None:
        """Return what the attempt that is under way has come to, or how the last one failed.

        An attempt that lasts has a text of its own, because the failure before it may be an old
        one. None without a failure, if no host name is being looked up.
        """
        by_address = self.describe_attempts() if self.attempts else None
        if by_address is not None:
            return by_address
        is_looked_up = self.state is ConnectionState.RESOLVING
        if self.last_failure is None:
            return _LOOKED_UP if is_looked_up else None
        if not self.is_connecting or now_ms - self.connect_started_ms < _LASTING_MS:
            return self.last_failure
        return f"{_LOOKED_UP if is_looked_up else NO_ANSWER} (before: {self.last_failure})"

    def note_sent(self, now_ms: int) -> None:
        """Record that the newest request in flight is being sent."""
        assert self.protocol is not None
        self.last_used_ms = now_ms
        self.metrics.sent(self.protocol.in_flight[-1].size_bytes)

    def note_response(self, size_bytes: int, now_ms: int) -> None:
        """Record the response to a request of ``size_bytes``, not one of the connection's own."""
        self.last_used_ms = self.answered_at_ms = now_ms
        if size_bytes >= self.ended_bytes:
            self.ends = self.ended_bytes = 0
        if not self.has_answered:
            self.has_answered = True
            self.last_failure = None

    def note_ended(self) -> str:
        """Record that the other side ends the connection.

        Return a hint if that happens again and again while large requests are under way.
        """
        size_bytes = max((sent.size_bytes for sent in self.in_flight), default=0)
        if size_bytes < _LARGE_BYTES:
            return ""
        self.ends += 1
        self.ended_bytes = min(self.ended_bytes or size_bytes, size_bytes)
        if self.ends < _ENDS_UNTIL_HINT:
            return ""
        return coded(
            f", {self.ends} times while a request of {self.ended_bytes} bytes or more was under "
            "way, and none of that size was answered. If the brokers, or a proxy before them, take "
            "smaller ones only, lower kafka.max.request.size and kafka.batch.size",
            LARGE_REQUESTS,
        )

    def throttle(self, now_ms: int, until_ms: int) -> None:
        """Send nothing before ``until_ms``. The deadlines of requests in flight are postponed.

        The broker does not process requests in flight during the pause.
        """
        resumed_at_ms = max(self.resume_at_ms, now_ms)
        self.change(ConnectionEvent.THROTTLE)
        self.resume_at_ms = max(self.resume_at_ms, until_ms)
        if self.protocol is not None:
            self.protocol.postpone_deadlines(self.resume_at_ms - resumed_at_ms)

    def fail(self, reason: str, retry_at_ms: int) -> None:
        """Record that the connection was lost or not set up. No retry before ``retry_at_ms``.

        If several addresses failed, the last failure says why each did.
        """
        is_setting_up = self.state is ConnectionState.CONNECTING
        if self.address is not None and self.is_connecting:
            self.failures[self.address] = reason
            self.addresses.append(self.address)  # may be better than silent ones
        self.failures.update(dict.fromkeys(self.attempts.values(), reason))
        self.attempts.clear()
        if self.is_connecting:
            reason = self.describe_attempts() or reason
        self.failed_set_ups = self.failed_set_ups + 1 if is_setting_up else 0
        self.failed_attempts += 1
        self._forget_channel(ConnectionEvent.FAIL)
        self.last_failure = reason
        self.is_not_kafka = False
        self.resume_at_ms = retry_at_ms

    def close(self) -> None:
        """Record that the connection was closed without a failure."""
        self.addresses = []  # the next connection has the choice of all
        self._forget_channel(ConnectionEvent.CLOSE)

    def can_connect(self, now_ms: int) -> bool:
        self._end_pause(now_ms)
        return self.state is ConnectionState.DISCONNECTED

    def can_send(self, now_ms: int, max_in_flight: int) -> bool:
        """Return True if a request may be sent now.

        One request is written at a time, and at most ``max_in_flight`` requests wait for a
        response.
        """
        self._end_pause(now_ms)
        protocol = self.protocol
        return (
            self.state is ConnectionState.READY
            and protocol is not None
            and len(protocol.in_flight) < max_in_flight
            and now_ms < protocol.renew_at_ms
            and now_ms < self.ends_at_ms
        )

    def is_over(self, now_ms: int) -> bool:
        """Return True if the connection must be closed, and replaced for the next request."""
        protocol = self.protocol
        return protocol is not None and now_ms >= min(protocol.ends_at_ms, self.ends_at_ms)

    def can_reauthenticate(self, now_ms: int) -> bool:
        """Return True if the session must be renewed before the next request, and can be now.

        At the end of the session, the connection is closed instead, after all responses in flight.
        """
        protocol = self.protocol
        if self.state is not ConnectionState.READY or protocol is None:
            return False
        if self.is_over(now_ms):
            return not protocol.in_flight
        return now_ms >= protocol.renew_at_ms

    def load_rank(self, now_ms: int, max_in_flight: int) -> int | None:
        """Return a rank, lower for a sooner response; None if nothing can be sent now."""
        if self.can_send(now_ms, max_in_flight):
            return len(self.in_flight)
        if self.is_connecting:
            # A slow connection attempt ranks after nodes that were not tried yet.
            is_slow = now_ms - self.connect_started_ms >= HEAD_START_MS
            return max_in_flight + (3 if is_slow else 1)
        if self.can_connect(now_ms) or self.can_reauthenticate(now_ms):
            return max_in_flight + 2
        return None

    def poll_delay_ms(self, now_ms: int) -> int | None:
        """Return the ms until a pause ends; 0: it can be connected to; None without a pause."""
        if self.can_connect(now_ms):
            return 0
        return self.resume_at_ms - now_ms if self.state in _PAUSING else None

    def next_deadline_ms(self, max_idle_ms: int) -> int | None:
        """Return when the next timeout of this connection ends; None without one."""
        if self.state is ConnectionState.RESOLVING:
            return None
        if self.state is ConnectionState.CONNECTING:
            next_ms = self.next_address_ms if self.addresses else NEVER_MS
            return min(next_ms, self.set_up_deadline_ms)
        in_flight = self.in_flight
        if not in_flight:
            idle_at_ms = self.last_used_ms + max_idle_ms if max_idle_ms >= 0 else NEVER_MS
            at_ms = min(idle_at_ms, self.ends_at_ms)
            return None if at_ms == NEVER_MS else at_ms
        # At most max.in.flight.requests.per.connection requests.
        return min([request.deadline_ms for request in in_flight])

    def _end_pause(self, now_ms: int) -> None:
        if self.state in _PAUSING and now_ms >= self.resume_at_ms:
            self.change(ConnectionEvent.PAUSE_OVER)

    def _forget_channel(self, event: ConnectionEvent) -> None:
        """Forget the channel and everything that was learned through it."""
        self.change(event)
        self.channel_id, self.address = NO_CHANNEL, None
        if self.protocol is not None:
            self.metrics.disconnected()
        self.protocol = None
        self.ends_at_ms = NEVER_MS
        self.has_answered = False


# --- outages in the log --------------------------------------------------------------------------

logger = logging.getLogger(__name__)

_CODE = "CONNECT-009"
LOGGED_AFTER_MS = 3_000
"""A connection that is replaced within this time is no outage."""


class _Logged(NamedTuple):
    """An outage in the log. tried_until_ms: when the next attempt was due after the last one"""

    since_ms: int
    tried_until_ms: int

    def is_continued_by(self, connection: NodeConnection) -> bool:
        """Return True if the attempt of ``connection`` followed soon after the last one.

        A broker that was not needed in between may have been there.
        """
        return connection.connect_started_ms - self.tried_until_ms < LOGGED_AFTER_MS


# Address of a broker -> its outage. Its next client may be of another task.
_logged: dict[str, _Logged] = {}


class Outages:
    """Brokers that a client still needs, and has lost or could not connect to."""

    def __init__(self) -> None:
        # Broker id -> its lost connection; until the outage is logged.
        self._lost: dict[int, NodeConnection] = {}
        # Broker id -> when the client first tried to replace the connection. A connection that was
        # lost without work may be replaced much later, and is no outage until then.
        self._tried_at_ms: dict[int, int] = {}

    def note_failure(self, connection: NodeConnection) -> None:
        """Record a lost connection. ``bootstrap.servers`` have errors of their own.

        If this machine is the cause, log it at once, because no other broker would do.
        """
        reason = connection.last_failure or ""
        if code_of(reason) == EXHAUSTED and EXHAUSTED not in _logged and _lock(EXHAUSTED):
            _logged[EXHAUSTED] = _Logged(0, 0)
            warn(logger, EXHAUSTED, f"no connection to {connection.node}: {reason}")
        logged = _logged.get(connection.node.address)
        if logged is not None:
            is_same = logged.is_continued_by(connection)
            since_ms = logged.since_ms if is_same else connection.connect_started_ms
            _logged[connection.node.address] = _Logged(since_ms, connection.resume_at_ms)
        elif connection.node.node_id >= 0:
            self._lost.setdefault(connection.node.node_id, connection)

    def note_usable(self, connection: NodeConnection, now_ms: int) -> None:
        """Record that requests can be sent to a node; log it if its outage was logged."""
        node = connection.node
        self._forget(node.node_id)
        if _logged.pop(EXHAUSTED, None) is not None:
            _unlock(EXHAUSTED)
        logged = _logged.pop(node.address, None)
        if logged is not None:
            _unlock(node.address)
            age = f", after {(now_ms - logged.since_ms) / 1000:.0f} s"
            known = age if logged.is_continued_by(connection) else ""
            warn(logger, _CODE, f"{node} is back{known}")

    def wait_ms(self, timeout_ms: int, now_ms: int) -> int:
        """Return ``timeout_ms``, or the shorter time after which an outage is to be logged.

        Called before each wait of the client, and so before the end of each new attempt.
        """
        for node_id, connection in self._lost.items():
            if connection.has_channel:
                self._tried_at_ms.setdefault(node_id, connection.connect_started_ms)
        for tried_at_ms in self._tried_at_ms.values():
            left_ms = tried_at_ms + LOGGED_AFTER_MS - now_ms
            if left_ms > 0:
                timeout_ms = min(timeout_ms, left_ms)
        return timeout_ms

    def log(self, now_ms: int) -> None:
        """Log the brokers that could not be reached for LOGGED_AFTER_MS since the first attempt."""
        for node_id, tried_at_ms in list(self._tried_at_ms.items()):
            if now_ms - tried_at_ms < LOGGED_AFTER_MS:
                continue
            connection = self._lost[node_id]
            self._forget(node_id)
            node = connection.node
            if node.address not in _logged and _lock(node.address):
                _logged[node.address] = _Logged(tried_at_ms, max(now_ms, connection.resume_at_ms))
                warn(
                    logger,
                    _CODE,
                    f"{node} cannot be reached: {connection.why_unusable(now_ms)}. Records for "
                    "its partitions wait for it, or for another leader, up to "
                    "kafka.delivery.timeout.ms",
                )

    def _forget(self, node_id: int) -> None:
        self._lost.pop(node_id, None)
        self._tried_at_ms.pop(node_id, None)


# --- one process of an executor logs -------------------------------------------------------------


@cache
def _lock_file() -> int | None:
    """Return the descriptor of this user's lock file; None if there is no folder for it."""
    try:
        path = private_folder("outages") / "lock"
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except (OSError, PrivateFolderError):
        return None


def _position(address: str) -> int:
    """Return the byte of the file that stands for a broker and this executor.

    All Python workers of an executor are children of one process, Spark's daemon.
    """
    return os.getppid() << 32 | crc32(address.encode())


def _lock(address: str) -> bool:
    """Return True if this process is to log; also if the machine cannot lock files."""
    file = _lock_file()
    if file is None:
        return True
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _position(address))
    except (BlockingIOError, PermissionError):
        return False
    except OSError:
        return True
    return True


def _unlock(address: str) -> None:
    file = _lock_file()
    if file is not None:
        fcntl.lockf(file, fcntl.LOCK_UN, 1, _position(address))
