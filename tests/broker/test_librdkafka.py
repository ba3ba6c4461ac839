"""librdkafka's mock cluster: brokers in C that share no code with Kafka's, in this very process.

It knows ApiVersions up to version 2, and answers a newer one with bytes that are of no version.
"""

import pytest
from confluent_kafka import Producer

from tests.broker.producing import batch_of, send
from tests.patience import PATIENCE_S
from tests.reading import read_topic


@pytest.fixture
def mock_servers():
    cluster = Producer({"test.mock.num.brokers": 3, "log_level": 0})
    brokers = cluster.list_topics(timeout=PATIENCE_S).brokers.values()
    yield ",".join(f"{broker.host}:{broker.port}" for broker in brokers)
    cluster.flush()  # the cluster lives as long as its producer


@pytest.mark.parametrize("idempotence", ["true", "false"])
def test_records_arrive_once_and_in_order(mock_servers, idempotence):
    batches = [batch_of(value=[b"%d" % (n + 500 * i) for n in range(500)]) for i in range(4)]
    producer = send(mock_servers, "flights", batches, enable_idempotence=idempotence)
    read = read_topic(mock_servers, "flights")
    assert sorted(int(record.value) for record in read) == list(range(2_000))
    for partition in range(4):
        values = [int(record.value) for record in read if record.partition == partition]
        assert values == sorted(values)
    assert producer.metrics.records == 2_000
