"""What does not work, and why, as docs/compatibility.md gives it."""

from __future__ import annotations

IN_SPARK: dict[tuple[str, str, str], str] = {}
"""(Spark, where, what) -> why it does not work. Words of where and what: results.py."""

IN_BROKERS: dict[tuple[str, str], str] = {}
"""(Kafka, what) -> why it does not work. Words of what: table.py."""
