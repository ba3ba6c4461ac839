"""Scenarios of a producer that random lives reach rarely, step by step: where the producer has the bug
that one of them is made for, it raises AssertionError or the error that fails the task.
"""

from __future__ import annotations

from spark_kafka_sink.base.errors import DeliveryError
from tests.simulation.harness import Simulation, simulate

_FIRST, _SECOND = b"1", b"2"
_LEADER, _NEXT_LEADER, _LATE_BROKER = 1, 2, 3
_REQUEST_TIMEOUT_MS = 5_000
_LOOK_UP_MS = 40_000
_SOON_MS, _AT_ONCE_MS = 1_000, 100


def moved_leader_of_a_retry() -> None:
    """A leader hangs with a batch that it has not appended. Its partition moves, and the producer
    knows where to before it gives that batch up: those after it must wait.
    """
    simulation = _with_a_leader_that_hangs(
        acks="1",
        enable_idempotence="false",
        max_in_flight_requests_per_connection="1",
        metadata_max_age_ms="500",
    )
    _send(simulation, 0, _FIRST)
    simulation.cluster.move_leader("t", 0, _NEXT_LEADER)
    simulation.run_for(_SOON_MS)
    _send(simulation, 0, _SECOND)
    simulation.run_for(_SOON_MS)
    simulation.producer.flush()
    assert simulation.values()[0] == [b"", _FIRST, _SECOND], "a batch has overtaken one before it"


def request_without_answer() -> None:
    """A leader hangs with a batch that it has not appended, and is replaced."""
    simulation = _with_a_leader_that_hangs()
    _send(simulation, 0, _FIRST)
    simulation.cluster.move_leader("t", 0, _NEXT_LEADER)
    simulation.cluster.topics["t"].partitions[0].shrink_isr(_LEADER)
    simulation.producer.flush()
    assert simulation.values()[0] == [b"", _FIRST], "acknowledged, and nowhere"


def brokers_that_learn_late() -> None:
    """A leader dies, and another broker goes on calling it the leader for a while: what the
    producer has heard of the next one stays.
    """
    simulation = _connected(metadata_max_age_ms="200")
    cluster = simulation.cluster
    cluster.unaware_until_ms[_LATE_BROKER] = simulation.clock.ms + 10 * _SOON_MS
    cluster.move_leader("t", 0, _NEXT_LEADER)
    simulation.append_to(0, [_FIRST])
    simulation.producer.flush()
    cluster.crash(_LEADER, election_delay_ms=0)
    for _ in range(10):
        simulation.run_for(_SOON_MS // 2)
        simulation.append_to(0, [_SECOND])
        started_ms = simulation.clock.ms
        simulation.producer.flush()
        assert simulation.clock.ms - started_ms < _AT_ONCE_MS, "sent to a leader of the past"


def slow_name() -> None:
    """The name of one leader is looked up for long: the others' batches go on, and its own come."""
    simulation = _connected()
    simulation.network.names.takes_ms["broker-2"] = _LOOK_UP_MS
    soon: list[bytes | None] = []
    simulation.scheduler.after(_SOON_MS, lambda: soon.extend(simulation.values()[0]))
    _send(simulation, 1, _SECOND)
    _send(simulation, 0, _FIRST)
    simulation.producer.flush()
    assert soon == [b"", _FIRST], "a broker waits for another one's name"
    assert simulation.values()[1] == [_SECOND]


def name_that_is_too_slow() -> None:
    """The name of a leader is looked up for longer than a batch may wait."""
    timeout_ms = 2 * _REQUEST_TIMEOUT_MS
    simulation = _connected(
        delivery_timeout_ms=str(timeout_ms), request_timeout_ms=str(_REQUEST_TIMEOUT_MS)
    )
    simulation.network.names.takes_ms["broker-2"] = _LOOK_UP_MS
    simulation.append_to(1, [_SECOND])
    failure = ""
    try:
        simulation.producer.flush()
    except DeliveryError as error:
        failure = str(error)
    assert f"{timeout_ms} ms old" in failure, "a look-up outlasts delivery.timeout.ms"
    assert "broker-2:9092), cannot be reached: its host name is still being looked up" in failure


def _connected(**options: str) -> Simulation:
    """A producer that has sent a record to partition 0, and is connected to its leader."""
    simulation = simulate(**options)
    simulation.append_to(0, [b""])
    simulation.producer.flush()
    return simulation


def _with_a_leader_that_hangs(**options: str) -> Simulation:
    simulation = _connected(request_timeout_ms=str(_REQUEST_TIMEOUT_MS), **options)
    simulation.cluster.brokers[_LEADER].is_paused = True
    return simulation


def _send(simulation: Simulation, partition: int, value: bytes) -> None:
    """Let the sender have the record, and some rounds to send it."""
    simulation.append_to(partition, [value])
    simulation.producer._appender.finish_open()
    simulation.run_for(20)


def racks_that_change() -> None:
    """Rows without key follow the rack to its new leaders."""
    options = {"partitioner_rack_aware": "true", "client_rack": "a", "batch_size": "500"}
    simulation = simulate(partitions=3, **options)
    for led in (0, 2, 1):
        simulation.cluster.racks = {led + 1: "a"}  # broker n + 1 leads partition n
        simulation.run_for(1_000)
        simulation.producer._metadata.request_update_now()
        simulation.run_for(1_000)
        simulation.append([(None, b"x" * 600)])  # finishes the batch of the partition before
        simulation.producer.flush()
        before = simulation.values()
        simulation.append([(None, b"x" * 100)] * 50)
        simulation.producer.flush()
        after = simulation.values()
        assert {p for p in after if len(after[p]) > len(before[p])} == {led}
