"""Errors while a transaction begins: those that pass, and those that do not."""

from __future__ import annotations

import pytest

from spark_kafka_sink.base.errors import (
    BrokerError,
    error_named,
)
from spark_kafka_sink.base.model import PreparedTransaction
from spark_kafka_sink.protocol.messages.transactions import (
    AddPartitionsToTxnRequest,
    FindCoordinatorRequest,
    InitProducerIdRequest,
)
from tests.unit.batches import T0, make_batch
from tests.unit.transaction_world import LOST, NAME, World

# --- what passes ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    ["COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS", "REQUEST_TIMED_OUT", LOST],
)
def test_finding_the_coordinator_is_tried_again(error):
    world = World()
    world.script(FindCoordinatorRequest, *[error] * 3)
    started_ms = world.clock.ms
    world.run()
    assert len(world.asked(FindCoordinatorRequest)) == 4
    assert world.clock.ms - started_ms >= 100 + 200 + 400
    assert world.state.has_producer_id


@pytest.mark.parametrize("request_type", [InitProducerIdRequest, AddPartitionsToTxnRequest])
@pytest.mark.parametrize("error", ["COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR", LOST])
def test_a_coordinator_that_moved_is_looked_up_again(request_type, error):
    world = World(transaction_version=1)
    world.script(request_type, error)
    world.run()
    if request_type is AddPartitionsToTxnRequest:
        world.queued = [T0]
    world.coordinator = 3
    world.run()
    asked = [a.node_id for a in world.asked(request_type)]
    assert asked[0] == 2
    assert asked[-1] == (2 if request_type is InitProducerIdRequest else 3)
    assert len(asked) == 2
    assert len(world.asked(FindCoordinatorRequest)) == 2
    assert not world.failures


def test_a_coordinator_that_loads_is_asked_again():
    world = World()
    world.script(InitProducerIdRequest, *["COORDINATOR_LOAD_IN_PROGRESS"] * 2)
    world.run()
    assert [a.node_id for a in world.asked(InitProducerIdRequest)] == [2, 2, 2]
    assert len(world.asked(FindCoordinatorRequest)) == 1


def test_a_coordinator_that_died_is_looked_up_again_until_another_takes_over():
    world = World(transaction_version=1)
    world.run()
    world.network.lose(2)
    world.queued = [T0]
    world.run(rounds=30)
    assert world.state.must_wait(make_batch(T0))
    assert not world.failures
    failure = world.manager.last_failure or ""
    for part in (NAME, "coordinator", "broker 2", "Connection refused"):
        assert part in failure
    world.coordinator = 1
    world.run()
    assert [a.node_id for a in world.asked(AddPartitionsToTxnRequest)] == [1]
    assert world.state.partitions == {T0}
    assert world.manager.last_failure is None


def test_a_previous_transaction_that_is_being_ended_is_waited_for_shortly():
    world = World()
    world.script(InitProducerIdRequest, *["CONCURRENT_TRANSACTIONS"] * 2)
    started_ms = world.clock.ms
    world.run()
    assert 20 + 40 <= world.clock.ms - started_ms < 100
    assert world.state.transaction == PreparedTransaction(NAME, 4000, 3, 2)


def test_a_conflict_that_lasts_is_asked_about_less_and_less_often():
    world = World()
    world.script(InitProducerIdRequest, *["CONCURRENT_TRANSACTIONS"] * 30)
    started_ms = world.clock.ms
    world.run(rounds=200)
    assert world.state.has_producer_id
    assert world.clock.ms - started_ms > 20_000


# --- what does not pass ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_type", "error", "advice"),
    [
        (FindCoordinatorRequest, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "grant the principal"),
        (FindCoordinatorRequest, "INVALID_REQUEST", ""),
        (InitProducerIdRequest, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "transactional.id.prefix"),
        (InitProducerIdRequest, "CLUSTER_AUTHORIZATION_FAILED", "IDEMPOTENT_WRITE"),
        (InitProducerIdRequest, "INVALID_TRANSACTION_TIMEOUT", "transaction.max.timeout.ms"),
        (InitProducerIdRequest, "PRODUCER_FENCED", "somebody else"),
        (InitProducerIdRequest, "INVALID_PRODUCER_EPOCH", "somebody else"),
        (InitProducerIdRequest, "UNSUPPORTED_VERSION", "upgrade"),
        (AddPartitionsToTxnRequest, "PRODUCER_FENCED", "transactional.id.prefix"),
        (AddPartitionsToTxnRequest, "INVALID_PRODUCER_EPOCH", "kafka.transaction.timeout.ms"),
        (AddPartitionsToTxnRequest, "INVALID_TXN_STATE", "Let the batch run again"),
        (AddPartitionsToTxnRequest, "INVALID_PRODUCER_ID_MAPPING", "has forgotten it"),
        (AddPartitionsToTxnRequest, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "grant"),
        (AddPartitionsToTxnRequest, "TRANSACTION_ABORTABLE", "aborted"),
    ],
)
def test_errors_that_do_not_pass_fail_the_task_and_say_what_to_do(request_type, error, advice):
    world = World(transaction_version=1)
    world.queued = [T0]
    world.script(request_type, error)
    world.run()
    [failure] = world.failures
    assert isinstance(failure, BrokerError)
    assert failure.error is error_named(error)
    for part in (f"transaction {NAME}", error, "broker ", advice):
        assert part in str(failure)
    assert len(world.asked(request_type)) == 1
