"""All checks of ``pykafka-sink check``, in the order in which a job would meet the problems.

They write nothing, except that ``--write`` writes one test record, which stays in the topic.
Brokers create ``__transaction_state`` when a client asks for a coordinator, as the check of
exactly-once does.
The columns of the rows are unknown here, so a given schema is compared with the registry's.

Source: ``ClientQuotaManager`` for quotas.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from enum import Enum
from functools import partial
from typing import NamedTuple

from spark_kafka_sink import __version__
from spark_kafka_sink.base.clock import Clock
from spark_kafka_sink.base.errors import (
    AuthenticationError,
    BootstrapError,
    BrokerError,
    ConfigError,
    KafkaErrorCode,
    KafkaSinkError,
    advice_for,
    broker_code,
    coded,
    error_for_code,
    error_named,
    sentence,
)
from spark_kafka_sink.base.model import NO_NODE_ID, ColumnPositions, Node
from spark_kafka_sink.base.text import some_of
from spark_kafka_sink.config.formats import AVRO, JSON, PROTOBUF, PartOptions
from spark_kafka_sink.config.producer_config import ACKS_ALL, ProducerConfig
from spark_kafka_sink.config.registry import TOPIC_NAME, SchemaOptions
from spark_kafka_sink.config.security_config import SecurityConfig
from spark_kafka_sink.config.security_keys import PLAINTEXT
from spark_kafka_sink.config.sink_keys import (
    NONE,
    DeadLetterConfig,
    ExactlyOnceConfig,
    MetricsOutputs,
)
from spark_kafka_sink.config.sink_options import SinkOptions
from spark_kafka_sink.metrics.outputs import check_outputs
from spark_kafka_sink.network.admin import (
    AdminClient,
    brokers_of,
    check_idempotence,
    configs_or_reason,
    similar_topics,
)
from spark_kafka_sink.network.coordinators import Coordinators
from spark_kafka_sink.protocol.messages import inspection, topics
from spark_kafka_sink.protocol.messages.inspection import QuotaComponent
from spark_kafka_sink.protocol.messages.transactions import EndTxnRequest, EndTxnResponse
from spark_kafka_sink.registry.client import NOT_FOUND, RegistryClient, RegistryRefusedError, Schema
from spark_kafka_sink.registry.schemas import version_of
from spark_kafka_sink.security.security import Security
from spark_kafka_sink.tools.services import REQUEST_LIMITS, service_of
from spark_kafka_sink.transactions.decision_log import check_brokers, log_topic_exists


class Outcome(Enum):
    """The result of a check.

    FAILED: a job would fail, or wait in vain; a check fails only with this
    WARNED: a job runs, perhaps not as intended
    UNKNOWN: the brokers do not answer this principal
    """

    PASSED = "passed"
    FAILED = "failed"
    WARNED = "warned"
    UNKNOWN = "unknown"


class Finding(NamedTuple):
    """A finding. subject: what was checked; text: the result; cure: what to do, if anything."""

    outcome: Outcome
    subject: str
    text: str
    cure: str = ""


passed, failed = partial(Finding, Outcome.PASSED), partial(Finding, Outcome.FAILED)
warned, unknown = partial(Finding, Outcome.WARNED), partial(Finding, Outcome.UNKNOWN)


# --- addresses: of the options, and of the brokers' advertised listeners -------------------------

_BOOTSTRAP = "check kafka.bootstrap.servers, kafka.security.protocol, firewalls"
_ADVERTISED = (
    "this is the address that the broker advertises: check its advertised.listeners, and that the "
    "name and port can be reached from here and from the executors"
)


def bootstrap_addresses(
    admin: AdminClient, security: SecurityConfig, timeout_ms: int
) -> Iterator[Finding]:
    """Yield a finding for each address of ``kafka.bootstrap.servers``; one that answers is enough.

    A rejected login ends the check, because other addresses would reject the same credentials.
    """
    how = security.protocol + (f" with {security.sasl.mechanism}" if security.sasl else "")
    try:
        tried = list(_connection_results(admin, admin.bootstrap_nodes, timeout_ms))
    except AuthenticationError as error:
        yield failed("login", str(error))
        return
    is_any_reached = any(problem is None for _, problem in tried)
    for node, problem in tried:
        subject = f"bootstrap {node.address}"
        if problem is None:
            yield passed(subject, f"connected, {how}")
        elif is_any_reached:
            yield warned(subject, problem, "start this broker, or take it out of the option")
        else:
            yield failed(subject, problem, _BOOTSTRAP)


def broker_addresses(admin: AdminClient, timeout_ms: int) -> Iterator[Finding]:
    """Yield a finding for each broker of the cluster, at its advertised address."""
    try:
        nodes = admin.nodes(admin.deadline_in(timeout_ms))
        results = list(_connection_results(admin, nodes, timeout_ms))
    except KafkaSinkError as error:
        yield failed("cluster", str(error))
        return
    for node, problem in results:
        subject = f"broker {node.node_id}"
        if problem is None:
            yield passed(subject, f"{node.address}, connected")
        else:
            yield failed(subject, problem, _ADVERTISED)


def _connection_results(
    admin: AdminClient, nodes: Sequence[Node], timeout_ms: int
) -> Iterator[tuple[Node, str | None]]:
    """Yield each node, and why it cannot be reached. All connections start at the same time."""
    deadline_ms = admin.deadline_in(timeout_ms)
    admin.await_all(nodes, deadline_ms)
    for node in nodes:
        try:
            admin.await_any([node], deadline_ms)
        except BootstrapError as error:
            reason = sentence(error).removeprefix(f"no broker reachable: {node.address} (")
            yield node, coded(reason.removesuffix(")"), error.code)
        else:
            yield node, None


# --- service: what it is, and what it offers -----------------------------------------------------


def service(admin: AdminClient, config: ProducerConfig, timeout_ms: int) -> Iterator[Finding]:
    """Name the service, if the answers show it, and compare its limit with the options."""
    try:
        answer = admin.metadata([], False, admin.deadline_in(timeout_ms))
    except KafkaSinkError:
        return  # the other checks report it
    hosts = [node.host for node in (*admin.bootstrap_nodes, *brokers_of(answer))]
    name = service_of(hosts, answer.cluster_id)
    if name is not None:
        yield passed("service", f"{name}: pykafka-sink docs services says what differs")
    limit = REQUEST_LIMITS.get(name or "")
    if limit is not None and config.max_request_size >= limit:
        yield warned(
            "kafka.max.request.size",
            f"{config.max_request_size}: {name} ends connections at requests of {limit} bytes",
            "set kafka.max.request.size and kafka.batch.size to 1000000 or less",
        )


def idempotence(admin: AdminClient, timeout_ms: int) -> Iterator[Finding]:
    """Yield a finding if the brokers do not offer what idempotence needs, or cannot be asked."""
    try:
        check_idempotence(admin, admin.deadline_in(timeout_ms))
    except ConfigError as error:
        yield failed("idempotence", str(error))
    except KafkaSinkError as error:
        yield unknown("idempotence", f"not checked: {error}")


# --- clock: timestamps and tokens depend on it ---------------------------------------------------

_CLOCK = "clock"
_TOLERABLE_MS = 5_000
_SYNCHRONISE = (
    "timestamps of records, tokens and certificates go by the clock: synchronise both (NTP)"
)


def clock_difference(admin: AdminClient, clock: Clock, timeout_ms: int) -> Iterator[Finding]:
    """Compare this machine's clock with that of the controllers' leader, which reports its time."""
    partition = inspection.DescribeQuorumRequestPartition(0)
    asked = inspection.DescribeQuorumRequestTopic(inspection.METADATA_TOPIC, [partition])
    request = inspection.DescribeQuorumRequest([asked])
    try:
        versions = admin.api_versions(admin.any_node(admin.deadline_in(timeout_ms)))
        if versions is None or not versions.supports(inspection.DescribeQuorumRequest):
            text = "the brokers do not offer DescribeQuorum: they use ZooKeeper, or have no quorum"
            yield unknown(_CLOCK, text)
            return
        before_ms = clock.timestamp_ms()
        answer = admin.request(None, request, admin.deadline_in(timeout_ms))
    except KafkaSinkError as error:
        yield unknown(_CLOCK, f"not compared: {error}")
        return
    assert isinstance(answer, inspection.DescribeQuorumResponse)
    yield clock_finding(answer, before_ms, clock.timestamp_ms())


def clock_finding(
    answer: inspection.DescribeQuorumResponse, before_ms: int, after_ms: int
) -> Finding:
    """Return the finding. before_ms, after_ms: this machine's time at request and answer."""
    if answer.error_code:
        error = error_for_code(answer.error_code)
        return unknown(_CLOCK, f"not compared: {error}", "it needs DESCRIBE on the cluster")
    for partition in (p for topic in answer.topics for p in topic.partitions):
        for voter in partition.current_voters:
            theirs_ms = voter.last_caught_up_timestamp
            if voter.replica_id == partition.leader_id and theirs_ms > 0:
                # The controller read its clock between our two readings.
                ahead_ms = max(before_ms - theirs_ms, 0) or min(after_ms - theirs_ms, 0)
                if abs(ahead_ms) <= _TOLERABLE_MS:
                    text = f"within {_TOLERABLE_MS // 1000} s of the controller's"
                    return passed(_CLOCK, text)
                where = "ahead of" if ahead_ms > 0 else "behind"
                return warned(
                    _CLOCK, f"{abs(ahead_ms) / 1000:.1f} s {where} the controller's", _SYNCHRONISE
                )
    return unknown(_CLOCK, "not compared: the controllers do not tell their time")


# --- permissions, as the brokers report them -----------------------------------------------------

# Source: ``AclOperation``; each operation has the bit of its number.
_OPERATIONS = {"READ": 3, "WRITE": 4}
_FIRST_VERSION_WITH_RIGHTS = 8  # of Metadata
_UNUSED_PRODUCER_ID, _UNUSED_EPOCH = 0, 0


def permissions_on_topic(
    admin: AdminClient, name: str, needed: tuple[str, ...], timeout_ms: int
) -> Iterator[Finding]:
    """Check ``needed`` operations on the topic, which brokers report since Kafka 2.3 (KIP-430)."""
    request = topics.MetadataRequest(
        [topics.MetadataRequestTopic(name=name)], False, include_topic_authorized_operations=True
    )
    subject = f"rights on topic {name}"
    try:
        versions = admin.api_versions(admin.any_node(admin.deadline_in(timeout_ms)))
        if (
            versions is None
            or versions.latest_usable_version(topics.MetadataRequest) < _FIRST_VERSION_WITH_RIGHTS
        ):
            yield unknown(subject, "the brokers do not report rights, as Kafka's do since 2.3")
            return
        answer = admin.request(None, request, admin.deadline_in(timeout_ms))
    except KafkaSinkError as error:
        yield unknown(subject, f"not told: {error}")
        return
    assert isinstance(answer, topics.MetadataResponse)
    (described,) = answer.topics
    granted = described.topic_authorized_operations
    if described.error_code or granted == topics.NO_AUTHORIZED_OPERATIONS:
        return  # another check reports the topic's problem
    missing = [operation for operation in needed if not granted >> _OPERATIONS[operation] & 1]
    if missing:
        yield failed(
            subject,
            f"no {' and no '.join(missing)}",
            f"allow this principal {', '.join(missing)} on it (kafka-acls.sh --add)",
        )
    else:
        yield passed(subject, ", ".join(needed))


def permissions_on_transactional_ids(
    admin: AdminClient, config: ExactlyOnceConfig, timeout_ms: int
) -> Iterator[Finding]:
    """Check that transactional ids of the prefix may be used.

    Requests the abort of a transaction that no producer has: brokers check the permission before
    the id.
    """
    subject = f"rights on transactional ids {config.first_of_ids}"
    first = config.first_of_ids
    subject = f"rights on transactional ids {first}"
    request = EndTxnRequest(f"{first}check", _UNUSED_PRODUCER_ID, _UNUSED_EPOCH, committed=False)
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
            f"allow this principal WRITE on transactional ids with the prefix '{first}' "
            "(kafka-acls.sh --add --resource-pattern-type prefixed --transactional-id)",
        )
    else:
        yield passed(subject, "WRITE")


# --- exactly-once: requirements for the cluster --------------------------------------------------

_EXACTLY_ONCE = "exactly-once"
_NOT_ALLOWED = broker_code(error_named("TRANSACTIONAL_ID_AUTHORIZATION_FAILED"))


def exactly_once(
    admin: AdminClient, config: ExactlyOnceConfig, timeout_ms: int
) -> Iterator[Finding]:
    """Check versions and limits of the brokers, the decision log, and permissions."""
    try:
        check_brokers(admin, config, admin.deadline_in(timeout_ms))
    except KafkaSinkError as error:
        yield failed(_EXACTLY_ONCE, str(error))
        return
    timeout = f"kafka.transaction.timeout.ms={config.transaction_timeout_ms}"
    yield passed(_EXACTLY_ONCE, f"the brokers can, with {timeout}")
    yield from _coordinator(admin, config, timeout_ms)
    yield from _decision_log(admin, config, timeout_ms)
    yield from permissions_on_transactional_ids(admin, config, timeout_ms)


def _coordinator(
    admin: AdminClient, config: ExactlyOnceConfig, timeout_ms: int
) -> Iterator[Finding]:
    """Check that a transactional id has a coordinator, for which brokers need their own topic."""
    subject, name = "transaction coordinator", f"{config.first_of_ids}check"
    try:
        found = Coordinators(admin).find([name], admin.deadline_in(timeout_ms))
    except KafkaSinkError as error:
        if error.code != _NOT_ALLOWED:  # permissions_on_transactional_ids reports it
            yield failed(subject, str(error))
    else:
        yield passed(subject, found[name].address)


def _decision_log(
    admin: AdminClient, config: ExactlyOnceConfig, timeout_ms: int
) -> Iterator[Finding]:
    subject = f"decision log {config.log_topic}"
    try:
        is_there = log_topic_exists(admin, config, admin.deadline_in(timeout_ms))
        brokers = len(admin.nodes(admin.deadline_in(timeout_ms)))
    except KafkaSinkError as error:
        yield failed(subject, str(error))
        return
    if is_there:
        yield passed(subject, "compacted, with enough replicas")
        yield from permissions_on_topic(admin, config.log_topic, ("READ", "WRITE"), timeout_ms)
    else:
        option, factor = "transaction.log.replication.factor", config.log_replication_factor
        yield _creation(subject, "the first start", option, factor, brokers)


def _creation(subject: str, creator: str, option: str, factor: int, brokers: int) -> Finding:
    """Return whether ``creator`` can create the missing topic with so many brokers."""
    if factor <= brokers:
        return passed(subject, f"not there yet: {creator} creates it, with the right CREATE")
    text = f"not there, and cannot be created with {option} = {factor}: there are {brokers} brokers"
    return failed(subject, text, f"set {option} to their number at most")


# --- quotas of this client -----------------------------------------------------------------------

USER, CLIENT_ID = "user", "client-id"
# Source: ``KafkaPrincipal.ANONYMOUS``.
_ANONYMOUS = "ANONYMOUS"
WRITERS_QUOTAS = {
    "producer_byte_rate": "bytes per second to each broker",
    "request_percentage": "% of the time of each broker's request and network threads",
    "controller_mutation_rate": "partitions created or deleted per second",
}
"""Quotas that limit a producer. All clients with the same user and client.id share them."""


class Quota(NamedTuple):
    """A quota. entity: the user, client or default that has it, as brokers name it

    values: by the names of WRITERS_QUOTAS
    """

    entity: str
    values: Mapping[str, float]


class QuotaAccessDeniedError(Exception):
    """The brokers do not report quotas to this principal."""

    def __init__(self, error: KafkaErrorCode) -> None:
        super().__init__(str(error))
        self.error = error


def granted_quotas(admin: AdminClient, config: ProducerConfig, timeout_ms: int) -> list[Quota]:
    """Return the quotas that may apply to this client; brokers use the first that has a value.

    If the options do not give the user's name, the quotas of all users are included. Raises
    QuotaAccessDeniedError without DESCRIBE_CONFIGS on the cluster, UnsupportedVersionError for
    brokers that do not report quotas, as Kafka's before 2.6, BrokerError for another error code.
    """
    found: list[inspection.QuotaEntry] = []
    for components in _quota_filters(_user(config.security), config.client_id):
        request = inspection.DescribeClientQuotasRequest(list(components), strict=True)
        answer = admin.request(None, request, admin.deadline_in(timeout_ms))
        assert isinstance(answer, inspection.DescribeClientQuotasResponse)
        error = error_for_code(answer.error_code)
        if error.name == "CLUSTER_AUTHORIZATION_FAILED":
            raise QuotaAccessDeniedError(error)
        if answer.error_code:
            raise BrokerError(error, "DescribeClientQuotas", answer.error_message)
        found.extend(answer.entries or ())
    quotas = (
        Quota(
            ", ".join(
                f"{one.entity_type} {'(default)' if one.entity_name is None else one.entity_name}"
                for one in entry.entity
            ),
            {value.key: value.value for value in entry.values if value.key in WRITERS_QUOTAS},
        )
        for entry in found
    )
    return [quota for quota in quotas if quota.values]


def _user(security: SecurityConfig) -> str | None:
    """Return the brokers' name of the principal; None if only they know it."""
    if security.protocol == PLAINTEXT:
        return _ANONYMOUS
    return None if security.sasl is None else security.sasl.username


def _quota_filters(user: str | None, client_id: str) -> Iterator[Sequence[QuotaComponent]]:
    """Yield queries in the brokers' order: user and client, user, client; defaults after names."""
    default = inspection.MATCH_DEFAULT
    clients = [
        QuotaComponent(CLIENT_ID, inspection.MATCH_EXACT, client_id),
        QuotaComponent(CLIENT_ID, default),
    ]
    # MATCH_SPECIFIED also matches the default.
    users = [QuotaComponent(USER, inspection.MATCH_SPECIFIED)]
    if user is not None:
        named = QuotaComponent(USER, inspection.MATCH_EXACT, user)
        users = [named, QuotaComponent(USER, default)]
    for one in users:
        for client in clients:
            yield one, client
        yield (one,)
    for client in clients:
        yield (client,)


_MIN_ISR = "min.insync.replicas"
_CODEC = "compression.type"
_MAX_MESSAGE_BYTES = "max.message.bytes"
_CONFIGS = [_MAX_MESSAGE_BYTES, _MIN_ISR, "cleanup.policy", _CODEC, "message.timestamp.type"]
_MAX_NAMED = 5
_BOUNDED_VERSION = 10
"""Version of Produce that Kafka 3.7.0 has added. Leaders of 3.7.0 and newer need at most as many
in-sync replicas as a partition has replicas.

Source: ``Partition.effectiveMinIsr`` (KAFKA-15583); KIP-951 for the version.
"""


def topic(
    admin: AdminClient, name: str, config: ProducerConfig, timeout_ms: int
) -> Iterator[Finding]:
    """Check partitions, leaders, in-sync replicas, and the topic's settings against the options."""
    subject = f"topic {name}"
    try:
        described = admin.metadata([name], False, admin.deadline_in(timeout_ms)).topics[0]
        error = error_for_code(described.error_code)
        if error.name == "UNKNOWN_TOPIC_OR_PARTITION":
            yield _missing(admin, subject, name, config, timeout_ms)
            return
    except KafkaSinkError as failure:
        yield failed(subject, str(failure))
        return
    if described.error_code:
        yield failed(subject, str(error), advice_for(error))
        return
    yield passed(subject, f"{len(described.partitions)} partitions")
    yield from _leaders(subject, described.partitions)
    try:
        node = admin.any_node(admin.deadline_in(timeout_ms))
        deadline_ms = admin.deadline_in(timeout_ms)
        configs, reason = configs_or_reason(
            admin, node, topics.TOPIC_RESOURCE, name, _CONFIGS, deadline_ms
        )
    except KafkaSinkError as failure:
        yield unknown(f"{subject}: settings", str(failure))
        return
    if not configs:
        yield unknown(f"{subject}: settings", f"not told: {reason}")
        return
    versions = admin.api_versions(node)
    is_bounded = versions is not None and versions.offers(topics.ProduceRequest, _BOUNDED_VERSION)
    if _MIN_ISR in configs:
        yield _in_sync(subject, described.partitions, configs, config, is_bounded)
    else:
        yield unknown(f"{subject}: {_MIN_ISR}", "the brokers do not report it")
    yield from _settings(subject, configs, config)


def dead_letters(
    admin: AdminClient, letters: DeadLetterConfig, config: ProducerConfig, timeout_ms: int
) -> Iterator[Finding]:
    """Check the topic of dead letters like any topic; it must not be compacted.

    If the topic is missing, the job creates it.
    """
    config = replace(config, topic_creation=letters.creation)
    for finding in topic(admin, letters.topic, config, timeout_ms):
        if finding.subject.endswith(": cleanup.policy"):
            yield failed(
                finding.subject,
                f"{finding.text}: dead letters without a key would be refused",
                "set cleanup.policy=delete, or name another topic in "
                "errors.deadletterqueue.topic.name",
            )
        elif finding[:2] == (Outcome.WARNED, f"topic {letters.topic}: {_MAX_MESSAGE_BYTES}"):
            cure = "a larger dead letter is cut off to it: raise it, to keep such rows whole"
            yield finding._replace(cure=cure)
        else:
            yield finding


def _missing(
    admin: AdminClient, subject: str, name: str, config: ProducerConfig, timeout_ms: int
) -> Finding:
    creation = config.topic_creation
    if creation is None:
        cure = "create it, or set topic.creation.enable=true"
        if config.allow_auto_create_topics:
            cure += "; brokers with auto.create.topics.enable create it when the job starts"
        similar = similar_topics(admin, name, admin.deadline_in(timeout_ms))
        if similar:
            cure += f". Topics with similar names: {', '.join(similar)}"
        problem = "does not exist, or this principal may not DESCRIBE it"
        return failed(subject, problem, cure)
    brokers = len(admin.nodes(admin.deadline_in(timeout_ms)))
    option, factor = creation.replicas_option, creation.replication_factor
    return _creation(subject, creation.enabling_option, option, factor, brokers)


def _leaders(subject: str, partitions: list[topics.MetadataResponsePartition]) -> Iterator[Finding]:
    without = [p.partition_index for p in partitions if p.leader_id == NO_NODE_ID]
    if without:
        yield failed(
            subject,
            f"no leader for {_named(without)}",
            "no broker with an in-sync replica is up: start it; records for these would wait for "
            "kafka.delivery.timeout.ms",
        )


def _in_sync(
    subject: str,
    partitions: list[topics.MetadataResponsePartition],
    configs: Mapping[str, str],
    config: ProducerConfig,
    is_bounded: bool,
) -> Finding:
    """Return the finding about ``min.insync.replicas``. is_bounded: see ``_BOUNDED_VERSION``."""
    subject, needed = f"{subject}: {_MIN_ISR}", int(configs[_MIN_ISR])
    replicas = min((len(p.replica_nodes) for p in partitions), default=0)
    few = [
        p.partition_index
        for p in partitions
        if len(p.isr_nodes) < (min(needed, len(p.replica_nodes)) if is_bounded else needed)
    ]
    if few and config.acks == ACKS_ALL:
        cure = (
            f"the topic has {replicas} replicas, and brokers before Kafka 3.7 take no record: "
            f"lower {_MIN_ISR}"
            if replicas < needed and not is_bounded
            else "start the brokers of the missing replicas: until then nothing is acknowledged"
        )
        return failed(subject, f"{needed}, and fewer for {_named(few)}", cure)
    if replicas < needed and config.acks == ACKS_ALL:
        return warned(
            subject,
            f"{needed}, with {replicas} replicas",
            "brokers from Kafka 3.7 on take records if all replicas are in sync, older ones take "
            f"none: lower {_MIN_ISR}, or add replicas",
        )
    if needed == 1 and replicas > 1:
        return warned(
            subject,
            f"1, with {replicas} replicas",
            "a record is acknowledged when only its leader has it, and lost with that broker: "
            f"set the topic's {_MIN_ISR}=2",
        )
    return passed(subject, f"{needed}, with {replicas} replicas")


def _settings(
    subject: str, configs: Mapping[str, str], config: ProducerConfig
) -> Iterator[Finding]:
    limit = f"{subject}: {_MAX_MESSAGE_BYTES}"
    if _MAX_MESSAGE_BYTES not in configs:
        yield unknown(limit, "the brokers do not report it")
    elif (largest := int(configs[_MAX_MESSAGE_BYTES])) < config.max_request_size:
        yield warned(
            limit,
            f"{largest}, less than kafka.max.request.size = {config.max_request_size}",
            "a single record between the two fails its task: set both alike, if there are such",
        )
    else:
        yield passed(limit, f"{largest}")
    codec = configs.get(_CODEC, "producer")
    if codec not in ("producer", config.compression_type.replace("none", "uncompressed")):
        yield warned(
            f"{subject}: {_CODEC}",
            f"{codec}: the brokers compress every batch again",
            f"set kafka.compression.type={codec.replace('uncompressed', 'none')}, or the topic's "
            "to producer",
        )
    if "compact" in configs.get("cleanup.policy", ""):
        yield warned(
            f"{subject}: cleanup.policy",
            configs["cleanup.policy"],
            "rows without a key are refused by the brokers",
        )
    if configs.get("message.timestamp.type") == "LogAppendTime":
        yield warned(
            f"{subject}: message.timestamp.type",
            "LogAppendTime",
            "the brokers replace the timestamps of all rows",
        )


def _named(partitions: list[int]) -> str:
    return f"partitions {some_of(map(str, partitions), _MAX_NAMED)}"


# --- test record, formats ------------------------------------------------------------------------


def write_record(config: ProducerConfig, topic: str, clock: Clock) -> Iterator[Finding]:
    """Write a record with the tasks' producer and its options, outside a transaction."""
    # Only this check loads pyarrow and the kernels.
    import pyarrow as pa

    from spark_kafka_sink.producer.producer import ThreadedProducer

    subject = f"test record to {topic}"
    value = json.dumps({"pykafka-sink check": __version__}).encode()
    columns = {"key": [b"pykafka-sink check"], "value": [value]}
    row = pa.record_batch([pa.array(c, pa.binary()) for c in columns.values()], [*columns])
    began_ms = clock.now_ms()
    try:
        with closing(ThreadedProducer(config, [topic])) as producer:
            producer.append(row, ColumnPositions(value=1, key=0, topic_option=topic))
            producer.flush()
    except KafkaSinkError as error:
        yield failed(subject, str(error))
        return
    for partition, report in producer.report.items():
        place = f"{partition}, offset {report.first_offset}"
        yield passed(subject, f"acknowledged: {place}, after {clock.now_ms() - began_ms} ms")


def formats(options: SinkOptions) -> Iterator[Finding]:
    """Yield only failures. Reads the files here, as the driver does."""
    if options.formats is None:
        return
    for part in (options.formats.value, options.formats.key):
        try:
            _check_format(part)
        except KafkaSinkError as error:
            yield failed(f"{part.part}.format={part.format}", str(error))


def _check_format(part: PartOptions) -> None:
    # Import here, because numpy is needed only for options of formats.
    from spark_kafka_sink.formats.json_schema import described, read_user_schema
    from spark_kafka_sink.formats.plan import JsonOptions
    from spark_kafka_sink.formats.times import patterns_of

    if part.format == AVRO and part.avro_schema is not None:
        read_user_schema(part.avro_schema, f"{part.part}.avro.schema")
    elif part.format == PROTOBUF and part.descriptor_file is not None:
        described(part)
    elif part.format == JSON:
        if part.has_id and part.json_schema is not None:
            read_user_schema(part.json_schema, f"{part.part}.json.schema")
        text = part.json
        zone, patterns = text.time_zone or "UTC", (text.timestamp_format, text.timestamp_ntz_format)
        written = JsonOptions(True, zone, *patterns, text.date_format)
        patterns_of(written, f"{part.part}.json.")


# --- schema registry, metrics; all checks in order -----------------------------------------------


def schemas(options: SinkOptions) -> Iterator[Finding]:
    """Check the registry, if the options name one. Registers nothing."""
    formats, registry = options.formats, options.registry
    if formats is None or registry is None or registry.config is None:
        return
    try:
        client = RegistryClient(registry.config)
        for part, asked in ((formats.value, registry.value), (formats.key, registry.key)):
            if asked is not None:
                yield from _schema(client, part, asked, options.topic)
    except KafkaSinkError as error:
        yield failed("schema registry", str(error))


def _schema(
    client: RegistryClient, part: PartOptions, asked: SchemaOptions, topic: str | None
) -> Iterator[Finding]:
    what = f"schema of {part.part}s"
    if asked.schema_id is not None:
        found = client.by_id(asked.schema_id)
        yield passed(what, f"{found.kind}, of id {asked.schema_id}")
        return
    if asked.strategy != TOPIC_NAME or not topic:
        # Check at least that the registry accepts the credentials.
        client.check_answers()
        yield passed("schema registry", f"{client.name} answers; subjects follow from columns")
        return
    subject = f"{topic}-{part.part}"
    missing, metadata = " with these metadata" if asked.metadata else "", asked.metadata
    try:
        found = client.with_metadata(subject, metadata) if metadata else client.version(subject)
    except RegistryRefusedError as refusal:
        if refusal.number not in NOT_FOUND:
            raise
        if asked.registers_schema:
            yield passed(what, f"subject '{subject}' is not there, and will be registered")
        else:
            yield failed(
                what,
                f"subject '{subject}'{missing} is not there",
                "register its schema, or leave auto.register.schemas and use.latest.* out",
            )
        return
    yield passed(what, f"subject '{subject}' has version {found.version}, of id {found.id}")
    yield from _given_schema(client, part, subject, asked)


def _given_schema(
    client: RegistryClient, part: PartOptions, subject: str, asked: SchemaOptions
) -> Iterator[Finding]:
    """Check that the registry would accept a schema in the options."""
    user_schema = part.avro_schema
    if user_schema is None or user_schema.is_file or not asked.registers_schema:
        return
    references = tuple(version_of(client, one) for one in asked.references)
    reasons = client.is_compatible(subject, Schema(None, user_schema.text, references=references))
    if reasons is None:
        yield passed(f"{part.part}.avro.schema", f"fits the versions of subject '{subject}'")
    else:
        yield warned(
            f"{part.part}.avro.schema",
            f"is not compatible with subject '{subject}': {'; '.join(reasons)}",
            "change it, or the subject's compatibility",
        )


def _metrics_outputs(outputs: MetricsOutputs) -> Iterator[Finding]:
    """Check the outputs besides the log, if any. Sends nothing to them."""
    places = {
        "metrics.path": outputs.path,
        "metrics.prometheus.push.url": outputs.push_url,
        "metrics.otlp": outputs.otlp,
    }
    names = [name for name, place in places.items() if place is not None]
    if not names:
        return
    try:
        check_outputs(outputs)
    except ConfigError as error:
        yield failed("metrics", str(error))
    else:
        yield passed("metrics", f"{', '.join(names)}: as far as can be known before there are any")


def all_checks(options: SinkOptions, writes: bool, time: Clock) -> Iterator[Finding]:
    """Yield findings as they come. ``writes``: also write one test record.

    Each wait takes at most ``preflight.timeout.ms``. A failure that makes all later checks
    impossible ends them.
    """
    config, timeout_ms = options.producer, options.preflight_timeout_ms
    yield passed("options", _effective_options(options))
    for note in options.notes:
        yield warned("options", coded(note, "OPTION-018"))
    yield from _metrics_outputs(options.metrics)
    yield from formats(options)
    yield from schemas(options)
    hosts = [host for host, _ in config.bootstrap_servers]
    try:
        Security.of(config.security).prepare(timeout_ms, hosts)
        admin = AdminClient.of(config, time, timeout_ms)
        admin.gives_up_on_other_protocols = True
    except KafkaSinkError as error:
        yield failed("login", str(error))
        return
    with admin:
        reached = yield from _reach(admin, options)
        if not reached:
            return
        yield from cluster_checks(admin, options, time)
    if writes and options.topic is not None:
        yield from write_record(config, options.topic, time)


def _reach(admin: AdminClient, options: SinkOptions) -> Generator[Finding, None, bool]:
    """Yield findings; return True if any address of the options leads to a cluster."""
    timeout_ms = options.preflight_timeout_ms
    for findings in (
        bootstrap_addresses(admin, options.producer.security, timeout_ms),
        broker_addresses(admin, timeout_ms),
    ):
        found = list(findings)
        yield from found
        if not any(finding.outcome is Outcome.PASSED for finding in found):
            return False
    return True


def cluster_checks(admin: AdminClient, options: SinkOptions, time: Clock) -> Iterator[Finding]:
    """Yield a finding of each check, also of the checks after a broker has failed."""
    timeout_ms = options.preflight_timeout_ms
    yield from service(admin, options.producer, timeout_ms)
    if options.needs_producer_ids:
        yield from idempotence(admin, timeout_ms)
    yield from clock_difference(admin, time, timeout_ms)
    if options.topic is None:
        yield unknown("topic", "no option topic: the rows name theirs", "give one with --topic")
    else:
        yield from topic(admin, options.topic, options.producer, timeout_ms)
        yield from permissions_on_topic(admin, options.topic, ("WRITE",), timeout_ms)
    if options.dead_letters is not None:
        letters = options.dead_letters
        yield from dead_letters(admin, letters, options.producer, timeout_ms)
        yield from permissions_on_topic(admin, letters.topic, ("WRITE",), timeout_ms)
    if options.exactly_once is not None:
        yield from exactly_once(admin, options.exactly_once, timeout_ms)
    yield from _quotas(admin, options.producer, timeout_ms)


def _quotas(admin: AdminClient, config: ProducerConfig, timeout_ms: int) -> Iterator[Finding]:
    subject = "quotas"
    try:
        found = granted_quotas(admin, config, timeout_ms)
    except QuotaAccessDeniedError as error:
        yield unknown(subject, str(error), "it needs DESCRIBE_CONFIGS on the cluster")
    except KafkaSinkError as error:
        yield unknown(subject, f"not told: {error}")
    else:
        for quota in found:
            values = (f"{name}={value:g}" for name, value in quota.values.items())
            yield warned(f"quota of {quota.entity}", ", ".join(values))
        if not found:
            yield passed(subject, f"none for kafka.client.id {config.client_id}")


def _effective_options(options: SinkOptions) -> str:
    """Return the effective options by name."""
    config, guarantee = options.producer, options.delivery_guarantee
    guarantee = "delivery.guarantee=none" if guarantee == NONE else guarantee
    acks = "all" if config.acks == ACKS_ALL else str(config.acks)
    idempotence = str(config.enable_idempotence).lower()
    return (
        f"{guarantee}, kafka.acks={acks}, kafka.enable.idempotence={idempotence}, "
        f"kafka.compression.type={config.compression_type}"
    )
