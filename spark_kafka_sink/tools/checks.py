"""All checks, in the order in which a job would meet the problems; here those of the rows' formats.

The columns of the rows are unknown here, so a given schema is compared with the registry's.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator

from spark_kafka_sink.base.clock import Clock
from spark_kafka_sink.base.codes import coded
from spark_kafka_sink.base.errors import ConfigError, KafkaSinkError
from spark_kafka_sink.client.admin import AdminClient
from spark_kafka_sink.config.formats import AVRO, JSON, PROTOBUF, PartOptions
from spark_kafka_sink.config.producer_config import ACKS_ALL, ProducerConfig
from spark_kafka_sink.config.registry import TOPIC_NAME, SchemaOptions
from spark_kafka_sink.config.sink_keys import NONE, MetricsOutputs
from spark_kafka_sink.config.sink_options import SinkOptions
from spark_kafka_sink.metrics.outputs import check_outputs
from spark_kafka_sink.registry.client import NOT_FOUND, RegistryClient, RegistryRefusedError, Schema
from spark_kafka_sink.registry.schemas import version_of
from spark_kafka_sink.security.security import Security
from spark_kafka_sink.tools import check_cluster
from spark_kafka_sink.tools.check_cluster import Finding, Outcome, failed, passed, unknown, warned


def formats(options: SinkOptions) -> Iterator[Finding]:
    """Yield only failures. Reads the files here, as the driver does."""
    if options.formats is None:
        return
    for part in (options.formats.value, options.formats.key):
        try:
            _check_format(part)
        except KafkaSinkError as error:
            yield failed(f"{part.part}.format={part.format}", str(error))


def _check_format(part: PartOptions) -> None:
    # Import here, because numpy is needed only for options of formats.
    from spark_kafka_sink.formats.plan import JsonOptions
    from spark_kafka_sink.formats.times import patterns_of
    from spark_kafka_sink.spark.format_schemas import described, read_user_schema

    if part.format == AVRO and part.avro_schema is not None:
        read_user_schema(part.avro_schema, f"{part.part}.avro.schema")
    elif part.format == PROTOBUF and part.descriptor_file is not None:
        described(part)
    elif part.format == JSON:
        if part.has_id and part.json_schema is not None:
            read_user_schema(part.json_schema, f"{part.part}.json.schema")
        text = part.json
        zone, patterns = text.time_zone or "UTC", (text.timestamp_format, text.timestamp_ntz_format)
        json = JsonOptions(text.ignore_null_fields, zone, *patterns, text.date_format)
        patterns_of(json, f"{part.part}.json.")


# --- schema registry -----------------------------------------------------------------------------


def schemas(options: SinkOptions) -> Iterator[Finding]:
    """Check the registry, if the options name one. Registers nothing."""
    formats, registry = options.formats, options.registry
    if formats is None or registry is None or registry.config is None:
        return
    try:
        client = RegistryClient(registry.config)
        for part, asked in ((formats.value, registry.value), (formats.key, registry.key)):
            if asked is not None:
                yield from _schema(client, part, asked, options.topic)
    except KafkaSinkError as error:
        yield failed("schema registry", str(error))


def _schema(
    client: RegistryClient, part: PartOptions, asked: SchemaOptions, topic: str | None
) -> Iterator[Finding]:
    what = f"schema of {part.part}s"
    if asked.schema_id is not None:
        found = client.by_id(asked.schema_id)
        yield passed(what, f"{found.kind}, of id {asked.schema_id}")
        return
    if asked.strategy != TOPIC_NAME or not topic:
        # Check at least that the registry accepts the credentials.
        client.check_answers()
        yield passed("schema registry", f"{client.name} answers; subjects follow from columns")
        return
    subject = f"{topic}-{part.part}"
    missing, metadata = " with these metadata" if asked.metadata else "", asked.metadata
    try:
        found = client.with_metadata(subject, metadata) if metadata else client.version(subject)
    except RegistryRefusedError as refusal:
        if refusal.number not in NOT_FOUND:
            raise
        if asked.registers_schema:
            yield passed(what, f"subject '{subject}' is not there, and will be registered")
        else:
            yield failed(
                what,
                f"subject '{subject}'{missing} is not there",
                "register its schema, or leave auto.register.schemas and use.latest.* out",
            )
        return
    yield passed(what, f"subject '{subject}' has version {found.version}, of id {found.id}")
    yield from _given_schema(client, part, subject, asked)


def _given_schema(
    client: RegistryClient, part: PartOptions, subject: str, asked: SchemaOptions
) -> Iterator[Finding]:
    """Check that the registry would accept a schema in the options."""
    user_schema = part.avro_schema
    if user_schema is None or user_schema.is_file or not asked.registers_schema:
        return
    references = tuple(version_of(client, one) for one in asked.references)
    reasons = client.is_compatible(subject, Schema(None, user_schema.text, references=references))
    if reasons is None:
        yield passed(f"{part.part}.avro.schema", f"fits the versions of subject '{subject}'")
    else:
        yield warned(
            f"{part.part}.avro.schema",
            f"is not compatible with subject '{subject}': {'; '.join(reasons)}",
            "change it, or the subject's compatibility",
        )


def _metrics_outputs(outputs: MetricsOutputs) -> Iterator[Finding]:
    """Check the outputs besides the log, if any. Sends nothing to them."""
    places = {
        "metrics.path": outputs.path,
        "metrics.prometheus.push.url": outputs.push_url,
        "metrics.otlp": outputs.otlp,
    }
    names = [name for name, place in places.items() if place is not None]
    if not names:
        return
    try:
        check_outputs(outputs)
    except ConfigError as error:
        yield failed("metrics", str(error))
    else:
        yield passed("metrics", f"{', '.join(names)}: as far as can be known before there are any")


def all_checks(options: SinkOptions, writes: bool, time: Clock) -> Iterator[Finding]:
    """Yield findings as they come. ``writes``: also write one test record.

    Each wait takes at most ``preflight.timeout.ms``. A failure that makes all later checks
    impossible ends them.
    """
    config, timeout_ms = options.producer, options.preflight_timeout_ms
    yield passed("options", _effective_options(options))
    for note in options.notes:
        yield warned("options", coded(note, "OPTION-018"))
    yield from _metrics_outputs(options.metrics)
    yield from formats(options)
    yield from schemas(options)
    hosts = [host for host, _ in config.bootstrap_servers]
    try:
        Security.of(config.security).prepare(timeout_ms, hosts)
        admin = AdminClient.of(config, time, timeout_ms)
        admin.gives_up_on_other_protocols = True
    except KafkaSinkError as error:
        yield failed("login", str(error))
        return
    with admin:
        reached = yield from _reach(admin, options)
        if not reached:
            return
        yield from cluster_checks(admin, options, time)
    if writes and options.topic is not None:
        yield from check_cluster.write_record(config, options.topic, time)


def _reach(admin: AdminClient, options: SinkOptions) -> Generator[Finding, None, bool]:
    """Yield findings; return True if any address of the options leads to a cluster."""
    timeout_ms = options.preflight_timeout_ms
    security = options.producer.security
    for findings in (
        check_cluster.bootstrap_addresses(admin, security, timeout_ms),
        check_cluster.broker_addresses(admin, timeout_ms),
    ):
        found = list(findings)
        yield from found
        if not any(finding.outcome is Outcome.PASSED for finding in found):
            return False
    return True


def cluster_checks(admin: AdminClient, options: SinkOptions, time: Clock) -> Iterator[Finding]:
    """Yield a finding of each check, also of the checks after a broker has failed."""
    timeout_ms = options.preflight_timeout_ms
    yield from check_cluster.clock_difference(admin, time, timeout_ms)
    if options.topic is None:
        yield unknown("topic", "no option topic: the rows name theirs", "give one with --topic")
    else:
        yield from check_cluster.topic(admin, options.topic, options.producer, timeout_ms)
        yield from check_cluster.permissions_on_topic(admin, options.topic, ("WRITE",), timeout_ms)
    if options.dead_letters is not None:
        letters = options.dead_letters
        yield from check_cluster.dead_letters(admin, letters, options.producer, timeout_ms)
        yield from check_cluster.permissions_on_topic(admin, letters.topic, ("WRITE",), timeout_ms)
    if options.exactly_once is not None:
        yield from check_cluster.exactly_once(admin, options.exactly_once, timeout_ms)
    yield from _quotas(admin, options.producer, timeout_ms)


def _quotas(admin: AdminClient, config: ProducerConfig, timeout_ms: int) -> Iterator[Finding]:
    subject = "quotas"
    try:
        found = check_cluster.granted_quotas(admin, config, timeout_ms)
    except check_cluster.QuotaAccessDeniedError as error:
        yield unknown(subject, str(error), "it needs DESCRIBE_CONFIGS on the cluster")
    except KafkaSinkError as error:
        yield unknown(subject, f"not told: {error}")
    else:
        for quota in found:
            values = (f"{name}={value:g}" for name, value in quota.values.items())
            yield warned(f"quota of {quota.entity}", ", ".join(values))
        if not found:
            yield passed(subject, f"none for kafka.client.id {config.client_id}")


def _effective_options(options: SinkOptions) -> str:
    """Return the effective options by name."""
    config, guarantee = options.producer, options.delivery_guarantee
    guarantee = "delivery.guarantee=none" if guarantee == NONE else guarantee
    acks = "all" if config.acks == ACKS_ALL else str(config.acks)
    idempotence = str(config.enable_idempotence).lower()
    return (
        f"{guarantee}, kafka.acks={acks}, kafka.enable.idempotence={idempotence}, "
        f"kafka.compression.type={config.compression_type}"
    )
