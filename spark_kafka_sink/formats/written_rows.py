"""Arrow batches as they come from Spark → those that are appended, with keys and values made.

What cannot be made of a row is its fault, known before the first row of an Arrow batch is appended.
Where rows become dead letters, such a one is told as JSON, as nothing else of it can be written.

Imported in tasks only: it loads kernels.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_kafka_sink.base.errors import RecordError
from spark_kafka_sink.columns.arrow_types import ArrowBatch
from spark_kafka_sink.columns.faults import NOT_ENCODABLE, RowFaults, is_null, rows_of
from spark_kafka_sink.columns.headers import with_constant_headers
from spark_kafka_sink.formats.encoder import RowEncoder
from spark_kafka_sink.formats.rows import HEADERS, KEY, VALUE, PartPlan, RowsPlan, names_of
from spark_kafka_sink.formats.texts import text_of
from spark_kafka_sink.formats.told_rows import rows_as_json


class WrittenRows(NamedTuple):
    """rows: what is appended of all rows; of those with a fault, what is told of them"""

    rows: ArrowBatch
    faults: RowFaults

    def checked(self, rows_are_of: str) -> ArrowBatch:
        """The rows, if none has a fault. Raises RecordError.

        rows_are_of: what numbers of rows count, in words
        """
        bad = self.faults.bad
        if len(bad):
            first = int(bad[0])
            raise RecordError(f"row {first} of {rows_are_of}: {self.faults.found[first].message}")
        return self.rows


class RowsEncoder:
    """Makes what is appended, for one task.

    tells_faulty: whether the value of a row with a fault is the row as JSON, for its dead letter
    """

    def __init__(self, plan: RowsPlan, tells_faulty: bool = False) -> None:
        self._plan = plan
        self._tells_faulty = tells_faulty
        self._names = names_of(plan)
        self._schema: Any = None
        self._zone: str | None = None
        self._parts: dict[str, _Part] = {}

    def encode(self, arrow_batch: ArrowBatch) -> WrittenRows:
        """All rows, in their order. Raises SchemaError, FormatError for a column's type."""
        plan = self._plan
        self._prepare(arrow_batch.schema)
        faults = RowFaults(arrow_batch.num_rows)
        value = self._parts[VALUE].make(arrow_batch, faults)
        if plan.null_when is not None and plan.value.plan is None:
            is_deleted = arrow_batch.column(plan.null_when).fill_null(False)
            value = pc.if_else(is_deleted, None, value)
        columns = {VALUE: value}
        if plan.key is not None:
            columns[KEY] = self._parts[KEY].make(arrow_batch, faults)
        columns.update({part: arrow_batch.column(n) for part, n in plan.kept})
        if plan.headers:
            own = columns.get(HEADERS)
            columns[HEADERS] = with_constant_headers(own, arrow_batch.num_rows, plan.headers)
        bad = faults.bad
        if len(bad) and self._tells_faulty:
            told = rows_as_json(rows_of(arrow_batch, bad), self._zone)
            columns[VALUE] = _with_values(columns[VALUE], bad, told)
        rows: ArrowBatch = pa.record_batch(
            [columns[name] for name in self._names], names=self._names
        )
        return WrittenRows(rows, faults)

    def _prepare(self, schema: Any) -> None:
        """Anew only for Arrow batches of another schema, which Spark does not send."""
        if self._schema is not None and self._schema.equals(schema):
            return
        found = (zone for zone in map(_zone_of, schema.types) if zone)
        zone = next(found, self._plan.session_zone)
        is_ansi = self._plan.is_ansi
        self._parts = {VALUE: _Part(VALUE, self._plan.value, schema, zone, is_ansi)}
        if self._plan.key is not None:
            self._parts[KEY] = _Part(KEY, self._plan.key, schema, zone, is_ansi)
        self._schema, self._zone = schema, zone


class _Part:
    """Makes keys, or values.

    zone, is_ansi: of the Spark session; the zone is None if it is not known
    """

    def __init__(
        self, name: str, plan: PartPlan, schema: Any, zone: str | None, is_ansi: bool
    ) -> None:
        self._name = name
        self._plan = plan
        self._zone = zone
        self._is_ansi = is_ansi
        self._encoder: RowEncoder | None = None
        if plan.plan is not None:
            made = plan.plan
            if plan.takes_session_zone:
                made = replace(made, json_options=replace(made.json_options, time_zone=zone))
            self._encoder = RowEncoder(made, schema)

    def make(self, arrow_batch: ArrowBatch, faults: RowFaults) -> Any:
        """A column of bytes or texts, one for each row."""
        plan = self._plan
        if self._encoder is not None:
            return self._encoded(self._encoder, arrow_batch, faults)
        assert plan.column is not None
        column = arrow_batch.column(plan.column)
        if plan.is_text:
            name = arrow_batch.schema.field(plan.column).name
            column = text_of(column, name, self._zone or "UTC", self._is_ansi)
        if plan.prefix:
            column = column.cast(pa.large_binary())
            column = pc.binary_join_element_wise(
                pa.scalar(plan.prefix, pa.large_binary()), column, pa.scalar(b"", pa.large_binary())
            )
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
            faults.add(
                codes != 0,
                NOT_ENCODABLE,
                lambda row: (
                    f"its {self._name} cannot be written: {encoder.fault_text(int(codes[row]))}"
                ),
            )
        return values


def _zone_of(kind: Any) -> str | None:
    """The time zone of timestamps in a column of this type: Spark gives all of them its own."""
    if pa.types.is_timestamp(kind):
        zone: str | None = kind.tz
        return zone
    inner = (kind.field(n).type for n in range(kind.num_fields))
    return next((zone for zone in map(_zone_of, inner) if zone), None)


def _with_values(values: Any, rows: Any, others: Any) -> Any:
    """``values``, with those of ``rows`` replaced by ``others``."""
    mask = np.zeros(len(values), np.bool_)
    mask[rows] = True
    return pc.replace_with_mask(values.cast(pa.large_binary()), pa.array(mask), others)
