"""The limits of every sink: one copy of the bytes, and the codec, outside Spark on one core."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from pyspark.sql import DataFrame

from spark_kafka_sink.record.compression import create_compressor

_SAMPLE_BYTES = 8 << 20
# About the size of a batch of 128 KiB before compression.
_PIECE_BYTES = 256 << 10
_REPEATS = 3


def sample_of(frame: DataFrame, row_bytes: int) -> tuple[int, bytes]:
    """Return (rows, their joined values) of the frame's beginning, about 8 MB."""
    rows = max(1, _SAMPLE_BYTES // row_bytes)
    values = frame.select("value").limit(rows).toArrow().column("value").to_pylist()
    return len(values), b"".join(values)


def limits_of(frame: DataFrame, row_bytes: int, rows_count: int, codec: str) -> dict[str, float]:
    """Return the seconds that all rows would take on one core."""
    sample_rows, data = sample_of(frame, row_bytes)
    times = rows_count / sample_rows
    return {
        "memcpy_s": round(memcpy_s(data) * times, 4),
        "codec_s": round(codec_s(data, codec) * times, 4),
    }


def memcpy_s(data: bytes) -> float:
    """Return the seconds of one copy of ``data`` into mapped memory."""
    source = np.frombuffer(data, np.uint8)
    target = np.zeros_like(source)
    return _best(lambda: np.copyto(target, source))


def codec_s(data: bytes, codec: str) -> float:
    """Return the seconds of compressing ``data`` piece by piece."""
    compressor = create_compressor(codec, None)
    if compressor is None:
        return 0.0
    view = memoryview(data)
    pieces = [view[at : at + _PIECE_BYTES] for at in range(0, len(data), _PIECE_BYTES)]

    def compress_all() -> None:
        for piece in pieces:
            compressor.compress(piece)

    return _best(compress_all)


def _best(function: Callable[[], object]) -> float:
    took = []
    for _ in range(_REPEATS):
        started = time.perf_counter()
        function()
        took.append(time.perf_counter() - started)
    return min(took)
