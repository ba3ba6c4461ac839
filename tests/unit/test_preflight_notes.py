"""What is told before brokers are asked: options without effect, a file that cannot be written."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql.types import BooleanType, LongType, StructField, StructType

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.config.sink_options import SinkOptions
from spark_kafka_sink.spark import preflight
from spark_kafka_sink.spark.planning import plan_schemas
from spark_kafka_sink.spark.preflight import check_metrics_outputs, log_notes
from spark_kafka_sink.spark.row_planning import plan_rows
from tests.simulation.time import SimClock


def options(**more: str) -> SinkOptions:
    return SinkOptions.parse({"kafka.bootstrap.servers": "noted:1", "topic": "t", **more})


def test_what_has_no_effect_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """Also when another write to the same cluster and topic was told about others before."""
    with caplog.at_level(logging.WARNING, "spark_kafka_sink"):
        log_notes(options())
        log_notes(options(numpartitionsofmine="1"))
        log_notes(options(numpartitionsofmine="1"))
        log_notes(options(numpartitionsofyours="1"))
    assert caplog.messages == [
        "option 'numpartitionsofmine' is not one of this sink's and has no effect",
        "option 'numpartitionsofyours' is not one of this sink's and has no effect",
    ]


def test_micro_batches_of_a_named_write_are_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """Each has options of its own: its number is one of them."""
    kept = len(preflight._noted)
    with caplog.at_level(logging.WARNING, "spark_kafka_sink"):
        for number in range(3):
            log_notes(replace(options(numpartitionsoftheirs="1"), write_version=number))
    assert caplog.messages == [
        "option 'numpartitionsoftheirs' is not one of this sink's and has no effect",
    ]
    assert len(preflight._noted) == kept + 1


def test_what_is_noted_of_columns_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    schema = StructType([StructField("id", LongType()), StructField("gone", BooleanType())])
    given = options(**{"value.format": "json", "value.null.when": "gone"})
    with caplog.at_level(logging.WARNING, "spark_kafka_sink"):
        for _ in range(2):
            plan_schemas(plan_rows(schema, given), given)
    assert len([m for m in caplog.messages if m.startswith("value.null.when without a key")]) == 1


@pytest.mark.parametrize(
    ("name", "needed", "value"),
    [
        ("metrics.path.max.bytes", "metrics.path", "m.jsonl"),
        ("metrics.prometheus.push.job", "metrics.prometheus.push.url", "http://gateway:9091"),
    ],
)
def test_options_of_an_output_that_there_is_not(name: str, needed: str, value: str) -> None:
    assert options(**{name: "7"}).notes == (f"option '{name}' has no effect without {needed}",)
    assert options(**{name: "7", needed: value}).notes == ()


def test_a_metrics_path_that_cannot_be_written(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "metrics.jsonl"
    given = options(**{"metrics.path": str(path)})
    with pytest.raises(ConfigError) as raised:
        check_metrics_outputs(given, is_stream=False)
    assert str(raised.value) == (
        f"metrics.path: cannot append to {path} on the driver: No such file or directory. "
        "Name a file in a folder that is there and may be written to"
    )
    with pytest.raises(ConfigError, match="Is a directory"):
        check_metrics_outputs(options(**{"metrics.path": str(tmp_path)}), is_stream=False)


def test_a_metrics_path_that_can_be_written_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text("line\n")
    check_metrics_outputs(options(**{"metrics.path": str(path)}), is_stream=False)
    assert path.read_text() == "line\n"


def test_a_metrics_path_does_not_end_a_running_stream(tmp_path: Path) -> None:
    """Its commits log it."""
    more = {"metrics.path": str(tmp_path), "checkpointLocation": str(tmp_path)}
    check_metrics_outputs(options(**more), is_stream=True)
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "0").touch()
    with pytest.raises(ConfigError):
        check_metrics_outputs(options(**more), is_stream=True)


SECURED = {
    "kafka.security.protocol": "SASL_PLAINTEXT",
    "kafka.sasl.mechanism": "PLAIN",
    "kafka.sasl.username": "alice",
    "kafka.sasl.password": "p",
}
DEAD = {"errors.tolerance": "all", "errors.deadletterqueue.topic.name": "dead"}


def test_a_verdict_is_of_one_cluster_one_identity_and_one_topic_for_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[SinkOptions] = []
    monkeypatch.setattr(preflight, "_passed_at_ms", {})
    monkeypatch.setattr(preflight, "_rules", {})
    monkeypatch.setattr(preflight, "_check", lambda options, _: asked.append(options))
    others = (
        {},
        {"kafka.bootstrap.servers": "noted:2"},
        {"topic": "u"},
        SECURED,
        {**SECURED, "kafka.sasl.username": "bob"},
        {**SECURED, "kafka.sasl.password": "q"},
        {**SECURED, "kafka.ssl.truststore.location": "f", "kafka.security.protocol": "SASL_SSL"},
        DEAD,
        {**DEAD, "errors.deadletterqueue.topic.name": "others"},
    )
    clock = SimClock(0)
    for given in others * 2:
        preflight.check_cluster(options(**given), True, clock)
    assert len(asked) == len(others)
    clock.ms = options().producer.metadata_max_age_ms
    preflight.check_cluster(options(), True, clock)
    assert len(asked) == len(others) + 1
