"""Compile the kernels with checks that each access lies in memory that belongs to the call.

The sources are the same as for the machine code. Functions that read and write memory first compare
the address with a table of regions. An index of an array, also of a table of constants, is compared
with the array's size. An access outside raises OutOfBoundsError in Python. Rows are encoded, and records
appended, in memory of exactly the size that the kernels require.

``python -m tests.kernels.checked 1000000`` makes 1,000,000 calls of all formats.
"""

from __future__ import annotations

import hashlib
import sys
import time
from collections import Counter
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import numba
import numpy as np
import pyarrow as pa
from llvmlite import ir
from numba.core.config import _OptLevel
from numba.extending import intrinsic

from spark_kafka_sink.base.model import ColumnPositions
from spark_kafka_sink.formats import encoder as encoders
from spark_kafka_sink.formats.encoder import RowEncoder
from spark_kafka_sink.formats.plan import AVRO, JSON, PROTOBUF, FormatError
from spark_kafka_sink.record.columns import arrow_records
from spark_kafka_sink.record.compiled import calls
from spark_kafka_sink.record.compiled.calls import ABSENT_INTEGERS
from spark_kafka_sink.record.kernels import compiler, memory
from spark_kafka_sink.record.kernels.compiler import MODULES
from spark_kafka_sink.record.kernels.memory import HELPERS, KERNELS
from tests.kernels.random_layouts import RandomLayouts

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

    def __init__(self):
        self._kept = []
        _TABLE[_COUNT] = 0

    def add(self, address, size, is_written=False):
        """Let kernels read, and write if ``is_written``, ``size`` bytes at ``address``."""
        if size > 0:
            at = _FIRST + 3 * int(_TABLE[_COUNT])
            _TABLE[at : at + 3] = address, address + size, is_written
            _TABLE[_COUNT] += 1

    def add_array(self, array, is_written=False):
        """Let kernels read, and write if ``is_written``, a whole array."""
        self._kept.append(array)
        self.add(array.ctypes.data, array.nbytes, is_written)


@cache
def checked_kernels():
    """Compile all kernels with checks, or load what an earlier process has compiled."""
    made = {}
    with _names_replaced():
        for name, declared in KERNELS.items():
            source = getattr(declared, "source", declared)
            parameters = [numba.types.int64] * source.__code__.co_argcount
            compiled = numba.njit(numba.types.int64(*parameters), cache=True, **_OPTIONS)(source)
            made[name] = _raising(name, compiled)
    return made


def _raising(name, compiled):
    def call(*numbers):
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


def _near(address):
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


def _loader(raw, size):
    @numba.njit(nogil=True, error_model="numpy")
    def load(address):
        _check(np.int64(address), np.int64(size), np.int64(0))
        return raw(address)

    return load


def _storer(raw, size):
    @numba.njit(nogil=True, error_model="numpy")
    def store(address, value):
        _check(np.int64(address), np.int64(size), np.int64(1))
        raw(address, value)

    return store


def _array_at(raw, size):
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


def _checked():
    made = {}
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


def _folder():
    """Return a folder for these sources only: numba's own check reads a single file."""
    digest = hashlib.sha256()
    kernels = Path(memory.__file__).parent
    sources = sorted([*kernels.glob("*.py"), *kernels.with_name("compiled").glob("*.py")])
    for source in [*sources, Path(__file__)]:
        digest.update(source.read_bytes())
    root = Path(__file__).parents[2]
    return str(root / "build" / "checked-kernels" / digest.hexdigest()[:16])


@contextmanager
def _names_replaced():
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
    for module in MODULES:
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


FORMATS = (JSON, AVRO, PROTOBUF)
nodes = encoders.nodes
_BATCHES = 40


class CheckedEncoder(RowEncoder):
    """A RowEncoder whose kernel is checked.

    least_bytes: size of the first output in bytes
    """

    def __init__(self, plan, schema):
        super().__init__(plan, schema)
        self.calls = 0
        self.least_bytes = 0
        self._checked = checked_kernels()[self._kernel.name]
        self._kernel = self._call
        self._arrays = []
        self._arrays_given = list
        point_at = self._table.point_at

        def noting(arrays):
            self._arrays = arrays
            point_at(arrays)

        self._table.point_at = noting

    def _call(self, state_address):
        self.calls += 1
        state = self._state
        rows_count = int(state[nodes.ROWS_COUNT])
        regions = Regions()
        for array in (self._table.numbers, self._table._names, self._prefix, self._zones):
            regions.add_array(array)
        for array in self._table._kept:
            regions.add_array(array)
        regions.add_array(state, is_written=True)
        regions.add_array(self._frames, is_written=True)
        regions.add(int(state[nodes.STARTS]), 8 * (rows_count + 1), is_written=True)
        regions.add(int(state[nodes.FAULTS]), 8 * rows_count, is_written=True)
        if state[nodes.SKIPPED]:
            regions.add(int(state[nodes.SKIPPED]), rows_count)
        out, limit = int(state[nodes.OUT]), int(state[nodes.LIMIT])
        regions.add(out, limit - out, is_written=True)
        for array in self._arrays_given(self._arrays):
            add_column(regions, array)
        return self._checked(state_address)

    def _write(self, starts):
        """Encode rows, with no byte more than the kernel requires."""
        state = self._state
        room = np.empty(self.least_bytes, np.uint8)
        while True:
            self._room = room
            state[nodes.OUT] = room.ctypes.data
            state[nodes.LIMIT] = room.ctypes.data + len(room)
            if self._kernel(state.ctypes.data) == nodes.ALL_WRITTEN:
                if self._is_from_end:
                    starts += len(room)
                return
            used = abs(int(starts[state[nodes.NEXT_ROW]]))
            room = np.empty(max(used + int(state[nodes.NEEDED]), len(room) + 1), np.uint8)
            if self._is_from_end:
                room[len(room) - used :] = self._room[len(self._room) - used :]
            else:
                room[:used] = self._room[:used]


def add_column(regions, array):
    """Add each buffer of a column to the length that Arrow's format promises, without padding."""
    kind, stop = array.type, array.offset + len(array)
    if pa.types.is_null(kind):
        return
    buffers = array.buffers()
    if buffers[0] is not None:
        _add(regions, buffers[0], (stop + 7) // 8)
    if pa.types.is_struct(kind):
        for number in range(kind.num_fields):
            add_column(regions, array.field(number))
    elif pa.types.is_map(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind):
        _add(regions, buffers[1], (8 if pa.types.is_large_list(kind) else 4) * (stop + 1))
        add_column(regions, array.values)
    elif pa.types.is_boolean(kind):
        _add(regions, buffers[1], (stop + 7) // 8)
    elif len(buffers) == 3:
        is_large = pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)
        offsets = np.frombuffer(buffers[1], np.int64 if is_large else np.int32)
        _add(regions, buffers[1], offsets.itemsize * (stop + 1))
        _add(regions, buffers[2], int(offsets[stop]))
    else:
        _add(regions, buffers[1], kind.bit_width // 8 * stop)


def _add(regions, buffer, size):
    if buffer is not None:
        assert buffer.size >= size
        regions.add(buffer.address, size)


def run(seed, calls_count):
    """Make at least ``calls_count`` calls. Return their counts by format.

    ``refused`` counts the layouts that planning rejects. Raises AssertionError with seed and format
    for an access outside of the regions, and if the machine code writes other bytes.
    """
    done = Counter()
    while sum(done[name] for name in FORMATS) < calls_count:
        random = RandomLayouts(seed)
        for name in FORMATS:
            try:
                done[name] += _calls(random, name)
            except FormatError:
                done["refused"] += 1
            except Exception as error:
                raise AssertionError(f"seed {seed}, {name}: {error}") from error
        seed += 1
    return done


def _calls(random, name):
    layout = random.layout(name)
    made = CheckedEncoder(*layout)
    plain = RowEncoder(*layout)
    for _ in range(_BATCHES):
        batch = random.batch(layout.schema)
        made.least_bytes = random.below(400)
        assert_same(made.encode(batch), plain.encode(batch))
    return made.calls


def assert_same(found, expected):
    assert found.values.equals(expected.values)
    assert (found.faults is None) == (expected.faults is None)
    if found.faults is not None and expected.faults is not None:
        assert (found.faults == expected.faults).all()


def main():
    """Print the counts of calls and the seconds."""
    wanted = int(sys.argv[1])
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    checked_kernels()
    started = time.monotonic()
    print(f"{dict(run(seed, wanted))} in {time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    # By its name: code that a test has compiled imports it, and there must be one table only.
    from tests.kernels import checked

    checked.main()


_TEXTS = [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()]
_PARTS = pa.struct([pa.field("key", pa.string(), False), pa.field("value", pa.binary())])
_HEADER = pa.field("element", _PARTS, False)
_BASE_MS = 1_700_000_000_000


def records_of(random):
    """Return one batch with values, perhaps keys and headers; None if the batch is empty."""
    fields = [pa.field("value", _TEXTS[random.below(4)])]
    if random.chance(0.7):
        fields.append(pa.field("key", _TEXTS[random.below(4)]))
    if random.chance():
        fields.append(pa.field("headers", [pa.list_, pa.large_list][random.below(2)](_HEADER)))
    batch = random.batch(pa.schema(fields))
    names = batch.schema.names
    found = {name: names.index(name) for name in names}
    positions = ColumnPositions(topic_option="t", **found)
    return arrow_records(batch, positions, _BASE_MS) if batch.num_rows else None


def check_records(random):
    """Run each kernel of records at least once. Return the count of calls."""
    records = records_of(random)
    if records is None:
        return 0
    calls = _Calls(random, records)
    calls.size()
    calls.digest()
    calls.place()
    calls.append_and_split()
    return calls.count


class _Calls:
    def __init__(self, random, records):
        self._random = random
        self._records = records
        self._kernels = checked_kernels()
        self.count = 0

    def _call(self, name, *arguments, also=()):
        """Call a kernel. An array is passed as its address; a list of one array may be written."""
        self.count += 1
        regions, numbers = Regions(), []
        for column in self._records.owner.columns:
            add_column(regions, column)
        for argument in [*arguments, *also]:
            is_written = isinstance(argument, list)
            array = argument[0] if is_written else argument
            if isinstance(array, np.ndarray):
                regions.add_array(array, is_written)
                numbers.append(array.ctypes.data)
            else:
                numbers.append(int(array))
        return self._kernels[name](*numbers[: len(arguments)])

    def size(self):
        """Fill the sizes of all records, and the size of the largest record."""
        rows, fields = self._records.rows_count, self._records.fields
        self.largest = np.zeros(1, np.int64)
        self._call("find_largest_record", rows, fields, [self.largest])
        self._call("fill_content_sizes", rows, fields, [np.zeros(rows, np.int64)])

    def digest(self):
        """Hash all records."""
        views = [*(0,) * 5, *ABSENT_INTEGERS, *ABSENT_INTEGERS]
        fields = np.concatenate([self._records.fields, np.array(views, np.int64)])
        sums = np.zeros(1, np.uint64)
        self._call("sum_row_hashes", self._records.rows_count, fields, [sums])

    def place(self):
        """Choose partitions of several topics by a random hash of the key."""
        random, rows = self._random, self._records.rows_count
        topics = 1 + random.below(3)
        counts = np.array([1 + random.below(50) for _ in range(topics)], np.int32)
        first = np.cumsum(counts, dtype=np.int32) - counts
        indices = np.array([random.below(topics) for _ in range(rows)], np.int32)
        computed = np.array([random.below(3) - 1 for _ in range(rows)], np.int32)
        fields = np.array([*self._records.columns.key, *ABSENT_INTEGERS], np.int64)
        self._call(
            "fill_slots",
            *(rows, indices if topics > 1 else 0, topics, first, counts),
            *(computed if random.chance() else 0, fields, random.below(4)),
            [np.zeros(rows, np.int32)],
        )

    def append_and_split(self):
        """Append to batches of small pages, and take records from one or two batches."""
        random, rows = self._random, self._records.rows_count
        page_size, pages = 62 + random.below(300), 1 + random.below(60)
        state = np.zeros(calls.STATE_FIELDS, np.int64)
        slots = np.array([-1 - random.below(2) for _ in range(rows)], np.int32)
        sticky = np.array([1, 0], np.int32)
        table = np.zeros((2, calls.OPEN_BATCH_FIELDS), np.int64)
        table[:, calls.LIMIT_BYTES] = 100 + random.below(3000)
        arena, spill = np.zeros(pages * page_size, np.uint8), np.zeros(self.largest[0], np.uint8)
        next_page, reserve = np.full(pages, -1, np.int32), np.arange(pages, dtype=np.int32)
        given = {
            calls.STICKY_SLOTS: sticky.ctypes.data,
            calls.STICKY_COUNT: 2,
            calls.BATCHES: table.ctypes.data,
            calls.SLOTS_COUNT: 2,
            calls.ARENA: arena.ctypes.data,
            calls.PAGE_SIZE: page_size,
            calls.PAGES_COUNT: pages,
            calls.NEXT_PAGE: next_page.ctypes.data,
            calls.RESERVE: reserve.ctypes.data,
            calls.RESERVE_COUNT: pages,
            calls.SPILL: spill.ctypes.data,
        }
        for number, value in given.items():
            state[number] = value
        times = np.array([_BASE_MS + random.below(10**6) for _ in range(rows)], np.int64)
        also = (sticky, [table], [arena], [next_page], [reserve], [spill])
        self._call(
            "append_records",
            *(0, rows, slots, self._records.fields, times, 0, 5, [state]),
            also=also,
        )
        overhead = calls.RECORD_BATCH_OVERHEAD
        for batch in table:
            if not batch[calls.RECORDS_COUNT]:
                continue
            copied = np.zeros(batch[calls.BATCH_BYTES] - overhead, np.uint8)
            first, count = batch[calls.FIRST_PAGE], len(copied)
            self._call("copy_chain", [state], first, overhead, count, [copied], also=also)
            limit = 1 + random.below(2 * count)
            room = np.zeros(max(limit, int(self.largest[0])), np.uint8)
            results = np.zeros(5, np.int64)
            left = batch[calls.RECORDS_COUNT]
            base = batch[calls.BASE_TIMESTAMP]
            self._call("take_records_at", copied, left, base, limit, [room], [results])
