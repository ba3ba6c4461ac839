"""Kafka's names for what a line holds: the metrics of the Java producer, as they follow from it.

A line tells of one batch, the Java producer of the last 30 seconds (averages, rates, maxima) or of
its whole life (totals). So averages, rates and maxima are of the batch, and totals are to be added
up over lines. A job has a producer in each task: they are told together, as one client.

Source: ``SenderMetricsRegistry``, ``KafkaProducerMetrics``, ``BufferPool``, ``RecordAccumulator``,
``Selector.SelectorMetrics``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from spark_kafka_sink.base.kafka_metrics import (
    NODE_GROUP,
    NODE_METRICS,
    PRODUCER_GROUP,
    PRODUCER_METRICS,
    TOPIC_GROUP,
    TOPIC_METRICS,
    KafkaMetric,
    Values,
)

__all__ = [
    "NODE_GROUP",
    "NODE_METRICS",
    "NOT_GIVEN",
    "NOT_GIVEN_OF_TOPICS",
    "PRODUCER_GROUP",
    "PRODUCER_METRICS",
    "TOPIC_GROUP",
    "TOPIC_METRICS",
    "KafkaMetric",
    "Measurement",
    "Values",
    "measurements",
    "send_time_ms",
    "values_of",
    "values_of_part",
]

_NO_SUCH_WAIT = "the sender thread is not measured: it waits, or is at work beside the task thread"
_OF_LOGINS = "a login that fails ends the task, with its reason; one that succeeds is not counted"

NOT_GIVEN: dict[str, str] = {
    "buffer-exhausted-rate": "a task without memory for `kafka.max.block.ms` fails, and tells why",
    "buffer-exhausted-total": "as the rate",
    "waiting-threads": "a task has one thread; `buffer_wait_ms` tells how long it waited",
    "txn-begin-time-ns-total": "beginning is nothing by itself: see txn-init",
    "txn-send-offsets-time-ns-total": "Spark keeps the offsets",
    "txn-abort-time-ns-total": "what fails is told by a line `abort`, without times",
    "txn-prepare-time-ns-total": "there is no two-phase commit of KIP-939 here",
    "select-rate": _NO_SUCH_WAIT,
    "select-total": _NO_SUCH_WAIT,
    "io-wait-time-ns-avg": _NO_SUCH_WAIT,
    "io-wait-time-ns-total": _NO_SUCH_WAIT,
    "io-wait-ratio": _NO_SUCH_WAIT,
    "io-time-ns-avg": _NO_SUCH_WAIT,
    "io-time-ns-total": _NO_SUCH_WAIT,
    "io-ratio": _NO_SUCH_WAIT,
    "successful-authentication-rate": _OF_LOGINS,
    "successful-authentication-total": _OF_LOGINS,
    "successful-authentication-no-reauth-total": _OF_LOGINS,
    "successful-reauthentication-rate": _OF_LOGINS,
    "successful-reauthentication-total": _OF_LOGINS,
    "failed-authentication-rate": _OF_LOGINS,
    "failed-authentication-total": _OF_LOGINS,
    "failed-reauthentication-rate": _OF_LOGINS,
    "failed-reauthentication-total": _OF_LOGINS,
    "reauthentication-latency-avg": _OF_LOGINS,
    "reauthentication-latency-max": _OF_LOGINS,
}
"""Metrics of the Java producer that do not follow from a line, and why."""

NOT_GIVEN_OF_TOPICS: dict[str, str] = {
    "record-error-rate": "a batch that is refused fails its task: there is no line of it",
    "record-error-total": "as the rate",
}
"""The same for topics."""


def values_of(line: Values) -> dict[str, Any]:
    """What PRODUCER_METRICS follow from: the line, with its counters beside the rest."""
    return {**line, **line.get("metrics", {})}


def values_of_part(line: Values, part: Values) -> dict[str, Any]:
    """What TOPIC_METRICS and NODE_METRICS follow from."""
    return {"elapsed_ms": line.get("elapsed_ms"), **part}


class Measurement(NamedTuple):
    """One metric of one line. labels: of the topic or node, besides those of the client."""

    group: str
    metric: KafkaMetric
    labels: Mapping[str, str]
    value: float


def measurements(line: Values) -> Iterator[Measurement]:
    """All of a line; none of a batch without rows, or one of which nothing is known."""
    if "metrics" not in line or not line["metrics"]["task_ms"]:
        return
    yield from _measured(PRODUCER_GROUP, PRODUCER_METRICS, {}, values_of(line))
    for topic, values in line.get("topics", {}).items():
        labels = {"topic": topic}
        yield from _measured(TOPIC_GROUP, TOPIC_METRICS, labels, values_of_part(line, values))
    for node, values in line.get("nodes", {}).items():
        labels = {"node_id": f"node-{node}"}
        yield from _measured(NODE_GROUP, NODE_METRICS, labels, values_of_part(line, values))


def _measured(
    group: str, metrics: tuple[KafkaMetric, ...], labels: Mapping[str, str], values: Values
) -> Iterator[Measurement]:
    for metric in metrics:
        value = metric.value(values)
        if value is not None:
            yield Measurement(group, metric, labels, value)


def send_time_ms(line: Values) -> float | None:
    """Flink's ``currentSendTime``: how long the last records took, in the queue and to the broker.

    Source: ``KafkaWriter.computeSendTime`` of Flink's connector.
    """
    averages = {metric.name: metric.value(values_of(line)) for metric in PRODUCER_METRICS}
    queue_time_ms = averages["record-queue-time-avg"]
    latency_ms = averages["request-latency-avg"]
    return None if queue_time_ms is None or latency_ms is None else queue_time_ms + latency_ms
