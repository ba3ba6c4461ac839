"""What is told of a task's time: how long it has waited for rows, and loaded before the first."""

import importlib
import sys

import pyarrow as pa

from spark_kafka_sink.metrics.figures import shares
from spark_kafka_sink.producer.metrics import ProducerMetrics
from spark_kafka_sink.spark.commit import TimedInput

ROWS = pa.record_batch([pa.array([b"v"])], names=["value"])
MODULE = "spark_kafka_sink.localkafka.processes"


def task(metrics, loads):
    rows = TimedInput([ROWS[:0], ROWS])
    assert rows.has_rows()
    if loads:
        with rows.loading():
            sys.modules.pop(MODULE, None)
            importlib.import_module(MODULE)
    assert list(rows) == [ROWS]
    rows.note_in(metrics)
    return metrics


def test_loading_is_a_part_of_the_first_task_s_time():
    metrics = task(ProducerMetrics(), loads=True)
    assert 0 < metrics.load_ns < metrics.task_ns - metrics.input_wait_ns
    found = shares({"load_ms": 300, "task_ms": 400})
    assert (found["load_ms"], found["other"]) == (0.75, 0.25)


def test_a_task_that_has_nothing_to_load_has_no_such_time():
    assert task(ProducerMetrics(), loads=False).load_ns == 0
