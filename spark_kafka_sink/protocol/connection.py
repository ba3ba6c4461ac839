"""One Kafka connection without I/O: requests become buffers, bytes become events.

It begins with requests of its own: ApiVersions, and where it is authenticated, SaslHandshake and
SaslAuthenticate; these two again before the session ends. ``stages.py`` has the order. What the
connection itself has to send comes as :class:`Outgoing`; when others may send, as :class:`Usable`.

A broker answers the requests of a connection in the order in which it got them. Whatever breaks
that (a foreign correlation id, an impossible size, bytes that are no answer) raises
RemoteProtocolError, after which the connection must be closed, as after AuthenticationError.

Style: sans-I/O, as h11 and kafka-python's parser. Source: ``NetworkReceive``, ``InFlightRequests``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple, Union

from spark_kafka_sink import __version__
from spark_kafka_sink.base.errors import (
    AuthenticationError,
    LocalProtocolError,
    RemoteProtocolError,
    error_for_code,
)
from spark_kafka_sink.protocol import api
from spark_kafka_sink.protocol.authentication import NEVER_MS, Authentication
from spark_kafka_sink.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from spark_kafka_sink.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from spark_kafka_sink.protocol.messages.sasl_handshake import (
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from spark_kafka_sink.protocol.schema import Message, Request
from spark_kafka_sink.protocol.stages import Stage, Step, stage_after
from spark_kafka_sink.protocol.types import Buffer

SOFTWARE_NAME = "pykafka-sink"

MAX_RESPONSE_BYTES = 100 * 1024 * 1024
"""No answer that a producer asks for comes near; a size beyond is garbage or another protocol."""
MOST_BYTES_OF_OWN = 512 * 1024
"""Of an answer to a request of the connection's own: whoever sends it may not be a broker at all.
Brokers have the same limit for clients that are not authenticated. Source:
``sasl.server.max.receive.size``."""

# How a TLS listener begins its answer to clear text: an alert record.
_TLS_ALERT = b"\x15\x03"

_STEPS: dict[type[Request] | None, Step] = {
    ApiVersionsRequest: Step.ASK_VERSIONS,
    SaslHandshakeRequest: Step.CHOOSE_MECHANISM,
    SaslAuthenticateRequest: Step.AUTHENTICATE,
    None: Step.FINISH,
}


class InFlightRequest(NamedTuple):
    """A request that has no answer yet: what is needed to read that, and of whoever waits for it.

    on_complete: of the sender, not used here
    is_own: of the connection itself
    """

    correlation_id: int
    request: Request
    version: int
    expects_response: bool
    sent_at_ms: int
    deadline_ms: int
    on_complete: Any = None
    is_own: bool = False


class ResponseReceived(NamedTuple):
    """An answer, with the request that asked for it."""

    sent: InFlightRequest
    response: Message
    size_bytes: int


class Outgoing(NamedTuple):
    """A request of the connection's own, which is to be written now. It may hold a password."""

    buffers: list[Buffer]

    def __repr__(self) -> str:
        return f"Outgoing({sum(map(len, self.buffers))} bytes)"


class Usable(NamedTuple):
    """Requests may be sent: for the first time, or again.

    throttle_time_ms: the pause that the broker asks for before the first of them
    """

    throttle_time_ms: int


ProtocolEvent = Union[ResponseReceived, Outgoing, Usable]


class Connection:
    """Framing, correlation ids, authentication, and the requests that wait for their answer.

    api_versions: what the broker speaks, None before it has told
    renew_at_ms: from when on nothing may be sent before ``authenticate_again``
    ends_at_ms: from when on the broker takes nothing any more, and the connection is to be closed
    """

    def __init__(self, client_id: str, authentication: Authentication | None = None) -> None:
        self.stage = Stage.NEW
        self.in_flight: deque[InFlightRequest] = deque()
        self.api_versions: api.BrokerApiVersions | None = None
        self.renew_at_ms = self.ends_at_ms = NEVER_MS
        self._client_id = client_id
        self._authentication = authentication
        self._next_correlation_id = 0
        self._received = bytearray()
        self._deadline_ms = 0
        self._throttle_time_ms = 0

    @property
    def is_authenticated(self) -> bool:
        """Whether it is, or is going to be, authenticated by SASL."""
        return self._authentication is not None

    def postpone_deadlines(self, by_ms: int) -> None:
        """Of all that is in flight."""
        self.in_flight = deque(
            sent._replace(deadline_ms=sent.deadline_ms + by_ms) for sent in self.in_flight
        )

    # --- sending -------------------------------------------------------------------------------

    def open(self, now_ms: int, deadline_ms: int) -> list[Buffer]:
        """The connection's first request. ``deadline_ms``: of all that come before Usable."""
        self._deadline_ms = deadline_ms
        request = ApiVersionsRequest(SOFTWARE_NAME, __version__)
        return self._send_own(request, request.max_version, now_ms)

    def authenticate_again(self, now_ms: int, deadline_ms: int) -> list[Buffer]:
        """Begin another session. Raises AuthenticationError without credentials."""
        assert self._authentication is not None, "a session was begun before"
        self._deadline_ms = deadline_ms
        request = self._authentication.begin()
        return self._send_own(request, self._version_of(request), now_ms)

    def send(
        self,
        request: Request,
        version: int,
        sent_at_ms: int,
        deadline_ms: int,
        on_complete: Any,
        expects_response: bool = True,
    ) -> list[Buffer]:
        """Frame ``request``, which is in flight then.

        With ``expects_response`` False (acks=0) it is so until it is ``written``.
        """
        if self.stage is not Stage.READY:
            raise LocalProtocolError(f"{type(request).__name__} while {self.stage.name}")
        if not request.min_version <= version <= request.max_version:
            raise LocalProtocolError(f"{type(request).__name__} has no version {version} here")
        correlation_id = self._next_correlation_id
        buffers = api.encode_request(request, version, correlation_id, self._client_id)
        self._next_correlation_id = (correlation_id + 1) & 0x7FFFFFFF
        self.in_flight.append(
            InFlightRequest(
                correlation_id,
                request,
                version,
                expects_response,
                sent_at_ms,
                deadline_ms,
                on_complete,
            )
        )
        return buffers

    def written(self) -> InFlightRequest | None:
        """The last request has been written. Returned if that is all that happens to it."""
        if self.in_flight and not self.in_flight[-1].expects_response:
            return self.in_flight.pop()
        return None

    def _send_own(self, request: Request, version: int, now_ms: int) -> list[Buffer]:
        self.stage = stage_after(self.stage, _STEPS[type(request)])
        correlation_id = self._next_correlation_id
        self._next_correlation_id = (correlation_id + 1) & 0x7FFFFFFF
        self.in_flight.append(
            InFlightRequest(
                correlation_id, request, version, True, now_ms, self._deadline_ms, is_own=True
            )
        )
        return api.encode_request(request, version, correlation_id, self._client_id)

    def _version_of(self, request: Request) -> int:
        assert self.api_versions is not None, "the versions come first"
        return self.api_versions.highest(type(request))

    # --- receiving -----------------------------------------------------------------------------

    def receive(self, data: Buffer, now_ms: int) -> Iterator[ProtocolEvent]:
        """Take the next bytes, of any number; returns what follows from them.

        What comes before something broken is returned before RemoteProtocolError is raised.
        Raises AuthenticationError when the broker refuses this client, or is not what it says.
        """
        self._received += data
        while len(self._received) >= api.SIZE_BYTES:
            size = self._checked_size()
            end = api.SIZE_BYTES + size
            if len(self._received) < end:
                break
            frame = bytes(self._received[api.SIZE_BYTES : end])
            del self._received[:end]
            received = self._receive_frame(frame)
            if received.sent.is_own:
                yield self._go_on(received, now_ms)
            else:
                if isinstance(received.response, ApiVersionsResponse):
                    self._take_versions(received.response)  # finalized features change
                yield received

    def _checked_size(self) -> int:
        size = api.decode_size(self._received)
        is_own = not self.in_flight or self.in_flight[0].is_own
        if 0 <= size <= (MOST_BYTES_OF_OWN if is_own else MAX_RESPONSE_BYTES):
            return size
        if self._received.startswith(_TLS_ALERT):
            raise AuthenticationError(
                "this address is a TLS listener: use kafka.security.protocol=SSL, or SASL_SSL"
            )
        if self._received.startswith(b"HTTP"):
            raise RemoteProtocolError("this address is an HTTP server, not a Kafka listener")
        raise RemoteProtocolError(f"response announces {size} bytes")

    def _receive_frame(self, frame: bytes) -> ResponseReceived:
        correlation_id = api.decode_correlation_id(frame)
        if not self.in_flight:
            raise RemoteProtocolError(f"response {correlation_id} was never asked for")
        sent = self.in_flight[0]
        if sent.correlation_id != correlation_id:
            raise RemoteProtocolError(f"response {correlation_id} instead of {sent.correlation_id}")
        if not sent.expects_response:
            raise RemoteProtocolError(f"response {correlation_id} was not asked for")
        response = api.decode_response(sent.request, sent.version, frame)
        self.in_flight.popleft()
        return ResponseReceived(sent, response, len(frame) + api.SIZE_BYTES)

    # --- the connection's own requests ---------------------------------------------------------

    def _go_on(self, received: ResponseReceived, now_ms: int) -> Outgoing | Usable:
        """The next step after an answer to a request of the connection's own."""
        sent, response, _ = received
        version = None
        following: Request | None
        if isinstance(response, ApiVersionsResponse):
            following, version = self._after_versions(response, sent.version)
        elif isinstance(response, SaslHandshakeResponse):
            following = self._authenticated().chosen(response)
        else:
            assert isinstance(response, SaslAuthenticateResponse)
            following = self._authenticated().answered(response, sent.sent_at_ms, now_ms)
        if following is None:
            return self._finish()
        if version is None:
            version = self._version_of(following)
        return Outgoing(self._send_own(following, version, now_ms))

    def _after_versions(
        self, response: ApiVersionsResponse, version: int
    ) -> tuple[Request | None, int | None]:
        """The request after ApiVersions, and its version if that is not the highest one."""
        if response.error_code == api.UNSUPPORTED_VERSION_CODE and version > 0:
            again = ApiVersionsRequest(SOFTWARE_NAME, __version__)
            return again, api.fallback_version(response, version)
        if response.error_code:
            raise RemoteProtocolError(f"ApiVersions: {error_for_code(response.error_code)}")
        self._take_versions(response)
        if version >= ApiVersionsRequest.throttled_from:
            self._throttle_time_ms = response.throttle_time_ms
        return None if self._authentication is None else self._authentication.begin(), None

    def _take_versions(self, response: ApiVersionsResponse) -> None:
        if response.error_code == 0:
            self.api_versions = api.BrokerApiVersions.from_response(response)

    def _finish(self) -> Usable:
        self.stage = stage_after(self.stage, Step.FINISH)
        if self._authentication is not None:
            self.renew_at_ms, self.ends_at_ms = self._authentication.session
        throttle_time_ms, self._throttle_time_ms = self._throttle_time_ms, 0
        return Usable(throttle_time_ms)

    def _authenticated(self) -> Authentication:
        assert self._authentication is not None, "nothing of SASL is sent without it"
        return self._authentication
