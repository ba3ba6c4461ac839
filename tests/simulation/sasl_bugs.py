"""Bugs of authentication that the simulator must catch, as ``bugs.py`` has the others."""

from __future__ import annotations

from functools import partial

from spark_kafka_sink.network.client import NetworkClient
from spark_kafka_sink.network.node_connection import ConnectionState, NodeConnection
from spark_kafka_sink.protocol.connection import NEVER_MS, Connection, Session
from tests.simulation import sasl_scenarios as scenarios
from tests.simulation.bugs import Bug


def _session_without_end(original):  # type: ignore[no-untyped-def]
    def can_send(self, now_ms, max_in_flight):  # type: ignore[no-untyped-def]
        if self.state is ConnectionState.READY and self.protocol is not None:
            self.protocol.renew_at_ms = self.protocol.ends_at_ms = NEVER_MS
        return original(self, now_ms, max_in_flight)

    return can_send


def _refusal_taken_for_a_lost_connection(original):  # type: ignore[no-untyped-def]
    return lambda self, connection, reason, now_ms: self._lose(connection, reason, now_ms)


def _authentication_without_deadline(original):  # type: ignore[no-untyped-def]
    return lambda self, now_ms, deadline_ms: original(self, now_ms, NEVER_MS)


def _renewal_forgets_requests(original):  # type: ignore[no-untyped-def]
    def authenticate_again(self, now_ms, deadline_ms):  # type: ignore[no-untyped-def]
        self.in_flight.clear()
        return original(self, now_ms, deadline_ms)

    return authenticate_again


def _renewed_at_once(original):  # type: ignore[no-untyped-def]
    def of(began_at_ms, received_at_ms, lifetime_ms, rng):  # type: ignore[no-untyped-def]
        return original(began_at_ms, received_at_ms, lifetime_ms, rng)._replace(
            renew_at_ms=began_at_ms
        )

    return of


def _over_while_requests_are_in_flight(original):  # type: ignore[no-untyped-def]
    def can_reauthenticate(self, now_ms):  # type: ignore[no-untyped-def]
        is_ready = self.state is ConnectionState.READY and self.protocol is not None
        return is_ready and now_ms >= self.protocol.renew_at_ms

    return can_reauthenticate


SASL_BUGS: dict[str, Bug] = {
    "end of the session not looked at": Bug(
        "a connection is sent to after its session, and the broker ends it",
        NodeConnection,
        "can_send",
        _session_without_end,
        (partial(scenarios.session_that_ends_unused, 5_000),),
    ),
    "refusal taken for a lost connection": Bug(
        "who is refused tries again until the time is up",
        NetworkClient,
        "_refuse",
        _refusal_taken_for_a_lost_connection,
        (partial(scenarios.refused_at_first, "PLAIN"), partial(scenarios.refused_later)),
    ),
    "authentication without a deadline": Bug(
        "a broker that hangs in the middle of SASL is waited for",
        Connection,
        "open",
        _authentication_without_deadline,
        (partial(scenarios.broker_that_hangs_in_sasl),),
    ),
    "renewal forgets what is in flight": Bug(
        "earlier requests are forgotten when a session is renewed",
        Connection,
        "authenticate_again",
        _renewal_forgets_requests,
        (partial(scenarios.requests_in_flight_while_a_session_is_renewed),),
    ),
    "session renewed at once": Bug(
        "the broker is asked for a new session within a second of the last one",
        Session,
        "of",
        _renewed_at_once,
        (partial(scenarios.requests_in_flight_while_a_session_is_renewed),),
    ),
    "session over before the answers": Bug(
        "a connection whose session is over is closed under its requests",
        NodeConnection,
        "can_reauthenticate",
        _over_while_requests_are_in_flight,
        (partial(scenarios.session_that_ends_in_use, 300),),
    ),
}
