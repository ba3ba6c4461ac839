"""Texts that are never shown."""

import pickle

import pytest

from spark_kafka_sink.base.secret import HIDDEN, Secret

# The last one: a variable of the environment that is not UTF-8, as Python reads it.
TEXTS = ["", "a password: marked", "pässwörd \U0001f511", "caf\udce9"]


@pytest.mark.parametrize("text", TEXTS)
def test_any_text_is_kept_compared_and_pickled(text):
    secret = Secret(text)
    assert secret.reveal() == text
    assert secret == Secret(text)
    assert hash(secret) == hash(Secret(text))
    assert secret != Secret(f"{text}.")
    assert pickle.loads(pickle.dumps(secret)) == secret


def test_no_representation_shows_it():
    secret = Secret("marked")
    for shown in (repr(secret), str(secret), f"{secret}", f"{secret:>20}", f"{[secret]}"):
        assert "marked" not in shown
        assert HIDDEN in shown
    assert b"marked" not in pickle.dumps(secret)
