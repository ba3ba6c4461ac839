"""write_json and the texts of columns against their twin, and JSON as Spark's to_json writes it."""

import datetime
import json
import re
from decimal import Context, Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_sink.formats.encoder import RowEncoder, rows_as_json, text_of
from spark_kafka_sink.formats.plan import JSON, FieldSpec, FormatError, FormatSpec, JsonOptions
from tests.formats import json_twin
from tests.formats.rows import (
    CASES,
    SECONDS_1800_TO_2700,
    TEXT,
    arrow_batch,
    integers,
    json_encoder,
    read,
    rows,
)

ZONES = ["UTC", "Europe/Berlin", "America/St_Johns", "Asia/Kolkata", "Africa/Casablanca"]


def texts(arrow_batch, **options):
    values = json_encoder(arrow_batch.schema, **options).encode(arrow_batch).values
    values.validate(full=True)
    return [value.decode() for value in values.to_pylist()]


def of_column(array):
    """What a single column's values are written as."""
    found = texts(pa.record_batch([array], ["c"]), ignore_null_fields=False)
    return [text.removeprefix('{"c":').removesuffix("}") for text in found]


@given(rows(), st.booleans(), st.sampled_from(ZONES), st.integers(0, 5))
def test_rows_equal_their_twin(made, ignored, zone, first):
    """Sliced batches, too."""
    first = min(first, len(made.values) - 1)
    found = texts(made.batch.slice(first), ignore_null_fields=ignored, time_zone=zone)
    expected = [json_twin.row_text(row, made.schema, ignored, zone) for row in made.values]
    assert found == expected[first:]
    for text in found:
        json.loads(text)


@pytest.mark.parametrize("zone", ZONES)
def test_time_zones_of_all_years(zone):
    """Morocco's clocks follow Ramadan until 2087, and then a rule that never changes."""
    years = [*range(1801, 2600), *range(2600, 9999, 37)]
    days = [datetime.date(y, m, 26).toordinal() - 719_163 for y in years for m in (1, 4, 7, 10)]
    micros = [day * 86_400_000_000 for day in days]
    batch = pa.record_batch({"t": pa.array(micros, pa.timestamp("us", "UTC"))})
    found = texts(batch, time_zone=zone)
    assert found == [f'{{"t":"{json_twin.moment(n, zone)}"}}' for n in micros]


@pytest.mark.parametrize(("kind", "bits"), [(np.float64, np.uint64), (np.float32, np.uint32)])
def test_floating_point_of_all_exponents(kind, bits):
    """Random bits, so that all magnitudes are as frequent; and all powers of two."""
    random = np.random.default_rng(7)
    drawn = random.integers(0, np.iinfo(bits).max, 20_000, bits, endpoint=True).view(kind)
    least, greatest = (-1074, 1024) if kind is np.float64 else (-149, 128)
    powers = np.ldexp(np.ones(greatest - least), np.arange(least, greatest)).astype(kind)
    values = np.concatenate([drawn, powers, np.nextafter(powers, kind(0))])
    found = of_column(pa.array(values))
    assert found == [json_twin.floating(float(v), kind is np.float32) for v in values]
    read = np.array([float(json.loads(text)) for text in found]).astype(kind)
    assert np.array_equal(read, values, equal_nan=True), "the shortest that read back the same"


@given(TEXT, st.integers(0, 8))
def test_strings_are_escaped_wherever_they_begin(text, shift):
    padded = "p" * shift + text
    assert of_column(pa.array([padded])) == [json_twin.quoted(padded)]


@pytest.mark.parametrize("zone", [*ZONES, "Pacific/Kiritimati", "Etc/GMT+12"])
def test_the_first_and_the_last_times_that_int64_has(zone):
    hours = 3_600_000_000 * np.arange(0, 20, 3)
    values = [*(2**63 - 1 - hours).tolist(), *(-(2**63) + hours).tolist()]
    batch = pa.record_batch([pa.array(values, pa.timestamp("us", "UTC"))], ["c"])
    expected = [f'{{"c":"{json_twin.moment(value, zone)}"}}' for value in values]
    assert texts(batch, time_zone=zone) == expected


@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo", "Etc/GMT+12"])
def test_a_pattern_like_the_default_writes_the_same_of_all_times(zone):
    """Of the first and the last ones, and of each kind beside the other in one batch, too."""
    hours = 3_600_000_000 * np.arange(0, 20, 3)
    values = [0, *(2**63 - 1 - hours).tolist()]
    times = pa.array(values, pa.int64())
    days = pa.array([0, 2**31 - 1, -(2**31), 106_751_992, 106_751_991, 1, 2, 3], pa.int32())
    batch = pa.record_batch(
        [
            times.cast(pa.timestamp("us", "UTC")),
            times.cast(pa.timestamp("us")),
            days.view("date32"),
        ],
        ["zoned", "ntz", "day"],
    )
    found = texts(
        batch,
        time_zone=zone,
        timestamp_format="yyyy-MM-dd'T'HH:mm:ss.SSSXXX",
        timestamp_ntz_format="yyyy-MM-dd'T'HH:mm:ss.SSS",
        date_format="yyyy-MM-dd",
    )
    assert found == texts(batch, time_zone=zone)


@given(st.binary(max_size=30))
def test_bytes_that_are_not_utf8_are_replaced(data):
    text = data.decode("utf-8", "replace")
    array = pa.array([data]).view(pa.string())
    found = json.loads(of_column(array)[0])
    # Python replaces each byte of half a surrogate pair, Java all three at once.
    assert found.replace("\ufffd", "") == text.replace("\ufffd", "")
    assert ("\ufffd" in found) == ("\ufffd" in text)


def test_values_stay_as_they_are_while_they_are_referred_to():
    batch = pa.record_batch({"n": range(3)})
    made = json_encoder(batch.schema)
    first = made.encode(batch).values
    made.encode(pa.record_batch({"n": [7, 8, 9]}))
    assert first.to_pylist() == [b'{"n":0}', b'{"n":1}', b'{"n":2}']


MARKED = pa.field("value", pa.binary(), False, {b"variant": b"true"})


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (pa.uint8(), "column 'c' has the Arrow type uint8, which cannot be written as JSON"),
        (pa.timestamp("ns"), r"timestamp\[ns\]"),
        (pa.dictionary(pa.int8(), pa.string()), "dictionary"),
        (pa.list_(pa.float16()), r"'c\[\]' has the Arrow type halffloat"),
        (pa.struct([("x", pa.date64())]), r"'c\.x' has the Arrow type date64"),
        (pa.map_(pa.binary(), pa.int8()), "keys of the map 'c' have the Arrow type binary"),
        (pa.map_(pa.struct([("x", pa.int8())]), pa.int8()), "keys of the map 'c'"),
        (pa.struct([MARKED.with_type(pa.int8()), ("metadata", pa.binary())]), "a VARIANT without binary fields"),
        (pa.struct([MARKED]), "VARIANT"),
    ],
)  # fmt: skip
def test_types_that_cannot_be_written(kind, message):
    with pytest.raises(FormatError, match=message):
        json_encoder(pa.schema([("c", kind)]))


OFFSETS = "offsets are from -18:00 to [+]18:00"
ELSE = r"For another form make a column of text by date_format\(\)"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"time_zone": "Europe/Nowhere"}, "time zone 'Europe/Nowhere' is not known"),
        ({"timestamp_format": "yyyy G"}, "timestampFormat=yyyy G: the letter G is not supported"),
        *(
            ({"timestamp_format": pattern}, f"the letter {letter} is .* text in quotes. {ELSE}")
            for letter, pattern in zip("YuhDz", ("YYYY-MM", "uuuu", "hh:mm", "DDD", "HH[:mm z]"))
        ),
        ({"date_format": "hh"}, f"text in quotes. {ELSE}"),
        ({"timestamp_format": "yyyyTHH"}, "write 'T' in quotes. For another"),
        ({"timestamp_format": "HH[:mm]]"}, r"HH\[:mm\]\]: \] is not supported there"),
        ({"date_format": "yyyy[ HHH]"}, "HHH is not supported"),
        ({"date_format": "yyyy[ '{'{]"}, "{ is not supported there"),
        ({"timestamp_format": "yyyy'T"}, "yyyy'T: the quote is not closed"),
        *(
            ({"timestamp_format": pattern}, f"{pattern} is not supported")
            for pattern in ("MMM", "yyyyyyy", "ZZZZ", "ZZZZZZ", "S" * 10, "VVV")
        ),
        *(
            (
                {"timestamp_format": "VV", "time_zone": zone},
                f"'{re.escape(zone)}' is none: {OFFSETS}",
            )
            for zone in ("GMT+19", "GMT+05:60", "GMT+05:00:60")
        ),
        ({"timestamp_ntz_format": "HHX"}, "timestampNTZFormat=HHX: the letter X is not supported"),
        ({"date_format": "yyyy-MM-dd HH"}, "dateFormat=yyyy-MM-dd HH: the letter H is not"),
    ],
)
def test_options_that_are_refused(options, message):
    with pytest.raises(FormatError, match=message):
        json_encoder(pa.schema([("c", pa.timestamp("us", "UTC"))]), **options)


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (FormatSpec(JSON, (FieldSpec(("x",), "x"),)), "there is no column 'x', or several"),
        (FormatSpec(JSON, (FieldSpec(("c", "x"), "x"),)), "'c' has no field 'x': its type is"),
        (FormatSpec(JSON, (FieldSpec(("s", "x"), "x"),)), "'s' has no field 'x', or several"),
        (FormatSpec(JSON, (), null_when="c"), "column 'c' must be boolean, not int8"),
        (FormatSpec("xml", ()), "format 'xml' is not known"),
    ],
)
def test_plans_that_do_not_fit(plan, message):
    schema = pa.schema([("c", pa.int8()), ("s", pa.struct([("y", pa.int8())]))])
    with pytest.raises(FormatError, match=message):
        RowEncoder(plan, schema)


@pytest.mark.parametrize("scale", [0, 1, 6, 7, 38, 100, 2**31 - 1, -1, -8, -100, -(2**31)])
def test_decimals_of_all_scales_as_java_writes_them(scale):
    numbers = [0, 1, -1, 123, -123, 10**37, 10**38 - 1, -(10**38) + 1]
    data = b"".join(number.to_bytes(16, "little", signed=True) for number in numbers)
    kind = pa.decimal128(38, scale)
    array = pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(data)])
    texts = [json_twin.unscaled_decimal(number, scale) for number in numbers]
    assert of_column(array) == texts
    keys = pa.MapArray.from_arrays([0, len(numbers)], array, pa.array(range(len(numbers))))
    assert of_column(keys) == ["{" + ",".join(f'"{t}":{n}' for n, t in enumerate(texts)) + "}"]


@pytest.mark.parametrize(
    ("zone", "name"),
    [
        *(("PST", "America/Los_Angeles"), ("EST", "-05:00"), ("+00:00", "Z"), ("UTC+0", "UTC")),
        *(("GMT+1", "GMT+01:00"), ("UT-01:30:15", "UT-01:30:15"), ("+1:00", "+01:00")),
        *(("+18", "+18:00"), ("-0130", "-01:30"), ("+053000", "+05:30")),
        *((zone, zone) for zone in ("Z", "UTC", "Europe/Berlin", "Etc/GMT+12", "Zulu")),
    ],
)
def test_a_pattern_writes_the_name_that_java_has_for_the_zone(zone, name):
    batch = pa.record_batch([pa.array([0], pa.timestamp("us", "UTC"))], ["c"])
    assert texts(batch, time_zone=zone, timestamp_format="VV") == [f'{{"c":"{name}"}}']


@pytest.mark.parametrize(
    "zone",
    [
        *("-99:99", "+99:99", "+25:00", "+18:01", "-18:00:01", "+24:00", "UTC+19", "GMT-1800:01"),
        *("+1234567", "+123", "+05:60", "+01:0203", "+0102:03", "+", "UT-", "+\u0661:00", "+1 "),
    ],
)
def test_offsets_that_java_does_not_have_are_refused(zone):
    with pytest.raises(FormatError, match=OFFSETS):
        json_encoder(pa.schema([("c", pa.timestamp("us", "UTC"))]), time_zone=zone)


def test_times_that_no_day_has_are_errors_of_their_rows():
    """As with to_json; Spark itself compares nothing when Arrow batches of a UDF come to it."""
    day = 86_400_000_000_000
    nanos = [0, day - 1, day, -1, 2**63 - 1, -(2**63)]
    array = pa.array(nanos, pa.int64()).view(pa.time64("ns"))
    batch = pa.record_batch([pa.StructArray.from_arrays([array], ["t"])], ["c"])
    made = json_encoder(batch.schema)
    values, faults = made.encode(batch)
    last = b'{"c":{"t":"23:59:59.999999999"}}'
    assert values.to_pylist() == [b'{"c":{"t":"00:00:00"}}', last, None, None, None, None]
    texts = {made.fault_text(fault) for fault in faults[2:].tolist()}
    assert texts == {"field 'c.t' is not a time of a day: it is negative, or 24 hours and more"}
    told = [json.loads(text)["c"]["t"] for text in rows_as_json(batch, None).to_pylist()]
    assert told[:2] == ["00:00:00", "23:59:59.999999999"]
    assert all(isinstance(text, str) for text in told[2:])


def plan_of(case, options):
    fields = tuple(
        FieldSpec((f["name"],), f["name"], json.dumps(f["type"])) for f in case["schema"]["fields"]
    )
    ignored = options.get("ignoreNullFields", "true") == "true"
    patterns = (options.get(f"{name}Format") for name in ("timestamp", "timestampNTZ", "date"))
    chosen = JsonOptions(ignored, options["timeZone"], *patterns)
    return FormatSpec(JSON, fields, json_options=chosen)


@pytest.mark.parametrize("name", CASES)
def test_rows_are_as_spark_writes_them(name):
    case = read(name)
    rows = arrow_batch(case)
    for written in case["json"]:
        encoder = RowEncoder(plan_of(case, written["options"]), rows.schema)
        values = encoder.encode(rows).values.to_pylist()
        assert [value.decode() for value in values] == written["rows"], written["options"]


TEXT_ZONES = [
    "UTC",
    "Europe/Amsterdam",
    "America/St_Johns",
    "Africa/Casablanca",
    "Pacific/Kiritimati",
]
MICROS = st.one_of(st.integers(*SECONDS_1800_TO_2700), integers(64))
HOUR = 3_600_000_000


def column_texts(values, kind, zone="UTC", is_ansi=True):
    column = text_of(pa.array(values, kind), "c", zone, is_ansi)
    column.validate(full=True)
    assert column.type == pa.string()
    return column.to_pylist()


def cast(micros, zone):
    ahead = json_twin.seconds_ahead(micros // 1_000_000, zone)
    days, rest = divmod(micros + ahead * 1_000_000, json_twin.DAY_US)
    return f"{json_twin.day(days)} {json_twin.clock(rest, 6)}"


@given(st.lists(st.one_of(st.none(), MICROS), max_size=20), st.sampled_from(TEXT_ZONES))
def test_times_equal_their_twin(values, zone):
    expected = [None if value is None else cast(value, zone) for value in values]
    assert column_texts(values, pa.timestamp("us", zone), zone) == expected


@given(st.lists(st.one_of(st.none(), MICROS), max_size=20))
def test_times_without_a_zone_too(values):
    expected = [None if value is None else cast(value, "UTC") for value in values]
    assert column_texts(values, pa.timestamp("us"), "Europe/Amsterdam") == expected


def test_a_time_beside_a_null_keeps_its_microseconds():
    """More of them than a float64 has, which NumPy makes of a column with a null."""
    values = [None, 2**53 + 1]
    assert column_texts(values, pa.timestamp("us", "UTC")) == [None, cast(2**53 + 1, "UTC")]


@given(st.lists(st.one_of(st.none(), integers(32)), max_size=20))
def test_dates_too(values):
    expected = [None if value is None else json_twin.day(value) for value in values]
    assert column_texts(values, pa.date32()) == expected


def test_what_spark_writes():
    kind = pa.timestamp("us", "UTC")
    assert column_texts([3 * 10**17], kind) == ["+11476-08-15 05:20:00"]
    assert column_texts([3 * 10**17], kind, "Europe/Berlin") == ["+11476-08-15 07:20:00"]
    assert column_texts([-62_167_219_200_000_000, -62_167_219_200_000_001], kind) == [
        "0000-01-01 00:00:00",
        "-0001-12-31 23:59:59.999999",
    ]
    assert column_texts([2**31 - 1, -(2**31)], pa.date32()) == ["+5881580-07-11", "-5877641-06-23"]


@pytest.mark.parametrize(
    ("zone", "hours"),
    [
        *(
            ("GMT+1", 1),
            ("GMT+01:00", 1),
            ("UTC+01:00", 1),
            ("UTC-3", -3),
            ("+02:00", 2),
            ("-2", -2),
        ),
        *(("Z", 0), ("PST", -8), ("CST", -6), ("IST", 5.5), ("EST", -5)),
    ],
)
def test_zones_that_only_java_knows(zone, hours):
    found = column_texts([int((24 - hours) * HOUR), None], pa.timestamp("us", zone), zone)
    assert found == ["1970-01-02 00:00:00", None]


def test_a_part_of_a_column():
    column = pa.array([None, 0, None, HOUR], pa.timestamp("us", "UTC")).slice(2)
    assert text_of(column, "c", "UTC", True).to_pylist() == [None, "1970-01-01 01:00:00"]


def number(unscaled, scale):
    return Decimal(unscaled).scaleb(-scale, Context(prec=60))


@pytest.mark.parametrize("scale", [0, 2, 7, 38, -1, -8, -20])
def test_decimals_where_ansi_is_off_have_exponents_as_java_s(scale):
    """CAST takes BigDecimal.toString there, and toPlainString where ANSI is on."""
    unscaled = [0, 1, -1, 120, -12345678, 10**17 + 1]
    values = [number(n, scale) for n in unscaled]
    expected = [json_twin.unscaled_decimal(n, scale) for n in unscaled]
    assert column_texts([*values, None], pa.decimal128(38, scale), is_ansi=False) == [
        *expected,
        None,
    ]
    plain = [f"{value:f}" if value or scale > 0 else "0" for value in values]
    assert column_texts([*values, None], pa.decimal128(38, scale)) == [*plain, None]
