"""How far a stream is behind the topics it reads, by the progress of Spark's Kafka source."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

_KAFKA = "Kafka"


def kafka_lag(progress: Mapping[str, Any]) -> int | None:
    """Offsets between the end of a micro-batch and the end of its topics, when it was planned.

    progress: a StreamingQueryProgress. None without a Kafka source, and for a micro-batch that was
    planned before a restart. Transactions take offsets of their own: there may be fewer records.
    """
    behind = None
    for source in progress.get("sources") or ():
        if not source["description"].startswith(_KAFKA):
            continue
        ends, latest = _offsets(source["endOffset"]), _offsets(source["latestOffset"])
        if not latest:
            return None
        behind = (behind or 0) + sum(
            max(0, offset - ends.get(partition, 0)) for partition, offset in latest.items()
        )
    return behind


def _offsets(text: str | None) -> dict[tuple[str, str], int]:
    """``{"topic":{"0":12}}``, or nothing."""
    topics = json.loads(text) if text else None
    return {
        (topic, partition): offset
        for topic, partitions in (topics or {}).items()
        for partition, offset in partitions.items()
    }
