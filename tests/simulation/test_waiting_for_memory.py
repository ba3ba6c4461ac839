"""The task thread, while buffer.memory is full: how often it is woken, and that it goes on."""

from __future__ import annotations

from tests.simulation.harness import Simulation, simulate

_MEMORY = 1_000_000
_BATCH_SIZE = 10_000
_VALUE = bytes(1000)


def writing(**options: str) -> Simulation:
    """One partition, connected: its leader has the first record."""
    options = {"batch_size": str(_BATCH_SIZE), "buffer_memory": str(_MEMORY), **options}
    simulation = simulate(partitions=1, **options)
    simulation.append_to(0, [b"first"])
    simulation.producer.flush()
    return simulation


def count_waits(simulation: Simulation) -> list[int]:
    """Grows by one with each wait of the task thread."""
    monitor, waits = simulation.producer._monitor, []
    wait = monitor.wait

    def counted(timeout_ms: int) -> None:
        waits.append(timeout_ms)
        wait(timeout_ms)

    monitor.wait = counted  # type: ignore[method-assign]
    return waits


def test_a_task_is_not_woken_by_each_answer():
    simulation = writing(batch_size=str(_BATCH_SIZE * 3))
    waits = count_waits(simulation)
    count = 8000
    simulation.append_to(0, [_VALUE] * count)
    most_waits = count * len(_VALUE) / (_MEMORY / 4)
    answers = simulation.producer.metrics.responses
    assert 1 < len(waits) <= 1.5 * most_waits < answers / 4
    simulation.producer.flush()
    assert len(simulation.values()[0]) == 1 + count


def test_a_flush_is_woken_once():
    simulation = writing()
    simulation.append_to(0, [_VALUE] * 500)
    waits = count_waits(simulation)
    simulation.producer.flush()
    assert len(waits) == 1
    assert len(simulation.values()[0]) == 501


def test_a_task_goes_on_with_little_memory_where_brokers_are_slow():
    """There are 30 pages, one for each batch: a quarter would take 6 seconds, one of them one."""
    simulation = writing(max_in_flight_requests_per_connection="1")
    simulation.network.faults.latency_ms = 400, 400
    simulation.append_to(0, [_VALUE] * 270)
    started_ms = simulation.clock.ms
    simulation.append_to(0, [_VALUE] * 20)
    assert simulation.producer.metrics.buffer_wait_ns > 0, "there was enough memory"
    assert simulation.clock.ms - started_ms < 5_000
    simulation.producer.flush()


def test_a_record_that_takes_almost_all_memory_passes():
    simulation = writing(buffer_memory="65536")
    large = bytes(60_000)
    simulation.append_to(0, [_VALUE] * 60)
    simulation.append_to(0, [large, _VALUE, large])
    simulation.producer.flush()
    assert simulation.values()[0][-3:] == [large, _VALUE, large]


def test_a_task_that_may_wait_for_a_moment_only_takes_what_is_free_by_then():
    """Each answer gives one page back: after 20 ms there is the one that is needed, no quarter."""
    simulation = writing(max_in_flight_requests_per_connection="1", max_block_ms="20")
    simulation.network.faults.latency_ms = 5, 5
    simulation.append_to(0, [_VALUE] * 500)
    assert simulation.producer.metrics.buffer_wait_ns > 0, "there was enough memory"
    simulation.producer.flush()
    assert len(simulation.values()[0]) == 501
