"""Lines in files: a local one that is appended to, or one for each line in a folder of any system.

A Python data source cannot ask the driver's JVM for a file of Hadoop's: the process that commits
has no way to it. So other file systems are those that ``pyarrow.fs`` knows by their URIs: S3, GCS,
Azure, and HDFS through libhdfs. Object stores cannot append: there each line is a file.

What only some outputs need is imported where it is used: each process that plans or commits a
micro-batch loads this module.
"""

from __future__ import annotations

import errno
import os
from typing import Any

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.config.metrics_outputs import BACKUPS, MetricsOutputs
from spark_kafka_sink.metrics.told import reason_of


def local_path(path: str) -> str | None:
    """The file that ``path`` names; None if it is the URI of a folder elsewhere."""
    if "://" not in path and not path.startswith("file:"):
        return path
    from urllib.parse import unquote, urlsplit

    parts = urlsplit(path)
    return unquote(parts.path) if parts.scheme == "file" else None


def append(outputs: MetricsOutputs, line: str, name: str) -> None:
    """Write one line. ``name``: of its file in a folder elsewhere, which is made unique.

    Raises OSError, and what pyarrow does.
    """
    assert outputs.path is not None
    path = local_path(outputs.path)
    if path is None:
        _put(outputs.path, line, name)
        return
    data = line.encode() + b"\n"
    if outputs.max_bytes:
        _rotate(path, len(data), outputs)
    # In one call: other drivers may append to the same file.
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    try:
        if os.write(file, data) < len(data):
            raise OSError(errno.ENOSPC, "the line was written in part")
    finally:
        os.close(file)


def _rotate(path: str, more_bytes: int, outputs: MetricsOutputs) -> None:
    try:
        size = os.stat(path).st_size
    except FileNotFoundError:
        return
    if size and size + more_bytes > outputs.max_bytes:
        from logging.handlers import RotatingFileHandler

        handler = RotatingFileHandler(path, backupCount=BACKUPS, delay=True)
        handler.doRollover()
        handler.close()


def check_path(path: str) -> None:
    """Raises ConfigError when nothing can be written there. No file is made: it would be the one of
    whoever looks, and the job may be another user's.
    """
    file = local_path(path)
    try:
        if file is None:
            _file_system(path)
            return
        if os.path.lexists(file):
            open(file, "ab").close()
        else:
            from tempfile import TemporaryFile

            TemporaryFile(dir=os.path.dirname(file) or ".").close()
    except OSError as error:
        raise ConfigError(
            f"metrics.path: cannot append to {path} on the driver: {reason_of(error)}. "
            "Name a file in a folder that is there and may be written to"
        ) from error
    except (ValueError, NotImplementedError) as error:  # pyarrow's, for URIs
        raise ConfigError(
            f"metrics.path: {path}: {reason_of(error)}. Name a file on the driver, or the "
            "URI of a folder that pyarrow.fs knows there"
        ) from error


def _put(uri: str, line: str, name: str) -> None:
    from uuid import uuid4

    system, folder = _file_system(uri)
    path = f"{folder.rstrip('/')}/{name}-{uuid4().hex[:8]}.json"
    with system.open_output_stream(path) as stream:
        stream.write(line.encode() + b"\n")


def _file_system(uri: str) -> Any:
    """The file system of a URI, and the path in it."""
    from pyarrow.fs import FileSystem

    return FileSystem.from_uri(uri)
