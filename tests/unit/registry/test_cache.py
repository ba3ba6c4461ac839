"""What a registry has told, kept for the other processes of a driver."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from spark_kafka_sink.base import machine
from spark_kafka_sink.base.errors import KafkaSinkError
from spark_kafka_sink.base.machine import process_identity
from spark_kafka_sink.registry import schemas
from spark_kafka_sink.registry.client import Schema
from spark_kafka_sink.registry.schemas import SchemaCache, find
from tests.unit.registry.server import OTHER, TEXT, options, request_of

SCHEMA = Schema(7, TEXT, "AVRO", None, 2, (("n.Home", "home", 1),), (("b.proto", "text"),))


def ask(registry, text=TEXT):
    """As a new process does, with this process for the one that they have in common."""
    schemas._answers.clear()
    timeout_ms = "100" if registry.fails else "36000"
    url = registry.url.replace("//", "//user:hush@")
    given = options(url, schema_registry_timeout_ms=timeout_ms)
    return find(*request_of(given, text), None, SchemaCache(os.getpid()), is_stream=True)


def test_what_was_told_is_true_while_the_registry_is_away(registry, caplog):
    found = ask(registry)
    registry.fails = 503, {"error_code": 50301, "message": "away"}
    with caplog.at_level(logging.WARNING):
        assert ask(registry) == found
    assert "The schema 1, which it has told before, is written" in caplog.text
    with pytest.raises(KafkaSinkError, match="no schema registry of schema"):
        ask(registry, OTHER)


def test_a_registry_that_answers_is_believed(registry):
    assert ask(registry).id == 1
    registry.subjects.clear()
    registry.schemas[:] = [{"schema": '"string"'}]
    assert ask(registry).id == 2
    registry.fails = 401, {"error_code": 401, "message": "no"}
    with pytest.raises(KafkaSinkError, match="answers 401"):
        ask(registry)


def test_nothing_secret_is_kept_and_nobody_else_reads_it(registry, folder):
    ask(registry)
    (path,) = folder.iterdir()
    assert folder.stat().st_mode & 0o077 == 0
    assert "hush" not in path.read_text() + path.name
    assert json.loads(path.read_text())["text"] == TEXT


def test_files_are_where_spark_removes_them_at_the_end_of_its_driver(tmp_path, folder, monkeypatch):
    local = tmp_path / "blockmgr-1"
    local.mkdir(mode=0o700)
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{local},/elsewhere")
    SchemaCache(os.getpid()).write("asked", SCHEMA)
    assert SchemaCache(os.getpid()).read("asked") == SCHEMA
    assert [path.parent.stat().st_mode & 0o777 for path in local.rglob("*.json")] == [0o700]
    assert [*folder.iterdir()] == []


@pytest.mark.parametrize(("name", "mode"), [("scratch", 0o700), ("blockmgr-1", 0o777)])
def test_other_local_folders_are_not_used(tmp_path, folder, monkeypatch, name, mode):
    local = tmp_path / name
    local.mkdir()
    local.chmod(mode)
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(local))
    SchemaCache(os.getpid()).write("asked", SCHEMA)
    assert len([*folder.iterdir()]) == 1
    assert [*local.iterdir()] == []


def test_files_of_processes_that_have_ended_are_removed(folder):
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    with child:
        SchemaCache(child.pid).write("asked", SCHEMA)
        assert SchemaCache(child.pid).read("asked") == SCHEMA
        SchemaCache(os.getpid()).write("asked", SCHEMA)
        assert len([*folder.iterdir()]) == 2
        child.kill()
    SchemaCache(os.getpid()).write("asked", SCHEMA)
    (left,) = folder.iterdir()
    assert left.name.startswith(f"{process_identity(os.getpid())}_")
    assert SchemaCache(child.pid).read("asked") is None
    SchemaCache(child.pid).write("asked", SCHEMA)
    assert [*folder.iterdir()] == [left], "nothing is kept for a process that has ended"


def test_other_credentials_are_no_other_question(registry):
    """They change while a query runs."""
    asked = [
        options(registry.url.replace("//", f"//{user}@"), use_latest_version="true")
        for user in ("a:1", "b:2")
    ]
    _, wanted = request_of(asked[0])
    first, second = (schemas._cache_key(one.registry.config, wanted, "q") for one in asked)
    assert first == second


@pytest.mark.parametrize(
    "content",
    [
        *("", "{", "[]", "{}", "5", "null", "[" * 99_999, '{"id":"x","text":1,"references":[]}'),
        '{"id":"x","text":"t","references":[],"files":[]}',
        '{"id":1,"text":5,"references":[],"files":[]}',
        '{"id":1,"text":"t","references":[],"files":[],"more":1}',
    ],
    ids=range(11),
)
def test_a_file_that_is_damaged_is_as_none(folder, content):
    SchemaCache(os.getpid()).write("asked", SCHEMA)
    (path,) = folder.iterdir()
    path.write_text(content)
    assert SchemaCache(os.getpid()).read("asked") is None


def test_what_else_is_in_the_folder_stays(folder):
    (folder / "of_nobody").touch()
    SchemaCache(os.getpid()).write("asked", SCHEMA)
    assert (folder / "of_nobody").exists()
    assert SchemaCache(os.getpid()).read("asked") == SCHEMA


def test_what_cannot_be_written_is_told_and_fails_nothing(folder, caplog):
    SchemaCache(os.getpid()).write("asked", SCHEMA)
    (path,) = folder.iterdir()
    path.unlink()
    path.mkdir()  # as a full disk: another error of the operating system
    with caplog.at_level(logging.WARNING):
        SchemaCache(os.getpid()).write("asked", SCHEMA)
    assert "is not kept for later micro-batches" in caplog.text
    assert SchemaCache(os.getpid()).read("asked") is None


def test_a_question_may_have_any_text(folder):
    """A name that is no Unicode is refused elsewhere, in words."""
    SchemaCache(os.getpid()).write("\ud800", SCHEMA)
    assert SchemaCache(os.getpid()).read("\ud800") == SCHEMA


def test_a_folder_that_is_too_open_is_tightened_and_files_of_others_are_not_read(folder, caplog):
    SchemaCache(os.getpid()).write("asked", SCHEMA)
    folder.chmod(0o777)
    with caplog.at_level(logging.WARNING):
        assert SchemaCache(os.getpid()).read("asked") == SCHEMA
    assert "could be read or written by others, and no longer is" in caplog.text
    assert folder.stat().st_mode & 0o777 == 0o700
    (path,) = folder.iterdir()
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")
    assert SchemaCache(os.getpid()).read("asked") is None


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="acts as another user")


@pytest.fixture
def shared(monkeypatch):
    """As /tmp is: everybody makes folders there."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        Path(name).chmod(0o1777)
        monkeypatch.setattr(machine.tempfile, "gettempdir", lambda: name)
        yield Path(name)


@needs_root
def test_folders_that_another_user_makes_first_are_not_in_the_way(shared, caplog):
    names = [f"pykafka-sink-registry-{os.geteuid()}", f"pykafka-sink-registry-{os.geteuid()}-0"]
    subprocess.run(["mkdir", "-m", "777", *names], cwd=shared, user="nobody", check=True)
    (shared / f"pykafka-sink-registry-{os.geteuid()}-00").symlink_to(shared / names[0])
    SchemaCache(os.getpid()).write("asked", SCHEMA)
    assert SchemaCache(os.getpid()).read("asked") == SCHEMA
    assert caplog.text == ""
    assert [*(shared / names[0]).iterdir(), *(shared / names[1]).iterdir()] == []


@needs_root
def test_what_another_user_has_written_is_not_read(folder):
    SchemaCache(os.getpid()).write("asked", SCHEMA)
    (path,) = folder.iterdir()
    os.chown(path, 65534, -1)
    assert SchemaCache(os.getpid()).read("asked") is None


@needs_root
@pytest.mark.parametrize("change", [lambda p: p.chmod(0o777), lambda p: os.chown(p, 65534, -1)])
def test_a_place_where_others_replace_folders_is_not_used(shared, change, caplog):
    change(shared)
    with caplog.at_level(logging.WARNING):
        SchemaCache(os.getpid()).write("asked", SCHEMA)
    assert f"other users may replace what is in {shared}: set TMPDIR" in caplog.text
    assert SchemaCache(os.getpid()).read("asked") is None
    assert [*shared.iterdir()] == []


def test_processes_that_begin_at_the_same_time_find_the_same_folder(tmp_path):
    code = "from spark_kafka_sink.base.machine import private_folder as f; print(f('x'))"
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    started = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env=environment)
        for _ in range(4)
    ]
    for process in started:
        process.communicate()
        assert process.returncode == 0
    last = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, env=environment)
    assert Path(last.stdout.decode().strip()) == min(tmp_path.glob("pykafka-sink-x-*"))
