"""All kernels at once, before the first row: loaded from files, or compiled."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

# Importing a module is what makes its kernels known.
from spark_kafka_sink.record.kernels import append, digest, partition, sizing, split
from spark_kafka_sink.record.kernels.cache import COMPILED, Totals
from spark_kafka_sink.record.kernels.jit import KERNELS

MODULES = (append, digest, partition, sizing, split)


def prepare_kernels() -> Totals:
    """Have every kernel ready to run. Returns what this process has compiled and loaded so far."""
    for dispatcher, parameters in KERNELS.values():
        dispatcher.compile(parameters)
    return COMPILED.totals


class Kept(NamedTuple):
    """Where kernels are. is_lasting: it is a folder, and not one for temporary files."""

    totals: Totals
    folder: Path | None
    is_lasting: bool


def keep_kernels() -> Kept:
    """Have every kernel in the first folder that can be written, for processes to come."""
    COMPILED.keeps_loaded = True
    totals = prepare_kernels()
    return Kept(totals, COMPILED.folder, COMPILED.is_lasting)
