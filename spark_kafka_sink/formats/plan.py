"""What a query's rows are written as: made once by the driver, pickled, read by its tasks.

Nothing in it depends on how Arrow lays out columns: a task finds that in the Arrow batches it gets.
"""

from __future__ import annotations

from dataclasses import dataclass

from spark_kafka_sink.formats.protobuf_schema import ProtobufSchema

JSON = "json"
AVRO = "avro"
PROTOBUF = "protobuf"


@dataclass(frozen=True)
class PlannedField:
    """One column of the DataFrame, or a part of one, and its name in what is written.

    path: the column's name, then those of fields of structs in it: ``a.b`` is ``("a", "b")``
    name: what the format calls it
    spark_type: Spark's type as ``DataType.json()`` has it, for what Arrow's types do not tell: the
        unit of an interval. Empty where Arrow's type is enough.
    """

    path: tuple[str, ...]
    name: str
    spark_type: str = ""


@dataclass(frozen=True)
class JsonOptions:
    """As those of Spark's ``to_json`` that have the same names. None: Spark's default.

    time_zone: None where that of the Spark session is not known, as only VARIANTs may need it
    """

    ignore_null_fields: bool = True
    time_zone: str | None = "UTC"
    timestamp_format: str | None = None
    timestamp_ntz_format: str | None = None
    date_format: str | None = None


@dataclass(frozen=True)
class FormatPlan:
    """How the bytes of a row's key or value are made.

    fields: in the order in which they are written
    prefix: put before what each row is written as: a schema registry's five bytes
    avro_schema: the schema that is written, as JSON text; None for other formats
    protobuf_schema: the messages that are written; None for other formats
    json_schema: what a schema registry is to have for it, until it was asked; None for tasks
    null_when: a boolean column whose rows that are true are written as null, or None
    """

    format: str
    fields: tuple[PlannedField, ...]
    prefix: bytes = b""
    avro_schema: str | None = None
    json_schema: str | None = None
    json_options: JsonOptions = JsonOptions()
    null_when: str | None = None
    protobuf_schema: ProtobufSchema | None = None
