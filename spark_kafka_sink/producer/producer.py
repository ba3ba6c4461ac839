"""The producer that one Spark task holds: append Arrow batches, flush, read the report, close.

Two threads: the task's own appends, a sender thread sends. Everything that blocks has a deadline,
and a failure of either thread reaches the task as an exception.

Source: ``KafkaProducer``.
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Sequence
from typing import Any

from spark_kafka_sink.base.backoff import ExponentialBackoff
from spark_kafka_sink.base.clock import Clock, SystemClock
from spark_kafka_sink.base.errors import (
    ConfigError,
    KafkaSinkError,
    ProducerClosedError,
    TopicError,
)
from spark_kafka_sink.base.model import PreparedTransaction
from spark_kafka_sink.client.admin import AdminClient, bootstrap_addresses
from spark_kafka_sink.client.topics import create_missing
from spark_kafka_sink.columns.positions import ColumnPositions
from spark_kafka_sink.columns.record_columns import arrow_records
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.network.client import ClientSettings, NetworkClient
from spark_kafka_sink.network.transport import Network, SelectorNetwork
from spark_kafka_sink.producer.accumulator import RecordAccumulator
from spark_kafka_sink.producer.appender import Appender
from spark_kafka_sink.producer.batch_finisher import BatchFinisher
from spark_kafka_sink.producer.batch_splitter import BatchSplitter
from spark_kafka_sink.producer.buffer_pool import BufferPool
from spark_kafka_sink.producer.identity import Identities
from spark_kafka_sink.producer.metadata import ClusterSnapshot, Metadata, MetadataSettings
from spark_kafka_sink.producer.metadata_updater import MetadataUpdater
from spark_kafka_sink.producer.metrics import DeliveryReport, ProducerMetrics
from spark_kafka_sink.producer.monitor import Monitor, ThreadMonitor
from spark_kafka_sink.producer.open_batches import OpenBatches
from spark_kafka_sink.producer.sender import Sender
from spark_kafka_sink.producer.transaction_manager import TransactionSettings
from spark_kafka_sink.record.compression import create_compressor

_PAGE_BYTES = 32768
_SMALLEST_PAGE_BYTES = 4096
_FEWEST_PAGES = 16
_CLOSE_TIMEOUT_S = 10.0


class KafkaProducer:
    """A producer without threads of its own: :class:`ThreadedProducer` adds the sender thread.

    Errors: every method raises the producer's failure once it has one. After that it can only be
    closed.
    """

    def __init__(
        self,
        config: ProducerConfig,
        network: Network,
        clock: Clock,
        rng: random.Random,
        monitor: Monitor,
    ) -> None:
        self._config = config
        self._clock = clock
        self._monitor = monitor
        self.metrics = ProducerMetrics()
        self.report: DeliveryReport = {}
        retry_backoff = ExponentialBackoff(
            config.retry_backoff_ms, config.retry_backoff_max_ms, rng
        )
        self.client = NetworkClient(ClientSettings.of(config), network, clock, rng)
        self._metadata = Metadata(
            bootstrap_addresses(config), _metadata_settings(config), retry_backoff
        )
        self._updater = MetadataUpdater(
            self._metadata, self.client, monitor, config.topic_creation is None
        )
        self.pool = BufferPool(config.buffer_memory, _page_size(config.buffer_memory))
        self.accumulator = RecordAccumulator(monitor, self.pool, retry_backoff)
        self._appender = self._create_appender(rng)
        self._identities = Identities(
            config, self.client, self._metadata, self.accumulator, retry_backoff, rng
        )
        self._is_transactional = False
        self.sender = Sender(
            config,
            self.client,
            self._metadata,
            self._updater,
            self.accumulator,
            self._identities.first(),
            self._appender.finish_lingering,
            self._appender.note_too_large,
            BatchSplitter(create_compressor(config.compression_type, config.compression_level)),
            clock,
            self.metrics,
            self.report,
        )

    def _create_appender(self, rng: random.Random) -> Appender:
        config, clock, metrics = self._config, self._clock, self.metrics
        open_batches = OpenBatches(self.pool)
        finisher, lingering_finisher = (
            BatchFinisher(
                open_batches,
                self.pool,
                self._monitor,
                create_compressor(config.compression_type, config.compression_level),
                clock,
                metrics,
            )
            for _ in ("task thread", "sender thread")
        )
        return Appender(
            config,
            self.accumulator,
            open_batches,
            finisher,
            lingering_finisher,
            self.client.wakeup,
            clock,
            rng,
            metrics,
        )

    def append(self, arrow_batch: Any, positions: ColumnPositions) -> None:
        """Append the rows of a pyarrow.RecordBatch. Returns when they are buffered, not sent.

        Raises RecordError, RecordTooLargeError, TopicError for rows that no broker would take;
        none of this Arrow batch is sent then. Raises BufferExhaustedError, DeliveryError and
        others when brokers do not.
        """
        self._raise_failure()
        if arrow_batch.num_rows == 0:
            return
        timestamp_ms = self._clock.timestamp_ms()
        records = arrow_records(arrow_batch, positions, timestamp_ms)
        cluster = self._await_topics(records.topics)
        self._appender.append(records, cluster, timestamp_ms)

    def flush(self) -> None:
        """Send everything and wait until it is acknowledged.

        Raises what went wrong. Ends by itself: each batch is acknowledged or fails within
        ``delivery.timeout.ms``.
        """
        self._raise_failure()
        self._appender.finish_open()
        started_ns = self._clock.perf_ns()
        # The sender enforces delivery.timeout.ms; this is for a sender that no longer runs.
        patience_ms = self._config.delivery_timeout_ms + self._config.request_timeout_ms
        deadline_ms = self._clock.now_ms() + patience_ms
        with self._monitor:
            while self.accumulator.failure is None and self.accumulator.incomplete_count:
                left_ms = deadline_ms - self._clock.now_ms()
                if left_ms <= 0:
                    raise ProducerClosedError(
                        f"{self.accumulator.incomplete_count} batch(es) neither acknowledged nor "
                        f"failed within {patience_ms} ms: the sender does not run"
                    )
                self._monitor.wait(left_ms)
        self.metrics.ack_wait_ns += self._clock.perf_ns() - started_ns
        self._raise_failure()

    @property
    def is_clean(self) -> bool:
        """Whether nothing has failed, nothing is under way, and no topic has become unusable."""
        return (
            self.accumulator.failure is None
            and self.accumulator.incomplete_count == 0
            and not any(problem.is_fatal for problem in self._metadata.problems.values())
        )

    def begin_task(self, topics: Sequence[str]) -> None:
        """Start counting anew for another task. Call it only when the producer is clean.

        ``topics``: known beforehand, so that the next metadata request asks for them.
        """
        self.metrics.reset()
        self.report.clear()
        if self._is_transactional:
            # The next task may begin a transaction too: no producer id before there is a batch.
            self._is_transactional = False
            self.sender.exchange_identity(self._identities.idempotent_when_needed())
        with self._monitor:
            for topic in topics:
                self._metadata.add_topic(topic, self._clock.now_ms())

    def begin_transaction(self, transactional_id: str, timeout_ms: int) -> None:
        """Write everything of this task in one transaction, which this producer does not end.

        Call it after ``begin_task`` and before the first ``append``. Returns at once; the sender
        finds the coordinator and fences whoever used ``transactional_id`` before. What goes wrong
        there is raised by ``append`` and ``flush``. ``timeout_ms``: the coordinator aborts the
        transaction when nobody has ended it by then.

        Raises ConfigError where the configuration does not allow transactions.
        """
        if not self._config.enable_idempotence:
            raise ConfigError("transactions need kafka.enable.idempotence = true")
        if not transactional_id:
            raise ConfigError("a transactional id must not be empty")
        self._raise_failure()
        if self.report or self.accumulator.incomplete_count:
            raise KafkaSinkError("a transaction begins before the first append")
        self._is_transactional = True
        settings = TransactionSettings(transactional_id, timeout_ms)
        self.sender.exchange_identity(self._identities.transactional(settings))
        self.client.wakeup()

    @property
    def transaction(self) -> PreparedTransaction | None:
        """After ``flush``: what ends the task's transaction.

        None when nothing was written in one: brokers know of no transaction then, and would answer
        its end with INVALID_TXN_STATE.
        """
        self._raise_failure()
        if not self._is_transactional or not self.report:
            return None
        if self.accumulator.incomplete_count:
            raise KafkaSinkError("a transaction is prepared only after flush")
        return self.sender.transaction

    def _raise_failure(self) -> None:
        if self.accumulator.failure is not None:
            raise self.accumulator.failure

    def _await_topics(self, topics: list[str]) -> ClusterSnapshot:
        """A snapshot that knows all ``topics``. Source: ``KafkaProducer.waitOnMetadata``."""
        now_ms = self._clock.now_ms()
        with self._monitor:
            for topic in topics:
                self._metadata.add_topic(topic, now_ms)
            snapshot = self._metadata.snapshot
        if all(topic in snapshot.topics for topic in topics):
            return snapshot
        started_ns = self._clock.perf_ns()
        deadline_ms = now_ms + self._config.max_block_ms
        tried: set[str] = set()
        while missing := self._await_metadata(topics, tried, deadline_ms):
            # Without the monitor: this takes its time, and the sender must not wait for it.
            self._create_topics(missing)
            tried.update(missing)
            with self._monitor:
                self._metadata.request_update_now()
        with self._monitor:
            snapshot = self._metadata.snapshot
        self.metrics.metadata_wait_ns += self._clock.perf_ns() - started_ns
        return snapshot

    def _await_metadata(self, topics: list[str], tried: set[str], deadline_ms: int) -> list[str]:
        """Wait until all ``topics`` are known, or some are missing that could be created."""
        with self._monitor:
            self.client.wakeup()
            while True:
                self._raise_failure()
                unknown = [t for t in topics if t not in self._metadata.snapshot.topics]
                if not unknown:
                    return []
                problems = self._metadata.problems
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
            f"{self._config.max_block_ms}: {why}"
        )

    @property
    def _creates_topics(self) -> bool:
        return False

    def _create_topics(self, topics: list[str]) -> None:
        """Create topics that do not exist, where that is wanted and possible."""


class ThreadedProducer(KafkaProducer):
    """A producer with its sender thread. Close it, always."""

    def __init__(self, config: ProducerConfig, topics: Sequence[str] = ()) -> None:
        """``topics``: known beforehand, so that the first metadata request asks for them."""
        network = SelectorNetwork(config.send_buffer_bytes, config.receive_buffer_bytes)
        super().__init__(config, network, SystemClock(), random.Random(), ThreadMonitor())
        self.begin_task(topics)
        self._process_id = os.getpid()
        self._is_closing = False
        self._retire_at_ms: int | None = None
        self._thread = threading.Thread(target=self._run, name="pykafka-sink-sender", daemon=True)
        self._thread.start()

    @property
    def _creates_topics(self) -> bool:
        return self._config.topic_creation is not None

    def _create_topics(self, topics: list[str]) -> None:
        if self._config.topic_creation is not None:
            with AdminClient.of(self._config) as admin:
                create_missing(admin, topics, self._config.topic_creation)

    @property
    def is_healthy(self) -> bool:
        """Whether another task may use it."""
        is_running = self._thread.is_alive() and not self._is_closing
        return is_running and self.is_clean and self._process_id == os.getpid()

    def rest(self, until_ms: int | None) -> None:
        """No task uses it from now on. At ``until_ms`` it closes itself, ``None`` is never."""
        self._retire_at_ms = until_ms
        self.client.wakeup()

    def resume(self) -> bool:
        """Take it up for another task; False when it cannot be used any more."""
        with self._monitor:
            if not self.is_healthy:
                return False
            self._retire_at_ms = None
            return True

    def _is_over(self, now_ms: int) -> bool:
        with self._monitor:  # a task may be taking it up
            if self._retire_at_ms is not None and now_ms >= self._retire_at_ms:
                self._is_closing = True
        return self._is_closing

    def _run(self) -> None:
        try:
            while not self._is_over(now_ms := self._clock.now_ms()):
                self.sender.run_once(now_ms, self._retire_at_ms)
        except Exception as error:  # whatever it is, the task must not wait for it in vain
            failure = KafkaSinkError(f"the sender thread failed: {error!r}")
            failure.__cause__ = error
            self.sender.fail(failure)
        finally:
            self.client.close()

    def close(self) -> None:
        """Close connections and end the sender thread. What was not flushed is dropped."""
        self._is_closing = True
        self.client.wakeup()
        self._thread.join(_CLOSE_TIMEOUT_S)
        if not self.accumulator.failure:
            self.accumulator.fail(ProducerClosedError("the producer is closed"))


def _metadata_settings(config: ProducerConfig) -> MetadataSettings:
    return MetadataSettings(
        config.metadata_max_age_ms,
        config.metadata_max_idle_ms,
        config.metadata_recovery_strategy == "rebootstrap",
        config.metadata_recovery_rebootstrap_trigger_ms,
    )


def _page_size(buffer_memory: int) -> int:
    """32 KiB, less where memory is so small that there would be too few pages."""
    page_size = _PAGE_BYTES
    while page_size > _SMALLEST_PAGE_BYTES and buffer_memory // page_size < _FEWEST_PAGES:
        page_size //= 2
    return page_size
