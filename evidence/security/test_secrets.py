"""No secret of the producer's is shown: every case, and a search in all that is logged and told."""

import base64
import itertools
import json
import logging
import pickle
import re
import subprocess
import sys
import traceback
from pathlib import Path

import pytest

from evidence.security.searching import secrets_at, secrets_in, shown
from evidence.security.secret_job import PYTHON_LOGS
from spark_kafka_sink.base.errors import KafkaSinkError
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.config.security_config import (
    DEFAULT_REGEX,
    SUGGESTED_REGEX,
    secrets_shown_by_spark,
)
from spark_kafka_sink.config.security_keys import SECRET_KEYS
from spark_kafka_sink.localkafka.settings import MAIN_LISTENER
from tests.patience import PATIENCE_S
from tests.security.acls import allow
from tests.security.cases import CASES
from tests.security.writing import write
from tests.spark.test_streaming import write_file


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


ROOT = Path(__file__).parents[2]
_CANARY = "a-client-id-that-is-no-secret"
_MODULES = "org.apache.kafka.common.security"
_BATCHES = ("SASL-PLAIN", "SASL_TLS-SCRAM-SHA-512", "SASL_TLS-OAUTHBEARER", "jks-EC-at-MUTUAL_EC")
_BY_REFERENCE = "key by reference"
_REFUSED = "CLUSTER_AUTHORIZATION_FAILED"
# Where something of a query is shown, by the beginnings of files' names, and what is known to stand
# there: logs at DEBUG, what tasks fail with.
_PLACES = {
    "output": ("WriteToMicroBatchDataSource", _REFUSED),
    "logs": (" DEBUG ", "Command to send", _CANARY, _REFUSED),
    "events/": ("AppendData", "WriteToMicroBatchDataSource", _REFUSED),
    "page-": ("pykafka-sink", _REFUSED),
    "checkpoint-": ("batchWatermarkMs",),
    "metrics-": ('"event": "commit"', '"event": "abort"'),
    "spark-home/work/": (" DEBUG ", PYTHON_LOGS, _REFUSED),
}


def run_job(folder, cases, master, **conf):
    """How each case ended, and all texts that the job has left, by where."""
    (folder / "in").mkdir()
    write_file(folder / "in", 0)
    asked = {"master": master, "conf": conf, "cases": cases}
    (folder / "asked.json").write_text(json.dumps(asked), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "evidence.security.secret_job", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE_S,  # a dozen of queries
        check=False,
    )
    (folder / "asked.json").unlink()
    assert done.returncode == 0, done.stderr[-3000:]
    outcomes = re.findall(r"^(.+): (written|failed)$", done.stdout, re.MULTILINE)
    texts = {"output": done.stdout, "logs": done.stderr}
    for path in written_by(folder):
        name = str(path.relative_to(folder))
        texts[name] = path.read_text(encoding="utf-8", errors="replace")
    return dict(outcomes), texts


def written_by(folder):
    """Files of the job, without Spark's own and without the secrets that are referred to."""
    for path in folder.rglob("*"):
        is_own = path.relative_to(folder).parts[0] not in ("in", "python", "secrets")
        if is_own and path.is_file() and not any(p.is_symlink() for p in (path, *path.parents)):
            yield path


def test_no_secret_is_shown(world, new_topic, tmp_path):
    """Logs of driver and executors at DEBUG, event log, pages and REST of the UI, explained plans,
    progress, checkpoints, metrics, exceptions: of batches and streams, also of those that fail.
    """
    cases = all_cases(world, new_topic(), tmp_path)
    outcomes, texts = run_job(tmp_path, cases, "local-cluster[2,1,1024]")
    wanted = {name: "failed" if name.startswith("wrong") else "written" for name in cases}
    assert outcomes == wanted, texts["output"][-3000:]
    for place, known in _PLACES.items():
        seen = "".join(text for name, text in texts.items() if name.startswith(place))
        assert [text for text in known if text not in seen] == [], place
    secrets = secrets_at(world.issuer)
    for case in cases.values():
        secrets |= secrets_in(case["options"])
    assert {place: found for place, text in texts.items() if (found := shown(text, secrets))} == {}


def all_cases(world, topic, folder):
    batches = {name: CASES[name](world) for name in _BATCHES}
    batches[_BY_REFERENCE] = by_reference(CASES["pem-text-EC-at-MUTUAL_EC"](world), folder)
    batches["wrong password"] = {**batches["SASL-PLAIN"], **wrong_password()}
    store = {"kafka.ssl.keystore.password": "wr0ng-store"}
    batches["wrong store"] = {**batches["jks-EC-at-MUTUAL_EC"], **store}
    # He may see the topic, and no more: the driver finds nothing wrong, tasks do.
    allow(world.kafka, "bob", "describe", topic)
    bob = world.kafka.client_options("bob", "SASL_TLS", "SCRAM-SHA-512")
    batches["wrong user"] = bob
    streams = {
        "at-least-once": CASES["SASL_TLS-SCRAM-SHA-512"](world),
        "exactly-once": CASES["SASL_TLS-OAUTHBEARER"](world) | exactly_once(topic),
        "exactly-once with a certificate": batches[_BY_REFERENCE] | exactly_once(topic + "-c"),
        "wrong user of a stream": bob,
    }
    return as_cases(batches, topic, folder) | as_cases(streams, topic, folder, is_stream=True)


def as_cases(options, topic, folder, is_stream=False):
    """With what tells the job where it writes."""
    cases = {}
    for name, given in options.items():
        more = {"topic": topic, "kafka.client.id": _CANARY}
        more["metrics.path"] = str(folder / f"metrics-{name}")
        if is_stream:
            more["checkpointLocation"] = str(folder / f"checkpoint-{name}")
        cases[name] = {
            "options": {**given, **more},
            "is_stream": is_stream,
            "by_reference": _BY_REFERENCE in name or "certificate" in name,
        }
    return cases


def exactly_once(prefix):
    return {
        "delivery.guarantee": "exactly-once",
        "transactional.id.prefix": prefix,
        "transaction.log.replication.factor": "2",
    }


def wrong_password():
    module = f"{_MODULES}.plain.PlainLoginModule"
    return {"kafka.sasl.jaas.config": f'{module} required username="alice" password="wr0ng-word";'}


def by_reference(options, folder):
    """The private key under a name that Spark prints: it stands in a file."""
    name = "kafka.ssl.keystore.key"
    secrets = folder / "secrets"
    secrets.mkdir()
    (secrets / "key").write_text(options[name])
    return {**options, name: f"${{dir:{secrets}:key}}"}


def marked(mark, prefix=""):
    """Every option that holds a secret, in clear; each value names its option."""
    options = {f"{prefix}kafka.{name}": f"{mark}-{name}-{mark}" for name in SECRET_KEYS}
    jaas = f"{prefix}kafka.sasl.jaas.config"
    options[jaas] = f'x.PlainLoginModule required username="u" password="{options[jaas]}";'
    return options


def options_seen(mark, texts):
    """Names of those ``marked`` options whose values stand in ``texts``."""
    return {f"kafka.{name}" for text in texts for name in re.findall(f"{mark}-(.+?)-{mark}", text)}


@pytest.mark.parametrize("regex", [DEFAULT_REGEX, SUGGESTED_REGEX], ids=["default", "suggested"])
def test_what_spark_itself_shows_of_options_in_clear(world, new_topic, tmp_path, regex):
    """Of a batch's options, in its logical plan, and of its configuration what the expression, the
    default or that of conf/secured.conf, does not match. Of a stream's options nothing. At DEBUG, the
    driver's log has all that the session's builder was given.
    """
    main = {"kafka.bootstrap.servers": world.kafka.bootstrap_servers_of(MAIN_LISTENER)}
    topic = new_topic()
    cases = as_cases({"batch": marked("in-batch") | main}, topic, tmp_path)
    cases |= as_cases({"stream": marked("in-stream") | main}, topic, tmp_path, is_stream=True)
    conf = marked("in-conf", "spark.pykafka.")
    if regex != DEFAULT_REGEX:
        conf["spark.redaction.regex"] = regex
    outcomes, texts = run_job(tmp_path, cases, "local[2]", **conf)
    assert outcomes == {"batch": "written", "stream": "written"}, texts["output"][-3000:]
    found = {
        (place, mark): seen
        for place in _PLACES
        for mark in ("in-batch", "in-stream", "in-conf")
        if (seen := options_seen(mark, [t for n, t in texts.items() if n.startswith(place)]))
    }
    not_hidden = set(secrets_shown_by_spark(marked("x"), regex, "spark.pykafka."))
    shown_in = itertools.product(("events/", "page-"), ("in-batch", "in-conf"))
    wanted = dict.fromkeys(shown_in, not_hidden) if not_hidden else {}
    everything = {f"kafka.{name}" for name in SECRET_KEYS}
    assert found == {**wanted, ("logs", "in-conf"): everything}
