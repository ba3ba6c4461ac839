"""An attempt at a task that begins to write when its micro-batch is committed, on real brokers."""

import pytest

from spark_kafka_sink.base.clock import SystemClock
from spark_kafka_sink.base.errors import SupersededError
from spark_kafka_sink.client.admin import AdminClient
from spark_kafka_sink.config.sink_options import SinkOptions
from spark_kafka_sink.spark.commit import KafkaCommitMessage
from spark_kafka_sink.spark.task import write_rows
from spark_kafka_sink.transactions.client import TransactionClient
from spark_kafka_sink.transactions.commit_protocol import CommitProtocol
from spark_kafka_sink.transactions.decision_log import prepare_log_topic
from spark_kafka_sink.transactions.model import Driver, Unit
from tests.broker.creating import producer_for
from tests.broker.processes import eventually
from tests.broker.producing import plan_of
from tests.broker.test_transactions import PARTITIONS, broker, committed, kafka_tv1, rows, version

__all__ = ["broker", "kafka_tv1", "version"]

MINUTES_MS = 300_000


class Query:
    """The driver's part, and attempts at its only task."""

    def __init__(self, kafka, client, prefix):
        self.topic = f"{prefix}-rows"
        kafka.create_topic(self.topic, PARTITIONS)
        self.options = SinkOptions.parse(
            {
                "kafka.bootstrap.servers": kafka.bootstrap_servers,
                "topic": self.topic,
                "delivery.guarantee": "exactly-once",
                "transactional.id.prefix": prefix,
                "transaction.log.topic": f"{prefix}-log",
                "transaction.log.replication.factor": "1",
            }
        )
        config = self.options.exactly_once
        assert config is not None
        deadline_ms = client.admin.deadline_in(MINUTES_MS)
        prepare_log_topic(client.admin, config, deadline_ms)
        client.describe([f"{prefix}.driver"], deadline_ms)  # creates __transaction_state
        self.protocol = CommitProtocol(client, config, SystemClock(), MINUTES_MS)

    def plan(self):
        return self.protocol.plan(Driver("driver", "host", 1, "/checkpoint", None), None)

    def attempt(self, plan, batches):
        message = KafkaCommitMessage(partition_id=0, attempt_number=0, query_id="q")
        positions = plan_of(rows(0), self.topic)
        write_rows(batches, self.options, positions, message, plan)
        assert message.transaction is not None
        return message.transaction


@pytest.fixture
def queries(broker):
    with AdminClient.connect(broker.bootstrap_servers) as admin:
        yield lambda prefix: Query(broker, TransactionClient(admin), prefix)


def assert_not_blocked(broker, query):
    """Readers of committed records see the query's, and what others write behind them."""
    with producer_for(broker.bootstrap_servers) as other:
        other.append(rows(1000), plan_of(rows(1000), query.topic))
        other.flush()
    expected = [*range(300), *range(1000, 1300)]
    assert eventually(lambda: committed(broker, query.topic) == expected)


def test_it_leaves_nothing_open_that_readers_wait_for(broker, queries):
    """As the query is idle then, nobody plans and sweeps."""
    query = queries("late")
    plan = query.plan()

    def late_rows():
        winner = query.attempt(plan, iter([rows(0)]))
        assert query.protocol.commit(plan, Unit("q", 0, None), [winner]) is not None
        yield rows(0)

    with pytest.raises(SupersededError, match="too late"):
        query.attempt(plan, late_rows())
    assert_not_blocked(broker, query)


def test_it_leaves_nothing_open_when_it_was_a_replay(broker, queries):
    """The replay of a micro-batch that is committed is dropped: nothing is decided once more."""
    query = queries("late-replay")
    plan = query.plan()
    query.protocol.commit(plan, Unit("q", 0, None), [query.attempt(plan, iter([rows(0)]))])
    again = query.plan()

    def late_rows():
        winner = query.attempt(again, iter([rows(0)]))
        assert query.protocol.commit(again, Unit("q", 0, None), [winner]) is None
        yield rows(0)

    with pytest.raises(SupersededError, match="too late"):
        query.attempt(again, late_rows())
    assert_not_blocked(broker, query)
