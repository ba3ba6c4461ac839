"""What can go wrong between the transactions of the tasks and the driver's decision."""

from __future__ import annotations

from spark_kafka_sink.base.errors import TransactionError
from spark_kafka_sink.transactions.model import StoredRecord


class FencedError(TransactionError):
    """Another driver works under the same ``transactional.id.prefix``. This one must stop."""


class PrefixInUseError(TransactionError):
    """The ``transactional.id.prefix`` belongs to another query."""


class TransactionLostError(TransactionError):
    """Brokers have aborted transactions before they were committed. The replay repairs that."""


class OutcomeError(TransactionError):
    """A decided batch is visible in part, and no replay can repair it: the user must choose."""


class MissingRecordError(TransactionError):
    """The decision log has no record of a prefix or query that is not new: it may be lost."""


class UnreadableRecordError(TransactionError):
    """The record of a prefix is of another version, or of something else."""

    def __init__(self, message: str, stored: StoredRecord) -> None:
        self.stored = stored
        super().__init__(message)


class ReplayError(TransactionError):
    """A micro-batch that is committed comes again with other rows, which must not be lost."""
