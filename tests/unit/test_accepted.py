"""What runs with Spark's JVM sink, or did run with this one, is not rejected by a check of names."""

from __future__ import annotations

import functools
import socket
import threading
from contextlib import suppress
from typing import Any

import pytest

from spark_kafka_sink.base.errors import BootstrapError
from spark_kafka_sink.config.sink_options import SinkOptions, rejection_reason
from spark_kafka_sink.spark import preflight

SERVERS = {"kafka.bootstrap.servers": "b:9092"}
HERE = "tests.unit.test_accepted"


@pytest.mark.parametrize("kind", ["serializer", "deserializer", "Serializer"])
@pytest.mark.parametrize("part", ["key", "value"])
def test_serializers_without_prefix_have_no_effect_as_in_the_jvm_sink(kind: str, part: str) -> None:
    name = f"{part}.{kind}"
    (note,) = SinkOptions.parse({**SERVERS, name: "org.apache.kafka.Some"}).notes
    assert (
        note
        == f"option '{name.lower()}' is not one of this sink's and has no effect [PKS-OPTION-019]"
    )


@pytest.mark.parametrize("name", ["key.serializers", "value.serialiser", "value.formatt"])
def test_other_names_with_these_prefixes_are_rejected(name: str) -> None:
    assert "is not one of this sink's" in (rejection_reason(name) or "")


def with_log(function: Any) -> Any:
    """A decorator that passes one argument more."""

    @functools.wraps(function)
    def wrapper(self: Any, *arguments: Any) -> Any:
        return function(self, *arguments, "log")

    return wrapper


class Decorated:
    """Its methods take what the sink passes, although their signatures show the wrapped ones'."""

    @with_log
    def on_send(self, arrow_batch: Any, log: str) -> Any:
        return arrow_batch

    @with_log
    def on_acknowledgement(self, summary: Any, log: str) -> None: ...


class Named:
    def __init__(self, name: str) -> None:
        self.name = name

    def on_send(self, arrow_batch: Any) -> Any:
        return arrow_batch


@functools.wraps(Named)
def make_named() -> Named:
    return Named("name")


@pytest.mark.parametrize("name", ["Decorated", "make_named"])
def test_interceptors_with_decorators_are_accepted(name: str) -> None:
    entry_point = f"{HERE}:{name}"
    assert SinkOptions.parse({**SERVERS, "interceptors": entry_point}).interceptors == (
        entry_point,
    )


def http_server(ip: str, port: int) -> tuple[socket.socket, list[bytes]]:
    """A listener that is no broker, and what its clients have sent."""
    listener = socket.create_server((ip, port))
    received: list[bytes] = []

    def serve() -> None:
        with suppress(OSError):
            while True:
                channel, _ = listener.accept()
                with channel, suppress(OSError):
                    received.append(channel.recv(1024))
                    channel.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                    channel.recv(1024)  # until the client closes

    threading.Thread(target=serve, daemon=True).start()
    return listener, received


def test_each_address_of_a_bootstrap_name_is_asked_before_the_check_gives_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As of localhost, whose IPv6 address may have another server at the port of the broker."""
    first, first_received = http_server("127.0.0.1", 0)
    port = first.getsockname()[1]
    second, second_received = http_server("127.0.0.2", port)
    find = socket.getaddrinfo

    def find_both(host: Any, *arguments: Any, **options: Any) -> Any:
        if host != "two-addresses":
            return find(host, *arguments, **options)
        if options.get("flags", 0) & socket.AI_NUMERICHOST:
            raise socket.gaierror(socket.EAI_NONAME, "not an address")
        ips = ("127.0.0.1", "127.0.0.2")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (ip, port)) for ip in ips]

    monkeypatch.setattr(socket, "getaddrinfo", find_both)
    given = {"kafka.bootstrap.servers": f"two-addresses:{port}", "topic": "t"}
    options = SinkOptions.parse({**given, "preflight.timeout.ms": "3600000"})
    with first, second, pytest.raises(BootstrapError, match="this address is an HTTP server"):
        preflight.check_cluster(options, is_stream=False)
    assert (len(first_received), len(second_received)) == (1, 1)
