"""The task thread, while buffer.memory is full: how often it is woken, and that it goes on."""

from __future__ import annotations

import pytest

from spark_kafka_sink.base.errors import BufferExhaustedError, DeliveryError
from tests.simulation.harness import Simulation, simulate
from tests.simulation.monitor import SteppingMonitor

_MEMORY = 1_000_000
_BATCH_SIZE = 10_000
_VALUE = bytes(1000)


def writing(partitions: int = 1, **options: str) -> Simulation:
    """Connected: the leader of partition 0 has the first record."""
    options = {"batch_size": str(_BATCH_SIZE), "buffer_memory": str(_MEMORY), **options}
    simulation = simulate(partitions=partitions, **options)
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
    assert most_waits / 1.5 <= len(waits) <= 1.5 * most_waits < answers / 4
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


def test_a_record_that_takes_more_than_a_quarter_is_waited_for_once():
    simulation = writing()
    simulation.append_to(0, [_VALUE] * 280)
    waits = count_waits(simulation)
    simulation.append_to(0, [bytes(900_000)])
    assert len(waits) == 1
    simulation.producer.flush()
    assert simulation.values()[0][-1] == bytes(900_000)


def test_nobody_waits_for_memory_that_it_has_already():
    """There are 16 pages: 15 are held when the record needs one more, so 4 cannot become free."""
    simulation = writing(buffer_memory="65536")
    large = bytes(62_000)
    simulation.append_to(0, [_VALUE, large])
    assert 0 < simulation.producer.metrics.buffer_wait_ns < 50_000_000
    simulation.producer.flush()
    assert simulation.values()[0] == [b"first", _VALUE, large]


@pytest.mark.parametrize("longest_ms", [20, 500])
def test_a_task_does_not_wait_longer_than_it_may(longest_ms):
    simulation = writing(max_block_ms=str(longest_ms))
    simulation.cluster.brokers[1].is_paused = True
    started_ms = simulation.clock.ms
    with pytest.raises(BufferExhaustedError):
        simulation.append_to(0, [_VALUE] * 2000)
    assert simulation.clock.ms - started_ms == longest_ms


def test_a_failure_ends_the_wait():
    simulation = writing(request_timeout_ms="500", delivery_timeout_ms="1000", linger_ms="0")
    simulation.cluster.brokers[1].is_paused = True
    started_ms = simulation.clock.ms
    with pytest.raises(DeliveryError):
        simulation.append_to(0, [_VALUE] * 2000)
    assert simulation.clock.ms - started_ms < 2_000


@pytest.mark.parametrize("size", [1000, 600_000])
def test_as_much_is_finished_as_is_waited_for(size):
    """All 30 pages are of open batches: a quarter of them or as many as a record needs is sent."""
    simulation = writing(partitions=31, linger_ms="100000", max_block_ms="2000")
    for partition in range(30):
        simulation.append_to(partition, [_VALUE])
    assert simulation.producer.metrics.batches == 1
    simulation.append_to(30, [bytes(size)])
    assert 0 < simulation.producer.metrics.buffer_wait_ns < 50_000_000
    simulation.producer.flush()
    assert simulation.values()[30] == [bytes(size)]


def test_the_largest_batches_are_finished_when_memory_runs_out():
    """Small ones go on growing."""
    simulation = simulate(
        partitions=3, buffer_memory="65536", batch_size="60000", linger_ms="100000"
    )
    produced: list[int] = []
    simulation.cluster.on_produce = lambda broker, topic, index, batch: produced.append(index)
    for partition in (1, 2):
        simulation.append_to(partition, [_VALUE])
    simulation.append_to(0, [_VALUE] * 30)
    simulation.append_to(1, [_VALUE] * 30)
    assert produced == [0]
    simulation.producer.flush()
    assert set(produced) == {0, 1, 2}


def test_the_sender_is_woken_before_a_task_waits():
    """It may wait for the network, and know nothing of what was finished just now."""
    simulation = writing(partitions=31, linger_ms="100000")
    for partition in range(30):
        simulation.append_to(partition, [_VALUE])
    simulation.run_for(100)
    monitor, network = simulation.producer._monitor, simulation.network
    wait, was_woken = monitor.wait, []

    def noting(timeout_ms: int) -> None:
        was_woken.append(network._is_woken)
        wait(timeout_ms)

    monitor.wait = noting  # type: ignore[method-assign]
    simulation.append_to(30, [_VALUE])
    assert was_woken == [True]
    simulation.producer.flush()


def test_the_sender_does_not_take_the_monitor_to_see_that_the_task_is_at_work(monkeypatch):
    simulation = writing()
    appender = simulation.producer._appender
    with appender._turns.task_turn():
        monkeypatch.delattr(SteppingMonitor, "__enter__")
        assert appender.finish_expired_linger(simulation.clock.ms) is None
        monkeypatch.undo()
