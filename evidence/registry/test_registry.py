"""A real registry and a real Kafka; Confluent's own deserializers read what was written as Avro and JSON.

make evidence NAME=registry
"""

import datetime
import json
from decimal import Decimal

import pyarrow as pa
import pytest
from pyspark.sql import types as t
from pyspark.sql.pandas.types import to_arrow_schema

from spark_kafka_sink.base.errors import SchemaError
from spark_kafka_sink.config.sink_options import SinkOptions
from spark_kafka_sink.registry import schemas
from spark_kafka_sink.registry.client import RegistryError
from spark_kafka_sink.spark.commit import KafkaCommitMessage
from spark_kafka_sink.spark.planning import plan_schemas
from spark_kafka_sink.spark.row_planning import plan_rows
from spark_kafka_sink.spark.task import write_rows
from tests.reading import read_topic

registry_client = pytest.importorskip("confluent_kafka.schema_registry")
avro = pytest.importorskip("confluent_kafka.schema_registry.avro")
serialization = pytest.importorskip("confluent_kafka.serialization")

# Confluent's client leaves its connections to the garbage collection.
pytestmark = [
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

UTC = datetime.timezone.utc
FLIGHTS = t.StructType(
    [
        t.StructField("id", t.LongType(), False),
        t.StructField("dest", t.StringType()),
        t.StructField("price", t.DecimalType(10, 2)),
        t.StructField("at", t.TimestampType()),
        t.StructField("stops", t.ArrayType(t.StringType(), False)),
        t.StructField("crew", t.StructType([t.StructField("captain", t.StringType())])),
    ]
)
ROWS = [
    {
        "id": 1,
        "dest": "IAH",
        "price": Decimal("12.50"),
        "at": datetime.datetime(2013, 1, 1, 5, 17, tzinfo=UTC),
        "stops": ["a", "ä"],
        "crew": {"captain": "Kirk"},
    },
    {"id": 2, "dest": None, "price": None, "at": None, "stops": None, "crew": None},
]
ARROW = pa.schema(
    [
        pa.field("id", pa.int64(), False),
        ("dest", pa.string()),
        ("price", pa.decimal128(10, 2)),
        ("at", pa.timestamp("us", "UTC")),
        ("stops", pa.list_(pa.field("element", pa.string(), False))),
        ("crew", pa.struct([("captain", pa.string())])),
    ]
)


class Writing:
    """Plans and writes as Spark has it done."""

    def __init__(self, kafka, registry, topic):
        self.kafka, self.registry, self.topic = kafka, registry, topic
        conf = {"url": registry.url}
        self.client = registry_client.SchemaRegistryClient(conf)

    def write(self, schema=FLIGHTS, rows=ROWS, arrow=ARROW, **more):
        given = {
            "kafka.bootstrap.servers": self.kafka.bootstrap_servers,
            "topic": self.topic,
            "schema.registry.url": self.registry.url,
            "value.format": "avro",
            **{name.replace("_", "."): value for name, value in more.items()},
        }
        options = SinkOptions.parse(given)
        planned, options = plan_schemas(plan_rows(schema, options), options)
        message = KafkaCommitMessage(0, 0)
        arrays = [pa.array([row.get(f.name) for row in rows], f.type) for f in arrow]
        batch = pa.record_batch(arrays, schema=arrow)
        write_rows([batch], options, planned.positions, message, None, planned.plan)

    def values(self, schema=None):
        """By Confluent's own deserializer. schema: of the reader"""
        read = avro.AvroDeserializer(self.client, schema)
        return [read(record.value, self._context(record)) for record in self.records()]

    def _context(self, record):
        headers = [*record.headers] if record.headers else None
        return serialization.SerializationContext(
            self.topic, serialization.MessageField.VALUE, headers
        )

    def records(self):
        return read_topic(self.kafka.bootstrap_servers, self.topic)


@pytest.fixture
def writing(kafka, registry, topic):
    made = Writing(kafka, registry, topic)
    with made.client:
        yield made


def test_confluents_deserializer_reads_what_was_written(writing):
    writing.write(key_columns="id")
    assert writing.values() == ROWS
    assert [record.key for record in writing.records()] == [b"1", b"2"]
    writing.write()
    versions = writing.registry.ask("GET", f"/subjects/{writing.topic}-value/versions")
    assert versions == [1]


def test_an_incompatible_change_is_refused_before_the_first_row(writing):
    writing.write()
    writing.registry.keep_compatible(f"{writing.topic}-value")
    changed = t.StructType([t.StructField("id", t.StringType(), False)])
    with pytest.raises(RegistryError) as refused:
        writing.write(changed, [{"id": "x"}], pa.schema([("id", pa.string())]))
    words = str(refused.value)
    assert f"not compatible with version 1 of subject '{writing.topic}-value'" in words
    assert len(writing.records()) == 2


_ONE_WAY = ("BACKWARD", "FORWARD", "FULL")
LEVELS = (*_ONE_WAY, *(f"{level}_TRANSITIVE" for level in _ONE_WAY), "NONE")


def frame_of(**kinds):
    """Spark's schema and Arrow's, all nullable."""
    schema = t.StructType([t.StructField(name, kind) for name, kind in kinds.items()])
    return schema, to_arrow_schema(schema)


CAPTAIN = t.StructType([t.StructField("captain", t.StringType())])
WITH_MATE = t.StructType([*CAPTAIN.fields, t.StructField("mate", t.StringType())])
CHANGES = [
    ({"id": t.LongType(), "crew": t.ArrayType(CAPTAIN)}, {"id": 1, "crew": [{"captain": "A"}]}),
    ({"id": t.LongType(), "price": t.DecimalType(10, 2)}, {"id": 2, "price": Decimal("12.50")}),
    ({"price": t.DecimalType(12, 2)}, {"price": Decimal("-1234567890.50")}),
    (
        {"id": t.LongType(), "crew": t.ArrayType(WITH_MATE)},
        {"id": 4, "crew": [{"captain": "A", "mate": None}, None]},
    ),
]


@pytest.mark.parametrize("level", LEVELS)
def test_columns_come_and_go_and_decimals_get_digits_under_each_rule(writing, level):
    """Also fields in structs in arrays. Readers that have the first or the last schema read all."""
    (kinds, row), *later = CHANGES
    writing.write(frame_of(**kinds)[0], [row], frame_of(**kinds)[1])
    subject = f"{writing.topic}-value"
    writing.registry.keep_compatible(subject, level)
    for kinds, row in later:
        schema, arrow = frame_of(**kinds)
        writing.write(schema, [row], arrow)
    assert writing.registry.ask("GET", f"/subjects/{subject}/versions") == [1, 2, 3, 4]
    assert writing.values() == [row for _, row in CHANGES]
    first, last = (writing.client.get_version(subject, n).schema.schema_str for n in (1, 4))
    ids = [1, 2, None, 4]
    crews = [[{"captain": "A"}], None, None, [{"captain": "A"}, None]]
    assert writing.values(first) == [{"id": n, "crew": c} for n, c in zip(ids, crews)]
    crews[0] = [{"captain": "A", "mate": None}]
    crews[3] = CHANGES[3][1]["crew"]
    assert writing.values(last) == [{"id": n, "crew": c} for n, c in zip(ids, crews)]


GIVEN = {
    "type": "record",
    "name": "Flight",
    "fields": [
        {"name": "dest", "type": ["string", "null"]},
        {"name": "id", "type": "double"},
        {"name": "kind", "type": "string", "default": "passenger"},
    ],
}
TWO = t.StructType(FLIGHTS.fields[:2])
TWO_ROWS = [{"id": 1, "dest": "IAH"}, {"id": 2, "dest": None}]
TWO_ARROW = pa.schema([ARROW.field(0), ARROW.field(1)])
AS_GIVEN = [
    {"dest": "IAH", "id": 1.0, "kind": "passenger"},
    {"dest": None, "id": 2.0, "kind": "passenger"},
]


@pytest.mark.parametrize("by", ["use.latest.version", "use.schema.id", "value.avro.schema"])
def test_a_schema_that_is_not_that_of_the_columns(writing, by):
    text = json.dumps(GIVEN)
    more = {by: text}
    if by != "value.avro.schema":
        subject = f"/subjects/{writing.topic}-value/versions"
        number = writing.registry.ask("POST", subject, {"schema": text})["id"]
        more = {by: "true" if by == "use.latest.version" else str(number)}
    writing.write(TWO, TWO_ROWS, TWO_ARROW, **more)
    assert writing.values() == AS_GIVEN


@pytest.mark.parametrize("by", ["avro.schema", "use.latest.version"])
def test_a_key_and_a_value_that_are_no_records(writing, by):
    """The usual key of Kafka Connect and of Java's serializers. Its null is no value."""
    schema, arrow = frame_of(id=t.LongType(), name=t.StringType())
    texts = {"key": '"long"', "value": '["null", "string"]'}
    given = {f"{part}.avro.schema": text for part, text in texts.items()}
    if by == "use.latest.version":
        given = {"use.latest.version": "true"}
        for part, text in texts.items():
            subject = f"/subjects/{writing.topic}-{part}/versions"
            writing.registry.ask("POST", subject, {"schema": text})
    columns = {"key_format": "avro", "key_columns": "id", "value_columns": "name"}
    rows = [{"id": -7, "name": "é"}, {"id": 2**40, "name": None}]
    writing.write(schema, rows, arrow, **columns, **given)
    assert writing.values() == ["é", None]
    records = writing.records()
    read = avro.AvroDeserializer(writing.client)
    context = serialization.SerializationContext(writing.topic, serialization.MessageField.KEY)
    assert [read(record.key, context) for record in records] == [-7, 2**40]
    conf = {"auto.register.schemas": False, "use.latest.version": True}
    write = avro.AvroSerializer(writing.client, '"long"', conf=conf)
    assert records[0].key == write(-7, context)
    assert records[1].value is None


def test_several_kinds_of_events_in_one_topic(writing):
    """A union of references, Confluent's way for it."""
    kinds = {
        "Order": [{"name": "id", "type": "long"}, {"name": "amount", "type": ["null", "double"]}],
        "Gone": [{"name": "id", "type": "long"}, {"name": "why", "type": "string"}],
    }
    references = []
    for kind, fields in kinds.items():
        text = json.dumps({"type": "record", "name": kind, "namespace": "n", "fields": fields})
        subject = f"{writing.topic}-{kind}"
        writing.registry.ask("POST", f"/subjects/{subject}/versions", {"schema": text})
        references.append({"name": f"n.{kind}", "subject": subject, "version": 1})
    body = {"schema": '["n.Order", "n.Gone"]', "schemaType": "AVRO", "references": references}
    subject = f"/subjects/{writing.topic}-value/versions"
    writing.registry.ask("POST", subject, body)
    orders = frame_of(id=t.LongType(), amount=t.DoubleType())
    goners = frame_of(id=t.LongType(), why=t.StringType())
    writing.write(orders[0], [{"id": 1, "amount": 2.5}], orders[1], use_latest_version="true")
    writing.write(
        goners[0],
        [{"id": 1, "why": "sold"}],
        goners[1],
        value_avro_schema=body["schema"],
        value_schema_references=json.dumps(references),
    )
    assert writing.values() == [{"id": 1, "amount": 2.5}, {"id": 1, "why": "sold"}]
    assert writing.registry.ask("GET", subject) == [1]
    both = frame_of(amount=t.DoubleType(), why=t.StringType())
    with pytest.raises(SchemaError, match=r"no branch .* n\.Order: .* n\.Gone: "):
        writing.write(both[0], [], both[1], use_latest_version="true")


deserializers = pytest.importorskip("confluent_kafka.schema_registry.json_schema")


def write(writing, *rows, **more):
    prefixed = {"value_format": "json", "value_schema_id_prefix": "true"}
    writing.write(*rows, **{**prefixed, **more})


def read(writing):
    """Each validated with the schema that its id is of."""
    reader = deserializers.JSONDeserializer(None, schema_registry_client=writing.client)
    field = serialization.MessageField.VALUE
    context = serialization.SerializationContext(writing.topic, field)
    return [reader(record.value, context) for record in writing.records()]


def latest(writing):
    return writing.registry.ask("GET", f"/subjects/{writing.topic}-value/versions/latest")


FIRST = {
    "id": 1,
    "dest": "IAH",
    "price": 12.5,
    "at": "2013-01-01T05:17:00.000Z",
    "stops": ["a", "ä"],
    "crew": {"captain": "Kirk"},
}


def test_a_schema_is_derived_and_rows_are_valid(writing):
    write(writing)
    assert read(writing) == [FIRST, {"id": 2}]
    found = latest(writing)
    assert (found["schemaType"], found["version"]) == ("JSON", 1)
    schema = json.loads(found["schema"])
    assert schema["title"] == "Row"
    assert "required" not in schema
    assert schema["properties"]["at"] == {"type": "string", "format": "date-time"}
    schemas._answers.clear()
    write(writing)
    assert latest(writing)["version"] == 1
