"""Whether a driver still has its transactional id, whoever says that it has not.

A broker that is cut off from the others, but not from clients, takes itself for a coordinator or a
leader that it is not any more. It knows an older producer of the id, and refuses the present one
as if that were the older.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from spark_kafka_sink.base.errors import BrokerError, error_named
from spark_kafka_sink.base.model import ProducerIdAndEpoch
from spark_kafka_sink.transactions.claims import is_taken
from spark_kafka_sink.transactions.client import TransactionClient, raise_if_fenced
from spark_kafka_sink.transactions.errors import FencedError

# Besides those that say that somebody else has the id.
_OF_AN_OLDER_PRODUCER = {
    "INVALID_TXN_STATE",
    "INVALID_PRODUCER_ID_MAPPING",
    "UNKNOWN_PRODUCER_ID",
    "OUT_OF_ORDER_SEQUENCE_NUMBER",
}

_Result = TypeVar("_Result")


def check_held(
    client: TransactionClient,
    transactional_id: str,
    producer: ProducerIdAndEpoch,
    deadline_ms: int,
) -> None:
    """Raise FencedError unless ``producer`` still is who has the id.

    All brokers are asked: a coordinator of the past does not know who has taken it since.
    """
    attempts = 0
    while True:
        # While a transaction is being completed, the epoch is the one before or after.
        client.settled_state(transactional_id, deadline_ms)
        taken = is_taken(client.admin, transactional_id, producer, deadline_ms)
        if taken is False:
            return
        if taken or not client.admin.pause(attempts, deadline_ms):
            raise_if_fenced(error_named("PRODUCER_FENCED"), transactional_id)
        client.forget(transactional_id)
        attempts += 1


def while_held(
    client: TransactionClient,
    transactional_id: str,
    producer: ProducerIdAndEpoch,
    deadline_ms: int,
    act: Callable[[], _Result],
) -> _Result:
    """What ``act`` returns; again where it is refused, and nobody has taken the id.

    ``act`` must find coordinators and leaders anew, and be harmless when it is repeated.
    """
    attempts = 0
    while True:
        try:
            return act()
        except (FencedError, BrokerError) as error:
            if isinstance(error, BrokerError) and error.error.name not in _OF_AN_OLDER_PRODUCER:
                raise
            if is_taken(client.admin, transactional_id, producer, deadline_ms):
                raise
            if not client.admin.pause(attempts, deadline_ms):
                raise
        client.forget(transactional_id)
        attempts += 1
