"""The library with the machine code of all kernels, for the platform of this process.

It lies beside this module, one file for each platform, made when the package is built. A process
loads it and does nothing else: it keeps no file and compiles nothing.

In a checkout the sources of the kernels are there as well. A library of other sources is refused.
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
"""The command that makes the libraries of a checkout, as ``make kernels`` does."""


def platform_name() -> str:
    """Return the platform that machine code is for, as linux-x86_64."""
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
    """Return the platforms whose libraries the package has; there is one at least.

    Raises ConfigError if there is none, or one of other sources than those of this checkout.
    """
    symbol = _sources_symbol()
    known = platforms()
    for one in known:
        file = importlib.resources.files(_PACKAGE) / library_name(one)
        if symbol is not None and symbol.encode() not in file.read_bytes():
            raise ConfigError(_stale(str(file)))
    if not known:
        raise ConfigError(_missing(is_checkout=symbol is not None))
    return known


def address_in_library(name: str) -> int:
    """Return the address of the kernel ``name``.

    Raises ConfigError where the package has no library for this platform.
    """
    address = ctypes.cast(getattr(_library(), name), ctypes.c_void_p).value
    assert address is not None
    return address


def check_platform() -> None:
    """Load the library. Raises ConfigError where that cannot be done."""
    _library()


@cache
def _library() -> ctypes.CDLL:
    file = importlib.resources.files(_PACKAGE) / library_name(platform_name())
    sources_symbol = _sources_symbol()
    if not file.is_file():
        raise ConfigError(_missing(is_checkout=sources_symbol is not None))
    try:
        # Processes share the memory of a path that they map; a file within a zip has no path.
        library = ctypes.CDLL(str(file)) if isinstance(file, Path) else _loaded(file.read_bytes())
    except OSError as error:
        raise ConfigError(
            f"the kernels' library {file} cannot be loaded: {error}. Install pykafka-sink again"
        ) from error
    if sources_symbol is not None and not hasattr(library, sources_symbol):
        raise ConfigError(_stale(str(file)))
    return library


def _loaded(data: bytes) -> ctypes.CDLL:
    """Load a library that is no file of the file system."""
    memfd_create: Callable[[str], int] | None = getattr(os, "memfd_create", None)
    if memfd_create is None:
        raise ConfigError(
            "out of a zip file the kernels are loaded on Linux alone: install the wheel"
        )
    # A file without a name: folders for temporary files may be mounted noexec.
    descriptor = memfd_create("pykafka-sink-kernels")
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(data)
        return ctypes.CDLL(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)


def _sources_symbol() -> str | None:
    """Return the symbol that a library of this checkout's sources has; None if it is no checkout.

    The wheel leaves the sources out.
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
