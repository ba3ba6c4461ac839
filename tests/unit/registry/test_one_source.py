"""An id and the schema that encodes the rows come from one answer of the registry."""

import base64
import json

import pyarrow as pa
import pytest
from pyspark.sql.types import IntegerType, LongType, StringType

from spark_kafka_sink.formats.encoder import RowEncoder
from spark_kafka_sink.formats.plan import FormatError
from tests.formats.protobuf_files import add_field, descriptor_set, file_of
from tests.unit.registry.server import TEXT, columns_of, found, planned_rows, refusal


def id_in_file(kind, number):
    """A file with pkg.Root.Id."""
    file = file_of()
    inner = file.message_type.add(name="Root").nested_type.add(name="Id")
    add_field(inner, "id", kind, number)
    return file


IN_REGISTRY = 'syntax = "proto3"; package pkg; message Root { message Id { string id = 5; } }'


@pytest.mark.parametrize("by", ["use_latest_version", "use_schema_id"])
@pytest.mark.parametrize("is_served_as_text", [True, False])
def test_rows_are_encoded_with_the_schema_whose_id_they_have(
    registry, tmp_path, by, is_served_as_text
):
    """Whatever the file has: there `id` is an int64 of the number 1."""
    made = tmp_path / "made.desc"
    made.write_bytes(descriptor_set([id_in_file("int64", 1)]))
    if not is_served_as_text:
        text = base64.b64encode(id_in_file("string", 5).SerializeToString()).decode()
        registry.serialized[IN_REGISTRY] = text
    number = registry.add("t-value", {"schema": IN_REGISTRY, "schemaType": "PROTOBUF"})
    given = {
        "value_format": "protobuf",
        "value_protobuf_descriptor_file": str(made),
        "value_protobuf_message": "pkg.Root.Id",
        by: "true" if by == "use_latest_version" else str(number),
    }
    columns = columns_of(id=StringType())
    plan = planned_rows(registry, columns, **given).plan.value.plan
    rows = pa.record_batch({"id": ["x"]})
    (value,) = RowEncoder(plan, rows.schema).encode(rows).values.to_pylist()
    assert value == b"\0\0\0\0" + bytes([number]) + b"\4\0\0" + b"\x2a\1x"
    with pytest.raises(FormatError, match="'id' .* cannot hold"):
        planned_rows(registry, columns_of(id=LongType()), **given)


TWO_INTS = (
    '{"type":"record","name":"R","fields":[{"name":"a","type":"int"},{"name":"b","type":"int"}]}'
)
SORTED = (
    '{"type":"record","name":"R","fields":[{"name":"b","type":"int"},{"name":"a","type":"int"}]}'
)


@pytest.mark.parametrize("registers", ["true", "false"])
@pytest.mark.parametrize("tells_text", [True, False])
def test_avro_is_written_by_the_text_that_the_registry_has_of_its_id(
    registry, registers, tells_text, monkeypatch
):
    """A registry that sorts fields where it normalises schemas has another order of the bytes."""
    registry.add("t-value", {"schema": SORTED})
    registry.normalized = {TWO_INTS: SORTED}
    told = registry._found

    def without_text(asked):
        status, content = told(asked)
        is_post = asked.method == "POST"
        return status, {k: v for k, v in content.items() if k != "schema" or not is_post}

    monkeypatch.setattr(registry, "_found", told if tells_text else without_text)
    columns = columns_of(a=IntegerType(), b=IntegerType())
    given = {"normalize_schemas": "true", "auto_register_schemas": registers}
    plan = planned_rows(registry, columns, value_avro_schema=TWO_INTS, **given).plan.value.plan
    rows = pa.record_batch({"a": pa.array([1], pa.int32()), "b": pa.array([2], pa.int32())})
    (value,) = RowEncoder(plan, rows.schema).encode(rows).values.to_pylist()
    assert value == b"\0\0\0\0\1" + b"\4\2"


def test_a_schema_that_is_there_in_another_layout_is_told_with_what_finds_it(registry):
    other = json.dumps(json.loads(TEXT), indent=2)
    registry.add("t-value", {"schema": other})
    registry.normalized = {TEXT: other}
    given = {"auto_register_schemas": "false"}
    words = refusal(registry.url, **given)
    assert "has this schema in 't-value' in another layout: set normalize.schemas=true" in words
    assert words.endswith("[PKS-REGISTRY-013]")
    assert found(registry.url, **given, normalize_schemas="true").id == 1
    registry.normalized = {}
    assert "has not this schema in 't-value': register it" in refusal(registry.url, **given)


FIRST_ID = {"value": 1, "key": 2}
OF_A = '{"type":"record","name":"R","fields":[{"name":"a","type":["null","int"]},{"name":"x","type":["null","int"],"default":null}]}'


@pytest.mark.parametrize(
    ("given", "latest"),
    [
        ({"use_latest_version": "true"}, ["value", "key"]),
        ({"use_latest_version": "true", "key_use_latest_version": "false"}, ["value"]),
        ({"key_use_latest_version": "true"}, ["key"]),
        ({"use_latest_with_metadata": "o=1", "key_use_latest_version": "false"}, ["value"]),
        ({"use_schema_id": "1", "key_use_latest_version": "true"}, ["value", "key"]),
        ({"key_use_schema_id": "2", "use_latest_version": "true"}, ["value", "key"]),
        ({"key_use_schema_id": "2"}, ["key"]),
        ({}, []),
    ],
    ids=range(8),
)  # fmt: skip
def test_the_schemas_of_keys_and_values_are_chosen_apart(registry, given, latest):
    for part, number in FIRST_ID.items():
        assert registry.add(f"t-{part}", {"schema": OF_A.replace('"R"', f'"R{part}"')}) == number
        registry.metadata[number] = {"o": "1"}
    columns = columns_of(a=IntegerType())
    both = {"key_format": "avro", "key_columns": "a", "value_columns": "a"}
    plan = planned_rows(registry, columns, **both, **given).plan
    ids = {"value": plan.value.plan.prefix[-1], "key": plan.key.plan.prefix[-1]}
    assert [part for part, number in FIRST_ID.items() if ids[part] == number] == latest
    assert (len(registry.schemas) > 2) is (len(latest) < 2), "the others are registered"
