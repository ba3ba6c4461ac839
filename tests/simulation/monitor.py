"""A monitor that steps the sender where the producer's task thread would wait for it."""

from __future__ import annotations

from spark_kafka_sink.producer.producer import KafkaProducer
from tests.simulation.time import SimClock


class SteppingMonitor:
    """A Monitor without threads. ``producer``: set as soon as there is one, before any wait."""

    def __init__(self, clock: SimClock) -> None:
        self.clock = clock
        self.producer: KafkaProducer | None = None
        self._is_notified = False

    def __enter__(self) -> object:
        return self

    def __exit__(self, *exception: object) -> None:
        return None

    def wait(self, timeout_ms: int) -> None:
        """Step the sender until it has notified, or the time is over."""
        assert self.producer is not None
        until_ms = self.clock.ms + timeout_ms
        self._is_notified = False
        while not self._is_notified and self.clock.ms < until_ms:
            before_ms = self.clock.ms
            self._step(self.producer, until_ms)
            # A failed producer has nothing left to do.
            if self.producer.accumulator.failure is not None and self.clock.ms == before_ms:
                self._pass_time()

    def notify_all(self) -> None:
        self._is_notified = True

    def _step(self, producer: KafkaProducer, until_ms: int) -> None:
        raise NotImplementedError

    def _pass_time(self) -> None:
        raise NotImplementedError
