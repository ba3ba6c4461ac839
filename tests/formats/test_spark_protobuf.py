"""Protobuf as Spark's to_protobuf writes it, byte for byte, and where this differs.

The cases were made by Spark's own serializer of to_protobuf.
"""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from spark_kafka_sink.formats.encoder import RowEncoder
from spark_kafka_sink.formats.plan import PROTOBUF, FormatError, FormatPlan, PlannedField
from spark_kafka_sink.formats.protobuf_descriptors import read_descriptor_set
from tests.formats.cases_read import arrow_batch
from tests.formats.protobuf_twin import sized, varint

FOLDER = Path(__file__).parent / "protobuf_cases"
NAMES = sorted(path.stem for path in FOLDER.glob("*.json"))
# What Spark refuses to write, or fails at, and this writes; or what both write otherwise.
WRITTEN = {
    "micros": [
        b"\x0a"
        + sized(b"\x08" + varint(1_719_830_096) + b"\x10" + varint(123_456_000))
        + b"\x12"
        + sized(b"\x10" + varint(1000))
    ],
    "before_1970": [b"\x0a" + sized(b"\x08" + varint(-3601) + b"\x10" + varint(500_000_000))],
    "empty_bytes": [b""],  # Spark writes the default; readers see no difference
    "beyond_int32": [b"\x08\x01"],
    "int_as_int64": [b"\x08\x01"],
    "float_as_double": [b"\x09" + bytes(6) + b"\xf8\x3f"],
    "beyond_long": [b"\x08" + b"\xff" * 9 + b"\x01"],
}
# Rows that Spark writes although google.protobuf.Timestamp has no such time.
BEYOND = {"times": [3]}
# What Spark writes with a loss, or fails at, and this makes faults of.
FAULTS = {
    "required_null": "field 'a' is null, and Protobuf has no null for required fields",
    "map_null": r"field 'a\[\]' is null, and Protobuf has no null",
    "list_null": r"field 'a\[\]' is null, and Protobuf has no null",
    "both_of_one": "field 'b' and another one of the same Protobuf oneof are both not null",
    "beyond_uint32": "field 'a' is out of the range of its Protobuf type",
    "unknown_symbol": "field 'a' is none of the values of its Protobuf enum",
    "unknown_number": "field 'a' is none of the values of its Protobuf enum",
    "not_utf8": "field 'a' is a string that is not UTF-8",
}
REFUSED = {
    "decimal_as_double": r"'a' has the Arrow type decimal128\(2, 1\), .* 'a' \(double\) cannot",
    "ntz": r"timestamp\[us\], which the Protobuf field 'a' \(google\.protobuf\.Timestamp\) cannot",
    "text_as_bytes": r"string, which the Protobuf field 'a' \(bytes\) cannot hold",
    "no_field": r"message pkg\.Root has no field for 'b'",
    "no_column": r"message pkg\.Root requires the field 'b'",
}
SAME = [name for name in NAMES if name not in {**WRITTEN, **FAULTS, **REFUSED}]


def read(name: str):
    found = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return found, arrow_batch(found)


def encoder(case, batch: pa.RecordBatch) -> RowEncoder:
    schema = read_descriptor_set(base64.b64decode(case["descriptors"]), "pkg.Root").schema
    fields = tuple(PlannedField((name,), name) for name in batch.schema.names)
    return RowEncoder(FormatPlan(PROTOBUF, fields, protobuf_schema=schema), batch.schema)


@pytest.mark.parametrize("name", SAME)
def test_rows_are_as_spark_writes_them(name):
    case, batch = read(name)
    encoded = encoder(case, batch).encode(batch)
    faults = [] if encoded.faults is None else np.flatnonzero(encoded.faults).tolist()
    assert faults == BEYOND.get(name, [])
    expected = [None if row in faults else text for row, text in enumerate(case["rows"])]
    values = encoded.values.to_pylist()
    assert [None if value is None else value.hex().upper() for value in values] == expected


@pytest.mark.parametrize("name", sorted(WRITTEN))
def test_what_is_written_otherwise_than_by_spark(name):
    case, batch = read(name)
    found = encoder(case, batch).encode(batch).values.to_pylist()
    assert found == WRITTEN[name]
    assert case["rows"] != [value.hex().upper() for value in found]


@pytest.mark.parametrize("name", sorted(FAULTS))
def test_what_is_a_fault_of_its_row_here(name):
    case, batch = read(name)
    made = encoder(case, batch)
    values, faults = made.encode(batch)
    assert values.to_pylist() == [None]
    assert faults is not None
    assert re.match(FAULTS[name], made.fault_text(int(faults[0])))


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_both_refuse(name):
    case, batch = read(name)
    with pytest.raises(FormatError, match=REFUSED[name]):
        encoder(case, batch)
    assert case["rows"][0].startswith("error")
