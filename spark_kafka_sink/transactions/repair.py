"""A unit that was decided, and comes again: what its replay may fill in, what is dropped of it."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from spark_kafka_sink.transactions.errors import OutcomeError, ReplayError
from spark_kafka_sink.transactions.model import Decision, Phase, Rows, TaskTransaction

logger = logging.getLogger("spark_kafka_sink")


def missing_of(
    decision: Decision, replayed: Sequence[TaskTransaction], prefix: str
) -> list[TaskTransaction]:
    """The replayed transactions that take the place of lost ones.

    Raises OutcomeError unless the replay has the same Spark partitions with the same rows, the
    visible ones too: else some row would be doubled, or missing.
    """
    lost = {t.partition_id for t in decision.transactions}
    before = {t.partition_id: (t.records, t.digest) for t in decision.transactions}
    before.update({t.partition_id: (t.records, t.digest) for t in decision.committed})
    now = {t.partition_id: (t.records, t.digest) for t in replayed}
    if before != now:
        differing = sorted(p for p in before.keys() | now.keys() if before.get(p) != now.get(p))
        raise OutcomeError(
            f"{explain(decision, prefix)} Its replay cannot fill in the rest, for it is not the "
            f"same: Spark partitions {_some(differing)} differ."
        )
    return [t for t in replayed if t.partition_id in lost]


def check_replay(decision: Decision, replayed: Sequence[TaskTransaction], prefix: str) -> None:
    """Raise ReplayError when what is about to be dropped is not what was committed.

    A replay without any row has nothing to lose. The same number of records and bytes, in another
    order or by other tasks, counts as the same: shuffles bring rows in any order.
    """
    if not replayed:
        return
    if decision.rows is None:
        logger.warning(
            f"{decision.unit} is committed, and there is no record of its rows to compare its "
            "replay with: the replay is dropped"
        )
        return
    rows = Rows.of(replayed)
    if not rows.has_as_many(decision.rows):
        raise ReplayError(
            f"{decision.unit} is committed with {decision.rows.records} records of "
            f"{decision.rows.data_bytes} bytes, and has come again with {rows.records} records of "
            f"{rows.data_bytes} bytes: the checkpoint has lost offsets, as an old backup has, or "
            "the source does not give the same rows again. These records are aborted, and the "
            "query stops, for to drop them may lose them. Restore the checkpoint. Or, to write "
            "them too, which doubles those that are there already: pykafka-sink transactions "
            f"release --prefix {prefix}, and start the query again"
        )
    if rows != decision.rows:
        logger.warning(
            f"the replay of {decision.unit} has as many records and bytes as what is committed, in "
            "another order or by other tasks: it is dropped"
        )


def explain(decision: Decision, prefix: str) -> str:
    """What is visible of a unit that is not simply done, and what the user can do."""
    visible = sum(t.records for t in decision.committed)
    rest = sum(t.records for t in decision.transactions)
    partitions = _some(sorted(t.partition_id for t in decision.transactions))
    commands = (
        f"pykafka-sink transactions describe --prefix {prefix} shows it; then "
        f"pykafka-sink transactions resolve --prefix {prefix} with --as-written (its rows that are "
        "not visible stay missing) or --as-not-written (it is written again, what is visible is "
        "doubled)."
    )
    if decision.needs_confirmation and decision.phase is Phase.DONE:
        return (
            f"{decision.unit} was decided, and its driver died before it had committed everything. "
            f"It is complete now: {decision.records} records are visible. If this job "
            "repeats it, do not run it. Confirm that you know: pykafka-sink transactions resolve "
            f"--prefix {prefix} --as-written"
        )
    if decision.phase is Phase.VOID:
        return (
            f"the brokers had aborted all transactions of {decision.unit} before they could be "
            "committed (kafka.transaction.timeout.ms). Nothing of it is visible: its replay writes "
            "it anew."
        )
    if decision.phase is Phase.PARTIAL:
        what = f"{rest} records of Spark partitions {partitions} were lost: the brokers had aborted"
        what += " their transactions (kafka.transaction.timeout.ms)."
        how = "A replay with the same rows fills them in. "
        if decision.write is not None:
            how = f"{decision.write}, run again with the same rows, fills them in; or: {commands}"
        elif decision.unit.job_id is not None:
            how = commands
        return f"{decision.unit} is visible in part: {visible} records are, {what} {how}"
    return (
        f"the outcome of {decision.unit} cannot be known: {visible} records are visible; of "
        f"{rest} records of Spark partitions {partitions} the brokers can no longer tell whether "
        f"their transactions were committed. {commands}"
    )


def _some(numbers: Sequence[int]) -> str:
    text = ", ".join(str(number) for number in numbers[:10])
    return f"{text}, … ({len(numbers)} in all)" if len(numbers) > 10 else text
