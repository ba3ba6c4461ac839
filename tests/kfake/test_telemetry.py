"""Metrics that brokers ask for (KIP-714), to brokers that share no code with Apache Kafka."""

import logging

import pytest

from spark_kafka_sink.config.sink_options import SinkOptions
from spark_kafka_sink.producer import telemetry
from spark_kafka_sink.producer.pool import POOL
from spark_kafka_sink.spark.commit import KafkaCommitMessage
from spark_kafka_sink.spark.task import write_rows
from tests.broker.producing import batch_of, open_producer, plan_of
from tests.patience import PATIENCE_MS, until

pytestmark = pytest.mark.long


def test_the_last_push_is_taken(cluster, caplog, monkeypatch):
    monkeypatch.setattr(telemetry, "CLOSE_TIMEOUT_MS", PATIENCE_MS)
    caplog.set_level(logging.WARNING, "spark_kafka_sink")
    cluster.create_topic("watched", 3)
    producer = open_producer(cluster.bootstrap_servers, linger_ms="0")
    batch = batch_of(value=[b"a"])
    producer.append(batch, plan_of(batch, "watched"))
    producer.flush()
    told = producer.telemetry
    assert told is not None
    until(lambda: told.subscription is not None)
    producer.close()
    assert told.state is telemetry.State.TERMINATED
    assert [record.getMessage() for record in caplog.records] == []


@pytest.mark.parametrize(("query_id", "tasks_push"), [(None, [1, 2]), ("q", [0, 0])])
def test_a_jobs_task_pushes_at_its_end_and_a_querys_at_the_interval(cluster, query_id, tasks_push):
    """Nobody closes the producer: the process is Spark's."""
    cluster.create_topic("watched", 3)
    given = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "topic": "watched"}
    options = SinkOptions.parse(given)
    batch = batch_of(value=[b"a"])
    subscriptions = [1, 2] if query_id is None else [1, 1]
    try:
        for pushes, asked in zip(tasks_push, subscriptions):
            message = KafkaCommitMessage(0, 0, query_id)
            write_rows([batch], options, plan_of(batch, "watched"), message)
            until(lambda asked=asked: len(cluster.requests("GetTelemetrySubscriptions")) == asked)
            until(lambda pushes=pushes: len(cluster.requests("PushTelemetry")) == pushes)
    finally:
        POOL.close()
    until(lambda: len(cluster.requests("PushTelemetry")) == (2 if query_id is None else 1))
