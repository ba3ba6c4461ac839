"""FindCoordinator (10): the broker that coordinates a transactional id. Versions 1-6.

Version 1 brought the key's type (KIP-98), 4 several keys at once (KIP-699), 5 the error
TRANSACTION_ABORTABLE (KIP-890). Version 0 knows consumer groups only.
"""

from __future__ import annotations

from spark_kafka_sink.base.dataclass import dataclass
from spark_kafka_sink.protocol.schema import Message, Request, wire
from spark_kafka_sink.protocol.types import INT8, INT16, INT32, STRING, TEXT, ArrayOf

TRANSACTION_KEY_TYPE = 1
"""``key_type`` of transactional ids. Source: ``FindCoordinatorRequest.CoordinatorType``."""

BATCHED_VERSION = 4
"""First version with ``coordinator_keys`` and ``coordinators`` instead of a single key."""


@dataclass(slots=True)
class Coordinator:
    key: str = wire(STRING, "4+")
    node_id: int = wire(INT32, "4+")
    host: str = wire(STRING, "4+")
    port: int = wire(INT32, "4+")
    error_code: int = wire(INT16, "4+")
    error_message: str | None = wire(TEXT, "4+", nullable="4+", ignorable=True)


@dataclass(slots=True)
class FindCoordinatorResponse(Message):
    api_key = 10
    min_version = 1
    max_version = 6
    flexible_from = 3

    throttle_time_ms: int = wire(INT32, "1+", ignorable=True)
    error_code: int = wire(INT16, "0-3")
    error_message: str | None = wire(TEXT, "1-3", nullable="1-3", ignorable=True)
    node_id: int = wire(INT32, "0-3")
    host: str = wire(STRING, "0-3")
    port: int = wire(INT32, "0-3")
    coordinators: list[Coordinator] = wire(ArrayOf(Coordinator), "4+")


@dataclass(slots=True)
class FindCoordinatorRequest(Request):
    """FindCoordinator (10): the broker that coordinates a transactional id. Versions 1-6.

    Version 1 brought the key's type (KIP-98), 4 several keys at once (KIP-699), 5 the error
    TRANSACTION_ABORTABLE (KIP-890). Version 0 knows consumer groups only.
    """

    api_key = 10
    min_version = 1
    max_version = 6
    flexible_from = 3
    response_type = FindCoordinatorResponse
    throttled_from = 2

    key: str = wire(STRING, "0-3")
    key_type: int = wire(INT8, "1+")
    coordinator_keys: list[str] = wire(ArrayOf(STRING), "4+")
