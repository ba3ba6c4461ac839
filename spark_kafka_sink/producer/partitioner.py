"""How rows find their partition, beyond an explicit partition column.

``kafka.partitioner`` names the way: ``default`` (murmur2 of the key, sticky without key),
``round-robin``, ``murmur3``, ``crc32``, or the user's own ``package.module:callable``.

Sticky: rows stick to one partition until its batch is finished, so that batches get full; then the
next one takes over. Partitions follow each other in shuffled rounds: each gets its turn before any
gets a second one, which is more even than the Java producer's independent draws. When some
partitions have more batches waiting than others, their brokers are slower, and the next partition
is drawn with a preference for short queues, as the Java producer does.

Source: ``BuiltInPartitioner``, ``RoundRobinPartitioner``; KIP-480, KIP-794.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

# At run time for one thing: with kafka.partitioner=murmur3 the kernel's hash is compared with it.
import mmh3
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_kafka_sink.base import entry_points
from spark_kafka_sink.columns.record_columns import ArrowRecords
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.record.compiled.calls import murmur3_of
from spark_kafka_sink.record.compiled.records import CRC32, MURMUR2, MURMUR3, NO_KEY_HASH

Int32Array = npt.NDArray[np.int32]

_KEY_HASHES = {"murmur3": MURMUR3, "crc32": CRC32}
_ROUND_ROBIN = "round-robin"
_LEAVE_TO_KEY = -1


class RandomSource(Protocol):
    """What is needed of ``random.Random``."""

    def shuffle(self, x: list[int]) -> None:
        """Shuffle in place."""
        ...

    def random(self) -> float:
        """A number from 0 to below 1."""
        ...


def key_hash(config: ProducerConfig) -> int:
    """Which hash of the key decides, as the partition kernel names it."""
    if config.partitioner_ignore_keys or config.partitioner == _ROUND_ROBIN:
        return NO_KEY_HASH
    return _KEY_HASHES.get(config.partitioner, MURMUR2)


class StickyPartitioner:
    """Sequence of sticky partitions of one topic."""

    def __init__(self, rng: RandomSource) -> None:
        self._rng = rng
        self._round: list[int] = []

    def next_partition(self, available: Sequence[int], queued: Mapping[int, int]) -> int:
        """The partition to stick to from now on.

        available: partitions to choose from; queued: batches that wait for a partition, if that is
        to count, without those for which none waits
        """
        if queued and (len(queued) < len(available) or len(set(queued.values())) > 1):
            return self._draw(available, queued)
        while True:
            if not self._round:
                self._round = list(available)
                self._rng.shuffle(self._round)
            partition = self._round.pop()
            if partition in available:
                return partition

    def _draw(self, available: Sequence[int], queued: Mapping[int, int]) -> int:
        """At random, weighted by how much shorter a queue is than the longest."""
        # By rejection: there may be thousands of partitions, of which few have a queue.
        longest, draw = max(queued.values()) + 1, self._rng.random
        while True:
            partition = available[int(draw() * len(available))]
            if draw() * longest >= queued.get(partition, 0):
                return partition


class ComputedPartitions(Protocol):
    """A partitioner that looks at whole columns instead of single keys."""

    def compute(
        self,
        topic: str,
        records: ArrowRecords,
        rows: Int32Array | None,
        available: Sequence[int],
        partitions_count: int,
    ) -> Int32Array:
        """A partition for each of ``rows`` (None: all); -1: the key decides."""
        ...

    def refused(
        self, records: ArrowRecords, rows: npt.NDArray[np.int64], partitions_count: int
    ) -> dict[int, str]:
        """Which of ``rows`` make ``compute`` raise, and why."""
        ...


def computed_partitions(config: ProducerConfig) -> ComputedPartitions | None:
    """The partitioner that ``kafka.partitioner`` names, if it is one that computes."""
    if config.partitioner == "murmur3":
        _check_murmur3()
    if config.partitioner == _ROUND_ROBIN:
        return RoundRobinPartitioner()
    if ":" in config.partitioner:
        return UserPartitioner(config.partitioner)
    return None


class RoundRobinPartitioner:
    """Each row to the next partition that has a leader, whatever its key."""

    def __init__(self) -> None:
        self._next: dict[str, int] = {}

    def compute(
        self,
        topic: str,
        records: ArrowRecords,
        rows: Int32Array | None,
        available: Sequence[int],
        partitions_count: int,
    ) -> Int32Array:
        """Rows with an explicit partition take a turn, too: leaving them out gains nothing."""
        count = records.rows_count if rows is None else len(rows)
        first = self._next.get(topic, 0)
        self._next[topic] = (first + count) % len(available)
        turns = (first + np.arange(count)) % len(available)
        return np.asarray(available, np.int32)[turns]

    def refused(
        self, records: ArrowRecords, rows: npt.NDArray[np.int64], partitions_count: int
    ) -> dict[int, str]:
        """None: it does not look at rows."""
        return {}


class UserPartitioner:
    """The user's callable: Arrow keys, Arrow values and the number of partitions, for int32s."""

    def __init__(self, entry_point: str) -> None:
        self._hook = entry_points.Hook(
            f"partitioner '{entry_point}'", entry_points.load(entry_point, "partitioner")
        )

    def compute(
        self,
        topic: str,
        records: ArrowRecords,
        rows: Int32Array | None,
        available: Sequence[int],
        partitions_count: int,
    ) -> Int32Array:
        """Raises HookError for a result that is not an int32 array of partitions or nulls, and
        RefusedRowsError as the callable has raised it.
        """

        def check(result: Any) -> Int32Array:
            partitions, is_outside = _checked(result, count, partitions_count)
            if is_outside.any():
                raise ValueError(_outside(partitions[is_outside][0], partitions_count))
            return partitions

        keys, values = _keys_and_values(records, rows)
        count = len(values)
        computed: Int32Array = entry_points.run(self._hook, check, keys, values, partitions_count)
        return computed

    def refused(
        self, records: ArrowRecords, rows: npt.NDArray[np.int64], partitions_count: int
    ) -> dict[int, str]:
        """Rows that the callable refuses, or would send to a partition that does not exist.

        Raises HookError for any other failure of it.
        """

        def check(result: Any) -> tuple[Int32Array, npt.NDArray[np.bool_]]:
            return _checked(result, len(rows), partitions_count)

        found: dict[int, str] = {}
        while len(rows):
            keys, values = _keys_and_values(records, rows)
            try:
                partitions, is_outside = entry_points.run(
                    self._hook, check, keys, values, partitions_count
                )
            except entry_points.RefusedRowsError as error:
                reasons = entry_points.refused_rows(self._hook, error, len(rows))
                found.update({int(rows[row]): reason for row, reason in reasons.items()})
                rows = np.delete(rows, [*reasons])
                continue
            for row in np.flatnonzero(is_outside).tolist():
                found[int(rows[row])] = _outside(partitions[row], partitions_count)
            break
        return found


def _keys_and_values(records: ArrowRecords, rows: npt.NDArray[Any] | None) -> tuple[Any, Any]:
    batch = records.owner if rows is None else records.owner.take(pa.array(rows))
    values = batch.column(records.positions.value)
    key = records.positions.key
    return pa.nulls(len(values), pa.binary()) if key is None else batch.column(key), values


def _outside(partition: int, partitions_count: int) -> str:
    return f"it returned partition {partition}; there are {partitions_count}"


def _checked(
    result: Any, rows_count: int, partitions_count: int
) -> tuple[Int32Array, npt.NDArray[np.bool_]]:
    """(a partition for each row or -1, where it is none of the topic's)."""
    if not isinstance(result, (pa.Array, pa.ChunkedArray)) or result.type != pa.int32():
        kind = getattr(result, "type", type(result).__name__)
        raise TypeError(f"it returned {kind}, not an int32 Arrow array")
    if len(result) != rows_count:
        raise ValueError(f"it returned {len(result)} partitions for {rows_count} rows")
    if isinstance(result, pa.ChunkedArray):
        result = result.combine_chunks()
    filled: Int32Array = result.fill_null(_LEAVE_TO_KEY).to_numpy(zero_copy_only=False)
    partitions = np.ascontiguousarray(filled, np.int32)
    is_outside = (partitions < 0) | (partitions >= partitions_count)
    if result.null_count:
        is_outside &= result.is_valid().to_numpy(zero_copy_only=False)
    return partitions, is_outside


def _check_murmur3() -> None:
    """Keys must go where other clients send them: compare the kernel with mmh3, the reference.

    Raises RuntimeError when they differ: nothing may be written then.
    """
    for key in (b"", b"a", b"ab", b"abc", b"abcd", b"\x80\xff\x00 longer than a word"):
        data = np.frombuffer(key or b"\0", np.uint8)
        ours = murmur3_of(data.ctypes.data, len(key))
        theirs = mmh3.hash(key, signed=False)
        if ours != theirs:
            raise RuntimeError(
                f"murmur3 of {key!r} is {ours} here and {theirs} in mmh3: keys would go to other "
                "partitions than before. This is a defect of the sink: please report it, and use "
                "another kafka.partitioner meanwhile"
            )
