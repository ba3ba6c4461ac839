"""Declare kernels and their helpers, and access memory: values, arrays and nodes at addresses.

A kernel is a function of int64 that returns an int64: numbers and addresses of memory. So numba,
C's calling convention and the caller see the same function, without objects of Python or NumPy.
Further results are written to an address. A process that writes records does not import kernels:
``record/compiled`` declares their names.

In Python, the functions that read and write memory do the same as the compiled functions, so that a
kernel can be followed step by step. ``compiler`` replaces them by intrinsics. Reference counting of
arrays for every row made the append kernel ten times slower, so arrays created here have none.
Integers are little-endian, at any address. Nothing is checked. The helpers at the end read the
table of nodes: see ``record/compiled/nodes``.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

from spark_kafka_sink.record.compiled.nodes import (
    FRAME_END,
    FRAME_INDEX,
    FRAME_MODE,
    FRAME_NODE,
    INT16,
    INT32,
    INT64,
)

KERNELS: dict[str, Callable[..., int]] = {}
"""Every imported kernel by name."""
HELPERS: dict[Callable[..., Any], bool] = {}
"""Every imported helper, with True if it is compiled into each caller."""


def kernel(source: Callable[..., int]) -> Callable[..., int]:
    """Declare a kernel: a function of int64 that returns an int64."""
    assert source.__name__ not in KERNELS, f"two kernels are called {source.__name__}"
    KERNELS[source.__name__] = source
    return source


def inlined(source: Callable[..., Any]) -> Any:
    """Declare a helper that is compiled into each caller."""
    HELPERS[source] = True
    return source


def called(source: Callable[..., Any]) -> Any:
    """Declare a helper that is too large to be compiled into each caller."""
    HELPERS[source] = False
    return source


def _load(address: int, dtype: Any) -> Any:
    return np.frombuffer(ctypes.string_at(int(address), np.dtype(dtype).itemsize), dtype)[0]


def load_uint8(address: int) -> Any:
    """Return the uint8 at ``address``."""
    return _load(address, np.uint8)


def load_int8(address: int) -> Any:
    """Return the int8 at ``address``."""
    return _load(address, np.int8)


def load_int16(address: int) -> Any:
    """Return the int16 at ``address``."""
    return _load(address, np.int16)


def load_int32(address: int) -> Any:
    """Return the int32 at ``address``."""
    return _load(address, np.int32)


def load_uint32(address: int) -> Any:
    """Return the uint32 at ``address``."""
    return _load(address, np.uint32)


def load_int64(address: int) -> Any:
    """Return the int64 at ``address``."""
    return _load(address, np.int64)


def load_uint64(address: int) -> Any:
    """Return the uint64 at ``address``."""
    return _load(address, np.uint64)


def store_uint8(address: int, value: int) -> None:
    """Write the low byte of ``value`` at ``address``."""
    ctypes.c_uint8.from_address(int(address)).value = int(value) & 255


def store_uint16(address: int, value: int) -> None:
    """Write the low two bytes of ``value`` at ``address``."""
    ctypes.c_uint16.from_address(int(address)).value = int(value) & 0xFFFF


def store_uint32(address: int, value: int) -> None:
    """Write the low four bytes of ``value`` at ``address``."""
    ctypes.c_uint32.from_address(int(address)).value = int(value) & 0xFFFFFFFF


def store_uint64(address: int, value: int) -> None:
    """Write the eight bytes of ``value`` at ``address``."""
    ctypes.c_uint64.from_address(int(address)).value = int(value) & (2**64 - 1)


def load_float32(address: int) -> Any:
    """Return the float32 at ``address``."""
    return _load(address, np.float32)


def store_float32(address: int, value: Any) -> None:
    """Write a float32 at ``address``."""
    ctypes.c_float.from_address(int(address)).value = float(value)


def store_float64(address: int, value: Any) -> None:
    """Write a float64 at ``address``."""
    ctypes.c_double.from_address(int(address)).value = float(value)


def copy_bytes(destination: int, source: int, count: int) -> None:
    """Copy as C's memmove does. A loop over bytes costs ten times as much."""
    ctypes.memmove(int(destination), int(source), int(count))


def multiply_wide(left: Any, right: Any) -> Any:
    """Return the low and the high uint64 of the product of two uint64."""
    product = int(left) * int(right)
    return np.uint64(product & (2**64 - 1)), np.uint64(product >> 64)


def leading_zeros(value: Any) -> Any:
    """Return the count of zero bits above the highest set bit of a uint64: 0 to 64, as int64."""
    return np.int64(64 - int(value).bit_length())


def int32_array(address: int, count: int) -> Any:
    """Return the int32[count] at ``address``. The array shares its memory with the address."""
    return _array(ctypes.c_int32 * int(count), address)


def int64_array(address: int, count: int) -> Any:
    """Return the int64[count] at ``address``."""
    return _array(ctypes.c_int64 * int(count), address)


def uint64_array(address: int, count: int) -> Any:
    """Return the uint64[count] at ``address``."""
    return _array(ctypes.c_uint64 * int(count), address)


def int64_table(address: int, rows_count: int, columns_count: int) -> Any:
    """Return the int64[rows_count, columns_count] at ``address``, row by row."""
    return _array(ctypes.c_int64 * int(columns_count) * int(rows_count), address)


def _array(array_type: Any, address: int) -> Any:
    return np.ctypeslib.as_array(array_type.from_address(int(address)))


@inlined
def field(node: int, number: int) -> Any:
    """Return a field of the node, or of the frame, at an address, as int64."""
    return np.int64(load_int64(node + 8 * number))


@inlined
def save_frame(frame: int, mode: int, node: int, end: int, index: int) -> None:
    """Save the progress in a struct, list or map while a value inside it is written."""
    store_uint64(frame + 8 * FRAME_MODE, mode)
    store_uint64(frame + 8 * FRAME_NODE, node)
    store_uint64(frame + 8 * FRAME_END, end)
    store_uint64(frame + 8 * FRAME_INDEX, index)


@inlined
def load_frame(frame: int) -> tuple[Any, Any, Any, Any]:
    """Return the mode, node, end and index that ``save_frame`` has saved."""
    mode, node = field(frame, FRAME_MODE), field(frame, FRAME_NODE)
    return mode, node, field(frame, FRAME_END), field(frame, FRAME_INDEX)


@inlined
def is_bit_set(bitmap: int, index: int) -> bool:
    """Return True if the bit ``index`` of the bitmap at an address is set."""
    return (np.int64(load_uint8(bitmap + (index >> 3))) >> (index & 7)) & 1 != 0


@inlined
def load_integer(kind: int, data: int, index: int) -> Any:
    """Return a value of INT8 to INT64, as int64."""
    if kind == INT32:
        return np.int64(load_int32(data + 4 * index))
    if kind == INT64:
        return np.int64(load_int64(data + 8 * index))
    if kind == INT16:
        return np.int64(load_int16(data + 2 * index))
    return np.int64(load_int8(data + index))


@called
def find_symbol(symbols: int, source: int, count: int) -> int:
    """Return the number of the symbol that equals a string of ``count`` bytes, or -1.

    symbols: address of int64[]: the count of symbols, then address and length of each symbol
    """
    for number in range(load_int64(symbols)):
        entry = symbols + 8 + 16 * number
        if load_int64(entry + 8) == count:
            address = load_int64(entry)
            position = np.int64(0)
            while position < count and load_uint8(address + position) == load_uint8(
                source + position
            ):
                position += 1
            if position == count:
                return np.int64(number)
    return np.int64(-1)
