"""Files of compiled kernels: in which folders they are, and how they are read and written.

A root folder is one of these; each is read in this order, and the first that can be written is
written to:

- where NUMBA_CACHE_DIR or PYKAFKA_SINK_CACHE is set: that folder;
- else the package's own ``record/kernels/__pycache__``, then ``pykafka-sink`` in the user's cache
  folder (``$XDG_CACHE_HOME``, ``~/.cache``);
- always last ``pykafka-sink-UID`` in the folder for temporary files, if it belongs to this user.

Within a root, ``pykafka-sink-kernels-KEY`` holds the kernels of one KEY. KEY is a digest of all
that the machine code depends on, so a file is never out of date. Of those folders, a root keeps
the eight that were used last.

A file is written under another name and then renamed, so processes may write it at the same time.
A lock beside it lets one of them compile while the others wait.
It begins with a digest of the rest: what is cut or altered is not loaded.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from spark_kafka_sink.base.environment import (
    CACHE_VARIABLE,
    COMPILER_CACHE_VARIABLE,
    named_folder,
    user_cache_folder,
)

FOLDER_PREFIX = "pykafka-sink-kernels-"
KEPT_FOLDERS = 8
_LOCK_NAME = "lock"
_DIGEST_BYTES = hashlib.sha256().digest_size
_PRIVATE_MODE = 0o700
_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH


class Root(NamedTuple):
    """A folder that may hold compiled kernels.

    is_shared_place: anybody may make a folder of this name before us, so its owner is looked at
    """

    path: Path
    is_shared_place: bool = False


class Problem(NamedTuple):
    """Why a file or folder could not be used."""

    path: Path
    reason: str


class Found(NamedTuple):
    """A file's content and folder, or None; and what was wrong with files that are there."""

    data: bytes | None
    folder: Path | None
    problems: list[Problem]


class Stored(NamedTuple):
    """The folder that was written to, or None; and why those before it were not.

    is_lasting: it is not the folder for temporary files
    """

    folder: Path | None
    is_lasting: bool
    problems: list[Problem]


def is_folder_named() -> bool:
    """Whether a variable says where compiled kernels are kept."""
    return _named() is not None


def _named() -> Path | None:
    return named_folder(COMPILER_CACHE_VARIABLE) or named_folder(CACHE_VARIABLE)


def root_folders() -> list[Root]:
    """Where compiled kernels may be, best first. They need not exist."""
    named = _named()
    if named is not None:
        return [Root(named), *_temporary_root()]
    in_package = Root(Path(__file__).absolute().parent / "__pycache__")
    of_user = user_cache_folder()
    return [in_package, *([] if of_user is None else [Root(of_user)]), *_temporary_root()]


def _temporary_root() -> Iterator[Root]:
    try:
        yield Root(Path(tempfile.gettempdir()) / f"pykafka-sink-{os.geteuid()}", True)
    except FileNotFoundError:
        pass  # no folder for temporary files can be written


class KernelFiles:
    """The files of one key in all root folders."""

    def __init__(self, key: str, roots: list[Root]) -> None:
        self._name = FOLDER_PREFIX + key
        self._roots = roots

    def read(self, name: str) -> Found:
        """The first file called ``name`` that is whole."""
        problems = []
        for root in self._roots:
            path = root.path / self._name / name
            try:
                _check_owner(root)
                content = path.read_bytes()
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                problems.append(Problem(path, _reason(error)))
                continue
            digest, data = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
            if hashlib.sha256(data).digest() != digest:
                problems.append(Problem(path, "it is damaged"))
                continue
            _mark_used(path.parent)
            return Found(data, path.parent, problems)
        return Found(None, None, problems)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Alone among the processes that would write to the same root; where none can be written,
        not alone.
        """
        with ExitStack() as held:
            for root in self._roots:
                folder = root.path / self._name
                try:
                    _make(root, folder)
                    file = held.enter_context(open(folder / _LOCK_NAME, "ab"))
                except OSError:
                    continue
                # Ends with the file, also where the process is killed.
                fcntl.flock(file, fcntl.LOCK_EX)
                break
            yield

    def write(self, name: str, data: bytes) -> Stored:
        """Write a file into the first root that takes it."""
        problems = []
        for root in self._roots:
            folder = root.path / self._name
            try:
                _make(root, folder)
                _replace(folder / name, hashlib.sha256(data).digest() + data)
            except OSError as error:
                problems.append(Problem(root.path, _reason(error)))
                continue
            return Stored(folder, not root.is_shared_place, problems)
        return Stored(None, False, problems)


def _make(root: Root, folder: Path) -> None:
    if root.is_shared_place:
        root.path.mkdir(mode=_PRIVATE_MODE, exist_ok=True)
    # Also where the folder is there already: others may have made it.
    _check_owner(root)
    if folder.is_dir():
        return
    folder.mkdir(parents=True, exist_ok=True)
    _remove_unused(root.path)


def _check_owner(root: Root) -> None:
    """Raises PermissionError for a folder in which others could place machine code, or links."""
    if not root.is_shared_place:
        return
    status = root.path.lstat()
    is_own = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
    if not is_own or status.st_mode & _OTHERS_MAY_WRITE:
        raise PermissionError(0, "it belongs to somebody else, or others may write to it")


def _replace(path: Path, content: bytes) -> None:
    descriptor, part = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    try:
        with open(descriptor, "wb") as file:
            file.write(content)
            # mkstemp makes it private; an image is built by another user than the one who runs it.
            os.fchmod(descriptor, 0o644)
        os.replace(part, path)
    except BaseException:
        os.unlink(part)
        raise


def _mark_used(folder: Path) -> None:
    """Best effort: the folder may be read-only."""
    try:
        os.utime(folder)
    except OSError:
        pass


def _remove_unused(root: Path) -> None:
    """Keep the folders that were used last. A process that loses its folder compiles again."""
    folders = [(_used_at(folder), folder) for folder in root.glob(f"{FOLDER_PREFIX}*")]
    for _, folder in sorted(folders, reverse=True)[KEPT_FOLDERS:]:
        shutil.rmtree(folder, ignore_errors=True)


def _used_at(folder: Path) -> float:
    try:
        return folder.stat().st_mtime
    except OSError:
        return 0.0  # somebody else has just removed it


def _reason(error: OSError) -> str:
    return error.strerror or str(error)
