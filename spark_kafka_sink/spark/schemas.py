"""Find or register the registry's schemas of keys and values before the first task.

The plan of the rows takes the ids to the tasks; tasks never ask a registry.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from spark_kafka_sink.base.errors import ConfigError, SchemaError
from spark_kafka_sink.config.formats import AVRO, HEADER, JSON, PROTOBUF, FormatOptions, PartOptions
from spark_kafka_sink.config.registry import RECORD_NAME, RegistryOptions, SchemaOptions
from spark_kafka_sink.formats.avro_schema import has_field
from spark_kafka_sink.formats.plan import FormatError, PartPlan, RowsPlan
from spark_kafka_sink.registry.client import Schema
from spark_kafka_sink.registry.schemas import (
    Remembered,
    SchemaFile,
    Wanted,
    check_subjects,
    find,
    header_of,
    prefix_of,
)
from spark_kafka_sink.spark.format_schemas import check_json_fits, title_of
from spark_kafka_sink.spark.row_planning import PlannedRows, positions_of

if TYPE_CHECKING:
    from spark_kafka_sink.config.sink_options import SinkOptions
    from spark_kafka_sink.formats.plan import ProtobufSchema


def with_schemas(
    rows: PlannedRows,
    options: SinkOptions,
    owner: int | None = None,
    is_stream: bool = False,
    query: str | None = None,
) -> PlannedRows:
    """Return ``rows`` with the registry's current schemas and notes.

    owner: for a stream, the process at whose end kept answers of a registry are deleted
    is_stream: a micro-batch, whose query may have asked recently
    query: identity of a micro-batch's query

    Raises RegistryError, SchemaError for columns that do not fit a registry's schema.
    """
    formats, registry = options.formats, options.registry
    if formats is None or registry is None:
        return rows
    plan = _plan_of(rows)
    headers: list[tuple[str, bytes]] = []
    notes = list(rows.notes)
    remembered = None if owner is None else Remembered(owner)
    ask = partial(find, remembered=remembered, is_stream=is_stream, query=query)
    parts = {"value": plan.value, "key": plan.key}
    for part, made, wanted in _all_wanted(formats, registry, parts, options.topic):
        schema = _told(registry, wanted, ask)
        if part.has_fields:
            notes += _compared(part, made, schema, wanted.options)
            made = _of_schema(part, made, schema, wanted.options)
        indexes = _indexes_of(made)
        if part.id_location == HEADER:
            headers.append(header_of(part.part, schema, indexes))
        else:
            made = _with_prefix(made, prefix_of(schema, indexes))
        parts[part.part] = made
    value = parts["value"]
    assert value is not None
    plan = plan._replace(value=value, key=parts["key"], headers=tuple(headers))
    positions = positions_of(plan, options.topic)
    return rows._replace(plan=plan, positions=positions, notes=tuple(notes))


def _told(registry: RegistryOptions, wanted: Wanted, ask: Callable[..., Schema]) -> Schema:
    if registry.config is None:  # an id without a registry
        if wanted.is_behind_map:
            raise ConfigError(
                f"{wanted.part}.protobuf.message={wanted.record}: where it is among the messages "
                "of the schema depends on how the registry has written it, for a map stands "
                "before it: set schema.registry.url"
            )
        return Schema(wanted.options.schema_id, "", wanted.kind)
    return ask(registry.config, wanted)


def _plan_of(rows: PlannedRows) -> RowsPlan:
    """Return the plan of the rows; build one if Spark's columns are appended unchanged."""
    if rows.plan is not None:
        return rows.plan
    found = rows.positions
    kept = {
        "topic": found.topic,
        "partition": found.partition,
        "headers": found.headers,
        "timestamp": found.timestamp,
    }
    return RowsPlan(
        PartPlan(found.value),
        None if found.key is None else PartPlan(found.key),
        tuple((part, number) for part, number in kept.items() if number is not None),
    )


def _all_wanted(
    formats: FormatOptions,
    registry: RegistryOptions,
    parts: Mapping[str, PartPlan | None],
    topic: str | None,
) -> list[tuple[PartOptions, PartPlan, Wanted]]:
    """Return the schema requests of value and key, as far as needed. Raises ConfigError."""
    found = []
    for part, asked in ((formats.value, registry.value), (formats.key, registry.key)):
        made = parts[part.part]
        if asked is not None and made is not None:
            _check_named(part, asked, formats.is_record_name_set)
            found.append((part, made, _wanted(part, asked, made, topic)))
    check_subjects(wanted for _, _, wanted in found)
    return found


def _check_named(part: PartOptions, asked: SchemaOptions, is_record_name_set: bool) -> None:
    """Raise ConfigError if the default name of a derived schema would be the subject.

    Schemas of unrelated columns would be versions of one subject.
    """
    is_given = part.avro_schema is not None or part.json_schema is not None
    if asked.strategy != RECORD_NAME or asked.schema_id is not None or is_given:
        return
    if part.format == JSON or (part.format == AVRO and not is_record_name_set):
        name = "avro.record.name"
        if part.format == JSON:
            name = (
                "use.schema.id"
                if asked.uses_latest_version
                else f"{part.part}.json.schema with a title"
            )
        raise ConfigError(
            f"{part.part}.subject.name.strategy={RECORD_NAME} with a schema that is derived from "
            f"columns needs {name}: the record's name is the subject, and all that are derived "
            "have the same one unless it is set"
        )


def _wanted(part: PartOptions, asked: SchemaOptions, made: PartPlan, topic: str | None) -> Wanted:
    if part.format == PROTOBUF:
        return _protobuf(part, asked, topic)
    text = None
    if made.plan is not None:
        text = made.plan.avro_schema or made.plan.json_schema
    # The text decides the subject and is registered; with an id, neither applies.
    shown = text if asked.schema_id is None else None
    wanted = Wanted(part.part, topic, shown, part.id_location, asked)
    wanted = wanted._replace(is_encoded=made.plan is None)
    if part.format == JSON:
        record = None if text is None else title_of(text)
        wanted = wanted._replace(kind="JSON", record=record)
    return wanted


def _protobuf(part: PartOptions, asked: SchemaOptions, topic: str | None) -> Wanted:
    wanted = Wanted(part.part, topic, None, part.id_location, asked, "PROTOBUF", part.message)
    if part.descriptor_file is None:
        return wanted
    from spark_kafka_sink.spark.format_schemas import described

    message = described(part)
    files = tuple(SchemaFile(*file) for file in message.files)
    wanted = wanted._replace(record=message.schema.root, text=files[-1].text, files=files)
    return wanted._replace(is_behind_map=message.is_behind_map)


def _compared(part: PartOptions, made: PartPlan, schema: Schema, asked: SchemaOptions) -> list[str]:
    """Compare JSON columns with the registry's schema, and return notes.

    Raises FormatError if the columns do not fit.
    """
    derived = made.plan.json_schema if made.plan is not None else None
    is_chosen = asked.uses_latest_version or asked.schema_id is not None
    if derived is None or not is_chosen or not asked.requires_all_columns or schema.kind != "JSON":
        return []
    if not schema.text:
        return []
    return check_json_fits(part.part, derived, schema.text, schema.files, asked.schema_id)


def _of_schema(part: PartOptions, made: PartPlan, schema: Schema, asked: SchemaOptions) -> PartPlan:
    """Return the part's plan with the registry's schema, if the options choose it."""
    plan = made.plan
    assert plan is not None
    made = made._replace(plan=replace(plan, json_schema=None))
    is_own = not asked.uses_latest_version and asked.schema_id is None
    if not schema.text or (is_own and not asked.references and part.format != PROTOBUF):
        return made
    if schema.kind != part.format.upper():
        raise SchemaError(
            f"{part.part}.format={part.format}: the registry's schema {schema.id} is of the kind "
            f"{schema.kind}"
        )
    if part.format == JSON:
        return made
    if part.format == PROTOBUF:
        message = _message(part, plan.protobuf_schema, schema)
        plan, has_column = replace(plan, protobuf_schema=message), message.has_field
    else:
        plan, has_column = replace(plan, avro_schema=schema.text), partial(has_field, schema.text)
    if not is_own and not asked.requires_all_columns:
        plan = replace(plan, fields=tuple(f for f in plan.fields if has_column(f.name)))
    elif not is_own and part.format != PROTOBUF:
        missing = [f.name for f in plan.fields if not has_column(f.name)]
        if len(missing) < len(plan.fields):  # otherwise the schema may not be a record
            _check_fields(part, missing, schema, asked)
    return made._replace(plan=plan)


def _check_fields(
    part: PartOptions, missing: list[str], schema: Schema, asked: SchemaOptions
) -> None:
    """Raise FormatError for columns that a registry's Avro schema does not have."""
    if not missing:
        return
    version = "" if schema.version is None else f", version {schema.version} of its subject"
    strict = "latest" if asked.uses_latest_version else "id"
    raise FormatError(
        f"the registry's schema {schema.id}{version}, has no field for {missing}, columns of the "
        f"{part.part}: set {strict}.compatibility.strict=false to leave them out, or "
        f"{part.part}.columns to those that it has"
    )


def _message(part: PartOptions, described: ProtobufSchema | None, schema: Schema) -> ProtobufSchema:
    """Return the message to write, with its indexes in the registry's schema.

    described: the message of a descriptor file; None to use the registry's message

    Raises FormatError.
    """
    from spark_kafka_sink.formats.protobuf_descriptors import (
        check_installed,
        indexes_in,
        read_registered,
    )

    check_installed(f"{part.part}.format")
    try:
        if described is not None:
            return described._replace(indexes=indexes_in(schema.text, described.root))
        return read_registered(schema.text, schema.files, part.message).schema
    except FormatError as error:
        about = f"the registry's schema {schema.id} cannot be taken as it is: {error}"
        if described is not None:
            raise FormatError(about) from None
        raise FormatError(
            f"{about}. A registry that "
            "does not turn the text of .proto files into descriptors (format=serialized) needs "
            f"{part.part}.protobuf.descriptor.file and {part.part}.protobuf.message as well"
        ) from None


def _indexes_of(made: PartPlan) -> tuple[int, ...]:
    """Return the indexes of a Protobuf message in its file; (0,) for other formats."""
    if made.plan is None or made.plan.protobuf_schema is None:
        return (0,)
    return made.plan.protobuf_schema.indexes


def _with_prefix(made: PartPlan, prefix: bytes) -> PartPlan:
    if made.plan is None:
        return made._replace(prefix=prefix)
    return made._replace(plan=replace(made.plan, prefix=prefix))
