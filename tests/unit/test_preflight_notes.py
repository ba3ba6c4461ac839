"""What is told before brokers are asked: options without effect, a file that cannot be written."""

import logging
import socket
import threading
from contextlib import suppress
from dataclasses import replace

import pytest
from pyspark.sql.types import BooleanType, LongType, StructField, StructType

from spark_kafka_sink.base.codes import sentence
from spark_kafka_sink.base.errors import BootstrapError, ConfigError
from spark_kafka_sink.config.sink_options import SinkOptions
from spark_kafka_sink.spark import preflight
from spark_kafka_sink.spark.planning import plan_schemas
from spark_kafka_sink.spark.preflight import check_metrics_outputs, log_notes
from spark_kafka_sink.spark.row_planning import plan_rows
from tests.simulation.time import SimClock


def options(**more):
    return SinkOptions.parse({"kafka.bootstrap.servers": "noted:1", "topic": "t", **more})


def test_what_has_no_effect_is_told_once(caplog):
    """Also when another write to the same cluster and topic was told about others before."""
    with caplog.at_level(logging.WARNING, "spark_kafka_sink"):
        log_notes(options())
        log_notes(options(numpartitionsofmine="1"))
        log_notes(options(numpartitionsofmine="1"))
        log_notes(options(numpartitionsofyours="1"))
    assert caplog.messages == [
        "option 'numpartitionsofmine' is not one of this sink's and has no effect [PKS-OPTION-019]",
        "option 'numpartitionsofyours' is not one of this sink's and has no effect [PKS-OPTION-019]",
    ]


def test_micro_batches_of_a_named_write_are_told_once(caplog):
    """Each has options of its own: its number is one of them."""
    kept = len(preflight._noted)
    with caplog.at_level(logging.WARNING, "spark_kafka_sink"):
        for number in range(3):
            log_notes(replace(options(numpartitionsoftheirs="1"), write_version=number))
    assert caplog.messages == [
        "option 'numpartitionsoftheirs' is not one of this sink's and has no effect [PKS-OPTION-019]",
    ]
    assert len(preflight._noted) == kept + 1


def test_what_is_noted_of_columns_is_told_once(caplog):
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
def test_options_of_an_output_that_there_is_not(name, needed, value):
    assert options(**{name: "7"}).notes == (f"option '{name}' has no effect without {needed}",)
    assert options(**{name: "7", needed: value}).notes == ()


def test_a_metrics_path_that_cannot_be_written(tmp_path):
    path = tmp_path / "missing" / "metrics.jsonl"
    given = options(**{"metrics.path": str(path)})
    with pytest.raises(ConfigError) as raised:
        check_metrics_outputs(given, is_stream=False)
    assert sentence(raised.value) == (
        f"metrics.path: cannot append to {path} on the driver: No such file or directory. "
        "Name a file in a folder that is there and may be written to"
    )
    with pytest.raises(ConfigError, match="Is a directory"):
        check_metrics_outputs(options(**{"metrics.path": str(tmp_path)}), is_stream=False)


def test_a_metrics_path_that_can_be_written_is_left_as_it_is(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text("line\n")
    check_metrics_outputs(options(**{"metrics.path": str(path)}), is_stream=False)
    assert path.read_text() == "line\n"


def test_a_metrics_path_does_not_end_a_running_stream(tmp_path):
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
    monkeypatch,
):
    asked = []
    monkeypatch.setattr(preflight, "_passed_at_ms", {})
    monkeypatch.setattr(preflight, "_letters_with_limits", {})
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


class OtherProtocol(threading.Thread):
    """A listener that sends the same bytes to each client after its first request."""

    def __init__(self, answer):
        super().__init__(daemon=True)
        self.answer = answer
        self.accepted = 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"

    def run(self):
        while True:
            try:
                channel, _ = self.listener.accept()
            except OSError:
                return
            self.accepted += 1
            with channel, suppress(OSError):
                channel.recv(1024)
                channel.sendall(self.answer)
                channel.recv(1024)  # until the client closes


@pytest.mark.parametrize(
    ("answer", "cause"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "this address is an HTTP server"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "this address is not a Kafka listener"),
        (b"\xff\xff\xff\xff", "not a Kafka listener: its first response announces -1 bytes"),
        (b"<!DOCTYPE HTML>", "this address is not a Kafka listener"),
    ],
)
def test_a_port_that_is_not_kafka_is_named_after_its_first_answer(answer, cause):
    """It is asked once, however long the check might take."""
    server = OtherProtocol(answer)
    with server.listener:
        server.start()
        given = {"kafka.bootstrap.servers": server.address, "topic": "t"}
        parsed = SinkOptions.parse({**given, "preflight.timeout.ms": "120000"})
        with pytest.raises(BootstrapError, match=cause):
            preflight.check_cluster(parsed, is_stream=False)
    assert server.accepted == 1


def test_a_stream_that_may_have_committed_waits_for_a_port_that_is_not_kafka(
    caplog,
):
    server = OtherProtocol(b"HTTP/1.1 503 Service Unavailable\r\n\r\n")
    with server.listener, caplog.at_level(logging.WARNING, "spark_kafka_sink"):
        server.start()
        given = {"kafka.bootstrap.servers": server.address, "topic": "t"}
        preflight.check_cluster(SinkOptions.parse(given), is_stream=True)
    (told,) = caplog.messages
    assert "this address is an HTTP server" in told
    assert sentence(told).endswith("the tasks will wait for the brokers")
