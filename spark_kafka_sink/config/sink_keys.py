"""List the sink's own options: topics, guarantees, dead letters, metrics, logs.

A row of ``SINK_OPTIONS`` has the default, the check and the documentation of an option.
``sink_options`` parses the options of a write.

``DeadLetterConfig``, ``MetricsOutputs`` and ``ExactlyOnceConfig`` hold the checked options of one
subject. Producer options have the prefix ``kafka.`` and their table in ``producer_config``; the
tables of formats and registries are in ``formats`` and ``registry``.

Source of the names ``errors.*``: Kafka Connect (KIP-298).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from spark_kafka_sink.base.errors import ConfigError, coded
from spark_kafka_sink.base.model import dataclass
from spark_kafka_sink.base.text import Secret
from spark_kafka_sink.config.config_def import (
    ConfigDef,
    ConfigKey,
    at_least,
    between,
    choice,
    flag,
    minus_one_or,
    non_empty,
    one_of,
    optional_text,
)
from spark_kafka_sink.config.formats import FORMAT_KEYS
from spark_kafka_sink.config.producer_config import (
    BROKER_DEFAULT,
    MAX_REPLICAS,
    TopicCreation,
    replicas_problem,
)
from spark_kafka_sink.config.registry import LOCAL_HOSTS, REGISTRY_KEYS

TOLERATE_NONE = "none"
TOLERATE_ALL = "all"
DEFAULT_MAX_RATIO = 0.01

DEAD_LETTER_KEYS = (
    choice("errors.tolerance", TOLERATE_NONE, (TOLERATE_NONE, TOLERATE_ALL)).about("""
        Treatment of a row that cannot be written, such as one that is too large. none fails the
        task. all writes the row to errors.deadletterqueue.topic.name: docs/dead-letters.md.
        > Set all if a bad row must not stop the query."""),
    optional_text("errors.deadletterqueue.topic.name").about("""
        Topic of dead letters. The sink creates it if it is missing, with topic.creation.partitions.
        > Set it with errors.tolerance=all, which requires it."""),
    ConfigKey(
        "errors.deadletterqueue.topic.replication.factor", "int", BROKER_DEFAULT, replicas_problem
    ).about("""
        Replicas of that topic if the sink creates it. -1 uses the brokers'
        default.replication.factor and needs Kafka 2.4. Kafka Connect's default is 3.
        > Set it if the brokers' default does not fit."""),
    flag("errors.deadletterqueue.context.headers.enable", True).about("""
        Adds headers `__connect.errors.*` with the cause and the intended topic. Kafka Connect's
        default is false.
        > Leave it: without these headers a replay needs `--cause unknown` and `--to-topic`."""),
    ConfigKey(
        "errors.deadletterqueue.max.ratio", "double", DEFAULT_MAX_RATIO, between(0, 1)
    ).about("""
        Largest part of a task's rows that may become dead letters, rounded up to whole rows. With
        more, the task fails and reports the causes.
        > Increase it if more bad rows are normal."""),
    ConfigKey("errors.deadletterqueue.max.rows", "long", None, at_least(0)).about("""
        Largest number of dead letters of a task. With more, the task fails at once.
        > Set it if the ratio allows too many in large tasks."""),
    flag("errors.log.enable", False).about("""
        Logs in the task how many dead letters each cause has, with an example. Keys, values and
        headers are not logged.
        > Set it to see causes in the tasks' logs."""),
)

_RETRY_SETTINGS = (
    "records are sent again for kafka.delivery.timeout.ms, and a task as Spark's settings say"
)
CONNECT_KEYS_WITHOUT_EFFECT = {
    "errors.log.include.messages": "keys, values and headers are not logged. The dead letter has "
    "them: pykafka-sink dead-letters show",
    "errors.retry.timeout": _RETRY_SETTINGS,
    "errors.retry.delay.max.ms": _RETRY_SETTINGS,
}
"""KIP-298's names, in lower case, that have no effect here -> the reason."""


TOLERATES = "errors.tolerance=all"


class TopicLimits(NamedTuple):
    """Topic settings that make brokers reject a row, as far as the driver knows them.

    max_message_bytes: the topic's ``max.message.bytes``, None if unknown
    needs_key: the topic is compacted, so that brokers reject a record without a key
    """

    max_message_bytes: int | None = None
    needs_key: bool = False


UNKNOWN_LIMITS = TopicLimits()


class DeadLetterConfig(NamedTuple):
    """The options ``errors.*`` with errors.tolerance=all.

    max_rows: None for no absolute limit
    creation: settings for creating the topic if it is missing
    data_topic_limits, own_topic_limits: of the topic in option ``topic``, of the dead letter topic;
    the driver reads them before the first task
    """

    topic: str
    has_context_headers: bool
    max_ratio: float
    max_rows: int | None
    is_logged: bool
    creation: TopicCreation
    data_topic_limits: TopicLimits = UNKNOWN_LIMITS
    own_topic_limits: TopicLimits = UNKNOWN_LIMITS


def parse_dead_letters(sink: Mapping[str, Any]) -> DeadLetterConfig | None:
    """Build the options from the parsed table; None without a tolerance. Raises ConfigError."""
    if sink["errors_tolerance"] != TOLERATE_ALL:
        return None
    option = "errors.deadletterqueue.topic.name"
    topic = sink["errors_deadletterqueue_topic_name"]
    if topic is None:
        raise ConfigError(
            f"{TOLERATES} needs option '{option}': rows that cannot be written would vanish",
            code="DEADLETTER-001",
        )
    if topic == sink["topic"]:
        raise ConfigError(
            f"'{option}' is '{topic}', the topic of all rows: dead letters need one of their own",
            code="DEADLETTER-002",
        )
    return DeadLetterConfig(
        topic,
        sink["errors_deadletterqueue_context_headers_enable"],
        sink["errors_deadletterqueue_max_ratio"],
        sink["errors_deadletterqueue_max_rows"],
        sink["errors_log_enable"],
        TopicCreation(
            sink["topic_creation_partitions"],
            sink["errors_deadletterqueue_topic_replication_factor"],
            enabling_option=option,
            replicas_option="errors.deadletterqueue.topic.replication.factor",
        ),
    )


OTLP_METRICS, OTLP_TRACES = "metrics", "traces"
OTLP_SIGNALS = (OTLP_METRICS, OTLP_TRACES)

# RFC 9110, "token".
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")


def _problem_of_endpoint(url: str) -> str | None:
    if not url.lower().startswith(("http://", "https://")):
        return "must begin with http:// or https://"
    if "@" in url:
        return (
            "no user and password can be given: Spark would show them. Give them with "
            "metrics.otlp.headers, as Authorization=${env:OTLP_AUTHORIZATION}, where that variable "
            "is Basic%20 and USER:PASSWORD in base64"
        )
    if "?" in url or "#" in url:
        return (
            "must be as http://HOST:4318 or https://HOST, with a path at most. Give a key with "
            "metrics.otlp.headers, as api-key=${env:OTLP_KEY}"
        )
    if url.rstrip("/").endswith(tuple(f"/v1/{signal}" for signal in OTLP_SIGNALS)):
        return "leave /v1/metrics and /v1/traces away: they are added"
    return None


def _problem_of_path(path: str) -> str | None:
    """Return why metrics.path is invalid, or None; the answer shows no part of the path."""
    from urllib.parse import urlsplit  # here, so that parsing options does not load it

    if "://" not in path:
        return None
    try:
        parts = urlsplit(path)
    except ValueError:
        return None  # wrong brackets: opening the path reports the error
    # urlsplit cuts an access key at a '/' that is not escaped: search '@' in the whole path.
    has_part = ":" in parts.netloc and "@" in path and parts.scheme not in ("hdfs", "viewfs")
    if parts.password is not None or has_part:
        return (
            "no password can be given in the URI: Spark would show it. Leave it to where pyarrow "
            "looks on the driver: for S3 AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile, "
            "or the machine's role"
        )
    return None


def _problem_of_gateway(url: str) -> str | None:
    """Return why a push gateway's URL is invalid, or None; the answer shows no part of the URL."""
    from urllib.parse import urlsplit  # here, so that parsing options does not load it

    try:
        parts = urlsplit(url)
        is_gateway_url = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # wrong brackets or port
        is_gateway_url = False
    if "@" in url:
        return (
            "no user and password can be given: Spark would show them. Name an address that "
            "takes metrics without them, such as that of a proxy on the driver's machine that "
            "adds them; or use metrics.otlp.endpoint with metrics.otlp.headers"
        )
    if not is_gateway_url or parts.query or parts.fragment:
        return "must be as http://HOST:9091 or https://HOST, with a path at most"
    return None


def _problem_of_signals(signals: list[str]) -> str | None:
    is_known = signals and set(signals) <= set(OTLP_SIGNALS)
    return None if is_known else f"must be one or more of {', '.join(OTLP_SIGNALS)}"


def problem_of_headers(text: Secret) -> str | None:
    """Return why the headers are invalid, or None; the answer shows no part of the text."""
    for number, part in enumerate(text.reveal().split(","), 1):
        name, separator, _ = part.partition("=")
        if not separator or not _HEADER_NAME.fullmatch(name.strip()):
            return f"its part {number} is not as name=value; parts are separated by commas"
    return None


METRICS_KEYS = (
    flag("metrics.log", True).about("""
        Logs one line per committed batch on the driver: records, bytes, time and the slowest step.
        With log.format=json it is the JSON line of metrics, at most 16 KiB. Aborts are always
        logged.
        > Set false if metrics.path is enough."""),
    ConfigKey("metrics.path", "string", None, _problem_of_path, hides_value=True).about("""
        File on the driver that gets the JSON line of every batch, with all partitions:
        docs/metrics.md. A URI such as `s3://bucket/folder` gets one file per line, on any file
        system that pyarrow.fs knows.
        > Set it to use reports."""),
    ConfigKey("metrics.path.max.bytes", "long", 0, at_least(0)).about("""
        Largest size of the file metrics.path. Before a line exceeds it, the sink renames the file
        to `.1` and keeps five such files. 0: no limit.
        > Set it for streams that run for long."""),
    ConfigKey(
        "metrics.prometheus.push.url", "string", None, _problem_of_gateway, hides_value=True
    ).about("""
        Prometheus push gateway, e.g. `http://host:9091`, that gets the metrics after each batch.
        Needs the extra metrics.
        > Set it for batch jobs."""),
    ConfigKey("metrics.prometheus.push.job", "string", "pykafka-sink", non_empty).about("""
        Label job of the pushed metrics.
        > Give each job its own: jobs with the same label replace each other's metrics."""),
    flag("metrics.otlp.enable", None).about("""
        Sends metrics and traces with OpenTelemetry's protocol over HTTP: docs/metrics.md. Default:
        true if metrics.otlp.endpoint is set. Variables OTEL_EXPORTER_OTLP_* of the driver replace
        options that are not set. Needs the extra otel.
        > Set true if only those variables name the collector."""),
    ConfigKey(
        "metrics.otlp.endpoint", "string", None, _problem_of_endpoint, hides_value=True
    ).about("""
        Collector, e.g. `http://collector:4318`; the sink appends /v1/metrics and /v1/traces.
        Default: OTEL_EXPORTER_OTLP_ENDPOINT, else `http://localhost:4318`.
        > Set it to send to a collector."""),
    ConfigKey(
        "metrics.otlp.headers", "password", None, problem_of_headers, takes_references=True
    ).about("""
        Headers of each request, as name=value,name=value with percent-encoded values, e.g.
        `Authorization=${env:OTLP_AUTHORIZATION}`. Default: OTEL_EXPORTER_OTLP_HEADERS.
        > Set it if the collector requires a key or a login."""),
    ConfigKey("metrics.otlp.signals", "list", list(OTLP_SIGNALS), _problem_of_signals).about("""
        Signals to send: metrics, traces, or both.
        > Set one if the collector does not take both."""),
    optional_text("metrics.otlp.service.name").about("""
        The resource's service.name. Default: OTEL_SERVICE_NAME, else pykafka-sink.
        > Set it to distinguish applications."""),
    ConfigKey("metrics.otlp.timeout.ms", "int", None, at_least(1)).about("""
        Time limit for sending metrics or a trace. The end of a job and a failed batch wait for it,
        10 seconds at most; micro-batches do not wait. Default: OTEL_EXPORTER_OTLP_TIMEOUT in
        milliseconds, else 3000.
        > Increase it for a slow collector."""),
    flag("metrics.openlineage.enable", False).about("""
        Sends OpenLineage events of each query or job from the driver: docs/lineage.md. The client's
        own configuration names the backend: OPENLINEAGE_URL or openlineage.yml. Needs the extra
        lineage.
        > Set true if a data catalogue must show which topics a job writes."""),
)


BACKUPS = 5
"""Number of renamed files of ``metrics.path`` that are kept."""


LINEAGE_PROPERTIES = (
    "spark.jobGroup.id",  # Spark names it after the run of the query
    *(f"spark.openlineage.parent{of}" for of in ("RunId", "JobNamespace", "JobName")),
)
"""Spark's properties that tell the run of the query, and the run that has started the program."""


@dataclass(frozen=True, slots=True)
class OtlpOutput:
    """The output by OTLP. OpenTelemetry's environment variables replace fields that are None."""

    endpoint: str | None = None
    headers: Secret | None = None
    signals: tuple[str, ...] = OTLP_SIGNALS
    service_name: str | None = None
    timeout_ms: int | None = None

    @classmethod
    def of(cls, sink: Mapping[str, Any]) -> OtlpOutput | None:
        """Build the output from the sink's parsed options; None if OTLP is not enabled."""
        is_enabled = sink["metrics_otlp_enable"]
        if is_enabled is None:
            is_enabled = sink["metrics_otlp_endpoint"] is not None
        if not is_enabled:
            return None
        return cls(
            sink["metrics_otlp_endpoint"],
            sink["metrics_otlp_headers"],
            tuple(sink["metrics_otlp_signals"]),
            sink["metrics_otlp_service_name"],
            sink["metrics_otlp_timeout_ms"],
        )


@dataclass(frozen=True, slots=True)
class MetricsOutputs:
    """Outputs of the metrics.

    path: a local file, or the URI of a folder, that gets each line
    max_bytes: the local file is renamed before it becomes larger; 0: never
    push_url, push_job: a push gateway's URL, and the job label of the pushed metrics
    otlp: None unless OTLP is enabled
    openlineage: whether OpenLineage events are sent
    """

    path: str | None = None
    max_bytes: int = 0
    push_url: str | None = None
    push_job: str = "pykafka-sink"
    otlp: OtlpOutput | None = None
    openlineage: bool = False

    @classmethod
    def of(cls, sink: Mapping[str, Any]) -> MetricsOutputs:
        """Build the outputs from the sink's parsed options."""
        return cls(
            sink["metrics_path"],
            sink["metrics_path_max_bytes"],
            sink["metrics_prometheus_push_url"],
            sink["metrics_prometheus_push_job"],
            OtlpOutput.of(sink),
            sink["metrics_openlineage_enable"],
        )

    @property
    def has_traces(self) -> bool:
        """Return True if a trace of each batch is sent."""
        return self.otlp is not None and OTLP_TRACES in self.otlp.signals


MAX_TRANSACTION_TIMEOUT_MS = 900_000
"""The brokers' default of transaction.max.timeout.ms and the sink's of transaction.timeout.ms.

The longest timeout is best because a restart during a commit must end before the timeout."""


QUERY_PLACE = "{query}"
"""Stands for the query's name in ``transactional.id.prefix`` until a write is planned."""


class ExactlyOnceConfig(NamedTuple):
    """Options of exactly-once delivery.

    prefix: ``transactional.id.prefix``, with ``QUERY_PLACE`` until a write is planned
    log_*: settings of the decision log's topic
    accepts_missing_record: an existing prefix or query may start without a record in the log
    drops_replays: a replay of a committed micro-batch may have other rows
    accepts_new_query: a new query's micro-batch 0 may take the prefix of a query whose checkpoint
        is in the same folder
    """

    prefix: str
    transaction_timeout_ms: int
    log_topic: str
    log_replication_factor: int
    accepts_missing_record: bool = False
    drops_replays: bool = False
    accepts_new_query: bool = False

    @property
    def first_of_ids(self) -> str:
        """Return what all transactional ids begin with: the prefix that an ACL has to allow."""
        fixed, place, _ = self.prefix.partition(QUERY_PLACE)
        return fixed if place else f"{fixed}."

    @property
    def log_min_isr(self) -> int:
        """Return the fewest in-sync replicas that may acknowledge a decision."""
        return min(2, self.log_replication_factor)


_EXACTLY_ONCE_KEYS = (
    *("transactional.id.prefix", "write.id", "write.version", "transaction.log.topic"),
    *("transaction.accept", "transaction.replay", "transaction.log.replication.factor"),
)
AT_LEAST_ONCE = "at-least-once"
EXACTLY_ONCE = "exactly-once"
NONE = "none"


ACCEPT_NOTHING = "nothing"
ACCEPT_MISSING_RECORD = "missing-record"
ACCEPT_NEW_QUERY = "new-query"
_ACCEPTED = (ACCEPT_NOTHING, ACCEPT_MISSING_RECORD, ACCEPT_NEW_QUERY)

_partitions = minus_one_or(at_least(1))
_LOG_LEVELS = ("debug", "info", "warning", "error")
SINK_OPTIONS = ConfigDef(
    "",
    ConfigKey("topic", "string").about("""
        Topic of all rows. It overrides the topic column.
        > Set it unless a column names the topic of each row."""),
    flag("includeheaders", False).about("""
        No effect, as in Spark's own sink: a headers column is always written.
        > Leave it out; a job that comes from Spark's own sink may keep it."""),
    choice("delivery.guarantee", AT_LEAST_ONCE, (AT_LEAST_ONCE, EXACTLY_ONCE, NONE)).about("""
        Promise when Spark repeats a task: docs/delivery.md. exactly-once needs
        transactional.id.prefix and Kafka 3.0; read_committed consumers see each row once. none
        waits for no broker: kafka.acks is 0 unless it is set.
        > Set exactly-once if readers must not see duplicates, and none only if records may be lost.
        """),
    optional_text("transactional.id.prefix").about("""
        Start of a query's transactional ids. {query} stands for the name of the streaming query,
        in pipelines the flow.
        > Set it for exactly-once. Keep it over restarts, and give each query its own."""),
    optional_text("write.id").about("""
        Name of a batch write with exactly-once. The sink drops a write of this name whose
        write.version was written before.
        > Set it for a write that is repeated, such as a scheduled job or foreachBatch."""),
    ConfigKey("write.version", "long", None, at_least(0)).about("""
        Number of this write of write.id. Each version is written once, in any order.
        > Give each write its own, such as the batch id of foreachBatch or a day."""),
    ConfigKey("transaction.log.topic", "string", "pykafka-sink-transactions", non_empty).about("""
        Compacted topic for the drivers' decisions. The sink creates it if it is missing. Queries
        may share it.
        > Change it to give each team its own."""),
    choice("transaction.accept", ACCEPT_NOTHING, _ACCEPTED).about("""
        Accepts what exactly-once rejects. With missing-record, the decision log may lack the record
        of a query that is not new. With new-query, a new query whose checkpoint is in the same
        folder takes the prefix with its micro-batch 0.
        > Set missing-record for one start from at-least-once, or after the log is lost. Set
        new-query for full refreshes of pipelines."""),
    ConfigKey("transaction.replay", "string", "compare", one_of("compare", "drop")).about("""
        Behaviour if Spark repeats a committed micro-batch. compare drops equal rows and stops the
        query for other rows.
        > Set drop if the query's rows differ each time."""),
    ConfigKey("transaction.log.replication.factor", "int", 3, between(1, MAX_REPLICAS)).about("""
        Replicas of transaction.log.topic if the sink creates it; the sink rejects a topic with
        fewer. Its min.insync.replicas must be at least 2, or 1 with one replica.
        > Set 1 for a cluster of one broker, where a lost disk loses the decisions."""),
    flag("topic.creation.enable", False).about("""
        Creates missing topics with the topic.creation.* options. By default the brokers'
        auto.create.topics.enable decides.
        > Set it if brokers create no topics, or create them with the wrong settings."""),
    ConfigKey(
        "topic.creation.partitions", "int", BROKER_DEFAULT, minus_one_or(at_least(1))
    ).about("""
        Partitions of a created topic. -1 uses the brokers' num.partitions and needs Kafka 2.4.
        > Set it if the brokers' default does not fit."""),
    ConfigKey(
        "topic.creation.replication.factor", "int", BROKER_DEFAULT, replicas_problem
    ).about("""
        Replicas of a created topic. -1 uses the brokers' default.replication.factor and needs Kafka
        2.4.
        > Set it if the brokers' default does not fit."""),
    ConfigKey("topic.creation.configs", "string", "").about("""
        Settings of a created topic, e.g. `retention.ms=86400000,min.insync.replicas=2`.
        > Set it if the brokers' defaults do not fit."""),
    ConfigKey("preflight.timeout.ms", "int", 6000, at_least(1)).about("""
        Time limit of each step of the driver's check before the first task: login, a bootstrap
        broker, an advertised address, the topic or its creation.
        > Increase it for slow networks or logins."""),
    ConfigKey("max.bytes.per.second.per.task", "long", None, at_least(1)).about("""
        Compressed bytes that a task may send in a second; a query sends at most this times its
        slots. Rows that wait for the limit do not expire.
        > Set it if a backfill must leave room for others. Consider the brokers' quotas and
        maxOffsetsPerTrigger first."""),
    ConfigKey("interceptors", "list", []).about("""
        Python classes, as `package.module:Class`, that see or change the rows:
        docs/your-own-code.md.
        > Set it to change, reject or count rows in your own code."""),
    choice("log.level", None, _LOG_LEVELS).about("""
        Minimum log level on the driver and in tasks: debug, info, warning or error. By default
        Python's logging decides, or info if it is not set up. All queries of a process share it.
        > Set debug to look for a fault, warning for fewer lines."""),
    ConfigKey("log.format", "string", "text", one_of("text", "json")).about("""
        text or json. With json each line is a JSON document, and a batch's line holds its metrics.
        A logging format of the application takes precedence.
        > Set json if a log collector reads JSON."""),
    *FORMAT_KEYS,
    *REGISTRY_KEYS,
    *METRICS_KEYS,
    *DEAD_LETTER_KEYS,
)


IN_CLEAR_TEXT = "AUTH-002"


def sentence_on_clear_text(headers: str, endpoint: str) -> str | None:
    """Return a sentence if headers cross the network unencrypted; it shows no part of the URL.

    headers: the option or variable that gives them
    """
    from urllib.parse import urlsplit  # here, so that parsing options does not load it

    try:
        url = urlsplit(endpoint)
        is_clear = url.scheme == "http" and url.hostname not in LOCAL_HOSTS
    except ValueError:  # wrong brackets: sending reports the error
        is_clear = False
    if not is_clear:
        return None
    return (
        f"{headers} with an endpoint that begins with http: the headers cross the network "
        "unencrypted. https: encrypts them"
    )


def notes_on_metrics(outputs: MetricsOutputs) -> Iterator[str]:
    """Yield a log sentence if options alone send headers in clear text."""
    otlp = outputs.otlp
    if otlp is not None and otlp.headers is not None and otlp.endpoint is not None:
        note = sentence_on_clear_text("metrics.otlp.headers", otlp.endpoint)
        if note is not None:
            yield coded(note, IN_CLEAR_TEXT)


def unused_sink_options(
    sink: Mapping[str, Any], outputs: MetricsOutputs
) -> Iterator[tuple[str, str]]:
    """Yield the options of guarantees, dead letters and metrics that are not used, with reasons."""
    if sink["delivery_guarantee"] != EXACTLY_ONCE:
        for name in _EXACTLY_ONCE_KEYS:
            yield name, f"without delivery.guarantee={EXACTLY_ONCE}"
    if sink["errors_tolerance"] != TOLERATE_ALL:
        for key in DEAD_LETTER_KEYS[1:]:
            yield key.name, f"without {TOLERATES}"
    if outputs.otlp is None:
        for key in METRICS_KEYS:
            if key.name.startswith("metrics.otlp.") and not key.name.endswith(".enable"):
                yield key.name, "without metrics.otlp.enable=true"
    if outputs.path is None:
        yield "metrics.path.max.bytes", "without metrics.path"
    if outputs.push_url is None:
        yield "metrics.prometheus.push.job", "without metrics.prometheus.push.url"
