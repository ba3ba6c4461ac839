"""Values of Spark's VARIANT of all types and nestings, as their bytes, and their JSON in plain Python.

Source of the twin: the Variant encoding of Apache Parquet; Spark's ``Variant.toJson`` for the texts.
"""

from __future__ import annotations

import base64
import ctypes
import mmap
import struct
import uuid
from decimal import Context, Decimal
from typing import Any, NamedTuple

import pyarrow as pa
from hypothesis import strategies as st

from tests.formats import json_twin
from tests.formats.rows import FLOATS, SECONDS_1800_TO_2700, SINGLES, TEXT, integers

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


def metadata_of(names, width=1):
    texts = [name.encode() for name in names]
    width = max(width, _width(sum(map(len, texts))), _width(len(names)))
    starts = [sum(map(len, texts[:n])) for n in range(len(texts) + 1)]
    numbers = b"".join(n.to_bytes(width, "little") for n in [len(names), *starts])
    return bytes([1 | (width - 1) << 6]) + numbers + b"".join(texts)


def primitive(kind, data=b""):
    return bytes([kind << 2]) + data


def number(kind, size, value):
    return primitive(kind, value.to_bytes(size, "little", signed=True))


def long_text(data, kind=16):
    return primitive(kind, len(data).to_bytes(4, "little") + data)


def short_text(data):
    return bytes([len(data) << 2 | 1]) + data


def decimal(size, scale, unscaled):
    data = bytes([scale]) + unscaled.to_bytes(size, "little", signed=True)
    return primitive({4: 8, 8: 9, 16: 10}[size], data)


def written(tree, names):
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


def _width(number):
    return max(1, (number.bit_length() + 7) // 8)


def _decimals(size, most):
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


def _inner(parts):
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
def variants(draw):
    names = draw(st.permutations(NAMES))
    return Variant(written(draw(TREES), names), metadata_of(names, draw(st.integers(1, 4))))


@st.composite
def mutated(draw):
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
MALFORMED, UNKNOWN_TYPE, TOO_DEEP = 1, 2, 3
MOST_LEVELS = 2000
MOST_BYTES = 2**24
DIGITS = {4: 9, 8: 18, 16: 38}


class VariantError(Exception):
    """The first argument is its number."""


def twin_text(value, metadata, zone, may_overlap=False):
    """may_overlap: one place may be that of several values, as in Spark. Raises VariantError."""
    if not metadata or metadata[0] & 15 != 1 or max(len(value), len(metadata)) > MOST_BYTES:
        raise VariantError(MALFORMED)
    walk = _Walk(value, metadata, zone)
    if may_overlap:
        walk.unwritten = 2**63
    return walk.at(0, 0)


class _Walk:
    def __init__(self, value, metadata, zone):
        self.value, self.metadata, self.zone = value, metadata, zone
        self.unwritten = len(value)

    def cut(self, start, count):
        found = self.value[start : start + count]
        if len(found) < count:
            raise VariantError(MALFORMED)
        return found

    def number(self, start, count):
        return int.from_bytes(self.cut(start, count), "little")

    def written(self, count):
        self.unwritten -= count
        if self.unwritten < 0:
            raise VariantError(MALFORMED)

    def at(self, here, level):
        header = self.cut(here, 1)[0]
        basic, kind = header & 3, header >> 2
        if basic == 1:
            found = _string(self.cut(here + 1, kind))
            self.written(1 + kind)
            return found
        if basic == 2:
            return self.object(here, kind, level)
        if basic == 3:
            return self.array(here, kind, level)
        if kind in (15, 16):
            count = self.number(here + 1, 4)
            data = self.cut(here + 5, count)
            self.written(5 + count)
            return _string(data) if kind == 16 else f'"{base64.b64encode(data).decode()}"'
        sizes = {0: 0, 1: 0, 2: 0, 3: 1, 4: 2, 5: 4, 6: 8, 7: 8, 8: 5, 9: 9, 10: 17}
        sizes |= {11: 4, 12: 8, 13: 8, 14: 4, 20: 16}
        if kind not in sizes:
            raise VariantError(UNKNOWN_TYPE)
        found = self.primitive(kind, self.cut(here + 1, sizes[kind]))
        self.written(1 + sizes[kind])
        return found

    def object(self, here, kind, level):
        width = 4 if kind & 16 else 1
        count = self.number(here + 1, width)
        id_width, place_width = (kind >> 2 & 3) + 1, (kind & 3) + 1
        ids = here + 1 + width
        places = ids + count * id_width
        self.cut(ids, count * (id_width + place_width))
        if level == MOST_LEVELS:
            raise VariantError(TOO_DEEP)
        self.written(places + count * place_width - here)
        inside = places + (count + 1) * place_width
        found = []
        for n in range(count):
            name = self.name(self.number(ids + n * id_width, id_width))
            place = self.number(places + n * place_width, place_width)
            found.append(f"{name}:{self.at(inside + place, level + 1)}")
        return "{" + ",".join(found) + "}"

    def array(self, here, kind, level):
        width = 4 if kind & 4 else 1
        count = self.number(here + 1, width)
        place_width = (kind & 3) + 1
        places = here + 1 + width
        self.cut(places, count * place_width)
        if level == MOST_LEVELS:
            raise VariantError(TOO_DEEP)
        self.written(places + count * place_width - here)
        inside = places + (count + 1) * place_width
        starts = [self.number(places + n * place_width, place_width) for n in range(count)]
        return "[" + ",".join(self.at(inside + start, level + 1) for start in starts) + "]"

    def name(self, number):
        data = self.metadata
        width = (data[0] >> 6) + 1

        def entry(start):
            if start + width > len(data):
                raise VariantError(MALFORMED)
            return int.from_bytes(data[start : start + width], "little")

        count = entry(1)
        if number >= count:
            raise VariantError(MALFORMED)
        start, stop = entry(1 + (number + 1) * width), entry(1 + (number + 2) * width)
        texts = 1 + (count + 2) * width
        if start > stop or texts + stop > len(data):
            raise VariantError(MALFORMED)
        return _string(data[texts + start : texts + stop])

    def primitive(self, kind, data):
        if kind < 3:
            return ("null", "true", "false")[kind]
        if kind < 7:
            return str(int.from_bytes(data, "little", signed=True))
        if kind in (7, 14):
            (number,) = struct.unpack("<d" if kind == 7 else "<f", data)
            return json_twin.floating(number, kind == 14)
        if kind in (8, 9, 10):
            return _decimal(data[0], data[1:])
        if kind == 11:
            return f'"{json_twin.day(int.from_bytes(data, "little", signed=True))}"'
        if kind == 20:
            return f'"{uuid.UUID(bytes=data)}"'
        micros = int.from_bytes(data, "little", signed=True)
        return f'"{_moment(micros, self.zone if kind == 12 else None)}"'


def _string(data):
    return json_twin.quoted(data.decode("utf-8", "replace"))


def _decimal(scale, data):
    unscaled = int.from_bytes(data, "little", signed=True)
    most = DIGITS[len(data)]
    if scale > most or len(str(abs(unscaled))) > most:
        raise VariantError(MALFORMED)
    found = f"{Decimal(unscaled).scaleb(-scale, Context(prec=60)):f}"
    if unscaled == 0:
        return "0"
    return found.rstrip("0").rstrip(".") if "." in found else found


def _moment(micros, zone):
    ahead = 0 if zone is None else json_twin.seconds_ahead(micros // 10**6, zone)
    days, rest = divmod(micros + ahead * 10**6, json_twin.DAY_US)
    found = f"{json_twin.day(days)} {json_twin.clock(rest, 6)}"
    if zone is None:
        return found
    minutes = abs(ahead) // 60
    sign = "-" if ahead < 0 and minutes else "+"
    return f"{found}{sign}{minutes // 60:02d}:{minutes % 60:02d}"


PAGE = mmap.PAGESIZE
NOT_TO_BE_READ = 0  # PROT_NONE


class Guarded:
    """Memory before a page that nobody may read."""

    def __init__(self):
        self._map = mmap.mmap(-1, 17 * PAGE)
        begin = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        self._stop = begin + 16 * PAGE
        libc = ctypes.CDLL(None, use_errno=True)
        assert libc.mprotect(ctypes.c_void_p(self._stop), PAGE, NOT_TO_BE_READ) == 0

    def at_the_end(self, data):
        """One row, whose last byte is the last one that may be read."""
        address = self._stop - len(data)
        ctypes.memmove(address, data, len(data))
        offsets = pa.py_buffer(struct.pack("<ii", 0, len(data)))
        buffers = [None, offsets, pa.foreign_buffer(address, len(data), self)]
        return pa.BinaryArray.from_buffers(pa.binary(), 1, buffers)
