"""Topics of the benchmarks: another client inspects and empties them.

A topic is emptied after each run, before the operating system writes its files to disk. So no run
pays for the pages of an earlier run.
"""

from __future__ import annotations

import itertools
import time
from typing import Any

import psutil
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    OffsetSpec,
)

from spark_kafka_sink.localkafka import LocalKafka
from spark_kafka_sink.localkafka.settings import MAIN_LISTENER

SERVER_PROPERTIES = {
    "log.retention.check.interval.ms": "200",
    "log.initial.task.delay.ms": "200",
}
"""Settings that make the broker look for deletable segments early and often."""

# Only retention deletes the active segment; deleting records does not.
_DELETE_ALL_MS = 1
_KEEP_ALL_MS = -1
_TOPIC_CONFIGS = {"file.delete.delay.ms": "0", "retention.ms": str(_KEEP_ALL_MS)}
_TIMEOUT_S = 30.0
_POLL_S = 0.02
# Time for the broker to apply a changed configuration.
_SETTLE_S = 0.15
_QUIET = "2"
_numbers = itertools.count(1)


class BenchTopic:
    """A topic for one contender alone, or several topics. Delete it at the end.

    name: the topic's; of several topics the part before ``-0``, ``-1`` and so on.
    """

    def __init__(self, kafka: LocalKafka, partitions: int, topics: int = 1) -> None:
        self.name = f"bench-{next(_numbers)}"
        self._names = [self.name] if topics == 1 else [f"{self.name}-{n}" for n in range(topics)]
        self.broker = psutil.Process(kafka.process_id(1))
        self._kafka = kafka
        self._admin = AdminClient(
            {
                "bootstrap.servers": kafka.bootstrap_servers_of(MAIN_LISTENER),
                "log_level": _QUIET,
            }
        )
        self._partitions = partitions
        for name in self._names:
            kafka.create_topic(name, partitions, configs=_TOPIC_CONFIGS)
        self._await_leaders()

    def log_bytes(self) -> int:
        """Return the bytes of record batches in the broker's log."""
        folders = self._kafka.data_directory(1).glob(f"{self.name}-*")
        return sum(_size_of(log) for folder in folders for log in folder.glob("*.log"))

    def end_offsets(self) -> int:
        """Return the sum of the end offsets; without transactions, it grows by one per record."""
        asked = {
            TopicPartition(name, number): OffsetSpec.latest()
            for name in self._names
            for number in range(self._partitions)
        }
        answers = self._admin.list_offsets(asked).values()
        return sum(int(future.result(_TIMEOUT_S).offset) for future in answers)

    def empty(self) -> None:
        """Delete all records, and wait until their files are deleted."""
        self._keep(_DELETE_ALL_MS)
        deadline = time.monotonic() + _TIMEOUT_S
        while self.log_bytes():
            if time.monotonic() > deadline:
                raise TimeoutError(f"the broker did not delete the records of {self.name}")
            time.sleep(_POLL_S)
        self._keep(_KEEP_ALL_MS)
        time.sleep(_SETTLE_S)

    def delete(self) -> None:
        """Remove the topics."""
        for future in self._admin.delete_topics(self._names).values():
            future.result(_TIMEOUT_S)

    def _await_leaders(self) -> None:
        """Wait for the leaders: a broker announces its leadership shortly before it leads."""
        deadline = time.monotonic() + _TIMEOUT_S
        while True:
            try:
                self.end_offsets()
                return
            except KafkaException:
                if time.monotonic() > deadline:
                    raise
                time.sleep(_POLL_S)

    def _keep(self, retention_ms: int) -> None:
        entry = ConfigEntry(
            "retention.ms", str(retention_ms), incremental_operation=AlterConfigOpType.SET
        )
        resources = [
            ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=[entry])
            for name in self._names
        ]
        for future in self._admin.incremental_alter_configs(resources).values():
            future.result(_TIMEOUT_S)


def _size_of(log: Any) -> int:
    try:
        return int(log.stat().st_size)
    except FileNotFoundError:  # the broker has just deleted it
        return 0
