"""A micro-batch that is committed comes again: dropped, after its rows were compared."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from spark_kafka_sink.config.sink_keys import ExactlyOnceConfig
from spark_kafka_sink.transactions.errors import ReplayError
from spark_kafka_sink.transactions.model import Decision, TaskTransaction
from spark_kafka_sink.transactions.rows import Rows

logger = logging.getLogger(__name__)


def check_replay(
    decision: Decision, replayed: Sequence[TaskTransaction], config: ExactlyOnceConfig
) -> None:
    """Raise ReplayError when what is about to be dropped is not what was committed.

    The same rows in another order, or by other tasks, are the same: shuffles do that. One without
    any row differs, too: what it leaves out would come once more in the next micro-batch.
    """
    if decision.rows is None:
        logger.warning(
            f"{decision.unit} is committed, and its rows are not known, or not to be compared any "
            "more: what comes again is dropped"
        )
        return
    rows = Rows.total(t.rows for t in replayed)
    if rows.may_be(decision.rows):
        if not rows.is_comparable(decision.rows):
            logger.warning(
                f"{decision.unit} was committed by an earlier version of the sink: what comes "
                f"again has {rows}, too, and is dropped without a comparison of contents"
            )
        return
    found = f"{decision.unit} is committed with {decision.rows}, and has come again with "
    is_as_large = rows[:2] == decision.rows[:2]
    found += "as many of both, and other contents" if is_as_large else str(rows)
    if config.drops_replays:
        logger.warning(f"{found}: it is dropped, as transaction.replay=drop says")
        return
    raise ReplayError(f"{found}. {_what_to_do(config.prefix)}")


def _what_to_do(prefix: str) -> str:
    resolve = f"pykafka-sink transactions resolve --prefix {prefix}"
    return (
        "To drop these records may lose them, so they are aborted and the query stops. Why do they "
        "differ?\n"
        "- The checkpoint has lost offsets, as an older backup has: restore the newer one.\n"
        "- Rows are not the same each time (rand(), uuid(), the time in a function of your own, "
        "what depends on their order after a shuffle), or the query was changed, or the schema "
        "that a registry has for it: what is committed is complete. This drops what comes again, "
        "for this micro-batch:\n"
        f"  {resolve} --as-written\n"
        "  For a query whose rows always differ: option transaction.replay=drop.\n"
        "- The source has other rows now, or there is no newer checkpoint: this writes what comes "
        "again as well, and doubles the records that are in both:\n"
        f"  {resolve} --as-not-written\n"
        "Then start the query again"
    )
