"""The sink with a record of each call of some of its functions, for ``benchmarks.timeline``.

Workers import this module, so it imports little.
"""

from __future__ import annotations

import functools
import json
import threading
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from spark_kafka_sink.spark.source import KafkaSinkDataSource
from spark_kafka_sink.spark.writer import KafkaBatchWriter

NAME = "timed-pykafka-sink"
OUTPUT_OPTION = "timeline.folder"
TASK = "task"
SENDER = "sender"
_SPARK = "wait for Spark"
_PRODUCER = "spark_kafka_sink.producer"
_CALLS = {
    (f"{_PRODUCER}.appender", "Appender", "append"): "append",
    (f"{_PRODUCER}.partitioner", "SlotAssigner", "assign"): "choose partitions",
    (f"{_PRODUCER}.open_batches", "OpenBatches", "append"): "kernel",
    (f"{_PRODUCER}.open_batches", "BatchFinisher", "finish"): "finish a batch",
    (f"{_PRODUCER}.open_batches", "BatchFinisher", "_compress"): "compress",
    (f"{_PRODUCER}.appender", "Appender", "_await_pages"): "wait for memory",
    (f"{_PRODUCER}.producer", "KafkaProducer", "flush"): "wait for acknowledgements",
    (f"{_PRODUCER}.sender", "Sender", "run_once"): "sender",
    (f"{_PRODUCER}.sender", "Sender", "_send"): "make a request",
    ("spark_kafka_sink.network.transport", "SelectorNetwork", "send"): "write to the socket",
    ("spark_kafka_sink.network.client", "NetworkClient", "_handle_response"): "take an answer",
    ("spark_kafka_sink.network.transport", "SelectorNetwork", "_select"): "wait for the network",
}
"""Module, class and method, and the name in the timeline."""
WAITS = (_SPARK, "wait for memory", "wait for acknowledgements", "wait for the network")


class Notes:
    """The calls in one task's process."""

    def __init__(self) -> None:
        self._started_ns = time.perf_counter_ns()
        self._task_thread = threading.get_ident()
        self._calls: list[tuple[int, str, int, int]] = []

    def timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function with recording of its calls."""
        note = self._calls.append

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            started_ns = time.perf_counter_ns()
            try:
                return function(*args, **kwargs)
            finally:
                note((threading.get_ident(), name, started_ns, time.perf_counter_ns()))

        return call

    def of_rows(self, arrow_batches: Iterator[Any]) -> Iterator[Any]:
        """Yield the rows, and record the waits for them."""
        following = self.timed(_SPARK, lambda: next(arrow_batches, None))
        while (arrow_batch := following()) is not None:
            yield arrow_batch

    def save(self, path: Path, task: int) -> None:
        """Save the calls in Chrome's trace event format: complete events, microseconds."""
        events = []
        for thread, name, started_ns, ended_ns in self._calls:
            events.append(
                {
                    "ph": "X",
                    "pid": task,
                    "tid": thread,
                    "cat": TASK if thread == self._task_thread else SENDER,
                    "name": name,
                    "ts": (started_ns - self._started_ns) / 1000,
                    "dur": (ended_ns - started_ns) / 1000,
                }
            )
        path.write_text(json.dumps({"traceEvents": events}), encoding="utf-8")


class TimedWriter(DataSourceArrowWriter):
    """The writer of a job. In the task, it replaces each function by one that records its calls.

    It restores the functions afterwards, because the process may run other tasks.
    """

    def __init__(self, writer: KafkaBatchWriter, folder: str) -> None:
        self._writer = writer
        self._folder = folder

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Write the rows, in a task."""
        notes = Notes()
        replaced = []
        for (module, kind, method), name in _CALLS.items():
            owner = getattr(import_module(module), kind)
            replaced.append((owner, method, owner.__dict__[method]))
            setattr(owner, method, notes.timed(name, owner.__dict__[method]))
        try:
            message = self._writer.write(notes.of_rows(iterator))
        finally:
            for owner, method, function in replaced:
                setattr(owner, method, function)
        context = TaskContext.get()
        task = 0 if context is None else context.partitionId()
        notes.save(Path(self._folder) / f"task-{task}.json", task)
        return message

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commit on the driver."""
        self._writer.commit(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Abort on the driver."""
        self._writer.abort(messages)


class TimedSink(KafkaSinkDataSource):
    """``format("timed-pykafka-sink")``, for jobs."""

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format()``."""
        return NAME

    def writer(self, schema: Any, overwrite: bool) -> Any:
        """Return the sink's own writer inside a recording one."""
        folder = self.options.pop(OUTPUT_OPTION)
        return TimedWriter(super().writer(schema, overwrite), folder)
