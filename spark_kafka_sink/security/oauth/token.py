"""A bearer token, and its claims, read without a key: only the brokers check signatures.

As in Java's default validator, a token must be a JWT of three parts whose claims hold ``exp`` and
the subject. An opaque token from an endpoint or a file is rejected, because its expiry is unknown.
A token provider may return an opaque token with its expiry.

Source: ``ClientJwtValidator``, ``ClaimValidationUtils``, ``SerializedJwt`` of Kafka; RFC 7519.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from typing import NamedTuple

from spark_kafka_sink.base.errors import AuthenticationError
from spark_kafka_sink.base.text import Secret

_NEVER = 1e14
"""Seconds since 1970: three million years."""


class Token(NamedTuple):
    """A token to send.

    value: its text
    issued_at_ms, expires_at_ms: since 1970-01-01 UTC
    """

    value: Secret
    issued_at_ms: int | None
    expires_at_ms: int

    def is_valid(self, timestamp_ms: int) -> bool:
        """Return True if the token has not expired."""
        return timestamp_ms < self.expires_at_ms


class ClaimNames(NamedTuple):
    """The options ``sasl.oauthbearer.scope.claim.name`` and ``sasl.oauthbearer.sub.claim.name``."""

    scope: str = "scope"
    subject: str = "sub"


def token_of_jwt(text: str, names: ClaimNames, source: str) -> Token:
    """Return the token of ``text``, which must be a JWT.

    source: its origin, for messages, which show nothing of the token

    Raises AuthenticationError.
    """
    value = text.strip()
    claims = _claims(value, source)
    expires_at = _seconds(claims, "exp", source)
    if expires_at is None:
        raise _wrong(source, "has no claim 'exp', so nobody knows when it must be renewed")
    subject = claims.get(names.subject)
    if not isinstance(subject, str) or not subject.strip():
        raise _wrong(
            source,
            f"has no text in claim '{names.subject}'; kafka.sasl.oauthbearer.sub.claim.name names "
            "the claim that holds the principal",
        )
    _check_scopes(claims.get(names.scope), names.scope, source)
    issued_at = _seconds(claims, "iat", source)
    return Token(
        Secret(value),
        None if issued_at is None else int(issued_at * 1000),
        int(expires_at * 1000),
    )


def _claims(text: str, source: str) -> Mapping[str, object]:
    parts = text.split(".")
    if len(parts) != 3 or not all(part.strip() for part in parts):
        raise _wrong(
            source,
            "is not a JWT of three parts. A token of another kind must come from "
            "kafka.sasl.oauthbearer.token.provider, together with its expiry",
        )
    try:
        payload = base64.b64decode(parts[1].encode("ascii") + b"==", altchars=b"-_", validate=False)
        claims = json.loads(payload)
    except (UnicodeError, binascii.Error, ValueError, RecursionError):
        # Omit the cause, which quotes the claims.
        raise _wrong(source, "is not a JWT: its second part is not JSON in base64") from None
    if not isinstance(claims, dict):
        raise _wrong(source, "is not a JWT: its claims are not a JSON object")
    return claims


def _seconds(claims: Mapping[str, object], name: str, source: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < _NEVER:
        raise _wrong(source, f"has a claim '{name}' that is not a number of seconds since 1970")
    return float(value)


def _check_scopes(scopes: object, name: str, source: str) -> None:
    texts = [scopes] if isinstance(scopes, str) else scopes if isinstance(scopes, list) else []
    stripped = [text.strip() if isinstance(text, str) else "" for text in texts]
    if not all(stripped) or len(set(stripped)) < len(stripped):
        raise _wrong(source, f"has an empty or repeated scope in claim '{name}'")


def _wrong(source: str, what: str) -> AuthenticationError:
    return AuthenticationError(f"the token of {source} {what}")
