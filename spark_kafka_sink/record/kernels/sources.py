"""Compute the digest of the kernels' sources, which a library contains as the name of a symbol.

Python 3.9 without any package must run this module: the build imports it before the compiler.
"""

from __future__ import annotations

import hashlib
import importlib.resources
from pathlib import Path
from typing import Any

COMPILER = ("numba==0.68.1", "llvmlite==0.50.0")
"""The compiler's packages in exact versions: other versions generate other machine code."""
OLDEST_PYTHON = (3, 10)
"""The oldest Python version that the compiler's packages support."""
PLATFORMS = ("darwin-arm64", "darwin-x86_64", "linux-aarch64", "linux-x86_64")
"""The platforms whose libraries a release contains."""
_FOLDERS = ("compiled", "kernels")
_LOADER = "library.py"
_DIGEST_DIGITS = 32


def symbol(record: Path | None = None) -> str:
    """Return the name of the symbol that a library of these sources contains.

    record: the folder ``spark_kafka_sink/record``; if None, the folder of this package
    """
    record_folder: Any = record or importlib.resources.files("spark_kafka_sink.record")
    files = [
        (f"{folder}/{file.name}", file)
        for folder in _FOLDERS
        for file in sorted((record_folder / folder).iterdir(), key=lambda file: file.name)
        if file.name.endswith(".py") and file.name != _LOADER
    ]
    digest = hashlib.sha256()
    for name, file in files:
        source = file.read_bytes()
        digest.update(f"\n{name} {len(source)}\n".encode())
        digest.update(source)
    return f"pykafka_sink_sources_{digest.hexdigest()[:_DIGEST_DIGITS]}"
