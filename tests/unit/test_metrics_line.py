"""What a line holds of many tasks, what it costs them, and that the document and schema tell it."""

import json
import pickle

import pytest
from jsonschema import ValidationError

from spark_kafka_sink.__main__ import main
from spark_kafka_sink.base import kafka_metrics
from spark_kafka_sink.base.kafka_metrics import NodeMetrics
from spark_kafka_sink.base.model import TopicPartition
from spark_kafka_sink.metrics import names
from spark_kafka_sink.metrics.line import COUNTERS, NODE, log_line
from spark_kafka_sink.metrics.reading import line_schema
from spark_kafka_sink.producer.metrics import PartitionReport, ProducerMetrics
from spark_kafka_sink.spark.commit import BatchSummary, KafkaCommitMessage
from tests.lines import VALIDATOR

NS = 1_000_000


def node(*latencies_ms, **counts):
    metrics = NodeMetrics(**counts)
    for latency_ms in latencies_ms:
        metrics.sent(100)
        metrics.record_produce_response(latency_ms, 0)
    return metrics


def task(number, records, task_ms, **more):
    """One that has written to a partition of its own."""
    metrics = ProducerMetrics(records=records, task_ns=int(task_ms * NS), compressed_bytes=records)
    where = TopicPartition("t", number)
    report = PartitionReport(0, records - 1, records, records, 2 * records, number)
    message = KafkaCommitMessage(number, 0, "q", {where: report}, metrics, **more)
    message.started_at_ms = 1_700_000_000_000 + 100 * number
    return message


def line_of(*messages, **more):
    line = BatchSummary.merge(messages).line("commit", 7, **more)
    return json.loads(json.dumps(line))


def test_when_tasks_began_and_their_skew():
    line = line_of(task(3, 10, 250), task(1, 10, 50), KafkaCommitMessage(2, 0))
    assert (line["started_at_ms"], line["elapsed_ms"]) == (1_700_000_000_100, 200 + 250)
    empty = KafkaCommitMessage(9, 2)
    line = line_of(*(task(n, 10 * n, 100 - n) for n in range(1, 8)), empty)
    summary = line["tasks_summary"]
    assert summary["with_rows"] == 7
    assert summary["least_records"] == {"task": 9, "records": 0}
    assert summary["most_records"] == {"task": 7, "records": 70}
    assert summary["most_task_ms"] == {"task": 1, "task_ms": 99.0}
    assert [slow["task"] for slow in line["slowest_tasks"]] == [1, 2, 3, 4, 5]
    assert line["slowest_tasks"][0]["host"] == task(1, 1, 1).host
    assert line["failed_attempts"] == 2


def test_topics_and_partitions():
    line = line_of(task(1, 10, 1), task(2, 30, 1))
    assert line["topics"] == {
        "t": {
            "partitions": 2,
            "records": 40,
            "compressed_bytes": 40,
            "uncompressed_bytes": 80,
            "record_retries": 3,
        }
    }
    summary = line["partitions_summary"]
    assert summary["most_records"] == {"topic": "t", "partition": 2, "records": 30}


def test_brokers_are_added_up_and_quantiles_are_of_all_requests():
    first = task(0, 1, 1, nodes={1: node(*[10] * 90), 2: node(*[1000] * 8)})
    second = task(1, 1, 1, nodes={2: node(2000, 2000, connections=3)})
    copy = pickle.loads(pickle.dumps(first))
    line = line_of(first, second)
    assert first == copy, "merging leaves messages alone"
    assert list(line["nodes"]) == ["1", "2"]
    assert line["nodes"]["2"]["produce_responses"] == 10
    assert line["nodes"]["2"]["request_latency_ms"] == 12_000
    assert line["nodes"]["2"]["request_latency_max_ms"] == 2000
    assert line["nodes"]["2"]["connections"] == 3
    latency = line["request_latency"]
    assert latency["p50_ms"] == 10
    assert latency["p95_ms"] == pytest.approx(1000, rel=0.045)
    assert latency["p99_ms"] == pytest.approx(2000, rel=0.045)
    assert sum(latency["histogram"]["counts"].values()) == 100
    assert latency["histogram"]["scale"] == 3


def test_the_log_is_told_less():
    messages = [task(n, 10, 50, nodes={n: node(10)}) for n in range(40)]
    logged = log_line(line_of(*messages, settings={"acks": "all"}))
    assert not {"topics", "nodes", "slowest_tasks", "partitions", "settings"} & logged.keys()
    assert logged["partitions_summary"]["partitions"] == 40
    assert logged["request_latency"] == {"p50_ms": 10.0, "p95_ms": 10.0, "p99_ms": 10.0}
    assert logged["tasks_summary"]["most_records"]["records"] == 10


def test_a_message_grows_with_partitions_and_brokers_alone():
    """10,000 tasks that write to 1,000 partitions each send less than spark.driver.maxResultSize."""
    latencies = dict.fromkeys(range(-1, 140), 10**6)
    nodes = {number: NodeMetrics(*[10**9] * 13, latencies=latencies) for number in range(10)}
    partitions = {
        TopicPartition("events", n): PartitionReport(
            10**12 + n, 10**12 + 31 * n + 30_000, 30_001 + n, 10**7 + n, 10**8 + n
        )
        for n in range(1000)
    }
    metrics = ProducerMetrics(*[10**12 + n for n in range(len(COUNTERS))])
    message = KafkaCommitMessage(9_999, 0, "7a1b" * 9, partitions, metrics, nodes=nodes)
    whole = len(pickle.dumps(message))
    message.partitions = {}
    without_partitions = len(pickle.dumps(message))
    message.nodes = {}
    alone = len(pickle.dumps(message))
    assert alone < 900
    assert (whole - without_partitions) / 1000 < 50
    assert (without_partitions - alone) / 10 < 1200
    assert 10_000 * whole < 1 << 30


def test_counters_are_described_as_they_are_reported():
    assert [field.name for field in COUNTERS] == list(ProducerMetrics().report())
    assert {f.name for f in NODE} - {"request_latency"} == set(NodeMetrics.__dataclass_fields__) - {
        "latencies"
    }


def test_records_that_are_sent_again_are_counted_by_error():
    first, second, third = node(10), node(20), node(30)
    first.record_retry("REQUEST_TIMED_OUT", 3)
    second.record_retry("NOT_LEADER_OR_FOLLOWER", 2)
    second.record_retry("REQUEST_TIMED_OUT", 4)
    counted = second.copy()
    second.reset()
    assert not second.record_retries_by_error
    other = task(1, 1, 1, nodes={1: pickle.loads(pickle.dumps(counted))})
    nodes = line_of(task(0, 1, 1, nodes={1: first, 2: third}), other)["nodes"]
    assert nodes["1"]["record_retries"] == 9
    errors = {"NOT_LEADER_OR_FOLLOWER": 2, "REQUEST_TIMED_OUT": 7}
    assert nodes["1"]["record_retries_by_error"] == errors
    assert "record_retries_by_error" not in nodes["2"]


def test_the_command_prints_the_schema(capsys):
    assert main(["metrics", "schema"]) == 0
    assert json.loads(capsys.readouterr().out) == line_schema()
    VALIDATOR.check_schema(line_schema())
    assert main(["metrics"]) == 2


@pytest.mark.parametrize(
    "change",
    [
        *({"version": 2}, {"event": "begin"}, {"tasks": "3"}, {"metrics": {}}, {"made_up": 1}),
        *({"nodes": {"x": {}}}, {"slowest_tasks": [{}]}),
    ],
    ids=str,
)
def test_what_the_schema_does_not_allow(change):
    line = line_of(task(1, 10, 1, nodes={1: node(10)}))
    VALIDATOR.validate(line)
    with pytest.raises(ValidationError):
        VALIDATOR.validate({**line, **change})


def a_line():
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
        buffer_wait_ns=50 * NS,
        metadata_wait_ns=2 * NS,
        ack_wait_ns=30 * NS,
        transaction_begin_ns=7 * NS,
        task_ns=500 * NS,
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
    return json.loads(json.dumps(line))


def of_a_job(line):
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
    "bufferpool-wait-time-ns-total": 100 * NS,
    "buffer-total-bytes": 1000,
    "buffer-available-bytes": 700,
    "flush-time-ns-total": 60 * NS,
    "metadata-wait-time-ns-total": 4 * NS,
    "txn-init-time-ns-total": 14 * NS,
    "txn-commit-time-ns-total": 11 * NS,
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


def test_metrics_of_topics_and_brokers():
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


def test_nothing_is_made_up_of_nothing():
    assert names.send_time_ms(a_line()) == 15
    line = line_of(KafkaCommitMessage(0, 0))
    assert not {"request_latency", "slowest_tasks", "started_at_ms", "elapsed_ms"} & line.keys()
    assert line["metrics"]["task_ms"] == 0
    values = names.values_of(line)
    for metric in kafka_metrics.PRODUCER_METRICS:
        assert not metric.value(values)
    assert names.send_time_ms(line) is None


def test_no_name_is_there_twice_or_both_given_and_not():
    for given, missing in (
        (kafka_metrics.PRODUCER_METRICS, names.UNAVAILABLE_METRICS),
        (kafka_metrics.TOPIC_METRICS, names.UNAVAILABLE_TOPIC_METRICS),
        (kafka_metrics.NODE_METRICS, {}),
    ):
        found = [metric.name for metric in given]
        assert len(set(found)) == len(found)
        assert not missing.keys() & set(found)
        assert all(metric.is_total == metric.name.endswith("-total") for metric in given)
