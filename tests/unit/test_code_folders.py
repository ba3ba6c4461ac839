"""Folders from which jars are loaded, tried as another user; where processes are started."""

import os
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest

from spark_kafka_sink.base.machine import CACHE_VARIABLE, CodeFolderError, check_code_folder
from spark_kafka_sink.localkafka import LocalKafkaError, fetch_jars
from spark_kafka_sink.localkafka.jars import java_major_version
from spark_kafka_sink.localkafka.processes import SupervisorClient, broker_jars
from spark_kafka_sink.localkafka.settings import DEFAULT_VERSION

NOBODY = 65534
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two users")


@pytest.fixture
def place():
    """A folder below one that all may pass, which pytest's own is not."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture
def folder(place):
    made = place / "cache" / "kafka"
    made.mkdir(parents=True)
    (made / "a.jar").write_bytes(b"jar")
    for path, open_to in ((made.parent, 0o755), (made, 0o755), (made / "a.jar", 0o644)):
        path.chmod(open_to)
    return made


def as_nobody(command):
    """A command of the shell, run by another user."""
    shell = ["/bin/sh", "-euc", command]
    environment = {"PATH": "/usr/bin:/bin"}
    subprocess.run(shell, user=NOBODY, group=NOBODY, check=True, cwd="/", env=environment)


@contextmanager
def being_nobody():
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


def mode(path):
    return path.stat().st_mode & 0o7777


@pytest.mark.parametrize("open_mode", [0o777, 0o775, 0o757, 0o1777])
def test_what_is_too_open_is_tightened_and_told(folder, open_mode, caplog):
    folder.chmod(open_mode)
    (folder / "a.jar").chmod(0o666)
    check_code_folder(folder)
    assert mode(folder) & 0o022 == 0
    assert mode(folder / "a.jar") == 0o644
    assert f"{folder} was open to other users" in caplog.text


@pytest.mark.parametrize("is_sticky", [True, False])
def test_others_cannot_replace_the_folder_in_one_above(folder, is_sticky, caplog):
    folder.parent.chmod(0o1777 if is_sticky else 0o777)
    check_code_folder(folder)
    assert mode(folder.parent) == 0o1777
    assert (f"{folder.parent} was open to other users" in caplog.text) != is_sticky


@AS_ROOT
@pytest.mark.parametrize("level", ["folder", "parent", "file", "link", "target of a link"])
def test_another_users_level_is_refused(folder, place, level):
    asked, whose = folder, {"folder": folder, "parent": folder.parent, "file": folder / "a.jar"}
    place.chmod(0o1777)
    if level == "link":
        asked = whose[level] = place / "link"
        as_nobody(f"ln -s {folder} {asked}")
    elif level == "target of a link":
        asked, whose[level] = place / "link", place / "theirs"
        as_nobody(f"mkdir {whose[level]}")
        asked.symlink_to(whose[level])
    else:
        os.chown(whose[level], NOBODY, NOBODY)
    with pytest.raises(CodeFolderError, match=f"{whose[level]} belongs to another user"):
        check_code_folder(asked)


@AS_ROOT
def test_roots_folder_that_others_may_write_to_is_refused(folder):
    folder.parent.chmod(0o777)
    with being_nobody(), pytest.raises(CodeFolderError, match="belongs to root, and others may"):
        check_code_folder(folder)
    folder.parent.chmod(0o1777)
    with being_nobody():
        check_code_folder(folder)
    assert mode(folder) == 0o755


def test_links_to_jars_and_in_a_circle_are_refused(folder, place):
    (folder / "b.jar").symlink_to(folder / "a.jar")
    with pytest.raises(CodeFolderError, match=r"b\.jar is a link"):
        check_code_folder(folder)
    (place / "a").symlink_to(place / "b")
    (place / "b").symlink_to(place / "a")
    with pytest.raises(CodeFolderError, match="more than 40 links"):
        check_code_folder(place / "a" / "c")


MODULES, NAME = broker_jars(DEFAULT_VERSION)
MANIFEST = "".join(f"{line}\n" for line in ("transitive=True", *MODULES))


@pytest.fixture
def cache(place, monkeypatch):
    """A cache folder for all, as a mounted volume is."""
    made = place / "shared"
    made.mkdir()
    made.chmod(0o1777)
    monkeypatch.setenv(CACHE_VARIABLE, str(made))
    monkeypatch.setenv("PATH", "")  # nothing can be fetched
    monkeypatch.delenv("JAVA_HOME", raising=False)
    return made


@AS_ROOT
def test_jars_that_another_user_has_planted_are_not_loaded(cache):
    planted = cache / NAME
    as_nobody(f"mkdir {planted}; echo evil > {planted}/a.jar; printf '{MANIFEST}' > {planted}/x")
    as_nobody(f"mv {planted}/x {planted}/modules.txt")
    with pytest.raises(LocalKafkaError, match=f"{planted} belongs to another user") as raised:
        fetch_jars(MODULES, NAME)
    assert CACHE_VARIABLE in str(raised.value)


@pytest.mark.parametrize(
    ("jar", "told"),
    [
        (f"kafka-clients-{DEFAULT_VERSION}.jar", r"not the jar that this version .* knows"),
        ("added.jar", "not that of any"),
    ],
)
def test_a_jar_of_the_default_version_has_the_digest_that_is_shipped(cache, jar, told):
    folder = cache / NAME
    folder.mkdir(0o755)
    (folder / "modules.txt").write_text(MANIFEST)
    (folder / jar).write_bytes(b"not this one")
    with pytest.raises(LocalKafkaError, match=told):
        fetch_jars(MODULES, NAME)


TELLS = """#!/bin/sh
pwd > {seen}.cwd
printf '%s\\n' "$@" > {seen}.arguments
echo 'openjdk version "17.0.1"' >&2
exit {code}
"""


def fake_java(place, code, monkeypatch):
    """A java that notes where it runs."""
    java = place / "home" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(TELLS.format(seen=place / "java", code=code))
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", "home")
    monkeypatch.chdir(place)
    return java


def test_java_is_not_started_in_the_working_directory(place, monkeypatch):
    java = fake_java(place, 0, monkeypatch)
    assert java_major_version(str(java)) == 17
    assert (place / "java.cwd").read_text() == "/\n"


def test_ivy_uses_nothing_of_the_working_directory_or_the_home_directory(
    place, monkeypatch, caplog
):
    fake_java(place, 1, monkeypatch)
    monkeypatch.setenv(CACHE_VARIABLE, str(place / "cache"))
    with pytest.raises(LocalKafkaError, match="Ivy could not fetch"):
        fetch_jars(["g:a:1"], "some")
    part = (place / "java.cwd").read_text().strip()
    assert Path(part).parent == place / "cache"
    arguments = (place / "java.arguments").read_text().splitlines()
    assert f"-Divy.default.ivy.user.dir={part}/.ivy" in arguments
    assert arguments[arguments.index("-cache") + 1] == f"{part}/.ivy/cache"
    assert "as the repository's own checksums say" in caplog.text


def test_the_supervisor_imports_nothing_from_the_working_directory(place, monkeypatch):
    for name in ("spark_kafka_sink/__init__.py", "json.py", "subprocess.py"):
        planted = place / name
        planted.parent.mkdir(exist_ok=True)
        planted.write_text(f"open({str(place / 'ran')!r}, 'w')\nraise SystemExit\n")
    monkeypatch.chdir(place)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(("", *filter(None, sys.path))))
    client = SupervisorClient(place)
    client.close()
    assert not (place / "ran").exists()
