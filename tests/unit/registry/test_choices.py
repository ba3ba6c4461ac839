"""Which schema of a registry is taken, under which subject, and whether the columns fit it."""

import json
import logging
import sys
from contextlib import nullcontext
from types import ModuleType

import pytest
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType

from spark_kafka_sink.base.errors import ConfigError, KafkaSinkError, SchemaError, sentence
from spark_kafka_sink.base.text import MOST_SHOWN
from spark_kafka_sink.config.sink_options import SinkOptions
from spark_kafka_sink.formats.json_schema import check_json_fits, title_of
from spark_kafka_sink.formats.plan import FormatError, ProtobufFile
from spark_kafka_sink.registry.schemas import find
from spark_kafka_sink.spark import preflight
from spark_kafka_sink.spark.planning import plan_schemas
from spark_kafka_sink.spark.row_planning import plan_rows
from tests.formats.protobuf_files import add_field, add_map, descriptor_set, file_of
from tests.tables import each_row
from tests.unit.registry.server import (
    OTHER,
    TEXT,
    columns_of,
    found,
    options,
    paths,
    planned_rows,
    refusal,
    request_of,
)

# --- subjects by a function ---------------------------------------------------------------------


@pytest.fixture
def subjects(monkeypatch):
    """What ``subjects:named`` was called with."""
    module = ModuleType("subjects")
    called = []

    def named(topic, is_key, record_name):
        called.append((topic, is_key, record_name))
        return f"acme.{record_name}.{'k' if is_key else 'v'}"

    def failing(topic, is_key, record_name):
        raise LookupError("no such team")

    module.named, module.failing = named, failing
    module.nothing, module.empty = lambda *_: None, lambda *_: ""
    monkeypatch.setitem(sys.modules, "subjects", module)
    return called


def test_a_function_names_the_subject(registry, subjects):
    found(registry.url, value_subject_name_strategy="subjects:named")
    assert [*registry.subjects] == ["acme.n.R.v"]
    found(registry.url, value_subject_name_strategy="subjects:named", topic="")
    assert subjects == [("t", False, "n.R"), (None, False, "n.R")]


@pytest.mark.parametrize(
    ("function", "words"),
    [
        ("subjects:failing", "strategy=subjects:failing failed: LookupError('no such team')"),
        ("subjects:nothing", "must return the name of a subject, not None"),
        ("subjects:empty", "must return the name of a subject, not ''"),
        ("subjects:missing", "'subjects:missing' cannot be loaded"),
    ],
)
def test_a_function_that_names_none(registry, subjects, function, words):
    assert words in refusal(registry.url, value_subject_name_strategy=function)
    assert registry.asked == []


# --- metadata and references --------------------------------------------------------------------


def test_the_latest_schema_with_metadata(registry):
    first = registry.add("t-value", {"schema": TEXT})
    registry.metadata[first] = {"owner": "a b", "stage": "1"}
    registry.add("t-value", {"schema": OTHER})
    given = {"use_latest_with_metadata": "owner=a b, stage=1"}
    assert found(registry.url, OTHER, **given)[:2] == (1, TEXT)
    assert paths(registry) == [
        "GET /subjects/t-value/metadata?key=owner&value=a+b&key=stage&value=1"
    ]
    words = refusal(registry.url, use_latest_with_metadata="owner=c")
    assert "has no schema of subject 't-value' with these metadata" in words


HOME = '{"type":"record","name":"Home","namespace":"n","fields":[{"name":"z","type":"int"}]}'
WITH_HOME = '{"type":"record","name":"R","fields":[{"name":"h","type":"n.Home"}]}'
OF_HOME = {"name": "n.Home", "subject": "home"}


def built_on_home(**version):
    references = json.dumps([{**OF_HOME, **version}])
    return {"value_avro_schema": WITH_HOME, "value_schema_references": references}


@pytest.mark.parametrize("version", [{}, {"version": 1}])
def test_references_are_registered_with_the_schema(registry, version):
    registry.add("home", {"schema": HOME})
    schema = found(registry.url, WITH_HOME, **built_on_home(**version))
    asked = next(a for a in registry.asked if a.method == "POST")
    assert asked.body == {"schema": WITH_HOME, "references": [{**OF_HOME, "version": 1}]}
    assert json.loads(schema.text)["fields"][0]["type"] == json.loads(HOME)


@pytest.mark.parametrize(
    ("version", "words"), [({}, "no version at all"), ({"version": 2}, "no version 2")]
)
def test_a_reference_to_what_is_not_there(registry, version, words):
    if version:
        registry.add("home", {"schema": HOME})
    told = refusal(registry.url, WITH_HOME, **built_on_home(**version))
    assert f"has {words} of subject 'home', which the schema builds on as 'n.Home'" in told


# --- keys and values with one subject -----------------------------------------------------------


def plan_both(url, **more):
    """Of columns, key and value in the same format."""
    columns = columns_of(id=LongType(), b=StringType())
    given = {"value_format": "avro", "key_format": "avro", "key_columns": "id", **more}
    if given["value_format"] == "json":
        given |= {"value_schema_id_prefix": "true", "key_schema_id_prefix": "true"}
    made = options(url, **given)
    plan_schemas(plan_rows(columns, made), made)


def strategies(value, key):
    return {"value_subject_name_strategy": value, "key_subject_name_strategy": key}


NAMED = {"avro_record_name": "topLevelRecord"}


@pytest.mark.parametrize(
    ("chosen", "kind", "words"),
    [
        ("RecordNameStrategy", "avro", "set key.subject.name.strategy=TopicNameStrategy, or key.avro.schema, with"),
        ("TopicRecordNameStrategy", "avro", "both have the subject 't-topLevelRecord'"),
        ("TopicRecordNameStrategy", "json", "or key.json.schema, with another title"),
    ],
)  # fmt: skip
def test_key_and_value_with_one_subject_are_refused_before_anything_is_registered(
    registry, chosen, kind, words
):
    given = {"value_format": kind, "key_format": kind, **strategies(chosen, chosen), **NAMED}
    with pytest.raises(ConfigError) as refused:
        plan_both(registry.url, **given)
    assert words in str(refused.value)
    assert registry.asked == []


def test_key_and_value_with_subjects_of_their_own_and_of_one_schema_with_one(registry):
    same = {"value_columns": "id", **strategies("RecordNameStrategy", "RecordNameStrategy")}
    plan_both(registry.url, **same, **NAMED)
    assert [*registry.subjects] == ["topLevelRecord"]
    registry.subjects.clear()
    plan_both(registry.url, **strategies("RecordNameStrategy", "TopicNameStrategy"), **NAMED)
    assert [*registry.subjects] == ["topLevelRecord", "t-key"]


@pytest.mark.parametrize(
    ("kind", "needed"), [("avro", "avro.record.name"), ("json", "value.json.schema with a title")]
)
def test_a_derived_schema_whose_name_is_the_subject_needs_one(registry, kind, needed):
    """Else unrelated tables have one subject."""
    given = strategies("RecordNameStrategy", "TopicNameStrategy")
    with pytest.raises(ConfigError, match=f"derived from columns needs {needed}: "):
        plan_both(registry.url, value_format=kind, key_format=kind, **given)
    assert registry.asked == []
    plan_both(registry.url, **strategies("TopicRecordNameStrategy", "TopicNameStrategy"))


ID = columns_of(id=LongType())
BY_RECORD = {"value_subject_name_strategy": "RecordNameStrategy"}


@pytest.mark.parametrize(("kind", "text"), [("avro", TEXT), ("json", '{"title":"n.R"}')])
def test_a_given_schema_has_the_name_of_its_subject(registry, kind, text):
    columns = columns_of(False, a=IntegerType())
    given = {f"value_{kind}_schema": text, "value_schema_id_prefix": "true", **BY_RECORD}
    planned_rows(registry, columns, value_format=kind, **given)
    assert [*registry.subjects] == ["n.R"]


def test_the_subject_of_a_records_name_has_the_latest_schema_and_an_id_needs_no_subject(registry):
    registry.add("topLevelRecord", {"schema": ONLY_ID})
    given = {"use_latest_version": "true", **BY_RECORD}
    for chosen in ({**given, **NAMED}, {"use_schema_id": "1", **BY_RECORD}):
        assert planned_rows(registry, ID, **chosen).plan.value.plan.prefix == b"\0\0\0\0\1"
    as_json = {"value_format": "json", "value_schema_id_prefix": "true", **given}
    with pytest.raises(ConfigError, match="derived from columns needs use.schema.id: "):
        planned_rows(registry, ID, **as_json)


def test_a_given_schema_is_written_with_what_it_builds_on(registry):
    registry.add("home", {"schema": HOME})
    home = columns_of(False, z=IntegerType())
    columns = columns_of(False, h=home)
    given = {**built_on_home(), "latest_compatibility_strict": "false"}
    assert '"z"' in planned_rows(registry, columns, **given).plan.value.plan.avro_schema
    columns = columns_of(h=home, extra=StringType())
    # No option about the registry's latest schema would help.
    with pytest.raises(SchemaError, match=r"^the Avro schema has no field for \['extra'\]"):
        planned_rows(registry, columns, **built_on_home())


def test_what_is_encoded_already_is_written_as_it_is(registry):
    plan = planned_rows(registry, columns_of(id=LongType(), key=StringType())).plan
    assert [*registry.subjects] == ["t-value"]
    assert (plan.key.plan, plan.key.prefix) == (None, b"")
    registry.add("t-value", {"schema": ONLY_ID})
    raw = {"value_format": "raw", "value_schema_id_prefix": "true", "use_schema_id": "1"}
    columns = columns_of(partition=IntegerType(), value=BinaryType())
    plan = planned_rows(registry, columns, **raw).plan
    assert (plan.key, plan.kept) == (None, (("partition", 0),))


# --- columns that a registry's schema does not have ---------------------------------------------

ONLY_ID = '{"type":"record","name":"R","fields":[{"name":"ID","type":"long"}]}'
LATEST_AS_PREFIX = {"value_schema_id_prefix": "true", "use_latest_version": "true"}


@pytest.mark.parametrize(
    ("given", "option"),
    [
        ({"use_latest_version": "true"}, "latest.compatibility.strict"),
        ({"use_schema_id": "1"}, "id.compatibility.strict"),
    ],
)
def test_columns_that_the_registrys_schema_does_not_have(registry, given, option):
    registry.add("t-value", {"schema": ONLY_ID})
    columns = columns_of(id=LongType(), extra=StringType())
    with pytest.raises(SchemaError) as refused:
        planned_rows(registry, columns, **given)
    assert "the registry's schema 1" in str(refused.value)
    assert "None" not in str(refused.value), "of an id no version is known"
    assert "has no field for ['extra']" in str(refused.value)
    assert f"set {option}=false to leave them out, or value.columns to" in str(refused.value)
    plan = planned_rows(registry, columns, **given, **{option.replace(".", "_"): "false"}).plan
    assert [field.name for field in plan.value.plan.fields] == ["id"]


def test_a_schema_of_the_registry_that_is_no_record_is_told(registry):
    registry.add("t-value", {"schema": '{"type":"array","items":"long"}'})
    with pytest.raises(SchemaError, match=r"of this field \(array\) cannot hold"):
        planned_rows(registry, ID, use_latest_version="true")


UNION = [
    "null",
    {"type": "record", "name": "n.A", "fields": [{"name": "id", "type": "long"}]},
    {"type": "record", "name": "n.B", "fields": [{"name": "ID", "type": "long"}]},
]
ID_AND_MORE = columns_of(id=LongType(), more=LongType())


def test_columns_that_no_branch_of_a_union_has_are_left_out_if_that_is_asked_for(registry):
    registry.add("t-value", {"schema": json.dumps(UNION)})
    given = {"use_latest_version": "true", "avro_record_name": "B", "avro_namespace": "n"}
    with pytest.raises(SchemaError, match=r"has no field for \['more'\]"):
        planned_rows(registry, ID_AND_MORE, **given)
    given["latest_compatibility_strict"] = "false"
    plan = planned_rows(registry, ID_AND_MORE, **given).plan.value.plan
    assert ([field.name for field in plan.fields], plan.avro_record) == (["id"], "n.B")
    del given["avro_record_name"]
    with pytest.raises(SchemaError, match=r"several branches .* n\.A, n\.B"):
        planned_rows(registry, ID_AND_MORE, **given)


@pytest.mark.parametrize(
    "text",
    [
        "no JSON",
        '{"type":"array","items":' * 3000 + '"int"' + "}" * 3000,
        '{"type":"record","name":"R","fields":[{"name":"id","type":{"type":"fixed","name":"F","size":9223372036854775808}}]}',
        '{"type":"record","name":"R","fields":[{"name":"id","type":["long","long"]}]}',
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind", ["avro", "json"])
def test_a_registrys_schema_that_is_none_is_told_in_words(registry, text, kind):
    """For JSON the last two are schemas, of which nothing is known."""
    schema = {"schema": text} if kind == "avro" else {"schema": text, "schemaType": "JSON"}
    registry.add("t-value", schema)
    is_schema = kind == "json" and '"record"' in text
    with nullcontext() if is_schema else pytest.raises(KafkaSinkError):
        planned_rows(registry, ID, value_format=kind, **LATEST_AS_PREFIX)


@pytest.mark.parametrize(
    ("kind", "given"),
    [("AVRO", "json"), ("JSON", "avro"), ("PROTOBUF", "avro"), ("PROTOBUF", "json")],
)
def test_a_schema_of_another_kind_is_refused_whatever_is_in_it(registry, kind, given):
    text = "message A {}" if kind == "PROTOBUF" else ONLY_ID
    registry.add("t-value", {"schema": text, "schemaType": kind})
    words = f"value.format={given}: .* schema 1 is of the kind {kind}"
    with pytest.raises(SchemaError, match=words):
        planned_rows(registry, ID, value_format=given, **LATEST_AS_PREFIX)


FORGED = "\x1b[2J\r\n26/11/24 ERROR forged\u202e\ud800" + "z" * 2_000


def with_field(**more):
    fields = [{"name": "id", "type": "long"}, {"name": "a", **more}]
    return {"schema": json.dumps({"type": "record", "name": "R", "fields": fields})}


@pytest.mark.parametrize(
    "schema",
    [
        with_field(type=FORGED),
        with_field(type="int", default=FORGED),
        with_field(type={"type": "record", "name": FORGED, "fields": []}),
        {"schema": '"R"', "references": [{"name": FORGED, "subject": "wrong", "version": 1}]},
        {"schema": ONLY_ID, "schemaType": FORGED},
        {"schema": json.dumps({"required": [FORGED]}), "schemaType": "JSON"},
        {"schema": json.dumps({"properties": FORGED}), "schemaType": "JSON"},
    ],
    ids=["type", "default", "name", "reference", "kind", "required", "keyword"],
)
def test_texts_of_a_registrys_schema_neither_forge_nor_flood_errors(registry, schema):
    registry.add("wrong", {"schema": "{"})
    registry.add("t-value", schema)
    is_json = schema.get("schemaType") == "JSON"
    with pytest.raises(KafkaSinkError) as refused:
        planned_rows(registry, ID, value_format="json" if is_json else "avro", **LATEST_AS_PREFIX)
    words = str(refused.value)
    assert words.isprintable()
    assert len(sentence(words)) < MOST_SHOWN + 10
    assert words.endswith(f" [PKS-{refused.value.code}]")
    assert refused.value.__cause__ is None


# --- the same for Protobuf ----------------------------------------------------------------------


def protobuf(url, text=None, **more):
    """text, record, files: of what is requested; all else: options"""
    own = {name: more.pop(name) for name in ("record", "files") if name in more}
    given = options(
        url,
        value_format="protobuf",
        **{k: v for k, v in (DESCRIPTOR | more).items() if v is not None},
    )
    return find(*request_of(given, text, kind="PROTOBUF", **own))


DESCRIPTOR = {"value_protobuf_descriptor_file": "/d", "value_protobuf_message": "air.Flight"}
FILES = (
    ProtobufFile("air/rank.proto", "CCCC"),
    ProtobufFile("air/crew.proto", "BBBB", ("air/rank.proto",)),
    ProtobufFile("air/flight.proto", "AAAA", ("air/crew.proto",)),
)


def test_a_function_names_the_subject_of_a_message(registry, subjects):
    """But not those of files that are imported, which have their own names."""
    given = {"value_subject_name_strategy": "subjects:named", "topic": ""}
    protobuf(registry.url, text="AAAA", record="air.Flight", files=FILES, **given)
    assert [*registry.subjects] == ["air/rank.proto", "air/crew.proto", "acme.air.Flight.v"]
    assert subjects == [(None, False, "air.Flight")]


def test_the_latest_message_with_metadata_is_a_descriptor(registry):
    """Which no file has to be given for."""
    first = registry.add("t-value", {"schema": "text", "schemaType": "PROTOBUF"})
    registry.metadata[first] = {"owner": "a"}
    registry.add("t-value", {"schema": "other", "schemaType": "PROTOBUF"})
    registry.serialized = {"text": "AAAA"}
    no_file = {"value_protobuf_descriptor_file": None, "value_protobuf_message": None}
    schema = protobuf(registry.url, use_latest_with_metadata="owner=a", **no_file)
    assert (schema.id, schema.text) == (1, "AAAA")
    assert paths(registry) == ["GET /subjects/t-value/metadata?key=owner&value=a&format=serialized"]


def test_an_imported_file_that_is_registered_under_another_name(registry):
    registry.add("crew", {"schema": "BBBB", "schemaType": "PROTOBUF"})
    given = [{"name": "air/crew.proto", "subject": "crew"}]
    references = {"value_schema_references": json.dumps(given)}
    schema = protobuf(registry.url, text="AAAA", files=FILES, **references)
    assert schema.references == (("air/crew.proto", "crew", 1),)
    assert [*registry.subjects] == ["crew", "t-value"]
    assert registry.schemas[-1]["references"] == [{**given[0], "version": 1}]


def test_references_must_be_to_files_that_are_imported(registry):
    references = json.dumps([{"name": "crew.proto", "subject": "crew"}])
    with pytest.raises(ConfigError) as refused:
        protobuf(registry.url, text="AAAA", files=FILES, value_schema_references=references)
    assert "has 'crew.proto', which the message's file does not import" in str(refused.value)
    assert "['air/crew.proto', 'air/rank.proto']" in str(refused.value)
    assert registry.asked == []


def test_each_file_is_registered_once(registry):
    """Two files import both of the next layer: there are 2^20 ways to the last ones."""
    layers = [tuple(f"{side}{depth}.proto" for side in "ab") for depth in range(20)]
    files = [ProtobufFile("own.proto", "text of own.proto", layers[0])]
    for depth, names in enumerate(layers):
        imports = layers[depth + 1] if depth < 19 else ()
        files += [ProtobufFile(name, f"text of {name}", imports) for name in names]
    schema = protobuf(registry.url, text="text of own.proto", files=tuple(reversed(files)))
    assert [name for name, _, _ in schema.references] == ["a0.proto", "b0.proto"]
    assert len(registry.asked) <= 2 * len(files)  # one to register, one to ask for its version
    assert len(registry.schemas) == len(files)


# --- where a message is in the schema whose id goes before it -----------------------------------

TWO_MESSAGES = """syntax = "proto3"; package pkg; message Other { message Id { int64 id = 1; } }
message Root { map<string, int64> seats = 1; message Id { int64 id = 1; } message X {} }"""


@pytest.fixture
def descriptor_file(tmp_path):
    """Options for pkg.Root.Id: the entries of a map stand before it, and pkg.Other follows."""
    file = file_of()
    root = file.message_type.add(name="Root")
    add_map(root, "seats", "string", "int64")
    add_field(root.nested_type.add(name="Id"), "id", "int64")
    add_field(file.message_type.add(name="Other").nested_type.add(name="Id"), "id", "int64")
    made = tmp_path / "made.desc"
    made.write_bytes(descriptor_set([file]))
    return {
        "value_format": "protobuf",
        "value_protobuf_descriptor_file": str(made),
        "value_protobuf_message": "pkg.Root.Id",
    }


def options_without_registry(**given):
    named = {name.replace("_", "."): value for name, value in given.items()}
    return SinkOptions.parse({"kafka.bootstrap.servers": "b:1", "topic": "t", **named})


def planned(url, **given):
    made = options(url, **given) if url else options_without_registry(**given)
    return plan_schemas(plan_rows(ID, made), made)[0].plan.value


def prefix(url, **given):
    plan = planned(url, **given).plan
    return plan.prefix[5:]


def test_a_message_behind_a_map_is_counted_as_the_registry_keeps_it(registry, descriptor_file):
    """Confluent's registry has messages for the entries of maps, or normalized none: its
    deserializers count the messages of what it keeps.
    """
    assert prefix(registry.url, **descriptor_file) == b"\4\0\2"
    assert len(registry.asked) == 2
    registry.normalized = {registry.schemas[0]["schema"]: TWO_MESSAGES}
    found = prefix(registry.url, **descriptor_file, normalize_schemas="true")
    assert found == b"\4\2\0"
    is_looked_up = {"normalize_schemas": "true", "auto_register_schemas": "false"}
    assert prefix(registry.url, **descriptor_file, **is_looked_up) == found
    other = {**descriptor_file, "value_protobuf_message": "pkg.Other.Id"}
    registry.asked.clear()
    assert prefix(registry.url, **other) == b"\4\2\0"
    assert len(registry.asked) == 1, "where nothing depends on it nothing more is asked"


@pytest.mark.parametrize("by", ["use_latest_version", "use_schema_id"])
def test_the_message_of_a_file_is_counted_in_the_schema_that_the_registry_has(
    registry, descriptor_file, by
):
    number = registry.add("t-value", {"schema": TWO_MESSAGES, "schemaType": "PROTOBUF"})
    chosen = {by: "true" if by == "use_latest_version" else str(number)}
    assert prefix(registry.url, **descriptor_file, **chosen) == b"\4\2\0"
    text = 'syntax = "proto3"; package pkg; message Root { int64 id = 1; }'
    registry.add("t-value", {"schema": text, "schemaType": "PROTOBUF"})
    chosen = {by: "true" if by == "use_latest_version" else str(number + 1)}
    with pytest.raises(SchemaError, match=r"schema 2 .* has no message 'pkg\.Root\.Id'") as told:
        prefix(registry.url, **descriptor_file, **chosen)
    assert "protobuf.descriptor.file" not in str(told.value)  # it is set


def test_a_message_of_the_registry_needs_protobufs_package(registry, monkeypatch):
    registry.add("t-value", {"schema": TWO_MESSAGES, "schemaType": "PROTOBUF"})
    monkeypatch.setitem(sys.modules, "google.protobuf.descriptor_pb2", None)
    with pytest.raises(ConfigError, match=r"pip install 'pykafka-sink\[protobuf\]'"):
        planned(registry.url, value_format="protobuf", use_latest_version="true")


def test_no_column_is_left_out_of_a_given_message(registry, descriptor_file):
    columns = columns_of(id=LongType(), extra=StringType())
    given = {**descriptor_file, "latest_compatibility_strict": "false"}
    with pytest.raises(KafkaSinkError, match="extra"):
        planned_rows(registry, columns, **given)
    registry.add("t-value", {"schema": TWO_MESSAGES, "schemaType": "PROTOBUF"})
    with pytest.raises(SchemaError, match=r"^the Protobuf message pkg.Root.Id has no field"):
        planned_rows(registry, columns, **descriptor_file, use_latest_version="true")


def test_a_message_behind_a_map_needs_the_registry(descriptor_file):
    chosen = {"use_schema_id": "7", "value_schema_id_prefix": "true"}
    with pytest.raises(ConfigError, match=r"a map stands before it: set schema\.registry\.url"):
        prefix("", **descriptor_file, **chosen)
    other = {**descriptor_file, "value_protobuf_message": "pkg.Other.Id"}
    assert prefix("", **other, **chosen) == b"\4\2\0"


def test_a_json_schema_that_nobody_is_asked_for_is_not_compared():
    chosen = {"use_schema_id": "7", "value_schema_id_prefix": "true"}
    plan = planned("", value_format="json", **chosen).plan
    assert plan.prefix == b"\0\0\0\0\7"


# --- options ------------------------------------------------------------------------------------

REFERENCES = '[{"name":"a","subject":"b"}]'


@each_row(
    ("given", "words"),
    [
        ({"schema_registry_url": "registry:8081"}, "each must begin with http:// or https://"),
        ({"schema_registry_bearer_auth_token": "x", "schema_registry_basic_auth_user_info": "u:p"}, "leave one of them out"),
        ({"schema_registry_basic_auth_credentials_source": "USER_INFO"}, "needs schema.registry.basic.auth.user.info"),
        ({"schema_registry_basic_auth_credentials_source": "SASL_INHERIT"}, "needs kafka.sasl.username"),
        ({"schema_registry_bearer_auth_credentials_source": "OAUTHBEARER"}, "needs schema.registry.bearer.auth.issuer.endpoint.url"),
        ({"schema_registry_ssl_keystore_key": "x"}, "schema.registry.ssl.keystore.key and"),
        ({"value_format": "string", "value_schema_id_prefix": "true"}, "has no schema"),
        ({"value_format": "raw", "value_schema_id_prefix": "true"}, "a schema is derived from columns for avro and json only"),
        ({"use_latest_version": "true", "value_avro_schema": TEXT}, "both say which schema"),
        ({"value_schema_references": "[]{"}, "must be a JSON list"),
        ({"value_schema_references": '[{"name": "a"}]'}, "must be a JSON list"),
        ({"value_schema_references": '[{"name":"a","subject":"b","version":0}]'}, "must be a JSON list"),
        ({"value_schema_references": '[{"name":"a","subject":"b"}]'}, "needs value.avro.schema"),
        ({"value_schema_references": REFERENCES, "use_latest_version": "true"}, "value.schema.references and use.latest.version exclude each other"),
        ({"value_schema_references": REFERENCES, "value_format": "protobuf", "use_schema_id": "7", **DESCRIPTOR}, "value.schema.references and use.schema.id exclude each other"),
        ({"value_schema_references": REFERENCES, "value_format": "raw", "value_schema_id_prefix": "true", "use_schema_id": "7"}, "exclude each other"),
        ({"value_format": "raw", "value_schema_id_prefix": "true", "value_json_schema": "{}"}, "derived from columns for avro and json only"),
        ({"use_latest_with_metadata": "owner"}, "each must be of the form name=value"),
        ({"use_latest_with_metadata": "a=b", "value_avro_schema": TEXT}, "both say which schema"),
        ({"value_subject_name_strategy": "MyStrategy"}, "or package.module:function"),
        ({"value_format": "json", "value_schema_id_prefix": "true", "value_json_schema": "{}", "use_latest_version": "true"}, "value.json.schema and use.latest.version both"),
    ],
)  # fmt: skip
def test_what_options_are_refused(given, words):
    with pytest.raises(ConfigError) as refused:
        options("http://r:1", **given)
    assert words in str(refused.value)


def test_a_json_schema_without_the_id_is_told():
    notes = options_without_registry(value_format="json", value_json_schema="{}").notes
    assert any("'value.json.schema' has no effect without value.schema.id" in n for n in notes)


COLUMNS = columns_of(id=LongType(), home=columns_of(city=StringType()))
LATEST = {"use_latest_version": "true"}
CITY = "'home.city' is written as string, and the schema has integer"


@pytest.fixture(autouse=True)
def nothing_noted(monkeypatch):
    monkeypatch.setattr(preflight, "_noted", set())


def json_plan(registry, **more):
    json_format = {"value_format": "json", "value_schema_id_prefix": "true"}
    return planned_rows(registry, COLUMNS, **{**json_format, **more})


def json_refusal(registry, **more):
    with pytest.raises(SchemaError) as refused:
        json_plan(registry, **more)
    return str(refused.value)


def reference(name, subject, version=1):
    return {"name": name, "subject": subject, "version": version}


def add(registry, subject, schema, *references):
    body = {"schema": json.dumps(schema), "schemaType": "JSON"}
    return registry.add(subject, {**body, "references": [*references]} if references else body)


def add_order(registry, city):
    """Whose home is another schema, in which the city is one, too."""
    add(registry, "city", {"type": city})
    city_of = {"properties": {"city": {"$ref": "city.json"}}}
    add(registry, "home", city_of, reference("city.json", "city"))
    order = {"$id": "http://acme/order.json", "properties": {"home": {"$ref": "home.json"}}}
    add(registry, "t-value", order, reference("home.json", "home"))


@pytest.mark.parametrize(
    ("given", "option"),
    [(LATEST, "latest.compatibility.strict"), ({"use_schema_id": "3"}, "id.compatibility.strict")],
)
def test_columns_are_compared_with_references_unless_an_option_says_otherwise(
    registry, given, option
):
    """Then references are not asked for."""
    add_order(registry, "integer")
    words = json_refusal(registry, **given)
    assert CITY in words
    assert f"set {option} to false to write them all the same" in words
    registry.asked.clear()
    rows = json_plan(registry, **given, **{option.replace(".", "_"): "false"})
    assert len(registry.asked) == 1
    assert rows.plan.value.plan.json_schema is None  # tasks have no use for it
    assert [field.name for field in rows.plan.value.plan.fields] == ["id", "home"]


def test_what_fits_is_written_and_else_what_an_option_allows(registry, caplog):
    add_order(registry, "string")
    assert json_plan(registry, **LATEST).plan.value.plan.prefix == b"\x00\x00\x00\x00\x03"
    assert caplog.text == ""
    add(registry, "t-value", {"properties": {"id": {"type": "string"}}})
    assert "'id' is written as" in json_refusal(registry, **LATEST)
    json_plan(registry, **LATEST, latest_compatibility_strict="false")


def test_many_misfits_do_not_hide_what_to_do(registry):
    add(registry, "t-value", {"required": [str(n) for n in range(10_000)]})
    words = json_refusal(registry, **LATEST)
    assert "set latest.compatibility.strict to false" in words
    assert "'19' is required, and no column is it; and more" in words
    assert "'20'" not in words


def test_a_schema_is_asked_for_once_that_has_two_names(registry):
    add(registry, "home", {"properties": {"city": {"type": "integer"}}})
    both = [{"$ref": "a"}, {"$ref": "b"}]
    order = {"properties": {"home": {"allOf": both}}}
    add(registry, "t-value", order, reference("a", "home"), reference("b", "home"))
    assert json_refusal(registry, **LATEST).count(CITY) == 1
    assert paths(registry) == [
        "GET /subjects/t-value/versions/latest",
        "GET /subjects/home/versions/1",
    ]


@pytest.mark.parametrize("home", [None, "no JSON"])
def test_what_cannot_be_compared_is_told_and_written(registry, caplog, home):
    if home is not None:
        registry.add("home", {"schema": home, "schemaType": "JSON"})
    order = {"properties": {"home": {"$ref": "home.json"}, "id": {"$ref": "#/$defs/id"}}}
    add(registry, "t-value", order, reference("home.json", "home"))
    json_plan(registry, **LATEST)
    json_plan(registry, **LATEST)
    add(registry, "t-value", {"$ref": "z" * 5_000})
    json_plan(registry, **LATEST)
    told, long = caplog.messages
    assert told.startswith(
        "use.latest.version=true: what the latest schema of the registry has by the $ref '#/$defs/id', "
        "'home.json' is not compared with the columns of the value"
    )
    assert "zzz" in long
    assert len(long) < 2 * MOST_SHOWN


def test_values_that_the_schema_does_not_have_are_told_once_and_written(registry, caplog):
    home = {"properties": {"city": {"type": "string"}}, "type": "object"}
    add(registry, "t-value", {"properties": {"id": {"type": "integer"}, "home": home}})
    with caplog.at_level(logging.WARNING):
        json_plan(registry, **LATEST)
        assert caplog.messages == []
        json_plan(registry, **LATEST, value_json_ignorenullfields="false")
        json_plan(registry, **LATEST, value_json_ignorenullfields="false")
    assert caplog.messages == [
        "use.latest.version=true: the latest schema of the registry for the value does not have "
        "'id' that is null; 'home' that is null; 'home.city' that is null. Rows with such a value "
        "are written all the same (topic 't') [PKS-REGISTRY-022]"
    ]


def test_the_schema_of_an_id_is_named_in_the_error(registry):
    number = add(registry, "other", {"required": ["gate"]})
    words = json_refusal(registry, use_schema_id=str(number))
    assert "use.schema.id=1: the columns of the value do not fit the registry's schema" in words
    assert "'gate' is required, and no column is it" in words
    add(registry, "broken", {"properties": 5})
    assert (
        "use.schema.id=2: the registry's schema of this id for the value is no JSON"
        in json_refusal(registry, use_schema_id="2")
    )


def test_a_given_schema_is_not_compared_with_itself(registry):
    """It may have what no columns are derived as."""
    given = {"type": "object", "properties": {"id": {"type": "array"}}}
    add(registry, "t-value", given)
    rows = json_plan(registry, value_json_schema=json.dumps(given), auto_register_schemas="false")
    assert rows.notes == json_plan(registry).notes


def test_no_schema_is_asked_for_that_no_id_goes_with(registry):
    """Nor is one derived: what it would refuse is written as JSON all the same."""
    without_id = {"value_schema_id_prefix": "false", "value_json_schema": "[]"}
    made = options(registry.url, value_format="json", **without_id)
    assert plan_schemas(plan_rows(COLUMNS, made), made)[0].plan is not None
    assert registry.asked == []


@pytest.mark.parametrize("text", ["[]", "true", '{"title": 5}', "{}"])
def test_what_has_no_title_names_no_record(text):
    assert title_of(text) is None


def test_the_option_of_keys_is_named_with_what_does_not_fit():
    with pytest.raises(FormatError, match=r"^key\.use\.schema\.id=5: "):
        check_json_fits("key", '{"type": "object", "properties": {}}', '{"required": ["a"]}', (), 5)
