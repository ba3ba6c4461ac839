"""The producer in transactions against simulated coordinators and leaders: what it does, what ends a task,
and what the user is told.
"""

from __future__ import annotations

import pytest

from spark_kafka_sink.base.errors import (
    BrokerError,
    ConfigError,
    DeliveryError,
    KafkaSinkError,
    LocalProtocolError,
    UnsupportedVersionError,
    error_named,
)
from spark_kafka_sink.producer.producer_batch import ProducerBatch
from spark_kafka_sink.protocol.messages.topics import ProduceRequest
from spark_kafka_sink.protocol.messages.transactions import (
    AddPartitionsToTxnRequest,
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from tests.simulation.faults import refusing
from tests.simulation.harness import NAME, TIMEOUT_MS, Transactional, assert_has, keyed
from tests.simulation.logs import NO_LEADER
from tests.simulation.transactions import KAFKA_4_3

# --- one transaction ------------------------------------------------------------------------------


def test_what_is_written_is_visible_when_somebody_else_has_committed_it(simulation):
    version = simulation.transactions.transaction_version
    simulation.begin()
    rows = keyed(500)
    simulation.write_rows(rows)
    prepared = simulation.producer.transaction
    assert (prepared.transactional_id, prepared.transaction_version) == (NAME, version)
    open_ms = simulation.producer.transaction_open_ms
    simulation.clock.ms += 5_000
    assert simulation.producer.transaction_open_ms == open_ms + 5_000
    assert simulation.all_values() == sorted(value for _, value in rows)
    assert sum(len(values) for values in simulation.committed().values()) == 0
    assert simulation.end(prepared) == "NONE"
    assert sum(len(values) for values in simulation.committed().values()) == 500
    assert simulation.transactions.open_in_logs() == {}


def test_versions_follow_the_finalized_feature_and_not_what_brokers_offer(simulation):
    simulation.task(NAME, 0, b"a")
    _, highest = simulation.cluster.api_versions[ProduceRequest.api_key]
    if simulation.transactions.transaction_version == 2:
        assert simulation.versions(ProduceRequest) == {highest}
        assert highest >= 12
        assert simulation.count(AddPartitionsToTxnRequest) == 0
    else:
        assert simulation.versions(ProduceRequest) == {min(highest, 11)}
        _, adding = simulation.cluster.api_versions[AddPartitionsToTxnRequest.api_key]
        assert simulation.versions(AddPartitionsToTxnRequest) == {min(adding, 3)}


def test_nothing_written_is_no_transaction(simulation):
    simulation.begin()
    simulation.run_for(1000)
    simulation.flush()
    assert simulation.producer.transaction is None
    assert simulation.transactions.open_ids() == []


def test_partitions_are_added_in_a_single_request_per_round():
    simulation = Transactional(1, partitions=50)
    simulation.begin()
    simulation.write_rows(keyed(2000))
    assert simulation.count(AddPartitionsToTxnRequest) <= 3
    simulation.append(keyed(2000))
    count = simulation.count(AddPartitionsToTxnRequest)
    simulation.flush()
    assert simulation.count(AddPartitionsToTxnRequest) == count


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_parts_of_a_batch_that_is_too_large_are_transactional_too(codec):
    simulation = Transactional(partitions=1, batch_size="100000", compression_type=codec)
    simulation.cluster.topics["t"].max_message_bytes = 4000
    simulation.begin()
    simulation.write_rows(keyed(500, size=100))
    assert simulation.producer.metrics.batch_splits > 0
    assert simulation.commit()[0] == [value for _, value in keyed(500, size=100)]


def test_what_needs_a_transaction():
    simulation = Transactional(enable_idempotence="false")
    with pytest.raises(ConfigError, match="enable.idempotence"):
        simulation.begin()
    simulation = Transactional()
    with pytest.raises(ConfigError, match="empty"):
        simulation.begin("")
    simulation.write(0, b"a")
    with pytest.raises(KafkaSinkError, match="before the first append"):
        simulation.producer.begin_transaction(NAME, TIMEOUT_MS)


def test_a_transaction_is_prepared_only_after_flush():
    simulation = Transactional(partitions=1)
    simulation.begin()
    simulation.write(0, b"a")
    simulation.cluster.on_produce = lambda *_: "NOT_ENOUGH_REPLICAS"
    simulation.hand_over(0, b"b")
    simulation.run_for(50)
    with pytest.raises(KafkaSinkError, match="only after flush"):
        _ = simulation.producer.transaction


def test_what_is_refused_to_an_identity_that_was_replaced_fails_nobody():
    """Brokers before Kafka 3.0 give no plain producer id to whoever may only use transactions."""
    simulation = Transactional()
    refused = []

    def refuse_plain_ids(broker, request, reply, go_on):
        if request.transactional_id is not None:
            go_on()
            return
        refused.append(request)
        # The task thread does that while the answer is on its way.
        simulation.producer.begin_transaction(NAME, TIMEOUT_MS)
        reply(InitProducerIdResponse(0, error_named("CLUSTER_AUTHORIZATION_FAILED").code))

    simulation.cluster.intercept(InitProducerIdRequest, refuse_plain_ids)
    simulation.producer.begin_task(["t"])
    while not refused:
        simulation.step()
    simulation.write(0, b"a")
    assert simulation.commit()[0] == [b"a"]


# --- several on one producer ----------------------------------------------------------------------


def test_one_producer_writes_for_many_ids_and_for_none(simulation):
    first = simulation.task("flights.0", 0, b"a", b"b")
    second = simulation.task("flights.1", 0, b"c")
    assert simulation.end(second, is_commit=False) == "NONE"
    assert simulation.end(first) == "NONE"
    simulation.producer.begin_task(["t"])
    simulation.write(0, b"d")
    assert simulation.producer.transaction is None
    third = simulation.task("flights.0", 0, b"e")
    assert simulation.end(third) == "NONE"
    assert simulation.committed()[0] == [b"a", b"b", b"d", b"e"]
    headers = [b.header for b in simulation.log().batches if b.header.base_sequence >= 0]
    assert [header.base_sequence for header in headers] == [0] * 4
    assert first[1] == third[1] != second[1]
    assert headers[2].producer_id not in {first[1], second[1]}
    assert not headers[2].attributes & 0x10
    assert third.producer_epoch > first.producer_epoch
    assert simulation.producer.is_clean


def test_between_transactions_no_producer_id_is_asked_for():
    """Each would cost a request, and what brokers remember of it for a day. Tasks share the next one."""
    simulation = Transactional(partitions=1)
    simulation.task(NAME, 0, b"a")
    asked = simulation.count(InitProducerIdRequest)
    simulation.producer.begin_task(["t"])
    simulation.run_for(1000)
    assert simulation.count(InitProducerIdRequest) == asked
    for value in (b"b", b"c"):
        simulation.write(0, value)
        assert simulation.count(InitProducerIdRequest) == asked + 1
        simulation.producer.begin_task(["t"])


def test_a_late_answer_of_the_task_before_changes_nothing():
    """The task before had no rows; its InitProducerId is answered in the middle of the next."""
    simulation = Transactional(partitions=1)
    simulation.run_for(500)
    held = []

    def hold_first(broker, request, reply, go_on):
        if held:
            go_on()
        held.append(go_on)

    simulation.cluster.intercept(InitProducerIdRequest, hold_first)
    simulation.begin("flights.0")
    simulation.run_for(100)
    simulation.flush()
    assert simulation.producer.transaction is None
    coordinator_id = simulation.transactions.coordinator_id
    names = (f"flights.{i}" for i in range(1, 20))
    name = next(n for n in names if coordinator_id(n) != coordinator_id("flights.0"))
    simulation.begin(name)
    simulation.hand_over(0, b"a")
    simulation.scheduler.after(50, held[0])
    simulation.flush()
    simulation.run_for(1000)
    assert simulation.producer.transaction.transactional_id == name
    assert simulation.commit()[0] == [b"a"]
    assert simulation.count(InitProducerIdRequest) == 3


# --- what passes ----------------------------------------------------------------------------------


def test_a_leader_that_ends_the_transaction_before_is_asked_again_soon():
    simulation = Transactional()
    simulation.begin()
    simulation.run_for(500)
    simulation.cluster.refuse(*["CONCURRENT_TRANSACTIONS"] * 2)
    assert simulation.write(0, b"a") < 100
    assert simulation.producer.metrics.retries == 2


@pytest.mark.parametrize("is_before", [True, False], ids=["before", "in the middle"])
def test_a_coordinator_that_dies_is_replaced(simulation, is_before):
    node_id = simulation.transactions.coordinator_id(NAME)
    leaders = [partition.leader_id for partition in simulation.cluster.topics["t"].partitions]
    partitions = [index for index, leader in enumerate(leaders) if leader != node_id]
    simulation.begin()
    if not is_before:
        simulation.write(partitions[0], b"a")
    simulation.cluster.crash(node_id, election_delay_ms=3_000)
    for partition in partitions:
        simulation.append_to(partition, [b"b"])
    simulation.flush()
    prepared = simulation.producer.transaction
    assert simulation.transactions.coordinator_id(NAME) != node_id
    assert simulation.end(prepared) == "NONE"
    values = [[b"b"] if is_before else [b"a", b"b"], [b"b"]]
    assert [simulation.committed()[partition] for partition in partitions] == values


# --- records that brokers refuse ------------------------------------------------------------------


def test_a_transaction_goes_on_without_the_records_that_a_broker_refuses(simulation):
    rows = keyed(90)
    bad = rows[7][1]
    simulation.cluster.on_validate = refusing(lambda topic, r: r.value == bad)
    simulation.begin()
    simulation.producer.rejections.tolerate("dead")
    for start in range(0, 90, 30):
        simulation.append(rows[start : start + 30])
    simulation.flush()
    prepared = simulation.producer.transaction
    assert [taken.record.value for taken in simulation.producer.rejections.take_rejected()] == [bad]
    simulation.write_rows([(None, b"a dead letter")])
    assert simulation.producer.transaction == prepared
    assert simulation.end(prepared) == "NONE"
    written = sorted(v for values in simulation.committed().values() for v in values)
    assert written == sorted([b"a dead letter", *(v for _, v in rows if v != bad)])


# --- what ends a transactional task -------------------------------------------------------------


@pytest.mark.parametrize("partition", [0, 1], ids=["written to", "new"])
def test_a_writer_whose_id_was_taken_over_is_told_so(simulation, partition):
    simulation.begin()
    simulation.write(0, b"a")
    prepared = simulation.producer.transaction
    simulation.take_over()
    with pytest.raises((DeliveryError, BrokerError)) as refused:
        simulation.write(partition, b"b")
    parts = "another driver", "transactional.id.prefix", "Let the batch run"
    assert_has(str(refused.value), NAME, *parts)
    assert simulation.end(prepared) in {"PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"}
    assert simulation.committed()[0] == []


def test_a_transaction_that_timed_out_fails_the_task_and_names_the_option(simulation):
    simulation.begin()
    simulation.write(0, b"a")
    simulation.run_for(TIMEOUT_MS + 15_000)
    with pytest.raises((DeliveryError, BrokerError), match=r"kafka\.transaction\.timeout\.ms"):
        simulation.write(0, b"b")
    simulation.run_for(1000)
    assert simulation.transactions.open_in_logs() == {}
    assert simulation.committed()[0] == []


@pytest.mark.parametrize(
    ("error", "part"),
    [
        ("UNKNOWN_PRODUCER_ID", "has lost its state"),
        ("OUT_OF_ORDER_SEQUENCE_NUMBER", "has lost its state"),
        ("INVALID_PRODUCER_EPOCH", "another driver"),
        ("PRODUCER_FENCED", "another driver"),
        ("INVALID_TXN_STATE", "brokers aborted"),
        ("TRANSACTION_ABORTABLE", "brokers aborted"),
        ("TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "grant the principal"),
        ("INVALID_PRODUCER_ID_MAPPING", "transactional.id.expiration.ms"),
    ],
)
def test_errors_that_need_another_epoch_end_the_task(simulation, error, part):
    simulation.begin()
    simulation.write(0, b"a")
    producer = simulation.producer.sender.transaction
    simulation.cluster.on_produce = lambda *_: error
    assert_has(simulation.refused(0, b"b"), error, f"in transaction {NAME}", "What to do", part)
    simulation.run_for(1000)
    assert simulation.producer.sender.transaction == producer


def test_a_coordinator_that_cannot_be_had_is_named_when_time_is_up(simulation):
    index = simulation.transactions.log.partition_for(NAME)
    simulation.transactions.log.partitions[index].elect(NO_LEADER)
    simulation.cluster.publish(now=True)
    simulation.begin()
    with simulation.within(121_000, 120_000):
        message = simulation.refused(0, b"a")
    reason = "COORDINATOR_NOT_AVAILABLE"
    assert_has(message, NAME, "no coordinator", reason, "delivery.timeout.ms")


def test_a_leader_too_old_for_the_feature_fails_the_task_and_says_so():
    simulation = Transactional(2, {**KAFKA_4_3, 0: (0, 11)})
    simulation.begin()
    with pytest.raises(UnsupportedVersionError, match=r"transaction\.version is 2"):
        simulation.write(0, b"a")
    assert simulation.count(ProduceRequest) == 0


def test_a_batch_whose_bit_is_wrong_is_never_sent(monkeypatch):
    close = ProducerBatch.close

    def wrong(batch):
        close(batch)
        batch.buffers[0][22] ^= 0x10

    monkeypatch.setattr(ProducerBatch, "close", wrong)
    simulation = Transactional()
    simulation.begin()
    with pytest.raises(LocalProtocolError, match="defect"):
        simulation.write(0, b"a")
    assert simulation.count(ProduceRequest) == 0
