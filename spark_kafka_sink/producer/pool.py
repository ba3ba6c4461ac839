"""Producers kept between the tasks of a Python worker, as Spark's JVM sink keeps its own.

A producer whose task succeeded serves the next task with the same configuration. It keeps its
connections, metadata, compression estimates and producer id. Otherwise 200 tasks at one-second
triggers would create 17 million producer ids a day in the brokers' state.

One task uses a producer at a time. A producer that failed, or whose task failed, is never kept. An
idle producer is closed after ``connections.max.idle.ms``. A forked process starts with an empty
pool, because threads do not survive a fork and the sockets belong to the parent.

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
    """An idle producer, and the start of its idle time."""

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
        """Return the number of idle producers."""
        return sum(len(waiting) for waiting in self._idle.values())

    def acquire(self, config: ProducerConfig, topics: Sequence[str]) -> ThreadedProducer:
        """Return a producer for one task: a healthy idle one, or a new one."""
        self.evict()
        waiting = self._idle.get(config, [])
        while waiting:
            producer = waiting.pop().producer
            if producer.reactivate():
                producer.begin_task(topics)
                return producer
            producer.close()
        return self._create(config, topics)

    def release(self, config: ProducerConfig, producer: ThreadedProducer) -> None:
        """Keep the producer of a task that was flushed without error, for the next task."""
        if not producer.is_healthy:
            producer.close()
            return
        now_ms, limit_ms = self._clock.now_ms(), config.connections_max_idle_ms
        # If no further task comes, only the producer itself can close it in time.
        producer.mark_idle(now_ms + limit_ms if limit_ms >= 0 else None)
        self._idle.setdefault(config, []).append(_Idle(producer, now_ms))
        self.evict()

    def evict(self) -> None:
        """Close producers that are idle for too long, and the oldest ones above the limit."""
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
        """Drop all producers without closing them; a forked child must call this."""
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
