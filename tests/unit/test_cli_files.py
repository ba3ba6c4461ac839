"""``pykafka-sink jobs``, ``job``, ``conf`` and ``docs``: files that come with the package."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from spark_kafka_sink.base import machine
from spark_kafka_sink.cli import main

REPOSITORY = Path(__file__).resolve().parents[2]


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(list(arguments)) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("kind", ["jobs", "conf", "docs"])
def test_all_files_of_a_kind(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
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
def test_the_path_of_one(
    arguments: list[str], file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert printed(capsys, *arguments) == f"{REPOSITORY / file}\n"


def test_a_document_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    text = (REPOSITORY / "docs" / "dead-letters.md").read_text("utf-8")
    assert printed(capsys, "docs", "dead-letters") == text


ROOMS_WITH_TEXTS = ("jobs", "localkafka", "metrics", "spark", "tools", "transactions")


def test_texts_name_documents_as_an_installed_package_shows_them() -> None:
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


def shown_on_a_terminal(*arguments: str) -> str:
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


def test_a_terminal_gets_colour_if_rich_is_installed() -> None:
    shown = shown_on_a_terminal("jobs")
    assert "batch_to_kafka" in shown
    assert ("\x1b[" in shown) == (importlib.util.find_spec("rich") is not None)
    assert "\x1b[" not in shown_on_a_terminal("jobs", "--json")


def test_a_wrong_name_is_answered_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
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

    def test_leaves_what_is_not_the_sinks(self, cache, capsys):
        self.download(cache, "kafka-4.3.0")
        (cache / "photographs").mkdir()
        shown = printed(capsys, "cache", "--clear")
        assert "REMOVED" in shown
        assert "photographs" not in shown
        assert [path.name for path in cache.iterdir()] == ["photographs"]

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
