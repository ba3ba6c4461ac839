"""The states of a connection: the table is whole, and each pause ends when it should."""

from __future__ import annotations

import pytest

from spark_kafka_sink.base.errors import LocalProtocolError
from spark_kafka_sink.base.model import Node
from spark_kafka_sink.network.node_connection import (
    TRANSITIONS,
    ConnectionEvent,
    ConnectionState,
    NodeConnection,
)
from tests.unit.frames import ready_connection

NODE = Node(1, "broker", 9092)
S, E = ConnectionState, ConnectionEvent
WAY_TO_READY = (E.CONNECT, E.CONNECTED, E.SENT, E.USABLE)


def connection_after(*events: ConnectionEvent) -> NodeConnection:
    connection = NodeConnection(NODE, protocol=ready_connection())
    for event in events:
        connection.change(event)
    return connection


def test_one_row_for_each_state_and_event_and_each_has_a_reason():
    assert len({(t.state, t.event) for t in TRANSITIONS}) == len(TRANSITIONS)
    assert all(t.reason for t in TRANSITIONS)


def test_every_state_is_reached_and_left():
    reached, last = {S.DISCONNECTED}, set()
    while reached != last:
        last = reached
        reached = last | {t.next_state for t in TRANSITIONS if t.state in last}
    assert reached == set(S)
    assert {t.state for t in TRANSITIONS if t.next_state is not t.state} == set(S)


def test_whatever_is_going_on_can_fail():
    """Without a connection, and during the pause before the next one, nothing can."""
    failing = {t.state: t.next_state for t in TRANSITIONS if t.event is E.FAIL}
    assert failing == dict.fromkeys(set(S) - {S.DISCONNECTED, S.BACKING_OFF}, S.BACKING_OFF)


@pytest.mark.parametrize("state", S)
def test_an_event_without_a_row_is_an_error_of_this_side(state):
    for event in set(E) - {t.event for t in TRANSITIONS if t.state is state}:
        connection = NodeConnection(NODE, state)
        with pytest.raises(LocalProtocolError, match=f"{event.name} while {state.name}"):
            connection.change(event)
        assert connection.state is state


def test_only_a_ready_connection_takes_a_request():
    for state in S:
        connection = NodeConnection(NODE, state, protocol=ready_connection(), resume_at_ms=1_000)
        assert connection.can_send(0, 5) is (state is S.READY)
    assert not connection_after(*WAY_TO_READY).can_send(0, 0)


@pytest.mark.parametrize("sent_at_ms", [50, 150])
def test_a_pause_that_is_asked_for_while_a_request_is_written(sent_at_ms):
    """Nothing is sent before both are over, in whichever order they end."""
    connection = connection_after(*WAY_TO_READY, E.SEND)
    connection.throttle(0, 100)
    assert connection.poll_delay_ms(0) == 100
    assert not connection.can_send(sent_at_ms, 5)
    connection.change(E.SENT)
    assert connection.can_send(99, 5) is (sent_at_ms > 100)
    assert connection.can_send(max(100, sent_at_ms), 5)


def test_the_longest_pause_counts():
    connection = connection_after(*WAY_TO_READY)
    for until_ms in (100, 300, 200):
        connection.throttle(0, until_ms)
    assert connection.poll_delay_ms(250) == 50
    assert not connection.can_send(299, 5)
    assert connection.can_send(300, 5)


def test_a_lost_connection_forgets_what_it_learned_and_waits():
    connection = connection_after(*WAY_TO_READY)
    connection.throttle(0, 10_000)
    connection.fail("reset by peer", retry_at_ms=50)
    assert connection.last_failure == "reset by peer"
    assert not connection.can_connect(49)
    assert connection.poll_delay_ms(20) == 30
    assert connection.can_connect(50)
    assert connection.poll_delay_ms(50) == 0


def test_an_idle_connection_is_closed_without_back_off():
    connection = connection_after(*WAY_TO_READY)
    connection.close()
    assert connection.can_connect(0)
