"""What the JSON line of a batch holds, as tables, of which the schema and the document are made.

A field, once published, keeps its name and meaning within a version of the line; fields may be
added.
"""

from __future__ import annotations

from typing import NamedTuple

LINE_VERSION = 1
"""Raised when a field changes its meaning or goes."""

MOST_SLOW_TASKS = 5
MOST_LOGGED_PARTITIONS = 32
"""A topic's name has up to 249 characters: with more partitions a line could exceed 16 KiB."""


class Field(NamedTuple):
    """type: of JSON Schema, or the name of one of the tables below; doc: with the unit"""

    name: str
    type: str
    doc: str


COUNTERS = (
    Field("records", "integer", "records of finished batches"),
    Field("batches", "integer", "record batches that were finished"),
    Field("uncompressed_bytes", "integer", "of them, before compression"),
    Field("compressed_bytes", "integer", "of them, as they are sent"),
    Field("batch_size_max", "integer", "bytes of the largest of them, as it is sent"),
    Field("compression_rate_sum", "number", "of them all, compressed size / size before"),
    Field("record_size_max", "integer", "bytes of the largest record, before compression"),
    Field("requests", "integer", "produce requests that were sent"),
    Field("records_sent", "integer", "records in them; those sent again count again"),
    Field("batches_sent", "integer", "record batches in them, likewise"),
    Field("queue_time_ms", "integer", "from a batch's first record until it is sent, of all sent"),
    Field("queue_time_max_ms", "integer", "the longest of these times"),
    Field("requests_in_flight_max", "integer", "most produce requests without an answer at once"),
    Field("responses", "integer", "produce requests that were answered"),
    Field("request_latency_ms", "integer", "from request to answer, of all of these"),
    Field("request_latency_max_ms", "integer", "the longest of these times"),
    Field("retries", "integer", "batches that were sent again"),
    Field("record_retries", "integer", "records in them"),
    Field("record_errors", "integer", "records that brokers refused for good"),
    Field("batch_splits", "integer", "batches that were too large, and sent in parts"),
    Field("throttle_time_ms", "integer", "pauses that brokers asked for, for quotas"),
    Field("throttle_time_max_ms", "integer", "the longest of them"),
    Field("throttle_left_ms", "integer", "of such pauses before, what was left at tasks' starts"),
    Field("limit_wait_ms", "integer", "waiting for max.bytes.per.second.per.task"),
    Field("connections", "integer", "open at the end of the tasks"),
    Field("metadata_age_max_ms", "integer", "of the oldest metadata at the end of a task"),
    Field("buffer_total_bytes", "integer", "`kafka.buffer.memory` of all tasks"),
    Field("buffer_used_max_bytes", "integer", "the most that a task has used of its own"),
    Field("load_ms", "number", "importing the sink and loading kernels, in a worker's first task"),
    Field("input_wait_ms", "number", "waiting for rows: Spark, the source, and Arrow"),
    Field("encode_ms", "number", "writing rows as records"),
    Field("compress_ms", "number", "compressing batches, in the task thread and beside it"),
    Field("buffer_wait_ms", "number", "waiting for `kafka.buffer.memory`: brokers are the limit"),
    Field("metadata_wait_ms", "number", "waiting for metadata of topics"),
    Field("ack_wait_ms", "number", "at the end of tasks: waiting for acknowledgements"),
    Field("transaction_begin_ms", "number", "until the tasks' transactions had begun"),
    Field("task_ms", "number", "from a task's start in Python until all was acknowledged"),
)
"""``metrics``: sums over all tasks, but for those named max."""

NODE = (
    Field("requests", "integer", "of all kinds that were sent"),
    Field("outgoing_bytes", "integer", "of these requests, before encryption"),
    Field("request_max_bytes", "integer", "of the largest one"),
    Field("responses", "integer", "of all kinds"),
    Field("incoming_bytes", "integer", "of these responses"),
    Field("connections_created", "integer", "that were connected"),
    Field("connections_closed", "integer", "that had been connected, by whichever side"),
    Field("connections", "integer", "open at the end of the tasks"),
    Field("produce_responses", "integer", "produce requests that were answered"),
    Field("request_latency_ms", "integer", "from request to answer, of all of these"),
    Field("request_latency_max_ms", "integer", "the longest of these times"),
    Field("throttle_time_ms", "integer", "pauses that the broker asked for, for quotas"),
    Field("record_retries", "integer", "records that were sent again after a failure here"),
    Field("request_latency", "latency", "how often which"),
)
"""``nodes``: by the id of the broker; addresses of ``bootstrap.servers`` have negative ones."""

LATENCY = (
    Field("p50_ms", "number", "half of the produce requests were answered within"),
    Field("p95_ms", "number", "95 of 100"),
    Field("p99_ms", "number", "99 of 100"),
    Field("histogram", "histogram", "counts, to be added to those of other lines"),
)
"""``request_latency``: quantiles within 4.5 %."""

TOPIC = (
    Field("partitions", "integer", "that were written to"),
    Field("records", "integer", "acknowledged"),
    Field("compressed_bytes", "integer", "of their batches, as they were sent"),
    Field("uncompressed_bytes", "integer", "of their batches, before compression"),
    Field("record_retries", "integer", "records that were sent again"),
)
"""``topics``: by name."""

PARTITION = (
    Field("first_offset", "integer", "of the records; -1 where the broker does not tell"),
    Field("last_offset", "integer", "others' records may lie between"),
    Field("records", "integer", "acknowledged"),
    Field("compressed_bytes", "integer", "of their batches, as they were sent"),
    Field("uncompressed_bytes", "integer", "of their batches, before compression"),
)
"""``partitions``: by topic and number."""

SLOW_TASK = (
    Field("task", "integer", "number of the Spark partition"),
    Field("attempt", "integer", "0 for the first"),
    Field("host", "string", "where it ran"),
    Field("started_at_ms", "integer", "since 1970, by that machine's clock"),
    Field("records", "integer", "acknowledged"),
    Field("compressed_bytes", "integer", "of its batches"),
    Field("request_latency_max_ms", "integer", "of its slowest produce request"),
    Field("task_ms", "number", "all of its time, of which:"),
    Field("load_ms", "number", "see `metrics`"),
    Field("input_wait_ms", "number", "see `metrics`"),
    Field("encode_ms", "number", "see `metrics`"),
    Field("compress_ms", "number", "see `metrics`"),
    Field("buffer_wait_ms", "number", "see `metrics`"),
    Field("metadata_wait_ms", "number", "see `metrics`"),
    Field("ack_wait_ms", "number", "see `metrics`"),
)
"""``slowest_tasks``: up to five of those that have written rows, the slowest first."""

CAUSES_OF_DEAD_LETTERS = (
    *("interceptor", "not-encodable", "null-header", "null-topic", "invalid-topic"),
    *("bad-timestamp", "too-large", "null-key", "bad-partition", "partitioner", "refused"),
)
"""``dead_letters``: how many there are of each."""

EXTREMES_OF_TASKS = ("records", "compressed_bytes", "task_ms")
EXTREMES_OF_PARTITIONS = ("records", "compressed_bytes", "uncompressed_bytes")

LINE = (
    Field("sink", "string", "always `pykafka-sink`"),
    Field("event", "string", "`commit` or `abort`"),
    Field("query_id", "string", "of a streaming query"),
    Field("batch_id", "integer", "of a micro-batch"),
    Field("tasks", "integer", "of the micro-batch or job; not there where Spark does not tell"),
    Field("failed_tasks", "integer", "of them, without a message"),
    Field("records_acknowledged", "integer", "by brokers, of tasks that have ended"),
    Field("dead_letters", "dead_letters", "of them, by cause; not there without errors.tolerance"),
    Field("version", "integer", f"of this schema: {LINE_VERSION}"),
    Field("sink_version", "string", "of the package"),
    Field("time_ms", "integer", "when the line was written, since 1970"),
    Field("client_id", "string", "`kafka.client.id`"),
    Field("query_name", "string", "of a streaming query that has one"),
    Field("application_id", "string", "of the Spark application, where that is known"),
    Field("trace_id", "string", "of the batch's trace, where `metrics.otlp.*` sends one"),
    Field("planning_started_at_ms", "integer", "when the driver began to plan, since 1970"),
    Field("planning_ms", "number", "checking and planning, before the first task"),
    Field("started_at_ms", "integer", "when the first task started, since 1970"),
    Field("elapsed_ms", "integer", "from then until the last task had ended"),
    Field("flush_started_at_ms", "integer", "when the first task had no more rows to write"),
    Field("commit_started_at_ms", "integer", "when the driver began to commit or abort"),
    Field("failed_attempts", "integer", "of tasks that were successful at last"),
    Field("transactions", "integer", "exactly-once: that were committed"),
    Field("commit_ms", "integer", "exactly-once: deciding, and committing them"),
    Field("oldest_transaction_ms", "integer", "exactly-once: its age when it was decided"),
    Field("decided_for_ms", "integer", "exactly-once: from the decision until all are committed"),
    Field("replay", "string", "exactly-once: why nothing of this became visible"),
    Field("note", "string", "what an abort leaves behind"),
    Field("error", "string", "why it was aborted, where Spark tells; its beginning"),
    Field("settings", "settings", "those that bound its speed, by their options; not in the log"),
    Field("metrics", "counters", "see below"),
    Field("request_latency", "latency", "of all brokers; without the histogram in the log"),
    Field("partitions", "partitions", "in the log only with at most 32"),
    Field("partitions_summary", "partitions_summary", "how many, and the extremes"),
    Field("topics", "topics", "not in the log"),
    Field("nodes", "nodes", "not in the log"),
    Field("tasks_summary", "tasks_summary", "the extremes"),
    Field("slowest_tasks", "slowest_tasks", "not in the log"),
)
"""The line. What is not known is left out."""

REQUIRED = ("sink", "event", "version", "sink_version", "time_ms")
