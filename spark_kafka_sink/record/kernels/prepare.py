"""All kernels at once, before the first row: loaded from a file, or compiled."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from spark_kafka_sink.record.kernels import modules as _modules  # noqa: F401 makes kernels known
from spark_kafka_sink.record.kernels.declared import KERNELS
from spark_kafka_sink.record.kernels.library import LIBRARY, Totals


def prepare_kernels() -> Totals:
    """Have every kernel ready to run. Returns what this process has compiled and loaded so far."""
    for kernel in KERNELS.values():
        kernel.machine_code()
    return LIBRARY.totals


class Kept(NamedTuple):
    """Where kernels are. is_lasting: it is a folder, and not one for temporary files."""

    totals: Totals
    folder: Path | None
    is_lasting: bool


def keep_kernels() -> Kept:
    """Have every kernel in the first folder that can be written, for processes to come."""
    prepare_kernels()
    LIBRARY.keep()
    return Kept(LIBRARY.totals, LIBRARY.folder, LIBRARY.is_lasting)
