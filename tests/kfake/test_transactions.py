"""Exactly-once's commit protocol on kfake: real tasks, the real driver, and coordinators that err."""

import pytest

from spark_kafka_sink.base.clock import SystemClock
from spark_kafka_sink.client.admin import AdminClient
from spark_kafka_sink.config.sink_keys import ExactlyOnceConfig
from spark_kafka_sink.transactions import crash_points
from spark_kafka_sink.transactions.client import TransactionClient
from spark_kafka_sink.transactions.commit_protocol import CommitProtocol
from spark_kafka_sink.transactions.decision_log import check_brokers, prepare_log_topic
from spark_kafka_sink.transactions.model import Unit
from tests.broker.processes import eventually
from tests.broker.test_cli_transactions import LOG_TOPIC, TIMEOUT_MS, Query
from tests.broker.test_transactions import PARTITIONS, committed, uncommitted
from tests.patience import PATIENCE_MS

pytestmark = pytest.mark.long

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
    cluster.create_topic("p-rows", PARTITIONS)
    config = ExactlyOnceConfig("p", TIMEOUT_MS, LOG_TOPIC, 1, accepts_missing_record=True)
    with AdminClient.connect(cluster.bootstrap_servers) as admin:
        deadline_ms = admin.deadline_in(PATIENCE_MS)
        check_brokers(admin, config, deadline_ms)
        prepare_log_topic(admin, config, deadline_ms)
        client = TransactionClient(admin)
        yield Query(cluster, "p", CommitProtocol(client, config, SystemClock(), PATIENCE_MS))
    crash_points.set_hook(None)


def commit(query):
    """A unit, which must then be there once."""
    plan, written = query.begin()
    query.protocol.commit(plan, UNIT, written)
    assert eventually(lambda: committed(query.kafka, query.topic) == ROWS)
    assert uncommitted(query.kafka, query.topic) == ROWS


def test_a_unit_is_invisible_and_then_committed(query):
    plan, written = query.begin()
    assert committed(query.kafka, query.topic) == []
    query.protocol.commit(plan, UNIT, written)
    assert eventually(lambda: committed(query.kafka, query.topic) == ROWS)


def test_an_aborted_unit_is_never_visible(query):
    plan, _ = query.begin()
    query.protocol.abort(plan.driver)
    plan, written = query.begin()
    query.protocol.commit(plan, UNIT, written)
    assert eventually(lambda: committed(query.kafka, query.topic) == ROWS)
    assert len(uncommitted(query.kafka, query.topic)) == 2 * len(ROWS)


def test_what_was_decided_is_committed_by_the_next_driver(query):
    query.decide()
    plan, _ = query.begin()
    assert eventually(lambda: committed(query.kafka, query.topic) == ROWS)
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
