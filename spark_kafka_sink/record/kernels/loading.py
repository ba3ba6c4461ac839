"""Compiled kernels become callable: a shared library by the system's loader, an object by LLVM's.

Where the machine that compiled had no linker there is an object file alone. LLVM loads it without
compiling anything; that costs 40 MiB of memory for code in each process.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

from spark_kafka_sink.base.errors import ConfigError

Addresses = Callable[[str], int]
"""The address of a kernel, by name."""

_ELF = b"\x7fELF"
_TYPE_AT = 16
_SHARED_LIBRARY = 3


def is_shared_library(data: bytes) -> bool:
    """Whether ``data`` is a shared library of Linux; else it is taken for an object file."""
    if data[:4] != _ELF or len(data) < _TYPE_AT + 2:
        return False
    return struct.unpack_from("<H", data, _TYPE_AT) == (_SHARED_LIBRARY,)


def opened(path: str | Path) -> Addresses:
    """The kernels of a shared library. Raises OSError if it cannot be loaded."""
    library = ctypes.CDLL(str(path))

    def address_of(name: str) -> int:
        address = ctypes.cast(getattr(library, name), ctypes.c_void_p).value
        assert address is not None
        return address

    return address_of


def loaded(data: bytes) -> Addresses:
    """The kernels of a shared library's or an object file's content.

    Raises OSError or RuntimeError if it cannot be loaded, ConfigError without llvmlite.
    """
    if not is_shared_library(data):
        return _loaded_object(data)
    # A file without a name: folders for temporary files may be mounted noexec.
    descriptor = os.memfd_create("pykafka-sink-kernels")
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(data)
        return opened(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)


_ENGINES: list[Any] = []
"""What owns the memory of object files, until the process ends."""


def _loaded_object(data: bytes) -> Addresses:
    try:
        import llvmlite.binding as llvm
    except ImportError as error:
        raise ConfigError(
            f"compiled kernels are an object file, which llvmlite loads: {error}. Install numba, "
            "or a C compiler, whose linker makes a library of it"
        ) from error
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    object_file = llvm.ObjectFileRef.from_data(data)
    machine = llvm.Target.from_default_triple().create_target_machine()
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
    engine.add_object_file(object_file)
    engine.finalize_object()
    _ENGINES.append(engine)
    return engine.get_function_address
