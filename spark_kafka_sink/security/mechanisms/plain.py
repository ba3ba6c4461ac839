"""SASL PLAIN: one message, ``NUL name NUL password`` in UTF-8, without an authorization id.

Source: RFC 4616; ``PlainSaslServer`` of Kafka.
"""

from __future__ import annotations

from spark_kafka_sink.base.errors import AuthenticationError
from spark_kafka_sink.base.secret import Secret
from spark_kafka_sink.security.mechanisms.text import too_much, utf8

NUL = "\0"


class PlainConversation:
    """Name and password, as they are."""

    mechanism = "PLAIN"

    def __init__(self, username: str, password: Secret) -> None:
        if NUL in username or NUL in password.reveal():
            raise AuthenticationError(
                "SASL PLAIN cannot send the character U+0000, which ends the user name: it stands "
                "in the user name or in the password"
            )
        self._username = username
        self._password = password
        self._is_complete = False

    def first(self) -> bytes:
        """The only message."""
        name = utf8(self._username, "the user name")
        return b"\0" + name + b"\0" + utf8(self._password.reveal(), "the password")

    def next(self, challenge: bytes) -> bytes | None:
        """The broker has accepted; the bytes that it may add mean nothing, as in Java."""
        if self._is_complete:
            raise too_much(self.mechanism)
        self._is_complete = True
        return None
