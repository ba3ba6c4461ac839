"""A real producer in one thread, whose network is a scripted broker that keeps what it gets.

Rows go the whole way: Arrow columns, kernels, open batches, compression, sequences, drain, request,
frame. Only sockets, threads and time are missing.
"""

from __future__ import annotations

import random
import struct
from typing import NamedTuple
from uuid import UUID

from spark_kafka_sink.base.model import ProducerIdAndEpoch, TopicPartition
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.network.interface import (
    Address,
    Connected,
    Received,
    Resolved,
    SendCompleted,
)
from spark_kafka_sink.producer.producer import KafkaProducer
from spark_kafka_sink.producer.sequences import ProducerState
from spark_kafka_sink.protocol import schema, types
from spark_kafka_sink.protocol.messages.client import ApiVersion, ApiVersionsResponse
from spark_kafka_sink.protocol.messages.topics import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from spark_kafka_sink.protocol.messages.transactions import InitProducerIdResponse
from tests.golden.case_files import PLAN, arrow_batch
from tests.simulation.time import SimClock

PRODUCE, METADATA, API_VERSIONS, INIT_PRODUCER_ID = 0, 3, 18, 22
_HIGHEST = {PRODUCE: 13, METADATA: 13, API_VERSIONS: 4, INIT_PRODUCER_ID: 5}
_HEADER = struct.Struct(">ihhih")


class Topic(NamedTuple):
    """A topic of the scripted cluster."""

    partitions_count: int = 1
    topic_id: UUID = UUID(int=1)


class Sent(NamedTuple):
    """A request as it went to the socket: with its size, header and body."""

    api_key: int
    version: int
    frame: bytes
    body_at: int

    def decode(self, message_type):
        return schema.decode_message(message_type, self.version, self.frame, self.body_at)


class ScriptedBroker:
    """The producer's Network and, at once, the only broker behind it."""

    def __init__(
        self,
        topics,
        producer,
        versions,
        answers_produce,
    ):
        self._topics = topics
        self._producer = producer
        self._versions = {**_HIGHEST, **versions}
        self._answers_produce = answers_produce
        self._events = []
        self.sent = []

    def resolve(self, channel_id, host, port):
        self._events.append(Resolved(channel_id, [Address(0, (host, port))]))

    def connect(self, channel_id, address, host):
        self._events.append(Connected(channel_id))

    def send(self, channel_id, buffers):
        frame = b"".join(buffers)
        size, api_key, version, correlation_id, client_id_bytes = _HEADER.unpack_from(frame)
        assert size == len(frame) - 4
        flexible_from = {PRODUCE: 9, METADATA: 9, API_VERSIONS: 3, INIT_PRODUCER_ID: 2}[api_key]
        is_flexible = version >= flexible_from
        request = Sent(api_key, version, frame, _HEADER.size + client_id_bytes + is_flexible)
        self.sent.append(request)
        self._events.append(SendCompleted(channel_id))
        if api_key == PRODUCE and not self._answers_produce:
            return
        out = types.Writer()
        out.tail += struct.pack(">i", correlation_id)
        if is_flexible and api_key != API_VERSIONS:
            out.tail.append(0)
        schema.encode_message(self._answer(request), version, out)
        answer = b"".join(out.buffers())
        self._events.append(Received(channel_id, struct.pack(">i", len(answer)) + answer))

    def poll(self, timeout_ms):
        events, self._events = self._events, []
        return events

    def disconnect(self, channel_id):
        raise AssertionError("the producer closed the connection: something is wrong with it")

    def wakeup(self): ...

    def close(self): ...

    def _answer(self, request):
        if request.api_key == API_VERSIONS:
            return ApiVersionsResponse(
                api_keys=[ApiVersion(key, 0, last) for key, last in self._versions.items()]
            )
        if request.api_key == METADATA:
            return self._metadata(request.decode(MetadataRequest))
        if request.api_key == INIT_PRODUCER_ID:
            return InitProducerIdResponse(
                producer_id=self._producer.producer_id, producer_epoch=self._producer.producer_epoch
            )
        return self._produced(request.decode(ProduceRequest))

    def _metadata(self, request):
        topics = [
            MetadataResponseTopic(
                name=topic.name,
                topic_id=self._topics[topic.name or ""].topic_id,
                partitions=[
                    MetadataResponsePartition(0, index, 1, 0, [1], [1])
                    for index in range(self._topics[topic.name or ""].partitions_count)
                ],
            )
            for topic in request.topics or ()
        ]
        return MetadataResponse(
            brokers=[MetadataResponseBroker(1, "scripted", 9092)], topics=topics
        )

    def _produced(self, request):
        return ProduceResponse(
            [
                TopicProduceResponse(
                    topic.name,
                    topic.topic_id,
                    [PartitionProduceResponse(part.index) for part in topic.partition_data],
                )
                for topic in request.topic_data
            ]
        )


class _SteppingMonitor:
    """Runs the sender where the task would wait for it."""

    def __init__(self, clock):
        self._clock = clock
        self.producer = None

    def __enter__(self):
        return self

    def __exit__(self, *exception): ...

    def wait(self, timeout_ms):
        self._clock.ms += 1
        self.producer.sender.run_once(self._clock.ms)

    def notify_all(self): ...


class Golden:
    """A producer, the broker it writes to, and what it has sent."""

    def __init__(
        self,
        topics=None,
        producer=None,
        first_sequence=0,
        versions=None,
        **options,
    ):
        """``producer`` None: without idempotence. Options: Kafka's, with underscores."""
        values = {"bootstrap.servers": "scripted:9092", "enable.idempotence": "true"}
        if producer is None:
            values["enable.idempotence"] = "false"
        values.update({name.replace("_", "."): str(value) for name, value in options.items()})
        self.config = ProducerConfig.parse(values)
        topics = topics or {"t": Topic()}
        identity = producer or ProducerIdAndEpoch(-1, -1)
        self.broker = ScriptedBroker(topics, identity, versions or {}, self.config.acks != 0)
        clock = SimClock(0)
        monitor = _SteppingMonitor(clock)
        self.producer = KafkaProducer(self.config, self.broker, clock, random.Random(1), monitor)
        monitor.producer = self.producer
        if first_sequence:
            self._begin_at(identity, first_sequence)

    def _begin_at(self, producer, first_sequence):
        """As if 2^31 records had been sent already: there is no other way to get there soon."""
        state = self.producer.sender._state
        assert isinstance(state, ProducerState)
        state.set_producer(producer)
        sequences = state._sequences(TopicPartition("t", 0))
        sequences.producer = producer
        sequences.next_sequence = first_sequence

    def write(self, rows, is_large=False):
        """Append ``rows``, flush, and give the produce requests that this led to."""
        before = len(self.broker.sent)
        self.producer.append(arrow_batch(rows, is_large), PLAN)
        self.producer.flush()
        return [sent for sent in self.broker.sent[before:] if sent.api_key == PRODUCE]

    def write_batch(self, rows, is_large=False):
        """``write`` rows that make a single batch: its bytes."""
        (sent,) = self.write(rows, is_large)
        (topic,) = sent.decode(ProduceRequest).topic_data
        (partition,) = topic.partition_data
        return b"".join(partition.records.buffers)
