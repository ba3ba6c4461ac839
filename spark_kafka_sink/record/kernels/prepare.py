"""All kernels at once, before the first row: loaded from files, or compiled."""

from __future__ import annotations

from pathlib import Path

# Importing a module is what makes its kernels known.
from spark_kafka_sink.record.kernels import append, partition, sizing, split
from spark_kafka_sink.record.kernels.cache import COMPILED, Totals
from spark_kafka_sink.record.kernels.jit import KERNELS

MODULES = (append, partition, sizing, split)


def prepare_kernels() -> Totals:
    """Have every kernel ready to run. Returns what this process has compiled and loaded so far."""
    for dispatcher, parameters in KERNELS.values():
        dispatcher.compile(parameters)
    return COMPILED.totals


def kernels_folder() -> Path | None:
    """Where the kernels of this process were loaded from or are kept; None if nowhere."""
    return COMPILED.folder
