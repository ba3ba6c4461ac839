"""What is lost, how and when: a Python worker, an executor, a node; and what Spark takes away itself.

One Spark application on two workers serves many runs: starting JVMs is what takes long. A seed
chooses the instant. A process that reaches its point is held there until the fault has happened.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import psutil
from confluent_kafka import KafkaException, TopicPartition
from pyspark.sql import SparkSession

from evidence.harness.crash import HOLD, STRAGGLE, Trap
from evidence.harness.driver import Traps
from evidence.harness.jobs import Shape, write_files
from evidence.harness.standalone import CLIENT_CONF, SPECULATION, StandaloneCluster
from tests.patience import PATIENCE_S, eventually
from tests.reading import consumer

RECORDS = 100_000
ROWS_PER_ARROW_BATCH = 1000
MICRO_BATCHES = 4
_FILES = 16
_SHAPE = Shape(pause_ms=20, files=_FILES, per_batch=_FILES // MICRO_BATCHES)


WORKERS = 2
PARTITIONS = 6
EXACTLY_ONCE, AT_LEAST_ONCE = "exactly-once", "at-least-once"
_REPOSITORY = Path(__file__).resolve().parents[2]
# Speculation wants a second host for a second attempt.
_HOSTS = ("127.0.0.1", "127.0.0.2")
_DAEMON_JAVA = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Dspark.deploy.maxExecutorRetries=-1 "
    "-Dspark.decommission.enabled=true"
)
CONF = {
    **CLIENT_CONF,
    "spark.cores.max": str(WORKERS),
    "spark.executor.cores": "1",
    "spark.task.maxFailures": "4",
    "spark.log.level": "ERROR",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(ROWS_PER_ARROW_BATCH),
    "spark.sql.files.minPartitionNum": "4",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.adaptive.enabled": "false",
}


class Application:
    """The cluster, its application, and a Kafka to write to; ``proxy``: another way to it."""

    def __init__(self, cluster, spark, kafka, proxy, folder):
        self.cluster = cluster
        self.spark = spark
        self.kafka = kafka
        self.proxy = proxy
        self.folder = folder
        self.traps = Traps(folder)

    @property
    def context(self):
        """Scala's SparkContext."""
        java = self.spark.sparkContext._jsc
        return java.sc()

    def executors(self):
        """Of this application, by the processes that run."""
        return self.cluster.executors(self.spark.sparkContext.applicationId)

    def executor_of(self, process_id):
        """The one that a Python process belongs to."""
        parents = {p.pid for p in psutil.Process(process_id).parents()}
        (found,) = [one for one in self.executors() if one.pid in parents]
        return found

    def completed_tasks(self):
        """Of all jobs."""
        executors = self.context.statusStore().executorList(False)
        return sum(executors.apply(i).completedTasks() for i in range(executors.size()))

    def metrics(self, topic):
        """Where the sink writes what it commits."""
        return self.folder / f"{topic}.jsonl"

    def committed(self, topic):
        """Micro-batches so far, or jobs."""
        path = self.metrics(topic)
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        lines = text[: text.rfind("\n") + 1].splitlines()
        return sum(json.loads(line)["event"] == "commit" for line in lines)

    def options(self, topic, guarantee, is_proxied=False):
        """Of the sink. What a task has appended is sent soon, so that it can die with a part of it
        written.
        """
        options = {
            "kafka.bootstrap.servers": (
                self.proxy.address if is_proxied else self.kafka.bootstrap_servers
            ),
            "topic": topic,
            "kafka.linger.ms": "0",
            "kafka.batch.size": "16384",
            "metrics.log": "false",
            "metrics.path": str(self.metrics(topic)),
            "delivery.guarantee": guarantee,
        }
        if guarantee == EXACTLY_ONCE:
            exactly_once = {"transaction.log.replication.factor": "1"}
            return {**options, **exactly_once, "transactional.id.prefix": topic}
        return {**options, "interceptors": "evidence.harness.crash:Interceptor"}

    def make_whole(self):
        """Start the workers that are gone, and wait until Spark has an executor on each."""
        for number in range(WORKERS):
            if not self.cluster.is_worker_running(number):
                self.cluster.start_worker(number)

        def is_whole():
            running = {executor.worker for executor in self.executors()}
            known = self.context.getExecutorMemoryStatus().size() - 1  # the driver is one of them
            return len(running) == known == WORKERS

        assert eventually(is_whole), f"executors: {self.executors()}\n{self.cluster.log('master')}"


@contextmanager
def application(kafka, proxy, folder, conf):
    """``conf``: of Spark, besides CONF."""
    folder.mkdir(parents=True, exist_ok=True)
    # The driver's processes and the executors' have it from this one.
    python = {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(_REPOSITORY)}
    os.environ.update({**Traps(folder).environment, **python})
    environment = {"SPARK_DAEMON_JAVA_OPTS": _DAEMON_JAVA}
    with StandaloneCluster(folder / "cluster", environment, hosts=_HOSTS) as cluster:
        builder = SparkSession.builder.master(cluster.master).appName("lost executors")
        for name, value in {**CONF, **conf}.items():
            builder = builder.config(name, value)
        spark = builder.getOrCreate()
        try:
            write_files(spark, RECORDS, _FILES, folder / "in")
            yield Application(cluster, spark, kafka, proxy, folder)
        finally:
            spark.stop()


_POINTS = ("task.written", "task.written", "task.written", "task.flushed", "share", "share")
_WITH_TRANSACTIONS = ("task.begin", "commit.begin", "commit.decided", "commit.ending")
_MOST_ARROW_BATCHES = {"batch": 12, "stream": 5}
_LAST_SHARE = 0.8


class Instant(NamedTuple):
    """point: of ``crash_points``, reached for the ``nth`` time by some task, or "share" of the rows.

    after: so many micro-batches are committed by then
    share: of the rows, in the log; no task is held at it
    """

    point: str
    nth: int
    after: int
    share: float

    def __str__(self):
        if self.point == "share":
            return f"{self.share:.0%} of the rows in the log"
        nth = f" for the {self.nth}. time" if self.nth > 1 else ""
        after = f", after micro-batch {self.after}" if self.after else ""
        return f"{self.point}{nth}{after}"


def choose(rng, job, guarantee, of_tasks_only, only_point=None):
    """Any instant; of_tasks_only: at which a task is held."""
    points = _POINTS
    if guarantee == EXACTLY_ONCE:
        points = (*_POINTS, *_POINTS, *_WITH_TRANSACTIONS)
    if of_tasks_only:
        points = tuple(point for point in points if point.startswith("task."))
    point = rng.choice(points) if only_point is None else only_point
    # Where a fault has one point only, the producer of the task that is held has begun to send.
    first = 1 if only_point is None else 2
    nth = rng.randint(first, _MOST_ARROW_BATCHES[job]) if point == "task.written" else 1
    after = rng.randrange(MICRO_BATCHES - 1) if job == "stream" and point != "share" else 0
    return Instant(point, nth, after, rng.uniform(0.03, _LAST_SHARE))


class Held(NamedTuple):
    """The process that is held at the instant; None if it is nobody's point."""

    topic: str
    process_id: int | None
    trap: str | None


def await_instant(application, instant, topic, is_over):
    """Wait for it. None if the job has ended before."""
    if instant.point == "share":
        is_written = _is_share_written(application, instant.share, topic, is_over)
        return Held(topic, None, None) if is_written else None
    if not _until(lambda: application.committed(topic) >= instant.after, is_over):
        return None
    return _hold(application, Trap(instant.point, HOLD, instant.nth), topic, is_over)


def _hold(application, trap, topic, is_over):
    name = application.traps.set(trap)
    if not _until(lambda: application.traps.sprung(name) is not None, is_over):
        application.traps.clear()
        return None
    sprung = application.traps.sprung(name)
    return Held(topic, sprung["pid"], name)


def _is_share_written(application, share, topic, is_over):
    with closing(_reader(application)) as reader:
        return _until(lambda: _written(reader, topic) >= share * RECORDS, is_over)


def _reader(application):
    """It sees the rows of open transactions, too."""
    settings = {"isolation.level": "read_uncommitted"}
    return consumer(application.kafka.bootstrap_servers, **settings)


def _written(reader, topic):
    partitions = [TopicPartition(topic, p) for p in range(PARTITIONS)]
    try:
        return sum(reader.get_watermark_offsets(p, timeout=PATIENCE_S)[1] for p in partitions)
    except KafkaException:  # the topic is new: not everything knows its leaders
        return 0


def _until(is_so, is_over):
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        if is_over():
            return False
        assert time.monotonic() < deadline, "the instant does not come"
        time.sleep(0.01)
    return True


Note = dict[str, Any]


class Fault(NamedTuple):
    """``happen`` takes something away at an instant; ``meanwhile`` is what Spark does by itself, and
    is called while a job runs, with what tells when that is over.

    group: the application that it needs, a key of CONFS; shape: of the jobs that suffer it
    of_tasks: it must happen while tasks run; only_point: and be at this point
    is_proxied: of jobs that reach the broker through the proxy
    is_exact: no task is repeated, so that nothing may be there twice, whatever the guarantee
    after: makes good what Spark does not by itself
    """

    what: str
    happen: Callable[..., Note] | None = None
    meanwhile: Callable[..., Note] | None = None
    group: str = "plain"
    shape: Shape = _SHAPE
    of_tasks: bool = False
    only_point: str | None = None
    is_proxied: bool = False
    is_exact: bool = False
    after: Callable[[Application, Note], None] = lambda application, note: None


DYNAMIC = "dynamic allocation"
CONFS = {
    # New Python workers start soon then.
    "plain": {"spark.python.daemon.module": "spark_kafka_sink.spark.daemon"},
    "decommissioning": {
        "spark.decommission.enabled": "true",
        "spark.executor.decommission.forceKillTimeout": "10s",
        "spark.storage.decommission.enabled": "true",
        "spark.storage.decommission.shuffleBlocks.enabled": "true",
    },
    DYNAMIC: {
        "spark.dynamicAllocation.enabled": "true",
        "spark.dynamicAllocation.shuffleTracking.enabled": "true",
        "spark.dynamicAllocation.shuffleTracking.timeout": "2s",
        "spark.dynamicAllocation.minExecutors": "0",
        "spark.dynamicAllocation.maxExecutors": str(WORKERS),
        "spark.dynamicAllocation.executorIdleTimeout": "1s",
        "spark.dynamicAllocation.schedulerBacklogTimeout": "1s",
    },
    "speculation": {k: v for k, v in SPECULATION.items() if k.startswith("spark.speculation")},
}


def _victim(application, held, rng):
    """The executor of the process that is held; any, if that is the driver's or nobody."""
    executors = application.executors()
    if held.process_id is not None:
        parents = {p.pid for p in psutil.Process(held.process_id).parents()}
        executors = [one for one in executors if one.pid in parents] or executors
    return rng.choice(executors)


def kill_python_worker(application, held, rng):
    """The one that is held in the middle of its task."""
    os.kill(held.process_id, signal.SIGKILL)
    return {}


def kill_executor(application, held, rng):
    """SIGKILL for its JVM; its Python processes find out by themselves."""
    os.kill(_victim(application, held, rng).pid, signal.SIGKILL)
    return {}


def kill_node(application, held, rng):
    """SIGKILL for Spark's Worker and everything below it; it comes back while the job goes on."""
    number = _victim(application, held, rng).worker
    application.cluster.kill_worker(number)
    application.cluster.start_worker(number, is_waited_for=False)
    return {}


def decommission_executor(application, held, rng):
    """By the signal that an executor takes for it: it takes no more tasks, and ends."""
    os.kill(_victim(application, held, rng).pid, signal.SIGPWR)
    return {}


def decommission_node(application, held, rng):
    """By the signal that a Worker takes for it, as a cloud's notice would send it."""
    number = _victim(application, held, rng).worker
    application.cluster.decommission_worker(number)
    return {"worker": number}


def _exchange_node(application, note):
    """The node is gone, as announced; another one comes."""
    application.cluster.kill_worker(note["worker"])


def take_executor(application, held, rng):
    """As an operator does, or a program: ``SparkContext.killExecutor`` by number."""
    victim = _victim(application, held, rng)
    assert application.context.killExecutor(str(victim.number))
    return {}


def _ask_for_another(application, note):
    # More than there can be: what Spark counts on from differs by how it was started.
    application.context.requestExecutors(WORKERS)


def lose_answers(application, held, rng):
    """The broker appends what is sent, and its answers are lost with the connections."""
    with closing(_reader(application)) as reader:
        # A producer that has not begun would wait for answers.
        assert eventually(lambda: _written(reader, held.topic)), "nothing is written"
        with application.proxy.answers_held_back():
            before = _written(reader, held.topic)
            application.traps.release(held.trap)
            assert eventually(lambda: _written(reader, held.topic) > before), "nothing more"
            application.proxy.cut()
    return {}


def kill_unheard_executor(application, held, rng):
    """Nothing that is sent arrives, for as long as an executor and its Python processes live.

    Its task cannot end; if it does, it ends before the executor.
    """
    with closing(_reader(application)) as reader:
        assert eventually(lambda: _written(reader, held.topic)), "nothing is written"
    before = application.completed_tasks()
    victim = psutil.Process(application.executor_of(held.process_id).pid)
    with application.proxy.held_back():
        application.traps.release(held.trap)
        eventually(lambda: application.completed_tasks() >= before + WORKERS, _UNHEARD_S)
        completed = application.completed_tasks() - before
        for process in (victim, *victim.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                process.kill()
        application.proxy.cut()
    return {"completed": completed}


def let_come_and_go(application, rng, is_over):
    """Which executors there were."""
    numbers = set()
    most = least = len(application.executors())
    while not is_over():
        now = application.executors()
        numbers |= {one.number for one in now}
        most, least = max(most, len(now)), min(least, len(now))
        time.sleep(0.05)
    return {"executors": len(numbers), "least": least, "most": most}


def slow_down(application, rng, is_over):
    """Some first attempts take so long that Spark begins second ones."""
    points = [rng.choice(("task.written", "task.written", "task.flushed")) for _ in range(_SLOW)]
    names = [
        application.traps.set(
            Trap(point, STRAGGLE, rng.randint(1, 5) if point == "task.written" else 1, attempt=0)
        )
        for point in points
    ]
    eventually(is_over)
    slowed = sum(application.traps.sprung(name) is not None for name in names)
    application.traps.clear()
    return {"slowed": slowed}


_SLOW = 3
_UNHEARD_S = 5.0
_SHUFFLED = _SHAPE._replace(is_shuffled=True)
FAULTS = {
    "python worker": Fault("SIGKILL of a Python worker", kill_python_worker, of_tasks=True),
    "executor": Fault("SIGKILL of an executor's JVM", kill_executor, shape=_SHUFFLED),
    "node": Fault("SIGKILL of a Worker and all below it", kill_node, shape=_SHUFFLED),
    "decommissioned executor": Fault(
        "an executor is decommissioned",
        decommission_executor,
        group="decommissioning",
        shape=_SHUFFLED,
    ),
    "decommissioned node": Fault(
        "a Worker is decommissioned, and another one comes",
        decommission_node,
        group="decommissioning",
        shape=_SHUFFLED,
        after=_exchange_node,
    ),
    "taken executor": Fault(
        "an executor is taken away by `SparkContext.killExecutor`",
        take_executor,
        shape=_SHUFFLED,
        after=_ask_for_another,
    ),
    "answers": Fault(
        "answers of the broker are lost, and all connections cut",
        lose_answers,
        of_tasks=True,
        only_point="task.written",
        is_proxied=True,
        is_exact=True,
    ),
    "unheard executor": Fault(
        "an executor and all below it are killed while nothing that they send arrives",
        kill_unheard_executor,
        of_tasks=True,
        only_point="task.written",
        is_proxied=True,
    ),
    "dynamic allocation": Fault(
        "dynamic allocation with shuffle tracking: executors come and go",
        meanwhile=let_come_and_go,
        group=DYNAMIC,
        shape=_SHUFFLED._replace(trigger="5 seconds"),
    ),
    "speculation": Fault(
        "slow tasks get a second attempt by speculation", meanwhile=slow_down, group="speculation"
    ),
}
KILLS = ("python worker", "executor", "node")
