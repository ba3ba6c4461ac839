"""The rows of a task, how long it has waited for them, and what it has loaded before the first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from spark_kafka_sink.base.clock import SystemClock
from spark_kafka_sink.producer.metrics import ProducerMetrics

if TYPE_CHECKING:
    import pyarrow as pa


class TimedInput:
    """Arrow batches as they come, those without rows left out.

    started_at_ms: when the task began to wait for the first, since 1970
    """

    def __init__(self, arrow_batches: Iterable[pa.RecordBatch]) -> None:
        self._clock = SystemClock()
        self.started_at_ms = self._clock.timestamp_ms()
        self._started_ns = self._clock.perf_ns()
        self._waited_ns = self._loaded_ns = 0
        self._arrow_batches = iter(arrow_batches)
        self._first: pa.RecordBatch | None = None

    @classmethod
    def of(cls, arrow_batches: Iterable[pa.RecordBatch]) -> TimedInput:
        """Such as are timed already go on as they are."""
        return arrow_batches if isinstance(arrow_batches, cls) else cls(arrow_batches)

    def has_rows(self) -> bool:
        """Wait until it is known. To be called once, before the rows are taken."""
        self._first = next(self, None)
        return self._first is not None

    @contextmanager
    def loading(self) -> Iterator[None]:
        """What is done meanwhile is what a new process does once."""
        started_ns = self._clock.perf_ns()
        yield
        self._loaded_ns += self._clock.perf_ns() - started_ns

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self

    def __next__(self) -> pa.RecordBatch:
        if self._first is not None:
            first, self._first = self._first, None
            return first
        started_ns = self._clock.perf_ns()
        try:
            while not (arrow_batch := next(self._arrow_batches)).num_rows:
                pass
        finally:
            self._waited_ns += self._clock.perf_ns() - started_ns
        return arrow_batch

    def note_in(self, metrics: ProducerMetrics) -> None:
        """How long the task has taken until now, loaded, and waited for rows."""
        metrics.task_ns = self._clock.perf_ns() - self._started_ns
        metrics.load_ns = self._loaded_ns
        metrics.input_wait_ns = self._waited_ns
