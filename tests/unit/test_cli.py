from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from types import TracebackType

import pytest

import spark_kafka_sink
from spark_kafka_sink import localkafka
from spark_kafka_sink.cli import main
from spark_kafka_sink.localkafka import DEFAULT_VERSION, LocalKafkaError
from spark_kafka_sink.tools.broker import TopicArgument


class FakeKafka:
    """Fails as told; remembers what it was asked for."""

    asked: tuple[object, ...] = ()
    topics: dict[str, int]
    failure = "broker 1 ended by itself"

    def __init__(self, brokers: int, version: str, security: object, step: object) -> None:
        assert security is None
        type(self).asked = (brokers, version)
        type(self).topics = {}
        self.bootstrap_servers = "127.0.0.1:1"

    def __enter__(self) -> FakeKafka:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        pass

    def create_topic(self, name: str, partitions: int) -> None:
        self.topics[name] = partitions

    def await_failure(self, timeout_ms: int) -> str:
        return self.failure


class FailingKafka(FakeKafka):
    def __enter__(self) -> FakeKafka:
        raise LocalKafkaError("no java")


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        main(["--version"])
    assert raised.value.code == 0
    assert capsys.readouterr().out == f"pykafka-sink {spark_kafka_sink.__version__}\n"


def test_as_a_module() -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "spark_kafka_sink", "--version"], capture_output=True, text=True
    )
    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout == f"pykafka-sink {spark_kafka_sink.__version__}\n"


def test_without_a_command_shows_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "broker" in capsys.readouterr().err


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from spark_kafka_sink.cli import main\n"
        "try: main(['broker', '--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'numba', 'numpy', 'pyarrow', 'pyspark', 'spark_kafka_sink.localkafka'}\n"
        "sys.exit(str(heavy & set(sys.modules)) if heavy & set(sys.modules) else 0)"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (shown.returncode, shown.stderr) == (0, "")


def test_localkafka_imports_nothing_heavy() -> None:
    code = (
        "import sys; import spark_kafka_sink.localkafka\n"
        "heavy = {'numba', 'numpy', 'pyarrow', 'pyspark'} & set(sys.modules)\n"
        "sys.exit(str(heavy) if heavy else 0)"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (shown.returncode, shown.stderr) == (0, "")


@pytest.mark.parametrize("wrong", [["nonsense"], ["broker", "--brokers", "2"]])
def test_wrong_usage(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        main(wrong)
    assert raised.value.code == 2
    assert "usage: pykafka-sink" in capsys.readouterr().err


@pytest.mark.parametrize(
    "command",
    [
        ["broker"],
        ["package"],
        ["jobs"],
        ["job"],
        ["conf"],
        ["docs"],
        ["transactions"],
        *(["transactions", name] for name in ("list", "describe", "resolve", "abort", "release")),
    ],
)
def test_every_help_ends_with_examples(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as raised:
        main([*command, "--help"])
    assert raised.value.code == 0
    _, _, examples = capsys.readouterr().out.partition("\nexamples:\n")
    commands = [line for line in examples.splitlines() if not line.startswith("  #")]
    assert any("pykafka-sink " + " ".join(command) in line for line in commands)


def test_every_command_is_in_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    shown = capsys.readouterr().err
    for command in ("broker", "transactions", "package", "jobs", "job", "conf", "docs"):
        assert re.search(rf"^    {command}\b", shown, re.MULTILINE)


class TestBroker:
    def test_options(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr(localkafka, "LocalKafka", FakeKafka)
        arguments = [
            "--brokers",
            "3",
            "--version",
            "3.9.1",
            "--topic",
            "a:2",
            "b",
            "--topic",
            "c:1",
        ]
        assert main(["broker", *arguments]) == 1
        assert FakeKafka.asked == (3, "3.9.1")
        assert FakeKafka.topics == {"a": 2, "b": 1, "c": 1}
        shown = capsys.readouterr()
        assert shown.out == "127.0.0.1:1\n"
        assert shown.err.endswith(f"pykafka-sink: {FakeKafka.failure}\n")

    def test_defaults(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(localkafka, "LocalKafka", FakeKafka)
        main(["broker"])
        assert FakeKafka.asked == (1, DEFAULT_VERSION)
        assert FakeKafka.topics == {}

    def test_failure_is_a_message(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr(localkafka, "LocalKafka", FailingKafka)
        assert main(["broker"]) == 1
        assert capsys.readouterr().err.endswith("pykafka-sink: no java\n")

    @pytest.mark.parametrize("text", ["", ":3", "a:", "a:x", "a:-1", "a:1:2", "a:²"])
    def test_wrong_topic(self, text: str, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit):
            main(["broker", "--topic", text])
        assert f"'{text}' is not name or name:partitions" in capsys.readouterr().err

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("flüge:2", "'flüge' is not a topic name: 1 to 249 characters out of a-z"),
            ("a b", "'a b' is not a topic name"),
            ("..:1", "'..' is not a topic name"),
            ("x" * 250, "is not a topic name"),
            ("a:0", "topic a cannot have 0 partitions here: 1 to 2000"),
            ("a:100000", "topic a cannot have 100000 partitions here"),
        ],
    )
    def test_a_topic_that_kafka_would_refuse(
        self, text: str, message: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with pytest.raises(SystemExit) as raised:
            main(["broker", "--topic", text])
        assert raised.value.code == 2
        assert message in capsys.readouterr().err

    def test_a_topic_given_twice(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        FakeKafka.asked = ()
        monkeypatch.setattr(localkafka, "LocalKafka", FakeKafka)
        with pytest.raises(SystemExit):
            main(["broker", "--topic", "a:1", "b", "a"])
        assert "argument --topic: a is given twice" in capsys.readouterr().err
        assert FakeKafka.asked == ()

    @pytest.mark.parametrize(
        ("version", "message"),
        [
            ("latest", "'latest' is not a version of Apache Kafka, such as 4.4.0"),
            ("4", "'4' is not a version"),
            ("4.4.0-rc1", "is not a version"),
            ("2.8.2", "Apache Kafka 2.8.2 is too old to be run here, which needs 3.3 or newer"),
            ("3.2.3", "is too old"),
        ],
    )
    def test_a_version_that_cannot_run(
        self, version: str, message: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with pytest.raises(SystemExit) as raised:
            main(["broker", "--version", version])
        assert raised.value.code == 2
        shown = capsys.readouterr().err
        assert message in shown
        assert "Known to work: 3.3.2, 3.9.1, 4.0.2, 4.1.2, 4.3.0, 4.4.0" in shown
        with pytest.raises(LocalKafkaError, match="Known to work"):
            localkafka.LocalKafka(version=version)

    def test_a_version_that_was_never_tried_is_said(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr(localkafka, "LocalKafka", FakeKafka)
        main(["broker", "--version", "9.0.0"])
        assert "Apache Kafka 9.0.0 was never tried here. Known to work:" in capsys.readouterr().err

    def test_its_address_as_json(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr(localkafka, "LocalKafka", FakeKafka)
        main(["broker", "--json"])
        shown = json.loads(capsys.readouterr().out)
        assert shown == {"bootstrap_servers": "127.0.0.1:1", "version": DEFAULT_VERSION}

    def test_topic(self) -> None:
        assert TopicArgument.parse("flights:12") == TopicArgument("flights", 12)


def test_what_the_terminals_encoding_lacks_ends_nothing() -> None:
    """With LC_ALL of a country, or PYTHONIOENCODING: as the … in a help, so what records hold."""
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    command = [sys.executable, "-m", "spark_kafka_sink", "dead-letters", "count", "--help"]
    done = subprocess.run(command, env=environment, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"PARTITION:OFFSET,\\u2026" in done.stdout
