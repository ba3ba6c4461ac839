"""The kernels for macOS in a process of Linux: the machine code is the same, only its file differs.

``python -m pytest -p tests.kernels.mach_o …`` runs tests of kernels on the library for macOS on this
processor. The plugin does what macOS does with such a file: it maps the segments, and writes the
addresses of the C functions that the code calls. ``python -m tests.kernels.mach_o FILE`` prints what
LIEF reads of a library.
"""

import ctypes
import json
import mmap
import os
import platform
import sys
from pathlib import Path

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


def read(path):
    """What LIEF reads of a library for one processor; addresses are relative to its first byte."""
    import lief  # of a process of its own in `make test`: it writes to stderr at the end of pytest

    library = lief.parse(str(path))
    signature = library.code_signature
    return {
        "processor": library.header.cpu_type.name.lower(),
        "system": library.build_version.platform.name,
        "oldest": list(library.build_version.minos),
        "libraries": [one.name for one in library.libraries],
        "exported": {one.name: one.value for one in library.exported_symbols},
        "imported": [one.name for one in library.imported_symbols],
        "bindings": [(one.address, one.symbol.name) for one in library.bindings],
        "relocations": [one.address for one in library.relocations],
        "segments": [(s.virtual_address, s.file_offset, s.file_size) for s in library.segments],
        "size": library.virtual_size,
        "signature": signature and (signature.data_offset, signature.data_size),
    }


class Image:
    """A library in the memory of this process."""

    def __init__(self, path):
        library, content = read(path), path.read_bytes()
        self._offsets = library["exported"]
        with open(os.memfd_create("kernels"), "wb") as file:
            file.truncate(library["size"])
            for address, offset, size in library["segments"]:
                file.seek(address)
                file.write(content[offset : offset + size])
            file.flush()
            # Of a file: processors of Arm may run other code than was just written to memory.
            self._memory = mmap.mmap(
                file.fileno(), library["size"], flags=mmap.MAP_PRIVATE, prot=_ALL
            )
        self._base = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        for address in library["relocations"]:
            self._write(address, self._base + self._read(address))
        for address, name in library["bindings"]:
            if name != OF_THE_LOADER:
                function = getattr(ctypes.CDLL(None), name.removeprefix("_"))
                self._write(address, ctypes.cast(function, ctypes.c_void_p).value)

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


if __name__ == "__main__":
    print(json.dumps(read(Path(sys.argv[1]))))
