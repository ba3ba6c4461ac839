"""The library with the machine code of all kernels, for the platform of this process.

The build of the package creates one library file per platform beside this module. A process only
loads it: it writes no file and compiles nothing.

A checkout also contains the sources of the kernels. A library of other sources is rejected.
"""

from __future__ import annotations

import ctypes
import importlib.resources
import os
import platform
import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path

from spark_kafka_sink.base.errors import ConfigError

_PACKAGE = "spark_kafka_sink.record.compiled"
_SOURCES = "spark_kafka_sink.record.kernels.sources"
_PREFIX, _SUFFIX = "kernels-", ".so"
REBUILD = "python -m spark_kafka_sink.record.kernels.build"
"""The command that builds the libraries of a checkout, as ``make kernels`` does."""


def platform_name() -> str:
    """Return the platform of this process, as linux-x86_64."""
    return f"{sys.platform}-{platform.machine().lower()}"


def library_name(of_platform: str) -> str:
    """Return the name of the file with a platform's library."""
    return f"{_PREFIX}{of_platform}{_SUFFIX}"


def platforms() -> list[str]:
    """Return the platforms whose libraries the package has."""
    names = (file.name for file in importlib.resources.files(_PACKAGE).iterdir())
    return sorted(
        name[len(_PREFIX) : -len(_SUFFIX)]
        for name in names
        if name.startswith(_PREFIX) and name.endswith(_SUFFIX)
    )


def check_libraries() -> list[str]:
    """Return the platforms whose libraries the package has, at least one.

    Raises ConfigError without a library, or for a library of other sources than this checkout's.
    """
    symbol = _sources_symbol()
    known = platforms()
    for one in known:
        file = importlib.resources.files(_PACKAGE) / library_name(one)
        if symbol is not None and symbol.encode() not in file.read_bytes():
            raise ConfigError(_stale(str(file)), code="SPARK-002")
    if not known:
        raise ConfigError(_missing(is_checkout=symbol is not None), code="SPARK-001")
    return known


def address_in_library(name: str) -> int:
    """Return the address of the kernel ``name``.

    Raises ConfigError if the package has no library for this platform.
    """
    address = ctypes.cast(getattr(_library(), name), ctypes.c_void_p).value
    assert address is not None
    return address


def check_platform() -> None:
    """Load the library. Raises ConfigError if that fails."""
    _library()


@cache
def _library() -> ctypes.CDLL:
    file = importlib.resources.files(_PACKAGE) / library_name(platform_name())
    sources_symbol = _sources_symbol()
    if not file.is_file():
        raise ConfigError(_missing(is_checkout=sources_symbol is not None), code="SPARK-001")
    try:
        # Processes share the memory of a mapped file; a file inside a zip has no path to map.
        library = ctypes.CDLL(str(file)) if isinstance(file, Path) else _loaded(file.read_bytes())
    except OSError as error:
        raise ConfigError(
            f"the kernels' library {file} cannot be loaded: {error}. Install pykafka-sink again",
            code="SPARK-002",
        ) from error
    if sources_symbol is not None and not hasattr(library, sources_symbol):
        raise ConfigError(_stale(str(file)), code="SPARK-002")
    return library


def _loaded(data: bytes) -> ctypes.CDLL:
    """Load a library from bytes, for a package inside a zip file."""
    memfd_create: Callable[[str], int] | None = getattr(os, "memfd_create", None)
    if memfd_create is None:
        raise ConfigError(
            "out of a zip file the kernels are loaded on Linux alone: install the wheel",
            code="SPARK-001",
        )
    # A file in memory: folders for temporary files may be mounted noexec.
    descriptor = memfd_create("pykafka-sink-kernels")
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(data)
        return ctypes.CDLL(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)


def _sources_symbol() -> str | None:
    """Return the symbol that a library of this checkout's sources has; None in a wheel.

    The wheel does not contain the sources.
    """
    try:
        sources = import_module(_SOURCES)
    except ModuleNotFoundError:
        return None
    symbol: str = sources.symbol()
    return symbol


def _stale(path: str) -> str:
    return (
        f"the kernels' library {path} is of other sources than those of this checkout. "
        f"Build it again: make kernels, or {REBUILD}"
    )


def _missing(is_checkout: bool) -> str:
    known = ", ".join(platforms()) or "no platform"
    if is_checkout:
        advice = f"Build it: make kernels, or {REBUILD}"
    else:
        advice = (
            "Run the processes that write on one of those, or install pykafka-sink from its sdist "
            "on this platform, which compiles them: pip install --no-binary pykafka-sink "
            "pykafka-sink"
        )
    return f"pykafka-sink has no kernels for {platform_name()}, it has them for {known}. {advice}"
