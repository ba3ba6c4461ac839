"""The split kernel: some of the records of a batch, encoded again as a batch of their own.

Keys, values and headers are copied as they are; only length, timestamp delta and offset delta
change, because they count from the first record of the batch.

Source: ``ProducerBatch.split``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from spark_kafka_sink.record.compiled.calls import _RESULTS
from spark_kafka_sink.record.kernels.declared import inlined, kernel
from spark_kafka_sink.record.kernels.encoding import RECORD_ATTRIBUTES, put_varint, varint_size
from spark_kafka_sink.record.kernels.memory import (
    copy_bytes,
    int64_array,
    load_uint8,
    store_uint8,
)


@inlined
def _get_varint(address: int) -> Any:
    """(value of a zigzag varint, address after it)."""
    raw = np.uint64(0)
    shift = np.uint64(0)
    while True:
        byte = np.uint64(load_uint8(address))
        address += 1
        raw |= (byte & np.uint64(127)) << shift
        if byte < np.uint64(128):
            break
        shift += np.uint64(7)
    value = np.int64(raw >> np.uint64(1)) ^ -np.int64(raw & np.uint64(1))
    return value, address


@kernel
def take_records_at(
    address: int,
    records_count: int,
    base_timestamp: int,
    limit_bytes: int,
    out_address: int,
    results_address: int,
) -> int:
    """See ``take_records``. results_address: of int64[5], what it returns."""
    start = address
    out = out_address
    first_timestamp = np.int64(0)
    max_timestamp = np.int64(0)
    taken = np.int64(0)
    while taken < records_count:
        body_size, body = _get_varint(address)
        end = body + body_size
        timestamp_delta, rest = _get_varint(body + 1)
        _, rest = _get_varint(rest)
        timestamp = base_timestamp + timestamp_delta
        if taken == 0:
            first_timestamp = timestamp
            max_timestamp = timestamp
        new_delta = timestamp - first_timestamp
        payload = end - rest
        new_body_size = 1 + varint_size(new_delta) + varint_size(taken) + payload
        new_size = varint_size(new_body_size) + new_body_size
        if taken > 0 and out + new_size - out_address > limit_bytes:
            break
        out = put_varint(out, new_body_size)
        store_uint8(out, np.int64(RECORD_ATTRIBUTES))
        out = put_varint(out + 1, new_delta)
        out = put_varint(out, taken)
        copy_bytes(out, rest, payload)
        out += payload
        max_timestamp = max(max_timestamp, timestamp)
        taken += 1
        address = end
    results = int64_array(results_address, _RESULTS)
    results[0] = taken
    results[1] = address - start
    results[2] = out - out_address
    results[3] = first_timestamp
    results[4] = max_timestamp
    return taken
