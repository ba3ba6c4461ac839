"""The memory that rows are encoded to is used again for the next Arrow batch."""

from __future__ import annotations

import pyarrow as pa
import pytest

from spark_kafka_sink.columns.record_columns import RowsDigest
from spark_kafka_sink.formats.plan import FieldSpec, FormatSpec, PartSpec, RowSpec
from spark_kafka_sink.spark import task
from tests.simulation.test_typed_rows import DEAD, MADE, POSITIONS, STRICT, Task, columns, faulty

BOTH = MADE._replace(
    value=PartSpec(plan=FormatSpec("json", (FieldSpec(("n",), "n"),))),
    key=PartSpec(plan=FormatSpec("json", (FieldSpec(("name",), "name"),))),
)


class Digesting:
    """Of a transaction, what is done with rows."""

    def __init__(self) -> None:
        self.digest = RowsDigest(POSITIONS)

    def add(self, arrow_batch: pa.RecordBatch) -> None:
        self.digest.add(arrow_batch)


@pytest.mark.parametrize("plan", [MADE, BOTH, MADE._replace(headers=(("id", b"\1"),))])
@pytest.mark.parametrize("is_transaction", [False, True])
def test_of_rows_in_order(plan: RowSpec, is_transaction: bool) -> None:
    positions = POSITIONS._replace(headers=3) if plan.headers else POSITIONS
    check(Task(plan, positions), columns(1000), is_transaction)


@pytest.mark.parametrize("plan", [MADE, STRICT])
def test_of_rows_with_dead_letters(plan: RowSpec) -> None:
    check(Task(plan, **DEAD), faulty(1000), False)


def check(given: Task, batch: pa.RecordBatch, is_transaction: bool) -> None:
    rooms: list[list[int]] = []

    def batches():
        for _ in range(5):
            parts = given.rows._encoder._parts.values()
            rooms.append([p._encoder._room.ctypes.data for p in parts if p._encoder is not None])
            yield batch

    task._write_all(batches(), given.rows, Digesting() if is_transaction else None)
    assert rooms[0] == []
    assert rooms[1] == rooms[2] == rooms[3] == rooms[4] != []
