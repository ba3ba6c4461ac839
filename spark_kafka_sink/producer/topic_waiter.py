"""The task thread waits until topics are known; what does not exist may be created meanwhile.

Source: ``KafkaProducer.waitOnMetadata``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from spark_kafka_sink.base.clock import Clock
from spark_kafka_sink.base.errors import TopicError
from spark_kafka_sink.client.admin import AdminClient
from spark_kafka_sink.client.topics import create_missing
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.producer.accumulator import RecordAccumulator
from spark_kafka_sink.producer.cluster import ClusterAccess
from spark_kafka_sink.producer.metadata import ClusterSnapshot
from spark_kafka_sink.producer.metrics import ProducerMetrics


class TopicCreator(Protocol):
    """Creates topics. May take its time; raises TopicError for what cannot be created."""

    def __call__(self, topics: list[str]) -> None: ...


def topic_creator(config: ProducerConfig) -> TopicCreator | None:
    """Creates topics as ``topic.creation.*`` says; None where that is not wanted."""
    creation = config.topic_creation
    if creation is None:
        return None

    def create(topics: list[str]) -> None:
        with AdminClient.of(config) as admin:
            create_missing(admin, topics, creation)

    return create


def _create_nothing(topics: list[str]) -> None:
    """Where nobody is to create topics."""


class TopicWaiter:
    """Gets snapshots that know what the task writes to. Used by the task thread."""

    def __init__(
        self,
        max_block_ms: int,
        cluster: ClusterAccess,
        accumulator: RecordAccumulator,
        clock: Clock,
        metrics: ProducerMetrics,
        create_topics: TopicCreator | None,
    ) -> None:
        """``create_topics``: for topics that do not exist; None where nobody creates them."""
        self._max_block_ms = max_block_ms
        self._client, self._metadata, self._updater = cluster
        self._accumulator = accumulator
        self._monitor = accumulator.monitor
        self._clock = clock
        self._metrics = metrics
        self._creates_topics = create_topics is not None
        self._create = create_topics or _create_nothing

    def add(self, topics: Sequence[str]) -> ClusterSnapshot:
        """Have the next metadata request ask for ``topics``; returns what is known now."""
        now_ms = self._clock.now_ms()
        with self._monitor:
            for topic in topics:
                self._metadata.add_topic(topic, now_ms)
            return self._metadata.snapshot

    def wait_for(self, topics: Sequence[str]) -> ClusterSnapshot:
        """A snapshot that knows all ``topics``.

        Raises TopicError for one that cannot be used, or is not known within ``max.block.ms``; and
        the failure of the sender.
        """
        snapshot = self.add(topics)
        if all(topic in snapshot.topics for topic in topics):
            return snapshot
        started_ns = self._clock.perf_ns()
        deadline_ms = self._clock.now_ms() + self._max_block_ms
        tried: set[str] = set()
        while missing := self._await_metadata(topics, deadline_ms, tried):
            # Without the monitor: this takes its time, and the sender must not wait for it.
            begun_ms = self._clock.now_ms()
            self._create(missing)
            # It has a limit of its own; max.block.ms is for metadata.
            deadline_ms += self._clock.now_ms() - begun_ms
            tried.update(missing)
            with self._monitor:
                self._metadata.request_update_now()
        with self._monitor:
            snapshot = self._metadata.snapshot
        self._metrics.metadata_wait_ns += self._clock.perf_ns() - started_ns
        return snapshot

    def _await_metadata(
        self, topics: Sequence[str], deadline_ms: int, tried: set[str]
    ) -> list[str]:
        """Wait until all ``topics`` are known, or some that were not ``tried`` do not exist."""
        with self._monitor:
            self._client.wakeup()
            while True:
                if self._accumulator.failure is not None:
                    raise self._accumulator.failure
                snapshot, problems = self._metadata.snapshot, self._metadata.problems
                unknown = [topic for topic in topics if topic not in snapshot.topics]
                if not unknown:
                    return []
                for topic in unknown:
                    if topic in problems and problems[topic].is_fatal:
                        raise TopicError(problems[topic].message)
                missing = [t for t in unknown if t in problems and t not in tried]
                if missing and self._creates_topics:
                    return missing
                left_ms = deadline_ms - self._clock.now_ms()
                if left_ms <= 0:
                    raise self._topic_unknown(unknown[0])
                self._monitor.wait(left_ms)

    def _topic_unknown(self, topic: str) -> TopicError:
        problem = self._metadata.problems.get(topic)
        if problem is not None:
            return TopicError(problem.message)
        why = self._updater.last_failure or "the cluster did not answer"
        return TopicError(
            f"Topic {topic} not present in metadata after kafka.max.block.ms = "
            f"{self._max_block_ms}: {why}"
        )
