"""Memory as kernels see it: values and arrays at addresses.

In Python these functions do the same as when they are compiled, so that a kernel can be followed
step by step; ``compiler`` has what takes their place. Arrays that are passed around inside a kernel
would cost reference counting for every row, which made the append kernel ten times slower: those
made here are not counted.

Integers are little-endian, at any address. Nothing is checked.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np


def _load(address: int, dtype: Any) -> Any:
    return np.frombuffer(ctypes.string_at(int(address), np.dtype(dtype).itemsize), dtype)[0]


def load_uint8(address: int) -> Any:
    """The uint8 at ``address``."""
    return _load(address, np.uint8)


def load_int8(address: int) -> Any:
    """The int8 at ``address``."""
    return _load(address, np.int8)


def load_int16(address: int) -> Any:
    """The int16 at ``address``."""
    return _load(address, np.int16)


def load_int32(address: int) -> Any:
    """The int32 at ``address``."""
    return _load(address, np.int32)


def load_uint32(address: int) -> Any:
    """The uint32 at ``address``."""
    return _load(address, np.uint32)


def load_int64(address: int) -> Any:
    """The int64 at ``address``."""
    return _load(address, np.int64)


def load_uint64(address: int) -> Any:
    """The uint64 at ``address``."""
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
    """The float32 at ``address``."""
    return _load(address, np.float32)


def store_float32(address: int, value: Any) -> None:
    """Write a float32 at ``address``."""
    ctypes.c_float.from_address(int(address)).value = float(value)


def store_float64(address: int, value: Any) -> None:
    """Write a float64 at ``address``."""
    ctypes.c_double.from_address(int(address)).value = float(value)


def copy_bytes(destination: int, source: int, count: int) -> None:
    """memmove: a byte loop costs ten times as much."""
    ctypes.memmove(int(destination), int(source), int(count))


def multiply_wide(left: Any, right: Any) -> Any:
    """The low and the high uint64 of the product of two uint64."""
    product = int(left) * int(right)
    return np.uint64(product & (2**64 - 1)), np.uint64(product >> 64)


def leading_zeros(value: Any) -> Any:
    """How many bits above the highest one of a uint64 are zero: 0 to 64, as int64."""
    return np.int64(64 - int(value).bit_length())


def int32_array(address: int, count: int) -> Any:
    """The int32[count] at ``address``; what is written to it is written there."""
    return _array(ctypes.c_int32 * int(count), address)


def int64_array(address: int, count: int) -> Any:
    """The int64[count] at ``address``."""
    return _array(ctypes.c_int64 * int(count), address)


def uint64_array(address: int, count: int) -> Any:
    """The uint64[count] at ``address``."""
    return _array(ctypes.c_uint64 * int(count), address)


def int64_table(address: int, rows_count: int, columns_count: int) -> Any:
    """The int64[rows_count, columns_count] at ``address``, row by row."""
    return _array(ctypes.c_int64 * int(columns_count) * int(rows_count), address)


def _array(array_type: Any, address: int) -> Any:
    return np.ctypeslib.as_array(array_type.from_address(int(address)))
