"""Dead letters are written again, to the topic that they were to go to, once they are mended.

Whoever replays says that they are: a limit was raised, partitions were added, or a function of his
own mends the rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from spark_kafka_sink.base.entry_points import FAIL, Hook, HookError, run
from spark_kafka_sink.columns import dead_letters as headers
from spark_kafka_sink.columns import faults
from spark_kafka_sink.columns.positions import ColumnPositions
from spark_kafka_sink.columns.rows import Row, changed_rows, row_batch
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.dead_letters.letters import DeadLetter
from spark_kafka_sink.producer.producer import ThreadedProducer

_ROWS_AT_ONCE = 1000
POSITIONS = ColumnPositions(value=0, key=1, headers=2, topic=3, partition=4, timestamp=5)
Mend = Callable[[Any], Any]


class Replayed(NamedTuple):
    """written: by topic; left_out: by the reason"""

    written: Counter[str]
    left_out: Counter[str]


class Replay:
    """Writes dead letters again, but not to ``read_from``, where they would be read once more.

    to_topic: instead of the topic that the rows were to go to
    keeps_partition: whether a row goes to the partition that it named, if it did
    mend: the user's own function, or None
    """

    def __init__(
        self,
        config: ProducerConfig,
        read_from: str,
        to_topic: str | None = None,
        keeps_partition: bool = True,
        mend: Hook | None = None,
    ) -> None:
        self._config = config
        self._read_from = read_from
        self._to_topic = to_topic
        self._keeps_partition = keeps_partition
        self._mend = mend

    def why_not(self, letter: DeadLetter) -> str | None:
        """Why this one is left out; None if it is to be written."""
        if self._mend is not None:
            return None
        if letter.cause == faults.NOT_ENCODABLE:
            return "its value is the row's columns as JSON, which only a function of yours can mend"
        if letter.is_cut:
            return "a part of the row is missing: it was cut off"
        if self._to_topic is None and not faults.is_legal(letter.topic or ""):
            return "no topic is known that it was to go to"
        if self._to_topic is None and letter.topic == self._read_from:
            return (
                f"it was to go to '{self._read_from}' itself, the topic that is read: it would be "
                "read once more by the next replay. Name another one with --to-topic"
            )
        return None

    def write(self, letters: Iterable[DeadLetter]) -> Replayed:
        """Write all of them and wait until they are acknowledged.

        Raises what a producer raises, and HookError; then a part may have been written.
        """
        done = Replayed(Counter(), Counter())
        producer = ThreadedProducer(self._config)
        try:
            chunk: list[DeadLetter] = []
            for letter in letters:
                reason = self.why_not(letter)
                if reason is not None:
                    done.left_out[reason] += 1
                    continue
                chunk.append(letter)
                if len(chunk) == _ROWS_AT_ONCE:
                    self._append(producer, chunk)
                    chunk = []
            self._append(producer, chunk)
            producer.flush()
            for where, report in producer.report.items():
                done.written[where.topic] += report.records
        finally:
            producer.close()
        return done

    def _append(self, producer: ThreadedProducer, letters: Sequence[DeadLetter]) -> None:
        if not letters:
            return
        batch = self.mended(row_batch([self._row(letter) for letter in letters]))
        if batch.num_rows:
            producer.append(batch, POSITIONS)

    def mended(self, batch: Any) -> Any:
        """The Arrow batch that is to be written. Raises HookError."""
        if self._mend is None:
            return batch
        after = run(self._mend, FAIL, lambda after: changed_rows(batch, after), batch)
        if self._read_from in after.column(POSITIONS.topic).unique().to_pylist():
            raise HookError(
                f"{self._mend.name} returned a row for '{self._read_from}', the topic that is "
                "read: it would be read once more by the next replay. Have it name another topic"
            )
        return after

    def _row(self, letter: DeadLetter) -> Row:
        partition = letter.text(headers.PARTITION) if self._keeps_partition else None
        record = letter.record
        return Row(
            record.value,
            record.key,
            letter.own_headers,
            self._to_topic or letter.topic,
            None if partition is None else int(partition),
            record.timestamp_ms,
            letter.cause,
        )
