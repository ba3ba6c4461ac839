"""Lingering batches are finished by the sender thread: without the monitor, and one at a time."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator

import pyarrow as pa
import pytest

from spark_kafka_sink.base.clock import SystemClock
from spark_kafka_sink.base.model import ProducerIdAndEpoch
from spark_kafka_sink.columns.positions import ColumnPositions
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.producer.monitor import ThreadMonitor
from spark_kafka_sink.producer.producer import KafkaProducer
from spark_kafka_sink.record.compression import Compressor
from tests.golden.producing import ScriptedBroker, Topic

PARTITIONS = 5
GENEROUS_S = 300.0


class SlowCompressor:
    """Takes as long as the test says. ``begun``: how many batches it was given."""

    def __init__(self) -> None:
        self.begun = threading.Semaphore(0)
        self.may_end = threading.Semaphore(0)
        self.count = 0

    def compress(self, data: bytes) -> bytes:
        self.count += 1
        self.begun.release()
        assert self.may_end.acquire(timeout=GENEROUS_S)
        return bytes(data)

    def __call__(self) -> Compressor:
        return Compressor("none", 0, self.compress)


class Lingering:
    """A producer with a lingering batch for each partition, which a thread begins to finish."""

    def __init__(self) -> None:
        values = {"bootstrap.servers": "scripted:9092", "linger.ms": "0"}
        broker = ScriptedBroker({"t": Topic(PARTITIONS)}, ProducerIdAndEpoch(7, 0), {}, True)
        self.monitor = ThreadMonitor()
        clock = SystemClock()
        config = ProducerConfig.parse(values)
        self.producer = KafkaProducer(config, broker, clock, random.Random(1), self.monitor)
        self.producer.begin_task(["t"])
        for _ in range(20):  # until it knows the topic
            self.producer.sender.run_once(clock.now_ms())
        self.compressor = SlowCompressor()
        appender = self.producer._appender
        appender._sender_finisher._compressor = self.compressor()
        self.append()
        self._sender = threading.Thread(
            target=appender.finish_expired_linger, args=(clock.now_ms() + 1000,), daemon=True
        )
        self._sender.start()
        assert self.compressor.begun.acquire(timeout=GENEROUS_S)

    def append(self) -> None:
        """A row for each partition."""
        columns = [
            pa.array([b"v"] * PARTITIONS, pa.binary()),
            pa.array(range(PARTITIONS), pa.int32()),
        ]
        batch = pa.record_batch(columns, names=["value", "partition"])
        self.producer.append(batch, ColumnPositions(value=0, partition=1, topic_option="t"))

    def end(self) -> None:
        for _ in range(2 * PARTITIONS):
            self.compressor.may_end.release()
        self._sender.join(GENEROUS_S)
        assert not self._sender.is_alive()


@pytest.fixture
def lingering() -> Iterator[Lingering]:
    made = Lingering()
    yield made
    made.end()


def test_the_monitor_is_free_while_a_lingering_batch_is_compressed(lingering: Lingering) -> None:
    condition = lingering.monitor._condition
    assert condition.acquire(blocking=False)
    condition.release()


def test_an_append_waits_for_one_lingering_batch_at_most(lingering: Lingering) -> None:
    task = threading.Thread(target=lingering.append, daemon=True)
    task.start()
    turns = lingering.producer._appender._turns
    while not turns.is_task_waiting:  # it waits for the batch that is being compressed
        assert task.is_alive()
    lingering.compressor.may_end.release()
    task.join(GENEROUS_S)
    assert not task.is_alive()
    assert lingering.compressor.count == 1
    assert lingering.producer.accumulator.incomplete_count == 1
