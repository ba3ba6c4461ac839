"""The table of options: types, validators, defaults, near names. As Kafka's ConfigDef."""

from __future__ import annotations

from typing import Any

import pytest

from spark_kafka_sink.base.codes import sentence
from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.config.config_def import (
    REQUIRED,
    ConfigDef,
    ConfigKey,
    ConfigType,
    Validator,
    at_least,
    between,
    one_of,
)


def key(
    config_type: ConfigType,
    default: Any = None,
    validator: Validator | None = None,
    name: str = "some.key",
) -> ConfigKey:
    return ConfigKey(name, config_type, default, validator)


@pytest.mark.parametrize(
    ("config_type", "text", "value"),
    [
        ("boolean", "true", True),
        ("boolean", " FALSE ", False),
        ("boolean", "True", True),
        ("int", "0", 0),
        ("int", " 42\n", 42),
        ("int", "+7", 7),
        ("int", "007", 7),
        ("int", "-2147483648", -(2**31)),
        ("int", "2147483647", 2**31 - 1),
        ("long", "2147483648", 2**31),
        ("long", "9223372036854775807", 2**63 - 1),
        ("long", "-9223372036854775808", -(2**63)),
        ("string", " text ", "text"),
        ("string", "", ""),
        ("list", "a, b ,c", ["a", "b", "c"]),
        ("list", "", []),
        ("list", " , a,,", ["a"]),
    ],
)
def test_values(config_type: ConfigType, text: str, value: Any) -> None:
    parsed = key(config_type).parse(text)
    assert parsed == value
    assert type(parsed) is type(value)


@pytest.mark.parametrize(
    ("config_type", "text"),
    [
        ("boolean", ""),
        ("boolean", "yes"),
        ("boolean", "1"),
        ("int", ""),
        ("int", "1.0"),
        ("int", "1e3"),
        ("int", "0x10"),
        ("long", "five"),
        # Python's own notations: Java's parseInt refuses them, and so would a broker's tools.
        ("int", "1_000"),
        ("long", "60_000"),
    ],
)
def test_what_is_not_of_the_type(config_type: ConfigType, text: str) -> None:
    with pytest.raises(ConfigError) as raised:
        key(config_type).parse(text)
    valid = "true or false" if config_type == "boolean" else "a whole number"
    assert (
        sentence(raised.value)
        == f"Invalid value {text} for configuration some.key: must be {valid}"
    )


@pytest.mark.parametrize(
    ("config_type", "text", "problem"),
    [
        ("int", "2147483648", "must be between -2147483648 and 2147483647"),
        ("int", "-2147483649", "must be between -2147483648 and 2147483647"),
        ("int", "9" * 5000, "must be between -2147483648 and 2147483647"),
        (
            "long",
            "9223372036854775808",
            "must be between -9223372036854775808 and 9223372036854775807",
        ),
        (
            "int",
            "128k",
            "not a whole number: write it without a unit, in milliseconds or bytes",
        ),
        (
            "long",
            "1.5 s",
            "not a whole number: write it without a unit, in milliseconds or bytes",
        ),
    ],
)
def test_numbers_out_of_range_and_with_a_unit(
    config_type: ConfigType, text: str, problem: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        key(config_type).parse(text)
    assert sentence(raised.value) == f"Invalid value {text} for configuration some.key: {problem}"


@pytest.mark.parametrize(
    ("validator", "good", "bad", "problem"),
    [
        (at_least(0), ["0", "5"], "-1", "must be at least 0"),
        (between(1, 17), ["1", "17"], "18", "must be between 1 and 17"),
        (between(1, 17), ["9"], "0", "must be between 1 and 17"),
    ],
)
def test_validators_of_numbers(
    validator: Validator, good: list[str], bad: str, problem: str
) -> None:
    checked = key("int", validator=validator)
    assert [checked.parse(text) for text in good] == [int(text) for text in good]
    with pytest.raises(ConfigError) as raised:
        checked.parse(bad)
    assert sentence(raised.value) == f"Invalid value {bad} for configuration some.key: {problem}"


def test_one_of_is_exact() -> None:
    checked = key("string", validator=one_of("none", "zstd"))
    assert checked.parse(" zstd ") == "zstd"
    for text in ("ZSTD", "zst", ""):
        with pytest.raises(ConfigError, match="must be one of none, zstd"):
            checked.parse(text)


def test_field_names() -> None:
    assert key("int", name="max.in.flight.requests").field == "max_in_flight_requests"


TABLE = ConfigDef(
    "",
    key("string", REQUIRED, name="bootstrap.servers"),
    key("int", 5, at_least(0), name="linger.ms"),
    key("string", None, name="topic"),
)


def test_every_key_is_in_the_result() -> None:
    parsed = TABLE.parse({"bootstrap.servers": "a:1"})
    assert parsed == {"bootstrap_servers": "a:1", "linger_ms": 5, "topic": None}
    parsed = TABLE.parse({"bootstrap.servers": "a:1", "linger.ms": "9", "topic": "t"})
    assert parsed == {"bootstrap_servers": "a:1", "linger_ms": 9, "topic": "t"}


def test_a_required_key() -> None:
    with pytest.raises(ConfigError) as raised:
        TABLE.parse({"topic": "t"})
    assert sentence(raised.value) == (
        "Missing required configuration bootstrap.servers, which has no default"
    )


def test_an_unknown_key_is_told_before_one_that_is_missing() -> None:
    with pytest.raises(ConfigError) as raised:
        TABLE.parse({"bootstrap.server": "a:1"})
    assert sentence(raised.value) == (
        "unknown option 'bootstrap.server'. Did you mean 'bootstrap.servers'?"
    )


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [
        ("lingerms", ". Did you mean 'linger.ms'?"),
        ("linger_ms", ". Did you mean 'linger.ms'?"),
        ("tpoic", ". Did you mean 'topic'?"),
        ("group.id", ""),
        ("", ""),
    ],
)
def test_near_names(name: str, suggestion: str) -> None:
    assert TABLE.suggestion(name) == suggestion


def test_messages_have_the_tables_prefix() -> None:
    table = ConfigDef("kafka.", key("int", REQUIRED, at_least(0), name="linger.ms"))
    assert table.suggestion("lingerms") == ". Did you mean 'kafka.linger.ms'?"
    assert table.closest_name("interceptors", ["interceptor.s"]) == "interceptor.s"
    assert table.closest_name("zzz", ["interceptor.s"]) is None
    assert table.suggestion("zzz") == ""
    expected: list[tuple[dict[str, str], str]] = [
        ({}, "Missing required configuration kafka.linger.ms, which has no default"),
        ({"lingerms": "1"}, "unknown option 'kafka.lingerms'. Did you mean 'kafka.linger.ms'?"),
        (
            {"linger.ms": "-1"},
            "Invalid value -1 for configuration kafka.linger.ms: must be at least 0",
        ),
    ]
    for values, message in expected:
        with pytest.raises(ConfigError) as raised:
            table.parse(values)
        assert sentence(raised.value) == message
