"""The golden cases: JSON that the generator wrote, turned into the rows and bytes it stands for."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from spark_kafka_sink.columns.positions import ColumnPositions

CLIENT_VERSION = "4.3.0"
FOLDER = Path(__file__).parent / "cases"
HEADERS_TYPE = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


class Row(NamedTuple):
    """One record to be written."""

    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    partition: int | None = 0
    topic: str = "t"


def load(name: str) -> list[dict[str, Any]]:
    """The cases of one file."""
    cases: list[dict[str, Any]] = load_file(name)["cases"]
    return cases


def load_file(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return content


def name_of(case: Any) -> str:
    """For pytest's ids."""
    return str(case["name"])


def blob(rule: dict[str, Any] | None) -> bytes | None:
    """The bytes that a rule stands for. Twin of ``Blob.java``."""
    if rule is None:
        return None
    if "text" in rule:
        return str(rule["text"]).encode()
    if "hex" in rule:
        return bytes.fromhex(rule["hex"])
    if "repeat" in rule:
        return str(rule["repeat"]).encode() * int(rule["times"])
    state, out = rule["random"], bytearray()
    for _ in range(rule["length"]):
        state = (state * 1103515245 + 12345) & 0x7FFFFFFF
        out.append((state >> 16) & 0xFF)
    return bytes(out)


def rows(rule: Any, topic: str = "t", partition: int = 0) -> list[Row]:
    """The rows that a rule stands for. Twin of ``Rows.java``."""
    if isinstance(rule, list):
        return [
            Row(
                row["timestamp"],
                blob(row["key"]),
                blob(row["value"]),
                [(name, blob(value)) for name, value in row.get("headers", ())],
                partition,
                topic,
            )
            for row in rule
        ]
    return [
        Row(
            rule["first_timestamp"] + index * rule["timestamp_step"],
            None if rule["key"] is None else (rule["key"] % index).encode(),
            (rule["value"] % index).encode(),
            [],
            partition,
            topic,
        )
        for index in range(rule["count"])
    ]


PLAN = ColumnPositions(value=0, key=1, headers=2, topic=3, partition=4, timestamp=5)


def arrow_batch(rows: list[Row], is_large: bool = False) -> Any:
    """What Spark would hand over; ``is_large``: with 64-bit offsets."""
    data_type = pa.large_binary() if is_large else pa.binary()
    headers = [[{"key": k, "value": v} for k, v in row.headers] or None for row in rows]
    arrays = [
        pa.array([row.value for row in rows], data_type),
        pa.array([row.key for row in rows], data_type),
        pa.array(headers, HEADERS_TYPE),
        pa.array([row.topic for row in rows], pa.string()),
        pa.array([row.partition for row in rows], pa.int32()),
        pa.array([row.timestamp * 1000 for row in rows], pa.timestamp("us", "UTC")),
    ]
    names = ["value", "key", "headers", "topic", "partition", "timestamp"]
    return pa.record_batch(arrays, names=names)


def assert_same_bytes(ours: bytes, javas: str | dict[str, Any]) -> None:
    """``javas``: hex, or size, beginning and digest of what is too long to be kept."""
    if isinstance(javas, str):
        assert ours.hex() == javas
        return
    begins: str = javas["begins"]
    assert ours[: len(begins) // 2].hex() == begins
    assert len(ours) == javas["size"]
    assert hashlib.sha256(ours).hexdigest() == javas["sha256"]
