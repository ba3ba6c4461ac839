"""SaslAuthenticate (36): one message of a SASL conversation. Versions 0-2.

Version 1 brought the session's lifetime (KIP-368). The bytes may hold a password: neither request
nor response shows them.
"""

from __future__ import annotations

from spark_kafka_sink.base.dataclass import dataclass
from spark_kafka_sink.protocol.schema import Message, Request, wire
from spark_kafka_sink.protocol.types import BYTES, INT16, INT64, TEXT


@dataclass(slots=True, repr=False)
class SaslAuthenticateResponse(Message):
    """``session_lifetime_ms``: for how long the broker takes requests; 0: there is no end."""

    api_key = 36
    min_version = 0
    max_version = 2
    flexible_from = 2

    error_code: int = wire(INT16)
    error_message: str | None = wire(TEXT, nullable="0+")
    auth_bytes: bytes = wire(BYTES)
    session_lifetime_ms: int = wire(INT64, "1+", ignorable=True)

    def __repr__(self) -> str:
        return (
            f"SaslAuthenticateResponse(error_code={self.error_code}, "
            f"session_lifetime_ms={self.session_lifetime_ms})"
        )


@dataclass(slots=True, repr=False)
class SaslAuthenticateRequest(Request):
    """SaslAuthenticate (36): one message of a SASL conversation. Versions 0-2.

    Version 1 brought the session's lifetime (KIP-368). The bytes may hold a password: neither
    request nor response shows them.
    """

    api_key = 36
    min_version = 0
    max_version = 2
    flexible_from = 2
    response_type = SaslAuthenticateResponse

    auth_bytes: bytes = wire(BYTES)

    def __repr__(self) -> str:
        return f"SaslAuthenticateRequest({len(self.auth_bytes)} bytes)"
