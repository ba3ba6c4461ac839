"""Generate layouts of all formats with extreme parameters, and columns of raw bytes, by a seed.

Other tests use Spark's types and plausible values. The layouts here contain decimals of any scale,
empty enums, structs without fields, strings that are not UTF-8, times outside of a day, and any
bytes below a null.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from spark_kafka_sink.formats.plan import (
    AVRO,
    ENUM,
    JSON,
    MESSAGE,
    PROTOBUF,
    FieldSpec,
    FormatSpec,
    JsonOptions,
    ProtobufEnum,
    ProtobufField,
    ProtobufMessage,
    ProtobufSchema,
)
from tests.formats.variants import KIND as VARIANT

_ZONES = ["UTC", "+18:00", "-18:00", "-17:59:59", "Europe/Berlin", "Africa/Casablanca", "GMT+1"]
_ZONES += ["America/St_Johns", "Pacific/Kiritimati", "Z", "PST"]
_LETTERS = ["yyyyyy", "y", "yy", "yyyy", "M", "MM", "dd", "'a long text'", "''", "-", "é", "'\"'"]
_CLOCKS = ["HH", "m", "ss", *("S" * n for n in range(1, 10))]
_OFFSETS = ["XXXXX", "X", "xxxxx", "xx", "Z", "ZZZZZ", "VV"]
_UNITS = ["day", "hour", "minute", "second"]
_PRIMITIVE = [pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32()]
_PRIMITIVE += [pa.float64(), pa.date32(), pa.timestamp("us", "UTC"), pa.timestamp("us")]
_PRIMITIVE += [pa.time64("ns"), pa.duration("us")]
_TEXTS = [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()]
_INTEGERS = {"int": [pa.int8(), pa.int16(), pa.int32(), pa.date32()], "boolean": [pa.bool_()]}
_AVRO: dict[str, list[Any]] = {
    **_INTEGERS,
    "long": [pa.int8(), pa.int32(), pa.int64(), pa.duration("us"), pa.timestamp("us")],
    "float": [pa.int16(), pa.int64(), pa.float32()],
    "double": [pa.int8(), pa.int64(), pa.float32(), pa.float64()],
    "string": _TEXTS[:2],
    "bytes": _TEXTS,
}
_PROTOBUF: dict[str, list[Any]] = {
    **{name: [pa.int8(), pa.int32(), pa.int64()] for name in ("int32", "sint32", "sfixed32")},
    **{name: [pa.int8(), pa.int32(), pa.int64()] for name in ("int64", "sint64", "sfixed64")},
    **{name: [pa.int16(), pa.int64()] for name in ("uint32", "fixed32")},
    **{name: [pa.int16(), pa.int64(), pa.decimal128(20, 0)] for name in ("uint64", "fixed64")},
    "bool": [pa.bool_()],
    "float": [pa.float32()],
    "double": [pa.float32(), pa.float64()],
    "string": _TEXTS[:2],
    "bytes": _TEXTS[2:],
}
_WRAPPERS = {"Double": "double", "Float": "float", "Int64": "int64", "UInt64": "uint64"}
_WRAPPERS |= {"Int32": "int32", "UInt32": "uint32", "Bool": "bool", "String": "string"}
_WRAPPERS |= {"Bytes": "bytes"}


class Layout(NamedTuple):
    """A plan, and the schema of its columns."""

    plan: FormatSpec
    schema: pa.Schema


class RandomLayouts:
    """Layouts and batches of one seed. An equal seed generates equal layouts and batches."""

    def __init__(self, seed):
        self._random = np.random.default_rng(seed)
        self._names = 0
        self._messages = []
        self._enums = []

    def layout(self, name):
        """Return a layout of the format ``name``."""
        fields, made = {JSON: self._json, AVRO: self._avro, PROTOBUF: self._protobuf}[name]()
        schema = pa.schema(fields)
        if self.chance(0.2):
            schema = schema.append(pa.field("deleted", pa.bool_()))
            made["null_when"] = "deleted"
        prefix = self._random.bytes(self._one_of([0, 0, 1, 5, 9, 300]))
        planned = tuple(
            FieldSpec((field.name,), field.name, self._spark_type(field.type)) for field in fields
        )
        return Layout(FormatSpec(name, planned, prefix, **made), schema)

    def batch(self, schema):
        """Return up to 12 rows, which may be a slice of longer columns."""
        count = int(self._random.integers(0, 13))
        arrays = [self.array(field.type, count, field.nullable) for field in schema]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def chance(self, of=0.5):
        return bool(self._random.random() < of)

    def below(self, stop):
        return int(self._random.integers(stop))

    def _one_of(self, options):
        return options[int(self._random.integers(len(options)))]

    def _name(self):
        self._names += 1
        return f"{'n' * self._one_of([1, 1, 2, 7, 8, 60])}{self._names}"

    # --- JSON ------------------------------------------------------------------------------------

    def _json(self):
        count = self._one_of([0, 1, 1, 2, 3, 6])
        fields = [pa.field(self._name(), self._type(3)) for _ in range(count)]
        clocks = [*_LETTERS, *_CLOCKS]
        options = JsonOptions(
            ignore_null_fields=self.chance(),
            time_zone=self._one_of(_ZONES),
            timestamp_format=self._pattern([*clocks, *_OFFSETS]),
            timestamp_ntz_format=self._pattern(clocks),
            date_format=self._pattern(_LETTERS),
        )
        return fields, {"json_options": options}

    def _pattern(self, letters):
        if self.chance(0.6):
            return None
        steps = [self._one_of(letters) for _ in range(self._one_of([0, 1, 3, 12]))]
        return ",".join(steps)

    def _type(self, depth):
        shape = self.below(10) if depth else 9
        if shape == 0:
            return self._one_of([pa.list_, pa.large_list])(self._type(depth - 1))
        if shape == 1:
            count = self._one_of([0, 1, 2, 4])
            return pa.struct([(self._name(), self._type(depth - 1)) for _ in range(count)])
        if shape == 2:
            key = self._one_of([pa.string(), *_PRIMITIVE, self._decimal()])
            return pa.map_(key, self._type(depth - 1))
        if shape == 3:
            return VARIANT
        kinds = [self._one_of(_PRIMITIVE), self._one_of(_TEXTS), self._decimal(), pa.null()]
        return kinds[int(self._random.choice(4, p=[0.5, 0.25, 0.2, 0.05]))]

    def _decimal(self):
        scale = self._one_of([0, 1, 6, 7, 37, 38, 39, 1000, 2**31 - 1, -1, -9, -1000, -(2**31)])
        return pa.decimal128(int(self._random.integers(1, 39)), scale)

    def _spark_type(self, kind):
        if not pa.types.is_duration(kind) or self.chance():
            return ""
        first = self.below(4)
        last = int(self._random.integers(first, 4))
        between = "" if first == last else f" to {_UNITS[last]}"
        return json.dumps(f"interval {_UNITS[first]}{between}")

    # --- Avro ------------------------------------------------------------------------------------

    def _avro(self):
        fields, columns = self._avro_fields(3)
        schema = {"type": "record", "name": self._name(), "fields": fields}
        return columns, {"avro_schema": json.dumps(schema)}

    def _avro_fields(self, depth):
        fields, columns = [], []
        for _ in range(self._one_of([0, 1, 2, 5])):
            name, (avro, arrow) = self._name(), self._avro_type(depth)
            field = {"name": name, "type": self._perhaps_union(avro)}
            if self.chance(0.15):
                field = {"name": name, "type": "string", "default": "d" * self.below(300)}
            else:
                columns.append(pa.field(name, arrow))
            fields.append(field)
        return fields, columns

    def _perhaps_union(self, avro):
        if avro == "null" or self.chance(0.4):
            return avro
        others = [["null"], ["null", self._enum([])]][self.below(2)]
        place = self.below(len(others) + 1)
        return [*others[:place], avro, *others[place:]]

    def _avro_type(self, depth):
        shape = self.below(12) if depth else int(self._random.integers(3, 12))
        if shape == 0:
            avro, arrow = self._avro_type(depth - 1)
            made = self._one_of([pa.list_, pa.large_list])(arrow)
            return {"type": "array", "items": self._perhaps_union(avro)}, made
        if shape == 1:
            avro, arrow = self._avro_type(depth - 1)
            key = self._one_of(_TEXTS[:2])
            return {"type": "map", "values": self._perhaps_union(avro)}, pa.map_(key, arrow)
        if shape == 2:
            fields, columns = self._avro_fields(depth - 1)
            return {"type": "record", "name": self._name(), "fields": fields}, pa.struct(columns)
        if shape == 3:
            return self._enum(self._symbols()), self._one_of(_TEXTS[:2])
        if shape == 4:
            size = self._one_of([0, 1, 3, 12, 5000])
            fixed = {"type": "fixed", "name": self._name(), "size": size}
            return fixed, self._one_of(_TEXTS[2:])
        if shape == 5:
            return self._avro_decimal()
        if shape == 6:
            return "null", pa.null()
        if shape == 7:
            logical, kind = self._one_of(
                [
                    ("timestamp-micros", pa.timestamp("us", "UTC")),
                    ("timestamp-millis", pa.timestamp("us", "UTC")),
                    ("local-timestamp-millis", pa.timestamp("us")),
                    ("time-micros", pa.time64("ns")),
                ]
            )
            return {"type": "long", "logicalType": logical}, kind
        name = self._one_of(sorted(_AVRO))
        return name, self._one_of(_AVRO[name])

    def _avro_decimal(self):
        precision = int(self._random.integers(1, 39))
        scale = int(self._random.integers(0, precision + 1))
        made = {"logicalType": "decimal", "precision": precision, "scale": scale}
        kind = pa.decimal128(precision, scale)
        if self.chance():
            return {"type": "bytes", **made}, kind
        size = next(n for n in range(1, 99) if 10**precision <= 2 ** (8 * n - 1))
        size += self._one_of([0, 1, 20, 5000])
        return {"type": "fixed", "name": self._name(), "size": size, **made}, kind

    def _enum(self, symbols):
        return {"type": "enum", "name": self._name(), "symbols": symbols}

    def _symbols(self):
        return [f"{'s' * self.below(9)}s{n}" for n in range(self._one_of([0, 1, 2, 70]))]

    # --- Protobuf --------------------------------------------------------------------------------

    def _protobuf(self):
        self._messages, self._enums = [], []
        root, columns = self._message(3)
        schema = ProtobufSchema(root, tuple(self._messages), tuple(self._enums))
        return columns, {"protobuf_schema": schema}

    def _message(self, depth):
        fields, columns = [], []
        count = self._one_of([0, 1, 2, 5])
        numbers = self._random.choice(300, count, replace=False) + self._one_of([1, 2**29 - 300])
        for number in numbers.tolist():
            field, arrow = self._field(self._name(), number, depth)
            if not field.is_repeated and self.chance(0.3):
                has_rivals = self.chance()
                field = field._replace(has_presence=True, oneof="choice" if has_rivals else "")
            elif not field.is_repeated and self.chance(0.1):
                field = field._replace(has_presence=True, is_required=True)
            fields.append(field)
            columns.append(pa.field(field.name, arrow))
        name = self._name()
        self._messages.append(ProtobufMessage(name, tuple(fields)))
        return name, columns

    def _field(self, name, number, depth):
        shape = self.below(8)
        if shape == 0 and depth:
            key_type = self._one_of(["int32", "string", "bool", "uint64"])
            key = ProtobufField("key", 1, key_type)
            value, arrow = self._single("value", 2, depth - 1)
            entry = ProtobufMessage(self._name(), (key, value), is_entry=True)
            self._messages.append(entry)
            made = ProtobufField(name, number, MESSAGE, entry.name, is_repeated=True)
            return made, pa.map_(self._one_of(_PROTOBUF[key_type]), arrow)
        field, arrow = self._single(name, number, depth)
        if shape == 1:
            is_packed = self.chance() and field.type not in ("string", "bytes", MESSAGE)
            field = field._replace(is_repeated=True, is_packed=is_packed, has_presence=False)
            return field, self._one_of([pa.list_, pa.large_list])(arrow)
        return field, arrow

    def _single(self, name, number, depth):
        what = self.below(8)
        if what == 0:
            numbers = self._random.integers(-(2**31), 2**31, self._one_of([0, 1, 3, 70])).tolist()
            values = tuple((f"{'v' * self.below(9)}{n}", n) for n in numbers)
            self._enums.append(ProtobufEnum(self._name(), values))
            kind = self._one_of([pa.string(), pa.large_string(), pa.int8(), pa.int32()])
            return ProtobufField(name, number, ENUM, self._enums[-1].name), kind
        if what == 1:
            wrapper = self._one_of(sorted(_WRAPPERS))
            kind = self._one_of(_PROTOBUF[_WRAPPERS[wrapper]])
            return self._of_message(name, number, f"google.protobuf.{wrapper}Value"), kind
        if what == 2:
            known = [("Timestamp", pa.timestamp("us", "UTC")), ("Duration", pa.duration("us"))]
            time, kind = self._one_of(known)
            return self._of_message(name, number, f"google.protobuf.{time}"), kind
        if what == 3 and depth:
            message, columns = self._message(depth - 1)
            return self._of_message(name, number, message), pa.struct(columns)
        type_name = self._one_of(sorted(_PROTOBUF))
        return ProtobufField(name, number, type_name), self._one_of(_PROTOBUF[type_name])

    def _of_message(self, name, number, message):
        # A descriptor names all messages that it reaches, the well-known ones among them.
        if all(known.name != message for known in self._messages):
            self._messages.append(ProtobufMessage(message, ()))
        return ProtobufField(name, number, MESSAGE, message, has_presence=True)

    # --- columns -----------------------------------------------------------------------------------

    def array(self, kind, count, nullable=True):
        """Return an array whose buffers are exactly as long as Arrow's format promises."""
        if pa.types.is_null(kind):
            return pa.nulls(count)
        first = self._one_of([0, 0, 1, 7, 8, 9])
        total = first + count
        validity = None
        if nullable and self.chance(0.6):
            validity = self._buffer((total + 7) // 8)
        buffers, children = [validity], []
        if pa.types.is_struct(kind):
            children = self._children(kind, total)
        elif pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind):
            offsets, inside = self._offsets(kind, total, self._one_of([1, 3, 9]))
            buffers.append(offsets)
            if pa.types.is_map(kind):
                part = pa.field("entries", pa.struct([kind.key_field, kind.item_field]), False)
            else:
                part = kind.value_field
            children = [self.array(part.type, inside, part.nullable)]
        elif kind in _TEXTS:
            offsets, size = self._offsets(kind, total, self._one_of([1, 4, 9, 40]))
            buffers += [offsets, self._text(size)]
        elif pa.types.is_boolean(kind):
            buffers.append(self._buffer((total + 7) // 8))
        else:
            buffers.append(self._numbers(kind.bit_width // 8, total))
        return pa.Array.from_buffers(kind, count, buffers, -1, first, children)

    def _children(self, kind, total):
        if kind.equals(VARIANT, check_metadata=True):
            return [self.array(field.type, total, nullable=False) for field in kind]
        return [self.array(field.type, total, field.nullable) for field in kind]

    def _offsets(self, kind, total, most):
        is_large = pa.types.is_large_list(kind) or kind in (pa.large_string(), pa.large_binary())
        sizes = self._random.integers(0, most + 1, total)
        offsets = np.concatenate([[self._one_of([0, 3])], sizes]).cumsum()
        made = offsets.astype(np.int64 if is_large else np.int32)
        return pa.py_buffer(made), int(offsets[-1])

    def _text(self, size):
        """Return plain text, characters that need escapes, or any bytes."""
        options = [b"a plain text without an end", b'"\\\n\x01\x7f \t', bytes(range(256))]
        options += ["éä日😀".encode(), b"\x0c\x00\x03\x02\x10\x01\x01"]
        alphabet = np.frombuffer(self._one_of(options), np.uint8)
        return pa.py_buffer(self._random.choice(alphabet, size).astype(np.uint8))

    def _numbers(self, width, count):
        """Return numbers of any bits and all magnitudes, also the smallest and largest numbers."""
        data = np.frombuffer(self._random.bytes(width * count), np.uint8).reshape(count, width)
        data = data.copy()
        for row in data:
            kept, fill = self.below(width + 1), self._one_of([0, 0, 255])
            row[kept:] = fill
            if self.chance(0.1):
                row[:] = 0 if fill else 255
                row[-1] = self._one_of([0, 127, 128, 255])
        return pa.py_buffer(data)

    def _buffer(self, size):
        return pa.py_buffer(self._random.bytes(size))
