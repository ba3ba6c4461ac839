"""A simulated Kafka cluster: brokers that decode requests with the package's own codecs, but check
record batches with the tests' twin; replication, elections, and brokers that learn of them late.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from spark_kafka_sink.errors import error_named
from spark_kafka_sink.model import ZERO_UUID
from spark_kafka_sink.protocol import schema
from spark_kafka_sink.protocol.messages import api_versions, init_producer_id, metadata, produce
from tests import twin
from tests.simulation.broker import LeaderView, SimBroker
from tests.simulation.network import SimNetwork
from tests.simulation.partition import NO_LEADER, Partition, Waiter
from tests.simulation.time import Scheduler

KAFKA_4_3 = {0: (0, 13), 3: (0, 13), 18: (0, 4), 22: (0, 5)}
KAFKA_2_1 = {0: (0, 7), 3: (0, 7), 18: (0, 2), 22: (0, 1)}

Reply = Callable[[schema.Message | None], None]
ProduceHook = Callable[[SimBroker, str, int, twin.RecordBatch], "str | None"]


def code(name: str) -> int:
    return error_named(name).code


@dataclass
class Topic:
    topic_id: UUID
    partitions: list[Partition]
    max_message_bytes: int = 1 << 20


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
        self.on_receive: Callable[[SimBroker, bytes], None] | None = None
        self.on_init_producer_id: Callable[[], str] = lambda: "NONE"
        self.throttle_time_ms = 0
        self.reports_new_leader = True
        self.metadata_requests = 0
        self.metadata_delay_ms = (0, 0)
        self.replication_delay_ms = (0, 2)
        self.duplicate_produce = 0.0
        self.published = 0
        self.rejects_unknown_producers = False
        self.publish()

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"{b.host}:{b.port}" for b in self.brokers.values())

    def create_topic(
        self, name: str, partitions: int = 3, replicas: int = 1, min_insync: int = 1
    ) -> Topic:
        ids = list(self.brokers)
        made = [
            Partition([ids[(index + k) % len(ids)] for k in range(replicas)], min_insync)
            for index in range(partitions)
        ]
        self.topics[name] = Topic(UUID(int=self.rng.getrandbits(128) | 1), made)
        self.publish(now=True)
        return self.topics[name]

    def records(self, topic: str) -> dict[int, list[twin.Record]]:
        return {i: p.log.records() for i, p in enumerate(self.topics[topic].partitions)}

    def partitions(self) -> list[Partition]:
        return [partition for topic in self.topics.values() for partition in topic.partitions]

    # --- what happens to brokers and leaders ---------------------------------------------------

    def publish(self, now: bool = False) -> None:
        """Tell every broker of the controller's view, each after a delay of its own."""
        view = {
            (name, index): LeaderView(partition.leader_id, partition.leader_epoch)
            for name, topic in self.topics.items()
            for index, partition in enumerate(topic.partitions)
        }
        alive = tuple(b.node_id for b in self.brokers.values() if b.is_up)
        self.published += 1
        number = self.published
        for broker in self.brokers.values():
            delay_ms = 0 if now else self.rng.randint(*self.metadata_delay_ms)
            if delay_ms == 0:
                self._learn(broker, number, view, alive)
            else:
                self.scheduler.after(delay_ms, lambda b=broker: self._learn(b, number, view, alive))

    def _learn(
        self,
        broker: SimBroker,
        number: int,
        view: dict[tuple[str, int], LeaderView],
        alive: tuple[int, ...],
    ) -> None:
        if number < broker.learned:
            return
        broker.learned = number
        for key, new in view.items():
            old = broker.view.get(key)
            broker.view[key] = new
            if old is not None and old.leader_id == broker.node_id != new.leader_id:
                partition = self.topics[key[0]].partitions[key[1]]
                partition.drop_waiters_of(broker.node_id, "NOT_LEADER_OR_FOLLOWER")
        broker.alive = alive

    def move_leader(self, topic: str, index: int, to: int) -> None:
        """A clean leader change: the new leader has everything."""
        partition = self.topics[topic].partitions[index]
        if to not in partition.replicas:
            partition.replicas.append(to)
            partition.logs[to] = type(partition.log)()
        partition.replicate(to)
        partition.isr = {b for b in partition.isr | {to} if self.brokers[b].is_up}
        partition.elect(to)
        self.publish()

    def stop(self, node_id: int) -> None:
        """The broker dies, and nobody is elected in its place."""
        broker = self.brokers[node_id]
        broker.crash()
        self.network.cut_all(broker, "Connection reset by peer")
        for partition in self.partitions():
            partition.drop_waiters_of(node_id, None)
        self.publish()

    def crash(self, node_id: int, election_delay_ms: int, allow_unclean: bool = False) -> None:
        """The broker dies; a while later its partitions get new leaders, where they can."""
        self.stop(node_id)
        self.scheduler.after(election_delay_ms, lambda: self._fail_over(node_id, allow_unclean))

    def _fail_over(self, node_id: int, allow_unclean: bool) -> None:
        if self.brokers[node_id].is_up:
            return
        for partition in self.partitions():
            if partition.leader_id == node_id:
                partition.leader_id = NO_LEADER
                partition.leader_epoch += 1
            partition.shrink_isr(node_id)
        self._elect_where_missing(allow_unclean)

    def _elect_where_missing(self, allow_unclean: bool) -> None:
        for partition in self.partitions():
            if partition.leader_id != NO_LEADER:
                continue
            alive = [b for b in partition.replicas if self.brokers[b].is_up]
            in_sync = [b for b in alive if b in partition.isr]
            if in_sync:
                partition.elect(in_sync[0])
                dead = [b for b in partition.isr if not self.brokers[b].is_up]
                for broker_id in dead:
                    partition.shrink_isr(broker_id)
            elif alive and allow_unclean:
                partition.elect(alive[0], is_clean=False)
        self.publish()

    def restart(self, node_id: int) -> None:
        """The broker is back: a follower that catches up, or the leader of what nobody leads."""
        self.brokers[node_id].is_up = True
        self.brokers[node_id].is_paused = False
        self._elect_where_missing(allow_unclean=False)
        for partition in self.partitions():
            if node_id in partition.replicas and partition.leader_id != node_id:
                delay_ms = self.rng.randint(10, 300)
                self.scheduler.after(delay_ms, lambda p=partition: self._rejoin(p, node_id))

    def _rejoin(self, partition: Partition, node_id: int) -> None:
        if self.brokers[node_id].is_up:
            partition.expand_isr(node_id)

    # --- requests ------------------------------------------------------------------------------

    def handle(self, broker: SimBroker, request: schema.Request, reply: Reply) -> None:
        if isinstance(request, api_versions.ApiVersionsRequest):
            reply(self.api_versions_response(0))
        elif isinstance(request, metadata.MetadataRequest):
            self.metadata_requests += 1
            reply(self._metadata(broker, request))
        elif isinstance(request, init_producer_id.InitProducerIdRequest):
            reply(self._init_producer_id())
        else:
            assert isinstance(request, produce.ProduceRequest)
            if self.duplicate_produce and self.rng.random() < self.duplicate_produce:
                _Produce(self, broker, request, lambda response: None).run()
            _Produce(self, broker, request, reply).run()

    def api_versions_response(self, error_code: int) -> api_versions.ApiVersionsResponse:
        keys = [api_versions.ApiVersion(k, *v) for k, v in self.api_versions.items()]
        return api_versions.ApiVersionsResponse(error_code, keys)

    def _init_producer_id(self) -> init_producer_id.InitProducerIdResponse:
        error = self.on_init_producer_id()
        if error != "NONE":
            return init_producer_id.InitProducerIdResponse(error_code=code(error))
        self.next_producer_id += 1
        return init_producer_id.InitProducerIdResponse(
            producer_id=self.next_producer_id, producer_epoch=0
        )

    def _metadata(
        self, broker: SimBroker, request: metadata.MetadataRequest
    ) -> metadata.MetadataResponse:
        brokers = [
            metadata.MetadataResponseBroker(b.node_id, b.host, b.port)
            for b in (self.brokers[i] for i in broker.alive)
        ]
        topics = [self._describe(broker, t.name or "", request) for t in request.topics or []]
        return metadata.MetadataResponse(
            brokers=brokers, cluster_id="sim", controller_id=1, topics=topics
        )

    def _describe(
        self, broker: SimBroker, name: str, request: metadata.MetadataRequest
    ) -> metadata.MetadataResponseTopic:
        topic = self.topics.get(name)
        if topic is None:
            if self.auto_create_partitions and request.allow_auto_topic_creation:
                self.create_topic(name, self.auto_create_partitions)
            error_code = code("UNKNOWN_TOPIC_OR_PARTITION")
            return metadata.MetadataResponseTopic(error_code, name)
        partitions = []
        for index, partition in enumerate(topic.partitions):
            view = broker.view.get((name, index), LeaderView(NO_LEADER, -1))
            error_code = 0 if view.leader_id >= 0 else code("LEADER_NOT_AVAILABLE")
            partitions.append(
                metadata.MetadataResponsePartition(
                    error_code, index, view.leader_id, view.leader_epoch,
                    list(partition.replicas), sorted(partition.isr), [],
                )
            )  # fmt: skip
        return metadata.MetadataResponseTopic(0, name, topic.topic_id, partitions=partitions)


class _Produce:
    """One produce request: its partitions are answered together when the last one is decided."""

    def __init__(
        self, cluster: SimCluster, broker: SimBroker, request: produce.ProduceRequest, reply: Reply
    ) -> None:
        self.cluster = cluster
        self.broker = broker
        self.request = request
        self.reply = reply
        self.open = 1
        self.answers: list[produce.TopicProduceResponse] = []

    def run(self) -> None:
        self.broker.produce_requests += 1
        for data in self.request.topic_data:
            name = data.name or self._name_of(data.topic_id)
            topic_id = data.topic_id if not data.name else ZERO_UUID
            answer = produce.TopicProduceResponse(data.name, topic_id, [])
            self.answers.append(answer)
            for partition in data.partition_data:
                assert partition.records is not None
                records = b"".join(bytes(b) for b in partition.records.buffers)
                partition_answer = produce.PartitionProduceResponse(
                    partition.index, base_offset=-1, log_start_offset=0
                )
                answer.partition_responses.append(partition_answer)
                self.open += 1
                self._append(name, partition.index, records, partition_answer)
        self._decided()

    def _decided(self) -> None:
        self.open -= 1
        if self.open:
            return
        if self.request.acks == 0:
            self.reply(None)
            return
        brokers = self.cluster.brokers.values()
        endpoints = [produce.NodeEndpoint(b.node_id, b.host, b.port) for b in brokers]
        nodes = endpoints if self.cluster.reports_new_leader else []
        self.reply(produce.ProduceResponse(self.answers, self.cluster.throttle_time_ms, nodes))

    def _name_of(self, topic_id: UUID) -> str:
        return next((n for n, t in self.cluster.topics.items() if t.topic_id == topic_id), "")

    def _append(
        self, name: str, index: int, data: bytes, answer: produce.PartitionProduceResponse
    ) -> None:
        def finish(error: str) -> None:
            answer.error_code = code(error)
            if error != "NONE":
                answer.base_offset = -1
            self._decided()

        topic = self.cluster.topics.get(name)
        if topic is None:
            finish("UNKNOWN_TOPIC_OR_PARTITION" if name else "UNKNOWN_TOPIC_ID")
            return
        view = self.broker.view.get((name, index))
        if view is None or view.leader_id != self.broker.node_id:
            if view is not None and self.cluster.reports_new_leader and view.leader_id >= 0:
                answer.current_leader = produce.LeaderIdAndEpoch(view.leader_id, view.leader_epoch)
            finish("NOT_LEADER_OR_FOLLOWER")
            return
        self._append_as_leader(name, index, data, answer, finish)

    def _append_as_leader(
        self,
        name: str,
        index: int,
        data: bytes,
        answer: produce.PartitionProduceResponse,
        finish: Callable[[str], None],
    ) -> None:
        partition = self.cluster.topics[name].partitions[index]
        batch = twin.decode_batch(data)
        hook = self.cluster.on_produce
        error = hook(self.broker, name, index, batch) if hook is not None else None
        if error is None and len(data) > self.cluster.topics[name].max_message_bytes:
            error = "MESSAGE_TOO_LARGE"
        if error is None and self.request.acks == -1 and len(partition.isr) < partition.min_insync:
            error = "NOT_ENOUGH_REPLICAS"
        if error is not None:
            finish(error)
            return
        log = partition.logs[self.broker.node_id]
        error, base_offset = log.check(batch.header, self.cluster.rejects_unknown_producers)
        if error != "NONE":
            finish(error)
            return
        if base_offset < 0:
            base_offset = log.append(batch)
            self._replicate(partition)
        answer.base_offset = base_offset
        if self.request.acks != -1:
            finish("NONE")
            return
        self._await_replicas(name, index, partition, base_offset + len(batch.records), finish)

    def _replicate(self, partition: Partition) -> None:
        for follower_id in partition.isr - {self.broker.node_id}:
            delay_ms = self.cluster.rng.randint(*self.cluster.replication_delay_ms)
            self.cluster.scheduler.after(delay_ms, lambda f=follower_id: self._fetch(partition, f))

    def _fetch(self, partition: Partition, follower_id: int) -> None:
        follower = self.cluster.brokers[follower_id]
        leader = self.cluster.brokers.get(partition.leader_id)
        if follower.is_up and not follower.is_paused and leader is not None and leader.is_up:
            partition.replicate(follower_id)

    def _await_replicas(
        self,
        name: str,
        index: int,
        partition: Partition,
        end_offset: int,
        finish: Callable[[str], None],
    ) -> None:
        epoch = self.broker.view[name, index].leader_epoch
        is_answered = False

        def answer_once(error: str) -> None:
            nonlocal is_answered
            if not is_answered:
                is_answered = True
                finish(error)

        partition.waiters.append(Waiter(self.broker.node_id, epoch, end_offset, answer_once))
        partition.answer_waiters()
        if not is_answered:
            timeout_ms = self.request.timeout_ms
            self.cluster.scheduler.after(timeout_ms, lambda: answer_once("REQUEST_TIMED_OUT"))
            # A follower that was away when the append happened fetches when it is back.
            self._poll_followers(partition, lambda: is_answered)

    def _poll_followers(self, partition: Partition, is_done: Callable[[], bool]) -> None:
        if is_done() or not self.broker.is_up:
            return
        for follower_id in list(partition.isr):
            if follower_id != partition.leader_id:
                self._fetch(partition, follower_id)
        self.cluster.scheduler.after(50, lambda: self._poll_followers(partition, is_done))
