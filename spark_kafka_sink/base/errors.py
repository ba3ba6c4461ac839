"""Kafka's error codes, the exceptions of this package, and the stable codes of their texts.

One table defines for every code of Kafka 4.4 whether a request may be retried and whether cached
metadata must be refreshed first. One dictionary defines the advice to users. No other module
decides either.

Stable codes end the texts of errors and warnings: ``… must be a whole number [PKS-OPTION-002]``. A
code names a cause that a user can act on. It ends the text, so the sentence before it stays as it
is. ``spark_kafka_sink/tools/codes/`` has the table of codes, and only ``pykafka-sink explain`` and
the documentation read it. In the code a code is written without ``PKS-``.
"""

from __future__ import annotations

import copyreg
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import logging
    from collections.abc import Iterable

PREFIX = "PKS-"
_QUOTED = re.compile(r" ?\[PKS-([A-Z]+-\d{3})\]")


def coded(text: str, code: str) -> str:
    """Return ``text`` with exactly one code, at its end.

    A code within ``text`` comes from a quoted error, whose cause is the one to act on, so it
    replaces ``code``. If ``text`` quotes several causes, ``code`` stands for all.
    """
    if f"[{PREFIX}" in text:
        quoted = set(_QUOTED.findall(text))
        if len(quoted) == 1 or not code:
            code = _QUOTED.findall(text)[0] if quoted else code
        text = _QUOTED.sub("", text)
    return f"{text} [{PREFIX}{code}]" if code else text


def joined(texts: Iterable[str]) -> str:
    """Return the texts in one. It has their code only if all have the same one."""
    parts = [*texts]
    whole = ", ".join(parts)
    return whole if len({code_of(part) for part in parts}) == 1 else sentence(whole)


def sentence(text: object) -> str:
    """Return the text, such as that of an error, without codes.

    An error that quotes another one's ``sentence`` keeps its own code.
    """
    return _QUOTED.sub("", str(text))


def code_of(text: object) -> str:
    """Return the code in ``text``, without ``PKS-``; empty if ``text`` has none."""
    match = _QUOTED.search(str(text))
    return match[1] if match else ""


def warn(logger: logging.Logger, code: str, text: str, exc_info: bool = False) -> None:
    """Log a WARNING that ends with its code."""
    logger.warning("%s", coded(text, code), exc_info=exc_info, stacklevel=2)


class KafkaErrorCode(NamedTuple):
    """One row of Kafka's error table. Source: ``common.protocol.Errors`` of Kafka 4.4.0."""

    code: int
    name: str
    retriable: bool
    refresh_metadata: bool

    def __str__(self) -> str:
        return f"{self.name} ({self.code})"


# Code of a line's first name -> names of this code and the following ones. R = retriable
# (RetriableException), M = refresh metadata (InvalidMetadataException).
_TABLE = {
    -1: "UNKNOWN_SERVER_ERROR NONE OFFSET_OUT_OF_RANGE CORRUPT_MESSAGE:R",
    3: "UNKNOWN_TOPIC_OR_PARTITION:RM INVALID_FETCH_SIZE LEADER_NOT_AVAILABLE:RM",
    6: "NOT_LEADER_OR_FOLLOWER:RM REQUEST_TIMED_OUT:R BROKER_NOT_AVAILABLE",
    9: "REPLICA_NOT_AVAILABLE:RM MESSAGE_TOO_LARGE STALE_CONTROLLER_EPOCH",
    12: "OFFSET_METADATA_TOO_LARGE NETWORK_EXCEPTION:RM COORDINATOR_LOAD_IN_PROGRESS:R",
    15: "COORDINATOR_NOT_AVAILABLE:R NOT_COORDINATOR:R INVALID_TOPIC_EXCEPTION",
    18: "RECORD_LIST_TOO_LARGE NOT_ENOUGH_REPLICAS:R NOT_ENOUGH_REPLICAS_AFTER_APPEND:R",
    21: "INVALID_REQUIRED_ACKS ILLEGAL_GENERATION INCONSISTENT_GROUP_PROTOCOL INVALID_GROUP_ID",
    25: "UNKNOWN_MEMBER_ID INVALID_SESSION_TIMEOUT REBALANCE_IN_PROGRESS",
    28: "INVALID_COMMIT_OFFSET_SIZE TOPIC_AUTHORIZATION_FAILED GROUP_AUTHORIZATION_FAILED",
    31: "CLUSTER_AUTHORIZATION_FAILED INVALID_TIMESTAMP UNSUPPORTED_SASL_MECHANISM",
    34: "ILLEGAL_SASL_STATE UNSUPPORTED_VERSION TOPIC_ALREADY_EXISTS INVALID_PARTITIONS",
    38: "INVALID_REPLICATION_FACTOR INVALID_REPLICA_ASSIGNMENT INVALID_CONFIG NOT_CONTROLLER:R",
    42: "INVALID_REQUEST UNSUPPORTED_FOR_MESSAGE_FORMAT POLICY_VIOLATION",
    45: "OUT_OF_ORDER_SEQUENCE_NUMBER DUPLICATE_SEQUENCE_NUMBER INVALID_PRODUCER_EPOCH",
    48: "INVALID_TXN_STATE INVALID_PRODUCER_ID_MAPPING INVALID_TRANSACTION_TIMEOUT",
    51: "CONCURRENT_TRANSACTIONS:R TRANSACTION_COORDINATOR_FENCED",
    53: "TRANSACTIONAL_ID_AUTHORIZATION_FAILED SECURITY_DISABLED OPERATION_NOT_ATTEMPTED",
    56: "KAFKA_STORAGE_ERROR:RM LOG_DIR_NOT_FOUND SASL_AUTHENTICATION_FAILED UNKNOWN_PRODUCER_ID",
    60: "REASSIGNMENT_IN_PROGRESS DELEGATION_TOKEN_AUTH_DISABLED DELEGATION_TOKEN_NOT_FOUND",
    63: "DELEGATION_TOKEN_OWNER_MISMATCH DELEGATION_TOKEN_REQUEST_NOT_ALLOWED",
    65: "DELEGATION_TOKEN_AUTHORIZATION_FAILED DELEGATION_TOKEN_EXPIRED INVALID_PRINCIPAL_TYPE",
    68: "NON_EMPTY_GROUP GROUP_ID_NOT_FOUND FETCH_SESSION_ID_NOT_FOUND:R",
    71: "INVALID_FETCH_SESSION_EPOCH:R LISTENER_NOT_FOUND:RM TOPIC_DELETION_DISABLED",
    74: "FENCED_LEADER_EPOCH:RM UNKNOWN_LEADER_EPOCH:R UNSUPPORTED_COMPRESSION_TYPE",
    77: "STALE_BROKER_EPOCH OFFSET_NOT_AVAILABLE:R MEMBER_ID_REQUIRED",
    80: "PREFERRED_LEADER_NOT_AVAILABLE:RM GROUP_MAX_SIZE_REACHED FENCED_INSTANCE_ID",
    83: "ELIGIBLE_LEADERS_NOT_AVAILABLE:RM ELECTION_NOT_NEEDED:RM NO_REASSIGNMENT_IN_PROGRESS",
    86: "GROUP_SUBSCRIBED_TO_TOPIC INVALID_RECORD UNSTABLE_OFFSET_COMMIT:R",
    89: "THROTTLING_QUOTA_EXCEEDED:R PRODUCER_FENCED RESOURCE_NOT_FOUND DUPLICATE_RESOURCE",
    93: "UNACCEPTABLE_CREDENTIAL INCONSISTENT_VOTER_SET INVALID_UPDATE_VERSION",
    96: "FEATURE_UPDATE_FAILED PRINCIPAL_DESERIALIZATION_FAILURE SNAPSHOT_NOT_FOUND",
    99: "POSITION_OUT_OF_RANGE UNKNOWN_TOPIC_ID:RM DUPLICATE_BROKER_REGISTRATION",
    102: "BROKER_ID_NOT_REGISTERED INCONSISTENT_TOPIC_ID:RM INCONSISTENT_CLUSTER_ID",
    105: "TRANSACTIONAL_ID_NOT_FOUND FETCH_SESSION_TOPIC_ID_ERROR:R INELIGIBLE_REPLICA",
    108: "NEW_LEADER_ELECTED OFFSET_MOVED_TO_TIERED_STORAGE FENCED_MEMBER_EPOCH",
    111: "UNRELEASED_INSTANCE_ID UNSUPPORTED_ASSIGNOR STALE_MEMBER_EPOCH MISMATCHED_ENDPOINT_TYPE",
    115: "UNSUPPORTED_ENDPOINT_TYPE UNKNOWN_CONTROLLER_ID UNKNOWN_SUBSCRIPTION_ID",
    118: "TELEMETRY_TOO_LARGE INVALID_REGISTRATION TRANSACTION_ABORTABLE INVALID_RECORD_STATE",
    122: "SHARE_SESSION_NOT_FOUND:R INVALID_SHARE_SESSION_EPOCH:R FENCED_STATE_EPOCH",
    125: "INVALID_VOTER_KEY DUPLICATE_VOTER VOTER_NOT_FOUND INVALID_REGULAR_EXPRESSION",
    129: "REBOOTSTRAP_REQUIRED STREAMS_INVALID_TOPOLOGY STREAMS_INVALID_TOPOLOGY_EPOCH",
    132: "STREAMS_TOPOLOGY_FENCED SHARE_SESSION_LIMIT_REACHED:R GROUP_DELETION_FAILED",
    135: "STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED CONTROLLER_ID_NOT_REGISTERED",
}


def _rows() -> Iterator[KafkaErrorCode]:
    for first, names in _TABLE.items():
        for code, text in enumerate(names.split(), first):
            name, _, flags = text.partition(":")
            yield KafkaErrorCode(code, name, "R" in flags, "M" in flags)


ERRORS: dict[int, KafkaErrorCode] = {row.code: row for row in _rows()}
_BY_NAME: dict[str, KafkaErrorCode] = {error.name: error for error in ERRORS.values()}


def error_for_code(code: int) -> KafkaErrorCode:
    """Return the row of ``code``; for an unknown code, a non-retriable error."""
    known = ERRORS.get(code)
    return known if known is not None else KafkaErrorCode(code, "UNKNOWN_ERROR_CODE", False, False)


def error_named(name: str) -> KafkaErrorCode:
    """Return the row called ``name``. Raises KeyError for a name that Kafka does not have."""
    return _BY_NAME[name]


# Advice to the user, for the codes that a producer meets. It ends an error message.
_ADVICE: dict[str, str] = {
    "UNKNOWN_TOPIC_OR_PARTITION": (
        "check that the topic exists and was not deleted while the job ran, and that the "
        "principal may DESCRIBE it"
    ),
    "UNKNOWN_TOPIC_ID": "the topic was deleted, or deleted and created again, while the job ran",
    "LEADER_NOT_AVAILABLE": "the partition has no leader: check that its replicas' brokers are up",
    "NOT_LEADER_OR_FOLLOWER": "the leader changed again and again: check the brokers' logs",
    "REQUEST_TIMED_OUT": (
        "the broker did not answer in time: check its load and that replicas keep up, or raise "
        "kafka.request.timeout.ms and kafka.delivery.timeout.ms"
    ),
    "NETWORK_EXCEPTION": "the connection was lost: check the broker and the network between",
    "MESSAGE_TOO_LARGE": (
        "the topic's max.message.bytes (broker: message.max.bytes) is smaller than the record: "
        "raise it, or send smaller values"
    ),
    "RECORD_LIST_TOO_LARGE": "lower kafka.batch.size below the topic's segment.bytes",
    "INVALID_TOPIC_EXCEPTION": "topic names have 1 to 249 characters out of a-z A-Z 0-9 . _ -",
    "NOT_ENOUGH_REPLICAS": (
        "fewer in-sync replicas than min.insync.replicas: bring brokers back, or lower "
        "min.insync.replicas"
    ),
    "NOT_ENOUGH_REPLICAS_AFTER_APPEND": (
        "the in-sync replicas fell below min.insync.replicas during the write: bring brokers back"
    ),
    "INVALID_REQUIRED_ACKS": "kafka.acks must be 0, 1 or all",
    "TOPIC_AUTHORIZATION_FAILED": (
        "grant the principal WRITE on the topic, which implies DESCRIBE; READ, too, on the topic "
        "of transaction.log.topic; CREATE, too, where it is to be created"
    ),
    "CLUSTER_AUTHORIZATION_FAILED": (
        "grant the principal IDEMPOTENT_WRITE on the cluster (before Kafka 2.8) or WRITE on the "
        "topic, or set kafka.enable.idempotence=false"
    ),
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": (
        "grant the principal WRITE on all ids that begin with transactional.id.prefix (PREFIXED)"
    ),
    "INVALID_TIMESTAMP": (
        "the topic limits timestamps (message.timestamp.before.max.ms, "
        "message.timestamp.after.max.ms): check the timestamp column"
    ),
    "UNSUPPORTED_COMPRESSION_TYPE": "the broker cannot store this kafka.compression.type",
    "UNSUPPORTED_FOR_MESSAGE_FORMAT": "the topic's message format is older than v2: upgrade it; "
    "with Event Hubs, it takes no other kafka.compression.type than none and gzip",
    "UNSUPPORTED_VERSION": (
        "the broker is older than this client supports, or a service without this request: if it "
        "has no producer ids, set kafka.enable.idempotence=false"
    ),
    "INVALID_RECORD": "the broker refused the records: a compacted topic needs a key in each",
    "CORRUPT_MESSAGE": "bytes changed on the way, or the broker's disk is damaged; brokers older "
    "than Kafka 2.4 also answer this to a record without a key for a compacted topic",
    "KAFKA_STORAGE_ERROR": "the broker lost a log directory: check its disks",
    "OUT_OF_ORDER_SEQUENCE_NUMBER": "an earlier batch was lost: see the broker's log",
    "INVALID_PRODUCER_EPOCH": "another producer took over this producer id",
    "PRODUCER_FENCED": "another producer with the same transactional id took over",
    "POLICY_VIOLATION": "a policy of the cluster refused it (create.topic.policy, a quota)",
}


def advice_for(error: KafkaErrorCode) -> str:
    """Return the advice to the user about ``error``; empty if there is none."""
    return _ADVICE.get(error.name, "")


_TAKEN_OVER = (
    "another driver or query has begun a transaction under this transactional id, or the brokers "
    "aborted the transaction because it was open for longer than kafka.transaction.timeout.ms. "
    "Nothing of it will be visible. Let the batch run again; if this repeats, check that no other "
    "query has the same transactional.id.prefix, or raise kafka.transaction.timeout.ms"
)
_LOST_SEQUENCES = (
    "the partition's leader has lost its state of this transaction, so records may be missing. "
    "Nothing of it will be visible. Let the batch run again; if this repeats, look for unclean "
    "leader elections and deleted records in the brokers' logs"
)

# Meaning and advice for an error of a transaction.
_TRANSACTION_ADVICE: dict[str, str] = {
    "INVALID_PRODUCER_EPOCH": _TAKEN_OVER,
    "PRODUCER_FENCED": _TAKEN_OVER,
    "INVALID_TXN_STATE": _TAKEN_OVER,
    "TRANSACTION_ABORTABLE": _TAKEN_OVER,
    "UNKNOWN_PRODUCER_ID": _LOST_SEQUENCES,
    "OUT_OF_ORDER_SEQUENCE_NUMBER": _LOST_SEQUENCES,
    "INVALID_PRODUCER_ID_MAPPING": (
        "the coordinator knows another producer id for this transactional id, or has forgotten it "
        "(transactional.id.expiration.ms). Let the batch run again"
    ),
    "INVALID_TRANSACTION_TIMEOUT": (
        "kafka.transaction.timeout.ms must be positive and at most the brokers' "
        "transaction.max.timeout.ms, which is 900000 by default"
    ),
    "CLUSTER_AUTHORIZATION_FAILED": "grant IDEMPOTENT_WRITE on the cluster (before Kafka 2.8)",
    "CONCURRENT_TRANSACTIONS": (
        "the previous transaction of this transactional id is still being ended: check that its "
        "topics' partitions have leaders, and min.insync.replicas in-sync replicas"
    ),
    "COORDINATOR_NOT_AVAILABLE": (
        "check that the partitions of __transaction_state have leaders, and that the brokers are "
        "as many as transaction.state.log.replication.factor"
    ),
    "UNSUPPORTED_VERSION": (
        "the brokers' transaction.version is not the one that they reported: finish their upgrade "
        "or downgrade"
    ),
}


def transaction_advice_for(error: KafkaErrorCode) -> str:
    """Return the advice about ``error`` in a transaction, else that of ``advice_for``."""
    return _TRANSACTION_ADVICE.get(error.name) or advice_for(error)


def broker_code(error: KafkaErrorCode | None) -> str:
    """Return the code of a brokers' error: ``BROKER-029``; empty for None.

    UNKNOWN_SERVER_ERROR, which is -1, has the number 000, because NONE is no error.
    """
    return "" if error is None else f"BROKER-{max(error.code, 0):03}"


class KafkaSinkError(Exception):
    """Base of all errors that this package raises on purpose.

    code: of the cause, without ``PKS-``; the text ends with it (``base.errors``). If a class has a
    code, the class stands for one cause.
    """

    code: str = ""

    def __init__(self, message: str = "", *, code: str = "") -> None:
        text = coded(message, code or self.code)
        super().__init__(text)
        self.code = code_of(text)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the text, not the arguments from which subclasses make it."""
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]


class ConfigError(KafkaSinkError, ValueError):
    """An option is unknown, has a wrong value, or contradicts another one."""


class SchemaError(KafkaSinkError, ValueError):
    """The DataFrame's columns cannot be encoded as Kafka records."""


class RecordError(KafkaSinkError, ValueError):
    """A row cannot become a Kafka record."""


class RecordTooLargeError(RecordError):
    """A record is larger than ``max.request.size`` or ``buffer.memory`` allows."""


class BootstrapError(KafkaSinkError):
    """No broker is reachable. The message lists each address with its reason."""


class AuthenticationError(KafkaSinkError):
    """A broker or a token endpoint rejects this client, or this client rejects the server.

    For TLS and SASL. A retry cannot succeed, so the error ends a write at once. The message names
    the cause and the option.
    """


class CredentialsUnavailableError(AuthenticationError):
    """No token, ticket, store or secret is available now.

    Its issuer is unavailable, a request is pending, or its file, key or variable is gone.

    Unlike any other AuthenticationError it is retriable, like a lost connection, until
    ``max.block.ms`` or ``delivery.timeout.ms`` have passed. The message names the last cause.
    """


class TopicError(KafkaSinkError):
    """A topic does not exist, may not be used, or lacks a partition.

    error: the brokers' error; None if no broker was asked
    """

    def __init__(
        self, message: str, error: KafkaErrorCode | None = None, *, code: str = ""
    ) -> None:
        self.error = error
        super().__init__(message, code=code or broker_code(error))


class BufferExhaustedError(KafkaSinkError):
    """``buffer.memory`` stayed full for ``max.block.ms``."""


class ProducerClosedError(KafkaSinkError):
    """The producer was used after it was closed or had failed."""


class BrokerError(KafkaSinkError):
    """A broker answered a request with an error code.

    advice: replaces the general advice for the error
    """

    code = "BROKER-000"

    def __init__(
        self, error: KafkaErrorCode, what: str, detail: str | None = None, advice: str | None = None
    ) -> None:
        self.error = error
        advice = advice_for(error) if advice is None else advice
        parts = [f"{what}: {error}", detail, advice]
        super().__init__(". ".join(part for part in parts if part), code=broker_code(error))


class DeliveryError(KafkaSinkError):
    """Records were not acknowledged, and will not be. The task fails."""


class TransactionError(KafkaSinkError):
    """A step of the commit protocol failed. No record of an undecided batch is visible."""


class SupersededError(TransactionError):
    """A task attempt writes too late: its unit is decided, or abandoned, without the attempt."""


def expired_id(transactional_id: str) -> TransactionError:
    """Return the error for the driver's id if the brokers have forgotten it since the plan."""
    return TransactionError(
        f"the brokers have forgotten the transactional id {transactional_id}, so this write cannot "
        "be committed: since it was planned, more time has passed than the brokers' "
        "transactional.id.expiration.ms. Nothing of it is visible. Raise that setting (Kafka's "
        "default: 7 days) above the time until the first row, or compute the rows before the "
        "write: df.persist() and df.count()",
        code="TXN-042",
    )


class ProtocolError(KafkaSinkError):
    """Base of the two violations of the wire protocol."""


class LocalProtocolError(ProtocolError):
    """This client tried to send what the protocol, or the negotiated version, does not allow."""


class RemoteProtocolError(ProtocolError):
    """The peer sent bytes that are not the Kafka protocol."""

    code = "CONNECT-007"


class NotKafkaError(RemoteProtocolError):
    """The first response of a peer shows that it is no Kafka broker."""

    code = "CONNECT-002"


class MisroutedConnectionError(RemoteProtocolError):
    """A connection has reached another cluster or broker than the client meant (KIP-1242)."""

    code = "CONNECT-005"


class UnsupportedVersionError(ProtocolError):
    """A broker has no version of an API in common with this client."""

    code = "CONNECT-006"
