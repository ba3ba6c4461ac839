"""How a connection is authenticated by SASL, the first time and again, without I/O.

Source: ``SaslClientAuthenticator``, KIP-43, KIP-152, KIP-368.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from spark_kafka_sink.base.backoff import RandomSource
from spark_kafka_sink.base.errors import AuthenticationError, RemoteProtocolError, error_for_code
from spark_kafka_sink.base.printable import shown
from spark_kafka_sink.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from spark_kafka_sink.protocol.messages.sasl_handshake import (
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from spark_kafka_sink.protocol.sasl import Conversation

NEVER_MS = 2**63 - 1
"""An instant that does not come."""

# Within a second of the one before, brokers do not take an authentication for a new one.
_LEAST_INTERVAL_MS = 1_100
# When to authenticate again: the part of the lifetime that is over, at least and at most.
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
_ADVICE = {
    "PLAIN": _USER_AND_PASSWORD,
    "SCRAM-SHA-256": _USER_AND_PASSWORD,
    "SCRAM-SHA-512": _USER_AND_PASSWORD,
    "OAUTHBEARER": _TOKEN,
    "AWS_MSK_IAM": "check the AWS credentials, and that their policy has kafka-cluster:Connect",
    # The client's own principal and key are right: for them, the KDC has given a ticket.
    "GSSAPI": "the broker does not accept the ticket, and its log says why: the clocks of this "
    "machine, of the KDC and of the broker may differ by 5 minutes only (NTP); the broker must "
    "have the KDC's key of its principal, whose first part is kafka.sasl.kerberos.service.name",
}


class Session(NamedTuple):
    """For how long a connection is authenticated.

    renew_at_ms: from when on to authenticate again before the next request
    ends_at_ms: from when on the broker ends the connection instead of answering
    """

    renew_at_ms: int
    ends_at_ms: int

    @classmethod
    def of(cls, began_at_ms: int, told_at_ms: int, lifetime_ms: int, rng: RandomSource) -> Session:
        """``lifetime_ms``: as the broker told it, 0 for none. It began between these instants."""
        if lifetime_ms <= 0:
            return UNLIMITED
        part = _EARLIEST + (_LATEST - _EARLIEST) * rng.random()
        ends_at_ms = began_at_ms + lifetime_ms
        renew_at_ms = max(began_at_ms + round(lifetime_ms * part), told_at_ms + _LEAST_INTERVAL_MS)
        return cls(min(renew_at_ms, ends_at_ms), ends_at_ms)


UNLIMITED = Session(NEVER_MS, NEVER_MS)


class Authentication:
    """The conversations of one connection, one after the other."""

    def __init__(self, converse: Callable[[], Conversation], rng: RandomSource) -> None:
        """``converse``: begins a conversation; raises AuthenticationError without credentials."""
        self._converse = converse
        self._rng = rng
        self._conversation: Conversation | None = None
        self.session = UNLIMITED

    def begin(self) -> SaslHandshakeRequest:
        """The request that names the mechanism."""
        self._conversation = self._converse()
        return SaslHandshakeRequest(self._conversation.mechanism)

    def chosen(self, response: SaslHandshakeResponse) -> SaslAuthenticateRequest:
        """The first message of the conversation, if the broker has the mechanism."""
        conversation = self._current()
        error = error_for_code(response.error_code)
        if error.name == _MECHANISM_NOT_THERE:
            enabled = shown(", ".join(response.mechanisms)) or "none"
            raise AuthenticationError(
                f"this listener does not have the SASL mechanism {conversation.mechanism}; enabled "
                f"there: {enabled}. Set kafka.sasl.mechanism to one of these"
            )
        if error.name == _NO_SASL:
            raise AuthenticationError(
                "this listener has no SASL: use kafka.security.protocol=SSL, or PLAINTEXT where it "
                "is in clear text"
            )
        if response.error_code:
            raise RemoteProtocolError(f"SaslHandshake: {error}")
        return SaslAuthenticateRequest(conversation.first())

    def answered(
        self, response: SaslAuthenticateResponse, asked_at_ms: int, now_ms: int
    ) -> SaslAuthenticateRequest | None:
        """The next message of the conversation; None at its end, when the session begins.

        asked_at_ms: when ``response`` was asked for; the broker counts from a little later
        """
        conversation = self._current()
        if response.error_code:
            raise _refusal(conversation.mechanism, response)
        message = conversation.next(response.auth_bytes)
        if message is not None:
            return SaslAuthenticateRequest(message)
        # The conversation stays: while its password is known, no message of the broker's shows it.
        self.session = Session.of(asked_at_ms, now_ms, response.session_lifetime_ms, self._rng)
        return None

    def _current(self) -> Conversation:
        assert self._conversation is not None, "a conversation was begun"
        return self._conversation


def _refusal(mechanism: str, response: SaslAuthenticateResponse) -> Exception:
    error = error_for_code(response.error_code)
    text = response.error_message or str(error)
    if error.name in (_REFUSED, _NO_SASL):
        advice = _ADVICE.get(mechanism)
        return AuthenticationError(f"{mechanism}: {text}" + (f": {advice}" if advice else ""))
    # Of all others nothing is known: such as a broker that cannot ask its user database now.
    return RemoteProtocolError(f"SaslAuthenticate: {error}: {text}")
