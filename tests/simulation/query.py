"""One simulated life of a streaming query, all of it chosen by a seed, and what must hold of it.

Micro-batches of a deterministic source go through planning, tasks, commit and abort, all of them
the real code, while brokers, workers and drivers die, hang and come back. In the end a reader of
committed records must have seen each row once, and no transaction may be left open. The only other
outcome that is permitted is the error that says that nobody can know, or repair, what is visible.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, NamedTuple

from spark_kafka_sink.config.sink_options import SinkOptions
from spark_kafka_sink.errors import KafkaSinkError
from spark_kafka_sink.model import NO_PRODUCER, ProducerIdAndEpoch
from spark_kafka_sink.transactions import session
from spark_kafka_sink.transactions.errors import OutcomeError
from spark_kafka_sink.transactions.ids import is_task_id
from spark_kafka_sink.transactions.model import Decision
from tests.simulation import transactions
from tests.simulation.cluster import SimCluster
from tests.simulation.faults import FaultPlan, FaultRanges
from tests.simulation.partition_log import is_control
from tests.simulation.processes import Process, World
from tests.simulation.python_process import PythonProcess, python_processes
from tests.simulation.spark import (
    Application,
    Batch,
    Checkpoint,
    ConcurrentQueryError,
    Fates,
    PythonWorkerError,
    TaskFailedError,
)
from tests.simulation.transaction_log import ONGOING

PREFIX = "query"
_MOST_SWITCHES = 300_000
_MOST_LIVES = 60
_SETTLED_MS = 10_000
_ZOMBIES_END_MS = 3_600_000
_AWAY = (0, 200, 3000)
_DRIVER_POINTS = (
    "plan.begin", "plan.fenced", "plan.claimed", "plan.resolved", "plan.swept", "commit.begin",
    "commit.checked", "commit.deciding", "commit.decided", "commit.ending", "commit.ended",
    "commit.done", "commit.swept", "abort.begin", "abort.settled", "abort.swept",
)  # fmt: skip
_DECIDED_POINTS = ("commit.deciding", "commit.decided", "commit.ending", "commit.ended")
_TASK_POINTS = ("task.begin", "task.written", "task.flushed")


class InvariantError(AssertionError):
    """An invariant does not hold."""


@dataclass
class Blow:
    """At the ``countdown``-th time that ``point`` is reached, ``kind`` happens."""

    point: str
    countdown: int
    kind: str


@dataclass
class Settings:
    """What a seed chooses."""

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
    ranges: FaultRanges
    marker_delay_ms: tuple[int, int]
    fails: float
    is_killed: float
    is_lost: float
    speculates: float


def choose_settings(rng: random.Random) -> Settings:
    """Everything that a life can differ in."""
    apis, version = rng.choice((
        (transactions.KAFKA_4_3, 2), (transactions.KAFKA_4_3, 2), (transactions.KAFKA_4_3, 1),
        (transactions.KAFKA_4_3, 0), (transactions.KAFKA_3_9, 1),
    ))  # fmt: skip
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
    if rng.random() < 0.15:
        _make_repairs_likely(settings, rng)
    return settings


def _choose_blow(rng: random.Random) -> Blow:
    if rng.random() < 0.2:
        kind = rng.choice(("kill process", "lose worker", "kill driver"))
        return Blow(rng.choice(_TASK_POINTS), rng.randint(1, 8), kind)
    if rng.random() < 0.05:
        return Blow(rng.choice(_DECIDED_POINTS), rng.randint(1, 3), "outsider")
    kind = rng.choice(("kill process", "kill driver", "kill driver", "freeze driver"))
    # Most of what can go wrong goes wrong between the decision and its last commit.
    point = rng.choice(_DRIVER_POINTS if rng.random() < 0.5 else _DECIDED_POINTS)
    return Blow(point, rng.randint(1, 4), kind)


def _make_repairs_likely(settings: Settings, rng: random.Random) -> None:
    """Killed in the middle of commits, every time for longer than transactions may take."""
    settings.outages_ms = (settings.timeout_ms + 15_000,)
    settings.tasks = (rng.randint(2, 4),)
    settings.fails = settings.is_killed = settings.is_lost = 0.0
    settings.ranges.events = 0
    settings.blows = [
        Blow(rng.choice(("commit.decided", "commit.ending", "commit.ending")), 1, "kill driver")
        for _ in range(1)
    ]
    for _ in range(rng.randint(1, 3)):
        before = settings.blows[-1].countdown
        point = rng.choice(("commit.decided", "commit.ending", "commit.ending"))
        settings.blows.append(Blow(point, before + rng.randint(1, 3), "kill driver"))


class QueryFaults(FaultPlan):
    """What goes wrong in the cluster: also what concerns coordinators."""

    def __init__(self, life: Life, rng: random.Random, ranges: FaultRanges) -> None:
        world = SimpleNamespace(
            cluster=life.cluster, network=life.world.network, scheduler=life.world.scheduler,
            clock=life.world.clock,
        )  # fmt: skip
        super().__init__(world, rng, ranges)  # type: ignore[arg-type]

    def _choose(self) -> Callable[[], None]:
        event = self._rng.choice(
            (self._crash, self._crash, self._pause, self._hang, self._hang_with_a_request,
             self._move_leader, self._move_coordinator, self._move_coordinator, self._shrink_isr,
             self._throttle, self._broker_errors, self._producer_id_errors, self._clock_shift,
             self._cut_everything)
        )  # fmt: skip

        def guarded() -> None:
            if not self._is_healed:
                event()

        return guarded

    def heal(self) -> None:
        super().heal()
        self._simulation.clock.skew_ms = 0

    def _hang_broker(self, node_id: int) -> None:
        super()._hang_broker(node_id)
        state = self._cluster.transactions
        assert state is not None
        if self._cluster.brokers[node_id].is_paused:
            state.log.lose(node_id)
            self._cluster.publish()

    def _move_coordinator(self) -> None:
        state = self._cluster.transactions
        assert state is not None
        alive = [b for b in self._cluster.brokers.values() if b.is_up and not b.is_paused]
        if alive:
            index = self._rng.randrange(len(state.log.partitions))
            to = self._rng.choice(alive).node_id
            self._note(f"__transaction_state-{index} moves to {to}")
            state.log.partitions[index].elect(to)
            self._cluster.publish()

    def _clock_shift(self) -> None:
        self._note("the drivers' wall clock is wrong")
        self._simulation.clock.skew_ms = self._rng.choice((-15_000, -500, 500, 15_000))


class SweptWriter(NamedTuple):
    """Whose transaction a planning step has aborted, and where the logs ended then."""

    transactional_id: str
    producer: ProducerIdAndEpoch
    ends: tuple[int, ...]


@dataclass
class Life:
    """What happened. ``outcome``: None, or the error that only the user can settle.

    decision: the last one in the log; taken: transactional ids that outsiders have initialized
    swept: writers that must be heard of no more
    """

    seed: int
    settings: Settings
    world: World
    cluster: SimCluster
    state: transactions.Transactions
    checkpoint: Checkpoint
    fates: Fates
    options: SinkOptions
    story: list[str] = field(default_factory=list)
    applications: list[Application] = field(default_factory=list)
    outcome: OutcomeError | None = None
    decision: Decision | None = None
    taken: set[str] = field(default_factory=set)
    swept: list[SweptWriter] = field(default_factory=list)
    doomed: dict[str, list[tuple[str, ProducerIdAndEpoch]]] = field(default_factory=dict)

    def note(self, text: str) -> None:
        self.story.append(f"{self.world.clock.ms - 1_000_000:>9} {text}")


def live(seed: int) -> Life:
    """Run the life of ``seed``. Raises InvariantError when something does not hold."""
    rng = random.Random(seed)
    settings = choose_settings(rng)
    life = _create(seed, settings, rng)
    plan = QueryFaults(life, random.Random(rng.random()), settings.ranges)
    plan.begin()
    nobody = Process(life.world, "supervisor")
    with python_processes(life.world, lambda point: _reached(life, point)):
        supervisor = life.world.spawn(nobody, lambda: _supervise(life, rng, plan))
        life.world.run(lambda: supervisor.is_done, _MOST_SWITCHES)
        life.story += plan.log
    if supervisor.error is not None:
        raise supervisor.error
    check(life)
    return life


def _create(seed: int, settings: Settings, rng: random.Random) -> Life:
    world = World(random.Random(rng.getrandbits(32)))
    cluster = SimCluster(world.network, world.scheduler, random.Random(rng.random()), 3)
    state = cluster.enable_transactions(settings.transaction_version, settings.api_versions)
    state.marker_delay_ms = settings.marker_delay_ms
    cluster.create_topic("out", settings.partitions, settings.replicas, settings.min_insync)
    options = SinkOptions.parse({
        "kafka.bootstrap.servers": cluster.bootstrap_servers,
        "topic": "out",
        "checkpointLocation": "/checkpoint",
        "delivery.guarantee": "exactly-once",
        "transactional.id.prefix": PREFIX,
        "kafka.transaction.timeout.ms": str(settings.timeout_ms),
        "kafka.buffer.memory": "65536",
        "kafka.delivery.timeout.ms": "40000",
        "metrics.log": "false",
    })  # fmt: skip
    fates = Fates(
        random.Random(rng.random()), settings.fails, settings.is_killed, settings.is_lost,
        settings.speculates, settings.timeout_ms + 20_000, tasks=settings.tasks,
    )  # fmt: skip
    checkpoint = Checkpoint(settings.batches)
    return Life(seed, settings, world, cluster, state, checkpoint, fates, options)


def _reached(life: Life, point: str) -> None:
    """A named step of the protocol, in the process that takes it."""
    process = life.world.acting.process
    if point == "plan.resolved":
        life.doomed[process.name] = _open_tasks(life)
    elif point == "plan.swept":
        ends = tuple(p.log.end_offset for p in life.cluster.topics["out"].partitions)
        life.swept += [SweptWriter(*task, ends) for task in life.doomed[process.name]]
    life.note(f"{process.name} reaches {point}")
    for blow in life.settings.blows:
        if blow.point == point and blow.countdown > 0:
            blow.countdown -= 1
            if blow.countdown == 0:
                _strike(life, blow, process)


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


def _open_tasks(life: Life) -> list[tuple[str, ProducerIdAndEpoch]]:
    metadata = (life.state.metadata(transactional_id) for transactional_id in life.state.open_ids())
    return [
        (m.transactional_id, m.producer)
        for m in metadata
        if m is not None and m.state == ONGOING and is_task_id(PREFIX, m.transactional_id)
    ]


def _strike(life: Life, blow: Blow, process: Process) -> None:
    application = next(
        a for a in life.applications if process in a.driver_processes() or process in a.workers
        or any(attempt.worker is process for attempt in a.attempts)
    )  # fmt: skip
    life.note(f"{blow.kind} at {blow.point} in {process.name}")
    attempt = application.attempt_of(process)
    if blow.kind == "kill process":
        process.kill()
    elif blow.kind == "lose worker" and attempt is not None:
        application.lose(attempt)
    elif blow.kind == "kill driver":
        application.kill(kills_workers=life.fates.rng.random() < 0.5)
    elif blow.kind == "outsider":
        _take_an_id(life)
        application.kill(kills_workers=True)
    elif blow.kind == "freeze driver":
        application.freeze(life.fates.rng.choice((500, 5000, life.settings.timeout_ms + 15_000)))
        life.world.sleep(0)


# --- life after life ----------------------------------------------------------------------------


def _supervise(life: Life, rng: random.Random, plan: QueryFaults) -> None:
    """Start the query until it has come to its end, and look that everything is settled then."""
    application: Application | None = None
    while life.checkpoint.first() < len(life.checkpoint.batches) and life.outcome is None:
        if len(life.applications) > _MOST_LIVES:
            raise InvariantError(f"no end after {_MOST_LIVES} applications")
        if application is None:
            application = _new_application(life)
        error = _run(life, application)
        if error is not None:
            _judge(life, error)
            life.note(f"the query stops: {error!r} because of {error.__cause__!r:.300}")
        if application.is_lost or rng.random() < 0.5:
            if not application.is_lost:
                application.kill(kills_workers=rng.random() < 0.5)
            application = None
        if life.outcome is None and life.checkpoint.first() < len(life.checkpoint.batches):
            life.world.sleep(rng.choice(life.settings.outages_ms))
    _settle(life, plan)


def _new_application(life: Life) -> Application:
    number = len(life.applications) + 1
    application = Application(
        life.world, number, life.options, life.checkpoint, life.fates, life.note
    )
    life.applications.append(application)
    life.note(f"application {number} starts")
    return application


def _run(life: Life, application: Application) -> BaseException | None:
    """One run of the query; why it stopped, None where nothing is left or nobody can say."""
    actor = life.world.spawn(application.jvm, application.run_query)
    life.world.wait_for(lambda: actor.is_done or application.is_lost)
    return actor.error if actor.is_done and not application.is_lost else None


def _judge(life: Life, error: BaseException) -> None:
    """Raise InvariantError for what must never stop a query."""
    cause = error.__cause__
    if isinstance(cause, OutcomeError):
        life.outcome = cause
        return
    expected = (KafkaSinkError, PythonWorkerError, TaskFailedError)
    if isinstance(error, ConcurrentQueryError) or isinstance(cause, expected):
        return
    raise InvariantError(f"the query stops for {cause!r}") from (cause or error)


def _settle(life: Life, plan: QueryFaults) -> None:
    """Nothing goes wrong any more; who was late comes to his end; then one more planning."""
    life.note("everything is healed")
    life.fates.is_healed = True
    for blow in life.settings.blows:
        blow.countdown = 0
    plan.heal()
    mine = life.world.acting

    def others_are_done() -> bool:
        return all(not p.actors or p is mine.process for p in _all_processes(life))

    if not life.world.wait_for(others_are_done, _ZOMBIES_END_MS):
        raise InvariantError("somebody never comes to an end")
    application = _new_application(life)
    try:
        application.call("planner", lambda: session.plan_unit(life.options, False))
    except OutcomeError as error:
        life.outcome = error
    life.decision = application.call("planner", lambda: _read_decision(life))
    life.world.sleep(_SETTLED_MS)


def _read_decision(life: Life) -> Decision | None:
    log = session._protocol(life.options).log
    return log.read(life.world.clock.ms + 60_000)


def _all_processes(life: Life) -> list[Any]:
    processes: list[Process] = []
    for application in life.applications:
        processes += application.driver_processes()
        processes += [attempt.worker for attempt in application.attempts]
    return [p for p in processes if p.is_alive or isinstance(p, PythonProcess)]


# --- what must hold -----------------------------------------------------------------------------


def check(life: Life) -> None:
    """Raise InvariantError for the first invariant that does not hold."""
    _check_nothing_open(life)
    seen = Counter(
        int(record.value)
        for records in life.state.committed("out").values()
        for record in records
        if record.value is not None
    )
    doubled = sorted(i for i, count in seen.items() if count > 1)
    if doubled:
        raise InvariantError(f"{len(doubled)} rows doubled: {doubled[:5]}; outcome {life.outcome}")
    finished = life.checkpoint.batches[: life.checkpoint.first()]
    lost = sorted(set().union(*(b.ids for b in finished)) - seen.keys())
    if lost:
        raise InvariantError(f"{len(lost)} rows lost: {lost[:5]}")
    allowed = set().union(*(b.ids for b in life.checkpoint.batches[: life.checkpoint.first() + 1]))
    if set(seen) - allowed:
        raise InvariantError(f"rows of batches that were never run: {sorted(set(seen) - allowed)}")
    _check_outcome(life)
    _check_swept(life)


def _check_outcome(life: Life) -> None:
    """Only what took longer than a transaction may take can be left to the user."""
    if life.outcome is None:
        return
    assert life.decision is not None
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
            for base, batch in zip(partition.log.base_offsets, partition.log.batches, strict=True):
                header = batch.header
                producer = (header.producer_id, header.producer_epoch)
                is_its_own = producer == writer.producer and not is_control(header)
                if is_its_own and base >= writer.ends[index]:
                    raise InvariantError(f"{writer} wrote at offset {base} of out-{index}")


def _check_nothing_open(life: Life) -> None:
    if life.state.open_ids():
        raise InvariantError(f"transactions are left open: {life.state.open_ids()}")
    if life.state.open_in_logs():
        raise InvariantError(f"readers wait for {life.state.open_in_logs()}")
