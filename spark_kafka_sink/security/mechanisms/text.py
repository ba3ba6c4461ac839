"""Names and passwords as the bytes that are sent. No error here shows a password."""

from __future__ import annotations

from spark_kafka_sink.base.errors import AuthenticationError


def utf8(text: str, what: str) -> bytes:
    """``text`` in UTF-8, without SASLprep, as Kafka has it. ``what``: its name in the error.

    What a variable of the environment held that was not UTF-8 is sent as it was.
    """
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        # Without its cause, which quotes the text.
        raise AuthenticationError(f"{what} holds a character that UTF-8 does not have") from None


def too_much(mechanism: str) -> AuthenticationError:
    """The broker went on after the last message of the mechanism."""
    return AuthenticationError(
        f"the broker goes on with SASL {mechanism} after the conversation has ended: it does not "
        "speak this mechanism as Kafka does"
    )
