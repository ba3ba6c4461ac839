"""The JSON line of a batch: what ``metrics/fields.py`` describes, of what tasks have counted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from heapq import nlargest
from typing import Any, NamedTuple

from spark_kafka_sink.base.latencies import SCALE, quantile_ms
from spark_kafka_sink.base.node_metrics import NodeMetrics, NodesMetrics, total_of
from spark_kafka_sink.metrics.fields import (
    EXTREMES_OF_PARTITIONS,
    EXTREMES_OF_TASKS,
    MOST_LOGGED_PARTITIONS,
    MOST_SLOW_TASKS,
    NODE,
    SLOW_TASK,
)
from spark_kafka_sink.producer.metrics import DeliveryReport, ProducerMetrics

Line = dict[str, Any]

_NS_PER_MS = 1_000_000
_FOR_FILES_ALONE = ("settings", "topics", "nodes", "slowest_tasks")


class TaskFigures(NamedTuple):
    """One task that has ended. started_at_ms: since 1970, 0 if it had no rows."""

    task: int
    attempt: int
    host: str
    started_at_ms: int
    records: int
    metrics: ProducerMetrics

    # Instants are rounded down: so one that comes before another by one clock is told so.

    @property
    def flushed_from_ms(self) -> int:
        """When all its rows were written, and it waited for acknowledgements."""
        written_ns = self.metrics.task_ns - self.metrics.ack_wait_ns
        return self.started_at_ms + written_ns // _NS_PER_MS

    @property
    def ended_at_ms(self) -> int:
        return self.started_at_ms + self.metrics.task_ns // _NS_PER_MS

    def extreme(self, name: str) -> float:
        """One of ``EXTREMES_OF_TASKS``."""
        if name == "records":
            return self.records
        return self.metrics.task_ms if name == "task_ms" else self.metrics.compressed_bytes

    def described(self) -> dict[str, Any]:
        """With the names of ``SLOW_TASK``."""
        known = {**self.metrics.report(), **self._asdict()}
        return {field.name: known[field.name] for field in SLOW_TASK}


class Measured(NamedTuple):
    """What all tasks of a batch have counted."""

    metrics: ProducerMetrics
    partitions: DeliveryReport
    nodes: NodesMetrics
    tasks: list[TaskFigures]


def whole(measured: Measured) -> Line:
    """Everything: for files."""
    partitions = measured.partitions
    line = _of_tasks(measured.tasks)
    line["metrics"] = measured.metrics.report()
    line["request_latency"] = _latency(total_of(measured.nodes.values()))
    line["partitions"] = by_topic(partitions)
    line["partitions_summary"] = partitions_summary(partitions) if partitions else None
    line["topics"] = _topics(partitions)
    line["nodes"] = {str(n): _node(measured.nodes[n]) for n in sorted(measured.nodes)}
    line["tasks_summary"] = _tasks_summary(measured.tasks)
    line["slowest_tasks"] = _slowest(measured.tasks)
    return line


def for_log(line: Line) -> Line:
    """At most 16 KiB of a line, with the extremes instead of more than a few partitions."""
    topics = line.get("partitions", {})
    is_short = sum(map(len, topics.values())) <= MOST_LOGGED_PARTITIONS
    left_out = {*_FOR_FILES_ALONE, "partitions_summary" if is_short else "partitions"}
    logged = {name: value for name, value in line.items() if name not in left_out}
    if "request_latency" in logged:
        logged["request_latency"] = {
            name: value for name, value in line["request_latency"].items() if name != "histogram"
        }
    return logged


def _of_tasks(tasks: Iterable[TaskFigures]) -> Line:
    started = [task for task in tasks if task.started_at_ms]
    first_ms = min((task.started_at_ms for task in started), default=None)
    last_ms = max((task.ended_at_ms for task in started), default=0)
    return {
        "started_at_ms": first_ms,
        "elapsed_ms": None if first_ms is None else last_ms - first_ms,
        "flush_started_at_ms": min((task.flushed_from_ms for task in started), default=None),
        "failed_attempts": sum(task.attempt for task in tasks),
    }


def _latency(node: NodeMetrics) -> dict[str, Any] | None:
    if not node.latencies:
        return None
    described: dict[str, Any] = {
        f"p{percent}_ms": quantile_ms(node.latencies, percent / 100) for percent in (50, 95, 99)
    }
    counts = {str(index): node.latencies[index] for index in sorted(node.latencies)}
    described["histogram"] = {"scale": SCALE, "counts": counts}
    return described


def _node(node: NodeMetrics) -> dict[str, Any]:
    names = (field.name for field in NODE if field.name != "request_latency")
    described: dict[str, Any] = {name: getattr(node, name) for name in names}
    latency = _latency(node)
    return described if latency is None else {**described, "request_latency": latency}


def _topics(partitions: DeliveryReport) -> dict[str, dict[str, int]]:
    topics: dict[str, dict[str, int]] = {}
    for where in sorted(partitions):
        topic = topics.setdefault(where.topic, {"partitions": 0})
        topic["partitions"] += 1
        for name in ("records", "compressed_bytes", "uncompressed_bytes", "record_retries"):
            topic[name] = topic.get(name, 0) + getattr(partitions[where], name)
    return topics


def by_topic(partitions: DeliveryReport) -> dict[str, dict[int, dict[str, int]]]:
    """Each partition, under its topic and number."""
    topics: dict[str, dict[int, dict[str, int]]] = {}
    for where in sorted(partitions):
        report = partitions[where]
        topics.setdefault(where.topic, {})[where.partition] = {
            "first_offset": report.first_offset,
            "last_offset": report.last_offset,
            "records": report.records,
            "compressed_bytes": report.compressed_bytes,
            "uncompressed_bytes": report.uncompressed_bytes,
        }
    return topics


def partitions_summary(partitions: DeliveryReport) -> dict[str, Any]:
    """How many topics and partitions were written, and which of them got least and most."""
    summary: dict[str, Any] = {
        "topics": len({topic_partition.topic for topic_partition in partitions}),
        "partitions": len(partitions),
    }
    for name in EXTREMES_OF_PARTITIONS:
        counts = {where: getattr(report, name) for where, report in partitions.items()}
        for word, where in _extremes(counts):
            summary[f"{word}_{name}"] = {
                "topic": where.topic,
                "partition": where.partition,
                name: counts[where],
            }
    return summary


def _tasks_summary(tasks: list[TaskFigures]) -> dict[str, Any] | None:
    if not tasks:
        return None
    summary: dict[str, Any] = {"with_rows": sum(task.records > 0 for task in tasks)}
    for name in EXTREMES_OF_TASKS:
        counts = {task.task: task.extreme(name) for task in tasks}
        for word, number in _extremes(counts):
            summary[f"{word}_{name}"] = {"task": number, name: counts[number]}
    return summary


def _extremes(counts: Mapping[Any, int | float]) -> tuple[tuple[str, Any], tuple[str, Any]]:
    return (
        ("least", min(counts, key=lambda where: counts[where])),
        ("most", max(counts, key=lambda where: counts[where])),
    )


def _slowest(tasks: Iterable[TaskFigures]) -> list[dict[str, Any]] | None:
    with_rows = (task for task in tasks if task.started_at_ms)
    slowest = nlargest(MOST_SLOW_TASKS, with_rows, key=lambda task: task.metrics.task_ns)
    return [task.described() for task in slowest] or None
