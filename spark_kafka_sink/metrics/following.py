"""Reads the lines that are appended to a file while it is read, and goes on after a rotation."""

from __future__ import annotations

import json
import os
from typing import Any


class FollowedLines:
    """The lines of a file, from ``start`` on. The file may come later."""

    def __init__(self, path: str, from_end: bool) -> None:
        """from_end: only lines that are appended from now on"""
        self._path = path
        self._position = 0
        self._inode: int | None = None
        if from_end and os.path.exists(path):
            found = os.stat(path)
            self._position, self._inode = found.st_size, found.st_ino

    def read(self) -> list[dict[str, Any]]:
        """The lines since the last call; what is no line of the sink is left out.

        After a rotation, first the rest of the file that was renamed.
        """
        texts = self.read_texts().splitlines()
        return [line for text in texts if (line := _line(text)) is not None]

    def read_texts(self) -> bytes:
        """The same as they were written, whatever they are; each ends with a line feed."""
        try:
            found = os.stat(self._path)
        except FileNotFoundError:
            return b""
        texts = b""
        is_another = self._inode not in (None, found.st_ino)
        if is_another or found.st_size < self._position:
            texts = self._rest_of(f"{self._path}.1")
            self._position = 0
        self._inode = found.st_ino
        return texts + self._read(self._path)

    def _rest_of(self, renamed: str) -> bytes:
        try:
            is_it = os.stat(renamed).st_ino == self._inode
        except FileNotFoundError:
            return b""
        return self._read(renamed) if is_it else b""

    def _read(self, path: str) -> bytes:
        with open(path, "rb") as file:
            file.seek(self._position)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]  # the last one may still be being written
        self._position += len(whole)
        return whole


def _line(text: bytes) -> dict[str, Any] | None:
    try:
        line = json.loads(text)
    except ValueError:
        return None
    is_ours = isinstance(line, dict) and line.get("sink") == "pykafka-sink"
    return line if is_ours else None
