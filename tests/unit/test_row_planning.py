"""Of which columns keys and values are made: options and Spark's schema → positions and plans, or a refusal."""

import json
import sys

import pytest
from pyspark.sql import types as t

from spark_kafka_sink.base.errors import ConfigError, SchemaError, sentence
from spark_kafka_sink.base.model import ColumnPositions
from spark_kafka_sink.config.sink_options import SinkOptions
from spark_kafka_sink.formats.plan import PartSpec
from spark_kafka_sink.spark import row_planning, versions
from tests.formats.protobuf_files import add_field, descriptor_set, one_message
from tests.tables import each_row
from tests.unit.registry.server import columns_of

NO_SCHEMA = (
    'value.{0}.schema={1}: it is no schema as JSON, which begins with {{, [ or ", and as a file it '
    "cannot be read on the driver: No such file"
)
OF_REGISTRY = {
    "value_format": "json",
    "value_schema_id_prefix": "true",
    "schema_registry_url": "http://r",
}


HOME = columns_of(False, city=t.StringType(), zip=t.IntegerType())
PEOPLE = columns_of(id=t.LongType(), name=t.StringType(), home=HOME, gone=t.BooleanType())


def options(**more):
    """None leaves an option out."""
    named = {name.replace("_", "."): value for name, value in {"topic": "t", **more}.items()}
    given = {name: value for name, value in named.items() if value is not None}
    return SinkOptions.parse({"kafka.bootstrap.servers": "b:1", **given})


def planned(schema, **more):
    return row_planning.plan_rows(schema, options(**more))


def refusal(schema, **more):
    with pytest.raises((SchemaError, ConfigError)) as refused:
        planned(schema, **more)
    return str(refused.value)


def paths(part):
    return [field.path for field in part.plan.fields]


def with_fields(*more):
    return t.StructType([*PEOPLE.fields, *(t.StructField(name, kind) for name, kind in more)])


def test_what_is_raw_or_a_text_already_is_not_encoded():
    schema = columns_of(key=t.StringType(), value=t.BinaryType())
    assert planned(schema) == row_planning.InputLayout(row_planning.find_columns(schema, "t"))
    found = planned(PEOPLE, value_format="string", value_column="name", key_columns="name")
    assert found == row_planning.InputLayout(ColumnPositions(value=1, key=1, topic_option="t"))
    plan = planned(PEOPLE, value_format="string", value_column="id").plan
    assert plan.value == PartSpec(0, is_text=True)


def test_raw_columns_under_other_names_are_appended_as_they_are():
    more = {"when": t.TimestampType(), "timestamp": t.LongType()}
    schema = columns_of(body=t.BinaryType(), id=t.StringType(), **more)
    found = planned(schema, value_column="body", key_column="id", timestamp_column="when")
    assert found.plan is None
    assert found.positions == ColumnPositions(value=0, key=1, timestamp=2, topic_option="t")
    found = planned(
        schema, value_columns="body", key_columns="id", key_format="raw", timestamp_column=""
    )
    assert found == row_planning.InputLayout(ColumnPositions(value=0, key=1, topic_option="t"))


def test_a_value_of_a_format_has_all_columns_but_those_of_other_parts():
    schema = with_fields(
        ("key", t.StringType()), ("topic", t.StringType()), ("timestamp", t.TimestampType())
    )
    rows = planned(schema, value_format="json")
    assert paths(rows.plan.value) == [("id",), ("name",), ("home",), ("gone",), ("timestamp",)]
    assert rows.plan.key == PartSpec(4)
    assert rows.plan.kept == (("topic", 5),)
    assert rows.positions == ColumnPositions(value=0, key=1, topic=2, topic_option="t")
    rows = planned(schema, value_format="json", timestamp_column="timestamp")
    assert paths(rows.plan.value)[-1] == ("gone",)
    assert rows.plan.kept == (("topic", 5), ("timestamp", 6))


def test_columns_of_the_key_stay_in_the_value_and_that_of_tombstones_does_not():
    plan = planned(PEOPLE, value_format="json", key_columns="id", value_null_when="gone").plan
    assert paths(plan.value) == [("id",), ("name",), ("home",)]
    assert plan.value.plan.null_when == "gone"
    assert plan.key == PartSpec(0, is_text=True)
    more = {"key_format": "json", "key_columns": "id", "value_null_when": "gone"}
    plan = planned(PEOPLE, value_format="json", **more).plan
    assert (plan.value.plan.null_when, plan.key.plan.null_when) == ("gone", None)


def test_chosen_columns_keep_their_order():
    found = planned(PEOPLE, value_format="avro", value_columns="home.zip, id,home.city")
    assert paths(found.plan.value) == [("home", "zip"), ("id",), ("home", "city")]
    text = found.plan.value.plan.avro_schema
    assert text is not None
    kinds = [(field["name"], field["type"]) for field in json.loads(text)["fields"]]
    assert kinds == [
        ("zip", ["int", "null"]),
        ("id", ["long", "null"]),
        ("city", ["string", "null"]),
    ]


def of_all_depths(nullable):
    inner = columns_of(nullable, x=t.DecimalType(10, 2))
    list_of_lists = t.ArrayType(t.ArrayType(inner, nullable), nullable)
    map_of = {"map": t.MapType(t.StringType(), inner, nullable), "none": t.NullType()}
    return columns_of(nullable, home=inner, list=list_of_lists, **map_of)


AVRO_OF_REGISTRY = {"value_format": "avro", "schema_registry_url": "http://r"}


@pytest.mark.parametrize(
    "more",
    [
        {"value_format": "avro", "key_format": "avro", "key_columns": "home.x,list"},
        {**AVRO_OF_REGISTRY, "key_format": "avro", "key_columns": "home.x,list"},
        OF_REGISTRY,
        {**OF_REGISTRY, "value_json_ignoreNullFields": "false"},
    ],
)
def test_derived_schemas_are_the_same_whatever_spark_knows_of_nulls(more):
    """Spark finds that out anew for each write and micro-batch."""
    never, always = (planned(of_all_depths(is_null), **more).plan for is_null in (False, True))
    for one, other in ((never.value, always.value), (never.key, always.key)):
        if one is not None:
            assert one.plan.avro_schema == other.plan.avro_schema
            assert one.plan.json_schema == other.plan.json_schema


def test_with_a_registry_fields_are_optional_and_decimals_are_bytes():
    """As Kafka Connect derives them; without one as to_avro: tests/formats."""
    text = planned(of_all_depths(False), **AVRO_OF_REGISTRY).plan.value.plan.avro_schema
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}

    def home(name, namespace):
        fields = [{"name": "x", "type": ["null", decimal], "default": None}]
        return {"type": "record", "name": name, "namespace": namespace, "fields": fields}

    inner = {"type": "array", "items": ["null", home("list", "topLevelRecord")]}
    kinds = {
        "home": ["null", home("home", "topLevelRecord")],
        "list": ["null", {"type": "array", "items": ["null", inner]}],
        "map": ["null", {"type": "map", "values": ["null", home("map", "topLevelRecord")]}],
        "none": "null",
    }
    assert json.loads(text)["fields"] == [
        {"name": name, "type": kind, "default": None} for name, kind in kinds.items()
    ]


def test_a_column_whose_name_has_dots_comes_before_a_field():
    schema = with_fields(("home.city", t.LongType()))
    plan = planned(schema, value_format="json", value_columns="home.city").plan
    assert paths(plan.value) == [("home.city",)]


@pytest.mark.parametrize("more", [{"value_column": "home"}, {}])
def test_a_struct_may_be_the_value(more):
    schema = PEOPLE if more else columns_of(value=HOME)
    plan = planned(schema, value_format="json", **more).plan
    name = "home" if more else "value"
    assert paths(plan.value) == [(name, "city"), (name, "zip")]
    assert plan.value.column == (2 if more else 0)


def test_a_key_of_columns_and_one_that_is_a_struct():
    plan = planned(PEOPLE, value_format="json", key_format="json", key_columns="id,home.zip").plan
    assert paths(plan.key) == [("id",), ("home", "zip")]
    plan = planned(PEOPLE, value_format="json", key_format="json", key_column="home").plan
    assert paths(plan.key) == [("home", "city"), ("home", "zip")]
    assert paths(plan.value) == [("id",), ("name",), ("gone",)]


def test_an_empty_name_makes_a_column_one_like_others():
    schema = with_fields(("partition", t.StringType()), ("key", t.LongType()))
    plan = planned(schema, value_format="json", partition_column="", key_column="").plan
    assert paths(plan.value)[-2:] == [("partition",), ("key",)]
    assert plan.key is None


# Columns beside those of PEOPLE, options, what the refusal says.
REFUSALS = [
    ((), {"value_columns": "id"}, "unsupported type bigint. value must be a(n) string or binary. value.format=string"),
    ((), {"value_format": "json", "value_columns": "nmae"}, "no column 'nmae'. Did you mean 'name'?"),
    ((), {"value_format": "json", "value_columns": "ID"}, "no column 'ID'. Did you mean 'id'? Names are exact"),
    ((), {"value_format": "json", "value_columns": "qqq"}, "no column 'qqq'. There are: id, name, home, gone"),
    ((), {"value_format": "json", "value_columns": "home.ctiy"}, "'home' has no field 'ctiy'. Did you mean 'city'?"),
    ((), {"value_format": "json", "value_columns": "home.qqq"}, "'home' has no field 'qqq'. There are: city, zip"),
    ((), {"value_format": "json", "value_columns": "id.x"}, "'id' has no field 'x', being of type bigint"),
    ((), {"value_format": "json", "value_columns": "name,name"}, "names a column twice"),
    ((), {"value_format": "json", "value_column": "name"}, "must be a struct"),
    ((), {"value_format": "json", "value_column": "home", "value_columns": "id"}, "leave one of them out"),
    ((), {"value_format": "json", "key_columns": "home"}, "whose text cannot be a key: cast it"),
    ((), {"value_format": "json", "key_columns": "id,name"}, "no key without key.format: set key.format"),
    ((), {"value_format": "json", "key_columns": "id,name", "key_format": "raw"}, "with key.format=raw"),
    ((), {"value_format": "json", "key_format": "json"}, "key.format=json needs columns"),
    ((), {"value_format": "json", "key_columns": "home.zip"}, "a field of a struct cannot be it alone"),
    ((), {"value_format": "json", "value_null_when": "id"}, "must be boolean"),
    ((), {"value_format": "json", "topic_column": "where"}, "topic.column=where: the DataFrame has no column"),
    ((("ID", t.LongType()), ("Id", t.LongType())), {"value_format": "json", "value_columns": "iD"}, "Did you mean 'id' or 'ID' or 'Id'? Names are exact"),
    ((), {"value_format": "string"}, "makes a value of one column, and 4 are left"),
    ((), {"value_format": "json", "topic": None}, "topic option required"),
    ((), {"value_format": "json", "headers_column": "name"}, "headers.column=name: headers attribute unsupported"),
    ((), {"value_format": "xml"}, "must be one of raw, string, json, avro, protobuf"),
    ((), {"value_column": "name", "key_format": "string"}, "key.format=string needs columns"),
    ((), {"value_columns": "id,name"}, "set value.format to json, avro or protobuf"),
    ((), {"value_format": "protobuf"}, "value.format=protobuf needs value.protobuf.descriptor.file and value.protobuf.message; or schema.registry.url with use.latest.version=true or use.schema.id"),
    ((), {"value_format": "protobuf", "schema_registry_url": "http://r"}, "No message is derived from columns"),
    ((), {"value_format": "protobuf", "use_schema_id": "7", "value_schema_id_prefix": "true"}, "needs value.protobuf.descriptor.file"),
    ((), {"value_format": "json", "key_columns": "id", "key_format": "protobuf"}, "with use.latest.version=true or key.use.schema.id"),
    ((), {"value_format": "protobuf", "value_protobuf_descriptor_file": "/nowhere"}, "needs value.protobuf.message, the full name"),
    ((), {"value_format": "protobuf", "value_protobuf_descriptor_file": "/nowhere", "value_protobuf_message": "M"}, "value.protobuf.descriptor.file=/nowhere: it cannot be read on the driver"),
    ((), {"value_format": "avro", "value_avro_schema": "/nowhere"}, NO_SCHEMA.format("avro", "/nowhere")),
    ((), {"value_format": "avro", "value_avro_schema": "string"}, NO_SCHEMA.format("avro", "string")),
    ((), {"value_format": "avro", "value_avro_schema": "x" * 5000}, f"value.avro.schema={'x' * 100}…: it is no schema as JSON"),
    ((), {**OF_REGISTRY, "value_json_schema": "true"}, NO_SCHEMA.format("json", "true")),
    ((), {**OF_REGISTRY, "value_json_schema": '"a"'}, "a JSON Schema of rows must be a JSON object"),
    ((), {**OF_REGISTRY, "value_json_schema": "{"}, "value.json.schema={: the schema is no JSON"),
    ([("partition", t.StringType())], {"value_format": "json"}, "set partition.column to an empty text"),
    ([("timestamp", t.StringType())], {"value_format": "json", "timestamp_column": "timestamp"}, "timestamp.column=timestamp: timestamp attribute unsupported type string"),
    ([("work", HOME)], {"value_format": "json", "value_columns": "home.zip,work.zip"}, "columns gives more than one field the name 'zip'"),
    ([("name", t.StringType())], {"value_format": "json"}, "the DataFrame gives more than one field the name 'name'"),
    ([("x", t.DoubleType())], {"value_format": "json", "key_columns": "x"}, "cast it in the DataFrame"),
    ([("x", t.ArrayType(t.StringType()))], {"value_format": "json", "key_columns": "x"}, "cast it in the DataFrame"),
    ((), {"value_format": "avro", "avro_record_name": "my-rec"}, "avro.record.name=my-rec: a name in Avro has letters"),
    ((), {"value_format": "avro", "avro_record_name": "com.acme.Flight"}, "put what is before the last dot into avro.namespace, as avro.namespace=com.acme and avro.record.name=Flight"),
    ((), {"value_format": "avro", "avro_namespace": "com-acme"}, "avro.namespace=com-acme: a name in Avro has letters"),
    ((), {"value_format": "avro", "value_avro_schema": "{"}, "value.avro.schema={: the schema is no JSON"),
]  # fmt: skip


@each_row(("columns", "more", "words"), REFUSALS)
def test_what_is_refused(columns, more, words):
    found = refusal(with_fields(*columns), **more)
    assert words in found
    assert "withColumnRenamed" not in found


@pytest.mark.parametrize(
    ("given", "option", "text"),
    [
        ({"value_format": "avro"}, "avro_schema", '{"type": "record", "name": "R", "fields": []}'),
        ({"value_format": "avro"}, "avro_schema", '["null"]'),
        ({"value_format": "avro"}, "avro_schema", '"int"'),
        (OF_REGISTRY, "json_schema", '{"title": "Flight"}'),
    ],
)
def test_a_schema_is_text_or_the_path_of_a_file(tmp_path, given, option, text):
    file = tmp_path / "x"
    file.write_text(text)
    for value in (f"  {text}", text, str(file), f" {file} "):
        plan = planned(PEOPLE, **given, **{f"value_{option}": value}).plan
        assert getattr(plan.value.plan, option).strip() == text
    for content in (b"{", b"\xff"):
        file.write_bytes(content)
        words = refusal(PEOPLE, **given, **{f"value_{option}": str(file)})
        assert words.startswith(f"value.{option.replace('_', '.')}={file}: ")


@pytest.mark.parametrize("kind", [t.StringType(), t.BinaryType()])
@pytest.mark.parametrize("chosen", ["json", "avro"])
def test_a_value_that_was_made_already_is_not_made_into_another(kind, chosen):
    schema = columns_of(key=t.StringType(), value=kind)
    words = refusal(schema, value_format=chosen)
    assert words.startswith(f"column 'value' is a value already: leave value.format={chosen} out")
    rows = planned(schema, value_format=chosen, value_columns="value")
    assert paths(rows.plan.value) == [("value",)]
    number = columns_of(value=t.LongType())
    assert planned(number, value_format=chosen).plan is not None


ODD_NAMES = ["a.b", "a,b", " a ", "a`b", "a", ","]


@pytest.mark.parametrize("name", ODD_NAMES)
def test_every_column_can_be_named_as_in_spark(name):
    """In backticks, and twice a backtick for one."""
    inner = columns_of(**{"x.y": t.LongType()})
    schema = columns_of(**dict.fromkeys(ODD_NAMES, inner), **{"gone,": t.BooleanType()})
    quoted = "`" + name.replace("`", "``") + "`"
    named = f" {quoted} , {quoted}.`x.y`"
    rows = planned(schema, value_format="json", value_columns=named, value_null_when="`gone,`")
    assert paths(rows.plan.value) == [(name,), (name, "x.y")]
    assert (rows.plan.null_when, rows.plan.value.plan.null_when) == (len(ODD_NAMES), "gone,")
    whole = planned(
        schema,
        value_format="json",
        value_column=quoted,
        key_columns=f"{quoted}.`x.y`",
        key_format="json",
    )
    assert whole.plan.value.column == ODD_NAMES.index(name)
    assert paths(whole.plan.key) == [(name, "x.y")]


@pytest.mark.parametrize("name", ["`a", "a`", "`a`b", "``", "`a`.", ".a", "a..b"])
def test_names_that_are_none_are_told_with_those_that_exist(name):
    schema = columns_of(**{"x, y": t.LongType()}, z=t.LongType())
    told = refusal(schema, value_format="json", value_columns=name)
    assert "the DataFrame has no column" in told
    assert "There are: `x, y`, z" in told


TOPIC = ("topic", t.StringType())
PARTITION = ("partition", t.IntegerType())
HEADERS_COLUMN = ("headers", t.ArrayType(columns_of(key=t.StringType(), value=t.BinaryType())))
NOWHERE = "column 'topic' is written nowhere, as option 'topic' is set: set topic.column"
NOT_IN_VALUE = "column 'partition' is the record's partition and is not in the value: set "
KEY_OF_ID = {"key_format": "json", "key_columns": "id"}


@each_row(
    ("columns", "more", "notes"),
    [
        ([("key", t.StringType()), TOPIC, PARTITION], {}, [NOWHERE, NOT_IN_VALUE]),
        ([TOPIC, PARTITION], {"partition_column": "partition", "topic_column": ""}, []),
        ([TOPIC, PARTITION], {"value_columns": "id"}, []),
        ([TOPIC, HEADERS_COLUMN], {"topic": None}, []),  # documented columns
        ([TOPIC, HEADERS_COLUMN], {}, [NOWHERE]),
        ([HEADERS_COLUMN, PARTITION], {}, [NOT_IN_VALUE]),
        ([("value", t.StringType()), PARTITION], {"value_format": None, **KEY_OF_ID}, []),
        ([], {"value_null_when": "gone"}, ["value.null.when without a key: "]),
        ([], {"value_null_when": "gone", "key_columns": "id"}, []),
    ],
)
def test_what_is_told_of_columns_that_are_no_part_of_the_value(columns, more, notes):
    found = planned(with_fields(*columns), **{"value_format": "json", **more})
    assert len(found.notes) == len(notes)
    assert all(told.startswith(note) for told, note in zip(found.notes, notes))


OF_KAFKA = {
    "key": t.BinaryType(),
    "value": t.BinaryType(),
    "topic": t.StringType(),
    "partition": t.IntegerType(),
    "offset": t.LongType(),
    "timestamp": t.TimestampType(),
    "timestampType": t.IntegerType(),
}
"""What Spark's own Kafka source reads."""
ALL = "the rows have all columns of Spark's Kafka source: each is written into the "
AT = "; timestamp.column=timestamp keeps the timestamps"


@pytest.mark.parametrize(
    ("more", "note"),
    [
        ({}, f"{ALL}topic and the partition that it was read from. For a copy elsewhere, set option topic and set partition.column to an empty text{AT}"),
        ({"topic": "t"}, f"{ALL}partition that it was read from. For a copy elsewhere, set partition.column to an empty text{AT}"),
        ({"partition.column": ""}, f"{ALL}topic that it was read from. For a copy elsewhere, set option topic{AT}"),
        ({"topic": "t", "timestamp.column": "timestamp"}, f"{ALL}partition that it was read from. For a copy elsewhere, set partition.column to an empty text"),
        ({"topic": "t", "partition.column": "partition"}, None),
        ({"topic.column": "topic", "partition.column": ""}, None),
    ],
)  # fmt: skip
def test_a_copy_into_its_own_input_is_told(more, note):
    told = planned(columns_of(**OF_KAFKA), **{"topic": None, **more}).notes
    assert told == (() if note is None else (note,))


@pytest.mark.parametrize("name", sorted(OF_KAFKA.keys() - {"value"}))
def test_rows_that_lack_a_column_of_the_source_are_no_copy(name):
    fewer = columns_of(**{other: kind for other, kind in OF_KAFKA.items() if other != name})
    assert planned(fewer).notes == ()


@pytest.mark.parametrize(
    ("given", "name", "is_told"),
    [
        ({"value_format": "avro", "value_json_dateformat": "yyyy"}, "value.json.dateformat", True),
        ({"value_format": "avro", "avro_namespace": "a"}, "avro.namespace", False),
        ({"value_format": "json", "avro_namespace": "a"}, "option 'avro.namespace' has no effect", True),
        ({"value_format": "json", "value_protobuf_message": "M"}, "option 'value.protobuf.message' has no effect", True),
    ],
)  # fmt: skip
def test_options_without_effect_are_told(given, name, is_told):
    assert any(name in note for note in options(**given).notes) == is_told


@each_row("part", ["value", "key"])
@each_row(
    ("name", "value", "words"),
    [
        ("timestampFormat", "YYYY-MM-dd", "the letter Y is not supported there"),
        ("timestampNTZFormat", "yyyy-MM-ddTHH", "write 'T' in quotes"),
        ("dateFormat", "yyyy'T", "the quote is not closed"),
        ("timeZone", "Europe/Berln", "is not known to Python here"),
        ("timeZone", "-99:99", "offsets are from -18:00 to +18:00"),
    ],
)
def test_what_is_wrong_with_times_of_json_names_the_option(part, name, value, words):
    given = {f"{part}_json_{name.lower()}": value, "key_format": "json", "key_columns": "id"}
    with pytest.raises(SchemaError) as refused:
        row_planning.check_encodable(planned(PEOPLE, value_format="json", **given))
    assert str(refused.value).startswith(f"{part}.json.{name}={value}: ")
    assert words in str(refused.value)
    assert "spark.sql.session" not in str(refused.value)


def test_texts_of_decimals_go_by_ansi_as_it_is_where_nobody_sets_it(monkeypatch):
    def is_ansi():
        plan = planned(PEOPLE, value_format="string", value_column="id").plan
        return plan.is_ansi

    monkeypatch.delenv("SPARK_ANSI_SQL_MODE", raising=False)
    assert is_ansi() == (versions.FOUND >= (4, 0))
    monkeypatch.setenv("SPARK_ANSI_SQL_MODE", "false")
    assert not is_ansi()
    monkeypatch.delenv("SPARK_ANSI_SQL_MODE")
    monkeypatch.setattr(versions, "FOUND", (3, 5))
    assert not is_ansi()


def test_arrays_of_nothing_are_planned():
    """The type of ``array()`` in Spark: without nulls, and of void, which pyarrow refuses."""
    void = t.ArrayType(t.NullType(), False)
    nested = columns_of(False, x=void, n=t.NullType())
    kind = t.MapType(t.StringType(), t.ArrayType(nested, False), False)
    schema = columns_of(False, a=void, m=kind, e=t.MapType(t.NullType(), t.NullType(), False))
    row_planning.check_encodable(planned(schema, value_format="json"))


@pytest.fixture
def descriptors(tmp_path):
    """With the message pkg.Root, a person, and pkg.Root.Id, which is in it."""
    file = one_message(id="int64", name="string", gone="bool", home="pkg.Home")
    home = file.message_type.add(name="Home")
    add_field(home, "city", "string")
    add_field(home, "zip", "int32")
    add_field(file.message_type[0].nested_type.add(name="Id"), "id", "int64")
    made = tmp_path / "made.desc"
    made.write_bytes(descriptor_set([file]))
    return made


def test_messages_are_those_of_a_file(descriptors):
    found = planned(
        PEOPLE,
        value_format="protobuf",
        value_protobuf_descriptor_file=str(descriptors),
        value_protobuf_message="pkg.Root",
        key_format="Protobuf",
        key_columns="id",
        key_protobuf_descriptor_file=str(descriptors),
        key_protobuf_message="pkg.Root.Id",
    )
    row_planning.check_encodable(found)
    assert found.plan.value.plan.protobuf_schema.root == "pkg.Root"
    assert found.plan.key.plan.protobuf_schema.indexes == (0, 0)


@pytest.mark.parametrize(
    ("message", "columns", "words"),
    [
        (None, "id", "made.desc: it is no descriptor set, which protoc --include_imports"),
        ("pkg.Other", "id", "made.desc: it has no message 'pkg.Other': there are pkg.Root, "),
        ("pkg.Home", "home.city,id", "message pkg.Home has no field for 'id'"),
        ("pkg.Root", "home.zip,name,id", "message pkg.Root has no field for 'home.zip'"),
    ],
)
def test_what_does_not_fit_a_message(descriptors, message, columns, words):
    if message is None:
        descriptors.write_text('syntax = "proto3"; message M {}')
    more = {
        "value_protobuf_descriptor_file": str(descriptors),
        "value_protobuf_message": message or "M",
    }
    with pytest.raises((SchemaError, ConfigError)) as refused:
        row_planning.check_encodable(
            planned(PEOPLE, value_format="protobuf", value_columns=columns, **more)
        )
    assert words in str(refused.value)


def test_without_protobufs_package_its_installation_is_told(descriptors, monkeypatch):
    monkeypatch.setitem(sys.modules, "google.protobuf.descriptor_pb2", None)
    more = {"value_protobuf_descriptor_file": str(descriptors), "value_protobuf_message": "M"}
    words = refusal(PEOPLE, value_format="protobuf", **more)
    assert "pip install 'pykafka-sink[protobuf]'" in words


def headers_of(key, value, names=("key", "value")):
    return t.ArrayType(columns_of(**dict(zip(names, (key, value)))))


HEADERS = headers_of(t.StringType(), t.BinaryType())
FULL = {
    "topic": t.StringType(),
    "key": t.BinaryType(),
    "value": t.StringType(),
    "headers": HEADERS,
    "partition": t.IntegerType(),
    "timestamp": t.TimestampType(),
}


def find_refusal(columns, topic_option="t"):
    with pytest.raises(SchemaError) as raised:
        row_planning.find_columns(columns, topic_option)
    return str(raised.value)


STRICT_HEADERS = t.ArrayType(
    columns_of(False, key=t.StringType(), value=t.BinaryType()), containsNull=False
)
OTHER = t.MapType(t.StringType(), t.LongType())


@pytest.mark.parametrize(
    ("columns", "topic", "expected"),
    [
        pytest.param(FULL, None, {"value": 2, "key": 1, "headers": 3, "topic": 0, "partition": 4}, id="all"),
        *(pytest.param({**FULL, "timestamp": kind}, None, {"value": 2, "key": 1, "headers": 3, "topic": 0, "partition": 4}, id=f"timestamp {kind}") for kind in (t.TimestampNTZType(), t.LongType(), t.StringType(), OTHER)),
        pytest.param({"value": t.StringType()}, "t", {"value": 0}, id="value alone"),
        pytest.param({"x": OTHER, "value": t.BinaryType(), "y": t.LongType(), "key": t.StringType()}, "t", {"value": 1, "key": 3}, id="any order"),
        pytest.param({"value": t.StringType(), "Key": t.LongType()}, "t", {"value": 0}, id="names are case-sensitive"),
        pytest.param({"value": t.StringType(), "headers": STRICT_HEADERS}, "t", {"value": 0, "headers": 1}, id="nullability of headers"),
        # What does no harm.
        *(pytest.param({"other": other, "value": t.StringType()}, "t", {"value": 1}, id=str(other)) for other in (t.DayTimeIntervalType(), t.VariantType(), t.DecimalType(38, 18), t.ArrayType(t.YearMonthIntervalType()))),
    ],
)  # fmt: skip
def test_columns_are_found_by_their_names(columns, topic, expected):
    found = row_planning.find_columns(columns_of(**columns), topic)
    assert found == ColumnPositions(**expected, topic_option=topic)


def test_the_topic_option_overrides_a_topic_column_of_any_type():
    columns = columns_of(value=t.StringType(), topic=t.LongType())
    assert row_planning.find_columns(columns, "t").topic_option == "t"
    assert find_refusal(columns, None).startswith("topic attribute unsupported type bigint")


NO_TOPIC = "topic option required when no 'topic' attribute is present. "


@each_row(
    ("columns", "message"),
    [
        ({"value": t.StringType()}, NO_TOPIC + "Use the topic option for setting a topic."),
        ({"topic": t.StringType()}, "Required attribute 'value' not found"),
        ({"topic": t.StringType(), "Value": t.StringType()}, "Required attribute 'value' not found. "),
        ({}, NO_TOPIC),
        ({**FULL, "key": t.IntegerType()}, "key attribute unsupported type int. key must be a(n) string or binary"),
        ({**FULL, "value": t.DecimalType(2, 1)}, "value attribute unsupported type decimal(2,1). value must be a(n) string or binary"),
        ({**FULL, "topic": t.BinaryType()}, "topic attribute unsupported type binary. topic must be a(n) string"),
        ({**FULL, "partition": t.LongType()}, "partition attribute unsupported type bigint. partition must be a(n) int"),
        ({**FULL, "partition": t.ShortType()}, "partition attribute unsupported type smallint. partition must be a(n) int"),
        *(
            ({**FULL, "headers": kind}, f"headers attribute unsupported type {kind.simpleString()}. headers must be a(n) array<struct<key:string,value:binary>>")
            for kind in (
                *(t.StringType(), t.ArrayType(t.StringType()), t.MapType(t.StringType(), t.BinaryType())),
                headers_of(t.BinaryType(), t.BinaryType()),
                headers_of(t.StringType(), t.StringType()),
                headers_of(t.StringType(), t.BinaryType(), ("name", "value")),
                headers_of(t.BinaryType(), t.StringType(), ("value", "key")),
                t.ArrayType(columns_of(key=t.StringType())),
            )
        ),
    ],
)  # fmt: skip
def test_columns_that_are_missing_or_of_another_type(columns, message):
    assert find_refusal(columns_of(**columns), None).startswith(message)


def test_two_columns_of_one_name_are_refused():
    """Spark makes no Arrow batch of them; a wrong type is told first, as by the JVM sink."""
    twice = t.StructType(
        [t.StructField("value", t.StringType()), t.StructField("value", t.LongType())]
    )
    assert find_refusal(twice).startswith("column 'value' is there 2 times: ")
    wrong = t.StructType(
        [t.StructField("value", t.LongType()), t.StructField("value", t.StringType())]
    )
    assert find_refusal(wrong).startswith("value attribute unsupported type bigint")


# --- what Spark cannot hand over ------------------------------------------------------------------


class Months(t.UserDefinedType):
    @classmethod
    def sqlType(cls):  # noqa: N802
        return t.YearMonthIntervalType()


@pytest.mark.parametrize(
    ("other", "problem"),
    [
        (t.YearMonthIntervalType(), "has the type interval year to month"),
        (t.CalendarIntervalType(), "has the type interval"),
        (t.ArrayType(t.CalendarIntervalType()), "has the type interval"),
        (t.MapType(t.StringType(), t.CalendarIntervalType()), "has the type interval"),
        (Months(), "has the type interval year to month"),
        (t.ArrayType(t.StructType([t.StructField("a", t.LongType()), t.StructField("a", t.LongType())])), "has the field 'a' more than once"),
    ],
    ids=str,
)  # fmt: skip
def test_a_column_that_is_not_written_and_cannot_be_handed_over(other, problem):
    """In a stream, Spark looks at none of these itself."""
    told = find_refusal(columns_of(other=other, value=t.StringType()))
    assert sentence(told) == (
        f"column 'other' {problem}: Spark cannot hand that to a Python sink, which gets all "
        "columns, also those that are not written. Select only the columns of a record, each "
        'once: .select("value")'
    )


def test_a_column_of_the_record_that_cannot_be_handed_over_is_not_advised():
    columns = columns_of(value=t.StringType(), months=t.YearMonthIntervalType())
    with pytest.raises(
        SchemaError, match=r"Cast it in the DataFrame, or drop it \[PKS-COLUMN-004\]$"
    ):
        row_planning.check_handed_over(columns, ["value", "months"])
    twice = t.StructType(
        [t.StructField("value", t.StringType()), t.StructField("value", t.StringType())]
    )
    assert sentence(find_refusal(twice)).endswith("Rename one of them in the DataFrame, or drop it")
