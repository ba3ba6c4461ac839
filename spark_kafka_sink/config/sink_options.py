"""Spark's options → what the sink does: ``topic``, ``kafka.*`` and the sink's own.

Names are case-insensitive, as everywhere in Spark. Nothing under ``kafka.`` is ignored silently:
a key is used, or refused with an alternative, or reported as having no effect here and why.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from spark_kafka_sink.base.dataclass import dataclass
from spark_kafka_sink.base.entry_points import load
from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.config.dead_letter_keys import NAMES_OF_CONNECT
from spark_kafka_sink.config.dead_letters import (
    DeadLetterConfig,
    dead_letters_of,
    notes_on_dead_letters,
)
from spark_kafka_sink.config.exactly_once import LONGEST_TIMEOUT_MS, ExactlyOnceConfig
from spark_kafka_sink.config.formats import FormatOptions, formats_of, notes_on_formats
from spark_kafka_sink.config.java_keys import (
    JAVA_PARTITIONERS,
    KEYS_WITHOUT_EFFECT,
    LISTS_OF_JAVA_CLASSES,
)
from spark_kafka_sink.config.metrics_outputs import MetricsOutputs, notes_on_outputs
from spark_kafka_sink.config.option_names import is_unknown, refusal
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.config.producer_keys import KAFKA_PREFIX, LEAST_MEMORY
from spark_kafka_sink.config.reference_providers import notes_on_providers
from spark_kafka_sink.config.registry import RegistryOptions, registry_of
from spark_kafka_sink.config.registry_notes import notes_on_registry
from spark_kafka_sink.config.security_notes import notes_on_secrets, notes_on_security
from spark_kafka_sink.config.sink_keys import EXACTLY_ONCE, NONE, SINK_OPTIONS
from spark_kafka_sink.config.topic_creation import TopicCreation, parse_topic_configs

_ASKED_FOR = "delivery.guarantee=exactly-once"
_EXACTLY_ONCE_ONLY = (
    "transactional.id.prefix",
    "transaction.log.topic",
    "transaction.log.missing",
    "transaction.replay",
    "write.id",
    "write.version",
    "transaction.log.replication.factor",
)
_AS_THEY_ARE = (
    "delivery_guarantee",
    "topic",
    "log_level",
    "log_format",
    "metrics_log",
    "write_id",
    "write_version",
    "preflight_timeout_ms",
)


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """What one write was asked to do.

    exactly_once: None unless delivery.guarantee asks for it
    checkpoint, query_name: of a streaming query, where Spark tells; application_id likewise
    write_id, write_version: of a batch write that is to be written once; both or none
    dead_letters: None unless errors.tolerance asks for them
    formats: None if none of their options is given; registry: None where no schema's id is written
    notes: sentences about options without effect, for the log
    """

    producer: ProducerConfig
    delivery_guarantee: str
    exactly_once: ExactlyOnceConfig | None
    checkpoint: str | None
    query_name: str | None
    topic: str | None
    interceptors: tuple[str, ...]
    log_level: str | None
    log_format: str
    metrics_log: bool
    metrics: MetricsOutputs
    write_id: str | None
    write_version: int | None
    preflight_timeout_ms: int
    notes: tuple[str, ...]
    dead_letters: DeadLetterConfig | None = None
    application_id: str | None = None
    formats: FormatOptions | None = None
    registry: RegistryOptions | None = None

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> SinkOptions:
        """From Spark's options. Raises ConfigError, in the JVM sink's words where it has any."""
        lowered = {name.lower(): value for name, value in options.items()}
        kafka = _kafka_options(lowered)
        own_names = (name for name in lowered if not name.startswith(KAFKA_PREFIX))
        _check_names([*(KAFKA_PREFIX + key for key in kafka), *own_names])
        own = {name: value for name, value in lowered.items() if name in SINK_OPTIONS.keys}
        sink = SINK_OPTIONS.parse(own)
        kafka = {**_defaults_for(sink["delivery_guarantee"]), **kafka}
        producer = ProducerConfig.parse(_with_effect(kafka))
        _check_hooks(sink["interceptors"], producer.partitioner)
        outputs, formats = MetricsOutputs.of(sink), formats_of(sink, own)
        registry = registry_of(sink, formats, producer.security, own)
        return cls(
            producer=_with_own(producer, sink),
            exactly_once=_exactly_once(sink, producer),
            checkpoint=lowered.get("checkpointlocation"),
            query_name=lowered.get("queryname"),
            **{name: sink[name] for name in _AS_THEY_ARE},
            interceptors=tuple(sink["interceptors"]),
            metrics=outputs,
            notes=(
                *_notes(lowered, kafka),
                *_notes_on_guarantee(sink["delivery_guarantee"], own),
                *notes_on_providers(kafka),
                *notes_on_security(kafka, producer.security),
                *notes_on_secrets(lowered),
                *notes_on_outputs(outputs, own),
                *notes_on_dead_letters(sink, own),
                *(
                    *notes_on_formats(formats, own),
                    *notes_on_registry(registry, formats, sink, own),
                ),
            ),
            dead_letters=dead_letters_of(sink),
            formats=formats,
            registry=registry,
        )


def _kafka_options(lowered: Mapping[str, str]) -> dict[str, str]:
    """What begins with ``kafka.``, without that; Java's partitioners by their names here.

    Raises ConfigError for an empty name of a class.
    """
    kafka = {
        name.removeprefix(KAFKA_PREFIX): value
        for name, value in lowered.items()
        if name.startswith(KAFKA_PREFIX)
    }
    for name in LISTS_OF_JAVA_CLASSES:
        if not kafka.get(name, "").strip(" ,"):
            kafka.pop(name, None)
    if not kafka.get("partitioner.class", "named").strip():
        raise ConfigError("Option 'kafka.partitioner.class' is empty: leave it out")
    java_partitioner = JAVA_PARTITIONERS.get(kafka.get("partitioner.class", ""))
    if java_partitioner is not None:
        del kafka["partitioner.class"]
        kafka.update(java_partitioner)
    return kafka


def _with_effect(kafka: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in kafka.items() if name not in KEYS_WITHOUT_EFFECT}


def _with_own(producer: ProducerConfig, sink: Mapping[str, Any]) -> ProducerConfig:
    """What the sink's own options say to the producer."""
    is_exactly_once = sink["delivery_guarantee"] == EXACTLY_ONCE
    return replace(
        producer,
        topic_creation=_topic_creation(sink),
        max_bytes_per_second=sink["max_bytes_per_second_per_task"],
        decision_log=sink["transaction_log_topic"] if is_exactly_once else None,
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


def _check_names(names: Sequence[str]) -> None:
    """Raise ConfigError for the first name that is refused, or if there are no brokers' addresses.

    In this order: who has written bootstrap.servers shall be told that, not that it is missing.
    """
    parts = [part for part in ("value", "key") if f"{part}.format" in names]
    for name in names:
        problem = refusal(name, parts)
        if problem is not None:
            raise ConfigError(problem)
    if f"{KAFKA_PREFIX}bootstrap.servers" not in names:
        raise ConfigError(
            "Option 'kafka.bootstrap.servers' must be specified for writing to Kafka, as host:port."
        )


def _notes(names: Iterable[str], kafka: Mapping[str, str]) -> Iterator[str]:
    """Sentences about options without effect. kafka: those of Kafka, by their names without it"""
    yield from _notes_on_memory(kafka)
    for name in names:
        key = name.removeprefix(KAFKA_PREFIX)
        if key != name and key in KEYS_WITHOUT_EFFECT:
            yield f"option '{name}' has no effect: {KEYS_WITHOUT_EFFECT[key]}"
        elif name in NAMES_OF_CONNECT:
            yield f"option '{name}' of Kafka Connect has no effect here: {NAMES_OF_CONNECT[name]}"
        elif is_unknown(name):
            yield f"option '{name}' is not one of this sink's and has no effect"


def _notes_on_guarantee(guarantee: str, own: Iterable[str]) -> Iterator[str]:
    if guarantee != EXACTLY_ONCE:
        for name in _EXACTLY_ONCE_ONLY:
            if name in own:
                yield f"option '{name}' has no effect without {_ASKED_FOR}"


def _notes_on_memory(kafka: Mapping[str, str]) -> Iterator[str]:
    given = kafka.get("buffer.memory", "").strip()
    if given and int(given) < LEAST_MEMORY:
        yield f"kafka.buffer.memory={given} is taken as {LEAST_MEMORY}, what this sink needs"


def _check_write(write_id: str | None, version: int | None) -> None:
    if (write_id is None) != (version is None):
        raise ConfigError(
            "write.id and write.version belong together: the name of what writes, and the number "
            "of this write, which only grows"
        )


def _check_decision_log(sink: Mapping[str, Any]) -> None:
    """Raise ConfigError where all rows, or all dead letters, would go to the decision log."""
    log = sink["transaction_log_topic"]
    for option in ("topic", "errors.deadletterqueue.topic.name"):
        if sink[option.replace(".", "_")] == log:
            raise ConfigError(
                f"option '{option}' names the decision log, transaction.log.topic = '{log}': a "
                "record there may be taken for a decision. Name another topic in one of the two"
            )


def _defaults_for(guarantee: str) -> dict[str, str]:
    """Defaults of ``kafka.*`` that a guarantee needs."""
    if guarantee == EXACTLY_ONCE:
        return {"transaction.timeout.ms": str(LONGEST_TIMEOUT_MS)}
    return {"acks": "0"} if guarantee == NONE else {}


def _exactly_once(sink: Mapping[str, Any], producer: ProducerConfig) -> ExactlyOnceConfig | None:
    if sink["delivery_guarantee"] != EXACTLY_ONCE:
        return None
    _check_write(sink["write_id"], sink["write_version"])
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
    _check_decision_log(sink)
    return ExactlyOnceConfig(
        prefix,
        producer.transaction_timeout_ms,
        sink["transaction_log_topic"],
        sink["transaction_log_replication_factor"],
        accepts_missing_record=sink["transaction_log_missing"] == "accept",
        drops_replays=sink["transaction_replay"] == "drop",
    )
