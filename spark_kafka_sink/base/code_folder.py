"""Folders from which code is loaded: nobody but this user and root may place something there."""

from __future__ import annotations

import logging
import os
import stat
from pathlib import Path

from spark_kafka_sink.base.errors import KafkaSinkError

_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH
_MOST_LINKS = 40

logger = logging.getLogger(__name__)


class CodeFolderError(KafkaSinkError):
    """Another user could have placed code there."""


def check_code_folder(path: Path) -> None:
    """Refuse a folder, absolute and existing, in which another user could place or replace a file.

    Each level, and each file in the folder, belongs to this user or root and is not writable by
    group or others. Above the folder a sticky level such as /tmp is safe: others cannot replace
    what is there. What is this user's own and too open is tightened, with a line in the log.

    Raises CodeFolderError.
    """
    try:
        folder = _descend(path)
        for file in folder.iterdir():
            _check(file, file.lstat(), is_parent=False)
    except OSError as error:
        raise CodeFolderError(f"{path} cannot be looked at: {error}") from error


def _descend(path: Path) -> Path:
    """Check every level on the way to ``path``, also of links, and return where it really is."""
    at, rest, links = Path(path.anchor), list(path.parts[1:]), 0
    _check(at, at.lstat(), is_parent=bool(rest))
    while rest:
        part = rest.pop(0)
        if part == "..":
            at = at.parent
            continue
        step = at / part
        found = step.lstat()
        if not stat.S_ISLNK(found.st_mode):
            _check(step, found, is_parent=bool(rest))
            at = step
            continue
        _check_owner(step, found)
        target, links = Path(os.readlink(step)), links + 1
        if links > _MOST_LINKS:
            raise CodeFolderError(f"{path} leads through more than {_MOST_LINKS} links")
        at = Path(target.anchor) if target.is_absolute() else at
        rest = [*target.parts[target.is_absolute() :], *rest]
    return at


def _check_owner(path: Path, found: os.stat_result) -> None:
    if found.st_uid not in (0, os.geteuid()):
        raise CodeFolderError(
            f"{path} belongs to another user (id {found.st_uid}), who could place code there that "
            "this user would run. Remove it, or name another folder"
        )


def _check(path: Path, found: os.stat_result, is_parent: bool) -> None:
    _check_owner(path, found)
    if stat.S_ISLNK(found.st_mode):
        raise CodeFolderError(f"{path} is a link, not a file: remove it")
    is_sticky = bool(found.st_mode & stat.S_ISVTX)
    if not found.st_mode & _OTHERS_MAY_WRITE or (is_parent and is_sticky):
        return
    if found.st_uid != os.geteuid():
        raise CodeFolderError(
            f"{path} belongs to root, and others may write to it: they could place code there that "
            f"this user would run. Have it changed (chmod go-w {path}), or name another folder"
        )
    mode = stat.S_IMODE(found.st_mode)
    # Others go on using a folder above; they lose the right to replace what is not theirs.
    mode = mode | stat.S_ISVTX if is_parent else mode & ~_OTHERS_MAY_WRITE
    path.chmod(mode)
    logger.warning(f"{path} was open to other users, and code is loaded from there: now {mode:04o}")
