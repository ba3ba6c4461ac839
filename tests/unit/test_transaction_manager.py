"""How a transaction begins: coordinator, producer id, partitions; and its batches."""

from __future__ import annotations

import pytest

from spark_kafka_sink.base.errors import (
    UnsupportedVersionError,
    error_named,
)
from spark_kafka_sink.base.model import PreparedTransaction, ProducerIdAndEpoch
from spark_kafka_sink.protocol import schema
from spark_kafka_sink.protocol.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from tests.unit.batches import T0, T1, T2, make_batch
from tests.unit.scripted_network import Asked
from tests.unit.transaction_world import NAME, TIMEOUT_MS, World

# --- the straight way -----------------------------------------------------------------------------


def test_the_coordinator_gives_the_id_a_producer_id():
    world = World()
    assert world.state.transaction is None
    assert world.state.must_wait(make_batch())
    world.run()
    [found] = world.asked(FindCoordinatorRequest)
    assert (found.version, found.request) == (6, FindCoordinatorRequest("", 1, [NAME]))
    [begun] = world.asked(InitProducerIdRequest)
    assert (begun.node_id, begun.version) == (2, 5)
    assert begun.request == InitProducerIdRequest(NAME, TIMEOUT_MS, -1, -1)
    assert world.state.transaction == PreparedTransaction(NAME, 4000, 1, 2)
    assert world.state.producer == ProducerIdAndEpoch(4000, 1)
    assert not world.state.must_wait(make_batch())
    assert world.manager.maybe_request(world.clock.ms) is None


@pytest.mark.parametrize("version", [1, 2, 3])
def test_old_brokers_are_asked_for_one_coordinator(version):
    world = World(transaction_version=0)
    world.network.offered[FindCoordinatorRequest] = (0, version)
    world.run()
    [found] = world.asked(FindCoordinatorRequest)
    assert (found.version, found.request) == (version, FindCoordinatorRequest(NAME, 1, []))
    assert world.state.has_producer_id


def test_a_producer_id_whose_epochs_could_run_out_is_exchanged():
    """With a transaction open at the last epoch, some brokers can never end it."""
    world = World()
    given = iter([ProducerIdAndEpoch(4000, 32_766), ProducerIdAndEpoch(4001, 0)])
    answer = world.network._script

    def script(asked: Asked) -> schema.Message:
        if isinstance(asked.request, InitProducerIdRequest):
            return InitProducerIdResponse(0, 0, *next(given))
        return answer(asked)

    world.network._script = script
    world.run()
    assert world.state.producer == ProducerIdAndEpoch(4001, 0)


def test_brokers_without_transactions_are_refused():
    world = World()
    world.network.offered[FindCoordinatorRequest] = (0, 0)
    world.run()
    [failure] = world.failures
    assert isinstance(failure, UnsupportedVersionError)
    assert "FindCoordinator" in str(failure)


# --- partitions -----------------------------------------------------------------------------------


@pytest.mark.parametrize("transaction_version", [0, 1])
def test_partitions_are_added_before_their_first_batch(transaction_version):
    """What brokers offer does not count: they offer version 5 of AddPartitionsToTxn as well."""
    world = World(transaction_version)
    world.queued = [T0, T2]
    world.run()
    for _ in range(3):  # what is added stays so
        assert world.manager.maybe_request(world.clock.ms) is None
        world.client.poll(0, world.clock.ms)
    [added] = world.asked(AddPartitionsToTxnRequest)
    assert (added.node_id, added.version) == (2, 3)
    request = added.request
    assert isinstance(request, AddPartitionsToTxnRequest)
    assert (request.v3_and_below_transactional_id, request.v3_and_below_producer_id) == (NAME, 4000)
    assert request.v3_and_below_producer_epoch == 1
    assert [(t.name, t.partitions) for t in request.v3_and_below_topics] == [("t", [0, 2])]
    assert not world.state.must_wait(make_batch(T0))
    assert world.state.must_wait(make_batch(T1))
    world.queued = [T0, T1]
    world.run()
    assert len(world.asked(AddPartitionsToTxnRequest)) == 2
    assert world.state.partitions == {T0, T1, T2}
    assert world.state.transaction == PreparedTransaction(NAME, 4000, 1, transaction_version)


def test_produce_requests_add_partitions_by_themselves_from_transaction_version_2_on():
    world = World(transaction_version=2)
    world.queued = [T0, T1]
    world.run()
    assert not world.asked(AddPartitionsToTxnRequest)
    assert not world.state.must_wait(make_batch(T1))


@pytest.mark.parametrize(
    "error", ["UNKNOWN_TOPIC_OR_PARTITION", "CONCURRENT_TRANSACTIONS", "OPERATION_NOT_ATTEMPTED"]
)
def test_one_partition_that_is_not_ready_keeps_all_waiting_and_is_asked_for_again(error):
    world = World(transaction_version=1)
    world.queued = [T0, T1, T2]
    world.partition_errors = iter([{T1: error}] * 2)
    world.run()
    assert len(world.asked(AddPartitionsToTxnRequest)) == 3
    assert world.state.partitions == {T0, T1, T2}
    assert not world.failures
    # A topic that is not known there may not be as it was.
    is_looked_at = world.metadata.time_to_next_update_ms(world.clock.ms) == 0
    assert is_looked_at is (error == "UNKNOWN_TOPIC_OR_PARTITION")
    assert world.manager.last_failure is None


def test_a_partition_that_may_not_be_written_to_fails_the_task():
    """Even if another one's error would pass."""
    world = World(transaction_version=1)
    world.queued = [T0, T1, T2]
    errors = {T0: "UNKNOWN_TOPIC_OR_PARTITION", T2: "TOPIC_AUTHORIZATION_FAILED"}
    world.partition_errors = iter([errors])
    world.run()
    [failure] = world.failures
    for part in (NAME, "t-2", "TOPIC_AUTHORIZATION_FAILED", "grant the principal"):
        assert part in str(failure)
    assert not world.state.partitions


def test_an_answer_that_leaves_a_partition_out_does_not_count_for_it():
    world = World(transaction_version=1)
    world.queued = [T0]
    answers = iter([AddPartitionsToTxnResponse()])
    added = world._added
    world._added = lambda request, error: next(answers, None) or added(request, error)
    world.run(rounds=7)
    started_ms = world.clock.ms
    assert world.state.must_wait(make_batch(T0))
    world.run()
    assert world.state.partitions == {T0}
    assert world.clock.ms > started_ms


# --- batches --------------------------------------------------------------------------------------


def test_batches_carry_the_transaction():
    world = World()
    world.run()
    batch = make_batch(T0, 3)
    world.state.assign_sequence(batch)
    assert (batch.transactional_id, batch.producer) == (NAME, world.state.producer)
    batch.close()
    assert batch.buffers[0][22] & 0x10


@pytest.mark.parametrize(
    ("error", "log_start_offset", "expected"),
    [
        ("UNKNOWN_PRODUCER_ID", -1, True),
        ("UNKNOWN_PRODUCER_ID", 0, False),
        ("OUT_OF_ORDER_SEQUENCE_NUMBER", 0, False),
        ("CONCURRENT_TRANSACTIONS", 0, True),
        ("NOT_LEADER_OR_FOLLOWER", 0, True),
        ("INVALID_PRODUCER_EPOCH", 0, False),
        ("PRODUCER_FENCED", 0, False),
        ("INVALID_TXN_STATE", 0, False),
        ("TRANSACTION_ABORTABLE", 0, False),
    ],
)
def test_nothing_that_needs_a_new_epoch_is_retried(error, log_start_offset, expected):
    world = World()
    world.run()
    batch = make_batch(T0)
    world.state.assign_sequence(batch)
    transaction = world.state.transaction
    assert world.state.can_retry(batch, error_named(error), log_start_offset) is expected
    world.state.bump_epoch_if_needed()
    assert world.state.transaction == transaction
    assert world.state.producer == ProducerIdAndEpoch(4000, 1)


def test_a_batch_behind_one_that_failed_is_retried():
    world = World()
    world.run()
    first, second = make_batch(T0), make_batch(T0)
    world.state.assign_sequence(first)
    world.state.assign_sequence(second)
    assert world.state.can_retry(second, error_named("OUT_OF_ORDER_SEQUENCE_NUMBER"), 0)
