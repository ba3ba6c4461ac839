"""``pykafka-sink check``: what is wrong with options of rows, without rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_kafka_sink.cli import main
from spark_kafka_sink.config.sink_options import SinkOptions
from spark_kafka_sink.tools.checks import formats
from spark_kafka_sink.tools.command import EXIT_REFUSED


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


def test_a_properties_file_of_another_client_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As ``broker --secure`` or Kafka's own tools write it: nothing in it is for the sink."""
    path = tmp_path / "client.properties"
    names = ("bootstrap.servers", "security.protocol", "sasl.mechanism", "acks", "a", "b")
    path.write_text("".join(f"{name}=x\n" for name in names))
    assert main(["check", "--properties-file", str(path)]) == EXIT_REFUSED
    assert f"{path}: 6 settings, none begins with spark.pykafka. Write" in capsys.readouterr().err
    path.write_text("spark.master=local\n")
    assert main(["check", "--properties-file", str(path)]) == EXIT_REFUSED
    told = capsys.readouterr().err
    assert "1 setting, which does not begin with spark.pykafka. Write" in told
    path.write_text("spark.pykafka.topic=t\nspark.master=local\n")
    assert main(["check", "--properties-file", str(path)]) == EXIT_REFUSED
    assert "'kafka.bootstrap.servers' must be specified" in capsys.readouterr().err
