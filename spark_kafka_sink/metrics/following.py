"""Reads the lines that are appended to a file while it is read, and goes on after rotations."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from itertools import count
from typing import Any, BinaryIO

from spark_kafka_sink.metrics.schema import read_line

logger = logging.getLogger(__name__)

_BUFFER_BYTES = 1024 * 1024


class OpenedFile:
    """Open until nobody knows it any more. What is renamed or removed meanwhile can be read, and
    no new file gets its inode.
    """

    def __init__(self, path: str) -> None:
        """Raises OSError."""
        self.path = path
        self._descriptor = -1
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def __del__(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)

    def is_same(self, other: OpenedFile) -> bool:
        """Whether it is the same file, under whatever name."""
        return os.path.sameopenfile(self._descriptor, other._descriptor)

    @property
    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    @property
    def changed_ns(self) -> int:
        """When it was written the last time."""
        return os.fstat(self._descriptor).st_mtime_ns

    def stream(self) -> BinaryIO:
        """From its beginning."""
        file = open(os.dup(self._descriptor), "rb", buffering=_BUFFER_BYTES)  # noqa: SIM115
        file.seek(0)
        return file


class FollowedLines:
    """The lines of a file, from ``start`` on. The file may come later.

    Rotated ones are ``path.1``, ``path.2``, …, the newest first.
    """

    def __init__(self, path: str, from_end: bool) -> None:
        """from_end: only lines that are appended from now on"""
        self._path = path
        self._position = 0
        self._known: OpenedFile | None = next(iter(_opened(path)), None)
        if from_end and self._known is not None:
            self._position = self._known.size

    def read(self) -> list[dict[str, Any]]:
        """The lines since the last call; what is no line of the sink is left out.

        After rotations, first the rest of the file that was the last one, and those after it.
        """
        texts = self.read_texts().splitlines()
        return [line for text in texts if (line := read_line(text)) is not None]

    def read_texts(self) -> bytes:
        """The same as they were written, whatever they are; each ends with a line feed."""
        newer = self._newer()
        texts = self._rest()
        for file in reversed(newer):
            self._known, self._position = file, 0
            texts += self._rest()
        return texts

    def older(self) -> list[OpenedFile]:
        """The rotated files before the one that is read first, the oldest one first."""
        found: list[OpenedFile] = []
        for file in _opened(self._path):
            is_known = self._known is not None and file.is_same(self._known)
            found = [] if is_known else [*found, file]
        return found[::-1]

    def _newer(self) -> list[OpenedFile]:
        """Those after the known one, the newest first."""
        found: list[OpenedFile] = []
        known = self._known
        for file in _opened(self._path):
            if known is not None and file.is_same(known):
                return found
            is_rotated = file.path != self._path
            if known is not None and is_rotated and file.changed_ns < known.changed_ns:
                return found  # it is older: the known one was removed, or has another name
            found.append(file)
        if known is not None and len(found) > 1:
            logger.warning(
                f"{self._path} was rotated more often than its files are kept since it was read "
                "the last time: lines may be missing here. Raise metrics.path.max.bytes, "
                "or have it read more often"
            )
        return found

    def _rest(self) -> bytes:
        if self._known is None:
            return b""
        if self._known.size < self._position:  # it was emptied
            self._position = 0
        with self._known.stream() as file:
            file.seek(self._position)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]  # the last one may still be being written
        self._position += len(whole)
        return whole


def _opened(path: str) -> Iterator[OpenedFile]:
    """The file and its rotated ones, the newest first, each once.

    A rotation renames the oldest one first, so meanwhile one name has no file, and a file that was
    opened here has its next name later.
    """
    last: OpenedFile | None = None
    missing = 0
    for number in count():
        try:
            file = OpenedFile(f"{path}.{number}" if number else path)
        except FileNotFoundError:
            missing += 1
            if missing > 1:
                return
            continue
        if last is None or not file.is_same(last):
            yield file
        last, missing = file, 0
