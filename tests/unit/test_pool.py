"""Producers between tasks: reused when healthy, closed when not, gone when idle for long."""

from __future__ import annotations

import os

from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.producer.pool import ProducerPool
from tests.simulation.time import SimClock


class FakeProducer:
    """Stands in for ThreadedProducer: the pool asks for health, and closes."""

    def __init__(self, config, topics):
        self.config = config
        self.topics = [list(topics)]
        self.is_healthy = True
        self.is_closed = False

    def mark_idle(self, until_ms):
        self.until_ms = until_ms

    def reactivate(self):
        return self.is_healthy

    def begin_task(self, topics):
        self.topics.append(list(topics))

    def close(self):
        self.is_closed = True


def config(**options):
    values = {"bootstrap.servers": "b:9092"}
    values.update({name.replace("_", "."): value for name, value in options.items()})
    return ProducerConfig.parse(values)


def make_pool():
    clock = SimClock()
    return ProducerPool(FakeProducer, clock), clock


SECURED = {
    "security_protocol": "SASL_SSL",
    "sasl_mechanism": "SCRAM-SHA-512",
    "sasl_username": "alice",
    "sasl_password": "alices",
}


def test_nobody_gets_the_producer_of_another_user():
    """The configuration includes who it is: a pool by brokers alone would mix users up."""
    pool, _ = make_pool()
    first = pool.acquire(config(**SECURED), ["a"])
    pool.release(config(**SECURED), first)
    others = (
        {},
        {**SECURED, "sasl_username": "bob"},
        {**SECURED, "sasl_password": "another"},
        {**SECURED, "sasl_mechanism": "PLAIN"},
        {**SECURED, "security_protocol": "SASL_PLAINTEXT"},
        {**SECURED, "ssl_truststore_location": "/another.pem", "ssl_truststore_type": "PEM"},
    )
    for other in others:
        assert pool.acquire(config(**other), ["a"]) is not first
    assert pool.acquire(config(**SECURED), ["a"]) is first


def test_the_next_task_gets_the_same_producer():
    pool, _ = make_pool()
    first = pool.acquire(config(), ["a"])
    pool.release(config(), first)
    assert pool.acquire(config(), ["b"]) is first
    assert first.topics == [["a"], ["b"]]
    assert pool.idle_count == 0


def test_two_tasks_at_once_get_two():
    pool, _ = make_pool()
    assert pool.acquire(config(), []) is not pool.acquire(config(), [])


def test_another_configuration_gets_another_producer():
    pool, _ = make_pool()
    first = pool.acquire(config(), [])
    pool.release(config(), first)
    assert pool.acquire(config(acks="1"), []) is not first


def test_a_producer_that_failed_is_not_kept():
    pool, _ = make_pool()
    producer = pool.acquire(config(), [])
    producer.is_healthy = False
    pool.release(config(), producer)
    assert producer.is_closed
    assert pool.idle_count == 0


def test_a_producer_that_failed_while_idle_is_replaced():
    pool, _ = make_pool()
    producer = pool.acquire(config(), [])
    pool.release(config(), producer)
    producer.is_healthy = False
    assert pool.acquire(config(), []) is not producer
    assert producer.is_closed


def test_idle_producers_are_closed_after_connections_max_idle_ms():
    pool, clock = make_pool()
    settings = config(connections_max_idle_ms="1000")
    producer = pool.acquire(settings, [])
    pool.release(settings, producer)
    assert producer.until_ms == clock.now_ms() + 1000
    clock.ms += 999
    pool.evict()
    assert not producer.is_closed
    clock.ms += 1
    pool.evict()
    assert producer.is_closed
    assert pool.idle_count == 0


def test_only_a_handful_of_configurations_is_kept():
    pool, clock = make_pool()
    producers = []
    for number in range(8):
        settings = config(client_id=str(number))
        producers.append(pool.acquire(settings, []))
    for number, producer in enumerate(producers):
        clock.ms += 1
        pool.release(config(client_id=str(number)), producer)
    assert pool.idle_count == 4
    assert [p.is_closed for p in producers] == [True] * 4 + [False] * 4


def test_a_forked_child_starts_with_an_empty_pool():
    pool, _ = make_pool()
    os.register_at_fork(after_in_child=pool.forget)
    producer = pool.acquire(config(), [])
    pool.release(config(), producer)
    child = os.fork()
    if child == 0:
        os._exit(0 if pool.idle_count == 0 and not producer.is_closed else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert pool.idle_count == 1


def test_what_was_idle_for_too_long_is_not_taken_up():
    """Brokers have closed its connections."""
    pool, clock = make_pool()
    settings = config(connections_max_idle_ms="1000")
    first = pool.acquire(settings, [])
    pool.release(settings, first)
    clock.ms += 1000
    assert pool.acquire(settings, []) is not first
    assert first.is_closed


def test_without_a_limit_none_is_idle_for_too_long():
    pool, clock = make_pool()
    settings = config(connections_max_idle_ms="-1")
    first = pool.acquire(settings, [])
    pool.release(settings, first)
    assert first.until_ms is None
    clock.ms += 10**9
    assert pool.acquire(settings, []) is first


def test_configurations_without_producers_are_forgotten():
    """They have passwords in them, and there may be a new one for each query."""
    pool, clock = make_pool()
    for number in range(8):
        settings = config(client_id=str(number), connections_max_idle_ms="1000")
        pool.release(settings, pool.acquire(settings, []))
    assert len(pool._idle) == 4
    clock.ms += 1000
    pool.evict()
    assert pool._idle == {}
