"""Which process this is about: an id may be another process's later, so its start counts too."""

from __future__ import annotations

import os
from pathlib import Path

_PROC = Path("/proc")
# Fields of /proc/PID/stat after the name, which may contain spaces: proc(5) counts from 3.
_STATE, _START_TIME = 0, 19


def identity_of(process_id: int) -> str | None:
    """A name that no other process of this machine has had since it was started; None when it has
    ended. Where there is no /proc, the id alone.
    """
    try:
        stat = (_PROC / str(process_id) / "stat").read_bytes()
    except OSError:
        return None if (_PROC / "self" / "stat").exists() else _identity_without_proc(process_id)
    fields = stat.rpartition(b")")[2].split()
    return None if fields[_STATE] in b"ZX" else f"{process_id}-{fields[_START_TIME].decode()}"


def _identity_without_proc(process_id: int) -> str | None:
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        pass  # somebody else's, and there
    return str(process_id)
