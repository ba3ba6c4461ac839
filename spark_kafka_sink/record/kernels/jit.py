"""The compiler's door: how kernels are compiled, and what they need below Python's level.

Kernels read and write memory by address. Arrays passed around inside a kernel cost reference
counting for every row, which made the append kernel ten times slower than it is.

Compiled code is cached on disk where that is possible. Where it is not (a zipped package, a
read-only installation without a home directory), it is compiled in memory: slower to start, never
wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic


def kernel(function: Callable[..., Any]) -> Any:
    """Compile ``function``: no Python objects, no GIL, cached on disk if any place is writable."""
    try:
        return numba.njit(cache=True, nogil=True)(function)
    except RuntimeError:
        # numba found no writable place for its cache.
        return numba.njit(nogil=True)(function)


def inlined(function: Callable[..., Any]) -> Any:
    """A helper of kernels: compiled into whoever calls it."""
    return numba.njit(inline="always")(function)


def _loader(result: Any) -> Any:
    """An intrinsic that reads one little-endian value at any address."""

    @intrinsic
    def load(typing_context: Any, address: Any) -> Any:
        signature = result(types.int64)

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            pointer_type = context.get_value_type(result).as_pointer()
            return builder.load(builder.inttoptr(arguments[0], pointer_type), align=1)

        return signature, generate

    return load


load_uint8 = _loader(types.uint8)
load_int32 = _loader(types.int32)
load_uint32 = _loader(types.uint32)
load_int64 = _loader(types.int64)


@intrinsic
def store_uint8(typing_context: Any, address: Any, value: Any) -> Any:
    """Write the low byte of ``value`` at ``address``."""
    signature = types.void(types.int64, types.int64)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        address, value = arguments
        byte = ir.IntType(8)
        builder.store(builder.trunc(value, byte), builder.inttoptr(address, byte.as_pointer()))
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def copy_bytes(typing_context: Any, destination: Any, source: Any, count: Any) -> Any:
    """memcpy: a byte loop costs ten times as much."""
    signature = types.void(types.int64, types.int64, types.int64)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        destination, source, count = arguments
        pointer = ir.IntType(8).as_pointer()
        cgutils.raw_memcpy(
            builder,
            builder.inttoptr(destination, pointer),
            builder.inttoptr(source, pointer),
            count,
            1,
        )
        return context.get_dummy_value()

    return signature, generate
