"""Count the input files that a stream has processed, and the files that exist.

Spark's file source does not report this in its progress. It logs the files that it has processed in
the checkpoint (``sources/0``). This module reads the log through Hadoop's file system API, so that
it works wherever the checkpoint is.
"""

from __future__ import annotations

from typing import Any

_COMPACT_SUFFIX = ".compact"


class FileLag:
    """Counts the files of one stream with a file source."""

    def __init__(self, spark: Any, input_path: str, checkpoint: str) -> None:
        self._jvm = spark.sparkContext._jvm
        self._configuration = spark.sparkContext._jsc.hadoopConfiguration()
        self._input = self._jvm.org.apache.hadoop.fs.Path(input_path)
        self._log = self._jvm.org.apache.hadoop.fs.Path(f"{checkpoint}/sources/0")
        # Entries per log file that was read; log files never change.
        self._entries: dict[str, int] = {}

    def count(self) -> tuple[int, int]:
        """Return (processed files, existing files)."""
        file_system = self._input.getFileSystem(self._configuration)
        statuses = file_system.globStatus(self._input) or ()
        return self._processed(), sum(self._files_below(file_system, one) for one in statuses)

    def _files_below(self, file_system: Any, status: Any) -> int:
        name = status.getPath().getName()
        if name.startswith(("_", ".")):
            return 0
        if not status.isDirectory():
            return 1
        children = file_system.listStatus(status.getPath())
        return sum(self._files_below(file_system, child) for child in children)

    def _processed(self) -> int:
        """Count logged files: ``N.compact`` holds all up to batch N, ``N`` those of batch N."""
        file_system = self._log.getFileSystem(self._configuration)
        if not file_system.exists(self._log):
            return 0
        batches: dict[int, str] = {}
        compacted = -1
        for status in file_system.listStatus(self._log):
            name = status.getPath().getName()
            number = name.removesuffix(_COMPACT_SUFFIX)
            if number.isdigit():
                batches[int(number)] = name
                if name.endswith(_COMPACT_SUFFIX):
                    compacted = max(compacted, int(number))
        recent = [name for number, name in batches.items() if number >= compacted]
        return sum(self._count_entries(file_system, name) for name in recent)

    def _count_entries(self, file_system: Any, name: str) -> int:
        if name not in self._entries:
            path = self._jvm.org.apache.hadoop.fs.Path(self._log, name)
            stream = file_system.open(path)
            try:
                text = self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8")
            finally:
                stream.close()
            # The first line is the version of the log's format.
            self._entries[name] = len([line for line in text.splitlines()[1:] if line])
        return self._entries[name]
