"""docs/internals/java-metrics.md, from the results: each metric in the work that shows it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from evidence.java_metrics.comparing import RESULTS
from evidence.java_metrics.work import WORKS
from spark_kafka_sink.base import kafka_metrics
from spark_kafka_sink.metrics import names

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "internals" / "java-metrics.md"
WITHIN = 0.1

PRODUCER = {
    "record-send-total": "cut",
    "record-retry-total": "cut",
    "record-error-total": "cut",
    "record-size-max": "bulk",
    "record-size-avg": "bulk",
    "record-queue-time-avg": "paced",
    "record-queue-time-max": "paced",
    "records-per-request-avg": "bulk",
    "batch-size-avg": "bulk",
    "batch-size-max": "bulk",
    "batch-split-total": "bulk",
    "compression-rate-avg": "compressed",
    "request-latency-avg": "paced",
    "request-latency-max": "paced",
    "requests-in-flight": "bulk",
    "produce-throttle-time-avg": "throttled",
    "produce-throttle-time-max": "throttled",
    "metadata-age": "bulk",
    "bufferpool-wait-time-ns-total": "full",
    "bufferpool-wait-ratio": "full",
    "buffer-total-bytes": "full",
    "buffer-available-bytes": "full",
    "flush-time-ns-total": "paced",
    "metadata-wait-time-ns-total": "bulk",
    "txn-init-time-ns-total": "bulk",
    "txn-commit-time-ns-total": "bulk",
    "connection-count": "bulk",
    "connection-creation-total": "bulk",
    "connection-close-total": "cut",
    "request-total": "bulk",
    "response-total": "bulk",
    "outgoing-byte-total": "bulk",
    "incoming-byte-total": "bulk",
    "network-io-total": "bulk",
    "request-size-avg": "bulk",
    "request-size-max": "bulk",
}
TOPIC = {
    "record-send-total": "cut",
    "byte-total": "cut",
    "record-retry-total": "cut",
    "compression-rate": "compressed",
}
NODE = {
    "request-total": "bulk",
    "response-total": "bulk",
    "outgoing-byte-total": "bulk",
    "incoming-byte-total": "bulk",
    "request-size-avg": "bulk",
    "request-size-max": "bulk",
    "request-latency-avg": "paced",
    "request-latency-max": "paced",
}
"""Which work shows which metric."""

_AT_THE_MOMENT = "Java gives the value of this moment, a line the maximum of the batch"
_ONE_DECIDES = (
    "one decides: the first, for which the JVM has no compiled code yet, or no connection"
)
_FASTER = "follows from how fast a producer is: the faster one is made to wait for longer"
DIFFERENT = {
    "record-size-max": "Java's has the header of a batch in it, 61 bytes; here it is the record",
    "record-size-avg": "Java's is the average of each batch's largest record, with that header; "
    "here it is all bytes by all records",
    "record-queue-time-max": _ONE_DECIDES,
    "request-latency-max": _ONE_DECIDES,
    "produce-throttle-time-avg": _FASTER,
    "produce-throttle-time-max": _FASTER,
    "bufferpool-wait-time-ns-total": _FASTER,
    "flush-time-ns-total": "the first flush waits for connections as well, as far as they were not "
    "made before it began",
    "bufferpool-wait-ratio": "Java's is over its window, here it is over the task's time",
    "requests-in-flight": _AT_THE_MOMENT,
    "buffer-available-bytes": _AT_THE_MOMENT + ": what was left then",
    "metadata-age": "depends on when it is asked, and on how long the JVM took to start",
    **dict.fromkeys(
        (
            *("batch-size-avg", "records-per-request-avg", "request-size-avg", "request-total"),
            *("response-total", "network-io-total", "incoming-byte-total"),
        ),
        "Java sends with each full batch what is open of its broker's other partitions "
        "(RecordAccumulator.drainBatchesForOneNode): more and smaller requests for a quick "
        "broker; here batches are filled while rows come",
    ),
    "metadata-wait-time-ns-total": "a task asks for metadata of its topic before it has rows; the "
    "JVM was starting meanwhile",
}
"""Why a metric may be more than a tenth beside Java's."""


class Compared(NamedTuple):
    """One row."""

    group: str
    name: str
    work: str
    here: float
    java: float

    @property
    def is_same(self):
        return abs(self.here - self.java) <= WITHIN * max(abs(self.java), abs(self.here))


def compared(results):
    """Each metric, in the work that shows it."""
    for group, shown in (("producer", PRODUCER), ("topic", TOPIC), ("node", NODE)):
        for name, work in shown.items():
            here, java = results["works"][work][group][name]
            yield Compared(group, name, work, here, java)


def names_of_java(results, group):
    return {name for work in results["works"].values() for name in work[group]}


_HEAD = """\
# Metrics beside the Java producer's

For maintainers: whether each metric says the same as Kafka's Java producer. Written by `make evidence NAME=java-metrics`; do not edit.

Kafka's Java producer {version} and the sink's producer (without Spark) do the same work, one after the other,
with the same settings, through a TCP proxy to the same broker. The table compares the metrics of both under
Kafka's names ([metrics.md](../metrics.md#kafkas-names)), each in the work that shows it. Values within 10 % count as
the same, and other rows give the reason. Rates are not compared: Java's are over a sliding
window, those of a line over its batch; both follow from the totals. Other work had most of the machine's
two cores meanwhile, so that times are those of the links, and the JVM's own times are long.

| work | what it is |
| --- | --- |
"""


def render(results):
    """The whole document."""
    text = _HEAD.format(version=results["kafka"])
    text += "".join(f"| {work.name} | {work.what} |\n" for work in WORKS)
    for group, title in (
        ("producer", kafka_metrics.PRODUCER_GROUP),
        ("topic", kafka_metrics.TOPIC_GROUP),
        ("node", kafka_metrics.NODE_GROUP),
    ):
        text += (
            f"\n## {title}\n\n| metric | work | here | Java | |\n| --- | --- | --- | --- | --- |\n"
        )
        text += "".join(_row(row) for row in compared(results) if row.group == group)
    text += "\n## Not given\n\n| Kafka's name | why |\n| --- | --- |\n"
    text += "".join(_not_given(names.UNAVAILABLE_METRICS))
    text += "".join(_not_given(names.UNAVAILABLE_TOPIC_METRICS, " of a topic"))
    return text


def _not_given(table, of=""):
    """A row for each reason; a total has that of its rate."""
    reasons = {}
    for name, why in table.items():
        rate = name.replace("-total", "-rate")
        reasons.setdefault(table.get(rate, why) if why == "as the rate" else why, []).append(name)
    for why, named in reasons.items():
        yield f"| {', '.join(named)}{of} | {why} |\n"


def _row(row):
    verdict = "same" if row.is_same else DIFFERENT.get(row.name, "differs")
    return f"| {row.name} | {row.work} | {_number(row.here)} | {_number(row.java)} | {verdict} |\n"


def _number(value):
    return f"{value:,.0f}" if value == int(value) or abs(value) >= 100 else f"{value:.3g}"


def main():
    """Write the page from the results."""
    results = json.loads(RESULTS.read_text(encoding="utf-8"))
    DOCUMENT.write_text(render(results), encoding="utf-8")
