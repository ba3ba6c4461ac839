"""Write docs/metrics.md from the tables of fields and names.

python -m release.metrics_document > docs/metrics.md
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable

from spark_kafka_sink.base import kafka_metrics
from spark_kafka_sink.base.kafka_metrics import KafkaMetric
from spark_kafka_sink.metrics import line
from spark_kafka_sink.metrics.line import LINE_VERSION, Field
from spark_kafka_sink.metrics.names import OWN_METRICS

_HEAD = f"""\
# Metrics

For engineers who read or collect metrics: all fields and names. [Monitor and report](report.md) shows how to collect
them. Generated from the tables in `spark_kafka_sink/metrics/`; do not edit.

The driver adds up the counts of all tasks, and writes **one JSON line for each micro-batch or job** to the places that the
options `metrics.*` name, such as `metrics.path`. When a line `commit` appears, all its records are in Kafka, and with
exactly-once they are visible.

The driver's log gets one line of at most 200 characters for each batch (`metrics.log`):

```
2026-11-24 10:02:11,480 INFO spark_kafka_sink.spark.commit: batch 12 of orders to events: 24,000,000 records, 1.1 GiB in 4.0 s, 62 % waiting for acknowledgements
```

It has batch, query, topic, records, bytes after compression, the time from planning to committing, and the largest part
of that time. If rows have waited for brokers for 5 s or more, it names the longest wait and its cause instead, as in
`30.1 s of NOT_ENOUGH_REPLICAS (19) from broker 1`.

## The line

The schema has version {LINE_VERSION}. Later versions of the sink may add fields. If a field changes its meaning
or disappears, the line gets another version. Unknown values are omitted. The line has sums and counts
instead of averages, so that lines can be added up. `pykafka-sink metrics schema` prints the JSON Schema.

A JSON line in the log has at most 16 KiB: with many partitions it has only their extremes, and it omits
topics and brokers. Files get everything.

Below, a field without a type is an integer. Names with `_ms` are milliseconds. A moment counts from 1970.

"""  # noqa: E501


_COUNTERS = """
### `metrics`: what all tasks have counted

All are sums, except those with max in their name. `load_ms`, `input_wait_ms`, `encode_ms`, `compress_ms`,
`metadata_wait_ms`, `buffer_wait_ms` and `ack_wait_ms` are parts of `task_ms`. [Tuning](tuning.md) says what
to change when one is large.

"""  # noqa: E501


_LATENCY = """
### `request_latency`: of produce requests

`histogram.counts` holds, by bucket, the number of requests. Bucket *n* has times above 2^(*n*/8) ms, up to
2^((*n*+1)/8) ms. These are the buckets of OpenTelemetry's exponential histograms of scale 3, and of
Prometheus' native histograms of schema 3. To get quantiles over lines or brokers, add the counts up.

"""  # noqa: E501


_SUMMARIES = """
### `partitions_summary`, `tasks_summary`, `slowest_tasks`: skew

`partitions_summary` has the numbers of `topics` and `partitions`. For each of {partitions} it has
the partition with the least (`least_…`) and the most (`most_…`). `tasks_summary` has the number of tasks
with rows (`with_rows`), and the same extremes of tasks for {tasks}. Tasks without rows count as 0.
`slowest_tasks` lists up to {slowest} tasks:

"""  # noqa: E501


_KAFKA = """
## Kafka's names

The Java producer's metrics follow from a line. The Java producer reports the last 30 seconds, and a line reports one
batch: averages, rates and maxima are those of the batch, and totals add up over lines. All tasks of a job count as one
client, `kafka.client.id`. A rate is its total per second of `elapsed_ms`.
[java-metrics.md](internals/java-metrics.md) compares both for the same work, and says why a few are
[not given](internals/java-metrics.md#not-given).

### producer-metrics

"""  # noqa: E501


_PROMETHEUS = """
## Prometheus

[Set up Prometheus](report.md#prometheus). Names are those that jmx_exporter gives the metrics of Java
producers without rules: record-send-total of producer-metrics is
`kafka_producer_producer_metrics_record_send_total`. The label `client_id` names the client; topics and
brokers also have `topic` and `node_id`. The label `query` is the query's name (`queryName`), else its id; for
jobs it is empty.

Totals are counters; averages, rates and maxima are those of the last batch. `metrics.listen` also
exports Spark's progress: `pykafka_sink_query_input_rows_total`, `…_input_rows_per_second`,
`…_processed_rows_per_second`, `…_phase_seconds_total{phase="addBatch"}`, `…_active`. The difference between
`addBatch` and `pykafka_sink_batch_seconds` is planning, committing and starting tasks. These metrics are the
sink's own:

"""  # noqa: E501


_OTLP = """
## OpenTelemetry

[Set up OpenTelemetry](report.md#opentelemetry).

### Metrics by OTLP

[Kafka's names](#kafkas-names) appear as Kafka's clients push them to brokers (KIP-714): record-send-total of
producer-metrics is `org.apache.kafka.producer.record.send.total`, and request-latency-avg of
producer-node-metrics `org.apache.kafka.producer.node.request.latency.avg`. The attributes are `client_id`,
`query`, and `topic` or `node_id`.

The sink's own metrics have the names of [Prometheus](#prometheus) with the prefix `pykafka_sink.`, and a unit beside the
name: `pykafka_sink.task_part`, in s. The latencies of produce requests are the exponential histogram
`pykafka_sink.request_latency`, in ms. With
`OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION=explicit_bucket_histogram` it has fixed bounds that
double. Totals and histograms are deltas of one batch.

The resource has `service.name`, `pykafka_sink.query.id` and `.name`, the attributes in
`OTEL_RESOURCE_ATTRIBUTES`, and `spark.application.id` where the sink knows it: in `spark_kafka_sink.write` and
`foreachBatch`, on Kubernetes and on YARN.

### The trace of a batch

| span | from | to |
| --- | --- | --- |
| `micro-batch` or `job` | the start of the first span below | the end of the last one |
| `planning` | the driver begins to check and plan | Spark may start tasks |
| `tasks` | the first task starts in Python | the last task has all acknowledgements |
| `flush` | the first task has no more rows, and waits for acknowledgements | the last task has them |
| `task` | the slowest task starts | it has all acknowledgements |
| `task flush` | that task has no more rows | it has all acknowledgements |
| `commit` or `abort` | Spark lets the driver end the batch | the line is written |

The gaps around `tasks` are Spark's time. `task` has the attributes number, host, records and
[times of its stages](#partitions_summary-tasks_summary-slowest_tasks-skew). Its slowest produce request is the
exemplar of the histogram. The batch's number is the attribute `pykafka_sink.batch_id`, and the JSON line has the
`trace_id`. An aborted batch has the status ERROR. In `spark_kafka_sink.write` and `foreachBatch` it has the error,
otherwise the number of failed tasks.

Times are whole milliseconds of each machine's clock. If clocks differ, so do the spans.

## Metrics that brokers ask for

[How to enable them](report.md#brokers-that-collect-metrics) (KIP-714, Kafka 3.7 and newer).

| | |
| --- | --- |
| names | `org.apache.kafka.producer.` and the names of [producer-metrics](#producer-metrics) with dots, such as `org.apache.kafka.producer.record.send.total`; `…producer.topic.` (label `topic`) and `…producer.node.` (label `node_id`) |
| types | totals are sums, cumulative or deltas as the subscription asks; all others are gauges |
| averages, rates | of the time since the previous push; omitted without data |
| maxima | of the tasks since the previous push |
| labels of the client | `client_rack` (`kafka.client.rack`); `transactional_id` with exactly-once |
| client instance | for a streaming query, one per Python worker that writes; for a job, one per task. The worker logs its id at level `DEBUG` |
| last push | at the end of a job's task; 30 s after the last task of a query's worker; when a failed producer closes. If Spark ends a worker earlier, the figures since the last interval are missing |

A push that is too large omits metrics of topics, and then those of brokers. A failed push never fails a task. If a push
delays rows by more than 5 s, the producer stops pushing for 5 minutes, with a warning.
[Details](internals/metrics.md#pushes-to-brokers)
"""  # noqa: E501


def render() -> str:
    """Return the whole document."""
    return "".join(
        (
            _HEAD,
            _fields(line.LINE),
            _COUNTERS,
            _fields(line.COUNTERS),
            _LATENCY,
            _fields(line.LATENCY),
            "\n### `topics`, `partitions`, `nodes`: by name, number and broker id\n\n",
            "Of a topic, under its name:\n\n",
            _fields(line.TOPIC),
            "\nOf a partition, under its topic's name and its number:\n\n",
            _fields(line.PARTITION),
            "\nOf a broker, under its id; those of `kafka.bootstrap.servers` have ids below 0:\n\n",
            _fields(line.NODE),
            _summaries(),
            _fields(line.SLOW_TASK),
            _KAFKA,
            _metrics(kafka_metrics.PRODUCER_METRICS),
            "\n### producer-topic-metrics\n\n",
            _metrics(kafka_metrics.TOPIC_METRICS),
            "\n### producer-node-metrics\n\n",
            _metrics(kafka_metrics.NODE_METRICS),
            _PROMETHEUS,
            "| metric | meaning |\n| --- | --- |\n",
            "".join(f"| `{metric.name}` | {metric.doc} |\n" for metric in OWN_METRICS),
            "| `pykafka_sink_request_latency_seconds` | histogram: latency of produce requests |\n",
            _OTLP,
        )
    )


def _summaries() -> str:
    return _SUMMARIES.format(
        partitions=_listed(line.EXTREMES_OF_PARTITIONS),
        tasks=_listed(line.EXTREMES_OF_TASKS),
        slowest=line.MOST_SLOW_TASKS,
    )


def _listed(names_of: Iterable[str]) -> str:
    *first, last = (f"`{name}`" for name in names_of)
    return f"{', '.join(first)} and {last}"


def _fields(table: Iterable[Field]) -> str:
    """Return a row for each type and meaning. A type is omitted if it is integer or the name."""
    rows: dict[str, list[str]] = {}
    for field in table:
        kind = "" if field.type in ("integer", field.name) else f"*{field.type}*: "
        doc = re.sub(",?( in ms)? since 1970", "", field.doc)
        rows.setdefault(kind + doc, []).append(f"`{field.name}`")
    text = "".join(f"| {', '.join(names)} | {meaning} |\n" for meaning, names in rows.items())
    return f"| field | meaning |\n| --- | --- |\n{text}"


def _metrics(table: Iterable[KafkaMetric]) -> str:
    """Return a row for each formula: a rate and its total have the same."""
    rows: dict[str, list[str]] = {}
    for metric in table:
        rows.setdefault(metric.follows.removesuffix(", per second"), []).append(metric.name)
    text = "".join(f"| {', '.join(names)} | {formula} |\n" for formula, names in rows.items())
    return f"| Kafka's name | follows from |\n| --- | --- |\n{text}"


if __name__ == "__main__":
    sys.stdout.write(render())
