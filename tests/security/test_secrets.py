"""No secret of the producer's is shown: every case, and a search in all that is logged and told."""

import base64
import logging
import pickle
import traceback
from collections.abc import Callable

import pytest

from spark_kafka_sink.base.errors import KafkaSinkError
from spark_kafka_sink.config.producer_config import ProducerConfig
from tests.security.cases import CASES
from tests.security.searching import secrets_at, secrets_in, shown
from tests.security.writing import write

pytestmark = pytest.mark.long

NewTopic = Callable[..., str]


@pytest.fixture
def logged():
    """All that is logged from DEBUG on, by whomever."""
    lines = []

    class Keep(logging.Handler):
        def emit(self, record):
            lines.append(self.format(record))

    handler, root = Keep(logging.DEBUG), logging.getLogger()
    before = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield lambda: "\n".join(lines)
    root.removeHandler(handler)
    root.setLevel(before)


def test_the_search_finds_what_is_shown():
    options = {
        "kafka.sasl.jaas.config": 'M required username="u" password="marked";',
        "kafka.ssl.keystore.key": "-----BEGIN PRIVATE KEY-----\n" + "abcd" * 40 + "\n-----END",
    }
    secrets = secrets_in(options)
    assert shown("… marked …", secrets) == {"marked"}
    assert shown(base64.b64encode(b"marked").decode(), secrets) == {"marked"}
    assert len(shown("ab" + "abcd" * 40, secrets)) >= 1
    assert shown("nothing", secrets) == set()


@pytest.mark.parametrize("case", CASES)
def test_the_producer(world, new_topic, logged, case):
    """That works, and that fails: with a password, a token or a key that is cut off."""
    options = CASES[case](world)
    write(options, new_topic(), [b"one"])
    given = {key.removeprefix("kafka."): value for key, value in options.items()}
    config = ProducerConfig.parse(given)
    pickled = pickle.dumps(config)
    seen = [logged(), repr(config), str(config), f"{config}", pickled.decode("latin-1")]
    for name in options:
        if is_secret(name):
            seen.append(told_of({**options, name: options[name][:-20] + "x;"}))
    secrets = secrets_in(options) | secrets_at(world.issuer)
    assert shown("\n".join([*seen, logged()]), secrets) == set()


def is_secret(name):
    return name.endswith((".password", ".secret", ".jaas.config", ".keystore.key"))


def told_of(options):
    """The whole traceback."""
    try:
        write({**options, "kafka.max.block.ms": "10000"}, "a-topic-that-is-not-there", [b"one"])
    except KafkaSinkError:
        return traceback.format_exc()
    return ""
