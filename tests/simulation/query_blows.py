"""Faults in the middle of a query's steps: the process that takes one of them dies, hangs or is late."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from spark_kafka_sink.base.model import NO_PRODUCER, ProducerIdAndEpoch
from spark_kafka_sink.transactions import session
from spark_kafka_sink.transactions.model import is_task_id
from tests.simulation.processes import Process
from tests.simulation.python_process import PythonProcess
from tests.simulation.query_settings import Blow
from tests.simulation.spark import Application, Batch, Checkpoint
from tests.simulation.transaction_log import ONGOING

if TYPE_CHECKING:
    from tests.simulation.query import Life

PREFIX = "query"


class SweptWriter(NamedTuple):
    """Whose transaction a planning step has aborted, and where the logs ended then."""

    transactional_id: str
    producer: ProducerIdAndEpoch
    ends: tuple[int, ...]


def reached(life: Life, point: str) -> None:
    """A named step of the protocol, in the process that takes it."""
    process = life.world.acting.process
    is_other = process in life.strangers or any(a.has(process) for a in life.others)
    if is_other and point == "plan.fenced":
        life.intruders.append(process.name)
    if point == "plan.resolved":
        life.doomed[process.name] = _open_tasks(life)
    elif point == "plan.swept":
        ends = tuple(p.log.end_offset for p in life.cluster.topics["out"].partitions)
        # Coordinators that cannot be reached are left to the next sweep.
        missed = _open_tasks(life)
        ended = [task for task in life.doomed[process.name] if task not in missed]
        life.swept += [SweptWriter(*task, ends) for task in ended]
    life.note(f"{process.name} reaches {point}")
    if is_other:
        return
    for blow in life.settings.blows:
        if blow.point == point and blow.countdown > 0:
            blow.countdown -= 1
            if blow.countdown == 0:
                _strike(life, blow, process)


def _open_tasks(life: Life) -> list[tuple[str, ProducerIdAndEpoch]]:
    metadata = (life.state.metadata(transactional_id) for transactional_id in life.state.open_ids())
    return [
        (m.transactional_id, m.producer)
        for m in metadata
        if m is not None and m.state == ONGOING and is_task_id(PREFIX, m.transactional_id)
    ]


def _strike(life: Life, blow: Blow, process: Process) -> None:
    if blow.kind == "stranger":
        _send_stranger(life)
        return
    if blow.kind in ("second query", "query elsewhere"):
        _start_another_query(life, blow.kind)
        return
    if blow.kind == "lose log":
        life.cluster.empty_topic(life.log_topic)
        life.note("the decision log is deleted, and created anew")
        blow.kind = "kill driver"
    if blow.kind == "lose offsets":
        _lose_offsets(life)
        blow.kind = "kill driver"
    if blow.kind == "depose":
        _depose_log_leader(life, blow.pause_ms)
        return
    application = next((a for a in life.applications if a.has(process)), None)
    if application is None:
        life.note(f"the operator is killed at {blow.point}")
        process.kill()
        return
    life.note(f"{blow.kind} at {blow.point} in {process.name}")
    attempt = application.attempt_of(process)
    pause_ms = blow.pause_ms or life.settings.timeout_ms + 15_000
    if blow.kind == "kill process":
        process.kill()
    elif blow.kind == "hang process":
        life.has_late_sweep |= blow.point == "sweep.listed"
        process.is_given_up = True
        process.frozen_until_ms = life.world.clock.ms + pause_ms
        life.world.sleep(0)
    elif blow.kind == "lose worker" and attempt is not None:
        application.lose(attempt)
    elif blow.kind == "kill driver":
        application.kill(kills_workers=life.fates.rng.random() < 0.5)
    elif blow.kind == "outsider":
        _take_an_id(life)
        application.kill(kills_workers=True)
    elif blow.kind == "downgrade":
        _downgrade(life, application)
    elif blow.kind == "freeze driver":
        life.has_late_sweep |= blow.point == "sweep.listed"
        application.freeze(pause_ms)
        life.world.sleep(0)


def _send_stranger(life: Life) -> None:
    """A batch job of another application is given the query's prefix."""
    number = len(life.strangers) + 1
    stranger = PythonProcess(life.world, f"stranger-{number}", 0, f"/stranger-{number}")
    life.strangers.append(stranger)
    options = replace(life.options, checkpoint=None)
    life.note(f"{stranger.name} plans a job")
    life.world.spawn(stranger, lambda: session.plan_unit(options, True))


def _start_another_query(life: Life, kind: str) -> None:
    """A second query is given the query's prefix by mistake, in the same application or another one."""
    rng, number = life.fates.rng, len(life.others) + 1
    has_application = bool(life.applications) and rng.random() < 0.5
    application = life.applications[-1].number if has_application else 100 + number
    location = None if kind == "second query" else f"/checkpoint-{number}"
    other = Application(
        life.world,
        application,
        replace(life.options, checkpoint=location),
        Checkpoint([Batch(0, range(5000, 5008))]),
        life.fates,
        life.note,
        f"another query {number}",
    )
    life.others.append(other)
    life.note(f"{other.query_id} starts in application {application}, checkpoint {location}")
    life.world.spawn(other.jvm, other.run_query)


def _lose_offsets(life: Life) -> None:
    """The micro-batch that is committed and not finished has other rows when it comes again: one
    more, or exactly as many. All rows of the source are equally large.
    """
    index = life.checkpoint.first()
    before = life.checkpoint.batches[index]
    more = life.fates.rng.randrange(2)
    other = Batch(before.batch_id, range(1000, 1000 + len(before.ids) + more))
    life.checkpoint.batches[index] = other
    life.replaced_ids |= set(before.ids)
    life.note(f"the checkpoint has lost the offsets of batch {before.batch_id}")


def _depose_log_leader(life: Life, unaware_ms: int) -> None:
    """The decision log gets another leader, and the old one goes on serving reads for a while."""
    partition = life.cluster.topics[life.log_topic].partitions[0]
    others = sorted(partition.isr - {partition.leader_id})
    if others and partition.leader_id >= 0:
        to = life.fates.rng.choice(others)
        life.note(f"the log moves from {partition.leader_id}, unaware for {unaware_ms}, to {to}")
        life.cluster.depose_leader(life.log_topic, 0, to, unaware_ms)


def _downgrade(life: Life, application: Application) -> None:
    """Workers are replaced, as the old ones write as before; the driver goes on, or is started again."""
    life.state.transaction_version = life.fates.rng.choice((0, 0, 1))
    life.note(f"transaction.version is {life.state.transaction_version} from now on")
    for worker in application.workers:
        worker.kill()
    if life.fates.rng.random() < 0.5:
        application.kill(kills_workers=True)


def _take_an_id(life: Life) -> None:
    """Somebody else initializes one of the transactional ids, in a state that allows it at once."""
    state = life.state
    ids = [m.transactional_id for m in state.log.all() if is_task_id(PREFIX, m.transactional_id)]
    if not ids:
        return
    taken = life.fates.rng.choice(sorted(ids))
    life.note(f"an outsider initializes {taken}")
    life.taken.add(taken)
    node_id = state.coordinator_id(taken)
    if node_id in state.coordinators:
        state.coordinators[node_id].init_producer_id(taken, 60_000, NO_PRODUCER, lambda *_: None)
