"""How kernels are compiled, and what they need below Python's level.

Kernels read and write memory by address. Arrays passed around inside a kernel cost reference
counting for every row, which made the append kernel ten times slower than it is.

A kernel states its parameters' types, so that all kernels can be compiled before the first row.
Compiled code is kept between processes: see ``cache``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numba
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from spark_kafka_sink.base.environment import disabled_compiler_message
from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.record.kernels.cache import COMPILED, KernelCache
from spark_kafka_sink.record.views import (
    ABSENT_BYTES,
    ABSENT_HEADERS,
    ABSENT_INTEGERS,
    RecordColumns,
)

if numba.config.DISABLE_JIT:
    raise ConfigError(disabled_compiler_message())

INT64 = types.int64
INT32_ARRAY = types.Array(types.int32, 1, "C")
INT64_ARRAY = types.Array(types.int64, 1, "C")
INT64_TABLE = types.Array(types.int64, 2, "C")
BYTES_VIEW = numba.typeof(ABSENT_BYTES)
INTEGERS_VIEW = numba.typeof(ABSENT_INTEGERS)
RECORD_COLUMNS = numba.typeof(RecordColumns(ABSENT_BYTES, ABSENT_BYTES, ABSENT_HEADERS))


class Kernel(NamedTuple):
    """A kernel and the types of its parameters. dispatcher: numba's, what callers call."""

    dispatcher: Any
    parameters: tuple[Any, ...]


KERNELS: dict[str, Kernel] = {}
"""Every kernel that was imported, by name."""


def kernel(*parameters: Any) -> Callable[[Callable[..., Any]], Any]:
    """Compile the function at its first call, or by ``prepare``: no Python objects, no GIL.

    parameters: numba's type of each. Calls with other types compile the function for them, too
    """

    def decorate(function: Callable[..., Any]) -> Any:
        name = function.__name__
        assert name not in KERNELS, f"two kernels are called {name}"
        dispatcher = numba.njit(nogil=True)(function)
        # What njit(cache=True) does, with a cache of our own; numba has no public way.
        dispatcher._cache = KernelCache(name, COMPILED)
        KERNELS[name] = Kernel(dispatcher, parameters)
        return dispatcher

    return decorate


def inlined(function: Callable[..., Any]) -> Any:
    """A helper of kernels: compiled into whoever calls it."""
    return numba.njit(inline="always")(function)


def called(function: Callable[..., Any]) -> Any:
    """A helper of kernels that is too large for each place that uses it to have a copy."""
    return numba.njit(nogil=True)(function)


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
load_uint64 = _loader(types.uint64)


@intrinsic
def multiply_wide(typing_context: Any, left: Any, right: Any) -> Any:
    """The low and the high uint64 of the product of two uint64."""
    signature = types.UniTuple(types.uint64, 2)(types.uint64, types.uint64)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word, wide = ir.IntType(64), ir.IntType(128)
        left, right = (builder.zext(argument, wide) for argument in arguments)
        product = builder.mul(left, right)
        low = builder.trunc(product, word)
        high = builder.trunc(builder.lshr(product, wide(64)), word)
        return context.make_tuple(builder, signature.return_type, (low, high))

    return signature, generate


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
