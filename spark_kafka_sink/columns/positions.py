"""Positions of the columns that hold the parts of a Kafka record."""

from __future__ import annotations

from typing import NamedTuple


class ColumnPositions(NamedTuple):
    """Positions of the columns in every Arrow batch; None for a column that is absent.

    topic_option: the ``topic`` option, which overrides the topic column.
    takes_partitioner: whether a partitioner that reads columns is called for these rows.
    """

    value: int
    key: int | None = None
    headers: int | None = None
    topic: int | None = None
    partition: int | None = None
    timestamp: int | None = None
    topic_option: str | None = None
    takes_partitioner: bool = True
