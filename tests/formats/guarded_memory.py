"""Memory behind which nothing may be read: the process would end."""

from __future__ import annotations

import ctypes
import mmap
import struct

import pyarrow as pa

PAGE = mmap.PAGESIZE
NOT_TO_BE_READ = 0  # PROT_NONE


class Guarded:
    """Memory before a page that nobody may read."""

    def __init__(self) -> None:
        self._map = mmap.mmap(-1, 17 * PAGE)
        begin = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        self._stop = begin + 16 * PAGE
        libc = ctypes.CDLL(None, use_errno=True)
        assert libc.mprotect(ctypes.c_void_p(self._stop), PAGE, NOT_TO_BE_READ) == 0

    def at_the_end(self, data: bytes) -> pa.BinaryArray:
        """One row, whose last byte is the last one that may be read."""
        address = self._stop - len(data)
        ctypes.memmove(address, data, len(data))
        offsets = pa.py_buffer(struct.pack("<ii", 0, len(data)))
        buffers = [None, offsets, pa.foreign_buffer(address, len(data), self)]
        return pa.BinaryArray.from_buffers(pa.binary(), 1, buffers)
