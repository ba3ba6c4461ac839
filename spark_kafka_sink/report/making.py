"""From files of metrics to what a page is made of."""

from __future__ import annotations

import os

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.report.collecting import Collected
from spark_kafka_sink.report.reading import files_of, read_pieces

WHOLE_BYTES = 8 * 1024 * 1024
"""Of larger files, partitions and brokers are read of some lines only: of about as many bytes."""


def collect(path: str, query: str | None) -> Collected:
    """Everything in a file and its rotated ones, or in a folder.

    query: name or id of the only one wanted
    Raises ConfigError when there is nothing to read, or nothing of the query.
    """
    files = files_of(path)
    collected = Collected(query, _every(files))
    for texts in read_pieces(files):
        collected.add(texts)
    if not collected.lines:
        raise ConfigError(no_line(path, query))
    return collected


def no_line(path: str, query: str | None) -> str:
    """What is said of a file without a line that is wanted."""
    which = f" of the query {query}" if query is not None else ""
    return (
        f"no line of metrics{which} in {path}. Option metrics.path names the file that the sink "
        "writes them to, on the driver"
    )


def _every(files: list[str]) -> int:
    size = sum(os.path.getsize(path) for path in files)
    return -(-size // WHOLE_BYTES) if size else 1
