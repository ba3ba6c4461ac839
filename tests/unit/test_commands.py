"""Commands that messages name can be pasted and run."""

from __future__ import annotations

import shlex

import pytest

from spark_kafka_sink.base.errors import TransactionError
from spark_kafka_sink.cli import _parser
from spark_kafka_sink.config.sink_options import SinkOptions
from spark_kafka_sink.spark.writer import complete_commands, completed_commands

OPTIONS = {
    "kafka.bootstrap.servers": "a:9092,[::1]:9093",
    "delivery.guarantee": "exactly-once",
    "transactional.id.prefix": "my prefix",
}
ADDRESS = "--bootstrap-server 'a:9092,[::1]:9093' --prefix 'my prefix'"


@pytest.mark.parametrize(
    ("text", "more", "completed"),
    [
        (
            "or by pykafka-sink transactions resolve",
            {},
            f"or by pykafka-sink transactions resolve {ADDRESS}",
        ),
        (
            "on purpose: pykafka-sink transactions release --prefix my prefix",
            {},
            f"on purpose: pykafka-sink transactions release {ADDRESS}",
        ),
        (
            "Confirm: pykafka-sink transactions resolve --prefix my prefix --as-written",
            {"transaction.log.topic": "other-log"},
            f"Confirm: pykafka-sink transactions resolve {ADDRESS} --log-topic other-log "
            "--as-written",
        ),
        ("nothing to run", {}, "nothing to run"),
    ],
)
def test_commands_are_completed(text: str, more: dict[str, str], completed: str) -> None:
    options = SinkOptions.parse({**OPTIONS, **more})
    assert complete_commands(text, options) == completed
    _, found, command = completed.partition("pykafka-sink ")
    if found:
        arguments = _parser().parse_args(shlex.split(command))
        assert arguments.bootstrap_servers == "a:9092,[::1]:9093"
        assert arguments.prefix == "my prefix"


def test_an_error_that_passes_keeps_its_kind_and_cause() -> None:
    cause = KeyError("cause")
    with pytest.raises(TransactionError) as raised, completed_commands(SinkOptions.parse(OPTIONS)):
        raise TransactionError(
            "run pykafka-sink transactions release --prefix my prefix"
        ) from cause
    assert str(raised.value) == f"run pykafka-sink transactions release {ADDRESS}"
    assert raised.value.__cause__ is cause


def test_without_exactly_once_there_is_nothing_to_complete() -> None:
    options = SinkOptions.parse({"kafka.bootstrap.servers": "a:1"})
    assert complete_commands("pykafka-sink transactions list", options) == (
        "pykafka-sink transactions list"
    )
