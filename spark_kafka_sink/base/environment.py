"""Environment variables that the sink obeys, refuses, or gives to processes that it starts."""

from __future__ import annotations

import os
from pathlib import Path

from spark_kafka_sink.base.errors import ConfigError

CACHE_VARIABLE = "PYKAFKA_SINK_CACHE"
"""The folder of everything that is kept between processes: compiled kernels, downloaded jars."""
COMPILER_CACHE_VARIABLE = "NUMBA_CACHE_DIR"
"""numba's own variable for compiled kernels alone. It has priority."""
_DISABLE_COMPILER_VARIABLE = "NUMBA_DISABLE_JIT"


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


def refuse_disabled_compiler() -> None:
    """Raise ConfigError if numba is told not to compile: kernels cannot run interpreted."""
    if os.environ.get(_DISABLE_COMPILER_VARIABLE, "").strip() not in ("", "0"):
        raise ConfigError(disabled_compiler_message())


def disabled_compiler_message() -> str:
    """What to say when numba is told not to compile."""
    return (
        f"{_DISABLE_COMPILER_VARIABLE} is set, so numba would not compile: the kernels of this "
        "sink read and write memory by address and cannot run as interpreted Python. Remove it "
        f"from the environment of driver and executors, or set {_DISABLE_COMPILER_VARIABLE}=0"
    )
