"""The memory that rows are encoded to: how it grows."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from spark_kafka_sink.formats import encoder as encoders
from spark_kafka_sink.formats.encoder import RowEncoder
from spark_kafka_sink.formats.plan import (
    AVRO,
    JSON,
    PROTOBUF,
    FormatPlan,
    PlannedField,
    ProtobufField,
    ProtobufMessage,
    ProtobufSchema,
)

FIELDS = (PlannedField(("s",), "s"),)
RECORD = '{"type":"record","name":"R","fields":[{"name":"s","type":"string"}]}'
MESSAGE = ProtobufSchema("M", (ProtobufMessage("M", (ProtobufField("s", 1, "string"),)),))
PLANS = {
    JSON: FormatPlan(JSON, FIELDS),
    AVRO: FormatPlan(AVRO, FIELDS, avro_schema=RECORD),
    PROTOBUF: FormatPlan(PROTOBUF, FIELDS, protobuf_schema=MESSAGE),
}
MIB = 2**20


class Rooms:
    """Encodes, and keeps the sizes of all memory that was taken for it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, plan: FormatPlan, batch: pa.RecordBatch):
        self.encoder = RowEncoder(plan, batch.schema)
        self.sizes: list[int] = []
        kernel, state = self.encoder._kernel, self.encoder._state

        def noting(address: int) -> int:
            self.sizes.append(int(state[encoders.nodes.LIMIT] - state[encoders.nodes.OUT]))
            return kernel(address)

        monkeypatch.setattr(self.encoder, "_kernel", noting)
        self.values = self.encoder.encode(batch).values


@pytest.mark.parametrize("name", [JSON, AVRO, PROTOBUF])
@pytest.mark.parametrize("at", [0, 5_000, 9_999])
def test_one_large_row_says_nothing_of_the_others(monkeypatch, name, at):
    rows = ["y" * 500] * 10_000
    rows[at] = "x" * 10 * MIB
    found = Rooms(monkeypatch, PLANS[name], pa.record_batch({"s": rows}))
    assert max(found.sizes) < 80 * MIB
    assert [len(value) > MIB for value in found.values.to_pylist()] == [
        n == at for n in range(10_000)
    ]


@pytest.mark.parametrize("name", [JSON, AVRO, PROTOBUF])
@pytest.mark.parametrize("growing", [1, -1])
def test_rows_of_growing_size_are_copied_a_few_times_at_most(monkeypatch, name, growing):
    rows = ["x" * n for n in range(0, 4000, 2)][::growing]
    found = Rooms(monkeypatch, PLANS[name], pa.record_batch({"s": rows}))
    assert sum(found.sizes[:-1]) <= found.sizes[-1]
    assert found.sizes[-1] < 5 * sum(map(len, rows))
    texts = [value[-len(row) - 2 :] for value, row in zip(found.values.to_pylist(), rows)]
    if name == JSON:
        assert [json.loads(v)["s"] for v in found.values.to_pylist()] == rows
    else:
        assert all(text.endswith(row.encode()) for text, row in zip(texts, rows))
