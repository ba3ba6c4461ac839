"""Avro as Spark's to_avro writes it, and its schema, byte for byte, of rows of all types."""

from __future__ import annotations

import json

import pytest

from spark_kafka_sink.formats.avro_schema import derived_schema
from spark_kafka_sink.formats.encoder import RowEncoder
from spark_kafka_sink.formats.plan import AVRO, FormatError, FormatPlan, PlannedField
from tests.formats.cases_read import NAMES, arrow_batch, read

WITH_AVRO = [name for name in NAMES if "avro" in read(name)]
WITHOUT_AVRO = [name for name in NAMES if "avro" not in read(name)]


def plan_of(case):
    fields = tuple(PlannedField((f["name"],), f["name"]) for f in case["schema"]["fields"])
    schema = derived_schema(json.dumps(case["schema"]))
    return FormatPlan(AVRO, fields, avro_schema=schema)


@pytest.mark.parametrize("name", WITH_AVRO)
def test_the_schema_is_the_one_that_spark_derives(name):
    case = read(name)
    assert derived_schema(json.dumps(case["schema"])) == case["avro"]["schema"]


@pytest.mark.parametrize("name", WITH_AVRO)
def test_rows_are_as_spark_writes_them(name):
    case = read(name)
    rows = arrow_batch(case)
    encoded = RowEncoder(plan_of(case), rows.schema).encode(rows)
    assert encoded.faults is None
    found = [value.hex().upper() for value in encoded.values.to_pylist()]
    assert found == case["avro"]["rows"]


@pytest.mark.parametrize("name", WITHOUT_AVRO)
def test_what_spark_does_not_write_is_refused(name):
    with pytest.raises(
        FormatError, match=r"transform_keys|withColumnRenamed|which Avro has no type"
    ):
        derived_schema(json.dumps(read(name)["schema"]))
