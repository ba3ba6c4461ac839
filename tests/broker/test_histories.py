"""Random histories of one prefix on a real broker: queries, jobs, named writes and foreachBatch in turn,
by drivers that die in the middle and come back. Whatever happened, nothing is lost or written twice, a
refusal changes nothing, and somebody can go on.
"""

from __future__ import annotations

import contextlib
import itertools
from dataclasses import dataclass, field

import hypothesis
import pytest
from hypothesis import strategies as st

from spark_kafka_sink.base.clock import SystemClock
from spark_kafka_sink.base.errors import ConfigError, TransactionError
from spark_kafka_sink.base.model import TopicPartition
from spark_kafka_sink.config.sink_keys import ExactlyOnceConfig
from spark_kafka_sink.network.admin import AdminClient
from spark_kafka_sink.protocol.messages.topics import ADDS_PARTITIONS_VERSION
from spark_kafka_sink.record.record_batch import NewRecord, encode_batch
from spark_kafka_sink.transactions import crash_points
from spark_kafka_sink.transactions.client import TransactionClient
from spark_kafka_sink.transactions.commit_protocol import CommitProtocol
from spark_kafka_sink.transactions.decision_log import LogPartition, prepare_log_topic
from spark_kafka_sink.transactions.model import (
    Driver,
    OutcomeError,
    TaskTransaction,
    Unit,
    WorkerTransactionalIds,
    Write,
    driver_transactional_id,
)
from spark_kafka_sink.transactions.operations import Choice, Operations, RefusedError
from tests.patience import PATIENCE_MS
from tests.reading import read_topic
from tests.simulation.operating import rows_of

_LOG, _TIMEOUT_MS = "histories-decisions", 60_000
_numbers = itertools.count(1)
_ACTORS = ("query 1", "query 2", "foreachBatch", "job", "named 5", "named 4", "named 0")
_DEATHS = (None, None, None, "plan.claimed", "commit.checked", "commit.decided", "commit.done")
_STEPS = st.lists(
    st.tuples(st.sampled_from(_ACTORS), st.integers(1, 2), st.sampled_from(_DEATHS)),
    min_size=1,
    max_size=7,
)


class DeathError(BaseException):
    """The driver was killed."""


@dataclass
class History:
    """finished: of each query and of foreachBatch, as their checkpoints say; runs: of all drivers"""

    prefix: str
    topic: str
    client: TransactionClient
    finished: dict[str, int] = field(default_factory=dict)
    written: set[str] = field(default_factory=set)
    lives: list[int] = field(default_factory=lambda: [0, 0, 0])
    runs: int = 0
    changed: bool = False

    def __post_init__(self):
        self.slots = WorkerTransactionalIds()
        config = ExactlyOnceConfig(self.prefix, _TIMEOUT_MS, _LOG, 1)
        self.protocol = CommitProtocol(self.client, config, SystemClock(), PATIENCE_MS)

    def deadline_ms(self):
        return self.client.admin.deadline_in(PATIENCE_MS)

    def run(self, actor, application, death=None):
        """One unit of ``actor``; None, or why it was refused or failed."""
        self.runs += 1
        is_query, is_named = actor.startswith("query"), actor.startswith("named")
        number = self.finished.get(actor, 0)
        # The data source and functions of an application are drivers of their own.
        kind = "functions" if actor == "foreachBatch" else "source"
        checkpoint = f"/c/{actor}" if is_query else None
        name = f"{kind}-{application}.{self.lives[application]}"
        driver = Driver(name, "host", self.runs, checkpoint, None)
        write, value = None, f"{actor}-{number}"
        if actor == "foreachBatch":
            write = Write("batches", number)
        elif is_named:
            write, value = Write("etl", int(actor.split()[1])), actor
        elif not is_query:
            value = f"job-{self.runs}"
        job = None if is_query else f"job-{self.runs}"
        unit = Unit(actor, number, None) if is_query else Unit(None, None, job)
        crash_points.set_hook(lambda point: _die(point, death))
        try:
            self._plan_and_commit(driver, job, write, unit, value)
        except DeathError:
            self.lives[application] += 1
            return None
        except (TransactionError, ConfigError) as error:
            return error
        finally:
            crash_points.set_hook(None)
        self.written.add(value)
        if is_query or actor == "foreachBatch":
            self.finished[actor] = number + 1
        return None

    def _plan_and_commit(self, driver, job, write, unit, value):
        before = self._record()
        try:
            plan = self.protocol.plan(driver, job, write)
        except (TransactionError, ConfigError) as error:
            if not isinstance(error, OutcomeError):
                self.changed |= self._record() != before
            raise
        tasks = [] if plan.is_repeated else [self._task(plan, value)]
        self.protocol.commit(plan, unit, tasks)

    def _record(self):
        # A driver that has died leaves its marker to the coordinator, which may be slow.
        driver_id = driver_transactional_id(self.prefix)
        self.client.describe_when_complete(driver_id, self.deadline_ms())
        return self.protocol.log.read_current(self.deadline_ms())

    def _task(self, plan, value):
        name, deadline_ms = self.slots.next_id(plan.prefix, plan.token), self.deadline_ms()
        producer, version = self.client.init_producer_id(name, _TIMEOUT_MS, deadline_ms)
        now_ms, data = SystemClock().timestamp_ms(), value.encode()
        batch = encode_batch([NewRecord(b"k", data)], now_ms, producer, 0)
        partition = LogPartition(self.client.admin, TopicPartition(self.topic, 0))
        answer = partition.append(name, batch, ADDS_PARTITIONS_VERSION, deadline_ms)
        assert answer.error_code == 0
        return TaskTransaction(name, *producer, version, 0, 1, rows_of(data).text)

    def confirm(self):
        """What an operator does after the death of a job without a name."""
        operations = Operations(self.client, _LOG, self.prefix, SystemClock(), PATIENCE_MS)
        with contextlib.suppress(RefusedError):  # finished, and there is a choice to make
            operations.resolve(None, lambda what: None)
        record = self._record()
        if record is not None and record.needs_confirmation:
            operations.resolve(Choice.AS_WRITTEN, lambda what: None)

    def somebody_goes_on(self):
        """With a new driver, after any outcome was settled."""
        self.lives[:] = [life + 1 for life in self.lives]
        errors = []
        for actor in ("query 1", "query 2", "foreachBatch", "job"):
            error = self.run(actor, 1)
            if error is None:
                return True
            errors.append(f"{actor}: {error}")
        raise AssertionError("\n".join(errors))


def _die(point, death):
    if point == death:
        raise DeathError(point)


@pytest.fixture(scope="module")
def client(kafka):
    with AdminClient.connect(kafka.bootstrap_servers) as admin:
        config = ExactlyOnceConfig("histories", _TIMEOUT_MS, _LOG, 1)
        prepare_log_topic(admin, config, admin.deadline_in(PATIENCE_MS))
        yield TransactionClient(admin)


@hypothesis.settings(max_examples=12)
@hypothesis.given(_STEPS)
@hypothesis.example([("job", 1, None), ("query 1", 1, None), ("query 1", 1, None)])
@hypothesis.example([("named 5", 1, None), ("named 4", 2, None), ("named 5", 1, None)])
@hypothesis.example([("named 5", 1, "commit.decided"), ("query 1", 2, None), ("named 5", 2, None)])
def test_whatever_happened_nothing_is_lost_or_doubled_and_somebody_goes_on(kafka, client, steps):
    name = f"history-{next(_numbers)}"
    kafka.create_topic(name, 1)
    history = History(name, name, client)
    for actor, application, death in steps:
        error = history.run(actor, application, death)
        if isinstance(error, OutcomeError):
            history.confirm()
    history.confirm()
    assert not history.changed, "a driver that was refused has changed the record"
    assert history.somebody_goes_on()
    committed = {"isolation.level": "read_committed"}
    seen = [r.value.decode() for r in read_topic(kafka.bootstrap_servers, name, **committed)]
    assert len(seen) == len(set(seen)), seen
    assert history.written <= set(seen)
