"""What the brokers accept of rows, batches and dead letters, found out on the driver before the
tasks.

So that all tasks of a batch, and each attempt at one, come to the same about the same row.
"""

from __future__ import annotations

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.client.admin import AdminClient, configs_of
from spark_kafka_sink.config.sink_keys import DeadLetterConfig, RowRules
from spark_kafka_sink.protocol.messages.topics import TOPIC_RESOURCE

_SIZE = "max.message.bytes"
_POLICY = "cleanup.policy"


def with_rules(
    admin: AdminClient, config: DeadLetterConfig, topic: str | None, deadline_ms: int
) -> DeadLetterConfig:
    """``config`` with what is accepted by ``topic``, if an option names it, and by its own topic.

    Nothing is known where this principal may not see the topics' settings.

    Raises ConfigError where the topic of dead letters is compacted.
    """
    own = _rules_of(admin, config.topic, deadline_ms)
    if own.needs_key:
        raise ConfigError(
            f"topic '{config.topic}', of errors.deadletterqueue.topic.name, is compacted: dead "
            "letters without a key would be refused, and others take each other's place. Set "
            f"{_POLICY}=delete, or name another topic"
        )
    if topic is None:
        return config._replace(own=own)
    return config._replace(own=own, target=_rules_of(admin, topic, deadline_ms))


def _rules_of(admin: AdminClient, topic: str, deadline_ms: int) -> RowRules:
    node = admin.any_node(deadline_ms)
    told = configs_of(admin, node, TOPIC_RESOURCE, topic, [_SIZE, _POLICY], deadline_ms)
    size = told.get(_SIZE)
    policies = [policy.strip() for policy in told.get(_POLICY, "").split(",")]
    return RowRules(None if size is None else int(size), "compact" in policies)
