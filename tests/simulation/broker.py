"""One simulated broker: frames in, one request of a connection at a time, frames out; and its answers about
logs and settings: ListOffsets, Fetch, DescribeProducers, DescribeConfigs, topics.
"""

from __future__ import annotations

import struct
from collections import deque
from dataclasses import dataclass, field

from spark_kafka_sink.base.errors import error_named
from spark_kafka_sink.base.model import TopicPartition
from spark_kafka_sink.protocol import schema, types
from spark_kafka_sink.protocol.messages import client, inspection, topics, transactions
from spark_kafka_sink.protocol.types import Records
from tests.simulation.sasl import Session

REQUESTS: dict[int, type[schema.Request]] = {
    found.api_key: found
    for module in (client, inspection, topics, transactions)
    for found in vars(module).values()
    if isinstance(found, type)
    and issubclass(found, schema.Request)
    and found.__module__ == module.__name__
}


@dataclass
class Inbox:
    """What has arrived on one connection. ``is_busy``: a request of it is not answered yet.

    session: how it is authenticated, None where nobody has to be
    """

    session: Session | None

    buffer: bytearray = field(default_factory=bytearray)
    frames: deque[bytes] = field(default_factory=deque)
    is_busy: bool = False


@dataclass(frozen=True)
class LeaderView:
    """What a broker believes of a partition: it learns of changes a little later."""

    leader_id: int
    leader_epoch: int


class SimBroker:
    """A broker. ``view``: leaders as it knows them; what it serves and tells is by this."""

    def __init__(self, node_id, cluster):
        self.node_id = node_id
        self.host, self.port = f"broker-{node_id}", 9092
        self.is_up = True
        self.is_paused = False
        self.produce_requests = 0
        # message.max.bytes, where the broker has one of its own and topics have none.
        self.max_message_bytes = None
        self.view = {}
        self.alive = ()
        self.learned = 0
        self._cluster = cluster
        self._inboxes = {}
        self._waiting = []

    def crash(self):
        """Connections and requests are gone; the log stays."""
        self.is_up = False
        self._inboxes.clear()
        self._waiting.clear()

    def receive(self, channel, data):
        if self._cluster.on_receive is not None:
            self._cluster.on_receive(self, data)
        if self.is_paused:
            self._waiting.append((channel, data))
            return
        inbox = self._inboxes.get(channel)
        if inbox is None:
            sasl = self._cluster.sasl
            inbox = self._inboxes[channel] = Inbox(None if sasl is None else Session(sasl))
        inbox.buffer += data
        while len(inbox.buffer) >= 4:
            (size,) = struct.unpack_from(">i", inbox.buffer)
            if len(inbox.buffer) < 4 + size:
                break
            inbox.frames.append(bytes(inbox.buffer[4 : 4 + size]))
            del inbox.buffer[: 4 + size]
        self._serve_next(channel, inbox)

    def resume(self):
        self.is_paused = False
        waiting, self._waiting = self._waiting, []
        for channel, data in waiting:
            self.receive(channel, data)

    def _serve_next(self, channel, inbox):
        while inbox.frames and not inbox.is_busy:
            inbox.is_busy = True
            self._serve(channel, inbox, inbox.frames.popleft())

    def _serve(self, channel, inbox, frame):
        api_key, version, correlation_id = struct.unpack_from(">hhi", frame)
        (client_id_bytes,) = struct.unpack_from(">h", frame, 8)
        at = 10 + max(client_id_bytes, 0)
        request_type = REQUESTS[api_key]
        sent_at_ms = channel.sent_at_ms.popleft()
        if version >= request_type.flexible_from:
            at = schema.skip_tags(frame, at)
        first, last = self._cluster.api_versions[api_key]
        if not first <= version <= last:
            assert api_key == 18, f"the client sent API {api_key} version {version}"
            response = self._cluster.api_versions_response(35)
            self._respond(channel, inbox, response, 0, correlation_id, flexible_header=False)
            return
        request = schema.decode_message(request_type, version, frame, at)
        flexible = version >= request_type.flexible_from and api_key != 18

        def reply(response):
            """Answer once; None: the request wants no answer (acks=0)."""
            if response is None:
                inbox.is_busy = False
            else:
                self._respond(channel, inbox, response, version, correlation_id, flexible)
                pause_ms = getattr(response, "throttle_time_ms", 0)
                if pause_ms and version >= request_type.throttled_from:
                    self._mute(channel, inbox, pause_ms)
            self._serve_next(channel, inbox)

        if inbox.session is None:
            self._cluster.handle(self, request, version, reply)
        else:
            self._serve_secured(channel, inbox.session, (request, version, sent_at_ms), reply)

    def _mute(self, channel, inbox, pause_ms):
        """A quota is used up: nothing more is read from the connection for that long."""
        self._cluster.paused_ms += pause_ms
        inbox.is_busy = True

        def unmute():
            if self._inboxes.get(channel) is inbox:
                inbox.is_busy = False
                self._serve_next(channel, inbox)

        self._cluster.scheduler.after(pause_ms, unmute)

    def _serve_secured(self, channel, session, asked, reply):
        """``asked``: the request, its version, and when it was sent."""
        (request, version, sent_at_ms), cluster = asked, self._cluster
        now_ms = cluster.scheduler.clock.ms
        if not session.admits(request, sent_at_ms, now_ms):
            cluster.network.cut(channel, "closed by the broker")
        elif isinstance(request, client.SaslHandshakeRequest):
            reply(session.handshake(request, now_ms))
        elif not isinstance(request, client.SaslAuthenticateRequest):
            if isinstance(request, client.ApiVersionsRequest) and not session.is_authenticated:
                request.cluster_id = None  # SaslServerAuthenticator compares no identities
            cluster.handle(self, request, version, reply)
        elif cluster.sasl.hangs_next:
            cluster.sasl.hangs_next = False
        elif cluster.sasl.cuts_next:
            cluster.sasl.cuts_next = False
            cluster.network.cut(channel, "cut in the middle of SASL")
        else:
            reply(session.authenticate(request, now_ms))

    def _respond(self, channel, inbox, response, version, correlation_id, flexible_header):
        out = types.Writer()
        out.tail += struct.pack(">i", correlation_id)
        if flexible_header:
            out.tail.append(0)
        schema.encode_message(response, version, out)
        body = b"".join(bytes(b) for b in out.buffers())
        inbox.is_busy = False
        if self.is_up:
            self._cluster.network.respond(channel, struct.pack(">i", len(body)) + body)


# --- requests about logs and settings -----------------------------------------------------------

_TOPIC_DEFAULTS = {"cleanup.policy": "delete", "max.message.bytes": "1048588"}
_DEFAULT_PARTITIONS = 1


class LogRequests:
    """Handlers by request class."""

    def __init__(self, cluster):
        self._cluster = cluster
        self._handlers = {
            inspection.ListOffsetsRequest: self._list_offsets,
            inspection.FetchRequest: self._fetch,
            inspection.DescribeProducersRequest: self._describe_producers,
            topics.DescribeConfigsRequest: self._describe_configs,
            topics.CreateTopicsRequest: self._create_topics,
        }

    def handle(self, broker, request, reply):
        """Answer ``request``; False if it is none of these."""
        handler = self._handlers.get(type(request))
        if handler is not None:
            handler(broker, request, reply)
        return handler is not None

    def _led(self, broker, key):
        """(error name, the partition where this broker leads it, or believes that it does)."""
        topic = self._cluster.topics.get(key.topic)
        view = broker.view.get((key.topic, key.partition))
        if topic is None or view is None:
            return "UNKNOWN_TOPIC_OR_PARTITION", None
        partition = topic.partitions[key.partition]
        # A leader that was replaced and has not heard of it serves what it had then.
        serves = {partition.leader_id, *partition.deposed_high_watermarks}
        if view.leader_id != broker.node_id or broker.node_id not in serves:
            return "NOT_LEADER_OR_FOLLOWER", None
        return "NONE", partition

    # --- ListOffsets ---------------------------------------------------------------------------

    def _list_offsets(self, broker, request, reply):
        topics = []
        for topic in request.topics:
            partitions = []
            for asked in topic.partitions:
                key = TopicPartition(topic.name, asked.partition_index)
                error, partition = self._led(broker, key)
                answer = inspection.ListOffsetsPartitionResponse(asked.partition_index)
                answer.error_code = error_named(error).code
                if partition is not None and _is_behind(broker, partition, asked.timestamp):
                    answer.error_code = error_named("OFFSET_NOT_AVAILABLE").code
                elif partition is not None:
                    answer.offset = _offset(broker, partition, asked, request.isolation_level)
                    answer.leader_epoch = partition.leader_epoch
                partitions.append(answer)
            topics.append(inspection.ListOffsetsTopicResponse(topic.name, partitions))
        reply(inspection.ListOffsetsResponse(0, topics))

    # --- Fetch ---------------------------------------------------------------------------------

    def _fetch(self, broker, request, reply):
        response = self._fetched(broker, request)
        size = sum(
            p.records.size_bytes for t in response.responses for p in t.partitions if p.records
        )
        is_error = any(p.error_code for t in response.responses for p in t.partitions)
        if is_error or size >= request.min_bytes or request.max_wait_ms <= 0:
            reply(response)
        else:
            self._cluster.scheduler.after(
                request.max_wait_ms, lambda: reply(self._fetched(broker, request))
            )

    def _fetched(self, broker, request):
        left = request.max_bytes
        responses = []
        for topic in request.topics:
            partitions = []
            for asked in topic.partitions:
                key = TopicPartition(topic.topic, asked.partition)
                max_bytes = min(left, asked.partition_max_bytes)
                answer = self._fetched_partition(
                    broker, key, asked.fetch_offset, max_bytes, request.isolation_level
                )
                left -= answer.records.size_bytes if answer.records else 0
                partitions.append(answer)
            responses.append(inspection.FetchableTopicResponse(topic.topic, partitions))
        return inspection.FetchResponse(responses=responses)

    def _fetched_partition(self, broker, key, offset, max_bytes, isolation):
        error, partition = self._led(broker, key)
        answer = inspection.PartitionData(key.partition, high_watermark=-1, records=Records((), 0))
        if partition is not None:
            log = partition.logs[broker.node_id]
            answer.high_watermark = partition.high_watermark_of(broker.node_id)
            answer.last_stable_offset = log.last_stable_offset(answer.high_watermark)
            answer.log_start_offset = partition.log_start_offset
            is_committed = isolation == inspection.READ_COMMITTED
            end = answer.last_stable_offset if is_committed else answer.high_watermark
            if not partition.log_start_offset <= offset <= log.end_offset:
                error = "OFFSET_OUT_OF_RANGE"
            elif max_bytes > 0:
                data = log.read(offset, end, max_bytes)
                answer.records = Records((data,), len(data))
            if is_committed:
                answer.aborted_transactions = [
                    inspection.AbortedTransaction(ended.producer_id, ended.first_offset)
                    for ended in log.aborted_between(offset, end)
                ]
        answer.error_code = error_named(error).code
        return answer

    # --- DescribeProducers ---------------------------------------------------------------------

    def _describe_producers(self, broker, request, reply):
        topics = []
        for topic in request.topics:
            partitions = []
            for index in topic.partition_indexes:
                error, partition = self._led(broker, TopicPartition(topic.name, index))
                states = [] if partition is None else _producers(partition)
                error_code = error_named(error).code
                partitions.append(inspection.PartitionResponse(index, error_code, None, states))
            topics.append(inspection.TopicResponse(topic.name, partitions))
        reply(inspection.DescribeProducersResponse(0, topics))

    # --- DescribeConfigs -----------------------------------------------------------------------

    def _describe_configs(self, broker, request, reply):
        results = [self._described(broker, resource) for resource in request.resources]
        reply(topics.DescribeConfigsResponse(0, results))

    def _described(self, broker, resource):
        configs = {}
        error = "NONE"
        if resource.resource_type == topics.TOPIC_RESOURCE:
            topic = self._cluster.topics.get(resource.resource_name)
            unknown = "UNKNOWN_TOPIC_OR_PARTITION"
            if topic is None or self._cluster.on_describe(resource.resource_name) == unknown:
                error = unknown
            else:
                min_insync = str(topic.partitions[0].min_insync)
                configs = {**_TOPIC_DEFAULTS, "min.insync.replicas": min_insync, **topic.configs}
        elif resource.resource_name == str(broker.node_id):
            transactions = self._cluster.transactions
            configs = {
                "transaction.max.timeout.ms": str(transactions.max_timeout_ms),
                "transactional.id.expiration.ms": str(transactions.expiration_ms),
            }
        else:
            error = "INVALID_REQUEST"
        wanted = resource.configuration_keys
        return topics.DescribeConfigsResult(
            error_named(error).code,
            None,
            resource.resource_type,
            resource.resource_name,
            [
                topics.DescribeConfigsResourceResult(name, value)
                for name, value in configs.items()
                if wanted is None or name in wanted
            ],
        )

    # --- CreateTopics --------------------------------------------------------------------------

    def _create_topics(self, broker, request, reply):
        results = []
        for wanted in request.topics:
            error = self._create_error(wanted)
            if error == "NONE" and not request.validate_only:
                configs = {config.name: config.value or "" for config in wanted.configs}
                topic = self._cluster.create_topic(
                    wanted.name,
                    wanted.num_partitions if wanted.num_partitions > 0 else _DEFAULT_PARTITIONS,
                    wanted.replication_factor if wanted.replication_factor > 0 else 1,
                    int(configs.get("min.insync.replicas", "1")),
                )
                topic.configs = configs
            results.append(
                topics.CreatableTopicResult(wanted.name, error_code=error_named(error).code)
            )
        reply(topics.CreateTopicsResponse(0, results))

    def _create_error(self, wanted):
        if wanted.name in self._cluster.topics:
            return "TOPIC_ALREADY_EXISTS"
        if wanted.replication_factor > len(self._cluster.brokers):
            return "INVALID_REPLICATION_FACTOR"
        return "NONE"


def _is_behind(broker, partition, timestamp):
    """A leader knows that it is new, and that its high watermark may lag; a deposed one does not."""
    is_latest = timestamp == inspection.LATEST_TIMESTAMP
    is_leader = broker.node_id == partition.leader_id
    return is_leader and is_latest and partition.told_high_watermark < partition.high_watermark


def _offset(broker, partition, asked, isolation_level):
    if asked.timestamp == inspection.EARLIEST_TIMESTAMP:
        return partition.log_start_offset
    assert asked.timestamp == inspection.LATEST_TIMESTAMP, "no index by time here"
    high_watermark = partition.high_watermark_of(broker.node_id)
    if isolation_level == inspection.READ_COMMITTED:
        return partition.logs[broker.node_id].last_stable_offset(high_watermark)
    return high_watermark


def _producers(partition):
    log = partition.log
    return [
        inspection.ProducerState(
            producer_id,
            entry.epoch,
            entry.batches[-1].last_sequence if entry.batches else -1,
            -1,
            entry.coordinator_epoch,
            log.open_transactions.get(producer_id, -1),
        )
        for producer_id, entry in log.producers.items()
    ]
