"""One simulated broker: frames in, one request of a connection at a time, frames out."""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from spark_kafka_sink.protocol import schema, types
from spark_kafka_sink.protocol.messages import client, inspection, topics, transactions
from tests.simulation.network import Channel
from tests.simulation.sasl import Session

if TYPE_CHECKING:
    from tests.simulation.cluster import SimCluster

REQUESTS: dict[int, type[schema.Request]] = {
    r.api_key: r
    for r in (
        client.ApiVersionsRequest,
        topics.MetadataRequest,
        topics.ProduceRequest,
        transactions.InitProducerIdRequest,
        transactions.AddPartitionsToTxnRequest,
        topics.CreateTopicsRequest,
        topics.DescribeConfigsRequest,
        inspection.DescribeProducersRequest,
        transactions.DescribeTransactionsRequest,
        transactions.EndTxnRequest,
        inspection.FetchRequest,
        transactions.FindCoordinatorRequest,
        client.GetTelemetrySubscriptionsRequest,
        inspection.ListOffsetsRequest,
        transactions.ListTransactionsRequest,
        client.PushTelemetryRequest,
        client.SaslAuthenticateRequest,
        client.SaslHandshakeRequest,
    )
}


@dataclass
class Inbox:
    """What has arrived on one connection. ``is_busy``: a request of it is not answered yet.

    session: how it is authenticated, None where nobody has to be
    """

    session: Session | None

    buffer: bytearray = field(default_factory=bytearray)
    frames: deque[bytes] = field(default_factory=deque)
    is_busy: bool = False


@dataclass(frozen=True)
class LeaderView:
    """What a broker believes of a partition: it learns of changes a little later."""

    leader_id: int
    leader_epoch: int


class SimBroker:
    """A broker. ``view``: leaders as it knows them; what it serves and tells is by this."""

    def __init__(self, node_id: int, cluster: SimCluster) -> None:
        self.node_id = node_id
        self.host, self.port = f"broker-{node_id}", 9092
        self.is_up = True
        self.is_paused = False
        self.produce_requests = 0
        # message.max.bytes, where the broker has one of its own and topics have none.
        self.max_message_bytes: int | None = None
        self.view: dict[tuple[str, int], LeaderView] = {}
        self.alive: tuple[int, ...] = ()
        self.learned = 0
        self._cluster = cluster
        self._inboxes: dict[Channel, Inbox] = {}
        self._waiting: list[tuple[Channel, bytes]] = []

    def crash(self) -> None:
        """Connections and requests are gone; the log stays."""
        self.is_up = False
        self._inboxes.clear()
        self._waiting.clear()

    def receive(self, channel: Channel, data: bytes) -> None:
        if self._cluster.on_receive is not None:
            self._cluster.on_receive(self, data)
        if self.is_paused:
            self._waiting.append((channel, data))
            return
        inbox = self._inboxes.get(channel)
        if inbox is None:
            sasl = self._cluster.sasl
            inbox = self._inboxes[channel] = Inbox(None if sasl is None else Session(sasl))
        inbox.buffer += data
        while len(inbox.buffer) >= 4:
            (size,) = struct.unpack_from(">i", inbox.buffer)
            if len(inbox.buffer) < 4 + size:
                break
            inbox.frames.append(bytes(inbox.buffer[4 : 4 + size]))
            del inbox.buffer[: 4 + size]
        self._serve_next(channel, inbox)

    def resume(self) -> None:
        self.is_paused = False
        waiting, self._waiting = self._waiting, []
        for channel, data in waiting:
            self.receive(channel, data)

    def _serve_next(self, channel: Channel, inbox: Inbox) -> None:
        while inbox.frames and not inbox.is_busy:
            inbox.is_busy = True
            self._serve(channel, inbox, inbox.frames.popleft())

    def _serve(self, channel: Channel, inbox: Inbox, frame: bytes) -> None:
        api_key, version, correlation_id = struct.unpack_from(">hhi", frame)
        (client_id_bytes,) = struct.unpack_from(">h", frame, 8)
        at = 10 + max(client_id_bytes, 0)
        request_type = REQUESTS[api_key]
        sent_at_ms = channel.sent_at_ms.popleft()
        if version >= request_type.flexible_from:
            at = schema.skip_tags(frame, at)
        first, last = self._cluster.api_versions[api_key]
        if not first <= version <= last:
            assert api_key == 18, f"the client sent API {api_key} version {version}"
            response = self._cluster.api_versions_response(35)
            self._respond(channel, inbox, response, 0, correlation_id, flexible_header=False)
            return
        request = schema.decode_message(request_type, version, frame, at)
        flexible = version >= request_type.flexible_from and api_key != 18

        def reply(response: schema.Message | None) -> None:
            """Answer once; None: the request wants no answer (acks=0)."""
            if response is None:
                inbox.is_busy = False
            else:
                self._respond(channel, inbox, response, version, correlation_id, flexible)
                pause_ms = getattr(response, "throttle_time_ms", 0)
                if pause_ms and version >= request_type.throttled_from:
                    self._mute(channel, inbox, pause_ms)
            self._serve_next(channel, inbox)

        if inbox.session is None:
            self._cluster.handle(self, request, version, reply)
        else:
            self._serve_secured(channel, inbox.session, (request, version, sent_at_ms), reply)

    def _mute(self, channel: Channel, inbox: Inbox, pause_ms: int) -> None:
        """A quota is used up: nothing more is read from the connection for that long."""
        self._cluster.paused_ms += pause_ms
        inbox.is_busy = True

        def unmute() -> None:
            if self._inboxes.get(channel) is inbox:
                inbox.is_busy = False
                self._serve_next(channel, inbox)

        self._cluster.scheduler.after(pause_ms, unmute)

    def _serve_secured(
        self,
        channel: Channel,
        session: Session,
        asked: tuple[schema.Request, int, int],
        reply: Callable[[schema.Message | None], None],
    ) -> None:
        """``asked``: the request, its version, and when it was sent."""
        (request, version, sent_at_ms), cluster = asked, self._cluster
        now_ms = cluster.scheduler.clock.ms
        assert cluster.sasl is not None
        if not session.admits(request, sent_at_ms, now_ms):
            cluster.network.cut(channel, "closed by the broker")
        elif isinstance(request, client.SaslHandshakeRequest):
            reply(session.handshake(request, now_ms))
        elif not isinstance(request, client.SaslAuthenticateRequest):
            if isinstance(request, client.ApiVersionsRequest) and not session.is_authenticated:
                request.cluster_id = None  # SaslServerAuthenticator compares no identities
            cluster.handle(self, request, version, reply)
        elif cluster.sasl.hangs_next:
            cluster.sasl.hangs_next = False
        elif cluster.sasl.cuts_next:
            cluster.sasl.cuts_next = False
            cluster.network.cut(channel, "cut in the middle of SASL")
        else:
            reply(session.authenticate(request, now_ms))

    def _respond(
        self,
        channel: Channel,
        inbox: Inbox,
        response: schema.Message,
        version: int,
        correlation_id: int,
        flexible_header: bool,
    ) -> None:
        out = types.Writer()
        out.tail += struct.pack(">i", correlation_id)
        if flexible_header:
            out.tail.append(0)
        schema.encode_message(response, version, out)
        body = b"".join(bytes(b) for b in out.buffers())
        inbox.is_busy = False
        if self.is_up:
            self._cluster.network.respond(channel, struct.pack(">i", len(body)) + body)
