"""List the sink's own options: topics, guarantees, dead letters, metrics, logs.

``DeadLetterConfig``, ``MetricsOutputs`` and ``ExactlyOnceConfig`` hold the checked options of one
subject. Producer options have the prefix ``kafka.`` and their table in ``producer_config``; the
tables of formats and registries are in ``formats`` and ``registry``.

Source of the names ``errors.*``: Kafka Connect (KIP-298).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.base.model import dataclass
from spark_kafka_sink.base.secret import Secret
from spark_kafka_sink.config.config_def import (
    DOUBLE,
    HIGH,
    INT,
    LIST,
    LONG,
    LOW,
    MEDIUM,
    PASSWORD,
    STRING,
    ConfigDef,
    ConfigKey,
    at_least,
    between,
    choice,
    flag,
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
from spark_kafka_sink.config.registry import REGISTRY_KEYS

TOLERATE_NONE = "none"
TOLERATE_ALL = "all"
DEFAULT_MAX_RATIO = 0.01

DEAD_LETTER_KEYS = (
    choice(
        "errors.tolerance",
        TOLERATE_NONE,
        (TOLERATE_NONE, TOLERATE_ALL),
        MEDIUM,
        "What happens with a row that cannot be written, such as one that is too large: none fails "
        "the task, all writes the row to errors.deadletterqueue.topic.name, as a dead letter: "
        "docs/dead-letters.md.",
    ),
    optional_text(
        "errors.deadletterqueue.topic.name",
        MEDIUM,
        "The topic of dead letters; required for errors.tolerance=all. Created if it is missing, "
        "with topic.creation.partitions.",
    ),
    ConfigKey(
        "errors.deadletterqueue.topic.replication.factor",
        INT,
        BROKER_DEFAULT,
        replicas_problem,
        MEDIUM,
        "Replicas of that topic when it is created. -1: the brokers' default.replication.factor, "
        "which needs Kafka 2.4 or newer. Kafka Connect's default is 3.",
    ),
    flag(
        "errors.deadletterqueue.context.headers.enable",
        True,
        MEDIUM,
        "Whether a dead letter says in headers, __connect.errors.*, why it is one and where it was "
        "to go. Without them replay needs --cause unknown and --to-topic. Kafka Connect's default "
        "is false.",
    ),
    ConfigKey(
        "errors.deadletterqueue.max.ratio",
        DOUBLE,
        DEFAULT_MAX_RATIO,
        between(0, 1),
        MEDIUM,
        "Which part of a task's rows may be dead letters, rounded up to whole rows: with more the "
        "task fails, and says how many there are of each cause.",
    ),
    ConfigKey(
        "errors.deadletterqueue.max.rows",
        LONG,
        None,
        at_least(0),
        LOW,
        "How many dead letters a task may have at most, whatever their ratio: the task fails as "
        "soon as there are more.",
    ),
    flag(
        "errors.log.enable",
        False,
        LOW,
        "Log, in the task, each time there are dead letters, how many of each cause, with an "
        "example of each. Keys, values and headers are not logged.",
    ),
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
_TOPIC_NAME = "errors.deadletterqueue.topic.name"
_TOLERANCE = "errors.tolerance"


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
    topic = sink["errors_deadletterqueue_topic_name"]
    if topic is None:
        raise ConfigError(
            f"{TOLERATES} needs option '{_TOPIC_NAME}': rows that cannot be written would vanish"
        )
    if topic == sink["topic"]:
        raise ConfigError(
            f"'{_TOPIC_NAME}' is '{topic}', the topic of all rows: dead letters need one of their "
            "own"
        )
    replicas = sink["errors_deadletterqueue_topic_replication_factor"]
    return DeadLetterConfig(
        topic,
        sink["errors_deadletterqueue_context_headers_enable"],
        sink["errors_deadletterqueue_max_ratio"],
        sink["errors_deadletterqueue_max_rows"],
        sink["errors_log_enable"],
        TopicCreation(
            sink["topic_creation_partitions"],
            replicas,
            enabling_option=_TOPIC_NAME,
            replicas_option="errors.deadletterqueue.topic.replication.factor",
        ),
    )


def notes_on_dead_letters(sink: Mapping[str, Any], option_names: Iterable[str]) -> Iterator[str]:
    """Yield sentences about those of ``option_names``, the options set, that have no effect."""
    if sink["errors_tolerance"] != TOLERATE_ALL:
        names = {key.name for key in DEAD_LETTER_KEYS} - {_TOLERANCE}
        for name in option_names:
            if name in names:
                yield f"option '{name}' has no effect without {TOLERATES}"


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


def _problem_of_headers(text: Secret) -> str | None:
    """Return why the headers are invalid, or None; the answer shows no part of the text."""
    for number, part in enumerate(text.reveal().split(","), 1):
        name, separator, _ = part.partition("=")
        if not separator or not _HEADER_NAME.fullmatch(name.strip()):
            return f"its part {number} is not as name=value; parts are separated by commas"
    return None


METRICS_KEYS = (
    flag(
        "metrics.log",
        True,
        LOW,
        "Log one line for every committed batch on the driver: its number, records, bytes, time, "
        "and what took most of the time. With log.format=json, log the JSON line of metrics "
        "instead, with at most 16 KiB. Aborts are always logged.",
    ),
    ConfigKey(
        "metrics.path",
        STRING,
        None,
        _problem_of_path,
        MEDIUM,
        "File on the driver to which the JSON line of every committed or aborted batch is "
        "appended, with all partitions: docs/metrics.md. Or the URI of a "
        "folder, as s3://bucket/folder, in which each line becomes a file of its own: of any "
        "file system that pyarrow.fs knows on the driver.",
        hides_value=True,
    ),
    ConfigKey(
        "metrics.path.max.bytes",
        LONG,
        0,
        at_least(0),
        LOW,
        "A file metrics.path that would become larger is renamed to metrics.path.1 first, and "
        "that to .2, and so on; five of these are kept. 0 is never.",
    ),
    ConfigKey(
        "metrics.prometheus.push.url",
        STRING,
        None,
        _problem_of_gateway,
        LOW,
        "Address of a Prometheus push gateway that is told the metrics after each batch, as "
        "http://host:9091: for batch jobs. Needs the extra metrics.",
        hides_value=True,
    ),
    ConfigKey(
        "metrics.prometheus.push.job",
        STRING,
        "pykafka-sink",
        non_empty,
        LOW,
        "The label job of what is pushed. Two jobs with the same one replace each other's "
        "metrics there.",
    ),
    flag(
        "metrics.otlp.enable",
        None,
        LOW,
        "Send the metrics and a trace of each batch by OpenTelemetry's protocol, OTLP over HTTP: "
        "docs/metrics.md. By default true with metrics.otlp.endpoint, else false. What is not set "
        "here comes from OpenTelemetry's variables, OTEL_EXPORTER_OTLP_*, in the driver's "
        "environment. Needs the extra otel.",
    ),
    ConfigKey(
        "metrics.otlp.endpoint",
        STRING,
        None,
        _problem_of_endpoint,
        LOW,
        "Address of the collector, as http://collector:4318, to which /v1/metrics and /v1/traces "
        "are added. Without it OTEL_EXPORTER_OTLP_ENDPOINT, else http://localhost:4318.",
        hides_value=True,
    ),
    ConfigKey(
        "metrics.otlp.headers",
        PASSWORD,
        None,
        _problem_of_headers,
        LOW,
        "Headers of each request, as name=value,name=value, their values percent-encoded, e.g. "
        "Authorization=${env:OTLP_AUTHORIZATION}. Without them OTEL_EXPORTER_OTLP_HEADERS.",
        takes_references=True,
    ),
    ConfigKey(
        "metrics.otlp.signals",
        LIST,
        list(OTLP_SIGNALS),
        _problem_of_signals,
        LOW,
        "What is sent: metrics, traces, or both.",
    ),
    optional_text(
        "metrics.otlp.service.name",
        LOW,
        "The resource's service.name. Without it OTEL_SERVICE_NAME, else pykafka-sink.",
    ),
    ConfigKey(
        "metrics.otlp.timeout.ms",
        INT,
        None,
        at_least(1),
        LOW,
        "For how long sending metrics, or a trace, is tried; and how long the end of a job, or of "
        "a batch that failed, waits for it, 10 seconds at most. Micro-batches do not wait. Without "
        "it OTEL_EXPORTER_OTLP_TIMEOUT, in milliseconds as OpenTelemetry's specification has it, "
        "else 3000.",
    ),
)


_OTLP = "metrics.otlp."
_PATH = "metrics.path"
BACKUPS = 5
"""Number of renamed files of ``metrics.path`` that are kept."""
_PUSH_URL, _PUSH_JOB = "metrics.prometheus.push.url", "metrics.prometheus.push.job"


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
    """

    path: str | None = None
    max_bytes: int = 0
    push_url: str | None = None
    push_job: str = "pykafka-sink"
    otlp: OtlpOutput | None = None

    @classmethod
    def of(cls, sink: Mapping[str, Any]) -> MetricsOutputs:
        """Build the outputs from the sink's parsed options."""
        return cls(
            sink["metrics_path"],
            sink["metrics_path_max_bytes"],
            sink["metrics_prometheus_push_url"],
            sink["metrics_prometheus_push_job"],
            OtlpOutput.of(sink),
        )

    @property
    def has_traces(self) -> bool:
        """Return True if a trace of each batch is sent."""
        return self.otlp is not None and OTLP_TRACES in self.otlp.signals


def notes_on_outputs(outputs: MetricsOutputs, option_names: Iterable[str]) -> Iterator[str]:
    """Yield sentences about those of ``option_names``, the options set, that have no effect."""
    names = {key.name for key in METRICS_KEYS if key.name.startswith(_OTLP)}
    for name in option_names:
        if outputs.otlp is None and name in names and not name.endswith(".enable"):
            yield f"option '{name}' has no effect without metrics.otlp.enable=true"
        elif outputs.path is None and name.startswith(f"{_PATH}."):
            yield f"option '{name}' has no effect without {_PATH}"
        elif outputs.push_url is None and name == _PUSH_JOB:
            yield f"option '{name}' has no effect without {_PUSH_URL}"


MAX_TRANSACTION_TIMEOUT_MS = 900_000
"""The brokers' default of transaction.max.timeout.ms and the sink's of transaction.timeout.ms.

The longest timeout is best because a restart during a commit must end before the timeout."""


class ExactlyOnceConfig(NamedTuple):
    """Options of exactly-once delivery.

    prefix: ``transactional.id.prefix``; log_*: settings of the decision log's topic
    accepts_missing_record: an existing prefix or query may start without a record in the log
    drops_replays: a replay of a committed micro-batch may have other rows
    """

    prefix: str
    transaction_timeout_ms: int
    log_topic: str
    log_replication_factor: int
    accepts_missing_record: bool = False
    drops_replays: bool = False

    @property
    def log_min_isr(self) -> int:
        """Return the fewest in-sync replicas that may acknowledge a decision."""
        return min(2, self.log_replication_factor)


AT_LEAST_ONCE = "at-least-once"
EXACTLY_ONCE = "exactly-once"
NONE = "none"


def _partitions_problem(value: int) -> str | None:
    return None if value == BROKER_DEFAULT or value >= 1 else "must be -1 or at least 1"


_LOG_LEVELS = ("debug", "info", "warning", "error")
SINK_OPTIONS = ConfigDef(
    [
        ConfigKey(
            "topic",
            STRING,
            None,
            None,
            HIGH,
            "Topic of all rows. Overrides the topic column.",
        ),
        flag(
            "includeheaders",
            False,
            LOW,
            "Accepted as Spark's own sink accepts it, and without effect as there: a headers "
            "column is written whenever it exists.",
        ),
        choice(
            "delivery.guarantee",
            AT_LEAST_ONCE,
            (AT_LEAST_ONCE, EXACTLY_ONCE, NONE),
            HIGH,
            "What is promised when Spark repeats a task: docs/delivery.md. exactly-once: each row "
            "once for read_committed consumers, with transactions; needs Kafka 3.0 and "
            "transactional.id.prefix. none: kafka.acks is 0 unless it is given, nothing is "
            "waited for.",
        ),
        optional_text(
            "transactional.id.prefix",
            HIGH,
            "Begins the transactional ids of a query, and must be its own: the same after a "
            "restart, another one for each query. Required for exactly-once, without effect "
            "otherwise.",
        ),
        optional_text(
            "write.id",
            MEDIUM,
            "Name of what writes, for a batch write with exactly-once: a write with the same "
            "write.id and a write.version that was written before, or a lower one, is dropped. For "
            "jobs that are run again, and for foreachBatch.",
        ),
        ConfigKey(
            "write.version",
            LONG,
            None,
            at_least(0),
            MEDIUM,
            "Number of this write of write.id. It only grows, as that of the micro-batch in "
            "foreachBatch does.",
        ),
        ConfigKey(
            "transaction.log.topic",
            STRING,
            "pykafka-sink-transactions",
            non_empty,
            MEDIUM,
            "The compacted topic in which drivers write down what they decide. Created if it is "
            "missing; queries may share it. Only for exactly-once.",
        ),
        ConfigKey(
            "transaction.log.missing",
            STRING,
            "refuse",
            one_of("refuse", "accept"),
            MEDIUM,
            "What happens when the decision log has no record of transactional.id.prefix although "
            "the query is not new: refuse, as the log may be lost, or accept, for one start, to "
            "move a query from at-least-once to exactly-once.",
        ),
        ConfigKey(
            "transaction.replay",
            STRING,
            "compare",
            one_of("compare", "drop"),
            MEDIUM,
            "What happens with a micro-batch that comes again after it was committed: compare, "
            "which drops the same rows and stops the query for other ones, or drop, for a query "
            "whose rows are not the same each time. Only for exactly-once.",
        ),
        ConfigKey(
            "transaction.log.replication.factor",
            INT,
            3,
            between(1, MAX_REPLICAS),
            MEDIUM,
            "Replicas of transaction.log.topic when it is created; fewer are refused. 1 for a "
            "cluster of one broker, where decisions are lost with its disk. Its "
            "min.insync.replicas is 2, or 1 with one replica; fewer are refused.",
        ),
        flag(
            "topic.creation.enable",
            False,
            MEDIUM,
            "Create topics that do not exist, with the options below, instead of leaving it to the "
            "brokers' auto.create.topics.enable.",
        ),
        ConfigKey(
            "topic.creation.partitions",
            INT,
            BROKER_DEFAULT,
            _partitions_problem,
            MEDIUM,
            "Partitions of a topic that is created. -1: the brokers' num.partitions, which "
            "needs Kafka 2.4 or newer.",
        ),
        ConfigKey(
            "topic.creation.replication.factor",
            INT,
            BROKER_DEFAULT,
            replicas_problem,
            MEDIUM,
            "Replicas of a topic that is created. -1: the brokers' default.replication.factor, "
            "which needs Kafka 2.4 or newer.",
        ),
        ConfigKey(
            "topic.creation.configs",
            STRING,
            "",
            None,
            LOW,
            "Configuration of a topic that is created, as name=value, separated by commas, e.g. "
            "retention.ms=86400000,min.insync.replicas=2.",
        ),
        ConfigKey(
            "preflight.timeout.ms",
            INT,
            6000,
            at_least(1),
            LOW,
            "How long each step of the check on the driver, before the first task, may take: a "
            "token or ticket, where one is needed; a broker of kafka.bootstrap.servers; one at the "
            "addresses that the brokers advertise; the topic option's topic, which may have to be "
            "created.",
        ),
        ConfigKey(
            "max.bytes.per.second.per.task",
            LONG,
            None,
            at_least(1),
            MEDIUM,
            "How many bytes of record batches, compressed, a task sends in a second. A query sends "
            "at most that times its slots. What waits for the limit does not expire. Consider "
            "quotas of the brokers and maxOffsetsPerTrigger first. By default there is no limit.",
        ),
        ConfigKey(
            "interceptors",
            LIST,
            [],
            None,
            MEDIUM,
            "Your own code that gets the rows, as package.module:Class, separated by commas. "
            "Methods, each optional: on_send(arrow_batch) returns the Arrow batch to write, with "
            "the same columns; on_acknowledgement(summary) gets a dictionary with what the task "
            "has written, after everything is acknowledged.",
        ),
        choice(
            "log.level",
            None,
            _LOG_LEVELS,
            LOW,
            "From which level on the sink logs, on the driver and in tasks; info where nobody has "
            "set up Python's logging, else what that says. All queries of a process share it.",
        ),
        ConfigKey(
            "log.format",
            STRING,
            "text",
            one_of("text", "json"),
            LOW,
            "text, or json: each line is a JSON document with time, level, logger and message. For "
            "a batch it has the JSON line of metrics instead of the message. If the application "
            "has set up Python's logging, its own format applies.",
        ),
        *FORMAT_KEYS,
        *REGISTRY_KEYS,
        *METRICS_KEYS,
        *DEAD_LETTER_KEYS,
    ]
)
