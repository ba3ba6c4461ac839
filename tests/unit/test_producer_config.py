"""The producer's keys against Kafka 4.4's ProducerConfig: defaults, bounds, rules across keys."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from spark_kafka_sink.base.codes import sentence
from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.config.config_def import REQUIRED
from spark_kafka_sink.config.producer_config import ACKS_ALL, PRODUCER_CONFIG, ProducerConfig

INT, LONG, STRING = "int", "long", "string"
BOOLEAN = "boolean"

# From the ConfigDef of Kafka 4.4.0: ProducerConfig.CONFIG, CommonClientConfigs, CompressionType.
JAVA = {
    "acks": (STRING, "all"),
    "batch.size": (INT, 16384),
    "buffer.memory": (LONG, 33554432),
    "client.dns.lookup": (STRING, "use_all_dns_ips"),
    "client.rack": (STRING, ""),
    "compression.gzip.level": (INT, -1),
    "compression.lz4.level": (INT, 9),
    "compression.type": (STRING, "none"),
    "compression.zstd.level": (INT, 3),
    "connections.max.idle.ms": (LONG, 540000),
    "delivery.timeout.ms": (INT, 120000),
    "enable.idempotence": (BOOLEAN, True),
    "enable.metrics.push": (BOOLEAN, True),
    "linger.ms": (LONG, 5),
    "max.block.ms": (LONG, 60000),
    "max.in.flight.requests.per.connection": (INT, 5),
    "max.request.size": (INT, 1048576),
    "metadata.cluster.check.enable": (BOOLEAN, True),
    "metadata.max.age.ms": (LONG, 300000),
    "metadata.max.idle.ms": (LONG, 300000),
    "metadata.recovery.rebootstrap.trigger.ms": (LONG, 300000),
    "metadata.recovery.strategy": (STRING, "rebootstrap"),
    "partitioner.adaptive.partitioning.enable": (BOOLEAN, True),
    "partitioner.availability.timeout.ms": (LONG, 0),
    "partitioner.ignore.keys": (BOOLEAN, False),
    "partitioner.rack.aware": (BOOLEAN, False),
    "receive.buffer.bytes": (INT, 32768),
    "reconnect.backoff.max.ms": (LONG, 1000),
    "reconnect.backoff.ms": (LONG, 50),
    "request.timeout.ms": (INT, 30000),
    "retries": (INT, 2147483647),
    "retry.backoff.max.ms": (LONG, 1000),
    "retry.backoff.ms": (LONG, 100),
    "send.buffer.bytes": (INT, 131072),
    "socket.connection.setup.timeout.max.ms": (LONG, 30000),
    "socket.connection.setup.timeout.ms": (LONG, 10000),
    "transaction.timeout.ms": (INT, 60000),
}


def parse(**values: str) -> ProducerConfig:
    """Keys with underscores for dots; bootstrap.servers is given unless named."""
    named = {name.replace("_", "."): value for name, value in values.items()}
    return ProducerConfig.parse({"bootstrap.servers": "b:9092", **named})


def refusal(**values: str) -> str:
    with pytest.raises(ConfigError) as raised:
        parse(**values)
    return sentence(raised.value)


@pytest.mark.parametrize("name", JAVA)
def test_types_and_defaults_are_javas_or_the_difference_is_told(name: str) -> None:
    config_type, default = JAVA[name]
    key = PRODUCER_CONFIG.keys[name]
    assert key.type == config_type
    if key.default != default:
        assert key.java_default == str(default)
        assert key.difference


def test_keys_that_java_does_not_have_as_such() -> None:
    others = {name for name in PRODUCER_CONFIG.keys if name not in JAVA}
    own = {"bootstrap.servers", "client.id", "partitioner"}
    assert others == own | {"allow.auto.create.topics"}
    assert PRODUCER_CONFIG.keys["bootstrap.servers"].default is REQUIRED
    assert PRODUCER_CONFIG.keys["client.id"].java_default == "producer-N"


@pytest.mark.parametrize("name", PRODUCER_CONFIG.keys)
def test_the_table_itself(name: str) -> None:
    key = PRODUCER_CONFIG.keys[name]
    assert key.doc.endswith(".")
    assert key.when.endswith(".")
    assert key.java_default is None or key.difference
    if key.default is not REQUIRED and key.validator is not None:
        assert key.validator(key.default) is None


def test_fields_and_keys_are_the_same() -> None:
    fields = {field.name for field in dataclasses.fields(ProducerConfig)}
    assert fields - {
        "decision_log",
        "max_bytes_per_second",
        "topic_creation",
        "security",
    } == {key.field for key in PRODUCER_CONFIG.keys.values()}


def test_defaults_parsed() -> None:
    config = parse()
    assert config.bootstrap_servers == (("b", 9092),)
    assert config.acks == ACKS_ALL == -1
    assert config.enable_idempotence
    assert config.delivery_timeout_ms == 120_000
    assert config.topic_creation is None


def test_bootstrap_servers() -> None:
    servers = parse(bootstrap_servers=" a:1 , b:2 ,[::1]:3").bootstrap_servers
    assert servers == (("a", 1), ("b", 2), ("::1", 3))
    with pytest.raises(ConfigError, match="Missing required configuration kafka.bootstrap.servers"):
        ProducerConfig.parse({})
    assert "names no broker" in refusal(bootstrap_servers=" ")


@pytest.mark.parametrize(("text", "acks"), [("all", -1), ("-1", -1), ("0", 0), ("1", 1)])
def test_acks(text: str, acks: int) -> None:
    assert parse(acks=text).acks == acks


# Lowest and highest allowed value of each bounded number, and the first that are not.
BOUNDS = {
    "batch.size": (0, None),
    "linger.ms": (0, None),
    "max.block.ms": (0, None),
    "max.request.size": (0, None),
    "retries": (0, 2**31 - 1),
    "retry.backoff.ms": (0, None),
    "retry.backoff.max.ms": (0, None),
    "max.in.flight.requests.per.connection": (1, None),
    "compression.lz4.level": (1, 17),
    "compression.zstd.level": (-131072, 22),
    "partitioner.availability.timeout.ms": (0, None),
    "metadata.max.age.ms": (0, None),
    "metadata.max.idle.ms": (5000, None),
    "metadata.recovery.rebootstrap.trigger.ms": (0, None),
    "reconnect.backoff.ms": (0, None),
    "reconnect.backoff.max.ms": (0, None),
    "send.buffer.bytes": (-1, None),
    "receive.buffer.bytes": (-1, None),
    "delivery.timeout.ms": (0, None),
    "request.timeout.ms": (0, None),
}


@pytest.mark.parametrize("name", BOUNDS)
def test_bounds_are_javas(name: str) -> None:
    key = PRODUCER_CONFIG.keys[name]
    lowest, highest = BOUNDS[name]
    assert key.parse(str(lowest)) == lowest
    beyond: list[Any] = [lowest - 1]
    if highest is not None:
        assert key.parse(str(highest)) == highest
        beyond.append(highest + 1)
    for value in beyond:
        with pytest.raises(
            ConfigError, match=f"Invalid value {value} for configuration kafka.{name}: "
        ):
            key.parse(str(value))


def test_gzip_levels() -> None:
    for level in ("-1", "1", "9"):
        assert parse(compression_gzip_level=level).compression_gzip_level == int(level)
    for level in ("0", "10", "-2"):
        assert "must be -1 or between 1 and 9" in refusal(compression_gzip_level=level)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_the_level_is_that_of_the_codec(codec: str) -> None:
    levels = {"none": None, "gzip": 6, "snappy": None, "lz4": 12, "zstd": -5}
    config = parse(
        compression_type=codec,
        compression_gzip_level="6",
        compression_lz4_level="12",
        compression_zstd_level="-5",
    )
    assert config.compression_level == levels[codec]


def test_codecs_that_do_not_exist() -> None:
    assert "must be one of none, gzip, snappy, lz4, zstd" in refusal(compression_type="brotli")


def test_idempotence_gives_way_to_acks_and_retries() -> None:
    assert not parse(acks="1").enable_idempotence
    assert not parse(acks="0").enable_idempotence
    assert not parse(retries="0").enable_idempotence
    assert parse(acks="-1", retries="1").enable_idempotence
    assert not parse(enable_idempotence="false", acks="1").enable_idempotence


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"retries": "0"},
            "Must set kafka.retries to non-zero when using the idempotent producer.",
        ),
        (
            {"acks": "1"},
            "Must set kafka.acks to all in order to use the idempotent producer. "
            "Otherwise we cannot guarantee idempotence.",
        ),
        (
            {"max_in_flight_requests_per_connection": "6"},
            "To use the idempotent producer, kafka.max.in.flight.requests.per.connection must be set "
            "to at most 5. Current value is 6.",
        ),
    ],
)
def test_idempotence_that_was_asked_for_does_not_give_way(
    values: dict[str, str], message: str
) -> None:
    assert refusal(enable_idempotence="true", **values) == message


def test_more_requests_in_flight_without_idempotence() -> None:
    assert "Current value is 6" in refusal(max_in_flight_requests_per_connection="6")
    config = parse(enable_idempotence="false", max_in_flight_requests_per_connection="6")
    assert config.max_in_flight_requests_per_connection == 6


def test_the_delivery_timeout_covers_linger_and_request() -> None:
    assert parse(request_timeout_ms="130000").delivery_timeout_ms == 130_005
    config = parse(delivery_timeout_ms="1100", linger_ms="100", request_timeout_ms="1000")
    assert config.delivery_timeout_ms == 1100
    message = refusal(delivery_timeout_ms="1099", linger_ms="100", request_timeout_ms="1000")
    assert message == (
        "kafka.delivery.timeout.ms should be equal to or larger than kafka.linger.ms + "
        "kafka.request.timeout.ms"
    )


def test_the_delivery_timeout_does_not_overflow() -> None:
    config = parse(linger_ms=str(2**40), request_timeout_ms=str(2**31 - 1))
    assert config.delivery_timeout_ms == 2**31 - 1
    parse(linger_ms=str(2**40), delivery_timeout_ms=str(2**31 - 1))


@pytest.mark.parametrize("ms", ["200", "5000"])
def test_a_reconnect_pause_without_maximum_is_constant(ms: str) -> None:
    """As CommonClientConfigs.postProcessReconnectBackoffConfigs: it was set to be just that."""
    config = parse(reconnect_backoff_ms=ms)
    assert config.reconnect_backoff_max_ms == int(ms)
    both = parse(reconnect_backoff_ms=ms, reconnect_backoff_max_ms="9000")
    assert both.reconnect_backoff_max_ms == 9000


@pytest.mark.parametrize(
    ("name", "value", "canonical"),
    [
        ("metadata.recovery.strategy", "NONE", "none"),
        ("metadata.recovery.strategy", "Rebootstrap", "rebootstrap"),
    ],
)
def test_words_whose_case_does_not_matter_to_java(name: str, value: str, canonical: str) -> None:
    """CaseInsensitiveValidString in Java's table: the JVM sink takes them."""
    config = ProducerConfig.parse({"bootstrap.servers": "b:9092", name: value})
    assert getattr(config, PRODUCER_CONFIG.keys[name].field) == canonical


@pytest.mark.parametrize(
    "value", ["default", "round-robin", "murmur3", "crc32", "package.module:name"]
)
def test_partitioners(value: str) -> None:
    assert parse(partitioner=value).partitioner == value


def test_a_partitioner_that_does_not_exist() -> None:
    assert "must be one of default, round-robin, murmur3, crc32, or package.module:callable" in (
        refusal(partitioner="sticky")
    )


def test_a_configuration_can_be_a_key() -> None:
    """The pool keeps producers by configuration."""
    assert hash(parse()) == hash(parse())
    assert parse() == parse()
    assert parse() != parse(acks="1")
