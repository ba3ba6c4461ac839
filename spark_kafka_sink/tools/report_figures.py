"""Facts about one line of metrics for the rules of the report: brokers, and uneven load."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import Any, NamedTuple

from spark_kafka_sink.base.node_metrics import quantile_ms
from spark_kafka_sink.metrics.figures import batch_duration_ms, count, shares


def left_out(texts: int) -> str:
    """Return a message about texts in a file of metrics that are not readable as lines."""
    if texts == 1:
        return "1 text left out: no line of this sink"
    return f"{count(texts)} texts left out: no lines of this sink"


# --- input and output of rules -------------------------------------------------------------------

Line = Mapping[str, Any]

WAITING = 0.2
"""Least share of task time in waiting for brokers that is reported."""
LEAST_WAITING_MS = 100.0
"""Least ms of the mean task. Each waits some ms for its last acknowledgement, however fast."""


class Finding(NamedTuple):
    """One fact about a batch that its user should know.

    kind: for programs and tests; docs/report.md lists all kinds
    title: a few words; text: with the figures; advice: what to do, "" for nothing
    weight: explained share of the batch's time, at most 1; trouble that takes no time has 0
    is_trouble: something went wrong, beyond slowness
    """

    kind: str
    title: str
    text: str
    advice: str
    weight: float
    is_trouble: bool = False


class Facts(NamedTuple):
    """A line, and values that several rules need.

    waiting: share of task time that tasks waited for brokers, without quotas
    """

    line: Line
    metrics: Mapping[str, Any]
    shares: Mapping[str, float]
    waiting: float

    @classmethod
    def of(cls, line: Line) -> Facts:
        """Return the facts of one line."""
        metrics = line.get("metrics") or {}
        found = shares(metrics)
        return cls(line, metrics, found, found["buffer_wait_ms"] + found["ack_wait_ms"])

    def number(self, name: str) -> float:
        """Return one of ``metrics``; 0 if the line lacks it."""
        return float(self.metrics.get(name) or 0)

    def is_long(self, share: float) -> bool:
        """Return True if a wait is long enough to report: of task time, and of the mean task."""
        mean_ms = self.number("task_ms") / float(self.line.get("tasks") or 1)
        return share >= WAITING and share * mean_ms >= LEAST_WAITING_MS

    def of_batch(self, share: float) -> float:
        """Return a share of task time as a share of the batch's time, with planning and commit."""
        whole_ms = batch_duration_ms(self.line)
        return share * float(self.line.get("elapsed_ms") or 0) / whole_ms if whole_ms else share

    def setting(self, name: str) -> str | None:
        """Return the value of an option, None if the line lacks it."""
        value = (self.line.get("settings") or {}).get(name)
        return None if value is None else str(value)


# --- skew: brokers, partitions, tasks ------------------------------------------------------------

TIMES_SLOWER = 3.0
LEAST_SLOW_MS = 20.0
"""A broker that answers faster is not reported, however fast the others are."""
LEAST_ANSWERS = 5
TIMES_THE_MEAN = 2.5
MOST_OF_TWO = 0.8
"""Share for two partitions, because none can have 2.5 times their mean."""
LEAST_RECORDS = 1000
LEAST_TASK_MS = 1000.0


class Broker(NamedTuple):
    """A broker of ``nodes``. p50_ms, p95_ms, p99_ms: 0 without a histogram."""

    id: int
    answers: float
    outgoing_bytes: float
    mean_ms: float
    p50_ms: float
    p95_ms: float
    p99_ms: float
    request_latency_max_ms: float
    throttle_time_ms: float
    record_retries: float
    connections_created: float

    @property
    def name(self) -> str:
        return f"broker {self.id}" if self.id >= 0 else "a bootstrap address"


class Skew(NamedTuple):
    """Uneven load. where: largest; share: of all; times: the mean of ``number``; what: unit."""

    where: str
    share: float
    times: float
    number: int
    what: str = "records"
    rows_times: float = 0.0


def brokers(line: Line) -> list[Broker]:
    """Return the brokers that got produce requests, by id."""
    nodes = (line.get("nodes") or {}).items()
    return sorted(_broker(int(n), node) for n, node in nodes if node.get("produce_responses"))


def _broker(number: int, node: Mapping[str, Any]) -> Broker:
    counts = (node.get("request_latency") or {}).get("histogram", {}).get("counts", {})
    latencies = {int(index): int(times) for index, times in counts.items() if times}
    answers = float(node["produce_responses"])
    return Broker(
        number,
        answers,
        float(node.get("outgoing_bytes") or 0),
        float(node.get("request_latency_ms") or 0) / answers,
        *(quantile_ms(latencies, share) or 0.0 for share in (0.5, 0.95, 0.99)),
        *(float(node.get(name) or 0) for name in Broker._fields[7:]),
    )


def slow_broker(line: Line) -> tuple[Broker, float] | None:
    """Return a broker much slower than the others, and the others' median 95th percentile."""
    known = [broker for broker in brokers(line) if broker.answers >= LEAST_ANSWERS]
    if len(known) < 2:
        return None
    slowest = max(known, key=lambda broker: broker.p95_ms)
    others_ms = median(broker.p95_ms for broker in known if broker is not slowest)
    is_slow = slowest.p95_ms >= max(TIMES_SLOWER * others_ms, LEAST_SLOW_MS)
    return (slowest, others_ms) if is_slow else None


def partition_skew(line: Line) -> Skew | None:
    """Return the partition with far more than its share of the records."""
    records = (line.get("metrics") or {}).get("records") or 0
    where, most, total, number = _most_of_partitions(line)
    if number < 2 or not total or records < LEAST_RECORDS:
        return None
    skew = Skew(where, most / total, most * number / total, number)
    is_much = skew.times >= TIMES_THE_MEAN or (number == 2 and skew.share >= MOST_OF_TWO)
    return skew if is_much else None


def _most_of_partitions(line: Line) -> tuple[str, float, float, int]:
    """Return name and records of the largest partition, records and number of all partitions."""
    by_topic = line.get("partitions") or {}
    counts = {
        f"{topic}-{number}": float(partition.get("records") or 0)
        for topic, partitions in by_topic.items()
        for number, partition in partitions.items()
    }
    if counts:
        where = max(counts, key=lambda name: counts[name])
        return where, counts[where], sum(counts.values()), len(counts)
    summary = line.get("partitions_summary")
    if not summary:
        return "", 0.0, 0.0, 0
    most = summary["most_records"]
    total = float((line.get("metrics") or {}).get("records") or 0)
    where = f"{most['topic']}-{most['partition']}"
    return where, float(most["records"]), total, int(summary["partitions"])


def task_skew(line: Line) -> Skew | None:
    """Return the task that takes far longer than the others, and most of the batch's time."""
    summary = line.get("tasks_summary")
    metrics = line.get("metrics") or {}
    if not summary or (summary.get("with_rows") or 0) < 2:
        return None
    number = int(summary["with_rows"])
    most_ms = float(summary["most_task_ms"]["task_ms"])
    total_ms = float(metrics.get("task_ms") or 0)
    elapsed_ms = float(line.get("elapsed_ms") or most_ms)
    if not total_ms or most_ms < max(LEAST_TASK_MS, elapsed_ms / 2):
        return None
    times = most_ms * number / total_ms
    if times < (TIMES_THE_MEAN if number > 2 else 2 * MOST_OF_TWO):
        return None
    task = summary["most_task_ms"]["task"]
    most_rows = summary["most_records"]
    records = float(metrics.get("records") or 0)
    is_same = most_rows["task"] == task and records
    rows_times = float(most_rows["records"]) * number / records if is_same else 0.0
    share = min(1 - total_ms / number / most_ms, 1.0)
    return Skew(f"task {task}", share, times, number, "task time", rows_times)
