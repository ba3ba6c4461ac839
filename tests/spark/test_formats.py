"""Typed rows through real Spark into a real Kafka: what arrives is what Spark's own functions make."""

import json

import pytest
from pyspark.sql import functions as f

import spark_kafka_sink
from tests.formats import protobuf_files
from tests.formats.protobuf_files import add_field, add_map, file_of
from tests.reading import read_topic

ZONE = "America/New_York"


@pytest.fixture
def typed(spark):
    """Rows of many types, in a session with a time zone of its own."""
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", ZONE)
    yield spark.range(1000, numPartitions=2).select(
        f.col("id").cast("int").alias("n"),
        f.concat(f.lit('ä"\n'), f.col("id")).alias("text"),
        f.when(f.col("id") % 3 > 0, f.col("id") * 100_000).alias("big"),
        (f.col("id") % 2 == 0).alias("is_even"),
        f.timestamp_micros(f.lit(1_372_636_800_123_000) + f.col("id") * 3_600_000_000).alias("at"),
        f.date_add(f.lit("1969-12-01").cast("date"), f.col("id").cast("int")).alias("day"),
        f.struct(f.col("id").alias("a"), f.array(f.lit("x"), f.col("id").cast("string")).alias("b"))
        .alias("nested"),
        (f.col("id") % 10 == 7).alias("gone"),
    )  # fmt: skip
    spark.conf.set("spark.sql.session.timeZone", before)


def expected(frame, key, value):
    rows = frame.select(f.col(key).cast("string").alias("key"), value.alias("value")).collect()
    return {row["key"]: row["value"] for row in rows}


def read(frame):
    rows = frame.selectExpr("CAST(key AS STRING)", "CAST(value AS STRING)").collect()
    found = {row["key"]: row["value"] for row in rows}
    assert len(found) == len(rows)
    return found


@pytest.mark.parametrize("way", ["data source", pytest.param("function", marks=pytest.mark.long)])
def test_json_is_what_to_json_makes(typed, way, kafka, new_topic, write, read_by_spark):
    topic = new_topic()
    options = {"value.format": "json", "key.columns": "at", "value.null.when": "gone"}
    if way == "data source":
        write(typed, topic, **options)
    else:
        servers = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": topic}
        spark_kafka_sink.write(typed, {**servers, **options})
    columns = [name for name in typed.columns if name != "gone"]
    value = f.when(~f.col("gone"), f.to_json(f.struct(*columns)))
    assert read(read_by_spark(topic)) == expected(typed, "at", value)


@pytest.mark.parametrize("way", ["data source", pytest.param("function", marks=pytest.mark.long)])
def test_variants_are_what_to_json_makes(typed, way, kafka, new_topic, write, read_by_spark):
    topic = new_topic()
    made = f.to_variant_object(f.struct("n", "text", "big", "at", "day", "nested"))
    some = f.when(f.col("n") % 3 > 0, made)
    frame = typed.select(
        "n",
        some.alias("v"),
        f.array(made, some).alias("a"),
        f.create_map(f.lit("k"), f.parse_json(f.to_json(f.struct("*")))).alias("m"),
        f.struct(some.alias("x")).alias("s"),
    )
    options = {"value.format": "json", "key.columns": "n,v", "key.format": "json"}
    if way == "data source":
        write(frame, topic, **options)
    else:
        servers = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": topic}
        spark_kafka_sink.write(frame, {**servers, **options})
    keyed = frame.select(f.to_json(f.struct("n", "v")).alias("key"), "*")
    value = f.to_json(f.struct(*frame.columns))
    assert read(read_by_spark(topic)) == expected(keyed, "key", value)


def test_a_time_in_a_variant_where_the_session_has_its_default_time_zone(
    spark, new_topic, write, read_by_spark
):
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.unset("spark.sql.session.timeZone")
    topic = new_topic()
    frame = spark.sql("select cast(timestamp'2024-07-01 12:00:00Z' as variant) v")
    try:
        with pytest.raises(Exception, match="tells no task the time zone of a session that has"):
            write(frame, topic, **{"value.format": "json"})
        write(frame, topic, **{"value.format": "json", "value.json.timeZone": "Asia/Kolkata"})
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    (row,) = read_by_spark(topic).selectExpr("CAST(value AS STRING) AS value").collect()
    assert row["value"] == '{"v":"2024-07-01 17:30:00+05:30"}'


def test_chosen_columns_and_what_else_a_record_has(typed, new_topic, write, read_by_spark):
    topics = [new_topic(1), new_topic(1)]
    frame = typed.withColumns(
        {
            "where": f.when(f.col("is_even"), topics[0]).otherwise(topics[1]),
            "which": f.lit(0),
            "more": f.array(f.struct(f.lit("h").alias("key"), f.lit(b"v").alias("value"))),
        }
    )
    write(
        frame,
        None,
        **{
            "value.format": "json",
            "value.columns": "nested.b,n,big",
            "value.json.ignoreNullFields": "false",
            "key.columns": "n",
            "topic.column": "where",
            "partition.column": "which",
            "headers.column": "more",
            "timestamp.column": "at",
        },
    )
    made = f.to_json(f.struct("nested.b", "n", "big"), {"ignoreNullFields": "false"})
    for remainder, topic in enumerate(topics):
        rows = read_by_spark(topic)
        assert read(rows) == expected(frame.where(f.col("n") % 2 == remainder), "n", made)
        assert rows.select("timestamp").distinct().count() == 500
        (headers,) = rows.select("headers").distinct().collect()
        assert [(h["key"], bytes(h["value"])) for h in headers["headers"]] == [("h", b"v")]


def person_file():
    """demo.Row, which fits the columns of ``typed``, and demo.Key, in proto3."""
    file = file_of("demo.proto", package="demo")
    key = file.message_type.add(name="Key")
    add_field(key, "n", "sint32")
    row = file.message_type.add(name="Row")
    for name, kind in (
        ("at", "google.protobuf.Timestamp"),
        ("n", "int64"),
        ("text", "string"),
        ("big", "google.protobuf.Int64Value"),
        ("is_even", "bool"),
        ("day", "int32"),
        ("nested", "demo.Nested"),
        ("not_there", "string"),
    ):
        add_field(row, name, kind, 100 - len(row.field))
    add_map(row, "lengths", "string", "double", "demo")
    nested = file.message_type.add(name="Nested")
    add_field(nested, "a", "fixed64")
    add_field(nested, "b", "repeated string")
    return file


def test_protobuf_is_read_by_its_official_package(typed, new_topic, write, kafka, tmp_path):
    data = protobuf_files.descriptor_set([person_file()])
    file = tmp_path / "demo.desc"
    file.write_bytes(data)
    topic = new_topic()
    at = f.create_map(f.col("text"), f.col("n") / 4)
    options = {"value.format": "protobuf", "key.format": "protobuf", "key.columns": "n"}
    for part, message in (("value", "demo.Row"), ("key", "demo.Key")):
        options[f"{part}.protobuf.descriptor.file"] = str(file)
        options[f"{part}.protobuf.message"] = message
    write(typed.withColumn("lengths", at), topic, **options, **{"value.null.when": "gone"})
    kind, key = (protobuf_files.message_class(data, name) for name in ("demo.Row", "demo.Key"))
    found = {
        key.FromString(record.key or b"").n: record.value and kind.FromString(record.value)
        for record in read_topic(kafka.bootstrap_servers, topic)
    }
    numbers = typed.withColumns({"at": f.unix_micros("at"), "day": f.unix_date("day")})
    assert len(found) == 1000
    for row in numbers.withColumn("lengths", at).collect():
        values = row.asDict(recursive=True)
        values["lengths"] = list(values["lengths"].items())
        expected = None if values.pop("gone") else protobuf_files.fill(kind(), values)
        assert found[row.n] == expected


def test_what_a_message_cannot_have_fails_before_the_first_task(typed, new_topic, write, tmp_path):
    file = tmp_path / "demo.desc"
    file.write_bytes(protobuf_files.descriptor_set([person_file()]))
    given = {"value.format": "protobuf", "value.protobuf.message": "demo.Row"}
    given["value.protobuf.descriptor.file"] = str(file)
    with pytest.raises(Exception, match=r"message demo\.Row has no field for 'gone'"):
        write(typed, new_topic(), **given)
    with pytest.raises(Exception, match=r"field 'nested' \(demo\.Nested\) cannot hold"):
        write(typed.select(f.col("n").alias("nested")), new_topic(), **given)


def test_a_row_that_a_message_cannot_have_is_a_dead_letter(
    typed, new_topic, write, kafka, tmp_path
):
    data = protobuf_files.descriptor_set([person_file()])
    file = tmp_path / "demo.desc"
    file.write_bytes(data)
    topic, letters = new_topic(), new_topic()
    given = {"value.format": "protobuf", "value.protobuf.message": "demo.Key"}
    given["value.protobuf.descriptor.file"] = str(file)
    given["errors.deadletterqueue.topic.name"] = letters
    rows = typed.select((f.col("n").cast("long") + 2**31 - 10).alias("n"))
    given |= {"errors.tolerance": "all", "errors.deadletterqueue.max.ratio": "1"}
    write(rows, topic, **given)
    kind = protobuf_files.message_class(data, "demo.Key")
    found = [kind.FromString(r.value).n for r in read_topic(kafka.bootstrap_servers, topic)]
    assert sorted(found) == [*range(2**31 - 10, 2**31)]
    told = read_topic(kafka.bootstrap_servers, letters)
    assert sorted(json.loads(letter.value)["n"] for letter in told) == [*range(2**31, 2**31 + 990)]


@pytest.mark.parametrize("is_ansi", ["true", "false"])
def test_keys_of_decimals_are_what_cast_makes_of_them_in_the_session(
    spark, new_topic, write, read_by_spark, is_ansi
):
    topic = new_topic()
    before = spark.conf.get("spark.sql.ansi.enabled")
    spark.conf.set("spark.sql.ansi.enabled", is_ansi)
    try:
        frame = spark.sql("select cast(n as decimal(12, 7)) d from values '1E-7', '0', '12.5' t(n)")
        write(frame, topic, **{"value.format": "json", "key.columns": "d"})
        found = read(read_by_spark(topic))
        assert found == expected(frame, "d", f.to_json(f.struct("d")))
    finally:
        spark.conf.set("spark.sql.ansi.enabled", before)


@pytest.mark.parametrize("option", [None, "true"])
def test_null_fields_are_as_to_json_has_them_in_the_session(
    spark, new_topic, write, read_by_spark, option
):
    topic = new_topic()
    setting = "spark.sql.jsonGenerator.ignoreNullFields"
    spark.conf.set(setting, "false")
    try:
        frame = spark.sql("select 'k' n, null x, named_struct('y', cast(null as int)) s")
        given = {} if option is None else {"ignoreNullFields": option}
        options = {f"value.json.{name}": value for name, value in given.items()}
        write(frame, topic, **{"value.format": "json", "key.columns": "n", **options})
        found = read(read_by_spark(topic))
        assert found == expected(frame, "n", f.to_json(f.struct("*"), given))
        assert ("null" in found["k"]) == (option is None)
    finally:
        spark.conf.unset(setting)


def test_types_that_only_the_jvm_has_in_arrow_are_written(spark, new_topic, write, read_by_spark):
    """CHAR, VARCHAR and months in others, beside columns of such types that are not written."""
    topic, fewer, raw = new_topic(), new_topic(), new_topic()
    setting = "spark.sql.preserveCharVarcharTypeInfo"
    spark.conf.set(setting, "true")
    try:
        frame = spark.sql(
            """select cast('k' as char(3)) c, cast('ab' as varchar(5)) v,
            array(interval '1-2' year to month, null) a, map('m', interval -3 month) m,
            named_struct('y', interval '7' year, 'x', cast(null as char(2))) s"""
        )
        assert frame.schema["c"].dataType.simpleString() == "char(3)"
        columns = {"value.format": "json", "key.columns": "c", "value.columns": "c,v,a,m,s"}
        write(frame, topic, **columns)
        assert read(read_by_spark(topic)) == expected(frame, "c", f.to_json(f.struct("*")))
        write(frame, fewer, **{**columns, "value.columns": "v,s.x"})
        assert read(read_by_spark(fewer)) == {"k  ": '{"v":"ab"}'}
        place = f"cast('{raw}' as varchar(99)) as topic"
        write(frame.selectExpr("c as key", "v as value", "a", place), None)
        assert read(read_by_spark(raw)) == {"k  ": "ab"}
    finally:
        spark.conf.set(setting, "false")


def test_arrays_of_nothing_are_written(spark, new_topic, write, read_by_spark):
    """Their elements have no type, and are never null."""
    topic = new_topic()
    frame = spark.sql("select 1 n, array() a, named_struct('x', array(array())) s")
    write(frame, topic, **{"value.format": "json", "key.columns": "n"})
    found = read(read_by_spark(topic))
    assert found == expected(frame, "n", f.to_json(f.struct("n", "a", "s")))
