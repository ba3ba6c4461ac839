from __future__ import annotations

import pytest

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.config.bootstrap import parse_bootstrap_servers


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("localhost:9092", [("localhost", 9092)]),
        ("a:1,b.example-1.org:65535", [("a", 1), ("b.example-1.org", 65535)]),
        (" a:1 ,\tb:2\n", [("a", 1), ("b", 2)]),
        ("a:1,,b:2,", [("a", 1), ("b", 2)]),
        ("a:1,b:2,a:1", [("a", 1), ("b", 2)]),
        ("[::1]:9092", [("::1", 9092)]),
        ("127.0.0.1:1,[fe80::1%eth0]:2", [("127.0.0.1", 1), ("fe80::1%eth0", 2)]),
        ("a:09092", [("a", 9092)]),
    ],
)
def test_addresses(text: str, expected: list[tuple[str, int]]) -> None:
    assert parse_bootstrap_servers(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "names no broker: expected host:port,host:port"),
        (" , ", "names no broker"),
        ("broker1", "'broker1' is not host:port: the port is missing, write broker1:9092"),
        ("a:1,broker1", "'broker1' is not host:port"),
        ("[::1]", "the port is missing, write [::1]:9092"),
        ("::1:9092", "write an IPv6 address in brackets, like [::1]:9092"),
        ("fe80::1", "in brackets"),
        (":9092", "the host is missing"),
        ("a:", "the port must be a number"),
        ("a:port", "the port must be a number"),
        ("a:-1", "the port must be a number"),
        ("a:٣", "the port must be a number"),
        ("a:0", "'a:0' has a port outside 1 to 65535"),
        ("a:65536", "has a port outside"),
        ("SSL://a:9093", "leave out the protocol, kafka.security.protocol chooses it"),
        ("a:9092/chroot", "a broker address has no path"),
        ("a:1;b:2", "separate addresses with commas"),
        ("a:1 b:2", "separate addresses with commas"),
        ("a b:1", "separate addresses with commas"),
    ],
)
def test_what_is_no_address(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse_bootstrap_servers(text)
    assert message in str(raised.value)
    assert str(raised.value).startswith("bootstrap.servers")
