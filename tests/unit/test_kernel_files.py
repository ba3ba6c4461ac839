"""Files of compiled kernels where anybody may make a folder first."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_kafka_sink.record.kernels.cache_folders import FOLDER_PREFIX, KernelFiles, Root


@pytest.fixture
def root(tmp_path: Path) -> Root:
    """In a shared place: others may write to it, and they have made the folder of the key."""
    folder = tmp_path / "shared"
    (folder / f"{FOLDER_PREFIX}key").mkdir(parents=True)
    folder.chmod(0o777)
    return Root(folder, is_shared_place=True)


def test_nothing_is_written_where_others_may_write(root: Root) -> None:
    """They could put links in the place of files whose access rights are about to be changed."""
    stored = KernelFiles("key", [root]).write("name", b"machine code")
    assert stored.folder is None
    assert [problem.path for problem in stored.problems] == [root.path]
    assert list((root.path / f"{FOLDER_PREFIX}key").iterdir()) == []


def test_the_next_root_is_taken_instead(root: Root, tmp_path: Path) -> None:
    own = Root(tmp_path / "own")
    files = KernelFiles("key", [root, own])
    assert files.write("name", b"machine code").folder == own.path / f"{FOLDER_PREFIX}key"
    assert files.read("name").data == b"machine code"


def test_a_folder_of_ones_own_is_written_again_and_again(tmp_path: Path) -> None:
    root = Root(tmp_path / "shared", is_shared_place=True)
    files = KernelFiles("key", [root])
    for name in ("first", "second"):
        assert files.write(name, name.encode()).problems == []
        assert files.read(name).data == name.encode()
    assert root.path.stat().st_mode & 0o777 == 0o700
