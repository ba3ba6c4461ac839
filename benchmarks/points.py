"""The points of the matrix that are measured.

All combinations of the axes would be 4 × 5 × 3 × 2 × 3 = 360 points and take hours, mostly for the
same results. The measured points are:

- every value size with every codec, without keys, 6 partitions;
- around two centres, 100 B and 1 KB with lz4, keys and partitions, one axis at a time;
- axes that influence each other: keys with 100 partitions, keys without codec, keys of 10-B values;
- headers with every codec at 100 B: one row of the matrix;
- smaller Arrow batches for large values;
- each sink with its own defaults;
- the other clients, beside the JVM sink's figures.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.rows import KEY_BYTES, KeyKind
from benchmarks.sinks import COMMON_SETTINGS

VALUE_BYTES = (10, 100, 1_000, 10_000)
CODECS = ("none", "lz4", "zstd", "snappy", "gzip")
SPARK_SINKS = ("ours", "jvm", "empty")
# Enough for a run of a few seconds; at most 1 GB in the broker's page cache.
_ROWS = {10: 4_000_000, 100: 4_000_000, 1_000: 1_000_000, 10_000: 100_000}
_DEFAULT_PARTITIONS = 6


@dataclass(frozen=True)
class Point:
    """One point: rows, topic and contenders. ``rows``: number of rows, None is by value size.

    arrow_rows: of ``spark.sql.execution.arrow.maxRecordsPerBatch``, None is Spark's default
    with_defaults: no producer settings, each contender uses its own
    """

    value_bytes: int
    codec: str = "none"
    key: KeyKind = "null"
    headers: bool = False
    partitions: int = _DEFAULT_PARTITIONS
    arrow_rows: int | None = None
    with_defaults: bool = False
    contenders: tuple[str, ...] = SPARK_SINKS
    rows: int | None = None
    note: str = ""

    @property
    def name(self) -> str:
        """Return a short name, different for each point."""
        parts = [size_name(self.value_bytes), "defaults" if self.with_defaults else self.codec]
        if self.key != "null":
            parts.append(f"key{KEY_BYTES[self.key]}")
        if self.headers:
            parts.append("headers")
        if self.partitions != _DEFAULT_PARTITIONS:
            parts.append(f"{self.partitions}p")
        if self.arrow_rows is not None:
            parts.append(f"arrow{self.arrow_rows}")
        if self.note:
            parts.append(self.note)
        return "-".join(parts)

    def rows_count(self, scale: float) -> int:
        """Return the rows of one run; ``scale`` below 1 shortens the run."""
        return int((self.rows or _ROWS[self.value_bytes]) * scale)

    def settings(self) -> Mapping[str, str]:
        """Return settings of the Java producer, the same for all contenders."""
        if self.with_defaults:
            return {}
        return {**COMMON_SETTINGS, "compression.type": self.codec}

    def spark_conf(self) -> dict[str, str]:
        """Return the session's settings."""
        if self.arrow_rows is None:
            return {}
        return {"spark.sql.execution.arrow.maxRecordsPerBatch": str(self.arrow_rows)}

    def as_json(self) -> dict[str, Any]:
        """Return the point for the results."""
        return {**asdict(self), "settings": dict(self.settings())}


def size_name(value_bytes: int) -> str:
    """Return the size as a name, such as 10B or 1KB."""
    return f"{value_bytes}B" if value_bytes < 1000 else f"{value_bytes // 1000}KB"


def _matrix() -> list[Point]:
    points = [Point(size, codec) for size in VALUE_BYTES for codec in CODECS]
    # Keys.
    points += [Point(size, "lz4", key) for size in (100, 1_000) for key in ("short", "long")]
    points += [Point(10, "zstd", "short"), Point(100, "none", "long"), Point(10_000, "lz4", "long")]
    # Headers, one row.
    points += [Point(100, codec, headers=True) for codec in CODECS]
    # Partitions.
    points += [Point(100, "lz4", partitions=count) for count in (1, 100)]
    points += [Point(100, "lz4", "short", partitions=100), Point(100, "none", partitions=1)]
    points += [Point(1_000, "lz4", "long", partitions=100)]
    # Arrow batches of about 2 MB for values that make them large by default.
    points += [Point(1_000, codec, arrow_rows=2_000) for codec in ("none", "lz4")]
    points += [Point(10_000, codec, arrow_rows=200) for codec in ("none", "lz4")]
    points.append(Point(100, with_defaults=True))
    return points


def _peers() -> list[Point]:
    clients = ("ours", "jvm", "confluent", "confluent-batch")
    java = ("ours", "producer-performance")
    return [
        Point(100, "lz4", contenders=clients, rows=1_500_000, note="clients"),
        Point(100, "none", contenders=clients, rows=1_500_000, note="clients"),
        Point(1_000, "lz4", contenders=clients, rows=500_000, note="clients"),
        Point(100, "lz4", contenders=("ours", "kafka-python"), rows=150_000, note="kafka-python"),
        Point(10, "zstd", contenders=java, rows=3_000_000, note="java"),
        Point(100, "lz4", contenders=java, rows=3_000_000, note="java"),
        Point(1_000, "none", contenders=java, rows=500_000, note="java"),
    ]


POINTS = [*_matrix(), *_peers()]
QUICK = (
    "10B-zstd",
    "100B-none",
    "100B-lz4",
    "1KB-lz4",
    "10KB-none",
    "100B-defaults",
    "100B-lz4-clients",
)
"""Enough points to see whether something is wrong."""
