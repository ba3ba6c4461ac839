"""``LocalKafka.create_topic`` against a scripted broker that answers late."""

import random

import pytest

from spark_kafka_sink.base.model import Node
from spark_kafka_sink.client.admin import DEFAULT_SETTINGS, AdminClient
from spark_kafka_sink.localkafka import LocalKafka, LocalKafkaError
from spark_kafka_sink.protocol.messages.topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)
from tests.simulation.time import SimClock
from tests.unit.scripted_network import ScriptedNetwork

NODE = Node(1, "broker", 9092)
OFFERED = {
    request: (request.min_version, request.max_version)
    for request in (MetadataRequest, CreateTopicsRequest)
}
LATE_MS = 8_000
UNKNOWN_TOPIC = 3


class LateKafka(LocalKafka):
    """Needs 8 s to describe the topic and 8 s to create it, and never shows it."""

    def __init__(self, log_file):
        super().__init__()
        self.clock = SimClock(0)
        self._clock = self.clock
        self._log_file = log_file

    def _answer(self, asked):
        request = asked.request
        if isinstance(request, CreateTopicsRequest):
            self.clock.ms += LATE_MS
            return CreateTopicsResponse(topics=[CreatableTopicResult(name="t")])
        assert isinstance(request, MetadataRequest)
        brokers = [MetadataResponseBroker(*NODE[:3])]
        if not request.topics:
            return MetadataResponse(brokers=brokers)
        self.clock.ms += LATE_MS
        topics = [MetadataResponseTopic(UNKNOWN_TOPIC, topic.name) for topic in request.topics]
        return MetadataResponse(brokers=brokers, topics=topics)

    def _running(self):
        return [1]

    def _admin(self, broker_ids, request_timeout_ms=2_000):
        network = ScriptedNetwork({1: NODE}, self.clock, self._answer, OFFERED)
        settings = DEFAULT_SETTINGS._replace(request_timeout_ms=60_000)
        rng = random.Random(1)
        return AdminClient([(NODE.host, NODE.port)], settings, network, self.clock, rng)

    def log_file(self, broker_id):
        return self._log_file

    def await_failure(self, timeout_ms):
        self.clock.ms += timeout_ms
        return None


def test_one_timeout_for_all_requests(tmp_path):
    """Asking for the topic takes 8 s and creating it too: 4 s are left until all brokers know it."""
    kafka = LateKafka(tmp_path / "broker.log")
    with pytest.raises(LocalKafkaError, match="topic t not ready within 20000 ms"):
        kafka.create_topic("t", timeout_ms=20_000)
    assert 20_000 <= kafka.clock.ms <= 20_100
