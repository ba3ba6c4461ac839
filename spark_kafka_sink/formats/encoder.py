"""Encode the keys and values of records from Spark's Arrow batches as bytes or texts.

``RowEncoder`` writes rows in one format. ``RowsEncoder`` builds all columns that a task appends.
A row that cannot be encoded has a fault, which is known before a row of the Arrow batch is
appended.

A dead letter of a faulty row holds the row as JSON (``rows_as_json``). No row may fail the task
there: text that is not UTF-8, dates of any year, several columns of one name, time zones that only
Java knows. Therefore the JSON kernel writes these rows, and types without a form in JSON get one.

Keys and values of one column are texts as Spark's ``CAST(… AS STRING)`` returns them.

This module loads kernels. Source, for texts: ``ToStringBase`` of Spark.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spark_kafka_sink.base.errors import ConfigError, RecordError, SchemaError
from spark_kafka_sink.formats.avro_layout import Root, avro_root
from spark_kafka_sink.formats.avro_schema import parsed_schema
from spark_kafka_sink.formats.layout import (
    Column,
    Node,
    Table,
    array_at,
    json_node,
    readable_type,
    type_at,
    with_patterns,
)
from spark_kafka_sink.formats.plan import (
    AVRO,
    HEADERS,
    JSON,
    KEY,
    PROTOBUF,
    VALUE,
    FieldSpec,
    FormatError,
    FormatSpec,
    JsonOptions,
    PartSpec,
    RowSpec,
    names_of,
)
from spark_kafka_sink.formats.protobuf_layout import protobuf_root
from spark_kafka_sink.formats.times import patterns_of, seconds_ahead, zone_table
from spark_kafka_sink.record.columns import ArrowBatch
from spark_kafka_sink.record.compiled import nodes
from spark_kafka_sink.record.compiled.calls import write_avro, write_json, write_protobuf
from spark_kafka_sink.record.dead_letters import (
    NOT_ENCODABLE,
    RowFaults,
    is_null,
    rows_of,
    with_headers,
    without_headers,
)

Int64Array = npt.NDArray[np.int64]

_MIN_BYTES = 64 * 1024
_MARGIN = 1.125
# The buffer grows by at least _MIN_GROWTH. A guess grows it by at most _MAX_GROWTH or to
# _GUESSED_BYTES, because one large row does not predict the rows after it.
_MIN_GROWTH = 2
_MAX_GROWTH = 4
_GUESSED_BYTES = 64 * 1024 * 1024
_KERNELS = {JSON: write_json, AVRO: write_avro, PROTOBUF: write_protobuf}
_AVRO_FAULTS = {
    nodes.AVRO_NULL_VALUE: (
        "field '{path}' is null, and the Avro schema has no null for it: filter such rows, or "
        "give the field a union with null"
    ),
    nodes.WRONG_SIZE: (
        "field '{path}' does not have the {size} bytes of the Avro schema's fixed type"
    ),
    nodes.AVRO_NO_SYMBOL: "field '{path}' is none of the symbols of the Avro schema's enum",
}
_PROTOBUF_FAULTS = {
    nodes.PROTOBUF_NULL_VALUE: (
        "field '{path}' is null, and Protobuf has no null for required fields, elements and values "
        "of maps"
    ),
    nodes.OUT_OF_RANGE: "field '{path}' is out of the range of its Protobuf type",
    nodes.PROTOBUF_NO_SYMBOL: "field '{path}' is none of the values of its Protobuf enum",
    nodes.TWO_OF_ONE: (
        "field '{path}' and another one of the same Protobuf oneof are both not null"
    ),
    nodes.NOT_UTF8: "field '{path}' is a string that is not UTF-8",
}
_JSON_FAULTS = {
    nodes.MALFORMED: "the bytes of the VARIANT '{path}' are damaged",
    nodes.UNKNOWN_TYPE: (
        "the VARIANT '{path}' has a value of a type that is not known: Spark's own functions "
        "make none such"
    ),
    nodes.TOO_DEEP: (
        f"the VARIANT '{{path}}' has more than {nodes.MOST_LEVELS} objects and arrays in one "
        "another"
    ),
    nodes.NO_ZONE: (
        "the VARIANT '{path}' has a timestamp, and Spark tells no task the time zone of a session "
        "that has its default: set spark.sql.session.timeZone, or the option value.json.timeZone "
        "(of keys key.json.timeZone)"
    ),
    nodes.NO_TIME: "field '{path}' is not a time of a day: it is negative, or 24 hours and more",
    nodes.TOO_LONG: "the VARIANT '{path}' would be more than 2 GiB of text",
}
_FAULTS = {JSON: _JSON_FAULTS, AVRO: _AVRO_FAULTS, PROTOBUF: _PROTOBUF_FAULTS}


class EncodedRows(NamedTuple):
    """The encoded rows of one Arrow batch.

    values: a pyarrow.LargeBinaryArray with one value per row; null for a null value and for a row
        with a fault
    faults: int64[n], 0 for encoded rows, else a number for ``RowEncoder.fault_text``; None without
        faults
    """

    values: Any
    faults: Int64Array | None


class RowEncoder:
    """Encodes the rows of Arrow batches of one schema as a plan says.

    Kernels write to one buffer, from its beginning; Protobuf's kernel writes from its end.

    Raises FormatError for a missing column or a type that the format does not support.
    """

    def __init__(self, plan: FormatSpec, schema: pa.Schema) -> None:
        self._plan = plan
        name = plan.null_when
        if name is not None and (found := type_at(schema, (name,))) != pa.bool_():
            raise FormatError(f"column '{name}' must be boolean, not {found}", code="HOOK-002")
        root = _root(plan, schema)
        self._is_single = root.is_single
        self._table = Table(root.node)
        self._readable = [readable_type(schema, field.path) for field in plan.fields]
        self._nodes = list(self._table.root.walk())
        self._kernel = _KERNELS[plan.format]
        self._is_from_end = plan.format == PROTOBUF
        self._zones = self._zone_table()
        self._prefix = np.frombuffer(plan.prefix or b"\0", np.uint8)
        kinds = {node.kind for node in self._nodes}
        # A VARIANT's frames follow those of its parents.
        levels = self._table.root.depth + (nodes.MOST_LEVELS if nodes.VARIANT in kinds else 0)
        self._frames = np.zeros((levels, nodes.FRAME_FIELDS), np.int64)
        self._state = self._new_state()
        # Reused for the next Arrow batch unless values in the buffer are still referenced.
        self._room: npt.NDArray[np.uint8] = np.empty(_MIN_BYTES, np.uint8)

    def encode(self, arrow_batch: pa.RecordBatch) -> EncodedRows:
        """Return one value per row of ``arrow_batch``."""
        rows_count = arrow_batch.num_rows
        paths = (field.path for field in self._plan.fields)
        arrays = [array_at(arrow_batch, *one) for one in zip(paths, self._readable)]
        skipped = self._skipped(arrow_batch, arrays)
        faults = np.zeros(rows_count, np.int64)
        starts = np.zeros(rows_count + 1, np.int64)
        self._table.point_at(arrays)
        state = self._state
        state[nodes.NEXT_ROW] = rows_count if self._is_from_end else 0
        state[nodes.ROWS_COUNT] = rows_count
        state[nodes.FAULTS], state[nodes.FAULTS_COUNT] = faults.ctypes.data, 0
        state[nodes.STARTS] = starts.ctypes.data
        state[nodes.SKIPPED] = 0 if skipped is None else skipped.ctypes.data
        if sys.getrefcount(self._room) > 2:
            self._room = np.empty(len(self._room), np.uint8)
        self._write(starts)
        if state[nodes.FAULTS_COUNT] == 0:
            return EncodedRows(self._values(starts, skipped), None)
        is_null = faults != 0 if skipped is None else (faults != 0) | (skipped != 0)
        return EncodedRows(self._values(starts, is_null), faults)

    def fault_text(self, fault: int) -> str:
        """Return why a row could not be written; the text names the field and hides its value."""
        node = self._nodes[fault // nodes.FAULT_CAUSES]
        text = _FAULTS[self._plan.format][fault % nodes.FAULT_CAUSES]
        return text.format(path=node.path, size=node.parameter)

    def _write(self, starts: Int64Array) -> None:
        state = self._state
        while True:
            state[nodes.OUT] = self._room.ctypes.data
            state[nodes.LIMIT] = self._room.ctypes.data + len(self._room)
            if self._kernel(self._state.ctypes.data) == nodes.ALL_WRITTEN:
                if self._is_from_end:
                    starts += len(self._room)
                return
            rows_count, row = int(state[nodes.ROWS_COUNT]), int(state[nodes.NEXT_ROW])
            used = abs(int(starts[row]))
            done = rows_count - row if self._is_from_end else row
            # The guess gives each remaining row the average size of the rows before.
            guess = int(used / max(done, 1) * rows_count * _MARGIN)
            least = max(used + int(state[nodes.NEEDED]), _MIN_GROWTH * len(self._room))
            most = max(_MAX_GROWTH * len(self._room), _GUESSED_BYTES)
            larger = np.empty(max(least, min(guess, most)), np.uint8)
            if self._is_from_end:
                larger[len(larger) - used :] = self._room[len(self._room) - used :]
            else:
                larger[:used] = self._room[:used]
            self._room = larger

    def _values(self, starts: Int64Array, is_null: npt.NDArray[Any] | None) -> Any:
        rows_count = len(starts) - 1
        validity = None
        if is_null is not None and is_null.any():
            validity = pa.py_buffer(np.packbits(is_null == 0, bitorder="little"))
        buffers = [validity, pa.py_buffer(starts), pa.py_buffer(self._room)]
        return pa.LargeBinaryArray.from_buffers(pa.large_binary(), rows_count, buffers)

    def _skipped(self, arrow_batch: Any, arrays: list[Any]) -> npt.NDArray[np.uint8] | None:
        """Return uint8[n], 1 for rows whose value is null, or None."""
        skipped = is_null(arrays[0]) if self._is_single and arrays[0].null_count else None
        if self._plan.null_when is not None:
            column = arrow_batch.column(arrow_batch.schema.get_field_index(self._plan.null_when))
            deleted = column.fill_null(False).to_numpy(zero_copy_only=False)
            skipped = deleted if skipped is None else skipped | deleted
        return None if skipped is None else skipped.astype(np.uint8)

    def _zone_table(self) -> Int64Array:
        """Return the table of the time zone; empty if no column needs it or it is unknown."""
        zone, kinds = self._plan.json_options.time_zone, {node.kind for node in self._nodes}
        if nodes.TIMESTAMP in kinds:
            return zone_table(zone or "UTC")
        if zone is None or nodes.VARIANT not in kinds:
            return np.zeros((0, 2), np.int64)
        return zone_table(zone)

    def _new_state(self) -> Int64Array:
        prefix, options = self._plan.prefix, self._plan.json_options
        state = np.zeros(nodes.STATE_FIELDS, np.int64)
        state[nodes.NODES] = self._table.numbers.ctypes.data
        state[nodes.FRAMES] = self._frames.ctypes.data
        state[nodes.PREFIX], state[nodes.PREFIX_BYTES] = self._prefix.ctypes.data, len(prefix)
        state[nodes.SLACK] = self._slack()
        state[nodes.ZONES], state[nodes.ZONES_COUNT] = self._zones.ctypes.data, len(self._zones)
        state[nodes.FLAGS] = nodes.IGNORE_NULLS if options.ignore_null_fields else 0
        return state

    def _slack(self) -> int:
        if self._is_from_end:
            return nodes.WIDEST_FIELD + len(self._plan.prefix)
        widest = max(len(node.name) + _fixed_bytes(node) for node in self._nodes)
        return widest + self._table.root.depth + 2 * nodes.WIDEST_TEXT


def _fixed_bytes(node: Node) -> int:
    size = node.parameter if node.written_as == nodes.FIXED else 0
    return size + nodes.WIDEST_STEP * len(node.pattern or ())


def _root(plan: FormatSpec, schema: pa.Schema) -> Root:
    columns = [Column(f.name, ".".join(f.path), type_at(schema, f.path)) for f in plan.fields]
    if plan.format == JSON:
        types = (json.loads(f.spark_type) if f.spark_type else None for f in plan.fields)
        found = (json_node(c.path, c.name, c.type, spark) for c, spark in zip(columns, types))
        numbered = tuple(node._replace(source=n) for n, node in enumerate(found))
        row = Node(nodes.STRUCT, children=numbered)
        return Root(with_patterns(row, patterns_of(plan.json_options)))
    if plan.format == AVRO and plan.avro_schema is not None:
        return avro_root(parsed_schema(plan.avro_schema), columns, plan.avro_record)
    if plan.format == PROTOBUF and plan.protobuf_schema is not None:
        return Root(protobuf_root(plan.protobuf_schema, columns))
    raise FormatError(f"format '{plan.format}' is not known", code="OPTION-003")


_EXPONENT = "E"
_MICROS = 1_000_000
_MICROS_PER_DAY = 86_400 * _MICROS
# Bytes before and after the text in a JSON object with one field without a name.
_BEFORE, _BEHIND = len('{"":"'), len('"}')


def text_of(column: Any, name: str, time_zone: str, is_ansi: bool) -> Any:
    """Return a string array of the column's texts; nulls stay null.

    time_zone: of the Spark session, for timestamps. name: the column's name, for the error
    is_ansi: spark.sql.ansi.enabled: whether decimals have no exponent

    Raises SchemaError for types whose text this function cannot write as Spark does: floating
    point, intervals, types with fields or elements. Raises FormatError for an unknown time zone.
    """
    kind = column.type
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind):
        return column.cast(pa.string())
    if pa.types.is_date32(kind):
        return _written(column).cast(pa.string())
    if pa.types.is_decimal(kind):
        return _plain_decimals(column) if is_ansi else column.cast(pa.string())
    if pa.types.is_timestamp(kind):
        return _timestamps(column, None if kind.tz is None else time_zone)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return column
    raise SchemaError(f"column '{name}' of the Arrow type {kind} has no text", code="FORMAT-007")


def _plain_decimals(column: Any) -> Any:
    """Return the decimals as texts without exponents, which Arrow's texts and BigDecimal's have."""
    texts = column.cast(pa.string())
    small = pc.match_substring(texts, _EXPONENT).fill_null(False)
    if not pc.any(small).as_py():
        return texts
    numbers = column.filter(small).to_pylist()
    # A zero with a negative scale is one digit in Java.
    plain = [f"{number:f}" if number or column.type.scale > 0 else "0" for number in numbers]
    return pc.replace_with_mask(texts, small, pa.array(plain, pa.string()))


def _timestamps(column: Any, time_zone: str | None) -> Any:
    """Return texts such as ``2013-01-01 05:00:00.5``, without the fraction's trailing zeros."""
    micros = column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    days, of_day = np.divmod(micros, _MICROS_PER_DAY)
    if time_zone is not None:
        # Add the offset to the time of day: the sum with the whole could overflow int64.
        of_day = of_day + _MICROS * seconds_ahead(micros // _MICROS, time_zone)
        more, of_day = np.divmod(of_day, _MICROS_PER_DAY)
        days = days + more
    dates = _written(pa.array(days.astype(np.int32)).view(pa.date32()))
    times = _written(pa.array(of_day * 1000).view(pa.time64("ns")))
    texts = pc.binary_join_element_wise(dates, times, pa.scalar(b" ", dates.type))
    return pc.if_else(column.is_valid(), texts, None).cast(pa.string())


def _written(column: Any) -> Any:
    """Return the JSON kernel's text of dates or times of day: Arrow's ends with the year 9999."""
    schema = pa.schema([("c", column.type)])
    encoder = RowEncoder(FormatSpec(JSON, (FieldSpec(("c",), ""),)), schema)
    values = encoder.encode(pa.record_batch([column], schema=schema)).values
    texts = pc.binary_slice(values, _BEFORE, -_BEHIND)
    return pc.if_else(column.is_valid(), texts, None) if column.null_count else texts


_MAY_BE_DAMAGED = (nodes.VARIANT, nodes.TIME)


def rows_as_json(arrow_batch: ArrowBatch, time_zone: str | None) -> Any:
    """Return a LargeBinaryArray with a JSON object per row, with all columns including nulls.

    time_zone: of the Spark session, or None; UTC replaces a zone that Python does not know
    """
    zone = _known(time_zone)
    values, faults = _encoded(arrow_batch, zone, are_all_read=True)
    if faults is None:
        return values
    damaged = np.flatnonzero(faults)
    others = _encoded(rows_of(arrow_batch, damaged), zone, are_all_read=False).values
    return pc.replace_with_mask(values, pa.array(faults != 0), others)


def _encoded(arrow_batch: ArrowBatch, time_zone: str | None, are_all_read: bool) -> EncodedRows:
    """Return the rows as JSON.

    are_all_read: decode VARIANTs and times; a row with a damaged VARIANT or a time outside a day
    has a fault. Otherwise such columns are written without decoding.
    """
    arrays = (arrow_batch.column(number) for number in range(arrow_batch.num_columns))
    columns = [_writable_column(column, are_all_read) for column in arrays]
    # Columns get numbers because several columns may have one name.
    numbers = [str(number) for number in range(len(columns))]
    schema = pa.schema([(number, column.type) for number, column in zip(numbers, columns)])
    names = zip(numbers, arrow_batch.schema.names)
    fields = tuple(FieldSpec((number,), name) for number, name in names)
    options = JsonOptions(ignore_null_fields=False, time_zone=time_zone)
    encoder = RowEncoder(FormatSpec(JSON, fields, json_options=options), schema)
    return encoder.encode(pa.record_batch(columns, schema=schema))


def _known(time_zone: str | None) -> str | None:
    try:
        if time_zone is not None:
            zone_table(time_zone)
    except FormatError:
        return "UTC"
    return time_zone


def _writable_column(column: Any, are_all_read: bool) -> Any:
    """Return the column cast to a type that JSON supports, or a note if no cast exists."""
    kind = _writable(column.type, are_all_read)
    # Compare the metadata too: only the metadata marks a struct as a VARIANT.
    if column.type.equals(kind, check_metadata=True):
        return column
    try:
        return column.cast(kind)
    except pa.ArrowException:
        return pa.repeat(pa.scalar(f"({column.type}: not shown)", pa.string()), len(column))


def _writable(kind: Any, are_all_read: bool) -> Any:
    """Return the type to which values are cast: ``kind`` itself if JSON has a form for it.

    Maps with keys that JSON does not support become lists of keys and values. A VARIANT that is not
    decoded becomes its two parts. Other types, and times that are not decoded, become text.
    """
    try:
        inside = json_node("", "", kind).walk()
    except FormatError:
        pass
    else:
        if are_all_read or all(node.kind not in _MAY_BE_DAMAGED for node in inside):
            return kind
    inner = partial(_writable, are_all_read=are_all_read)
    if pa.types.is_map(kind):
        entry = [("key", inner(kind.key_type)), ("value", inner(kind.item_type))]
        return pa.list_(pa.struct(entry))
    if pa.types.is_struct(kind):
        # Without the metadata, which marks a struct as a VARIANT.
        fields = (kind.field(number) for number in range(kind.num_fields))
        return pa.struct([pa.field(f.name, inner(f.type)) for f in fields])
    if pa.types.is_list(kind):
        return pa.list_(inner(kind.value_type))
    if pa.types.is_large_list(kind):
        return pa.large_list(inner(kind.value_type))
    return pa.string()


class EncodedBatch(NamedTuple):
    """Encoded rows. rows: columns to append; faulty rows hold JSON if the encoder writes it"""

    rows: ArrowBatch
    faults: RowFaults

    def checked(self, row_origin: str) -> ArrowBatch:
        """Return the rows. Raises RecordError if a row has a fault.

        row_origin: what the row's number refers to, for the message
        """
        bad = self.faults.bad
        if len(bad):
            first = int(bad[0])
            raise RecordError(
                f"row {first} of {row_origin}: {self.faults.found[first].message}. "
                "errors.tolerance=all makes dead letters of such rows",
                code="ROW-007",
            )
        return self.rows


class RowsEncoder:
    """Builds the columns that a task appends.

    returns_faulty_rows: whether the value of a faulty row is the row as JSON, for its dead letter
    """

    def __init__(self, plan: RowSpec, returns_faulty_rows: bool = False) -> None:
        self._plan = _in_session(plan)
        self._returns_faulty_rows = returns_faulty_rows
        self._names = names_of(plan)
        self._schema: Any = None
        self._zone: str | None = None
        self._parts: dict[str, _Part] = {}

    def encode(self, arrow_batch: ArrowBatch) -> EncodedBatch:
        """Encode all rows in order. Raises SchemaError, FormatError for a column's type."""
        plan = self._plan
        self._prepare(arrow_batch.schema)
        faults = RowFaults(arrow_batch.num_rows)
        value = self._parts[VALUE].make(arrow_batch, faults)
        if plan.null_when is not None and plan.value.plan is None:
            is_deleted = arrow_batch.column(plan.null_when).fill_null(False)
            value = pc.if_else(is_deleted, None, value)
        columns = {VALUE: value}
        if KEY in self._parts:
            columns[KEY] = self._parts[KEY].make(arrow_batch, faults)
        columns.update({part: arrow_batch.column(n) for part, n in plan.kept})
        bad = faults.bad
        if HEADERS in self._names:
            columns[HEADERS] = self._with_part_headers(columns, bad)
        if len(bad) and self._returns_faulty_rows:
            texts = rows_as_json(rows_of(arrow_batch, bad), self._zone)
            columns[VALUE] = _with_values(columns[VALUE], bad, texts)
        arrays = [columns[name] for name in self._names]
        return EncodedBatch(pa.record_batch(arrays, names=self._names), faults)

    def _with_part_headers(self, columns: dict[str, Any], bad: Int64Array) -> Any:
        """Return the headers with those of the keys and values that a schema has encoded.

        A null has no schema, and neither has the JSON that replaces the value of a row in ``bad``.
        A header of this name that a row brings along belongs to other bytes, and is dropped.
        """
        added: dict[str, Any] = {}
        for part, spec in ((VALUE, self._plan.value), (KEY, self._plan.key)):
            if spec is not None and spec.header is not None:
                has_none = is_null(columns[part])
                if part == VALUE:
                    has_none[bad] = True
                name, content = spec.header
                added[name] = pa.array([content], pa.binary()).take(
                    pa.array(np.zeros(len(has_none), np.int64), mask=has_none)
                )
        headers = columns.get(HEADERS)
        if not added:
            return headers
        if headers is not None:
            headers = without_headers(headers, added)
        return with_headers(headers, len(columns[VALUE]), added)

    def _prepare(self, schema: Any) -> None:
        """Build the encoders, again only if the schema changes, which Spark never does."""
        if self._schema is not None and self._schema.equals(schema):
            return
        found = (zone for zone in map(_zone_of, schema.types) if zone)
        zone = next(found, self._plan.session_zone)
        is_ansi = self._plan.is_ansi
        parts = {VALUE: self._plan.value, KEY: self._plan.key}
        self._parts = {
            name: _Part(name, part, schema, zone, is_ansi)
            for name, part in parts.items()
            if part is not None
        }
        self._schema, self._zone = schema, zone


def _in_session(plan: RowSpec) -> RowSpec:
    """Return the plan with null fields in JSON if the session writes them. Raises ConfigError."""
    if plan.ignores_nulls:
        return plan
    key = None if plan.key is None else _with_null_fields(KEY, plan.key)
    return plan._replace(value=_with_null_fields(VALUE, plan.value), key=key)


def _with_null_fields(name: str, part: PartSpec) -> PartSpec:
    if part.plan is None or not part.takes_session_nulls:
        return part
    if part.has_id:
        raise ConfigError(
            "spark.sql.jsonGenerator.ignoreNullFields=false: the driver does not see that setting "
            f"when it looks for the {name}'s JSON Schema, in which null fields are left out. Set "
            f"{name}.json.ignoreNullFields",
            code="FORMAT-020",
        )
    options = replace(part.plan.json_options, ignore_null_fields=False)
    return part._replace(plan=replace(part.plan, json_options=options))


class _Part:
    """Builds the column of keys or of values.

    zone, is_ansi: of the Spark session; the zone is None if unknown
    """

    def __init__(
        self, name: str, plan: PartSpec, schema: Any, zone: str | None, is_ansi: bool
    ) -> None:
        self._name = name
        self._plan = plan
        self._zone = zone
        self._is_ansi = is_ansi
        self._encoder: RowEncoder | None = None
        if plan.plan is not None:
            options = plan.plan.json_options
            if plan.takes_session_zone:
                options = replace(options, time_zone=zone)
            self._encoder = RowEncoder(replace(plan.plan, json_options=options), schema)

    def make(self, arrow_batch: ArrowBatch, faults: RowFaults) -> Any:
        """Return a column with bytes or a text per row."""
        plan = self._plan
        if self._encoder is not None:
            return self._encoded(self._encoder, arrow_batch, faults)
        assert plan.column is not None
        column = arrow_batch.column(plan.column)
        if plan.is_text:
            name = arrow_batch.schema.field(plan.column).name
            column = text_of(column, name, self._zone or "UTC", self._is_ansi)
        if plan.prefix:
            prefix, nothing = (pa.scalar(b, pa.large_binary()) for b in (plan.prefix, b""))
            column = column.cast(pa.large_binary())
            column = pc.binary_join_element_wise(prefix, column, nothing)
        return column

    def _encoded(self, encoder: RowEncoder, arrow_batch: ArrowBatch, faults: RowFaults) -> Any:
        values, codes = encoder.encode(arrow_batch)
        if self._plan.column is not None:
            struct = arrow_batch.column(self._plan.column)
            if struct.null_count:
                values = pc.if_else(struct.is_valid(), values, None)
                if codes is not None:
                    codes = np.where(is_null(struct), 0, codes)
        if codes is not None:
            text = encoder.fault_text
            begin = f"its {self._name} cannot be written: "
            faults.add(codes != 0, NOT_ENCODABLE, lambda row: begin + text(int(codes[row])))
        return values


def _zone_of(kind: Any) -> str | None:
    """Return the time zone of timestamps in a type, or None; Spark sets the session's zone."""
    if pa.types.is_timestamp(kind):
        zone: str | None = kind.tz
        return zone
    inner = (kind.field(n).type for n in range(kind.num_fields))
    return next((zone for zone in map(_zone_of, inner) if zone), None)


def _with_values(values: Any, rows: Any, others: Any) -> Any:
    """Return ``values`` with the values of ``rows`` replaced by ``others``."""
    mask = np.zeros(len(values), np.bool_)
    mask[rows] = True
    return pc.replace_with_mask(values.cast(pa.large_binary()), pa.array(mask), others)
