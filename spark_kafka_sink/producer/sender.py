"""The sender: a state machine that sends ready batches and completes them with the responses.

``run_once(now_ms)`` does one round: producer id, metadata, lingering batches, drain and send,
expiry, and one poll of the network. The sender thread only repeats it. Tests and the simulator call
it round by round.

:class:`Sender` decides whether a batch is complete (``_complete_batch``), or retried or failed
(``_retry_or_fail``). ``rejections.py`` decides whether a batch is split. The functions after the
class build the produce requests.

Source: ``Sender.runOnce``, ``Sender.sendProduceRequests``, ``Sender.completeBatch``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple
from uuid import UUID

from spark_kafka_sink.base.errors import (
    DeliveryError,
    KafkaErrorCode,
    LocalProtocolError,
    TransactionError,
    UnsupportedVersionError,
    error_for_code,
    error_named,
)
from spark_kafka_sink.base.model import (
    NO_OFFSET,
    ZERO_UUID,
    Node,
    PreparedTransaction,
    TopicPartition,
)
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.network.node_connection import ClientResponse
from spark_kafka_sink.producer.accumulator import RecordAccumulator
from spark_kafka_sink.producer.appender import Appender
from spark_kafka_sink.producer.metadata import ClusterAccess, PartitionMetadata
from spark_kafka_sink.producer.metrics import PartitionReport, TaskTotals
from spark_kafka_sink.producer.producer_batch import ProducerBatch
from spark_kafka_sink.producer.quotas import RateLimit, ThrottleTracker
from spark_kafka_sink.producer.rejections import (
    RejectionHandler,
    expiry_error,
    rejection_error,
    response_message,
)
from spark_kafka_sink.producer.sequences import SequenceTracker
from spark_kafka_sink.producer.telemetry import Telemetry
from spark_kafka_sink.producer.transaction_manager import ProducerIdentity, TokenCheck
from spark_kafka_sink.producer.waits import WaitCauses, WaitLog
from spark_kafka_sink.protocol.api import IMPLICIT_PARTITIONS_VERSION, BrokerApiVersions
from spark_kafka_sink.protocol.messages.topics import (
    ADDS_PARTITIONS_VERSION,
    TOPIC_IDS_VERSION,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from spark_kafka_sink.protocol.types import Records
from spark_kafka_sink.record.record_batch import TRANSACTIONAL_FLAG, read_header

_MS_PER_S = 1000

_NONE = error_named("NONE")
_NETWORK_EXCEPTION = error_named("NETWORK_EXCEPTION")
_REQUEST_TIMED_OUT = error_named("REQUEST_TIMED_OUT")
_DUPLICATE_SEQUENCE_NUMBER = error_named("DUPLICATE_SEQUENCE_NUMBER")
MAX_POLL_MS = 60_000
"""Time limit of a round without work."""
# While the limit holds batches, the sender extends the deadlines of a waiting task this often.
_MAX_HELD_MS = 1000


class SentBatches(NamedTuple):
    """Batches of a produce request, with its own topic ids, because metadata may change meanwhile.

    ``topic_names``: names of the topics by the ids in the request
    """

    by_partition: dict[TopicPartition, ProducerBatch]
    topic_names: dict[UUID, str]

    @property
    def batches(self) -> Iterable[ProducerBatch]:
        return self.by_partition.values()


class Sender:
    """Sends batches and completes them. Used by one thread, or by a test that steps it."""

    def __init__(
        self,
        config: ProducerConfig,
        cluster: ClusterAccess,
        accumulator: RecordAccumulator,
        appender: Appender,
        identity: ProducerIdentity,
        totals: TaskTotals,
    ) -> None:
        self._config = config
        self._client, self._metadata, self._metadata_updater = cluster
        self._accumulator = accumulator
        self._appender = appender
        self._identity = identity
        self._metrics, self._report = totals
        self.rejections = RejectionHandler(appender, accumulator, totals.metrics)
        self._in_flight = 0
        self.telemetry: Telemetry | None = None
        self.rate_limit: RateLimit | None = None
        self._held_until_ms = 0
        # Without idempotence, order survives a retry only if nothing else is in flight.
        self._mutes_partitions = config.max_in_flight_requests_per_connection == 1
        self._quota_waits = ThrottleTracker(self._client.pauses, self._metadata.snapshot)
        self._causes = WaitCauses(
            config.max_bytes_per_second, cluster, self._quota_waits, lambda: self._identity
        )
        self.waits = WaitLog(accumulator, self._causes, config.delivery_timeout_ms)
        self._client.on_disconnect = lambda node: self._metadata.request_update()
        self._client.on_refused = self.fail
        self._client.on_misrouted = self._metadata.rebootstrap
        self._client.logs_pauses = False  # self.waits does

    @property
    def _state(self) -> SequenceTracker:
        return self._identity.state

    @property
    def transaction(self) -> PreparedTransaction | None:
        """Return the current transaction; None before it has a producer id, and without one."""
        return self._state.transaction

    @property
    def transaction_began_after_ms(self) -> int:
        """Return how many ms the current transaction took to begin."""
        return self._identity.began_after_ms

    @property
    def transaction_begun_at_ms(self) -> int | None:
        """Return when the current transaction had begun at the latest; None before that."""
        return self._identity.begun_at_ms

    @property
    def pending_check(self) -> TokenCheck | None:
        """Return the check that must succeed before the task may hand over its transaction."""
        return self._identity.pending_check

    def set_identity(self, identity: ProducerIdentity) -> None:
        """Send as ``identity`` from now on. The task thread calls this between two tasks."""
        with self._accumulator.monitor:
            assert not self._accumulator.incomplete_count, "batches have the old one's numbers"
            self._identity = identity

    # --- one round -----------------------------------------------------------------------------

    def run_once(self, now_ms: int, until_ms: int | None = None) -> None:
        """Do what is due at ``now_ms``, then poll the network until the next action is due.

        ``until_ms``: return by then, even if nothing is due.
        """
        waits: list[int | None] = [MAX_POLL_MS]
        if until_ms is not None:
            waits.append(max(until_ms - now_ms, 0))
        if self._accumulator.failure is None:
            waits.append(self._appender.finish_expired_linger(now_ms))
            waits.append(self._metadata_updater.maybe_update(now_ms))
            waits.append(self._maybe_request_producer_id(now_ms))
            waits.append(self._send_ready(now_ms))
            waits.append(self._expire(now_ms))
            waits.append(self.waits.look(now_ms))
            if self.telemetry is not None:
                waits.append(self.telemetry.maybe_request(now_ms))
        timeout_ms = min(wait for wait in waits if wait is not None)
        self._client.poll(timeout_ms, now_ms)

    def fail(self, failure: Exception) -> None:
        """Fail the producer: the task raises ``failure``."""
        self._accumulator.fail(failure)

    def _maybe_request_producer_id(self, now_ms: int) -> int | None:
        """Request a producer id if needed; return after how many ms to call again."""
        # Under the monitor, because a replaced identity must not send requests any more.
        with self._accumulator.monitor:
            identity = self._identity
            identity.state.bump_epoch_if_needed()
            # A response may have failed the identity, or the next request cannot be sent.
            wait_ms = identity.maybe_request(now_ms) if identity.failure is None else None
            if identity.failure is not None:
                self.fail(identity.failure)
            return wait_ms

    def _send_ready(self, now_ms: int) -> int | None:
        """Send one request to each ready node; return after how many ms to call again."""
        # Before the queues are read, so that batches queued after the read wake this thread.
        self._accumulator.set_busy_nodes(())
        cluster = self._metadata.snapshot
        self._quota_waits.update_leaders(cluster, self._accumulator, now_ms)
        self._record_held(now_ms)
        ready = self._accumulator.ready(cluster, now_ms)
        for topic in ready.unknown_leader_topics:
            with self._accumulator.monitor:
                self._metadata.add_topic(topic, now_ms)
            problem = self._metadata.problems.get(topic)
            if problem is not None and problem.is_fatal:
                self.fail(DeliveryError(problem.message, code=problem.code))
                return None
        wait_ms = ready.next_check_ms
        if ready.unknown_leader_topics:
            self._metadata.request_update()
            # This round has already called maybe_update(), when no update was due.
            update_ms = self._metadata_updater.maybe_update(now_ms)
            wait_ms = update_ms if wait_ms is None else min(wait_ms, update_ms)
        busy_nodes = []
        for node, partitions in ready.by_node.items():
            is_node_ready = self._client.ready(node, now_ms)
            self._accumulator.update_node_latency(node.node_id, is_node_ready, now_ms)
            if is_node_ready:
                batches = self._drain(node, partitions, now_ms)
                if batches:
                    self._send(node, batches, now_ms)
                    if self._accumulator.has_queued(partitions):
                        wait_ms = 0
            else:
                busy_nodes.append(node.node_id)
                delay_ms = self._client.poll_delay_ms(node, now_ms)
                if delay_ms is not None and (wait_ms is None or delay_ms < wait_ms):
                    wait_ms = delay_ms
        self._accumulator.set_busy_nodes(busy_nodes)
        waits = wait_ms, self._check_held(now_ms)
        return min((wait for wait in waits if wait is not None), default=None)

    def _drain(
        self, node: Node, partitions: list[TopicPartition], now_ms: int
    ) -> list[ProducerBatch]:
        """Drain the batches for ``node``, which is ready, within the rate limit."""
        limit = self.rate_limit
        if limit is not None:
            heads = self._accumulator.heads(partitions)
            partitions = limit.admit(h for h in heads if not self._state.must_wait(h))
        most_bytes = self._config.max_request_size
        batches = self._accumulator.drain(partitions, most_bytes, now_ms, self._state)
        if limit is not None:
            limit.spend(batches, now_ms)
        return batches

    # --- max.bytes.per.second.per.task -----------------------------------------------------------

    def _record_held(self, now_ms: int) -> None:
        """Record that the rate limit has held batches since the last round: they expire later."""
        if self.rate_limit is not None:
            partitions, since_ms = self.rate_limit.begin_round(now_ms)
            if partitions:
                self._metrics.limit_wait_ms += now_ms - since_ms
                self._quota_waits.record_limited(partitions, since_ms, now_ms)

    def _check_held(self, now_ms: int) -> int | None:
        """Return after how many ms to call again for held batches; None if the limit holds none.

        Fails the producer if its transaction cannot end in time at that rate.
        """
        limit = self.rate_limit
        if limit is None or not limit.held:
            return None
        try:
            limit.check_transaction(self._accumulator.queued_bytes, now_ms)
        except TransactionError as error:
            self.fail(error)
            return 0
        self._held_until_ms = now_ms + 2 * _MAX_HELD_MS
        return min(limit.wait_ms, _MAX_HELD_MS)

    def _send(self, node: Node, batches: list[ProducerBatch], now_ms: int) -> None:
        if self._mutes_partitions:
            for batch in batches:
                self._accumulator.mute(batch.topic_partition)
        transaction, config = self.transaction, self._config
        for batch in batches:
            batch.sent_to = node
        self._metrics.record_sent(batches)
        try:
            request = produce_request(
                batches,
                config.acks,
                config.request_timeout_ms,
                transaction,
            )
            sent = SentBatches(
                {batch.topic_partition: batch for batch in batches},
                {topic.topic_id: topic.name for topic in request.topic_data},
            )
            check_adds_partitions(node, self._client.api_versions(node), transaction)
            self._set_in_flight(self._in_flight + 1)
            self._client.send(
                node,
                request,
                now_ms,
                lambda result, at_ms: self._handle_produce_response(sent, result, at_ms),
                expect_response=config.acks != 0,
                at_most_version=highest_version(request, transaction),
            )
        except (UnsupportedVersionError, LocalProtocolError) as error:
            self.fail(error)

    def _set_in_flight(self, requests: int) -> None:
        self._in_flight = requests
        self._metrics.requests_in_flight_max = max(self._metrics.requests_in_flight_max, requests)

    # --- responses -----------------------------------------------------------------------------

    def _handle_produce_response(
        self, sent: SentBatches, result: ClientResponse, now_ms: int
    ) -> None:
        if self._accumulator.failure is not None:
            return
        self._set_in_flight(self._in_flight - 1)
        self._quota_waits.record_response(sent.batches, result.node, now_ms)
        if result.failure is not None:
            error = _REQUEST_TIMED_OUT if result.is_timeout else _NETWORK_EXCEPTION
            for batch in sent.batches:
                self._retry_or_fail(batch, result.node, error, result.failure, now_ms)
        elif isinstance(result.response, ProduceResponse):
            measured = result.latency_ms, result.response.throttle_time_ms
            self._metrics.record_response(*measured)
            self._client.nodes[result.node.node_id].record_produce_response(*measured)
            # In one step, so that a task that waits for memory wakes once for the whole response.
            with self._accumulator.monitor:
                self._complete_batches(sent, result.response, result.node, now_ms)
        else:
            # With acks=0 no response follows, so a sent batch counts as acknowledged.
            for batch in sent.batches:
                self._acknowledge(batch, NO_OFFSET)

    def _complete_batches(
        self, sent: SentBatches, response: ProduceResponse, node: Node, now_ms: int
    ) -> None:
        unanswered = dict(sent.by_partition)
        for topic in response.responses:
            name = topic.name or sent.topic_names.get(topic.topic_id, "")
            for partition in topic.partition_responses:
                batch = unanswered.pop(TopicPartition(name, partition.index), None)
                if batch is not None:
                    self._update_leader(response, batch.topic_partition, partition)
                    self._complete_batch(batch, partition, node, now_ms)
        for batch in unanswered.values():
            detail = "the broker's answer does not mention the partition"
            self._retry_or_fail(batch, node, _NETWORK_EXCEPTION, detail, now_ms)

    def _update_leader(
        self,
        response: ProduceResponse,
        topic_partition: TopicPartition,
        partition: PartitionProduceResponse,
    ) -> None:
        """Update the leader that an error response names (KIP-951)."""
        current = partition.current_leader
        if partition.error_code:
            leader = PartitionMetadata(current.leader_id, current.leader_epoch)
            nodes = [Node(e.node_id, e.host, e.port, e.rack) for e in response.node_endpoints]
            self._metadata.update_leader(topic_partition, leader, nodes)

    def _complete_batch(
        self, batch: ProducerBatch, partition: PartitionProduceResponse, node: Node, now_ms: int
    ) -> None:
        error = error_for_code(partition.error_code)
        if error in (_NONE, _DUPLICATE_SEQUENCE_NUMBER):
            # A duplicate was appended earlier; the broker no longer knows its offset.
            offset = NO_OFFSET if error is _DUPLICATE_SEQUENCE_NUMBER else partition.base_offset
            self._acknowledge(batch, offset)
            return
        requeued = self.rejections.handle(batch, error, partition, self._state, now_ms)
        if requeued is not None:
            self._count_retried_records(requeued, node, error)
            self._accumulator.unmute(batch.topic_partition)
            return
        detail = response_message(batch, partition)
        self._retry_or_fail(batch, node, error, detail, now_ms, partition.log_start_offset)

    def _count_retried_records(
        self, batches: Iterable[ProducerBatch], node: Node, error: KafkaErrorCode
    ) -> None:
        """Count records that were sent to ``node`` and are queued again because of ``error``."""
        for batch in batches:
            batch.record_retries += batch.records_count
            self._metrics.record_retries += batch.records_count
            self._client.nodes[node.node_id].record_retry(error.name, batch.records_count)

    def _acknowledge(self, batch: ProducerBatch, base_offset: int) -> None:
        self._state.handle_completed_batch(batch, base_offset)
        report = self._report.get(batch.topic_partition)
        if report is None:
            report = self._report[batch.topic_partition] = PartitionReport()
        report.acknowledge(
            base_offset, batch.records_count, batch.size_bytes, batch.uncompressed_bytes
        )
        report.record_retries += batch.record_retries
        rack, leader = self._config.client_rack, batch.sent_to
        if rack and leader is not None and leader.rack == rack:
            self._metrics.same_rack_bytes += batch.size_bytes
        self._accumulator.unmute(batch.topic_partition)
        self._accumulator.complete(batch)

    def _retry_or_fail(
        self,
        batch: ProducerBatch,
        node: Node,
        error: KafkaErrorCode,
        detail: str | None,
        now_ms: int,
        log_start_offset: int = NO_OFFSET,
    ) -> None:
        """Retry a batch after a failed attempt, or fail the producer."""
        batch.note_failure(node, error, detail)
        if error.refresh_metadata:
            self._metadata.request_update()
        self._accumulator.unmute(batch.topic_partition)
        is_worth_it = self._state.can_retry(batch, error, log_start_offset)
        if batch.attempts <= self._config.retries and is_worth_it:
            self._metrics.retries += 1
            self._count_retried_records([batch], node, error)
            backoff = self._identity.retry_backoff(error)
            self._accumulator.reenqueue(batch, now_ms, backoff)
        else:
            self._metrics.record_errors += batch.records_count
            in_flight = self._state.in_flight(batch.topic_partition) or [batch]
            in_doubt = [other for other in in_flight if other.may_be_appended]
            self.fail(rejection_error(batch, error, now_ms, in_doubt))

    # --- expiry --------------------------------------------------------------------------------

    def _expire(self, now_ms: int) -> int | None:
        """Fail the producer if a batch has expired; return the ms until the next may expire.

        Waits for the rate limit do not count, nor pauses that brokers request, up to a limit.
        """
        timeout_ms = self._config.delivery_timeout_ms
        soonest_ms: int | None = None
        late: dict[TopicPartition, int] = {}
        with self._accumulator.monitor:
            paused_until_ms = self._client.pauses.latest_end_ms
            self._accumulator.set_paused_until(paused_until_ms, self._held_until_ms)
            oldest = self._accumulator.oldest_incomplete()
            self._quota_waits.forget_before(now_ms if oldest is None else oldest.created_at_ms)
            for batch in self._accumulator.incomplete():
                left_ms = batch.created_at_ms + timeout_ms - now_ms
                is_late = left_ms <= 0
                if is_late:
                    postponed_ms = self._quota_waits.postponed_ms(batch, now_ms)
                    left_ms += postponed_ms
                    # A batch also waits for earlier batches of its partition.
                    left_ms = max(left_ms, late.get(batch.topic_partition, left_ms))
                    late[batch.topic_partition] = left_ms
                if left_ms <= 0:
                    why, advice = self._causes.why_not_sent(batch, now_ms)
                    if postponed_ms >= _MS_PER_S:
                        held_s = postponed_ms // _MS_PER_S
                        why += f". A quota or limit held it for {held_s} s more"
                    self.fail(expiry_error(batch, timeout_ms, now_ms, why, advice))
                    return None
                soonest_ms = left_ms if soonest_ms is None else min(soonest_ms, left_ms)
                if not is_late:
                    break  # later batches are younger
        return soonest_ms


# --- Produce requests -----------------------------------------------------------------------------


def produce_request(
    batches: Sequence[ProducerBatch],
    acks: int,
    timeout_ms: int,
    transaction: PreparedTransaction | None,
) -> ProduceRequest:
    """Build the request for ``batches``, which are closed, one per partition.

    Raises LocalProtocolError if a batch does not belong to ``transaction``.
    """
    topics: dict[str, TopicProduceData] = {}
    for batch in batches:
        _check_transaction(batch, transaction)
        name = batch.topic_partition.topic
        topic = topics.get(name)
        if topic is None:
            topic = topics[name] = TopicProduceData(name, batch.topic_id)
        records = Records(batch.buffers, batch.size_bytes)
        topic.partition_data.append(PartitionProduceData(batch.topic_partition.partition, records))
    return ProduceRequest(
        transactional_id=None if transaction is None else transaction.transactional_id,
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=list(topics.values()),
    )


def highest_version(request: ProduceRequest, transaction: PreparedTransaction | None) -> int | None:
    """Return the highest version in which ``request`` may be sent; None for no limit."""
    if transaction is not None and transaction.transaction_version < IMPLICIT_PARTITIONS_VERSION:
        return ADDS_PARTITIONS_VERSION - 1
    if any(topic.topic_id == ZERO_UUID for topic in request.topic_data):
        return TOPIC_IDS_VERSION - 1
    return None


def check_adds_partitions(
    node: Node, versions: BrokerApiVersions | None, transaction: PreparedTransaction | None
) -> None:
    """Raise UnsupportedVersionError if ``node`` would not add partitions to ``transaction``.

    No other request adds them. With an older version the records would belong to no transaction.
    """
    if transaction is None or transaction.transaction_version < IMPLICIT_PARTITIONS_VERSION:
        return
    highest = -1 if versions is None else versions.latest_usable_version(ProduceRequest)
    if highest < ADDS_PARTITIONS_VERSION:
        raise UnsupportedVersionError(
            f"{node}: Produce version {highest} at most, but transaction.version is "
            f"{transaction.transaction_version}, which needs {ADDS_PARTITIONS_VERSION} or newer. "
            f"Finish the brokers' upgrade before the feature's",
            code="TXN-005",
        )


def _check_transaction(batch: ProducerBatch, transaction: PreparedTransaction | None) -> None:
    """Raise LocalProtocolError unless header and request agree about the transaction.

    A batch is transactional if the request names the transactional id, the header has the
    transactional bit, and the header has a producer id. Brokers accept some other mixtures, as
    records outside any transaction. So this function checks the very bytes that are sent.
    """
    header = read_header(batch.buffers[0])
    is_transactional = bool(header.attributes & TRANSACTIONAL_FLAG)
    if transaction is None:
        if not is_transactional and batch.transactional_id is None:
            return
        sent_in = "outside of any transaction"
    else:
        identity = (transaction.producer_id, transaction.producer_epoch)
        if (
            is_transactional
            and batch.transactional_id == transaction.transactional_id
            and (header.producer_id, header.producer_epoch) == identity
            and transaction.producer_id >= 0
            and transaction.transactional_id
        ):
            return
        sent_in = f"in {transaction}"
    raise LocalProtocolError(
        f"a batch of {batch.topic_partition} was about to be sent {sent_in}, with transactional id "
        f"{batch.transactional_id!r}, attributes {header.attributes:#x}, producer id "
        f"{header.producer_id} and epoch {header.producer_epoch}. This is a defect of the sink: "
        f"please report it"
    )
