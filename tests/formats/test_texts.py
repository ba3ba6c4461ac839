"""Texts of columns, for keys: those of dates and times are what CAST makes of them."""

from __future__ import annotations

from decimal import Context, Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_sink.formats.encoder import text_of
from spark_kafka_sink.formats.plan import FormatError
from tests.formats import json_twin
from tests.formats.row_strategies import SECONDS_1800_TO_2700, integers

ZONES = ["UTC", "Europe/Amsterdam", "America/St_Johns", "Africa/Casablanca", "Pacific/Kiritimati"]
MICROS = st.one_of(st.integers(*SECONDS_1800_TO_2700), integers(64))
HOUR = 3_600_000_000


def texts(values: list, kind: pa.DataType, zone: str = "UTC", is_ansi: bool = True) -> list:
    column = text_of(pa.array(values, kind), "c", zone, is_ansi)
    column.validate(full=True)
    assert column.type == pa.string()
    return column.to_pylist()


def cast(micros: int, zone: str) -> str:
    ahead = json_twin.seconds_ahead(micros // 1_000_000, zone)
    days, rest = divmod(micros + ahead * 1_000_000, json_twin.DAY_US)
    return f"{json_twin.day(days)} {json_twin.clock(rest, 6)}"


@given(st.lists(st.one_of(st.none(), MICROS), max_size=20), st.sampled_from(ZONES))
def test_times_equal_their_twin(values, zone):
    expected = [None if value is None else cast(value, zone) for value in values]
    assert texts(values, pa.timestamp("us", zone), zone) == expected


@given(st.lists(st.one_of(st.none(), MICROS), max_size=20))
def test_times_without_a_zone_too(values):
    expected = [None if value is None else cast(value, "UTC") for value in values]
    assert texts(values, pa.timestamp("us"), "Europe/Amsterdam") == expected


def test_a_time_beside_a_null_keeps_its_microseconds():
    """More of them than a float64 has, which NumPy makes of a column with a null."""
    values = [None, 2**53 + 1]
    assert texts(values, pa.timestamp("us", "UTC")) == [None, cast(2**53 + 1, "UTC")]


@given(st.lists(st.one_of(st.none(), integers(32)), max_size=20))
def test_dates_too(values):
    expected = [None if value is None else json_twin.day(value) for value in values]
    assert texts(values, pa.date32()) == expected


@pytest.mark.parametrize("zone", ZONES)
def test_the_first_and_the_last_times_that_int64_has(zone):
    hours = HOUR * np.arange(0, 20, 3)
    values = [*(2**63 - 1 - hours).tolist(), *(-(2**63) + hours).tolist()]
    assert texts(values, pa.timestamp("us", zone), zone) == [cast(value, zone) for value in values]


def test_what_spark_writes():
    kind = pa.timestamp("us", "UTC")
    assert texts([3 * 10**17], kind) == ["+11476-08-15 05:20:00"]
    assert texts([3 * 10**17], kind, "Europe/Berlin") == ["+11476-08-15 07:20:00"]
    assert texts([-62_167_219_200_000_000, -62_167_219_200_000_001], kind) == [
        "0000-01-01 00:00:00",
        "-0001-12-31 23:59:59.999999",
    ]
    assert texts([2**31 - 1, -(2**31)], pa.date32()) == ["+5881580-07-11", "-5877641-06-23"]


@pytest.mark.parametrize(
    ("zone", "hours"),
    [
        ("GMT+1", 1),
        ("GMT+01:00", 1),
        ("UTC+01:00", 1),
        ("UTC-3", -3),
        ("+02:00", 2),
        ("-2", -2),
        ("Z", 0),
        ("PST", -8),
        ("CST", -6),
        ("IST", 5.5),
        ("EST", -5),
    ],
)
def test_zones_that_only_java_knows(zone, hours):
    found = texts([int((24 - hours) * HOUR), None], pa.timestamp("us", zone), zone)
    assert found == ["1970-01-02 00:00:00", None]


def test_a_zone_that_nobody_knows():
    with pytest.raises(FormatError, match="time zone 'No/Zone' is not known"):
        texts([0], pa.timestamp("us", "No/Zone"), "No/Zone")


def test_a_part_of_a_column():
    column = pa.array([None, 0, None, HOUR], pa.timestamp("us", "UTC")).slice(2)
    assert text_of(column, "c", "UTC", True).to_pylist() == [None, "1970-01-01 01:00:00"]


def number(unscaled: int, scale: int) -> Decimal:
    return Decimal(unscaled).scaleb(-scale, Context(prec=60))


@pytest.mark.parametrize("scale", [0, 2, 7, 38, -1, -8, -20])
def test_decimals_where_ansi_is_off_have_exponents_as_java_s(scale):
    """CAST takes BigDecimal.toString there, and toPlainString where ANSI is on."""
    unscaled = [0, 1, -1, 120, -12345678, 10**17 + 1]
    values = [number(n, scale) for n in unscaled]
    expected = [json_twin.unscaled_decimal(n, scale) for n in unscaled]
    assert texts([*values, None], pa.decimal128(38, scale), is_ansi=False) == [*expected, None]
    plain = [f"{value:f}" if value or scale > 0 else "0" for value in values]
    assert texts([*values, None], pa.decimal128(38, scale)) == [*plain, None]


def test_decimals_as_spark_casts_them():
    values, kind = [Decimal("1E-7"), Decimal("0E-7")], pa.decimal128(10, 7)
    assert texts(values, kind, is_ansi=False) == ["1E-7", "0E-7"]
    assert texts(values, kind, is_ansi=True) == ["0.0000001", "0.0000000"]
    large, kind = [Decimal("1.23E10")], pa.decimal128(3, -8)
    assert texts(large, kind, is_ansi=False) == ["1.23E+10"]
    assert texts(large, kind, is_ansi=True) == ["12300000000"]
