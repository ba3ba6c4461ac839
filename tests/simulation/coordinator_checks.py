"""What a simulated coordinator has of an id, and what it refuses. Kafka's checks, as measured on 4.3.

Source: ``TransactionCoordinator``; KIP-98, KIP-360, KIP-890.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from spark_kafka_sink.base.model import ProducerIdAndEpoch
from tests.simulation.transaction_log import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    TransactionMetadata,
    is_exhausted,
)

_COMPLETE = (COMPLETE_COMMIT, COMPLETE_ABORT)


@dataclass
class Entry:
    """A transactional id in a coordinator's memory. ``pending``: the state that is being written."""

    metadata: TransactionMetadata
    pending: str | None = None


@dataclass
class Loaded:
    """One partition of the transaction log in memory, as its leader of that epoch."""

    leader_epoch: int
    entries: dict[str, Entry] = field(default_factory=dict)


class CoordinatorError(Exception):
    """A request is refused; ``name`` is Kafka's name of the error."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


def retry_later(error: str) -> str:
    return "CONCURRENT_TRANSACTIONS" if error == "NONE" else error


def completed(prepared: TransactionMetadata) -> TransactionMetadata:
    state = COMPLETE_COMMIT if prepared.state == PREPARE_COMMIT else COMPLETE_ABORT
    completed = replace(prepared, state=state, partitions=frozenset(), next_producer_id=-1)
    if prepared.next_producer_id == -1:
        return completed
    return replace(
        completed,
        producer_id=prepared.next_producer_id,
        producer_epoch=0,
        last_producer_id=prepared.producer_id,
    )


def check_without_bump(entry: Entry, producer: ProducerIdAndEpoch, is_commit: bool) -> bool:
    """EndTxn up to v4: whether the transaction has ended so already. Raises CoordinatorError."""
    metadata = entry.metadata
    if metadata.producer_id != producer.producer_id:
        raise CoordinatorError("INVALID_PRODUCER_ID_MAPPING")
    if metadata.producer_epoch != producer.producer_epoch:
        raise CoordinatorError("PRODUCER_FENCED")
    _refuse_while_busy(entry, is_commit)
    if metadata.state == ONGOING:
        return False
    if metadata.state == (COMPLETE_COMMIT if is_commit else COMPLETE_ABORT):
        return True
    raise CoordinatorError("INVALID_TXN_STATE")


def check_with_bump(entry: Entry, producer: ProducerIdAndEpoch, is_commit: bool) -> bool:
    """EndTxn v5: as above; here the epoch tells a repetition from the next transaction."""
    metadata = entry.metadata
    is_overflow = (
        metadata.last_producer_id == producer.producer_id
        and is_exhausted(producer.producer_epoch)
        and metadata.producer_epoch == 0
    )
    if metadata.producer_id != producer.producer_id and not is_overflow:
        raise CoordinatorError("INVALID_PRODUCER_ID_MAPPING")
    is_current = metadata.producer_epoch == producer.producer_epoch
    is_retry = metadata.producer_epoch == producer.producer_epoch + 1 or is_overflow
    is_valid = is_current if metadata.state in (ONGOING, EMPTY) else is_retry
    if metadata.state in _COMPLETE:
        is_valid = is_retry or is_current
    if not is_valid:
        raise CoordinatorError("PRODUCER_FENCED")
    _refuse_while_busy(entry, is_commit)
    if metadata.state == ONGOING:
        return False
    if not is_retry:
        # Nothing was written since the last end; an abort only takes the next epoch.
        if is_commit:
            raise CoordinatorError("INVALID_TXN_STATE")
        return False
    if metadata.state == (COMPLETE_COMMIT if is_commit else COMPLETE_ABORT):
        return True
    raise CoordinatorError("INVALID_TXN_STATE")


def _refuse_while_busy(entry: Entry, is_commit: bool) -> None:
    """Raises CoordinatorError while another transition, or the end itself, is under way."""
    if entry.pending is not None:
        raise CoordinatorError("CONCURRENT_TRANSACTIONS")
    if entry.metadata.is_prepared:
        is_same = entry.metadata.state == (PREPARE_COMMIT if is_commit else PREPARE_ABORT)
        raise CoordinatorError("CONCURRENT_TRANSACTIONS" if is_same else "INVALID_TXN_STATE")
