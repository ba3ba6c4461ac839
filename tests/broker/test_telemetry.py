"""A real broker that takes no metrics of clients: it is asked nothing, and nothing is logged."""

import logging

from spark_kafka_sink.protocol.messages.client import (
    GetTelemetrySubscriptionsRequest,
)
from tests.broker.producing import batch_of, open_producer, plan_of
from tests.reading import read_topic


def test_a_broker_without_a_plugin_is_asked_nothing(kafka, caplog):
    caplog.set_level(logging.DEBUG, "spark_kafka_sink")
    kafka.create_topic("unwatched", 1)
    producer = open_producer(kafka.bootstrap_servers, linger_ms="0")
    batch = batch_of(value=[b"a", b"b"])
    for _ in range(2):
        producer.append(batch, plan_of(batch, "unwatched"))
        producer.flush()
    (node,) = producer._metadata.snapshot.nodes.values()
    versions = producer.client.api_versions(node)
    assert not versions.supports(GetTelemetrySubscriptionsRequest)
    producer.close()
    assert producer.telemetry.subscription is None
    assert len(read_topic(kafka.bootstrap_servers, "unwatched")) == 4
    assert [record for record in caplog.records if "telemetry" in record.name] == []
