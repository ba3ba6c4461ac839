"""What a registry has told, kept for the other processes of a driver."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_kafka_sink.base import private_folder
from spark_kafka_sink.base.errors import KafkaSinkError
from spark_kafka_sink.base.process import identity_of
from spark_kafka_sink.registry import schemas
from spark_kafka_sink.registry.answers import Schema
from spark_kafka_sink.registry.remembered import Remembered
from spark_kafka_sink.registry.schemas import Wanted, find
from tests.unit.registry_asking import OTHER, TEXT, fresh_registry, options
from tests.unit.registry_server import Registry

SCHEMA = Schema(7, TEXT, "AVRO", None, 2, (("n.Home", "home", 1),), (("b.proto", "text"),))


@pytest.fixture
def registry() -> Iterator[Registry]:
    with fresh_registry() as made:
        yield made


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(private_folder.tempfile, "gettempdir", lambda: str(tmp_path))
    return tmp_path / f"pykafka-sink-registry-{os.geteuid()}"


def ask(registry: Registry, text: str = TEXT) -> Schema:
    """As a new process does, with this process for the one that they have in common."""
    schemas._known.clear()
    given = options(registry.url.replace("//", "//user:hush@"), schema_registry_timeout_ms="100")
    assert given.registry is not None
    assert given.registry.config is not None
    assert given.registry.value is not None
    wanted = Wanted("value", "t", text, "prefix", given.registry.value)
    return find(given.registry.config, wanted, None, Remembered(os.getpid()), is_stream=True)


def test_what_was_told_is_true_while_the_registry_is_away(
    registry: Registry, caplog: pytest.LogCaptureFixture
) -> None:
    found = ask(registry)
    registry.fails = 503, {"error_code": 50301, "message": "away"}
    with caplog.at_level(logging.WARNING):
        assert ask(registry) == found
    assert "The schema 1, which it has told before, is written" in caplog.text
    with pytest.raises(KafkaSinkError, match="no schema registry of schema"):
        ask(registry, OTHER)


def test_a_registry_that_answers_is_believed(registry: Registry) -> None:
    assert ask(registry).id == 1
    registry.subjects.clear()
    registry.schemas[:] = [{"schema": '"string"'}]
    assert ask(registry).id == 2
    registry.fails = 401, {"error_code": 401, "message": "no"}
    with pytest.raises(KafkaSinkError, match="answers 401"):
        ask(registry)


def test_nothing_secret_is_kept_and_nobody_else_reads_it(registry: Registry, folder: Path) -> None:
    ask(registry)
    (path,) = folder.iterdir()
    assert folder.stat().st_mode & 0o077 == 0
    assert "hush" not in path.read_text() + path.name
    assert json.loads(path.read_text())["text"] == TEXT


def test_files_of_processes_that_have_ended_are_removed(folder: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    with child:
        Remembered(child.pid).write("asked", SCHEMA)
        assert Remembered(child.pid).read("asked") == SCHEMA
        Remembered(os.getpid()).write("asked", SCHEMA)
        assert len([*folder.iterdir()]) == 2
        child.kill()
    Remembered(os.getpid()).write("asked", SCHEMA)
    (left,) = folder.iterdir()
    assert left.name.startswith(f"{identity_of(os.getpid())}_")
    assert Remembered(child.pid).read("asked") is None


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"id":"x","text":1,"references":[]}'])
def test_a_file_that_is_damaged_is_as_none(folder: Path, content: str) -> None:
    Remembered(os.getpid()).write("asked", SCHEMA)
    (path,) = folder.iterdir()
    path.write_text(content)
    assert Remembered(os.getpid()).read("asked") is None


def test_a_folder_of_somebody_else_is_not_used(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder.mkdir(0o777)
    folder.chmod(0o777)
    with caplog.at_level(logging.WARNING):
        Remembered(os.getpid()).write("asked", SCHEMA)
    assert "is not kept for later micro-batches" in caplog.text
    assert Remembered(os.getpid()).read("asked") is None
    assert [*folder.iterdir()] == []
