"""SASL as simulated brokers have it: mechanisms, sessions that end, users that are refused.

A broker answers ApiVersions and the two SASL requests of a connection that is not authenticated,
and ends it at any other request, without an answer; as it does after the end of a session.

Source: ``SaslServerAuthenticator``, ``KafkaChannel.maybeBeginServerReauthentication``.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Protocol

from spark_kafka_sink.base.errors import error_named
from spark_kafka_sink.protocol.messages.client import (
    ApiVersionsRequest,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

PLAIN, SCRAM = "PLAIN", "SCRAM-SHA-256"
API_VERSIONS = {17: (0, 1), 36: (0, 2)}
LEAST_INTERVAL_MS = 1_000
"""Within that of the one before, brokers do not take an authentication for a new one."""

USERS = {"alice": "a password"}
"""Who simulated producers are."""

_ITERATIONS = 4096
_SALT = b"salt of the simulation"
_NONCE = "server"


class BrokenRuleError(AssertionError):
    """The client has sent what it must not."""


class _Dialogue(Protocol):
    """A broker's end of a conversation."""

    def answer(self, message):
        """The broker's next message; None to refuse."""
        ...

    @property
    def is_complete(self): ...


class _Plain:
    def __init__(self, users):
        self._users = users
        self.is_complete = False

    def answer(self, message):
        _, name, password = message.decode().split("\0")
        self.is_complete = self._users.get(name) == password
        return b"" if self.is_complete else None


class _Scram:
    """RFC 5802, the other way round: knows passwords, so that nothing has to be stored."""

    def __init__(self, users):
        self._users = users
        self._password = ""
        self._signed = ""
        self.is_complete = False

    def answer(self, message):
        text = message.decode()
        return self._first(text) if not self._signed else self._final(text)

    def _first(self, text):
        bare = text.removeprefix("n,,")
        fields = dict(part.split("=", 1) for part in bare.split(","))
        if fields["n"] not in self._users:
            return None
        self._password = self._users[fields["n"]]
        salt = base64.b64encode(_SALT).decode()
        first = f"r={fields['r']}{_NONCE},s={salt},i={_ITERATIONS}"
        self._signed = f"{bare},{first}"
        return first.encode()

    def _final(self, text):
        without_proof, _, proof = text.rpartition(",p=")
        signed = f"{self._signed},{without_proof}".encode()
        salted = _salted(self._password)
        client_key = hmac.digest(salted, b"Client Key", "sha256")
        signature = hmac.digest(hashlib.sha256(client_key).digest(), signed, "sha256")
        expected = bytes(a ^ b for a, b in zip(client_key, signature))
        if base64.b64decode(proof) != expected:
            return None
        self.is_complete = True
        server_key = hmac.digest(salted, b"Server Key", "sha256")
        return b"v=" + base64.b64encode(hmac.digest(server_key, signed, "sha256"))


@lru_cache
def _salted(password):
    return hashlib.pbkdf2_hmac("sha256", password.encode(), _SALT, _ITERATIONS)


def options_of(sasl):
    """A producer's, with dots as underscores; it knows the password of the beginning."""
    ((name, password),) = USERS.items()
    return {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": sasl.mechanism,
        "sasl_username": name,
        "sasl_password": password,
    }


@dataclass
class Sasl:
    """What all brokers of a cluster want.

    lifetime_ms: of the next session, 0 for no end
    hangs_next, cuts_next: a fault at the next message of a conversation
    """

    mechanism: str
    users: dict[str, str]
    lifetime_ms: int = 0
    hangs_next: bool = False
    cuts_next: bool = False
    sessions: int = 0
    renewed: int = 0
    refusals: int = 0
    open_sessions: list[Session] = field(default_factory=list)

    def dialogue(self):
        return _Plain(self.users) if self.mechanism == PLAIN else _Scram(self.users)

    def __post_init__(self):
        self.usual_lifetime_ms = self.lifetime_ms

    def heal(self):
        """Messages are answered again, sessions live as they did. Who is refused stays so."""
        self.hangs_next = self.cuts_next = False
        self.lifetime_ms = self.usual_lifetime_ms

    def end_all_sessions(self):
        """As if the brokers' clocks had gone ahead: nobody is to blame who sends after that."""
        for session in self.open_sessions:
            session.is_cut_short = True


class Session:
    """One connection, as its broker sees it."""

    def __init__(self, sasl):
        self._sasl = sasl
        self._dialogue = None
        self._is_authenticated = False
        self._began_at_ms = 0
        self._ends_at_ms = None
        self.is_cut_short = False
        sasl.open_sessions.append(self)

    @property
    def is_authenticated(self):
        return self._is_authenticated

    def admits(self, request, sent_at_ms, now_ms):
        """Whether the broker looks at ``request``; otherwise it ends the connection.

        Raises BrokenRuleError for what the client could know.
        """
        if isinstance(request, (SaslHandshakeRequest, SaslAuthenticateRequest)):
            return True
        if not self._is_authenticated or self._dialogue is not None:
            if isinstance(request, ApiVersionsRequest) and not self._is_authenticated:
                return True
            raise BrokenRuleError(f"{type(request).__name__} in the middle of SASL")
        if self._ends_at_ms is not None and sent_at_ms >= self._ends_at_ms:
            raise BrokenRuleError(
                f"{type(request).__name__} at {sent_at_ms}, after the session's end at "
                f"{self._ends_at_ms}"
            )
        is_over = self._ends_at_ms is not None and now_ms >= self._ends_at_ms
        return not (is_over or self.is_cut_short)

    def handshake(self, request, now_ms):
        if self._is_authenticated and now_ms - self._began_at_ms < LEAST_INTERVAL_MS:
            raise BrokenRuleError(f"again after {now_ms - self._began_at_ms} ms")
        if request.mechanism != self._sasl.mechanism:
            code = error_named("UNSUPPORTED_SASL_MECHANISM").code
            return SaslHandshakeResponse(code, [self._sasl.mechanism])
        self._dialogue = self._sasl.dialogue()
        return SaslHandshakeResponse(0, [self._sasl.mechanism])

    def authenticate(self, request, now_ms):
        assert self._dialogue is not None, "the mechanism comes first"
        message = self._dialogue.answer(request.auth_bytes)
        if message is None:
            self._sasl.refusals += 1
            code = error_named("SASL_AUTHENTICATION_FAILED").code
            return SaslAuthenticateResponse(code, "Authentication failed: invalid credentials")
        if not self._dialogue.is_complete:
            return SaslAuthenticateResponse(0, None, message)
        self._sasl.renewed += self._is_authenticated
        self._sasl.sessions += 1
        self._is_authenticated, self._dialogue = True, None
        self._began_at_ms, self.is_cut_short = now_ms, False
        lifetime_ms = self._sasl.lifetime_ms
        self._ends_at_ms = now_ms + lifetime_ms if lifetime_ms else None
        return SaslAuthenticateResponse(0, None, message, lifetime_ms)
