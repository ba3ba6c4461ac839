"""Values of Spark's VARIANT of all types and nestings, as their bytes."""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

import pyarrow as pa
from hypothesis import strategies as st

from tests.formats.row_strategies import FLOATS, SECONDS_1800_TO_2700, SINGLES, TEXT, integers

KIND = pa.struct(
    [
        pa.field("value", pa.binary(), False),
        pa.field("metadata", pa.binary(), False, {b"variant": b"true"}),
    ]
)
"""As Spark hands a VARIANT over."""
NAMES = ["a", "b2", "", "a name that is longer than others", 'q"\n', "ä日"]


class Variant(NamedTuple):
    value: bytes
    metadata: bytes


class Inner(NamedTuple):
    """An array or an object. names: None in an array; width: of its numbers, at least"""

    names: list[str] | None
    parts: list[Any]
    width: int
    is_large: bool


def metadata_of(names: list[str], width: int = 1) -> bytes:
    texts = [name.encode() for name in names]
    width = max(width, _width(sum(map(len, texts))), _width(len(names)))
    starts = [sum(map(len, texts[:n])) for n in range(len(texts) + 1)]
    numbers = b"".join(n.to_bytes(width, "little") for n in [len(names), *starts])
    return bytes([1 | (width - 1) << 6]) + numbers + b"".join(texts)


def primitive(kind: int, data: bytes = b"") -> bytes:
    return bytes([kind << 2]) + data


def number(kind: int, size: int, value: int) -> bytes:
    return primitive(kind, value.to_bytes(size, "little", signed=True))


def long_text(data: bytes, kind: int = 16) -> bytes:
    return primitive(kind, len(data).to_bytes(4, "little") + data)


def short_text(data: bytes) -> bytes:
    return bytes([len(data) << 2 | 1]) + data


def decimal(size: int, scale: int, unscaled: int) -> bytes:
    data = bytes([scale]) + unscaled.to_bytes(size, "little", signed=True)
    return primitive({4: 8, 8: 9, 16: 10}[size], data)


def written(tree: Any, names: list[str]) -> bytes:
    """The value of a tree of ``Inner`` and bytes. ``names``: those of the metadata, in order."""
    if isinstance(tree, bytes):
        return tree
    parts = [written(part, names) for part in tree.parts]
    starts = [sum(map(len, parts[:n])) for n in range(len(parts) + 1)]
    width = max(tree.width, _width(starts[-1]))
    is_large = tree.is_large or len(parts) > 255
    count = len(parts).to_bytes(4 if is_large else 1, "little")
    places = b"".join(start.to_bytes(width, "little") for start in starts)
    if tree.names is None:
        header = 3 | (width - 1) << 2 | is_large << 4
        return bytes([header]) + count + places + b"".join(parts)
    header = 2 | (width - 1) << 2 | (tree.width - 1) << 4 | is_large << 6
    ids = b"".join(names.index(name).to_bytes(tree.width, "little") for name in tree.names)
    return bytes([header]) + count + ids + places + b"".join(parts)


def _width(number: int) -> int:
    return max(1, (number.bit_length() + 7) // 8)


def _decimals(size: int, most: int) -> st.SearchStrategy[bytes]:
    digits = st.integers(0, most).flatmap(lambda n: st.integers(-(10**n) + 1, 10**n - 1))
    round_ones = st.tuples(st.integers(-999, 999), st.integers(0, most - 3)).map(
        lambda both: both[0] * 10 ** both[1]
    )
    return st.builds(
        decimal, st.just(size), st.integers(0, most), st.one_of(digits, round_ones, st.just(0))
    )


MICROS = st.one_of(st.integers(*SECONDS_1800_TO_2700), integers(64))
TEXTS = TEXT.map(str.encode)
PRIMITIVES = st.one_of(
    st.sampled_from([primitive(0), primitive(1), primitive(2)]),
    integers(8).map(lambda n: number(3, 1, n)),
    integers(16).map(lambda n: number(4, 2, n)),
    integers(32).map(lambda n: number(5, 4, n)),
    integers(64).map(lambda n: number(6, 8, n)),
    FLOATS.map(lambda x: primitive(7, struct.pack("<d", x))),
    SINGLES.map(lambda x: primitive(14, struct.pack("<f", x))),
    _decimals(4, 9),
    _decimals(8, 18),
    _decimals(16, 38),
    st.one_of(st.integers(-800_000, 3_000_000), integers(32)).map(lambda n: number(11, 4, n)),
    MICROS.map(lambda n: number(12, 8, n)),
    MICROS.map(lambda n: number(13, 8, n)),
    st.binary(max_size=20).map(lambda data: long_text(data, 15)),
    st.binary(min_size=16, max_size=16).map(lambda data: primitive(20, data)),
    TEXTS.map(long_text),
    TEXTS.filter(lambda data: len(data) < 64).map(short_text),
)


def _inner(parts: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    width = st.integers(1, 4)
    arrays = st.builds(
        Inner, st.none(), st.lists(parts, max_size=4), width=width, is_large=st.booleans()
    )
    fields = st.dictionaries(st.sampled_from(NAMES), parts, max_size=4)
    objects = st.tuples(fields, width, st.booleans()).map(
        lambda made: Inner([*made[0]], [*made[0].values()], made[1], made[2])
    )
    return st.one_of(arrays, objects)


TREES = st.recursive(PRIMITIVES, _inner, max_leaves=8)


@st.composite
def variants(draw: Any) -> Variant:
    names = draw(st.permutations(NAMES))
    return Variant(written(draw(TREES), names), metadata_of(names, draw(st.integers(1, 4))))


@st.composite
def mutated(draw: Any) -> Variant:
    """Whose bytes were changed, cut off or put in at a few places."""
    found = draw(variants())
    for _ in range(draw(st.integers(1, 3))):
        part = draw(st.sampled_from([0, 0, 1]))
        data = bytearray(found[part])
        at = draw(st.integers(0, len(data)))
        inserted = bytes(draw(st.lists(_BYTES, max_size=2)))
        data[at : at + draw(st.integers(0, 2))] = inserted
        found = found._replace(**{Variant._fields[part]: bytes(data)})
    return found


_BYTES = st.one_of(st.integers(0, 255), st.sampled_from([0, 1, 2, 3, 4, 127, 128, 255]))
