"""The options of limits and pauses."""

from __future__ import annotations

import pytest

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.config.limits import LimitConfig
from spark_kafka_sink.config.sink_options import SinkOptions
from spark_kafka_sink.config.told_settings import told_settings


def options(**given: str) -> SinkOptions:
    named = {name.replace("_", "."): value for name, value in given.items()}
    return SinkOptions.parse({"kafka.bootstrap.servers": "b:9092", **named})


def test_without_options_there_is_no_limit() -> None:
    assert options().limits is None
    assert options(limit_server_port="7000").limits is None


@pytest.mark.parametrize("name", ["limit.server.host", "limit.server.port"])
def test_a_server_that_nothing_needs_is_noted(name: str) -> None:
    [note] = options(**{name: "7000"}).notes
    assert note == (
        f"option '{name}' has no effect without max.bytes.per.second, max.records.per.second or "
        "pause.path"
    )
    assert not options(**{name: "7000", "pause.path": "/held"}).notes


def test_options_make_limits() -> None:
    assert options(max_bytes_per_second="1000").limits == LimitConfig(1000, None, None)
    assert options(pause_path="/held").limits == LimitConfig(None, None, "/held")


def test_a_limit_below_a_batch_is_noted() -> None:
    [note] = options(max_bytes_per_second="1000").notes
    assert "max.bytes.per.second = 1000 is less than kafka.batch.size" in note
    assert not options(max_bytes_per_second="1000", kafka_batch_size="1000").notes
    assert not options(max_records_per_second="1").notes


@pytest.mark.parametrize("name", ["max_bytes_per_second", "max_records_per_second"])
def test_a_limit_of_nothing_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=name.replace("_", ".")):
        options(**{name: "0"})


def test_the_metrics_tell_of_a_limit() -> None:
    told = told_settings(options(max_bytes_per_second="1000", pause_path="/held"))
    assert told["max.bytes.per.second"] == "1000"
    assert "max.records.per.second" not in told
