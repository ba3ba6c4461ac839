"""A real producer in one thread, whose network is a scripted broker that keeps what it gets.

Rows go the whole way: Arrow columns, kernels, open batches, compression, sequences, drain, request,
frame. Only sockets, threads and time are missing.
"""

from __future__ import annotations

import random
from typing import NamedTuple
from uuid import UUID

from spark_kafka_sink.base.model import Node, ProducerIdAndEpoch, TopicPartition
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.producer.producer import KafkaProducer
from spark_kafka_sink.producer.sequences import ProducerState
from spark_kafka_sink.protocol import schema
from spark_kafka_sink.protocol.messages import topics as topic_api
from spark_kafka_sink.protocol.messages.transactions import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from tests.golden.case_files import PLAN, arrow_batch
from tests.simulation.time import SimClock
from tests.unit.frames import read_request
from tests.unit.scripted_network import ScriptedNetwork, Silence

PRODUCE, METADATA, API_VERSIONS, INIT_PRODUCER_ID = 0, 3, 18, 22
_HIGHEST = {topic_api.ProduceRequest: 13, topic_api.MetadataRequest: 13, InitProducerIdRequest: 5}


class Topic(NamedTuple):
    """A topic of the scripted cluster."""

    partitions_count: int = 1
    topic_id: UUID = UUID(int=1)


class Sent(NamedTuple):
    """A request as it went to the socket, with its size and header; and what it says."""

    api_key: int
    version: int
    frame: bytes
    request: schema.Request


class ScriptedBroker(ScriptedNetwork):
    """The producer's Network and, at once, the only broker behind it."""

    def __init__(self, topics, producer, versions, answers_produce):
        offered = {
            kind: (0, versions.get(kind.api_key, highest)) for kind, highest in _HIGHEST.items()
        }
        super().__init__({1: Node(1, "scripted", 9092)}, SimClock(0), self._answer, offered)
        self._topics = topics
        self._producer = producer
        self._answers_produce = answers_produce
        self.sent = []

    def send(self, channel_id, buffers):
        frame = b"".join(buffers)
        request, version, _ = read_request([frame], self.offered)
        self.sent.append(Sent(request.api_key, version, frame, request))
        return super().send(channel_id, [frame])

    def disconnect(self, channel_id):
        raise AssertionError("the producer closed the connection: something is wrong with it")

    def _answer(self, asked):
        request = asked.request
        if isinstance(request, topic_api.MetadataRequest):
            topics = [self._described(topic.name) for topic in request.topics or ()]
            node = topic_api.MetadataResponseBroker(1, "scripted", 9092)
            return topic_api.MetadataResponse(brokers=[node], topics=topics)
        if isinstance(request, InitProducerIdRequest):
            return InitProducerIdResponse(0, 0, *self._producer)
        if not self._answers_produce:
            raise Silence
        return topic_api.ProduceResponse(
            [
                topic_api.TopicProduceResponse(
                    topic.name,
                    topic.topic_id,
                    [topic_api.PartitionProduceResponse(p.index) for p in topic.partition_data],
                )
                for topic in request.topic_data
            ]
        )

    def _described(self, name):
        topic = self._topics[name]
        partitions = [
            topic_api.MetadataResponsePartition(0, index, 1, 0, [1], [1])
            for index in range(topic.partitions_count)
        ]
        return topic_api.MetadataResponseTopic(0, name, topic.topic_id, partitions=partitions)


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

    def __init__(self, topics=None, producer=None, first_sequence=0, versions=None, **options):
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
        (topic,) = sent.request.topic_data
        (partition,) = topic.partition_data
        return b"".join(partition.records.buffers)
