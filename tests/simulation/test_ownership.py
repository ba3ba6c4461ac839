"""Who may take a prefix: the same query whichever way its checkpoint is spelled, and nobody else; jobs
before queries; a new query in the place of another.
"""

import json

import pytest

from spark_kafka_sink.base.errors import ConfigError, TransactionError
from spark_kafka_sink.transactions.model import (
    MissingRecordError,
    OutcomeError,
    Phase,
    PrefixInUseError,
    TransactionLostError,
    Write,
)
from spark_kafka_sink.transactions.operations import Choice, RefusedError
from tests.simulation.harness import assert_has
from tests.simulation.operating import (
    TIMEOUT_MS,
    Lives,
    Operated,
    agree,
    driver,
    never,
    unit,
)

FIRST, NEXT, THIRD = (f"file:/p/_checkpoints/sink/flow/{n}" for n in range(3))


def begun_micro_batch(lives, batch_id, by, query_id="q-1", job=None):
    """A plan and one open task, with the value ``b"{query}-{batch}"``."""
    plan = lives.protocol.plan(by, job)
    return plan, [lives.write(plan, 0, f"{query_id}-{batch_id}".encode())]


def micro_batch(lives, batch_id, by, query_id="q-1"):
    plan, written = begun_micro_batch(lives, batch_id, by, query_id)
    return lives.protocol.commit(plan, unit(batch_id, query_id=query_id), written)


def refused(lives, by, job=None, what=PrefixInUseError):
    """The error of a plan that changes nothing: whoever has begun to write goes on."""
    before = lives.record(), lives.world.state("p.driver"), lives.open_ids()
    with pytest.raises(what) as error:
        lives.protocol.plan(by, job)
    assert (lives.record(), lives.world.state("p.driver"), lives.open_ids()) == before
    return str(error.value)


# --- the same query, or another one --------------------------------------------------------------


def test_one_checkpoint_in_several_spellings_is_one_query(lives):
    spellings = ["file:/c/q", "file:///c/q", "/c//q", "file://localhost/c/q/", "/c/./q"]
    for number, spelling in enumerate(spellings):
        micro_batch(lives, number, driver(number, spelling))
    assert len(lives.visible()) == len(spellings)
    assert lives.record().owner.checkpoint == "file:/c/q"


def test_what_a_spelling_leaves_open_does_not_open_the_prefix(lives):
    """Else a third query would match the second spelling."""
    for number, spelling in enumerate(["hdfs://nn/c", "/c"]):
        micro_batch(lives, number, driver(number, spelling))
    refused(lives, driver(2, "hdfs://other/c"))


def test_another_query_at_the_same_place_is_refused_before_anything_is_fenced(lives):
    """Two clusters have /c/orders. The owner's transaction is open, and is committed."""
    plan, written = begun_micro_batch(lives, 0, driver(1, "/c", "q-1"))
    told = refused(lives, driver(2, "/c", "q-2"))
    assert_has(told, "belongs to query q-1", "release")
    assert "rebind" not in told
    lives.protocol.commit(plan, unit(0), written)
    assert_has(refused(lives, driver(3, "/c", "q-2")), "query q-1")
    micro_batch(lives, 1, driver(4, "/elsewhere", "q-1"))
    assert len(lives.visible()) == 2


@pytest.mark.parametrize(("query_id", "count"), [(None, 1), ("q-1", 0)])
def test_a_takeover_that_is_not_certain_is_told_once(lives, caplog, query_id, count):
    micro_batch(lives, 0, driver(1, "s3a://b/c", query_id))
    assert "TXN-039" not in caplog.text
    for batch_id in (1, 2):
        micro_batch(lives, batch_id, driver(2, "s3a://b/c", query_id))
    assert caplog.text.count("TXN-039") == count
    if count:
        assert_has(caplog.text, "driver driver-2", "driver driver-1", "a prefix of its own")


def test_a_plan_of_the_owner_writes_no_record(lives):
    micro_batch(lives, 0, driver(1, "/c"))
    micro_batch(lives, 1, driver(2, "hdfs://nn/c"))
    end = lives.world.cluster.topics["decisions"].partitions[0].log.end_offset
    for batch_id in (2, 3):
        lives.protocol.plan(driver(2, "/c")._replace(started_ms=batch_id), None)
    batches = lives.world.cluster.topics["decisions"].partitions[0].log
    barriers = batches.end_offset - end
    assert barriers <= 3, "a micro-batch of the owner writes its record again"


@pytest.mark.parametrize(("is_job", "write_id"), [(False, None), (True, None), (True, "etl")])
def test_an_accepted_missing_record_that_stays_set_writes_no_record(is_job, write_id):
    """As the plan of an owner without the option."""
    operated, by = Operated(), driver(1, None if is_job else "/c")

    def plan(number):
        job = f"j{number}" if is_job else None
        return operated.protocol.plan(by, job, write_id and Write(write_id, number))

    for number in (4, 5):
        begun = plan(number)
        written = operated.written(begun, [b"row"])
        operated.protocol.commit(begun, unit(number, begun.job_id), written)
    log = operated.world.cluster.topics["decisions"].partitions[0].log
    end = log.end_offset
    plan(6)
    assert log.end_offset - end == 1, "more than a barrier"


def test_an_old_folder_at_the_path_of_the_checkpoint_locks_nobody_out(lives):
    """The checkpoint is /c of another file system; a local run has left its own on the driver."""
    for number, batch_id in ((1, 0), (1, 1), (2, 2)):
        micro_batch(lives, batch_id, driver(number, "/c", "q-old-folder"))
    assert len(lives.visible()) == 3
    assert "belongs to query q-1" in refused(lives, driver(3, "/elsewhere", "q-old-folder"))
    refused(lives, driver(3, "/c", "q-2"))
    # A second query with the same location is found at its commit, by Spark's id.
    with pytest.raises(PrefixInUseError, match="belongs to query q-1"):
        micro_batch(lives, 3, driver(3, "/c", "q-old-folder"), "q-2")


@pytest.mark.parametrize(
    ("location", "is_told"), [("/c", True), ("file:/c", False), ("/other", False)]
)
def test_the_folder_that_another_id_was_read_from_is_named(lives, location, is_told):
    """Only one of two machines has the old folder."""
    micro_batch(lives, 0, driver(1, "/c"))
    told = refused(lives, driver(2, location, "q-old-folder"))
    hint = "q-old-folder by /c/metadata on host: if its checkpoint is not there, write scheme"
    assert (hint in told) == is_told


# --- jobs, and then a query ----------------------------------------------------------------------


@pytest.mark.parametrize("query", [1, 2])
def test_a_job_and_then_a_query_leave_the_prefix_to_the_query(lives, query):
    """Also in one application, where both have the same driver."""
    lives.batch(0, driver(1, None), job="j")
    micro_batch(lives, 0, driver(query))
    micro_batch(lives, 1, driver(query))
    assert "belongs to query q-1" in refused(lives, driver(query, None), "j2")
    micro_batch(lives, 2, driver(3))
    assert len(lives.visible()) == 5


def test_a_jobs_record_is_no_record_of_a_query(lives):
    """The stream comes back with micro-batch 1 done, which it must not write again."""
    lives.batch(0, driver(1, None), job="j")
    with pytest.raises(MissingRecordError, match="micro-batch 1 of query q-1 is not its query's"):
        micro_batch(lives, 1, driver(2))
    lives.protocol.abort(driver(2))
    lives.check_settled(b"0-0", b"0-1")


@pytest.mark.parametrize("write", [None, Write("etl", 0), Write("etl", 7)])
def test_what_a_user_has_accepted_for_a_job_is_not_accepted_for_a_query(write):
    """The prefix was released, and a job ran under it: the stream would write again."""
    operated = Operated()
    operated.accepts_missing_record = False
    operated.protocol = operated.protocol_of("p")
    micro_batch(operated, 0, driver(1))
    micro_batch(operated, 1, driver(1))
    operated.operations.release(agree)
    plan = operated.protocol.plan(driver(2, None), "j", write)
    operated.protocol.commit(plan, unit(0, "j"), operated.written(plan, [b"job"]))
    with pytest.raises(MissingRecordError):
        micro_batch(operated, 1, driver(3))


@pytest.mark.parametrize("rows", [True, False])
def test_what_a_user_has_accepted_for_a_name_is_not_accepted_for_another(rows):
    operated = Operated()
    named_micro_batch(operated, 7, "q-1", rows)
    assert operated.record().may_begin_later == ()
    operated.accepts_missing_record = False
    operated.protocol = operated.protocol_of("p")
    with pytest.raises(MissingRecordError, match=r"write\.id 'other'"):
        operated.protocol.plan(driver(1, None), "j", Write("other", 7), unit(7))
    named_micro_batch(operated, 8, "q-1")


def test_what_is_accepted_for_a_name_holds_until_its_first_write():
    """Its first driver dies, and the next one starts without the option."""
    operated = Operated()
    for name in ("etl", "other"):
        operated.protocol.plan(driver(1, None), "j", Write(name, 7), unit(7))
    operated.accepts_missing_record = False
    operated.protocol = operated.protocol_of("p")
    named_micro_batch(operated, 7, "q-1")
    operated.protocol.plan(driver(1, None), "j", Write("other", 7), unit(7))


def test_the_first_micro_batch_after_a_job_may_be_empty(lives):
    lives.batch(0, driver(1, None), job="j")
    plan = lives.protocol.plan(driver(2), None)
    lives.protocol.commit(plan, unit(0), [])
    micro_batch(lives, 1, driver(2))
    assert lives.record().unit == unit(1)


def test_a_named_micro_batch_needs_the_record_of_its_name(lives):
    def plan(version):
        of_query = unit(version)
        return lives.protocol.plan(driver(1, None), "j", Write("etl", version), of_query)

    with pytest.raises(MissingRecordError, match=r"write\.id 'etl'"):
        plan(1)
    lives.batch(0, driver(1, None), job="j")
    with pytest.raises(MissingRecordError, match=r"write\.id 'etl'"):
        plan(1)
    lives.protocol.plan(driver(1, None), "j", Write("etl", 0), unit(0))
    lives.protocol.commit_without_tasks(unit(0, "j"), driver(1, None), Write("etl", 0))
    assert plan(0).is_repeated
    assert not plan(1).is_repeated


def named_micro_batch(lives, version, query_id, rows=True):
    """Of ``batch_writer`` with a write.id; all queries of one program have one driver."""
    by, job = driver(1, None), f"{query_id}-{version}"
    write = Write("etl", version, query_id=query_id)
    plan = lives.protocol.plan(by, job, write, unit(version, query_id=query_id))
    if rows:
        written = [lives.write(plan, 0, job.encode())]
        lives.protocol.commit(plan, unit(version, job), written)
    else:
        lives.protocol.commit_without_tasks(unit(version, job), by, write)
    return plan


def part_of_a_job(lives, write, what=None):
    """One of two tasks of job j1 is committed, and the brokers have aborted the other since."""
    plan = lives.protocol.plan(driver(1, None), "j1", write, *([] if what is None else [what]))
    lives.die_in_commit("commit.ending", plan, unit(0, "j1"), lives.written(plan, [b"a", b"b"]))
    lives.world.run_for(TIMEOUT_MS + 20_000)


@pytest.mark.parametrize("rows", [True, False])
def test_a_name_is_of_one_query(lives, rows):
    """Each query counts its micro-batches from 0: rows of one would be dropped for the other's."""
    named_micro_batch(lives, 0, "q-1", rows)
    for version in (0, 1):
        with pytest.raises(ConfigError, match=r"'etl' .* has micro-batches of query q-1") as error:
            named_micro_batch(lives, version, "q-2")
        assert error.value.code == "TXN-008"
    assert named_micro_batch(lives, 0, "q-1").is_repeated
    # A thread of the function's own does not know the query; the log does not forget it.
    lives.batch(0, driver(1, None), tasks=1, job="other")
    named_micro_batch(lives, 1, None)
    with pytest.raises(ConfigError, match="query q-1"):
        named_micro_batch(lives, 2, "q-2")
    named_micro_batch(lives, 2, "q-1")
    assert b"q-1-2" in lives.visible()


def test_a_part_of_a_named_micro_batch_is_its_querys(lives):
    """Another query, whose rows happen to be the same, does not fill it in."""
    write = Write("etl", 0, query_id="q-1")
    part_of_a_job(lives, write, unit(0))
    lives.protocol.plan(driver(1, None), "j1", write, unit(0))
    with pytest.raises(ConfigError, match="has micro-batches of query q-1"):
        named_micro_batch(lives, 0, "q-2")


def test_a_part_of_a_job_stays_the_jobs_if_a_query_comes(lives):
    """The query is refused, and the job fills in the rest."""
    write = Write("etl", 1)
    part_of_a_job(lives, write)
    for _ in range(2):
        with pytest.raises(OutcomeError, match="visible in part"):
            lives.protocol.plan(driver(2), None)
    plan = lives.protocol.plan(driver(3, None), "j3", write)
    lives.protocol.commit(plan, unit(0, "j3"), lives.written(plan, [b"a", b"b"]))
    micro_batch(lives, 0, driver(4))
    assert lives.visible() == [b"a", b"b", b"q-1-0"]


@pytest.mark.parametrize("job", ["j4", None])
def test_who_may_not_follow_a_part_of_a_job_takes_nothing_from_it(lives, job):
    """Else the job's repetition, which fills in the rest, would be superseded."""
    write = Write("etl", 1)
    part_of_a_job(lives, write)
    plan = lives.protocol.plan(driver(1, None), "j2", write)
    written = lives.written(plan, [b"a", b"b"])
    other = driver(2) if job is None else driver(2, None)
    assert "visible in part" in refused(lives, other, job, OutcomeError)
    lives.protocol.commit(plan, unit(0, "j2"), written)
    assert lives.visible() == [b"a", b"b"]


# --- a new query in the place of another ----------------------------------------------------------


class Refreshed(Lives):
    accepts_new_query = True


@pytest.fixture(params=[2, 1], ids=["TV2", "TV1"])
def refreshed(request):
    return Refreshed(request.param)


@pytest.mark.parametrize("ids", [(None, None), ("q-1", "q-2")])
def test_a_new_query_is_refused_unless_the_user_says_so(lives, ids):
    micro_batch(lives, 0, driver(1, FIRST, ids[0]))
    told = refused(lives, driver(2, NEXT, ids[1]))
    assert_has(told, "option transaction.accept=new-query", "transactions release --prefix p")
    assert "rebind" not in told
    assert "accept" not in refused(lives, driver(2, "file:/other/1"))


def test_a_new_query_takes_the_prefix_with_its_micro_batch_0(refreshed):
    micro_batch(refreshed, 0, driver(1, FIRST))
    micro_batch(refreshed, 1, driver(1, FIRST))
    for batch_id in (0, 1):
        micro_batch(refreshed, batch_id, driver(2, NEXT), "q-2")
    assert len(refreshed.visible()) == 4
    assert "newest checkpoint" in refused(refreshed, driver(3, FIRST))
    micro_batch(refreshed, 0, driver(4, THIRD), "q-3")
    assert "newest checkpoint" in refused(refreshed, driver(5, NEXT))


def test_a_query_of_another_name_is_no_new_query_in_place_of_its_neighbour(refreshed):
    orders, payments = (
        driver(n, f"file:/cks/{name}")._replace(query_name=name)
        for n, name in ((1, "orders"), (2, "payments"))
    )
    micro_batch(refreshed, 0, orders)
    told = refused(refreshed, payments)
    assert_has(told, "new-query is for a query of the same name", "in the same folder")
    micro_batch(refreshed, 1, orders)


def test_a_new_query_is_told_without_a_warning_of_two_at_one_location(refreshed, caplog):
    caplog.set_level("INFO")
    micro_batch(refreshed, 0, driver(1, FIRST))
    micro_batch(refreshed, 0, driver(2, NEXT), "q-2")
    assert "TXN-039" not in caplog.text
    assert_has(caplog.text, f"driver driver-2 of query 'rows' on host, checkpoint {NEXT} takes")
    micro_batch(refreshed, 1, driver(3, NEXT), "q-2")
    assert caplog.text.count("TXN-039") == 1


def test_an_earlier_query_that_the_log_never_named_does_not_replace_a_later_one(refreshed):
    """Its driver died before its first claim, and comes back after the full refresh."""
    micro_batch(refreshed, 0, driver(2, NEXT), "q-2")
    assert "newest checkpoint" in refused(refreshed, driver(1, FIRST))
    micro_batch(refreshed, 1, driver(2, NEXT), "q-2")


def test_the_former_query_may_come_back_until_the_new_one_has_decided(refreshed):
    micro_batch(refreshed, 0, driver(1, FIRST))
    plan, written = begun_micro_batch(refreshed, 0, driver(2, NEXT), "q-2")
    micro_batch(refreshed, 0, driver(3, FIRST))  # a replay, which is dropped
    micro_batch(refreshed, 1, driver(3, FIRST))
    with pytest.raises(TransactionError):
        refreshed.protocol.commit(plan, unit(0, query_id="q-2"), written)
    assert refreshed.visible() == [b"q-1-0", b"q-1-1"]
    assert refreshed.record().former is None


def test_a_later_micro_batch_of_a_new_query_is_refused_at_its_commit(refreshed):
    micro_batch(refreshed, 0, driver(1, FIRST))
    with pytest.raises(PrefixInUseError, match="micro-batch 3 of query q-2 is not new"):
        micro_batch(refreshed, 3, driver(2, NEXT), "q-2")
    refreshed.protocol.abort(driver(2, NEXT))
    micro_batch(refreshed, 1, driver(3, FIRST))
    refreshed.check_settled(b"q-1-0", b"q-1-1")


def test_a_later_micro_batch_is_refused_also_if_the_former_query_has_not_decided():
    """After a release, the former query might have begun with any micro-batch; the new one may not."""
    operated = accepting()
    micro_batch(operated, 0, driver(1, FIRST))
    operated.operations.release(agree)
    operated.protocol_of("p").plan(driver(1, FIRST), None)
    with pytest.raises(PrefixInUseError, match="micro-batch 3 of query q-2 is not new"):
        micro_batch(operated, 3, driver(2, NEXT), "q-2")
    micro_batch(operated, 3, driver(3, FIRST))


def test_a_new_query_that_has_finished_micro_batches_is_refused_before(refreshed, tmp_path):
    first, other = tmp_path / "0", tmp_path / "1"
    (other / "commits").mkdir(parents=True)
    (other / "commits" / "4").touch()
    micro_batch(refreshed, 0, driver(1, str(first)))
    assert "is valid only for a query's micro-batch 0" in refused(refreshed, driver(2, str(other)))


def test_a_new_query_begins_without_rows(refreshed):
    micro_batch(refreshed, 0, driver(1, FIRST))
    plan = refreshed.protocol.plan(driver(2, NEXT), None)
    assert plan.decision.former == driver(1, FIRST, "q-1")
    refreshed.protocol.commit_without_tasks(unit(0, query_id=None), driver(2, NEXT))
    assert refreshed.record().former is None
    micro_batch(refreshed, 1, driver(2, NEXT), "q-2")
    assert refreshed.visible() == [b"q-1-0", b"q-2-1"]


def test_what_the_former_query_has_decided_is_finished_first(refreshed):
    plan, written = begun_micro_batch(refreshed, 0, driver(1, FIRST))
    refreshed.die_in_commit("commit.decided", plan, unit(0), written)
    micro_batch(refreshed, 0, driver(2, NEXT), "q-2")
    refreshed.check_settled(b"q-1-0", b"q-2-0")


def test_a_part_of_the_former_query_is_not_forgotten(refreshed):
    def tasks(by):
        return refreshed.begun(by, b"a", b"b")

    plan, written = tasks(driver(1, FIRST))
    refreshed.die_in_commit("commit.ending", plan, unit(0), written)
    refreshed.world.run_for(TIMEOUT_MS + 20_000)
    for number in (2, 3):
        with pytest.raises(OutcomeError, match=f"query of checkpoint {FIRST} fills them in"):
            refreshed.protocol.plan(driver(number, NEXT), None)
    plan, written = tasks(driver(4, FIRST))
    refreshed.protocol.commit(plan, unit(0), written)
    micro_batch(refreshed, 0, driver(5, NEXT), "q-2")
    assert refreshed.visible() == [b"a", b"b", b"q-2-0"]


def test_a_lost_decision_of_a_new_query_is_its_own(refreshed):
    """All of its transactions ran out: nothing is visible, and it goes on."""
    micro_batch(refreshed, 0, driver(1, FIRST))
    plan, written = begun_micro_batch(refreshed, 0, driver(2, NEXT), "q-2")
    refreshed.world.run_for(TIMEOUT_MS + 20_000)
    with pytest.raises(TransactionLostError):
        refreshed.protocol.commit(plan, unit(0, query_id="q-2"), written)
    assert refreshed.record().former is not None
    micro_batch(refreshed, 0, driver(2, NEXT), "q-2")
    assert refreshed.record().phase is Phase.DONE


# --- rebind --------------------------------------------------------------------------------------


def test_rebind_is_refused_where_the_checkpoint_is_another_querys(tmp_path):
    operated = Operated()
    micro_batch(operated, 0, driver(1, FIRST))
    (tmp_path / "metadata").write_text(json.dumps({"id": "q-2"}), encoding="utf-8")
    with pytest.raises(RefusedError, match="belongs to query q-1, and checkpoint .* to query q-2"):
        operated.operations.rebind(str(tmp_path), never)
    (tmp_path / "metadata").write_text(json.dumps({"id": "q-1"}), encoding="utf-8")
    operated.operations.rebind(str(tmp_path), agree)


def accepting():
    operated = Operated()
    operated.accepts_missing_record, operated.accepts_new_query = False, True
    operated.protocol = operated.protocol_of("p")
    return operated


def made_unreadable_and_replaced(operated):
    """A later version has written the record, and the operator replaces it."""
    value = json.loads(operated.record().to_json()) | {"format": 99}
    operated.write_raw(json.dumps(value).encode())
    return operated.operations.resolve(Choice.AS_WRITTEN, agree).decision


@pytest.fixture
def accepted():
    """The query of FIRST has written micro-batch 0, and that of NEXT was accepted in its place."""
    operated = accepting()
    micro_batch(operated, 0, driver(1, FIRST))
    operated.protocol.plan(driver(2, NEXT), None)
    return operated


GOES_ON = pytest.mark.parametrize(
    ("batch_id", "location", "query_id"), [(1, FIRST, "q-1"), (0, NEXT, "q-2")], ids=["old", "new"]
)


@GOES_ON
def test_rebind_waits_until_it_is_known_which_query_goes_on(accepted, batch_id, location, query_id):
    """Else the record is of one query, and the checkpoint of another."""
    for to in ("/moved", NEXT):
        with pytest.raises(RefusedError) as refused:
            accepted.operations.rebind(to, never)
        assert_has(str(refused.value), FIRST, NEXT, "which of the two", "release --prefix p")
    micro_batch(accepted, batch_id, driver(3, location), query_id)
    accepted.operations.rebind("/moved", agree)
    micro_batch(accepted, batch_id + 1, driver(4, "/moved"), query_id)
    assert len(accepted.visible()) == 3


@GOES_ON
def test_a_record_that_is_replaced_is_of_the_same_two_queries(
    accepted, batch_id, location, query_id
):
    replaced = made_unreadable_and_replaced(accepted)
    assert (replaced.former.checkpoint, replaced.former.query_id) == (FIRST, "q-1")
    micro_batch(accepted, batch_id, driver(3, location), query_id)
    assert len(accepted.visible()) == 2


def test_a_record_that_is_replaced_keeps_which_queries_are_gone():
    operated = accepting()
    for number, name in enumerate("abc"):
        micro_batch(operated, 0, driver(number, f"/p/{name}"), f"q-{name}")
    made_unreadable_and_replaced(operated)
    for name in "ab":
        assert "newest checkpoint" in refused(operated, driver(4, f"/p/{name}"))
