"""What a process keeps between its writes: connections of few configurations, not of all it ever had."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from spark_kafka_sink.client.admin import AdminClient
from spark_kafka_sink.config.sink_options import SinkOptions
from spark_kafka_sink.transactions import session
from spark_kafka_sink.transactions.commit_protocol import CommitProtocol
from spark_kafka_sink.transactions.model import Driver
from tests.simulation.time import SimClock


def options(prefix: str, password: str = "p", servers: str = "127.0.0.1:1") -> SinkOptions:
    return SinkOptions.parse(
        {
            "kafka.bootstrap.servers": servers,
            "topic": "t",
            "delivery.guarantee": "exactly-once",
            "transactional.id.prefix": prefix,
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": "PLAIN",
            "kafka.sasl.username": "u",
            "kafka.sasl.password": password,
        }
    )


def use(what: SinkOptions) -> CommitProtocol:
    with session._session(what) as protocol:
        return protocol


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[CommitProtocol]]:
    """Those that were closed."""
    found: list[CommitProtocol] = []
    close = CommitProtocol.close

    def note(protocol: CommitProtocol) -> None:
        found.append(protocol)
        close(protocol)

    monkeypatch.setattr(CommitProtocol, "close", note)
    monkeypatch.setattr(session, "_sessions", {})
    monkeypatch.setattr(session, "_prepared_at_ms", {})
    yield found
    for protocol in session._sessions.values():
        close(protocol)


def test_the_same_configuration_has_the_same_connections(closed: list[CommitProtocol]) -> None:
    assert use(options("a")) is use(options("a"))
    assert closed == []


def test_what_is_kept_looks_for_credentials_before_it_is_used_again(
    closed: list[CommitProtocol], monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[CommitProtocol] = []
    monkeypatch.setattr(CommitProtocol, "renew_if_credentials_changed", lambda p: looked.append(p))
    first = use(options("a"))
    assert looked == []
    assert use(options("a")) is first
    assert looked == [first]


def test_a_password_that_changes_with_each_write(closed: list[CommitProtocol]) -> None:
    elsewhere = use(options("a", servers="127.0.0.1:2"))
    made = []
    for number in range(5):
        what = options("a", f"token-{number}")
        session._prepared_at_ms[session._key(what)] = number
        made.append(use(what))
    assert closed == made[:-1]
    assert list(session._sessions.values()) == [elsewhere, made[-1]]
    assert list(session._prepared_at_ms.values()) == [4]


def test_a_prefix_for_each_job(closed: list[CommitProtocol]) -> None:
    """The one that was used longest ago goes first, but none that another thread is using."""
    with session._session(options("long")) as long:
        first = use(options("first"))
        made = [use(options(f"job-{number}")) for number in range(session._MAX_UNUSED)]
        assert use(options("first")) is first
        made += [use(options(f"more-{number}")) for number in range(5)]
        assert closed == made[:5]
        assert long not in closed
    assert len(session._sessions) == session._MAX_UNUSED + 2


def test_one_that_two_threads_use_stays_open_when_the_first_leaves(
    closed: list[CommitProtocol],
) -> None:
    with session._session(options("a")) as kept:
        with session._session(options("a")):
            pass
        use(options("a", password="another"))
        assert closed == []
    use(options("a", password="another"))
    assert closed == [kept]


def test_of_two_threads_that_make_one_the_second_takes_the_firsts(
    closed: list[CommitProtocol], monkeypatch: pytest.MonkeyPatch
) -> None:
    connect, others = AdminClient.of, list[CommitProtocol]()

    def connect_later(*arguments: Any) -> AdminClient:
        monkeypatch.setattr(AdminClient, "of", connect)
        others.append(use(options("a")))  # as another thread does meanwhile
        return connect(*arguments)

    monkeypatch.setattr(AdminClient, "of", connect_later)
    assert [use(options("a"))] == others
    assert len(closed) == 1
    assert closed != others


def test_one_that_is_in_use_stays_open(closed: list[CommitProtocol]) -> None:
    """Writes under many other prefixes go on in other threads."""
    with session._session(options("a")) as used:
        for number in range(3 * session._MAX_UNUSED):
            use(options(f"b{number}"))
        assert used not in closed
        assert use(options("a")) is used


def test_cluster_and_log_are_checked_again_after_a_while(
    closed: list[CommitProtocol], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, checked = SimClock(), []
    monkeypatch.setattr(session, "_clock", clock)
    for name in ("check_brokers", "prepare_log_topic", "warn_of_low_min_isr"):
        monkeypatch.setattr(session, name, lambda *_, name=name: checked.append(name))
    what = options("a")
    session._check_cluster(what)
    assert checked == ["check_brokers", "prepare_log_topic", "warn_of_low_min_isr"]
    clock.ms += what.producer.metadata_max_age_ms - 1
    session._check_cluster(what)
    assert len(checked) == 3
    clock.ms += 1
    session._check_cluster(what)
    assert checked[3:] == ["check_brokers", "prepare_log_topic"]


def test_a_job_has_no_checkpoint_whatever_the_option_says(
    closed: list[CommitProtocol], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else two jobs with this option and one prefix would be two queries."""
    planned: list[Driver] = []
    monkeypatch.setattr(session, "_check_cluster", lambda options: None)
    monkeypatch.setattr(CommitProtocol, "plan", lambda self, driver, *_: planned.append(driver))
    session.plan_unit(replace(options("a"), checkpoint="/ck"), is_job=True)
    session.plan_unit(replace(options("a"), checkpoint="/ck/"), is_job=False)
    assert [driver.checkpoint for driver in planned] == [None, "/ck"]


def test_a_fork_has_none(closed: list[CommitProtocol]) -> None:
    use(options("a"))
    session._prepared_at_ms[session._key(options("a"))] = 0
    with session._lock:
        pid = os.fork()
        if pid == 0:
            is_empty = not session._sessions and not session._prepared_at_ms
            is_usable = is_empty and session._lock.acquire(timeout=60)
            os._exit(0 if is_usable else 1)
    assert os.waitpid(pid, 0)[1] == 0
