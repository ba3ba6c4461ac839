"""A folder for files that only this user may read or write."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

from spark_kafka_sink.base.errors import KafkaSinkError

_FOLDER_MODE = 0o700
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


class PrivateFolderError(KafkaSinkError):
    """It cannot be made, or somebody else's has its name."""


def private_folder(purpose: str) -> Path:
    """That of this user for ``purpose``, in the folder for temporary files.

    Raises PrivateFolderError.
    """
    path = Path(tempfile.gettempdir()) / f"pykafka-sink-{purpose}-{os.geteuid()}"
    try:
        path.mkdir(_FOLDER_MODE, exist_ok=True)
        found = path.lstat()
    except OSError as error:
        raise PrivateFolderError(f"{path} cannot be made: {error.strerror}") from error
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & _OTHERS:
        raise PrivateFolderError(
            f"{path} is not a folder of this user that others may not read: remove it, or set "
            "TMPDIR of the driver to a folder of its own"
        )
    return path
