"""The task thread waits until topics are known; what does not exist may be created meanwhile.

Source: ``KafkaProducer.waitOnMetadata``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

from spark_kafka_sink.base.clock import Clock
from spark_kafka_sink.base.errors import TopicError
from spark_kafka_sink.client.admin import AdminClient, create_missing
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.producer.accumulator import RecordAccumulator
from spark_kafka_sink.producer.cluster import ClusterAccess
from spark_kafka_sink.producer.metadata import ClusterSnapshot
from spark_kafka_sink.producer.metrics import ProducerMetrics

_NO_PARTITIONS: Mapping[str, int] = MappingProxyType({})


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


def _lacking(highest: Mapping[str, int], snapshot: ClusterSnapshot) -> set[str]:
    """Return the known topics without the partition that is wanted of them."""
    return {
        topic
        for topic, partition in highest.items()
        if topic in snapshot.topics and partition >= snapshot.partitions_count(topic)
    }


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
        # When partitions of these topics were waited for, and did not come.
        self._in_vain_ms: dict[str, int] = {}
        self._creates_topics = create_topics is not None
        self._create = create_topics or _create_nothing

    def add(self, topics: Sequence[str]) -> ClusterSnapshot:
        """Have the next metadata request ask for ``topics``; returns what is known now."""
        with self._monitor:
            self._note_use(topics)
            return self._metadata.snapshot

    def _note_use(self, topics: Sequence[str]) -> None:
        """What is waited for is of interest. The monitor must be held."""
        now_ms = self._clock.now_ms()
        for topic in topics:
            self._metadata.add_topic(topic, now_ms)

    def wait_for(
        self, topics: Sequence[str], highest: Mapping[str, int] = _NO_PARTITIONS
    ) -> ClusterSnapshot:
        """A snapshot that knows all ``topics``.

        highest: a partition of some of them, which may have been added a moment ago. It is waited
        for, for up to ``max.block.ms``; if it is not there then, the caller finds that out

        Raises TopicError for a topic that cannot be used, or is not known within ``max.block.ms``;
        and the failure of the sender.
        """
        snapshot = self.add(topics)
        if all(topic in snapshot.topics for topic in topics) and not _lacking(highest, snapshot):
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
            snapshot = self._await_partitions(topics, highest)
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
                self._note_use(topics)
                for topic in unknown:
                    if topic in problems and problems[topic].is_fatal:
                        raise TopicError(problems[topic].message)
                missing = [t for t in unknown if t in problems and t not in tried]
                if missing and self._creates_topics:
                    return missing
                left_ms = self._left_ms(deadline_ms)
                if left_ms <= 0:
                    raise self._topic_unknown(unknown[0])
                self._monitor.wait(left_ms)

    def _await_partitions(
        self, topics: Sequence[str], highest: Mapping[str, int]
    ) -> ClusterSnapshot:
        """Wait for partitions that brokers do not know yet. The monitor must be held.

        A topic's partitions that were waited for in vain are asked for once more, and not waited
        for again within ``metadata.max.age.ms``. The Java producer waits for each record.
        """
        began_ms = self._clock.now_ms()
        deadline_ms = began_ms + self._max_block_ms
        ask = self._metadata.request_update_now
        while True:
            if self._accumulator.failure is not None:
                raise self._accumulator.failure
            snapshot, now_ms = self._metadata.snapshot, self._clock.now_ms()
            lacking = _lacking(highest, snapshot)
            unknown = [topic for topic in topics if topic not in snapshot.topics]
            if not lacking and not unknown:
                return snapshot
            is_asked = self._metadata.age_ms(now_ms) < now_ms - began_ms
            if is_asked and not unknown and lacking <= self._in_vain(began_ms):
                return snapshot
            left_ms = self._left_ms(deadline_ms)
            if left_ms <= 0:
                if unknown:
                    raise self._topic_unknown(unknown[0])
                if not is_asked:  # and so nobody says that it does not exist
                    topic = min(lacking)
                    raise self._not_present(f"Partition {highest[topic]} of topic {topic}")
                self._in_vain_ms.update(dict.fromkeys(lacking, now_ms))
                return snapshot
            self._note_use(topics)
            ask()
            ask = self._metadata.request_update
            self._client.wakeup()
            self._monitor.wait(left_ms)

    def _left_ms(self, deadline_ms: int) -> int:
        """How long to wait yet: a pause that brokers have asked for does not count."""
        pause_ends_ms = self._client.pauses.latest_end_ms
        return max(deadline_ms, pause_ends_ms + self._max_block_ms) - self._clock.now_ms()

    def _in_vain(self, now_ms: int) -> set[str]:
        """Return the topics whose partitions were waited for in vain a short time ago."""
        oldest_ms = now_ms - self._metadata.max_age_ms
        return {topic for topic, ms in self._in_vain_ms.items() if ms > oldest_ms}

    def _topic_unknown(self, topic: str) -> TopicError:
        problem = self._metadata.problems.get(topic)
        if problem is not None:
            return TopicError(problem.message)
        return self._not_present(f"Topic {topic}")

    def _not_present(self, what: str) -> TopicError:
        why = self._updater.last_failure or "the cluster did not answer"
        return TopicError(
            f"{what} not present in metadata after kafka.max.block.ms = {self._max_block_ms}: {why}"
        )
