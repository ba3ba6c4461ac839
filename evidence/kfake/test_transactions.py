"""Exactly-once's commit protocol on kfake: real tasks, the real driver, and coordinators that err."""

import pytest

from spark_kafka_sink.transactions.model import Unit
from tests.broker.test_transactions import assert_committed, committed, open_query

ROWS = list(range(600))
UNIT = Unit("query-1", 7, None)
COORDINATORS_MAY_ANSWER = (
    "COORDINATOR_LOAD_IN_PROGRESS",
    "COORDINATOR_NOT_AVAILABLE",
    "NOT_COORDINATOR",
    "CONCURRENT_TRANSACTIONS",
)
ASKED = ("InitProducerID", "AddPartitionsToTxn", "EndTxn")


@pytest.fixture(params=["3.0", "3.9", ""], ids=["3.0", "3.9", "newest"])
def query(new_cluster, request):
    cluster = new_cluster(version=request.param, brokers=3)
    with open_query(cluster, "p") as opened:
        yield opened


def commit(query):
    """A unit, which must then be there once."""
    plan, written = query.begin()
    query.protocol.commit(plan, UNIT, written)
    assert_committed(query.kafka, query.topic, ROWS)
    assert committed(query.kafka, query.topic, "read_uncommitted") == ROWS


def test_what_was_decided_is_committed_by_the_next_driver(query):
    query.decide()
    plan, _ = query.begin()
    assert_committed(query.kafka, query.topic, ROWS)
    query.protocol.abort(plan.driver)
    assert committed(query.kafka, query.topic) == ROWS


@pytest.mark.parametrize("api", ASKED)
@pytest.mark.parametrize("error", COORDINATORS_MAY_ANSWER)
def test_coordinators_are_asked_again(query, api, error):
    query.kafka.do("fault", api=api, error=error, count=3)
    commit(query)
    # Newer brokers add partitions by themselves.
    is_asked = bool(query.kafka.requests(api))
    assert is_asked or (api, query.kafka.version) == ("AddPartitionsToTxn", "")
    assert query.kafka.do("hits") == (3 if is_asked else 0)


@pytest.mark.parametrize("api", [*ASKED, "FindCoordinator", "Produce", "DescribeTransactions"])
@pytest.mark.parametrize("what", ["close", "lose"])
def test_connections_that_end_instead_of_an_answer(query, what, api):
    query.kafka.do(what, api=api, count=1)
    commit(query)
