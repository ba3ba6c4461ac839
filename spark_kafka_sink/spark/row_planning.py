"""Plan the parts of a record from Spark's schema and the format options.

Column names are exact and case-sensitive. A dotted name without a column names a field of a struct.
Without a format, other columns are ignored; types and messages are those of Spark's JVM Kafka sink.
That sink has no ``timestamp`` column: here ``timestamp.column`` names one.

Spark sends all columns to a Python sink as Arrow, including ignored ones. A column that Spark
cannot send would fail in the tasks without its name, so it is rejected here.

Source: ``KafkaWriter.validateQuery`` of Spark.
"""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    CharType,
    DataType,
    DateType,
    DecimalType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    UserDefinedType,
    VarcharType,
    YearMonthIntervalType,
)

from spark_kafka_sink.base.errors import SchemaError
from spark_kafka_sink.base.model import ColumnPositions
from spark_kafka_sink.config.formats import (
    AVRO,
    JSON,
    KEY,
    OTHER_PARTS,
    PROTOBUF,
    RAW,
    STRING,
    TIMESTAMP,
    VALUE,
    FormatOptions,
    PartOptions,
)
from spark_kafka_sink.formats.avro_schema import derived_schema
from spark_kafka_sink.formats.json_schema import described, json_schema_of, read_user_schema
from spark_kafka_sink.formats.plan import (
    HEADERS,
    FieldSpec,
    FormatError,
    FormatSpec,
    JsonOptions,
    PartSpec,
    ProtobufSchema,
    RowSpec,
    names_of,
)
from spark_kafka_sink.spark.versions import interval_types, is_ansi_by_default

if TYPE_CHECKING:
    from spark_kafka_sink.config.sink_options import SinkOptions

_HEADERS_TYPE = "array<struct<key:string,value:binary>>"


_NO_COLUMN = "COLUMN-008"
NULLS_WITHOUT_KEY = (
    "value.null.when without a key: a null value deletes what has the same key, so these records "
    "delete nothing. Set key.columns"
)


_STRINGS = (StringType, CharType, VarcharType)


def _is_headers(data_type: DataType) -> bool:
    if not isinstance(data_type, ArrayType) or not isinstance(data_type.elementType, StructType):
        return False
    fields = data_type.elementType.fields
    return (
        [field.name.lower() for field in fields] == ["key", "value"]
        and isinstance(fields[0].dataType, _STRINGS)
        and isinstance(fields[1].dataType, BinaryType)
    )


def _is_a(*types: type[DataType]) -> Callable[[DataType], bool]:
    return lambda data_type: isinstance(data_type, types)


_EXPECTED: dict[str, tuple[Callable[[DataType], bool], str]] = {
    "topic": (_is_a(*_STRINGS), "string"),
    "key": (_is_a(*_STRINGS, BinaryType), "string or binary"),
    "value": (_is_a(*_STRINGS, BinaryType), "string or binary"),
    "headers": (_is_headers, _HEADERS_TYPE),
    "partition": (_is_a(IntegerType), "int"),
    TIMESTAMP: (_is_a(TimestampType), "timestamp"),
}


def find_columns(schema: StructType, topic_option: str | None) -> ColumnPositions:
    """Return the positions of a record's parts in ``schema``.

    Raises SchemaError for a missing value or topic, for a column of a wrong type, and for a column
    that Spark cannot send to a Python sink.
    """
    positions: dict[str, int] = {}
    for position, field in enumerate(schema.fields):
        positions.setdefault(field.name, position)
    if topic_option is None and "topic" not in positions:
        raise SchemaError(
            "topic option required when no 'topic' attribute is present. Use the topic option for "
            "setting a topic.",
            code="COLUMN-001",
        )
    if "value" not in positions:
        raise SchemaError(
            "Required attribute 'value' not found. To write all columns as one value, set "
            "value.format, e.g. to json",
            code="COLUMN-002",
        )
    record = [name for name in _EXPECTED if name in positions and name != TIMESTAMP]
    for name in record:
        if name != "topic" or topic_option is None:
            check_type(name, schema.fields[positions[name]].dataType)
    check_handed_over(schema, record)
    return ColumnPositions(
        value=positions["value"],
        key=positions.get("key"),
        headers=positions.get("headers"),
        topic=positions.get("topic"),
        partition=positions.get("partition"),
        topic_option=topic_option,
    )


def check_type(name: str, data_type: DataType) -> None:
    """Raise SchemaError if a column of this type cannot be the part ``name`` of a record."""
    is_expected, expected = _EXPECTED[name]
    if not is_expected(data_type):
        raise SchemaError(
            f"{name} attribute unsupported type {data_type.simpleString()}. "
            f"{name} must be a(n) {expected}",
            code="COLUMN-003",
        )


def check_handed_over(schema: StructType, record: Sequence[str]) -> None:
    """Raise SchemaError for a column, ignored or not, that Spark cannot send as Arrow.

    record: names of the columns that are not ignored
    """
    names = Counter(field.name for field in schema.fields)
    for field in schema.fields:
        problem = next(_problems_of(field.dataType, is_nested=False), None)
        if names[field.name] > 1:
            problem = f"is there {names[field.name]} times"
        if problem is not None:
            cure = _cure(field.name, names, record)
            raise SchemaError(
                f"column '{field.name}' {problem}: Spark cannot hand that to a Python sink, which "
                f"gets all columns, also those that are not written. {cure}",
                code="COLUMN-004",
            )


def _cure(name: str, names: Counter[str], record: Sequence[str]) -> str:
    """Return advice for the column ``name``, which Spark cannot send."""
    if name not in record:
        others = ", ".join(f'"{other}"' for other in record)
        return f"Select only the columns of a record, each once: .select({others})"
    if names[name] > 1:
        return "Rename one of them in the DataFrame, or drop it"
    return "Cast it in the DataFrame, or drop it"


def notes_on_parts(parts: Iterable[str], has_topic: bool) -> Iterator[str]:
    """Yield notes on columns that are not in the value because of their names.

    parts: these names; has_topic: whether option ``topic`` is set
    """
    for part in parts:
        if part == "headers" or (part == "topic" and not has_topic):
            continue  # the documented use of these columns, which data columns seldom resemble
        where = f"is the record's {part} and is not in the value"
        if part == "topic" and has_topic:
            where = "is written nowhere, as option 'topic' is set"
        yield (
            f"column '{part}' {where}: set {part}.column to an empty text to have it in the value, "
            f"or to '{part}' if that is meant"
        )


def no_such_column(name: str, names: Iterable[str]) -> str:
    """Return the message about an unknown column, with the most similar name."""
    return f"the DataFrame has no column '{name}'{_meant(name, [*names])}"


def no_such_field(path: str, name: str, kind: DataType) -> str:
    """Return the message about an unknown field ``name`` of the column or field ``path``."""
    hint = f", being of type {kind.simpleString()}"
    if isinstance(kind, StructType):
        hint = _meant(name, kind.names)
    return f"'{path}' has no field '{name}'{hint}"


def _meant(name: str, known: list[str]) -> str:
    same = [f"'{_as_written(other)}'" for other in known if other.lower() == name.lower()]
    if same:
        return f". Did you mean {' or '.join(same)}? Names are exact"
    near = difflib.get_close_matches(name, known, n=1)
    if near:
        return f". Did you mean '{_as_written(near[0])}'?"
    return f". There are: {', '.join(map(_as_written, known[:20]))}"


_PART = re.compile(r"`((?:[^`]|``)+)`|([^.`]+)")


def path_of(name: str) -> tuple[str, ...]:
    """Return the parts of a name in an option, as Spark reads it: a column, fields of structs.

    ``a.b`` has two parts, ```a.b` `` one. Two backticks in a quoted part stand for one.
    """
    parts, at = [], 0
    while (found := _PART.match(name, at)) is not None:
        parts.append(found[2] if found[1] is None else found[1].replace("``", "`"))
        at = found.end() + 1
        if found.end() == len(name):
            return tuple(parts)
        if name[found.end()] != ".":
            break
    return (name,)  # no valid name, which no column has


def _as_written(name: str) -> str:
    """Return a column's name as an option must have it."""
    if name == name.strip() and not {",", "`"} & set(name):
        return name
    return "`" + name.replace("`", "``") + "`"


def _problems_of(data_type: DataType, is_nested: bool) -> Iterator[str]:
    """Yield the parts of a column's type that Arrow does not have or pyarrow cannot read.

    Spark's Python cannot read a column of months; it hands over nested months.
    """
    if isinstance(data_type, UserDefinedType):
        yield from _problems_of(data_type.sqlType(), is_nested)
    elif isinstance(data_type, interval_types()) or (
        isinstance(data_type, YearMonthIntervalType) and not is_nested
    ):
        yield f"has the type {data_type.simpleString()}"
    elif isinstance(data_type, ArrayType):
        yield from _problems_of(data_type.elementType, True)
    elif isinstance(data_type, MapType):
        yield from _problems_of(data_type.keyType, True)
        yield from _problems_of(data_type.valueType, True)
    elif isinstance(data_type, StructType):
        repeated = [name for name, count in Counter(data_type.names).items() if count > 1]
        if repeated:
            yield f"has the field '{repeated[0]}' more than once"
        for field in data_type.fields:
            yield from _problems_of(field.dataType, True)


_TEXT_TYPES = (
    *(*_STRINGS, BinaryType, BooleanType, ByteType, ShortType, IntegerType, LongType),
    *(DecimalType, DateType, TimestampType, TimestampNTZType),
)
"""Types whose text this sink writes as Spark's ``CAST(… AS STRING)`` does."""


class InputLayout(NamedTuple):
    """The plan of a query's rows.

    positions: of the appended columns; plan: how they are built, None if Spark's are appended
    notes: log sentences about columns that may not be where the user meant
    """

    positions: ColumnPositions
    plan: RowSpec | None = None
    notes: tuple[str, ...] = ()


class _Field(NamedTuple):
    path: tuple[str, ...]
    field: StructField


def plan_rows(schema: StructType, options: SinkOptions) -> InputLayout:
    """Return the positions of a record's parts in ``schema``, or the plan to build them.

    Raises SchemaError for missing columns or wrong types, ConfigError for a schema file that cannot
    be read. ``check_encodable`` checks the types against the formats.
    """
    if options.formats is None:
        rows = InputLayout(find_columns(schema, options.topic))
    else:
        rows = _RowPlanner(schema, options.formats, options.topic, _registered(options)).planned()
    return rows._replace(notes=(*rows.notes, *_notes_on_copy(schema, options)))


def written_columns(schema: StructType, rows: InputLayout) -> tuple[tuple[str, str], ...]:
    """Return name and type of the columns in records; none that only chooses topic or partition."""
    at, plan = rows.positions, rows.plan
    used = {at.value, at.key, at.headers, at.timestamp}
    names: set[str] = set()
    if plan is not None:
        used = {position for part, position in plan.kept if part not in ("topic", "partition")}
        for part in filter(None, (plan.value, plan.key)):
            used.add(part.column)
            names.update(field.path[0] for field in (part.plan.fields if part.plan else ()))
    found = [f for n, f in enumerate(schema.fields) if n in used or f.name in names]
    return tuple((field.name, field.dataType.simpleString()) for field in found)


_OF_KAFKA = {KEY, VALUE, "topic", "partition", "offset", TIMESTAMP, "timestampType"}
"""The columns of Spark's own Kafka source."""


def _notes_on_copy(schema: StructType, options: SinkOptions) -> Iterator[str]:
    """Yield a note on rows of Spark's Kafka source, whose topic and partition are their input's."""
    named = {} if options.formats is None else options.formats.other_columns
    into = {"topic": options.topic is None, "partition": True}
    found = [part for part, is_used in into.items() if is_used and named.get(part) is None]
    if not found or not _OF_KAFKA.issubset(schema.names):
        return
    cures = ["set option topic"] if "topic" in found else []
    cures += ["set partition.column to an empty text"] if "partition" in found else []
    keeps = "" if named.get(TIMESTAMP) else "; timestamp.column=timestamp keeps the timestamps"
    yield (
        "the rows have all columns of Spark's Kafka source: each is written into the "
        f"{' and the '.join(found)} that it was read from. For a copy elsewhere, "
        f"{' and '.join(cures)}{keeps}"
    )


def _registered(options: SinkOptions) -> tuple[str, ...]:
    """Return the parts, value or key, whose schemas are in a registry."""
    registry = options.registry
    parts = {} if registry is None else {VALUE: registry.value, KEY: registry.key}
    return tuple(part for part, schema in parts.items() if schema is not None)


class _RowPlanner:
    """Plans the rows of one schema with its options.

    registered: the parts whose schemas are in a registry
    """

    def __init__(
        self,
        schema: StructType,
        formats: FormatOptions,
        topic: str | None,
        registered: tuple[str, ...],
    ) -> None:
        self._schema = schema
        self._formats = formats
        self._topic = topic
        self._registered = registered
        self._numbers: dict[str, int] = {}
        for number, field in enumerate(schema.fields):
            self._numbers.setdefault(field.name, number)

    def planned(self) -> InputLayout:
        others = {part: self._other(part) for part in OTHER_PARTS}
        kept = tuple((part, n) for part, n in others.items() if n is not None)
        if self._topic is None and others["topic"] is None:
            raise SchemaError(
                "topic option required when no 'topic' attribute is present. Use the topic option "
                "for setting a topic.",
                code="COLUMN-001",
            )
        null_when = self._null_when()
        key_column = self._key_column()
        taken = {n for n in (*others.values(), null_when, key_column) if n is not None}
        value = self._value(taken)
        key = self._key(key_column)
        record = [name for name, n in self._numbers.items() if n in taken]
        check_handed_over(self._schema, [*record, *self._names_of(value, key)])
        if _is_column(value) and (key is None or _is_column(key)) and null_when is None:
            assert value.column is not None
            positions = ColumnPositions(
                value=value.column,
                key=None if key is None else key.column,
                headers=others["headers"],
                topic=others["topic"],
                partition=others["partition"],
                timestamp=others["timestamp"],
                topic_option=self._topic,
            )
            return InputLayout(positions)
        plan = RowSpec(value, key, kept, null_when, is_ansi=is_ansi_by_default())
        by_name = [part for part, _ in kept if self._formats.other_columns[part] is None]
        notes = [*self._notes_on_parts(by_name)]
        if null_when is not None and key is None:
            notes.append(NULLS_WITHOUT_KEY)
        return InputLayout(positions_of(plan, self._topic), plan, tuple(notes))

    def _notes_on_parts(self, by_name: Sequence[str]) -> Iterator[str]:
        """Yield notes on parts whose columns were found by name. by_name: these parts"""
        value = self._formats.value
        if value.has_fields and not value.columns and value.column is None:
            yield from notes_on_parts(by_name, self._topic is not None)

    def _other(self, part: str) -> int | None:
        """Return the position of the topic, partition, headers or timestamp column, or None."""
        named = self._formats.other_columns[part]
        if named == "":
            return None
        if named is None and (part == TIMESTAMP or part not in self._numbers):
            return None
        number = self._number(part if named is None else named, f"{part}.column")
        if part == "topic" and self._topic is not None:
            return number
        try:
            check_type(part, self._schema.fields[number].dataType)
        except SchemaError as error:
            raise SchemaError(
                f"{error}. For a column that is a part of the value, set {part}.column to an "
                "empty text"
                if named is None
                else f"{part}.column={named}: {error}",
                code=error.code,
            ) from None
        return number

    def _null_when(self) -> int | None:
        name = self._formats.null_when
        if name is None:
            return None
        number = self._number(name, "value.null.when")
        kind = self._schema.fields[number].dataType
        if not isinstance(kind, BooleanType):
            raise SchemaError(
                f"value.null.when={name}: the column is of type {kind.simpleString()}, and must be "
                "boolean",
                code="COLUMN-003",
            )
        return number

    def _key_column(self) -> int | None:
        """Return the key column's position; None for a key of several columns or no key."""
        key = self._formats.key
        if key.columns or key.column == "":
            return None
        if key.column is None:
            return self._numbers.get(KEY)
        return self._number(key.column, "key.column")

    def _key(self, column: int | None) -> PartSpec | None:
        options = self._formats.key
        if options.columns:
            fields = [self._field(name, "key.columns") for name in options.columns]
            if options.has_fields:
                return self._of_fields(options, fields)
            return self._of_column(options, self._only(fields[0], "key.columns"))
        if column is not None:
            return self._of_column(options, column)
        if options.format != RAW:
            raise SchemaError(
                f"key.format={options.format} needs columns: set key.columns, or key.column",
                code="COLUMN-005",
            )
        return None

    def _value(self, taken: set[int]) -> PartSpec:
        options = self._formats.value
        if options.columns:
            fields = [self._field(name, "value.columns") for name in options.columns]
            if options.has_fields:
                return self._of_fields(options, fields)
            return self._of_column(options, self._only(fields[0], "value.columns"))
        if options.column is not None:
            return self._of_column(options, self._number(options.column, "value.column"))
        if options.format == RAW:
            if VALUE not in self._numbers:
                raise SchemaError(
                    "Required attribute 'value' not found. To write all columns as one value, set "
                    "value.format to json, avro or protobuf; to write one as it is, value.column",
                    code="COLUMN-002",
                )
            return self._of_column(options, self._numbers[VALUE])
        left = [n for n in range(len(self._schema.fields)) if n not in taken]
        if not left:
            raise SchemaError(
                "no column is left for the value: all are other parts of the record. Set "
                "value.columns",
                code="COLUMN-005",
            )
        if options.format == STRING:
            if len(left) > 1:
                raise SchemaError(
                    f"value.format=string makes a value of one column, and {len(left)} are left: "
                    "set value.column",
                    code="COLUMN-005",
                )
            return self._of_column(options, left[0])
        return self._of_left(options, left)

    def _of_left(self, options: PartOptions, left: Sequence[int]) -> PartSpec:
        """Plan a value with fields from the columns that are no other part of the record."""
        only = self._schema.fields[left[0]]
        if len(left) == 1 and only.name == VALUE:
            if isinstance(only.dataType, StructType):
                return self._of_column(options, left[0])
            if isinstance(only.dataType, (*_STRINGS, BinaryType)):  # made by to_json or to_avro
                raise SchemaError(
                    f"column 'value' is a value already: leave value.format={options.format} out, "
                    "or set value.columns=value for a value with this field",
                    code="COLUMN-006",
                )
        return self._of_fields(
            options, [_Field((self._schema.fields[n].name,), self._schema.fields[n]) for n in left]
        )

    def _of_column(self, options: PartOptions, number: int) -> PartSpec:
        """Plan a part from one column; a format with fields needs a struct."""
        field = self._schema.fields[number]
        kind = field.dataType
        if options.has_fields:
            if not isinstance(kind, StructType):
                raise SchemaError(
                    f"{options.part}.format={options.format}: column '{field.name}' is of type "
                    f"{kind.simpleString()}, and must be a struct; {options.part}.columns names "
                    "columns of any type",
                    code="COLUMN-003",
                )
            inner = [_Field((field.name, f.name), f) for f in kind.fields]
            return self._of_fields(options, inner)._replace(column=number)
        if options.format == RAW:
            try:
                check_type(options.part, kind)
            except SchemaError as error:
                raise SchemaError(
                    f"{error}. {options.part}.format=string writes its text",
                    code=error.code,
                ) from None
            return PartSpec(number)
        if not isinstance(kind, _TEXT_TYPES):
            raise SchemaError(
                f"column '{field.name}' is of type {kind.simpleString()}, whose text cannot be a "
                f"{options.part}: cast it in the DataFrame, or set {options.part}.format to json",
                code="COLUMN-003",
            )
        is_bytes = isinstance(kind, (*_STRINGS, BinaryType))
        return PartSpec(number, is_text=not is_bytes)

    def _of_fields(self, options: PartOptions, fields: Sequence[_Field]) -> PartSpec:
        names = [f.field.name for f in fields]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            source = f"{options.part}.columns" if options.columns else "the DataFrame"
            raise SchemaError(
                f"{source} gives more than one field the name '{twice[0]}': rename one in the "
                "DataFrame",
                code="COLUMN-007",
            )
        struct = StructType([f.field for f in fields])
        null_when = self._formats.null_when if options.part == VALUE else None
        null_when = None if null_when is None else self._column_named(null_when)
        text = options.json
        plan = FormatSpec(
            options.format,
            tuple(FieldSpec(f.path, f.field.name, f.field.dataType.json()) for f in fields),
            avro_schema=self._avro_schema(options, struct) if options.format == AVRO else None,
            protobuf_schema=_protobuf_schema(options),
            json_schema=json_schema_of(options, struct),
            json_options=JsonOptions(
                text.ignore_null_fields is not False,
                text.time_zone or "UTC",
                text.timestamp_format,
                text.timestamp_ntz_format,
                text.date_format,
            ),
            null_when=null_when,
            avro_record=self._formats.full_record_name,
        )
        return PartSpec(
            plan=plan,
            takes_session_zone=text.time_zone is None,
            takes_session_nulls=options.format == JSON and text.ignore_null_fields is None,
            has_id=bool(options.has_id),
        )

    def _avro_schema(self, options: PartOptions, struct: StructType) -> str:
        if options.avro_schema is None:
            formats, is_registered = self._formats, options.part in self._registered
            names = formats.record_name, formats.namespace
            return derived_schema(struct.json(), *names, is_registered)
        return read_user_schema(options.avro_schema, f"{options.part}.avro.schema")[0]

    def _only(self, found: _Field, option: str) -> int:
        """Return the position of a part's single column. Raises SchemaError for a nested field."""
        if len(found.path) > 1:
            name = ".".join(found.path)
            raise SchemaError(
                f"{option}={name}: a field of a struct cannot be it alone. Select it as a column "
                "of its own in the DataFrame",
                code="COLUMN-005",
            )
        return self._numbers[found.path[0]]

    def _number(self, name: str, option: str) -> int:
        column = self._column_named(name)
        if column not in self._numbers:
            text = f"{option}={name}: {no_such_column(name, self._numbers)}"
            raise SchemaError(text, code=_NO_COLUMN)
        return self._numbers[column]

    def _column_named(self, name: str) -> str:
        """Return the column that an option means by ``name``, which may be in backticks."""
        parts = path_of(name)
        return parts[0] if name not in self._numbers and len(parts) == 1 else name

    def _field(self, name: str, option: str) -> _Field:
        """Return a column, or a field of a struct: ``a.b``."""
        column = self._column_named(name)
        if column in self._numbers:
            return _Field((column,), self._schema.fields[self._numbers[column]])
        path = path_of(name)
        if path[0] not in self._numbers:
            text = f"{option}: {no_such_column(name, self._numbers)}"
            raise SchemaError(text, code=_NO_COLUMN)
        field = self._schema.fields[self._numbers[path[0]]]
        for n, part in enumerate(path[1:], 1):
            kind: DataType = field.dataType
            if not isinstance(kind, StructType) or part not in kind.names:
                text = f"{option}: {no_such_field('.'.join(path[:n]), part, kind)}"
                raise SchemaError(text, code=_NO_COLUMN)
            field = kind.fields[kind.names.index(part)]
        return _Field(path, field)

    def _names_of(self, *parts: PartSpec | None) -> Iterator[str]:
        for part in parts:
            if part is not None and part.column is not None:
                yield self._schema.fields[part.column].name
            elif part is not None and part.plan is not None:
                yield from (field.path[0] for field in part.plan.fields)


def positions_of(plan: RowSpec, topic_option: str | None) -> ColumnPositions:
    """Return the positions of the columns that ``plan`` builds, in the order of ``names_of``."""
    at = {name: number for number, name in enumerate(names_of(plan))}
    return ColumnPositions(
        value=at[VALUE],
        key=at.get(KEY),
        headers=at.get(HEADERS),
        topic=at.get("topic"),
        partition=at.get("partition"),
        timestamp=at.get("timestamp"),
        topic_option=topic_option,
    )


def _protobuf_schema(options: PartOptions) -> ProtobufSchema | None:
    """Return the message in a descriptor file; None if a registry has it or for other formats."""
    if options.format != PROTOBUF or options.descriptor_file is None:
        return None
    return described(options).schema


def _is_column(part: PartSpec) -> bool:
    return part.plan is None and not part.is_text and not part.prefix


# Plans that this process has checked: each micro-batch of a stream is planned.
_checked: list[FormatSpec] = []
_MOST_CHECKED = 20


def check_encodable(rows: InputLayout) -> None:
    """Raise SchemaError for a column that its format or schema does not support.

    Also check the patterns of dates and times.
    """
    if rows.plan is None:
        return
    # Imported here because they load pyarrow, which only formats need.
    from spark_kafka_sink.formats.encoder import RowEncoder
    from spark_kafka_sink.formats.spark_types import planned_schema

    parts = {VALUE: rows.plan.value, KEY: rows.plan.key}
    for name, part in parts.items():
        if part is not None:
            _check_times(name, part)
    plans = [part.plan for part in parts.values() if part is not None]
    for plan in (one for one in plans if one is not None and one not in _checked):
        RowEncoder(plan, planned_schema(plan))
        _checked.append(plan)
        del _checked[:-_MOST_CHECKED]


def _check_times(name: str, part: PartSpec) -> None:
    """Raise FormatError, with the option's name, for JSON patterns and an unknown time zone."""
    if part.plan is None or part.plan.format != JSON:
        return
    from spark_kafka_sink.formats.times import patterns_of, zone_table

    options = part.plan.json_options
    patterns_of(options, f"{name}.json.")
    if not part.takes_session_zone:
        try:
            zone_table(options.time_zone)
        except FormatError as error:
            message = str(error).replace("spark.sql.session.timeZone", f"{name}.json.timeZone")
            text = f"{name}.json.timeZone={options.time_zone}: {message}"
            raise FormatError(text, code=error.code) from None
