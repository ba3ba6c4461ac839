"""Requests of any version to simulated brokers, one after the other, and the batches they carry."""

from __future__ import annotations

import itertools
import random
from typing import TypeVar, cast

from spark_kafka_sink.base.errors import error_for_code
from spark_kafka_sink.base.model import NO_PRODUCER, ProducerIdAndEpoch, TopicPartition
from spark_kafka_sink.network.interface import Address, Connected, Disconnected, Received
from spark_kafka_sink.protocol import api, schema
from spark_kafka_sink.protocol.messages import client, inspection, topics, transactions
from spark_kafka_sink.protocol.types import Records
from spark_kafka_sink.record.record_batch import TRANSACTIONAL_FLAG, BatchHeader, write_header
from tests import twin
from tests.simulation.broker import SimBroker
from tests.simulation.cluster import SimCluster
from tests.simulation.network import SimNetwork
from tests.simulation.time import Scheduler, SimClock
from tests.simulation.transactions import KAFKA_4_3

M = TypeVar("M", bound=schema.Message)

_PATIENCE_MS = 30_000


class ConnectionLostError(Exception):
    """The broker went away before it answered."""


class World:
    """A cluster with transactions, and a client that says exactly what it is told to say."""

    def __init__(
        self,
        seed: int = 0,
        brokers: int = 3,
        transaction_version: int = 2,
        api_versions: dict[int, tuple[int, int]] = KAFKA_4_3,
    ) -> None:
        rng = random.Random(seed)
        self.clock = SimClock()
        self.scheduler = Scheduler(self.clock)
        self.network = SimNetwork(self.scheduler, random.Random(rng.random()))
        self.cluster = SimCluster(
            self.network, self.scheduler, random.Random(rng.random()), brokers
        )
        self.transactions = self.cluster.enable_transactions(transaction_version, api_versions)
        self._channel_ids = itertools.count(1_000_000)
        self._channels: dict[int, int] = {}
        self.run_for(100)  # coordinators have loaded

    def run_for(self, duration_ms: int) -> None:
        """Let the brokers go on."""
        end_ms = self.clock.ms + duration_ms
        while self.clock.ms < end_ms:
            for event in self.network.poll(end_ms - self.clock.ms):
                if isinstance(event, Disconnected):
                    self._forget(event.channel_id)

    # --- one request ---------------------------------------------------------------------------

    def ask(self, broker: SimBroker, request: schema.Request, version: int, answer: type[M]) -> M:
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
        response = api.decode_response(request, version, data[4:])
        assert isinstance(response, answer)
        return response

    def _connected(self, broker: SimBroker) -> int:
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

    def _forget(self, channel_id: int) -> None:
        self._channels = {n: c for n, c in self._channels.items() if c != channel_id}

    # --- requests by name ----------------------------------------------------------------------

    def coordinator(self, transactional_id: str) -> SimBroker:
        return self.cluster.brokers[self.transactions.coordinator_id(transactional_id)]

    def find_coordinator(self, broker: SimBroker, key: str, version: int = 4) -> tuple[str, int]:
        """(error name, node id)."""
        one = version < transactions.BATCHED_VERSION
        request = transactions.FindCoordinatorRequest(
            key if one else "", transactions.TRANSACTION_KEY_TYPE, [] if one else [key]
        )
        response = self.ask(broker, request, version, transactions.FindCoordinatorResponse)
        found = response if one else response.coordinators[0]
        return name_of(found.error_code), found.node_id

    def init_once(
        self,
        transactional_id: str,
        timeout_ms: int = 60_000,
        expected: ProducerIdAndEpoch = NO_PRODUCER,
        version: int = 5,
        broker: SimBroker | None = None,
    ) -> tuple[str, ProducerIdAndEpoch]:
        """InitProducerId: (error name, producer)."""
        request = transactions.InitProducerIdRequest(
            transactional_id, timeout_ms, expected.producer_id, expected.producer_epoch
        )
        response = self.ask(
            broker or self.coordinator(transactional_id),
            request,
            version,
            transactions.InitProducerIdResponse,
        )
        producer = ProducerIdAndEpoch(response.producer_id, response.producer_epoch)
        return name_of(response.error_code), producer

    def init(self, transactional_id: str, timeout_ms: int = 60_000) -> ProducerIdAndEpoch:
        """InitProducerId until it succeeds; an open transaction is aborted by it."""
        for _ in range(100):
            error, producer = self.init_once(transactional_id, timeout_ms)
            if error == "NONE":
                return producer
            assert error == "CONCURRENT_TRANSACTIONS"
            self.run_for(20)
        raise AssertionError("InitProducerId does not succeed")

    def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        key: TopicPartition,
        version: int = 3,
    ) -> str:
        topics = [transactions.AddPartitionsToTxnTopic(key.topic, [key.partition])]
        request = transactions.AddPartitionsToTxnRequest(
            transactional_id, producer.producer_id, producer.producer_epoch, topics
        )
        response = self.ask(
            self.coordinator(transactional_id),
            request,
            version,
            transactions.AddPartitionsToTxnResponse,
        )
        result = response.results_by_topic_v3_and_below[0].results_by_partition[0]
        return name_of(result.partition_error_code)

    def produce(
        self,
        transactional_id: str | None,
        producer: ProducerIdAndEpoch,
        key: TopicPartition,
        values: list[bytes],
        version: int = 12,
        sequence: int = 0,
        attributes: int = TRANSACTIONAL_FLAG,
    ) -> str:
        """The error's name of a produce request with one batch."""
        data = encode_batch(producer, values, sequence, attributes)
        partition_data = [topics.PartitionProduceData(key.partition, Records([data], len(data)))]
        topic = topics.TopicProduceData(name=key.topic, partition_data=partition_data)
        request = topics.ProduceRequest(transactional_id, -1, 30_000, [topic])
        leader = self.cluster.brokers[self.cluster.partition(key).leader_id]
        response = self.ask(leader, request, version, topics.ProduceResponse)
        return name_of(response.responses[0].partition_responses[0].error_code)

    def end(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        version: int,
        is_commit: bool = True,
    ) -> tuple[str, ProducerIdAndEpoch]:
        """EndTxn: (error name, producer for the next transaction, from v5 on)."""
        request = transactions.EndTxnRequest(
            transactional_id, producer.producer_id, producer.producer_epoch, is_commit
        )
        response = self.ask(
            self.coordinator(transactional_id), request, version, transactions.EndTxnResponse
        )
        following = ProducerIdAndEpoch(response.producer_id, response.producer_epoch)
        return name_of(response.error_code), following

    def describe(self, transactional_id: str) -> transactions.TransactionState:
        request = transactions.DescribeTransactionsRequest([transactional_id])
        response = self.ask(
            self.coordinator(transactional_id),
            request,
            0,
            transactions.DescribeTransactionsResponse,
        )
        return response.transaction_states[0]

    def state(self, transactional_id: str) -> tuple[str, int]:
        """(state, epoch) as DescribeTransactions tells."""
        described = self.describe(transactional_id)
        assert described.error_code == 0
        return described.transaction_state, described.producer_epoch

    def list(
        self,
        pattern: str | None = None,
        states: tuple[str, ...] = (),
        version: int = 2,
        producer_ids: tuple[int, ...] = (),
        duration_ms: int = -1,
    ) -> list[tuple[str, str]]:
        """ListTransactions on all brokers: [(id, state)]; an error is asserted not to be."""
        request = transactions.ListTransactionsRequest(
            list(states), list(producer_ids), duration_ms, pattern
        )
        found = []
        for broker in self.cluster.brokers.values():
            response = self.ask(broker, request, version, transactions.ListTransactionsResponse)
            assert response.error_code == 0, name_of(response.error_code)
            found += [
                (t.transactional_id, t.transaction_state) for t in response.transaction_states
            ]
        return sorted(found)

    def fetch(
        self,
        key: TopicPartition,
        offset: int = 0,
        isolation_level: int = 0,
        max_bytes: int = 1 << 20,
        max_wait_ms: int = 0,
        version: int = 12,
    ) -> inspection.PartitionData:
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
        response = self.ask(leader, request, version, inspection.FetchResponse)
        return response.responses[0].partitions[0]

    def finalized_features(self, version: int = 4) -> dict[str, int]:
        request = client.ApiVersionsRequest("raw", "1")
        broker = next(iter(self.cluster.brokers.values()))
        response = self.ask(broker, request, version, client.ApiVersionsResponse)
        return {f.name: f.max_version_level for f in response.finalized_features}

    # --- what a reader sees --------------------------------------------------------------------

    def committed(self, topic: str) -> list[bytes | None]:
        """Values that a reader of committed records sees, of all partitions."""
        records = self.transactions.committed(topic)
        return [record.value for index in sorted(records) for record in records[index]]


def name_of(error_code: int) -> str:
    return error_for_code(error_code).name


def encode_batch(
    producer: ProducerIdAndEpoch, values: list[bytes], sequence: int, attributes: int
) -> bytes:
    """An uncompressed record batch."""
    records = b"".join(twin.encode_record(0, i, None, value) for i, value in enumerate(values))
    data = bytearray(61) + records
    header = BatchHeader(attributes, 1000, 1000, producer, sequence, len(values))
    write_header(header, [memoryview(data)], len(data))
    return bytes(data)


def decode_batches(data: bytes) -> list[twin.RecordBatch]:
    """The batches of a fetched partition."""
    batches = []
    at = 0
    while at < len(data):
        size = 12 + int.from_bytes(data[at + 8 : at + 12], "big")
        batches.append(twin.decode_batch(data[at : at + size]))
        at += size
    return batches


def records_of(partition: inspection.PartitionData) -> bytes:
    return b"".join(bytes(b) for b in cast(Records, partition.records).buffers)
