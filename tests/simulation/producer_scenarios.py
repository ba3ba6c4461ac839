"""Scenarios of a producer that random lives reach rarely, step by step: where the producer has the bug
that one of them is made for, it raises AssertionError or the error that fails the task.
"""

from __future__ import annotations

from spark_kafka_sink.base.errors import AuthenticationError, DeliveryError
from spark_kafka_sink.network.client import SESSION_OVER_AT_ONCE
from tests.simulation.harness import Simulation, simulate
from tests.simulation.sasl import PLAIN, SCRAM, USERS, Sasl, options_of

_FIRST, _SECOND = b"1", b"2"
_LEADER, _NEXT_LEADER, _LATE_BROKER = 1, 2, 3
_REQUEST_TIMEOUT_MS = 5_000
_LOOK_UP_MS = 40_000
_SOON_MS, _AT_ONCE_MS = 1_000, 100


def moved_leader_of_a_retry():
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
    simulation.flush()
    assert simulation.values()[0] == [b"", _FIRST, _SECOND], "a batch has overtaken one before it"


def request_without_answer():
    """A leader hangs with a batch that it has not appended, and is replaced."""
    simulation = _with_a_leader_that_hangs()
    _send(simulation, 0, _FIRST)
    simulation.cluster.move_leader("t", 0, _NEXT_LEADER)
    simulation.cluster.topics["t"].partitions[0].shrink_isr(_LEADER)
    simulation.flush()
    assert simulation.values()[0] == [b"", _FIRST], "acknowledged, and nowhere"


def later_batch_that_is_taken_first():
    """A leader refuses a batch, and takes the next one: it has lost what it knew of the producer, and
    takes any sequence. Both answers are lost. The first retry is out of order, as if it were there.
    """
    simulation = _connected(batch_size="100", linger_ms="0", retry_backoff_ms="0")
    cluster, unheard = simulation.cluster, simulation.network.faults.unheard
    refusals = iter(["NOT_ENOUGH_REPLICAS"])

    def forget(broker, topic, index, batch):
        unheard.add(broker.host)
        refusal = next(refusals, None)
        if refusal is None:
            cluster.on_produce = None
            simulation.scheduler.after(_AT_ONCE_MS, unheard.clear)
            simulation.scheduler.after(_AT_ONCE_MS, cluster.cut_connections)
        else:
            cluster.topics["t"].partitions[0].forget_producers()
        return refusal

    cluster.on_produce = forget
    values = [number + bytes(100) for number in (_FIRST, _SECOND)]
    simulation.append_to(0, values)
    failure = ""
    try:
        simulation.flush()
    except DeliveryError as error:
        failure = str(error)
    assert "may be in the topic already" in failure, f"{simulation.values()[0]}: {failure}"


def brokers_that_learn_late():
    """A leader dies, and another broker goes on calling it the leader for a while: what the
    producer has heard of the next one stays.
    """
    simulation = _connected(metadata_max_age_ms="200")
    cluster = simulation.cluster
    cluster.unaware_until_ms[_LATE_BROKER] = simulation.clock.ms + 10 * _SOON_MS
    cluster.move_leader("t", 0, _NEXT_LEADER)
    simulation.write(0, _FIRST)
    cluster.crash(_LEADER, election_delay_ms=0)
    for _ in range(10):
        simulation.run_for(_SOON_MS // 2)
        simulation.append_to(0, [_SECOND])
        assert simulation.flush() < _AT_ONCE_MS, "sent to a leader of the past"


def slow_name():
    """The name of one leader is looked up for long: the others' batches go on, and its own come."""
    simulation = _connected()
    simulation.network.names.takes_ms["broker-2"] = _LOOK_UP_MS
    soon = []
    simulation.scheduler.after(_SOON_MS, lambda: soon.extend(simulation.values()[0]))
    _send(simulation, 1, _SECOND)
    _send(simulation, 0, _FIRST)
    simulation.flush()
    assert soon == [b"", _FIRST], "a broker waits for another one's name"
    assert simulation.values()[1] == [_SECOND]


def name_that_is_too_slow():
    """The name of a leader is looked up for longer than a batch may wait."""
    timeout_ms = 2 * _REQUEST_TIMEOUT_MS
    simulation = _connected(
        delivery_timeout_ms=str(timeout_ms), request_timeout_ms=str(_REQUEST_TIMEOUT_MS)
    )
    simulation.network.names.takes_ms["broker-2"] = _LOOK_UP_MS
    simulation.append_to(1, [_SECOND])
    failure = ""
    try:
        simulation.flush()
    except DeliveryError as error:
        failure = str(error)
    assert f"{timeout_ms} ms old" in failure, "a look-up outlasts delivery.timeout.ms"
    assert "broker-2:9092), cannot be reached: its host name is still being looked up" in failure


def _connected(**options):
    """A producer that has sent a record to partition 0, and is connected to its leader."""
    simulation = simulate(**options)
    simulation.write(0, b"")
    return simulation


def _with_a_leader_that_hangs(**options):
    simulation = _connected(request_timeout_ms=str(_REQUEST_TIMEOUT_MS), **options)
    simulation.cluster.brokers[_LEADER].is_paused = True
    return simulation


def _send(simulation, partition, value):
    """Let the sender have the record, and some rounds to send it."""
    simulation.hand_over(partition, value)
    simulation.run_for(20)


def racks_that_change():
    """Rows without key follow the rack to its new leaders."""
    options = {"partitioner_rack_aware": "true", "client_rack": "a", "batch_size": "500"}
    simulation = simulate(partitions=3, **options)
    for led in (0, 2, 1):
        simulation.cluster.racks = {led + 1: "a"}  # broker n + 1 leads partition n
        simulation.run_for(1_000)
        simulation.producer._metadata.request_update_now()
        simulation.run_for(1_000)
        simulation.append([(None, b"x" * 600)])  # finishes the batch of the partition before
        simulation.flush()
        before = simulation.values()
        simulation.write_rows([(None, b"x" * 100)] * 50)
        after = simulation.values()
        assert {p for p in after if len(after[p]) > len(before[p])} == {led}


# --- authenticated connections ------------------------------------------------------------------

_LIFETIME_MS = 10_000
_RENEWED_MS = 9_600
_STEP_MS, _ANSWER_MS = 200, 500
_MOST_OPENED = 100
_SET_UP_MS = 10_000
_HANGING_LOGIN_MS = 30_000 + _SOON_MS


def requests_in_flight_while_a_session_is_renewed(mechanism=PLAIN):
    """A broker is slow to answer when a session is renewed: its answers come first, in order, and
    nothing is sent twice.
    """
    simulation, sasl = _logged_in(mechanism, _LIFETIME_MS, connections=3)
    opened = simulation.opened
    for number in range(150):
        _append(simulation, number, _ANSWER_MS, _STEP_MS)
    simulation.flush()
    assert sasl.renewed >= 2
    assert simulation.opened == opened, "a connection is given up to be authenticated"
    assert simulation.producer.metrics.retries == 0
    assert simulation.values()[0] == [b"", *(b"%d" % number for number in range(150))]


def session_that_ends_unused(lifetime_ms):
    """Nothing is sent until a session is over: the connection is made anew, without a failure."""
    simulation, sasl = _logged_in(PLAIN, lifetime_ms)
    for number in range(5):
        simulation.run_for(lifetime_ms + 1)
        simulation.write(0, b"%d" % number)
    assert simulation.producer.metrics.retries == 0
    assert sasl.renewed == 0
    assert simulation.values()[0] == [b"", *(b"%d" % number for number in range(5))]


def session_that_ends_in_use(lifetime_ms):
    """Too short to be renewed, and requests are in flight all the time: these are waited for."""
    simulation, _ = _logged_in(PLAIN, lifetime_ms)
    for number in range(100):
        _append(simulation, number, lifetime_ms // 3, lifetime_ms // 7)
    simulation.flush()
    assert simulation.producer.metrics.retries == 0
    assert simulation.values()[0] == [b"", *(b"%d" % number for number in range(100))]


def session_that_is_over_at_once():
    """As with a token that is about to expire: the broker is not asked again and again without a
    pause, and why nothing is sent is told.
    """
    simulation, sasl = _logged_in(PLAIN, 0)
    sasl.lifetime_ms, before = 1, simulation.opened
    simulation.cluster.cut_connections()
    simulation.hand_over(0, b"1")
    simulation.run_for(_SET_UP_MS)
    opened = simulation.opened - before
    assert opened <= _MOST_OPENED, f"{opened} connections in {_SET_UP_MS} ms"
    client = simulation.producer.sender._client
    told = [connection.last_failure for connection in client._connections.values()]
    assert SESSION_OVER_AT_ONCE in told
    sasl.lifetime_ms = 0
    simulation.flush()
    assert simulation.values()[0] == [b"", b"1"]


def refused_at_first(mechanism):
    """A password that is wrong: the task fails at once, with the broker's words."""
    sasl = Sasl(mechanism, dict.fromkeys(USERS, "another password"))
    simulation = _secured(sasl)
    started_ms = simulation.clock.ms
    _assert_refused(simulation)
    assert simulation.clock.ms - started_ms < _SOON_MS, "a refusal is tried again"
    assert sasl.refusals == 1


def refused_later():
    """The password is changed under a connection: the task fails when its session is renewed."""
    simulation, sasl = _logged_in(PLAIN, _LIFETIME_MS)
    sasl.users = dict.fromkeys(USERS, "another password")
    simulation.run_for(_RENEWED_MS)
    started_ms = simulation.clock.ms
    _assert_refused(simulation)
    assert simulation.clock.ms - started_ms < _SOON_MS, "a refusal is tried again"
    assert sasl.refusals == 1


def broker_that_hangs_in_sasl():
    """It takes the connection and says nothing more: there is another one when its time is up."""
    sasl = Sasl(PLAIN, dict(USERS), hangs_next=True)
    simulation = _secured(sasl, brokers=1)
    started_ms = simulation.clock.ms
    simulation.write(0, b"1")
    assert not sasl.hangs_next
    took_ms = simulation.clock.ms - started_ms
    assert took_ms < _HANGING_LOGIN_MS, f"a broker that hangs in SASL is waited for, {took_ms} ms"
    assert simulation.values()[0] == [b"1"]


def connection_cut_in_sasl(mechanism):
    """Lost, not refused: it is made anew."""
    sasl = Sasl(mechanism, dict(USERS), cuts_next=True)
    simulation = _secured(sasl)
    simulation.write(0, b"1")
    assert not sasl.cuts_next
    assert simulation.values()[0] == [b"1"]


def _append(simulation, number, answer_ms, then_ms):
    """A record whose answer takes so long, and time for the sender."""
    simulation.network.faults.delay_next_response_ms = answer_ms
    simulation.hand_over(0, b"%d" % number)
    simulation.run_for(then_ms)


class _Counted(Simulation):
    """Counts the connections that are made."""

    opened = 0

    def count(self):
        connect = self.network.connect

        def counting(channel_id, address, host):
            self.opened += 1
            connect(channel_id, address, host)

        self.network.connect = counting


def _secured(sasl, brokers=3):
    simulation = _Counted(brokers=brokers, **options_of(sasl))
    simulation.cluster.create_topic("t", 3)
    simulation.cluster.enable_sasl(sasl)
    simulation.count()
    return simulation


def _logged_in(mechanism, lifetime_ms, connections=1):
    """A producer that has sent a record to the leaders of so many partitions."""
    sasl = Sasl(mechanism, dict(USERS), lifetime_ms)
    simulation = _secured(sasl)
    for partition in range(connections):
        simulation.append_to(partition, [b""])
    simulation.flush()
    return simulation, sasl


def _assert_refused(simulation):
    refusal = ""
    try:
        simulation.write(0, b"1")
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
