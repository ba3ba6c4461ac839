"""Text from outside, as it is shown: no command for a terminal, and no secret."""

import base64
import html
import json
import pickle
import re
from urllib.parse import quote, quote_plus

import pytest

from spark_kafka_sink.base.text import (
    HIDDEN,
    MOST_SHOWN,
    Credential,
    HeaderCredential,
    Secret,
    SecretUrl,
    printable,
    redacted,
)
from tests.tables import each_row


# The last one: a variable of the environment that is not UTF-8, as Python reads it.
@pytest.mark.parametrize("text", ["", "a password: marked", "pässwörd \U0001f511", "caf\udce9"])
def test_any_text_is_kept_compared_and_pickled_and_is_in_no_representation(text):
    secret = Secret(text)
    assert secret.reveal() == text
    assert secret == Secret(text)
    assert hash(secret) == hash(Secret(text))
    assert secret != Secret(f"{text}.")
    assert pickle.loads(pickle.dumps(secret)) == secret
    for shown in (repr(secret), str(secret), f"{secret}", f"{secret:>20}", f"{[secret]}"):
        assert not text or text not in shown
        assert HIDDEN in shown
    assert b"marked" not in pickle.dumps(secret)


@pytest.mark.parametrize(
    ("url", "parts"),
    [
        ("http://registry:8081/apis", set()),
        ("https://me:pa/ss@w?d@registry:8081/apis", {"me:pa/ss@w?d", "pa/ss@w?d"}),
        ("https://me:pa%2Fssword@registry/", {"me:pa%2Fssword", "pa%2Fssword", "pa/ssword"}),
        ("https://registry/apis?key=marked", {"key=marked"}),
        ("${env:REGISTRY}", set()),
    ],
)
def test_of_a_url_only_credentials_and_query_are_secret(url, parts):
    secret = SecretUrl(url)
    assert secret.parts() == parts
    assert repr(secret) == HIDDEN
    again = pickle.loads(pickle.dumps(secret))
    assert (type(again), again) == (SecretUrl, secret)
    words = redacted(f"asked {url}: no")
    assert all(part not in words for part in parts)
    assert parts or words == f"asked {url}: no"


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
def test_what_is_not_printable_is_escaped(text, escaped):
    assert printable(text) == escaped
    assert printable(text).isprintable()


SECRETS = ("marked-pass", "pä ss/w?rd#&\"'<>\\ \U0001f511", "tab\tand\nline", "a=b+c/d~e%f")


def percents(text):
    return quote(text, safe="")


def base64s(text):
    return base64.b64encode(text.encode()).decode()


ENCODERS = {
    "as it is": str,
    "a URL's path": quote,
    "a URL's query": percents,
    "lower-case %": lambda text: re.sub(r"%..", lambda m: m[0].lower(), percents(text)),
    "a form": quote_plus,
    "each byte with %": lambda text: "".join(f"%{byte:02x}" for byte in text.encode()),
    "twice in a URL": lambda text: percents(percents(text)),
    "JSON": lambda text: json.dumps(text)[1:-1],
    "JSON with other letters": lambda text: json.dumps(text, ensure_ascii=False)[1:-1],
    "JSON in JSON": lambda text: json.dumps(json.dumps(text)),
    "\\u": lambda text: json.dumps(json.dumps("".join(f"\\u{ord(c):04X}" for c in text))),
    "slashes of JSON": lambda text: text.replace("/", "\\/"),
    "HTML": html.escape,
    "HTML's numbers": lambda text: "".join(f"&#{ord(c)};" for c in text),
    "HTML's hexadecimals": lambda text: "".join(f"&#x{ord(c):04X};" for c in text),
    "base64": base64s,
    "base64 without =": lambda text: base64s(text).rstrip("="),
    "base64 of URLs": lambda text: base64.urlsafe_b64encode(text.encode()).decode().rstrip("="),
    "base64 behind a letter": lambda text: f"x{base64s(text)}",
    "base64 in lines": lambda text: re.sub("(.{7})", "\\1\n", base64s(text)),
    "base64 of a form": lambda text: base64s(quote_plus(text)),
    "base64 in a URL": lambda text: percents(base64s(text)),
    "base64 twice": lambda text: base64s(base64s(text)),
    "base64 in JSON": lambda text: base64s(text).replace("/", "\\/"),
    "hexadecimal": lambda text: text.encode().hex(),
    "HEXADECIMAL": lambda text: text.encode().hex().upper(),
    "hexadecimal with colons": lambda text: text.encode().hex(":"),
    "0x": lambda text: " ".join(f"0x{byte:02X}" for byte in text.encode()),
    "Python's bytes": lambda text: repr(text.encode()),
    "\\x": lambda text: "".join(f"\\x{byte:02x}" for byte in text.encode()),
    "octal": lambda text: "".join(f"\\{byte:03o}" for byte in text.encode()),
    "capitals": str.upper,
    "spaced": " ".join,
}


BROKERS_WORDS = (
    "Authentication failed: SASL handshake of client 10.0.0.7:9093 (code 58), 2026-11-23"
)


@each_row("way", ENCODERS)
@each_row("around", ["{}", "app:{}", "client_secret={}&x=y"])
def test_a_secret_that_a_peer_quotes_is_hidden_in_whatever_encoding(around, way):
    for secret in SECRETS:
        encoded = ENCODERS[way](around.format(secret))
        text = redacted(f"{BROKERS_WORDS}: <{encoded}> .", [secret])
        assert HIDDEN in text
        assert not any(word in text for word in encoded.split() if len(word) > 12)
        assert secret not in text
        assert redacted(BROKERS_WORDS, [secret]) == BROKERS_WORDS


@each_row("first", [way for way in ENCODERS if way != "base64 twice"])
def test_what_is_encoded_twice_is_hidden(first):
    for second in ENCODERS.keys() - {"capitals", "spaced", "base64 twice"}:
        encoded = ENCODERS[second](ENCODERS[first]("app:marked-0815-pass"))
        assert HIDDEN in redacted(f"refused: <{encoded}>", ["marked-0815-pass"]), (second, encoded)


@pytest.mark.parametrize("kept", [0.5, 0.75])
def test_a_quoted_credential_that_is_cut_is_hidden(kept):
    secret = "marked-0123456789-abcdefghij-0815"
    for encoded in (secret, base64s(f"app:{secret}"), secret.encode().hex()):
        cut = encoded[: round(len(encoded) * kept) + 16]
        assert HIDDEN in redacted(f"refused: {cut}", [secret])


@pytest.mark.parametrize(
    "password", ["Wq7-zR4.tL9_vB2+kM5~x", "Wq7zR4tL9vB2kM5", "Wq7-zR4.tL9_vB2+kM5~xY8=pN3hC6"]
)
def test_of_what_peers_are_sent_any_half_in_one_piece_is_hidden(password):
    """21, 15 and 29 characters: a broker cuts its quote, and not all have a second block."""
    credential = Credential(password)
    most = max(len(password) // 2 + 3, 11)
    for start in range(len(password) - most + 1):
        part = password[start : start + most]
        assert redacted(f"no such user, <{part}>") == HIDDEN, part
    assert redacted("no such user, <Wq7-zR4.>") != HIDDEN, "a few characters tell little"
    other = Secret("another, which no peer is sent")
    assert redacted("another, which no") == "another, which no", (credential, other)


LATIN = ("hunter2", "p@ss-w0rd", "Tr0ub4d0r&3", "!@#$%^&*()_")
CYRILLIC = "Пароль-Очень-Длинный"
OTHERS = (CYRILLIC, "密码密码是很长的密码", f"{CYRILLIC}-0123456789", f"{CYRILLIC}-" * 4)


@each_row("password", [*LATIN, *OTHERS])
@each_row("way", ["as it is", "capitals", "a URL's query", "JSON", "base64", "hexadecimal"])
def test_half_of_a_password_of_any_length_and_alphabet_is_hidden(password, way):
    credential = Credential(password)
    half = -(-len(password) // 2) if len(password) < 64 else len(password) * 3 // 4
    for part in (password[:half], password[-half:], password[:-1], password[1:]):
        quoted = ENCODERS[way](part)
        assert quoted not in redacted(f"no such user, <{quoted}>"), (part, credential)
    assert redacted("Authentication failed") == "Authentication failed"


@pytest.mark.parametrize("header", ["Bearer marked-0815-pass", "marked-0815-pass", "Basic {}"])
def test_of_a_header_the_scheme_is_not_secret_and_the_rest_is(header):
    secret = HeaderCredential(header.format(base64s("user:marked-0815-pass")))
    shown = redacted(f"of {secret.reveal()} the last is wrong: marked-0815-pass: is it a Bearer?")
    assert "marked" not in shown
    assert base64s("user:marked-0815-pass") not in shown
    again = pickle.loads(pickle.dumps(secret))
    assert (type(again), again) == (HeaderCredential, secret)
    assert redacted("Basic and Bearer are schemes") == "Basic and Bearer are schemes"


def test_every_secret_that_is_alive_is_hidden_and_one_that_is_gone_is_forgotten():
    first, second = Secret("marked-twice"), Secret("marked-twice")
    assert redacted("no marked-twice") == f"no {HIDDEN}"
    del first
    assert redacted("no marked-twice") == f"no {HIDDEN}"
    del second
    assert redacted("no marked-twice") == "no marked-twice"
    text = redacted("no such client: app:marked%2dpass in realm x", ["marked-pass"])
    assert text == f"no such client: {HIDDEN} in realm x", "only the words with a secret"
    # What one secret hides of another does not leave its rest.
    text = "refused: CLIENT-SECRET=PART-ONE SS/W?RD-0815"
    assert redacted(text, ["part-one ss/w?rd-0815", "SS/W?RD-0815"]) == HIDDEN


def test_a_long_token_is_hidden_whole_and_before_the_text_is_cut():
    token = Secret("eyJ" + "x" * 2_000)
    text = redacted("a" * (MOST_SHOWN - 5) + token.reveal() + "b")
    assert "eyJ" not in text
    assert len(text) <= MOST_SHOWN + 2


@pytest.mark.parametrize("length", [40, 6_000])
def test_a_known_secret_is_hidden_where_the_text_is_cut_in_its_middle(length):
    secret = Secret("".join(f"{number:x}-" for number in range(7_000, 9_000))[:length])
    assert secret.reveal()[:25] not in redacted("ab" + secret.reveal() * 400)


def test_of_a_text_without_end_only_the_beginning_is_shown():
    text = redacted("\x1b" * 50_000_000)
    assert text.isprintable()
    assert len(text) == MOST_SHOWN + 2
