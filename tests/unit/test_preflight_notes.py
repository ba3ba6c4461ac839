"""Options without effect are told in the driver's log: once for each set of options."""

from __future__ import annotations

import logging

import pytest

from spark_kafka_sink.config.sink_options import SinkOptions
from spark_kafka_sink.spark.preflight import log_notes


def options(**more: str) -> SinkOptions:
    return SinkOptions.parse({"kafka.bootstrap.servers": "noted:1", "topic": "t", **more})


def test_each_set_of_options_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
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
