"""The producer of one Spark task: append Arrow batches, flush, read the report, close.

The task thread appends, and a sender thread sends. Every wait has a deadline. A failure of either
thread reaches the task as an exception.

:class:`MetadataWaiter` makes the task thread wait until topics are known, at most ``max.block.ms``,
and may create missing topics. ``KafkaProducer.find_faults`` collects the faults of all rows after
``append`` has rejected an Arrow batch.

A :class:`ProducerPool` keeps producers between a Python worker's tasks, as the JVM sink does. A
producer whose task succeeded serves the next task with the same configuration. It keeps its
connections, metadata, compression estimates and producer id. Otherwise 200 tasks at one-second
triggers would create 17 million producer ids a day in the brokers' state.

One task uses a producer at a time. A producer that failed, or whose task failed, is never kept. An
idle producer is closed after ``connections.max.idle.ms``. A forked process starts with an empty
pool, because threads do not survive a fork and the sockets belong to the parent.

Source: ``KafkaProducer``, ``KafkaProducer.waitOnMetadata``; ``InternalKafkaProducerPool`` of Spark.
"""

from __future__ import annotations

import logging
import os
import random
import threading
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, Optional, Protocol

from spark_kafka_sink.base.clock import Clock, ExponentialBackoff, SystemClock
from spark_kafka_sink.base.errors import (
    ConfigError,
    KafkaSinkError,
    ProducerClosedError,
    TopicError,
    TransactionError,
    warn,
)
from spark_kafka_sink.base.kafka_metrics import NodesMetrics
from spark_kafka_sink.base.model import (
    ColumnPositions,
    PreparedTransaction,
    TopicsPlan,
    UnusedProducerIdentity,
)
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.config.sink_keys import UNKNOWN_LIMITS, TopicLimits
from spark_kafka_sink.network.admin import AdminClient, bootstrap_addresses, create_missing
from spark_kafka_sink.network.channels import Network
from spark_kafka_sink.network.client import MOST_POSTPONED_MS, ClientSettings, NetworkClient
from spark_kafka_sink.network.node_connection import Outages
from spark_kafka_sink.network.transport import SelectorNetwork, open_channel_of
from spark_kafka_sink.producer.accumulator import BufferPool, RecordAccumulator
from spark_kafka_sink.producer.appender import Appender, RowChecks
from spark_kafka_sink.producer.metadata import (
    ClusterAccess,
    ClusterSnapshot,
    Metadata,
    MetadataUpdater,
    TopicProblem,
    metadata_settings,
)
from spark_kafka_sink.producer.metrics import (
    DeliveryReport,
    LongestWait,
    ProducerMetrics,
    TaskTotals,
)
from spark_kafka_sink.producer.monitor import Monitor, ThreadMonitor
from spark_kafka_sink.producer.open_batches import BatchFinishers
from spark_kafka_sink.producer.quotas import RateLimit
from spark_kafka_sink.producer.sender import MAX_POLL_MS, Sender
from spark_kafka_sink.producer.telemetry import Telemetry, TelemetrySources
from spark_kafka_sink.producer.transaction_manager import ProducerIdentities, TransactionSettings
from spark_kafka_sink.protocol.messages.client import ApiVersionsRequest
from spark_kafka_sink.protocol.messages.topics import MetadataRequest, ProduceRequest
from spark_kafka_sink.protocol.messages.transactions import InitProducerIdRequest
from spark_kafka_sink.protocol.schema import compile_codecs
from spark_kafka_sink.record.columns import ArrowBatch, arrow_records, highest_partitions
from spark_kafka_sink.record.dead_letters import (
    CheckedRows,
    content_faults,
    rows_of,
)
from spark_kafka_sink.security.security import Security

_PAGE_BYTES = 32768
_SMALLEST_PAGE_BYTES = 4096
_FEWEST_PAGES = 16
_CLOSE_TIMEOUT_S = 10.0
_NS_PER_MS = 1_000_000
_DEFECT = "DELIVERY-005"

logger = logging.getLogger(__name__)


class KafkaProducer:
    """A producer without threads of its own; :class:`ThreadedProducer` adds the sender thread.

    Errors: after the producer has failed, every method raises that failure. The producer can then
    only be closed.
    """

    def __init__(
        self,
        config: ProducerConfig,
        network: Network,
        clock: Clock,
        rng: random.Random,
        monitor: Monitor,
        create_topics: TopicCreator | None = None,
    ) -> None:
        """``create_topics`` creates missing topics; None if the sink does not create topics."""
        self._config = config
        self._clock = clock
        self._monitor = monitor
        self._totals = TaskTotals(ProducerMetrics(), {})
        retry_backoff = ExponentialBackoff(
            config.retry_backoff_ms, config.retry_backoff_max_ms, rng
        )
        create_sasl_client = Security.of(config.security).create_sasl_client
        self.client = NetworkClient(
            ClientSettings.of(config), network, clock, rng, create_sasl_client
        )
        self._metadata = Metadata(
            bootstrap_addresses(config), metadata_settings(config), retry_backoff
        )
        creates_by_asking = config.topic_creation is None and config.allow_auto_create_topics
        updater = MetadataUpdater(self._metadata, self.client, monitor, creates_by_asking)
        cluster = ClusterAccess(self.client, self._metadata, updater)
        self.pool = BufferPool(config.buffer_memory, _page_size(config.buffer_memory))
        self.accumulator = RecordAccumulator(
            monitor,
            self.pool,
            retry_backoff,
            self.client.wakeup,
            config.partitioner_availability_timeout_ms,
        )
        metrics, accumulator, most_ms = self.metrics, self.accumulator, config.max_block_ms
        self._topics = MetadataWaiter(most_ms, cluster, accumulator, clock, metrics, create_topics)
        finishers = BatchFinishers.of(config, accumulator, clock, metrics)
        self._appender = Appender(config, accumulator, finishers, clock, rng, metrics)
        self._row_checks = RowChecks(config, self.pool.memory_bytes)
        self._identities = ProducerIdentities(
            config, self.client, self._metadata, accumulator, retry_backoff, rng
        )
        self._is_transactional = False
        self._tasks_count = 0
        identity, totals = self._identities.first(), self._totals
        self.sender = Sender(config, cluster, accumulator, self._appender, identity, totals)
        if config.max_bytes_per_second is not None:
            self.sender.rate_limit = RateLimit(config.max_bytes_per_second, clock.now_ms())
        self.telemetry = self.sender.telemetry = self._create_telemetry(rng)
        self.rejections = self.sender.rejections

    def _create_telemetry(self, rng: random.Random) -> Telemetry | None:
        if not self._config.enable_metrics_push:
            return None
        parts = self._totals, self.client, self._metadata, self.accumulator, self.pool.memory_bytes
        sources = TelemetrySources(*parts, self._clock, lambda: self.sender.transaction)
        return Telemetry(sources, self._config, rng)

    @property
    def metrics(self) -> ProducerMetrics:
        """Return the counters of the task so far."""
        return self._totals.metrics

    @property
    def report(self) -> DeliveryReport:
        """Return the acknowledged records of the task so far, per partition."""
        return self._totals.report

    @property
    def longest_wait(self) -> LongestWait | None:
        """Return the task's longest wait that the log reported; None without one."""
        return self.sender.waits.longest

    @property
    def nodes(self) -> NodesMetrics:
        """Return the counters of the task so far, per broker."""
        return self.client.nodes

    def append(
        self,
        arrow_batch: ArrowBatch,
        positions: ColumnPositions,
        limits: TopicLimits | None = None,
    ) -> None:
        """Append the rows of a pyarrow.RecordBatch. Returns when the rows are buffered, not sent.

        limits: reject rows that brokers would reject by these limits; None leaves this check to
            brokers

        Raises RecordError, RecordTooLargeError or TopicError for rows that no broker would accept;
        no row of this Arrow batch is sent then. Raises BufferExhaustedError if brokers do not keep
        up, and the producer's failure, such as DeliveryError.
        """
        self.accumulator.raise_if_failed()
        if arrow_batch.num_rows == 0:
            return
        timestamp_ms = self._clock.timestamp_ms()
        records = arrow_records(arrow_batch, positions, timestamp_ms)
        if positions.topic_option is None:
            self._row_checks.check_topics(records.topics, checks_names=limits is not None)
        cluster = self._topics.wait_for(records.topics, highest_partitions(records))
        most_bytes = self._row_checks.check(records, limits or UNKNOWN_LIMITS)
        self._appender.append(records, cluster, timestamp_ms, most_bytes)

    def find_faults(
        self, arrow_batch: ArrowBatch, positions: ColumnPositions, limits: TopicLimits
    ) -> CheckedRows:
        """Return the rows that ``append`` rejects, and why. Call it after ``append`` raised.

        Raises errors that are no fault of a row, such as TopicError for a topic that does not
        exist.
        """
        rows, faults = content_faults(arrow_batch, positions, self._config.decision_log)
        faults.add_from(self._row_checks.find(rows, positions, limits))
        numbers = faults.good
        if len(numbers):
            timestamp_ms = self._clock.timestamp_ms()
            records = arrow_records(rows_of(rows, numbers), positions, timestamp_ms)
            cluster = self._topics.wait_for(records.topics, highest_partitions(records))
            faults.add_from(self._appender.find_invalid_partitions(records, cluster), numbers)
        return CheckedRows(rows, faults)

    def flush(self) -> None:
        """Send all batches, and wait for their acknowledgements and for the token check.

        Raises the producer's failure. Each batch is acknowledged or fails within
        ``delivery.timeout.ms`` plus the pauses that brokers request, of which at most
        ``MOST_POSTPONED_MS`` count. The wait for the token check has the same deadline, and at
        least as long after a pause.
        """
        self.accumulator.raise_if_failed()
        self._appender.finish_open()
        started_ns = self._clock.perf_ns()
        # The sender enforces delivery.timeout.ms; this deadline is for a sender that no longer
        # runs.
        patience_ms = self._config.delivery_timeout_ms + self._config.request_timeout_ms
        began_ms = self._clock.now_ms()
        deadline_ms = began_ms + patience_ms
        with self._monitor:
            while self.accumulator.failure is None and self.accumulator.incomplete_count:
                start_ms = self.accumulator.timeout_start_ms(began_ms)
                deadline_ms = max(deadline_ms, start_ms + patience_ms)
                left_ms = deadline_ms - self._clock.now_ms()
                if left_ms <= 0:
                    raise ProducerClosedError(
                        f"{self.accumulator.incomplete_count} batch(es) neither acknowledged nor "
                        f"failed within {patience_ms} ms: the sender does not run",
                        code=_DEFECT,
                    )
                self._monitor.wait(left_ms)
            self._await_check(deadline_ms, patience_ms)
        self.metrics.ack_wait_ns += self._clock.perf_ns() - started_ns
        self.accumulator.raise_if_failed()
        self._record_gauges()

    def _await_check(self, deadline_ms: int, patience_ms: int) -> None:
        """Wait until the token is known to be unused. The caller holds the monitor."""
        began_ms = self._clock.now_ms()
        waits = self.sender.waits
        while self.accumulator.failure is None and (check := self.sender.pending_check):
            if waits.check_since_ms is None:
                waits.check_since_ms = began_ms
                self.accumulator.wakeup_sender()  # it may sleep for longer than is silent
            # The broker of the last answer may have asked for a pause in it.
            start_ms = self.accumulator.timeout_start_ms(began_ms)
            if start_ms > began_ms:
                deadline_ms = max(deadline_ms, start_ms + patience_ms)
            left_ms = deadline_ms - self._clock.now_ms()
            if left_ms <= 0:
                raise TransactionError(
                    "the coordinator did not say whether this task is in time, which "
                    f"{check.transactional_id} shows: {check.last_failure or 'no answer'}",
                    code="TXN-004",
                )
            self._monitor.wait(left_ms)
        waits.check_since_ms = None

    def _record_gauges(self) -> None:
        """Record the values that are read at the end of a task instead of counted."""
        metrics = self.metrics
        metrics.buffer_total_bytes = self.pool.memory_bytes
        metrics.connections = sum(node.connections for node in list(self.nodes.values()))
        metrics.metadata_age_max_ms = self._metadata.age_ms(self._clock.now_ms())
        metrics.transaction_begin_ns = self.sender.transaction_began_after_ms * _NS_PER_MS

    @property
    def is_clean(self) -> bool:
        """Return True if nothing has failed, no batch is incomplete, and no topic is unusable."""
        return (
            self.accumulator.failure is None
            and self.accumulator.incomplete_count == 0
            and not any(problem.is_fatal for problem in self._metadata.problems.values())
        )

    def begin_task(self, topics: Sequence[str], plan: TopicsPlan | None = None) -> None:
        """Forget what belonged to the task before. Call it only if the producer is clean.

        docs/design.md has all that a producer keeps, and for how long.

        topics: topics known beforehand, for the next metadata request
        plan: of the job or micro-batch; None trusts nothing that earlier tasks learned of topics
        """
        self._tasks_count += 1
        if plan is None:
            plan = TopicsPlan(f"of task {self._tasks_count} alone", {})
        self._appender.begin_task()
        with self._monitor:  # telemetry reads the counters concurrently
            self._metadata.begin_task(self._clock.now_ms(), plan)
            self.accumulator.begin_task()
            if self.telemetry is not None:
                self.telemetry.begin_task()
            self._totals.reset()
            self.sender.waits.begin_task()
            left_ms = self.client.pauses.latest_end_ms - self._clock.now_ms()
            self.metrics.throttle_left_ms = max(left_ms, 0)
            self.rejections.reset()
            for node in list(self.nodes.values()):
                node.reset()
        if self._is_transactional:
            # The next task may begin a transaction too, so only a batch triggers InitProducerId.
            self._is_transactional = False
            self.sender.set_identity(self._identities.idempotent_when_needed())
        if self.sender.rate_limit is not None:
            self.sender.rate_limit.begin_task()
        self._topics.add(topics)

    def begin_transaction(
        self, transactional_id: str, timeout_ms: int, token: UnusedProducerIdentity | None = None
    ) -> None:
        """Write all records of this task in one transaction, which this producer does not end.

        Call it after ``begin_task`` and before the first ``append``. Returns at once. The sender
        thread finds the coordinator and fences earlier users of ``transactional_id``. ``append``
        and ``flush`` raise the errors of these steps.

        timeout_ms: the coordinator aborts the transaction if it has not ended by then
        token: the right to decide on the transaction. After the transaction has begun, the sender
            checks that the token is still unused. If the token is used, ``append`` and ``flush``
            raise SupersededError

        Raises ConfigError if the configuration does not allow transactions.
        """
        if not self._config.enable_idempotence:
            raise ConfigError("transactions need kafka.enable.idempotence = true", code="TXN-002")
        if not transactional_id:
            raise ConfigError("a transactional id must not be empty", code=_DEFECT)
        self.accumulator.raise_if_failed()
        if self.report or self.accumulator.incomplete_count:
            raise KafkaSinkError("a transaction begins before the first append", code=_DEFECT)
        self._is_transactional = True
        settings = TransactionSettings(transactional_id, timeout_ms)
        self.sender.set_identity(self._identities.transactional(settings, token))
        if self.sender.rate_limit is not None:
            self.sender.rate_limit.begin_transaction(timeout_ms)
        self.client.wakeup()

    def push_final_telemetry(self) -> None:
        """Push the final telemetry at once, because no further task may follow."""
        if self.telemetry is not None:
            self.telemetry.mark_idle(max_idle_ms=0)

    @property
    def transaction(self) -> PreparedTransaction | None:
        """Return the identity that ends the task's transaction. Call it after ``flush``.

        Returns None if no record was written. Brokers do not know the transaction then, and would
        answer EndTxn with INVALID_TXN_STATE.
        """
        self.accumulator.raise_if_failed()
        if not self._is_transactional or not self.report:
            return None
        if self.accumulator.incomplete_count:
            raise KafkaSinkError("a transaction is prepared only after flush", code=_DEFECT)
        return self.sender.transaction

    @property
    def transaction_open_ms(self) -> int:
        """Return for how many ms the current transaction has been open at least."""
        begun_at_ms = self.sender.transaction_begun_at_ms
        return 0 if begun_at_ms is None else self._clock.now_ms() - begun_at_ms


class ThreadedProducer(KafkaProducer):
    """A producer with its sender thread. The caller must always close it."""

    def __init__(
        self,
        config: ProducerConfig,
        topics: Sequence[str] = (),
        plan: TopicsPlan | None = None,
    ) -> None:
        """``topics`` and ``plan``: as for ``begin_task``.

        Fetches a token if one is needed. If the token may become available later, ``append`` waits
        for it as for brokers. Raises AuthenticationError, ConfigError.
        """
        security = Security.of(config.security)
        hosts = [host for host, _ in config.bootstrap_servers]
        security.prepare_if_possible(config.max_block_ms, hosts)
        self._are_credentials_replaced = security.credentials_watcher()
        open_channel = open_channel_of(security)
        sizes = config.send_buffer_bytes, config.receive_buffer_bytes
        network = SelectorNetwork(*sizes, open_channel)
        monitor, create_topics = ThreadMonitor(), topic_creator(config)
        super().__init__(config, network, SystemClock(), random.Random(), monitor, create_topics)
        self.client.outages = Outages()
        self.begin_task(topics, plan)
        self._is_closing = False
        self._close_at_ms: int | None = None
        self._thread = threading.Thread(target=self._run, name="pykafka-sink-sender", daemon=True)
        self._thread.start()

    @property
    def is_healthy(self) -> bool:
        """Return True if another task may use the producer."""
        # In a forked process the sender thread is not alive.
        return self._thread.is_alive() and not self._is_closing and self.is_clean

    def mark_idle(self, until_ms: int | None) -> None:
        """Mark the producer as idle. It closes itself at ``until_ms``; None means never."""
        self._close_at_ms = until_ms
        if self.telemetry is not None:
            self.telemetry.mark_idle()
        # The sender's round ends within MAX_POLL_MS anyway, and the next round knows these times.
        is_near = until_ms is not None and until_ms - self._clock.now_ms() < MAX_POLL_MS
        if is_near or (self.telemetry is not None and self.telemetry.may_request):
            self.client.wakeup()

    def reactivate(self) -> bool:
        """Take an idle producer for another task; return False if it can no longer be used."""
        with self._monitor:
            if not self.is_healthy:
                return False
            self._close_at_ms = None
        # Outside the monitor, because files are read.
        if self._are_credentials_replaced():
            self.client.renew_connections()
        return True

    def _should_close(self, now_ms: int) -> bool:
        with self._monitor:  # a task may resume the producer at this moment
            if self._close_at_ms is not None and now_ms >= self._close_at_ms:
                self._is_closing = True
        return self._is_closing

    def _run(self) -> None:
        try:
            while not self._should_close(now_ms := self._clock.now_ms()):
                self.sender.run_once(now_ms, self._close_at_ms)
            if self.telemetry is not None:
                self.telemetry.finish()
        except Exception as error:  # the task must raise any error instead of waiting
            failure = KafkaSinkError(f"the sender thread failed: {error!r}", code=_DEFECT)
            failure.__cause__ = error
            self.sender.fail(failure)
        finally:
            self.client.close()

    def close(self) -> None:
        """Close the connections and end the sender thread. Unflushed records are dropped."""
        self._is_closing = True
        self.client.wakeup()
        self._thread.join(_CLOSE_TIMEOUT_S)
        if not self.accumulator.failure:
            self.accumulator.fail(ProducerClosedError("the producer is closed", code=_DEFECT))


def compile_protocol() -> None:
    """Compile the messages that every producer exchanges with brokers, before the first does."""
    compile_codecs((ApiVersionsRequest, MetadataRequest, InitProducerIdRequest, ProduceRequest))


def _page_size(buffer_memory: int) -> int:
    """Return 32 KiB, or less if ``buffer_memory`` would hold too few pages."""
    page_size = _PAGE_BYTES
    while page_size > _SMALLEST_PAGE_BYTES and buffer_memory // page_size < _FEWEST_PAGES:
        page_size //= 2
    return page_size


_NO_PARTITIONS: Mapping[str, int] = MappingProxyType({})


class TopicCreator(Protocol):
    """Creates topics, and may block. Raises TopicError for topics that cannot be created."""

    def __call__(self, topics: list[str]) -> None: ...


def topic_creator(config: ProducerConfig) -> TopicCreator | None:
    """Return a creator of topics as ``topic.creation.*`` says; None without these options."""
    creation = config.topic_creation
    if creation is None:
        return None

    def create(topics: list[str]) -> None:
        with AdminClient.of(config) as admin:
            create_missing(admin, topics, creation)

    return create


def _create_no_topics(topics: list[str]) -> None:
    """Create no topic, because the sink does not create topics."""


def _topics_without_partition(highest: Mapping[str, int], snapshot: ClusterSnapshot) -> set[str]:
    """Return the known topics that lack the wanted partition."""
    return {
        topic
        for topic, partition in highest.items()
        if topic in snapshot.topics and partition >= snapshot.partitions_count(topic)
    }


_LOGGED_AFTER_MS = 5_000
_MS_PER_S = 1000


class _Wait:
    """One wait of the task thread for metadata of ``topics``."""

    def __init__(self, topics: Sequence[str], now_ms: int, most_ms: int) -> None:
        self.topics = topics
        self.began_ms = now_ms
        self.deadline_ms = now_ms + most_ms
        self.log_at_ms = now_ms + _LOGGED_AFTER_MS
        self.is_logged = False


class MetadataWaiter:
    """Waits in the task thread for snapshots that know the task's topics."""

    def __init__(
        self,
        max_block_ms: int,
        cluster: ClusterAccess,
        accumulator: RecordAccumulator,
        clock: Clock,
        metrics: ProducerMetrics,
        create_topics: TopicCreator | None,
    ) -> None:
        """``create_topics`` creates missing topics; None if the sink does not create topics."""
        self._max_block_ms = max_block_ms
        self._client, self._metadata, self._updater = cluster
        self._accumulator = accumulator
        self._monitor = accumulator.monitor
        self._clock = clock
        self._metrics = metrics
        self._creates_topics = create_topics is not None
        self._create = create_topics or _create_no_topics

    def add(self, topics: Sequence[str]) -> ClusterSnapshot:
        """Request metadata of ``topics`` with the next request; return the current snapshot."""
        with self._monitor:
            self._mark_used(topics)
            return self._metadata.snapshot

    def _mark_used(self, topics: Sequence[str]) -> None:
        """Keep awaited topics of interest. The caller holds the monitor."""
        now_ms = self._clock.now_ms()
        for topic in topics:
            self._metadata.add_topic(topic, now_ms)

    def wait_for(
        self, topics: Sequence[str], highest: Mapping[str, int] = _NO_PARTITIONS
    ) -> ClusterSnapshot:
        """Return a snapshot that knows all ``topics``.

        highest: highest partition per topic, which may have been added recently. If an answer to a
            request of after this call does not have it, the caller reports that

        Raises TopicError for a topic that is unusable, or not known within ``max.block.ms``. Raises
        the failure of the sender.
        """
        snapshot = self.add(topics)
        if all(topic in snapshot.topics for topic in topics) and not _topics_without_partition(
            highest, snapshot
        ):
            return snapshot
        started_ns = self._clock.perf_ns()
        wait = _Wait(topics, self._clock.now_ms(), self._max_block_ms)
        tried: set[str] = set()
        while missing := self._await_metadata(wait, tried):
            # Without the monitor, because creation takes time and the sender must not wait for it.
            begun_ms = self._clock.now_ms()
            self._create(missing)
            # Creation has its own deadline; max.block.ms is for metadata.
            wait.deadline_ms += self._clock.now_ms() - begun_ms
            tried.update(missing)
            with self._monitor:
                self._metadata.request_update_now()
        with self._monitor:
            snapshot = self._await_partitions(topics, highest)
        self._metrics.metadata_wait_ns += self._clock.perf_ns() - started_ns
        return snapshot

    def _await_metadata(self, wait: _Wait, tried: set[str]) -> list[str]:
        """Wait for all topics; return missing ones early, unless they were ``tried``."""
        with self._monitor:
            self._client.wakeup()
            while True:
                self._accumulator.raise_if_failed()
                snapshot, problems = self._metadata.snapshot, self._metadata.problems
                unknown = [topic for topic in wait.topics if topic not in snapshot.topics]
                if not unknown:
                    return []
                self._mark_used(wait.topics)
                for topic in unknown:
                    if topic in problems and problems[topic].is_fatal:
                        raise TopicError(problems[topic].message, code=problems[topic].code)
                missing = [t for t in unknown if t in problems and t not in tried]
                if missing and self._creates_topics:
                    return missing
                self._wait(wait, f"Topic {unknown[0]}", problems.get(unknown[0]))

    def _await_partitions(
        self, topics: Sequence[str], highest: Mapping[str, int]
    ) -> ClusterSnapshot:
        """Ask once for partitions that are not known. The caller holds the monitor.

        The Java producer waits for ``max.block.ms``. A partition that the plan has is waited for.
        """
        wait = _Wait(topics, self._clock.now_ms(), self._max_block_ms)
        needed_answer = self._metadata.requests_count + 1
        ask = self._metadata.request_update_now
        while True:
            self._accumulator.raise_if_failed()
            snapshot = self._metadata.snapshot
            lacking = _topics_without_partition(highest, snapshot)
            unknown = [topic for topic in topics if topic not in snapshot.topics]
            is_asked = self._metadata.answered_request >= needed_answer
            if not unknown and (is_asked or not lacking):
                return snapshot
            self._mark_used(topics)
            if not is_asked:
                ask()
                ask = self._metadata.request_update
                self._client.wakeup()
            if unknown:
                what, problem = f"Topic {unknown[0]}", self._metadata.problems.get(unknown[0])
            else:
                topic = min(lacking)
                what, problem = f"Partition {highest[topic]} of topic {topic}", None
            self._wait(wait, what, problem)

    def _wait(self, wait: _Wait, what: str, problem: TopicProblem | None) -> None:
        """Wait for the next answer.

        Raises TopicError after ``max.block.ms``, without the pauses that brokers requested, up to
        ``MOST_POSTPONED_MS``, and if no answer can help.
        """
        now_ms = self._clock.now_ms()
        postponed_ms = self._client.pauses.latest_end_ms + self._max_block_ms - wait.deadline_ms
        left_ms = wait.deadline_ms + min(max(postponed_ms, 0), MOST_POSTPONED_MS) - now_ms
        if problem is not None and (problem.is_fatal or left_ms <= 0):
            raise TopicError(problem.message, code=problem.code)
        if left_ms <= 0:
            raise TopicError(
                f"{what} not present in metadata after kafka.max.block.ms = "
                f"{self._max_block_ms}: {self._why()}",
                code="TOPIC-004",
            )
        silent_ms = wait.log_at_ms - now_ms
        if wait.is_logged or silent_ms > 0:
            self._monitor.wait(left_ms if wait.is_logged else min(left_ms, silent_ms))
            return
        wait.is_logged = True
        why = self._why() if problem is None else problem.message
        waited_s = (now_ms - wait.began_ms) / _MS_PER_S
        warn(
            logger,
            "TOPIC-007",
            f"{what} is not known after {waited_s:.0f} s, and rows wait for it, for up to "
            f"kafka.max.block.ms = {self._max_block_ms}: {why}",
        )

    def _why(self) -> str:
        return self._updater.last_failure or "the cluster did not answer"


_MOST_IDLE = 4


class _Idle(NamedTuple):
    """An idle producer, and the start of its idle time."""

    producer: ThreadedProducer
    since_ms: int


ProducerFactory = Callable[[ProducerConfig, Sequence[str], Optional[TopicsPlan]], ThreadedProducer]


class ProducerPool:
    """Idle producers by configuration, which includes the security identity."""

    def __init__(
        self,
        create: ProducerFactory | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._create = ThreadedProducer if create is None else create
        self._clock = SystemClock() if clock is None else clock
        self._idle: dict[ProducerConfig, list[_Idle]] = {}

    @property
    def idle_count(self) -> int:
        """Return the number of idle producers."""
        return sum(len(waiting) for waiting in self._idle.values())

    def acquire(
        self, config: ProducerConfig, topics: Sequence[str], plan: TopicsPlan | None = None
    ) -> ThreadedProducer:
        """Return a producer for one task: a healthy idle one, or a new one.

        ``topics`` and ``plan``: as for ``KafkaProducer.begin_task``.
        """
        self.evict()
        waiting = self._idle.get(config, [])
        while waiting:
            producer = waiting.pop().producer
            if producer.reactivate():
                producer.begin_task(topics, plan)
                return producer
            producer.close()
        return self._create(config, topics, plan)

    def release(self, config: ProducerConfig, producer: ThreadedProducer) -> None:
        """Keep the producer of a task that was flushed without error, for the next task."""
        if not producer.is_healthy:
            producer.close()
            return
        now_ms, limit_ms = self._clock.now_ms(), config.connections_max_idle_ms
        # If no further task comes, only the producer itself can close it in time.
        producer.mark_idle(now_ms + limit_ms if limit_ms >= 0 else None)
        self._idle.setdefault(config, []).append(_Idle(producer, now_ms))
        self.evict()

    def evict(self) -> None:
        """Close producers that are idle for too long, and the oldest ones above the limit."""
        now_ms = self._clock.now_ms()
        for config, waiting in list(self._idle.items()):
            limit_ms = config.connections_max_idle_ms
            expired = [i for i in waiting if 0 <= limit_ms <= now_ms - i.since_ms]
            for idle in expired:
                waiting.remove(idle)
                idle.producer.close()
            if not waiting:
                del self._idle[config]
        while self.idle_count > _MOST_IDLE:
            config, oldest = min(
                ((config, waiting[0]) for config, waiting in self._idle.items()),
                key=lambda entry: entry[1].since_ms,
            )
            self._idle[config].remove(oldest)
            oldest.producer.close()
            if not self._idle[config]:
                del self._idle[config]

    def forget(self) -> None:
        """Drop all producers without closing them; a forked child must call this."""
        self._idle.clear()

    def close(self) -> None:
        """Close every idle producer."""
        for waiting in self._idle.values():
            for idle in waiting:
                idle.producer.close()
        self._idle.clear()


POOL = ProducerPool()
"""The pool of this Python worker."""

os.register_at_fork(after_in_child=POOL.forget)
