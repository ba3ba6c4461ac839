"""Processes: which one an id is, and the environment variables that the sink obeys or hands on.

An id may be another process's later, so its start counts too.
"""

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


CACHE_VARIABLE = "PYKAFKA_SINK_CACHE"
"""The folder of what is kept between processes: the jars that tests' brokers are made of."""


def named_folder(variable: str) -> Path | None:
    """The folder that an environment variable names, or None if it is not set."""
    value = os.environ.get(variable)
    if not value:
        return None
    # Not Path.expanduser: that raises where there is no home directory.
    return Path(os.path.expanduser(value)).absolute()


def user_cache_folder() -> Path | None:
    """``$XDG_CACHE_HOME/pykafka-sink``, else ``~/.cache/pykafka-sink``; None without a home."""
    base = os.path.expanduser(os.environ.get("XDG_CACHE_HOME") or "~/.cache")
    return Path(base) / "pykafka-sink" if os.path.isabs(base) else None


def child_environment() -> dict[str, str]:
    """In which a new Python finds this package, wherever it was imported from."""
    root = str(Path(__file__).absolute().parents[2])
    inherited = os.environ.get("PYTHONPATH")
    path = root if not inherited else os.pathsep.join((root, inherited))
    return {**os.environ, "PYTHONPATH": path}
