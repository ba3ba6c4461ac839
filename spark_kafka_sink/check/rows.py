"""Checks of the rows' formats: schemas, messages, patterns of times, and the registry.

The columns of the rows are unknown here, so a given schema is compared with the registry's.
"""

from __future__ import annotations

from collections.abc import Iterator

from spark_kafka_sink.base.errors import KafkaSinkError
from spark_kafka_sink.check.finding import Finding, failed, passed, warned
from spark_kafka_sink.config.formats import AVRO, JSON, PROTOBUF, GivenSchema, PartOptions
from spark_kafka_sink.config.registry import TOPIC_NAME, SchemaOptions
from spark_kafka_sink.config.sink_options import SinkOptions
from spark_kafka_sink.registry.client import NOT_FOUND, RegistryClient, RegistryRefusedError, Schema
from spark_kafka_sink.registry.schemas import version_of


def formats(options: SinkOptions) -> Iterator[Finding]:
    """Yield only failures. Reads the files here, as the driver does."""
    if options.formats is None:
        return
    looks = {AVRO: _avro, JSON: _json, PROTOBUF: _protobuf}
    for part in (options.formats.value, options.formats.key):
        look = looks.get(part.format)
        if look is None:
            continue
        try:
            look(part)
        except KafkaSinkError as error:
            yield failed(f"{part.part}.format={part.format}", str(error))


def _avro(part: PartOptions) -> None:
    _given(part.avro_schema, f"{part.part}.avro.schema")


def _given(schema: GivenSchema | None, option: str) -> None:
    from spark_kafka_sink.spark.format_schemas import given_schema

    if schema is not None:
        given_schema(schema, option)


def _json(part: PartOptions) -> None:
    # Import here, because numpy is needed only for options of JSON.
    from spark_kafka_sink.formats.plan import JsonOptions
    from spark_kafka_sink.formats.times import patterns_of

    if part.has_id:
        _given(part.json_schema, f"{part.part}.json.schema")
    text = part.json
    patterns_of(
        JsonOptions(
            text.ignore_null_fields,
            text.time_zone or "UTC",
            text.timestamp_format,
            text.timestamp_ntz_format,
            text.date_format,
        ),
        f"{part.part}.json.",
    )


def _protobuf(part: PartOptions) -> None:
    if part.descriptor_file is not None:
        from spark_kafka_sink.spark.format_schemas import described

        described(part)


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
    missing = " with these metadata" if asked.metadata else ""
    try:
        found = (
            client.with_metadata(subject, asked.metadata)
            if asked.metadata
            else client.version(subject)
        )
    except RegistryRefusedError as refusal:
        if refusal.code not in NOT_FOUND:
            raise
        if asked.is_registered:
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
    given = part.avro_schema
    if given is None or given.is_file or not asked.is_registered:
        return
    references = tuple(version_of(client, one) for one in asked.references)
    why = client.is_compatible(subject, Schema(None, given.text, references=references))
    if why is None:
        yield passed(f"{part.part}.avro.schema", f"fits the versions of subject '{subject}'")
    else:
        yield warned(
            f"{part.part}.avro.schema",
            f"is not compatible with subject '{subject}': {'; '.join(why)}",
            "change it, or the subject's compatibility",
        )
