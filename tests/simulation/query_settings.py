"""What a seed chooses of a query's life: the cluster, the batches, and the faults in the middle of its
steps: the process that takes one of them dies, hangs or is late.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import NamedTuple

from spark_kafka_sink.base.model import NO_PRODUCER, ProducerIdAndEpoch
from spark_kafka_sink.transactions import session
from spark_kafka_sink.transactions.crash_points import POINTS
from spark_kafka_sink.transactions.model import is_task_id
from tests.simulation import transactions
from tests.simulation.coordinators import ONGOING
from tests.simulation.faults import FaultRanges
from tests.simulation.processes import PythonProcess
from tests.simulation.spark import Application, Batch, Checkpoint

_AWAY = (0, 200, 3000)
_HAVE_SECOND_QUERIES = 0.25
_HAVE_EXPIRING_IDS = 0.1
_EXPIRE = {
    "expire driver": lambda name: not is_task_id(PREFIX, name),
    "expire tasks": lambda name: is_task_id(PREFIX, name),
    "expire all": lambda name: True,
}
"""Kind of a blow -> the ids that brokers forget if nobody uses them."""
_TASK_POINTS = tuple(point for point in POINTS if point.startswith("task."))
_DRIVER_POINTS = tuple(point for point in POINTS if not point.startswith("task."))
_DECIDED_POINTS = ("commit.deciding", "commit.decided", "commit.ending", "commit.ended")
_BEFORE_SWEEPS = ("plan.resolved", "sweep.listed", "abort.settled", "commit.done")


# The highest epoch that brokers give to a client.
_LAST_EPOCH = 2**15 - 2


@dataclass
class Blow:
    """At the ``countdown``-th time that ``point`` is reached, ``kind`` happens.

    pause_ms: how long what hangs does so; 0 is longer than a transaction may take
    """

    point: str
    countdown: int
    kind: str
    pause_ms: int = 0


@dataclass
class Settings:
    """What a seed chooses. ``first_epoch``: of every transactional id.

    idles: after its last batch the query has no rows, and is looked at before anybody plans again
    """

    transaction_version: int
    api_versions: dict[int, tuple[int, int]]
    partitions: int
    replicas: int
    min_insync: int
    timeout_ms: int
    batches: list[Batch]
    tasks: tuple[int, ...]
    blows: list[Blow]
    outages_ms: tuple[int, ...]
    first_outages_ms: list[int]
    ranges: FaultRanges
    marker_delay_ms: tuple[int, int]
    fails: float
    is_killed: float
    is_lost: float
    speculates: float
    is_job: bool = False
    is_named: bool = False
    first_epoch: int = 0
    loses_log: bool = False
    loses_offsets: bool = False
    idles: bool = False


def second_queries(seed):
    """Another query is started with the same prefix, by mistake, in some lives. Chosen apart from
    everything else of a life: others stay as they are.

    One whose checkpoint's location Spark does not tell may come at any point; one with another
    location is known as another query once the first one has the prefix.
    """
    rng = random.Random(f"second queries of {seed}")
    if rng.random() >= _HAVE_SECOND_QUERIES:
        return []
    committing = [point for point in POINTS if point.startswith("commit.")]
    return [
        Blow(rng.choice(POINTS), rng.randint(1, 6), "second query")
        if rng.random() < 0.7
        else Blow(rng.choice(committing), rng.randint(1, 4), "query elsewhere")
        for _ in range(rng.randint(1, 3))
    ]


def expiring_ids(seed):
    """Brokers forget ids in some lives: the driver's, the tasks' or all, after the plan and before the
    first row or the decision; a task's own, before its rows are sent; or those of what is committed,
    whose driver is killed before it has noted that. Chosen apart from everything else of a life, as
    second queries are.
    """
    rng = random.Random(f"expiring ids of {seed}")
    if rng.random() >= _HAVE_EXPIRING_IDS:
        return []
    point = rng.choice(("task.begin", "task.begin", "commit.begin", "commit.checked", "plan.begin"))
    countdown, kind = rng.randint(1, 4), rng.choice(("expire driver", *_EXPIRE))
    way = rng.random()
    if kind == "expire driver" or way < 0.3:
        return [Blow(point, countdown, kind)]
    if way < 0.7:
        return [Blow("task.written", countdown, kind)]
    point = rng.choice(_DECIDED_POINTS)
    return [Blow(point, countdown, kind), Blow(point, countdown, "kill driver")]


def choose_settings(rng):
    """Everything that a life can differ in."""
    apis, version = rng.choice(
        (
            (transactions.KAFKA_4_3, 2),
            (transactions.KAFKA_4_3, 2),
            (transactions.KAFKA_4_3, 1),
            (transactions.KAFKA_4_3, 0),
            (transactions.KAFKA_3_9, 1),
        )
    )
    timeout_ms = rng.choice((20_000, 60_000, 900_000))
    replicas = rng.choice((1, 3))
    is_calm = rng.random() < 0.3
    batches, start = [], 0
    for batch_id in range(rng.randint(1, 5)):
        size = rng.choice((0, 1, 8, 8, 20))
        batches.append(Batch(batch_id, range(start, start + size)))
        start += size
    settings = Settings(
        transaction_version=version,
        api_versions=apis,
        partitions=rng.randint(1, 4),
        replicas=replicas,
        min_insync=rng.choice((1, 2)) if replicas == 3 else 1,
        timeout_ms=timeout_ms,
        batches=batches,
        tasks=(1, 2, 3, 4) if rng.random() < 0.5 else (rng.randint(1, 4),),
        blows=[_choose_blow(rng) for _ in range(rng.choice((0, 1, 2, 4, 7)))],
        outages_ms=_AWAY if rng.random() < 0.6 else (*_AWAY, *[timeout_ms + 15_000] * 2),
        first_outages_ms=[],
        ranges=FaultRanges(
            horizon_ms=rng.choice((2000, 20_000)),
            events=0 if is_calm else rng.choice((2, 6)),
            network_level=0.0 if is_calm else rng.choice((0.0, 0.02, 0.05)),
        ),
        marker_delay_ms=rng.choice(((0, 10), (0, 10), (50, 500))),
        fails=rng.choice((0.0, 0.05)),
        is_killed=rng.choice((0.0, 0.05)),
        is_lost=rng.choice((0.0, 0.05)),
        speculates=rng.choice((0.0, 0.3)),
    )
    kind = rng.random()
    if kind < 0.15:
        _make_repairs_likely(settings, rng)
    elif kind < 0.3:
        _make_late_drivers_likely(settings, rng)
    elif kind < 0.35:
        _send_strangers(settings, rng)
    elif kind < 0.45:
        _make_stale_reads_likely(settings, rng)
    elif kind < 0.5:
        _lose_the_log(settings, rng)
    elif kind < 0.53:
        _lose_offsets(settings, rng)
    elif kind < 0.6:
        settings.is_job = True
        for blow in settings.blows:
            if blow.kind in ("freeze driver", "hang process"):
                # A job that is repeated while its driver may still run can be written twice.
                blow.kind = "kill driver"
    elif kind < 0.65:
        settings.is_job = settings.is_named = True
    elif kind < 0.7:
        _make_late_losers_likely(settings, rng)
    if version == 2 and rng.random() < 0.15:
        _make_downgrade_likely(settings, rng)
    if rng.random() < 0.2:
        settings.first_epoch = rng.randint(_LAST_EPOCH - 20, _LAST_EPOCH)
    return settings


def _choose_blow(rng):
    if rng.random() < 0.2:
        kind = rng.choice(("kill process", "lose worker", "kill driver"))
        return Blow(rng.choice(_TASK_POINTS), rng.randint(1, 8), kind)
    if rng.random() < 0.2:
        return Blow(rng.choice(_DECIDED_POINTS), rng.randint(1, 3), "outsider")
    kind = rng.choice(
        ("kill process", "kill driver", "kill driver", "freeze driver", "hang process")
    )
    # Most of what can go wrong goes wrong between the decision and its last commit.
    point = rng.choice(_DRIVER_POINTS if rng.random() < 0.5 else _DECIDED_POINTS)
    return Blow(point, rng.randint(1, 4), kind, rng.choice((500, 5000, 0)))


def _calm(settings):
    """Nothing goes wrong but what is chosen."""
    settings.ranges.events = 0
    settings.is_lost = settings.is_killed = settings.fails = 0.0


def _batches(count):
    return [Batch(i, range(8 * i, 8 * i + 8)) for i in range(count)]


def _send_strangers(settings, rng):
    """Batch jobs with the query's prefix, once the query has it for certain."""
    points = [point for point in POINTS if point.startswith("commit.")]
    settings.blows += [
        Blow(rng.choice(points), rng.randint(1, 3), "stranger") for _ in range(rng.randint(1, 3))
    ]


def _make_stale_reads_likely(settings, rng):
    """The log's leader is deposed and does not know it; a driver decides with the new leader, dies,
    and the next one may ask the old leader.
    """
    settings.first_outages_ms = [0, 0, 200]
    settings.batches = _batches(rng.randint(2, 4))
    _calm(settings)
    settings.blows = []
    for number in rng.sample((1, 2, 3), rng.randint(1, 2)):
        before = rng.choice(("plan.begin", "plan.fenced", "commit.begin", "commit.checked"))
        after = rng.choice(_DECIDED_POINTS[1:])
        settings.blows.append(Blow(before, number, "depose", rng.choice((500, 3000, 8000))))
        settings.blows.append(Blow(after, number, "kill driver"))


def _lose_the_log(settings, rng):
    """Somebody deletes the decision log in the middle of a commit, and the driver dies."""
    _calm(settings)
    settings.loses_log = True
    settings.blows = [Blow(rng.choice(_DECIDED_POINTS[1:]), rng.randint(1, 3), "lose log")]


def _lose_offsets(settings, rng):
    """The checkpoint loses the offsets of a micro-batch that is committed: it gets other rows."""
    _calm(settings)
    settings.loses_offsets = True
    point = rng.choice(("commit.done", "commit.swept"))
    settings.blows = [Blow(point, rng.randint(1, 3), "lose offsets")]


def _make_repairs_likely(settings, rng):
    """Killed in the middle of commits, every time for longer than transactions may take."""
    settings.outages_ms = (settings.timeout_ms + 15_000,)
    settings.tasks = (rng.randint(2, 4),) if rng.random() < 0.7 else (2, 3, 4)
    _calm(settings)
    settings.blows = [
        Blow(rng.choice(("commit.decided", "commit.ending", "commit.ending")), 1, "kill driver")
        for _ in range(1)
    ]
    for _ in range(rng.randint(1, 3)):
        before = settings.blows[-1].countdown
        point = rng.choice(("commit.decided", "commit.ending", "commit.ending"))
        settings.blows.append(Blow(point, before + rng.randint(1, 3), "kill driver"))


def _make_late_drivers_likely(settings, rng):
    """A driver hangs before it sweeps; the next one decides meanwhile, and is killed then."""
    settings.first_outages_ms = [0, 3000]
    settings.batches = _batches(rng.randint(2, 4))
    _calm(settings)
    settings.speculates = 0.5
    number, pause_ms = rng.randint(1, 2), rng.choice((500, 1500, 3000))
    if rng.random() < 0.7:
        late = Blow("plan.resolved", number, "freeze driver", pause_ms)
    else:
        kind = rng.choice(("freeze driver", "hang process"))
        late = Blow(rng.choice(_BEFORE_SWEEPS), number, kind, pause_ms)
    settings.blows = [late, Blow(rng.choice(_DECIDED_POINTS[1:]), number, "kill driver")]


def _make_late_losers_likely(settings, rng):
    """Attempts that are cut off before they have begun to write, or while they do so, wake up when
    the query is idle. Nobody dies: what a process that is killed leaves open nobody can end then.
    """
    settings.idles = True
    settings.timeout_ms = 900_000
    settings.ranges.events = 0
    settings.fails = settings.is_killed = 0.0
    settings.is_lost, settings.speculates = 0.3, 0.5
    settings.batches = _batches(rng.randint(1, 3))
    settings.is_job = rng.random() < 0.3
    settings.blows = [Blow("task.begin", rng.randint(1, 6), "lose worker") for _ in range(2)]


def _make_downgrade_likely(settings, rng):
    """transaction.version is downgraded in the middle of a commit, when no task is writing: a task
    that writes meanwhile leaves its transaction open for good, and no client can help that.
    """
    settings.idles = False
    settings.is_lost = settings.speculates = 0.0
    points = ("commit.checked", *_DECIDED_POINTS, "commit.done", "plan.fenced", "plan.resolved")
    blows = [b for b in settings.blows if b.kind in ("kill driver", "kill process")]
    settings.blows = [*blows, Blow(rng.choice(points), rng.randint(1, 3), "downgrade")]


# --- faults in the middle of a query's steps ----------------------------------------------------

PREFIX = "query"


class SweptWriter(NamedTuple):
    """Whose transaction a planning step has aborted, and where the logs ended then."""

    transactional_id: str
    producer: ProducerIdAndEpoch
    ends: tuple[int, ...]


def reached(life, point):
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


def _open_tasks(life):
    metadata = (life.state.metadata(transactional_id) for transactional_id in life.state.open_ids())
    return [
        (m.transactional_id, m.producer)
        for m in metadata
        if m is not None and m.state == ONGOING and is_task_id(PREFIX, m.transactional_id)
    ]


def _strike(life, blow, process):
    if blow.kind == "stranger":
        _send_stranger(life)
        return
    if blow.kind in _EXPIRE:
        expired = life.state.expire_idle(_EXPIRE[blow.kind])
        life.expired |= set(expired)
        life.note(f"brokers forget {expired}")
        return
    if blow.kind in ("second query", "query elsewhere", "query at the same place"):
        _start_another_query(life, blow.kind)
        return
    if blow.kind == "lose log":
        life.cluster.empty_topic(life.log_topic)
        life.note("the decision log is deleted, and created anew")
        blow.kind = "kill driver"
    if blow.kind == "lose offsets":
        _replace_rows(life)
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


def _send_stranger(life):
    """A batch job of another application is given the query's prefix."""
    number = len(life.strangers) + 1
    stranger = PythonProcess(life.world, f"stranger-{number}", 0, f"/stranger-{number}")
    life.strangers.append(stranger)
    options = replace(life.options, checkpoint=None)
    life.note(f"{stranger.name} plans a job")
    life.world.spawn(stranger, lambda: session.plan_unit(options, True))


def _start_another_query(life, kind):
    """A second query is given the query's prefix by mistake, in the same application or another one."""
    rng, number = life.fates.rng, len(life.others) + 1
    has_application = bool(life.applications) and rng.random() < 0.5
    application = life.applications[-1].number if has_application else 100 + number
    location = None if kind == "second query" else f"/checkpoint-{number}"
    if kind == "query at the same place":
        application, location = 100 + number, life.identity.part.folder
    other = Application(
        life.world,
        application,
        replace(life.options, checkpoint=location),
        Checkpoint([Batch(0, range(5000, 5008))]),
        life.fates,
        life.note,
        f"another query {number}",
    )
    other.knows_id = life.identity.knows_ids
    life.others.append(other)
    life.note(f"{other.query_id} starts in application {application}, checkpoint {location}")
    life.world.spawn(other.jvm, other.run_query)


def _replace_rows(life):
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


def _depose_log_leader(life, unaware_ms):
    """The decision log gets another leader, and the old one goes on serving reads for a while."""
    partition = life.cluster.topics[life.log_topic].partitions[0]
    others = sorted(partition.isr - {partition.leader_id})
    if others and partition.leader_id >= 0:
        to = life.fates.rng.choice(others)
        life.note(f"the log moves from {partition.leader_id}, unaware for {unaware_ms}, to {to}")
        life.cluster.depose_leader(life.log_topic, 0, to, unaware_ms)


def _downgrade(life, application):
    """Workers are replaced, as the old ones write as before; the driver goes on, or is started again."""
    life.state.transaction_version = life.fates.rng.choice((0, 0, 1))
    life.note(f"transaction.version is {life.state.transaction_version} from now on")
    for worker in application.workers:
        worker.kill()
    if life.fates.rng.random() < 0.5:
        application.kill(kills_workers=True)


def _take_an_id(life):
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
