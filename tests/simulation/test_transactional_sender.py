"""The producer in transactions, stepped by hand against simulated coordinators and leaders."""

from __future__ import annotations

import pytest

from spark_kafka_sink.base.errors import (
    ConfigError,
    KafkaSinkError,
    error_named,
)
from spark_kafka_sink.protocol.messages.topics import ProduceRequest
from spark_kafka_sink.protocol.messages.transactions import (
    AddPartitionsToTxnRequest,
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from tests.simulation.harness import keyed
from tests.simulation.refusing import refusing
from tests.simulation.transactional import NAME, TIMEOUT_MS, Transactional

# --- one transaction ------------------------------------------------------------------------------


def test_what_is_written_is_visible_when_somebody_else_has_committed_it(simulation):
    version = simulation.transactions.transaction_version
    simulation.begin()
    rows = keyed(500)
    simulation.append(rows)
    simulation.producer.flush()
    prepared = simulation.producer.transaction
    assert prepared is not None
    assert (prepared.transactional_id, prepared.transaction_version) == (NAME, version)
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


def test_every_batch_says_thrice_that_it_is_transactional(simulation):
    headers = []
    simulation.cluster.on_produce = lambda *told: headers.append(told[-1].header)
    simulation.begin()
    for start in range(0, 300, 100):
        simulation.append(keyed(300)[start : start + 100])
    simulation.producer.flush()
    prepared = simulation.producer.transaction
    requests = [r for r, _ in simulation.asked if isinstance(r, ProduceRequest)]
    assert requests
    assert headers
    assert {request.transactional_id for request in requests} == {NAME}
    assert all(header.attributes & 0x10 for header in headers)
    assert {(h.producer_id, h.producer_epoch) for h in headers} == {prepared[1:3]}


def test_nothing_written_is_no_transaction(simulation):
    simulation.begin()
    simulation.run_for(1000)
    simulation.producer.flush()
    assert simulation.producer.transaction is None
    assert simulation.transactions.open_ids() == []


def test_partitions_are_added_in_a_single_request_per_round():
    simulation = Transactional(1, partitions=50)
    simulation.begin()
    simulation.append(keyed(2000))
    simulation.producer.flush()
    assert simulation.count(AddPartitionsToTxnRequest) <= 3
    simulation.append(keyed(2000))
    count = simulation.count(AddPartitionsToTxnRequest)
    simulation.producer.flush()
    assert simulation.count(AddPartitionsToTxnRequest) == count


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_parts_of_a_batch_that_is_too_large_are_transactional_too(codec):
    simulation = Transactional(partitions=1, batch_size="100000", compression_type=codec)
    simulation.cluster.topics["t"].max_message_bytes = 4000
    simulation.begin()
    simulation.append(keyed(500, size=100))
    simulation.producer.flush()
    assert simulation.producer.metrics.batch_splits > 0
    assert simulation.end(simulation.producer.transaction) == "NONE"
    assert simulation.committed()[0] == [value for _, value in keyed(500, size=100)]


def test_what_needs_a_transaction():
    simulation = Transactional(enable_idempotence="false")
    with pytest.raises(ConfigError, match="enable.idempotence"):
        simulation.begin()
    simulation = Transactional()
    with pytest.raises(ConfigError, match="empty"):
        simulation.begin("")
    simulation.append_to(0, [b"a"])
    simulation.producer.flush()
    with pytest.raises(KafkaSinkError, match="before the first append"):
        simulation.producer.begin_transaction(NAME, TIMEOUT_MS)


def test_a_transaction_is_prepared_only_after_flush():
    simulation = Transactional(partitions=1)
    simulation.begin()
    simulation.write(0, b"a")
    simulation.cluster.on_produce = lambda *_: "NOT_ENOUGH_REPLICAS"
    simulation.append_to(0, [b"b"])
    simulation.producer._appender.finish_open()
    simulation.run_for(50)
    with pytest.raises(KafkaSinkError, match="only after flush"):
        _ = simulation.producer.transaction


def test_what_is_refused_to_an_identity_that_was_replaced_fails_nobody():
    """Brokers before Kafka 3.0 give no plain producer id to whoever may only use transactions."""
    simulation = Transactional()
    handle = simulation.cluster.handle
    refused = []

    def refuse_plain_ids(broker, request, version, reply):
        if isinstance(request, InitProducerIdRequest) and request.transactional_id is None:
            refused.append(request)
            # The task thread does that while the answer is on its way.
            simulation.producer.begin_transaction(NAME, TIMEOUT_MS)
            reply(InitProducerIdResponse(0, error_named("CLUSTER_AUTHORIZATION_FAILED").code))
        else:
            handle(broker, request, version, reply)

    simulation.cluster.handle = refuse_plain_ids
    simulation.producer.begin_task(["t"])
    while not refused:
        simulation.step()
    simulation.write(0, b"a")
    assert simulation.end(simulation.producer.transaction) == "NONE"
    assert simulation.committed()[0] == [b"a"]


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
    headers = [
        batch.header
        for batch in simulation.cluster.topics["t"].partitions[0].log.batches
        if batch.header.base_sequence >= 0
    ]
    assert [header.base_sequence for header in headers] == [0] * 4
    assert first[1] == third[1] != second[1]
    assert headers[2].producer_id not in {first[1], second[1]}
    assert not headers[2].attributes & 0x10
    assert third.producer_epoch > first.producer_epoch
    assert simulation.producer.is_clean


def test_a_hundred_transactions_take_one_producer_id():
    simulation = Transactional(partitions=1)
    simulation.run_for(500)
    ids = simulation.cluster.next_producer_id
    prepared = []
    for index in range(100):
        prepared.append(simulation.task(NAME, 0, b"%d" % index))
        assert simulation.end(prepared[-1]) == "NONE"
    assert simulation.cluster.next_producer_id == ids + 1
    assert len({p.producer_epoch for p in prepared}) == 100
    assert simulation.committed()[0] == [b"%d" % index for index in range(100)]


def test_between_transactions_no_producer_id_is_asked_for():
    """A pooled producer has no identity for a moment; each would be one more for the brokers."""
    simulation = Transactional(partitions=1)
    simulation.task(NAME, 0, b"a")
    asked = simulation.count(InitProducerIdRequest)
    simulation.producer.begin_task(["t"])
    simulation.run_for(1000)
    assert simulation.count(InitProducerIdRequest) == asked
    simulation.write(0, b"b")
    assert simulation.count(InitProducerIdRequest) == asked + 1


def test_a_late_answer_of_the_task_before_changes_nothing():
    """The task before had no rows; its InitProducerId is answered in the middle of the next."""
    simulation = Transactional(partitions=1)
    simulation.run_for(500)
    handle, held = simulation.cluster.handle, []

    def holding(broker, request, version, reply):
        if isinstance(request, InitProducerIdRequest) and not held:
            held.append(lambda: handle(broker, request, version, reply))
        else:
            handle(broker, request, version, reply)

    simulation.cluster.handle = holding
    simulation.begin("flights.0")
    simulation.run_for(100)
    assert held
    simulation.producer.flush()
    assert simulation.producer.transaction is None
    coordinator = simulation.transactions.coordinator_id("flights.0")
    name = next(
        name
        for name in (f"flights.{i}" for i in range(1, 20))
        if simulation.transactions.coordinator_id(name) != coordinator
    )
    simulation.begin(name)
    simulation.append_to(0, [b"a"])
    simulation.producer._appender.finish_open()
    simulation.scheduler.after(50, held[0])
    simulation.producer.flush()
    simulation.run_for(1000)
    prepared = simulation.producer.transaction
    assert prepared is not None
    assert prepared.transactional_id == name
    assert simulation.end(prepared) == "NONE"
    assert simulation.committed()[0] == [b"a"]
    assert simulation.count(InitProducerIdRequest) == 3


# --- what passes ----------------------------------------------------------------------------------


def test_a_lost_answer_doubles_nothing(simulation):
    seen = []

    def lose_first_answer(broker, topic, index, batch):
        seen.append(batch.header)
        simulation.network.faults.cut_next_response = len(seen) == 1

    simulation.cluster.on_produce = lose_first_answer
    prepared = simulation.task(NAME, 0, b"a", b"b")
    assert seen == [seen[0]] * 2
    assert simulation.end(prepared) == "NONE"
    assert simulation.committed()[0] == [b"a", b"b"]


@pytest.mark.parametrize(("error", "limit_ms"), [("CONCURRENT_TRANSACTIONS", 100)])
def test_a_leader_that_ends_the_transaction_before_is_asked_again_soon(error, limit_ms):
    simulation = Transactional()
    failures = iter([error] * 2)
    simulation.begin()
    simulation.run_for(500)
    simulation.cluster.on_produce = lambda *_: next(failures, None)
    started_ms = simulation.clock.ms
    simulation.write(0, b"a")
    assert simulation.clock.ms - started_ms < limit_ms
    assert simulation.producer.metrics.retries == 2


def test_a_moved_leader_is_followed_within_the_transaction(simulation):
    simulation.begin()
    simulation.write(0, b"a")
    simulation.cluster.move_leader("t", 0, to=2)
    simulation.write(0, b"b")
    assert simulation.end(simulation.producer.transaction) == "NONE"
    assert simulation.committed()[0] == [b"a", b"b"]


def test_a_coordinator_that_moves_in_the_middle_is_found_again(simulation):
    simulation.begin()
    simulation.write(0, b"a")
    elsewhere = simulation.transactions.coordinator_id(NAME) % 3 + 1
    simulation.transactions.move_coordinator(NAME, elsewhere)
    simulation.append_to(1, [b"b"])
    simulation.append_to(2, [b"c"])
    simulation.producer.flush()
    assert simulation.end(simulation.producer.transaction) == "NONE"
    assert simulation.committed() == {0: [b"a"], 1: [b"b"], 2: [b"c"]}


@pytest.mark.parametrize("is_before", [True, False], ids=["before", "in the middle"])
def test_a_coordinator_that_dies_is_replaced(simulation, is_before):
    node_id = simulation.transactions.coordinator_id(NAME)
    partitions = [
        i for i in range(3) if simulation.cluster.topics["t"].partitions[i].leader_id != node_id
    ]
    simulation.begin()
    if not is_before:
        simulation.write(partitions[0], b"a")
    simulation.cluster.crash(node_id, election_delay_ms=3_000)
    for partition in partitions:
        simulation.append_to(partition, [b"b"])
    simulation.producer.flush()
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
    simulation.producer.flush()
    prepared = simulation.producer.transaction
    assert [taken.record.value for taken in simulation.producer.rejections.take_rejected()] == [bad]
    simulation.append([(None, b"a dead letter")])
    simulation.producer.flush()
    assert simulation.producer.transaction == prepared
    assert simulation.end(prepared) == "NONE"
    written = sorted(v for values in simulation.committed().values() for v in values)
    assert written == sorted([b"a dead letter", *(v for _, v in rows if v != bad)])
