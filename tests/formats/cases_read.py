"""The cases that ``generate`` has made."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pyarrow as pa

FOLDER = Path(__file__).parent / "cases"
NAMES = sorted(path.stem for path in FOLDER.glob("*.json"))


def read(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return found


def arrow_batch(case: dict[str, Any]) -> pa.RecordBatch:
    """All rows of a case."""
    with pa.ipc.open_stream(base64.b64decode(case["arrow"])) as reader:
        return reader.read_all().combine_chunks().to_batches()[0]
