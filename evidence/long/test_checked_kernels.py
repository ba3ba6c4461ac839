"""A kernel never reads or writes outside of the memory of its call, for any layout.

The kernels are compiled with a check of each address, and run with layouts that planning derives
from extreme parameters. ``make kernels-checked`` makes a million calls.
"""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from spark_kafka_sink.formats.plan import AVRO, JSON, FieldSpec, FormatSpec, JsonOptions
from tests.kernels.checked import (
    FORMATS,
    CheckedEncoder,
    OutOfBoundsError,
    check_records,
    nodes,
    run,
)
from tests.kernels.random_layouts import RandomLayouts

# Minutes of CPU, on a machine of any load.
# All kernels are compiled once more: `make evidence NAME=long`, beside `make kernels-checked`.
pytestmark = [pytest.mark.timeout(1800), pytest.mark.long]

CALLS = 800
FIELD = (FieldSpec(("c",), "c"),)
TEXT = pa.record_batch({"c": ["some text", None, "more of it"]})
ENUM = {"type": "enum", "name": "E", "symbols": ["one", "other"]}
RECORD = {"type": "record", "name": "R", "fields": [{"name": "c", "type": ["null", ENUM]}]}


def test_no_kernel_leaves_its_memory():
    done = run(1, CALLS)
    assert all(done[name] > CALLS // 20 for name in FORMATS), done
    assert done["refused"] < CALLS // 100


def test_the_kernels_of_records_do_not_either():
    assert sum(check_records(RandomLayouts(seed)) for seed in range(400)) > 2000


def checked(batch, **plan):
    made = CheckedEncoder(FormatSpec(plan.pop("format", JSON), FIELD, **plan), batch.schema)
    made.encode(batch)
    return made


def row_of(made):
    """Return the node of the column."""
    return made._table.numbers[1]


def test_a_read_behind_a_column_is_found():
    made = checked(TEXT)
    made._arrays_given = lambda arrays: [array.slice(0, 2) for array in arrays]
    with pytest.raises(OutOfBoundsError, match="write_json reads . bytes at"):
        made.encode(TEXT)


def test_a_write_behind_the_room_is_found():
    batch = pa.record_batch({"c": [10**18]})
    made = checked(batch)
    made._state[nodes.SLACK], made.least_bytes = 1, 13
    with pytest.raises(OutOfBoundsError, match="write_json writes . bytes at"):
        made.encode(batch)


def test_a_frame_too_many_is_found():
    batch = pa.record_batch({"c": [[1]]})
    made = checked(batch)
    made._frames = made._frames[:0]
    with pytest.raises(OutOfBoundsError, match="write_json writes 8 bytes at"):
        made.encode(batch)


def test_an_enum_without_a_table_is_found():
    """A schema with ``"symbols": []`` once caused this read."""
    made = checked(TEXT, format=AVRO, avro_schema=json.dumps(RECORD))
    row_of(made)[nodes.PARAMETER] = 0
    with pytest.raises(OutOfBoundsError, match="write_avro reads 8 bytes at 0x0"):
        made.encode(TEXT)


def test_an_index_beyond_a_table_of_constants_is_found():
    """A time zone of +99:99 once caused this index."""
    batch = pa.record_batch([pa.array([0], pa.timestamp("us", "UTC"))], ["c"])
    made = checked(batch, json_options=JsonOptions(time_zone="+18:00"))
    made._zones[:, 1] = 100 * 3600 + 99 * 60
    with pytest.raises(OutOfBoundsError, match="write_json is beyond an array"):
        made.encode(batch)
