"""A file in Prometheus' text format, for node_exporter's textfile collector.

Spark's committing process may be another one for each batch, so totals go on from the file itself:
one process at a time reads and replaces it.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from secrets import token_hex

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.metrics.exposition import Exposition
from spark_kafka_sink.metrics.names import Values
from spark_kafka_sink.metrics.told import Told, reason_of

_Stamp = tuple[int, int, int]

_known: dict[str, tuple[_Stamp, Exposition]] = {}
"""Of files that this process has written, and that nobody has since."""


class Writing:
    """To one file."""

    def __init__(self, path: str) -> None:
        self._path = path
        name = "metrics.prometheus.path"
        self._told = Told(f"{name}: cannot write {path}", f"{name}: {path} is written again")

    def send(self, line: Values, lost: int) -> None:
        """Add one batch; the log is told what cannot be written."""
        problem = None
        try:
            add_to_textfile(self._path, line)
        except (OSError, ValueError) as error:
            problem = reason_of(error)
        self._told.note(problem, lost)


def add_to_textfile(path: str, line: Values) -> None:
    """Add one batch. The file is replaced as a whole: a reader sees the old or the new one.

    Raises OSError, and ValueError for a file that is not in this format.
    """
    with _alone(path):
        exposition = _begun(path)
        exposition.add(line)
        _replace(path, exposition.text())
        stamp = _stamp(path)
        assert stamp is not None, "it was just written"
        _known[path] = stamp, exposition


def check_textfile(path: str) -> None:
    """Raises ConfigError where no such file can be written, or something else is there."""
    folder = os.path.dirname(path) or "."
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ConfigError(
            f"metrics.prometheus.path: cannot write to {folder} on the driver. Name a file in a "
            "folder that is there and may be written to"
        )
    try:
        _begun(path)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"metrics.prometheus.path: {path} on the driver is not a file in Prometheus' format "
            f"({error}). Remove it, or name another one"
        ) from error


@contextmanager
def _alone(path: str) -> Iterator[None]:
    """No other process changes files of that folder meanwhile, as far as the folder can be locked:
    not on each network file system. A lock of its own would be a file that is left there.
    """
    folder = os.open(os.path.dirname(path) or ".", os.O_RDONLY | os.O_CLOEXEC)
    try:
        with suppress(OSError):
            fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def _replace(path: str, text: str) -> None:
    part = f"{path}.{os.getpid()}.{token_hex(4)}"
    try:
        with open(part, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(part, path)
    except OSError:
        with suppress(OSError):
            os.remove(part)
        raise


def _begun(path: str) -> Exposition:
    """What the file holds, without reading it again if it is still this process' own."""
    stamp = _stamp(path)
    if path in _known and _known[path][0] == stamp:
        return _known[path][1]
    exposition = Exposition()
    if stamp is not None:
        with open(path, encoding="utf-8") as file:
            exposition.go_on_from(file.read())
    return exposition


def _stamp(path: str) -> _Stamp | None:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
