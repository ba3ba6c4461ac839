"""Spark's options → what the sink does: ``topic``, ``kafka.*`` and the sink's own.

Names are case-insensitive, as everywhere in Spark. Nothing under ``kafka.`` is ignored silently:
a key is used, or refused with an alternative, or reported as having no effect here and why.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from spark_kafka_sink.base.entry_points import load
from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.config.config_def import (
    ConfigDef,
    ConfigKey,
    ConfigType,
    Importance,
    at_least,
    non_empty,
    one_of,
)
from spark_kafka_sink.config.exactly_once import LONGEST_TIMEOUT_MS, ExactlyOnceConfig
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.config.producer_keys import PRODUCER_CONFIG
from spark_kafka_sink.config.topic_creation import (
    BROKER_DEFAULT,
    TopicCreation,
    parse_topic_configs,
)

KAFKA_PREFIX = "kafka."
AT_LEAST_ONCE = "at-least-once"
EXACTLY_ONCE = "exactly-once"
NONE = "none"


def _number_of(value: int) -> str | None:
    return None if value == BROKER_DEFAULT or value >= 1 else "must be -1 or at least 1"


SINK_OPTIONS = ConfigDef(
    [
        ConfigKey(
            "topic",
            ConfigType.STRING,
            None,
            None,
            Importance.HIGH,
            "Topic of all rows. Overrides the topic column.",
        ),
        ConfigKey(
            "includeheaders",
            ConfigType.BOOLEAN,
            False,
            None,
            Importance.LOW,
            "Accepted as Spark's own sink accepts it, and without effect as there: a headers "
            "column is written whenever it exists.",
        ),
        ConfigKey(
            "delivery.guarantee",
            ConfigType.STRING,
            AT_LEAST_ONCE,
            one_of(AT_LEAST_ONCE, EXACTLY_ONCE, NONE),
            Importance.HIGH,
            "What is promised when Spark repeats a task: docs/delivery.md. exactly-once: each row "
            "once for read_committed consumers, with transactions; needs Kafka 3.0 and "
            "transactional.id.prefix. none: kafka.acks is 0 unless it is given, nothing is "
            "waited for.",
        ),
        ConfigKey(
            "transactional.id.prefix",
            ConfigType.STRING,
            None,
            non_empty,
            Importance.HIGH,
            "Begins the transactional ids of a query, and must be its own: the same after a "
            "restart, another one for each query. Required for exactly-once, without effect "
            "otherwise.",
        ),
        ConfigKey(
            "transaction.log.topic",
            ConfigType.STRING,
            "pykafka-sink-transactions",
            non_empty,
            Importance.MEDIUM,
            "The compacted topic in which drivers write down what they decide. Created if it is "
            "missing; queries may share it. Only for exactly-once.",
        ),
        ConfigKey(
            "transaction.log.replication.factor",
            ConfigType.INT,
            3,
            at_least(1),
            Importance.MEDIUM,
            "Replicas of transaction.log.topic when it is created; fewer are refused. 1 for a "
            "cluster of one broker, where decisions are lost with its disk.",
        ),
        ConfigKey(
            "transaction.log.min.isr",
            ConfigType.INT,
            None,
            at_least(1),
            Importance.LOW,
            "min.insync.replicas of transaction.log.topic when it is created; fewer are refused. "
            "By default 2, or 1 with one replica.",
        ),
        ConfigKey(
            "topic.creation.enable",
            ConfigType.BOOLEAN,
            False,
            None,
            Importance.MEDIUM,
            "Create topics that do not exist, with the options below, instead of leaving it to the "
            "brokers' auto.create.topics.enable.",
        ),
        ConfigKey(
            "topic.creation.partitions",
            ConfigType.INT,
            BROKER_DEFAULT,
            _number_of,
            Importance.MEDIUM,
            "Partitions of a topic that is created. -1: the brokers' num.partitions, which "
            "needs Kafka 2.4 or newer.",
        ),
        ConfigKey(
            "topic.creation.replication.factor",
            ConfigType.INT,
            BROKER_DEFAULT,
            _number_of,
            Importance.MEDIUM,
            "Replicas of a topic that is created. -1: the brokers' default.replication.factor, "
            "which needs Kafka 2.4 or newer.",
        ),
        ConfigKey(
            "topic.creation.configs",
            ConfigType.STRING,
            "",
            None,
            Importance.LOW,
            "Configuration of a topic that is created, as name=value, separated by commas, e.g. "
            "retention.ms=86400000,min.insync.replicas=2.",
        ),
        ConfigKey(
            "interceptors",
            ConfigType.LIST,
            [],
            None,
            Importance.MEDIUM,
            "Your own code in the way of a record, as package.module:Class, separated by commas. "
            "Methods, each optional: on_send(arrow_batch) returns the Arrow batch to write, with "
            "the same columns; on_acknowledgement(summary) gets a dictionary with what the task "
            "has written, after everything is acknowledged.",
        ),
        ConfigKey(
            "hooks.on.error",
            ConfigType.STRING,
            "fail",
            one_of("fail", "log"),
            Importance.LOW,
            "What happens when an interceptor or your own partitioner raises: fail the task with "
            "its traceback, or log it and go on without it for that Arrow batch.",
        ),
        ConfigKey(
            "metrics.log",
            ConfigType.BOOLEAN,
            True,
            None,
            Importance.LOW,
            "Log a JSON line for every committed batch on the driver. Aborts are always logged.",
        ),
        ConfigKey(
            "metrics.path",
            ConfigType.STRING,
            None,
            None,
            Importance.MEDIUM,
            "File on the driver to which the JSON line of every committed or aborted batch is "
            "appended, besides the log.",
        ),
    ]
)

_ASKED_FOR = "delivery.guarantee=exactly-once"
_EXACTLY_ONCE_ONLY = (
    "transactional.id.prefix",
    "transaction.log.topic",
    "transaction.log.replication.factor",
    "transaction.log.min.isr",
)

# Options that Spark adds to every sink; not ours to judge.
_SPARK_OPTIONS = frozenset({"checkpointlocation", "path", "queryname", "outputmode"})

_REFUSED = {
    "key.serializer": "Kafka option 'key.serializer' is not supported as keys are serialized with "
    "ByteArraySerializer.",
    "value.serializer": "Kafka option 'value.serializer' is not supported as value are serialized "
    "with ByteArraySerializer.",
    "transactional.id": "Kafka option 'transactional.id' is not supported: tasks of a query would "
    "fence each other. Use delivery.guarantee=exactly-once with transactional.id.prefix, from "
    "which each task gets an id of its own.",
}

# Keys that name Java classes, which no Python worker can load: what to use instead.
JAVA_CLASS_KEYS = {
    "partitioner.class": "kafka.partitioner=round-robin, murmur3, crc32 or package.module:name, or "
    "a 'partition' column",
    "interceptor.classes": "interceptors=package.module:Class",
    "metric.reporters": "every batch's metrics are logged as JSON, and written to metrics.path",
    "config.providers": "pass values through Spark's properties file",
    "security.providers": "TLS comes from Python's ssl module",
    "ssl.engine.factory.class": "TLS comes from Python's ssl module",
    "sasl.client.callback.handler.class": "this version speaks PLAINTEXT only",
    "sasl.login.callback.handler.class": "this version speaks PLAINTEXT only",
    "sasl.login.class": "this version speaks PLAINTEXT only",
    "sasl.jaas.config": "this version speaks PLAINTEXT only",
}

# Java partitioners that have a counterpart here.
_JAVA_PARTITIONERS = {
    "org.apache.kafka.clients.producer.RoundRobinPartitioner": {"partitioner": "round-robin"},
    "org.apache.kafka.clients.producer.UniformStickyPartitioner": {
        "partitioner.ignore.keys": "true"
    },
    "org.apache.kafka.clients.producer.internals.DefaultPartitioner": {"partitioner": "default"},
}

# The Java client's own keys that mean nothing here: accepted, and said so.
KEYS_WITHOUT_EFFECT = {
    "auto.include.jmx.reporter": "there is no JMX here",
    "enable.metrics.push": "client telemetry (KIP-714) is not sent",
    "metrics.num.samples": "metrics are counted per batch, not sampled",
    "metrics.recording.level": "metrics are counted per batch, not sampled",
    "metrics.sample.window.ms": "metrics are counted per batch, not sampled",
}


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """What one write was asked to do.

    exactly_once: None unless delivery.guarantee asks for it
    checkpoint, query_name: of a streaming query, where Spark tells
    notes: sentences about options without effect, for the log
    """

    producer: ProducerConfig
    exactly_once: ExactlyOnceConfig | None
    checkpoint: str | None
    query_name: str | None
    topic: str | None
    interceptors: tuple[str, ...]
    hooks_on_error: str
    metrics_log: bool
    metrics_path: str | None
    notes: tuple[str, ...]

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> SinkOptions:
        """From Spark's options. Raises ConfigError, in the JVM sink's words where it has any."""
        lowered = {name.lower(): value for name, value in options.items()}
        kafka = {
            name.removeprefix(KAFKA_PREFIX): value
            for name, value in lowered.items()
            if name.startswith(KAFKA_PREFIX)
        }
        others = {name: value for name, value in lowered.items() if name not in _SPARK_OPTIONS}
        java_partitioner = _JAVA_PARTITIONERS.get(kafka.get("partitioner.class", ""))
        if java_partitioner is not None:
            del kafka["partitioner.class"]
            kafka.update(java_partitioner)
        notes = _notes(kafka, others)
        _check_kafka_keys(kafka)
        known = {name: value for name, value in others.items() if name in SINK_OPTIONS.keys}
        sink = SINK_OPTIONS.parse(known)
        kafka = {**_defaults_for(sink["delivery_guarantee"]), **kafka}
        producer = ProducerConfig.parse(
            {name: value for name, value in kafka.items() if name not in KEYS_WITHOUT_EFFECT}
        )
        _check_hooks(sink["interceptors"], producer.partitioner)
        return cls(
            producer=replace(
                producer,
                hooks_on_error=sink["hooks_on_error"],
                topic_creation=_topic_creation(sink),
            ),
            exactly_once=_exactly_once(sink, producer),
            checkpoint=lowered.get("checkpointlocation"),
            query_name=lowered.get("queryname"),
            topic=sink["topic"],
            interceptors=tuple(sink["interceptors"]),
            hooks_on_error=sink["hooks_on_error"],
            metrics_log=sink["metrics_log"],
            metrics_path=sink["metrics_path"],
            notes=tuple(notes),
        )


def _topic_creation(sink: Mapping[str, Any]) -> TopicCreation | None:
    configs = parse_topic_configs(sink["topic_creation_configs"])
    if not sink["topic_creation_enable"]:
        return None
    partitions = sink["topic_creation_partitions"]
    return TopicCreation(partitions, sink["topic_creation_replication_factor"], configs)


def _check_hooks(interceptors: list[str], partitioner: str) -> None:
    """Raise ConfigError now for what could not be loaded in the tasks."""
    for entry_point in interceptors:
        load(entry_point, "interceptor")
    if ":" in partitioner:
        load(partitioner, "partitioner")


def _notes(kafka: Mapping[str, str], others: Mapping[str, str]) -> list[str]:
    notes = []
    for name in kafka:
        if name in KEYS_WITHOUT_EFFECT:
            notes.append(f"option 'kafka.{name}' has no effect: {KEYS_WITHOUT_EFFECT[name]}")
    for name in others:
        if not name.startswith(KAFKA_PREFIX) and name not in SINK_OPTIONS.keys:
            suggestion = SINK_OPTIONS.suggestion(name, others=["kafka.bootstrap.servers"])
            notes.append(f"option '{name}' is not one of this sink's and has no effect{suggestion}")
    if others.get("delivery.guarantee") != EXACTLY_ONCE:
        for name in _EXACTLY_ONCE_ONLY:
            if name in others:
                notes.append(f"option '{name}' has no effect without {_ASKED_FOR}")
    return notes


def _defaults_for(guarantee: str) -> dict[str, str]:
    """Defaults of ``kafka.*`` that a guarantee needs."""
    if guarantee == EXACTLY_ONCE:
        return {"transaction.timeout.ms": str(LONGEST_TIMEOUT_MS)}
    return {"acks": "0"} if guarantee == NONE else {}


def _exactly_once(sink: Mapping[str, Any], producer: ProducerConfig) -> ExactlyOnceConfig | None:
    if sink["delivery_guarantee"] != EXACTLY_ONCE:
        return None
    prefix = sink["transactional_id_prefix"]
    if prefix is None:
        raise ConfigError(
            f"{_ASKED_FOR} needs option 'transactional.id.prefix': a name that is this query's own "
            "and stays the same when it is restarted, e.g. the query's name"
        )
    if not producer.enable_idempotence:
        raise ConfigError(
            f"{_ASKED_FOR} needs kafka.acks=all and kafka.enable.idempotence=true: leave both away"
        )
    replicas, min_isr = sink["transaction_log_replication_factor"], sink["transaction_log_min_isr"]
    if min_isr is None:
        min_isr = min(2, replicas)
    if min_isr > replicas:
        raise ConfigError(
            f"transaction.log.min.isr = {min_isr} is more than "
            f"transaction.log.replication.factor = {replicas}: nothing could be written"
        )
    timeout_ms = producer.transaction_timeout_ms
    return ExactlyOnceConfig(prefix, timeout_ms, sink["transaction_log_topic"], replicas, min_isr)


def _check_kafka_keys(kafka: Mapping[str, str]) -> None:
    for name in kafka:
        if name in _REFUSED:
            raise ConfigError(_REFUSED[name])
        if name in JAVA_CLASS_KEYS:
            raise ConfigError(
                f"Kafka option '{name}' names a Java class, and there is no JVM here. Instead: "
                f"{JAVA_CLASS_KEYS[name]}."
            )
        if name not in PRODUCER_CONFIG.keys and name not in KEYS_WITHOUT_EFFECT:
            suggestion = PRODUCER_CONFIG.suggestion(name, KAFKA_PREFIX, JAVA_CLASS_KEYS)
            raise ConfigError(
                f"Kafka option '{KAFKA_PREFIX}{name}' is not a producer option of this sink"
                f"{suggestion or '. See docs/options.md.'}"
            )
    if "bootstrap.servers" not in kafka:
        raise ConfigError(
            "Option 'kafka.bootstrap.servers' must be specified for writing to Kafka, as host:port."
        )
