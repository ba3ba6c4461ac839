"""The kernels for macOS in a process of Linux: the machine code is the same, only its file differs.

``python -m pytest -p tests.kernels.mach_o …`` runs tests of kernels on the library for macOS on this
processor. The plugin does what macOS does with such a file: it maps the segments, and writes the
addresses of the C functions that the code calls.
"""

import ctypes
import mmap
import os
import platform
from pathlib import Path

import lief

from spark_kafka_sink.record.compiled import calls
from spark_kafka_sink.record.compiled.library import library_name

FOLDER = Path(calls.__file__).parent
PROCESSORS = {"x86_64": "x86_64", "aarch64": "arm64"}
"""The names that macOS has for processors, by those of Linux."""
OF_THE_LOADER = "dyld_stub_binder"
"""Finds a function at its first call, unless the loader has found it before."""
_ALL = mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC
_POINTER_BYTES = 8


def library_of(processor):
    return FOLDER / library_name(f"darwin-{processor}")


def parsed(path):
    """What LIEF reads of a library for one processor."""
    return lief.parse(str(path))


class Image:
    """A library in the memory of this process."""

    def __init__(self, path):
        library = parsed(path)
        self._offsets = {symbol.name: symbol.value for symbol in library.exported_symbols}
        with open(os.memfd_create("kernels"), "wb") as file:
            file.truncate(library.virtual_size)
            for segment in library.segments:
                file.seek(segment.virtual_address)
                file.write(bytes(segment.content))
            file.flush()
            # Of a file: processors of Arm may run other code than was just written to memory.
            self._memory = mmap.mmap(
                file.fileno(), library.virtual_size, flags=mmap.MAP_PRIVATE, prot=_ALL
            )
        self._base = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        for relocation in library.relocations:
            self._write(relocation.address, self._base + self._read(relocation.address))
        for binding in library.bindings:
            if binding.symbol.name != OF_THE_LOADER:
                function = getattr(ctypes.CDLL(None), binding.symbol.name.removeprefix("_"))
                self._write(binding.address, ctypes.cast(function, ctypes.c_void_p).value)

    def address_of(self, name):
        return self._base + self._offsets[f"_{name}"]

    def _read(self, offset):
        return int.from_bytes(self._memory[offset : offset + _POINTER_BYTES], "little")

    def _write(self, offset, pointer):
        self._memory[offset : offset + _POINTER_BYTES] = pointer.to_bytes(_POINTER_BYTES, "little")


def pytest_configure(config):
    calls.address_in_library = Image(library_of(PROCESSORS[platform.machine()])).address_of


def pytest_report_header(config):
    return f"kernels: {calls.address_in_library.__self__}"
