"""The decision log's topic: created where it is missing, refused where it could lose a decision."""

from __future__ import annotations

import logging

from spark_kafka_sink.base.errors import (
    BrokerError,
    ConfigError,
    KafkaSinkError,
    TopicError,
    error_for_code,
)
from spark_kafka_sink.client.admin import CREATION_TIMEOUT_MS, AdminClient, configs_of
from spark_kafka_sink.config.sink_keys import ExactlyOnceConfig
from spark_kafka_sink.protocol.messages.topics import (
    BROKER_RESOURCE,
    TOPIC_RESOURCE,
    CreatableTopic,
    CreatableTopicConfig,
    MetadataResponseTopic,
)
from spark_kafka_sink.protocol.messages.transactions import (
    DescribeTransactionsRequest,
    ListTransactionsRequest,
)
from spark_kafka_sink.transactions.decision_log import LOG_PARTITION

logger = logging.getLogger(__name__)

_MIN_ISR = "min.insync.replicas"
_FEWEST_REPLICAS_WITH_A_CHOICE = 2
_UNCLEAN = "unclean.leader.election.enable"
_MAX_TIMEOUT = "transaction.max.timeout.ms"


def check_brokers(admin: AdminClient, config: ExactlyOnceConfig, deadline_ms: int) -> None:
    """Raise ConfigError if the cluster cannot deliver exactly once with these options."""
    node = admin.any_node(deadline_ms)
    versions = admin.api_versions(node)
    for request in (DescribeTransactionsRequest, ListTransactionsRequest):
        if versions is not None and not versions.supports(request):
            raise ConfigError(
                f"delivery.guarantee=exactly-once needs Kafka 3.0 or newer: {node} cannot tell "
                "what became of a transaction (KIP-664), so a crash between a decision and its "
                "commit could not be repaired. Use at-least-once with these brokers"
            )
    _check_timeout(admin, config, deadline_ms)


def longest_timeout_ms(admin: AdminClient, deadline_ms: int) -> int | None:
    """The brokers' transaction.max.timeout.ms; None where this principal may not see it."""
    broker = admin.nodes(deadline_ms)[0]
    told = configs_of(
        admin, broker, BROKER_RESOURCE, str(broker.node_id), [_MAX_TIMEOUT], deadline_ms
    )
    longest = told.get(_MAX_TIMEOUT)
    return None if longest is None else int(longest)


def _check_timeout(admin: AdminClient, config: ExactlyOnceConfig, deadline_ms: int) -> None:
    longest = longest_timeout_ms(admin, deadline_ms)
    if longest is not None and longest < config.transaction_timeout_ms:
        raise ConfigError(
            f"kafka.transaction.timeout.ms = {config.transaction_timeout_ms} is more than the "
            f"brokers' {_MAX_TIMEOUT} = {longest}: set it to {longest} or less, or raise the "
            "brokers' limit"
        )


def prepare_log_topic(admin: AdminClient, config: ExactlyOnceConfig, deadline_ms: int) -> None:
    """Create the topic if it is missing, and check that it is compacted and replicated.

    Raises TopicError when it cannot be created, ConfigError when it must not be used as it is.
    """
    described = _describe(admin, config.log_topic, deadline_ms)
    if described is None:
        _create(admin, config, deadline_ms)
        described = _await(admin, config.log_topic, deadline_ms)
    _check(admin, config, described, deadline_ms)


def is_log_topic_there(admin: AdminClient, config: ExactlyOnceConfig, deadline_ms: int) -> bool:
    """Check it as ``prepare_log_topic`` does, but create nothing."""
    described = _describe(admin, config.log_topic, deadline_ms)
    if described is not None:
        _check(admin, config, described, deadline_ms)
    return described is not None


def _check(
    admin: AdminClient,
    config: ExactlyOnceConfig,
    described: MetadataResponseTopic,
    deadline_ms: int,
) -> None:
    (log,) = (p for p in described.partitions if p.partition_index == LOG_PARTITION)
    replicas = len(log.replica_nodes)
    if replicas < config.log_replication_factor:
        raise ConfigError(
            f"the decision log, topic '{config.log_topic}', has {replicas} replica(s), less than "
            f"transaction.log.replication.factor = {config.log_replication_factor}: with their "
            "brokers its decisions would be lost. Add replicas, or lower the option"
        )
    _check_configs(admin, config, deadline_ms)


def _check_configs(admin: AdminClient, config: ExactlyOnceConfig, deadline_ms: int) -> None:
    names = ["cleanup.policy", "min.insync.replicas", _UNCLEAN]
    node = admin.any_node(deadline_ms)
    told = configs_of(admin, node, TOPIC_RESOURCE, config.log_topic, names, deadline_ms)
    policy = told.get("cleanup.policy", "compact")
    if policy != "compact":
        raise ConfigError(
            f"the decision log, topic '{config.log_topic}', has cleanup.policy={policy}: it must "
            "be compact, or decisions disappear. Alter the topic, or name another one in "
            "transaction.log.topic"
        )
    in_sync = int(told.get("min.insync.replicas", config.log_min_isr))
    if in_sync < config.log_min_isr:
        raise ConfigError(
            f"the decision log, topic '{config.log_topic}', has min.insync.replicas={in_sync}, "
            f"less than {config.log_min_isr}: decisions would be lost with one broker. Alter the "
            "topic, or set transaction.log.replication.factor=1 if that may happen"
        )
    if told.get(_UNCLEAN) == "true":
        logger.warning(
            f"the decision log, topic '{config.log_topic}', has {_UNCLEAN}=true: a broker that is "
            "behind may become its leader, and decisions are lost. Alter the topic"
        )


def warn_of_weak_topic(admin: AdminClient, topic: str, deadline_ms: int) -> None:
    """Log where committed records may be lost with one broker although there are more replicas.

    What cannot be found out now is only told: the topic may not be there yet.
    """
    try:
        (described,) = admin.metadata([topic], False, deadline_ms).topics
        replicas = min((len(p.replica_nodes) for p in described.partitions), default=1)
        if replicas < _FEWEST_REPLICAS_WITH_A_CHOICE:
            return
        node = admin.any_node(deadline_ms)
        told = configs_of(admin, node, TOPIC_RESOURCE, topic, [_MIN_ISR], deadline_ms)
    except KafkaSinkError as error:
        logger.info(f"{_MIN_ISR} of topic {topic} not checked: {error}")
        return
    if told.get(_MIN_ISR) == "1":
        logger.warning(
            f"topic '{topic}' has {replicas} replicas and {_MIN_ISR}=1: when only its leader is in "
            "sync, records are acknowledged and committed that are lost with that broker. With "
            f"delivery.guarantee=exactly-once, alter the topic: {_MIN_ISR}=2"
        )


def _describe(admin: AdminClient, topic: str, deadline_ms: int) -> MetadataResponseTopic | None:
    (described,) = admin.metadata([topic], False, deadline_ms).topics
    error = error_for_code(described.error_code)
    if error.name == "UNKNOWN_TOPIC_OR_PARTITION":
        return None
    if described.error_code:
        raise BrokerError(error, f"topic '{topic}', the decision log")
    # A broker may know of a topic that was just created before it knows its partitions.
    is_there = any(p.partition_index == LOG_PARTITION for p in described.partitions)
    return described if is_there else None


def _await(admin: AdminClient, topic: str, deadline_ms: int) -> MetadataResponseTopic:
    """A topic that was just created is not known to every broker yet."""
    attempts = 0
    while True:
        described = _describe(admin, topic, deadline_ms)
        if described is not None:
            return described
        if not admin.pause(attempts, deadline_ms):
            raise TopicError(f"topic '{topic}', the decision log, was created and is not there")
        attempts += 1


def _create(admin: AdminClient, config: ExactlyOnceConfig, deadline_ms: int) -> None:
    configs = {
        "cleanup.policy": "compact",
        "min.insync.replicas": str(config.log_min_isr),
        # Whatever the brokers' default is: a decision that was acknowledged is never given up.
        "unclean.leader.election.enable": "false",
        # Read from the end at every start: the part that is not compacted yet stays small.
        "segment.bytes": str(16 * 1024 * 1024),
        "min.cleanable.dirty.ratio": "0.1",
    }
    topic = CreatableTopic(
        config.log_topic,
        1,
        config.log_replication_factor,
        configs=[CreatableTopicConfig(name, value) for name, value in configs.items()],
    )
    timeout_ms = min(CREATION_TIMEOUT_MS, deadline_ms - admin.now_ms())
    error = admin.create_topics([topic], timeout_ms)[config.log_topic]
    if error is None or error.error.name == "TOPIC_ALREADY_EXISTS":
        return
    hint = ""
    if error.error.name == "INVALID_REPLICATION_FACTOR":
        hint = (
            ". Set transaction.log.replication.factor to the number of brokers at most: to 1 for a "
            "cluster of one broker, where decisions are lost with its disk"
        )
    raise TopicError(
        f"the decision log, topic '{config.log_topic}', cannot be created with "
        f"transaction.log.replication.factor = {config.log_replication_factor}: {error}{hint}"
    )
