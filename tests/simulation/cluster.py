"""A simulated Kafka cluster: brokers that decode requests with the package's own codecs, but check
record batches with the tests' twin; replication, elections, and brokers that learn of them late.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from uuid import UUID

from spark_kafka_sink.base.errors import error_named
from spark_kafka_sink.protocol.messages import client, topics, transactions
from tests.simulation.broker import LeaderView, LogRequests, SimBroker
from tests.simulation.coordinators import TRANSACTION_STATE_TOPIC
from tests.simulation.logs import NO_LEADER, Partition, Produce, Replication
from tests.simulation.sasl import API_VERSIONS as SASL_API_VERSIONS
from tests.simulation.telemetry import API_VERSIONS as TELEMETRY_API_VERSIONS
from tests.simulation.telemetry import TelemetryPlugin
from tests.simulation.transactions import KAFKA_4_3 as TRANSACTIONS_OF_4_3
from tests.simulation.transactions import TransactionRequests, Transactions

KAFKA_4_3 = {0: (0, 13), 3: (0, 13), 18: (0, 4), 22: (0, 5)}
KAFKA_4_4 = {**KAFKA_4_3, 18: (0, 5)}
KAFKA_2_1 = {0: (0, 7), 3: (0, 7), 18: (0, 2), 22: (0, 1)}

# A follower's next fetch after an election.
HIGH_WATERMARK_LAG_MS = 200


def code(name):
    return error_named(name).code


@dataclass
class Topic:
    topic_id: UUID
    partitions: list[Partition]
    max_message_bytes: int = 1 << 20
    configs: dict[str, str] = field(default_factory=dict)


class SimCluster:
    """Brokers, topics, and what the controller knows."""

    def __init__(self, network, scheduler, rng, brokers=3):
        self.network = network
        self.scheduler = scheduler
        self.rng = rng
        self.api_versions = dict(KAFKA_4_3)
        self.cluster_id = "sim"
        self.racks = {}
        self.topics = {}
        self.brokers = {i: SimBroker(i, self) for i in range(1, brokers + 1)}
        for broker in self.brokers.values():
            network.add_server(broker.host, broker.port, broker)
        self.next_producer_id = 1000
        self.auto_create_partitions = 0
        self.on_produce = None
        self.on_validate = None
        self.on_receive = None
        self.on_init_producer_id = lambda: "NONE"
        self.on_end_txn = lambda transactional_id: "NONE"
        self.on_describe = lambda topic: "NONE"
        self.throttle_time_ms = 0
        self.paused_ms = 0
        self.reports_new_leader = True
        self.metadata_requests = 0
        self.metadata_delay_ms = (0, 0)
        self.unaware_until_ms = {}
        # Brokers that the controller has given up: metadata does not name them.
        self.fenced = set()
        self.restarts = 0
        self.replication_delay_ms = (0, 2)
        self.duplicate_produce = 0.0
        # How often an answer to a produce request lacks one of its partitions, and of which it did.
        self.omit_answers = 0.0
        self.omitted = set()
        self.repeat_answers = False
        self.published = 0
        self.rejects_unknown_producers = False
        self.replication = Replication(self)
        self.transactions = None
        self.sasl = None
        self.telemetry = None
        self._log_requests = LogRequests(self)
        self._transaction_requests = TransactionRequests(self)
        self.publish()

    @property
    def bootstrap_servers(self):
        return ",".join(f"{b.host}:{b.port}" for b in self.brokers.values())

    def enable_transactions(
        self, transaction_version=2, api_versions=TRANSACTIONS_OF_4_3, partitions=5
    ):
        """Brokers coordinate transactions, and can be read from, from now on."""
        self.api_versions.update(api_versions)
        self.transactions = Transactions(self, transaction_version, partitions)
        self.publish(now=True)
        return self.transactions

    def enable_sasl(self, sasl):
        """Brokers let in only who is known, from the next connection on."""
        self.api_versions.update(SASL_API_VERSIONS)
        self.sasl = sasl
        return sasl

    def enable_telemetry(self):
        """Brokers take metrics of clients, from the next connection on."""
        self.api_versions.update(TELEMETRY_API_VERSIONS)
        self.telemetry = TelemetryPlugin(self.scheduler.clock)
        return self.telemetry

    def partition(self, key):
        return self.topics[key.topic].partitions[key.partition]

    def create_topic(self, name, partitions=3, replicas=1, min_insync=1):
        ids = list(self.brokers)
        made = [
            Partition([ids[(index + k) % len(ids)] for k in range(replicas)], min_insync)
            for index in range(partitions)
        ]
        self.topics[name] = Topic(UUID(int=self.rng.getrandbits(128) | 1), made)
        self.publish(now=True)
        return self.topics[name]

    def add_partitions(self, name, count):
        """The topic has ``count`` more from now on; brokers learn of them one after the other."""
        partitions = self.topics[name].partitions
        ids, replicas = list(self.brokers), len(partitions[0].replicas)
        for index in range(len(partitions), len(partitions) + count):
            new = Partition([ids[(index + k) % len(ids)] for k in range(replicas)])
            new.min_insync, new.leader_id = partitions[0].min_insync, NO_LEADER
            new.isr = {b for b in new.replicas if self.brokers[b].is_up} or new.isr
            partitions.append(new)
        self._elect_where_missing(allow_unclean=False)

    def empty_topic(self, name, partitions=None):
        """The topic is deleted and created anew: another one, of the same name.

        partitions: how many it has then; None: as many
        """
        topic = self.topics[name]
        for old in topic.partitions:
            old.drop_waiters_of(old.leader_id, "UNKNOWN_TOPIC_OR_PARTITION")
        if partitions is not None:
            del topic.partitions[partitions:]
            topic.partitions += (topic.partitions * partitions)[
                : partitions - len(topic.partitions)
            ]
        for index, old in enumerate(topic.partitions):
            new = Partition(list(old.replicas), old.min_insync)
            new.elect(old.leader_id)
            new.hear_from_followers()
            topic.partitions[index] = new
        topic.topic_id = UUID(int=self.rng.getrandbits(128) | 1)
        self.publish(now=True)

    def records(self, topic):
        return {i: p.log.records() for i, p in enumerate(self.topics[topic].partitions)}

    def partitions(self):
        return [partition for topic in self.topics.values() for partition in topic.partitions]

    # --- what happens to brokers and leaders ---------------------------------------------------

    def publish(self, now=False):
        """Tell every broker of the controller's view, each after a delay of its own."""
        view = {
            (name, index): LeaderView(partition.leader_id, partition.leader_epoch)
            for name, topic in self.topics.items()
            for index, partition in enumerate(topic.partitions)
        }
        if self.transactions is not None:
            view.update(self.transactions.views())
        up = {b.node_id for b in self.brokers.values() if b.is_up}
        alive = tuple(node_id for node_id in self.brokers if node_id in up - self.fenced)
        self.published += 1
        number = self.published
        for broker in self.brokers.values():
            delay_ms = 0 if now else self.rng.randint(*self.metadata_delay_ms)
            if not now:
                until_ms = self.unaware_until_ms.get(broker.node_id, 0)
                delay_ms = max(delay_ms, until_ms - self.scheduler.clock.ms)
            if delay_ms == 0:
                self._learn(broker, number, view, alive)
            else:
                self.scheduler.after(delay_ms, lambda b=broker: self._learn(b, number, view, alive))

    def _learn(self, broker, number, view, alive):
        if number < broker.learned:
            return
        broker.learned = number
        for gone in broker.view.keys() - view.keys():
            del broker.view[gone]
        for key, new in view.items():
            old = broker.view.get(key)
            broker.view[key] = new
            if key[0] == TRANSACTION_STATE_TOPIC:
                self.transactions.coordinators[broker.node_id].learn(key[1], old, new)
            elif old is not None and old.leader_id == broker.node_id != new.leader_id:
                partition = self.topics[key[0]].partitions[key[1]]
                partition.drop_waiters_of(broker.node_id, "NOT_LEADER_OR_FOLLOWER")
        broker.alive = alive

    def depose_leader(self, topic, index, to, unaware_ms):
        """As ``move_leader``; the old leader is cut off, and hears of it that much later."""
        old = self.topics[topic].partitions[index].leader_id
        self.unaware_until_ms[old] = self.scheduler.clock.ms + unaware_ms
        self.move_leader(topic, index, to)
        self.network.cut_all(self.brokers[old], "Connection reset by peer")

    def move_leader(self, topic, index, to):
        """A clean leader change: the new leader has everything."""
        partition = self.topics[topic].partitions[index]
        if to not in partition.replicas:
            partition.replicas.append(to)
            partition.logs[to] = type(partition.log)()
        partition.replicate(to)
        partition.isr = {b for b in partition.isr | {to} if self.brokers[b].is_up}
        self.elect(partition, to)
        self.publish()

    def stop(self, node_id):
        """The broker dies, and nobody is elected in its place."""
        broker = self.brokers[node_id]
        broker.crash()
        if self.transactions is not None:
            self.transactions.coordinators[node_id].crash()
        self.network.cut_all(broker, "Connection reset by peer")
        for partition in self.partitions():
            partition.drop_waiters_of(node_id, None)
            partition.forget_deposed(node_id)
            if node_id in partition.logs:
                partition.logs[node_id].verifications.clear()
        self.publish()

    def stop_all(self):
        for node_id in self.brokers:
            self.stop(node_id)

    def crash(self, node_id, election_delay_ms, allow_unclean=False):
        """The broker dies; a while later its partitions get new leaders, where they can."""
        self.stop(node_id)
        self.scheduler.after(election_delay_ms, lambda: self._fail_over(node_id, allow_unclean))

    def _fail_over(self, node_id, allow_unclean):
        if self.brokers[node_id].is_up:
            return
        for partition in self.partitions():
            if partition.leader_id == node_id:
                partition.leader_id = NO_LEADER
                partition.leader_epoch += 1
            partition.shrink_isr(node_id)
        if self.transactions is not None:
            self.transactions.log.lose(node_id)
        self._elect_where_missing(allow_unclean)

    def _elect_where_missing(self, allow_unclean):
        for partition in self.partitions():
            if partition.leader_id != NO_LEADER:
                continue
            alive = [b for b in partition.replicas if self.brokers[b].is_up]
            in_sync = [b for b in alive if b in partition.isr]
            if in_sync:
                self.elect(partition, in_sync[0])
                dead = [b for b in partition.isr if not self.brokers[b].is_up]
                for broker_id in dead:
                    partition.shrink_isr(broker_id)
            elif alive and allow_unclean:
                self.elect(partition, alive[0], is_clean=False)
        self.publish()

    def elect(self, partition, leader_id, is_clean=True):
        """A new leader, whose high watermark lags until its followers have fetched."""
        partition.elect(leader_id, is_clean)
        self.scheduler.after(HIGH_WATERMARK_LAG_MS, partition.hear_from_followers)

    def restart(self, node_id):
        """The broker is back: a follower that catches up, or the leader of what nobody leads."""
        self.brokers[node_id].is_up = True
        self.brokers[node_id].is_paused = False
        self.restarts += 1
        for partition in self.partitions():
            if node_id in partition.logs:
                partition.logs[node_id].restart()
        if self.transactions is not None:
            self.transactions.log.restart(node_id)
        self._elect_where_missing(allow_unclean=False)
        for partition in self.partitions():
            if node_id in partition.replicas and partition.leader_id != node_id:
                delay_ms = self.rng.randint(10, 300)
                self.scheduler.after(delay_ms, lambda p=partition: self._rejoin(p, node_id))

    def _rejoin(self, partition, node_id):
        if self.brokers[node_id].is_up:
            partition.expand_isr(node_id)

    def refuse(self, *errors):
        """The next record batches are answered with these errors, before anything is appended."""
        left = iter(errors)
        self.on_produce = lambda *_: next(left, None)

    def pause(self):
        """All brokers hang from now on."""
        for broker in self.brokers.values():
            broker.is_paused = True

    def cut_connections(self):
        for broker in self.brokers.values():
            self.network.cut_all(broker, "Connection reset by peer")

    # --- requests ------------------------------------------------------------------------------

    def handle(self, broker, request, version, reply):
        if isinstance(request, client.ApiVersionsRequest):
            meant = request.cluster_id, request.node_id
            is_other = meant[0] is not None and meant != (self.cluster_id, broker.node_id)
            reply(self.api_versions_response(code("REBOOTSTRAP_REQUIRED") if is_other else 0))
        elif isinstance(request, topics.MetadataRequest):
            self.metadata_requests += 1
            reply(self._metadata(broker, request))
        elif isinstance(request, transactions.InitProducerIdRequest):
            self._handle_init_producer_id(broker, request, version, reply)
        elif isinstance(request, topics.ProduceRequest):
            is_doubled = self.duplicate_produce and self.rng.random() < self.duplicate_produce
            # A broker whose rules change meanwhile would reject one copy and append the other, which
            # no broker does: only a request that the client has sent again arrives twice.
            if is_doubled and self.on_validate is None:
                Produce(self, broker, request, version, lambda response: None).run()
            Produce(self, broker, request, version, reply).run()
        elif request.api_key in TELEMETRY_API_VERSIONS:
            self.telemetry.handle(broker.node_id, request, reply)
        elif not self._log_requests.handle(broker, request, reply):
            self._transaction_requests.handle(broker, request, version, reply)

    def intercept(self, request_type, instead):
        """``instead(broker, request, reply, go_on)`` gets such requests from now on.

        ``go_on()`` does with it what was done before, also with another ``reply``.
        """
        before = self.handle

        def handle(broker, request, version, reply):
            def go_on(reply=reply):
                before(broker, request, version, reply)

            if isinstance(request, request_type):
                instead(broker, request, reply, go_on)
            else:
                go_on()

        self.handle = handle

    def api_versions_response(self, error_code):
        keys = [client.ApiVersion(k, *v) for k, v in self.api_versions.items()]
        response = client.ApiVersionsResponse(error_code, keys)
        level = 0 if self.transactions is None else self.transactions.transaction_version
        if self.transactions is not None:
            name = "transaction.version"
            response.supported_features = [client.SupportedFeatureKey(name, 0, 2)]
            finalized = [client.FinalizedFeatureKey(name, level, level)]
            response.finalized_features = finalized if level else []
            response.finalized_features_epoch = 1
        return response

    def _handle_init_producer_id(self, broker, request, version, reply):
        if request.transactional_id is None or self.transactions is None:
            reply(self._init_producer_id())
        else:
            self._transaction_requests.handle(broker, request, version, reply)

    def _init_producer_id(self):
        error = self.on_init_producer_id()
        if error != "NONE":
            return transactions.InitProducerIdResponse(error_code=code(error))
        self.next_producer_id += 1
        return transactions.InitProducerIdResponse(
            producer_id=self.next_producer_id, producer_epoch=0
        )

    def _metadata(self, broker, request):
        brokers = [
            topics.MetadataResponseBroker(b.node_id, b.host, b.port, self.racks.get(b.node_id))
            for b in (self.brokers[i] for i in broker.alive)
        ]
        described = [self._describe(broker, t.name or "", request) for t in request.topics or []]
        return topics.MetadataResponse(
            brokers=brokers, cluster_id=self.cluster_id, controller_id=1, topics=described
        )

    def _describe(self, broker, name, request):
        topic = self.topics.get(name)
        error = self.on_describe(name)
        if error != "NONE":
            return topics.MetadataResponseTopic(code(error), name)
        if topic is None:
            if self.auto_create_partitions and request.allow_auto_topic_creation:
                self.create_topic(name, self.auto_create_partitions)
            error_code = code("UNKNOWN_TOPIC_OR_PARTITION")
            return topics.MetadataResponseTopic(error_code, name)
        partitions = []
        for index, partition in enumerate(topic.partitions):
            view = broker.view.get((name, index))
            if view is None:
                break  # the broker has not heard of what was added
            error_code = 0 if view.leader_id >= 0 else code("LEADER_NOT_AVAILABLE")
            partitions.append(
                topics.MetadataResponsePartition(
                    error_code,
                    index,
                    view.leader_id,
                    view.leader_epoch,
                    list(partition.replicas),
                    sorted(partition.isr),
                    [],
                )
            )
        return topics.MetadataResponseTopic(0, name, topic.topic_id, partitions=partitions)
