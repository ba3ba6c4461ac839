from __future__ import annotations

import pytest

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.config.producer_config import parse_bootstrap_servers
from spark_kafka_sink.config.sink_options import SinkOptions
from tests.tables import each_row


@each_row(
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
        ("SASL_SSL://a:9092, plaintext://[::1]:9093", [("a", 9092), ("::1", 9093)]),
        ("my-listener.1://a:1", [("a", 1)]),
    ],
)
def test_addresses(text, expected):
    assert parse_bootstrap_servers(text) == expected


@each_row(
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
        ("SSL://a:9093/chroot", "a broker address has no path"),
        ("a://b://c:1", "a broker address has no path"),
        ("SSL://a", "'SSL://a' is not host:port: the port is missing, write a:9092"),
        ("SSL://:1", "the host is missing"),
        ("SSL://::1:1", "write an IPv6 address in brackets"),
        ("a:9092/chroot", "a broker address has no path"),
        ("a:1;b:2", "separate addresses with commas"),
        ("a:1 b:2", "separate addresses with commas"),
        ("a b:1", "separate addresses with commas"),
    ],
)
def test_what_is_no_address(text, message):
    with pytest.raises(ConfigError) as raised:
        parse_bootstrap_servers(text)
    assert message in str(raised.value)
    assert str(raised.value).startswith("bootstrap.servers")


def test_a_protocol_in_an_address_that_is_not_the_one_used_is_told():
    """Confluent's command line prints addresses so; Java's client drops it in silence."""
    options = {"kafka.bootstrap.servers": "SSL://b:9093,ssl://c:9093"}
    assert SinkOptions.parse(options).notes == (
        "SSL before an address in kafka.bootstrap.servers has no effect: "
        "kafka.security.protocol=PLAINTEXT is used",
    )
    assert SinkOptions.parse({**options, "kafka.security.protocol": "SSL"}).notes == ()
    listener = {"kafka.bootstrap.servers": "EXTERNAL://b:9093"}
    assert SinkOptions.parse(listener).notes == (), "a listener's name says nothing of its protocol"
