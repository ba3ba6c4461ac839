"""The simulated brokers with transactions: what may be produced, what is listed and read, who answers."""

from __future__ import annotations

import pytest

from spark_kafka_sink.base.model import NO_PRODUCER, ProducerIdAndEpoch
from spark_kafka_sink.protocol.messages import transactions
from tests.simulation.cluster import HIGH_WATERMARK_LAG_MS
from tests.simulation.transacting import ID, T0, T1, V4, V5, ended, opened, world, write
from tests.simulation.transactions import KAFKA_2_1
from tests.simulation.wire import ConnectionLostError, World, decode_batches, name_of, records_of

# --- what may be produced -----------------------------------------------------------------------


def test_a_transactional_batch_needs_a_transactional_id():
    made = world()
    producer = made.init(ID)
    error = made.produce(None, producer, T0, [b"a"])
    assert error == "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"


def test_an_id_without_the_batchs_flag_is_not_transactional_at_all():
    made = world()
    producer = made.init(ID)
    assert made.produce(ID, producer, T0, [b"a"], attributes=0) == "NONE"
    assert made.committed("t") == [b"a"]


def test_a_flag_without_producer_id_is_not_transactional_either():
    made = world()
    assert made.produce(ID, NO_PRODUCER, T0, [b"a"], sequence=-1) == "NONE"
    assert made.committed("t") == [b"a"]


@pytest.mark.parametrize(
    ("version", "error"),
    [
        (3, "INVALID_TXN_STATE"),
        (10, "INVALID_TXN_STATE"),
        (11, "TRANSACTION_ABORTABLE"),
        (12, "NONE"),
    ],
)
def test_a_partition_that_was_not_added(version, error):
    made = world()
    producer = made.init(ID)
    assert made.produce(ID, producer, T0, [b"a"], version) == error
    assert bool(made.transactions.open_in_logs()) == (error == "NONE")


def test_brokers_that_do_not_verify_let_a_partition_hang():
    made = world(0, api_versions=KAFKA_2_1)
    made.transactions.verifies_partitions = False
    producer = made.init(ID)
    assert made.produce(ID, producer, T0, [b"a"], 7) == "NONE"
    made.init(ID)
    made.run_for(60_000)
    assert made.transactions.open_in_logs() == {T0: {producer.producer_id: 0}}


@pytest.mark.parametrize(
    ("version", "error"), [(11, "NOT_ENOUGH_REPLICAS"), (12, "CONCURRENT_TRANSACTIONS")]
)
def test_a_produce_straight_after_an_end_is_to_be_tried_again(version, error):
    made = world()
    made.transactions.marker_delay_ms = (300, 300)
    producer = opened(made)
    _, following = made.end(ID, producer, V5)
    assert made.produce(ID, following, T0, [b"b"], version) == error
    made.run_for(1000)
    if version == 11:
        assert made.add_partitions(ID, following, T0) == "NONE"
    assert made.produce(ID, following, T0, [b"b"], version) == "NONE"


def test_a_batch_that_comes_after_its_marker_is_refused():
    """The coordinator was asked before the transaction ended, the append is after it."""
    made = world()
    producer = opened(made, V4)
    assert made.add_partitions(ID, producer, T1) == "NONE"
    coordinator = made.transactions.coordinators[made.coordinator(ID).node_id]

    def abort() -> None:
        coordinator.end_transaction(ID, producer, False, False, lambda *_: None)

    made.transactions.hop_delay_ms = (2000, 2000)
    made.transactions.partition_patience_ms = 9000
    made.scheduler.after(3000, abort)
    assert made.produce(ID, producer, T1, [b"late"], 11) == "INVALID_TXN_STATE"
    assert made.transactions.open_in_logs() == {}


def test_sequences_go_on_through_transactions_of_one_epoch_and_begin_anew_with_the_next():
    made = world()
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


def test_list_transactions_by_pattern_and_state():
    made = world()
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


def test_a_pattern_that_is_none():
    made = world()
    request = transactions.ListTransactionsRequest(transactional_id_pattern="(")
    broker = made.cluster.brokers[1]
    response = made.ask(broker, request, 2, transactions.ListTransactionsResponse)
    assert name_of(response.error_code) == "INVALID_REGULAR_EXPRESSION"


def test_describe_transactions():
    made = world()
    producer = opened(made, timeout_ms=5000)
    described = made.describe(ID)
    assert described.transaction_state == "Ongoing"
    assert (described.producer_id, described.producer_epoch) == producer
    assert described.transaction_timeout_ms == 5000
    assert 0 <= made.transactions.timestamp_ms() - described.transaction_start_time_ms < 100
    assert [(t.topic, t.partitions) for t in described.topics] == [("t", [0])]
    assert name_of(made.describe("unknown").error_code) == "TRANSACTIONAL_ID_NOT_FOUND"


def test_an_expired_id_is_unknown():
    made = world()
    producer = opened(made)
    ended(made, producer, V5)
    made.transactions.expire(ID)
    assert made.end(ID, producer, V5)[0] == "INVALID_PRODUCER_ID_MAPPING"


# --- reading ------------------------------------------------------------------------------------


def committed_by_a_reader(made, key) -> list[bytes | None]:
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


def test_a_reader_sees_what_was_committed():
    made = world()
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
def test_fetch_is_bounded_and_goes_on_where_it_is_asked(version):
    made = world()
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


def test_the_markers_of_an_aborted_and_a_committed_transaction():
    made = world()
    producer = opened(made)
    following = ended(made, producer, V5, is_commit=False)
    assert write(made, following, [b"b"]) == "NONE"
    ended(made, following, V5)
    batches = decode_batches(records_of(made.fetch(T0)))
    markers = [b for b in batches if b.header.attributes & 0x20]
    assert [m.records[0].key for m in markers] == [b"\0\0\0\0", b"\0\0\0\1"]
    # With transaction.version 2, a marker carries the epoch of the next transaction already.
    assert [m.header.producer_epoch for m in markers] == [1, 2]


# --- coordinators that come and go --------------------------------------------------------------


@pytest.mark.parametrize("version", [1, 3, 4, 6])
def test_find_coordinator(version):
    made = world()
    expected = made.coordinator(ID).node_id
    for broker in made.cluster.brokers.values():
        assert made.find_coordinator(broker, ID, version) == ("NONE", expected)


def test_requests_at_the_wrong_broker_and_while_loading():
    made = world()
    made.init(ID)
    old = made.coordinator(ID)
    new = next(b for b in made.cluster.brokers.values() if b is not old)
    assert made.init_once(ID, broker=new)[0] == "NOT_COORDINATOR"
    made.transactions.load_delay_ms = (200, 200)
    made.transactions.move_coordinator(ID, new.node_id)
    assert made.init_once(ID, broker=old)[0] == "NOT_COORDINATOR"
    assert made.init_once(ID)[0] == "COORDINATOR_LOAD_IN_PROGRESS"
    made.run_for(300)
    assert made.init_once(ID)[0] == "NONE"


def test_while_nobody_is_elected_there_is_no_coordinator():
    made = world()
    producer = opened(made)
    dead = made.coordinator(ID)
    made.cluster.crash(dead.node_id, election_delay_ms=3000)
    alive = next(b for b in made.cluster.brokers.values() if b is not dead)
    assert made.find_coordinator(alive, ID)[0] == "COORDINATOR_NOT_AVAILABLE"
    made.run_for(3200)
    error, node_id = made.find_coordinator(alive, ID)
    assert error == "NONE"
    assert node_id != dead.node_id
    ended(made, producer, V5)
    assert made.committed("t") == [b"a"]


@pytest.mark.parametrize("version", [V4, V5])
def test_a_coordinator_that_dies_after_the_decision_leaves_the_markers_to_the_next(version):
    made = world()
    made.cluster.partition(T0).elect(
        next(b.node_id for b in made.cluster.brokers.values() if b is not made.coordinator(ID))
    )
    made.cluster.publish()
    made.transactions.marker_delay_ms = (500, 500)
    producer = opened(made, version)
    assert made.end(ID, producer, version)[0] == "NONE"
    made.cluster.crash(made.coordinator(ID).node_id, election_delay_ms=100)
    made.run_for(200)
    assert made.committed("t") == []
    made.run_for(3000)
    assert made.state(ID)[0] == "CompleteCommit"
    assert made.committed("t") == [b"a"]
    assert made.end(ID, producer, version)[0] == "NONE"


def coordinator_dies_during_end(made: World, after_ms: int) -> ProducerIdAndEpoch:
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


def test_a_coordinator_that_dies_with_a_request_does_not_answer_it():
    made = world()
    producer = coordinator_dies_during_end(made, after_ms=1500)
    made.run_for(1000)
    assert made.end(ID, producer, V5)[0] == "NONE"
    assert made.committed("t") == [b"a"]


def test_a_write_that_was_not_durable_is_lost_with_its_coordinator():
    made = world()
    producer = coordinator_dies_during_end(made, after_ms=500)
    assert made.state(ID)[0] == "Ongoing"
    ended(made, producer, V5)
    assert made.committed("t") == [b"a"]


@pytest.mark.parametrize("is_commit", [True, False])
def test_markers_wait_for_a_partition_that_has_no_leader(is_commit):
    made = world()
    producer = opened(made)
    partition = made.cluster.partition(T0)
    coordinator = made.coordinator(ID)
    others = [b for b in made.cluster.brokers.values() if b is not coordinator]
    partition.elect(others[0].node_id)
    made.cluster.publish()
    made.cluster.stop(others[0].node_id)
    assert made.end(ID, producer, V5, is_commit)[0] == "NONE"
    made.run_for(5000)
    assert made.state(ID)[0] == ("PrepareCommit" if is_commit else "PrepareAbort")
    made.cluster.restart(others[0].node_id)
    made.run_for(2000)
    assert made.state(ID)[0] == ("CompleteCommit" if is_commit else "CompleteAbort")
    assert made.committed("t") == ([b"a"] if is_commit else [])
    assert made.transactions.open_in_logs() == {}


def test_replicas_know_of_transactions_what_their_leader_knew():
    made = world()
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
