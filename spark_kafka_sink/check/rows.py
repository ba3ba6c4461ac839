"""What options say of rows without columns: schemas, messages, patterns of times."""

from __future__ import annotations

from collections.abc import Iterator

from spark_kafka_sink.base.errors import KafkaSinkError
from spark_kafka_sink.check.finding import Finding, failed
from spark_kafka_sink.config.format_keys import AVRO, JSON, PROTOBUF
from spark_kafka_sink.config.formats import GivenSchema, PartOptions
from spark_kafka_sink.config.sink_options import SinkOptions


def formats(options: SinkOptions) -> Iterator[Finding]:
    """Only what is wrong. Files are read here, as the driver does."""
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
    from spark_kafka_sink.spark.json_schemas import given_schema

    if schema is not None:
        given_schema(schema, option)


def _json(part: PartOptions) -> None:
    # Not above: numpy, which options of JSON alone need here.
    from spark_kafka_sink.formats.patterns import patterns_of
    from spark_kafka_sink.formats.plan import JsonOptions

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
        from spark_kafka_sink.spark.descriptors import described

        described(part)
