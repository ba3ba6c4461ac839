"""The options of exactly-once delivery, once they are known to fit each other."""

from __future__ import annotations

from typing import NamedTuple

LONGEST_TIMEOUT_MS = 900_000
"""The brokers' default of transaction.max.timeout.ms, and ours of transaction.timeout.ms: as long
as possible, for it is also how long a restart may take in the middle of a commit."""


class ExactlyOnceConfig(NamedTuple):
    """prefix: ``transactional.id.prefix``; log_*: of the decision log's topic.

    accepts_missing_record: a prefix or query that is not new may begin without a record in the log
    drops_replays: what comes again of a micro-batch that is committed may have other rows
    """

    prefix: str
    transaction_timeout_ms: int
    log_topic: str
    log_replication_factor: int
    accepts_missing_record: bool = False
    drops_replays: bool = False

    @property
    def log_min_isr(self) -> int:
        """Return the fewest in-sync replicas that may acknowledge a decision."""
        return min(2, self.log_replication_factor)
