"""Of which columns Protobuf messages are made: options, descriptors in files, Spark's schema."""

from __future__ import annotations

import sys

import pytest

from spark_kafka_sink.base.errors import SchemaError
from spark_kafka_sink.spark.row_planning import check_encodable
from tests.formats.protobuf_files import add_field, descriptor_set, one_message
from tests.unit.test_row_planning import PEOPLE, planned, refusal


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
    check_encodable(found)
    assert found.plan.value.plan.protobuf_schema.root == "pkg.Root"
    assert found.plan.key.plan.protobuf_schema.indexes == (0, 0)


@pytest.mark.parametrize(
    ("message", "columns", "words"),
    [
        ("pkg.Other", "id", "made.desc: it has no message 'pkg.Other': there are pkg.Root, "),
        ("pkg.Home", "home.city,id", "message pkg.Home has no field for 'id'"),
        ("pkg.Root", "home.zip,name,id", "message pkg.Root has no field for 'home.zip'"),
    ],
)
def test_what_does_not_fit_a_message(descriptors, message, columns, words):
    with pytest.raises(SchemaError) as refused:
        check_encodable(
            planned(
                PEOPLE,
                value_format="protobuf",
                value_columns=columns,
                value_protobuf_descriptor_file=str(descriptors),
                value_protobuf_message=message,
            )
        )
    assert words in str(refused.value)


def test_a_file_that_is_no_descriptor_set_is_told(tmp_path):
    file = tmp_path / "made.proto"
    file.write_text('syntax = "proto3"; message M {}')
    more = {"value_protobuf_descriptor_file": str(file), "value_protobuf_message": "M"}
    words = refusal(PEOPLE, value_format="protobuf", **more)
    assert "made.proto: it is no descriptor set, which protoc --include_imports" in words


def test_without_protobufs_package_its_installation_is_told(descriptors, monkeypatch):
    monkeypatch.setitem(sys.modules, "google.protobuf.descriptor_pb2", None)
    more = {"value_protobuf_descriptor_file": str(descriptors), "value_protobuf_message": "M"}
    words = refusal(PEOPLE, value_format="protobuf", **more)
    assert "pip install 'pykafka-sink[protobuf]'" in words
