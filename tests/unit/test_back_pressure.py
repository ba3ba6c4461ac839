"""Memory of batches: given back when they are complete, and who waits for it is told."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from spark_kafka_sink.base.clock import ExponentialBackoff
from spark_kafka_sink.producer.accumulator import BufferPool, RecordAccumulator
from spark_kafka_sink.producer.monitor import ThreadMonitor
from tests.patience import AN_HOUR_MS, PATIENCE_S
from tests.unit.batches import T0, make_batch
from tests.unit.test_accumulator import NoJitter, drain, enqueue

PAGES, PAGE_SIZE = 8, 4096


@pytest.fixture
def accumulator() -> RecordAccumulator:
    pool = BufferPool(PAGES * PAGE_SIZE, PAGE_SIZE)
    return RecordAccumulator(
        ThreadMonitor(), pool, ExponentialBackoff(100, 1_000, NoJitter()), lambda: None
    )


def test_a_complete_batch_gives_its_memory_back_once(accumulator: RecordAccumulator) -> None:
    batch = make_batch(T0, pages=accumulator.pool.take(3))
    enqueue(accumulator, batch)
    assert accumulator.bytes_by_partition() == {T0: 3 * PAGE_SIZE}
    drain(accumulator, T0)
    assert accumulator.pool.free_count == PAGES - 3
    for _ in range(2):
        accumulator.complete(batch)
        assert accumulator.pool.free_count == PAGES
    assert accumulator.incomplete_count == 0


@pytest.fixture
def waiting_task(
    accumulator: RecordAccumulator,
) -> Iterator[tuple[threading.Event, threading.Thread]]:
    """A task thread that waits for memory or a failure, under the monitor."""
    waits = threading.Event()

    def wait() -> None:
        with accumulator.monitor:
            while accumulator.pool.free_count == 0 and accumulator.failure is None:
                waits.set()
                accumulator.monitor.wait(AN_HOUR_MS)

    thread = threading.Thread(target=wait, daemon=True)
    yield waits, thread
    thread.join(PATIENCE_S)
    assert not thread.is_alive()


@pytest.mark.parametrize("how", ["complete", "replace", "fail"])
def test_back_pressure_ends_with_memory_or_failure(
    accumulator: RecordAccumulator,
    waiting_task: tuple[threading.Event, threading.Thread],
    how: str,
) -> None:
    """The task must be woken, not found awake by its own timeout."""
    batch = make_batch(T0, pages=accumulator.pool.take(PAGES))
    enqueue(accumulator, batch)
    drain(accumulator, T0)
    waits, thread = waiting_task
    thread.start()
    assert waits.wait(PATIENCE_S)
    if how == "complete":
        accumulator.complete(batch)
    elif how == "replace":
        accumulator.replace(batch, [make_batch(T0)], 0)
    else:
        accumulator.fail(RuntimeError("broken"))
    thread.join(PATIENCE_S)
    assert not thread.is_alive()


def test_who_waits_is_told_of_as_much_memory_as_it_waits_for_and_of_the_end(
    accumulator: RecordAccumulator,
) -> None:
    batches = [make_batch(T0, pages=accumulator.pool.take(1)) for _ in range(PAGES)]
    enqueue(accumulator, *batches)
    told: list[int] = []
    accumulator.monitor.notify_all = lambda: told.append(  # type: ignore[method-assign]
        accumulator.pool.free_count
    )
    with accumulator.monitor, accumulator.awaiting_pages(3):
        for batch in batches[:4]:
            accumulator.complete(batch)
    for batch in batches[4:]:
        accumulator.complete(batch)
    assert told == [3, 4, PAGES]
