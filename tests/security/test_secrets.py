"""No secret is shown: every case with marked secrets, and a search in all that is written."""

from __future__ import annotations

import base64
import json
import logging
import pickle
import re
import subprocess
import sys
import traceback
import urllib.parse
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from spark_kafka_sink.base.errors import KafkaSinkError
from spark_kafka_sink.config.producer_config import ProducerConfig
from tests.patience import PATIENCE_S
from tests.security.cases import CASES, World
from tests.security.listeners import SECRETS
from tests.security.stores import KEY_PASSWORD, STORE_PASSWORD, Options
from tests.security.writing import write

pytestmark = pytest.mark.long

NewTopic = Callable[..., str]

ROOT = Path(__file__).parents[2]
_PEM_KEY = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----(.*?)-----END", re.DOTALL)
_PEM_LINE = 32
_CANARY = "a-client-id-that-is-no-secret"


def secrets_in(options: Options) -> set[str]:
    """What must not be seen of these options: passwords, keys, tokens."""
    found = {*SECRETS.values(), STORE_PASSWORD, KEY_PASSWORD}
    for name, value in options.items():
        found |= set(re.findall(r'(?:password|clientSecret)="([^"]+)"', value))
        found |= keys_in(value)
        if name.endswith((".password", ".secret", ".passphrase")):
            found.add(value)
        path = Path(value.removeprefix("file://"))
        if value.startswith(("/", "file:///")) and path.is_file():
            found |= keys_in(path.read_text(encoding="latin-1"))
            if ".token.endpoint.url" in name:
                found.add(path.read_text(encoding="latin-1"))
    return found


def keys_in(text: str) -> set[str]:
    """Pieces of the private keys in ``text``, wherever their lines end."""
    keys = ("".join(body.split()) for body in _PEM_KEY.findall(text))
    return {key[i : i + _PEM_LINE] for key in keys for i in range(40, len(key), 200)} - {""}


def forms_of(secret: str) -> set[str]:
    """How else it may be written."""
    data = secret.encode()
    return {
        secret,
        base64.b64encode(data).decode(),
        urllib.parse.quote(secret),
        json.dumps(secret)[1:-1],
        secret.replace("\\", "\\\\").replace('"', '\\"'),
        repr(secret)[1:-1],
        data.hex(),
    }


def shown(text: str, options: Options) -> set[str]:
    """The secrets that stand in ``text``."""
    return {s for s in secrets_in(options) for form in forms_of(s) if form and form in text}


@pytest.fixture
def logged() -> Iterator[Callable[[], str]]:
    """All that is logged from DEBUG on, by whomever."""
    lines: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(self.format(record))

    handler, root = Keep(logging.DEBUG), logging.getLogger()
    before = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield lambda: "\n".join(lines)
    root.removeHandler(handler)
    root.setLevel(before)


def test_the_search_finds_what_is_shown() -> None:
    options = {
        "kafka.sasl.jaas.config": 'M required username="u" password="marked";',
        "kafka.ssl.keystore.key": "-----BEGIN PRIVATE KEY-----\n" + "abcd" * 40 + "\n-----END",
    }
    assert shown("… marked …", options) == {"marked"}
    assert shown(base64.b64encode(b"marked").decode(), options) == {"marked"}
    assert len(shown("ab" + "abcd" * 40, options)) >= 1
    assert shown("nothing", options) == set()


@pytest.mark.parametrize("case", CASES)
def test_the_producer(
    world: World, new_topic: NewTopic, logged: Callable[[], str], case: str
) -> None:
    """That works, and that fails: with a password, a token or a key that is cut off."""
    options = CASES[case](world)
    write(options, new_topic(), [b"one"])
    given = {key.removeprefix("kafka."): value for key, value in options.items()}
    config = ProducerConfig.parse(given)
    pickled = pickle.dumps(config)
    seen = [logged(), repr(config), str(config), f"{config}", pickled.decode("latin-1")]
    for name in (*options, None):
        if name is not None and is_secret(name):
            seen.append(told_of(world, {**options, name: options[name][:-20] + "x;"}))
    assert shown("\n".join(seen), options) == set()


def is_secret(name: str) -> bool:
    return name.endswith((".password", ".secret", ".jaas.config", ".keystore.key"))


def told_of(world: World, options: Options) -> str:
    """The whole traceback."""
    try:
        write({**options, "kafka.max.block.ms": "10000"}, "a-topic-that-is-not-there", [b"one"])
    except KafkaSinkError:
        return traceback.format_exc()
    return ""


def test_spark(world: World, new_topic: NewTopic, tmp_path: Path) -> None:
    """Driver and executor logs at DEBUG, event log, pages and REST of the UI, exceptions."""
    names = ("SASL-PLAIN", "SASL_TLS-SCRAM-SHA-512", "SASL_TLS-OAUTHBEARER", "jks-EC-at-MUTUAL_EC")
    cases = {name: CASES[name](world) for name in names}
    cases["key by reference"] = by_reference(CASES["pem-text-EC-at-MUTUAL_EC"](world), tmp_path)
    cases["wrong password"] = {**cases["SASL-PLAIN"], **wrong_password()}
    cases["wrong store"] = {
        **cases["jks-EC-at-MUTUAL_EC"],
        "kafka.ssl.keystore.password": "wr0ng-store",
    }
    asked = {
        name: {"options": {**options, "kafka.client.id": _CANARY}, "topic": new_topic()}
        for name, options in cases.items()
    }
    (tmp_path / "cases.json").write_text(json.dumps(asked), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "tests.security.secret_job", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    (tmp_path / "cases.json").unlink()
    assert done.returncode == 0, done.stderr[-3000:]
    outcomes = re.findall(r"^(.+): (written|failed)$", done.stdout, re.MULTILINE)
    assert dict(outcomes) == {name: "failed" if "wrong" in name else "written" for name in cases}
    texts = {"output": done.stdout, "logs": done.stderr}
    for path in [
        *tmp_path.glob("page-*"),
        *(p for p in tmp_path.rglob("events/**/*") if p.is_file()),
    ]:
        texts[str(path.relative_to(tmp_path))] = path.read_text(encoding="utf-8", errors="replace")
    assert sum(_CANARY in text for text in texts.values()) >= 3, "the search sees the options"
    for options in cases.values():
        for place, text in texts.items():
            assert shown(text, options) == set(), place


def wrong_password() -> Options:
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    return {"kafka.sasl.jaas.config": f'{module} required username="alice" password="wr0ng-word";'}


def by_reference(options: Options, folder: Path) -> Options:
    """The private key under a name that Spark prints: it stands in a file."""
    name = "kafka.ssl.keystore.key"
    secrets = folder / "secrets"
    secrets.mkdir()
    (secrets / "key").write_text(options[name])
    return {**options, name: f"${{dir:{secrets}:key}}"}
