"""A real producer on a simulated network and clock, in one thread, with transactions or without.

Where the producer's task thread would wait, the monitor steps the sender instead.
"""

from __future__ import annotations

import random
from contextlib import contextmanager
from dataclasses import replace

import pyarrow as pa
import pytest

from spark_kafka_sink.base.errors import DeliveryError, error_named
from spark_kafka_sink.base.model import (
    NO_PRODUCER,
    ColumnPositions,
    PlannedTopic,
    ProducerIdAndEpoch,
    TopicsPlan,
    UnusedProducerIdentity,
)
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.producer.producer import KafkaProducer
from spark_kafka_sink.protocol.messages.topics import MetadataRequest
from spark_kafka_sink.protocol.messages.transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from tests import twin
from tests.simulation.cluster import SimCluster
from tests.simulation.network import SimNetwork
from tests.simulation.time import Scheduler, SimClock
from tests.simulation.transactions import KAFKA_2_1, KAFKA_3_9, KAFKA_4_3


class SteppingMonitor:
    """A Monitor without threads. ``producer``: set as soon as there is one, before any wait."""

    def __init__(self, clock):
        self.clock = clock
        self.producer = None
        self._is_notified = False

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        return None

    def wait(self, timeout_ms):
        """Step the sender until it has notified, or the time is over."""
        until_ms = self.clock.ms + timeout_ms
        self._is_notified = False
        while not self._is_notified and self.clock.ms < until_ms:
            before_ms = self.clock.ms
            self._step(self.producer, until_ms)
            # A failed producer has nothing left to do.
            if self.producer.accumulator.failure is not None and self.clock.ms == before_ms:
                self._pass_time()

    def notify_all(self):
        self._is_notified = True

    def _step(self, producer, until_ms):
        raise NotImplementedError

    def _pass_time(self):
        raise NotImplementedError


class SimMonitor(SteppingMonitor):
    """Steps the sender for as long as the task waits; nobody else moves the clock."""

    def __init__(self, clock, scheduler, network):
        super().__init__(clock)
        self._scheduler = scheduler
        self._network = network

    def wait(self, timeout_ms):
        self._scheduler.after(timeout_ms, self._network.wakeup)
        super().wait(timeout_ms)

    def _step(self, producer, until_ms):
        producer.sender.run_once(self.clock.ms)

    def _pass_time(self):
        self.clock.ms += 1


class Simulation:
    """World and producer of one test."""

    def __init__(self, seed=0, brokers=3, bytes_per_second=None, decision_log=None, **options):
        """bytes_per_second, decision_log: of the sink's own options. options: the producer's, with
        ``_`` for ``.``
        """
        self.rng = random.Random(seed)
        self.clock = SimClock()
        self.scheduler = Scheduler(self.clock)
        self.network = SimNetwork(self.scheduler, random.Random(self.rng.random()))
        self.cluster = SimCluster(
            self.network, self.scheduler, random.Random(self.rng.random()), brokers
        )
        self.options = options
        self.plans_count = 0
        self._own = {"max_bytes_per_second": bytes_per_second, "decision_log": decision_log}
        self.producer = self._create_producer()

    def _create_producer(self):
        values = {"bootstrap.servers": self.cluster.bootstrap_servers}
        values.update({name.replace("_", "."): value for name, value in self.options.items()})
        config = replace(ProducerConfig.parse(values), **self._own)
        monitor = SimMonitor(self.clock, self.scheduler, self.network)
        rng = random.Random(self.rng.random())
        producer = KafkaProducer(config, self.network, self.clock, rng, monitor)
        monitor.producer = producer
        return producer

    def plan(self, *topics):
        """What a driver finds that plans now."""
        found = {name: self.cluster.topics[name] for name in topics}
        self.plans_count += 1
        return TopicsPlan(
            f"plan {self.plans_count}",
            {name: PlannedTopic(t.topic_id, len(t.partitions)) for name, t in found.items()},
        )

    def begin_task(self, *topics):
        """A task of a job that is planned now, with these topics in options."""
        self.producer.begin_task(topics, self.plan(*topics))

    def append(self, records, topic="t"):
        """Append (key, value) rows."""
        self.producer.append(
            arrow_batch(records), ColumnPositions(value=1, key=0, topic_option=topic)
        )

    def append_to(self, partition, values, topic="t"):
        """Append rows to one partition."""
        batch = pa.record_batch(
            [pa.array(values, pa.binary()), pa.array([partition] * len(values), pa.int32())],
            names=["value", "partition"],
        )
        self.producer.append(batch, ColumnPositions(value=0, partition=1, topic_option=topic))

    def flush(self):
        """Return how many milliseconds that takes."""
        started_ms = self.clock.ms
        self.producer.flush()
        return self.clock.ms - started_ms

    def write(self, partition, *values, topic="t"):
        """Append rows to one partition and flush; return how many milliseconds the flush takes."""
        self.append_to(partition, list(values), topic)
        return self.flush()

    @contextmanager
    def within(self, most_ms, least_ms=0):
        """What is done meanwhile takes less than ``most_ms``."""
        started_ms = self.clock.ms
        yield
        assert least_ms <= self.clock.ms - started_ms < most_ms

    def refused(self, partition, *values):
        """The task fails with a DeliveryError when it writes these: its message."""
        self.append_to(partition, list(values))
        with pytest.raises(DeliveryError) as caught:
            self.flush()
        return str(caught.value)

    @property
    def has_all_memory(self):
        return self.producer.pool.free_count == self.producer.pool.pages_count

    def log(self, partition=0):
        """The log of a partition's leader."""
        return self.cluster.topics["t"].partitions[partition].log

    def refresh_metadata(self):
        """Metadata is asked for at the sender's next round, which is at once."""
        self.producer._metadata.request_update_now()
        self.network.wakeup()

    def edit_metadata(self, edit):
        """``edit`` changes each answer of brokers about their topics, before it is sent."""

        def answer(broker, request, reply, go_on):
            def edited(response):
                edit(response)
                reply(response)

            go_on(edited)

        self.cluster.intercept(MetadataRequest, answer)

    def append_everywhere(self, *values):
        """Append rows to each partition of ``t``."""
        for partition in range(len(self.cluster.topics["t"].partitions)):
            self.append_to(partition, list(values))

    def write_everywhere(self, *values):
        """As ``append_everywhere``, and flush: there are connections to all leaders then."""
        self.append_everywhere(*values)
        self.producer.flush()

    def write_rows(self, records, topic="t"):
        """Append (key, value) rows and flush."""
        self.append(records, topic)
        self.producer.flush()

    def hand_over(self, partition, *values):
        """Append rows to one partition, of which the sender has all from then on."""
        self.append_to(partition, list(values))
        self.producer._appender.finish_open()

    def lose_first_answer(self):
        """The first batch is appended, and its answer lost. Returns headers of batches, as they come."""
        seen = []

        def lose(broker, topic, index, batch):
            seen.append(batch.header)
            self.network.faults.cut_next_response = len(seen) == 1

        self.cluster.on_produce = lose
        return seen

    def step(self, times=1):
        """Let the sender run."""
        for _ in range(times):
            self.producer.sender.run_once(self.clock.ms)

    def run_for(self, duration_ms):
        """Let the sender run for a while."""
        end_ms = self.clock.ms + duration_ms
        self.scheduler.after(duration_ms, self.network.wakeup)
        while self.clock.ms < end_ms:
            self.step()

    def values(self, topic="t"):
        """Values in each partition's log, in order."""
        return {i: [r.value for r in rs] for i, rs in self.cluster.records(topic).items()}

    def all_values(self, topic="t"):
        return sorted(v for values in self.values(topic).values() for v in values)


def simulate(seed=0, partitions=3, max_message_bytes=1 << 20, **options):
    """A simulation with a topic ``t``."""
    simulation = Simulation(seed, **options)
    simulation.cluster.create_topic("t", partitions).max_message_bytes = max_message_bytes
    return simulation


def connected(first=b"a", **options):
    """A simulation whose producer has written ``first`` to partition 0."""
    simulation = simulate(**options)
    simulation.write(0, first)
    return simulation


def assert_has(text, *parts):
    assert [part for part in parts if part not in text] == [], text


def arrow_batch(records):
    keys = pa.array([key for key, _ in records], pa.binary())
    values = pa.array([value for _, value in records], pa.binary())
    return pa.record_batch([keys, values], names=["key", "value"])


def keyed(count, size=20):
    """``count`` rows with distinct keys and values."""
    return [(b"k%d" % i, (b"v%d-" % i).ljust(size, b".")) for i in range(count)]


def partition_of(key, partitions):
    return twin.partition_for_key(key, partitions)


# --- transactions -------------------------------------------------------------------------------

NAME, TIMEOUT_MS = "flights.0", 60_000


class Transactional(Simulation):
    """A simulation whose brokers coordinate transactions. ``asked``: (request, version)."""

    def __init__(self, transaction_version=2, offered=KAFKA_4_3, partitions=3, **options):
        super().__init__(0, **options)
        self.transactions = self.cluster.enable_transactions(transaction_version, offered)
        self.cluster.create_topic("t", partitions)
        self.asked = []
        handle = self.cluster.handle

        def noting(broker, request, version, reply):
            self.asked.append((request, version))
            handle(broker, request, version, reply)

        self.cluster.handle = noting

    def begin(self, name=NAME, token=None):
        self.producer.begin_task(["t"])
        self.producer.begin_transaction(name, TIMEOUT_MS, token)

    def task(self, name, partition, *values):
        self.begin(name)
        self.write(partition, *values)
        return self.producer.transaction

    def versions(self, request_type):
        return {v for request, v in self.asked if isinstance(request, request_type)}

    def count(self, request_type):
        return sum(isinstance(request, request_type) for request, _ in self.asked)

    def _until_done(self, name, ask):
        """``ask`` the id's coordinator until it is not busy; the name of its last answer."""
        answers = []
        while not answers or answers[-1] == "CONCURRENT_TRANSACTIONS":
            coordinator = self.transactions.coordinators[self.transactions.coordinator_id(name)]
            ask(coordinator, lambda error, _: answers.append(error))
            self.run_for(100)
        return answers[-1]

    def end(self, prepared, is_commit=True):
        """Somebody else ends the transaction; the error's name, when the markers are written."""
        name, producer_id, epoch, version = prepared
        own = name, ProducerIdAndEpoch(producer_id, epoch), is_commit, version >= 2
        return self._until_done(name, lambda by, answer: by.end_transaction(*own, answer))

    def commit(self):
        """Somebody else commits the task's transaction; what is committed then."""
        assert self.end(self.producer.transaction) == "NONE"
        return self.committed()

    def describe_token(self, error="NONE", state="Empty"):
        """What coordinators say of the token of a plan from now on. Returns the token."""
        token = UnusedProducerIdentity("flights.driver", ProducerIdAndEpoch(1, 0))
        code, name = error_named(error).code, token.transactional_id
        told = TransactionState(code, name, state, TIMEOUT_MS, 0, *token.producer, [])

        def tell(broker, request, reply, go_on):
            reply(DescribeTransactionsResponse(0, [told]))

        self.cluster.intercept(DescribeTransactionsRequest, tell)
        return token

    def take_over(self, name=NAME):
        """Somebody else begins a transaction under the same id."""
        own = name, TIMEOUT_MS, NO_PRODUCER
        error = self._until_done(name, lambda by, answer: by.init_producer_id(*own, answer))
        assert error == "NONE"

    def committed(self):
        return {
            index: [record.value for record in records]
            for index, records in self.transactions.committed("t").items()
        }


GENERATIONS = [(2, KAFKA_4_3), (1, KAFKA_4_3), (0, KAFKA_4_3), (0, KAFKA_3_9), (0, KAFKA_2_1)]
