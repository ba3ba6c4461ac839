"""Protobuf with a real registry and a real Kafka; Confluent's own deserializer reads it.

make evidence NAME=registry
"""

import pyarrow as pa
import pytest
from pyspark.sql import types as t

from evidence.registry.test_registry import Writing as OfAvro
from spark_kafka_sink.registry import schemas
from tests.formats import protobuf_files
from tests.formats.protobuf_files import add_enum, add_field, add_map, file_of

registry_client = pytest.importorskip("confluent_kafka.schema_registry")
protobuf = pytest.importorskip("confluent_kafka.schema_registry.protobuf")
serialization = pytest.importorskip("confluent_kafka.serialization")

# Confluent's client leaves its connections to the garbage collection.
pytestmark = [
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

COLUMNS = t.StructType(
    [
        t.StructField("id", t.LongType()),
        t.StructField("dest", t.StringType()),
        t.StructField("kind", t.StringType()),
        t.StructField("at", t.TimestampType()),
        t.StructField("stops", t.ArrayType(t.StringType())),
        t.StructField("seats", t.MapType(t.StringType(), t.IntegerType())),
        t.StructField("crew", t.StructType([t.StructField("captain", t.StringType())])),
    ]
)
ARROW = pa.schema(
    [
        ("id", pa.int64()),
        ("dest", pa.string()),
        ("kind", pa.string()),
        ("at", pa.timestamp("us", "UTC")),
        ("stops", pa.list_(pa.string())),
        ("seats", pa.map_(pa.string(), pa.int32())),
        ("crew", pa.struct([("captain", pa.string())])),
    ]
)
ROWS = [
    {
        "id": 1,
        "dest": "IAH",
        "kind": "CARGO",
        "at": 1_357_017_420_000_001,
        "stops": ["a", "ä"],
        "seats": [("first", 4)],
        "crew": {"captain": "Kirk"},
    },
    dict.fromkeys(ARROW.names),
]


def flights():
    """air.Flight, the first message, and air.Outer.Flight, of the same fields; the crew's is in another
    file."""
    crew = file_of("air/crew.proto", package="air")
    add_field(crew.message_type.add(name="Crew"), "captain", "string")
    file = file_of("air/flight.proto", package="air")
    file.dependency.append("air/crew.proto")
    add_enum(file, "Kind", PASSENGER=0, CARGO=1)
    fill(file.message_type.add(name="Flight"), "air.Flight")
    outer = file.message_type.add(name="Outer")
    outer.nested_type.add(name="Nothing")
    fill(outer.nested_type.add(name="Flight"), "air.Outer.Flight")
    return [crew, file]


def fill(message, name):
    for field, kind in (
        ("id", "int64"),
        ("dest", "string"),
        ("kind", "enum air.Kind"),
        ("at", "google.protobuf.Timestamp"),
        ("stops", "repeated string"),
        ("crew", "air.Crew"),
    ):
        add_field(message, field, kind)
    add_map(message, "seats", "string", "int32", name.rpartition(".")[0])


class Writing(OfAvro):
    """Plans and writes as Spark has it done."""

    def __init__(self, kafka, registry, topic, folder):
        super().__init__(kafka, registry, topic)
        self.file = folder / "flights.desc"
        self.data = protobuf_files.descriptor_set(flights())
        self.file.write_bytes(self.data)

    def write_flights(self, has_file=True, message="air.Flight", **more):
        given = {"value.format": "protobuf", **more}
        if has_file:
            given["value.protobuf.descriptor.file"] = str(self.file)
            given["value.protobuf.message"] = message
        self.write(COLUMNS, ROWS, ARROW, **given)

    def values(self, name="air.Flight"):
        """By Confluent's own deserializer, which asks the registry for the schema of the id."""
        kind = protobuf_files.message_class(self.data, name)
        read = protobuf.ProtobufDeserializer(kind, {"use.deprecated.format": False}, self.client)
        context = serialization.SerializationContext(self.topic, serialization.MessageField.VALUE)
        return [str(read(record.value, context)) for record in self.records()]

    def expected(self, name="air.Flight"):
        kind = protobuf_files.message_class(self.data, name)
        return [str(protobuf_files.fill(kind(), row)) for row in ROWS]


@pytest.fixture
def writing(kafka, registry, topic, tmp_path):
    return Writing(kafka, registry, topic, tmp_path)


@pytest.mark.parametrize("name", ["air.Flight", "air.Outer.Flight"])
def test_confluents_deserializer_reads_what_was_written(writing, name):
    """Its schema, and that of the file that it imports, are registered once."""
    writing.write_flights(message=name)
    assert writing.values(name) == writing.expected(name)
    schemas._answers.clear()
    writing.write_flights(message=name)
    for subject in (f"{writing.topic}-value", "air%2Fcrew.proto"):
        assert writing.registry.ask("GET", f"/subjects/{subject}/versions") == [1]
    found = writing.registry.ask("GET", f"/subjects/{writing.topic}-value/versions/1")
    assert found["references"] == [
        {"name": "air/crew.proto", "subject": "air/crew.proto", "version": 1}
    ]


def test_what_confluents_serializer_registers_is_found_again(writing):
    kind = protobuf_files.message_class(writing.data, "air.Flight")
    write = protobuf.ProtobufSerializer(kind, writing.client, {"use.deprecated.format": False})
    context = serialization.SerializationContext(writing.topic, serialization.MessageField.VALUE)
    expected = [write(protobuf_files.fill(kind(), row), context) for row in ROWS]
    writing.write_flights(auto_register_schemas="false")
    records = writing.records()
    assert [record.value for record in records] == expected


TEXT = """syntax = "proto3"; package air; import "google/protobuf/timestamp.proto";
enum Kind { PASSENGER = 0; CARGO = 1; } message Crew { string captain = 1; }
message Flight { int64 id = 1; string dest = 2; Kind kind = 3; google.protobuf.Timestamp at = 4;
  repeated string stops = 5; Crew crew = 6; map<string, int32> seats = 7; }"""


@pytest.mark.parametrize("has_file", [True, False])
def test_a_schema_that_the_registry_has_as_text(writing, has_file):
    """Apicurio does not turn it into descriptors, as Confluent's registry does. Flight is the second
    message there, and the first one in the file, in which `dest` has another number.
    """
    text = TEXT.replace("dest = 2", "dest = 9")
    body = {"schema": text, "schemaType": "PROTOBUF"}
    subject = f"/subjects/{writing.topic}-value/versions"
    number = writing.registry.ask("POST", subject, body)["id"]
    named = {} if has_file else {"value_protobuf_message": "air.Flight"}
    writing.write_flights(has_file, use_latest_version="true", **named)
    records = writing.records()
    prefix = b"\0" + number.to_bytes(4, "big") + b"\2\2"
    assert [record.value[:7] for record in records] == [prefix, prefix]
    crew, file = flights()
    (dest,) = (field for field in file.message_type[0].field if field.name == "dest")
    dest.number = 9
    kind = protobuf_files.message_class(protobuf_files.descriptor_set([crew, file]), "air.Flight")
    found = [str(kind.FromString(record.value[7:])) for record in records]
    assert found == [str(protobuf_files.fill(kind(), row)) for row in ROWS]
