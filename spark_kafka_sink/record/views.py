"""What the kernels see of Arrow columns: tuples of addresses and integers, not counted objects.

Addresses point into Arrow's own buffers; whoever builds a view keeps the Arrow batch alive while
the view is used. Address 0 means "not there".
"""

from __future__ import annotations

from typing import NamedTuple


class BytesView(NamedTuple):
    """A (large_)binary or (large_)string column.

    offset_bytes: 4 or 8, the width of an offset; 0 for an absent column, where all rows are null
    offsets_address: of offsets[n+1], the first one row 0's
    validity_address: of the bitmap, 0 when nothing is null; validity_offset: bit of row 0
    """

    offset_bytes: int
    offsets_address: int
    data_address: int
    validity_address: int
    validity_offset: int


class HeadersView(NamedTuple):
    """A (large_)list<struct<key, value>> column: offsets as in BytesView, into keys and values."""

    offset_bytes: int
    offsets_address: int
    validity_address: int
    validity_offset: int
    keys: BytesView
    values: BytesView


class IntegersView(NamedTuple):
    """An int32 column; ``values_address`` is 0 when it is absent."""

    values_address: int
    validity_address: int
    validity_offset: int


class RecordColumns(NamedTuple):
    """What a record is made of, besides its timestamp."""

    key: BytesView
    value: BytesView
    headers: HeadersView

    def fields(self) -> list[int]:
        """All integers one after the other: cheaper to hand to a kernel than tuples in tuples."""
        offset_bytes, offsets, validity, validity_offset, keys, values = self.headers
        headers = (offset_bytes, offsets, validity, validity_offset)
        return [*self.key, *self.value, *headers, *keys, *values]


ABSENT_BYTES = BytesView(0, 0, 0, 0, 0)
ABSENT_HEADERS = HeadersView(0, 0, 0, 0, ABSENT_BYTES, ABSENT_BYTES)
ABSENT_INTEGERS = IntegersView(0, 0, 0)
