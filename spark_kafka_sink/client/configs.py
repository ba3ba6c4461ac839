"""Settings of topics and brokers, as far as this principal may see them (DescribeConfigs)."""

from __future__ import annotations

import logging

from spark_kafka_sink.base.errors import BrokerError, error_for_code
from spark_kafka_sink.base.model import Node
from spark_kafka_sink.client.admin import AdminClient
from spark_kafka_sink.client.rounds import Call
from spark_kafka_sink.protocol.messages.describe_configs import (
    TOPIC_RESOURCE,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)

logger = logging.getLogger(__name__)

_NOT_ALLOWED = {"CLUSTER_AUTHORIZATION_FAILED", "TOPIC_AUTHORIZATION_FAILED"}


def configs_of(
    admin: AdminClient, node: Node, kind: int, name: str, keys: list[str], deadline_ms: int
) -> dict[str, str]:
    """Configuration of a topic or broker; empty, and told in the log, when there is none to be had:
    this principal may not see it, or ``node`` does not answer.
    """
    found, reason = configs_or_reason(admin, node, kind, name, keys, deadline_ms)
    if reason:
        what = f"{', '.join(keys)} of {'topic' if kind == TOPIC_RESOURCE else 'broker'} {name}"
        logger.warning(f"{what} not checked: {reason}")
    return found


def configs_or_reason(
    admin: AdminClient, node: Node, kind: int, name: str, keys: list[str], deadline_ms: int
) -> tuple[dict[str, str], str]:
    """Configuration of a topic or broker, or why there is none to be had; nothing is logged.

    Raises BrokerError for what is neither a lack of permission nor of an answer.
    """
    call = Call(node, DescribeConfigsRequest([DescribeConfigsResource(kind, name, keys)]))
    attempts = 0
    while True:
        (answer,) = admin.request_all([call], deadline_ms)
        results = answer.results if isinstance(answer, DescribeConfigsResponse) else []
        # A topic that was just created is not known to every broker yet.
        is_retriable = any(error_for_code(result.error_code).retriable for result in results)
        if not is_retriable or not admin.pause(attempts, deadline_ms):
            break
        attempts += 1
    reason = "" if results else f"{node} did not answer DescribeConfigs"
    found: dict[str, str] = {}
    for result in results:
        error = error_for_code(result.error_code)
        if error.name in _NOT_ALLOWED:
            reason = str(error)
        elif result.error_code:
            raise BrokerError(error, f"DescribeConfigs of {name}", result.error_message)
        found.update({c.name: c.value for c in result.configs if c.value is not None})
    return found, reason
