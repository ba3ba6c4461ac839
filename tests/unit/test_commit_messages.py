"""What 10,000 tasks send to the driver: Spark keeps all of it, pickled, in the driver's memory."""

from __future__ import annotations

import pickle

import pytest

from spark_kafka_sink.base.errors import TransactionError
from spark_kafka_sink.base.model import TopicPartition
from spark_kafka_sink.producer.metrics import PartitionReport, ProducerMetrics
from spark_kafka_sink.spark.commit import KafkaCommitMessage, common_plan
from spark_kafka_sink.transactions.model import (
    Decision,
    Driver,
    DriverToken,
    Phase,
    Plan,
    TaskTransaction,
    Unit,
)

TASKS = 10_000
MOST_BYTES = 32 << 20
QUERY_ID = "7d0f3b1e-96c4-4f5b-8a53-0d2f6a4c9b77"


def transaction(task: int) -> TaskTransaction:
    name = f"events-to-kafka.{task:012x}.0"
    return TaskTransaction(name, 1_000_000 + task, 7, 2, task, 123_456, f"{task:016x}-{task:016x}")


def repair_plan(tasks: int, epoch: int = 4) -> Plan:
    """The largest there is: of a micro-batch of which brokers have aborted a part."""
    driver = Driver("4f1c9a7d2b3e8c60", "spark-driver-3", 1, "s3://lake/checkpoints/events", None)
    unit = Unit(QUERY_ID, 118, None)
    parts = tuple(transaction(task) for task in range(tasks))
    decision = Decision(driver, Phase.PARTIAL, unit, 1, 1, parts[: tasks // 2], parts[tasks // 2 :])
    return Plan("events-to-kafka", driver, DriverToken(12, epoch, 0, 2), decision, None, 900_000)


def message(task: int, plan: Plan) -> KafkaCommitMessage:
    report = PartitionReport(10**12, 10**12 + 30_000, 30_000, 10**7, 10**8)
    partitions = {TopicPartition("events", n): report for n in range(4)}
    metrics = ProducerMetrics(10**6, 10**3, 10**9, 10**8, 10**4)
    told = KafkaCommitMessage(task, 0, QUERY_ID, partitions, metrics, transaction(task))
    told.belong_to(plan)
    return told


def test_a_repair_of_10_000_tasks_is_small_on_the_driver() -> None:
    plan = repair_plan(TASKS)
    size = sum(len(pickle.dumps(message(task, plan))) for task in range(TASKS))
    assert size < MOST_BYTES
    # For comparison: what it would be if each task sent what it was told.
    assert TASKS * len(pickle.dumps(plan)) > 100 * MOST_BYTES


def test_the_plan_arrives_whole_and_once() -> None:
    plan = repair_plan(3)
    messages = [pickle.loads(pickle.dumps(message(task, plan))) for task in range(3)]
    assert common_plan(messages) == plan
    assert [m.plan is not None for m in messages] == [True, False, False]
    assert common_plan([]) is None


@pytest.mark.parametrize("tasks", [(1, 2), (0, 1)], ids=["none sent", "two plans"])
def test_tasks_that_do_not_belong_together_are_not_committed(tasks: tuple[int, int]) -> None:
    """Only with the plan whose token they have: its record is what the decision goes on from."""
    first, second = repair_plan(3), repair_plan(3, epoch=5)
    with pytest.raises(TransactionError, match="plan"):
        common_plan([message(tasks[0], first), message(tasks[1], second)])
