"""EndTxn (26): commit or abort a transaction. Versions 0-5.

Version 2 brought the error PRODUCER_FENCED, 4 TRANSACTION_ABORTABLE, 5 the epoch that goes up with
every transaction, which the answer tells (KIP-890). A broker takes version 5 only where
transaction.version is 2.
"""

from __future__ import annotations

from spark_kafka_sink.base.dataclass import dataclass
from spark_kafka_sink.protocol.schema import Message, Request, wire
from spark_kafka_sink.protocol.types import BOOL, INT16, INT32, INT64, STRING

EPOCH_BUMP_VERSION = 5
"""First version that ends a transaction with the next epoch. Only where transaction.version is 2.
Source: ``EndTxnRequest.LAST_STABLE_VERSION_BEFORE_TRANSACTION_V2``."""


@dataclass(slots=True)
class EndTxnResponse(Message):
    api_key = 26
    min_version = 0
    max_version = 5
    flexible_from = 3

    throttle_time_ms: int = wire(INT32)
    error_code: int = wire(INT16)
    producer_id: int = wire(INT64, "5+", default=-1, ignorable=True)
    producer_epoch: int = wire(INT16, "5+", default=-1, ignorable=True)


@dataclass(slots=True)
class EndTxnRequest(Request):
    """EndTxn (26): commit or abort a transaction. Versions 0-5.

    Version 2 brought the error PRODUCER_FENCED, 4 TRANSACTION_ABORTABLE, 5 the epoch that goes up
    with every transaction, which the answer tells (KIP-890). A broker takes version 5 only where
    transaction.version is 2.
    """

    api_key = 26
    min_version = 0
    max_version = 5
    flexible_from = 3
    response_type = EndTxnResponse
    throttled_from = 1

    transactional_id: str = wire(STRING)
    producer_id: int = wire(INT64)
    producer_epoch: int = wire(INT16)
    committed: bool = wire(BOOL)
