"""Metrics that brokers ask for (KIP-714), to brokers that share no code with Apache Kafka."""

from __future__ import annotations

import logging
import time

import pytest

from spark_kafka_sink.producer import telemetry
from tests.broker.producing import batch_of, open_producer, plan_of
from tests.kfake.cluster import KfakeCluster
from tests.patience import PATIENCE_MS, PATIENCE_S

pytestmark = pytest.mark.long


def test_the_last_push_is_taken(cluster: KfakeCluster, caplog, monkeypatch) -> None:
    monkeypatch.setattr(telemetry, "FINISH_MS", PATIENCE_MS)
    caplog.set_level(logging.WARNING, "spark_kafka_sink")
    cluster.create_topic("watched", 3)
    producer = open_producer(cluster.bootstrap_servers, linger_ms="0")
    batch = batch_of(value=[b"a"])
    producer.append(batch, plan_of(batch, "watched"))
    producer.flush()
    deadline = time.monotonic() + PATIENCE_S
    assert producer.telemetry is not None
    while producer.telemetry.subscription is None:
        assert time.monotonic() < deadline, "no subscription came"
        time.sleep(0.01)
    producer.close()
    assert producer.telemetry.state is telemetry.State.TERMINATED
    assert [record.getMessage() for record in caplog.records] == []
