"""``pykafka-sink transactions`` with an address at which nobody listens."""

from __future__ import annotations

import socket

import pytest

from spark_kafka_sink.cli import main


def test_a_wrong_address_is_told_in_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    """An hour's patience is for brokers that answer: otherwise this test would not end."""
    with socket.socket() as bound:  # not listening: nobody else can
        bound.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{bound.getsockname()[1]}"
        arguments = ["--bootstrap-server", address, "--timeout", "3600000"]
        assert main(["transactions", "list", *arguments]) == 1
    error = capsys.readouterr().err
    assert f"no broker reachable: {address} (Connection refused)" in error
