"""Rows of all types that Spark hands over, nested in one another, as Arrow has them.

Hypothesis looks for the smallest row that fails; RandomRows makes rows by the thousand with NumPy, the
same ones again for the same seed; CASES are those that ``generate`` has made.
"""

from __future__ import annotations

import base64
import json
from decimal import Context, Decimal
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from spark_kafka_sink.formats.encoder import RowEncoder
from spark_kafka_sink.formats.plan import JSON, FieldSpec, FormatSpec, JsonOptions


class Rows(NamedTuple):
    """schema, and values by column as integers where Arrow's are; ``batch``: the same."""

    schema: pa.Schema
    values: list[dict[str, Any]]

    @property
    def batch(self):
        arrays = [pa.array([r[f.name] for r in self.values], f.type) for f in self.schema]
        return pa.record_batch(arrays, schema=self.schema)


NAMES = ["a", "b2", "a_longer_name", "x_y", "_"]
SECONDS_1800_TO_2700 = (-5_364_662_400 * 10**6, 23_000_000_000 * 10**6)


def integers(bits):
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def decimals(precision, scale):
    most = 10**precision - 1
    digits = st.integers(1, precision).flatmap(lambda n: st.integers(10 ** (n - 1), 10**n - 1))
    signed = st.one_of(digits, digits.map(lambda n: -n), st.sampled_from([0, most, -most]))
    return signed.map(lambda n: Decimal(n).scaleb(-scale, context=Context(prec=60)))


def decimal_types():
    return st.integers(1, 38).flatmap(
        lambda p: st.integers(0, p).map(lambda s: pa.decimal128(p, s))
    )


TEXT = st.one_of(
    st.text(max_size=40),
    st.text(st.characters(max_codepoint=0x7F), max_size=40),
    st.text(st.sampled_from('ab"\\\n\x00é日😀 '), max_size=30),
)
FLOATS = st.one_of(st.floats(), st.integers(-(10**6), 10**6).map(lambda n: n / 100))
SINGLES = st.floats(width=32)
SCALARS = [
    (pa.bool_(), st.booleans()),
    (pa.int8(), integers(8)),
    (pa.int16(), integers(16)),
    (pa.int32(), integers(32)),
    (pa.int64(), st.one_of(integers(64), st.integers(-200, 200))),
    (pa.float32(), SINGLES),
    (pa.float64(), FLOATS),
    (pa.string(), TEXT),
    (pa.large_string(), TEXT),
    (pa.binary(), st.binary(max_size=20)),
    (pa.large_binary(), st.binary(max_size=20)),
    (pa.date32(), st.one_of(st.integers(-800_000, 3_000_000), integers(32))),
    (pa.timestamp("us", "UTC"), st.one_of(st.integers(*SECONDS_1800_TO_2700), integers(64))),
    (pa.timestamp("us"), st.one_of(st.integers(*SECONDS_1800_TO_2700), integers(64))),
    (pa.time64("ns"), st.integers(0, 86_399_999_999).map(lambda micros: micros * 1000)),
    (pa.duration("us"), integers(64).filter(lambda n: n > -(2**63))),
]
STRATEGY_OF = dict(SCALARS)
TYPES = st.one_of(st.sampled_from([kind for kind, _ in SCALARS]), decimal_types())
KEYS = st.sampled_from([pa.string(), pa.int32(), pa.float64(), pa.bool_(), pa.date32()])


def nested(types, keys):
    fields = st.lists(
        st.tuples(st.sampled_from(NAMES), types), unique_by=lambda f: f[0], max_size=3
    )
    return st.one_of(
        types.map(pa.list_),
        types.map(pa.large_list),
        st.tuples(keys, types).map(lambda kinds: pa.map_(*kinds)),
        fields.map(pa.struct),
    )


def types_of(scalars=TYPES, keys=KEYS):
    return st.recursive(scalars, lambda inner: nested(inner, keys), max_leaves=4)


def values_of(kind, nullable=True):
    found = _present(kind)
    return st.one_of(st.none(), found) if nullable else found


def _present(kind):
    if pa.types.is_struct(kind):
        return st.fixed_dictionaries({f.name: values_of(f.type, f.nullable) for f in kind})
    if pa.types.is_map(kind):
        entry = st.tuples(_present(kind.key_type), values_of(kind.item_type))
        return st.lists(entry, max_size=3)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return st.lists(values_of(kind.value_type), max_size=4)
    if pa.types.is_decimal(kind):
        return decimals(kind.precision, kind.scale)
    return STRATEGY_OF[kind]


@st.composite
def rows(draw, types=None):
    kinds = draw(st.lists(types_of() if types is None else types, min_size=1, max_size=5))
    schema = pa.schema([(f"{NAMES[n % len(NAMES)]}{n}", kind) for n, kind in enumerate(kinds)])
    row = st.fixed_dictionaries({f.name: values_of(f.type) for f in schema})
    return Rows(schema, draw(st.lists(row, min_size=1, max_size=6)))


NULLS = 0.1
_POOL = 600
_NAMES = ["a", "b2", "a_longer_name", "x_y", "_", "Ä"]
_INTS = {pa.int8(): 8, pa.int16(): 16, pa.int32(): 32, pa.int64(): 64}
_DAYS_OF_0001_TO_9999 = (-719_162, 2_932_897)
_MICROS_PER_DAY = 86_400_000_000
_KEYS = [pa.string(), pa.string(), pa.int32(), pa.int64(), pa.date32(), pa.bool_()]
_PIECES = [
    "plain text",
    "ä",
    "日本",
    "😀",
    '"',
    "\\",
    "\n",
    "\x01",
    "\x7f",
    "/",
    " ",
    "<&>",
    "\u2028",
]


class RandomRows:
    """Tables of one seed. floating: the one type of floating point in them"""

    def __init__(self, seed):
        self._random = np.random.default_rng(seed)
        self.floating = pa.float32() if seed % 2 else pa.float64()

    def table(self, rows_count):
        """Of 3 to 9 columns."""
        fields = self._fields(int(self._random.integers(3, 10)), depth=3)
        arrays = [self._column(f.type, rows_count, f.nullable) for f in fields]
        return pa.table(arrays, pa.schema(fields))

    def chance(self, of=0.5):
        return bool(self._random.random() < of)

    def _one_of(self, options):
        return options[int(self._random.integers(len(options)))]

    def _fields(self, count, depth):
        names = [f"{self._one_of(_NAMES)}{number}" for number in range(count)]
        return [pa.field(name, self._type(depth), self.chance(0.8)) for name in names]

    def _type(self, depth):
        if depth > 0 and self.chance(0.35):
            kind = self._random.integers(3)
            if kind == 0:
                return pa.list_(pa.field("element", self._type(depth - 1), self.chance(0.8)))
            if kind == 1:
                return pa.struct(self._fields(int(self._random.integers(1, 4)), depth - 1))
            return self._map(depth - 1)
        precision = int(self._random.integers(1, 39))
        decimal = pa.decimal128(precision, int(self._random.integers(0, precision + 1)))
        scalars = [*_INTS, pa.bool_(), self.floating, self.floating, pa.string(), pa.string()]
        scalars += [pa.binary(), pa.date32(), decimal, decimal, pa.duration("us")]
        return self._one_of([*scalars, pa.timestamp("us", "UTC"), pa.timestamp("us")])

    def _map(self, depth):
        value = pa.field("value", self._type(depth), self.chance(0.8))
        key = self._one_of([*_KEYS, self.floating])
        return pa.map_(pa.field("key", key, False), value)

    def _column(self, kind, count, nullable):
        mask = self._random.random(count) < NULLS if nullable else np.zeros(count, np.bool_)
        if pa.types.is_struct(kind):
            arrays = [self._column(f.type, count, f.nullable) for f in kind]
            return pa.StructArray.from_arrays(arrays, fields=list(kind), mask=pa.array(mask))
        if pa.types.is_map(kind):
            most = 1 if kind.key_type == pa.bool_() or self.chance() else 4
            offsets, total = self._offsets(count, most)
            keys = self._distinct(kind.key_type, total)
            items = self._column(kind.item_type, total, kind.item_field.nullable)
            return pa.MapArray.from_arrays(offsets, keys, items, kind, mask=pa.array(mask))
        if pa.types.is_list(kind):
            offsets, total = self._offsets(count, 4)
            values = self._column(kind.value_type, total, kind.value_field.nullable)
            return pa.ListArray.from_arrays(offsets, values, kind, mask=pa.array(mask))
        return self._scalars(kind, count, mask)

    def _offsets(self, count, most):
        sizes = self._random.integers(0, most + 1, count)
        offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
        return pa.array(offsets), int(offsets[-1])

    def _scalars(self, kind, count, mask):
        if kind in _INTS:
            return pa.array(self._integers(_INTS[kind], count), kind, mask=mask)
        if kind == pa.bool_():
            return pa.array(self._random.random(count) < 0.5, kind, mask=mask)
        if pa.types.is_floating(kind):
            return pa.array(self._floats(count), kind, mask=mask)
        if kind == pa.date32():
            days = self._random.integers(*_DAYS_OF_0001_TO_9999, count)
            return pa.array(days.astype(np.int32), pa.int32(), mask=mask).cast(kind)
        if pa.types.is_timestamp(kind):
            return pa.array(self._times(count), pa.int64(), mask=mask).cast(kind)
        if pa.types.is_duration(kind):
            micros = self._integers(64, count)
            micros[micros == -(2**63)] = 1
            return pa.array(micros, pa.int64(), mask=mask).cast(kind)
        pool = pa.array([self._value(kind) for _ in range(_POOL)], kind)
        chosen = self._random.integers(0, _POOL, count)
        return pool.take(pa.array(chosen, mask=mask))

    def _integers(self, bits, count):
        """All magnitudes alike, and what lies beside powers of ten."""
        drawn = self._random.integers(-(2**63), 2**63, count, np.int64)
        shifted = drawn >> self._random.integers(64 - bits, 64, count)
        most = len(str(2 ** (bits - 1))) - 1
        powers = np.int64(10) ** self._random.integers(0, most + 1, count)
        beside = (powers + self._random.integers(-1, 2, count)) * self._random.choice(
            [-1, 1], count
        )
        least, greatest = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
        found = np.where(self._random.random(count) < 0.7, shifted, beside)
        found = np.where(self._random.random(count) < 0.02, least, found)
        return np.clip(found, least, greatest).astype(f"int{bits}")

    def _floats(self, count):
        """Random bits, numbers with few digits, whole ones, and the special ones."""
        kind = self.floating.to_pandas_dtype()
        size = np.dtype(kind).itemsize
        bits = np.frombuffer(self._random.bytes(size * count), kind)
        whole = self._random.integers(-(10**8), 10**8, count)
        few = whole / 10.0 ** self._random.integers(0, 9, count)
        info = np.finfo(kind)
        special = [0.0, -0.0, np.nan, np.inf, -np.inf, info.tiny, info.max, info.smallest_subnormal]
        parts = [bits, few, whole, self._random.choice(np.array(special, kind), count)]
        chosen = self._random.choice(len(parts), count, p=[0.3, 0.4, 0.25, 0.05])
        with np.errstate(over="ignore", invalid="ignore"):
            return np.choose(chosen, [part.astype(kind) for part in parts])

    def _times(self, count):
        """Of the years that zones have rules for, and others; on the second, and between."""
        first, last = _DAYS_OF_0001_TO_9999
        usual = self._random.random(count) < 0.7
        days = np.where(
            usual,
            self._random.integers(-36_500, 36_500, count),
            self._random.integers(first + 1, last - 1, count),
        )
        micros = self._random.integers(0, _MICROS_PER_DAY, count)
        micros = np.where(self._random.random(count) < 0.3, micros // 10**6 * 10**6, micros)
        return days * _MICROS_PER_DAY + micros

    def _value(self, kind):
        random = self._random
        if pa.types.is_decimal(kind):
            digits = int(random.integers(1, kind.precision + 1))
            number = int("".join(map(str, random.integers(0, 10, digits))))
            number = -number if self.chance() else number
            return Decimal(number).scaleb(-kind.scale, Context(prec=60))
        if kind == pa.binary():
            return random.bytes(int(random.integers(0, 30)))
        length = int(random.integers(0, 12))
        if self.chance(0.3):
            return "".join(map(chr, random.integers(32, 127, 3 * length)))
        if self.chance(0.3):
            return "".join(map(chr, random.integers(0, 0xD800, length)))
        return "".join(self._one_of(_PIECES) for _ in range(length))

    def _distinct(self, kind, count):
        """Keys, of which none is in a map twice."""
        if kind == pa.bool_():
            return pa.array(self._random.random(count) < 0.5)
        numbers = self._random.permutation(count) - count // 2
        if kind == pa.string():
            pool = [self._value(kind) for _ in range(_POOL)]
            texts = [f"{pool[n % _POOL]}{n}" for n in numbers.tolist()]
            return pa.array(texts, pa.string())
        if pa.types.is_floating(kind):
            return pa.array(numbers / 8, kind)
        if kind == pa.date32():
            return pa.array(numbers.astype(np.int32), pa.int32()).cast(kind)
        return pa.array(numbers, kind)


CASES_FOLDER = Path(__file__).parent / "cases"
CASES = sorted(path.stem for path in CASES_FOLDER.glob("*.json"))


def read(name):
    return json.loads((CASES_FOLDER / f"{name}.json").read_text(encoding="utf-8"))


def json_encoder(schema, prefix=b"", **options):
    """Of all columns."""
    fields = tuple(FieldSpec((name,), name) for name in schema.names)
    plan = FormatSpec(JSON, fields, prefix, json_options=JsonOptions(**options))
    return RowEncoder(plan, schema)


def arrow_batch(case):
    """All rows of a case."""
    with pa.ipc.open_stream(base64.b64decode(case["arrow"])) as reader:
        return reader.read_all().combine_chunks().to_batches()[0]
