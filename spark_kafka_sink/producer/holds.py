"""When the limit or the pause of a query has held what was queued: time that is not waited in vain.

Kept by partition, not by broker: a leader that moves, or is away, changes nothing of what was held.
"""

from __future__ import annotations

from collections.abc import Iterable

from spark_kafka_sink.base.model import TopicPartition


class Holds:
    """Intervals of time, as far back as somebody may ask. All of ``note`` and ``note_all`` are of
    one clock and do not overlap.
    """

    def __init__(self) -> None:
        self._of_all: list[tuple[int, int]] = []
        self._by_partition: dict[TopicPartition, list[tuple[int, int]]] = {}

    def note(self, partitions: Iterable[TopicPartition], from_ms: int, until_ms: int) -> None:
        """What is queued of ``partitions`` was held between the two."""
        for topic_partition in partitions:
            _add(self._by_partition.setdefault(topic_partition, []), from_ms, until_ms)

    def note_all(self, from_ms: int, until_ms: int) -> None:
        """All that is queued was."""
        _add(self._of_all, from_ms, until_ms)

    def held_ms(self, topic_partition: TopicPartition, since_ms: int, now_ms: int) -> int:
        """How much of the time between the two what is queued of the partition was held."""
        intervals = self._by_partition.get(topic_partition, ())
        return sum(
            max(min(until_ms, now_ms) - max(from_ms, since_ms), 0)
            for some in (intervals, self._of_all)
            for from_ms, until_ms in some
        )

    def forget_before(self, at_ms: int) -> None:
        """Nobody will ask about the time before ``at_ms`` any more."""
        for intervals in (self._of_all, *self._by_partition.values()):
            while intervals and intervals[0][1] < at_ms:
                del intervals[0]


def _add(intervals: list[tuple[int, int]], from_ms: int, until_ms: int) -> None:
    if intervals and from_ms <= intervals[-1][1]:
        from_ms, _ = intervals.pop()
    intervals.append((from_ms, until_ms))
