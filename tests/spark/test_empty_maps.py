"""Maps without a type, as ``map()`` is one, in each format that has maps with keys of text."""

import pytest

from tests.formats.protobuf_files import add_field, add_map, descriptor_set, file_of
from tests.reading import read_topic


@pytest.fixture
def descriptor_file(tmp_path):
    file = file_of()
    root = file.message_type.add(name="Root")
    add_map(root, "m", "string", "int32")
    add_field(root, "a", "int32")
    made = tmp_path / "made.desc"
    made.write_bytes(descriptor_set([file]))
    return str(made)


@pytest.mark.parametrize(("kind", "value"), [("protobuf", b"\x10\1"), ("json", b'{"m":{},"a":1}')])
def test_a_map_without_a_type_is_empty(spark, kafka, new_topic, descriptor_file, kind, value):
    topic = new_topic(1)
    options = {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "topic": topic,
        "value.format": kind,
    }
    if kind == "protobuf":
        options["value.protobuf.descriptor.file"] = descriptor_file
        options["value.protobuf.message"] = "pkg.Root"
    rows = spark.sql("SELECT map() AS m, 1 AS a")
    rows.write.format("pykafka-sink").mode("append").options(**options).save()
    assert [record.value for record in read_topic(kafka.bootstrap_servers, topic)] == [value]
