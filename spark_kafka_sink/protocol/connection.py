"""One Kafka connection without I/O: its stages, its SASL authentication, its requests.

Requests become buffers, bytes become events. A connection begins with requests of its own:
ApiVersions, then SaslHandshake and SaslAuthenticate if it uses SASL. These two are repeated before
the session ends. A broker compares the expected broker with itself only after authentication, so
ApiVersions then follows once more. ``STAGE_CHANGES`` defines the order. :class:`OwnRequest` carries
the connection's own requests; :class:`Ready` means that the caller may send. SASL is a conversation
of bytes: the mechanisms are in ``security/``.

A broker answers the requests of a connection in the order of their arrival. A violation (a foreign
correlation id, an impossible size, an undecodable response) raises RemoteProtocolError. After it,
and after AuthenticationError, the connection must be closed.

Style: sans-I/O, as h11 and kafka-python's parser. Source: ``NetworkReceive``, ``InFlightRequests``,
``SaslClientAuthenticator.SaslState``; KIP-43, KIP-152, KIP-368.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from enum import Enum, auto
from typing import Any, NamedTuple, Protocol, Union

from spark_kafka_sink import __version__
from spark_kafka_sink.base.clock import RandomSource
from spark_kafka_sink.base.errors import (
    AuthenticationError,
    LocalProtocolError,
    MisroutedConnectionError,
    NotKafkaError,
    RemoteProtocolError,
    broker_code,
    error_for_code,
)
from spark_kafka_sink.base.text import redacted
from spark_kafka_sink.protocol import api
from spark_kafka_sink.protocol.messages.client import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from spark_kafka_sink.protocol.schema import Message, Request
from spark_kafka_sink.protocol.types import Buffer


class SaslClient(Protocol):
    """One authentication of one connection. Source: ``SaslClient`` of Java."""

    @property
    def mechanism(self) -> str:
        """The mechanism's name on the wire, for SaslHandshake."""
        ...

    @property
    def configured(self) -> str:
        """The value of kafka.sasl.mechanism. AWS_MSK_IAM is OAUTHBEARER on the wire."""
        ...

    def initial_response(self) -> bytes:
        """Return the first message to the broker."""
        ...

    def evaluate_challenge(self, challenge: bytes) -> bytes | None:
        """Return the answer to the broker's message; None at the end of the conversation.

        After None the broker is authenticated as far as the mechanism supports it. Raises
        AuthenticationError if the broker's message is wrong (a SCRAM signature that does not
        match), or is a rejection that ends the conversation.
        """
        ...


SaslClientFactory = Callable[[str], SaslClient]
"""Begins a conversation with the broker of this host name. Raises AuthenticationError without
credentials. Does not wait, because tokens are fetched beforehand; only GSSAPI's first message
contacts the KDC."""


class Stage(Enum):
    """The stages of a connection. Only READY accepts requests of callers."""

    NEW = auto()
    CHECKING_API_VERSIONS = auto()
    CHOOSING_MECHANISM = auto()
    AUTHENTICATING = auto()
    CHECKING_BROKER = auto()
    READY = auto()
    CHOOSING_MECHANISM_AGAIN = auto()
    AUTHENTICATING_AGAIN = auto()


class Step(Enum):
    """The connection's next step: one of its own requests, or FINISH after the last request."""

    ASK_VERSIONS = auto()
    CHOOSE_MECHANISM = auto()
    AUTHENTICATE = auto()
    FINISH = auto()


class StageChange(NamedTuple):
    """``step`` leads from ``stage`` to ``next_stage``, because of ``reason``."""

    stage: Stage
    step: Step
    next_stage: Stage
    reason: str


_S, _T = Stage, Step
STAGE_CHANGES = (
    StageChange(
        _S.NEW, _T.ASK_VERSIONS, _S.CHECKING_API_VERSIONS, "answered before authentication, too"
    ),
    StageChange(
        _S.CHECKING_API_VERSIONS,
        _T.ASK_VERSIONS,
        _S.CHECKING_API_VERSIONS,
        "the broker does not know the version it was asked in",
    ),
    StageChange(
        _S.CHECKING_API_VERSIONS, _T.FINISH, _S.READY, "nobody has to be authenticated by SASL"
    ),
    StageChange(
        _S.CHECKING_API_VERSIONS,
        _T.CHOOSE_MECHANISM,
        _S.CHOOSING_MECHANISM,
        "until SASL is done the broker ends the connection at any other request",
    ),
    StageChange(
        _S.CHOOSING_MECHANISM, _T.AUTHENTICATE, _S.AUTHENTICATING, "the broker has the mechanism"
    ),
    StageChange(
        _S.AUTHENTICATING, _T.AUTHENTICATE, _S.AUTHENTICATING, "the broker's message has an answer"
    ),
    StageChange(_S.AUTHENTICATING, _T.FINISH, _S.READY, "there is nothing more to be said"),
    StageChange(
        _S.AUTHENTICATING,
        _T.ASK_VERSIONS,
        _S.CHECKING_BROKER,
        "before authentication the broker ignores which broker is expected",
    ),
    StageChange(_S.CHECKING_BROKER, _T.FINISH, _S.READY, "it is the expected broker"),
    StageChange(
        _S.READY,
        _T.CHOOSE_MECHANISM,
        _S.CHOOSING_MECHANISM_AGAIN,
        "the session ends soon; earlier requests may still be answered (KIP-368)",
    ),
    StageChange(
        _S.CHOOSING_MECHANISM_AGAIN,
        _T.AUTHENTICATE,
        _S.AUTHENTICATING_AGAIN,
        "the broker has the mechanism",
    ),
    StageChange(
        _S.AUTHENTICATING_AGAIN,
        _T.AUTHENTICATE,
        _S.AUTHENTICATING_AGAIN,
        "the broker's message has an answer",
    ),
    StageChange(_S.AUTHENTICATING_AGAIN, _T.FINISH, _S.READY, "there is nothing more to be said"),
)
_NEXT = {(stage, step): next_stage for stage, step, next_stage, _ in STAGE_CHANGES}


def stage_after(stage: Stage, step: Step) -> Stage:
    """Return the next stage. Raises LocalProtocolError, a bug of this client, if none follows."""
    next_stage = _NEXT.get((stage, step))
    if next_stage is None:
        raise LocalProtocolError(f"{step.name} while {stage.name}")
    return next_stage


NEVER_MS = 2**63 - 1
"""An instant that is never reached."""

# Brokers ignore a re-authentication within a second of the previous authentication.
_LEAST_INTERVAL_MS = 1_100
# Bounds of the part of the session's lifetime after which the connection authenticates again.
_EARLIEST, _LATEST = 0.85, 0.95

_MECHANISM_NOT_THERE = "UNSUPPORTED_SASL_MECHANISM"
_NO_SASL = "ILLEGAL_SASL_STATE"
_REFUSED = "SASL_AUTHENTICATION_FAILED"

_USER_AND_PASSWORD = (
    "check kafka.sasl.jaas.config, or kafka.sasl.username and kafka.sasl.password, and that the "
    "brokers know the user"
)
_TOKEN = (
    "the brokers do not tell clients why they refuse a token; their log does: issuer, audience, "
    "scope, signature, expiry"
)
_AWS = "check the AWS credentials, and that their policy has kafka-cluster:Connect"
# The client's own principal and key are right, because the KDC has issued a ticket for them.
_TICKET = (
    "the broker does not accept the ticket, and its log says why: the clocks of this machine, of "
    "the KDC and of the broker may differ by 5 minutes only (NTP); the broker must have the KDC's "
    "key of its principal, whose first part is kafka.sasl.kerberos.service.name"
)
# kafka.sasl.mechanism -> code and advice.
_REJECTED = {
    "PLAIN": ("AUTH-009", _USER_AND_PASSWORD),
    "SCRAM-SHA-256": ("AUTH-009", _USER_AND_PASSWORD),
    "SCRAM-SHA-512": ("AUTH-009", _USER_AND_PASSWORD),
    "OAUTHBEARER": ("AUTH-011", _TOKEN),
    "AWS_MSK_IAM": ("AUTH-029", _AWS),
    "GSSAPI": ("AUTH-028", _TICKET),
}


class Session(NamedTuple):
    """The time for which a connection is authenticated.

    renew_at_ms: authenticate again before the first request after this time
    ends_at_ms: the broker closes the connection from then on instead of answering
    """

    renew_at_ms: int
    ends_at_ms: int

    @classmethod
    def of(
        cls, began_at_ms: int, received_at_ms: int, lifetime_ms: int, rng: RandomSource
    ) -> Session:
        """Return a session that began between ``began_at_ms`` and ``received_at_ms``.

        lifetime_ms: from the broker's response; 0 for no limit
        """
        if lifetime_ms <= 0:
            return UNLIMITED
        part = _EARLIEST + (_LATEST - _EARLIEST) * rng.random()
        ends_at_ms = began_at_ms + lifetime_ms
        renew_at_ms = max(
            began_at_ms + round(lifetime_ms * part), received_at_ms + _LEAST_INTERVAL_MS
        )
        return cls(min(renew_at_ms, ends_at_ms), ends_at_ms)


UNLIMITED = Session(NEVER_MS, NEVER_MS)


class Authentication:
    """The conversations of one connection, one after the other."""

    def __init__(self, create_sasl_client: Callable[[], SaslClient], rng: RandomSource) -> None:
        """create_sasl_client: raises AuthenticationError without credentials."""
        self._create_sasl_client = create_sasl_client
        self._rng = rng
        self._sasl_client: SaslClient | None = None
        self.session = UNLIMITED

    def begin(self) -> SaslHandshakeRequest:
        """Return the request that names the mechanism."""
        self._sasl_client = self._create_sasl_client()
        return SaslHandshakeRequest(self._sasl_client.mechanism)

    def on_handshake(self, response: SaslHandshakeResponse) -> SaslAuthenticateRequest:
        """Return the first message of the conversation, if the broker supports the mechanism."""
        sasl_client = self._current()
        error = error_for_code(response.error_code)
        if error.name == _MECHANISM_NOT_THERE:
            enabled = redacted(", ".join(response.mechanisms)) or "none"
            raise AuthenticationError(
                f"this listener does not have the SASL mechanism {sasl_client.mechanism}; enabled "
                f"there: {enabled}. Set kafka.sasl.mechanism to one of these",
                code="CONNECT-004",
            )
        if error.name == _NO_SASL:
            raise AuthenticationError(
                "this listener has no SASL: use kafka.security.protocol=SSL, or PLAINTEXT where it "
                "is in clear text",
                code="CONNECT-003",
            )
        if response.error_code:
            raise RemoteProtocolError(f"SaslHandshake: {error}", code=broker_code(error))
        return SaslAuthenticateRequest(sasl_client.initial_response())

    def on_authenticate(
        self, response: SaslAuthenticateResponse, asked_at_ms: int, now_ms: int
    ) -> SaslAuthenticateRequest | None:
        """Return the next message of the conversation; None at its end, when the session begins.

        asked_at_ms: when the request of ``response`` was sent; the broker counts from slightly
            later
        """
        sasl_client = self._current()
        if response.error_code:
            raise _authentication_error(sasl_client.configured, response)
        message = sasl_client.evaluate_challenge(response.auth_bytes)
        if message is not None:
            return SaslAuthenticateRequest(message)
        # Keep the conversation: its password stays a known secret, which ``redacted`` redacts.
        self.session = Session.of(asked_at_ms, now_ms, response.session_lifetime_ms, self._rng)
        return None

    def _current(self) -> SaslClient:
        assert self._sasl_client is not None, "a conversation was begun"
        return self._sasl_client


def _authentication_error(mechanism: str, response: SaslAuthenticateResponse) -> Exception:
    error = error_for_code(response.error_code)
    text = response.error_message or str(error)
    if error.name in (_REFUSED, _NO_SASL):
        code, advice = _REJECTED[mechanism]
        return AuthenticationError(f"{mechanism}: {text}: {advice}", code=code)
    # Other errors have an unknown cause, such as a broker that cannot reach its user database.
    return RemoteProtocolError(f"SaslAuthenticate: {error}: {text}", code=broker_code(error))


SOFTWARE_NAME = "pykafka-sink"

MAX_OWN_RESPONSE_BYTES = 512 * 1024
"""Limit for responses to the connection's own requests, because the peer may not be a broker.
Brokers have the same limit for unauthenticated clients. Source: ``sasl.server.max.receive.size``.
"""

# A TLS listener answers clear text with an alert record.
_TLS_ALERT = b"\x15\x03"

_STEPS: dict[type[Request] | None, Step] = {
    ApiVersionsRequest: Step.ASK_VERSIONS,
    SaslHandshakeRequest: Step.CHOOSE_MECHANISM,
    SaslAuthenticateRequest: Step.AUTHENTICATE,
    None: Step.FINISH,
}


class InFlightRequest(NamedTuple):
    """A request without a response yet: the data to decode the response, and the caller's data.

    size_bytes: of the whole request
    on_complete: of the caller, not used here
    is_own: a request of the connection itself
    """

    correlation_id: int
    request: Request
    version: int
    expects_response: bool
    sent_at_ms: int
    deadline_ms: int
    size_bytes: int
    on_complete: Any = None
    is_own: bool = False


class ResponseReceived(NamedTuple):
    """A response with its request."""

    sent: InFlightRequest
    response: Message
    size_bytes: int


class OwnRequest(NamedTuple):
    """A request of the connection's own, to be written now. It may hold a password."""

    buffers: list[Buffer]

    def __repr__(self) -> str:
        return f"OwnRequest({sum(map(len, self.buffers))} bytes)"


class Ready(NamedTuple):
    """The caller may send requests, for the first time or again.

    throttle_time_ms: the pause that the broker requests before the first request
    """

    throttle_time_ms: int


class ExpectedBroker(NamedTuple):
    """The broker that a connection is meant for, as metadata names it."""

    cluster_id: str
    node_id: int


ProtocolEvent = Union[ResponseReceived, OwnRequest, Ready]


class Connection:
    """Framing, correlation ids, authentication, and the requests in flight.

    api_versions: the broker's versions; None before its first response
    renew_at_ms: from then on, call ``authenticate_again`` before any other request
    ends_at_ms: from then on the broker accepts nothing, and the connection must be closed
    """

    def __init__(
        self,
        client_id: str,
        authentication: Authentication | None = None,
        expected: ExpectedBroker | None = None,
    ) -> None:
        """``expected``: the broker rejects this connection if it is another; None: no check."""
        self.stage = Stage.NEW
        self.in_flight: deque[InFlightRequest] = deque()
        self.api_versions: api.BrokerApiVersions | None = None
        self.renew_at_ms = self.ends_at_ms = NEVER_MS
        self._client_id = client_id
        self._authentication = authentication
        self._expected = expected
        self._next_correlation_id = 0
        self._received = bytearray()
        self._deadline_ms = 0
        self._throttle_time_ms = 0

    @property
    def is_authenticated(self) -> bool:
        """True if the connection uses SASL, also before the authentication is complete."""
        return self._authentication is not None

    def postpone_deadlines(self, by_ms: int) -> None:
        """Postpone the deadlines of all requests in flight."""
        self.in_flight = deque(
            sent._replace(deadline_ms=sent.deadline_ms + by_ms) for sent in self.in_flight
        )

    # --- sending -------------------------------------------------------------------------------

    def open(self, now_ms: int, deadline_ms: int) -> list[Buffer]:
        """Return the connection's first request.

        deadline_ms: of all requests before Ready
        """
        self._deadline_ms = deadline_ms
        if self._expected is not None and self._authentication is None:
            return self._send_own(self._identity_request(), api.IDENTITY_VERSION, now_ms)
        # The version before saves older brokers a second request.
        request = ApiVersionsRequest(SOFTWARE_NAME, __version__)
        return self._send_own(request, api.IDENTITY_VERSION - 1, now_ms)

    def _identity_request(self) -> ApiVersionsRequest:
        assert self._expected is not None
        return ApiVersionsRequest(SOFTWARE_NAME, __version__, *self._expected)

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
        """Frame ``request`` and put it in flight.

        With ``expects_response`` False (acks=0) it stays in flight until ``written``.
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
                sum(map(len, buffers)),
                on_complete,
            )
        )
        return buffers

    def written(self) -> InFlightRequest | None:
        """Note that the last request is written. Return it if it expects no response."""
        if self.in_flight and not self.in_flight[-1].expects_response:
            return self.in_flight.pop()
        return None

    def _send_own(self, request: Request, version: int, now_ms: int) -> list[Buffer]:
        self.stage = stage_after(self.stage, _STEPS[type(request)])
        correlation_id = self._next_correlation_id
        self._next_correlation_id = (correlation_id + 1) & 0x7FFFFFFF
        buffers = api.encode_request(request, version, correlation_id, self._client_id)
        about = version, True, now_ms, self._deadline_ms, sum(map(len, buffers))
        self.in_flight.append(InFlightRequest(correlation_id, request, *about, is_own=True))
        return buffers

    def _version_of(self, request: Request) -> int:
        assert self.api_versions is not None, "the versions come first"
        return self.api_versions.latest_usable_version(type(request))

    # --- receiving -----------------------------------------------------------------------------

    def receive(self, data: Buffer, now_ms: int) -> Iterator[ProtocolEvent]:
        """Take the next bytes, of any number, and yield the events that follow.

        Events before a broken response are yielded before RemoteProtocolError is raised. Raises
        AuthenticationError if the broker rejects this client, or fails to authenticate itself.
        """
        self._received += data
        while len(self._received) >= api.SIZE_BYTES:
            size = self._checked_size()
            end = api.SIZE_BYTES + size
            if len(self._received) < end:
                break
            frame = bytes(memoryview(self._received)[api.SIZE_BYTES : end])
            del self._received[:end]
            received = self._receive_frame(frame)
            if received.sent.is_own:
                yield self._handle_own_response(received, now_ms)
            else:
                if isinstance(received.response, ApiVersionsResponse):
                    self._take_versions(received.response)  # finalized features may have changed
                yield received

    def _checked_size(self) -> int:
        size = api.decode_size(self._received)
        if 0 <= size <= self._max_size():
            return size
        if self._received.startswith(_TLS_ALERT):
            raise AuthenticationError(
                "this address is a TLS listener: use kafka.security.protocol=SSL, or SASL_SSL",
                code="CONNECT-003",
            )
        if self._received.startswith(b"HTTP"):
            raise NotKafkaError("this address is an HTTP server, not a Kafka listener")
        if self.api_versions is None:
            raise NotKafkaError(
                f"this address is not a Kafka listener: its first response announces {size} bytes"
            )
        raise RemoteProtocolError(f"response announces {size} bytes")

    def _max_size(self) -> int:
        if not self.in_flight or self.in_flight[0].is_own:
            return MAX_OWN_RESPONSE_BYTES
        return self.in_flight[0].request.limits().size_bytes

    def _receive_frame(self, frame: bytes) -> ResponseReceived:
        correlation_id = api.decode_correlation_id(frame)
        if not self.in_flight:
            raise RemoteProtocolError(f"response {correlation_id} was never asked for")
        sent = self.in_flight[0]
        if sent.correlation_id != correlation_id:
            raise RemoteProtocolError(f"response {correlation_id} instead of {sent.correlation_id}")
        if not sent.expects_response:
            raise RemoteProtocolError(f"response {correlation_id} was not asked for")
        response = self._decode(sent, frame)
        self.in_flight.popleft()
        return ResponseReceived(sent, response, len(frame) + api.SIZE_BYTES)

    def _decode(self, sent: InFlightRequest, frame: bytes) -> Message:
        """Return the response in ``frame``. Raises RemoteProtocolError.

        Some brokers that do not know the version of ApiVersions cannot answer as KIP-511 says, as
        librdkafka's mock cluster. They are asked again in version 0, where the Java client fails.
        """
        try:
            return api.decode_response(sent.request, sent.version, frame)
        except RemoteProtocolError:
            if self.stage is not Stage.CHECKING_API_VERSIONS or sent.version == 0:
                raise
            return ApiVersionsResponse(error_code=api.UNSUPPORTED_VERSION_CODE)

    # --- the connection's own requests ---------------------------------------------------------

    def _handle_own_response(self, received: ResponseReceived, now_ms: int) -> OwnRequest | Ready:
        """Take the next step after a response to a request of the connection's own."""
        sent, response, _ = received
        version = None
        following: Request | None
        if isinstance(response, ApiVersionsResponse):
            following, version = self._after_versions(response, sent.version)
        elif isinstance(response, SaslHandshakeResponse):
            following = self._authenticated().on_handshake(response)
        else:
            assert isinstance(response, SaslAuthenticateResponse)
            following = self._authenticated().on_authenticate(response, sent.sent_at_ms, now_ms)
            if following is None:
                following = self._after_authentication()
        if following is None:
            return self._finish()
        if version is None:
            version = self._version_of(following)
        return OwnRequest(self._send_own(following, version, now_ms))

    def _after_versions(
        self, response: ApiVersionsResponse, version: int
    ) -> tuple[Request | None, int | None]:
        """Return the request after ApiVersions, and its version if that is not the highest one."""
        is_first = self.stage is Stage.CHECKING_API_VERSIONS
        if response.error_code == api.UNSUPPORTED_VERSION_CODE and version > 0 and is_first:
            again = ApiVersionsRequest(SOFTWARE_NAME, __version__)
            return again, api.fallback_version(response, version)
        if response.error_code == api.REBOOTSTRAP_REQUIRED_CODE:
            raise MisroutedConnectionError(self._misrouting())
        if response.error_code:
            error = error_for_code(response.error_code)
            raise RemoteProtocolError(f"ApiVersions: {error}", code=broker_code(error))
        self._take_versions(response)
        if self.api_versions is not None and self.api_versions.is_controller:
            raise NotKafkaError(
                "this address is a KRaft controller, not a broker: use the port of a broker's "
                "listener"
            )
        if version >= ApiVersionsRequest.throttled_from:
            self._throttle_time_ms = response.throttle_time_ms
        if self._authentication is None or not is_first:
            return None, None
        return self._authentication.begin(), None

    def _after_authentication(self) -> Request | None:
        """Return the request with which the broker compares itself with the expected broker.

        Source: ``SaslServerAuthenticator`` compares nothing, ``KafkaApis`` does.
        """
        versions = self.api_versions
        is_first = self.stage is Stage.AUTHENTICATING
        if self._expected is None or not is_first or versions is None:
            return None
        return self._identity_request() if versions.checks_identity else None

    def _misrouting(self) -> str:
        expected = self._expected
        meant = "" if expected is None else f" of the cluster {redacted(expected.cluster_id)}"
        return (
            "the connection has reached another broker, or a broker of another cluster, than the "
            f"one meant{meant} (REBOOTSTRAP_REQUIRED): check DNS, proxies and load balancers "
            "between this machine and the brokers"
        )

    def _take_versions(self, response: ApiVersionsResponse) -> None:
        if response.error_code == 0:
            self.api_versions = api.BrokerApiVersions.from_response(response)

    def _finish(self) -> Ready:
        self.stage = stage_after(self.stage, Step.FINISH)
        if self._authentication is not None:
            self.renew_at_ms, self.ends_at_ms = self._authentication.session
        throttle_time_ms, self._throttle_time_ms = self._throttle_time_ms, 0
        return Ready(throttle_time_ms)

    def _authenticated(self) -> Authentication:
        assert self._authentication is not None, "nothing of SASL is sent without it"
        return self._authentication
