"""A folder for files that only this user may read or write.

Everybody may make folders where temporary files are, so a name proves nothing, and whoever makes
one first must not be in the way.
"""

from __future__ import annotations

import logging
import os
import stat
import tempfile
from pathlib import Path

from spark_kafka_sink.base.errors import KafkaSinkError

logger = logging.getLogger(__name__)

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


class PrivateFolderError(KafkaSinkError):
    """It cannot be made, or others may replace what is in it."""


def private_folder(purpose: str) -> Path:
    """Return this user's folder for ``purpose``, among the temporary files.

    Of the folders with its prefix the first one of this user's is taken, so that all of this user's
    processes find the same. Where there is none, it is made with a name that nobody can foresee.
    Raises PrivateFolderError.
    """
    parent = Path(os.path.realpath(tempfile.gettempdir()))
    prefix = f"pykafka-sink-{purpose}-{os.geteuid()}-"
    try:
        check_parents(parent)
        path = _first_own(parent, prefix)
        if path is None:
            tempfile.mkdtemp(prefix=prefix, dir=parent)
            # Of two that were made at the same time, all take the same.
            path = _first_own(parent, prefix)
    except OSError as error:
        raise PrivateFolderError(f"{parent}/{prefix}…: {error.strerror}") from error
    if path is None:
        raise PrivateFolderError(f"{parent}/{prefix}… is gone as soon as it is made")
    return path


def read_own(path: Path) -> bytes:
    """Return the content of a file that this user has written. Raises OSError for any other."""
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
        if os.fstat(file.fileno()).st_uid != os.geteuid():
            raise PermissionError(f"{path} is another user's")
        return file.read()


def check_parents(path: Path) -> None:
    """Raise PrivateFolderError where others may replace ``path``, or what is on the way to it.

    Each level belongs to this user or root, and others may not write there, unless it is sticky.
    """
    for level in (path, *path.parents):
        found = level.stat()
        is_open = found.st_mode & _OTHERS_WRITE and not found.st_mode & stat.S_ISVTX
        if is_open or found.st_uid not in (0, os.geteuid()):
            raise PrivateFolderError(
                f"other users may replace what is in {level}: set TMPDIR of the driver to a folder "
                "of its own"
            )


def _first_own(parent: Path, prefix: str) -> Path | None:
    for path in sorted(path for path in parent.iterdir() if path.name.startswith(prefix)):
        found = path.lstat()
        if stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid():
            if found.st_mode & _OTHERS:
                logger.warning(f"{path} could be read or written by others, and no longer is")
                path.chmod(stat.S_IRWXU)
            return path
    return None
