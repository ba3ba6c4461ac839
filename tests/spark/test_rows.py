"""Rows of every shape, by the format and by functions: as Spark's JVM Kafka sink writes them."""

import datetime
import json
from collections import Counter

import pyarrow as pa
import pytest
from chispa import assert_df_equality
from pyspark.sql import functions as F

import spark_kafka_sink
from evidence.harness.checkpoints import forget_last
from spark_kafka_sink.base.errors import SchemaError
from tests.patience import PATIENCE_S
from tests.reading import read_topic
from tests.spark.test_exactly_once import exactly_once, ids
from tests.spark.test_streaming import ROWS_PER_FILE, read_files, write_file

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


ROWS = 100_000


def content(records):
    """Per keyed record: partition, key, value and headers in order; keyless ones anywhere."""
    keyed = Counter((r.partition, r.key, r.value, r.headers) for r in records if r.key is not None)
    keyless = Counter((r.value, r.headers) for r in records if r.key is None)
    return keyed, keyless


# Without a codec, records pass through one step less: tests/golden has their bytes.
@pytest.mark.parametrize("codec", [pytest.param("none", marks=pytest.mark.long), "zstd"])
def test_records_partitions_and_headers_are_those_of_the_jvm_sink(
    spark, kafka, new_topic, write, codec
):
    frame = mixed_rows(spark, ROWS)
    ours, theirs = new_topic(7), new_topic(7)
    write(frame, ours, kafka_compression_type=codec)
    write(frame, theirs, sink="kafka", kafka_compression_type=codec)
    our_records = read_topic(kafka.bootstrap_servers, ours)
    their_records = read_topic(kafka.bootstrap_servers, theirs)
    assert len(our_records) == len(their_records) == ROWS
    assert content(our_records) == content(their_records)
    for partition in range(7):
        offsets = [r.offset for r in our_records if r.partition == partition]
        assert offsets == list(range(len(offsets)))


def test_partition_and_topic_columns(spark, kafka, new_topic, write):
    one, two = new_topic(3), new_topic(4)
    frame = spark.range(0, 1000, 1, 2).selectExpr(
        f"if(id % 2 = 0, '{one}', '{two}') as topic",
        "if(id % 3 = 0, cast(id % 3 as int), null) as partition",
        "cast(id as string) as key",
        "cast(cast(id as string) as binary) as value",
    )
    for sink in ("pykafka-sink", "kafka"):
        write(frame, None, sink=sink)
    for topic in (one, two):
        records = read_topic(kafka.bootstrap_servers, topic)
        assert set(Counter((r.partition, r.key, r.value) for r in records).values()) == {2}
        assert len(records) == 1000


READ_BACK_ROWS = 2_000


def check_same_rows(ours, expected):
    """Kafka keeps the order within a partition only, and Spark's columns of it may be null."""
    assert_df_equality(ours, expected, ignore_row_order=True, ignore_nullable=True)


def as_read(frame):
    """What a reader of Kafka gets: bytes, and no list of headers where there are none."""
    headers = F.when(F.size("headers") > 0, F.col("headers"))
    return frame.select(
        F.col("key").cast("binary"), F.col("value").cast("binary"), headers.alias("headers")
    )


def test_keys_values_and_headers_are_those_that_were_written(
    spark, new_topic, write, read_by_spark
):
    """Among them null and empty keys, tombstones, headers without value, names beyond ASCII."""
    topic = new_topic(3)
    frame = mixed_rows(spark, READ_BACK_ROWS)
    write(frame, topic)
    check_same_rows(read_by_spark(topic).select("key", "value", "headers"), as_read(frame))


def test_topic_partition_and_timestamp_are_the_columns(spark, new_topic, write, read_by_spark):
    topic = new_topic(3)
    frame = spark.range(0, READ_BACK_ROWS, 1, 2).selectExpr(
        f"'{topic}' as topic",
        "cast(id % 3 as int) as partition",
        "cast(cast(id as string) as binary) as value",
        # Kafka keeps milliseconds.
        "timestamp_millis(1600000000000 + id * 7) as timestamp",
    )
    write(frame, None, timestamp_column="timestamp")
    check_same_rows(read_by_spark(topic).select(frame.columns), frame)


@pytest.fixture(params=["false", "true"])
def large_types(request, spark):
    spark.conf.set("spark.sql.execution.arrow.useLargeVarTypes", request.param)
    yield request.param
    spark.conf.unset("spark.sql.execution.arrow.useLargeVarTypes")


def test_strings_and_binaries_of_both_widths(spark, kafka, new_topic, write, large_types):
    topic = new_topic(2)
    frame = spark.range(0, 100).selectExpr(
        "concat('schlüssel-', id) as key",
        "cast(concat('wert-', id) as binary) as value",
        "array(named_struct('key', 'h', 'value', cast(cast(id as string) as binary))) as headers",
    )
    write(frame, topic)
    records = read_topic(kafka.bootstrap_servers, topic)
    assert {(r.key.decode(), r.value.decode()) for r in records} == {
        (f"schlüssel-{i}", f"wert-{i}") for i in range(100)
    }
    assert all(r.headers == (("h", r.key.split(b"-")[1]),) for r in records)


def test_no_rows_and_empty_partitions(spark, kafka, new_topic, write):
    topic = new_topic(1)
    write(spark.range(0).selectExpr("cast(id as string) as value"), topic)
    write(spark.range(0, 3, 1, 8).where("id = 1").selectExpr("cast(id as string) as value"), topic)
    assert [r.value for r in read_topic(kafka.bootstrap_servers, topic)] == [b"1"]


def test_columns_of_nulls_alone(spark, kafka, new_topic, write):
    topic = new_topic(2)
    frame = spark.range(0, 10).select(
        F.lit(None).cast("string").alias("key"),
        F.lit(None).cast("binary").alias("value"),
        F.lit(None).cast("array<struct<key:string,value:binary>>").alias("headers"),
        F.lit(None).cast("int").alias("partition"),
        F.lit(None).cast("timestamp").alias("timestamp"),
    )
    write(frame, topic, timestamp_column="timestamp")
    records = read_topic(kafka.bootstrap_servers, topic)
    assert [(r.key, r.value, r.headers) for r in records] == [(None, None, ())] * 10
    now_ms = datetime.datetime.now(datetime.timezone.utc).timestamp() * 1000
    assert all(abs(r.timestamp - now_ms) < 120_000 for r in records)


@pytest.mark.parametrize("sink", ["pykafka-sink", "kafka"])
def test_a_timestamp_column_that_is_not_named_is_ignored(spark, kafka, new_topic, write, sink):
    """As by the JVM sink, whatever its type and time: its copies stay where they are written."""
    topic = new_topic(1)
    columns = ["timestamp'1969-12-31 00:00:00'", "'soon'", "5L", "date'2020-01-01'"]
    for column in columns:
        write(spark.sql(f"select '{{}}' as value, {column} as timestamp"), topic, sink=sink)
    now_ms = datetime.datetime.now(datetime.timezone.utc).timestamp() * 1000
    records = read_topic(kafka.bootstrap_servers, topic)
    assert [record.value for record in records] == [b"{}"] * len(columns)
    assert all(abs(record.timestamp - now_ms) < 600_000 for record in records)


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
def test_a_megabyte_passes_where_it_is_allowed(spark, kafka, new_topic, write, codec):
    topic = new_topic(1, max_message_bytes="4000000")
    frame = spark.range(0, 4, 1, 1).selectExpr(
        "cast(id as string) as key",
        "cast(concat_ws('', transform(sequence(1, 15625), i -> sha2(cast(i * 31 + id as string), 256))) as binary) as value",
    )
    write(frame, topic, kafka_max_request_size="3000000", kafka_compression_type=codec)
    records = read_topic(kafka.bootstrap_servers, topic)
    assert [len(r.value) for r in records] == [1_000_000] * 4
    expected = {bytes(r.value) for r in frame.select("value").collect()}
    assert {r.value for r in records} == expected


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


@pytest.fixture
def options(kafka, tmp_path):
    """As a user gives them, to a topic."""

    def of(topic, **more):
        address = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": topic}
        return {**address, "metrics.path": str(tmp_path / "metrics.jsonl"), **more}

    return of


def lines(tmp_path):
    text = (tmp_path / "metrics.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def records(kafka, topic):
    """With the partition of keyed ones."""
    read = read_topic(kafka.bootstrap_servers, topic)
    found = [(r.key and r.partition, r.key or b"", r.value or b"", r.headers) for r in read]
    return sorted(found, key=repr)


def test_a_data_frame_is_written_as_by_the_data_source(
    spark, kafka, new_topic, write, options, tmp_path
):
    rows = mixed_rows(spark, 500)
    source, function = new_topic(3), new_topic(3)
    write(rows, source)
    spark_kafka_sink.write(rows, options(function, **{"Kafka.Linger.Ms": 5, "metrics.log": False}))
    assert records(kafka, function) == records(kafka, source)
    spark_kafka_sink.write(rows.filter("ignored < 0"), options(function))
    assert [line["records_acknowledged"] for line in lines(tmp_path)] == [500, 0]
    with pytest.raises(SchemaError, match="Required attribute 'value' not found"):
        spark_kafka_sink.write(rows.select("key"), options(function))
    assert len(records(kafka, function)) == 500


class NamesAsKeys:
    """An interceptor, which finds columns by their names."""

    def on_send(self, arrow_batch):
        names = pa.array(["|".join(arrow_batch.schema.names)] * arrow_batch.num_rows)
        return arrow_batch.set_column(arrow_batch.schema.get_field_index("key"), "key", names)


def test_interceptors_get_columns_by_their_own_names(spark, kafka, new_topic, write, options):
    rows = spark.range(0, 3, 1, 1).selectExpr(
        "cast(id as string) as value", "'' as key", "id as `a.b`"
    )
    source, function, own = new_topic(1), new_topic(1), f"{__name__}:NamesAsKeys"
    write(rows, source, interceptors=own)
    spark_kafka_sink.write(rows, options(function, interceptors=own))
    assert records(kafka, function) == records(kafka, source)
    assert {record[1] for record in records(kafka, function)} == {b"value|key|a.b"}


def test_columns_that_are_not_written_may_have_any_names(spark, kafka, new_topic, write, options):
    names = ("user.id", "us``er", "a", "A", "s", "s.b", "")
    rows = spark.range(0, 3, 1, 1).selectExpr(
        *(f"named_struct('b', id) as `{name}`" for name in names), "cast(id as string) as value"
    )
    source, function = new_topic(1), new_topic(1)
    write(rows, source)
    spark_kafka_sink.write(rows, options(function))
    assert ids(kafka, function) == ids(kafka, source) == [0, 1, 2]


def test_a_micro_batch_that_is_repeated_is_there_once(spark, kafka, new_topic, options, tmp_path):
    topic, folder, checkpoint = new_topic(2), tmp_path / "in", tmp_path / "checkpoint"
    folder.mkdir()
    frame = read_files(spark, folder).repartition(2)

    def run(function, checkpoint=checkpoint):
        writer = frame.writeStream.foreachBatch(function).trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(checkpoint)).start()
        assert query.awaitTermination(PATIENCE_S)

    sink = spark_kafka_sink.batch_writer(options(topic, **exactly_once("frames")))
    write_file(folder, 0)
    run(sink)
    forget_last(checkpoint / "commits")
    write_file(folder, 1)
    run(sink)
    assert ids(kafka, topic) == list(range(2 * ROWS_PER_FILE))
    assert [line["batch_id"] for line in lines(tmp_path)] == [0, 0, 1]
    assert "dropped" in str(lines(tmp_path)[1]["replay"])

    def grouped(df, batch_id):
        """With jobs in a group of its own; then something fails."""
        spark.sparkContext.setJobGroup("the user's own", "")
        sink(df, batch_id)
        assert fine, "something after the sink"

    write_file(folder, 2)
    fine = False
    with pytest.raises(Exception, match="something after the sink"):
        run(grouped)
    fine = True
    run(grouped)
    assert ids(kafka, topic) == list(range(3 * ROWS_PER_FILE))
    assert "dropped" in str(lines(tmp_path)[4]["replay"])

    def twice(df, batch_id):
        sink(df, batch_id)
        sink(df, batch_id)

    write_file(folder, 3)
    with pytest.raises(Exception, match="is written a second time under"):
        run(twice)
    assert ids(kafka, topic) == list(range(4 * ROWS_PER_FILE))

    named, other_topic = exactly_once("frames named", **{"write.id": "w"}), new_topic(1)
    sinks = [
        spark_kafka_sink.batch_writer(options(t, **named)) for t in (new_topic(1), other_topic)
    ]
    with pytest.raises(
        Exception, match="version 0 of write.id 'w' is for topic '.*', and would be"
    ):
        run(lambda df, batch_id: [sink(df, batch_id) for sink in sinks], tmp_path / "named")
    assert ids(kafka, other_topic) == []
