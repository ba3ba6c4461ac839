"""Encode rows with checked kernels, in memory of exactly the size that the kernels require.

``python -m tests.kernels.checked_formats 1000000`` makes 1,000,000 calls of all formats.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from spark_kafka_sink.formats import encoder as encoders
from spark_kafka_sink.formats.encoder import EncodedRows, RowEncoder
from spark_kafka_sink.formats.plan import AVRO, JSON, PROTOBUF, FormatError, FormatPlan
from tests.kernels.checked import Regions, checked_kernels
from tests.kernels.random_layouts import RandomLayouts

FORMATS = (JSON, AVRO, PROTOBUF)
nodes = encoders.nodes
_BATCHES = 40


class CheckedEncoder(RowEncoder):
    """A RowEncoder whose kernel is checked.

    least_bytes: size of the first output in bytes
    """

    def __init__(self, plan: FormatPlan, schema: pa.Schema) -> None:
        super().__init__(plan, schema)
        self.calls = 0
        self.least_bytes = 0
        self._checked = checked_kernels()[self._kernel.name]
        self._kernel = self._call  # type: ignore[assignment]
        self._arrays: list[Any] = []
        self._arrays_given: Callable[[list[Any]], list[Any]] = list
        point_at = self._table.point_at

        def noting(arrays: list[Any]) -> None:
            self._arrays = arrays
            point_at(arrays)

        self._table.point_at = noting  # type: ignore[method-assign]

    def _call(self, state_address: int) -> int:
        self.calls += 1
        state = self._state
        rows_count = int(state[nodes.ROWS_COUNT])
        regions = Regions()
        for array in (self._table.numbers, self._table._names, self._prefix, self._zones):
            regions.add_array(array)
        for array in self._table._symbols:
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

    def _write(self, starts: Any) -> None:
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


def add_column(regions: Regions, array: Any) -> None:
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


def _add(regions: Regions, buffer: Any, size: int) -> None:
    if buffer is not None:
        assert buffer.size >= size
        regions.add(buffer.address, size)


def run(seed: int, calls_count: int) -> Counter[str]:
    """Make at least ``calls_count`` calls. Return their counts by format.

    ``refused`` counts the layouts that planning rejects. Raises AssertionError with seed and format
    for an access outside of the regions, and if the machine code writes other bytes.
    """
    done: Counter[str] = Counter()
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


def _calls(random: RandomLayouts, name: str) -> int:
    layout = random.layout(name)
    made = CheckedEncoder(*layout)
    plain = RowEncoder(*layout)
    for _ in range(_BATCHES):
        batch = random.batch(layout.schema)
        made.least_bytes = random.below(400)
        assert_same(made.encode(batch), plain.encode(batch))
    return made.calls


def assert_same(found: EncodedRows, expected: EncodedRows) -> None:
    assert found.values.equals(expected.values)
    assert (found.faults is None) == (expected.faults is None)
    if found.faults is not None and expected.faults is not None:
        assert (found.faults == expected.faults).all()


def main() -> None:
    """Print the counts of calls and the seconds."""
    wanted = int(sys.argv[1])
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    checked_kernels()
    started = time.monotonic()
    print(f"{dict(run(seed, wanted))} in {time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    main()
