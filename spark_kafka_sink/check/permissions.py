"""What this principal may do, by the brokers' own word. Nothing is written to find it out."""

from __future__ import annotations

from collections.abc import Iterator

from spark_kafka_sink.base.errors import KafkaSinkError, error_for_code
from spark_kafka_sink.check.finding import Finding, failed, passed, unknown
from spark_kafka_sink.client.admin import AdminClient
from spark_kafka_sink.config.exactly_once import ExactlyOnceConfig
from spark_kafka_sink.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from spark_kafka_sink.protocol.messages.metadata import (
    NO_AUTHORIZED_OPERATIONS,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)

# Source: ``AclOperation``; an operation is the bit of that number.
_OPERATIONS = {"READ": 3, "WRITE": 4}
_FIRST_VERSION_WITH_RIGHTS = 8  # of Metadata
_NOBODYS_PRODUCER_ID, _NOBODYS_EPOCH = 0, 0


def on_topic(
    admin: AdminClient, name: str, needed: tuple[str, ...], timeout_ms: int
) -> Iterator[Finding]:
    """``needed``: operations on the topic. Brokers tell them since Kafka 2.3 (KIP-430)."""
    request = MetadataRequest(
        [MetadataRequestTopic(name=name)], False, include_topic_authorized_operations=True
    )
    node = admin.any_node(admin.deadline_in(timeout_ms))
    versions = admin.api_versions(node)
    subject = f"rights on topic {name}"
    if versions is None or versions.highest(MetadataRequest) < _FIRST_VERSION_WITH_RIGHTS:
        yield unknown(subject, "brokers before Kafka 2.3 do not tell")
        return
    answer = admin.request(None, request, admin.deadline_in(timeout_ms))
    assert isinstance(answer, MetadataResponse)
    (described,) = answer.topics
    granted = described.topic_authorized_operations
    if described.error_code or granted == NO_AUTHORIZED_OPERATIONS:
        return  # what is wrong with the topic is told elsewhere
    missing = [operation for operation in needed if not granted >> _OPERATIONS[operation] & 1]
    if missing:
        yield failed(
            subject,
            f"no {' and no '.join(missing)}",
            f"allow this principal {', '.join(missing)} on it (kafka-acls.sh --add)",
        )
    else:
        yield passed(subject, ", ".join(needed))


def on_transactional_ids(
    admin: AdminClient, config: ExactlyOnceConfig, timeout_ms: int
) -> Iterator[Finding]:
    """Whether transactional ids of the prefix may be used.

    Asks to abort a transaction that nobody has: brokers look at the right first, then at the id.
    """
    subject = f"rights on transactional ids {config.prefix}."
    request = EndTxnRequest(
        f"{config.prefix}.check", _NOBODYS_PRODUCER_ID, _NOBODYS_EPOCH, committed=False
    )
    try:
        answer = admin.request(None, request, admin.deadline_in(timeout_ms))
    except KafkaSinkError as error:
        yield unknown(subject, f"not told: {error}")
        return
    assert isinstance(answer, EndTxnResponse)
    error_code = error_for_code(answer.error_code)
    if error_code.name == "TRANSACTIONAL_ID_AUTHORIZATION_FAILED":
        yield failed(
            subject,
            f"no WRITE: {error_code}",
            f"allow this principal WRITE on transactional ids with the prefix '{config.prefix}.' "
            "(kafka-acls.sh --add --resource-pattern-type prefixed --transactional-id)",
        )
    else:
        yield passed(subject, "WRITE")
