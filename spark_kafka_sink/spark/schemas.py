"""Find or register the registry's schemas of keys and values before the first task.

``registry/schemas.py`` asks the registry, and caches its answers. The plan of the rows takes the
ids to the tasks; tasks never ask a registry.
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
from spark_kafka_sink.formats.json_schema import check_json_fits, described, title_of
from spark_kafka_sink.formats.plan import FormatError, PartSpec, RowSpec
from spark_kafka_sink.registry.client import Schema
from spark_kafka_sink.registry.schemas import (
    SchemaCache,
    SchemaRequest,
    check_subjects,
    find,
    schema_id_header,
    schema_id_prefix,
)
from spark_kafka_sink.spark.row_planning import InputLayout, positions_of

if TYPE_CHECKING:
    from spark_kafka_sink.config.sink_options import SinkOptions
    from spark_kafka_sink.formats.plan import ProtobufSchema


def with_schemas(
    rows: InputLayout,
    options: SinkOptions,
    owner: int | None = None,
    is_stream: bool = False,
    query: str | None = None,
) -> InputLayout:
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
    notes = list(rows.notes)
    cache = None if owner is None else SchemaCache(owner)
    ask = partial(find, cache=cache, is_stream=is_stream, query=query)
    parts = {"value": plan.value, "key": plan.key}
    for part, part_plan, request in _schema_requests(formats, registry, parts, options.topic):
        schema = _registry_schema(registry, request, ask)
        if part.has_fields:
            notes += _compatibility_notes(part, part_plan, schema, request.options)
            part_plan = _with_registry_schema(part, part_plan, schema, request.options)
        indexes = _indexes_of(part_plan)
        if part.id_location == HEADER:
            header = schema_id_header(part.part, schema, indexes)
            part_plan = part_plan._replace(header=header)
        else:
            part_plan = _with_prefix(part_plan, schema_id_prefix(schema, indexes))
        parts[part.part] = part_plan
    value = parts["value"]
    assert value is not None
    plan = plan._replace(value=value, key=parts["key"])
    positions = positions_of(plan, options.topic)
    return rows._replace(plan=plan, positions=positions, notes=tuple(notes))


def _registry_schema(
    registry: RegistryOptions, request: SchemaRequest, ask: Callable[..., Schema]
) -> Schema:
    if registry.config is None:  # an id without a registry
        if request.follows_map:
            raise ConfigError(
                f"{request.part}.protobuf.message={request.record}: where it is among the messages "
                "of the schema depends on how the registry has written it, for a map stands "
                "before it: set schema.registry.url",
                code="REGISTRY-005",
            )
        return Schema(request.options.schema_id, "", request.kind)
    return ask(registry.config, request)


def _plan_of(rows: InputLayout) -> RowSpec:
    """Return the plan of the rows; build one if Spark's columns are appended unchanged."""
    if rows.plan is not None:
        return rows.plan
    positions = rows.positions
    kept = {
        "topic": positions.topic,
        "partition": positions.partition,
        "headers": positions.headers,
        "timestamp": positions.timestamp,
    }
    return RowSpec(
        PartSpec(positions.value),
        None if positions.key is None else PartSpec(positions.key),
        tuple((part, number) for part, number in kept.items() if number is not None),
    )


def _schema_requests(
    formats: FormatOptions,
    registry: RegistryOptions,
    parts: Mapping[str, PartSpec | None],
    topic: str | None,
) -> list[tuple[PartOptions, PartSpec, SchemaRequest]]:
    """Return the schema requests of value and key, as far as needed. Raises ConfigError."""
    requests = []
    for part, schema_options in ((formats.value, registry.value), (formats.key, registry.key)):
        part_plan = parts[part.part]
        if schema_options is not None and part_plan is not None:
            _check_named(part, schema_options, formats.is_record_name_set)
            requests.append(
                (part, part_plan, _schema_request(part, schema_options, part_plan, topic))
            )
    check_subjects(request for _, _, request in requests)
    return requests


def _check_named(
    part: PartOptions, schema_options: SchemaOptions, is_record_name_set: bool
) -> None:
    """Raise ConfigError if the default name of a derived schema would be the subject.

    Schemas of unrelated columns would be versions of one subject.
    """
    has_schema = part.avro_schema is not None or part.json_schema is not None
    if schema_options.strategy != RECORD_NAME or schema_options.schema_id is not None or has_schema:
        return
    if part.format == JSON or (part.format == AVRO and not is_record_name_set):
        name = "avro.record.name"
        if part.format == JSON:
            name = (
                "use.schema.id"
                if schema_options.uses_latest_version
                else f"{part.part}.json.schema with a title"
            )
        raise ConfigError(
            f"{part.part}.subject.name.strategy={RECORD_NAME} with a schema that is derived from "
            f"columns needs {name}: the record's name is the subject, and all that are derived "
            "have the same one unless it is set",
            code="REGISTRY-014",
        )


def _schema_request(
    part: PartOptions, schema_options: SchemaOptions, part_plan: PartSpec, topic: str | None
) -> SchemaRequest:
    if part.format == PROTOBUF:
        return _protobuf_request(part, schema_options, topic)
    text = None
    if part_plan.plan is not None:
        text = part_plan.plan.avro_schema or part_plan.plan.json_schema
    # The text decides the subject and is registered; with an id, neither applies.
    shown = text if schema_options.schema_id is None else None
    request = SchemaRequest(part.part, topic, shown, part.id_location, schema_options)
    request = request._replace(is_encoded=part_plan.plan is None)
    if part.format == JSON:
        record = None if text is None else title_of(text)
        request = request._replace(kind="JSON", record=record)
    return request


def _protobuf_request(
    part: PartOptions, schema_options: SchemaOptions, topic: str | None
) -> SchemaRequest:
    request = SchemaRequest(
        part.part, topic, None, part.id_location, schema_options, "PROTOBUF", part.message
    )
    if part.descriptor_file is None:
        return request
    message = described(part)
    text, files = message.files[-1].text, message.files
    request = request._replace(record=message.schema.root, text=text, files=files)
    return request._replace(follows_map=message.follows_map)


def _compatibility_notes(
    part: PartOptions, part_plan: PartSpec, schema: Schema, schema_options: SchemaOptions
) -> list[str]:
    """Compare JSON columns with the registry's schema, and return notes.

    Raises FormatError if the columns do not fit.
    """
    derived = part_plan.plan.json_schema if part_plan.plan is not None else None
    is_chosen = schema_options.uses_latest_version or schema_options.schema_id is not None
    if (
        derived is None
        or not is_chosen
        or not schema_options.requires_all_columns
        or schema.kind != "JSON"
    ):
        return []
    if not schema.text:
        return []
    return check_json_fits(part.part, derived, schema.text, schema.files, schema_options.schema_id)


def _with_registry_schema(
    part: PartOptions, part_plan: PartSpec, schema: Schema, schema_options: SchemaOptions
) -> PartSpec:
    """Return the part's plan with the registry's schema, if the options choose it."""
    plan = part_plan.plan
    assert plan is not None
    part_plan = part_plan._replace(plan=replace(plan, json_schema=None))
    is_own = not schema_options.uses_latest_version and schema_options.schema_id is None
    if not schema.text or (is_own and part.format == JSON):
        return part_plan
    if schema.kind != part.format.upper():
        raise SchemaError(
            f"{part.part}.format={part.format}: the registry's schema {schema.id} is of the kind "
            f"{schema.kind}",
            code="REGISTRY-021",
        )
    if part.format == JSON:
        return part_plan
    if part.format == PROTOBUF:
        message = _message(part, plan.protobuf_schema, schema, is_own)
        plan, has_column = replace(plan, protobuf_schema=message), message.has_field
    else:
        plan, has_column = replace(plan, avro_schema=schema.text), partial(has_field, schema.text)
    if not is_own and not schema_options.requires_all_columns:
        plan = replace(plan, fields=tuple(f for f in plan.fields if has_column(f.name)))
    elif not is_own and part.format != PROTOBUF:
        missing = [f.name for f in plan.fields if not has_column(f.name)]
        _check_fields(part, missing, schema, schema_options)
    return part_plan._replace(plan=plan)


def _check_fields(
    part: PartOptions, missing: list[str], schema: Schema, schema_options: SchemaOptions
) -> None:
    """Raise FormatError for columns that a registry's Avro schema does not have."""
    if not missing:
        return
    version = "" if schema.version is None else f", version {schema.version} of its subject"
    strict = "latest" if schema_options.uses_latest_version else "id"
    raise FormatError(
        f"the registry's schema {schema.id}{version}, has no field for {missing}, columns of the "
        f"{part.part}: set {strict}.compatibility.strict=false to leave them out, or "
        f"{part.part}.columns to those that it has",
        code="REGISTRY-020",
    )


def _message(
    part: PartOptions, described: ProtobufSchema | None, schema: Schema, is_own: bool
) -> ProtobufSchema:
    """Return the message to write, with its indexes in the registry's schema.

    described: the message of a descriptor file, or None
    is_own: whether that file is the schema; otherwise the registry's schema is, and the file only
        names the message

    Raises FormatError.
    """
    from spark_kafka_sink.formats.protobuf_layout import (
        check_installed,
        indexes_in,
        read_registered,
    )

    check_installed(f"{part.part}.format")
    try:
        if described is not None and is_own:
            return described._replace(indexes=indexes_in(schema.text, described.root))
        name = part.message if described is None else described.root
        return read_registered(schema.text, schema.files, name).schema
    except FormatError as error:
        problem = f"the registry's schema {schema.id} cannot be taken as it is: {error}"
        raise FormatError(problem, code="REGISTRY-016") from None


def _indexes_of(part_plan: PartSpec) -> tuple[int, ...]:
    """Return the indexes of a Protobuf message in its file; (0,) for other formats."""
    if part_plan.plan is None or part_plan.plan.protobuf_schema is None:
        return (0,)
    return part_plan.plan.protobuf_schema.indexes


def _with_prefix(part_plan: PartSpec, prefix: bytes) -> PartSpec:
    if part_plan.plan is None:
        return part_plan._replace(prefix=prefix)
    return part_plan._replace(plan=replace(part_plan.plan, prefix=prefix))
