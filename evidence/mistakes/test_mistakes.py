"""Each mistake of a table is made for real: the text names cause and cure, in few lines."""

from __future__ import annotations

import importlib
import itertools
import re
import shlex
import socket
import sys
import traceback
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

import spark_kafka_sink
from spark_kafka_sink.__main__ import main
from spark_kafka_sink.jobs import failures
from spark_kafka_sink.localkafka import AUTHORIZER
from tests.answering import SameAnswer
from tests.local_kafka import PatientKafka
from tests.patience import NO_OTHER_TIMEOUT, PATIENCE_S

# Minutes on a busy machine: make evidence NAME=mistakes.
pytestmark = pytest.mark.timeout(1800)

ROOT = Path(__file__).parents[2]
MOST_LINES = {"write": 4, "stream": 4}
"""Of the error's text in a script, up to the plan that Spark adds to that of a stream."""
SINK = Path(spark_kafka_sink.__file__).parent
PROGRESS = re.compile(r"[\d,]+ rows")
BASE = {
    **{f"kafka.{name.replace('_', '.')}": value for name, value in NO_OTHER_TIMEOUT.items()},
    "topic": "orders",
    "select": "'v' AS value",
}
_numbers = itertools.count(1)


class Mistake(NamedTuple):
    """One line of the table.

    code: the only one that is shown, without PKS-; empty if Spark or argparse speak, who have none
    status, lines: of a job or a command
    """

    how: str
    given: str
    cause: str
    cure: str
    code: str
    status: int | None = None
    lines: int | None = None


def table():
    """The lines of ``mistakes.txt`` after its head."""
    text = (Path(__file__).parent / "mistakes.txt").read_text(encoding="utf-8")
    for line in text.partition("\n# ")[2].splitlines():
        if " | " in line:
            how, given, cause, cure, code, *numbers = line.split(" | ")
            yield Mistake(how, given, cause, cure, code.strip("-"), *map(int, numbers))


MISTAKES = list(table())


PAGE = b"HTTP/1.1 404 Not Found\r\nContent-Type: text/html\r\nContent-Length: 5\r\n\r\nnope\n"
LISTENERS = {"web": PAGE, "ssh": b"SSH-2.0-OpenSSH_9.6\r\n", "tls": b"\x15\x03\x03\x00\x02\x02\x46"}
CONFS = {
    "other": "bootstrap.servers=b:1\nacks=all\n",
    "misspelt": "spark.pykafka.kafka.bootstrap.server b:1\n",
    "wrong": "spark.pykafka.kafka.bootstrap.servers b:1\nspark.pykafka.kafka.acks 2\n",
    "job": "spark.pykafka.job.inptu x\n",
}


RIGHTS = [
    (ResourceType.TOPIC, "hidden", "other", AclOperation.DELETE),
    (ResourceType.TOPIC, "readonly", "ANONYMOUS", AclOperation.DESCRIBE),
    (ResourceType.TRANSACTIONAL_ID, "theirs", "other", AclOperation.DESCRIBE),
]
"""Whoever is not named has no rights on these, and all rights on what has no rule."""


@pytest.fixture(scope="module")
def broker():
    more = {"super.users": "User:admin", "allow.everyone.if.no.acl.found": "true"}
    with PatientKafka(server_properties={**AUTHORIZER, **more}) as kafka:
        for name in ("orders", "hidden", "readonly"):
            kafka.create_topic(name, 3)
        kafka.create_topic("small", 1, configs={"max.message.bytes": "100000"})
        prefixed, allow = ResourcePatternType.PREFIXED, AclPermissionType.ALLOW
        rules = [
            AclBinding(kind, name, prefixed, f"User:{user}", "*", operation, allow)
            for kind, name, user, operation in RIGHTS
        ]
        client = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        for future in client.create_acls(rules).values():
            future.result(PATIENCE_S)
        yield kafka


@pytest.fixture(scope="module")
def places(broker, tmp_path_factory):
    """What names in braces stand for."""
    folder = tmp_path_factory.mktemp("mistakes")
    (folder / "rows").mkdir()
    (folder / "rows" / "1.json").write_text('{"id": 1}\n')
    (folder / "text").write_text("not a store")
    found = {name: str(folder / name) for name in ("rows", "text", "missing")}
    for name, text in CONFS.items():
        (folder / f"{name}.conf").write_text(text)
        found[f"{name}_conf"] = str(folder / f"{name}.conf")
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        closed = f"127.0.0.1:{unused.getsockname()[1]}"
    found |= {"folder": str(folder), "kafka": broker.bootstrap_servers, "closed": closed}
    with ExitStack() as stack:
        for name, answer in LISTENERS.items():
            found[name] = stack.enter_context(SameAnswer(answer)).address
        yield found


def filled(text, places):
    return re.sub(r"\{(\w+)\}", lambda name: places.get(name[1], name[0]), text)


def _uncaught(caught):
    """Return the text of an error that no frame of the sink precedes."""
    frames = "".join(traceback.format_exception(caught.type, caught.value, caught.tb))
    assert f'File "{SINK}' not in frames
    assert "Traceback" not in str(caught.value)
    return str(caught.value).strip().partition("\n=== Streaming Query ===")[0]


class Kept:
    """A session that a job cannot stop."""

    def __init__(self, session):
        self.session = session

    def __getattr__(self, name):
        return getattr(self.session, name)

    def stop(self):
        pass


class Hands:
    """Makes a mistake, and returns all that is shown."""

    def __init__(self, spark, places, monkeypatch, capfd):
        self.spark, self.places = spark, places
        self.monkeypatch, self.capfd = monkeypatch, capfd
        self.status = None

    def write(self, given):
        columns, options = self._of_script(given)
        writer = self.spark.sql(f"SELECT {columns}").write.format("pykafka-sink")
        with pytest.raises(Exception) as caught:
            writer.mode("append").options(**options).save()
        return _uncaught(caught)

    def stream(self, given):
        columns, options = self._of_script(given)
        rows = self.spark.readStream.format("text").load(self.places["rows"]).selectExpr(columns)
        checkpoint = f"{self.places['folder']}/checkpoint-{next(_numbers)}"
        writer = rows.writeStream.format("pykafka-sink").options(**options)
        query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        with pytest.raises(Exception) as caught:
            query.awaitTermination(PATIENCE_S)
        return _uncaught(caught)

    def _of_script(self, given):
        options = {**BASE, "kafka.bootstrap.servers": self.places["kafka"]}
        for word in shlex.split(given):
            name, _, value = word.partition("=")
            if name.startswith("-"):
                del options[name[1:]]
            else:
                options[name] = filled(value, self.places)
        return options.pop("select"), options

    def job(self, given):
        name, *arguments = shlex.split(filled(given, self.places))
        self.monkeypatch.syspath_prepend(str(ROOT / "jobs"))
        self.monkeypatch.setattr(failures, "open_session", lambda: Kept(self.spark))
        self.monkeypatch.setattr(sys, "argv", [name, *arguments])
        shown = self._ended(importlib.import_module(name).main)
        return "\n".join(line for line in shown.splitlines() if not PROGRESS.match(line))

    def command(self, given):
        arguments = shlex.split(filled(given, self.places))
        return self._ended(lambda: main(arguments))

    def _ended(self, run):
        self.capfd.readouterr()
        try:
            self.status = run()
        except SystemExit as ended:
            self.status = ended.code
        return "".join(self.capfd.readouterr())


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: f"{mistake.how}: {mistake.given}")
def test_a_mistake(spark, places, mistake, monkeypatch, capfd):
    hands = Hands(spark, places, monkeypatch, capfd)
    shown = getattr(hands, mistake.how)(mistake.given)
    for part in (mistake.cause, mistake.cure):
        assert filled(part, places) in shown
    assert re.findall(r"\[PKS-([A-Z]+-\d+)\]", shown) == ([mistake.code] if mistake.code else [])
    if mistake.status is None:
        assert len(shown.splitlines()) <= MOST_LINES[mistake.how]
    else:
        assert (hands.status, len(shown.splitlines())) == (mistake.status, mistake.lines)


def test_the_table_has_at_least_90_mistakes_and_names_cause_and_cure_of_each():
    assert len({(mistake.how, mistake.given) for mistake in MISTAKES}) == len(MISTAKES) >= 90
    assert all(len(mistake.cause) > 5 < len(mistake.cure) for mistake in MISTAKES)
