"""Parse Spark's options of a write, and the command line's configuration file.

Spark's options are ``topic``, ``kafka.*`` and the sink's own. Names are case-insensitive, as in
Spark. Each key under ``kafka.`` is used, rejected with an alternative, or reported as without
effect with the reason.

``--command-config FILE`` configures the connections of the command line, as with Kafka's tools. The
file is a Java properties file with Kafka's names, without the prefix ``kafka.``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from spark_kafka_sink.base.codes import coded
from spark_kafka_sink.base.entry_points import check_interceptor, load
from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.base.model import dataclass
from spark_kafka_sink.config.config_def import (
    KAFKA_PREFIX,
    Property,
    is_config_provider_key,
    notes_on_config_providers,
    read_properties,
)
from spark_kafka_sink.config.formats import FormatOptions, parse_formats, unused_format_options
from spark_kafka_sink.config.option_names import (
    JAVA_PARTITIONERS,
    KEYS_WITHOUT_EFFECT,
    LIBRDKAFKA_KEYS,
    LISTS_OF_JAVA_CLASSES,
    answer,
    closest_option,
    is_unknown,
    rejection_reason,
)
from spark_kafka_sink.config.producer_config import (
    ACKS_ALL,
    MIN_BUFFER_MEMORY,
    PRODUCER_CONFIG,
    ProducerConfig,
    TopicCreation,
    parse_topic_configs,
)
from spark_kafka_sink.config.registry import (
    RegistryOptions,
    notes_on_registry,
    parse_registry,
    unused_registry_options,
)
from spark_kafka_sink.config.security_config import (
    notes_on_security,
    secrets_shown_by_spark,
    warning_about_shown_secrets,
)
from spark_kafka_sink.config.security_keys import SECURITY_CONFIG
from spark_kafka_sink.config.sink_keys import (
    CONNECT_KEYS_WITHOUT_EFFECT,
    EXACTLY_ONCE,
    MAX_TRANSACTION_TIMEOUT_MS,
    NONE,
    SINK_OPTIONS,
    DeadLetterConfig,
    ExactlyOnceConfig,
    MetricsOutputs,
    parse_dead_letters,
    unused_sink_options,
)

UNIX_SOCKETS = "spark.python.unix.domain.socket.enabled"
"""Spark's setting, since 4.1: its JVM and Python workers exchange rows by Unix domain sockets."""

_EXACTLY_ONCE_OPTION = "delivery.guarantee=exactly-once"
_UNCHANGED_FIELDS = (
    *("delivery_guarantee", "topic", "log_level", "log_format", "metrics_log", "write_id"),
    *("write_version", "preflight_timeout_ms"),
)


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The parsed options of one write.

    exactly_once: None unless delivery.guarantee is exactly-once
    checkpoint, query_name: of a streaming query; application_id: Spark's. None if Spark gives none
    write_id, write_version: identity of a batch write that may be repeated; both or none
    dead_letters: None unless errors.tolerance is all
    formats: None if no format option is set; registry: None if no schema id is written
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
        """Parse Spark's options. Raises ConfigError, with the JVM sink's message if it has one."""
        lowered = {name.lower(): value for name, value in options.items()}
        kafka = _kafka_options(lowered)
        own_names = (name for name in lowered if not name.startswith(KAFKA_PREFIX))
        _check_names([*(KAFKA_PREFIX + key for key in kafka), *own_names])
        own_options = {name: value for name, value in lowered.items() if name in SINK_OPTIONS.keys}
        sink = SINK_OPTIONS.parse(own_options)
        kafka = {**_defaults_for(sink["delivery_guarantee"]), **kafka}
        used = {name: value for name, value in kafka.items() if name not in KEYS_WITHOUT_EFFECT}
        producer = ProducerConfig.parse(used)
        _check_entry_points(sink["interceptors"], producer.partitioner)
        outputs, formats = MetricsOutputs.of(sink), parse_formats(sink, own_options)
        registry = parse_registry(sink, formats, producer.security, own_options)
        topic_creation, exactly_once = _topic_creation(sink), _exactly_once(sink, producer)
        unused = (
            *unused_sink_options(sink, outputs),
            *(unused_format_options(formats) if formats else ()),
            *unused_registry_options(registry, formats, sink),
        )
        shown_secrets = secrets_shown_by_spark(lowered)
        return cls(
            producer=replace(
                producer,
                topic_creation=topic_creation,
                max_bytes_per_second=sink["max_bytes_per_second_per_task"],
                decision_log=None if exactly_once is None else exactly_once.log_topic,
            ),
            exactly_once=exactly_once,
            checkpoint=lowered.get("checkpointlocation"),
            query_name=lowered.get("queryname"),
            **{name: sink[name] for name in _UNCHANGED_FIELDS},
            interceptors=tuple(sink["interceptors"]),
            metrics=outputs,
            notes=(
                *_notes(lowered, kafka, dict(reversed(unused))),
                *notes_on_config_providers(kafka),
                *notes_on_security(kafka, producer.security),
                *((warning_about_shown_secrets(shown_secrets),) if shown_secrets else ()),
                *(notes_on_registry(registry, formats) if registry and formats else ()),
            ),
            dead_letters=parse_dead_letters(sink),
            formats=formats,
            registry=registry,
        )


def _kafka_options(lowered: Mapping[str, str]) -> dict[str, str]:
    """Return the options ``kafka.*`` without the prefix; Java's partitioners get this sink's names.

    Raises ConfigError for an empty class name.
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
        raise ConfigError(
            "Option 'kafka.partitioner.class' is empty: leave it out", code="OPTION-003"
        )
    java_partitioner = JAVA_PARTITIONERS.get(kafka.get("partitioner.class", ""))
    if java_partitioner is not None:
        del kafka["partitioner.class"]
        kafka.update(java_partitioner)
    return kafka


def _topic_creation(sink: Mapping[str, Any]) -> TopicCreation | None:
    configs = parse_topic_configs(sink["topic_creation_configs"])
    if not sink["topic_creation_enable"]:
        return None
    replicas = sink["topic_creation_replication_factor"]
    return TopicCreation(sink["topic_creation_partitions"], replicas, configs)


def _check_entry_points(interceptors: list[str], partitioner: str) -> None:
    """Raise ConfigError on the driver for user code that the tasks could not load."""
    for entry_point in interceptors:
        check_interceptor(entry_point)
    if ":" in partitioner:
        load(partitioner, "partitioner")


def _check_names(names: Sequence[str]) -> None:
    """Raise ConfigError for the first rejected name, or if no brokers' addresses are set.

    Names come first: for bootstrap.servers without ``kafka.`` the error names the wrong spelling.
    """
    parts = [part for part in ("value", "key") if f"{part}.format" in names]
    for name in names:
        problem = rejection_reason(name, parts)
        if problem is not None:
            raise ConfigError(problem, code="OPTION-001")
    if f"{KAFKA_PREFIX}bootstrap.servers" not in names:
        raise ConfigError(
            "Option 'kafka.bootstrap.servers' must be specified for writing to Kafka, as "
            "host:port.",
            code="OPTION-004",
        )


def _notes(
    names: Iterable[str], kafka: Mapping[str, str], unused: Mapping[str, str]
) -> Iterator[str]:
    """Yield sentences about options without effect.

    kafka: options without ``kafka.``; unused: options that others make useless -> the reason
    """
    memory = kafka.get("buffer.memory", "").strip()
    if memory and int(memory) < MIN_BUFFER_MEMORY:
        note = f"kafka.buffer.memory={memory} is taken as {MIN_BUFFER_MEMORY}, what this sink needs"
        yield coded(note, "OPTION-020")
    for name in names:
        key = name.removeprefix(KAFKA_PREFIX)
        if key != name and key in KEYS_WITHOUT_EFFECT:
            yield f"option '{name}' has no effect: {KEYS_WITHOUT_EFFECT[key]}"
        elif name in unused:
            yield f"option '{name}' has no effect {unused[name]}"
        elif name in CONNECT_KEYS_WITHOUT_EFFECT:
            reason = CONNECT_KEYS_WITHOUT_EFFECT[name]
            yield f"option '{name}' of Kafka Connect has no effect here: {reason}"
        elif is_unknown(name):
            note = f"option '{name}' is not one of this sink's and has no effect"
            yield coded(note, "OPTION-019")


def _check_decision_log(sink: Mapping[str, Any]) -> None:
    """Raise ConfigError if all rows, or all dead letters, would go to the decision log."""
    log = sink["transaction_log_topic"]
    for option in ("topic", "errors.deadletterqueue.topic.name"):
        if sink[option.replace(".", "_")] == log:
            raise ConfigError(
                f"option '{option}' names the decision log, transaction.log.topic = '{log}': a "
                "record there may be taken for a decision. Name another topic in one of the two",
                code="TXN-003",
            )


def _defaults_for(guarantee: str) -> dict[str, str]:
    """Return the defaults of ``kafka.*`` that a guarantee needs."""
    if guarantee == EXACTLY_ONCE:
        return {"transaction.timeout.ms": str(MAX_TRANSACTION_TIMEOUT_MS)}
    return {"acks": "0"} if guarantee == NONE else {}


def _exactly_once(sink: Mapping[str, Any], producer: ProducerConfig) -> ExactlyOnceConfig | None:
    if sink["delivery_guarantee"] != EXACTLY_ONCE:
        return None
    if (sink["write_id"] is None) != (sink["write_version"] is None):
        raise ConfigError(
            "write.id and write.version belong together: the name of what writes, and the number "
            "of this write, which only grows",
            code="OPTION-008",
        )
    prefix = sink["transactional_id_prefix"]
    if prefix is None:
        raise ConfigError(
            f"{_EXACTLY_ONCE_OPTION} needs option 'transactional.id.prefix': a name that is this "
            "query's own and stays the same when it is restarted, e.g. the query's name",
            code="TXN-001",
        )
    if not producer.enable_idempotence:
        raise ConfigError(
            f"{_EXACTLY_ONCE_OPTION} needs kafka.acks=all and kafka.enable.idempotence=true: "
            "leave both away",
            code="TXN-002",
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


_REPORTED_PRODUCER_KEYS = (
    *("batch.size", "linger.ms", "buffer.memory", "max.in.flight.requests.per.connection"),
    "max.request.size",
)


def effective_settings(options: SinkOptions) -> dict[str, str]:
    """Return the values in force, set or default, by the names that users write."""
    producer = options.producer
    codec, level = producer.compression_type, producer.compression_level
    settings = {
        "delivery.guarantee": options.delivery_guarantee,
        "kafka.acks": "all" if producer.acks == ACKS_ALL else str(producer.acks),
        "kafka.enable.idempotence": str(producer.enable_idempotence).lower(),
        "kafka.compression.type": codec,
    }
    if level is not None:
        settings[f"kafka.compression.{codec}.level"] = str(level)
    for name in _REPORTED_PRODUCER_KEYS:
        settings[f"kafka.{name}"] = str(getattr(producer, name.replace(".", "_")))
    if producer.max_bytes_per_second is not None:
        settings["max.bytes.per.second.per.task"] = str(producer.max_bytes_per_second)
    return settings


_NAMES = "|".join(
    re.escape(name) for name in [*PRODUCER_CONFIG.keys, *SECURITY_CONFIG.keys, *LIBRDKAFKA_KEYS]
)
_FULL_NAME = re.compile(rf"(?<![\w.])kafka\.((?:{_NAMES})(?![\w-]|\.\w)|config\.providers[\w.]*)")


class CommandConfig(NamedTuple):
    """A parsed configuration file. notes: sentences about options without effect, for stderr"""

    producer: ProducerConfig
    notes: tuple[str, ...]


def read_command_config(
    path: str, bootstrap_servers: str, defaults: Mapping[str, str]
) -> CommandConfig:
    """Parse the file at ``path``; ``bootstrap_servers`` replaces the addresses in the file.

    defaults: Kafka's keys and texts for keys that the file does not set. Raises ConfigError, which
    names file and line and shows no secret.
    """
    servers = {"bootstrap.servers": bootstrap_servers}
    try:
        properties = read_properties(path)
    except OSError as error:
        raise ConfigError(
            f"--command-config: cannot read {path}: {error.strerror}", code="OPTION-013"
        ) from None
    lines = {name: line for name, _, line in properties}
    for name, line in lines.items():
        _check_name(name, f"{path}, line {line}")
    values = {name: value for name, value, _ in properties if _is_used(name)}
    try:
        producer = ProducerConfig.parse({**defaults, **values, **servers})
    except ConfigError as error:
        raise ConfigError(_in_file(str(error), path, lines), code=error.code) from None
    return CommandConfig(producer, tuple(_notes_on_file(path, properties, values, producer)))


def _is_used(name: str) -> bool:
    return (
        name in PRODUCER_CONFIG.keys or name in SECURITY_CONFIG.keys or is_config_provider_key(name)
    )


def _check_name(name: str, where: str) -> None:
    """Raise ConfigError for a misspelt name and for a librdkafka name of a security option.

    Names that resemble no option belong to other tools that use the same file.
    """
    if name.startswith(KAFKA_PREFIX) and _is_used(name.removeprefix(KAFKA_PREFIX)):
        raise ConfigError(
            f"{where}: write {name.removeprefix(KAFKA_PREFIX)}, without kafka.", code="OPTION-001"
        )
    if _is_used(name) or name in KEYS_WITHOUT_EFFECT:
        return
    full_name = KAFKA_PREFIX + name
    closest = closest_option(full_name)
    if name in LIBRDKAFKA_KEYS or (closest == full_name and name.startswith(("ssl.", "sasl."))):
        raise ConfigError(
            f"{where}: {_without_prefix(rejection_reason(full_name) or '')}", code="OPTION-001"
        )
    if closest is not None and closest.startswith(KAFKA_PREFIX) and closest != full_name:
        advice = _without_prefix(answer(closest)).replace(f"'{KAFKA_PREFIX}", "'")
        raise ConfigError(f"{where}: there is no '{name}'. {advice}", code="OPTION-001")


def _notes_on_file(
    path: str, properties: list[Property], values: Mapping[str, str], producer: ProducerConfig
) -> Iterator[str]:
    for name, _, line in properties:
        if not _is_used(name):
            yield f"{path}, line {line}: {name} has no effect here"
    for note in (*notes_on_config_providers(values), *notes_on_security(values, producer.security)):
        yield f"{path}: {_without_prefix(note)}"


def _in_file(message: str, path: str, lines: Mapping[str, int]) -> str:
    """Return ``message`` with file and line of the first option that it names."""
    named = [match[1] for match in _FULL_NAME.finditer(message) if match[1] in lines]
    where = f"{path}, line {lines[named[0]]}" if named else path
    return f"{where}: {_without_prefix(message)}"


def _without_prefix(message: str) -> str:
    return _FULL_NAME.sub(lambda match: match[1], message)
