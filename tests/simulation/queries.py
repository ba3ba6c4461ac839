"""One simulated life of a streaming query, or of a row of batch jobs, all of it chosen by a seed.

python -m tests.simulation.queries 4711          # replay one seed, with its story
python -m tests.simulation.queries 0 20000       # a range, on all cores

Micro-batches of a deterministic source go through planning, tasks, commit and abort, all of them
the real code, while brokers, workers and drivers die, hang and come back. In the end a reader of
committed records must have seen each row once, and no transaction may be left open. The only other
outcome that is permitted is the error that says that what is visible cannot be known, or not be repaired.
"""

from __future__ import annotations

import json
import multiprocessing
import random
import sys
import traceback
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from spark_kafka_sink.base.errors import KafkaSinkError
from spark_kafka_sink.base.model import ProducerIdAndEpoch
from spark_kafka_sink.config.sink_options import SinkOptions
from spark_kafka_sink.transactions import fencing, session
from spark_kafka_sink.transactions.client import TransactionClient
from spark_kafka_sink.transactions.model import (
    Decision,
    MissingRecordError,
    OutcomeError,
    Phase,
    PrefixInUseError,
    ReplayError,
)
from spark_kafka_sink.transactions.operations import Choice, Operations, RefusedError
from tests.simulation.cluster import SimCluster
from tests.simulation.faults import QueryFaults
from tests.simulation.logs import is_control
from tests.simulation.processes import KilledError, Process, PythonProcess, World, python_processes
from tests.simulation.query_identity import Identity, choose_identity
from tests.simulation.query_settings import (
    PREFIX,
    Settings,
    SweptWriter,
    choose_settings,
    expiring_ids,
    reached,
    second_queries,
)
from tests.simulation.spark import (
    DEAD_LETTER_OPTIONS,
    DEAD_LETTER_TOPIC,
    Application,
    ConcurrentQueryError,
    Fates,
    PythonWorkerError,
    Refusing,
    TaskFailedError,
    has_dead_letters,
    id_of,
    problems,
    with_topic_limits,
)
from tests.simulation.transactions import Transactions


class InvariantError(AssertionError):
    """An invariant does not hold."""


def check(life):
    """Raise InvariantError for the first invariant that does not hold."""
    check_nothing_open(life)
    if life.intruders:
        raise InvariantError(f"refused, and has fenced the query: {life.intruders}")
    good, dead = _committed(life, "out"), _committed(life, DEAD_LETTER_TOPIC)
    for problem in problems(good, dead, life.refusing):
        raise InvariantError(problem)
    seen = Counter(id_of(record) for record in (*good, *dead))
    doubled = sorted(i for i, count in seen.items() if count > 1)
    if doubled:
        raise InvariantError(f"{len(doubled)} rows doubled: {doubled[:5]}; outcome {life.outcome}")
    checkpoints = [part.checkpoint for part in life.identity.parts]
    finished = [batch for c in checkpoints for batch in c.batches[: c.first()]]
    lost = sorted(set().union(*(b.ids for b in finished)) - seen.keys())
    if lost:
        raise InvariantError(f"{len(lost)} rows lost: {lost[:5]}")
    allowed = set().union(*(b.ids for c in checkpoints for b in c.batches[: c.first() + 1]))
    allowed |= life.replaced_ids
    if set(seen) - allowed:
        raise InvariantError(f"rows of batches that were never run: {sorted(set(seen) - allowed)}")
    _check_outcome(life)
    _check_swept(life)
    _check_expired(life)


def _committed(life, topic):
    if topic not in life.cluster.topics:
        return []
    return [record for records in life.state.committed(topic).values() for record in records]


def _check_outcome(life):
    """Only what exceeded the timeout of transactions, or what others did, is left to the user."""
    if life.outcome is None:
        return
    if isinstance(life.outcome, (MissingRecordError, ReplayError)):
        return  # something was lost, as _judge has seen
    if life.has_late_sweep:
        return  # the one step that nothing can fence: an id that was listed may be in use again
    for t in life.decision.transactions:
        is_timed_out = (t.transactional_id, *t.producer) in life.state.timed_out
        if not is_timed_out and t.transactional_id not in life.taken | life.expired:
            raise InvariantError(f"{t.transactional_id} did not time out: {life.outcome}")
    if not life.decision.transactions:
        raise InvariantError(f"{life.decision.phase} without a transaction: {life.outcome}")


def _check_swept(life):
    """Whose transaction was aborted before the tasks of a later plan writes nothing after it."""
    for writer in life.swept:
        for index, partition in enumerate(life.cluster.topics["out"].partitions):
            for base, batch in zip(partition.log.base_offsets, partition.log.batches):
                header = batch.header
                producer = (header.producer_id, header.producer_epoch)
                is_its_own = producer == writer.producer and not is_control(header)
                if is_its_own and base >= writer.ends[index]:
                    raise InvariantError(f"{writer} wrote at offset {base} of out-{index}")


def _check_expired(life):
    """No task says that an id has expired unless one has."""
    attempts = (a for application in life.applications for a in application.attempts)
    errors = [a.actor.error for a in attempts if getattr(a.actor.error, "code", "") == _EXPIRED]
    if errors and not life.expired:
        raise InvariantError(f"nothing has expired: {errors[0]}")


def check_nothing_open(life):
    """Raise InvariantError for a transaction that readers wait for."""
    if life.state.open_ids():
        raise InvariantError(f"transactions are left open: {life.state.open_ids()}")
    if life.state.open_in_logs():
        raise InvariantError(f"readers wait for {life.state.open_in_logs()}")


def phases(life):
    """What is in the decision log: how often each phase; "repaired" is one after PARTIAL."""
    found = Counter()
    before = ("", None)
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


# --- a life -------------------------------------------------------------------------------------

_EXPIRED, _SILENT = "TXN-042", "TXN-004"
_MOST_SWITCHES = 300_000
_MOST_LIVES = 60
_PATIENCE_MS = 60_000
_SETTLED_MS = 10_000
_ZOMBIES_END_MS = 3_600_000


@dataclass
class Life:
    """What happened. ``outcome``: None, or the error that only the user can settle.

    decision: the last one in the log; job_ids: of the job that is not known to be done yet
    has_late_sweep: somebody hung between listing what is open and aborting it
    taken: transactional ids that outsiders have initialized
    expired: transactional ids that brokers have forgotten
    doomed: whose transactions are to be swept; swept: whose were, and who must write nothing more
    replaced_ids: rows that were committed before the checkpoint lost their offsets
    refusing: brokers that refuse rows, where some cannot be written
    strangers: processes that plan jobs with the query's prefix; others: applications in which another
    query has it, by mistake; intruders: processes of both that took it
    """

    seed: int
    settings: Settings
    world: World
    cluster: SimCluster
    state: Transactions
    identity: Identity
    fates: Fates
    options: SinkOptions
    story: list[str] = field(default_factory=list)
    applications: list[Application] = field(default_factory=list)
    outcome: OutcomeError | MissingRecordError | ReplayError | None = None
    decision: Decision | None = None
    has_late_sweep: bool = False
    job_ids: set[str] = field(default_factory=set)
    taken: set[str] = field(default_factory=set)
    expired: set[str] = field(default_factory=set)
    swept: list[SweptWriter] = field(default_factory=list)
    doomed: dict[str, list[tuple[str, ProducerIdAndEpoch]]] = field(default_factory=dict)
    replaced_ids: set[int] = field(default_factory=set)
    strangers: list[PythonProcess] = field(default_factory=list)
    others: list[Application] = field(default_factory=list)
    intruders: list[str] = field(default_factory=list)
    refusing: Refusing | None = None

    def note(self, text):
        self.story.append(f"{self.world.clock.ms - 1_000_000:>9} {text}")

    @property
    def checkpoint(self):
        return self.identity.part.checkpoint

    @property
    def is_job(self):
        return self.identity.part.is_job

    @property
    def is_named(self):
        return self.identity.part.is_named

    @property
    def is_complete(self):
        return self.identity.parts[-1].is_complete

    def current_options(self):
        """As the application gets them that runs next."""
        part = self.identity.part
        return replace(
            self.options,
            checkpoint=self.identity.spelling(),
            write_id="etl" if part.is_named else None,
            write_version=0 if part.is_named else None,
        )

    @property
    def log_topic(self):
        return self.options.exactly_once.log_topic

    def processes(self):
        """All in which somebody may be at work."""
        found = [*self.strangers]
        for application in (*self.applications, *self.others):
            found += application.driver_processes()
            found += [attempt.worker for attempt in application.attempts]
        return found


def live(seed, watch=lambda life: None):
    """Run the life of ``seed``. Raises InvariantError when something does not hold.

    ``watch`` is given the life before it begins.
    """
    rng = random.Random(seed)
    settings = choose_settings(rng)
    if not settings.is_job:
        settings.blows += second_queries(seed)
    if not settings.loses_log:  # after both nobody can know that the prefix was used
        settings.blows += expiring_ids(seed)
    life = _create(seed, settings, rng, choose_identity(seed, settings))
    watch(life)
    faults = QueryFaults(life.world, life.cluster, random.Random(rng.random()), settings.ranges)
    faults.begin()
    nobody = Process(life.world, "supervisor")
    with python_processes(life.world, lambda point: reached(life, point)):
        supervisor = life.world.spawn(nobody, lambda: _supervise(life, rng, faults))
        life.world.run(lambda: supervisor.is_done, _MOST_SWITCHES)
        life.story += faults.log
    if supervisor.error is not None:
        raise supervisor.error
    check(life)
    return life


def _create(seed, settings, rng, identity):
    world = World(random.Random(rng.getrandbits(32)))
    cluster = SimCluster(world.network, world.scheduler, random.Random(rng.random()), 3)
    state = cluster.enable_transactions(settings.transaction_version, settings.api_versions)
    state.marker_delay_ms = settings.marker_delay_ms
    state.first_epoch = settings.first_epoch
    state.aborts_raise_twice = settings.transaction_version == 2
    cluster.create_topic("out", settings.partitions, settings.replicas, settings.min_insync)
    is_spoilt = has_dead_letters(seed)
    if is_spoilt:
        topic = DEAD_LETTER_TOPIC
        cluster.create_topic(topic, settings.partitions, settings.replicas, settings.min_insync)
    options = {
        "kafka.bootstrap.servers": cluster.bootstrap_servers,
        "topic": "out",
        "delivery.guarantee": "exactly-once",
        "transactional.id.prefix": PREFIX,
        "kafka.transaction.timeout.ms": str(settings.timeout_ms),
        "kafka.buffer.memory": "65536",
        "kafka.delivery.timeout.ms": "40000",
        "metrics.log": "false",
    }
    if identity.is_refreshed:
        options["transaction.accept"] = "new-query"
    if is_spoilt:
        options |= DEAD_LETTER_OPTIONS
    fates = Fates(
        random.Random(rng.random()),
        settings.fails,
        settings.is_killed,
        settings.is_lost,
        settings.speculates,
        settings.timeout_ms + 20_000,
        tasks=settings.tasks,
        kills_losers=not settings.idles,
    )
    parsed = with_topic_limits(SinkOptions.parse(options))
    life = Life(seed, settings, world, cluster, state, identity, fates, parsed)
    if is_spoilt:
        life.refusing = Refusing(seed, cluster)
    return life


# --- life after life ----------------------------------------------------------------------------


def _supervise(life, rng, faults):
    """Start the query until it has come to its end, and look that everything is settled then."""
    application = None
    while not life.is_complete and life.outcome is None:
        if len(life.applications) > _MOST_LIVES:
            raise InvariantError(f"no end after {_MOST_LIVES} applications")
        if application is None:
            application = _new_application(life)
        batch_id, current = life.checkpoint.first(), life.identity.current
        error = _run(life, application)
        if error is not None:
            life.note(f"it stops: {error!r} because of {error.__cause__!r:.300}")
            _judge(life, error)
        if life.checkpoint.first() > batch_id:
            life.job_ids.clear()
        elif life.is_job and not life.is_named:
            _look_at_job(life, application, batch_id)
        is_back = life.identity.current != current
        if life.outcome is None and (is_back or life.identity.advance()):
            application = _change_part(life, rng, application)
        is_idle = life.settings.idles and life.is_complete
        if application is not None and not is_idle and (application.is_lost or rng.random() < 0.5):
            if not application.is_lost:
                application.kill(kills_workers=rng.random() < 0.5)
            application = None
        if life.outcome is None and not life.is_complete:
            outages_ms = life.settings.first_outages_ms or [rng.choice(life.settings.outages_ms)]
            life.world.sleep(outages_ms.pop(0))
    _settle(life, faults)


def _change_part(life, rng, application):
    """The query after the jobs, which may be in the same application; or another query."""
    life.job_ids.clear()
    if application.is_lost:
        return None
    if life.identity.is_refreshed or rng.random() < 0.5:
        application.kill(kills_workers=rng.random() < 0.5)
        return None
    _become_part(life, application)
    return application


def _new_application(life):
    number, part = len(life.applications) + 1, life.identity.part
    application = Application(
        life.world, number, life.options, part.checkpoint, life.fates, life.note
    )
    life.applications.append(application)
    _become_part(life, application)
    return application


def _become_part(life, application):
    part = life.identity.part
    application.options, application.checkpoint = life.current_options(), part.checkpoint
    application.query_id, application.versions = part.query_id, part.versions
    application.knows_id = life.identity.knows_ids
    for process in application.driver_processes():
        process.query_id = part.query_id if application.knows_id else None
    what = (
        "jobs" if part.is_job else f"{part.query_id}, checkpoint {application.options.checkpoint}"
    )
    life.note(f"application {application.number} starts: {what}")


def _run(life, application):
    """One run; why it stopped, None where nothing is left to do or the reason is not known."""
    run = application.run_job if life.is_job else application.run_query
    actor = life.world.spawn(application.jvm, run)
    life.world.wait_for(lambda: actor.is_done or application.is_lost)
    return actor.error if actor.is_done and not application.is_lost else None


def _judge(life, error):
    """Raise InvariantError for what must never stop a query."""
    cause = error.__cause__
    settings = life.settings
    if isinstance(cause, (MissingRecordError, ReplayError)):
        is_lost = isinstance(cause, MissingRecordError)
        if not (settings.loses_log if is_lost else settings.loses_offsets):
            raise InvariantError("nothing was lost") from cause
        life.outcome = cause
        return
    if isinstance(cause, OutcomeError):
        is_formers = "A replay by the query of checkpoint" in str(cause)
        if is_formers and life.identity.back():
            life.note("the former query fills in what it has begun")
        elif life.is_named or not life.is_job:
            life.outcome = cause
        return
    if isinstance(cause, PrefixInUseError):
        # Of the queries under a prefix, only one that was replaced is refused.
        if not life.identity.is_refreshed or life.identity.current == len(life.identity.parts) - 1:
            raise InvariantError("refused") from cause
        life.identity.part.is_closed = True
        return
    is_calm = not settings.ranges.events and not settings.ranges.network_level
    if is_calm and life.expired and getattr(cause, "code", "") == _SILENT:
        raise InvariantError("an id that has expired is taken for a broker's silence") from cause
    expected = (KafkaSinkError, PythonWorkerError, TaskFailedError)
    if isinstance(error, ConcurrentQueryError) or isinstance(cause, expected):
        return
    raise InvariantError(f"it stops for {cause!r}") from (cause or error)


def _look_at_job(life, application, batch_id):
    """Before a job is repeated, its outcome is looked up, and a decided one is finished."""
    if application.job_id is not None:
        life.job_ids.add(application.job_id)
    if not life.job_ids:
        return
    while (decision := _by_operator(life, lambda operations: _examine(life, operations))) is None:
        life.world.sleep(1000)
    if decision.unit.job_id not in life.job_ids or decision.phase is not Phase.DONE:
        return
    life.note(f"the operator finds {decision.unit} {decision.phase}: job {batch_id} is done")
    life.checkpoint.finish(batch_id)
    life.job_ids.clear()


def _by_operator(life, action):
    """What ``action`` returns in a process of its own; None where the cluster does not let it."""
    process = PythonProcess(life.world, "operator", 0, "/operator")

    def operate():
        client = TransactionClient(session.AdminClient.of(life.options.producer))
        return action(Operations(client, life.log_topic, PREFIX, life.world.clock, _PATIENCE_MS))

    actor = life.world.spawn(process, operate)
    life.world.wait_for(lambda: actor.is_done)
    if isinstance(actor.error, (KafkaSinkError, KilledError)):
        life.note(f"the operator fails: {actor.error!r:.300}")
        return None
    if actor.error is not None:
        raise actor.error
    result = actor.result
    return result


def _examine(life, operations):
    """Finish what was decided; the record of the prefix then."""
    try:
        operations.resolve(None, lambda what: None)
    except RefusedError:
        pass  # finished, and there is a choice to make
    decision = operations._protocol.log.read_current(life.world.clock.ms + _PATIENCE_MS)
    if decision is not None and decision.phase is Phase.DONE and decision.needs_confirmation:
        return operations.resolve(Choice.AS_WRITTEN, lambda what: None).decision
    if decision is not None and decision.phase in (Phase.PARTIAL, Phase.UNKNOWN):
        life.outcome = OutcomeError(fencing.explain(decision, PREFIX))
    return decision


def _settle(life, faults):
    """No more faults; processes that were late end; then one more planning."""
    life.note("everything is healed")
    life.fates.is_healed = True
    for blow in life.settings.blows:
        blow.countdown = 0
    faults.heal()
    mine = life.world.acting.process
    if not life.world.wait_for(
        lambda: all(not p.actors or p is mine for p in life.processes()), _ZOMBIES_END_MS
    ):
        raise InvariantError("a process does not end")
    if life.settings.idles:
        life.note("the query is idle")
        life.world.sleep(_SETTLED_MS)
        check_nothing_open(life)
    application = _new_application(life)
    try:
        application.call("planner", lambda: session.plan_unit(application.options, life.is_job))
    except OutcomeError as error:
        life.outcome = error
    except MissingRecordError as error:
        # Nothing is swept: what is open may be decided. The brokers end it.
        life.outcome = error
        life.world.sleep(life.settings.timeout_ms + 15_000)
    life.decision = application.call("planner", lambda: _read_decision(life))
    life.world.sleep(_SETTLED_MS)


def _read_decision(life):
    return session._protocol(life.options).log.read(life.world.clock.ms + _PATIENCE_MS)


# --- running ------------------------------------------------------------------------------------

REPLAY = "python -m tests.simulation.queries {seed}"


class Ending(NamedTuple):
    """How a life ended, what was decided in it, and what is broken."""

    how: str
    phases: Counter[str]
    failure: str | None


def try_seed(seed):
    """The life of ``seed``; if anything is broken in it, with how to replay it."""
    try:
        life = live(seed)
    except Exception:
        replay = f"seed {seed} failed. Replay: {REPLAY.format(seed=seed)}"
        return Ending("broken", Counter(), f"{replay}\n{traceback.format_exc()}")
    how = "complete" if life.outcome is None else "left to the user"
    return Ending(how, phases(life), None)


class Tally(NamedTuple):
    """How often each ending and each phase of a decision was seen, and all failures."""

    endings: Counter[str]
    decided: Counter[str]
    failures: list[str]


def tally(lives):
    found = Tally(Counter(), Counter(), [])
    for ending in lives:
        found.endings[ending.how] += 1
        found.decided.update(ending.phases)
        if ending.failure is not None:
            found.failures.append(ending.failure)
    return found


def run_range(first, last):
    """Seeds ``first … last-1``, on all cores."""
    with multiprocessing.get_context("fork").Pool() as pool:
        return tally(pool.imap_unordered(try_seed, range(first, last), chunksize=20))


def replay(seed):
    """Tell the story of one seed; 1 if anything is broken."""
    lives = []
    failure = None
    try:
        live(seed, lives.append)
    except Exception:
        failure = traceback.format_exc()
    life = lives[0]
    print(life.settings)
    print("\n".join(life.story))
    print(failure or f"outcome: {life.outcome}; {dict(phases(life))}")
    return 1 if failure else 0


def main(arguments):
    """Replay one seed, or run a range; 1 if anything is broken."""
    numbers = [int(argument) for argument in arguments]
    if len(numbers) == 1:
        return replay(numbers[0])
    endings, decided, failures = run_range(*numbers)
    print("\n".join(failures[:5]))
    print(f"{numbers[1] - numbers[0]} seeds: {dict(endings)}; decisions: {dict(decided)}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
