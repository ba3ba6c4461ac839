"""Columns of headers, with more headers than the rows brought."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

HEADERS_TYPE = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def repeated(value: bytes, count: int) -> Any:
    """A binary array of ``count`` times the same."""
    return pa.repeat(pa.scalar(value, pa.binary()), count)


def with_constant_headers(own: Any, count: int, added: Sequence[tuple[str, bytes]]) -> Any:
    """Each row's own headers, if there are any, then those of ``added``, by name and value."""
    return with_headers(own, count, {name: repeated(value, count) for name, value in added})


def with_headers(own: Any, count: int, told: Mapping[str, Any]) -> Any:
    """Each row's own headers, also those that are null, then those of ``told`` that it has.

    told: by name a binary array, null where it is left out
    """
    keys, values = [pa.array([], pa.string())], [pa.array([], pa.binary())]
    row_of: list[npt.NDArray[np.int64]] = []
    is_null: npt.NDArray[np.bool_] = np.empty(0, np.bool_)
    if own is not None:
        entries = own.flatten()
        keys.append(entries.field(0).cast(pa.string()))
        values.append(entries.field(1).cast(pa.binary()))
        is_null = entries.is_null().to_numpy(zero_copy_only=False)
        lengths = pc.list_value_length(own).fill_null(0).to_numpy(zero_copy_only=False)
        row_of.append(np.repeat(np.arange(count), lengths))
    for name, column in told.items():
        has_it = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
        keys.append(pa.repeat(pa.scalar(name, pa.string()), len(has_it)))
        values.append(column.drop_null())
        row_of.append(has_it)
    rows = np.concatenate(row_of) if row_of else np.empty(0, np.int64)
    order = np.argsort(rows, kind="stable")
    offsets = np.zeros(count + 1, np.int64)
    np.cumsum(np.bincount(rows, minlength=count), out=offsets[1:])
    mask = np.concatenate([is_null, np.zeros(len(rows) - len(is_null), np.bool_)])[order]
    entries = pa.StructArray.from_arrays(
        [pa.concat_arrays(parts).take(pa.array(order)) for parts in (keys, values)],
        fields=[*HEADERS_TYPE.value_type],
        mask=pa.array(mask) if mask.any() else None,
    )
    return pa.ListArray.from_arrays(pa.array(offsets).cast(pa.int32()), entries, type=HEADERS_TYPE)
