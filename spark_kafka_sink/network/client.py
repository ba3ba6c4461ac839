"""Sends requests to nodes: connections on demand, versions, timeouts, reconnects, throttling.

One thread calls ``poll`` repeatedly. Other threads may call only ``wakeup`` and
``renew_connections``. Time and sockets are passed in. :class:`Connector` sets up connections.
:class:`ThrottleTimes` records the pauses that brokers request.

Source: ``NetworkClient``, ``ClusterConnectionStates``; KIP-219, KIP-601, KIP-1242.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from spark_kafka_sink.base.clock import Clock, ExponentialBackoff, RandomSource
from spark_kafka_sink.base.errors import (
    AuthenticationError,
    CredentialsUnavailableError,
    MisroutedConnectionError,
    NotKafkaError,
    RemoteProtocolError,
    UnsupportedVersionError,
    code_of,
    warn,
)
from spark_kafka_sink.base.kafka_metrics import NodeMetrics, NodesMetrics
from spark_kafka_sink.base.model import Node
from spark_kafka_sink.base.text import redacted
from spark_kafka_sink.network.channels import (
    Address,
    Connected,
    Disconnected,
    Network,
    NetworkEvent,
    Reached,
    Received,
    Resolved,
    SendCompleted,
)
from spark_kafka_sink.network.node_connection import (
    ClientResponse,
    ConnectionEvent,
    ConnectionState,
    NodeConnection,
    OnComplete,
    Outages,
)
from spark_kafka_sink.protocol.api import BrokerApiVersions
from spark_kafka_sink.protocol.connection import (
    NEVER_MS,
    Authentication,
    Connection,
    ExpectedBroker,
    InFlightRequest,
    OwnRequest,
    Ready,
    ResponseReceived,
    SaslClientFactory,
)
from spark_kafka_sink.protocol.messages.topics import MetadataResponse
from spark_kafka_sink.protocol.schema import Request
from spark_kafka_sink.protocol.types import Buffer

logger = logging.getLogger(__name__)


class ClientSettings(NamedTuple):
    """Network settings of the producer's configuration: Kafka's keys, with underscores for dots."""

    client_id: str
    request_timeout_ms: int
    max_in_flight_requests_per_connection: int
    reconnect_backoff_ms: int
    reconnect_backoff_max_ms: int
    socket_connection_setup_timeout_ms: int
    socket_connection_setup_timeout_max_ms: int
    connections_max_idle_ms: int
    checks_cluster: bool = False

    @classmethod
    def of(cls, config: Any) -> ClientSettings:
        """Return the settings from a configuration that has fields of the same names."""
        names = (name for name in cls._fields if name != "checks_cluster")
        checks = (
            config.metadata_cluster_check_enable
            and config.metadata_recovery_strategy == "rebootstrap"
        )
        return cls(**{name: getattr(config, name) for name in names}, checks_cluster=checks)


MOST_POSTPONED_MS = 24 * 3_600_000
"""Time by which the pauses of brokers postpone a deadline, all pauses together.

The last batch of a job waits until the bytes in the buffers of all tasks have passed the quota. 200
tasks with 32 MB each, which share 1 MB/s, take 107 minutes. The Java client, whose timeouts no
pause postpones, lets such a batch expire.
"""
_LONGEST_PAUSE_MS = 3_600_000
"""Time for which one answer holds back a connection.

A broker computes a pause from the bytes in flight. Five requests of 1 MB from each of 200 tasks,
which share 1 MB/s, explain 17 minutes. If a pause is longer, the client sends the next request
after an hour. A broker that still reads nothing loses the connection after ``request.timeout.ms``.
"""
_LONG_PAUSE_MS = 60_000
_MS_PER_S = 1000


class ThrottleTimes:
    """Throttling pauses of all brokers, as far back as callers need.

    If a quota is used up, a broker responds at once, with ``throttle_time_ms``. It reads nothing
    more from the connection until this time is over (KIP-219). A batch that waits for the end of a
    pause does not expire, and neither does a wait for the memory that it holds. Of all pauses, at
    most ``MOST_POSTPONED_MS`` count. The Java client lets both expire.

    latest_end_ms: end of the latest known pause
    """

    def __init__(self) -> None:
        self.latest_end_ms = 0
        self._by_node: dict[int, list[tuple[int, int]]] = {}

    def note(self, node_id: int, from_ms: int, until_ms: int) -> None:
        """Record a pause that a broker requests. Overlapping pauses are merged."""
        pauses = self._by_node.setdefault(node_id, [])
        if pauses and from_ms <= pauses[-1][1]:
            from_ms, before_ms = pauses.pop()
            until_ms = max(until_ms, before_ms)
        pauses.append((from_ms, until_ms))
        self.latest_end_ms = max(self.latest_end_ms, until_ms)

    @property
    def has_any(self) -> bool:
        """Return True if any pause is recorded."""
        return any(self._by_node.values())

    def between(self, node_id: int, since_ms: int, now_ms: int) -> list[tuple[int, int]]:
        """Return the pauses of this broker between two instants, each as (from, until)."""
        return [
            (max(from_ms, since_ms), min(until_ms, now_ms))
            for from_ms, until_ms in self._by_node.get(node_id, ())
            if from_ms < now_ms and until_ms > since_ms
        ]

    def end_ms(self, node_id: int) -> int:
        """Return when the last known pause of this broker ends or has ended; 0 without one."""
        pauses = self._by_node.get(node_id)
        return pauses[-1][1] if pauses else 0

    def forget_before(self, at_ms: int) -> None:
        """Drop pauses that ended before ``at_ms``, because no caller needs them."""
        for pauses in self._by_node.values():
            while pauses and pauses[0][1] < at_ms:
                del pauses[0]


SESSION_OVER_AT_ONCE = (
    "connected and authenticated, but the session was over at once: look at the brokers' "
    "connections.max.reauth.ms, at the token's life, and at the clocks"
)


class Connector:
    """Sets up the connection to a node, in steps that each follow the end of the one before.

    The steps are host name, address, channel and first request.

    Source: ``NetworkClient.initiateConnect``.
    """

    def __init__(
        self,
        settings: ClientSettings,
        network: Network,
        rng: RandomSource,
        create_sasl_client: SaslClientFactory | None,
    ) -> None:
        """``create_sasl_client`` begins an authentication with a host; None without SASL."""
        self._settings = settings
        self._network = network
        self._rng = rng
        self._create_sasl_client = create_sasl_client
        self.cluster_id: str | None = None
        self._pause = ExponentialBackoff(
            settings.reconnect_backoff_ms, settings.reconnect_backoff_max_ms, rng
        )
        self._setup_timeout = ExponentialBackoff(
            settings.socket_connection_setup_timeout_ms,
            settings.socket_connection_setup_timeout_max_ms,
            rng,
        )

    def pause_ms(self, connection: NodeConnection) -> int:
        """Return the backoff in ms after the next failure."""
        return self._pause.backoff_ms(connection.failed_attempts)

    def begin(self, connection: NodeConnection, node: Node, channel_id: int, now_ms: int) -> None:
        """Connect to an address that has not failed yet, or resolve the host name."""
        if (node.host, node.port) != (connection.node.host, connection.node.port):
            connection.addresses = []
        connection.node = node
        connection.last_used_ms = connection.connect_started_ms = now_ms
        connection.channel_id = channel_id
        if connection.has_untried:
            self.to_next_address(connection, channel_id, now_ms)
        else:
            connection.change(ConnectionEvent.RESOLVE)
            connection.failures = {}
            self._network.resolve(channel_id, node.host, node.port)

    def to_next_address(self, connection: NodeConnection, channel_id: int, now_ms: int) -> None:
        """Connect to the next address. When all were tried, the host name is resolved again.

        The addresses of a name are tried side by side, each with a head start, as in RFC 8305. The
        Java client waits for the end of each attempt.
        """
        timeout_ms = self._setup_timeout.backoff_ms(connection.failed_set_ups)
        address = connection.begin_attempt(channel_id, now_ms, timeout_ms)
        self._network.connect(channel_id, address, connection.node.host)

    def open(self, connection: NodeConnection, now_ms: int) -> list[Buffer]:
        """Begin the protocol on a channel that has just been connected; return its first request.

        The requests of the connection itself, those of SASL together, have the timeout of any
        request. A shorter limit would make a broker with thousands of new connections do their
        handshakes again and again.
        """
        authentication = None
        if self._create_sasl_client is not None:
            create_sasl_client, host = self._create_sasl_client, connection.node.host
            authentication = Authentication(lambda: create_sasl_client(host), self._rng)
        connection.protocol = Connection(
            self._settings.client_id, authentication, self._expected(connection.node)
        )
        connection.metrics.connected()
        return connection.protocol.open(now_ms, now_ms + self._settings.request_timeout_ms)

    def _expected(self, node: Node) -> ExpectedBroker | None:
        """Return what the broker of ``node`` checks; None while the cluster or broker is unknown.

        An address of ``bootstrap.servers`` (with a negative id) may lead to any broker.
        """
        if self.cluster_id is None or node.node_id < 0:
            return None
        return ExpectedBroker(self.cluster_id, node.node_id)


def alternating(addresses: list[Address]) -> list[Address]:
    """Return the addresses with alternating families, because one family may not be routed.

    Source: RFC 8305, section 4.
    """
    families = {address.family: 0 for address in addresses}
    ranks = []
    for address in addresses:
        ranks.append(families[address.family])
        families[address.family] += 1
    return [addresses[i] for i in sorted(range(len(addresses)), key=ranks.__getitem__)]


def sasl_hint(connection: NodeConnection) -> str:
    """Return a hint if the connection was lost before any answer; empty otherwise."""
    protocol = connection.protocol
    if protocol is None or protocol.is_authenticated or connection.has_answered:
        return ""
    if not (connection.is_connected and protocol.in_flight):
        return ""
    return (
        ", before the first answer. A listener with SASL does that: does "
        "kafka.security.protocol have to be SASL_SSL or SASL_PLAINTEXT?"
    )


class NetworkClient:
    """Sends requests to nodes. Each request completes once, with a response or a failure."""

    def __init__(
        self,
        settings: ClientSettings,
        network: Network,
        clock: Clock,
        rng: RandomSource,
        create_sasl_client: SaslClientFactory | None = None,
    ) -> None:
        """``create_sasl_client`` begins an authentication with a host; None without SASL."""
        self._settings = settings
        self._network = network
        self._clock = clock
        self._rng = rng
        self._connector = Connector(settings, network, rng, create_sasl_client)
        self.nodes: NodesMetrics = {}
        self.pauses = ThrottleTimes()
        self._connections: dict[int, NodeConnection] = {}
        self._by_channel: dict[int, NodeConnection] = {}
        self._next_channel_id = 0
        self._completed: list[tuple[OnComplete, ClientResponse]] = []
        self._own_sent: list[NetworkEvent] = []
        self._is_renewal_asked = False
        self._has_answered = False
        self.on_disconnect: Callable[[Node], None] | None = None
        """Called when a connection was lost or could not be set up."""
        self.on_refused: Callable[[AuthenticationError], None] | None = None
        """Called when a broker rejects this client for good, or this client the broker."""
        self.on_misrouted: Callable[[], None] | None = None
        """Called when a connection has reached another cluster or broker than the one meant."""
        self.outages: Outages | None = None
        """Logs which brokers are away; None logs none."""
        self.logs_pauses = True
        """Logs a long pause; False for a producer, which logs what its rows wait for."""

    # --- state of the nodes --------------------------------------------------------------------

    def ready(self, node: Node, now_ms: int) -> bool:
        """Return True if ``node`` accepts a request now; connect if there is no connection."""
        connection = self._connection(node)
        if connection.can_send(now_ms, self._settings.max_in_flight_requests_per_connection):
            return True
        if connection.can_reauthenticate(now_ms):
            self._renew(connection, now_ms)
        if connection.can_connect(now_ms):
            self._connect(connection, node, now_ms)
        return False

    def is_ready(self, node: Node, now_ms: int) -> bool:
        """Return True if ``node`` accepts a request now, without connecting."""
        limit = self._settings.max_in_flight_requests_per_connection
        return self._connection(node).can_send(now_ms, limit)

    def poll_delay_ms(self, node: Node, now_ms: int) -> int | None:
        """Return the ms until a pause ends and ``ready`` may be True; None: only after an event."""
        return self._connection(node).poll_delay_ms(now_ms)

    def api_versions(self, node: Node) -> BrokerApiVersions | None:
        """Return the API versions of ``node``; None before the handshake."""
        return self._connection(node).api_versions

    def must_learn_cluster(self, node: Node) -> bool:
        """Return True if ``node`` checks identities, and no metadata has named the cluster yet."""
        versions = self.api_versions(node)
        is_unknown = self._settings.checks_cluster and self._connector.cluster_id is None
        return is_unknown and versions is not None and versions.checks_identity

    def last_failure(self, node: Node) -> str | None:
        """Return why the last connection to ``node`` was lost or not set up, if it was."""
        return self._connection(node).last_failure

    def is_not_kafka(self, node: Node) -> bool:
        """Return True if the last connection to ``node`` reached another protocol than Kafka's."""
        return self._connection(node).is_not_kafka

    def why_not_ready(self, node: Node, now_ms: int) -> str | None:
        """Return what the attempt under way has come to, or the last failure; None without one."""
        return self._connection(node).why_unusable(now_ms)

    def unanswered_since_ms(self, node: Node) -> int | None:
        """Return since when ``node`` owes the next answer; None if it owes none.

        A broker answers one request after the other, and none in a pause that it has asked for.
        """
        connection = self._connection(node)
        if connection.is_connecting:
            return connection.connect_started_ms
        oldest = next(iter(connection.in_flight), None)
        if oldest is None:
            return None
        paused_until_ms = self.pauses.end_ms(node.node_id)
        return max(oldest.sent_at_ms, connection.answered_at_ms, paused_until_ms)

    def in_flight_count(self, node: Node | None = None) -> int:
        """Return the number of requests without a response, to one node or to all."""
        if node is not None:
            return len(self._connection(node).in_flight)
        return sum(len(connection.in_flight) for connection in self._connections.values())

    def is_oldest(self, node: Node, request: Request) -> bool:
        """Return True if ``request`` is the oldest request in flight to ``node``."""
        oldest = next(iter(self._connection(node).in_flight), None)
        return oldest is not None and oldest.request is request

    def is_any_connected(self, nodes: Iterable[Node]) -> bool:
        """Return True if at least one of ``nodes`` is connected, however busy or throttled it is.

        Source: ``LeastLoadedNode.hasNodeAvailableOrConnectionReady`` (KIP-899).
        """
        return any(self._connection(node).is_connected for node in nodes)

    def least_loaded_node(self, nodes: Iterable[Node], now_ms: int) -> Node | None:
        """Return the node that will answer soonest.

        The order is: idle and ready, ready, connecting, not connected. Returns None if every node
        is backing off, busy or throttled; ``is_any_connected`` distinguishes these cases.
        """
        best: tuple[int, float, Node] | None = None
        limit = self._settings.max_in_flight_requests_per_connection
        for node in nodes:
            rank = self._connection(node).load_rank(now_ms, limit)
            if rank is None:
                continue
            candidate = (rank, self._rng.random(), node)
            if best is None or candidate[:2] < best[:2]:
                best = candidate
        return None if best is None else best[2]

    # --- sending -------------------------------------------------------------------------------

    def send(
        self,
        node: Node,
        request: Request,
        now_ms: int,
        on_complete: OnComplete,
        *,
        expect_response: bool = True,
        at_most_version: int | None = None,
    ) -> None:
        """Send ``request``; ``ready(node)`` must be True. ``poll`` calls ``on_complete``.

        Raises UnsupportedVersionError if node and client have no version in common.
        """
        connection = self._connection(node)
        assert connection.api_versions is not None, f"{node} is not ready"
        try:
            version = connection.api_versions.latest_usable_version(type(request), at_most_version)
        except UnsupportedVersionError as error:
            raise UnsupportedVersionError(f"{node}: {error}") from None
        connection.change(ConnectionEvent.SEND)
        assert connection.protocol is not None
        deadline_ms = now_ms + self._settings.request_timeout_ms
        buffers = connection.protocol.send(
            request, version, now_ms, deadline_ms, on_complete, expect_response
        )
        connection.note_sent(now_ms)
        if self._network.send(connection.channel_id, buffers):
            self._handle_send_completed(connection, now_ms)

    def _send_own(self, connection: NodeConnection, buffers: list[Buffer], now_ms: int) -> None:
        """Send the connection's own request. The protocol may be in the middle of a response."""
        connection.note_sent(now_ms)
        if self._network.send(connection.channel_id, buffers):
            self._own_sent.append(SendCompleted(connection.channel_id))

    def renew_connections(self) -> None:
        """Replace each connection once nothing is in flight on it: credentials have changed.

        May be called from any thread. No later request uses a connection that existed before.
        """
        self._is_renewal_asked = True
        self._network.wakeup()

    def _end_connections(self) -> None:
        self._is_renewal_asked = False
        for connection in list(self._by_channel.values()):
            # A connection without a channel has not used the former credentials.
            if connection.state is not ConnectionState.RESOLVING:
                connection.ends_at_ms = 0

    def wakeup(self) -> None:
        """End the wait of ``poll``. May be called from any thread."""
        self._network.wakeup()

    def poll(self, timeout_ms: int, now_ms: int) -> None:
        """Wait up to ``timeout_ms`` for events; call ``on_complete`` of completed requests."""
        if self._is_renewal_asked:
            self._end_connections()
        if self.outages is not None:
            timeout_ms = self.outages.wait_ms(timeout_ms, now_ms)
        deadline_ms = self._next_deadline_ms()
        if deadline_ms is not None:
            timeout_ms = min(timeout_ms, deadline_ms - now_ms)
        if self._completed or self._own_sent:
            # Requests failed by disconnect(), or sent without a response, are not completed yet.
            timeout_ms = 0
        events, self._own_sent = self._own_sent, []
        events += self._network.poll(max(0, timeout_ms))
        now_ms = self._clock.now_ms()
        for event in events:
            self._handle(event, now_ms)
        # The next call, which does not wait, checks deadlines that have passed since.
        if deadline_ms is not None and now_ms >= deadline_ms:
            for connection in list(self._by_channel.values()):
                self._check_deadlines(connection, now_ms)
        if self.outages is not None:
            self.outages.log(now_ms)
        completed, self._completed = self._completed, []
        for on_complete, response in completed:
            on_complete(response, now_ms)

    def disconnect(self, node: Node, reason: str) -> None:
        """Close the connection to ``node``; its requests fail with ``reason``."""
        connection = self._connections.get(node.node_id)
        if connection is not None and connection.has_channel:
            self._lose(connection, reason, self._clock.now_ms())

    def close(self) -> None:
        """Close every connection. Requests in flight are never completed."""
        self._network.close()
        self._connections.clear()
        self._by_channel.clear()

    # --- connections ---------------------------------------------------------------------------

    def _connection(self, node: Node) -> NodeConnection:
        if self._is_renewal_asked:
            self._end_connections()
        connection = self._connections.get(node.node_id)
        if connection is None:
            metrics = self.nodes.setdefault(node.node_id, NodeMetrics())
            connection = self._connections[node.node_id] = NodeConnection(node, metrics=metrics)
        return connection

    def _connect(self, connection: NodeConnection, node: Node, now_ms: int) -> None:
        self._connector.begin(connection, node, self._new_channel(connection), now_ms)

    def _new_channel(self, connection: NodeConnection) -> int:
        channel_id = self._next_channel_id
        self._next_channel_id += 1
        self._by_channel[channel_id] = connection
        return channel_id

    def _close_channels(self, channel_ids: Iterable[int]) -> None:
        for channel_id in channel_ids:
            self._network.disconnect(channel_id)
            self._by_channel.pop(channel_id, None)

    def _renew(self, connection: NodeConnection, now_ms: int) -> None:
        """Reauthenticate. If the session is over, close the connection, which is no failure."""
        protocol = connection.protocol
        assert protocol is not None
        if connection.is_over(now_ms):
            self._close(connection)
            return
        connection.change(ConnectionEvent.REAUTHENTICATE)
        deadline_ms = now_ms + self._settings.request_timeout_ms
        try:
            self._send_own(connection, protocol.authenticate_again(now_ms, deadline_ms), now_ms)
        except AuthenticationError as error:
            self._fail_authentication(connection, error, now_ms)

    def _fail_authentication(
        self, connection: NodeConnection, error: AuthenticationError, now_ms: int
    ) -> None:
        if isinstance(error, CredentialsUnavailableError):
            self._lose(connection, str(error), now_ms)  # credentials may exist after the backoff
        else:
            self._refuse(connection, str(error), now_ms)

    def _refuse(self, connection: NodeConnection, reason: str, now_ms: int) -> None:
        """Lose the connection because one side rejects the other. A retry would not help."""
        node = connection.node
        self._lose(connection, reason, now_ms)
        if self.on_refused is not None:
            self.on_refused(AuthenticationError(f"{node}: {reason}", code=code_of(reason)))

    def _lose(
        self, connection: NodeConnection, reason: str, now_ms: int, is_timeout: bool = False
    ) -> None:
        self._close_channels(connection.channel_ids)
        lost = [request for request in connection.in_flight if not request.is_own]
        if connection.is_connected:
            connection.addresses = []  # may have changed: resolve the host name again (KAFKA-12193)
        connection.fail(reason, now_ms + self._connector.pause_ms(connection))
        if self.outages is not None:
            self.outages.note_failure(connection)
        if self.on_disconnect is not None:
            self.on_disconnect(connection.node)
        for request in lost:
            self._complete(connection.node, request, now_ms, failure=reason, is_timeout=is_timeout)

    def _complete(
        self,
        node: Node,
        in_flight: InFlightRequest,
        now_ms: int,
        received: ResponseReceived | None = None,
        failure: str | None = None,
        is_timeout: bool = False,
    ) -> None:
        message = None if received is None else received.response
        latency_ms = now_ms - in_flight.sent_at_ms
        request = in_flight.request
        response = ClientResponse(node, request, message, failure, is_timeout, latency_ms)
        self._completed.append((in_flight.on_complete, response))

    # --- events --------------------------------------------------------------------------------

    def _handle(self, event: NetworkEvent, now_ms: int) -> None:
        connection = self._by_channel.get(event.channel_id)
        if connection is None:
            return  # this side has closed the channel before
        if isinstance(event, Resolved):
            connection.addresses = alternating(event.addresses)
            self._connector.to_next_address(connection, event.channel_id, now_ms)
        elif isinstance(event, Reached):
            connection.next_address_ms = NEVER_MS  # one handshake is enough for a busy broker
        elif isinstance(event, Connected):
            self._close_channels(connection.win(event.channel_id))
            self._send_own(connection, self._connector.open(connection, now_ms), now_ms)
            self._note_expiry(connection, event.expires_at_ms, now_ms)
        elif isinstance(event, Disconnected):
            if event.is_refused:
                self._close_channels(connection.leave_others(event.channel_id))
                self._refuse(connection, event.reason, now_ms)
            elif connection.has_other_addresses(event.channel_id):
                self._fail_address(connection, event, now_ms)
            else:
                # A cluster that has answered this client has no other listener for it.
                hint = "" if self._has_answered else sasl_hint(connection)
                self._lose(connection, event.reason + (connection.note_ended() or hint), now_ms)
        elif isinstance(event, SendCompleted):
            self._handle_send_completed(connection, now_ms)
        elif isinstance(event, Received):
            self._handle_received(connection, event.data, now_ms)

    def _fail_address(self, connection: NodeConnection, event: Disconnected, now_ms: int) -> None:
        """Leave an address of several, and try the next one at once."""
        self._by_channel.pop(event.channel_id)
        connection.failures[connection.attempts.pop(event.channel_id)] = event.reason
        if connection.addresses:
            self._to_next_address(connection, now_ms)

    def _to_next_address(self, connection: NodeConnection, now_ms: int) -> None:
        self._connector.to_next_address(connection, self._new_channel(connection), now_ms)

    def _note_expiry(
        self, connection: NodeConnection, expires_at_ms: int | None, now_ms: int
    ) -> None:
        """End the connection when the certificate of this side expires.

        If the certificate has already expired by this side's clock, nothing is set, because the
        broker has accepted it.
        """
        if expires_at_ms is None:
            return
        left_ms = expires_at_ms - self._clock.timestamp_ms()
        if left_ms > 0:
            connection.ends_at_ms = min(connection.ends_at_ms, now_ms + left_ms)

    def _handle_send_completed(self, connection: NodeConnection, now_ms: int) -> None:
        connection.change(ConnectionEvent.SENT)
        assert connection.protocol is not None
        done = connection.protocol.written()
        if done is not None:
            self._complete(connection.node, done, now_ms)

    def _handle_received(self, connection: NodeConnection, data: bytes, now_ms: int) -> None:
        assert connection.protocol is not None
        connection.metrics.incoming_bytes += len(data)
        try:
            for event in connection.protocol.receive(data, now_ms):
                connection.metrics.responses += 1
                if isinstance(event, ResponseReceived):
                    self._handle_response(connection, event, now_ms)
                elif isinstance(event, OwnRequest):
                    self._send_own(connection, event.buffers, now_ms)
                else:
                    self._handle_ready(connection, event, now_ms)
        except AuthenticationError as error:
            self._fail_authentication(connection, error, now_ms)
        except (RemoteProtocolError, UnsupportedVersionError) as error:
            self._lose(connection, str(error), now_ms)
            # The next attempt is at another address of the name, if there is one.
            is_last = not connection.has_untried
            connection.is_not_kafka = is_last and isinstance(error, NotKafkaError)
            if isinstance(error, MisroutedConnectionError) and self.on_misrouted is not None:
                self.on_misrouted()

    def _handle_response(
        self, connection: NodeConnection, received: ResponseReceived, now_ms: int
    ) -> None:
        if connection.is_sending and not connection.in_flight:
            what = type(received.sent.request).__name__
            reason = f"the answer to {what} came before all of it was sent"
            self._complete(connection.node, received.sent, now_ms, failure=reason)
            raise RemoteProtocolError(reason)
        if isinstance(received.response, MetadataResponse):
            self._check_cluster(connection, received, now_ms)
        self._has_answered = True
        connection.note_response(received.sent.size_bytes, now_ms)
        throttle_time_ms = getattr(received.response, "throttle_time_ms", 0)
        sent = received.sent
        if throttle_time_ms > 0 and sent.version >= sent.request.throttled_from:
            self._throttle(connection, throttle_time_ms, now_ms)
        self._complete(connection.node, sent, now_ms, received)

    def _check_cluster(
        self, connection: NodeConnection, received: ResponseReceived, now_ms: int
    ) -> None:
        """Note the cluster at the first metadata from a broker that checks identities.

        Later metadata of another cluster, which an address of ``bootstrap.servers`` may lead to,
        is rejected, because records must not go to two clusters. The Java client follows it.
        """
        versions = connection.api_versions
        assert isinstance(received.response, MetadataResponse)
        found, known = received.response.cluster_id, self._connector.cluster_id
        if not self._settings.checks_cluster or found is None:
            return
        if known is None and versions is not None and versions.checks_identity:
            self._connector.cluster_id = found
        elif known is not None and found != known:
            reason = (
                f"the broker is of the cluster {redacted(found)}, and this client writes to "
                f"{redacted(known)}: check kafka.bootstrap.servers, DNS and proxies"
            )
            self._complete(connection.node, received.sent, now_ms, failure=reason)
            raise MisroutedConnectionError(reason)

    def _throttle(self, connection: NodeConnection, throttle_time_ms: int, now_ms: int) -> None:
        until_ms = now_ms + min(throttle_time_ms, _LONGEST_PAUSE_MS)
        is_longer = until_ms > connection.resume_at_ms
        if self.logs_pauses and is_longer and throttle_time_ms >= _LONG_PAUSE_MS:
            warn(
                logger,
                "DELIVERY-010",
                f"{connection.node} asks for a pause of {throttle_time_ms // _MS_PER_S} s, because "
                "a quota is used up: pykafka-sink quota shows what is granted",
            )
        connection.throttle(now_ms, until_ms)
        self.pauses.note(connection.node.node_id, now_ms, until_ms)

    def _handle_ready(self, connection: NodeConnection, event: Ready, now_ms: int) -> None:
        protocol = connection.protocol
        assert protocol is not None
        if now_ms >= protocol.ends_at_ms:
            self._lose(connection, SESSION_OVER_AT_ONCE, now_ms)  # with a backoff
            return
        connection.change(ConnectionEvent.USABLE)
        connection.is_not_kafka = False
        connection.last_used_ms = now_ms
        connection.failed_attempts = 0
        if self.outages is not None:
            self.outages.note_usable(connection, now_ms)
        if event.throttle_time_ms > 0:
            self._throttle(connection, event.throttle_time_ms, now_ms)

    # --- deadlines -----------------------------------------------------------------------------

    def _next_deadline_ms(self) -> int | None:
        max_idle_ms = self._settings.connections_max_idle_ms
        deadlines = [c.next_deadline_ms(max_idle_ms) for c in self._by_channel.values()]
        return min([deadline for deadline in deadlines if deadline is not None], default=None)

    def _check_deadlines(self, connection: NodeConnection, now_ms: int) -> None:
        settings = self._settings
        if connection.state is ConnectionState.RESOLVING or not connection.has_channel:
            return  # the operating system limits the duration of a look-up
        if connection.state is ConnectionState.CONNECTING:
            if connection.addresses and now_ms >= connection.next_address_ms:
                self._to_next_address(connection, now_ms)
            elif now_ms >= connection.set_up_deadline_ms:
                self._lose(connection, "no connection in time", now_ms, is_timeout=True)
        elif any(now_ms >= request.deadline_ms for request in connection.in_flight):
            reason = f"{connection.awaited} within kafka.request.timeout.ms"
            reason += f" = {settings.request_timeout_ms}"
            self._lose(connection, reason, now_ms, is_timeout=True)
        elif not connection.in_flight and (
            now_ms >= connection.ends_at_ms
            or 0 <= settings.connections_max_idle_ms <= now_ms - connection.last_used_ms
        ):
            self._close(connection)

    def _close(self, connection: NodeConnection) -> None:
        """Close a connection without a backoff, because nothing has failed."""
        self._close_channels(connection.channel_ids)
        connection.close()
