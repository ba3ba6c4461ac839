"""The simulated coordinators answer as real ones were measured to: each row of those tables.

Versions of Produce and EndTxn that come in pairs are a client's two ways of writing transactions:
12 and 5 where transaction.version is 2, 11 and 4 otherwise.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_kafka_sink.base.model import NO_PRODUCER, ProducerIdAndEpoch
from tests.simulation.transacting import ID, T0, T1, V4, V5, ended, opened, world, write
from tests.simulation.transactions import KAFKA_2_1

# --- EndTxn and its repetitions -----------------------------------------------------------------


@pytest.mark.parametrize("transaction_version", [1, 2])
@pytest.mark.parametrize("version", [0, 1, 2, 3, V4, V5])
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


@pytest.mark.parametrize(
    ("writes", "ends"), [(V5, V4), (V4, V5)], ids=["produce 12, EndTxn 4", "produce 11, EndTxn 5"]
)
def test_a_commit_may_have_the_other_version_than_the_writes(writes, ends):
    made = world()
    ended(made, opened(made, writes), ends)
    assert made.committed("t") == [b"a"]


@pytest.mark.parametrize("version", [V4, V5])
@pytest.mark.parametrize(("before", "after"), [(2, 1), (1, 2)])
def test_a_commit_works_when_the_transaction_version_has_changed(version, before, after):
    made = world(before)
    producer = opened(made, version)
    made.transactions.transaction_version = after
    ended(made, producer, version)
    assert made.committed("t") == [b"a"]


@pytest.mark.parametrize("version", [V4, V5])
def test_a_repetition_while_markers_are_written_is_to_be_tried_again(version):
    made = world()
    made.transactions.marker_delay_ms = (500, 500)
    producer = opened(made, version)
    assert made.end(ID, producer, version)[0] == "NONE"
    assert made.state(ID)[0] == "PrepareCommit"
    assert made.end(ID, producer, version)[0] == "CONCURRENT_TRANSACTIONS"
    assert made.end(ID, producer, version, is_commit=False)[0] == "INVALID_TXN_STATE"
    assert made.init_once(ID)[0] == "CONCURRENT_TRANSACTIONS"
    made.run_for(1000)
    assert made.end(ID, producer, version)[0] == "NONE"


@pytest.mark.parametrize("version", [V4, V5])
def test_a_repetition_after_the_end_is_told_the_same_every_time(version):
    made = world()
    producer = opened(made, version)
    following = ended(made, producer, version)
    for _ in range(3):
        assert made.end(ID, producer, version) == ("NONE", following)
    assert made.committed("t") == [b"a"]


@pytest.mark.parametrize("version", [V4, V5])
def test_an_abort_after_a_commit_is_refused(version):
    made = world()
    producer = opened(made, version)
    ended(made, producer, version)
    assert made.end(ID, producer, version, is_commit=False)[0] == "INVALID_TXN_STATE"
    assert made.committed("t") == [b"a"]


@pytest.mark.parametrize("version", [V4, V5])
def test_a_commit_after_an_abort_is_refused(version):
    made = world()
    producer = opened(made, version)
    ended(made, producer, version, is_commit=False)
    assert made.end(ID, producer, version)[0] == "INVALID_TXN_STATE"
    assert made.end(ID, producer, version, is_commit=False)[0] == "NONE"
    assert made.committed("t") == []


@pytest.mark.parametrize(
    ("first", "second", "error"), [(V4, V5, "INVALID_TXN_STATE"), (V5, V4, "PRODUCER_FENCED")]
)
def test_a_repetition_with_the_other_version_is_refused(first, second, error):
    made = world()
    producer = opened(made, first)
    ended(made, producer, first)
    assert made.end(ID, producer, second)[0] == error


@pytest.mark.parametrize("version", [V4, V5])
def test_an_id_that_was_initialised_again_refuses_the_old_epoch(version):
    made = world()
    producer = opened(made, version)
    ended(made, producer, version)
    made.init(ID)
    assert made.end(ID, producer, version)[0] == "PRODUCER_FENCED"
    assert made.state(ID) == ("Empty", producer.producer_epoch + 1 + (version == V5))


@pytest.mark.parametrize("version", [V4, V5])
def test_an_id_in_a_later_transaction_refuses_the_old_epoch(version):
    made = world()
    producer = opened(made, version)
    following = ended(made, producer, version)
    if version == V4:
        following = made.init(ID)
    assert write(made, following, [b"b"], version) == "NONE"
    assert made.end(ID, producer, version)[0] == "PRODUCER_FENCED"
    assert made.state(ID)[0] == "Ongoing"


@pytest.mark.parametrize("version", [V4, V5])
def test_an_empty_transaction_is_not_committed(version):
    made = world()
    producer = made.init(ID)
    assert made.end(ID, producer, version)[0] == "INVALID_TXN_STATE"


@pytest.mark.parametrize("version", [V4, V5])
def test_unknown_ids_and_wrong_producer_ids(version):
    made = world()
    producer = opened(made, version)
    unknown = made.end("another", producer, version)[0]
    wrong = made.end(ID, producer._replace(producer_id=9), version)[0]
    assert (unknown, wrong) == ("INVALID_PRODUCER_ID_MAPPING", "INVALID_PRODUCER_ID_MAPPING")


def test_old_versions_do_not_know_the_name_of_fencing():
    made = world(0, api_versions=KAFKA_2_1)
    producer = opened(made, V4)
    made.init(ID)
    assert made.end(ID, producer, 1)[0] == "INVALID_PRODUCER_EPOCH"
    assert made.add_partitions(ID, producer, T0, 1) == "INVALID_PRODUCER_EPOCH"
    assert made.produce(ID, producer, T0, [b"z"], 7, 1) == "INVALID_PRODUCER_EPOCH"


@pytest.mark.parametrize("version", [V4, V5])
def test_a_prepared_transaction_survives_a_restart_of_its_coordinator(version):
    made = world()
    producer = opened(made, version)
    made.cluster.crash(made.coordinator(ID).node_id, election_delay_ms=10)
    made.run_for(1000)
    ended(made, producer, version)
    assert made.committed("t") == [b"a"]


# --- the trap of transaction.version 0 ----------------------------------------------------------


def test_transaction_version_is_a_finalized_feature():
    assert [world(v).finalized_features() for v in (0, 1, 2)] == [
        {},
        {"transaction.version": 1},
        {"transaction.version": 2},
    ]
    assert world().finalized_features(version=2) == {}


def test_end_txn_5_wedges_a_transaction_of_version_0_until_the_broker_restarts():
    made = world(0)
    producer = opened(made, V4, timeout_ms=2000)
    assert made.end(ID, producer, V5)[0] == "UNSUPPORTED_VERSION"
    made.run_for(88_000)
    made.transactions.transaction_version = 2
    assert made.end(ID, producer, V4)[0] == "CONCURRENT_TRANSACTIONS"
    assert made.init_once(ID)[0] == "CONCURRENT_TRANSACTIONS"
    assert made.state(ID)[0] == "Ongoing"
    assert made.fetch(T0).last_stable_offset == 0
    node_id = made.coordinator(ID).node_id
    made.cluster.crash(node_id, election_delay_ms=10_000)
    made.cluster.restart(node_id)
    made.run_for(1000)
    ended(made, producer, V4)
    assert made.committed("t") == [b"a"]


def test_produce_12_wedges_an_id_of_version_0():
    made = world(0)
    producer = made.init(ID)
    assert made.produce(ID, producer, T0, [b"a"], 12) == "UNSUPPORTED_VERSION"
    assert made.init_once(ID)[0] == "CONCURRENT_TRANSACTIONS"


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


def test_a_timeout_tells_clients_of_2_1_less():
    made = world(0, api_versions=KAFKA_2_1)
    producer = opened(made, V4, timeout_ms=1000)
    made.run_for(12_000)
    assert made.end(ID, producer, 1)[0] == "INVALID_PRODUCER_EPOCH"


def test_a_commit_after_the_timeout_and_before_the_scan_is_a_commit():
    made = world()
    committed = 0
    for number in range(30):
        producer = opened(made, transactional_id=f"id-{number}", timeout_ms=200)
        made.run_for(300)
        if made.state(f"id-{number}")[0] == "Ongoing":
            ended(made, producer, V5, transactional_id=f"id-{number}")
            committed += 1
    assert committed > 20
    assert len(made.committed("t")) == committed


def test_an_open_transaction_hides_what_comes_after_it():
    made = world()
    opened(made)
    assert made.produce(None, NO_PRODUCER, T0, [b"plain"], 9, -1, attributes=0) == "NONE"
    partition = made.fetch(T0)
    assert (partition.last_stable_offset, partition.high_watermark) == (0, 2)
    assert made.committed("t") == []
    made.init(ID)
    made.run_for(200)
    assert made.committed("t") == [b"plain"]


@pytest.mark.parametrize(
    ("timeout_ms", "error"),
    [
        (900_000, "NONE"),
        (900_001, "INVALID_TRANSACTION_TIMEOUT"),
        (0, "INVALID_TRANSACTION_TIMEOUT"),
    ],
)
def test_limits_of_the_timeout(timeout_ms, error):
    assert world().init_once(ID, timeout_ms)[0] == error


# --- fencing ------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [V4, V5])
def test_init_producer_id_aborts_what_is_open_and_fences_its_writer(version):
    made = world()
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


def test_an_abort_up_to_version_4_does_not_fence():
    made = world()
    producer = opened(made, V4)
    ended(made, producer, V4, is_commit=False)
    assert write(made, producer, [b"zombie"], V4, sequence=1) == "NONE"
    ended(made, producer, V4)
    assert made.committed("t") == [b"zombie"]


def test_an_abort_of_version_5_fences():
    made = world()
    producer = opened(made)
    ended(made, producer, V5, is_commit=False)
    assert write(made, producer, [b"zombie"], V5, sequence=1) == "INVALID_PRODUCER_EPOCH"
    assert made.transactions.open_in_logs() == {}


def test_an_expected_epoch_is_no_comparison_while_a_transaction_is_open():
    made = world()
    stale = made.init(ID)
    producer = opened(made)
    wrong = producer._replace(producer_id=9)
    assert made.init_once(ID, expected=wrong)[0] == "PRODUCER_FENCED"
    assert made.state(ID)[0] == "Ongoing"
    assert made.init_once(ID, expected=stale)[0] == "CONCURRENT_TRANSACTIONS"
    made.run_for(200)
    assert made.state(ID) == ("CompleteAbort", producer.producer_epoch + 1)


def test_an_expected_epoch_counts_where_nothing_is_open():
    made = world()
    first = made.init(ID)
    error, second = made.init_once(ID, expected=first)
    assert (error, second.producer_epoch) == ("NONE", 1)
    assert made.init_once(ID, expected=first) == ("NONE", second)  # a repetition
    assert made.init(ID).producer_epoch == 2
    assert made.init_once(ID, expected=first)[0] == "PRODUCER_FENCED"
    assert made.init_once(ID, expected=first, version=3)[0] == "INVALID_PRODUCER_EPOCH"


@pytest.mark.parametrize("version", [V4, V5])
def test_when_epochs_run_out_there_is_a_new_producer_id(version):
    made = world()
    first = made.init(ID)
    index = made.transactions.log.partition_for(ID)
    loaded = made.transactions.coordinators[made.coordinator(ID).node_id]._loaded[index]
    entry = loaded.entries[ID]
    entry.metadata = replace(entry.metadata, producer_epoch=32765)
    last = made.init(ID)
    assert last == ProducerIdAndEpoch(first.producer_id, 32766)
    assert write(made, last, [b"a"], version) == "NONE"
    following = ended(made, last, version)
    if version == V5:
        assert following.producer_epoch == 0
        assert following.producer_id != first.producer_id
        assert made.end(ID, last, V5) == ("NONE", following)  # a repetition over the change
        assert write(made, following, [b"b"]) == "NONE"
    else:
        following = made.init(ID)
        assert following.producer_epoch == 0
        assert following.producer_id != first.producer_id
    assert made.committed("t") == [b"a"]


def test_the_last_epoch_is_kept_for_fencing():
    made = world()
    first = made.init(ID)
    index = made.transactions.log.partition_for(ID)
    loaded = made.transactions.coordinators[made.coordinator(ID).node_id]._loaded[index]
    loaded.entries[ID].metadata = replace(loaded.entries[ID].metadata, producer_epoch=32765)
    last = opened(made)
    assert last.producer_epoch == 32766
    assert made.init(ID) == ProducerIdAndEpoch(first.producer_id + 1, 0)
