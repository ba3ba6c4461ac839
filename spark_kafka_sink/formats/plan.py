"""Say what a query's rows are written as: made once by the driver, pickled, read by its tasks.

Nothing in it depends on how Arrow lays out columns: a task finds that in the Arrow batches it gets.
Protobuf messages are described without the official package, which no task needs.

Source: Protobuf's ``descriptor.proto``, whose numbers of types these are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from spark_kafka_sink.base.errors import SchemaError

OF_VARIANTS = "Make text of it by to_json(), or columns by variant_get(), or leave it out"
"""What to do with a VARIANT in a format that has no form for it."""


class FormatError(SchemaError):
    """A column cannot be written in the format that was asked for, or does not match its schema."""


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


class PartPlan(NamedTuple):
    """A key or a value.

    column: position of the column that it is; or, with ``plan``, of the struct that its fields are
        in, whose nulls are nulls of the whole; None where there is no such column
    plan: how it is made of fields; None if ``column`` is it
    is_text: the column's text, whatever its type; otherwise its bytes as they are
    prefix: put before ``column``, as it is part of what ``plan`` makes
    takes_session_zone: whether the time zone of ``plan`` is that of the Spark session
    """

    column: int | None = None
    plan: FormatPlan | None = None
    is_text: bool = False
    prefix: bytes = b""
    takes_session_zone: bool = False


class RowsPlan(NamedTuple):
    """What is made of the columns that come from Spark, before they are appended.

    kept: positions of the columns for the record's other parts, by the names of those
    null_when: position of a column of booleans, true where the value is null
    headers: added to those of each row
    session_zone: the time zone of the Spark session, None where that is not known
    is_ansi: spark.sql.ansi.enabled of the Spark session, which texts of decimals go by
    """

    value: PartPlan
    key: PartPlan | None = None
    kept: tuple[tuple[str, int], ...] = ()
    null_when: int | None = None
    headers: tuple[tuple[str, bytes], ...] = ()
    session_zone: str | None = None
    is_ansi: bool = True


VALUE, KEY, HEADERS = "value", "key", "headers"


def names_of(plan: RowsPlan) -> list[str]:
    """Names of the columns that are appended, in their order."""
    names = [VALUE]
    if plan.key is not None:
        names.append(KEY)
    names += [part for part, _ in plan.kept]
    if plan.headers and HEADERS not in names:
        names.append(HEADERS)
    return names


TYPES = {
    1: "double",
    2: "float",
    3: "int64",
    4: "uint64",
    5: "int32",
    6: "fixed64",
    7: "fixed32",
    8: "bool",
    9: "string",
    10: "group",
    11: "message",
    12: "bytes",
    13: "uint32",
    14: "enum",
    15: "sfixed32",
    16: "sfixed64",
    17: "sint32",
    18: "sint64",
}
MESSAGE, ENUM, GROUP = "message", "enum", "group"


class ProtobufField(NamedTuple):
    """A field of a message.

    type: one of TYPES; type_name: the full name of a message or an enum
    has_presence: whether a default value is written; oneof: name of the one that it is in
    """

    name: str
    number: int
    type: str
    type_name: str = ""
    is_repeated: bool = False
    is_required: bool = False
    is_packed: bool = False
    has_presence: bool = False
    oneof: str = ""

    @property
    def words(self) -> str:
        """Its type as messages have it."""
        return f"{'repeated ' if self.is_repeated else ''}{self.type_name or self.type}"


class ProtobufMessage(NamedTuple):
    """is_entry: of a map, whose key is the field 1 and whose value is the field 2"""

    name: str
    fields: tuple[ProtobufField, ...]
    is_entry: bool = False


class ProtobufEnum(NamedTuple):
    """values: names and numbers"""

    name: str
    values: tuple[tuple[str, int], ...]


class ProtobufSchema(NamedTuple):
    """A message and what it is made of.

    root: its full name
    indexes: where it is in its file: a number for each message around it, and its own
    """

    root: str
    messages: tuple[ProtobufMessage, ...]
    enums: tuple[ProtobufEnum, ...] = ()
    indexes: tuple[int, ...] = (0,)

    def has_field(self, name: str) -> bool:
        """Whether its root has a field of this name, in any case."""
        root = next(message for message in self.messages if message.name == self.root)
        return any(field.name.lower() == name.lower() for field in root.fields)
