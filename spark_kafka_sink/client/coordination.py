"""What transaction coordinators are asked, and what their answers mean. No I/O, no waiting.

The producer asks step by step and the driver waits, but both ask the same and conclude the same:
FindCoordinator, InitProducerId and AddPartitionsToTxn are built and judged here only.

Source: ``TransactionManager``'s handlers, ``CoordinatorStrategy``; KIP-98, KIP-699, KIP-890.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum, auto
from typing import NamedTuple

from spark_kafka_sink.base.errors import KafkaErrorCode, error_for_code, error_named
from spark_kafka_sink.base.model import Node, ProducerIdAndEpoch, TopicPartition
from spark_kafka_sink.protocol.api import BrokerApiVersions
from spark_kafka_sink.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from spark_kafka_sink.protocol.messages.find_coordinator import (
    BATCHED_VERSION,
    TRANSACTION_KEY_TYPE,
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)


class Verdict(Enum):
    """What follows from an answer."""

    DONE = auto()
    RETRY = auto()
    RETRY_SOON = auto()
    FIND_AGAIN = auto()
    FATAL = auto()


class Rule(NamedTuple):
    """An error, what follows from it, and why."""

    error: str
    verdict: Verdict
    reason: str


RULES = (
    Rule("NONE", Verdict.DONE, "it is no error"),
    Rule("NOT_COORDINATOR", Verdict.FIND_AGAIN, "another broker coordinates the id now"),
    Rule("COORDINATOR_NOT_AVAILABLE", Verdict.FIND_AGAIN, "none does at the moment"),
    Rule("NETWORK_EXCEPTION", Verdict.FIND_AGAIN, "a broker that is gone coordinates no more"),
    Rule("CONCURRENT_TRANSACTIONS", Verdict.RETRY_SOON, "the id's last one is being ended"),
    Rule("OPERATION_NOT_ATTEMPTED", Verdict.RETRY, "another partition stood in the way"),
)
"""Every other error is as the brokers say: RETRY where it is retriable, else FATAL."""

_BY_ERROR = {error_named(rule.error): rule.verdict for rule in RULES}
_NONE = error_named("NONE")
_NOT_ATTEMPTED = error_named("OPERATION_NOT_ATTEMPTED")
_NOT_TOLD = error_named("COORDINATOR_NOT_AVAILABLE")


def verdict_on(error: KafkaErrorCode) -> Verdict:
    """What follows from ``error``. All but DONE and FATAL pass with time, and say nothing about
    the transaction.
    """
    otherwise = Verdict.RETRY if error.retriable else Verdict.FATAL
    return _BY_ERROR.get(error, otherwise)


# --- FindCoordinator ------------------------------------------------------------------------------


class Found(NamedTuple):
    """Who coordinates ``transactional_id``, unless there is an error."""

    transactional_id: str
    coordinator: Node
    error: KafkaErrorCode
    detail: str | None


def find_requests(
    transactional_ids: Sequence[str], versions: BrokerApiVersions
) -> list[FindCoordinatorRequest]:
    """One request for all ids, or one for each where the broker takes no more."""
    if (
        versions.supports(FindCoordinatorRequest)
        and versions.highest(FindCoordinatorRequest) >= BATCHED_VERSION
    ):
        ids = list(transactional_ids)
        return [FindCoordinatorRequest("", TRANSACTION_KEY_TYPE, ids)]
    return [FindCoordinatorRequest(i, TRANSACTION_KEY_TYPE) for i in transactional_ids]


def found_in(request: FindCoordinatorRequest, response: FindCoordinatorResponse) -> list[Found]:
    """The answer about each id that ``request`` asks for, in whichever version it came.

    An id that the answer leaves out has no coordinator yet.
    """
    told = {c.key: c for c in response.coordinators}
    if not response.coordinators and (response.error_code or response.host):
        told[request.key] = Coordinator(
            request.key,
            response.node_id,
            response.host,
            response.port,
            response.error_code,
            response.error_message,
        )
    return [_found(key, told.get(key)) for key in request.coordinator_keys or [request.key]]


def _found(key: str, told: Coordinator | None) -> Found:
    if told is None:
        return Found(key, Node(-1, "", -1), _NOT_TOLD, "the broker did not say")
    error = error_for_code(told.error_code)
    return Found(key, Node(told.node_id, told.host, told.port), error, told.error_message)


# --- AddPartitionsToTxn ---------------------------------------------------------------------------


def add_partitions_request(
    transactional_id: str, producer: ProducerIdAndEpoch, partitions: Iterable[TopicPartition]
) -> AddPartitionsToTxnRequest:
    """Make ``partitions`` part of the transaction; needed below transaction.version 2."""
    topics: dict[str, AddPartitionsToTxnTopic] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, AddPartitionsToTxnTopic(topic)).partitions.append(partition)
    return AddPartitionsToTxnRequest(transactional_id, *producer, list(topics.values()))


def results_in(
    request: AddPartitionsToTxnRequest, response: AddPartitionsToTxnResponse
) -> dict[TopicPartition, KafkaErrorCode]:
    """The error of each partition that was asked for; what is left out was not attempted."""
    results = {
        TopicPartition(topic.name, partition): _NOT_ATTEMPTED
        for topic in request.v3_and_below_topics
        for partition in topic.partitions
    }
    for topic in response.results_by_topic_v3_and_below:
        for told in topic.results_by_partition:
            topic_partition = TopicPartition(topic.name, told.partition_index)
            if topic_partition in results:
                results[topic_partition] = error_for_code(told.partition_error_code)
    return results


def worst_of(
    results: Mapping[TopicPartition, KafkaErrorCode],
) -> tuple[TopicPartition, KafkaErrorCode]:
    """The partition whose error decides. One partition's error keeps the others from being
    attempted, and what will not pass comes first: it is what the task has to be told.
    """
    return max(results.items(), key=lambda result: _severity(result[1]))


def _severity(error: KafkaErrorCode) -> int:
    if error is _NONE:
        return 0
    if error is _NOT_ATTEMPTED:
        return 1
    return 3 if verdict_on(error) is Verdict.FATAL else 2
