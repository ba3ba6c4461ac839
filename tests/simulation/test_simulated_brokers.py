"""The simulated brokers and coordinators answer as real ones were measured to.

Versions of Produce and EndTxn that come in pairs are a client's two ways of writing transactions:
12 and 5 where transaction.version is 2, 11 and 4 otherwise.
"""

from __future__ import annotations

import pytest

from spark_kafka_sink.base.model import NO_PRODUCER
from tests.simulation.cluster import HIGH_WATERMARK_LAG_MS
from tests.simulation.wire import (
    ID,
    T0,
    T1,
    V4,
    V5,
    ConnectionLostError,
    decode_batches,
    ended,
    name_of,
    opened,
    records_of,
    world,
    write,
)
from tests.tables import each_row


@pytest.fixture
def made():
    """Brokers of transaction.version 2."""
    return world()


@pytest.fixture(params=[V4, V5])
def version(request):
    """Of EndTxn."""
    return request.param


# --- EndTxn and its repetitions -----------------------------------------------------------------


@each_row("transaction_version", [1, 2])
@each_row("version", [0, 1, 2, 3, V4, V5])
def test_the_first_commit(version, transaction_version):
    made = world(transaction_version)
    producer = opened(made, version)
    assert made.committed("t") == []
    error, following = made.end(ID, producer, version)
    assert error == "NONE"
    bumped = producer._replace(producer_epoch=producer.producer_epoch + 1)
    assert following == (bumped if version == V5 else NO_PRODUCER)
    made.run_for(200)
    assert made.state(ID) == ("CompleteCommit", producer.producer_epoch + (version == V5))
    assert made.committed("t") == [b"a"]


@pytest.mark.parametrize(("before", "after"), [(2, 1), (1, 2)])
def test_a_commit_works_when_the_transaction_version_has_changed(version, before, after):
    made = world(before)
    producer = opened(made, version)
    made.transactions.transaction_version = after
    ended(made, producer, version)
    assert made.committed("t") == [b"a"]


@pytest.mark.parametrize("second", [True, False], ids=["commit", "abort"])
@pytest.mark.parametrize("first", [True, False], ids=["committed", "aborted"])
def test_what_has_ended_ends_in_no_other_way(made, version, first, second):
    producer = opened(made, version)
    following = ended(made, producer, version, first)
    for _ in range(3):
        error, told = made.end(ID, producer, version, second)
        assert error == ("NONE" if first is second else "INVALID_TXN_STATE")
        assert error != "NONE" or told == following
    assert made.committed("t") == [b"a"] * first


@pytest.mark.parametrize("is_open", [False, True])
def test_an_id_that_is_used_again_refuses_the_old_epoch(made, version, is_open):
    producer = opened(made, version)
    following = ended(made, producer, version)
    if version == V4 or not is_open:
        following = made.init(ID)
    if is_open:
        assert write(made, following, [b"b"], version) == "NONE"
    assert made.end(ID, producer, version)[0] == "PRODUCER_FENCED"
    epoch = producer.producer_epoch + 1 + (version == V5 and not is_open)
    assert made.state(ID) == ("Ongoing" if is_open else "Empty", epoch)


def test_what_is_not_open_or_not_known_cannot_be_ended(made, version):
    producer = made.init(ID)
    assert made.end(ID, producer, version)[0] == "INVALID_TXN_STATE"
    for name, wrong in (("another", producer), (ID, producer._replace(producer_id=9))):
        assert made.end(name, wrong, version)[0] == "INVALID_PRODUCER_ID_MAPPING"
    made.transactions.expire(ID)
    assert made.end(ID, producer, version)[0] == "INVALID_PRODUCER_ID_MAPPING"


# --- the trap of transaction.version 0 ----------------------------------------------------------


def test_end_txn_5_wedges_a_transaction_of_version_0_until_the_broker_restarts():
    made = world(0)
    producer = opened(made, V4, timeout_ms=2000)
    assert made.end(ID, producer, V5)[0] == "UNSUPPORTED_VERSION"
    made.run_for(88_000)
    made.transactions.transaction_version = 2
    assert made.end(ID, producer, V4)[0] == "CONCURRENT_TRANSACTIONS"
    assert made.init_once(ID)[0] == "CONCURRENT_TRANSACTIONS"
    assert (made.state(ID)[0], made.fetch(T0).last_stable_offset) == ("Ongoing", 0)
    node_id = made.coordinator(ID).node_id
    made.cluster.crash(node_id, election_delay_ms=10_000)
    made.cluster.restart(node_id)
    made.run_for(1000)
    ended(made, producer, V4)
    assert made.committed("t") == [b"a"]
    made.transactions.transaction_version = 0
    producer = made.init("produced with 12")
    assert made.produce("produced with 12", producer, T0, [b"a"], 12) == "UNSUPPORTED_VERSION"
    assert made.init_once("produced with 12")[0] == "CONCURRENT_TRANSACTIONS"


# --- timeouts -----------------------------------------------------------------------------------


@pytest.mark.parametrize("transaction_version", [0, 1, 2])
def test_a_transaction_is_aborted_after_its_timeout(transaction_version):
    made = world(transaction_version)
    version = V5 if transaction_version == 2 else V4
    producer = opened(made, version, timeout_ms=2000)
    started_ms = made.clock.ms
    while made.state(ID)[0] == "Ongoing":
        made.run_for(100)
    assert 2000 <= made.clock.ms - started_ms <= 12_200  # a scan every 10 s
    made.run_for(200)
    assert made.state(ID) == ("CompleteAbort", producer.producer_epoch + 1)
    assert made.end(ID, producer, V5)[0] == "INVALID_TXN_STATE"
    assert made.end(ID, producer, V4)[0] == "PRODUCER_FENCED"
    assert made.produce(ID, producer, T0, [b"z"], 7 + version, 1) == "INVALID_PRODUCER_EPOCH"
    assert made.committed("t") == []


def test_an_open_transaction_hides_what_comes_after_it(made):
    opened(made)
    assert made.produce(None, NO_PRODUCER, T0, [b"plain"], 9, -1, attributes=0) == "NONE"
    partition = made.fetch(T0)
    assert (partition.last_stable_offset, partition.high_watermark) == (0, 2)
    assert made.committed("t") == []
    made.init(ID)
    made.run_for(200)
    assert made.committed("t") == [b"plain"]


# --- fencing ------------------------------------------------------------------------------------


def test_init_producer_id_aborts_what_is_open_and_fences_its_writer(made, version):
    producer = opened(made, version)
    assert made.init_once(ID) == ("CONCURRENT_TRANSACTIONS", NO_PRODUCER)
    later = made.init(ID)
    assert later == producer._replace(producer_epoch=producer.producer_epoch + 2)
    assert made.produce(ID, producer, T0, [b"z"], 7 + version, 1) == "INVALID_PRODUCER_EPOCH"
    assert made.produce(ID, producer, T1, [b"z"], 7 + version) == "INVALID_PRODUCER_EPOCH"
    assert made.add_partitions(ID, producer, T1) == "PRODUCER_FENCED"
    assert made.end(ID, producer, version)[0] == "PRODUCER_FENCED"
    assert made.committed("t") == []
    assert made.transactions.open_in_logs() == {}


def test_only_an_abort_of_version_5_fences(made, version):
    producer = opened(made, version)
    ended(made, producer, version, is_commit=False)
    error = write(made, producer, [b"zombie"], version, sequence=1)
    assert error == ("NONE" if version == V4 else "INVALID_PRODUCER_EPOCH")
    if version == V4:
        ended(made, producer, V4)
    assert made.committed("t") == [b"zombie"] * (version == V4)
    assert made.transactions.open_in_logs() == {}


def test_an_expected_epoch_is_no_comparison_while_a_transaction_is_open(made):
    stale = made.init(ID)
    producer = opened(made)
    wrong = producer._replace(producer_id=9)
    assert made.init_once(ID, expected=wrong)[0] == "PRODUCER_FENCED"
    assert made.state(ID)[0] == "Ongoing"
    assert made.init_once(ID, expected=stale)[0] == "CONCURRENT_TRANSACTIONS"
    made.run_for(200)
    assert made.state(ID) == ("CompleteAbort", producer.producer_epoch + 1)


def test_an_expected_epoch_counts_where_nothing_is_open(made):
    first = made.init(ID)
    error, second = made.init_once(ID, expected=first)
    assert (error, second.producer_epoch) == ("NONE", 1)
    assert made.init_once(ID, expected=first) == ("NONE", second)  # a repetition
    assert made.init(ID).producer_epoch == 2
    assert made.init_once(ID, expected=first)[0] == "PRODUCER_FENCED"
    assert made.init_once(ID, expected=first, version=3)[0] == "INVALID_PRODUCER_EPOCH"


# --- what may be produced -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "error"),
    [(v, "INVALID_TXN_STATE") for v in (3, 10)] + [(11, "TRANSACTION_ABORTABLE"), (12, "NONE")],
)
def test_a_partition_that_was_not_added(made, version, error):
    assert made.produce(ID, made.init(ID), T0, [b"a"], version) == error
    assert bool(made.transactions.open_in_logs()) == (error == "NONE")


def test_sequences_go_on_through_transactions_of_one_epoch_and_begin_anew_with_the_next(made):
    producer = opened(made, V4)
    ended(made, producer, V4)
    assert write(made, producer, [b"b"], V4, sequence=0) == "NONE"  # a known batch
    assert made.end(ID, producer, V4)[0] == "NONE"
    made.run_for(200)
    assert write(made, producer, [b"c"], V4, sequence=5) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    assert write(made, producer, [b"c"], V4, sequence=1) == "NONE"
    following = ended(made, producer, V5)
    assert write(made, following, [b"d"], V5, sequence=2) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    assert write(made, following, [b"d"], V5, sequence=0) == "NONE"
    ended(made, following, V5)
    assert made.committed("t") == [b"a", b"c", b"d"]


# --- lists and descriptions ---------------------------------------------------------------------


def test_list_transactions_by_pattern_and_state(made):
    for number in range(6):
        opened(made, transactional_id=f"query.{number}")
    opened(made, transactional_id="queryx9")
    ended(made, made.init("query.done"), V5, is_commit=False, transactional_id="query.done")
    expected = [(f"query.{n}", "Ongoing") for n in range(6)]
    assert made.list(r"\Qquery.\E.*", ("Ongoing",)) == expected
    assert made.list("query", ("Ongoing",)) == []  # the whole id must match
    assert made.list("query.*", ("Ongoing",)) == [*expected, ("queryx9", "Ongoing")]
    listed = [t for t in made.list(states=("Ongoing",), version=0) if t[0].startswith("query.")]
    assert listed == expected
    assert made.list("query.done") == [("query.done", "CompleteAbort")]
    made.run_for(5000)
    assert made.list(version=1, duration_ms=4000, states=("Ongoing",)) != []
    assert made.list(version=1, duration_ms=60_000, states=("Ongoing",)) == []


# --- reading ------------------------------------------------------------------------------------


def committed_by_a_reader(made, key):
    """What a consumer makes of a fetch: up to the last stable offset, without aborted records."""
    partition = made.fetch(key, isolation_level=1)
    aborted = sorted(partition.aborted_transactions, key=lambda a: a.first_offset)
    out, now_aborted = [], set()
    for batch in decode_batches(records_of(partition)):
        header = batch.header
        while aborted and aborted[0].first_offset <= header.base_offset:
            now_aborted.add(aborted.pop(0).producer_id)
        if header.attributes & 0x20:
            if batch.records[0].key == b"\0\0\0\0":
                now_aborted.discard(header.producer_id)
        elif not (header.attributes & 0x10 and header.producer_id in now_aborted):
            out += [record.value for record in batch.records]
    return out


def test_a_reader_sees_what_was_committed(made):
    first = opened(made, values=[b"a", b"b"])
    other = opened(made, values=[b"x"], transactional_id="other")
    ended(made, first, V5, is_commit=False)
    assert committed_by_a_reader(made, T0) == []
    ended(made, other, V5, transactional_id="other")
    again = opened(made, values=[b"c"])
    assert committed_by_a_reader(made, T0) == [b"x"] == made.committed("t")
    ended(made, again, V5)
    assert committed_by_a_reader(made, T0) == [b"x", b"c"] == made.committed("t")
    uncommitted = decode_batches(records_of(made.fetch(T0)))
    data = [r.value for b in uncommitted if not b.header.attributes & 0x20 for r in b.records]
    assert data == [b"a", b"b", b"x", b"c"]
    assert [b.header.base_offset for b in uncommitted] == [0, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("version", [4, 10, 12])
def test_fetch_is_bounded_and_goes_on_where_it_is_asked(made, version):
    for number in range(5):
        error = made.produce(None, NO_PRODUCER, T0, [b"%d" % number] * 2, 9, -1, attributes=0)
        assert error == "NONE"
    one = made.fetch(T0, offset=3, max_bytes=1, version=version)
    assert [b.header.base_offset for b in decode_batches(records_of(one))] == [2]
    assert (one.high_watermark, one.error_code) == (10, 0)
    rest = made.fetch(T0, offset=4, version=version)
    assert [b.header.base_offset for b in decode_batches(records_of(rest))] == [4, 6, 8]
    assert name_of(made.fetch(T0, offset=99).error_code) == "OFFSET_OUT_OF_RANGE"
    before_ms = made.clock.ms
    assert records_of(made.fetch(T0, offset=10, max_wait_ms=500)) == b""
    assert made.clock.ms - before_ms >= 500


# --- coordinators that come and go --------------------------------------------------------------


def elsewhere(made):
    """A broker that does not coordinate the id."""
    return next(b for b in made.cluster.brokers.values() if b is not made.coordinator(ID))


def test_requests_at_the_wrong_broker_and_while_loading(made):
    made.init(ID)
    old, new = made.coordinator(ID), elsewhere(made)
    assert made.init_once(ID, broker=new)[0] == "NOT_COORDINATOR"
    made.transactions.load_delay_ms = (200, 200)
    made.transactions.move_coordinator(ID, new.node_id)
    assert made.init_once(ID, broker=old)[0] == "NOT_COORDINATOR"
    assert made.init_once(ID)[0] == "COORDINATOR_LOAD_IN_PROGRESS"
    made.run_for(300)
    assert made.init_once(ID)[0] == "NONE"


def test_a_coordinator_that_dies_after_the_decision_leaves_the_markers_to_the_next(made, version):
    """Until they are written, a repetition is to be tried again."""
    made.cluster.partition(T0).elect(elsewhere(made).node_id)
    made.cluster.publish()
    made.transactions.marker_delay_ms = (500, 500)
    producer = opened(made, version)
    assert made.end(ID, producer, version)[0] == "NONE"
    assert made.state(ID)[0] == "PrepareCommit"
    assert made.end(ID, producer, version)[0] == "CONCURRENT_TRANSACTIONS"
    assert made.end(ID, producer, version, is_commit=False)[0] == "INVALID_TXN_STATE"
    assert made.init_once(ID)[0] == "CONCURRENT_TRANSACTIONS"
    made.cluster.crash(made.coordinator(ID).node_id, election_delay_ms=100)
    made.run_for(200)
    assert made.committed("t") == []
    made.run_for(3000)
    assert made.state(ID)[0] == "CompleteCommit"
    assert made.committed("t") == [b"a"]
    assert made.end(ID, producer, version)[0] == "NONE"


def coordinator_dies_during_end(made, after_ms):
    """EndTxn is durable after a second and answered after two; nobody is told what happened."""
    producer = opened(made)
    made.transactions.log.write_delay_ms = (1000, 1000)
    node_id = made.coordinator(ID).node_id
    made.scheduler.after(after_ms, lambda: made.cluster.crash(node_id, election_delay_ms=50))
    with pytest.raises(ConnectionLostError):
        made.end(ID, producer, V5)
    made.transactions.log.write_delay_ms = (0, 3)
    made.run_for(1000)
    return producer


@pytest.mark.parametrize(("after_ms", "state"), [(500, "Ongoing"), (1500, "CompleteCommit")])
def test_a_write_that_was_not_durable_is_lost_with_its_coordinator(made, after_ms, state):
    producer = coordinator_dies_during_end(made, after_ms)
    made.run_for(1000)
    assert made.state(ID)[0] == state
    ended(made, producer, V5)
    assert made.committed("t") == [b"a"]


@pytest.mark.parametrize("is_commit", [True, False])
def test_markers_wait_for_a_partition_that_has_no_leader(made, is_commit):
    producer = opened(made)
    leader_id = elsewhere(made).node_id
    made.cluster.partition(T0).elect(leader_id)
    made.cluster.publish()
    made.cluster.stop(leader_id)
    assert made.end(ID, producer, V5, is_commit)[0] == "NONE"
    made.run_for(5000)
    assert made.state(ID)[0] == ("PrepareCommit" if is_commit else "PrepareAbort")
    made.cluster.restart(leader_id)
    made.run_for(2000)
    assert made.state(ID)[0] == ("CompleteCommit" if is_commit else "CompleteAbort")
    assert made.committed("t") == ([b"a"] if is_commit else [])
    assert made.transactions.open_in_logs() == {}


def test_replicas_know_of_transactions_what_their_leader_knew(made):
    first = opened(made)
    following = ended(made, first, V5, is_commit=False)
    assert write(made, following, [b"b"]) == "NONE"
    made.run_for(200)
    partition = made.cluster.partition(T0)
    for node_id in made.cluster.brokers:
        made.cluster.move_leader("t", 0, to=node_id)
        made.run_for(HIGH_WATERMARK_LAG_MS + 10)
        assert partition.log.open_transactions == {first.producer_id: 2}
        assert made.fetch(T0).last_stable_offset == 2
    ended(made, following, V5)
    assert made.committed("t") == [b"b"]
