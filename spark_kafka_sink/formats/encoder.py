"""Arrow batches → one value of bytes for each row."""

from __future__ import annotations

import json
import sys
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_kafka_sink.formats.avro_layout import avro_root
from spark_kafka_sink.formats.avro_names import parsed_schema
from spark_kafka_sink.formats.errors import FormatError
from spark_kafka_sink.formats.json_layout import json_node, with_patterns
from spark_kafka_sink.formats.layout import Column, Node, Table, array_at, type_at
from spark_kafka_sink.formats.patterns import patterns_of
from spark_kafka_sink.formats.plan import AVRO, JSON, PROTOBUF, FormatPlan, PlannedField
from spark_kafka_sink.formats.protobuf_layout import protobuf_root
from spark_kafka_sink.formats.zones import zone_table
from spark_kafka_sink.record.compiled import avro_rows, nodes, protobuf_rows, variant
from spark_kafka_sink.record.compiled.avro_rows import FIXED
from spark_kafka_sink.record.compiled.calls import write_avro, write_json, write_protobuf
from spark_kafka_sink.record.compiled.json_rows import IGNORE_NULLS, WIDEST_TEXT
from spark_kafka_sink.record.compiled.patterns import WIDEST_STEP
from spark_kafka_sink.record.compiled.protobuf_rows import WIDEST_FIELD

Int64Array = npt.NDArray[np.int64]

_LEAST_BYTES = 64 * 1024
_MARGIN = 1.125
# Memory becomes so much larger at least, and because of what is guessed so much larger at most, or
# as large as _GUESSED_BYTES: one large row says nothing of those after it.
_LEAST_GROWTH = 2
_MOST_GROWTH = 4
_GUESSED_BYTES = 64 * 1024 * 1024
_KERNELS = {JSON: write_json, AVRO: write_avro, PROTOBUF: write_protobuf}
_AVRO_FAULTS = {
    avro_rows.NULL_VALUE: (
        "field '{path}' is null, and the Avro schema has no null for it: filter such rows, give "
        "the field a union with null, or set errors.tolerance=all"
    ),
    avro_rows.WRONG_SIZE: (
        "field '{path}' does not have the {size} bytes of the Avro schema's fixed type"
    ),
    avro_rows.NO_SYMBOL: "field '{path}' is none of the symbols of the Avro schema's enum",
}
_PROTOBUF_FAULTS = {
    protobuf_rows.NULL_VALUE: (
        "field '{path}' is null, and Protobuf has no null for required fields, elements and values "
        "of maps"
    ),
    protobuf_rows.OUT_OF_RANGE: "field '{path}' is out of the range of its Protobuf type",
    protobuf_rows.NO_SYMBOL: "field '{path}' is none of the values of its Protobuf enum",
    protobuf_rows.TWO_OF_ONE: (
        "field '{path}' and another one of the same Protobuf oneof are both not null"
    ),
    protobuf_rows.NOT_UTF8: "field '{path}' is a string that is not UTF-8",
}
_JSON_FAULTS = {
    variant.MALFORMED: "the bytes of the VARIANT '{path}' are damaged",
    variant.UNKNOWN_TYPE: (
        "the VARIANT '{path}' has a value of a type that is not known: Spark's own functions "
        "make none such"
    ),
    variant.TOO_DEEP: (
        f"the VARIANT '{{path}}' has more than {variant.MOST_LEVELS} objects and arrays in one "
        "another"
    ),
    variant.NO_ZONE: (
        "the VARIANT '{path}' has a timestamp, and Spark tells no task the time zone of a session "
        "that has its default: set spark.sql.session.timeZone, or the option value.json.timeZone "
        "(of keys key.json.timeZone)"
    ),
    variant.NO_TIME: "field '{path}' is not a time of a day: it is negative, or 24 hours and more",
    variant.TOO_LONG: "the VARIANT '{path}' would be more than 2 GiB of text",
}
_FAULTS = {
    JSON: (variant.FAULT_CAUSES, _JSON_FAULTS),
    AVRO: (avro_rows.FAULT_CAUSES, _AVRO_FAULTS),
    PROTOBUF: (protobuf_rows.FAULT_CAUSES, _PROTOBUF_FAULTS),
}


class EncodedRows(NamedTuple):
    """What the rows of one Arrow batch are written as.

    values: a pyarrow.LargeBinaryArray of a value for each row; null where a row's value is to be
        null, and where it could not be written
    faults: int64[n], 0 for rows that were written, else a number for ``RowEncoder.fault_text``;
        None if all were
    """

    values: Any
    faults: Int64Array | None


class RowEncoder:
    """The rows of Arrow batches of one schema, written as a plan says.

    Kernels write to one piece of memory, from its beginning, or, Protobuf's, from its end.

    Raises FormatError for a column that is not there, or whose type the format cannot have.
    """

    def __init__(self, plan: FormatPlan, schema: pa.Schema) -> None:
        self._plan = plan
        self._check_null_when(schema)
        self._table = Table(_root(plan, schema))
        self._nodes = list(self._table.root.walk())
        self._kernel = _KERNELS[plan.format]
        self._is_from_end = plan.format == PROTOBUF
        self._zones = self._zone_table()
        self._prefix = np.frombuffer(plan.prefix or b"\0", np.uint8)
        self._frames = np.zeros((_levels(self._table.root), nodes.FRAME_FIELDS), np.int64)
        self._state = self._new_state()
        # Kept between Arrow batches unless what was written to it is still referred to.
        self._room: npt.NDArray[np.uint8] = np.empty(_LEAST_BYTES, np.uint8)

    def encode(self, arrow_batch: pa.RecordBatch) -> EncodedRows:
        """The values of the rows of ``arrow_batch``, one for each."""
        rows_count = arrow_batch.num_rows
        arrays = [array_at(arrow_batch, field.path) for field in self._plan.fields]
        skipped = self._skipped(arrow_batch)
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
        """Why a row could not be written: names the field, and tells nothing of its value."""
        causes, texts = _FAULTS[self._plan.format]
        node = self._nodes[fault // causes]
        return texts[fault % causes].format(path=node.path, size=node.parameter)

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
            # As many bytes for each row that is left as for those before.
            guess = int(used / max(done, 1) * rows_count * _MARGIN)
            least = max(used + int(state[nodes.NEEDED]), _LEAST_GROWTH * len(self._room))
            most = max(_MOST_GROWTH * len(self._room), _GUESSED_BYTES)
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
        data = pa.py_buffer(self._room)
        buffers = [validity, pa.py_buffer(starts), data]
        return pa.LargeBinaryArray.from_buffers(pa.large_binary(), rows_count, buffers)

    def _skipped(self, arrow_batch: pa.RecordBatch) -> npt.NDArray[np.uint8] | None:
        """uint8[n]: 1 for rows whose value is null."""
        if self._plan.null_when is None:
            return None
        column = arrow_batch.column(arrow_batch.schema.get_field_index(self._plan.null_when))
        found: npt.NDArray[np.bool_] = column.fill_null(False).to_numpy(zero_copy_only=False)
        return found.astype(np.uint8)

    def _zone_table(self) -> Int64Array:
        """Empty where no column asks for a time zone, or it is not known."""
        zone, kinds = self._plan.json_options.time_zone, {node.kind for node in self._nodes}
        if nodes.TIMESTAMP in kinds:
            return zone_table(zone or "UTC")
        if zone is None or nodes.VARIANT not in kinds:
            return np.zeros((0, 2), np.int64)
        return zone_table(zone)

    def _check_null_when(self, schema: pa.Schema) -> None:
        name = self._plan.null_when
        if name is not None:
            found = type_at(schema, (name,))
            if found != pa.bool_():
                raise FormatError(f"column '{name}' must be boolean, not {found}")

    def _new_state(self) -> Int64Array:
        table = self._table
        state = np.zeros(nodes.STATE_FIELDS, np.int64)
        state[nodes.NODES] = table.numbers.ctypes.data
        state[nodes.FRAMES] = self._frames.ctypes.data
        state[nodes.PREFIX] = self._prefix.ctypes.data
        state[nodes.PREFIX_BYTES] = len(self._plan.prefix)
        state[nodes.SLACK] = self._slack()
        state[nodes.ZONES] = self._zones.ctypes.data
        state[nodes.ZONES_COUNT] = len(self._zones)
        state[nodes.FLAGS] = IGNORE_NULLS if self._plan.json_options.ignore_null_fields else 0
        return state

    def _slack(self) -> int:
        if self._is_from_end:
            return WIDEST_FIELD + len(self._plan.prefix)
        root = self._table.root
        widest = max(len(node.name) + _fixed_bytes(node) for node in root.walk())
        return widest + root.depth + 2 * WIDEST_TEXT


def _levels(root: Node) -> int:
    """Return how many frames suffice: a VARIANT's begin where those of what it is in end."""
    has_variants = any(node.kind == nodes.VARIANT for node in root.walk())
    return root.depth + (variant.MOST_LEVELS if has_variants else 0)


def _fixed_bytes(node: Node) -> int:
    size = node.parameter if node.written_as == FIXED else 0
    return size + WIDEST_STEP * len(node.pattern)


def _root(plan: FormatPlan, schema: pa.Schema) -> Node:
    if plan.format == JSON:
        patterns = patterns_of(plan.json_options)
        children = (_json_field(field, schema) for field in plan.fields)
        numbered = tuple(child._replace(source=n) for n, child in enumerate(children))
        return with_patterns(Node(nodes.STRUCT, children=numbered), patterns)
    columns = [
        Column(field.name, ".".join(field.path), type_at(schema, field.path))
        for field in plan.fields
    ]
    if plan.format == AVRO and plan.avro_schema is not None:
        return avro_root(parsed_schema(plan.avro_schema), columns)
    if plan.format == PROTOBUF and plan.protobuf_schema is not None:
        return protobuf_root(plan.protobuf_schema, columns)
    raise FormatError(f"format '{plan.format}' is not known")


def _json_field(field: PlannedField, schema: pa.Schema) -> Node:
    spark_type = json.loads(field.spark_type) if field.spark_type else None
    path = ".".join(field.path)
    return json_node(path, field.name, type_at(schema, field.path), spark_type)
