"""topic.creation.configs: a list in which the values may hold commas and equals signs."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_kafka_sink.base.codes import sentence
from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.config.producer_config import (
    BROKER_DEFAULT,
    TopicCreation,
    parse_topic_configs,
)


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("", ()),
        (" , ,", ()),
        ("retention.ms=1000", (("retention.ms", "1000"),)),
        ("a=1,b=2", (("a", "1"), ("b", "2"))),
        (" a = 1 , b=2 ,", (("a", "1"), ("b", "2"))),
        ("a=1,,b=2", (("a", "1"), ("b", "2"))),
        ("a=", (("a", ""),)),
        ("a=x=y", (("a", "x=y"),)),
        ("cleanup.policy=compact,delete", (("cleanup.policy", "compact,delete"),)),
        ("cleanup.policy=compact, delete ,a=1", (("cleanup.policy", "compact,delete"), ("a", "1"))),
        ("l=0:1,1:2,2:0", (("l", "0:1,1:2,2:0"),)),
    ],
)
def test_pairs(text: str, pairs: tuple[tuple[str, str], ...]) -> None:
    assert parse_topic_configs(text) == pairs


@pytest.mark.parametrize(
    ("text", "item"),
    [
        ("retention.ms", "retention.ms"),
        ("retention.ms:1000,a=1", "retention.ms:1000"),
        ("=1", "=1"),
        ("a=1,=2", "=2"),
        ("a=1, = ", "="),
    ],
)
def test_what_is_not_a_pair(text: str, item: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse_topic_configs(text)
    assert sentence(raised.value) == f"topic.creation.configs: '{item}' is not name=value"


WORDS = st.text("abc.:-", min_size=1, max_size=6)


@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(st.lists(st.tuples(WORDS, st.lists(WORDS, min_size=1, max_size=3)), max_size=4))
def test_what_was_joined_is_split_again(configs: list[tuple[str, list[str]]]) -> None:
    pairs = tuple((name, ",".join(values)) for name, values in configs)
    assert parse_topic_configs(",".join(f"{name}={value}" for name, value in pairs)) == pairs


def test_defaults_leave_everything_to_the_brokers() -> None:
    assert TopicCreation()[:3] == (BROKER_DEFAULT, BROKER_DEFAULT, ())
    assert BROKER_DEFAULT == -1
