"""Kernels and their helpers, as they are declared. What compiles them is in ``compiler``.

A kernel is a function of int64 that returns an int64: numbers and addresses of memory. So it is the
same function for numba, for C's calling convention, and for whoever calls it; nothing of Python or
NumPy is known below. What has to come back besides is written to an address.

To a process that writes records a kernel is machine code, loaded by ``library``. The Python code
below ``@kernel`` is compiled by another process, once, and never run here.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt


class Kernel:
    """A kernel: call it with int64 numbers. Loaded, or compiled, at the first call at the latest.

    source: the function in Python; parameters_count: how many int64 it takes
    """

    def __init__(self, source: Callable[..., int]) -> None:
        self.source = source
        self.name = source.__name__
        self.parameters_count = source.__code__.co_argcount
        self._machine_code: Callable[..., int] | None = None

    def __call__(self, *numbers: int) -> int:
        return (self._machine_code or self.machine_code())(*numbers)

    def machine_code(self) -> Callable[..., int]:
        """The compiled function itself, for those who call it often. It gives up the GIL."""
        if self._machine_code is None:
            # Not at the top: what compiles declares kernels, and loads none.
            from spark_kafka_sink.record.kernels.library import LIBRARY

            pointer = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * self.parameters_count)
            self._machine_code = pointer(LIBRARY.address_of(self.name))
        return self._machine_code


KERNELS: dict[str, Kernel] = {}
"""Every kernel that was imported, by name."""
HELPERS: dict[Callable[..., Any], bool] = {}
"""Every helper that was imported: is it compiled into whoever calls it?"""


def kernel(source: Callable[..., int]) -> Kernel:
    """Declare a kernel: a function of int64 that returns an int64."""
    assert source.__name__ not in KERNELS, f"two kernels are called {source.__name__}"
    declared = KERNELS[source.__name__] = Kernel(source)
    return declared


def inlined(source: Callable[..., Any]) -> Any:
    """Declare a helper of kernels: compiled into whoever calls it."""
    HELPERS[source] = True
    return source


def called(source: Callable[..., Any]) -> Any:
    """Declare a helper that is too large for each place that uses it to have a copy."""
    HELPERS[source] = False
    return source


def address_of(array: npt.NDArray[Any]) -> int:
    """Address of the first element. Whoever passes it on keeps the array until then."""
    return array.ctypes.data


def int64s(numbers: list[int]) -> npt.NDArray[np.int64]:
    """Numbers for a kernel to read."""
    return np.array(numbers, np.int64)
