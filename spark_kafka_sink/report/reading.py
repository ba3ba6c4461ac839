"""Read lines of metrics as columns, from files, rotated files and folders, some megabytes a time.

pyarrow parses the fields that all lines have, in 25 microseconds of CPU per line of 7 KB. Topics,
partitions and brokers are names of objects in a line, which pyarrow would turn into fields of
structs. A thousand such fields would take seconds.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as arrow_json

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.metrics.line import CAUSES_OF_DEAD_LETTERS, COUNTERS, LATENCY, LINE
from spark_kafka_sink.metrics.reading import (
    LARGEST,
    LATEST_MS,
    REQUIRED_TO_READ,
    PinnedFile,
    read_line,
)

PIECE_BYTES = 16 * 1024 * 1024
_BLOCK_BYTES = 16 * 1024 * 1024
_LONGEST_LINE = 256 * 1024 * 1024
_MOST_NESTED = 1000
"""Most opening brackets in the text for pyarrow; a line of the sink has a hundred or so."""

_PLAIN = {"integer": pa.float64(), "number": pa.float64(), "string": pa.string()}
"""Integers become floats too: a line's are below 2^53, and columns are for sums and plots."""


def _struct(fields: Any) -> pa.StructType:
    return pa.struct([(one.name, _PLAIN[one.type]) for one in fields if one.type in _PLAIN])


_SCHEMA = pa.schema(
    [
        *((field.name, _PLAIN[field.type]) for field in LINE if field.type in _PLAIN),
        ("metrics", _struct(COUNTERS)),
        ("request_latency", _struct(LATENCY)),
        ("dead_letters", pa.struct([(cause, pa.float64()) for cause in CAUSES_OF_DEAD_LETTERS])),
    ]
)


_BEGINNING = b'{"sink"'
_UNPARSED_TAIL = b', "partitions": {'
"""pyarrow does not parse a line from here on: the rest has most bytes, but no columns.

A string cannot contain this text, because its quotes would have backslashes.
"""
_HISTOGRAM = b', "histogram": {'
"""Last part of ``request_latency``, which is the last field before those by name."""


class Piece(NamedTuple):
    """Some lines. texts: one per row of ``rows``; left_out: number of texts that are no lines."""

    texts: list[bytes]
    rows: pa.StructArray
    left_out: int


def files_of(path: str) -> list[str]:
    """Return the files of ``path``, oldest first: itself and its rotated files, or a folder's.

    Raises ConfigError if none exists.
    """
    if os.path.isdir(path):
        names = sorted(name for name in os.listdir(path) if name.endswith((".json", ".jsonl")))
        found = [os.path.join(path, name) for name in names]
    else:
        found = [*_rotated(path), *([path] if os.path.exists(path) else [])]
    if not found:
        raise ConfigError(
            f"no metrics in {path}: name the file that option metrics.path names, or a folder with "
            "a file for each line"
        )
    return found


def _rotated(path: str) -> list[str]:
    folder, name = os.path.split(os.path.abspath(path))
    if not os.path.isdir(folder):
        return []
    pattern = re.compile(rf"{re.escape(name)}\.(\d+)")
    numbers = (int(found[1]) for other in os.listdir(folder) if (found := pattern.fullmatch(other)))
    return [f"{path}.{number}" for number in sorted(numbers, reverse=True)]


def read_pieces(files: Iterable[str | PinnedFile]) -> Iterator[list[bytes]]:
    """Yield the files' lines, some megabytes at a time; small files are joined."""
    waiting: list[bytes] = []
    size = 0
    for one in files:
        opened = PinnedFile(one) if isinstance(one, str) else one
        with opened.stream() as file:
            while texts := file.readlines(PIECE_BYTES):
                waiting += texts
                size += sum(map(len, texts))
                if size >= PIECE_BYTES:
                    yield waiting
                    waiting, size = [], 0
    if waiting:
        yield waiting


def parse(texts: list[bytes], query: str | None) -> Piece:
    """Return the lines among these texts; of one query only, if its name or id is given."""
    texts = [text for text in texts if not text.isspace()]
    rows, left_out = None if any(map(_needs_validation, texts)) else _rows(texts), 0
    if rows is None:
        good = [text for text in texts if _is_line(text)]
        left_out, texts = len(texts) - len(good), good
        rows = _rows(texts)
        if rows is None:
            rows, texts = pa.array([], pa.struct(list(_SCHEMA))), []
    is_wanted = pc.fill_null(pc.equal(column(rows, "sink"), "pykafka-sink"), False)
    for name in REQUIRED_TO_READ:
        is_wanted = pc.and_(is_wanted, pc.is_valid(column(rows, name)))
    is_wanted = pc.and_(is_wanted, _in_range(rows))
    left_out += len(texts) - pc.sum(is_wanted.cast(pa.int64()), min_count=0).as_py()
    if query is not None:
        is_query = pc.or_(
            pc.fill_null(pc.equal(column(rows, "query_name"), query), False),
            pc.fill_null(pc.equal(column(rows, "query_id"), query), False),
        )
        is_wanted = pc.and_(is_wanted, is_query)
    mask = is_wanted.to_numpy(zero_copy_only=False)
    if not mask.all():
        rows = rows.filter(is_wanted)
        texts = [texts[number] for number in np.flatnonzero(mask)]
    return Piece(texts, rows, left_out)


def _beginning(text: bytes) -> bytes:
    """Return the part of a line that has columns.

    A text that a full disk has cut off, perhaps with the next line behind it, is returned
    unchanged.
    """
    end = text.find(_UNPARSED_TAIL)
    is_one = end > 0 and text.endswith((b"}", b"}\n")) and text.rfind(_BEGINNING) == 0
    if not is_one:
        return text
    histogram = text.find(_HISTOGRAM, 0, end)
    return text[:end] + b"}" if histogram < 0 else text[:histogram] + b"}}"


def _rows(texts: list[bytes]) -> pa.StructArray | None:
    """Return the rows; None if a text is not a JSON object, or has other types."""
    if not texts:
        return None
    parsed = list(map(_beginning, texts))
    # A block must hold a whole line.
    block_bytes = max(_BLOCK_BYTES, 2 * max(map(len, parsed)) + 2)
    try:
        table = arrow_json.read_json(
            pa.BufferReader(b"\n".join(parsed)),
            # more threads would take twice the CPU, and save no time with so little
            read_options=arrow_json.ReadOptions(use_threads=False, block_size=block_bytes),
            parse_options=arrow_json.ParseOptions(
                explicit_schema=_SCHEMA, unexpected_field_behavior="ignore"
            ),
        )
    except pa.ArrowException:
        return None
    rows = table.to_struct_array()
    rows = rows.combine_chunks() if isinstance(rows, pa.ChunkedArray) else rows
    return rows if len(rows) == len(texts) else None


def _needs_validation(text: bytes) -> bool:
    """Return True if pyarrow must not parse ``text`` before a check.

    pyarrow limits no nesting, treats a block of more than 2 GiB as an error of the caller, and
    accepts strings of any bytes.
    """
    if len(text) > _LONGEST_LINE:
        return True
    if not text.isascii():
        try:
            text.decode()
        except UnicodeDecodeError:
            return True
    beginning = _beginning(text)
    return beginning.count(b"[") + beginning.count(b"{") > _MOST_NESTED


def _in_range(rows: pa.StructArray) -> pa.BooleanArray:
    """Return True for rows whose numbers are finite, and whose time can be shown."""
    fields = pa.RecordBatch.from_struct_array(rows)
    time_ms = column(rows, "time_ms")
    found = pc.and_(pc.greater_equal(time_ms, 0), pc.less_equal(time_ms, LATEST_MS))
    found = pc.fill_null(found, False)
    for array in fields.columns:
        for one in array.flatten() if pa.types.is_struct(array.type) else [array]:
            if pa.types.is_floating(one.type):
                is_good = pc.less_equal(pc.abs(one), LARGEST)
                found = pc.and_(found, pc.fill_null(is_good, True))
    return found


def select(piece: Piece, numbers: list[int]) -> Piece:
    """Return the lines of ``piece`` with these numbers; the others count as left out."""
    texts = [piece.texts[number] for number in numbers]
    left_out = piece.left_out + len(piece.texts) - len(texts)
    return Piece(texts, piece.rows.take(pa.array(numbers, pa.int64())), left_out)


def _is_line(text: bytes) -> bool:
    """Return True for a line; a foreign or cut-off text must not stop the reading of others."""
    return len(text) <= _LONGEST_LINE and read_line(text) is not None and _fits(text)


def _fits(text: bytes) -> bool:
    """Return True if the text has the types of the schema."""
    return _rows([text]) is not None


def column(rows: pa.StructArray, *names: str) -> pa.Array:
    """Return a field, or a field of a field; nulls if it does not exist."""
    found = rows
    for name in names:
        if not pa.types.is_struct(found.type) or found.type.get_field_index(name) < 0:
            return pa.nulls(len(rows), pa.string() if name in _STRINGS else pa.float64())
        found = pc.struct_field(found, [found.type.get_field_index(name)])
    return found


_STRINGS = {field.name for field in LINE if field.type == "string"}


def numbers(rows: pa.StructArray, *names: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return a column of numbers; NaN if a row has none."""
    found = column(rows, *names).cast(pa.float64())
    values: np.ndarray[Any, np.dtype[np.float64]] = found.to_numpy(zero_copy_only=False)
    return values
