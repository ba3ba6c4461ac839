"""Write docs/metrics.md from the tables of fields and names.

python -m release.metrics_document > docs/metrics.md
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

from spark_kafka_sink.metrics import line, names
from spark_kafka_sink.metrics.line import LINE_VERSION, Field
from spark_kafka_sink.metrics.names import OWN_METRICS, KafkaMetric

_HEAD = f"""\
# Metrics

Generated from the tables in `spark_kafka_sink/metrics/`; do not edit.

Each task counts what it does, and tells the driver in its commit message. The driver adds up, and
writes **one JSON line for each micro-batch or job**: to its log (`metrics.log`), and where the options
`metrics.*` say. When a line `commit` appears, all its records are in Kafka, and with exactly-once they
are visible.

| you have | you want | set |
| --- | --- | --- |
| a query that was slow | a page that says why, or a screen while it runs: [report.md](report.md) | `metrics.path` |
| a log that is collected | nothing more | nothing: `metrics.log` is on |
| a file that is collected, or read by your own program | all of it, per topic, broker and partition | `metrics.path`, `metrics.path.max.bytes` |
| Prometheus, and a driver that it can reach | boards for Java producers, and Spark's progress beside them | [`metrics.listen`](#prometheus-listen) and `metrics.path` |
| batch jobs, and a push gateway | their last figures | [`metrics.prometheus.push.url`](#prometheus-push-gateway) |
| brokers that collect metrics of all their clients (KIP-714) | each task's producer beside the others | [nothing: `kafka.enable.metrics.push` is on](#metrics-that-brokers-ask-for) |
| OpenTelemetry's collector, or a service that takes OTLP | metrics, and a trace of each batch | [`metrics.otlp.endpoint`](#opentelemetry) |

## The line

Version {LINE_VERSION}. Fields may be added; one that changes its meaning or goes gives the line another version. What
is not known is left out. Averages are not told but what they follow from: a sum and a count, so that
lines can be added up. `pykafka-sink metrics schema` prints the JSON Schema.

A line in the log has at most 16 KiB: with many partitions the extremes only, and without what is per
topic and broker. Files get everything.

"""  # noqa: E501

_COUNTERS = """
### `metrics`: what all tasks have counted

Sums, but for those named max. `load_ms`, `input_wait_ms`, `encode_ms`, `compress_ms`, `metadata_wait_ms`,
`buffer_wait_ms` and `ack_wait_ms` are parts of `task_ms`; [tuning.md](tuning.md) says what it means when
one of them is large.

"""  # noqa: E501

_LATENCY = """
### `request_latency`: of produce requests

`histogram.counts` has, by bucket, how many requests took how long. Bucket *n* has times above
2^(*n*/8) ms, up to 2^((*n*+1)/8) ms: those of OpenTelemetry's exponential histograms of scale 3, and of
Prometheus' native histograms of schema 3. Add the counts of lines or brokers up to get the quantiles of
all of them.

"""  # noqa: E501

_SUMMARIES = """
### `partitions_summary`, `tasks_summary`, `slowest_tasks`: skew

`partitions_summary` has the numbers of `topics` and `partitions`, and for each of {partitions}
the partition with the least (`least_…`) and the most (`most_…`). `tasks_summary` has how many tasks
had rows (`with_rows`), and the same for tasks and {tasks}; tasks without rows have 0 of each.
`slowest_tasks` are up to {slowest} of them:

"""

_KAFKA = """
## Kafka's names

What the Java producer calls these figures, as they follow from a line. The Java producer tells of the
last 30 seconds, a line of one batch: averages, rates and maxima are of the batch, and totals are to be
added up over lines. The tasks of a job are told as one client, of the name `kafka.client.id`. A rate is
over `elapsed_ms`. [java-metrics.md](internals/java-metrics.md) has both beside each other, for the same work.

### producer-metrics

"""  # noqa: E501

_PROMETHEUS = """
## Prometheus

Needs the extra `metrics` on the driver: `pip install 'pykafka-sink[metrics]'`. Names are those that
jmx_exporter gives the metrics of Java producers without rules, so that boards for these work:
record-send-total of producer-metrics is `kafka_producer_producer_metrics_record_send_total`, with the
label `client_id`; topics and brokers have `topic` and `node_id` besides. The label `query` is the query's
name (`queryName`), else its id; empty for jobs. [examples/grafana](../examples/grafana/) has a dashboard: in Grafana
choose Dashboards, New, Import, upload `pykafka-sink.json`, and choose your Prometheus as its data source at the top.
`make prometheus` lets Prometheus 2.42 and its push gateway read all of it, asks Prometheus
what the dashboard asks, and has promtool check it.

Totals are counters; averages, rates and maxima are those of the last batch. What Java does not have:

"""  # noqa: E501

_WAYS = """
### Prometheus: listen

In the process that starts the queries (with Spark Connect too, where it sees the file):

```python
import spark_kafka_sink

listening = spark_kafka_sink.metrics.listen(spark, port=9404, path="/var/log/kafka-sink.jsonl")
query = (
    events.selectExpr("user_id AS key", "to_json(struct(*)) AS value")
    .writeStream.format("pykafka-sink")
    .option("kafka.bootstrap.servers", "broker:9092")
    .option("topic", "events")
    .option("metrics.path", "/var/log/kafka-sink.jsonl")
    .option("checkpointLocation", "/checkpoints/events")
    .queryName("events")
    .start()
)
```

It reads the lines that queries append to `metrics.path`, which must be the same local file, when
Prometheus asks, and joins them with Spark's own progress of these queries
(`pykafka_sink_query_input_rows_total`, `…_input_rows_per_second`, `…_processed_rows_per_second`,
`…_phase_seconds_total{phase="addBatch"}`, `…_active`): what `addBatch` takes beyond
`pykafka_sink_batch_seconds` is planning, committing and starting tasks. It listens on all addresses;
`host="127.0.0.1"` is for this machine only. `listening.close()` ends it.

Between two scrapes the file may be rotated several times (`metrics.path.max.bytes`): rotated files are read
as long as they are kept. Where it was rotated more often, the log of this process warns
that lines may be missing. `pykafka-sink top` and `report --follow` read in the same way.

Why not in the sink itself: what commits a batch is a Python process of Spark's, and may be another one
for the next batch.

### Prometheus: push gateway

`metrics.prometheus.push.url=http://gateway:9091` is told after each batch, for batch jobs that are over
before they are scraped. `metrics.prometheus.push.job` is the label `job`: name the job there, for
two with the same one replace each other's figures. The address has no user and password, which Spark would
show: a proxy on the driver's machine can add them. A thread pushes, as [with OpenTelemetry](#what-is-lost):
only the end of a job, or of a batch that failed, waits for it, for at most 3 seconds.

"""  # noqa: E501

_OTLP = """
## OpenTelemetry

Needs the extra `otel` on the driver: `pip install 'pykafka-sink[otel]'`. After each batch that is
committed or aborted the driver sends its metrics and a trace, by OTLP over HTTP (`http/protobuf`):

```properties
metrics.otlp.endpoint = http://collector:4318
metrics.otlp.headers = Authorization=${env:OTLP_AUTHORIZATION}
```

The address has no user and password, which Spark would show. For these, the variable is `Basic%20` and
`USER:PASSWORD` in base64; for a token, `Bearer%20` and the token.

`metrics.otlp.enable=true` without an address leaves it to OpenTelemetry's variables in the environment of
the driver: `OTEL_EXPORTER_OTLP_ENDPOINT`, `…_HEADERS`, `…_TIMEOUT`, `…_COMPRESSION`, `…_CERTIFICATE`,
`…_CLIENT_CERTIFICATE`, `…_CLIENT_KEY` and those for one signal, as `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`.
They count for all that options do not say, and alone they switch nothing on. `…_TIMEOUT` is milliseconds, as OpenTelemetry's
specification has it, though its exporters for Python take seconds from it. On Kubernetes the driver has
what `spark.kubernetes.driverEnv.NAME` says, on YARN `spark.yarn.appMasterEnv.NAME`.
`OTEL_SDK_DISABLED=true` switches all of it off. `metrics.otlp.signals=metrics` is for a receiver that has no traces.

The resource has `service.name` (`metrics.otlp.service.name`, else `OTEL_SERVICE_NAME`, else `pykafka-sink`),
`pykafka_sink.query.id` and `.name`, `spark.application.id` where it is known (in `spark_kafka_sink.write` and
`foreachBatch`, on Kubernetes and YARN), and what `OTEL_RESOURCE_ATTRIBUTES` says.

### Metrics by OTLP

[Kafka's names](#kafkas-names) are written as Kafka's clients push them to brokers (KIP-714):
record-send-total of producer-metrics is `org.apache.kafka.producer.record.send.total`, request-latency-avg of
producer-node-metrics `org.apache.kafka.producer.node.request.latency.avg`. Attributes are `client_id`,
`query`, and `topic` or `node_id`. What Java does not have is named as [for Prometheus](#prometheus), with
`pykafka_sink.` in front, and has its unit beside the name: `pykafka_sink.task_part`, in s. The latencies
of produce requests are the exponential histogram `pykafka_sink.request_latency`, in ms; with
`OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION=explicit_bucket_histogram` one whose bounds double.

**Totals and histograms are deltas**: of one batch, from its beginning to its end. Cumulative ones
would begin anew with each process that commits, which Spark may replace with each batch. A receiver that
wants cumulative ones, such as Prometheus, gets them from the collector's processor `deltatocumulative`.

### The trace of a batch

| span | from | to |
| --- | --- | --- |
| `micro-batch` or `job` | the first of what follows | the last of it |
| `planning` | the driver begins to check and plan | Spark may start tasks |
| `tasks` | the first task starts in Python | the last has all acknowledgements |
| `flush` | the first task has no more rows, and waits for acknowledgements | the last has them |
| `task` | the slowest task starts | it has all acknowledgements |
| `task flush` | that task has no more rows | it has all acknowledgements |
| `commit` or `abort` | Spark has the driver end the batch | the line is written |

What is between `planning` and `tasks`, and between `tasks` and `commit`, is Spark's. `task` has its number,
host, records and [the times of its stages](#partitions_summary-tasks_summary-slowest_tasks-skew), which take
turns with each Arrow batch; its slowest produce request is the exemplar of the histogram, which leads from
there to this span. The number of the batch is the attribute `pykafka_sink.batch_id`, as names of spans are to
be few. The JSON line has the `trace_id`. A batch that was aborted has the status ERROR: with the
error where the sink is told it, in `spark_kafka_sink.write` and `foreachBatch`, else with the number of tasks
that failed.

Instants are whole milliseconds, those of tasks by the clocks of the machines they ran on: where
clocks differ, so do the spans.

### What is lost

A thread sends, 10 ms later, and a micro-batch does not wait for it: at most 100 batches may wait, and above that the
oldest is dropped. A request that fails is tried again as OpenTelemetry's exporter does it, for at
most `metrics.otlp.timeout.ms`. What cannot be sent is lost; the log says so once, and once when it is sent
again. The end of a job, and of a batch that was aborted, waits for at most that time, and for at most 10
seconds; for a push gateway and for OpenTelemetry at the same time.
A program's own process, which commits with `foreachBatch`, waits as long before it ends. Spark kills
its Python processes when the application ends: then the last micro-batch may be missing, and all that a
receiver did not take until then.

## Metrics that brokers ask for

Since Kafka 3.7 a cluster may collect metrics of its clients (KIP-714): whoever operates it installs a plugin
(a `metric.reporters` class that is a `ClientTelemetry`), and subscribes to metrics with
`kafka-client-metrics.sh`. The tasks' producers then push them, as Java's and librdkafka's do, unless
`kafka.enable.metrics.push` is `false`. Nothing is needed on this side: no ACL, no package. Brokers without
a plugin are asked nothing, and nothing is logged.

| | |
| --- | --- |
| names | `org.apache.kafka.producer.` and those of [producer-metrics](#producer-metrics) with dots, such as `org.apache.kafka.producer.record.send.total`; `…producer.topic.` and `…producer.node.` for those of topics (label `topic`) and brokers (label `node_id`) |
| types | totals are sums, cumulative or deltas as the subscription asks; all others are gauges |
| averages, rates | of the time since the push before; one of nothing is left out |
| maxima | of the tasks since then |
| labels of the client | `client_rack` (`kafka.client.rack`), `transactional_id` with exactly-once |
| client instance | of a streaming query, one for each Python worker that writes, over all its tasks; of a job, one for each task: its id is in the worker's log at level `DEBUG` |
| last push | at the end of a job's task, when a worker of a query has had no task for 30 s, and when a producer is closed because its task failed. A worker that Spark ends before that, with its query, has told what there was at the last interval |

A push is compressed as the brokers ask. Where it would be larger than they take, what is per topic is left
out, and then what is per broker. It uses a connection that is there anyway, after the first produce request was
answered, and leaves a place for produce requests: under a load that fills all others
(`kafka.max.in.flight.requests.per.connection`) it waits. With 3 brokers and 1 topic a push takes 1.3 ms of
the worker's CPU and 1.3 KB. No failure of a push is one of the task's; closing a producer waits for the
answer to the last one, half a second at most.

Brokers answer the requests of a connection one after the other, so rows can wait for a push: as long as the
broker and its plugin take for it. Where that is more than 5 s, the connection is given up, the rows go over
a new one, and this producer leaves the brokers alone for 5 minutes; a warning says so, once per process.
`make telemetry` has a real broker take it, beside librdkafka's.

## Files

`metrics.path` is a file on the driver, or the URI of a folder: `s3://…`, `gs://…`, `abfss://…`,
`hdfs://…`, of file systems that [pyarrow.fs](https://arrow.apache.org/docs/python/filesystems.html)
knows, with its credentials and libraries: Python has no way to the driver's JVM and its Hadoop when it
commits. Object stores cannot append: there each line is a file, `TIME-QUERY-BATCH-….json`, whose names
sort by time.

With `metrics.path.max.bytes`, a local file that would become larger is renamed to `.1`, that to `.2`,
and so on; five of them are kept.

Where metrics cannot be written, the log says so, and nothing else happens: the records are in Kafka,
and an error would make Spark write them again. A job, and the first batch of a stream, are
refused before.

## What it costs

A task's commit message has about 48 bytes for each partition that it has written to, 160 for each
broker (1,200 at most, for latencies of all sizes), and 550 of its own: it does not grow with rows, requests or
time. With 1,000 partitions and 10 brokers, 10,000 tasks send 500 MB to the driver, where
`spark.driver.maxResultSize` is 1 GiB: [scale.md](scale.md) has the ways to have fewer partitions per task.

The end of a batch of 4 tasks, 12 partitions and 3 brokers waits 0.4 ms for line and file; that of one of
1,000 tasks with 100 partitions each and 10 brokers 90 ms. A push gateway and
OpenTelemetry are served by threads afterwards, for which a micro-batch waits 0.1 ms each: the file takes 2 ms
of CPU, 7 if another process wrote it last, the others 4 ms each. `python -m benchmarks.metrics_cost` measures it.
Tasks count per record batch and request, never per record.
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
            _metrics(names.PRODUCER_METRICS),
            "\nNot given:\n\n",
            _not_given(names.NOT_GIVEN),
            "\n### producer-topic-metrics\n\n",
            _metrics(names.TOPIC_METRICS),
            "\nNot given:\n\n",
            _not_given(names.NOT_GIVEN_OF_TOPICS),
            "\n### producer-node-metrics\n\n",
            _metrics(names.NODE_METRICS),
            _PROMETHEUS,
            "| metric | what it is |\n| --- | --- |\n",
            "".join(f"| `{metric.name}` | {metric.doc} |\n" for metric in OWN_METRICS),
            "| `pykafka_sink_request_latency_seconds` | histogram: produce requests by how long "
            "they took |\n",
            _WAYS,
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
    rows = (f"| `{field.name}` | {field.type} | {field.doc} |\n" for field in table)
    return "| field | type | what it is |\n| --- | --- | --- |\n" + "".join(rows)


def _metrics(table: Iterable[KafkaMetric]) -> str:
    rows = (f"| {metric.name} | {metric.follows} |\n" for metric in table)
    return "| Kafka's name | follows from |\n| --- | --- |\n" + "".join(rows)


def _not_given(table: dict[str, str]) -> str:
    """Return a row for each reason."""
    reasons: dict[str, list[str]] = {}
    for name, why in table.items():
        reasons.setdefault(why, []).append(name)
    rows = (f"| {', '.join(named)} | {why} |\n" for why, named in reasons.items())
    return "| Kafka's name | why |\n| --- | --- |\n" + "".join(rows)


if __name__ == "__main__":
    sys.stdout.write(render())
