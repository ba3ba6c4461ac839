from __future__ import annotations

import ast
import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import pytest

import spark_kafka_sink
from spark_kafka_sink import localkafka
from spark_kafka_sink.__main__ import _parser, main
from spark_kafka_sink.base import machine
from spark_kafka_sink.base.errors import TransactionError
from spark_kafka_sink.config.sink_options import SinkOptions
from spark_kafka_sink.localkafka import DEFAULT_VERSION, LocalKafkaError
from spark_kafka_sink.record.compiled.library import platforms
from spark_kafka_sink.spark.writer import complete_commands, completed_commands
from tests.tables import each_row


class FakeKafka:
    """Fails as told; remembers what it was asked for."""

    asked: tuple[object, ...] = ()
    failure = "broker 1 ended by itself"

    def __init__(self, brokers, version, security, port, step):
        assert security is None
        self.topics = {}
        type(self).asked = (brokers, version, port, self.topics)
        self.bootstrap_servers = "127.0.0.1:1"

    def __enter__(self):
        return self

    def __exit__(self, exc_type, exc, traceback):
        pass

    def create_topic(self, name, partitions):
        self.topics[name] = partitions

    def await_failure(self, timeout_ms):
        return self.failure


def test_as_a_module():
    shown = subprocess.run(
        [sys.executable, "-m", "spark_kafka_sink", "--version"], capture_output=True, text=True
    )
    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout == f"pykafka-sink {spark_kafka_sink.__version__}\n"


@pytest.mark.parametrize("wrong", [["nonsense"], ["broker", "--brokers", "2"]])
def test_wrong_usage(wrong, capsys):
    with pytest.raises(SystemExit) as raised:
        main(wrong)
    assert raised.value.code == 2
    assert "usage: pykafka-sink" in capsys.readouterr().err
    for incomplete in ([], ["transactions"]):
        assert main(incomplete) == 2


COMMANDS = "broker package jobs job conf docs transactions"
OF_TRANSACTIONS = "list describe resolve abort release"


@each_row(
    "command", [*COMMANDS.split(), *(f"transactions {name}" for name in OF_TRANSACTIONS.split())]
)
def test_every_help_ends_with_examples(command, capsys):
    with pytest.raises(SystemExit) as raised:
        main([*command.split(), "--help"])
    assert raised.value.code == 0
    _, _, examples = capsys.readouterr().out.partition("\nexamples:\n")
    commands = [line for line in examples.splitlines() if not line.startswith("  #")]
    assert any(f"pykafka-sink {command}" in line for line in commands)


class TestBroker:
    @pytest.mark.parametrize(
        ("arguments", "asked", "out", "err"),
        [
            (
                "--brokers 3 --version 3.9.1 --port 9092 --topic a:2 b --topic c:1",
                (3, "3.9.1", 9092, {"a": 2, "b": 1, "c": 1}),
                "127.0.0.1:1\n",
                f"pykafka-sink: {FakeKafka.failure}\n",
            ),
            (
                "--json",
                (1, DEFAULT_VERSION, None, {}),
                {"bootstrap_servers": "127.0.0.1:1", "version": DEFAULT_VERSION},
                "",
            ),
            (
                "--version 9.0.0",
                (1, "9.0.0", None, {}),
                "127.0.0.1:1\n",
                "Kafka 9.0.0 was never tried here. Known to",
            ),
        ],
    )
    def test_options(self, arguments, asked, out, err, monkeypatch, capsys):
        monkeypatch.setattr(localkafka, "LocalKafka", FakeKafka)
        assert main(["broker", *arguments.split()]) == 1
        assert FakeKafka.asked == asked
        shown = capsys.readouterr()
        assert (json.loads(shown.out) if isinstance(out, dict) else shown.out) == out
        assert err in shown.err

    @pytest.mark.parametrize(
        ("topics", "message"),
        [
            *(([text], "is not name or name:partitions") for text in ("", ":3", "a:x", "a:1:2")),
            *(([text], "is not name or name:partitions") for text in ("a:", "a:-1", "a:²")),
            *(([text], "is not a topic name") for text in ("flüge:2", "a b", "..:1", "x" * 250)),
            (["a:0"], "topic a cannot have 0 partitions here: 1 to 2000"),
            (["a:100000"], "topic a cannot have 100000 partitions here"),
            (["a:1", "b", "a"], "argument --topic: a is given twice"),
        ],
    )
    def test_a_topic_that_kafka_would_refuse(self, topics, message, monkeypatch, capsys):
        monkeypatch.setattr(localkafka, "LocalKafka", None)
        with pytest.raises(SystemExit) as raised:
            main(["broker", "--topic", *topics])
        assert raised.value.code == 2
        assert message in capsys.readouterr().err

    @pytest.mark.parametrize(
        ("version", "message"),
        [
            *((text, "is not a version") for text in ("latest", "4", "4.4.0-rc1")),
            *((text, "is too old") for text in ("2.8.2", "3.2.3")),
        ],
    )
    def test_a_version_that_cannot_run(self, version, message, capsys):
        with pytest.raises(SystemExit) as raised:
            main(["broker", "--version", version])
        assert raised.value.code == 2
        shown = capsys.readouterr().err
        assert message in shown
        assert "Known to work: 3.3.2, 3.9.1, 4.0.2, 4.1.2, 4.3.0, 4.4.0" in shown
        with pytest.raises(LocalKafkaError, match="Known to work"):
            localkafka.LocalKafka(version=version)


def test_what_the_terminals_encoding_lacks_ends_nothing():
    """With LC_ALL of a country, or PYTHONIOENCODING: as the … in a help, so what records hold."""
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    command = [sys.executable, "-m", "spark_kafka_sink", "dead-letters", "count", "--help"]
    done = subprocess.run(command, env=environment, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"PARTITION:OFFSET,\\u2026" in done.stdout


OPTIONS = {
    "kafka.bootstrap.servers": "a:9092,[::1]:9093",
    "delivery.guarantee": "exactly-once",
    "transactional.id.prefix": "my prefix",
}
ADDRESS = "--bootstrap-server 'a:9092,[::1]:9093' --prefix 'my prefix'"


COMMAND = "pykafka-sink transactions"


@pytest.mark.parametrize(
    ("text", "more", "completed"),
    [
        (f"or by {COMMAND} resolve", {}, f"or by {COMMAND} resolve {ADDRESS}"),
        (f"{COMMAND} release --prefix my prefix", {}, f"{COMMAND} release {ADDRESS}"),
        (
            f"Confirm: {COMMAND} resolve --prefix my prefix --as-written",
            {"transaction.log.topic": "other-log"},
            f"Confirm: {COMMAND} resolve {ADDRESS} --log-topic other-log --as-written",
        ),
        ("nothing to run", {}, "nothing to run"),
    ],
)
def test_commands_are_completed(text, more, completed):
    options = SinkOptions.parse({**OPTIONS, **more})
    assert complete_commands(text, options) == completed
    _, found, command = completed.partition("pykafka-sink ")
    if found:
        arguments = _parser().parse_args(shlex.split(command))
        assert arguments.bootstrap_servers == "a:9092,[::1]:9093"
        assert arguments.prefix == "my prefix"


def test_an_error_that_passes_keeps_its_kind_and_cause():
    cause = KeyError("cause")
    with pytest.raises(TransactionError) as raised, completed_commands(SinkOptions.parse(OPTIONS)):
        raise TransactionError(f"run {COMMAND} release --prefix my prefix") from cause
    assert str(raised.value) == f"run {COMMAND} release {ADDRESS}"
    assert raised.value.__cause__ is cause
    without = SinkOptions.parse({"kafka.bootstrap.servers": "a:1"})
    assert complete_commands(f"{COMMAND} list", without) == f"{COMMAND} list"


REPOSITORY = Path(__file__).parents[2]
WHERE_FROM = """
import sys
import pyspark_kafka_sink, spark_kafka_sink
from spark_kafka_sink.spark import task
from spark_kafka_sink.record.compiled.calls import load_kernels
load_kernels()
print(pyspark_kafka_sink.__file__)
print(spark_kafka_sink.__file__)
print(pyspark_kafka_sink.DefaultSource.name(), "numba" in sys.modules)
"""


@pytest.fixture
def sink_zip(tmp_path, capsys):
    path = tmp_path / "sink.zip"
    assert main(["package", "--output", str(path)]) == 0
    said = capsys.readouterr().out
    assert f"{path}: " in said
    assert "pyarrow" in said
    assert f"it has kernels for {', '.join(platforms())}: " in said
    assert "pyspark_kafka_sink.register(spark)" in said
    return path


def test_it_has_all_modules_and_nothing_else(sink_zip, tmp_path, capsys):
    package = REPOSITORY / "spark_kafka_sink"
    sources = package / "record" / "kernels"
    modules = {
        str(path.relative_to(REPOSITORY))
        for path in [*package.rglob("*.py"), *package.rglob("kernels-*.so")]
        if not path.is_relative_to(sources)
    }
    with zipfile.ZipFile(sink_zip) as archive:
        assert archive.testzip() is None
        names = set(archive.namelist())
    assert names == {*modules, "pyspark_kafka_sink.py", "spark_kafka_sink/py.typed"}
    again = tmp_path / "again.zip"
    assert main(["package", "--output", str(again), "--json"]) == 0
    assert again.read_bytes() == sink_zip.read_bytes(), "equal modules make equal files"
    told = json.loads(capsys.readouterr().out)
    assert (told["path"], told["bytes"]) == (str(again), again.stat().st_size)
    assert told["platforms"] == platforms()
    assert any(one.startswith("lz4") for one in told["needs"])
    assert not any("extra" in one for one in told["needs"])


@pytest.mark.slow
def test_the_sink_is_imported_from_it_alone(sink_zip, tmp_path):
    # PYTHONPATH comes before an editable installation of the checkout.
    done = subprocess.run(
        [sys.executable, "-c", WHERE_FROM],
        env={"PYTHONPATH": str(sink_zip), "PATH": "/usr/bin:/bin"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        f"{sink_zip}/pyspark_kafka_sink.py",
        f"{sink_zip}/spark_kafka_sink/__init__.py",
        "pykafka-sink False",
    ]


@pytest.mark.parametrize(
    ("name", "message"),
    [("sink.tar", "must end with .zip"), ("no/folder/sink.zip", "cannot be written: No such file")],
)
def test_what_cannot_be_written_is_refused(name, message, tmp_path, capsys):
    assert main(["package", "--output", str(tmp_path / name)]) == 1
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_out_of_a_zip_file_it_is_refused(sink_zip, monkeypatch, capsys):
    monkeypatch.setattr(
        spark_kafka_sink, "__file__", f"{sink_zip}/spark_kafka_sink/__init__.py", raising=True
    )
    assert main(["package", "--output", str(sink_zip.with_name("other.zip"))]) == 1
    assert "neither an installed wheel nor a checkout" in capsys.readouterr().err


def printed(capsys, *arguments):
    assert main(list(arguments)) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("kind", ["jobs", "conf", "docs"])
def test_all_files_of_a_kind(kind, capsys):
    folder = REPOSITORY / kind
    assert printed(capsys, kind, "--where") == f"{folder}\n"
    shown = json.loads(printed(capsys, kind, "--json"))[kind]
    paths = (path for path in folder.iterdir() if path.is_file())
    files = [str(path) for path in sorted(paths, key=lambda path: path.stem)]
    assert [row["path"] for row in shown] == files
    lines = printed(capsys, kind).splitlines()
    assert [line.split()[0] for line in lines] == ["NAME", *(row["name"] for row in shown)]
    for row, line in zip(shown, lines[1:]):
        assert line.split(None, 1)[1] == row["summary"]
        if kind != "docs":
            assert row["summary"].endswith("."), "a whole sentence"
    assert printed(capsys, kind, "--format", "json") == printed(capsys, kind, "--json")
    assert printed(capsys, kind, "--format", "table") == printed(capsys, kind)


@pytest.mark.parametrize(
    ("arguments", "file"),
    [
        (["job", "stream_to_kafka"], "jobs/stream_to_kafka.py"),
        (["job", "stream-to-kafka.py"], "jobs/stream_to_kafka.py"),
        (["conf", "throughput"], "conf/throughput.conf"),
        (["conf", "kafka_to_kafka.conf"], "conf/kafka-to-kafka.conf"),
        (["docs", "tuning", "--where"], "docs/tuning.md"),
    ],
)
def test_the_path_of_one(arguments, file, capsys):
    assert printed(capsys, *arguments) == f"{REPOSITORY / file}\n"


def test_a_document_is_shown(capsys):
    text = (REPOSITORY / "docs" / "dead-letters.md").read_text("utf-8")
    assert printed(capsys, "docs", "dead-letters") == text


ROOMS_WITH_TEXTS = ("jobs", "localkafka", "metrics", "spark", "tools", "transactions")


@pytest.mark.slow
def test_texts_name_documents_as_an_installed_package_shows_them():
    """A wheel has no folder docs/ that its user knows of."""
    package, named = REPOSITORY / "spark_kafka_sink", set()
    for path in package.rglob("*.py"):
        tree = ast.parse(path.read_text("utf-8"))
        nodes = (node for node in ast.walk(tree) if isinstance(node, ast.Constant))
        texts = {id(node): node.value for node in nodes if isinstance(node.value, str)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Expr):  # a docstring
                texts.pop(id(node.value), None)
        for text in texts.values():
            named.update(re.findall(r"pykafka-sink docs ([a-z][\w-]+)", text))
            if path.relative_to(package).parts[0] in ROOMS_WITH_TEXTS:
                assert not re.search(r"\bdocs/[\w-]+\.md", text), (path, text)
    assert {"dead-letters", "troubleshooting", "tuning"} <= named
    assert named <= {path.stem for path in (REPOSITORY / "docs").glob("*.md")}


def shown_on_a_terminal(*arguments):
    ours, theirs = os.openpty()
    command = [sys.executable, "-m", "spark_kafka_sink", *arguments]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "200"}
    environment.pop("NO_COLOR", None)
    with subprocess.Popen(command, stdout=theirs, env=environment):
        os.close(theirs)
        shown = b""
        try:
            while part := os.read(ours, 65536):
                shown += part
        except OSError:
            pass  # Linux: the other end is closed
    os.close(ours)
    return shown.decode()


def test_a_terminal_gets_colour_if_rich_is_installed():
    shown = shown_on_a_terminal("jobs")
    assert "batch_to_kafka" in shown
    assert ("\x1b[" in shown) == (importlib.util.find_spec("rich") is not None)
    assert "\x1b[" not in shown_on_a_terminal("jobs", "--json")


def test_a_wrong_name_is_answered_with_the_nearest(capsys):
    assert main(["job", "stream_to_kafak"]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "there is no 'stream_to_kafak' in" in shown.err
    assert "Did you mean stream_to_kafka? There are: batch_to_kafka, demo" in shown.err


def test_a_pager_that_ends_early_causes_no_traceback():
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "spark_kafka_sink", "docs", "options"]
    try:
        done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, check=False)
    finally:
        os.close(write)
    assert (done.returncode, done.stderr) == (1, b"")


class TestCache:
    @pytest.fixture
    def cache(self, tmp_path, monkeypatch):
        folder, temporary = tmp_path / "cache", tmp_path / "temporary"
        temporary.mkdir()
        monkeypatch.setenv("PYKAFKA_SINK_CACHE", str(folder))
        monkeypatch.setattr(tempfile, "tempdir", str(temporary))
        return folder

    def download(self, cache, name):
        (cache / name).mkdir(parents=True)
        (cache / name / "modules.txt").write_text("transitive=True\n")
        (cache / name / "a.jar").write_bytes(bytes(2_500_000))

    def test_shows_what_is_kept_and_removes_it(self, cache, capsys):
        self.download(cache, "kafka-4.3.0")
        (cache / ".pykafka-sink-part-killed").mkdir()
        memory = machine.private_folder("registry")
        shown = printed(capsys, "cache").splitlines()
        assert [line.split() for line in shown[1:]] == [
            ["0.0", "MB", str(cache / ".pykafka-sink-part-killed")],
            ["2.5", "MB", str(cache / "kafka-4.3.0")],
            ["0.0", "MB", str(memory)],
        ]
        kept = json.loads(printed(capsys, "cache", "--json"))["kept"]
        assert json.loads(printed(capsys, "cache", "--clear", "--json"))["cleared"] == kept
        assert not cache.exists()
        assert not memory.exists()
        assert printed(capsys, "cache") == "nothing is kept on this machine\n"

    def test_what_others_place_in_the_folder_is_not_read(self, cache, capsys):
        """A FIFO would be waited for, and /dev/zero would fill the memory."""
        self.download(cache, "kafka-4.3.0")
        for name in ("fifo", "link", "device", "huge"):
            (cache / name).mkdir()
        os.mkfifo(cache / "fifo/modules.txt")
        (cache / "link/modules.txt").symlink_to(cache / "kafka-4.3.0/modules.txt")
        (cache / "device/modules.txt").symlink_to("/dev/zero")
        with (cache / "huge/modules.txt").open("wb") as file:
            file.write(b"transitive=True\n")
            file.truncate(1 << 40)
        for arguments in (["cache"], ["cache", "--clear"]):
            rows = printed(capsys, *arguments).splitlines()[1:]
            assert [row.split()[-1] for row in rows] == [str(cache / "kafka-4.3.0")]
        assert {path.name for path in cache.iterdir()} == {"fifo", "link", "device", "huge"}

    def test_leaves_files_of_other_programs_and_the_targets_of_links(self, cache, tmp_path, capsys):
        """The cache folder may be a home directory, or a link to another disk."""
        disk = tmp_path / "disk"
        self.download(disk, "kafka-4.3.0")
        self.download(disk, "elsewhere")
        cache.symlink_to(disk)
        (disk / "elsewhere").rename(tmp_path / "elsewhere")
        (disk / "elsewhere").symlink_to(tmp_path / "elsewhere")
        (disk / "vendor").mkdir()
        (disk / "vendor/modules.txt").write_text("# golang.org/x/sys v0.30.0\n")
        (disk / "empty").mkdir()
        (disk / "empty/modules.txt").write_text("")
        (disk / ".part-another").mkdir()
        (disk / ".lock").touch()
        shown = printed(capsys, "cache", "--clear")
        assert [line.split()[-1] for line in shown.splitlines()[1:]] == [str(cache / "kafka-4.3.0")]
        left = {".lock", ".part-another", "elsewhere", "empty", "vendor"}
        assert {path.name for path in disk.iterdir()} == left
        assert (tmp_path / "elsewhere/a.jar").exists()
        for path in (disk / ".lock", disk / "elsewhere"):
            path.unlink()
        for path in (disk / "vendor", disk / "empty"):
            (path / "modules.txt").unlink()
            path.rmdir()
        (disk / ".part-another").rmdir()
        printed(capsys, "cache", "--clear")
        assert list(disk.iterdir()) == []
