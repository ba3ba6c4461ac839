"""JSON as Spark's to_json writes it, byte for byte, of rows of all types."""

from __future__ import annotations

import json

import pytest

from spark_kafka_sink.formats.encoder import RowEncoder
from spark_kafka_sink.formats.plan import JSON, FormatPlan, JsonOptions, PlannedField
from tests.formats.cases_read import NAMES, arrow_batch, read


def plan_of(case, options):
    fields = tuple(
        PlannedField((f["name"],), f["name"], json.dumps(f["type"]))
        for f in case["schema"]["fields"]
    )
    ignored = options.get("ignoreNullFields", "true") == "true"
    patterns = (options.get(f"{name}Format") for name in ("timestamp", "timestampNTZ", "date"))
    chosen = JsonOptions(ignored, options["timeZone"], *patterns)
    return FormatPlan(JSON, fields, json_options=chosen)


@pytest.mark.parametrize("name", NAMES)
def test_rows_are_as_spark_writes_them(name):
    case = read(name)
    rows = arrow_batch(case)
    for written in case["json"]:
        encoder = RowEncoder(plan_of(case, written["options"]), rows.schema)
        values = encoder.encode(rows).values.to_pylist()
        assert [value.decode() for value in values] == written["rows"], written["options"]


@pytest.mark.parametrize("name", NAMES)
def test_a_part_of_an_arrow_batch_is_written_as_it_is_in_the_whole(name):
    case = read(name)
    rows = arrow_batch(case)
    written = case["json"][0]
    encoder = RowEncoder(plan_of(case, written["options"]), rows.schema)
    for first in range(rows.num_rows):
        values = encoder.encode(rows.slice(first, 2)).values.to_pylist()
        assert [value.decode() for value in values] == written["rows"][first : first + 2]
