"""Options whose value is one of a few words: those that the Java producer takes, and no others."""

import pytest

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.config.producer_config import PRODUCER_CONFIG
from spark_kafka_sink.config.security_keys import SECURITY_CONFIG
from tests.golden import case_files as cases

KEYS = {**PRODUCER_CONFIG.keys, **SECURITY_CONFIG.keys}


def is_taken(key, text):
    try:
        key.parse(text)
    except ConfigError:
        return False
    return True


@pytest.mark.parametrize("case", cases.load("words"), ids=cases.name_of)
def test_words_are_those_of_the_java_producer(case):
    key = KEYS[case["name"]]
    assert {text: is_taken(key, text) for text in case["taken"]} == case["taken"]
