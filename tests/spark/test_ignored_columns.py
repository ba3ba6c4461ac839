"""Columns that the sink does not write: of every type of Spark's, beside a value.

They do no harm, or are refused on the driver.
"""

import pytest

from tests.reading import read_topic

CARRIED = {
    "boolean": "true",
    "tinyint": "1Y",
    "smallint": "1S",
    "int": "1",
    "bigint": "1L",
    "float": "1F",
    "double": "1D",
    "decimal(38,18)": "cast(1.5 as decimal(38, 18))",
    "string": "'x'",
    "string collate UTF8_LCASE": "'x' collate UTF8_LCASE",
    "binary": "X'00'",
    "date": "date'2020-01-01'",
    "timestamp": "timestamp'2020-01-01 00:00:00'",
    "timestamp_ntz": "timestamp_ntz'2020-01-01 00:00:00'",
    "time": "time'12:00:00'",
    "void": "null",
    "interval day to second": "interval '1' day",
    "variant": "parse_json('{\"a\": 1}')",
    "array<int>": "array(1)",
    "array<decimal(10,2)>": "array(1.5BD)",
    "map<string,int>": "map('a', 1)",
    "map<int,variant>": "map(1, parse_json('1'))",
    "struct<a:int>": "named_struct('a', 1)",
    "array<struct<a:interval year to month>>": "array(named_struct('a', interval '1' month))",
    "geometry": "st_geomfromwkb(X'0101000000000000000000F03F0000000000000040')",
}


@pytest.mark.parametrize("kind", CARRIED)
def test_a_column_that_is_not_written(spark, kafka, new_topic, write, kind):
    topic = new_topic(1)
    write(spark.sql(f"select 'k' as key, 'v' as value, {CARRIED[kind]} as other"), topic)
    records = read_topic(kafka.bootstrap_servers, topic)
    assert [(r.key, r.value) for r in records] == [(b"k", b"v")]


REASON = (
    "Spark cannot hand that to a Python sink, which gets all columns, also those that are not "
    "written. "
)
SELECT_ONLY = 'Select only the columns of a record, each once: .select("key", "value")'


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        ("interval '1' month as other", "column 'other' has the type interval month"),
        (
            "named_struct('a', 1, 'a', 2) as other",
            "column 'other' has the field 'a' more than once",
        ),
        (
            "array(map(1, named_struct('a', 1, 'a', 2))) as other",
            "column 'other' has the field 'a' more than once",
        ),
        ("1 as x, 'y' as x, 2 as x", "column 'x' is there 3 times"),
    ],
)
def test_a_column_that_spark_cannot_hand_over(spark, write, columns, problem):
    with pytest.raises(Exception) as caught:
        write(spark.sql(f"select 'k' as key, 'v' as value, {columns}"), "t")
    assert f"{problem}: {REASON}{SELECT_ONLY}" in str(caught.value)


def test_a_column_of_the_record_that_is_there_twice(spark, write):
    with pytest.raises(Exception) as caught:
        write(spark.sql("select 'k' as key, 'v' as value, 'w' as value"), "t")
    told = (
        f"column 'value' is there 2 times: {REASON}Rename one of them in the DataFrame, or drop it"
    )
    assert told in str(caught.value)


@pytest.mark.parametrize(
    "column", ["make_interval(0, 1)", "named_struct('a', array(make_interval(0, 1)))"]
)
def test_spark_itself_refuses_intervals_without_a_kind(spark, write, column):
    with pytest.raises(Exception, match='Cannot use "INTERVAL" type in the table schema'):
        write(spark.sql(f"select 'v' as value, {column} as other"), "t")
