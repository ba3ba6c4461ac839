"""Requests of any version to simulated brokers, one after the other, and the batches they carry."""

from __future__ import annotations

import itertools
import random
from typing import cast

from spark_kafka_sink.base.errors import error_for_code
from spark_kafka_sink.base.model import NO_PRODUCER, ProducerIdAndEpoch, TopicPartition
from spark_kafka_sink.network.channels import Address, Connected, Disconnected, Received
from spark_kafka_sink.protocol import api
from spark_kafka_sink.protocol.messages import client, inspection, topics, transactions
from spark_kafka_sink.protocol.types import Records
from spark_kafka_sink.record.record_batch import TRANSACTIONAL_FLAG, BatchHeader, write_header
from tests import twin
from tests.simulation.cluster import SimCluster
from tests.simulation.network import SimNetwork
from tests.simulation.time import Scheduler, SimClock
from tests.simulation.transactions import KAFKA_4_3

_PATIENCE_MS = 30_000


class ConnectionLostError(Exception):
    """The broker went away before it answered."""


class World:
    """A cluster with transactions, and a client that says exactly what it is told to say."""

    def __init__(self, seed=0, brokers=3, transaction_version=2, api_versions=KAFKA_4_3):
        rng = random.Random(seed)
        self.clock = SimClock()
        self.scheduler = Scheduler(self.clock)
        self.network = SimNetwork(self.scheduler, random.Random(rng.random()))
        self.cluster = SimCluster(
            self.network, self.scheduler, random.Random(rng.random()), brokers
        )
        self.transactions = self.cluster.enable_transactions(transaction_version, api_versions)
        self._channel_ids = itertools.count(1_000_000)
        self._channels = {}
        self.run_for(100)  # coordinators have loaded

    def run_for(self, duration_ms):
        """Let the brokers go on."""
        end_ms = self.clock.ms + duration_ms
        while self.clock.ms < end_ms:
            for event in self.network.poll(end_ms - self.clock.ms):
                if isinstance(event, Disconnected):
                    self._forget(event.channel_id)

    # --- one request ---------------------------------------------------------------------------

    def ask(self, broker, request, version):
        """The answer of ``broker``, in no higher version than it has. Raises ConnectionLostError."""
        version = min(version, self.cluster.api_versions[request.api_key][1])
        channel_id = self._connected(broker)
        frame = b"".join(bytes(b) for b in api.encode_request(request, version, 7, "raw"))
        self.network.send(channel_id, [frame[:4], frame[4:]])
        data = b""
        deadline_ms = self.clock.ms + _PATIENCE_MS
        while len(data) < 4 or len(data) < 4 + api.decode_size(data):
            assert self.clock.ms < deadline_ms, "no answer"
            for event in self.network.poll(100):
                if isinstance(event, Received) and event.channel_id == channel_id:
                    data += bytes(event.data)
                elif isinstance(event, Disconnected):
                    self._forget(event.channel_id)
                    if event.channel_id == channel_id:
                        raise ConnectionLostError(event.reason)
        return api.decode_response(request, version, data[4:])

    def _connected(self, broker):
        if broker.node_id in self._channels:
            return self._channels[broker.node_id]
        channel_id = next(self._channel_ids)
        self.network.connect(channel_id, Address(0, (broker.host, broker.port)), broker.host)
        while True:
            for event in self.network.poll(100):
                if isinstance(event, Connected) and event.channel_id == channel_id:
                    self._channels[broker.node_id] = channel_id
                    return channel_id
                if isinstance(event, Disconnected) and event.channel_id == channel_id:
                    raise ConnectionLostError(event.reason)

    def _forget(self, channel_id):
        self._channels = {n: c for n, c in self._channels.items() if c != channel_id}

    # --- requests by name ----------------------------------------------------------------------

    def coordinator(self, transactional_id):
        return self.cluster.brokers[self.transactions.coordinator_id(transactional_id)]

    def _ask_coordinator(self, transactional_id, request, version):
        return self.ask(self.coordinator(transactional_id), request, version)

    def find_coordinator(self, broker, key, version=4):
        """(error name, node id)."""
        one = version < transactions.BATCHED_VERSION
        request = transactions.FindCoordinatorRequest(
            key if one else "", transactions.TRANSACTION_KEY_TYPE, [] if one else [key]
        )
        response = self.ask(broker, request, version)
        found = response if one else response.coordinators[0]
        return name_of(found.error_code), found.node_id

    def init_once(
        self, transactional_id, timeout_ms=60_000, expected=NO_PRODUCER, version=5, broker=None
    ):
        """InitProducerId: (error name, producer)."""
        request = transactions.InitProducerIdRequest(
            transactional_id, timeout_ms, expected.producer_id, expected.producer_epoch
        )
        response = self.ask(broker or self.coordinator(transactional_id), request, version)
        producer = ProducerIdAndEpoch(response.producer_id, response.producer_epoch)
        return name_of(response.error_code), producer

    def init(self, transactional_id, timeout_ms=60_000):
        """InitProducerId until it succeeds; an open transaction is aborted by it."""
        for _ in range(100):
            error, producer = self.init_once(transactional_id, timeout_ms)
            if error == "NONE":
                return producer
            assert error == "CONCURRENT_TRANSACTIONS"
            self.run_for(20)
        raise AssertionError("InitProducerId does not succeed")

    def add_partitions(self, transactional_id, producer, key, version=3):
        topics = [transactions.AddPartitionsToTxnTopic(key.topic, [key.partition])]
        request = transactions.AddPartitionsToTxnRequest(
            transactional_id, producer.producer_id, producer.producer_epoch, topics
        )
        response = self._ask_coordinator(transactional_id, request, version)
        result = response.results_by_topic_v3_and_below[0].results_by_partition[0]
        return name_of(result.partition_error_code)

    def produce(
        self,
        transactional_id,
        producer,
        key,
        values,
        version=12,
        sequence=0,
        attributes=TRANSACTIONAL_FLAG,
    ):
        """The error's name of a produce request with one batch."""
        data = encode_batch(producer, values, sequence, attributes)
        partition_data = [topics.PartitionProduceData(key.partition, Records([data], len(data)))]
        topic = topics.TopicProduceData(name=key.topic, partition_data=partition_data)
        request = topics.ProduceRequest(transactional_id, -1, 30_000, [topic])
        leader = self.cluster.brokers[self.cluster.partition(key).leader_id]
        response = self.ask(leader, request, version)
        return name_of(response.responses[0].partition_responses[0].error_code)

    def end(self, transactional_id, producer, version, is_commit=True):
        """EndTxn: (error name, producer for the next transaction, from v5 on)."""
        request = transactions.EndTxnRequest(
            transactional_id, producer.producer_id, producer.producer_epoch, is_commit
        )
        response = self._ask_coordinator(transactional_id, request, version)
        following = ProducerIdAndEpoch(response.producer_id, response.producer_epoch)
        return name_of(response.error_code), following

    def describe(self, transactional_id):
        request = transactions.DescribeTransactionsRequest([transactional_id])
        return self._ask_coordinator(transactional_id, request, 0).transaction_states[0]

    def state(self, transactional_id):
        """(state, epoch) as DescribeTransactions tells."""
        described = self.describe(transactional_id)
        assert described.error_code == 0
        return described.transaction_state, described.producer_epoch

    def list(self, pattern=None, states=(), version=2, producer_ids=(), duration_ms=-1):
        """ListTransactions on all brokers: [(id, state)]; an error is asserted not to be."""
        request = transactions.ListTransactionsRequest(
            list(states), list(producer_ids), duration_ms, pattern
        )
        found = []
        for broker in self.cluster.brokers.values():
            response = self.ask(broker, request, version)
            assert response.error_code == 0, name_of(response.error_code)
            found += [
                (t.transactional_id, t.transaction_state) for t in response.transaction_states
            ]
        return sorted(found)

    def fetch(self, key, offset=0, isolation_level=0, max_bytes=1 << 20, max_wait_ms=0, version=12):
        partition = inspection.FetchPartition(
            key.partition, fetch_offset=offset, partition_max_bytes=max_bytes
        )
        request = inspection.FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            isolation_level=isolation_level,
            topics=[inspection.FetchTopic(key.topic, [partition])],
        )
        leader = self.cluster.brokers[self.cluster.partition(key).leader_id]
        response = self.ask(leader, request, version)
        return response.responses[0].partitions[0]

    def finalized_features(self, version=4):
        request = client.ApiVersionsRequest("raw", "1")
        broker = next(iter(self.cluster.brokers.values()))
        response = self.ask(broker, request, version)
        return {f.name: f.max_version_level for f in response.finalized_features}

    # --- what a reader sees --------------------------------------------------------------------

    def committed(self, topic):
        """Values that a reader of committed records sees, of all partitions."""
        records = self.transactions.committed(topic)
        return [record.value for index in sorted(records) for record in records[index]]


def name_of(error_code):
    return error_for_code(error_code).name


def encode_batch(producer, values, sequence, attributes):
    """An uncompressed record batch."""
    records = b"".join(twin.encode_record(0, i, None, value) for i, value in enumerate(values))
    data = bytearray(61) + records
    header = BatchHeader(attributes, 1000, 1000, producer, sequence, len(values))
    write_header(header, [memoryview(data)], len(data))
    return bytes(data)


def decode_batches(data):
    """The batches of a fetched partition."""
    batches = []
    at = 0
    while at < len(data):
        size = 12 + int.from_bytes(data[at + 8 : at + 12], "big")
        batches.append(twin.decode_batch(data[at : at + size]))
        at += size
    return batches


def records_of(partition):
    return b"".join(bytes(b) for b in cast(Records, partition.records).buffers)


# --- steps of a client with transactions --------------------------------------------------------

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
ID = "query.1"
V4, V5 = 4, 5


def world(transaction_version=2, **options):
    made = World(transaction_version=transaction_version, **options)
    made.cluster.create_topic("t", 2, replicas=3, min_insync=2)
    return made


def write(made, producer, values, version=V5, key=T0, sequence=0, transactional_id=ID):
    """Write inside a transaction, as a client that ends it with EndTxn ``version``."""
    if version < V5:
        error = made.add_partitions(transactional_id, producer, key)
        if error != "NONE":
            return error
    produce_version = 12 if version >= V5 else 11
    return made.produce(transactional_id, producer, key, values, produce_version, sequence)


def opened(made, version=V5, values=(b"a",), transactional_id=ID, timeout_ms=60_000):
    """An open transaction with records: its producer."""
    producer = made.init(transactional_id, timeout_ms)
    assert write(made, producer, list(values), version, transactional_id=transactional_id) == "NONE"
    return producer


def ended(made, producer, version, is_commit=True, transactional_id=ID):
    """EndTxn without error; all markers are written then."""
    error, following = made.end(transactional_id, producer, version, is_commit)
    assert error == "NONE"
    made.run_for(200)
    return following
