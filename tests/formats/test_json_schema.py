"""JSON Schemas of columns: what is derived, and that the rows that are written are valid."""

from __future__ import annotations

import json

import jsonschema
import pytest
from pyspark.sql import types as t
from pyspark.sql.pandas.types import from_arrow_schema

from spark_kafka_sink.formats.encoder import RowEncoder
from spark_kafka_sink.formats.json_schema import Written, compared, derived_json_schema
from spark_kafka_sink.formats.plan import JSON, FormatError, FormatPlan, JsonOptions, PlannedField
from tests.formats.random_rows import RandomRows


@pytest.mark.parametrize("seed", range(30))
def test_rows_are_valid_by_the_derived_schema(seed: int) -> None:
    random = RandomRows(seed)
    table = random.table(60)
    is_null_left_out = random.chance()
    schema = from_arrow_schema(table.schema, True)
    derived = json.loads(derived_json_schema(schema.json(), "T", Written(is_null_left_out)))
    jsonschema.Draft7Validator.check_schema(derived)
    validator = jsonschema.Draft7Validator(derived)
    fields = tuple(PlannedField((name,), name) for name in table.column_names)
    plan = FormatPlan(JSON, fields, json_options=JsonOptions(is_null_left_out))
    batch = table.combine_chunks().to_batches()[0]
    for value in RowEncoder(plan, batch.schema).encode(batch).values.to_pylist():
        validator.validate(json.loads(value))
    assert compared(derived, derived) == ((), (), ())


def test_what_is_derived() -> None:
    struct = t.StructType(
        [
            t.StructField("id", t.LongType(), False),
            t.StructField("price", t.DecimalType(10, 2)),
            t.StructField("count", t.DecimalType(10, 0)),
            t.StructField("at", t.TimestampType()),
            t.StructField("day", t.DateType()),
            t.StructField("local", t.TimestampNTZType()),
            t.StructField("data", t.BinaryType()),
            t.StructField("short", t.VarcharType(3)),
            t.StructField("tags", t.ArrayType(t.StringType())),
            t.StructField("of", t.MapType(t.StringType(), t.IntegerType(), False)),
            t.StructField("home", t.StructType([t.StructField("city", t.StringType(), False)])),
            t.StructField("ago", t.DayTimeIntervalType()),
            t.StructField("none", t.NullType(), False),
        ]
    )
    found = json.loads(derived_json_schema(struct.json(), "Order"))
    assert found == {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Order",
        "type": "object",
        "properties": {
            "id": {"type": "integer"},
            "price": {"type": "number"},
            "count": {"type": "integer"},
            "at": {"type": "string", "format": "date-time"},
            "day": {"type": "string", "format": "date"},
            "local": {"type": "string"},
            "data": {"type": "string", "contentEncoding": "base64"},
            "short": {"type": "string"},
            "tags": {"type": "array", "items": {"oneOf": [{"type": "null"}, {"type": "string"}]}},
            "of": {"type": "object", "additionalProperties": {"type": "integer"}},
            "home": {
                "type": "object",
                "properties": {"city": {"type": "string"}},
                "additionalProperties": False,
                "required": ["city"],
            },
            "ago": {"type": "string"},
            "none": {"type": "null"},
        },
        "additionalProperties": False,
        "required": ["id"],
    }
    written = Written(False, has_own_dates=True, has_own_timestamps=True)
    properties = json.loads(derived_json_schema(struct.json(), "O", written))["properties"]
    assert (
        properties["at"] == properties["day"] == {"oneOf": [{"type": "null"}, {"type": "string"}]}
    )


def test_a_type_without_json() -> None:
    field = {"name": "g", "type": "geometry(4326)", "nullable": True, "metadata": {}}
    struct = {
        "type": "struct",
        "fields": [{**field, "type": {"type": "struct", "fields": [field]}}],
    }
    with pytest.raises(FormatError, match=r"column 'g\.g' has the Spark type geometry\(4326\)"):
        derived_json_schema(json.dumps(struct))


@pytest.mark.parametrize("is_null_left_out", [True, False])
def test_a_variant_may_be_anything(is_null_left_out: bool) -> None:
    variant = t.VariantType()
    struct = t.StructType(
        [
            t.StructField("v", variant),
            t.StructField("w", variant, False),
            t.StructField("a", t.ArrayType(variant), False),
            t.StructField("m", t.MapType(t.StringType(), variant), False),
        ]
    )
    derived = json.loads(derived_json_schema(struct.json(), "R", Written(is_null_left_out)))
    assert derived["properties"] == {
        "v": {},
        "w": {},
        "a": {"type": "array", "items": {}},
        "m": {"type": "object", "additionalProperties": {}},
    }
    assert derived["required"] == ["w", "a", "m"]
    wanted = {"type": "object", "properties": {"v": {"type": "integer"}, "w": False}}
    assert compared(derived, wanted).misfits == ("'w' must not be there",)
