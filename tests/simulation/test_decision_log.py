"""The decision log: how it is created, and where its leader changes, somebody has deleted it or its records,
brokers are slow, or a record is of another version.
"""

from __future__ import annotations

import contextlib
import json
import logging
import tracemalloc
from unittest import mock

import pytest

from spark_kafka_sink.base.errors import (
    BrokerError,
    ConfigError,
    KafkaSinkError,
    TopicError,
    TransactionError,
    error_named,
)
from spark_kafka_sink.base.model import NO_PRODUCER, ZERO_UUID, TopicPartition
from spark_kafka_sink.config.producer_config import TopicCreation
from spark_kafka_sink.config.sink_keys import ExactlyOnceConfig
from spark_kafka_sink.network.admin import create_missing
from spark_kafka_sink.protocol.messages.topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    MetadataRequest,
    ProduceRequest,
)
from spark_kafka_sink.protocol.schema import Request
from spark_kafka_sink.record import record_batch
from spark_kafka_sink.record.record_batch import NewRecord, encode_batch
from spark_kafka_sink.transactions import decision_log, inspection
from spark_kafka_sink.transactions.commit_protocol import CommitProtocol
from spark_kafka_sink.transactions.decision_log import (
    LogPartition,
    check_brokers,
    is_decision_log,
    prepare_log_topic,
    warn_of_low_min_isr,
    warn_of_short_expiration,
)
from spark_kafka_sink.transactions.inspection import Inspection
from spark_kafka_sink.transactions.model import (
    NO_UNIT,
    MissingRecordError,
    Phase,
    PrefixInUseError,
    StoredRecord,
    Unit,
    UnreadableRecordError,
    Write,
)
from spark_kafka_sink.transactions.operations import (
    Choice,
    Operations,
    RefusedError,
    UnreadableRecord,
)
from tests.simulation.cluster import HIGH_WATERMARK_LAG_MS
from tests.simulation.harness import assert_has
from tests.simulation.operating import (
    LOG_TOPIC,
    PATIENCE_MS,
    TIMEOUT_MS,
    A,
    B,
    Operated,
    Prefix,
    agree,
    driver,
    never,
    unit,
)


def lose_the_log(lives):
    lives.world.run_for(500)
    lives.world.cluster.empty_topic(LOG_TOPIC)


def accepting(lives):
    config = ExactlyOnceConfig("p", TIMEOUT_MS, LOG_TOPIC, 3, accepts_missing_record=True)
    return CommitProtocol(lives.client, config, lives.world.clock, PATIENCE_MS)


def append_outside(prefix, *records, topic=LOG_TOPIC):
    """As another client writes them: outside of transactions."""
    batch = encode_batch(records, 0, NO_PRODUCER, -1, is_transactional=False)
    log = LogPartition(prefix.client.admin, TopicPartition(topic, 0))
    assert log.append(None, batch, 11, prefix.deadline_ms).error_code == 0


@pytest.mark.parametrize("job", [None, "job"])
def test_a_log_that_was_lost_under_a_decision_is_noticed_before_anything_is_swept(
    lives, job, caplog
):
    lives.batch(0, driver(1), job=job and "first")
    lives.killed("commit.ending", 1, driver(1), job=job)
    lose_the_log(lives)
    for number in (1, 2, 2):  # a refused driver leaves nothing that would let it pass the next time
        with pytest.raises(MissingRecordError, match=r"transaction\.accept=missing-record"):
            lives.protocol.plan(driver(number), job)
    assert len(lives.open_ids()) == 1
    lives.protocol = accepting(lives)
    assert "TXN-046" not in caplog.text
    lives.batch(1, driver(2), job=job and "again")
    assert "goes on without the record of transactional.id.prefix 'p'" in caplog.text
    assert lives.visible() == [b"0-0", b"0-1", b"1-0", b"1-0", b"1-1"]


def test_a_log_that_was_lost_after_the_brokers_have_forgotten_the_prefix(lives):
    lives.batch(0, driver(1))
    lives.batch(1, driver(1))
    lose_the_log(lives)
    lives.world.transactions.expire("p.driver")
    with pytest.raises(MissingRecordError, match="micro-batch 2 of query q-1 is not its query's"):
        lives.batch(2, driver(2))
    lives.protocol = accepting(lives)
    lives.batch(2, driver(3))
    lives.protocol = lives.protocol_of("p")
    lives.batch(3, driver(4))
    assert len(lives.visible()) == 8


def test_a_copy_of_the_log_is_not_the_log(lives):
    """A mirror writes the records outside of transactions, into another topic."""
    lives.batch(0, driver(1))
    lives.world.run_for(500)
    copied = lives.world.cluster.partition(TopicPartition(LOG_TOPIC, 0)).log.records()
    lives.world.cluster.empty_topic(LOG_TOPIC)
    append_outside(lives, *(NewRecord(r.key, r.value) for r in copied if r.key))
    with pytest.raises(MissingRecordError, match="the brokers know that it was used"):
        lives.protocol.plan(driver(2), None)


FOREIGN_MARKS = (b"", b"\xff", b"null", b"1", b"[]", b"{}", b'{"log": 1}', b"[" * 100_000, None)


@pytest.mark.parametrize("has_mark", [True, False])
@pytest.mark.parametrize("value", FOREIGN_MARKS, ids=range(len(FOREIGN_MARKS)))
def test_a_foreign_record_in_place_of_the_mark(lives, value, has_mark):
    """Somebody else writes to the topic, under the key of the mark: it is as if it were not there."""
    if has_mark:
        lives.killed("plan.fenced", 0, driver(1))
    append_outside(lives, NewRecord(b"\xfep", value))
    lives.batch(0, driver(2))
    assert lives.visible() == [b"0-0", b"0-1"]


@pytest.mark.parametrize("has_open", [True, False])
def test_a_prefix_of_a_lost_log_is_released(lives, has_open):
    """No record is left to remove, and yet the next start must not be refused."""
    lives.batch(0, driver(1))
    if has_open:
        lives.write(lives.protocol.plan(driver(1), None), 0, b"left open")
    lose_the_log(lives)
    operations = Operations(lives.client, LOG_TOPIC, "p", lives.world.clock, PATIENCE_MS)
    result = operations.release(agree)
    assert (result.message, len(result.aborted)) == ("'p' is released", has_open)
    assert "nothing to release" in operations.release(agree).message
    lives.batch(1, driver(2))
    assert lives.visible() == [b"0-0", b"0-1", b"1-0", b"1-1"]


@pytest.mark.parametrize("has_tasks", [True, False])
def test_first_micro_batches_without_rows(lives, has_tasks):
    for number in range(3):
        plan = lives.protocol.plan(driver(1), None)
        if has_tasks:
            lives.protocol.commit(plan, unit(number), [])
        else:
            lives.protocol.commit_without_tasks(Unit(None, number, None), driver(1))
    lives.batch(3, driver(1))
    assert lives.visible() == [b"3-0", b"3-1"]


def test_a_query_whose_first_micro_batches_were_not_given_to_the_sink(lives):
    """Nobody can tell that from a lost log; it is refused before the tasks, and once accepted."""
    for number in (1, 2):
        with pytest.raises(MissingRecordError, match="did not call the sink for the first micro"):
            lives.protocol.plan(driver(number), None, None, unit(3))
        assert lives.record() is None
    lives.protocol = accepting(lives)
    plan = lives.protocol.plan(driver(3), None, None, unit(3))
    lives.protocol.commit(plan, unit(3), [lives.write(plan, 0, b"3-0")])
    lives.protocol = lives.protocol_of("p")
    # The fourth one is not given to it, too.
    plan = lives.protocol.plan(driver(3), None, None, unit(5))
    lives.protocol.commit(plan, unit(5), [lives.write(plan, 0, b"5-0")])
    assert lives.visible() == [b"3-0", b"5-0"]


@pytest.mark.parametrize("has_rows", [True, False])
def test_a_query_that_has_written_at_least_once_begins_later(lives, caplog, has_rows):
    words = r"wrote at-least-once until now, or .*: start it once"
    with pytest.raises(MissingRecordError, match=words):
        lives.batch(7, driver(1))
    assert lives.open_ids() != []
    lives.protocol.abort(driver(1))
    assert lives.open_ids() == []
    lives.protocol = accepting(lives)
    if has_rows:
        lives.batch(7, driver(2))
    else:
        lives.protocol.plan(driver(2), None)
        lives.protocol.commit_without_tasks(Unit(None, 7, None), driver(2))
    lives.batch(8, driver(2))
    lives.protocol = lives.protocol_of("p")
    lives.batch(9, driver(2))
    assert len(lives.visible()) == (6 if has_rows else 4)
    assert caplog.text.count("TXN-046") == 1
    assert "micro-batch 7 of query q-1 goes on without a record" in caplog.text or not has_rows


# --- its leader changes, or somebody has deleted records of it ----------------------------------

LOG = TopicPartition(LOG_TOPIC, 0)


@pytest.fixture
def operated():
    operated = Operated()
    operated.batch(6, [b"a"], driver(1))
    return operated


def move_leader(operated):
    """To a replica that has everything and has not heard of it."""
    cluster = operated.world.cluster
    partition = cluster.partition(LOG)
    [to, *_] = [b for b in partition.replicas if b != partition.leader_id]
    partition.heard_high_watermarks[to] = 1
    cluster.elect(partition, to)
    cluster.publish(now=True)
    assert partition.told_high_watermark < partition.high_watermark
    return partition


def test_a_decision_is_found_behind_a_new_leader(operated):
    move_leader(operated)
    assert operated.record().unit == unit(6)


def test_a_barrier_replaces_nothing_and_is_nobodys_record(operated):
    log = operated.protocol_of("p").log
    before = operated.record()
    deadline_ms = operated.deadline_ms
    assert log.read_current(deadline_ms) == before == log.read(deadline_ms)
    records = operated.world.cluster.partition(LOG).log.records()
    assert {r.key for r in records} == {b"p", b"\xffp", b"\xfep"}
    overviews = Inspection(operated.client, LOG_TOPIC, PATIENCE_MS).overview(None)
    assert [overview.prefix for overview in overviews] == ["p"]


def test_a_leader_that_changes_between_end_and_read(operated):
    log = LogPartition(operated.client.admin, LOG)
    deadline_ms = operated.deadline_ms
    end = log.end_offset(deadline_ms)
    move_leader(operated)
    before_ms = operated.world.clock.ms
    batches = list(log.read(0, end, deadline_ms))
    assert batches[-1].last_offset == end - 1
    assert operated.world.clock.ms - before_ms < 3 * HIGH_WATERMARK_LAG_MS


def test_a_leader_that_never_gets_there(operated):
    log = LogPartition(operated.client.admin, LOG)
    end = operated.world.cluster.partition(LOG).high_watermark
    with pytest.raises(BrokerError, match=f"readable to {end}, not to 99: OFFSET_NOT"):
        list(log.read(0, 99, operated.world.clock.ms + 2000))


@pytest.mark.parametrize("is_deleted_wholly", [False, True])
def test_records_that_somebody_has_deleted(operated, is_deleted_wholly):
    partition = operated.world.cluster.partition(LOG)
    partition.log_start_offset = partition.high_watermark if is_deleted_wholly else 2
    assert (operated.record() is None) == is_deleted_wholly


def test_a_log_that_is_deleted_faster_than_it_can_be_read(operated):
    partition = operated.world.cluster.partition(LOG)

    class Running(int):
        """Before whatever it is compared with."""

        def __le__(self, other):
            return False

    partition.log_start_offset = Running(0)
    with pytest.raises(BrokerError, match="OFFSET_OUT_OF_RANGE"):
        operated.record()


def test_a_leader_waits_for_its_replicas_for_seconds_whatever_time_there_is(operated):
    """One that is cut off from them would be waited for until the end; another may have the rest."""
    admin = operated.client.admin
    with mock.patch.object(admin, "request_all", wraps=admin.request_all) as asked:
        operated.protocol_of("p").log.read_current(admin.deadline_in(3_600_000))
    requests = [call.request for (calls, *_), _ in asked.call_args_list for call in calls]
    waits = [r.timeout_ms for r in requests if isinstance(r, ProduceRequest)]
    assert waits
    assert all(0 < ms <= 10_000 for ms in waits)


def test_a_cluster_that_falls_silent_is_given_up_in_time(operated):
    """Also while the brokers are asked whether another one leads the log by now."""
    log = LogPartition(operated.client.admin, LOG)
    clock = operated.world.clock
    log.end_offset(clock.ms + PATIENCE_MS)
    operated.world.cluster.handle = lambda broker, request, version, reply: None
    deadline_ms = clock.ms + 2_000
    with pytest.raises(KafkaSinkError):
        log.end_offset(deadline_ms)
    assert clock.ms <= deadline_ms + 1


# --- how it is created, and what is said of weak topics -----------------------------------------

CONFIG = ExactlyOnceConfig("p", TIMEOUT_MS, "new-log", 3)
UNCLEAN = "unclean.leader.election.enable"


@pytest.fixture
def made():
    return Prefix()


def prepare(made):
    prepare_log_topic(made.client.admin, CONFIG, made.deadline_ms)


@pytest.mark.parametrize("limit_ms", [TIMEOUT_MS - 1, TIMEOUT_MS])
def test_transactions_that_brokers_would_end_earlier_are_refused(made, limit_ms):
    made.world.transactions.max_timeout_ms = limit_ms
    refused = contextlib.nullcontext()
    if limit_ms < TIMEOUT_MS:
        refused = pytest.raises(ConfigError, match=f"transaction.max.timeout.ms = {limit_ms}")
    with refused:
        check_brokers(made.client.admin, CONFIG, made.deadline_ms)


@pytest.mark.parametrize(("expiration_ms", "is_short"), [(3_599_999, True), (3_600_000, False)])
def test_ids_that_brokers_forget_soon_are_warned_of(made, caplog, expiration_ms, is_short):
    made.world.transactions.expiration_ms = expiration_ms
    warn_of_short_expiration(made.client.admin, made.deadline_ms)
    assert ["PKS-TXN-043" in message for message in caplog.messages] == [True] * is_short


@pytest.mark.parametrize("error", ["INVALID_REPLICATION_FACTOR", "POLICY_VIOLATION"])
def test_a_log_that_cannot_be_created(made, error):
    def answer(broker, request, reply, go_on):
        code = error_named(error).code
        results = [CreatableTopicResult(t.name, ZERO_UUID, code, "no") for t in request.topics]
        reply(CreateTopicsResponse(0, results))

    made.world.cluster.intercept(CreateTopicsRequest, answer)
    with pytest.raises(TopicError, match=error) as caught:
        prepare(made)
    hint = "Set transaction.log.replication.factor to the number of brokers at most"
    assert (hint in str(caught.value)) is (error == "INVALID_REPLICATION_FACTOR")


def answer_configs_with(made, response):
    """Brokers answer DescribeConfigs so; None: not at all."""

    def answer(broker, request, reply, go_on):
        if response is not None:
            reply(response)

    made.world.cluster.intercept(DescribeConfigsRequest, answer)


def refused(error):
    result = DescribeConfigsResult(error_named(error).code, None, 2, "t", [])
    return DescribeConfigsResponse(0, [result])


def test_the_log_is_created_so_that_no_decision_is_given_up(made, caplog):
    prepare(made)
    configs = made.world.cluster.topics["new-log"].configs
    assert configs[UNCLEAN] == "false"
    assert (configs["cleanup.policy"], configs["min.insync.replicas"]) == ("compact", "2")
    prepare(made)
    warn_of_low_min_isr(made.client.admin, "absent", made.deadline_ms)
    assert caplog.text == ""
    configs[UNCLEAN] = "true"
    prepare(made)
    assert f"topic 'new-log', has {UNCLEAN}=true" in caplog.text


@pytest.mark.parametrize(
    ("response", "reason"),
    [
        (None, ":9092 did not answer DescribeConfigs"),
        (refused("TOPIC_AUTHORIZATION_FAILED"), "it needs DESCRIBE_CONFIGS on the topic"),
    ],
)
def test_what_cannot_be_checked_is_told_and_fails_no_write(made, caplog, response, reason):
    answer_configs_with(made, response)
    with caplog.at_level(logging.INFO):
        prepare(made)
        warn_of_low_min_isr(made.client.admin, "t", made.deadline_ms)
    log = f"cleanup.policy, min.insync.replicas, {UNCLEAN} of topic new-log"
    names = log, "min.insync.replicas of topic t"
    for message, what in zip(caplog.messages, names, strict=True):
        assert message.startswith(f"{what} not checked: ")
        assert_has(message, reason, "[PKS-TOPIC-003]")


def test_the_check_of_weak_topics_fails_no_write_whatever_the_answer(made, caplog):
    answer_configs_with(made, refused("INVALID_REQUEST"))
    with caplog.at_level(logging.INFO):
        warn_of_low_min_isr(made.client.admin, "t", made.deadline_ms)
    assert "min.insync.replicas of topic t not checked: DescribeConfigs of t: " in caplog.text


@pytest.mark.parametrize("known", range(4))
def test_brokers_that_do_not_know_the_log_that_was_created(made, known):
    """After so many answers comes one of a broker that lags behind."""
    answers = iter(["NONE"] * known + ["UNKNOWN_TOPIC_OR_PARTITION"])
    made.world.cluster.on_describe = lambda topic: next(answers, "NONE")
    prepare(made)
    assert "new-log" in made.world.cluster.topics


@pytest.mark.parametrize("known", range(3))
def test_brokers_that_do_not_know_the_new_logs_partition_yet(made, known):
    """The topic is in their answer, its partitions are not."""
    left = iter([False] * known + [True])

    def answer(broker, request, reply, go_on):
        def without_partitions(response):
            for topic in response.topics:
                if topic.name == "new-log" and topic.partitions and next(left, False):
                    topic.partitions = []
            reply(response)

        go_on(without_partitions)

    made.world.cluster.intercept(MetadataRequest, answer)
    for _ in range(3):
        prepare(made)
    assert next(left, None) is None


def test_a_log_whose_leader_alone_may_acknowledge_is_refused_unless_it_is_for_one_replica(made):
    prepare(made)
    made.world.cluster.topics["new-log"].configs["min.insync.replicas"] = "1"
    with pytest.raises(ConfigError, match=r"has min\.insync\.replicas=1, less than 2: .*Alter"):
        prepare(made)
    of_one = CONFIG._replace(log_replication_factor=1)
    prepare_log_topic(made.client.admin, of_one, made.deadline_ms)


@pytest.mark.parametrize(("replicas", "min_insync"), [(3, 1), (3, 2), (1, 1)])
def test_an_output_topic_that_one_broker_may_lose_is_warned_of(made, caplog, replicas, min_insync):
    made.world.cluster.create_topic("weak", 2, replicas, min_insync)
    warn_of_low_min_isr(made.client.admin, "weak", made.deadline_ms)
    is_warned_of = (replicas, min_insync) == (3, 1)
    assert ("topic 'weak' has 3 replicas and min.insync.replicas=1" in caplog.text) is is_warned_of
    assert (caplog.text != "") is is_warned_of


# --- a record of another version, or of something else ------------------------------------------


@pytest.fixture
def rewritten():
    """Micro-batch 7 was written; then somebody else has written the record."""
    rewritten = Operated()
    rewritten.batch(7, [A], driver(1))
    return rewritten


def newer(rewritten, **more):
    """The record as a later version may write it."""
    record = rewritten.record()
    return json.dumps({**json.loads(record.to_json()), "format": 3, **more}).encode()


@pytest.mark.parametrize(
    ("key", "value", "is_log"),
    [
        (b"\xfep", b'{"log": "00", "released": true}', True),
        (b"\xfep", b'{"log": "00"}', False),
        (b"\xfep", b"7", False),
        (b"\xfep", None, False),
        (None, b'{"log": "00", "released": true}', False),
        (b"p", b"a row", False),
        (None, None, False),
    ],
)
def test_a_topic_is_a_decision_log_by_its_records(rewritten, key, value, is_log):
    append_outside(rewritten, NewRecord(key, value), topic="t")
    admin, deadline_ms = rewritten.client.admin, rewritten.deadline_ms
    assert is_decision_log(admin, "t", deadline_ms) is is_log
    assert is_decision_log(admin, LOG_TOPIC, deadline_ms)


def test_it_is_shown_with_offset_and_version_and_what_each_choice_does(rewritten):
    value = newer(rewritten)
    rewritten.write_raw(value)
    with pytest.raises(UnreadableRecordError, match="resolve --prefix p") as unreadable:
        rewritten.protocol.plan(driver(2), None)
    with pytest.raises(RefusedError) as refused:
        rewritten.operations.resolve(None, never)
    parts = (value.decode(), f"offset {unreadable.value.stored.offset},", "format 3", "phase DONE")
    choices = "If a newer version", "--as-written: ", "become duplicates"
    assert_has(str(refused.value), *parts, f"{unit(7)}", *choices)


@pytest.mark.parametrize(
    ("choice", "visible"), [(Choice.AS_WRITTEN, [A]), (Choice.AS_NOT_WRITTEN, [A, A])]
)
def test_the_choice_decides_what_a_replay_does(rewritten, choice, visible):
    rewritten.write_raw(newer(rewritten))
    result = rewritten.operations.resolve(choice, agree)
    assert result.decision == rewritten.record()
    with pytest.raises(PrefixInUseError):  # whose prefix it is was kept
        rewritten.protocol.plan(driver(3, "/other"), None)
    rewritten.batch(7, [A], driver(2))
    assert rewritten.visible() == visible
    rewritten.batch(8, [B], driver(2))
    assert rewritten.visible() == [*visible, B]


def test_one_that_says_nothing_can_only_count_as_not_written(rewritten):
    rewritten.write_raw(b"\xff\x00nonsense")
    with pytest.raises(RefusedError, match="only --as-not-written"):
        rewritten.operations.resolve(Choice.AS_WRITTEN, never)
    result = rewritten.operations.resolve(Choice.AS_NOT_WRITTEN, agree)
    assert (result.decision.unit, result.decision.phase) == (NO_UNIT, Phase.DONE)
    rewritten.batch(8, [B], driver(2))
    assert rewritten.visible() == [A, B]


def test_what_is_open_is_aborted(rewritten):
    _, [written] = rewritten.begun(driver(1), B)
    rewritten.write_raw(newer(rewritten, phase="DECIDED"))
    told = []
    result = rewritten.operations.resolve(Choice.AS_NOT_WRITTEN, told.append)
    assert "1 open transaction(s) will be aborted" in told[0]
    assert result.aborted == (written.transactional_id,)
    assert rewritten.visible() == [A]


def test_somebody_replaces_it_while_the_operator_thinks(rewritten):
    rewritten.write_raw(newer(rewritten))

    def agree_late(what):
        rewritten.write_raw(b"{}")

    with pytest.raises(RefusedError, match="has changed"):
        rewritten.operations.resolve(Choice.AS_WRITTEN, agree_late)
    with pytest.raises(UnreadableRecordError, match="not a decision"):
        rewritten.record()


def test_without_confirmation_nothing_happens(rewritten):
    rewritten.write_raw(newer(rewritten))

    def refuse(what):
        raise RefusedError("no")

    before = rewritten.world.state("p.driver")[1]
    with pytest.raises(RefusedError, match="^no$"):
        rewritten.operations.resolve(Choice.AS_WRITTEN, refuse)
    assert rewritten.world.state("p.driver")[1] == before


def test_a_huge_record_of_another_prefix_stops_no_driver(rewritten, monkeypatch):
    """Every exactly-once principal may write to the shared log, and 6 KB may be 200 MiB."""
    rewritten.protocol_of("q").plan(driver(8), None)
    monkeypatch.setattr(record_batch, "MOST_UNCOMPRESSED_BYTES", 1 << 20)
    rewritten.write_raw(bytes(2 << 20), prefix="q", codec="zstd")
    rewritten.batch(8, [B], driver(1))
    assert rewritten.record().unit == unit(8)
    assert is_decision_log(rewritten.client.admin, LOG_TOPIC, rewritten.deadline_ms)
    overview = Inspection(rewritten.client, LOG_TOPIC, PATIENCE_MS).overview(None)
    assert [(one.prefix, one.decision is not None) for one in overview] == [
        ("p", True),
        ("q", False),
    ]


def test_a_reader_that_is_slow_ends_at_its_deadline(rewritten):
    """The batches of one response may take hours, by what their writers chose."""
    log, world = LogPartition(rewritten.client.admin, LOG), rewritten.world
    deadline_ms = rewritten.deadline_ms
    batches = log.read(0, log.end_offset(deadline_ms), deadline_ms)
    next(batches)
    world.clock.ms = deadline_ms - 1
    next(batches)
    world.clock.ms = deadline_ms
    with pytest.raises(BrokerError, match=r"read to 2, not to \d+, .*REQUEST_TIMED_OUT"):
        next(batches)


def test_a_batch_of_many_prefixes_is_kept_once(rewritten):
    others = [NewRecord(b"%d" % n, b"%0100d" % n) for n in range(1000)]
    rewritten.write_raw(newer(rewritten), others=others)
    found = Inspection(rewritten.client, LOG_TOPIC, PATIENCE_MS)
    tracemalloc.start()
    overview = found.overview(None)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(overview) == 1001
    assert all(one.problem for one in overview)
    assert peak < 50 * sum(len(other.key + other.value) for other in others)


def test_a_list_of_prefixes_has_limits(rewritten, monkeypatch):
    """Whoever may write to the log chooses how many there are; one alone is still shown."""
    written = json.dumps({**json.loads(rewritten.record().to_json()), "padding": "x" * 100})
    others = [NewRecord(b"%d" % n, written.encode()) for n in range(3)]
    rewritten.write_raw(written.encode(), others=others)
    found = Inspection(rewritten.client, LOG_TOPIC, PATIENCE_MS)
    monkeypatch.setattr(inspection, "MOST_SHOWN_BYTES", 2 * len(written))
    shown = {one.prefix: one.problem for one in found.overview(None)}
    assert [bool(shown[prefix]) for prefix in ("p", "0", "1", "2")] == [False, False, True, True]
    monkeypatch.setattr(inspection, "MOST_NAME_BYTES", 800)
    with pytest.raises(TransactionError, match="has records of 4 prefixes or more.*--prefix"):
        found.overview(None)
    assert found.overview("2")[0].decision is not None


def test_a_record_of_the_own_prefix_that_is_too_large_can_be_replaced(rewritten, monkeypatch):
    monkeypatch.setattr(decision_log, "MOST_DECISION_BYTES", 1000)
    rewritten.write_raw(json.dumps({"format": 1, "padding": "x" * 2000}).encode(), codec="zstd")
    with pytest.raises(UnreadableRecordError) as unreadable:
        rewritten.protocol.plan(driver(1), None)
    assert len(unreadable.value.stored.value) == 1001
    assert rewritten.operations.resolve(Choice.AS_NOT_WRITTEN, agree).decision is not None
    rewritten.batch(8, [B], driver(1))
    assert rewritten.visible() == [A, B]


def test_a_decision_that_could_not_be_read_is_not_written(rewritten, monkeypatch):
    monkeypatch.setattr(decision_log, "MOST_DECISION_BYTES", 100)
    with pytest.raises(BrokerError, match=r"MESSAGE_TOO_LARGE.* the record has \d+ bytes"):
        rewritten.protocol_of("new").plan(driver(2), None)


@pytest.mark.parametrize(
    ("operation", "arguments"), [("abort", [None]), ("release", []), ("rebind", ["/new"])]
)
def test_other_repairs_name_resolve(rewritten, operation, arguments):
    rewritten.write_raw(b"{}")
    with pytest.raises(TransactionError, match="resolve --prefix p shows the record"):
        getattr(rewritten.operations, operation)(*arguments, never)


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"[]",
        b"7",
        b'{"unit":7,"owner":[],"written":[[1]],"superseded":[7],"write":"ab","records":"x"}',
        b'{"unit":{"query_id":1,"batch_id":2,"job_id":null},"phase":[]}',
        b'{"unit":{"query_id":"q","batch_id":-1,"job_id":null},"records":true}',
        b"[" * 100_000,
    ],
)
def test_whatever_it_is_it_can_be_shown_and_replaced(value):
    record = UnreadableRecord.of(StoredRecord(3, value))
    assert (record.unit, record.records, record.written) == (NO_UNIT, 1, ())
    assert "offset 3" in str(record)
    decision = record.replacement(driver(1), 5, is_written=False)
    assert type(decision).from_json(decision.to_json()) == decision


def test_writes_that_are_done_stay_so():
    value = {
        "unit": {"query_id": None, "batch_id": None, "job_id": "j"},
        "write": ["nightly", 4, "", None],
        "written": [["nightly", "", [[0, 0], [3, 3]], -1, None], ["other", "t", [[1, 1]], 0, "q"]],
    }
    record = UnreadableRecord.of(StoredRecord(3, json.dumps(value).encode()))
    written = record.replacement(driver(1), 5, is_written=True)
    assert written.has(Write("nightly", 4))
    assert written.has(Write("other", 1))
    void = record.replacement(driver(1), 5, is_written=False)
    assert void.has(Write("nightly", 3))
    assert not void.has(Write("nightly", 4))


# --- brokers that take their time ---------------------------------------------------------------

SLOW_MS = 10_000


def answer_late(prefix, request_type, delay_ms):
    world = prefix.world
    world.cluster.intercept(
        request_type, lambda broker, request, reply, go_on: world.scheduler.after(delay_ms, go_on)
    )
    return prefix


@pytest.fixture
def waiting():
    """Its controller has a queue of ten seconds: each request to create topics waits as long."""
    return answer_late(Prefix(), CreateTopicsRequest, SLOW_MS)


def test_topics_are_created(waiting):
    create_missing(waiting.client.admin, ["new"], TopicCreation(1, 1, ()))
    prepare(waiting)
    assert {"new", "new-log"} <= waiting.world.cluster.topics.keys()


def test_the_log_is_waited_for_until_the_deadline(waiting):
    deadline_ms = waiting.world.clock.ms + SLOW_MS - 1_000
    with pytest.raises(BrokerError, match="CreateTopics: no answer"):
        prepare_log_topic(waiting.client.admin, CONFIG, deadline_ms)
    assert waiting.world.clock.ms == deadline_ms


@pytest.fixture
def slow():
    """A prefix that a driver has. All brokers take five seconds for each answer from then on."""
    prefix = Prefix()
    prefix.protocol.plan(driver(1), None)
    return answer_late(prefix, Request, 5_000)


def test_what_any_broker_can_answer_is_waited_for(slow):
    """The first one asked may hang, as far as one can see, and is left; the next one is not."""
    for most_ms in (15_000, 5_100):
        started_ms = slow.world.clock.ms
        assert len(slow.client.admin.nodes(started_ms + PATIENCE_MS)) == 3
        assert slow.world.clock.ms - started_ms < most_ms


def test_planning_takes_its_requests_one_after_the_other(slow):
    """About ten, each once: it is within max.block.ms."""
    started_ms = slow.world.clock.ms
    slow.protocol.plan(driver(1), None)
    assert slow.world.clock.ms - started_ms < PATIENCE_MS
