"""A simulated Kafka cluster: brokers that decode requests with the package's own codecs, but check
record batches with the tests' twin.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from uuid import UUID

from spark_kafka_sink.errors import error_named
from spark_kafka_sink.model import ZERO_UUID
from spark_kafka_sink.protocol import schema, types
from spark_kafka_sink.protocol.messages import api_versions, init_producer_id, metadata, produce
from tests import twin
from tests.simulation.network import Channel, SimNetwork
from tests.simulation.partition_log import PartitionLog
from tests.simulation.time import Scheduler

REQUESTS: dict[int, type[schema.Request]] = {
    r.api_key: r
    for r in (
        api_versions.ApiVersionsRequest,
        metadata.MetadataRequest,
        produce.ProduceRequest,
        init_producer_id.InitProducerIdRequest,
    )
}
KAFKA_4_3 = {0: (0, 13), 3: (0, 13), 18: (0, 4), 22: (0, 5)}
KAFKA_2_1 = {0: (0, 7), 3: (0, 7), 18: (0, 2), 22: (0, 1)}


def code(name: str) -> int:
    return error_named(name).code


@dataclass
class Partition:
    """Leader, epoch, and one log per replica."""

    leader_id: int
    replicas: list[int]
    leader_epoch: int = 0
    isr: set[int] = field(default_factory=set)
    logs: dict[int, PartitionLog] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.isr = set(self.replicas)
        self.logs = {broker_id: PartitionLog() for broker_id in self.replicas}

    @property
    def log(self) -> PartitionLog:
        return self.logs[self.leader_id]


@dataclass
class Topic:
    topic_id: UUID
    partitions: list[Partition]
    max_message_bytes: int = 1 << 20


class SimBroker:
    """One broker. ``on_produce`` may answer a partition's data instead of the log."""

    def __init__(self, node_id: int, cluster: SimCluster) -> None:
        self.node_id = node_id
        self.host, self.port = f"broker-{node_id}", 9092
        self.is_up = True
        self.is_paused = False
        self.produce_requests = 0
        self._cluster = cluster
        self._buffers: dict[int, bytearray] = {}
        self._waiting: list[tuple[Channel, bytes]] = []

    def receive(self, channel: Channel, data: bytes) -> None:
        if self.is_paused:
            self._waiting.append((channel, data))
            return
        buffer = self._buffers.setdefault(channel.channel_id, bytearray())
        buffer += data
        while len(buffer) >= 4:
            (size,) = struct.unpack_from(">i", buffer)
            if len(buffer) < 4 + size:
                break
            frame = bytes(buffer[4 : 4 + size])
            del buffer[: 4 + size]
            self._serve(channel, frame)

    def resume(self) -> None:
        self.is_paused = False
        waiting, self._waiting = self._waiting, []
        for channel, data in waiting:
            self.receive(channel, data)

    def _serve(self, channel: Channel, frame: bytes) -> None:
        api_key, version, correlation_id = struct.unpack_from(">hhi", frame)
        (client_id_bytes,) = struct.unpack_from(">h", frame, 8)
        at = 10 + max(client_id_bytes, 0)
        request_type = REQUESTS[api_key]
        if version >= request_type.flexible_from:
            at = schema.skip_tags(frame, at)
        first, last = self._cluster.api_versions[api_key]
        if not first <= version <= last:
            assert api_key == 18, f"the client sent API {api_key} version {version}"
            response: schema.Message = self._cluster.api_versions_response(35)
            self._respond(channel, response, 0, correlation_id, flexible_header=False)
            return
        request = schema.decode_message(request_type, version, frame, at)
        answer = self._cluster.handle(self, request)
        if answer is not None:
            flexible = version >= request_type.flexible_from and api_key != 18
            self._respond(channel, answer, version, correlation_id, flexible)

    def _respond(
        self, channel: Channel, response: schema.Message, version: int, correlation_id: int,
        flexible_header: bool,
    ) -> None:  # fmt: skip
        out = types.Writer()
        out.tail += struct.pack(">i", correlation_id)
        if flexible_header:
            out.tail.append(0)
        schema.encode_message(response, version, out)
        body = b"".join(bytes(b) for b in out.buffers())
        self._cluster.network.respond(channel, struct.pack(">i", len(body)) + body)


ProduceHook = Callable[[SimBroker, str, int, twin.RecordBatch], "str | None"]


class SimCluster:
    """Brokers, topics, and what the controller knows."""

    def __init__(
        self, network: SimNetwork, scheduler: Scheduler, rng: random.Random, brokers: int = 3
    ) -> None:
        self.network = network
        self.scheduler = scheduler
        self.rng = rng
        self.api_versions = dict(KAFKA_4_3)
        self.topics: dict[str, Topic] = {}
        self.brokers = {i: SimBroker(i, self) for i in range(1, brokers + 1)}
        for broker in self.brokers.values():
            network.add_server(broker.host, broker.port, broker)
        self.next_producer_id = 1000
        self.auto_create_partitions = 0
        self.on_produce: ProduceHook | None = None
        self.throttle_time_ms = 0
        self.reports_new_leader = True
        self.metadata_requests = 0

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"{b.host}:{b.port}" for b in self.brokers.values())

    def create_topic(self, name: str, partitions: int = 3, replicas: int = 1) -> Topic:
        ids = list(self.brokers)
        made = []
        for index in range(partitions):
            order = [ids[(index + k) % len(ids)] for k in range(replicas)]
            made.append(Partition(order[0], order))
        self.topics[name] = Topic(UUID(int=self.rng.getrandbits(128) | 1), made)
        return self.topics[name]

    def move_leader(self, topic: str, index: int, to: int) -> None:
        """A clean leader change: the new leader has everything."""
        partition = self.topics[topic].partitions[index]
        partition.logs[to] = partition.log.copy()
        if to not in partition.replicas:
            partition.replicas.append(to)
        partition.leader_id = to
        partition.leader_epoch += 1

    def records(self, topic: str) -> dict[int, list[twin.Record]]:
        return {i: p.log.records() for i, p in enumerate(self.topics[topic].partitions)}

    def stop(self, node_id: int) -> None:
        self.brokers[node_id].is_up = False
        self.network.cut_all(self.brokers[node_id], "Connection reset by peer")

    # --- requests ------------------------------------------------------------------------------

    def handle(self, broker: SimBroker, request: schema.Request) -> schema.Message | None:
        if isinstance(request, api_versions.ApiVersionsRequest):
            return self.api_versions_response(0)
        if isinstance(request, metadata.MetadataRequest):
            self.metadata_requests += 1
            return self._metadata(request)
        if isinstance(request, init_producer_id.InitProducerIdRequest):
            self.next_producer_id += 1
            return init_producer_id.InitProducerIdResponse(
                producer_id=self.next_producer_id, producer_epoch=0
            )
        assert isinstance(request, produce.ProduceRequest)
        return self._produce(broker, request)

    def api_versions_response(self, error_code: int) -> api_versions.ApiVersionsResponse:
        keys = [api_versions.ApiVersion(k, *v) for k, v in self.api_versions.items()]
        return api_versions.ApiVersionsResponse(error_code, keys)

    def _metadata(self, request: metadata.MetadataRequest) -> metadata.MetadataResponse:
        brokers = [
            metadata.MetadataResponseBroker(b.node_id, b.host, b.port)
            for b in self.brokers.values()
            if b.is_up
        ]
        names = [t.name for t in request.topics or []]
        topics = [self._describe(name or "", request) for name in names]
        return metadata.MetadataResponse(
            brokers=brokers, cluster_id="sim", controller_id=1, topics=topics
        )

    def _describe(
        self, name: str, request: metadata.MetadataRequest
    ) -> metadata.MetadataResponseTopic:
        topic = self.topics.get(name)
        if topic is None:
            if self.auto_create_partitions and request.allow_auto_topic_creation:
                self.create_topic(name, self.auto_create_partitions)
            error_code = code("UNKNOWN_TOPIC_OR_PARTITION")
            return metadata.MetadataResponseTopic(error_code, name)
        partitions = [
            metadata.MetadataResponsePartition(
                0 if p.leader_id >= 0 else code("LEADER_NOT_AVAILABLE"),
                index, p.leader_id, p.leader_epoch, list(p.replicas), sorted(p.isr), [],
            )
            for index, p in enumerate(topic.partitions)
        ]  # fmt: skip
        return metadata.MetadataResponseTopic(0, name, topic.topic_id, partitions=partitions)

    def _produce(
        self, broker: SimBroker, request: produce.ProduceRequest
    ) -> produce.ProduceResponse | None:
        broker.produce_requests += 1
        answers = []
        for data in request.topic_data:
            name = data.name or self._name_of(data.topic_id)
            partitions = [
                self._append(broker, name, p.index, b"".join(bytes(b) for b in p.records.buffers))
                for p in data.partition_data
                if p.records is not None
            ]
            topic_id = data.topic_id if not data.name else ZERO_UUID
            answers.append(produce.TopicProduceResponse(data.name, topic_id, partitions))
        if request.acks == 0:
            return None
        endpoints = [produce.NodeEndpoint(b.node_id, b.host, b.port) for b in self.brokers.values()]
        return produce.ProduceResponse(
            answers, self.throttle_time_ms, endpoints if self.reports_new_leader else []
        )

    def _name_of(self, topic_id: UUID) -> str:
        return next((n for n, t in self.topics.items() if t.topic_id == topic_id), "")

    def _append(
        self, broker: SimBroker, name: str, index: int, data: bytes
    ) -> produce.PartitionProduceResponse:
        topic = self.topics.get(name)
        if topic is None:
            return _answer(index, "UNKNOWN_TOPIC_ID" if not name else "UNKNOWN_TOPIC_OR_PARTITION")
        partition = topic.partitions[index]
        if partition.leader_id != broker.node_id:
            answer = _answer(index, "NOT_LEADER_OR_FOLLOWER")
            if self.reports_new_leader:
                answer.current_leader = produce.LeaderIdAndEpoch(
                    partition.leader_id, partition.leader_epoch
                )
            return answer
        batch = twin.decode_batch(data)
        if self.on_produce is not None:
            error = self.on_produce(broker, name, index, batch)
            if error is not None:
                return _answer(index, error)
        if len(data) > topic.max_message_bytes:
            return _answer(index, "MESSAGE_TOO_LARGE")
        error, duplicate_offset = partition.log.check(batch.header)
        if error != "NONE":
            return _answer(index, error)
        if duplicate_offset >= 0:
            return _answer(index, "NONE", duplicate_offset)
        return _answer(index, "NONE", partition.log.append(batch))


def _answer(index: int, error: str, base_offset: int = -1) -> produce.PartitionProduceResponse:
    return produce.PartitionProduceResponse(index, code(error), base_offset, log_start_offset=0)
