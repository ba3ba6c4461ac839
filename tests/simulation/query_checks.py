"""What must hold of a query's life, once it is over and all its processes have ended."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING

from spark_kafka_sink.transactions.model import MissingRecordError, ReplayError
from tests import twin
from tests.simulation import query_dead_letters
from tests.simulation.partition_log import is_control
from tests.simulation.query_blows import PREFIX

if TYPE_CHECKING:
    from tests.simulation.query import Life


class InvariantError(AssertionError):
    """An invariant does not hold."""


def check(life: Life) -> None:
    """Raise InvariantError for the first invariant that does not hold."""
    check_nothing_open(life)
    if life.intruders:
        raise InvariantError(f"refused, and has fenced the query: {life.intruders}")
    good, dead = _committed(life, "out"), _committed(life, query_dead_letters.TOPIC)
    for problem in query_dead_letters.problems(good, dead, life.refusing):
        raise InvariantError(problem)
    seen = Counter(query_dead_letters.id_of(record) for record in (*good, *dead))
    doubled = sorted(i for i, count in seen.items() if count > 1)
    if doubled:
        raise InvariantError(f"{len(doubled)} rows doubled: {doubled[:5]}; outcome {life.outcome}")
    finished = life.checkpoint.batches[: life.checkpoint.first()]
    lost = sorted(set().union(*(b.ids for b in finished)) - seen.keys())
    if lost:
        raise InvariantError(f"{len(lost)} rows lost: {lost[:5]}")
    allowed = set().union(*(b.ids for b in life.checkpoint.batches[: life.checkpoint.first() + 1]))
    allowed |= life.replaced_ids
    if set(seen) - allowed:
        raise InvariantError(f"rows of batches that were never run: {sorted(set(seen) - allowed)}")
    _check_outcome(life)
    _check_swept(life)


def _committed(life: Life, topic: str) -> list[twin.Record]:
    if topic not in life.cluster.topics:
        return []
    return [record for records in life.state.committed(topic).values() for record in records]


def _check_outcome(life: Life) -> None:
    """Only what exceeded the timeout of transactions, or what others did, is left to the user."""
    if life.outcome is None:
        return
    if isinstance(life.outcome, (MissingRecordError, ReplayError)):
        return  # something was lost, as _judge has seen
    assert life.decision is not None
    if life.has_late_sweep:
        return  # the one step that nothing can fence: an id that was listed may be in use again
    for t in life.decision.transactions:
        is_timed_out = (t.transactional_id, *t.producer) in life.state.timed_out
        if not is_timed_out and t.transactional_id not in life.taken:
            raise InvariantError(f"{t.transactional_id} did not time out: {life.outcome}")
    if not life.decision.transactions:
        raise InvariantError(f"{life.decision.phase} without a transaction: {life.outcome}")


def _check_swept(life: Life) -> None:
    """Whose transaction was aborted before the tasks of a later plan writes nothing after it."""
    for writer in life.swept:
        for index, partition in enumerate(life.cluster.topics["out"].partitions):
            for base, batch in zip(partition.log.base_offsets, partition.log.batches):
                header = batch.header
                producer = (header.producer_id, header.producer_epoch)
                is_its_own = producer == writer.producer and not is_control(header)
                if is_its_own and base >= writer.ends[index]:
                    raise InvariantError(f"{writer} wrote at offset {base} of out-{index}")


def check_nothing_open(life: Life) -> None:
    """Raise InvariantError for a transaction that readers wait for."""
    if life.state.open_ids():
        raise InvariantError(f"transactions are left open: {life.state.open_ids()}")
    if life.state.open_in_logs():
        raise InvariantError(f"readers wait for {life.state.open_in_logs()}")


def phases(life: Life) -> Counter[str]:
    """What is in the decision log: how often each phase; "repaired" is one after PARTIAL."""
    found: Counter[str] = Counter()
    before: tuple[str, object] = ("", None)
    for record in life.state.committed(life.log_topic).get(0, []):
        if record.value is None or record.key != PREFIX.encode():
            continue
        decision = json.loads(record.value)
        now = (decision["phase"], decision["unit"])
        if now != before:
            found[now[0]] += 1
            found["repaired"] += before == ("PARTIAL", now[1]) and now[0] == "DECIDED"
        before = now
    return found
