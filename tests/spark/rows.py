"""Rows of many kinds."""

from pyspark.sql import functions as F

_HEADERS = "array<struct<key:string,value:binary>>"


def mixed_rows(spark, rows):
    """Keys null, empty, 1-40 bytes, bytes >= 0x80; headers; tombstones; every row distinguishable."""
    number = F.col("id")
    digest = F.sha2(number.cast("string"), 256)
    raw = F.unhex(digest)
    key = (
        F.when(number % 10 == 0, F.lit(None).cast("binary"))
        .when(number % 10 == 1, F.lit("").cast("binary"))
        .when(number % 10 < 5, raw.substr(F.lit(1), (number % 32 + 1).cast("int")))
        .otherwise(
            F.expr("cast(substring(repeat(cast(id as string), 10), 1, int(id % 40) + 1) as binary)")
        )
    )
    value = F.when(number % 13 == 0, F.lit(None)).otherwise(
        F.concat(number.cast("string"), F.lit(":"), digest)
    )
    headers = (
        F.when(number % 7 == 0, F.lit(None).cast(_HEADERS))
        .when(number % 7 == 1, F.expr(f"cast(array() as {_HEADERS})"))
        .otherwise(
            F.expr(
                "array(named_struct('key', 'row', 'value', cast(cast(id as string) as binary)),"
                " named_struct('key', 'row', 'value', cast(null as binary)),"
                " named_struct('key', 'größe', 'value', cast('' as binary)))"
            )
        )
    )
    return spark.range(0, rows, 1, 2).select(
        key.alias("key"), value.alias("value"), headers.alias("headers"), number.alias("ignored")
    )
