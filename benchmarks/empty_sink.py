"""A Python data source that drops its Arrow batches, and so measures Spark's API alone.

No sink in Python can be faster. Spark's driver-side processes and its workers import this module,
so it imports nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

NAME = "empty-python-sink"
REPORT_OPTION = "report.path"


@dataclass
class Taken(WriterCommitMessage):
    """The rows and the largest Arrow batch of one task."""

    rows: int = 0
    largest_arrow_batch_bytes: int = 0


class EmptyWriter(DataSourceArrowWriter):
    """Writes nothing. If ``report.path`` is set, commit reports there what the tasks received."""

    def __init__(self, report_path: str | None) -> None:
        self._report_path = report_path

    def write(self, iterator: Iterator[Any]) -> Taken:
        """Take all Arrow batches of a task."""
        taken = Taken()
        for arrow_batch in iterator:
            taken.rows += arrow_batch.num_rows
            taken.largest_arrow_batch_bytes = max(
                taken.largest_arrow_batch_bytes, arrow_batch.nbytes
            )
        return taken

    def commit(self, messages: Iterable[Any]) -> None:
        """Write the report, on the driver."""
        if self._report_path is not None:
            report = {
                "rows": sum(taken.rows for taken in messages),
                "largest_arrow_batch_bytes": max(t.largest_arrow_batch_bytes for t in messages),
            }
            Path(self._report_path).write_text(json.dumps(report), encoding="utf-8")


class EmptyStreamWriter(DataSourceStreamArrowWriter):
    """Writes nothing, micro-batch by micro-batch."""

    def write(self, iterator: Iterator[Any]) -> Taken:
        """Take all Arrow batches of a task."""
        return EmptyWriter(None).write(iterator)

    def commit(self, messages: Iterable[Any], batchId: int) -> None:  # noqa: N803
        """Do nothing, on the driver."""


class EmptySink(DataSource):
    """``format("empty-python-sink")``."""

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format()``."""
        return NAME

    def writer(self, schema: Any, overwrite: bool) -> EmptyWriter:
        """Return the writer for batch writes."""
        return EmptyWriter(self.options.get(REPORT_OPTION))

    def streamWriter(self, schema: Any, overwrite: bool) -> EmptyStreamWriter:  # noqa: N802
        """Return the writer for streams."""
        return EmptyStreamWriter()
