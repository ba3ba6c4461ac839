"""Spark's options → what the sink does: ``topic``, ``kafka.*`` and the sink's own.

Names are case-insensitive, as everywhere in Spark. Nothing under ``kafka.`` is ignored silently:
a key is used, or refused with an alternative, or reported as having no effect here and why.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spark_kafka_sink.config.config_def import ConfigDef, ConfigKey, ConfigType, Importance
from spark_kafka_sink.config.producer_config import PRODUCER_CONFIG, ProducerConfig
from spark_kafka_sink.errors import ConfigError

KAFKA_PREFIX = "kafka."

SINK_OPTIONS = ConfigDef(
    [
        ConfigKey(
            "topic", ConfigType.STRING, None, None, Importance.HIGH,
            "Topic of all rows. Overrides the topic column.",
        ),
        ConfigKey(
            "includeheaders", ConfigType.BOOLEAN, False, None, Importance.LOW,
            "Accepted as Spark's own sink accepts it, and without effect as there: a headers "
            "column is written whenever it exists.",
        ),
        ConfigKey(
            "metrics.log", ConfigType.BOOLEAN, True, None, Importance.LOW,
            "Log a JSON line for every committed batch on the driver. Aborts are always logged.",
        ),
        ConfigKey(
            "metrics.path", ConfigType.STRING, None, None, Importance.MEDIUM,
            "File on the driver to which the JSON line of every committed or aborted batch is "
            "appended, besides the log.",
        ),
    ]
)  # fmt: skip

# Options that Spark adds to every sink; not ours to judge.
_SPARK_OPTIONS = frozenset({"checkpointlocation", "path", "queryname", "outputmode"})

_SERIALIZERS = {
    "key.serializer": "Kafka option 'key.serializer' is not supported as keys are serialized with "
    "ByteArraySerializer.",
    "value.serializer": "Kafka option 'value.serializer' is not supported as value are serialized "
    "with ByteArraySerializer.",
}

# Keys that name Java classes, which no Python worker can load: what to use instead.
JAVA_CLASS_KEYS = {
    "partitioner.class": "give the row's partition in a 'partition' column, or set "
    "kafka.partitioner.ignore.keys=true",
    "interceptor.classes": "change the DataFrame before the write",
    "metric.reporters": "every batch's metrics are logged as JSON, and written to metrics.path",
    "config.providers": "pass values through Spark's properties file",
    "security.providers": "TLS comes from Python's ssl module",
    "ssl.engine.factory.class": "TLS comes from Python's ssl module",
    "sasl.client.callback.handler.class": "this version speaks PLAINTEXT only",
    "sasl.login.callback.handler.class": "this version speaks PLAINTEXT only",
    "sasl.login.class": "this version speaks PLAINTEXT only",
    "sasl.jaas.config": "this version speaks PLAINTEXT only",
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

    notes: sentences about options without effect, for the log.
    """

    producer: ProducerConfig
    topic: str | None
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
        notes = _notes(kafka, others)
        _check_kafka_keys(kafka)
        known = {name: value for name, value in others.items() if name in SINK_OPTIONS.keys}
        sink = SINK_OPTIONS.parse(known)
        producer = ProducerConfig.parse(
            {name: value for name, value in kafka.items() if name not in KEYS_WITHOUT_EFFECT}
        )
        return cls(producer, sink["topic"], sink["metrics_log"], sink["metrics_path"], tuple(notes))


def _notes(kafka: Mapping[str, str], others: Mapping[str, str]) -> list[str]:
    notes = []
    for name in kafka:
        if name in KEYS_WITHOUT_EFFECT:
            notes.append(f"option 'kafka.{name}' has no effect: {KEYS_WITHOUT_EFFECT[name]}")
    for name in others:
        if not name.startswith(KAFKA_PREFIX) and name not in SINK_OPTIONS.keys:
            suggestion = SINK_OPTIONS.suggestion(name, others=["kafka.bootstrap.servers"])
            notes.append(f"option '{name}' is not one of this sink's and has no effect{suggestion}")
    return notes


def _check_kafka_keys(kafka: Mapping[str, str]) -> None:
    for name in kafka:
        if name in _SERIALIZERS:
            raise ConfigError(_SERIALIZERS[name])
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
