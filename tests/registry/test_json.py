"""JSON with schemas of a real registry, read back and validated by Confluent's own deserializer."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from pyspark.sql import types as t

from spark_kafka_sink.base.errors import SchemaError
from spark_kafka_sink.registry import schemas
from tests.formats.variants import KIND, Inner, metadata_of, number, primitive, short_text, written
from tests.registry.test_registry import (  # noqa: F401
    ARROW,
    FLIGHTS,
    ROWS,
    TWO,
    TWO_ARROW,
    TWO_ROWS,
    Writing,
    writing,
)

deserializers = pytest.importorskip("confluent_kafka.schema_registry.json_schema")
serialization = pytest.importorskip("confluent_kafka.serialization")

pytestmark = [
    pytest.mark.long,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def write(writing, *rows, **more):  # noqa: F811
    prefixed = {"value_format": "json", "value_schema_id_prefix": "true"}
    writing.write(*rows, **{**prefixed, **more})


def read(writing):  # noqa: F811
    """Each validated with the schema that its id is of."""
    reader = deserializers.JSONDeserializer(None, schema_registry_client=writing.client)
    field = serialization.MessageField.VALUE
    context = serialization.SerializationContext(writing.topic, field)
    return [reader(record.value, context) for record in writing.records()]


def latest(writing):  # noqa: F811
    return writing.registry.ask("GET", f"/subjects/{writing.topic}-value/versions/latest")


FIRST = {
    "id": 1,
    "dest": "IAH",
    "price": 12.5,
    "at": "2013-01-01T05:17:00.000Z",
    "stops": ["a", "ä"],
    "crew": {"captain": "Kirk"},
}


def test_a_schema_is_derived_and_rows_are_valid(writing):  # noqa: F811
    write(writing)
    assert read(writing) == [FIRST, {"id": 2}]
    found = latest(writing)
    assert (found["schemaType"], found["version"]) == ("JSON", 1)
    schema = json.loads(found["schema"])
    assert schema["title"] == "Row"
    assert schema["required"] == ["id"]
    assert schema["properties"]["at"] == {"type": "string", "format": "date-time"}
    schemas._answers.clear()
    write(writing)
    assert latest(writing)["version"] == 1


def test_nulls_that_are_written_are_valid(writing):  # noqa: F811
    write(writing, value_json_ignoreNullFields="false")
    assert read(writing)[1] == {**dict.fromkeys(FIRST), "id": 2}


@pytest.mark.parametrize("is_null_left_out", ["true", "false"])
def test_variants_are_valid_whatever_is_in_them(writing, is_null_left_out):  # noqa: F811
    values = [
        number(3, 1, 7),
        short_text(b"x"),
        primitive(0),
        written(Inner(None, [], 1, False), []),
    ]
    rows = [{"v": {"value": value, "metadata": metadata_of([])}} for value in values]
    struct = t.StructType([t.StructField("v", t.VariantType())])
    more = {"value_json_ignoreNullFields": is_null_left_out}
    write(writing, struct, [*rows, {"v": None}], pa.schema([("v", KIND)]), **more)
    assert json.loads(latest(writing)["schema"])["properties"] == {"v": {}}
    last = {} if is_null_left_out == "true" else {"v": None}
    assert read(writing) == [{"v": 7}, {"v": "x"}, {"v": None}, {"v": []}, last]


GIVEN = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "Flight",
    "type": "object",
    "properties": {"id": {"type": "integer"}, "dest": {"type": "string"}},
    "required": ["id"],
}


def test_a_given_schema_by_its_title(writing, tmp_path):  # noqa: F811
    file = tmp_path / "schema.json"
    file.write_text(json.dumps(GIVEN))
    more = {"value_subject_name_strategy": "TopicRecordNameStrategy"}
    write(writing, TWO, TWO_ROWS, TWO_ARROW, value_json_schema=str(file), **more)
    assert read(writing) == [{"id": 1, "dest": "IAH"}, {"id": 2}]
    subject = f"/subjects/{writing.topic}-Flight/versions/latest"
    assert json.loads(writing.registry.ask("GET", subject)["schema"]) == GIVEN


def test_the_latest_schema_must_fit_unless_it_need_not(writing):  # noqa: F811
    subject = f"/subjects/{writing.topic}-value/versions"
    wanted = {**GIVEN, "required": ["id", "gate"], "additionalProperties": False}
    body = {"schema": json.dumps(wanted), "schemaType": "JSON"}
    writing.registry.ask("POST", subject, body)
    asked = {"use_latest_version": "true"}
    with pytest.raises(SchemaError) as refused:
        write(writing, **asked)
    assert "'gate' is required, and no column is it" in str(refused.value)
    assert "'price' must not be there" in str(refused.value)
    assert writing.records() == []
    write(writing, TWO, TWO_ROWS, TWO_ARROW, **asked, latest_compatibility_strict="false")
    assert len(writing.records()) == 2


def test_a_schema_that_builds_on_another(writing):  # noqa: F811
    crew = {"title": "Crew", "type": "object", "properties": {"captain": {"type": "string"}}}
    name = f"{writing.topic}-crew"
    body = {"schema": json.dumps(crew), "schemaType": "JSON"}
    writing.registry.ask("POST", f"/subjects/{name}/versions", body)
    given = {"title": "F", "type": "object", "properties": {"crew": {"$ref": "crew.json"}}}
    references = json.dumps([{"name": "crew.json", "subject": name}])
    write(writing, value_json_schema=json.dumps(given), value_schema_references=references)
    assert latest(writing)["references"] == [{"name": "crew.json", "subject": name, "version": 1}]
    assert read(writing)[0] == FIRST


@pytest.mark.parametrize("chosen", ["use_latest_version", "use_schema_id"])
def test_what_the_schema_builds_on_must_fit_as_well(
    writing,  # noqa: F811
    caplog,
    chosen,
):
    name, subject = f"{writing.topic}-crew", f"/subjects/{writing.topic}-value/versions"
    for captain, fits in (("integer", False), ("string", True)):
        crew = {"type": "object", "properties": {"captain": {"type": captain}}}
        body = {"schema": json.dumps(crew), "schemaType": "JSON"}
        writing.registry.ask("POST", f"/subjects/{name}/versions", body)
        version = writing.registry.ask("GET", f"/subjects/{name}/versions/latest")["version"]
        order = {"title": captain, "type": "object", "properties": {"crew": {"$ref": "crew.json"}}}
        reference = {"name": "crew.json", "subject": name, "version": version}
        body = {"schema": json.dumps(order), "schemaType": "JSON", "references": [reference]}
        found = writing.registry.ask("POST", subject, body)
        given = "true" if chosen == "use_latest_version" else str(found["id"])
        if fits:
            write(writing, **{chosen: given})
            assert read(writing)[0] == FIRST
        else:
            with pytest.raises(SchemaError, match=r"'crew\.captain' is written as string"):
                write(writing, **{chosen: given})
    assert "is not compared" not in caplog.text
