"""A Network whose brokers answer as a test says: real bytes in both directions, no time of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from spark_kafka_sink.network import channels
from spark_kafka_sink.protocol import schema
from spark_kafka_sink.protocol.messages.client import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
)
from tests.unit.frames import answer_frame, read_request


class Asked(NamedTuple):
    """A request as a broker got it."""

    node_id: int
    version: int
    request: schema.Request


class LoseConnection(Exception):  # noqa: N818 (it is no error, it is an order)
    """Raised by a script instead of an answer."""


class Silence(Exception):  # noqa: N818 (it is no error, it is an order)
    """Raised by a script that leaves a request without an answer."""


Script = Callable[[Asked], schema.Message]


class ScriptedNetwork:
    """Brokers that ``script`` speaks for. What they are asked is in ``asked``.

    offered: versions by request type; features: finalized levels by name, of every broker
    down: brokers that refuse connections
    unreachable: brokers to which connections never come about
    hung: brokers that take connections and requests, and say nothing
    """

    def __init__(self, nodes, clock, script, offered):
        self._node_ids = {(node.host, node.port): node.node_id for node in nodes.values()}
        self._clock = clock
        self._script = script
        self._events = []
        self.is_next_whole = False
        self._channels = {}
        self.offered = {**offered, ApiVersionsRequest: (0, 4)}
        self.features = {}
        self.down = set()
        self.unreachable = set()
        self.hung = set()
        self.connects = []
        self.asked = []

    # --- the client's side ---------------------------------------------------------------------

    def resolve(self, channel_id, host, port):
        self._events.append(channels.Resolved(channel_id, [channels.Address(0, (host, port))]))

    def connect(self, channel_id, address, host):
        node_id = self._node_ids[address.sockaddr]
        self.connects.append(node_id)
        if node_id in self.unreachable:
            return
        if node_id in self.down:
            self._events.append(channels.Disconnected(channel_id, "Connection refused"))
            return
        self._channels[channel_id] = node_id
        self._events.append(channels.Connected(channel_id))

    def send(self, channel_id, buffers):
        """Take every other request whole, as a real socket takes most."""
        is_whole = self.is_next_whole
        self.is_next_whole = not is_whole
        if not is_whole:
            self._events.append(channels.SendCompleted(channel_id))
        self._serve(channel_id, buffers)
        return is_whole

    def _serve(self, channel_id, buffers):
        if self._channels[channel_id] in self.down | self.hung:
            return
        request, version, correlation_id = read_request(buffers, self.offered)
        try:
            answer = (
                self._api_versions()
                if isinstance(request, ApiVersionsRequest)
                else self._ask(Asked(self._channels[channel_id], version, request))
            )
        except Silence:
            return
        except LoseConnection:
            self._events.append(channels.Disconnected(channel_id, "Connection reset by peer"))
            return
        data = answer_frame(request, version, correlation_id, answer)
        self._events.append(channels.Received(channel_id, data))

    def poll(self, timeout_ms):
        events, self._events = self._events, []
        if not events:
            self._clock.ms += timeout_ms
        return events

    def disconnect(self, channel_id):
        self._channels.pop(channel_id, None)

    def wakeup(self): ...

    def close(self): ...

    # --- the brokers' side ---------------------------------------------------------------------

    def lose(self, node_id):
        """The broker dies: its connections break, and there are no new ones."""
        self.down.add(node_id)
        for channel_id in [c for c, n in self._channels.items() if n == node_id]:
            self._events.append(channels.Disconnected(channel_id, "Connection reset by peer"))

    def _ask(self, asked):
        self.asked.append(asked)
        return self._script(asked)

    def _api_versions(self):
        keys = [ApiVersion(t.api_key, *versions) for t, versions in self.offered.items()]
        features = [FinalizedFeatureKey(n, level, level) for n, level in self.features.items()]
        return ApiVersionsResponse(api_keys=keys, finalized_features=features)
