"""A simulated Spark: a driver that plans, runs tasks in Python workers, commits or aborts.

Every call that Spark makes to the sink is the real one, in a process of its own kind: planning and
committing on the driver, writing in workers. What Spark remembers between two lives of a driver is
in its checkpoint, and nothing else. Some rows cannot be written: what they are, and what becomes of them.
"""

from __future__ import annotations

import pickle
import random
from dataclasses import dataclass, field, replace

import pyarrow as pa

from spark_kafka_sink.base.model import ColumnPositions
from spark_kafka_sink.config.sink_keys import TopicLimits
from spark_kafka_sink.record import dead_letters as headers
from spark_kafka_sink.record.dead_letters import NULL_KEY, REFUSED, TOO_LARGE
from spark_kafka_sink.spark.writer import KafkaBatchWriter, KafkaStreamWriter
from spark_kafka_sink.transactions import session
from tests.simulation.faults import refusing
from tests.simulation.processes import KilledError, Process, PythonProcess, TaskContext

DEAD_LETTER_TOPIC = "dead"
DEAD_LETTER_OPTIONS = {
    "errors.tolerance": "all",
    "errors.deadletterqueue.topic.name": DEAD_LETTER_TOPIC,
    "errors.deadletterqueue.max.ratio": "1",
    "kafka.max.request.size": "3000",
    "kafka.batch.size": "200",
}
_TOO_LARGE_BYTES = 4000
_ID_BYTES = 6


def has_dead_letters(seed):
    """Chosen apart from everything else of a life: others stay as they are."""
    return random.Random(f"dead letters of {seed}").random() < 0.3


def with_topic_limits(options):
    """As planning on the driver finds out: the topic is compacted."""
    if options.dead_letters is None:
        return options
    return replace(
        options,
        dead_letters=options.dead_letters._replace(data_topic_limits=TopicLimits(None, True)),
    )


class Refusing:
    """Brokers that refuse some rows: in half of the lives from the beginning, in a quarter from some
    moment on, in a quarter until then.
    """

    def __init__(self, seed, cluster):
        rng = random.Random(f"refusals of {seed}")
        self._clock = cluster.scheduler.clock
        self._is_on = rng.random() < 0.75
        self.changes = rng.random() < 0.5 or not self._is_on
        self._changes_ms = self._clock.ms + rng.choice((50, 500, 5000))
        refuse = refusing(self._refuses, is_told=rng.random() < 0.7)
        cluster.on_validate = lambda topic, batch: refuse(topic, batch) if self.is_on else None

    @property
    def is_on(self):
        has_changed = self.changes and self._clock.ms >= self._changes_ms
        return self._is_on is not has_changed

    @staticmethod
    def _refuses(topic, record):
        return topic == "out" and fault_of(id_of(record)) == REFUSED


def fault_of(row_id):
    """What is wrong with a row, if anything is."""
    if row_id % 5 == 3:
        return TOO_LARGE
    if row_id % 7 == 2:
        return NULL_KEY
    return REFUSED if row_id % 3 == 1 else None


def spoilt(rows):
    """The same rows, some of which cannot be written."""
    found = []
    for key, value in rows:
        fault = fault_of(int(value))
        long = value.ljust(_TOO_LARGE_BYTES) if fault == TOO_LARGE else value
        found.append((None if fault == NULL_KEY else key, long))
    return found


def id_of(record):
    """Of a row, also where its value was cut off."""
    return int(record.value[:_ID_BYTES])


def problems(good, dead, refusing):
    """Rows that are where they must not be, and dead letters of a wrong cause.

    What brokers refuse only at times may be here or there.
    """
    if refusing is None:
        return
    free = {None, REFUSED} if refusing.changes else {None}
    for record in good:
        if fault_of(id_of(record)) not in free:
            yield f"row {id_of(record)} is no dead letter"
    for record in dead:
        cause = dict(record.headers).get(headers.CAUSE, b"").decode()
        if cause != fault_of(id_of(record)):
            yield f"row {id_of(record)} is a dead letter for {cause}"


# --- Spark --------------------------------------------------------------------------------------

COLUMNS = ColumnPositions(value=1, key=0, topic_option="out")
QUERY_ID = "0d9d4f3e-query"
_MAX_FAILURES = 4


class QueryFailedError(Exception):
    """The query stops; ``__cause__`` says why."""


class ConcurrentQueryError(QueryFailedError):
    """Another driver writes to the same checkpoint."""


class PythonWorkerError(Exception):
    """A Python process ended before it had answered."""


class TaskFailedError(Exception):
    """The user's own code failed in a task."""


@dataclass
class Batch:
    """The rows of one micro-batch: the same whenever it is read again."""

    batch_id: int
    ids: range

    def rows(self, tasks, index):
        """(key, value) of one of ``tasks`` Spark partitions."""
        return [(b"%d" % (i % 7), b"%06d" % i) for i in self.ids[index::tasks]]


@dataclass
class Checkpoint:
    """Spark's: which batches were begun, and which were finished."""

    batches: list[Batch]
    begun: set[int] = field(default_factory=set)
    finished: list[int] = field(default_factory=list)

    def first(self):
        """The batch with which a query goes on."""
        return len(self.finished)

    def begin(self, batch_id, is_first):
        """Only the first batch of a query's life may have been begun before."""
        if batch_id in self.begun and not is_first:
            raise ConcurrentQueryError(f"batch {batch_id} was begun by another driver")
        self.begun.add(batch_id)

    def finish(self, batch_id):
        if batch_id != len(self.finished):
            raise ConcurrentQueryError(f"batch {batch_id} was finished by another driver")
        self.finished.append(batch_id)


@dataclass
class Fates:
    """What may happen to tasks, as chances; ``rng`` decides."""

    rng: random.Random
    fails: float = 0.0
    is_killed: float = 0.0
    is_lost: float = 0.0
    speculates: float = 0.0
    longest_loss_ms: int = 60_000
    longest_pause_ms: int = 50
    tasks: tuple[int, ...] = (1, 2, 3, 4)
    is_healed: bool = False
    kills_losers: bool = True

    def chance(self, probability):
        return not self.is_healed and self.rng.random() < probability


class Attempt:
    """One attempt at one task. ``is_lost``: the driver has given it up; it may still run."""

    def __init__(self, index, number, worker):
        self.index = index
        self.number = number
        self.worker = worker
        self.is_lost = False
        self.actor = None

    @property
    def is_over(self):
        return self.is_lost or (self.actor is not None and self.actor.is_done)

    @property
    def message(self):
        """The commit message, None if there is none."""
        if self.is_lost or self.actor.error is not None:
            return None
        return pickle.loads(self.actor.result)


class Application:
    """A Spark application: one JVM, and the Python processes that it starts."""

    def __init__(self, world, number, options, checkpoint, fates, note, query_id=QUERY_ID):
        self.world = world
        self.number = number
        self.query_id = query_id
        self.options = options
        self.checkpoint = checkpoint
        self.fates = fates
        self.rng = fates.rng
        self.note = note
        self.is_lost = False
        self.jvm = Process(world, f"jvm-{number}")
        self.workers = []
        self.attempts = []
        # Another query of the same application has processes of its own.
        self._processes = 0 if query_id == QUERY_ID else 500
        self.job_id = None
        self.knows_id = False
        self.versions = ()
        self._driver_side = {}
        self._given_up = []

    # --- processes -----------------------------------------------------------------------------

    def _start(self, kind):
        self._processes += 1
        name = f"{kind}-{self.number}.{self._processes}"
        worker_number = self.number * 1000 + self._processes
        process = PythonProcess(self.world, name, worker_number, f"/blockmgr-{self.number}")
        process.query_id = self.query_id if self.knows_id else None
        return process

    def driver_side(self, kind):
        """The Python process that plans, or the one that commits; Spark reuses them."""
        process = self._driver_side.get(kind)
        if process is not None and process.is_given_up:
            self._given_up.append(process)
        if process is None or not process.is_alive or process.is_given_up:
            process = self._driver_side[kind] = self._start(kind)
        return process

    def driver_processes(self):
        return [*self._given_up, *self._driver_side.values(), self.jvm]

    def has(self, process):
        """Whether ``process`` is one of this application's, a worker that it gave up too."""
        workers = (attempt.worker for attempt in self.attempts)
        return process in self.driver_processes() or process in workers

    def freeze(self, duration_ms):
        """The driver's machine hangs; all others go on as if it were dead."""
        until_ms = self.world.clock.ms + duration_ms
        self.is_lost = True
        for process in self.driver_processes():
            process.frozen_until_ms = until_ms

    def kill(self, kills_workers):
        """The driver dies, and its executors with it, or a while later on their own."""
        self.is_lost = True
        mine = self.world.current.process if self.world.current is not None else None
        doomed = self.driver_processes() + (list(self.workers) if kills_workers else [])
        for process in doomed:
            if process is not mine and process.is_alive:
                process.kill()
        if mine in doomed:
            mine.kill()

    def call(self, kind, action):
        """Run ``action`` in a driver-side Python process; its result goes through pickle."""
        process = self.driver_side(kind)
        actor = self.world.spawn(process, lambda: pickle.dumps(action()))
        self.world.wait_for(lambda: actor.is_done or process.is_given_up)
        if isinstance(actor.error, KilledError) or not actor.is_done:
            raise PythonWorkerError(f"{process.name} was killed, or hangs")
        if actor.error is not None:
            raise actor.error
        return pickle.loads(actor.result)

    # --- a query -------------------------------------------------------------------------------

    def run_query(self):
        """All batches that are left. Raises QueryFailedError."""
        first = self.checkpoint.first()
        for batch in self.checkpoint.batches[first:]:
            self.checkpoint.begin(batch.batch_id, batch.batch_id == first)
            try:
                plan = self.call("planner", lambda: session.plan_unit(self.options, False))
            except Exception as error:
                raise QueryFailedError(f"planning batch {batch.batch_id}") from error
            writer = KafkaStreamWriter(self.options, COLUMNS, plan)
            self._run_batch(batch, writer, self.query_id, (batch.batch_id,))
            self.checkpoint.finish(batch.batch_id)
            self.note(f"batch {batch.batch_id} is finished by application {self.number}")

    def run_job(self):
        """The first batch that is left, as a batch job. Raises QueryFailedError."""
        left = self.checkpoint.batches[self.checkpoint.first() :]
        if not left:
            return  # a driver that was frozen has finished the last one
        batch, options = left[0], self.options
        if options.write_id is not None:
            options = replace(options, write_version=self.versions[batch.batch_id])
        self.job_id = None
        try:
            plan = self.call("planner", lambda: session.plan_unit(options, True))
        except Exception as error:
            raise QueryFailedError(f"planning job {batch.batch_id}") from error
        self.job_id = plan.job_id
        self._run_batch(batch, KafkaBatchWriter(options, COLUMNS, plan), None, ())
        self.checkpoint.finish(batch.batch_id)
        self.note(f"job {batch.batch_id} is finished by application {self.number}")

    def _run_batch(self, batch, writer, query_id, batch_id):
        """``batch_id``: what Spark adds to the arguments of a stream's commit and abort."""
        pickled = pickle.dumps(writer)
        messages = []
        try:
            messages = self._run_tasks(batch, pickled, query_id)
            failed = next((m for m in messages if isinstance(m, BaseException)), None)
            if failed is not None:
                messages = [None if isinstance(m, BaseException) else m for m in messages]
                raise failed
            self.call("committer", lambda: pickle.loads(pickled).commit(messages, *batch_id))
        except Exception as error:
            self.note(f"batch {batch.batch_id} fails: {error!r:.300}")
            try:
                self.call("committer", lambda: pickle.loads(pickled).abort(messages, *batch_id))
            except PythonWorkerError as also:
                self.note(f"abort: {also!r}")
            raise QueryFailedError(f"batch {batch.batch_id}") from error

    # --- tasks ---------------------------------------------------------------------------------

    def _run_tasks(self, batch, writer, query_id):
        """A message per task; instead of one, the exception of a task that failed for good."""
        count = self.rng.choice(self.fates.tasks)
        messages = [None] * count
        failures = [0] * count
        numbers = [0] * count
        pending = list(range(count))
        running = []

        def launch(index, worker):
            attempt = Attempt(index, numbers[index], worker)
            numbers[index] += 1
            attempt.actor = self._launch(batch, count, attempt, writer)
            attempt.actor.context = TaskContext(index, attempt.number, query_id)
            running.append(attempt)
            self.attempts.append(attempt)

        while any(message is None for message in messages):
            for worker in self._idle_workers(running):
                if pending:
                    launch(pending.pop(0), worker)
                elif running and self.fates.chance(self.fates.speculates):
                    launch(self.rng.choice(running).index, worker)
            self.world.wait_for(lambda: any(a.is_over for a in running))
            for attempt in [a for a in running if a.is_over]:
                running.remove(attempt)
                message = attempt.message
                if message is not None:
                    messages[attempt.index] = messages[attempt.index] or message
                    continue
                failures[attempt.index] += 1
                if messages[attempt.index] is not None:
                    continue
                if failures[attempt.index] >= _MAX_FAILURES:
                    error = attempt.actor.error
                    is_error = isinstance(error, Exception)
                    messages[attempt.index] = error if is_error else PythonWorkerError("worker")
                    self._leave(running)
                    return messages
                if not any(a.index == attempt.index for a in running):
                    pending.append(attempt.index)
        self._leave(running)
        return messages

    def _idle_workers(self, running):
        """Workers without a task; those that are gone are replaced."""
        busy = {a.worker for a in self.attempts if a.actor is not None and not a.actor.is_done}
        self.workers = [w for w in self.workers if w.is_alive]
        while len([w for w in self.workers if w not in busy]) + len(running) < 3:
            self.workers.append(self._start("worker"))
        return [w for w in self.workers if w not in busy]

    def _leave(self, losers):
        """Attempts that nobody waits for any more: killed, or left to end by themselves."""
        for attempt in losers:
            attempt.is_lost = True
            if self.rng.random() < 0.5 and self.fates.kills_losers:
                attempt.worker.kill()

    def _launch(self, batch, tasks, attempt, writer):
        rows = [*batch.rows(tasks, attempt.index)]
        if self.options.dead_letters is not None:
            rows = spoilt(batch.rows(tasks, attempt.index))

        def run():
            iterator = self._arrow_batches(rows, attempt)
            return pickle.dumps(pickle.loads(writer).write(iterator))

        return self.world.spawn(attempt.worker, run)

    def _arrow_batches(self, rows, attempt):
        """The rows in a few pieces; between them faults of tasks."""
        cut = self.rng.randint(0, len(rows))
        for piece in (rows[:cut], rows[cut:]):
            self._suffer(attempt)
            keys = pa.array([key for key, _ in piece], pa.binary())
            values = pa.array([value for _, value in piece], pa.binary())
            yield pa.record_batch([keys, values], names=["key", "value"])
        self._suffer(attempt)

    def _suffer(self, attempt):
        fates, worker = self.fates, attempt.worker
        worker.compute_for(self.rng.randint(0, fates.longest_pause_ms))
        if fates.chance(fates.fails):
            raise TaskFailedError("the user's own")
        if fates.chance(fates.is_killed):
            self.note(f"{worker.name} is killed")
            worker.kill()
        if fates.chance(fates.is_lost):
            self.lose(attempt)

    def lose(self, attempt):
        """The driver gives the attempt up; what it still does comes late."""
        attempt.is_lost = True
        duration_ms = self.rng.randint(10, self.fates.longest_loss_ms)
        self.note(f"{attempt.worker.name} is lost for {duration_ms} ms")
        attempt.worker.frozen_until_ms = self.world.clock.ms + duration_ms
        self.world.sleep(0)

    def attempt_of(self, process):
        """The attempt that runs in ``process``."""
        for attempt in self.attempts:
            if attempt.worker is process and attempt.actor is self.world.current:
                return attempt
        return None
