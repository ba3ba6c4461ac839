"""Scenarios of authenticated connections, step by step: where the product has the bug that one of them
is made for, it raises AssertionError or the error that fails the task.
"""

from __future__ import annotations

from spark_kafka_sink.base.errors import AuthenticationError
from spark_kafka_sink.network.client import SESSION_OVER_AT_ONCE
from tests.simulation.harness import Simulation
from tests.simulation.sasl import PLAIN, SCRAM, USERS, Sasl, options_of

_LIFETIME_MS = 10_000
_RENEWED_MS = 9_600
_STEP_MS, _ANSWER_MS = 200, 500
_SOON_MS = 1_000
_MOST_OPENED = 100
_SET_UP_MS = 10_000
_LONGEST_SET_UP_MS = 12_000 + _SOON_MS


def requests_in_flight_while_a_session_is_renewed(mechanism: str = PLAIN) -> None:
    """A broker is slow to answer when a session is renewed: its answers come first, in order, and
    nothing is sent twice.
    """
    simulation, sasl = _connected(mechanism, _LIFETIME_MS, connections=3)
    opened = simulation.opened
    for number in range(150):
        _append(simulation, number, _ANSWER_MS, _STEP_MS)
    simulation.producer.flush()
    assert sasl.renewed >= 2
    assert simulation.opened == opened, "a connection is given up to be authenticated"
    assert simulation.producer.metrics.retries == 0
    assert simulation.values()[0] == [b"", *(b"%d" % number for number in range(150))]


def session_that_ends_unused(lifetime_ms: int) -> None:
    """Nothing is sent until a session is over: the connection is made anew, without a failure."""
    simulation, sasl = _connected(PLAIN, lifetime_ms)
    for number in range(5):
        simulation.run_for(lifetime_ms + 1)
        simulation.append_to(0, [b"%d" % number])
        simulation.producer.flush()
    assert simulation.producer.metrics.retries == 0
    assert sasl.renewed == 0
    assert simulation.values()[0] == [b"", *(b"%d" % number for number in range(5))]


def session_that_ends_in_use(lifetime_ms: int) -> None:
    """Too short to be renewed, and requests are in flight all the time: these are waited for."""
    simulation, _ = _connected(PLAIN, lifetime_ms)
    for number in range(100):
        _append(simulation, number, lifetime_ms // 3, lifetime_ms // 7)
    simulation.producer.flush()
    assert simulation.producer.metrics.retries == 0
    assert simulation.values()[0] == [b"", *(b"%d" % number for number in range(100))]


def session_that_is_over_at_once() -> None:
    """As with a token that is about to expire: the broker is not asked again and again without a
    pause, and why nothing is sent is told.
    """
    simulation, sasl = _connected(PLAIN, 0)
    sasl.lifetime_ms, before = 1, simulation.opened
    for broker in simulation.cluster.brokers.values():
        simulation.network.cut_all(broker, "Connection reset by peer")
    simulation.append_to(0, [b"1"])
    simulation.producer._appender.finish_open()
    simulation.run_for(_SET_UP_MS)
    opened = simulation.opened - before
    assert opened <= _MOST_OPENED, f"{opened} connections in {_SET_UP_MS} ms"
    client = simulation.producer.sender._client
    told = [connection.last_failure for connection in client._connections.values()]
    assert SESSION_OVER_AT_ONCE in told
    sasl.lifetime_ms = 0
    simulation.producer.flush()
    assert simulation.values()[0] == [b"", b"1"]


def refused_at_first(mechanism: str) -> None:
    """A password that is wrong: the task fails at once, with the broker's words."""
    sasl = Sasl(mechanism, dict.fromkeys(USERS, "another password"))
    simulation = _secured(sasl)
    started_ms = simulation.clock.ms
    _assert_refused(simulation)
    assert simulation.clock.ms - started_ms < _SOON_MS, "a refusal is tried again"
    assert sasl.refusals == 1


def refused_later() -> None:
    """The password is changed under a connection: the task fails when its session is renewed."""
    simulation, sasl = _connected(PLAIN, _LIFETIME_MS)
    sasl.users = dict.fromkeys(USERS, "another password")
    simulation.run_for(_RENEWED_MS)
    started_ms = simulation.clock.ms
    _assert_refused(simulation)
    assert simulation.clock.ms - started_ms < _SOON_MS, "a refusal is tried again"
    assert sasl.refusals == 1


def broker_that_hangs_in_sasl() -> None:
    """It takes the connection and says nothing more: there is another one when its time is up."""
    sasl = Sasl(PLAIN, dict(USERS), hangs_next=True)
    simulation = _secured(sasl, brokers=1)
    started_ms = simulation.clock.ms
    simulation.append_to(0, [b"1"])
    simulation.producer.flush()
    assert not sasl.hangs_next
    took_ms = simulation.clock.ms - started_ms
    assert took_ms < _LONGEST_SET_UP_MS, f"a broker that hangs in SASL is waited for, {took_ms} ms"
    assert simulation.values()[0] == [b"1"]


def connection_cut_in_sasl(mechanism: str) -> None:
    """Lost, not refused: it is made anew."""
    sasl = Sasl(mechanism, dict(USERS), cuts_next=True)
    simulation = _secured(sasl)
    simulation.append_to(0, [b"1"])
    simulation.producer.flush()
    assert not sasl.cuts_next
    assert simulation.values()[0] == [b"1"]


def _append(simulation: Simulation, number: int, answer_ms: int, then_ms: int) -> None:
    """A record whose answer takes so long, and time for the sender."""
    simulation.network.faults.delay_next_response_ms = answer_ms
    simulation.append_to(0, [b"%d" % number])
    simulation.producer._appender.finish_open()
    simulation.run_for(then_ms)


class _Counted(Simulation):
    """Counts the connections that are made."""

    opened = 0

    def count(self) -> None:
        connect = self.network.connect

        def counting(channel_id, address, host):  # type: ignore[no-untyped-def]
            self.opened += 1
            connect(channel_id, address, host)

        self.network.connect = counting  # type: ignore[method-assign]


def _secured(sasl: Sasl, brokers: int = 3) -> _Counted:
    simulation = _Counted(brokers=brokers, **options_of(sasl))
    simulation.cluster.create_topic("t", 3)
    simulation.cluster.enable_sasl(sasl)
    simulation.count()
    return simulation


def _connected(mechanism: str, lifetime_ms: int, connections: int = 1) -> tuple[_Counted, Sasl]:
    """A producer that has sent a record to the leaders of so many partitions."""
    sasl = Sasl(mechanism, dict(USERS), lifetime_ms)
    simulation = _secured(sasl)
    for partition in range(connections):
        simulation.append_to(partition, [b""])
    simulation.producer.flush()
    return simulation, sasl


def _assert_refused(simulation: Simulation) -> None:
    refusal = ""
    try:
        simulation.append_to(0, [b"1"])
        simulation.producer.flush()
    except AuthenticationError as error:
        refusal = str(error)
    assert "invalid credentials" in refusal, refusal or "let in with a wrong password"


SCENARIOS = (
    (requests_in_flight_while_a_session_is_renewed, PLAIN),
    (requests_in_flight_while_a_session_is_renewed, SCRAM),
    (session_that_ends_unused, 300),
    (session_that_ends_unused, 5_000),
    (session_that_ends_in_use, 300),
    (session_that_ends_in_use, 1_000),
    (session_that_is_over_at_once,),
    (refused_at_first, PLAIN),
    (refused_at_first, SCRAM),
    (refused_later,),
    (broker_that_hangs_in_sasl,),
    (connection_cut_in_sasl, PLAIN),
    (connection_cut_in_sasl, SCRAM),
)
