"""A prefix in a simulated cluster: a driver that plans, decides and dies, and its operators."""

from __future__ import annotations

import hashlib
import random

from spark_kafka_sink.base.model import TopicPartition
from spark_kafka_sink.config.sink_keys import ExactlyOnceConfig
from spark_kafka_sink.network.admin import DEFAULT_SETTINGS, AdminClient
from spark_kafka_sink.record.record_batch import NewRecord, encode_batch
from spark_kafka_sink.transactions import crash_points
from spark_kafka_sink.transactions.client import TransactionClient
from spark_kafka_sink.transactions.commit_protocol import CommitProtocol
from spark_kafka_sink.transactions.decision_log import LogPartition
from spark_kafka_sink.transactions.model import (
    Driver,
    RowSummary,
    TaskTransaction,
    Unit,
    WorkerTransactionalIds,
)
from spark_kafka_sink.transactions.operations import Operations
from tests.simulation.wire import World

TIMEOUT_MS = 600_000
PATIENCE_MS = 60_000
LOG_TOPIC = "decisions"
WORKER = "0123456789ab"
A, B = b"a", b"b"


OPTIONS = {
    "kafka.bootstrap.servers": "simulated:1",
    "topic": "t",
    "delivery.guarantee": "exactly-once",
    "transactional.id.prefix": "p",
}
DRIVER_POINTS = [p for p in crash_points.POINTS if p.startswith(("plan.", "commit."))]


class CrashError(BaseException):
    """The driver was killed."""


class Prefix:
    """One cluster with a topic ``t``, and the commit protocol under prefix ``p``."""

    accepts_missing_record = False
    drops_replays = False
    accepts_new_query = False

    def __init__(self, transaction_version=2):
        self.world = World(transaction_version=transaction_version)
        cluster = self.world.cluster
        cluster.create_topic("t", 4, replicas=3, min_insync=2)
        cluster.create_topic(LOG_TOPIC, 1, replicas=3, min_insync=2)
        self.client = TransactionClient(
            AdminClient.connect(
                cluster.bootstrap_servers,
                settings=DEFAULT_SETTINGS,
                network=self.world.network,
                clock=self.world.clock,
                rng=random.Random(1),
            )
        )
        self.slots = WorkerTransactionalIds(WORKER)
        self.protocol = self.protocol_of("p")

    def protocol_of(self, prefix):
        config = ExactlyOnceConfig(
            prefix,
            TIMEOUT_MS,
            LOG_TOPIC,
            3,
            self.accepts_missing_record,
            self.drops_replays,
            self.accepts_new_query,
        )
        return CommitProtocol(self.client, config, self.world.clock, PATIENCE_MS)

    @property
    def deadline_ms(self):
        return self.world.clock.ms + PATIENCE_MS

    def record(self, prefix="p"):
        return self.protocol_of(prefix).log.read(self.deadline_ms)

    def write(self, plan, partition, value):
        """What a task does: a transaction with one record, left open."""
        version = self.world.transactions.transaction_version
        name = self.slots.next_id(plan.prefix, plan.token)
        producer = self.world.init(name, plan.timeout_ms)
        to = TopicPartition("t", partition)
        if version < 2:
            assert self.world.add_partitions(name, producer, to) == "NONE"
        produce_version = 12 if version >= 2 else 11
        assert self.world.produce(name, producer, to, [value], produce_version) == "NONE"
        return TaskTransaction(name, *producer, version, partition, 1, rows_of(value).text)

    def written(self, plan, values):
        """A task with one record for each value, open."""
        return [self.write(plan, partition, value) for partition, value in enumerate(values)]

    def begun(self, by, *values, job=None):
        """A plan of the driver, and its open tasks."""
        plan = self.protocol.plan(by, job)
        return plan, self.written(plan, values)

    def die_in_commit(self, point, plan, what, transactions, protocol=None):
        """The driver that commits is killed when it reaches ``point``."""
        dies_at(point, lambda: (protocol or self.protocol).commit(plan, what, transactions))

    def visible(self):
        self.world.run_for(500)
        return sorted(v for v in self.world.committed("t") if v is not None)

    def open_ids(self):
        self.world.run_for(500)
        return [name for name, _ in self.world.list(states=("Ongoing",))]

    def check_settled(self, *visible):
        """A reader of committed records sees these, and waits for nothing."""
        assert self.visible() == sorted(visible)
        assert self.open_ids() == []


class Lives(Prefix):
    """Drivers and tasks of the prefix."""

    def batch(self, batch_id, by, tasks=2, job=None):
        """A whole micro-batch or job: values ``b"{batch}-{task}"``."""
        plan, written = self.begun(by, *(b"%d-%d" % (batch_id, n) for n in range(tasks)), job=job)
        self.protocol.commit(plan, unit(batch_id, job), written)

    def batches(self, count):
        """So many micro-batches of one driver."""
        for number in range(count):
            self.batch(number, driver(1))

    def killed(self, point, *batch, **more):
        """The driver of a batch is killed when it reaches ``point``."""
        dies_at(point, lambda: self.batch(*batch, **more))


def at(point, action):
    """Call ``action`` when ``point`` is reached for the first time from now on."""

    def hook(reached):
        if reached == point:
            crash_points.set_hook(None)
            action()

    crash_points.set_hook(hook)


def dies_at(point, action):
    """``action``, in the middle of which the driver is killed: when it reaches ``point``."""

    def crash():
        raise CrashError(point)

    at(point, crash)
    dies(action)


def dies(action):
    try:
        action()
    except CrashError:
        return
    raise AssertionError("the driver was to be killed, and lives")


class Operated(Prefix):
    """Whatever happens under the prefix, from any micro-batch on, and its operators."""

    accepts_missing_record = True

    def __init__(self, transaction_version=2):
        super().__init__(transaction_version)
        self.operations = self.operations_of("p")

    def operations_of(self, prefix):
        return Operations(self.client, LOG_TOPIC, prefix, self.world.clock, PATIENCE_MS)

    def batch(self, batch_id, values, by, last_point=None, job=None, prefix="p"):
        """A micro-batch or job, up to the crash."""
        protocol = self.protocol_of(prefix)
        plan = protocol.plan(by, job)
        transactions = self.written(plan, values)
        if last_point is None:
            protocol.commit(plan, unit(batch_id, job), transactions)
        else:
            self.die_in_commit(last_point, plan, unit(batch_id, job), transactions, protocol)
        return transactions

    def write_raw(self, value, prefix="p", codec="none", others=()):
        """As another version of the sink may write the record of a prefix that was planned.

        others: more records of the batch, as other clients write them
        """
        name, log = f"{prefix}.driver", TopicPartition(LOG_TOPIC, 0)
        producer = self.world.init(name, TIMEOUT_MS)
        version = self.world.transactions.transaction_version
        if version < 2:
            assert self.world.add_partitions(name, producer, log) == "NONE"
        records = [NewRecord(prefix.encode(), value), *others]
        batch = encode_batch(records, 0, producer, 0, codec=codec)
        deadline_ms = self.deadline_ms
        partition = LogPartition(self.client.admin, log)
        produce_version = 12 if version >= 2 else 11
        assert partition.append(name, batch, produce_version, deadline_ms).error_code == 0
        self.client.commit_driver_transaction(name, producer, version, deadline_ms)

    def lose(self, transaction):
        """As the timeout does: the brokers abort it."""
        self.world.init_once(transaction.transactional_id)
        self.world.run_for(200)

    def end(self, transaction):
        """Commit it."""
        version = 5 if transaction.transaction_version >= 2 else 4
        name, producer = transaction.transactional_id, transaction.producer
        assert self.world.end(name, producer, version)[0] == "NONE"
        self.world.run_for(200)

    def forget(self, transaction):
        """The coordinator no longer knows the id."""
        self.world.transactions.expire(transaction.transactional_id)


def rows_of(value):
    """Of a task that writes one record."""
    contents = hashlib.sha256(value).digest()[:8]
    return RowSummary(1, len(value), int.from_bytes(contents, "big"))


def unit(batch_id, job=None, query_id="q-1"):
    return Unit(query_id, batch_id, None) if job is None else Unit(None, None, job)


def driver(number, checkpoint="/ck", query_id=None):
    return Driver(f"driver-{number}", "host", 1_700_000_900_000, checkpoint, "rows", query_id)


def never(what):
    raise AssertionError(f"nothing to confirm: {what}")


def agree(what):
    """Whatever it is."""
    assert "transactional.id.prefix 'p' stops" in what


def decided(operated, job=None):
    """A unit of two tasks whose driver has died after the decision."""
    return operated.batch(7, [A, B], driver(1), "commit.decided", job)
