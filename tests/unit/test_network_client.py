"""Connections of the client: the states of one, how long it may take, pauses before the next one,
what is looked up and asked again, and which versions are spoken by what a broker says of itself.

Real answers to ApiVersions come from ``tests/unit/data``, where ``record_api_versions`` puts them;
those of brokers that are too old to be started here are built by hand. Their ranges are facts of the
message definitions, read off Apache Kafka's tags 2.1.1, 2.4.0 and 0.10.2.2.
"""

from __future__ import annotations

import random
import re
import struct
from typing import NamedTuple

import pytest

from spark_kafka_sink.base import errors
from spark_kafka_sink.base.model import Node
from spark_kafka_sink.base.text import Secret
from spark_kafka_sink.network import channels
from spark_kafka_sink.network.admin import DEFAULT_SETTINGS, AdminClient
from spark_kafka_sink.network.client import (
    ClientSettings,
    NetworkClient,
    ThrottleTimes,
    alternating,
    sasl_hint,
)
from spark_kafka_sink.network.node_connection import (
    TRANSITIONS,
    ConnectionEvent,
    ConnectionState,
    NodeConnection,
)
from spark_kafka_sink.protocol import api
from spark_kafka_sink.protocol.connection import Authentication
from spark_kafka_sink.protocol.messages import topics as topic_api
from spark_kafka_sink.protocol.messages.client import ApiVersionsRequest
from spark_kafka_sink.protocol.messages.transactions import InitProducerIdRequest
from spark_kafka_sink.security.mechanisms import PlainSaslClient
from tests.simulation.time import SimClock
from tests.tables import each_row
from tests.unit.batches import NODES
from tests.unit.frames import answer_frame, read_request, ready_connection
from tests.unit.record_api_versions import recorded
from tests.unit.scripted_network import LoseConnection, ScriptedNetwork
from tests.unit.simulated_time import NO_JITTER

NODE = NODES[1]

# --- the states of one connection -----------------------------------------------------------------

S, E = ConnectionState, ConnectionEvent
WAY_TO_READY = (E.CONNECT, E.CONNECTED, E.SENT, E.USABLE)


def connection_after(*events):
    connection = NodeConnection(NODE, protocol=ready_connection())
    for event in events:
        connection.change(event)
    return connection


class TestStates:
    def test_every_state_is_reached_and_left_and_whatever_is_going_on_can_fail(self):
        """Without a connection, and during the pause before the next one, nothing can."""
        reached, last = {S.DISCONNECTED}, set()
        while reached != last:
            last = reached
            reached = last | {t.next_state for t in TRANSITIONS if t.state in last}
        assert reached == set(S)
        assert {t.state for t in TRANSITIONS if t.next_state is not t.state} == set(S)
        failing = {t.state: t.next_state for t in TRANSITIONS if t.event is E.FAIL}
        assert failing == dict.fromkeys(set(S) - {S.DISCONNECTED, S.BACKING_OFF}, S.BACKING_OFF)

    @each_row("state", S)
    def test_an_event_without_a_row_is_an_error_of_this_side(self, state):
        for event in set(E) - {t.event for t in TRANSITIONS if t.state is state}:
            connection = NodeConnection(NODE, state)
            with pytest.raises(errors.LocalProtocolError, match=f"{event.name} while {state.name}"):
                connection.change(event)
            assert connection.state is state

    def test_only_a_ready_connection_takes_a_request(self):
        for state in S:
            protocol = ready_connection()
            connection = NodeConnection(NODE, state, protocol=protocol, resume_at_ms=1_000)
            assert connection.can_send(0, 5) is (state is S.READY)
        assert not connection_after(*WAY_TO_READY).can_send(0, 0)

    @pytest.mark.parametrize("sent_at_ms", [50, 150])
    def test_a_pause_that_is_asked_for_while_a_request_is_written(self, sent_at_ms):
        """Nothing is sent before both are over, in whichever order they end."""
        connection = connection_after(*WAY_TO_READY, E.SEND)
        connection.throttle(0, 100)
        assert connection.poll_delay_ms(0) == 100
        assert not connection.can_send(sent_at_ms, 5)
        connection.change(E.SENT)
        assert connection.can_send(99, 5) is (sent_at_ms > 100)
        assert connection.can_send(max(100, sent_at_ms), 5)

    def test_the_longest_pause_counts(self):
        connection = connection_after(*WAY_TO_READY)
        for until_ms in (100, 300, 200):
            connection.throttle(0, until_ms)
        assert connection.poll_delay_ms(250) == 50
        assert not connection.can_send(299, 5)
        assert connection.can_send(300, 5)

    def test_a_lost_connection_forgets_what_it_learned_and_waits(self):
        connection = connection_after(*WAY_TO_READY)
        connection.throttle(0, 10_000)
        connection.fail("reset by peer", retry_at_ms=50)
        assert connection.last_failure == "reset by peer"
        assert not connection.can_connect(49)
        assert connection.poll_delay_ms(20) == 30
        assert connection.can_connect(50)
        assert connection.poll_delay_ms(50) == 0


def test_pauses_that_overlap_are_one_and_those_of_the_past_are_forgotten():
    """Else time would be counted twice, and a query of weeks would remember each."""
    pauses = ThrottleTimes()
    for from_ms, until_ms in ((0, 100), (50, 80), (100, 120), (500, 600)):
        pauses.note(1, from_ms, until_ms)
    assert pauses.between(1, 0, 1_000) == [(0, 120), (500, 600)]
    pauses.note(2, 0, 10)
    assert pauses.latest_end_ms == 600
    pauses.forget_before(130)
    assert pauses.between(1, 0, 1_000) == [(500, 600)]
    assert pauses.between(2, 0, 1_000) == []


# --- one client, and brokers whose connections break as soon as they are asked something ----------

REQUEST_TIMEOUT_MS, SETUP_MS, LONGEST_SETUP_MS = 30_000, 10_000, 30_000
BACKOFF_MS, LONGEST_BACKOFF_MS = 50, 1_000
IDLE_MS, NEVER_MS = 540_000, -1
MOVED = Node(1, "other.example", 9092)


class World:
    """``addresses_count``: of each name. ``resolved``, ``connected``: names, addresses, in order.

    silent, refusing: numbers of addresses to which connections never come about, or are refused
    expires_after_ms: the life of the client's certificate, from each connection on
    """

    def __init__(self, max_idle_ms=IDLE_MS):
        self.clock = SimClock(0)
        offered = {InitProducerIdRequest: (0, 5), topic_api.MetadataRequest: (0, 12)}
        self.network = ScriptedNetwork(NODES, self.clock, self._answer, offered)
        self.network.resolve, self.network.connect = self._resolve, self._connect
        self.resolved, self.connected, self.addresses_count = [], [], 1
        self.silent, self.refusing, self.expires_after_ms = set(), set(), None
        waits = SETUP_MS, LONGEST_SETUP_MS, max_idle_ms
        settings = ClientSettings(
            "test", REQUEST_TIMEOUT_MS, 5, BACKOFF_MS, LONGEST_BACKOFF_MS, *waits
        )
        self.client = NetworkClient(settings, self.network, self.clock, NO_JITTER)

    def _answer(self, asked):
        raise LoseConnection

    def _resolve(self, channel_id, host, port):
        self.resolved.append(host)
        numbers = range(self.addresses_count)
        found = [channels.Address(0, (f"{host}/{number}", port)) for number in numbers]
        self.network._events.append(channels.Resolved(channel_id, found))

    def _connect(self, channel_id, address, host):
        self.connected.append(str(address))
        number = int(str(address).rpartition("/")[2])
        if number in self.silent:
            return
        if number in self.refusing:
            self.network._events.append(channels.Disconnected(channel_id, "Connection refused"))
            return
        ScriptedNetwork.connect(self.network, channel_id, channels.Address(0, NODE[1:3]), host)
        if self.expires_after_ms is not None:
            at_ms = self.clock.timestamp_ms() + self.expires_after_ms
            self.network._events[-1] = channels.Connected(channel_id, at_ms)

    def fails_after(self):
        """Connect, wait until it fails; how long the attempt took."""
        self.wait_for_back_off()
        started_ms = self.clock.ms
        while self.client.poll_delay_ms(NODE, self.clock.ms) in (None, 0):
            self.client.ready(NODE, self.clock.ms)
            self.client.poll(1_000_000, self.clock.ms)
        return self.clock.ms - started_ms

    def wait_for_back_off(self):
        """How long it was."""
        delay_ms = self.client.poll_delay_ms(NODE, self.clock.ms)
        self.clock.ms += delay_ms
        return delay_ms

    def become_ready(self, node=NODE):
        while not self.client.ready(node, self.clock.ms):
            self.client.poll(1_000, self.clock.ms)

    def is_ready(self):
        return self.client.ready(NODE, self.clock.ms)

    def begin(self, is_far_enough):
        while not is_far_enough():
            self.client.ready(NODE, self.clock.ms)
            self.client.poll(0, self.clock.ms)

    def send(self, request):
        """What the response will be."""
        found = []
        self.client.send(NODE, request, self.clock.ms, lambda result, _: found.append(result))
        return found

    def lose_when_ready(self):
        self.wait_for_back_off()
        self.become_ready()
        self.send(InitProducerIdRequest())
        while self.client.in_flight_count(NODE):
            self.client.poll(1_000, self.clock.ms)

    def lose(self):
        (channel_id,) = self.client._by_channel
        self.network._events.append(channels.Disconnected(channel_id, "reset"))
        self.client.poll(0, self.clock.ms)


@pytest.fixture
def world():
    return World()


class TestTimeouts:
    def test_an_address_that_does_not_answer_has_longer_and_longer(self, world):
        world.network.unreachable.add(1)
        expected = [SETUP_MS, 2 * SETUP_MS, LONGEST_SETUP_MS, LONGEST_SETUP_MS]
        assert [world.fails_after() for _ in expected] == expected
        assert world.client.last_failure(NODE) == "no connection in time"

    def test_the_first_question_has_the_time_of_any_question(self, world):
        """``socket.connection.setup.timeout.ms`` is for the connection alone, as its name says."""
        world.network.hung.add(1)
        assert [world.fails_after() for _ in range(3)] == [REQUEST_TIMEOUT_MS] * 3
        assert "request.timeout.ms" in world.client.last_failure(NODE)

    @pytest.mark.parametrize("was_ready", [True, False])
    def test_a_connection_that_was_good_does_not_make_the_next_attempt_longer(
        self, world, was_ready
    ):
        if was_ready:
            world.lose_when_ready()
        else:
            world.network.hung.add(1)
            world.fails_after()
        world.network.unreachable.add(1)
        assert world.fails_after() == SETUP_MS

    def test_the_pause_grows_until_a_connection_is_ready_again(self, world):
        """A lost connection that was ready counts as the first failure, as in the Java client."""
        world.network.down.add(1)
        pauses = []
        for _ in range(6):
            world.fails_after()
            pauses.append(world.client.poll_delay_ms(NODE, world.clock.ms))
        assert pauses == [50, 100, 200, 400, 800, 1_000]
        world.network.down.clear()
        world.lose_when_ready()
        assert world.wait_for_back_off() == BACKOFF_MS
        world.network.down.add(1)
        world.fails_after()
        assert world.wait_for_back_off() == 2 * BACKOFF_MS

    @pytest.mark.parametrize(("max_idle_ms", "is_closed"), [(IDLE_MS, True), (NEVER_MS, False)])
    def test_a_connection_is_closed_when_it_was_idle_for_so_long(self, max_idle_ms, is_closed):
        world = World(max_idle_ms)
        world.become_ready()
        ready_at_ms = world.clock.ms
        world.client.poll(10 * IDLE_MS, world.clock.ms)
        assert world.clock.ms == ready_at_ms + (IDLE_MS if is_closed else 10 * IDLE_MS)
        assert world.client.is_any_connected([NODE]) != is_closed
        assert world.client.last_failure(NODE) is None

    def test_the_request_that_was_sent_first_ends_the_wait(self, world):
        world.become_ready()
        world.network.hung.add(1)
        results, started_ms = [], world.clock.ms
        for _ in range(2):
            world.become_ready()
            results.append(world.send(InitProducerIdRequest()))
            world.client.poll(0, world.clock.ms)
            world.clock.ms += 10_000
        world.client.poll(10 * REQUEST_TIMEOUT_MS, world.clock.ms)
        assert world.clock.ms == started_ms + REQUEST_TIMEOUT_MS
        assert [result.is_timeout for (result,) in results] == [True, True]

    def test_nothing_is_due_while_a_name_is_looked_up(self, world):
        world.network.resolve = lambda channel_id, host, port: None
        assert not world.is_ready()
        assert world.client.poll_delay_ms(NODE, 0) is None
        assert world.client.why_not_ready(NODE, 0) == "its host name is still being looked up"
        world.client.poll(10 * IDLE_MS, 0)
        assert world.clock.ms == 10 * IDLE_MS


HEAD_START_MS = 250


class TestAddressesOfOneName:
    """Side by side, each with a head start (RFC 8305)."""

    def test_the_second_address_has_no_need_of_the_end_of_the_first(self, world):
        world.addresses_count, world.silent = 3, {0}
        world.become_ready()
        assert world.clock.ms == HEAD_START_MS
        assert world.connected == [f"{NODE.host}/{number}" for number in (0, 1)]
        assert len(world.client._by_channel) == 1
        refusing = World()
        refusing.addresses_count, refusing.refusing = 3, {0, 1}
        refusing.become_ready()
        assert refusing.clock.ms == 0

    def test_a_first_address_that_is_slow_may_still_be_the_one(self, world):
        world.addresses_count, world.silent = 2, {0, 1}
        world.begin(lambda: world.connected)
        (first,) = world.client._by_channel
        world.client.poll(HEAD_START_MS, world.clock.ms)
        world.client.poll(0, world.clock.ms)
        assert len(world.connected) == len(world.client._by_channel) == 2
        world.network._channels[first] = NODE.node_id
        world.network._events.append(channels.Connected(first))
        world.become_ready()
        assert [*world.client._by_channel] == [first]

    def test_the_error_says_what_each_address_did(self, world):
        world.addresses_count, world.silent, world.refusing = 3, {0, 2}, {1}
        assert world.fails_after() == HEAD_START_MS + SETUP_MS
        assert world.client.last_failure(NODE) == (
            f"{NODE.host}/1: Connection refused, {NODE.host}/0: no connection in time, "
            f"{NODE.host}/2: no connection in time"
        )
        assert not world.client._by_channel
        world.silent, world.refusing = {2}, {0, 1}
        world.fails_after()
        assert "0: Connection refused, " in world.client.last_failure(NODE)

    def test_what_each_has_done_so_far(self, world):
        """A caller whose deadline is over before that of the addresses."""
        world.addresses_count, world.silent, world.refusing = 2, {0}, {1}
        world.begin(lambda: world.connected)
        assert world.client.why_not_ready(NODE, world.clock.ms) is None
        world.client.poll(HEAD_START_MS, world.clock.ms)
        world.client.poll(0, world.clock.ms)
        assert world.client.why_not_ready(NODE, world.clock.ms) == (
            f"{NODE.host}/1: Connection refused, {NODE.host}/0: no answer yet"
        )

    def test_an_address_that_says_nothing_is_tried_again_when_the_others_are_silent(self, world):
        """A broker that is restarted has no answer to the first request; its other zone is dead."""
        world.addresses_count, world.silent = 2, {1}
        world.network.hung.add(1)
        assert world.fails_after() == REQUEST_TIMEOUT_MS
        world.network.hung.clear()
        world.wait_for_back_off()
        began_ms = world.clock.ms
        world.become_ready()
        assert world.clock.ms - began_ms == HEAD_START_MS
        assert world.connected == [f"{NODE.host}/{number}" for number in (0, 1, 0)]
        assert world.resolved == [NODE.host]

    def test_when_each_has_had_its_chance_the_name_is_looked_up_again(self, world):
        world.addresses_count, world.silent = 2, {0}
        world.network.hung.add(1)
        assert world.fails_after() == HEAD_START_MS + REQUEST_TIMEOUT_MS
        assert f"{NODE.host}/0: no answer yet, " in world.client.last_failure(NODE)
        world.wait_for_back_off()
        world.client.ready(NODE, world.clock.ms)
        assert world.resolved == [NODE.host] * 2

    def test_a_name_that_is_gone_says_nothing_of_its_former_addresses(self, world):
        world.addresses_count, world.refusing = 2, {0, 1}
        world.fails_after()
        gone = "host name: gone"
        world.network.resolve = lambda channel_id, host, port: world.network._events.append(
            channels.Disconnected(channel_id, gone)
        )
        world.fails_after()
        assert world.client.last_failure(NODE) == gone

    def test_an_address_that_is_reached_has_the_whole_time_for_tls(self, world):
        """Brokers that are slow because of many handshakes get no second one from each client."""
        world.addresses_count, world.silent = 2, {0}
        world.begin(lambda: world.connected)
        world.network._events.append(channels.Reached(*world.client._by_channel))
        while not world.client.last_failure(NODE):
            world.client.poll(1_000_000, world.clock.ms)
        assert world.clock.ms == SETUP_MS
        assert world.connected == [f"{NODE.host}/0"]
        world.wait_for_back_off()
        world.become_ready()
        assert world.connected == [f"{NODE.host}/{number}" for number in (0, 1)]

    def test_families_alternate(self):
        four, six = ([channels.Address(f, (f"{f}-{n}", 1)) for n in range(3)] for f in (4, 6))
        found = [str(a) for a in alternating([*six, *four[:2]])]
        assert found == ["6-0", "4-0", "6-1", "4-1", "6-2"]


class TestConnections:
    def test_versions_are_asked_for_again_while_the_broker_wants_a_pause(self, world):
        """Finalized features change; whatever state the connection is in, the answer counts."""
        world.become_ready()
        world.network.features["transaction.version"] = 2
        answers = world.send(ApiVersionsRequest("test", "1"))
        world.client._connection(NODE).throttle(world.clock.ms, world.clock.ms + 1_000)
        world.client.poll(0, world.clock.ms)
        assert answers[0].failure is None
        assert world.client.api_versions(NODE).transaction_version == 2

    def test_after_a_connection_that_was_good_the_name_is_looked_up_again(self, world):
        """KAFKA-12193: what stood behind it may have moved. So it is after an idle connection."""
        world.addresses_count, world.silent = 3, {1}
        world.become_ready()
        world.lose()
        world.become_ready()
        assert world.resolved == [NODE.host] * 2
        assert world.connected == [f"{NODE.host}/0"] * 2
        world.client.poll(10 * IDLE_MS, world.clock.ms)
        began_ms = world.clock.ms
        world.become_ready()
        assert (world.clock.ms, world.resolved) == (began_ms, [NODE.host] * 3)

    def test_a_broker_that_advertises_another_name_is_not_looked_for_at_the_former_addresses(
        self, world
    ):
        world.addresses_count = 3
        world.network.hung.add(1)
        world.fails_after()
        world.network.hung.clear()
        world.wait_for_back_off()
        world.become_ready(MOVED)
        assert world.connected == [f"{NODE.host}/0", f"{MOVED.host}/0"]

    def test_of_a_lost_connection_only_requests_of_others_are_completed(self, world):
        """Nobody waits for its own, ApiVersions."""
        world.network.hung.add(1)
        world.begin(lambda: world.client._connection(NODE).in_flight)
        world.lose()
        assert world.client.last_failure(NODE) is not None
        assert world.client.in_flight_count() == 0

    @pytest.mark.parametrize(
        ("pause_ms", "logs_pauses", "lines"),
        [(59_999, True, 0), (60_000, True, 1), (60_000, False, 0)],
    )
    def test_a_pause_of_a_minute_is_logged_at_once_but_by_a_producer(
        self, world, caplog, pause_ms, logs_pauses, lines
    ):
        world.become_ready()
        world.client.logs_pauses = logs_pauses
        world.network._script = lambda asked: topic_api.MetadataResponse(throttle_time_ms=pause_ms)
        world.send(topic_api.MetadataRequest([]))
        world.client.poll(0, world.clock.ms)
        assert len(caplog.records) == lines
        assert all(
            f"{NODE} asks for a pause of 60 s" in text and text.endswith("[PKS-DELIVERY-010]")
            for text in caplog.messages
        )

    @pytest.mark.parametrize("throttle_time_ms", [0, 5000])
    def test_an_answer_before_the_request_is_sent_loses_the_connection(
        self, world, throttle_time_ms
    ):
        """Its memory may be used again as soon as it is completed, and it is still being written."""
        world.become_ready()
        answer = topic_api.MetadataResponse(throttle_time_ms=throttle_time_ms)
        world.network._script = lambda asked: answer
        world.network.is_next_whole = False
        done = world.send(topic_api.MetadataRequest([]))
        world.network._events = [
            e for e in world.network._events if isinstance(e, channels.Received)
        ]
        world.client.poll(0, 0)
        words = "the answer to MetadataRequest came before all of it was sent"
        assert [r.failure for r in done] == [words]
        world.client.renew_connections()
        world.client.poll(0, 0)
        assert not world.client._by_channel

    def test_only_a_broker_that_never_answered_without_authentication_hints_at_sasl(self, world):
        """Else a broker that restarts would have users look at their options."""
        world.become_ready()
        connection = world.client._connection(NODE)
        world.network.hung.add(1)
        world.send(topic_api.MetadataRequest())
        assert "kafka.security.protocol" in sasl_hint(connection)
        connection.has_answered = True
        assert sasl_hint(connection) == ""
        connection.has_answered = False
        login = Authentication(lambda: PlainSaslClient("a", Secret("p")), NO_JITTER)
        connection.protocol._authentication = login
        assert sasl_hint(connection) == ""


class TestReplacedCredentials:
    """Connections of before take no request any more."""

    @pytest.fixture
    def answering(self, world):
        world.network._script = lambda asked: topic_api.MetadataResponse()
        world.become_ready()
        return world

    def test_no_request_is_sent_on_a_connection_of_before(self, answering):
        done = answering.send(topic_api.MetadataRequest())
        answering.client.poll(0, 0)
        answering.client.renew_connections()
        assert not answering.is_ready()
        answering.become_ready()
        assert (len(answering.connected), len(done)) == (2, 1)
        assert answering.client.last_failure(NODE) is None
        assert answering.clock.ms == 0, "nothing went wrong: there is no back-off"
        # One that nobody uses any more is closed, too.
        answering.client.renew_connections()
        answering.client.poll(0, 0)
        assert not answering.client._by_channel
        assert len(answering.connected) == 2

    def test_what_is_in_flight_is_answered_first(self, answering):
        answering.network.hung.add(1)
        done = answering.send(topic_api.MetadataRequest())
        answering.client.renew_connections()
        for _ in range(3):
            answering.client.poll(0, 0)
            assert not answering.is_ready()
        assert len(answering.connected) == 1
        answering.network.hung.clear()
        (sent,) = answering.client._connection(NODE).in_flight
        (channel_id,) = answering.client._by_channel
        parts = sent.request, sent.version, sent.correlation_id, topic_api.MetadataResponse()
        answering.network._events.append(channels.Received(channel_id, answer_frame(*parts)))
        answering.become_ready()
        assert (len(answering.connected), len(done)) == (2, 1)

    def test_one_that_is_being_made_with_the_former_key_takes_no_request(self, world):
        world.begin(lambda: world.connected)
        assert not world.is_ready()
        world.client.renew_connections()
        world.become_ready()
        assert len(world.connected) == 2

    def test_no_connection_outlives_its_certificate(self, world):
        world.expires_after_ms = 60_000
        world.become_ready()
        world.clock.ms = 59_999
        assert world.is_ready()
        world.clock.ms = 60_000
        assert not world.is_ready()
        world.become_ready()
        assert len(world.connected) == 2
        world.clock.ms = 119_999
        assert world.is_ready()
        world.client.poll(1_000_000, world.clock.ms)
        world.client.poll(0, world.clock.ms)
        assert not world.client._by_channel, "an idle one ends with it, too"

    def test_what_has_expired_by_this_clock_is_the_brokers_to_judge(self, world):
        """Else the connection would be made again and again."""
        world.expires_after_ms = -1
        world.become_ready()
        world.clock.ms = 60_000
        assert world.is_ready()
        assert len(world.connected) == 1


LIMIT_BYTES = 1_046_528


class TestConnectionsThatEndAtLargeRequests:
    """A broker that ends the connection at more than a limit, as Azure Event Hubs does."""

    @pytest.fixture
    def limited(self, world):
        def answer(asked):
            if sum(len(topic.name) for topic in asked.request.topics) > LIMIT_BYTES:
                raise LoseConnection
            return topic_api.MetadataResponse()

        world.network._script = answer
        assert self.failure(world, 1_000) is None
        return world

    def failure(self, world, size_bytes):
        """Why a request of about this size has no answer."""
        names = ["t" * 1_000] * (size_bytes // 1_000)
        request = topic_api.MetadataRequest([topic_api.MetadataRequestTopic(name=n) for n in names])
        world.become_ready()
        (done,) = self.sent(world, request)
        return done.failure

    def sent(self, world, request):
        done = world.send(request)
        while not done:
            world.client.poll(0, world.clock.ms)
        return done

    def test_the_third_time_tells_size_and_options(self, limited):
        for size in (2_000_000, 1_200_000):
            assert self.failure(limited, size) == "Connection reset by peer"
        told = self.failure(limited, 1_500_000)
        assert re.search(r", 3 times while a request of 12\d{5} bytes or more was under way", told)
        for words in ("kafka.max.request.size", "kafka.batch.size", "[PKS-CONNECT-013]"):
            assert words in told

    def test_only_an_answer_to_such_a_request_begins_the_count_anew(self, limited):
        for _ in range(3):
            self.failure(limited, 1_200_000)
        assert self.failure(limited, 900_000) is None
        assert ", 4 times while" in self.failure(limited, 1_200_000)
        limit = limited.network._script
        limited.network._script = lambda _: topic_api.MetadataResponse()
        assert self.failure(limited, 1_300_000) is None
        limited.network._script = limit
        assert self.failure(limited, 1_200_000) == "Connection reset by peer"

    def test_small_requests_tell_nothing(self, world):
        """Their size is no reason, and a listener with SASL would not have answered before."""
        loses, world.network._script = world.network._script, lambda _: topic_api.MetadataResponse()
        assert self.failure(world, 1_000) is None
        world.network._script = loses
        assert {self.failure(world, 10_000) for _ in range(5)} == {"Connection reset by peer"}


# --- versions -------------------------------------------------------------------------------------

PRODUCE, METADATA, API_VERSIONS, CREATE_TOPICS, INIT_PRODUCER_ID = 0, 3, 18, 19, 22
REQUESTS = {
    PRODUCE: topic_api.ProduceRequest,
    METADATA: topic_api.MetadataRequest,
    API_VERSIONS: ApiVersionsRequest,
    CREATE_TOPICS: topic_api.CreateTopicsRequest,
    INIT_PRODUCER_ID: InitProducerIdRequest,
}
FIRST_API_VERSIONS = 4
UNSUPPORTED_VERSION = 35
BROKER, OLD_BROKER = Node(7, "kafka7.example", 9092), Node(8, "old.example", 9092)


def ranges_of(*ranges):
    """Versions by API, in the order of ``REQUESTS``."""
    return dict(zip(REQUESTS, ranges))


KAFKA_2_1 = ranges_of((0, 7), (0, 7), (0, 2), (0, 3), (0, 1))
KAFKA_2_4 = ranges_of((0, 8), (0, 9), (0, 3), (0, 5), (0, 2))
KAFKA_0_10_2 = ranges_of((0, 2), (0, 2), (0, 0), (0, 1))
# One that has dropped what this client knows, as Kafka 4 dropped what old clients knew (KIP-896).
KAFKA_OF_THE_FUTURE = {**KAFKA_2_1, API_VERSIONS: (0, 9), PRODUCE: (14, 20)}
# The highest common versions.
EXPECTED = {
    "3.9.1": dict(zip(REQUESTS, (11, 12, 4, 7, 5))),
    "4.4.0": dict(zip(REQUESTS, (13, 13, 5, 7, 5))),
}


def body_v0(ranges, error_code=0):
    """An ApiVersions answer in version 0."""
    entries = b"".join(struct.pack(">hhh", key, *its) for key, its in ranges.items())
    return struct.pack(">hi", error_code, len(ranges)) + entries


def body(ranges, version):
    """An ApiVersions answer in any version: throttled for no time, without features and tags."""
    if version < 3:
        return body_v0(ranges) + (struct.pack(">i", 0) if version else b"")
    entries = b"".join(struct.pack(">hhhB", key, *its, 0) for key, its in ranges.items())
    return struct.pack(">hB", 0, len(ranges) + 1) + entries + struct.pack(">iB", 0, 0)


class RawVersions(ScriptedNetwork):
    """Brokers that answer ApiVersions and nothing else.

    ``answer``: the body of the answer, by version of the request. ``asked``: API key and version of
    each request that came.
    """

    def __init__(self, answer):
        self.clock = SimClock(0)
        super().__init__({7: BROKER, 8: OLD_BROKER}, self.clock, None, {})
        self._answer = answer

    def send(self, channel_id, buffers):
        api_key, version, correlation_id = struct.unpack_from(">4xhhi", b"".join(buffers))
        self.asked.append((api_key, version))
        self._events.append(channels.SendCompleted(channel_id))
        if api_key == API_VERSIONS:
            answer = self._answer(version)
            frame = struct.pack(">ii", 4 + len(answer), correlation_id) + answer
            self._events.append(channels.Received(channel_id, frame))


class Negotiated(NamedTuple):
    client: NetworkClient
    network: RawVersions

    def highest(self, api_key, at_most=None):
        versions = self.client.api_versions(BROKER)
        assert versions is not None, self.client.last_failure(BROKER)
        return versions.latest_usable_version(REQUESTS[api_key], at_most)

    def send(self, request):
        self.client.send(BROKER, request, self.network.clock.ms, lambda answer, now_ms: None)


def negotiate(answer):
    """Connect, and poll until the broker's versions are known or the connection is lost."""
    network = RawVersions(answer)
    client = NetworkClient(DEFAULT_SETTINGS, network, network.clock, NO_JITTER)
    client.ready(BROKER, network.clock.ms)
    for _ in range(20):
        if client.is_ready(BROKER, network.clock.ms) or client.last_failure(BROKER) is not None:
            break
        client.poll(0, network.clock.ms)
    return Negotiated(client, network)


def negotiate_recorded(kafka):
    frames = recorded(kafka)
    return negotiate(lambda version: frames[version][4:])


def broker_of(ranges, unsupported=None):
    """A broker that offers ``ranges``, and tells ``unsupported`` to a client that asks beyond them."""

    def answer(version):
        if version > ranges[API_VERSIONS][1]:
            return body_v0(unsupported or {}, UNSUPPORTED_VERSION)
        return body(ranges, version)

    return answer


@pytest.mark.parametrize("kafka", EXPECTED)
def test_requests_go_out_in_the_highest_common_versions(kafka):
    negotiated = negotiate_recorded(kafka)
    for api_key, version in EXPECTED[kafka].items():
        assert negotiated.highest(api_key) == version
    assert negotiated.network.asked == [(API_VERSIONS, FIRST_API_VERSIONS)]
    negotiated.send(topic_api.MetadataRequest([]))
    assert negotiated.network.asked[-1] == (METADATA, EXPECTED[kafka][METADATA])
    # Topics without an id are produced to by name: Produce 13 knows topics by id alone.
    assert negotiated.highest(PRODUCE, 12) == min(EXPECTED[kafka][PRODUCE], 12)


class TestOlderBrokers:
    @pytest.mark.parametrize(
        ("ranges", "refusal", "asked_again_in"),
        [
            # Before KIP-511 a refusal was empty: version 0 is what every broker has.
            pytest.param(KAFKA_2_1, None, 0, id="2.1 offers nothing when it refuses"),
            pytest.param(KAFKA_2_4, {API_VERSIONS: (0, 3)}, 3, id="2.4 says what to ask with"),
            pytest.param(KAFKA_2_1, {PRODUCE: (0, 7)}, 0, id="a refusal offers other APIs alone"),
        ],
    )
    def test_are_asked_again_with_what_they_know(self, ranges, refusal, asked_again_in):
        negotiated = negotiate(broker_of(ranges, refusal))
        assert negotiated.network.asked == [(API_VERSIONS, 4), (API_VERSIONS, asked_again_in)]
        for api_key, (_, last) in ranges.items():
            assert negotiated.highest(api_key) == last
        negotiated.send(topic_api.MetadataRequest([]))
        assert negotiated.network.asked[-1] == (METADATA, ranges[METADATA][1])

    def test_a_broker_that_refuses_what_it_offers(self):
        """Asked with a lower version each time, so that it comes to an end."""
        refusal = body_v0({API_VERSIONS: (0, 4)}, UNSUPPORTED_VERSION)
        negotiated = negotiate(lambda version: refusal)
        assert "UNSUPPORTED_VERSION" in negotiated.client.last_failure(BROKER)
        versions = [version for _, version in negotiated.network.asked]
        assert versions == sorted(set(versions), reverse=True)

    @pytest.mark.parametrize(
        ("refusal", "versions", "failure"),
        [
            (body_v0({}, UNSUPPORTED_VERSION), [4, 0], "UNSUPPORTED_VERSION (35)"),
            # For another reason.
            (struct.pack(">hBiB", 31, 1, 0, 0), [4], "CLUSTER_AUTHORIZATION_FAILED (31)"),
        ],
        ids=["in version 0", "for another reason"],
    )
    def test_a_broker_that_refuses(self, refusal, versions, failure):
        negotiated = negotiate(lambda version: refusal)
        assert negotiated.network.asked == [(API_VERSIONS, version) for version in versions]
        assert f"ApiVersions: {failure} [" in negotiated.client.last_failure(BROKER)

    # What librdkafka's mock cluster answers to version 3 and newer: the code of a refusal, and then
    # not the body of version 0.
    @pytest.mark.parametrize("unreadable", [b"\0\x23\x02", b"\0\0\x7f"], ids=["refused", "other"])
    def test_an_answer_that_cannot_be_read_is_asked_for_again_in_version_0(self, unreadable):
        answers = broker_of(KAFKA_2_4)
        negotiated = negotiate(lambda version: unreadable if version else answers(0))
        assert negotiated.network.asked == [(API_VERSIONS, 4), (API_VERSIONS, 0)]
        assert negotiated.highest(PRODUCE) == 8
        negotiated = negotiate(lambda version: unreadable)
        assert negotiated.network.asked == [(API_VERSIONS, 4), (API_VERSIONS, 0)]
        assert "[PKS-CONNECT-007]" in negotiated.client.last_failure(BROKER)


class TestNoCommonVersion:
    @pytest.mark.parametrize(
        ("ranges", "request_type", "said"),
        [
            (KAFKA_0_10_2, topic_api.ProduceRequest, ("Produce:", "3 to 13", "0 to 2")),
            (KAFKA_0_10_2, topic_api.CreateTopicsRequest, ("CreateTopics:", "2 to 7", "0 to 1")),
            (
                KAFKA_0_10_2,
                InitProducerIdRequest,
                ("the broker does not offer InitProducerId: it",),
            ),
            # One that is too new is not called old.
            (KAFKA_OF_THE_FUTURE, topic_api.ProduceRequest, ("3 to 13", "14 to 20")),
        ],
    )
    def test_the_error_names_api_ranges_and_broker(self, ranges, request_type, said):
        negotiated = negotiate(broker_of(ranges))
        with pytest.raises(errors.UnsupportedVersionError) as raised:
            negotiated.send(request_type())
        for words in (*said, "broker 7 (kafka7.example:9092)"):
            assert words in str(raised.value)
        is_old = ranges is KAFKA_0_10_2 and len(said) == 3
        assert ("Kafka 2.1 or newer is needed" in str(raised.value)) is is_old
        # Nothing was sent, and the connection is as good as before.
        assert negotiated.network.asked[-1][0] == API_VERSIONS
        assert negotiated.highest(METADATA) == ranges[METADATA][1]

    @pytest.mark.parametrize(
        ("answer", "error", "said"),
        [
            # The connection is useless then: its reason stands beside the address.
            pytest.param(
                lambda version: body_v0({API_VERSIONS: (6, 9)}, UNSUPPORTED_VERSION),
                errors.BootstrapError,
                ("ApiVersions:", "0 to 5", "6 to 9"),
                id="of ApiVersions itself",
            ),
            pytest.param(
                broker_of({**KAFKA_0_10_2, METADATA: (0, 0)}),
                errors.UnsupportedVersionError,
                ("Metadata:", "1 to 13", "0 to 0"),
                id="of Metadata",
            ),
        ],
    )
    def test_what_a_user_reads_who_tries_such_a_broker(self, answer, error, said):
        network = RawVersions(answer)
        servers = [(OLD_BROKER.host, OLD_BROKER.port)]
        parts = network, network.clock, random.Random(1)
        with (
            AdminClient(servers, DEFAULT_SETTINGS, *parts) as admin,
            pytest.raises(error) as raised,
        ):
            admin.metadata([], False, admin.deadline_in(5_000))
        for words in ("old.example:9092", *said):
            assert words in str(raised.value)


def test_a_version_that_kafka_has_not_released_is_not_used():
    """InitProducerId 6 (KIP-939) is unstable in Kafka 4.4: brokers offer it by a test setting."""
    offered = api.BrokerApiVersions({InitProducerIdRequest.api_key: api.VersionRange(0, 6)})
    assert offered.latest_usable_version(InitProducerIdRequest) == 5
    alone = api.BrokerApiVersions({InitProducerIdRequest.api_key: api.VersionRange(6, 6)})
    assert not alone.supports(InitProducerIdRequest)


@pytest.mark.parametrize(
    ("cluster_id", "sent_first"), [(None, (4, None, -1)), ("c", (5, "c", NODE.node_id))]
)
def test_a_connection_names_the_broker_once_the_cluster_is_known(world, cluster_id, sent_first):
    """KIP-1242, with brokers that offer ApiVersions 5."""
    sent, send = [], world.network.send
    world.network.offered[ApiVersionsRequest] = (0, 5)
    world.client._connector.cluster_id = cluster_id

    def record(channel_id, buffers):
        request, version, _ = read_request(buffers, world.network.offered)
        sent.append((version, request.cluster_id, request.node_id))
        return send(channel_id, buffers)

    world.network.send = record
    world.become_ready()
    assert sent == [sent_first]
