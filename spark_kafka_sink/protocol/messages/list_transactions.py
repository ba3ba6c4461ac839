"""ListTransactions (66): the transactional ids that a broker coordinates. Versions 0-2; KIP-664.

Version 1 brought the filter by duration (KIP-994), 2 the one by a pattern of the id (KIP-1152).
Filters that are empty let everything through.
"""

from __future__ import annotations

from spark_kafka_sink.base.dataclass import dataclass
from spark_kafka_sink.protocol.schema import Message, Request, wire
from spark_kafka_sink.protocol.types import INT16, INT32, INT64, STRING, TEXT, ArrayOf


@dataclass(slots=True)
class ListedTransaction:
    transactional_id: str = wire(STRING)
    producer_id: int = wire(INT64)
    transaction_state: str = wire(TEXT)


@dataclass(slots=True)
class ListTransactionsResponse(Message):
    api_key = 66
    min_version = 0
    max_version = 2
    flexible_from = 0

    throttle_time_ms: int = wire(INT32)
    error_code: int = wire(INT16)
    unknown_state_filters: list[str] = wire(ArrayOf(STRING))
    transaction_states: list[ListedTransaction] = wire(ArrayOf(ListedTransaction))


@dataclass(slots=True)
class ListTransactionsRequest(Request):
    """ListTransactions (66): the transactional ids that a broker coordinates. Versions 0-2;
    KIP-664.

    Version 1 brought the filter by duration (KIP-994), 2 the one by a pattern of the id (KIP-1152).
    Filters that are empty let everything through.
    """

    api_key = 66
    min_version = 0
    max_version = 2
    flexible_from = 0
    response_type = ListTransactionsResponse

    state_filters: list[str] = wire(ArrayOf(STRING))
    producer_id_filters: list[int] = wire(ArrayOf(INT64))
    duration_filter: int = wire(INT64, "1+", default=-1)
    transactional_id_pattern: str | None = wire(STRING, "2+", nullable="2+")
