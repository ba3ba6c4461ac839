"""Producers kept between tasks of a Python worker, as Spark's JVM sink keeps its own.

A producer that ended a task well goes on to the next one with the same configuration: connections,
metadata, compression estimates and the producer id stay. Without that, 200 tasks at one-second
triggers would make 17 million producer ids a day for the brokers to remember.

One task uses a producer at a time. A producer that failed, or whose task did, is never kept. An
idle one is closed after ``connections.max.idle.ms``. A process that was forked starts with nothing:
threads do not survive a fork, and its sockets belong to the parent.

Source: ``InternalKafkaProducerPool`` of Spark.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import NamedTuple

from spark_kafka_sink.base.clock import Clock, SystemClock
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.producer.producer import ThreadedProducer

_MOST_IDLE = 4


class _Idle(NamedTuple):
    """A producer that waits for its next task."""

    producer: ThreadedProducer
    since_ms: int


class ProducerPool:
    """Idle producers by configuration, which includes the security identity."""

    def __init__(
        self,
        create: Callable[[ProducerConfig, Sequence[str]], ThreadedProducer] = ThreadedProducer,
        clock: Clock | None = None,
    ) -> None:
        self._create = create
        self._clock = SystemClock() if clock is None else clock
        self._idle: dict[ProducerConfig, list[_Idle]] = {}

    @property
    def idle_count(self) -> int:
        """Producers that wait for a task."""
        return sum(len(waiting) for waiting in self._idle.values())

    def acquire(self, config: ProducerConfig, topics: Sequence[str]) -> ThreadedProducer:
        """A producer for one task: one that is idle and healthy, or a new one."""
        self.evict()
        waiting = self._idle.get(config, [])
        while waiting:
            producer = waiting.pop().producer
            if producer.resume():
                producer.begin_task(topics)
                return producer
            producer.close()
        return self._create(config, topics)

    def release(self, config: ProducerConfig, producer: ThreadedProducer) -> None:
        """Keep a producer whose task was flushed without error, for the next task."""
        if not producer.is_healthy:
            producer.close()
            return
        now_ms, limit_ms = self._clock.now_ms(), config.connections_max_idle_ms
        # It also closes itself: there may be no next task, which would close it.
        producer.rest(now_ms + limit_ms if limit_ms >= 0 else None)
        self._idle.setdefault(config, []).append(_Idle(producer, now_ms))
        self.evict()

    def evict(self) -> None:
        """Close what has been idle for too long, and the oldest ones when there are too many."""
        now_ms = self._clock.now_ms()
        for config, waiting in list(self._idle.items()):
            limit_ms = config.connections_max_idle_ms
            expired = [i for i in waiting if 0 <= limit_ms <= now_ms - i.since_ms]
            for idle in expired:
                waiting.remove(idle)
                idle.producer.close()
            if not waiting:
                del self._idle[config]
        while self.idle_count > _MOST_IDLE:
            config, oldest = min(
                ((config, waiting[0]) for config, waiting in self._idle.items()),
                key=lambda entry: entry[1].since_ms,
            )
            self._idle[config].remove(oldest)
            oldest.producer.close()
            if not self._idle[config]:
                del self._idle[config]

    def forget(self) -> None:
        """Drop everything without closing: what a forked child must do."""
        self._idle.clear()

    def close(self) -> None:
        """Close every idle producer."""
        for waiting in self._idle.values():
            for idle in waiting:
                idle.producer.close()
        self._idle.clear()


POOL = ProducerPool()
"""The pool of this Python worker."""

os.register_at_fork(after_in_child=POOL.forget)
