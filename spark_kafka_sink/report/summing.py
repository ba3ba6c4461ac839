"""Many lines, added up to one of the same shape, for the rules of ``advice``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Union

import pyarrow as pa
import pyarrow.compute as pc

from spark_kafka_sink.metrics.fields import COUNTERS

Summed = Union[float, dict[str, Any]]

OF_ALL = (
    *("metrics", "tasks", "failed_attempts", "transactions", "commit_ms", "elapsed_ms"),
    *("records_acknowledged", "planning_ms", "dead_letters"),
)
"""Fields of a line that are summed over all lines."""
OF_WHOLE = ("request_latency", "nodes", "topics", "partitions")
"""And over those that are read with everything."""
_LARGEST = {field.name for field in COUNTERS if "_max" in field.name} | {"request_max_bytes"}
_MEANINGLESS = {"p50_ms", "p95_ms", "p99_ms", "scale", "first_offset", "last_offset"}


def summed(rows: pa.StructArray, names: Iterable[str]) -> dict[str, Any]:
    """Sums of all numbers in fields of lines, and the largest of what are maxima."""
    line: dict[str, Any] = {}
    for name in names:
        index = rows.type.get_field_index(name)
        if index >= 0:
            found = _summed(name, pc.struct_field(rows, [index]))
            if found is not None:
                line[name] = found
    return line


def _summed(name: str, values: pa.Array) -> Summed | None:
    if pa.types.is_struct(values.type):
        fields = zip((field.name for field in values.type), values.flatten())
        found = ((field, _summed(field, array)) for field, array in fields)
        known = {field: value for field, value in found if value is not None}
        return known or None
    is_number = pa.types.is_integer(values.type) or pa.types.is_floating(values.type)
    if not is_number or name in _MEANINGLESS:
        return None
    result = (pc.max if name in _LARGEST else pc.sum)(values).as_py()
    return None if result is None else float(result)


def add(line: dict[str, Any], other: dict[str, Any]) -> None:
    """Add the figures of another line, or their sums."""
    for name, value in other.items():
        if isinstance(value, dict):
            add(line.setdefault(name, {}), value)
        elif isinstance(value, (int, float)) and name not in _MEANINGLESS:
            known = line.get(name, 0)
            line[name] = max(known, value) if name in _LARGEST else known + value
