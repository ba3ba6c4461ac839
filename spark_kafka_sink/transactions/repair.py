"""A unit that is visible in part, or nobody knows how far: what its replay may fill in."""

from __future__ import annotations

from collections.abc import Sequence

from spark_kafka_sink.transactions.errors import OutcomeError
from spark_kafka_sink.transactions.model import Decision, Phase, TaskTransaction


def missing_of(
    decision: Decision, replayed: Sequence[TaskTransaction], prefix: str
) -> list[TaskTransaction]:
    """The replayed transactions that take the place of lost ones.

    Raises OutcomeError unless the replay has the same Spark partitions with the same rows, the
    visible ones too: else some row would be doubled, or missing. Their order within a partition is
    free: nobody has seen those that are missing.
    """
    lost = {t.partition_id for t in decision.transactions}
    before = {t.partition_id: t.rows for t in (*decision.transactions, *decision.committed)}
    now = {t.partition_id: t.rows for t in replayed}
    if not all(rows.has_contents for rows in before.values()):
        raise OutcomeError(
            f"{explain(decision, prefix)} An earlier version of the sink has written down what its "
            "rows were, in a way that this one does not compare: start the query once with that "
            "version, which fills in the rest"
        )
    if before != now:
        differing = sorted(p for p in before.keys() | now.keys() if before.get(p) != now.get(p))
        raise OutcomeError(
            f"{explain(decision, prefix)} Its replay cannot fill in the rest, for it is not the "
            f"same: Spark partitions {_some(differing)} differ."
        )
    return [t for t in replayed if t.partition_id in lost]


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
