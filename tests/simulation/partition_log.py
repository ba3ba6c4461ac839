"""A replica's log on a simulated broker, with the checks of Kafka's ProducerStateManager."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from spark_kafka_sink.record.record_batch import ParsedHeader
from tests import twin

_REMEMBERED_BATCHES = 5
_LAST_SEQUENCE = 2**31 - 1


@dataclass
class AppendedBatch:
    """First and last sequence of a batch, and where it is."""

    first_sequence: int
    last_sequence: int
    base_offset: int


def _remembered() -> deque[AppendedBatch]:
    return deque(maxlen=_REMEMBERED_BATCHES)


@dataclass
class ProducerEntry:
    """What the broker remembers of one producer id."""

    epoch: int
    batches: deque[AppendedBatch] = field(default_factory=_remembered)


class PartitionLog:
    """Record batches in order of their offset."""

    def __init__(self) -> None:
        self.batches: list[twin.RecordBatch] = []
        self.base_offsets: list[int] = []
        self.producers: dict[int, ProducerEntry] = {}
        self.end_offset = 0

    def records(self) -> list[twin.Record]:
        return [
            record._replace(offset=base + index)
            for base, batch in zip(self.base_offsets, self.batches, strict=True)
            for index, record in enumerate(batch.records)
        ]

    def check(self, header: ParsedHeader, rejects_unknown: bool = False) -> tuple[str, int]:
        """(error name, base offset of the batch if it is a known duplicate or -1).

        A producer that is not known may begin with any sequence on newer brokers; older ones
        (``rejects_unknown``) want 0.
        """
        if header.producer_id < 0:
            return "NONE", -1
        entry = self.producers.get(header.producer_id)
        if entry is None:
            is_refused = rejects_unknown and header.base_sequence > 0
            return ("UNKNOWN_PRODUCER_ID" if is_refused else "NONE"), -1
        if header.producer_epoch < entry.epoch:
            return "INVALID_PRODUCER_EPOCH", -1
        last_sequence = (header.base_sequence + header.records_count - 1) % 2**31
        if header.producer_epoch > entry.epoch:
            return ("NONE" if header.base_sequence == 0 else "OUT_OF_ORDER_SEQUENCE_NUMBER"), -1
        for batch in entry.batches:
            if (batch.first_sequence, batch.last_sequence) == (header.base_sequence, last_sequence):
                return "NONE", batch.base_offset
        expected = entry.batches[-1].last_sequence
        follows = header.base_sequence == (0 if expected == _LAST_SEQUENCE else expected + 1)
        return ("NONE" if follows else "OUT_OF_ORDER_SEQUENCE_NUMBER"), -1

    def append(self, batch: twin.RecordBatch) -> int:
        header = batch.header
        base_offset = self.end_offset
        if header.producer_id >= 0:
            entry = self.producers.get(header.producer_id)
            if entry is None or entry.epoch != header.producer_epoch:
                entry = self.producers[header.producer_id] = ProducerEntry(header.producer_epoch)
            last_sequence = (header.base_sequence + header.records_count - 1) % 2**31
            entry.batches.append(AppendedBatch(header.base_sequence, last_sequence, base_offset))
        self.batches.append(batch)
        self.base_offsets.append(base_offset)
        self.end_offset += len(batch.records)
        return base_offset

    def follow(self, leader: PartitionLog) -> None:
        """Become a copy of ``leader``: cut what it does not have, fetch what it has more."""
        common = 0
        for mine, theirs in zip(self.batches, leader.batches, strict=False):
            if mine is not theirs:
                break
            common += 1
        if common < len(self.batches):
            kept = self.batches[:common]
            self.batches, self.base_offsets, self.producers, self.end_offset = [], [], {}, 0
            for batch in kept:
                self.append(batch)
        for batch in leader.batches[common:]:
            self.append(batch)
