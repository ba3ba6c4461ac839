r"""SASL OAUTHBEARER: a bearer token, and extensions, in one message.

    client   n,,\x01auth=Bearer <token>[\x01<key>=<value>]…\x01\x01
    broker   nothing, or the refusal as JSON, which the client answers with \x01

After that \x01 the broker answers with an error code and the same text, and closes.

Source: RFC 7628; ``OAuthBearerSaslClient``, ``OAuthBearerClientInitialResponse`` of Kafka.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum

from spark_kafka_sink.base.errors import AuthenticationError, ConfigError
from spark_kafka_sink.base.printable import shown
from spark_kafka_sink.base.secret import Secret
from spark_kafka_sink.security.mechanisms.text import too_much

SEPARATOR = "\x01"
EXTENSION_PREFIX = "extension_"
RESERVED = "auth"

_KEY = re.compile(r"[A-Za-z]+")
_VALUE = re.compile(r"[\x21-\x7e \t\r\n]+")
_TOKEN = re.compile(r"[-_~+/.a-zA-Z0-9]+=*")


class _State(Enum):
    BEGIN = "nothing is sent"
    TOKEN_SENT = "the token is sent"
    REFUSED = "the broker has refused, and was answered"
    COMPLETE = "the broker has accepted"


class OAuthBearerConversation:
    """One token. ``extensions``: of the JAAS options ``extension_<key>``, checked."""

    mechanism = "OAUTHBEARER"

    def __init__(self, token: Secret, extensions: Mapping[str, str]) -> None:
        if not _TOKEN.fullmatch(token.reveal()):
            raise AuthenticationError(
                "the token cannot be sent: it may hold letters, digits and - . _ ~ + / only, and "
                "= at its end (RFC 6750)"
            )
        self._token = token
        self._extensions = dict(extensions)
        self._refusal = ""
        self._state = _State.BEGIN

    def first(self) -> bytes:
        """The only message, unless the broker refuses."""
        self._state = _State.TOKEN_SENT
        extensions = "".join(
            f"{SEPARATOR}{key}={self._extensions[key]}" for key in self._extensions
        )
        text = f"n,,{SEPARATOR}auth=Bearer {self._token.reveal()}{extensions}{SEPARATOR}{SEPARATOR}"
        return text.encode("ascii")

    def next(self, challenge: bytes) -> bytes | None:
        r"""None if the broker accepts with nothing; ``\x01`` for a refusal in JSON."""
        if self._state is _State.TOKEN_SENT and not challenge:
            self._state = _State.COMPLETE
            return None
        if self._state is _State.TOKEN_SENT:
            self._refusal = shown(challenge.decode("utf-8", "replace"))
            self._state = _State.REFUSED
            return SEPARATOR.encode()
        if self._state is _State.REFUSED:
            raise AuthenticationError(
                f"the broker refuses the token: {self._refusal}. The reason stands in the broker's "
                "log: audience, issuer, signature or expiry"
            )
        raise too_much(self.mechanism)


def extensions_of(options: Mapping[str, str]) -> dict[str, str]:
    """SASL extensions out of JAAS options. Raises ConfigError, without a value."""
    extensions: dict[str, str] = {}
    for name, value in options.items():
        if not name.startswith(EXTENSION_PREFIX):
            continue
        key = name.removeprefix(EXTENSION_PREFIX)
        if not _KEY.fullmatch(key) or key == RESERVED:
            raise ConfigError(
                f"kafka.sasl.jaas.config has an option that begins with '{EXTENSION_PREFIX}' and "
                f"goes on with other than letters, or with '{RESERVED}'"
            )
        if not _VALUE.fullmatch(value):
            raise ConfigError(
                f"kafka.sasl.jaas.config: the value of '{EXTENSION_PREFIX}{key}' must hold at "
                "least one character, and printable ASCII only"
            )
        extensions[key] = value
    return extensions
