"""One Kafka connection without I/O: requests become buffers, bytes become responses.

A broker answers the requests of a connection in the order in which it got them. Whatever breaks
that (a foreign correlation id, an impossible size, bytes that are no answer) raises
RemoteProtocolError, after which the connection must be closed.

Style: sans-I/O, as h11 and kafka-python's parser. Source: ``NetworkReceive``, ``InFlightRequests``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from spark_kafka_sink.base.errors import LocalProtocolError, RemoteProtocolError
from spark_kafka_sink.protocol import api
from spark_kafka_sink.protocol.schema import Message, Request
from spark_kafka_sink.protocol.types import Buffer

MAX_RESPONSE_BYTES = 100 * 1024 * 1024
"""No answer that a producer asks for comes near; a size beyond is garbage or another protocol."""

# The first bytes from peers that are not a Kafka listener in clear text.
_FOREIGN_PROTOCOLS = ((b"HTTP", "an HTTP server"), (b"\x15\x03", "a TLS listener"))


class SentRequest(NamedTuple):
    """A request on its way: what is needed to read its answer."""

    correlation_id: int
    request: Request
    version: int


class ResponseReceived(NamedTuple):
    """An answer, with the request that asked for it."""

    sent: SentRequest
    response: Message
    size_bytes: int


class Connection:
    """Framing, correlation ids and the queue of requests that wait for their answer."""

    def __init__(self, client_id: str) -> None:
        self._client_id = client_id
        self._next_correlation_id = 0
        self._awaiting: deque[SentRequest] = deque()
        self._received = bytearray()

    @property
    def awaiting_count(self) -> int:
        return len(self._awaiting)

    def send(
        self, request: Request, version: int, expect_response: bool = True
    ) -> tuple[SentRequest, list[Buffer]]:
        """Frame ``request``. With ``expect_response`` False (acks=0) no answer is waited for."""
        if not request.min_version <= version <= request.max_version:
            raise LocalProtocolError(f"{type(request).__name__} has no version {version} here")
        sent = SentRequest(self._next_correlation_id, request, version)
        buffers = api.encode_request(request, version, sent.correlation_id, self._client_id)
        self._next_correlation_id = (self._next_correlation_id + 1) & 0x7FFFFFFF
        if expect_response:
            self._awaiting.append(sent)
        return sent, buffers

    def receive(self, data: Buffer) -> Iterator[ResponseReceived]:
        """Take the next bytes, of any number; returns the answers that are complete.

        The answers before a broken one are returned before RemoteProtocolError is raised.
        """
        self._received += data
        while len(self._received) >= api.SIZE_BYTES:
            size = self._checked_size()
            end = api.SIZE_BYTES + size
            if len(self._received) < end:
                break
            frame = bytes(self._received[api.SIZE_BYTES : end])
            del self._received[:end]
            yield self._receive_frame(frame)

    def _checked_size(self) -> int:
        size = api.decode_size(self._received)
        if 0 <= size <= MAX_RESPONSE_BYTES:
            return size
        for start, what in _FOREIGN_PROTOCOLS:
            if self._received.startswith(start):
                raise RemoteProtocolError(f"this address is {what}, not a plaintext Kafka listener")
        raise RemoteProtocolError(f"response announces {size} bytes")

    def _receive_frame(self, frame: bytes) -> ResponseReceived:
        correlation_id = api.decode_correlation_id(frame)
        if not self._awaiting:
            raise RemoteProtocolError(f"response {correlation_id} was never asked for")
        sent = self._awaiting[0]
        if sent.correlation_id != correlation_id:
            raise RemoteProtocolError(f"response {correlation_id} instead of {sent.correlation_id}")
        response = api.decode_response(sent.request, sent.version, frame)
        self._awaiting.popleft()
        return ResponseReceived(sent, response, len(frame) + api.SIZE_BYTES)
