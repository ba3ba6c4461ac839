"""A producer's life: between tasks it is kept when healthy, closed when not, gone when idle for
long; what no broker would take; and turns of task and sender.
"""

import os
from contextlib import ExitStack

import pyarrow as pa
import pytest

from spark_kafka_sink.base.errors import RecordError, RecordTooLargeError, error_named
from spark_kafka_sink.base.model import ColumnPositions, TopicsPlan
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.config.sink_keys import TopicLimits
from spark_kafka_sink.localkafka.cluster import free_ports
from spark_kafka_sink.producer import producer as pool_module
from spark_kafka_sink.producer.appender import RowChecks
from spark_kafka_sink.producer.monitor import ThreadMonitor, Turns
from spark_kafka_sink.producer.producer import ProducerPool, ThreadedProducer
from spark_kafka_sink.producer.rejections import rejected_rows
from spark_kafka_sink.protocol.messages.topics import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
)
from spark_kafka_sink.record.columns import arrow_records
from tests.simulation.time import SimClock


class FakeProducer:
    """Stands in for ThreadedProducer: the pool asks for health, and closes."""

    def __init__(self, config, topics, plan):
        self.config = config
        self.begun = [(list(topics), plan)]
        self.is_healthy = True
        self.is_closed = False

    def mark_idle(self, until_ms):
        self.until_ms = until_ms

    def reactivate(self):
        return self.is_healthy

    def begin_task(self, topics, plan):
        self.begun.append((list(topics), plan))

    def close(self):
        self.is_closed = True


def config(**options):
    values = {"bootstrap.servers": "b:9092"}
    values.update({name.replace("_", "."): value for name, value in options.items()})
    return ProducerConfig.parse(values)


@pytest.fixture
def clock():
    return SimClock()


@pytest.fixture
def pool(clock):
    return ProducerPool(FakeProducer, clock)


def kept(pool, **options):
    """A producer that a task has given back."""
    producer = pool.acquire(config(**options), ["a"])
    pool.release(config(**options), producer)
    return producer


SECURED = {
    "security_protocol": "SASL_SSL",
    "sasl_mechanism": "SCRAM-SHA-512",
    "sasl_username": "alice",
    "sasl_password": "alices",
}


def test_a_task_never_gets_the_producer_of_another_user(pool):
    """The configuration includes the user: a pool by brokers alone would mix users up."""
    first = kept(pool, **SECURED)
    for other in (
        {},
        {**SECURED, "sasl_username": "bob"},
        {**SECURED, "sasl_password": "another"},
        {**SECURED, "sasl_mechanism": "PLAIN"},
        {**SECURED, "security_protocol": "SASL_PLAINTEXT"},
        {**SECURED, "ssl_truststore_location": "/another.pem", "ssl_truststore_type": "PEM"},
        {**SECURED, "acks": "1"},
    ):
        assert pool.acquire(config(**other), ["a"]) is not first
    assert pool.acquire(config(**SECURED), ["a"]) is first


def test_the_next_task_gets_the_same_producer_and_two_tasks_at_once_get_two(pool):
    first = kept(pool)
    plan = TopicsPlan("second", {})
    assert pool.acquire(config(), ["b"], plan) is first
    assert first.begun == [(["a"], None), (["b"], plan)]
    assert pool.idle_count == 0
    assert pool.acquire(config(), []) is not first


@pytest.mark.parametrize("is_idle", [False, True])
def test_a_producer_that_failed_is_not_kept(pool, is_idle):
    producer = kept(pool) if is_idle else pool.acquire(config(), [])
    producer.is_healthy = False
    if is_idle:
        assert pool.acquire(config(), []) is not producer
    else:
        pool.release(config(), producer)
    assert producer.is_closed
    assert pool.idle_count == 0


def test_idle_producers_are_closed_after_connections_max_idle_ms(pool, clock):
    producer = kept(pool, connections_max_idle_ms="1000")
    assert producer.until_ms == clock.now_ms() + 1000
    for passes_ms, is_closed in ((999, False), (1, True)):
        clock.ms += passes_ms
        pool.evict()
        assert producer.is_closed is is_closed
    assert pool.idle_count == 0


@pytest.mark.parametrize(("most_ms", "is_kept"), [("1000", False), ("-1", True)])
def test_what_was_idle_for_too_long_is_not_taken_up(pool, clock, most_ms, is_kept):
    """Brokers have closed its connections. Without a limit, none is idle for too long."""
    first = kept(pool, connections_max_idle_ms=most_ms)
    assert (first.until_ms is None) == is_kept
    clock.ms += 10**9 if is_kept else 1000
    assert (pool.acquire(config(connections_max_idle_ms=most_ms), []) is first) == is_kept
    assert first.is_closed != is_kept


def test_only_a_handful_of_configurations_is_kept_and_none_without_producers(pool, clock):
    """They have passwords in them, and there may be a new one for each query."""
    settings = [config(client_id=str(n), connections_max_idle_ms="1000") for n in range(8)]
    producers = [pool.acquire(each, []) for each in settings]
    for each, producer in zip(settings, producers):
        clock.ms += 1
        pool.release(each, producer)
    assert pool.idle_count == len(pool._idle) == 4
    assert [p.is_closed for p in producers] == [True] * 4 + [False] * 4
    clock.ms += 1000
    pool.evict()
    assert pool._idle == {}


def answer_of_fork(answer):
    """What ``answer()`` returns in a fork of this process."""
    child = os.fork()
    if child == 0:
        os._exit(int(answer()))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_forked_child_starts_with_an_empty_pool(pool):
    os.register_at_fork(after_in_child=pool.forget)
    producer = kept(pool)
    assert answer_of_fork(lambda: pool.idle_count + producer.is_closed) == 0
    assert pool.idle_count == 1


# --- a real producer that is kept -----------------------------------------------------------------


@pytest.fixture
def producer():
    (port,) = free_ports(1, "127.0.0.1")
    made = ThreadedProducer(ProducerConfig.parse({"bootstrap.servers": f"127.0.0.1:{port}"}))
    yield made
    made.close()


def test_a_fork_has_neither_its_sender_thread_nor_the_pool(producer, monkeypatch):
    monkeypatch.setitem(pool_module.POOL._idle, producer._config, [pool_module._Idle(producer, 0)])
    assert producer.is_healthy
    assert answer_of_fork(lambda: producer.is_healthy) == 0
    assert answer_of_fork(lambda: pool_module.POOL.idle_count) == 0


def test_one_that_is_closing_is_not_taken_up(producer):
    """Its thread tells brokers the last metrics yet."""
    with producer._monitor:  # the thread goes no further
        producer._is_closing = True
        assert not producer.is_healthy


def test_one_that_is_taken_up_does_not_close_itself(producer):
    producer.mark_idle(producer._clock.now_ms() + 1_000_000)
    assert producer.reactivate()
    assert producer._close_at_ms is None


def test_the_sender_takes_no_turn_while_the_task_waits_or_is_at_work():
    turns = Turns(ThreadMonitor())
    with turns.sender_turn() as is_begun:
        assert is_begun
    turns.is_task_waiting = True
    with turns.sender_turn() as is_begun:
        assert not is_begun
    turns.is_task_waiting = False
    with turns.task_turn(), turns.sender_turn() as is_begun:
        assert not is_begun


def test_the_task_waits_for_the_end_of_a_turn_of_the_sender():
    monitor = ThreadMonitor()
    turns, waits = Turns(monitor), []
    with ExitStack() as turn:
        assert turn.enter_context(turns.sender_turn())
        monitor.wait = lambda timeout_ms: waits.append(turn.close())
        with turns.task_turn():
            assert len(waits) == 1


# --- records that no broker would take ------------------------------------------------------------


def test_a_broker_that_rejects_records_which_a_batch_has_not():
    named = [BatchIndexAndErrorMessage(index, None) for index in (7, 1, -1)]
    response = PartitionProduceResponse(record_errors=named)
    assert [*rejected_rows(3, error_named("INVALID_RECORD"), response)] == [1]


@pytest.mark.parametrize(
    ("rules", "memory_bytes", "more", "error", "words"),
    [
        pytest.param(TopicLimits(), 1 << 20, {}, None, "", id="none has a key"),
        pytest.param(TopicLimits(needs_key=True), 1 << 20, {}, RecordError, "key is null", id="no column of keys"),
        pytest.param(TopicLimits(), 1000, {}, RecordTooLargeError, r"buffer\.memory", id="the memory is a limit too"),
        pytest.param(TopicLimits(100), 1 << 20, {}, RecordTooLargeError, r"max\.message\.bytes", id="too large"),
        pytest.param(TopicLimits(100), 1 << 20, {"compression.type": "zstd"}, None, "", id="what gets smaller"),
    ],
)  # fmt: skip
def test_row_checks(rules, memory_bytes, more, error, words):
    parsed = ProducerConfig.parse({"bootstrap.servers": "b:1", **more})
    batch = pa.record_batch([pa.array([b"a" * 2000])], names=["value"])
    records = arrow_records(batch, ColumnPositions(value=0, topic_option="t"), 0)
    checks = RowChecks(parsed, memory_bytes)
    if error is None:
        checks.check(records, rules)
    else:
        with pytest.raises(error, match=words):
            checks.check(records, rules)
