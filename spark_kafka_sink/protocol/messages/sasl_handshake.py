"""SaslHandshake (17): which mechanism a connection is authenticated by. Version 1.

Version 0 means tokens without Kafka's framing afterwards, and is not spoken.
"""

from __future__ import annotations

from spark_kafka_sink.base.dataclass import dataclass
from spark_kafka_sink.protocol.schema import Message, Request, wire
from spark_kafka_sink.protocol.types import INT16, STRING, TEXT, ArrayOf


@dataclass(slots=True)
class SaslHandshakeResponse(Message):
    """``mechanisms``: those that the listener has."""

    api_key = 17
    min_version = 1
    max_version = 1
    flexible_from = 2

    error_code: int = wire(INT16)
    mechanisms: list[str] = wire(ArrayOf(TEXT))


@dataclass(slots=True)
class SaslHandshakeRequest(Request):
    """SaslHandshake (17): which mechanism a connection is authenticated by. Version 1.

    Version 0 means tokens without Kafka's framing afterwards, and is not spoken.
    """

    api_key = 17
    min_version = 1
    max_version = 1
    flexible_from = 2
    response_type = SaslHandshakeResponse

    mechanism: str = wire(STRING)
