"""Metrics for Prometheus that Java's producers do not have, by names of the sink's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, Union

from spark_kafka_sink.metrics.names import Values, send_time_ms

Labelled = tuple[Mapping[str, str], Union[int, float]]
"""More labels than client and query, and the value."""

TASK_PARTS = ("input_wait", "encode", "compress", "metadata_wait", "buffer_wait", "ack_wait")


class OwnMetric(NamedTuple):
    """is_total: values of lines add up."""

    name: str
    doc: str
    is_total: bool
    values: Callable[[Values], Iterator[Labelled]]


def _field(name: str) -> Callable[[Values], Iterator[Labelled]]:
    def values(line: Values) -> Iterator[Labelled]:
        if name in line:
            yield {}, line[name]

    return values


def _seconds(name: str) -> Callable[[Values], Iterator[Labelled]]:
    def values(line: Values) -> Iterator[Labelled]:
        if name in line:
            yield {}, line[name] / 1000

    return values


def _batches(line: Values) -> Iterator[Labelled]:
    yield {"event": line["event"]}, 1


def _task_times(line: Values) -> Iterator[Labelled]:
    metrics = line.get("metrics")
    if metrics:
        for part in TASK_PARTS:
            yield {"part": part}, metrics[f"{part}_ms"] / 1000


def _limit_wait(line: Values) -> Iterator[Labelled]:
    waited_ms = line.get("metrics", {}).get("limit_wait_ms")
    if waited_ms is not None:
        yield {}, waited_ms / 1000


def _task_seconds(line: Values) -> Iterator[Labelled]:
    if "metrics" in line:
        yield {}, line["metrics"]["task_ms"] / 1000


def _quantiles(line: Values) -> Iterator[Labelled]:
    latency = line.get("request_latency", {})
    for percentile, name in (("50", "p50_ms"), ("95", "p95_ms"), ("99", "p99_ms")):
        if name in latency:
            yield {"percentile": percentile}, latency[name] / 1000


def _send_time(line: Values) -> Iterator[Labelled]:
    value = send_time_ms(line) if "metrics" in line else None
    if value is not None:
        yield {}, value / 1000


def _extremes(summary: str, field: str) -> Callable[[Values], Iterator[Labelled]]:
    def values(line: Values) -> Iterator[Labelled]:
        found = line.get(summary)
        if found:
            for extreme in ("least", "most"):
                yield {"extreme": extreme}, found[f"{extreme}_{field}"][field]

    return values


def _dead_letters(line: Values) -> Iterator[Labelled]:
    for cause, count in line.get("dead_letters", {}).items():
        yield {"cause": cause}, count


def _slowest_task(line: Values) -> Iterator[Labelled]:
    found = line.get("tasks_summary")
    if found:
        yield {}, found["most_task_ms"]["task_ms"] / 1000


def _when(line: Values) -> Iterator[Labelled]:
    yield {"event": line["event"]}, line["time_ms"] / 1000


OWN_METRICS = (
    OwnMetric("pykafka_sink_batches_total", "Micro-batches and jobs, by event", True, _batches),
    OwnMetric("pykafka_sink_tasks_total", "Tasks of them", True, _field("tasks")),
    OwnMetric(
        "pykafka_sink_failed_tasks_total",
        "Tasks without a message, of batches that were aborted",
        True,
        _field("failed_tasks"),
    ),
    OwnMetric(
        "pykafka_sink_failed_attempts_total",
        "Attempts before those that were successful",
        True,
        _field("failed_attempts"),
    ),
    OwnMetric(
        "pykafka_sink_records_acknowledged_total",
        "Records that brokers have acknowledged",
        True,
        _field("records_acknowledged"),
    ),
    OwnMetric(
        "pykafka_sink_dead_letters_total",
        "Of them, dead letters, by cause",
        True,
        _dead_letters,
    ),
    OwnMetric(
        "pykafka_sink_task_seconds_total",
        "Time of tasks, from their start until all was acknowledged",
        True,
        _task_seconds,
    ),
    OwnMetric(
        "pykafka_sink_task_part_seconds_total",
        "What tasks have spent that time with, as far as it was measured",
        True,
        _task_times,
    ),
    OwnMetric(
        "pykafka_sink_limit_wait_seconds_total",
        "How long tasks have waited for max.bytes.per.second.per.task",
        True,
        _limit_wait,
    ),
    OwnMetric(
        "pykafka_sink_commit_seconds_total",
        "Exactly-once: deciding and committing transactions",
        True,
        _seconds("commit_ms"),
    ),
    OwnMetric(
        "pykafka_sink_batch_seconds",
        "From the start of the last batch's first task until the end of its last",
        False,
        _seconds("elapsed_ms"),
    ),
    OwnMetric(
        "pykafka_sink_request_latency_percentile_seconds",
        "Of the last batch's produce requests",
        False,
        _quantiles,
    ),
    OwnMetric(
        "pykafka_sink_current_send_time_seconds",
        "Flink's currentSendTime: queue time and request latency of the last batch, on average",
        False,
        _send_time,
    ),
    OwnMetric(
        "pykafka_sink_task_records",
        "Of the last batch's tasks the least and most records",
        False,
        _extremes("tasks_summary", "records"),
    ),
    OwnMetric(
        "pykafka_sink_partition_records",
        "Of the last batch's topic-partitions the least and most records",
        False,
        _extremes("partitions_summary", "records"),
    ),
    OwnMetric(
        "pykafka_sink_slowest_task_seconds",
        "Time of the last batch's slowest task",
        False,
        _slowest_task,
    ),
    OwnMetric("pykafka_sink_last_batch_id", "Of a query", False, _field("batch_id")),
    OwnMetric(
        "pykafka_sink_last_event_timestamp_seconds",
        "When the last line was written, by event, since 1970",
        False,
        _when,
    ),
)
