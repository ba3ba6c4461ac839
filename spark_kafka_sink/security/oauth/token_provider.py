"""Tokens from the user's own code: ``kafka.sasl.oauthbearer.token.provider``.

A callable without arguments. It returns a JWT, or any token together with the time at which it
expires, in seconds since 1970-01-01 UTC, as confluent-kafka's ``oauth_cb`` does. An example stands
in docs/your-own-code.md.

It is called on the driver and in Spark's Python workers, in a thread of its own, whenever a token
is needed. What it raises is an error that is tried again.
"""

from __future__ import annotations

from typing import Any

from spark_kafka_sink.base.entry_points import load
from spark_kafka_sink.base.errors import AuthenticationError, CredentialsUnavailableError
from spark_kafka_sink.base.printable import shown
from spark_kafka_sink.base.secret import Secret
from spark_kafka_sink.security.oauth.token import ClaimNames, Token, token_of_jwt

OPTION = "kafka.sasl.oauthbearer.token.provider"

# 2001 and 5138: what is before the one is a duration, what is after the other is milliseconds.
_LEAST_SECONDS, _MOST_SECONDS = 1e9, 1e11


def provided_token(entry_point: str, names: ClaimNames) -> Token:
    """What the callable ``package.module:name`` returns, checked.

    Raises ConfigError (it cannot be loaded), CredentialsUnavailableError (it raised) or
    AuthenticationError (what it returned is no token).
    """
    provider = load(entry_point, OPTION)
    try:
        returned = provider()
    except Exception as error:
        raise CredentialsUnavailableError(
            f"{OPTION} {entry_point} failed: {shown(repr(error))}"
        ) from error
    source = f"{OPTION} {entry_point}"
    if isinstance(returned, str):
        return token_of_jwt(returned, names, source)
    if isinstance(returned, tuple) and len(returned) == 2 and isinstance(returned[0], str):
        return Token(Secret(returned[0].strip()), None, _expiry_ms(returned[1], source))
    raise AuthenticationError(
        f"{source} returned {_type_of(returned)}: it must return a token as text, or a tuple of a "
        "token and the time at which it expires"
    )


def _expiry_ms(value: Any, source: str) -> int:
    what = "the second value that it returned, the time at which the token expires,"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise AuthenticationError(f"{source}: {what} is {_type_of(value)}, not a number of seconds")
    if not _LEAST_SECONDS <= value < _MOST_SECONDS:
        hint = (
            "a number of milliseconds: divide it by 1000"
            if value >= _MOST_SECONDS
            else "a duration: add time.time() to it"
        )
        raise AuthenticationError(
            f"{source}: {what} must be in seconds since 1970-01-01 UTC. {value} looks like {hint}"
        )
    return int(value * 1000)


def _type_of(value: Any) -> str:
    return "nothing" if value is None else f"a value of type {type(value).__name__}"
