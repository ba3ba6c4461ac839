"""``pykafka-sink check``: what is wrong with options of rows, without rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_kafka_sink.config.sink_options import SinkOptions
from spark_kafka_sink.tools.checks import formats


def found(**given: str) -> list[str]:
    named = {name.replace("_", "."): value for name, value in given.items()}
    options = SinkOptions.parse({"kafka.bootstrap.servers": "b:1", "topic": "t", **named})
    return [f"{one.outcome.value} {one.subject}: {one.text}" for one in formats(options)]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"value_json_timestampFormat": "YYYY-MM-dd"}, "value.json.timestampFormat=YYYY-MM-dd: "),
        ({"value_avro_schema": "{"}, "value.avro.schema={: the schema is no JSON"),
        ({"value_avro_schema": "/no/x.avsc"}, "value.avro.schema=/no/x.avsc: it is no schema as"),
        (
            {
                "value_json_schema": "/no/x.json",
                "value_schema_id_prefix": "true",
                "schema_registry_url": "http://r",
            },
            "value.json.schema=/no/x.json: it is no schema as",
        ),
        (
            {"value_protobuf_descriptor_file": "/no/x.desc", "value_protobuf_message": "X"},
            "value.protobuf.descriptor.file=/no/x.desc: it cannot be read",
        ),
    ],
)
def test_what_a_job_would_refuse_is_failed(given: dict[str, str], words: str) -> None:
    chosen = next(iter(given)).split("_")[1]
    (told,) = found(value_format=chosen, **given)
    assert told.startswith(f"failed value.format={chosen}: ")
    assert words in told


def test_of_what_is_right_nothing_is_told(tmp_path: Path) -> None:
    file = tmp_path / "x.avsc"
    file.write_text('{"type":"record","name":"R","fields":[]}')
    assert found() == []
    assert found(value_format="avro", value_avro_schema=str(file)) == []
    assert found(value_format="json", value_json_dateFormat="yyyy-MM-dd") == []
