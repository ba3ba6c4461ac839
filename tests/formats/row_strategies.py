"""Rows of all types that Spark hands over, nested in one another, as Arrow has them."""

from __future__ import annotations

from decimal import Context, Decimal
from typing import Any, NamedTuple

import pyarrow as pa
from hypothesis import strategies as st


class Rows(NamedTuple):
    """schema, and values by column as integers where Arrow's are; ``batch``: the same."""

    schema: pa.Schema
    values: list[dict[str, Any]]

    @property
    def batch(self) -> pa.RecordBatch:
        arrays = [pa.array([r[f.name] for r in self.values], f.type) for f in self.schema]
        return pa.record_batch(arrays, schema=self.schema)


NAMES = ["a", "b2", "a_longer_name", "x_y", "_"]
SECONDS_1800_TO_2700 = (-5_364_662_400 * 10**6, 23_000_000_000 * 10**6)


def integers(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    most = 10**precision - 1
    digits = st.integers(1, precision).flatmap(lambda n: st.integers(10 ** (n - 1), 10**n - 1))
    signed = st.one_of(digits, digits.map(lambda n: -n), st.sampled_from([0, most, -most]))
    return signed.map(lambda n: Decimal(n).scaleb(-scale, context=Context(prec=60)))


def decimal_types() -> st.SearchStrategy[Any]:
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
SCALARS: list[tuple[Any, st.SearchStrategy[Any]]] = [
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


def nested(types: st.SearchStrategy[Any], keys: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    fields = st.lists(
        st.tuples(st.sampled_from(NAMES), types), unique_by=lambda f: f[0], max_size=3
    )
    return st.one_of(
        types.map(pa.list_),
        types.map(pa.large_list),
        st.tuples(keys, types).map(lambda kinds: pa.map_(*kinds)),
        fields.map(pa.struct),
    )


def types_of(scalars: Any = TYPES, keys: Any = KEYS) -> st.SearchStrategy[Any]:
    return st.recursive(scalars, lambda inner: nested(inner, keys), max_leaves=4)


def values_of(kind: Any, nullable: bool = True) -> st.SearchStrategy[Any]:
    found = _present(kind)
    return st.one_of(st.none(), found) if nullable else found


def _present(kind: Any) -> st.SearchStrategy[Any]:
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
def rows(draw: Any, types: Any = None) -> Rows:
    kinds = draw(st.lists(types_of() if types is None else types, min_size=1, max_size=5))
    schema = pa.schema([(f"{NAMES[n % len(NAMES)]}{n}", kind) for n, kind in enumerate(kinds)])
    row = st.fixed_dictionaries({f.name: values_of(f.type) for f in schema})
    return Rows(schema, draw(st.lists(row, min_size=1, max_size=6)))
