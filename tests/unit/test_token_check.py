"""Whether a transaction has begun in time: asked once, and answered in every way."""

import pytest

from spark_kafka_sink.base.errors import BrokerError, SupersededError, error_named
from spark_kafka_sink.base.model import ProducerIdAndEpoch, UnusedProducerIdentity
from spark_kafka_sink.producer.transaction_manager import CheckedTransaction, TokenCheck
from spark_kafka_sink.protocol.messages.transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    FindCoordinatorRequest,
    TransactionState,
)
from tests.unit.batches import NODES, make_batch
from tests.unit.transaction_world import LOST, World

TOKEN = UnusedProducerIdentity("flights.driver", ProducerIdAndEpoch(77, 5))


class Checked(World):
    """A transaction with its check. ``held_by``, ``state``: of the token's id."""

    def __init__(self, token=TOKEN):
        super().__init__()
        self.held_by = TOKEN.producer
        self.token_state = "Empty"
        self.told = 0
        check = TokenCheck(token, self.client, self.metadata, self.asking(), self._tell)
        self.identity = CheckedTransaction(self.manager, check)

    def _tell(self):
        self.told += 1

    @property
    def failures(self):
        return [] if self.identity.failure is None else [self.identity.failure]

    def run(self, rounds=60):
        for _ in range(rounds):
            if self.failures:
                return
            wait_ms = self.identity.maybe_request(self.clock.ms)
            self.client.poll(1_000 if wait_ms is None else wait_ms, self.clock.ms)

    def begin(self):
        """The first batch is acknowledged."""
        batch = make_batch()
        self.state.assign_sequence(batch)
        self.state.handle_completed_batch(batch, 0)

    def described(self):
        return self.asked(DescribeTransactionsRequest)

    def _answer_other(self, asked, code):
        assert isinstance(asked.request, DescribeTransactionsRequest)
        assert asked.request.transactional_ids == [TOKEN.transactional_id]
        told = TransactionState(
            code, TOKEN.transactional_id, self.token_state, 60_000, -1, *self.held_by, []
        )
        return DescribeTransactionsResponse(0, [told])


@pytest.fixture
def checked():
    """A transaction that has its producer id, and nothing written."""
    checked = Checked()
    checked.run()
    assert checked.state.has_producer_id
    return checked


def test_it_is_asked_after_the_transaction_has_begun_and_once(checked):
    assert not checked.identity.awaits_check
    assert checked.described() == []
    found = [a.request.coordinator_keys for a in checked.asked(FindCoordinatorRequest)]
    assert [TOKEN.transactional_id] in found  # so that the question itself costs one round trip
    checked.begin()
    assert checked.identity.awaits_check
    checked.run()
    assert not checked.identity.awaits_check
    assert (len(checked.described()), checked.told) == (1, 1)


def looked_for(checked):
    return [a.request.coordinator_keys for a in checked.asked(FindCoordinatorRequest)]


def test_a_coordinator_that_the_token_tells_is_not_looked_for():
    checked = Checked(TOKEN._replace(coordinator=NODES[2]))
    checked.run()
    checked.begin()
    checked.run()
    assert not checked.identity.awaits_check
    assert [asked.node_id for asked in checked.described()] == [2]
    assert [TOKEN.transactional_id] not in looked_for(checked)


def test_it_is_looked_for_when_it_has_moved():
    checked = Checked(TOKEN._replace(coordinator=NODES[2]))
    checked.script(DescribeTransactionsRequest, "NOT_COORDINATOR")
    checked.run()
    checked.begin()
    checked.run()
    assert not checked.identity.awaits_check
    assert [TOKEN.transactional_id] in looked_for(checked)


def test_it_is_looked_for_when_it_cannot_be_reached():
    checked = Checked(TOKEN._replace(coordinator=NODES[3]))
    checked.network.down.add(3)
    checked.run()
    checked.begin()
    checked.run()
    assert not checked.identity.awaits_check
    assert [TOKEN.transactional_id] in looked_for(checked)


@pytest.mark.parametrize(
    ("held_by", "state"),
    [
        pytest.param(ProducerIdAndEpoch(77, 6), "Empty", id="taken over"),
        pytest.param(ProducerIdAndEpoch(78, 0), "Empty", id="another producer id"),
        pytest.param(TOKEN.producer, "Ongoing", id="a decision is being written"),
        pytest.param(TOKEN.producer, "PrepareCommit", id="a decision is written"),
        pytest.param(TOKEN.producer, "CompleteCommit", id="decided, before transaction.version 2"),
    ],
)
def test_a_token_that_is_used_ends_the_task(checked, held_by, state):
    checked.held_by, checked.token_state = held_by, state
    checked.begin()
    checked.run()
    [failure] = checked.failures
    assert isinstance(failure, SupersededError)
    for part in ("too late", "its transaction is aborted", TOKEN.transactional_id):
        assert part in str(failure)
    assert checked.identity.awaits_check  # nothing may be handed over


def test_a_coordinator_of_the_past_is_not_believed(checked):
    """A broker that is cut off knows the producer before; else a task in time would fail."""
    checked.held_by = ProducerIdAndEpoch(77, 4)
    checked.begin()
    checked.run(8)
    assert checked.failures == []
    assert checked.identity.awaits_check
    assert "it knows an older state" in checked.identity.last_failure
    checked.held_by = TOKEN.producer
    checked.run()
    assert not checked.identity.awaits_check
    # Once to begin with, and again because of that answer.
    assert looked_for(checked).count([TOKEN.transactional_id]) > 1


@pytest.mark.parametrize("count", [0, 2])
def test_an_answer_about_another_number_of_ids_is_not_believed(checked, count):
    def answer(asked, code):
        told = Checked._answer_other(checked, asked, code)
        if len(checked.described()) == 1:
            told.transaction_states *= count
        return told

    checked._answer_other = answer
    checked.begin()
    checked.run()
    assert checked.failures == []
    assert not checked.identity.awaits_check
    assert len(checked.described()) == 2


@pytest.mark.parametrize(
    "error", ["NOT_COORDINATOR", "COORDINATOR_LOAD_IN_PROGRESS", "TRANSACTIONAL_ID_NOT_FOUND", LOST]
)
def test_what_passes_is_asked_again(checked, error):
    checked.script(DescribeTransactionsRequest, error, error)
    checked.begin()
    checked.run()
    assert checked.failures == []
    assert not checked.identity.awaits_check
    assert len(checked.described()) == 3


def test_who_may_not_ask_is_told_so(checked):
    checked.script(DescribeTransactionsRequest, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED")
    checked.begin()
    checked.run()
    [failure] = checked.failures
    assert isinstance(failure, BrokerError)
    assert failure.error is error_named("TRANSACTIONAL_ID_AUTHORIZATION_FAILED")
    assert "WRITE on all ids that begin with transactional.id.prefix" in str(failure)
