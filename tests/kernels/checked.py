"""Compile the kernels with checks that each access lies in memory that belongs to the call.

The sources are the same as for the machine code. Functions that read and write memory first compare
the address with a table of regions. An index of an array, also of a table of constants, is compared
with the array's size. An access outside raises OutOfBoundsError in Python.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import numba
import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba.core.config import _OptLevel
from numba.extending import intrinsic

from spark_kafka_sink.record.kernels import compiler, memory
from spark_kafka_sink.record.kernels.memory import HELPERS, KERNELS
from spark_kafka_sink.record.kernels.modules import MODULES, SHARED

_MOST_REGIONS = 4096
_COUNT, _FOUND_ADDRESS, _FOUND_SIZE, _FOUND_WRITE = range(4)
_FIRST = 4
# The count, the rejected access, then start, end and 1 for write access, of each region.
_TABLE = np.zeros(_FIRST + 3 * _MOST_REGIONS, np.int64)
_TABLE_NAME = "pykafka_sink_regions"
llvm.add_symbol(_TABLE_NAME, _TABLE.ctypes.data)


class OutOfBoundsError(Exception):
    """A kernel would have read or written memory outside of its regions."""


class Regions:
    """The memory that belongs to the following calls, until the next ``Regions`` replaces it."""

    def __init__(self) -> None:
        self._kept: list[Any] = []
        _TABLE[_COUNT] = 0

    def add(self, address: int, size: int, is_written: bool = False) -> None:
        """Let kernels read, and write if ``is_written``, ``size`` bytes at ``address``."""
        if size > 0:
            at = _FIRST + 3 * int(_TABLE[_COUNT])
            _TABLE[at : at + 3] = address, address + size, is_written
            _TABLE[_COUNT] += 1

    def add_array(self, array: npt.NDArray[Any], is_written: bool = False) -> None:
        """Let kernels read, and write if ``is_written``, a whole array."""
        self._kept.append(array)
        self.add(array.ctypes.data, array.nbytes, is_written)


@cache
def checked_kernels() -> dict[str, Callable[..., int]]:
    """Compile all kernels with checks, or load what an earlier process has compiled."""
    made = {}
    with _names_replaced():
        for name, declared in KERNELS.items():
            source: Any = getattr(declared, "source", declared)
            parameters = [numba.types.int64] * source.__code__.co_argcount
            compiled = numba.njit(numba.types.int64(*parameters), cache=True, **_OPTIONS)(source)
            made[name] = _raising(name, compiled)
    return made


def _raising(name: str, compiled: Any) -> Callable[..., int]:
    def call(*numbers: int) -> int:
        try:
            return int(compiled(*numbers))
        except MemoryError:
            address, size, is_write = _TABLE[_FOUND_ADDRESS : _FOUND_WRITE + 1].tolist()
            what = "writes" if is_write else "reads"
            raise OutOfBoundsError(
                f"{name} {what} {size} bytes at {address:#x}: {_near(address)}"
            ) from None
        except IndexError as error:
            raise OutOfBoundsError(f"{name} is beyond an array: {error}") from error

    return call


def _near(address: int) -> str:
    regions = _TABLE[_FIRST : _FIRST + 3 * int(_TABLE[_COUNT])].reshape(-1, 3)[:, :2]
    if not len(regions):
        return "there is no region"
    start, end = regions[np.abs(regions - address).min(axis=1).argmin()].tolist()
    return f"the nearest region has {end - start} bytes, and begins {address - start} before it"


# --- replacements of ``memory``'s functions --------------------------------------------------------

_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "boundscheck": True}
_raw: dict[str, Any] = {
    source.__name__: compiled for source, compiled in compiler._INTRINSICS.items()
}
_raw_load_int64, _raw_store = _raw["load_int64"], _raw["store_uint64"]


@intrinsic
def _table_address(typing_context):
    """Refer to the table by name: later processes reuse the machine code, at another address."""

    def generate(context, builder, signature, arguments):
        found = builder.module.globals.get(_TABLE_NAME)
        if found is None:
            found = ir.GlobalVariable(builder.module, ir.IntType(8), _TABLE_NAME)
        return builder.ptrtoint(found, ir.IntType(64))

    return numba.types.int64(), generate


@numba.njit(nogil=True, error_model="numpy")
def _check(address, size, is_write):
    table = _table_address()
    for number in range(_raw_load_int64(table + 8 * _COUNT)):
        at = table + 8 * (_FIRST + 3 * number)
        is_inside = _raw_load_int64(at) <= address <= _raw_load_int64(at + 8) - size
        if is_inside and size >= 0 and (is_write == 0 or _raw_load_int64(at + 16) != 0):
            return
    _raw_store(table + 8 * _FOUND_ADDRESS, address)
    _raw_store(table + 8 * _FOUND_SIZE, size)
    _raw_store(table + 8 * _FOUND_WRITE, is_write)
    raise MemoryError


def _loader(raw: Any, size: int) -> Any:
    @numba.njit(nogil=True, error_model="numpy")
    def load(address):
        _check(np.int64(address), np.int64(size), np.int64(0))
        return raw(address)

    return load


def _storer(raw: Any, size: int) -> Any:
    @numba.njit(nogil=True, error_model="numpy")
    def store(address, value):
        _check(np.int64(address), np.int64(size), np.int64(1))
        raw(address, value)

    return store


def _array_at(raw: Any, size: int) -> Any:
    @numba.njit(nogil=True, error_model="numpy")
    def array(address, count):
        if count != 0:
            _check(np.int64(address), np.int64(size * count), np.int64(0))
        return raw(address, count)

    return array


@numba.njit(nogil=True, error_model="numpy")
def _int64_table(address, rows_count, columns_count):
    if rows_count != 0:
        _check(np.int64(address), np.int64(8 * rows_count * columns_count), np.int64(0))
    return _raw_table(address, rows_count, columns_count)


@numba.njit(nogil=True, error_model="numpy")
def _copy_bytes(destination, source, count):
    if count != 0:
        _check(np.int64(source), np.int64(count), np.int64(0))
        _check(np.int64(destination), np.int64(count), np.int64(1))
        _raw_copy(destination, source, count)


_raw_table, _raw_copy = _raw["int64_table"], _raw["copy_bytes"]


def _checked() -> dict[Callable[..., Any], Any]:
    made: dict[Callable[..., Any], Any] = {}
    for name, raw in _raw.items():
        verb, _, kind = name.partition("_")
        digits = "".join(filter(str.isdigit, kind))
        if verb in ("load", "store"):
            making = _loader if verb == "load" else _storer
            made[getattr(memory, name)] = making(raw, int(digits) // 8)
        elif name.endswith("_array"):
            made[getattr(memory, name)] = _array_at(
                raw, int("".join(filter(str.isdigit, verb))) // 8
            )
        else:
            made[getattr(memory, name)] = raw
    made[memory.int64_table] = _int64_table
    made[memory.copy_bytes] = _copy_bytes
    return made


def _folder() -> str:
    """Return a folder for these sources only: numba's own check reads a single file."""
    digest = hashlib.sha256()
    kernels = Path(memory.__file__).parent
    sources = sorted([*kernels.glob("*.py"), *kernels.with_name("compiled").glob("*.py")])
    for source in [*sources, Path(__file__)]:
        digest.update(source.read_bytes())
    root = Path(__file__).parents[2]
    return str(root / "build" / "checked-kernels" / digest.hexdigest()[:16])


@contextmanager
def _names_replaced() -> Iterator[None]:
    """Replace the helpers in the modules of kernels by compiled helpers, until the block ends."""
    # More optimisation takes longer than all calls of a test; with none, numba caches no code.
    settings = {"CACHE_DIR": _folder(), "OPT": _OptLevel(1), "LOOP_VECTORIZE": 0}
    before = {name: getattr(numba.config, name) for name in settings}
    for name, value in settings.items():
        setattr(numba.config, name, value)
    compiled = _checked()
    for source in HELPERS:
        compiled[source] = numba.njit(**_OPTIONS)(source)
    replaced = []
    for module in [*MODULES, *SHARED]:
        for name, value in list(vars(module).items()):
            if callable(value) and value.__hash__ is not None and value in compiled:
                replaced.append((module, name, value))
                setattr(module, name, compiled[value])
    try:
        yield
    finally:
        for module, name, value in replaced:
            setattr(module, name, value)
        for name, value in before.items():
            setattr(numba.config, name, value)
