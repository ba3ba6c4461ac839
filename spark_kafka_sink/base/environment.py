"""Environment variables that the sink obeys, or gives to processes that it starts."""

from __future__ import annotations

import os
from pathlib import Path

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
