"""Single keys of a terminal, while something else is shown in it."""

from __future__ import annotations

import os
import select
import sys
from threading import Event
from types import TracebackType
from typing import Any

try:
    import termios
    import tty
except ImportError:  # not on Windows: there is Ctrl-C
    termios = tty = None  # type: ignore[assignment]


class Keyboard:
    """Reads keys without Enter, and without showing them. A context manager.

    At its end the terminal is as it was. Without a terminal there are no keys.
    """

    def __init__(self) -> None:
        is_one = termios is not None and sys.stdin is not None and sys.stdin.isatty()
        self._file: int | None = sys.stdin.fileno() if is_one else None
        self._before: list[Any] = []

    def __enter__(self) -> Keyboard:
        if self._file is not None:
            self._before = termios.tcgetattr(self._file)
            # Ctrl-C stays what it is.
            tty.setcbreak(self._file)
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._file is not None:
            termios.tcsetattr(self._file, termios.TCSADRAIN, self._before)

    def pressed(self, seconds: float) -> str:
        """The keys that are pressed within a time; "" at its end."""
        if self._file is None:
            Event().wait(seconds)
            return ""
        is_there, _, _ = select.select([self._file], [], [], seconds)
        if not is_there:
            return ""
        data = os.read(self._file, 1024)
        if not data:  # the terminal is gone
            self._file = None
        return data.decode(errors="replace")
