"""Brings connections about: name, address, channel, and the first request.

Source: ``NetworkClient.initiateConnect``, ``ClusterConnectionStates``, KIP-601.
"""

from __future__ import annotations

from spark_kafka_sink.base.backoff import ExponentialBackoff, RandomSource
from spark_kafka_sink.base.model import Node
from spark_kafka_sink.network.interface import Network
from spark_kafka_sink.network.node_connection import ConnectionEvent, NodeConnection
from spark_kafka_sink.network.settings import ClientSettings
from spark_kafka_sink.protocol.authentication import Authentication
from spark_kafka_sink.protocol.connection import Connection
from spark_kafka_sink.protocol.sasl import Converse

NOT_AUTHENTICATED_IN_TIME = (
    "connected, but not authenticated within kafka.socket.connection.setup.timeout.ms"
)
SESSION_OVER_AT_ONCE = (
    "connected and authenticated, but the session was over at once: look at the brokers' "
    "connections.max.reauth.ms, at the token's life, and at the clocks"
)


class Connector:
    """The steps from a node to a connection that speaks, each taken when the one before is done."""

    def __init__(
        self,
        settings: ClientSettings,
        network: Network,
        rng: RandomSource,
        converse: Converse | None,
    ) -> None:
        """``converse``: begins the conversation that authenticates a connection, None for none."""
        self._settings = settings
        self._network = network
        self._rng = rng
        self._converse = converse
        self._pause = ExponentialBackoff(
            settings.reconnect_backoff_ms, settings.reconnect_backoff_max_ms, rng
        )
        self._set_up_time = ExponentialBackoff(
            settings.socket_connection_setup_timeout_ms,
            settings.socket_connection_setup_timeout_max_ms,
            rng,
        )

    def pause_ms(self, connection: NodeConnection) -> int:
        """How long to wait after the next failure."""
        return self._pause.backoff_ms(connection.failed_attempts)

    def begin(self, connection: NodeConnection, node: Node, channel_id: int, now_ms: int) -> None:
        """Connect to an address that was not tried yet, or ask for the addresses of the name."""
        if (node.host, node.port) != (connection.node.host, connection.node.port):
            connection.addresses = []
        connection.node = node
        connection.last_used_ms = connection.connect_started_ms = now_ms
        connection.channel_id = channel_id
        if connection.addresses:
            self.to_next_address(connection, now_ms)
        else:
            connection.change(ConnectionEvent.RESOLVE)
            self._network.resolve(channel_id, node.host, node.port)

    def to_next_address(self, connection: NodeConnection, now_ms: int) -> None:
        """Each attempt takes the next address; when all were tried, the name is asked again."""
        connection.change(ConnectionEvent.CONNECT)
        timeout_ms = self._set_up_time.backoff_ms(connection.failed_set_ups)
        connection.set_up_deadline_ms = now_ms + timeout_ms
        address = connection.addresses.pop(0)
        self._network.connect(connection.channel_id, address, connection.node.host)

    def open(self, connection: NodeConnection, now_ms: int) -> None:
        """Begin to speak on a channel that has just been connected.

        What comes before the first request of others has the time of any request; with SASL, where
        it is several requests and a part of setting the connection up, what is left of that time.
        """
        connection.change(ConnectionEvent.CONNECTED)
        deadline_ms = now_ms + self._settings.request_timeout_ms
        authentication = None
        if self._converse is not None:
            converse, host = self._converse, connection.node.host
            authentication = Authentication(lambda: converse(host), self._rng)
            deadline_ms = connection.set_up_deadline_ms
        connection.protocol = Connection(self._settings.client_id, authentication)
        connection.metrics.connected()
        buffers = connection.protocol.open(now_ms, deadline_ms)
        connection.note_sent(buffers, now_ms)
        self._network.send(connection.channel_id, buffers)


def hint_at_sasl(connection: NodeConnection) -> str:
    """What it may mean that a connection was lost, if it was the first request that was not
    answered; empty otherwise.
    """
    protocol = connection.protocol
    if protocol is None or protocol.is_authenticated or connection.has_answered:
        return ""
    if not (connection.is_connected and protocol.in_flight):
        return ""
    return (
        ", before the first answer. A listener with SASL does that: does "
        "kafka.security.protocol have to be SASL_SSL or SASL_PLAINTEXT?"
    )
