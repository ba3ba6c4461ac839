"""What a task does with its producer, whatever becomes of it afterwards."""

from __future__ import annotations

import pytest

from spark_kafka_sink.base.model import TopicPartition
from spark_kafka_sink.columns.positions import ColumnPositions
from spark_kafka_sink.config.sink_options import SinkOptions
from spark_kafka_sink.producer.metrics import PartitionReport, ProducerMetrics
from spark_kafka_sink.producer.pool import ProducerPool
from spark_kafka_sink.spark import task
from spark_kafka_sink.spark.commit import KafkaCommitMessage

T0 = TopicPartition("t", 0)


class FlushedProducer:
    """Has everything acknowledged, and cannot be given back."""

    is_healthy = True

    def __init__(self, config, topics):
        self.report = {T0: PartitionReport(first_offset=0, last_offset=9, records=10)}
        self.metrics = ProducerMetrics()
        self.nodes = {}
        self.closed = 0

    def flush(self):
        pass

    def take_leave(self):
        pass

    def rest(self, until_ms):
        raise RuntimeError("the sender thread is gone")

    def close(self):
        self.closed += 1
        raise RuntimeError("nor can it be closed")


def test_a_producer_that_cannot_be_kept_does_not_fail_what_is_acknowledged(monkeypatch, caplog):
    made = []

    def create(config, topics):
        made.append(FlushedProducer(config, topics))
        return made[-1]

    monkeypatch.setattr(task, "POOL", ProducerPool(create))
    options = SinkOptions.parse({"kafka.bootstrap.servers": "b:9092", "topic": "t"})
    message = KafkaCommitMessage(partition_id=0, attempt_number=0)
    task.write_rows([], options, ColumnPositions(value=0, topic_option="t"), message)
    assert message.records == 10
    assert made[0].closed == 1
    assert "the next task will have a producer of its own" in caplog.text


def test_a_producer_that_fails_is_closed_and_the_task_fails(monkeypatch):
    made = []

    class FailingProducer(FlushedProducer):
        def flush(self):
            raise ValueError("not acknowledged")

        def close(self):
            self.closed += 1

    def create(config, topics):
        made.append(FailingProducer(config, topics))
        return made[-1]

    monkeypatch.setattr(task, "POOL", ProducerPool(create))
    options = SinkOptions.parse({"kafka.bootstrap.servers": "b:9092", "topic": "t"})
    message = KafkaCommitMessage(partition_id=0, attempt_number=0)
    with pytest.raises(ValueError, match="not acknowledged"):
        task.write_rows([], options, ColumnPositions(value=0, topic_option="t"), message)
    assert made[0].closed == 1
