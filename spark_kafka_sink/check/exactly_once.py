"""What exactly-once delivery needs of a cluster, looked at without creating anything."""

from __future__ import annotations

from collections.abc import Iterator

from spark_kafka_sink.base.errors import KafkaSinkError
from spark_kafka_sink.check import permissions
from spark_kafka_sink.check.finding import Finding, failed, passed
from spark_kafka_sink.client.admin import AdminClient
from spark_kafka_sink.config.exactly_once import ExactlyOnceConfig
from spark_kafka_sink.transactions.log_topic import check_brokers, is_log_topic_there

_SUBJECT = "exactly-once"


def needs(admin: AdminClient, config: ExactlyOnceConfig, timeout_ms: int) -> Iterator[Finding]:
    """Versions and limits of the brokers, the decision log, rights."""
    try:
        check_brokers(admin, config, admin.deadline_in(timeout_ms))
    except KafkaSinkError as error:
        yield failed(_SUBJECT, str(error))
        return
    timeout = f"kafka.transaction.timeout.ms={config.transaction_timeout_ms}"
    yield passed(_SUBJECT, f"the brokers can, with {timeout}")
    yield from _decision_log(admin, config, timeout_ms)
    yield from permissions.on_transactional_ids(admin, config, timeout_ms)


def _decision_log(
    admin: AdminClient, config: ExactlyOnceConfig, timeout_ms: int
) -> Iterator[Finding]:
    subject = f"decision log {config.log_topic}"
    try:
        is_there = is_log_topic_there(admin, config, admin.deadline_in(timeout_ms))
        brokers = len(admin.nodes(admin.deadline_in(timeout_ms)))
    except KafkaSinkError as error:
        yield failed(subject, str(error))
        return
    if is_there:
        yield passed(subject, "compacted, with enough replicas")
        yield from permissions.on_topic(admin, config.log_topic, ("READ", "WRITE"), timeout_ms)
    elif brokers < config.log_replication_factor:
        yield failed(
            subject,
            f"not there, and cannot be created with transaction.log.replication.factor = "
            f"{config.log_replication_factor}: there are {brokers} brokers",
            "set transaction.log.replication.factor to their number at most",
        )
    else:
        yield passed(subject, "not there yet: the first start creates it, with the right CREATE")
