"""Messages to transaction coordinators."""

from __future__ import annotations

from spark_kafka_sink.protocol.schema import SMALL_RESPONSE, Message, Request, Struct, message, wire
from spark_kafka_sink.protocol.types import BOOL, INT8, INT16, INT32, INT64, STRING, TEXT, ArrayOf

TRANSACTION_KEY_TYPE = 1
"""``key_type`` of transactional ids. Source: ``FindCoordinatorRequest.CoordinatorType``."""

BATCHED_VERSION = 4
"""First version with ``coordinator_keys`` and ``coordinators`` instead of a single key."""


@message(slots=True)
class Coordinator(Struct):
    key: str = wire(STRING, "4+")
    node_id: int = wire(INT32, "4+")
    host: str = wire(STRING, "4+")
    port: int = wire(INT32, "4+")
    error_code: int = wire(INT16, "4+")
    error_message: str | None = wire(TEXT, "4+", nullable="4+", ignorable=True)


@message(slots=True)
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


@message(slots=True)
class FindCoordinatorRequest(Request):
    """FindCoordinator (10): the broker that coordinates a transactional id. Versions 1-6.

    Version 1 added the key's type (KIP-98), 4 several keys at once (KIP-699), 5 the error
    TRANSACTION_ABORTABLE (KIP-890). Version 0 supports consumer groups only.
    """

    api_key = 10
    min_version = 1
    max_version = 6
    flexible_from = 3
    response_type = FindCoordinatorResponse
    response_limits = SMALL_RESPONSE
    throttled_from = 2

    key: str = wire(STRING, "0-3")
    key_type: int = wire(INT8, "1+")
    coordinator_keys: list[str] = wire(ArrayOf(STRING), "4+")


@message(slots=True)
class InitProducerIdResponse(Message):
    api_key = 22
    min_version = 0
    max_version = 5
    flexible_from = 2

    throttle_time_ms: int = wire(INT32, ignorable=True)
    error_code: int = wire(INT16)
    producer_id: int = wire(INT64, default=-1)
    producer_epoch: int = wire(INT16)


@message(slots=True)
class InitProducerIdRequest(Request):
    """InitProducerId (22): a producer id and epoch. Versions 0-5; KIP-98, KIP-360, KIP-890."""

    api_key = 22
    min_version = 0
    max_version = 5
    flexible_from = 2
    response_type = InitProducerIdResponse
    response_limits = SMALL_RESPONSE
    throttled_from = 1

    transactional_id: str | None = wire(STRING, nullable="0+")
    transaction_timeout_ms: int = wire(INT32)
    # A broker of an older version does not compare, and takes the id from its present owner.
    producer_id: int = wire(INT64, "3+", default=-1, ignorable=True)
    producer_epoch: int = wire(INT16, "3+", default=-1, ignorable=True)


@message(slots=True)
class AddPartitionsToTxnPartitionResult(Struct):
    partition_index: int = wire(INT32)
    partition_error_code: int = wire(INT16)


@message(slots=True)
class AddPartitionsToTxnTopicResult(Struct):
    name: str = wire(STRING)
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = wire(
        ArrayOf(AddPartitionsToTxnPartitionResult)
    )


@message(slots=True)
class AddPartitionsToTxnResponse(Message):
    api_key = 24
    min_version = 0
    max_version = 3
    flexible_from = 3

    throttle_time_ms: int = wire(INT32)
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = wire(
        ArrayOf(AddPartitionsToTxnTopicResult), "0-3"
    )


@message(slots=True)
class AddPartitionsToTxnTopic(Struct):
    name: str = wire(STRING)
    partitions: list[int] = wire(ArrayOf(INT32))


@message(slots=True)
class AddPartitionsToTxnRequest(Request):
    """AddPartitionsToTxn (24): adds partitions to a transaction at its coordinator. Versions 0-3.

    Version 2 added the error PRODUCER_FENCED. Only brokers use versions 4 and 5. With
    transaction.version 2 a produce request itself adds its partitions (KIP-890).
    """

    api_key = 24
    min_version = 0
    max_version = 3
    flexible_from = 3
    response_type = AddPartitionsToTxnResponse
    response_limits = SMALL_RESPONSE
    throttled_from = 1

    v3_and_below_transactional_id: str = wire(STRING, "0-3")
    v3_and_below_producer_id: int = wire(INT64, "0-3")
    v3_and_below_producer_epoch: int = wire(INT16, "0-3")
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = wire(
        ArrayOf(AddPartitionsToTxnTopic), "0-3"
    )


EPOCH_BUMP_VERSION = 5
"""First version that ends a transaction with the next epoch; valid only with transaction.version 2.
Source: ``EndTxnRequest.LAST_STABLE_VERSION_BEFORE_TRANSACTION_V2``."""


@message(slots=True)
class EndTxnResponse(Message):
    api_key = 26
    min_version = 0
    max_version = 5
    flexible_from = 3

    throttle_time_ms: int = wire(INT32)
    error_code: int = wire(INT16)
    producer_id: int = wire(INT64, "5+", default=-1, ignorable=True)
    producer_epoch: int = wire(INT16, "5+", default=-1, ignorable=True)


@message(slots=True)
class EndTxnRequest(Request):
    """EndTxn (26): commit or abort a transaction. Versions 0-5.

    Version 2 added the error PRODUCER_FENCED, 4 TRANSACTION_ABORTABLE. Version 5 increments the
    epoch with every transaction, and its response contains the epoch (KIP-890). A broker accepts
    version 5 only with transaction.version 2.
    """

    api_key = 26
    min_version = 0
    max_version = 5
    flexible_from = 3
    response_type = EndTxnResponse
    response_limits = SMALL_RESPONSE
    throttled_from = 1

    transactional_id: str = wire(STRING)
    producer_id: int = wire(INT64)
    producer_epoch: int = wire(INT16)
    committed: bool = wire(BOOL)


@message(slots=True)
class TopicData(Struct):
    topic: str = wire(STRING)
    partitions: list[int] = wire(ArrayOf(INT32))


@message(slots=True)
class TransactionState(Struct):
    error_code: int = wire(INT16)
    transactional_id: str = wire(STRING)
    transaction_state: str = wire(TEXT)
    transaction_timeout_ms: int = wire(INT32)
    transaction_start_time_ms: int = wire(INT64)
    producer_id: int = wire(INT64)
    producer_epoch: int = wire(INT16)
    topics: list[TopicData] = wire(ArrayOf(TopicData))


@message(slots=True)
class DescribeTransactionsResponse(Message):
    api_key = 65
    min_version = 0
    max_version = 0
    flexible_from = 0

    throttle_time_ms: int = wire(INT32)
    transaction_states: list[TransactionState] = wire(ArrayOf(TransactionState))


@message(slots=True)
class DescribeTransactionsRequest(Request):
    """DescribeTransactions (65): transactional ids at their coordinator. Version 0; KIP-664."""

    api_key = 65
    min_version = 0
    max_version = 0
    flexible_from = 0
    response_type = DescribeTransactionsResponse

    transactional_ids: list[str] = wire(ArrayOf(STRING))


@message(slots=True)
class ListedTransaction(Struct):
    transactional_id: str = wire(STRING)
    producer_id: int = wire(INT64)
    transaction_state: str = wire(TEXT)


@message(slots=True)
class ListTransactionsResponse(Message):
    api_key = 66
    min_version = 0
    max_version = 2
    flexible_from = 0

    throttle_time_ms: int = wire(INT32)
    error_code: int = wire(INT16)
    unknown_state_filters: list[str] = wire(ArrayOf(STRING))
    transaction_states: list[ListedTransaction] = wire(ArrayOf(ListedTransaction))


@message(slots=True)
class ListTransactionsRequest(Request):
    """ListTransactions (66): the transactional ids of a coordinator. Versions 0-2; KIP-664.

    Version 1 added the filter by duration (KIP-994), 2 the filter by a pattern of the id
    (KIP-1152). Empty filters match everything.
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
