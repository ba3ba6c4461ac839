"""A replica's log on a simulated broker, with the checks of Kafka's ProducerStateManager.

Transactions: which are open and since which offset, which were aborted, and what a reader of
committed records therefore sees. All of it follows from the batches, so that a replica that copies
them knows it too.
"""

from __future__ import annotations

import struct
from collections import deque
from dataclasses import dataclass, field

from spark_kafka_sink.base.model import ProducerIdAndEpoch
from spark_kafka_sink.record.record_batch import (
    TRANSACTIONAL_FLAG,
    BatchHeader,
    ParsedHeader,
    write_header,
)
from tests import twin

_REMEMBERED_BATCHES = 5
_LAST_SEQUENCE = 2**31 - 1
_CONTROL_FLAG = 0x20
_NO_SEQUENCE = -1
_ABORT, _COMMIT = 0, 1
_MARKER_KEY = struct.Struct(">hh")
_MARKER_VALUE = struct.Struct(">hi")


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
    coordinator_epoch: int = -1


@dataclass(frozen=True)
class EndedTransaction:
    """A transaction with its marker: ``first_offset`` of its records, offset of the marker."""

    producer_id: int
    first_offset: int
    marker_offset: int
    is_committed: bool


class PartitionLog:
    """Record batches in order of their offset."""

    def __init__(self) -> None:
        self._clear()
        # Whoever asks the coordinator before an append holds the object that is here (KIP-890): it
        # goes away with the next marker, and the append that comes too late is refused.
        self.verifications: dict[int, object] = {}

    def _clear(self) -> None:
        self.batches: list[twin.RecordBatch] = []
        self.data: list[bytes] = []
        self.base_offsets: list[int] = []
        self.producers: dict[int, ProducerEntry] = {}
        self.open_transactions: dict[int, int] = {}
        self.ended: list[EndedTransaction] = []
        self.end_offset = 0

    def records(self) -> list[twin.Record]:
        """What a reader of uncommitted records sees."""
        return self._records(self.end_offset, frozenset())

    def committed(self, high_watermark: int) -> list[twin.Record]:
        """What a reader of committed records sees."""
        end = self.last_stable_offset(high_watermark)
        aborted = frozenset(
            base
            for base, batch in zip(self.base_offsets, self.batches)
            for ended in self.ended
            if not ended.is_committed
            and is_transactional(batch.header)
            and ended.producer_id == batch.header.producer_id
            and ended.first_offset <= base < ended.marker_offset
        )
        return self._records(end, aborted)

    def _records(self, end: int, left_out: frozenset[int]) -> list[twin.Record]:
        return [
            record._replace(offset=base + index)
            for base, batch in zip(self.base_offsets, self.batches)
            if base < end and base not in left_out and not is_control(batch.header)
            for index, record in enumerate(batch.records)
        ]

    def last_stable_offset(self, high_watermark: int) -> int:
        """First offset of the oldest transaction whose end the in-sync replicas do not have."""
        unstable = [
            ended.first_offset for ended in self.ended if ended.marker_offset >= high_watermark
        ]
        return min([high_watermark, *unstable, *self.open_transactions.values()])

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
        # A marker with a new epoch leaves no batches: the next one begins anew.
        expected = entry.batches[-1].last_sequence if entry.batches else _NO_SEQUENCE
        follows = header.base_sequence == (0 if expected == _LAST_SEQUENCE else expected + 1)
        return ("NONE" if follows else "OUT_OF_ORDER_SEQUENCE_NUMBER"), -1

    def is_in_transaction(self, header: ParsedHeader) -> bool:
        """Whether the batch's producer has an open transaction here, in the same epoch."""
        entry = self.producers.get(header.producer_id)
        is_open = header.producer_id in self.open_transactions
        return is_open and entry is not None and entry.epoch == header.producer_epoch

    def append(self, batch: twin.RecordBatch, data: bytes) -> int:
        """Append a batch, whose bytes are ``data``. Returns its base offset."""
        header = batch.header
        base_offset = self.end_offset
        if header.producer_id >= 0:
            self._note_producer(header, base_offset)
        if is_control(header):
            self._end_transaction(batch, base_offset)
        elif is_transactional(header):
            self.open_transactions.setdefault(header.producer_id, base_offset)
        self.batches.append(batch)
        self.data.append(data)
        self.base_offsets.append(base_offset)
        self.end_offset += len(batch.records)
        return base_offset

    def _note_producer(self, header: ParsedHeader, base_offset: int) -> None:
        entry = self.producers.get(header.producer_id)
        if entry is None or entry.epoch != header.producer_epoch:
            coordinator_epoch = -1 if entry is None else entry.coordinator_epoch
            entry = ProducerEntry(header.producer_epoch, coordinator_epoch=coordinator_epoch)
            self.producers[header.producer_id] = entry
        if not is_control(header):
            last_sequence = (header.base_sequence + header.records_count - 1) % 2**31
            entry.batches.append(AppendedBatch(header.base_sequence, last_sequence, base_offset))

    def _end_transaction(self, batch: twin.RecordBatch, offset: int) -> None:
        producer_id = batch.header.producer_id
        value = batch.records[0].value
        assert value is not None
        self.producers[producer_id].coordinator_epoch = _MARKER_VALUE.unpack(value)[1]
        self.verifications.pop(producer_id, None)
        first_offset = self.open_transactions.pop(producer_id, None)
        if first_offset is not None:
            key = batch.records[0].key
            assert key is not None
            is_committed = _MARKER_KEY.unpack(key)[1] == _COMMIT
            self.ended.append(EndedTransaction(producer_id, first_offset, offset, is_committed))

    def append_marker(
        self,
        producer: ProducerIdAndEpoch,
        is_commit: bool,
        coordinator_epoch: int,
        timestamp_ms: int,
    ) -> int | None:
        """Write the end of a transaction, open here or not.

        Returns the marker's offset; None for a coordinator that another one has replaced.
        """
        entry = self.producers.get(producer.producer_id)
        if entry is not None and coordinator_epoch < entry.coordinator_epoch:
            return None
        # A coordinator that has markers to write lets nobody begin with a newer epoch.
        assert entry is None or producer.producer_epoch >= entry.epoch
        data = encode_marker(producer, is_commit, coordinator_epoch, timestamp_ms)
        return self.append(twin.decode_batch(data), data)

    def read(self, offset: int, end: int, max_bytes: int) -> bytes:
        """Whole batches from the one that holds ``offset``, before ``end``; at least one."""
        out = b""
        for base, batch, data in zip(self.base_offsets, self.batches, self.data):
            if base + len(batch.records) <= offset:
                continue
            if base >= end or (out and len(out) + len(data) > max_bytes):
                break
            # The base offset is not covered by the CRC: the broker writes it.
            out += struct.pack(">q", base) + data[8:]
        return out

    def aborted_between(self, first: int, end: int) -> list[EndedTransaction]:
        """Aborted transactions with records among these offsets."""
        return [
            ended
            for ended in self.ended
            if not ended.is_committed and ended.first_offset < end and ended.marker_offset >= first
        ]

    def drop_last_batch(self) -> None:
        """Forget the last batch, and what followed from it."""
        self._keep(len(self.batches) - 1)

    def _keep(self, count: int) -> None:
        kept = list(zip(self.batches, self.data))[:count]
        self._clear()
        for batch, data in kept:
            self.append(batch, data)

    def _common(self, other: PartitionLog) -> int:
        """How many batches both begin with."""
        shorter = min(len(self.batches), len(other.batches))
        # A batch is copied together with all that is before it.
        if shorter and self.batches[shorter - 1] is other.batches[shorter - 1]:
            return shorter
        common = 0
        for mine, theirs in zip(self.batches, other.batches):
            if mine is not theirs:
                break
            common += 1
        return common

    def follow(self, leader: PartitionLog) -> None:
        """Become a copy of ``leader``: cut what it does not have, fetch what it has more."""
        common = self._common(leader)
        if common < len(self.batches):
            self._keep(common)
        for batch, data in zip(leader.batches[common:], leader.data[common:]):
            self.append(batch, data)


def is_transactional(header: ParsedHeader) -> bool:
    return header.producer_id >= 0 and bool(header.attributes & TRANSACTIONAL_FLAG)


def is_control(header: ParsedHeader) -> bool:
    return bool(header.attributes & _CONTROL_FLAG)


def encode_marker(
    producer: ProducerIdAndEpoch, is_commit: bool, coordinator_epoch: int, timestamp_ms: int
) -> bytes:
    """A control batch with one record. Source: ``EndTransactionMarker``."""
    key = _MARKER_KEY.pack(0, _COMMIT if is_commit else _ABORT)
    value = _MARKER_VALUE.pack(0, coordinator_epoch)
    data = bytearray(61) + twin.encode_record(0, 0, key, value)
    attributes = TRANSACTIONAL_FLAG | _CONTROL_FLAG
    header = BatchHeader(attributes, timestamp_ms, timestamp_ms, producer, _NO_SEQUENCE, 1)
    write_header(header, [memoryview(data)], len(data))
    return bytes(data)
