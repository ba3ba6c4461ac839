"""What a process keeps between its exactly-once writes: connections of few configurations, not of all
it ever had; ids, decisions and their repair, without a broker.
"""

import os
import pickle
import re
from dataclasses import replace

import pytest

from spark_kafka_sink.config.sink_options import SinkOptions
from spark_kafka_sink.network.admin import AdminClient
from spark_kafka_sink.transactions import fencing, model, session
from spark_kafka_sink.transactions.commit_protocol import CommitProtocol
from tests.simulation.time import SimClock
from tests.unit.spark_frame import EXACTLY_ONCE


def options(prefix, password="p", servers="127.0.0.1:1"):
    login = {"username": "u", "password": password, "mechanism": "PLAIN"}
    return SinkOptions.parse(
        {
            **EXACTLY_ONCE,
            "kafka.bootstrap.servers": servers,
            "transactional.id.prefix": prefix,
            "kafka.security.protocol": "SASL_PLAINTEXT",
            **{f"kafka.sasl.{name}": value for name, value in login.items()},
        }
    )


def use(what):
    with session._session(what) as protocol:
        return protocol


@pytest.fixture
def closed(monkeypatch):
    """Those that were closed."""
    found = []
    close = CommitProtocol.close

    def note(protocol):
        found.append(protocol)
        close(protocol)

    monkeypatch.setattr(CommitProtocol, "close", note)
    monkeypatch.setattr(session, "_sessions", {})
    monkeypatch.setattr(session, "_prepared_at_ms", {})
    yield found
    for protocol in session._sessions.values():
        close(protocol)


def test_what_is_kept_looks_for_credentials_before_it_is_used_again(closed, monkeypatch):
    looked = []
    monkeypatch.setattr(CommitProtocol, "renew_if_credentials_changed", lambda p: looked.append(p))
    first = use(options("a"))
    assert looked == []
    assert use(options("a")) is first
    assert looked == [first]
    assert closed == []


def test_a_password_that_changes_with_each_write(closed):
    elsewhere = use(options("a", servers="127.0.0.1:2"))
    made = []
    for number in range(5):
        what = options("a", f"token-{number}")
        session._prepared_at_ms[session._key(what)] = number
        made.append(use(what))
    assert closed == made[:-1]
    assert list(session._sessions.values()) == [elsewhere, made[-1]]
    assert list(session._prepared_at_ms.values()) == [4]


def test_a_prefix_for_each_job(closed):
    """The one that was used longest ago goes first, but none that another thread is using."""
    with session._session(options("long")) as long:
        first = use(options("first"))
        made = [use(options(f"job-{number}")) for number in range(session._MAX_UNUSED)]
        assert use(options("first")) is first
        made += [use(options(f"more-{number}")) for number in range(5)]
        assert closed == made[:5]
        assert long not in closed
    assert len(session._sessions) == session._MAX_UNUSED + 2


def test_one_that_two_threads_use_stays_open_when_the_first_leaves(closed):
    with session._session(options("a")) as kept:
        with session._session(options("a")) as same:
            assert same is kept
        use(options("a", password="another"))
        assert closed == []
    use(options("a", password="another"))
    assert closed == [kept]


def test_of_two_threads_that_make_one_the_second_takes_the_firsts(closed, monkeypatch):
    connect, others = AdminClient.of, list[CommitProtocol]()

    def connect_later(*arguments):
        monkeypatch.setattr(AdminClient, "of", connect)
        others.append(use(options("a")))  # as another thread does meanwhile
        return connect(*arguments)

    monkeypatch.setattr(AdminClient, "of", connect_later)
    assert [use(options("a"))] == others
    assert len(closed) == 1
    assert closed != others


def test_cluster_and_log_are_checked_again_after_a_while(closed, monkeypatch):
    clock, checked = SimClock(), []
    monkeypatch.setattr(session, "_clock", clock)
    first = "check_brokers", "prepare_log_topic", "warn_of_short_expiration", "warn_of_low_min_isr"
    for name in first:
        monkeypatch.setattr(session, name, lambda *_, name=name: checked.append(name))
    what = options("a")
    session._check_cluster(what)
    assert checked == list(first)
    clock.ms += what.producer.metadata_max_age_ms - 1
    session._check_cluster(what)
    assert len(checked) == len(first)
    clock.ms += 1
    session._check_cluster(what)
    assert checked[len(first) :] == ["check_brokers", "prepare_log_topic"]


def test_a_job_has_no_checkpoint_whatever_the_option_says(closed, monkeypatch):
    """Else two jobs with this option and one prefix would be two queries."""
    planned = []
    monkeypatch.setattr(session, "_check_cluster", lambda options: None)
    monkeypatch.setattr(CommitProtocol, "plan", lambda self, driver, *_: planned.append(driver))
    session.plan_unit(replace(options("a"), checkpoint="/ck"), is_job=True)
    session.plan_unit(replace(options("a"), checkpoint="/ck/"), is_job=False)
    assert [driver.checkpoint for driver in planned] == [None, "/ck"]


def test_a_fork_has_none(closed):
    use(options("a"))
    session._prepared_at_ms[session._key(options("a"))] = 0
    with session._lock:
        pid = os.fork()
        if pid == 0:
            is_empty = not session._sessions and not session._prepared_at_ms
            is_usable = is_empty and session._lock.acquire(timeout=60)
            os._exit(0 if is_usable else 1)
    assert os.waitpid(pid, 0)[1] == 0


DRIVER = model.Driver("d1", "host", 17, "/ck", "orders")
UNIT = model.Unit("q", 4, None)
RECORD = model.Decision(DRIVER).to_json()
DIGEST = "10-7-0000000000000001"
OTHER_DIGEST = "10-7-0000000000000002"


def task(partition, digest=DIGEST):
    return model.TaskTransaction(f"p.aaaaaaaaaaaa.{partition}", 7, 0, 2, partition, 10, digest)


def partial(committed, lost):
    return model.Decision(
        DRIVER, model.Phase.PARTIAL, UNIT, transactions=tuple(lost), committed=tuple(committed)
    )


# --- ids, decisions and their repair --------------------------------------------------------------


def test_a_decision_survives_json_and_pickle():
    decision = model.Decision(
        DRIVER, model.Phase.DECIDED, UNIT, 99, 30, (task(0), task(1)), (task(2),), True, ("d0",)
    )
    assert model.Decision.from_json(decision.to_json()) == decision
    plan = model.TransactionPlan(
        "p", DRIVER, model.DriverToken(1, 2, 3, 2), decision, None, 900_000
    )
    assert pickle.loads(pickle.dumps(plan)) == plan
    assert len({plan, pickle.loads(pickle.dumps(plan))}) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "Expecting value"),
        ("{}", "not a decision: KeyError"),
        ("[]", "not a decision: TypeError"),
        ('{"format": 1}', "format 1: written by another version"),
        ('{"format": 2}', "not a decision: KeyError"),
        (RECORD.replace('"written":[]', '"written":[["etl",1]]'), "values to unpack"),
        (RECORD.replace('"rows":null', '"rows":"1-7-x"'), "invalid literal"),
        (
            RECORD.replace('"committed":[]', '"committed":[["p.x.0",7,0,2,0,1,"1-7"]]'),
            "values to unpack",
        ),
        ("[" * 100_000, "not a decision: RecursionError"),
    ],
)
def test_what_is_no_decision_is_refused(text, message):
    with pytest.raises(ValueError, match=message):
        model.Decision.from_json(text)


def test_a_worker_takes_a_new_slot_for_each_task_of_a_plan():
    slots = model.WorkerTransactionalIds("0123456789ab")
    first, second = model.DriverToken(1, 0, 0, 2), model.DriverToken(1, 1, 0, 2)
    taken = [slots.next_id("p", first), slots.next_id("p", first), slots.next_id("other", first)]
    assert taken == ["p.0123456789ab.0", "p.0123456789ab.1", "other.0123456789ab.0"]
    slots.discard("p.0123456789ab.1")
    assert slots.next_id("p", second) == "p.0123456789ab.0"
    assert slots.next_id("p", second) == "p.0123456789ab.2"
    slots.renew()
    assert not slots.next_id("p", second).startswith("p.0123456789ab")


@pytest.mark.parametrize("prefix", ["p", "a.b", "we+ird [x] \\ *", "p$"])
def test_the_pattern_knows_own_tasks_only(prefix):
    own = model.WorkerTransactionalIds().next_id(prefix, model.DriverToken(1, 0, 0, 2))
    assert model.is_task_id(prefix, own)
    assert not model.is_task_id(prefix, model.driver_transactional_id(prefix))
    assert not model.is_task_id(
        prefix, model.WorkerTransactionalIds().next_id(f"{prefix}.x", model.DriverToken(1, 0, 0, 2))
    )
    assert not model.is_task_id(prefix, "x" + own)
    assert re.fullmatch(model.task_id_pattern(prefix), own)


def test_a_driver_is_known_by_its_block_manager():
    def driver(folder):
        return model.current_driver({"SPARK_LOCAL_DIRS": folder}, 0, None, None).driver_id

    assert driver("/tmp/blockmgr-1") == driver("/tmp/blockmgr-1") != driver("/tmp/blockmgr-2")


def test_owners_are_superseded_and_remembered():
    decision = model.Decision(DRIVER, model.Phase.DECIDED, UNIT)
    for number in range(2, 100):
        decision = decision.claimed_by(DRIVER._replace(driver_id=f"d{number}"), is_query=True)
    assert decision.owner.driver_id == "d99"
    assert decision.phase is model.Phase.DECIDED
    assert "d98" in decision.superseded
    assert len(decision.superseded) == 64


def written(*versions):
    found = model.Written("etl", "t")
    for version in versions:
        found = found.adding(version, "t")
    return found


def test_versions_are_kept_as_ranges_in_any_order():
    """Else a job that runs often enough has too many."""
    assert written(*range(42)).ranges == ((0, 41),)
    assert written(3, 1, 2, 2).ranges == ((1, 3),)
    assert str(written(20260105, 7, 20260104, 6)) == "6–7, 20260104–20260105"
    assert [written(2, 4).has(version) for version in range(1, 6)] == [0, 1, 0, 1, 0]
    other = model.Write("other", 0)
    decision = replace(model.Decision(DRIVER), write=model.Write("etl", 9)).done()
    decision = replace(decision, write=other).done()
    assert decision.has(model.Write("etl", 9))
    assert decision.has(other)
    assert not decision.has(model.Write("etl", 8))
    assert len(replace(decision, write=other._replace(version=1)).done().written) == 2


def test_the_lowest_range_is_folded_but_not_what_was_written_just_now():
    found = written(*range(0, 130, 2))  # 65 of them
    assert (found.ranges[0], len(found.ranges), found.folded) == ((2, 2), 64, 0)
    assert str(found).endswith("; others up to 0 are not known")
    late = written(*range(2, 132, 2)[:64]).adding(0, "t")
    assert (late.ranges[:2], late.folded) == (((0, 0), (4, 4)), 2)
    assert late.has(0)
    assert not late.has(2)


def test_a_replay_with_the_same_rows_fills_in_what_is_missing():
    decision = partial([task(0), task(2)], [task(1)])
    replay = [task(n)._replace(transactional_id=f"new.{n}") for n in (2, 1, 0)]
    assert fencing.replacements_of_lost(decision, replay, "p") == [replay[1]]


@pytest.mark.parametrize(
    "replay",
    [
        [task(0), task(1, OTHER_DIGEST)],
        [task(0, OTHER_DIGEST), task(1)],
        [task(1)],
        [task(0)],
        [task(0), task(1), task(2)],
        [],
    ],
)
def test_another_replay_is_an_error_that_says_what_is_visible(replay):
    with pytest.raises(
        model.OutcomeError, match="10 records are, 10 records of Spark partitions 1"
    ) as e:
        fencing.replacements_of_lost(partial([task(0)], [task(1)]), replay, "p")
    assert "micro-batch 4 of query q" in str(e.value)
    assert "differ" in str(e.value)
