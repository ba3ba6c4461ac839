"""Parse Spark's options of a write, and the command line's configuration file.

The tables of options are in other modules: ``sink_keys``, ``formats``, ``registry``,
``producer_config``, ``security_keys``. A new option of the sink also needs a field here, in
:class:`SinkOptions` or in the class of its subject.

Spark's options are ``topic``, ``kafka.*`` and the sink's own. Names are case-insensitive, as in
Spark. Each key under ``kafka.`` is used, rejected with an alternative, or reported as without
effect with the reason.

``--command-config FILE`` configures the connections of the command line, as with Kafka's tools. The
file is a Java properties file with Kafka's names, without the prefix ``kafka.``.

Names are checked first: typing errors, names of other clients, options without effect. Spark passes
a sink every option of the writer, including options for Spark itself or for another sink. Therefore
an unknown name is only logged. A name close to an option of this sink is rejected, because the
user's intention would have no effect. With value.format or key.format, names that Spark's functions
or Confluent's serializers use for an option of this sink are rejected too.

Keys of the Java client without a row in a table are rejected or have no effect here. Keys that only
librdkafka has are rejected with Java's name.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from spark_kafka_sink.base.entry_points import check_interceptor, load
from spark_kafka_sink.base.errors import ConfigError, coded
from spark_kafka_sink.base.model import TopicsPlan, dataclass
from spark_kafka_sink.config.config_def import (
    KAFKA_PREFIX,
    RECIPES,
    Property,
    read_properties,
)
from spark_kafka_sink.config.config_providers import by_config_providers, is_config_provider_key
from spark_kafka_sink.config.formats import (
    FORMAT_KEYS,
    FormatOptions,
    parse_formats,
    unused_format_options,
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
    REGISTRY_KEYS,
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
    ACCEPT_MISSING_RECORD,
    ACCEPT_NEW_QUERY,
    CONNECT_KEYS_WITHOUT_EFFECT,
    EXACTLY_ONCE,
    MAX_TRANSACTION_TIMEOUT_MS,
    NONE,
    QUERY_PLACE,
    SINK_OPTIONS,
    DeadLetterConfig,
    ExactlyOnceConfig,
    MetricsOutputs,
    notes_on_metrics,
    parse_dead_letters,
    unused_sink_options,
)

UNSUPPORTED_KEYS = {
    "key.serializer": "Kafka option 'kafka.key.serializer' is not supported as keys are serialized "
    "with ByteArraySerializer.",
    "value.serializer": "Kafka option 'kafka.value.serializer' is not supported as value are "
    "serialized with ByteArraySerializer.",
    "transactional.id": "Kafka option 'kafka.transactional.id' is not supported: tasks of a query "
    "would fence each other. Use delivery.guarantee=exactly-once with transactional.id.prefix, "
    "from which each task gets an id of its own.",
}

# Keys that name Java classes, which a Python worker cannot load -> replacement.
JAVA_CLASS_KEYS = {
    "partitioner.class": "kafka.partitioner=round-robin, murmur3, crc32 or package.module:name, or "
    "a 'partition' column",
    "interceptor.classes": "interceptors=package.module:Class",
    "metric.reporters": "every batch's metrics are logged as JSON, and written to metrics.path",
    "security.providers": "leave it out; TLS and cryptography are OpenSSL's, as in Python",
}

# Keys that name a list of Java classes: Java accepts an empty list.
LISTS_OF_JAVA_CLASSES = ("interceptor.classes", "metric.reporters", "security.providers")

# Java partitioners that have a counterpart here -> this sink's options.
JAVA_PARTITIONERS = {
    "org.apache.kafka.clients.producer.RoundRobinPartitioner": {"partitioner": "round-robin"},
    "org.apache.kafka.clients.producer.UniformStickyPartitioner": {
        "partitioner.ignore.keys": "true"
    },
    "org.apache.kafka.clients.producer.internals.DefaultPartitioner": {"partitioner": "default"},
}

# Names of ConsumerConfig, ShareConsumerConfig and AdminClientConfig of Kafka 4.4 that a producer
# does not have: jobs pass one set of options to Spark's reader and to the writer.
_CONSUMER_KEYS = (
    *("auto.commit.interval.ms", "auto.offset.reset", "check.crcs"),
    *("default.api.timeout.ms", "enable.auto.commit", "exclude.internal.topics"),
    *("fetch.max.bytes", "fetch.max.wait.ms", "fetch.min.bytes", "group.id", "group.instance.id"),
    *("group.protocol", "group.remote.assignor", "heartbeat.interval.ms", "isolation.level"),
    *("key.deserializer", "max.partition.fetch.bytes", "max.poll.interval.ms", "max.poll.records"),
    *("partition.assignment.strategy", "session.timeout.ms", "share.acknowledgement.mode"),
    *("share.acquire.mode", "value.deserializer"),
)

# The Java client's own keys that have no effect here: accepted, and reported in the log.
_REASONS = {
    "there is no JMX here": ("auto.include.jmx.reporter",),
    "metrics are counted per batch, not sampled": (
        *("metrics.num.samples", "metrics.recording.level", "metrics.sample.window.ms"),
    ),
    "it chooses among parts of a JVM, and there is none here": (
        *("ssl.keymanager.algorithm", "ssl.secure.random.implementation"),
    ),
    "there is no JVM here, and values other than the JDK's own are rejected": (
        *("ssl.provider", "ssl.trustmanager.algorithm"),
    ),
    "kinit is not called: a key tab is used again, a ticket cache is read again": (
        *("sasl.kerberos.kinit.cmd", "sasl.kerberos.ticket.renew.window.factor"),
        "sasl.kerberos.ticket.renew.jitter",
    ),
    "a host name is looked up again until kafka.max.block.ms is over": (
        "bootstrap.resolve.timeout.ms",
    ),
    "pages of kafka.buffer.memory take memory when rows fill them, as incremental": (
        "buffer.memory.allocation.strategy",
    ),
    "what it sets is how brokers check tokens": (
        "sasl.oauthbearer.allow.unverified.audience",
        "sasl.oauthbearer.allow.unverified.issuer",
        *("sasl.oauthbearer.clock.skew.seconds", "sasl.oauthbearer.expected.audience"),
        *("sasl.oauthbearer.expected.issuer", "sasl.oauthbearer.jwks.endpoint.url"),
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
    ),
    "it is a consumer's option, and this is a writer": _CONSUMER_KEYS,
    "it is an option of admin clients, and this is a writer": ("bootstrap.controllers",),
}
_PARTS_OF_THE_JDK = {
    "ssl.provider": ("", "sunjsse"),
    "ssl.trustmanager.algorithm": ("pkix", "sunx509", "x509"),
}
"""Keys without effect that may restrict -> values, in lower case, that restrict nothing: the JDK's
own. Other values choose parts that may allow less, such as FIPS or a trust manager of a company."""
KEYS_WITHOUT_EFFECT = {name: reason for reason, names in _REASONS.items() for name in names}

_PEM_KEY_STORE = (
    "kafka.ssl.keystore.location, one PEM file with the private key and the certificate chain, or "
    "kafka.ssl.keystore.key and kafka.ssl.keystore.certificate.chain, PEM texts such as "
    "${dir:/run/secrets/kafka:tls.key}"
)
_IN_JAAS = "kafka.sasl.jaas.config with Krb5LoginModule"

LIBRDKAFKA_KEYS = {
    "sasl.mechanisms": "kafka.sasl.mechanism",
    "ssl.ca.location": "kafka.ssl.truststore.location, which takes PEM files, too",
    "ssl.ca.pem": "kafka.ssl.truststore.certificates",
    "ssl.crl.location": "leave it out; as in Java, certificates are not looked up in revocation "
    "lists",
    "ssl.certificate.location": _PEM_KEY_STORE,
    "ssl.key.location": _PEM_KEY_STORE,
    "ssl.certificate.pem": "kafka.ssl.keystore.certificate.chain, with kafka.ssl.keystore.key",
    "ssl.key.pem": "kafka.ssl.keystore.key, with kafka.ssl.keystore.certificate.chain",
    "enable.ssl.certificate.verification": "a trust store with the brokers' authority, "
    "kafka.ssl.truststore.location; certificates are always checked",
    "sasl.kerberos.principal": f"principal in {_IN_JAAS}",
    "sasl.kerberos.keytab": f"useKeyTab and keyTab in {_IN_JAAS}",
    "sasl.oauthbearer.client.id": "kafka.sasl.oauthbearer.client.credentials.client.id",
    "sasl.oauthbearer.client.secret": "kafka.sasl.oauthbearer.client.credentials.client.secret",
    "sasl.oauthbearer.extensions": 'extension_<name>="value" in kafka.sasl.jaas.config',
    "sasl.oauthbearer.method": "kafka.sasl.oauthbearer.token.endpoint.url: with it, tokens are "
    "fetched as by method oidc",
}
"""Key of librdkafka, without ``kafka.`` -> the options of Java that replace it."""

OTHER_NAMES = {
    "sasl.enabled.mechanisms": "kafka.sasl.mechanism",
    **dict.fromkeys(
        ("ssl.ca.cert", "ssl.ca.file", "ssl.cafile"), LIBRDKAFKA_KEYS["ssl.ca.location"]
    ),
    **dict.fromkeys(
        ("ssl.truststore", "ssl.truststore.file", "ssl.truststore.path"),
        "kafka.ssl.truststore.location",
    ),
    **dict.fromkeys(
        ("ssl.keystore", "ssl.keystore.file", "ssl.keystore.path"), "kafka.ssl.keystore.location"
    ),
}
"""Key of a broker or of another tool, written by mistake -> the option that replaces it."""


PASSED_BY_SPARK = (
    *("checkpointlocation", "path", "queryname", "outputmode", "asyncprogresstrackingenabled"),
    "asyncprogresstrackingcheckpointintervalms",
    "_asyncprogresstrackingoverridesinksupportcheck",
)
"""Options that Spark adds to a writer's options or reads from them; this sink accepts them."""

# In lower case, names of to_json, to_avro, to_protobuf and Confluent's serializers for which
# ``_format_option_for`` has no rule.
_FOREIGN_FORMAT_NAMES = {
    "use.latest.schema": "use.latest.version",
    "format": "value.format",
    "columns": "value.columns",
    "avroschema": "value.avro.schema",
    "jsonformatschema": "value.avro.schema",
    "recordname": "avro.record.name",
    "recordnamespace": "avro.namespace",
    "timestampformat": "value.json.timestampFormat",
    "timestampntzformat": "value.json.timestampNTZFormat",
    "dateformat": "value.json.dateFormat",
    "timezone": "value.json.timeZone",
    "ignorenullfields": "value.json.ignoreNullFields",
    "messagename": "value.protobuf.message",
    "descfilepath": "value.protobuf.descriptor.file",
}
_SHOWN = (shown.rpartition(".")[2] for shown in _FOREIGN_FORMAT_NAMES.values())
_SPELLINGS = {name.lower(): name for name in _SHOWN}
_FORMAT_OPTION_NAMES = [key.name for key in (*FORMAT_KEYS, *REGISTRY_KEYS)]
# Prefixes that users omit from the names of format and registry options.
_OMITTED_PREFIXES = ("schema.registry", "schema", "value.json", "value", "use", "auto", "key")

# Only this sink has options that begin so: no unknown one is for Spark or another sink.
_OWN_PREFIXES = ("value.", "key.", "schema.registry.")
# Except these of Kafka's clients, which Spark's JVM sink ignores without "kafka.".
_IGNORED = frozenset(f"{part}.{kind}serializer" for part in ("key", "value") for kind in ("", "de"))

# Options of former versions that restrict: without effect, they would allow what they forbid.
_REMOVED = {
    "max.records.per.second": "Instead: max.bytes.per.second.per.task, or a quota of the brokers.",
    "pause.path": "To pause a query, stop it and start it again with its checkpoint.",
    "transaction.log.missing": "Instead: transaction.accept=missing-record for the value accept. "
    "For refuse, leave it out.",
    "transaction.log.min.isr": "The sink creates the topic with 2, or with 1 if it has one "
    "replica. For more, set min.insync.replicas of transaction.log.topic.",
}

# Kafka's keys that have an effect here.
_SUPPORTED_KEYS = {**PRODUCER_CONFIG.keys, **SECURITY_CONFIG.keys}
_REJECTED_WITH_ADVICE = [*JAVA_CLASS_KEYS, *LIBRDKAFKA_KEYS]

# No option of Spark's other sinks and sources is as similar to an option of this sink.
_SIMILARITY = 0.8
# A name whose length differs more is another option, or one of Confluent's, see
# ``_format_option_for``.
_MAX_LENGTH_DIFFERENCE = 3


def rejection_reason(name: str, parts: Sequence[str] = ()) -> str | None:
    """Return why an option of this name, in lower case, is rejected; None if it is accepted.

    parts: "value" and "key" if their format is set
    """
    if name.startswith(KAFKA_PREFIX):
        return _rejection_of_kafka_key(name.removeprefix(KAFKA_PREFIX))
    if name in SINK_OPTIONS.keys or name in PASSED_BY_SPARK:
        return None
    # Ignoring this option would send data unencrypted.
    if name.startswith("databricks.servicecredential"):
        problem = (
            f"option '{name}' is one of Databricks' own Kafka connector, and gives no credentials "
            "here. Set kafka.security.protocol, kafka.sasl.mechanism and what belongs to them: "
            f"{RECIPES} has recipes"
        )
        return coded(problem, "OPTION-017")
    problem = f"option '{name}' is not one of this sink's."
    if name in _REMOVED:
        return f"{problem} {_REMOVED[name]}"
    is_own = name.startswith(_OWN_PREFIXES) and name not in _IGNORED
    searched = parts or (("value",) if is_own else ())
    closest = (_format_option_for(name, searched) if searched else None) or closest_option(name)
    if closest is None and is_own:
        prefix = next(prefix for prefix in _OWN_PREFIXES if name.startswith(prefix))
        candidates = [option for option in _FORMAT_OPTION_NAMES if option.startswith(prefix)]
        matches = difflib.get_close_matches(name, candidates, n=1, cutoff=0.6)
        closest = _as_written(matches[0]) if matches else None
    if closest is not None:
        return f"{problem} {answer(closest)}"
    return f"{problem} See docs/options.md (pykafka-sink docs options)." if is_own else None


def is_unknown(name: str) -> bool:
    """Return True if an accepted option is neither this sink's nor a known option of Spark."""
    return not (
        name.startswith(KAFKA_PREFIX) or name in SINK_OPTIONS.keys or name in PASSED_BY_SPARK
    )


def answer(closest: str) -> str:
    """Return advice to write ``closest``, or its replacement if ``closest`` itself is rejected."""
    instead = LIBRDKAFKA_KEYS.get(closest.removeprefix(KAFKA_PREFIX))
    return f"Did you mean '{closest}'?" if instead is None else f"Instead: {instead}."


def _rejection_of_kafka_key(key: str) -> str | None:
    if key in _SUPPORTED_KEYS or key in KEYS_WITHOUT_EFFECT or is_config_provider_key(key):
        return None
    if key in UNSUPPORTED_KEYS:
        return coded(UNSUPPORTED_KEYS[key], "OPTION-015")
    for replacements, problem, code in (
        (JAVA_CLASS_KEYS, "names a Java class, and there is no JVM here", "OPTION-006"),
        (
            LIBRDKAFKA_KEYS,
            "is librdkafka's, and this sink has the options of Kafka's Java client",
            "OPTION-007",
        ),
        (OTHER_NAMES, "is not a producer option of this sink", ""),
    ):
        if key in replacements:
            instead = replacements[key]
            return coded(f"Kafka option 'kafka.{key}' {problem}. Instead: {instead}.", code)
    problem = f"Kafka option 'kafka.{key}' is not a producer option of this sink."
    sink_option = key if key in SINK_OPTIONS.keys else _format_option_for(key)
    if sink_option is not None:
        return f"{problem} Did you mean '{sink_option}'?"
    closest = PRODUCER_CONFIG.closest_name(
        key, [*SECURITY_CONFIG.keys, *_REJECTED_WITH_ADVICE, *KEYS_WITHOUT_EFFECT]
    )
    if closest is None:
        return f"{problem} See docs/options.md (pykafka-sink docs options)."
    return f"{problem} {answer(KAFKA_PREFIX + closest)}"


def _format_option_for(name: str, parts: Sequence[str] = ("value",)) -> str | None:
    """Return the format or registry option that others call ``name``, in lower case, or None."""
    found = _FOREIGN_FORMAT_NAMES.get(name)
    if found is None and "." in name and not name.endswith("timeout.ms"):
        completed = (f"{head}.{name}" for head in _OMITTED_PREFIXES)
        found = next((option for option in completed if option in _FORMAT_OPTION_NAMES), None)
        if found is None:
            endings = (option for option in _FORMAT_OPTION_NAMES if name.endswith(f".{option}"))
            found = max(endings, key=len, default=None)
        last = name.rpartition(".")[2]
        if found is None and name.partition(".")[0] in ("value", "key", "json", "avro"):
            found = _FOREIGN_FORMAT_NAMES.get(last)
    if found is None:
        return None
    found = _as_written(found)
    if "value" not in parts or name.startswith("key."):
        found = "key.use.schema.id" if found == "use.schema.id" else found
        found = "key." + found.removeprefix("value.") if found.startswith("value.") else found
    return found


def _as_written(option: str) -> str:
    """Return the name of a format option with Spark's capitals."""
    head, dot, last = option.rpartition(".")
    return f"{head}{dot}{_SPELLINGS.get(last, last)}"


def closest_option(name: str) -> str | None:
    """Return the option that ``name``, in lower case, misspells; None if no option resembles it.

    A producer option without its prefix ``kafka.`` counts as a misspelling. So does the beginning
    of an option of the sink up to a dot: ``metrics``, ``transactional.id``.
    """
    if name == "partitioncolumn":  # of Spark's JDBC source
        return None
    for option in SINK_OPTIONS.keys:
        if option.startswith(f"{name}."):
            return option
    candidates = {name: name for name in SINK_OPTIONS.keys}
    for key in _SUPPORTED_KEYS.values():
        candidates.setdefault(key.name, key.full_name)
        candidates.setdefault(key.full_name, key.full_name)
    for rejected in _REJECTED_WITH_ADVICE:
        candidates.setdefault(rejected, KAFKA_PREFIX + rejected)
    similar_lengths = [c for c in candidates if abs(len(c) - len(name)) <= _MAX_LENGTH_DIFFERENCE]
    matches = difflib.get_close_matches(name, similar_lengths, n=1, cutoff=_SIMILARITY)
    return candidates[matches[0]] if matches else None


UNIX_SOCKETS = "spark.python.unix.domain.socket.enabled"
"""Spark's setting, since 4.1: its JVM and Python workers exchange rows by Unix domain sockets."""

_EXACTLY_ONCE_OPTION = "delivery.guarantee=exactly-once"
# Kafka's limit of a transactional id is 32,767 bytes, with what the sink appends to the prefix.
_MOST_PREFIX_BYTES = 32_000
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
    write_query_id: of the query whose micro-batch that write is, if Spark reports it
    dead_letters: None unless errors.tolerance is all
    formats: None if no format option is set; registry: None if no schema id is written
    notes: sentences about options without effect, for the log
    topics_plan: what the driver's check has found of the topics; None before that check
    written_columns: for lineage, name and type of the columns in records; empty without lineage
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
    topics_plan: TopicsPlan | None = None
    write_query_id: str | None = None
    written_columns: tuple[tuple[str, str], ...] = ()

    @property
    def needs_producer_ids(self) -> bool:
        """Return True if tasks ask for producer ids outside of transactions."""
        return self.producer.enable_idempotence and self.exactly_once is None

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> SinkOptions:
        """Parse Spark's options. Raises ConfigError, with the JVM sink's message if it has one."""
        lowered = {name.lower(): value for name, value in options.items()}
        kafka = _kafka_options(lowered)
        own_names = (name for name in lowered if not name.startswith(KAFKA_PREFIX))
        _check_names([*(KAFKA_PREFIX + key for key in kafka), *own_names])
        own_options = {name: value for name, value in lowered.items() if name in SINK_OPTIONS.keys}
        own_options = by_config_providers(kafka, own_options)
        sink = SINK_OPTIONS.parse(own_options)
        _check_parts_of_a_jvm(kafka)
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
                *notes_on_security(kafka, producer.security),
                *((warning_about_shown_secrets(shown_secrets),) if shown_secrets else ()),
                *(notes_on_registry(registry, formats) if registry and formats else ()),
                *notes_on_metrics(outputs),
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


def _check_parts_of_a_jvm(kafka: Mapping[str, str]) -> None:
    """Raise ConfigError for a part of a JVM that may restrict whom or what TLS accepts."""
    for key, harmless in _PARTS_OF_THE_JDK.items():
        if kafka.get(key, harmless[0]).strip().lower() not in harmless:
            raise ConfigError(
                f"Invalid value {kafka[key]} for configuration kafka.{key}: it chooses a part of a "
                "JVM, there is none here, and ignoring it might allow what it forbids: leave it "
                "out. TLS is OpenSSL's: kafka.ssl.protocol and kafka.ssl.cipher.suites restrict "
                "it, and so does OpenSSL's own configuration on each machine",
                code="OPTION-006",
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
            "of this write",
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
    _check_template(prefix)
    _check_decision_log(sink)
    return ExactlyOnceConfig(
        prefix,
        producer.transaction_timeout_ms,
        sink["transaction_log_topic"],
        sink["transaction_log_replication_factor"],
        accepts_missing_record=sink["transaction_accept"] == ACCEPT_MISSING_RECORD,
        drops_replays=sink["transaction_replay"] == "drop",
        accepts_new_query=sink["transaction_accept"] == ACCEPT_NEW_QUERY,
    )


def _check_template(prefix: str) -> None:
    """Raise ConfigError for a prefix that users may not write; it may have ``{query}``."""
    rest = prefix.replace(QUERY_PLACE, "")
    if "{" in rest or "}" in rest:
        reason = f"has a brace, and only {QUERY_PLACE}, the query's name, is replaced"
    elif prefix.startswith(QUERY_PLACE):
        reason = (
            "begins with {query}: put a name of your own before it, such as orders-{query}, for "
            "which one rule of an ACL allows the ids of all queries"
        )
    else:
        _check_prefix(prefix)
        return
    raise ConfigError(f"transactional.id.prefix {prefix!r} {reason}", code="TXN-038")


def _check_prefix(prefix: str) -> None:
    """Raise ConfigError if a transactional id and its ACL cannot begin with ``prefix``.

    Brokers take any text. But the log, the commands and the rule of an ACL are lines of text: a
    control character breaks a line, and a space at its end cannot be seen.
    """
    size = len(prefix.encode(errors="replace"))
    if not prefix.isprintable():
        reason = f"{prefix!r} has a character that cannot be printed"
    elif prefix != prefix.strip():
        reason = f"{prefix!r} begins or ends with a space"
    elif size > _MOST_PREFIX_BYTES:
        reason = f"has {size} bytes, and Kafka takes {_MOST_PREFIX_BYTES}"
    else:
        return
    advice = "choose letters, digits, '.', '_' and '-', also for the names of queries and flows"
    raise ConfigError(f"transactional.id.prefix {reason}: {advice}", code="TXN-038")


def with_query_name(options: SinkOptions, name: str | None, advice: str) -> SinkOptions:
    """Return the options with the query's name for ``{query}`` in ``transactional.id.prefix``.

    name: None or "" if the write has no name
    advice: what to do about that, as the end of a sentence

    Raises ConfigError without a name, and for a name that a transactional id cannot hold.
    """
    exactly_once = options.exactly_once
    if exactly_once is None or QUERY_PLACE not in exactly_once.prefix:
        return options
    if not name:
        raise ConfigError(
            f"transactional.id.prefix '{exactly_once.prefix}' needs the name of a query, and "
            f"{advice}",
            code="TXN-037",
        )
    prefix = exactly_once.prefix.replace(QUERY_PLACE, name)
    _check_prefix(prefix)
    return replace(options, exactly_once=exactly_once._replace(prefix=prefix))


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
        _check_parts_of_a_jvm({name: value for name, value, _ in properties})
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
    for note in notes_on_security(values, producer.security):
        yield f"{path}: {_without_prefix(note)}"


def _in_file(message: str, path: str, lines: Mapping[str, int]) -> str:
    """Return ``message`` with file and line of the first option that it names."""
    named = [match[1] for match in _FULL_NAME.finditer(message) if match[1] in lines]
    where = f"{path}, line {lines[named[0]]}" if named else path
    return f"{where}: {_without_prefix(message)}"


def _without_prefix(message: str) -> str:
    return _FULL_NAME.sub(lambda match: match[1], message)
