"""What a task does with its producer, whatever becomes of it afterwards."""

from __future__ import annotations

from types import SimpleNamespace

import pyarrow as pa
import pyspark
import pytest

from spark_kafka_sink.base.errors import SupersededError
from spark_kafka_sink.base.model import TopicPartition
from spark_kafka_sink.columns.positions import ColumnPositions
from spark_kafka_sink.config.sink_options import SinkOptions
from spark_kafka_sink.formats.plan import PartPlan, RowsPlan
from spark_kafka_sink.producer.metrics import PartitionReport, ProducerMetrics
from spark_kafka_sink.producer.pool import ProducerPool
from spark_kafka_sink.spark import task
from spark_kafka_sink.spark.commit import KafkaCommitMessage
from spark_kafka_sink.spark.writer import write_partition
from spark_kafka_sink.transactions import session
from spark_kafka_sink.transactions.model import (
    Decision,
    Driver,
    DriverToken,
    Plan,
    WorkerTransactionalIds,
)

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

    def push_final_telemetry(self):
        pass

    def mark_idle(self, until_ms):
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


OWNER = Driver("d", "h", 0, "/ck", None)
EXACTLY_ONCE = {
    "kafka.bootstrap.servers": "127.0.0.1:1",
    "topic": "t",
    "delivery.guarantee": "exactly-once",
    "transactional.id.prefix": "p",
}


def planned(epoch: int, **more: bool) -> Plan:
    return Plan("p", OWNER, DriverToken(7, epoch, 0, 2), Decision(OWNER), None, 60_000, **more)


@pytest.mark.parametrize("error", [ValueError("the user's own"), SupersededError("too late")])
def test_the_transactional_id_of_a_task_that_fails_is_not_taken_again(monkeypatch, error):
    """A request of it may reach the coordinator late, and would fence whoever has the id then.
    Nobody sweeps after who is superseded: it has more time to abort its transaction.
    """
    begun, aborted = [], []

    class TransactionalProducer(FlushedProducer):
        def begin_transaction(self, transactional_id, timeout_ms, token):
            begun.append(transactional_id)

        def flush(self):
            raise error

        def close(self):
            pass

    monkeypatch.setattr(task, "POOL", ProducerPool(TransactionalProducer))
    monkeypatch.setattr(task, "TRANSACTIONAL_IDS", WorkerTransactionalIds("0123456789ab"))
    monkeypatch.setattr(
        session, "abort_task", lambda options, name, is_late: aborted.append((name, is_late))
    )
    options, positions = SinkOptions.parse(EXACTLY_ONCE), ColumnPositions(0, topic_option="t")
    for epoch in range(3):
        message = KafkaCommitMessage(partition_id=0, attempt_number=0)
        with pytest.raises(type(error)):
            task.write_rows([], options, positions, message, planned(epoch))
    names = [f"p.0123456789ab.{n}" for n in range(3)]
    assert begun == names
    assert aborted == [(name, isinstance(error, SupersededError)) for name in names]


def test_the_rows_of_a_write_that_is_done_are_only_read(monkeypatch):
    context = SimpleNamespace(
        partitionId=lambda: 0, attemptNumber=lambda: 0, getLocalProperty=lambda name: None
    )
    monkeypatch.setattr(pyspark, "TaskContext", SimpleNamespace(get=lambda: context))
    monkeypatch.setattr(task, "POOL", None)
    rows = iter([pa.record_batch([pa.array([b"row"])], names=["value"])])
    plan = planned(0, is_repeated=True)
    message = write_partition(rows, SinkOptions.parse(EXACTLY_ONCE), ColumnPositions(0), plan)
    assert next(rows, None) is None
    assert (message.records, message.transaction, message.plan) == (0, None, plan)


@pytest.mark.parametrize(
    ("told", "planned", "expected"),
    [(None, True, True), (None, False, False), ("true", False, True), ("false", True, False)],
)
def test_texts_go_by_ansi_as_the_session_has_it(monkeypatch, told, planned, expected):
    properties = {"spark.sql.ansi.enabled": told, "spark.sql.session.timeZone": "Asia/Tokyo"}
    context = SimpleNamespace(
        partitionId=lambda: 0, attemptNumber=lambda: 0, getLocalProperty=properties.get
    )
    monkeypatch.setattr(pyspark, "TaskContext", SimpleNamespace(get=lambda: context))
    given = []
    monkeypatch.setattr(task, "prepare_process", lambda: None)
    monkeypatch.setattr(task, "write_rows", lambda *arguments: given.append(arguments[-1]))
    rows = iter([pa.record_batch({"c": [1]})])
    made = RowsPlan(PartPlan(0, is_text=True), is_ansi=planned)
    options = SinkOptions.parse({"kafka.bootstrap.servers": "b:1", "topic": "t"})
    write_partition(rows, options, ColumnPositions(0), None, encoding_plan=made)
    assert given == [made._replace(is_ansi=expected, session_zone="Asia/Tokyo")]
