"""The kernels by name, and how they are called.

A kernel is a function of int64 that returns an int64: numbers and addresses of memory. Here it is
machine code out of ``library``. Its source, in ``record/kernels``, is Python that is compiled when
the package is built; no process that writes records imports it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from spark_kafka_sink.record.compiled.library import address_in_library


class Kernel:
    """A kernel: call it with int64 numbers. It is loaded at the first call at the latest.

    parameters_count: how many int64 it takes
    """

    def __init__(self, name: str, parameters_count: int) -> None:
        self.name = name
        self.parameters_count = parameters_count
        self._machine_code: Callable[..., int] | None = None

    def __call__(self, *numbers: int) -> int:
        return (self._machine_code or self.machine_code())(*numbers)

    def machine_code(self) -> Callable[..., int]:
        """Return the compiled function itself, for those who call it often. It gives up the GIL.

        Raises ConfigError where the package has no kernels for this platform.
        """
        if self._machine_code is None:
            pointer = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * self.parameters_count)
            self._machine_code = pointer(address_in_library(self.name))
        return self._machine_code


append_records = Kernel("append_records", 8)
copy_chain = Kernel("copy_chain", 5)
murmur3_of = Kernel("murmur3_of", 2)
fill_slots = Kernel("fill_slots", 9)
find_largest_record = Kernel("find_largest_record", 3)
fill_content_sizes = Kernel("fill_content_sizes", 3)
take_records_at = Kernel("take_records_at", 6)
add_rows_digest = Kernel("add_rows_digest", 3)
write_json = Kernel("write_json", 1)
write_avro = Kernel("write_avro", 1)
write_protobuf = Kernel("write_protobuf", 1)

KERNELS: dict[str, Kernel] = {
    kernel.name: kernel
    for kernel in (
        *(append_records, copy_chain, murmur3_of, fill_slots, take_records_at),
        *(find_largest_record, fill_content_sizes, add_rows_digest),
        *(write_json, write_avro, write_protobuf),
    )
}
"""All of them. The build compares names and counts with the sources."""


def load_kernels() -> None:
    """Have every kernel ready to run. Raises ConfigError where there is no library for them."""
    for kernel in KERNELS.values():
        kernel.machine_code()


def address_of(array: npt.NDArray[Any]) -> int:
    """Return the address of the first element. Whoever passes it on keeps the array until then."""
    return array.ctypes.data


def int64s(numbers: list[int]) -> npt.NDArray[np.int64]:
    """Return numbers for a kernel to read."""
    return np.array(numbers, np.int64)
