"""Kafka's names: each that the Java producer has is given, or the reason is."""

from __future__ import annotations

import json
from typing import Any

import pytest

from spark_kafka_sink.base import kafka_metrics
from spark_kafka_sink.base.model import TopicPartition
from spark_kafka_sink.base.node_metrics import NodeMetrics
from spark_kafka_sink.metrics import names
from spark_kafka_sink.producer.metrics import PartitionReport, ProducerMetrics
from spark_kafka_sink.spark.commit import BatchSummary, KafkaCommitMessage

MS = 1_000_000


def a_line() -> dict[str, Any]:
    """Of two tasks, with round figures."""
    metrics = ProducerMetrics(
        records=1000,
        batches=10,
        uncompressed_bytes=100_000,
        compressed_bytes=20_000,
        batch_size_max=3000,
        compression_rate_sum=2.0,
        record_size_max=150,
        requests=5,
        records_sent=1100,
        batches_sent=11,
        queue_time_ms=55,
        queue_time_max_ms=9,
        requests_in_flight_max=3,
        responses=4,
        request_latency_ms=40,
        request_latency_max_ms=16,
        retries=1,
        record_retries=100,
        throttle_time_ms=8,
        throttle_time_max_ms=8,
        connections=2,
        metadata_age_max_ms=1500,
        buffer_total_bytes=1000,
        buffer_used_max_bytes=300,
        buffer_wait_ns=50 * MS,
        metadata_wait_ns=2 * MS,
        ack_wait_ns=30 * MS,
        transaction_begin_ns=7 * MS,
        task_ns=500 * MS,
    )
    nodes = {}
    for number in (1, 2):
        nodes[number] = NodeMetrics(connections_created=1, connections=1, incoming_bytes=60)
        nodes[number].responses = 3
        for latency_ms in (4, 16):
            nodes[number].sent(1000 * number)
            nodes[number].record_produce_response(latency_ms, 2)
    report = PartitionReport(0, 999, 1000, 20_000, 100_000, 100)
    messages = [
        KafkaCommitMessage(n, 0, "q", {TopicPartition("t", n): report}, metrics, nodes=nodes)
        for n in range(2)
    ]
    for message in messages:
        message.started_at_ms = 1_700_000_000_000
    line = BatchSummary.merge(messages).line("commit", 3, client_id="c", commit_ms=11)
    read: dict[str, Any] = json.loads(json.dumps(line))
    return read


def of_a_job(line: dict[str, Any]) -> dict[str, Any]:
    """Its end waits until the line is sent."""
    return {name: value for name, value in line.items() if name not in ("batch_id", "query_id")}


PRODUCER = {
    "record-send-rate": 4400,
    "record-send-total": 2200,
    "record-retry-total": 200,
    "record-error-total": 0,
    "record-size-avg": 100,
    "record-size-max": 150,
    "record-queue-time-avg": 5,
    "record-queue-time-max": 9,
    "records-per-request-avg": 220,
    "batch-size-avg": 2000,
    "batch-size-max": 3000,
    "compression-rate-avg": 0.2,
    "request-latency-avg": 10,
    "request-latency-max": 16,
    "requests-in-flight": 3,
    "produce-throttle-time-avg": 2,
    "produce-throttle-time-max": 8,
    "metadata-age": 1.5,
    "bufferpool-wait-ratio": 0.1,
    "bufferpool-wait-time-ns-total": 100 * MS,
    "buffer-total-bytes": 1000,
    "buffer-available-bytes": 700,
    "flush-time-ns-total": 60 * MS,
    "metadata-wait-time-ns-total": 4 * MS,
    "txn-init-time-ns-total": 14 * MS,
    "txn-commit-time-ns-total": 11 * MS,
    "connection-count": 4,
    "connection-creation-total": 4,
    "connection-creation-rate": 8,
    "request-total": 8,
    "response-total": 12,
    "outgoing-byte-total": 12_000,
    "incoming-byte-rate": 480,
    "network-io-total": 20,
    "request-size-avg": 1500,
    "request-size-max": 2000,
}


def test_metrics_of_the_producer() -> None:
    values = names.values_of(a_line())
    given = {metric.name: metric.value(values) for metric in kafka_metrics.PRODUCER_METRICS}
    assert {name: given[name] for name in PRODUCER} == pytest.approx(PRODUCER)


def test_metrics_of_topics_and_brokers() -> None:
    line = a_line()
    of_topic = names.topic_or_node_values(line, line["topics"]["t"])
    given = {metric.name: metric.value(of_topic) for metric in kafka_metrics.TOPIC_METRICS}
    assert given["record-send-total"] == 2200
    assert given["byte-rate"] == 88_000
    assert given["compression-rate"] == 0.2
    of_node = names.topic_or_node_values(line, line["nodes"]["2"])
    given = {metric.name: metric.value(of_node) for metric in kafka_metrics.NODE_METRICS}
    assert given["request-total"] == 4
    assert given["request-latency-avg"] == 10
    assert given["request-latency-max"] == 16
    assert given["outgoing-byte-rate"] == 16_000


def test_nothing_is_made_up_of_nothing() -> None:
    line = BatchSummary.merge([KafkaCommitMessage(0, 0)]).line("commit", 3)
    values = names.values_of(line)
    for metric in kafka_metrics.PRODUCER_METRICS:
        assert not metric.value(values)
    assert names.send_time_ms(line) is None


def test_flinks_send_time() -> None:
    assert names.send_time_ms(a_line()) == 15


def test_no_name_is_there_twice_or_both_given_and_not() -> None:
    for given, missing in (
        (kafka_metrics.PRODUCER_METRICS, names.UNAVAILABLE_METRICS),
        (kafka_metrics.TOPIC_METRICS, names.UNAVAILABLE_TOPIC_METRICS),
        (kafka_metrics.NODE_METRICS, {}),
    ):
        found = [metric.name for metric in given]
        assert len(set(found)) == len(found)
        assert not missing.keys() & set(found)
        assert all(metric.is_total == metric.name.endswith("-total") for metric in given)
