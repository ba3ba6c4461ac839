"""Columns that are written with a JSON Schema of a registry: compared with all that it builds on."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from spark_kafka_sink.base.errors import SchemaError
from spark_kafka_sink.formats.plan import FormatError
from spark_kafka_sink.spark import preflight
from spark_kafka_sink.spark.format_schemas import check_json_fits, title_of
from spark_kafka_sink.spark.planning import plan_schemas
from spark_kafka_sink.spark.row_planning import PlannedRows, plan_rows
from tests.unit.registry_asking import fresh_registry, options, paths
from tests.unit.registry_server import Registry

HOME = StructType([StructField("city", StringType())])
COLUMNS = StructType([StructField("id", LongType()), StructField("home", HOME)])
LATEST = {"use_latest_version": "true"}
CITY = "'home.city' is written as string, and the schema has integer"


@pytest.fixture
def registry():
    with fresh_registry() as made:
        yield made


@pytest.fixture(autouse=True)
def nothing_noted(monkeypatch):
    monkeypatch.setattr(preflight, "_noted", set())


def planned(registry: Registry, **more: str) -> PlannedRows:
    json_format = {"value_format": "json", "value_schema_id_prefix": "true"}
    made = options(registry.url, **{**json_format, **more})
    return plan_schemas(plan_rows(COLUMNS, made), made)[0]


def refusal(registry: Registry, **more: str) -> str:
    with pytest.raises(SchemaError) as refused:
        planned(registry, **more)
    return str(refused.value)


def reference(name: str, subject: str, version: int = 1) -> dict[str, Any]:
    return {"name": name, "subject": subject, "version": version}


def add(registry: Registry, subject: str, schema: object, *references: dict[str, Any]) -> int:
    body = {"schema": json.dumps(schema), "schemaType": "JSON"}
    return registry.add(subject, {**body, "references": [*references]} if references else body)


def add_order(registry: Registry, city: str) -> None:
    """Whose home is another schema, in which the city is one, too."""
    add(registry, "city", {"type": city})
    city_of = {"properties": {"city": {"$ref": "city.json"}}}
    add(registry, "home", city_of, reference("city.json", "city"))
    order = {"$id": "http://acme/order.json", "properties": {"home": {"$ref": "home.json"}}}
    add(registry, "t-value", order, reference("home.json", "home"))


@pytest.mark.parametrize("given", [LATEST, {"use_schema_id": "3"}])
def test_registered_references_are_compared(registry, given):
    add_order(registry, "integer")
    assert CITY in refusal(registry, **given)


@pytest.mark.parametrize("given", [LATEST, {"use_schema_id": "3"}])
def test_what_fits_is_written(registry, given, caplog):
    add_order(registry, "string")
    plan = planned(registry, **given).plan
    assert plan.value.plan.prefix == b"\x00\x00\x00\x00\x03"
    assert caplog.text == ""


def test_a_schema_is_asked_for_once_that_has_two_names(registry):
    add(registry, "home", {"properties": {"city": {"type": "integer"}}})
    both = [{"$ref": "a"}, {"$ref": "b"}]
    order = {"properties": {"home": {"allOf": both}}}
    add(registry, "t-value", order, reference("a", "home"), reference("b", "home"))
    assert refusal(registry, **LATEST).count(CITY) == 1
    assert paths(registry) == [
        "GET /subjects/t-value/versions/latest",
        "GET /subjects/home/versions/1",
    ]


def test_what_cannot_be_compared_is_told_and_written(registry, caplog):
    order = {"properties": {"home": {"$ref": "home.json"}, "id": {"$ref": "#/$defs/id"}}}
    add(registry, "t-value", order, reference("home.json", "home"))
    with caplog.at_level(logging.WARNING):
        planned(registry, **LATEST)
        planned(registry, **LATEST)
    (told,) = caplog.messages
    assert told.startswith(
        "use.latest.version=true: what the latest schema of the registry has by the $ref '#/$defs/id', "
        "'home.json' is not compared with the columns of the value"
    )


def test_values_that_the_schema_does_not_have_are_told_once_and_written(registry, caplog):
    home = {"properties": {"city": {"type": "string"}}, "type": "object"}
    add(registry, "t-value", {"properties": {"id": {"type": "integer"}, "home": home}})
    with caplog.at_level(logging.WARNING):
        planned(registry, **LATEST)
        assert caplog.messages == []
        planned(registry, **LATEST, value_json_ignorenullfields="false")
        planned(registry, **LATEST, value_json_ignorenullfields="false")
    assert caplog.messages == [
        "use.latest.version=true: the latest schema of the registry for the value does not have "
        "'id' that is null; 'home' that is null; 'home.city' that is null. Rows with such a value "
        "are written all the same"
    ]


def test_a_referenced_schema_that_is_no_json_is_not_compared(registry, caplog):
    registry.add("home", {"schema": "no JSON", "schemaType": "JSON"})
    order = {"properties": {"home": {"$ref": "home.json"}}}
    add(registry, "t-value", order, reference("home.json", "home"))
    planned(registry, **LATEST)
    assert "the $ref 'home.json' is not compared" in caplog.text


@pytest.mark.parametrize(
    ("given", "option"),
    [
        (LATEST, "latest.compatibility.strict"),
        ({"use_schema_id": "3"}, "id.compatibility.strict"),
    ],
)
def test_columns_need_not_be_compared(registry, given, option):
    """Then references are not asked for."""
    add_order(registry, "integer")
    assert f"set {option} to false to write them all the same" in refusal(registry, **given)
    registry.asked.clear()
    planned(registry, **given, **{option.replace(".", "_"): "false"})
    assert len(registry.asked) == 1


def test_the_schema_of_an_id_is_named_in_the_error(registry):
    number = add(registry, "other", {"required": ["gate"]})
    words = refusal(registry, use_schema_id=str(number))
    assert "use.schema.id=1: the columns of the value do not fit the registry's schema" in words
    assert "'gate' is required, and no column is it" in words
    add(registry, "broken", {"properties": 5})
    assert "use.schema.id=2: the registry's schema of this id for the value is no JSON" in refusal(
        registry, use_schema_id="2"
    )


def test_avro_leaves_out_what_the_schema_of_an_id_does_not_have(registry):
    only_id = '{"type":"record","name":"R","fields":[{"name":"id","type":["null","long"]}]}'
    registry.add("s", {"schema": only_id})
    given = {"value_format": "avro", "use_schema_id": "1"}
    words = refusal(registry, **given)
    assert "set id.compatibility.strict=false to leave them out, or value.columns" in words
    assert "the registry's schema 1, has no field" in words  # of which no version is known
    plan = planned(registry, **given, id_compatibility_strict="false").plan
    assert [field.name for field in plan.value.plan.fields] == ["id"]


def test_columns_that_do_not_fit_are_written_where_that_is_asked_for(registry):
    add(registry, "t-value", {"properties": {"id": {"type": "string"}}})
    assert "'id' is written as" in refusal(registry, **LATEST)
    rows = planned(registry, **LATEST, latest_compatibility_strict="false")
    assert rows.plan.value.plan.json_schema is None  # tasks have no use for it
    assert [field.name for field in rows.plan.value.plan.fields] == ["id", "home"]


def test_a_given_schema_is_not_compared_with_itself(registry):
    """It may have what no columns are derived as."""
    given = {"type": "object", "properties": {"id": {"type": "array"}}}
    add(registry, "t-value", given)
    rows = planned(registry, value_json_schema=json.dumps(given), auto_register_schemas="false")
    assert rows.notes == planned(registry).notes


def test_the_kind_of_a_schema_comes_before_what_is_in_it(registry):
    registry.add("t-value", {"schema": "message A {}", "schemaType": "PROTOBUF"})
    assert "value.format=json: the registry's schema 1 is of the kind PROTOBUF" in refusal(
        registry, **LATEST
    )


def test_no_schema_is_asked_for_that_no_id_goes_with(registry):
    """Nor is one derived: what it would refuse is written as JSON all the same."""
    made = options(registry.url, value_format="json", value_json_schema="[]")
    assert plan_schemas(plan_rows(COLUMNS, made), made)[0].plan is not None
    assert registry.asked == []


@pytest.mark.parametrize("text", ["[]", "true", '{"title": 5}', "{}"])
def test_what_has_no_title_names_no_record(text):
    assert title_of(text) is None


def test_the_option_of_keys_is_named_with_what_does_not_fit():
    with pytest.raises(FormatError, match=r"^key\.use\.schema\.id=5: "):
        check_json_fits("key", '{"type": "object", "properties": {}}', '{"required": ["a"]}', (), 5)
