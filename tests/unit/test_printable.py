"""Text from outside, as it is shown: nothing in it reaches a terminal as a command."""

from __future__ import annotations

import base64
import gc
import html
import json
from urllib.parse import quote, quote_plus

import pytest

from spark_kafka_sink.base.printable import MOST_SHOWN, printable, shown
from spark_kafka_sink.base.secret import HIDDEN, Secret


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("flights-α 航班", "flights-α 航班"),
        ("\x1b[2J\x1b[Hdone", r"\x1b[2J\x1b[Hdone"),
        ("a\r\nERROR forged", r"a\r\nERROR forged"),
        ("\x9b31m", r"\x9b31m"),
        ("safe\u202etxt.exe\u2028\u200b", r"safe\u202etxt.exe\u2028\u200b"),
        ("\ud800\U000e0001", r"\ud800\U000e0001"),
    ],
)
def test_what_is_not_printable_is_escaped(text: str, escaped: str) -> None:
    assert printable(text) == escaped
    assert printable(text).isprintable()


SECRETS = ("marked-pass", "pä ss/w?rd#&\"'<>\\ \U0001f511", "tab\tand\nline", "a=b+c/d~e%f")


def encodings(secret: str) -> list[str]:
    quoted = quote(secret, safe="")
    basic = [base64.b64encode(f"{'u' * n}:{secret}".encode()).decode() for n in range(3)]
    urlsafe = [base64.urlsafe_b64encode(f"{'u' * n}:{secret}".encode()).decode() for n in range(3)]
    return [
        secret,
        *(quoted, quoted.lower(), quote(quoted), quote_plus(secret), quote_plus(secret).lower()),
        *(json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]),
        "".join(f"\\u{ord(c):04X}" if ord(c) < 0x10000 else c for c in secret),
        *(html.escape(secret), "".join(f"&#{ord(c)};" for c in secret)),
        "".join(f"&#x{ord(c):X};" for c in secret),
        *basic,
        *urlsafe,
        *(text.rstrip("=") for text in (*basic, *urlsafe)),
    ]


@pytest.mark.parametrize("secret", SECRETS)
def test_a_secret_that_a_peer_quotes_is_hidden_in_whatever_encoding(secret: str) -> None:
    for encoded in encodings(secret):
        assert shown(f"refused: <{encoded}> .", [secret]) == f"refused: <{HIDDEN}> ."


def test_every_secret_that_is_alive_is_hidden_and_one_that_is_gone_is_forgotten() -> None:
    first, second = Secret("marked-twice"), Secret("marked-twice")
    assert shown("no marked-twice") == f"no {HIDDEN}"
    del first
    assert shown("no marked-twice") == f"no {HIDDEN}"
    del second
    gc.collect()
    assert shown("no marked-twice") == "no marked-twice"


def test_a_long_token_is_hidden_whole_and_before_the_text_is_cut() -> None:
    token = Secret("eyJ" + "x" * 2_000)
    text = shown("a" * (MOST_SHOWN - 5) + token.reveal() + "b")
    assert "eyJ" not in text
    assert len(text) <= MOST_SHOWN + 2


def test_of_a_text_without_end_only_the_beginning_is_shown() -> None:
    text = shown("\x1b" * 50_000_000)
    assert text.isprintable()
    assert len(text) == MOST_SHOWN + 2
