"""What a job needs of a schema registry. Columns are not known here: a given schema is compared."""

from __future__ import annotations

from collections.abc import Iterator

from spark_kafka_sink.base.errors import KafkaSinkError
from spark_kafka_sink.check.finding import Finding, failed, passed, warned
from spark_kafka_sink.config.formats import PartOptions
from spark_kafka_sink.config.registry import SchemaOptions
from spark_kafka_sink.config.registry_keys import TOPIC_NAME
from spark_kafka_sink.config.sink_options import SinkOptions
from spark_kafka_sink.registry.answers import Schema
from spark_kafka_sink.registry.client import RegistryClient
from spark_kafka_sink.registry.errors import NOT_FOUND, RegistryRefusedError
from spark_kafka_sink.registry.schemas import version_of


def schemas(options: SinkOptions) -> Iterator[Finding]:
    """Nothing without a registry. Nothing is registered."""
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
        # What is asked for anyway: whether the registry answers these credentials.
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
    yield from _given(client, part, subject, asked)


def _given(
    client: RegistryClient, part: PartOptions, subject: str, asked: SchemaOptions
) -> Iterator[Finding]:
    """Of a schema that the options have, whether the registry would take it."""
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
