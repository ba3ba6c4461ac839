"""Processes: their identities, and the environment variables that the sink reads or sets for them.

A process id may be reused, so the start time counts, too.
"""

from __future__ import annotations

import os
from pathlib import Path

_PROC = Path("/proc")
# Fields of /proc/PID/stat after the name, which may contain spaces: proc(5) counts from 3.
_STATE, _START_TIME = 0, 19


def identity_of(process_id: int) -> str | None:
    """Return a name unique to this process on this machine since its boot; None if it has ended.

    Without /proc, return the id alone.
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
        pass  # the process exists and is another user's
    return str(process_id)


CACHE_VARIABLE = "PYKAFKA_SINK_CACHE"
"""Names the cache shared between processes: the jars of tests' brokers."""


def named_folder(variable: str) -> Path | None:
    """Return the folder that an environment variable names; None if it is not set."""
    value = os.environ.get(variable)
    if not value:
        return None
    # Not Path.expanduser, which raises without a home directory.
    return Path(os.path.expanduser(value)).absolute()


def user_cache_folder() -> Path | None:
    """Return ``$XDG_CACHE_HOME/pykafka-sink`` or ``~/.cache/pykafka-sink``; None without a home."""
    base = os.path.expanduser(os.environ.get("XDG_CACHE_HOME") or "~/.cache")
    return Path(base) / "pykafka-sink" if os.path.isabs(base) else None


def child_environment() -> dict[str, str]:
    """Return an environment in which a new Python finds this package, wherever it is."""
    root = str(Path(__file__).absolute().parents[2])
    inherited = os.environ.get("PYTHONPATH")
    path = root if not inherited else os.pathsep.join((root, inherited))
    return {**os.environ, "PYTHONPATH": path}
