"""``pykafka-sink check`` while a broker fails: each check still has its finding."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from spark_kafka_sink.base.errors import AuthenticationError
from spark_kafka_sink.base.model import Node
from spark_kafka_sink.client.admin import DEFAULT_SETTINGS, AdminClient
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.config.sink_options import SinkOptions
from spark_kafka_sink.protocol import schema
from spark_kafka_sink.protocol.connection import SaslClient
from spark_kafka_sink.protocol.messages.inspection import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
)
from spark_kafka_sink.protocol.messages.topics import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from spark_kafka_sink.tools.check_cluster import (
    Finding,
    Outcome,
    bootstrap_addresses,
    broker_addresses,
    write_record,
)
from spark_kafka_sink.tools.checks import cluster_checks
from tests.simulation.time import SimClock
from tests.unit.scripted_network import Asked, LoseConnection, ScriptedNetwork, Silence

NODE = Node(1, "broker", 9092)
REQUESTS = (
    MetadataRequest,
    DescribeQuorumRequest,
    DescribeConfigsRequest,
    DescribeClientQuotasRequest,
)
OFFERED = {request: (request.min_version, request.max_version) for request in REQUESTS}
OPTIONS = SinkOptions.parse(
    {
        "kafka.bootstrap.servers": "broker:9092",
        "topic": "flights",
        "topic.creation.enable": "true",
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": "letters",
    }
)
MISSING = 3  # UNKNOWN_TOPIC_OR_PARTITION


class FailingBroker:
    """A broker that answers ``healthy`` requests, and then fails. missing: no topic exists."""

    def __init__(self, healthy: int, failure: type[Exception], missing: bool = False) -> None:
        self.healthy, self.failure, self.missing = healthy, failure, missing
        self.clock = SimClock(0)
        self.network = ScriptedNetwork({1: NODE}, self.clock, self._answer, OFFERED)
        self.admin = AdminClient(
            [("broker", 9092)], DEFAULT_SETTINGS, self.network, self.clock, random.Random(1)
        )

    def findings(self) -> list[Finding]:
        with self.admin:
            return list(cluster_checks(self.admin, OPTIONS, self.clock))

    def _answer(self, asked: Asked) -> schema.Message:
        if len(self.network.asked) > self.healthy:
            if self.failure is LoseConnection:
                self.network.down.add(1)
            raise self.failure
        request = asked.request
        if isinstance(request, MetadataRequest):
            topics = [self._topic(topic.name) for topic in request.topics or ()]
            return MetadataResponse(brokers=[MetadataResponseBroker(*NODE[:3])], topics=topics)
        if isinstance(request, DescribeConfigsRequest):
            configs = [DescribeConfigsResourceResult("min.insync.replicas", "1")]
            return DescribeConfigsResponse(0, [DescribeConfigsResult(0, None, 2, "t", configs)])
        if isinstance(request, DescribeQuorumRequest):
            return DescribeQuorumResponse()
        return DescribeClientQuotasResponse(entries=[])

    def _topic(self, name: str | None) -> MetadataResponseTopic:
        if self.missing:
            return MetadataResponseTopic(MISSING, name)
        partition = MetadataResponsePartition(0, 0, 1, 0, [1], [1], [])
        return MetadataResponseTopic(
            0, name, partitions=[partition], topic_authorized_operations=1 << 4
        )


def subjects(findings: Sequence[Finding]) -> set[str]:
    return {finding.subject for finding in findings}


CHECKED = {"clock", "topic flights", "topic letters", "quotas"}


@pytest.mark.parametrize("failure", [LoseConnection, Silence])
@pytest.mark.parametrize("missing", [False, True])
def test_each_check_has_a_finding(failure: type[Exception], missing: bool) -> None:
    """The broker fails at the first request, at the second, …, and at none."""
    healthy = FailingBroker(1000, failure, missing)
    everything = healthy.findings()
    count = len(healthy.network.asked)
    assert subjects(everything) >= CHECKED
    for answered in range(count):
        found = FailingBroker(answered, failure, missing).findings()
        assert subjects(found) >= CHECKED, answered
        assert found != everything, answered


def test_rights_that_cannot_be_read_are_unknown() -> None:
    """The topic was described before: only its rights are missing."""
    broker = FailingBroker(3, LoseConnection)
    found = {finding.subject: finding for finding in broker.findings()}
    assert found["topic flights"].outcome is Outcome.PASSED
    assert found["rights on topic flights"].outcome is Outcome.UNKNOWN
    assert found["topic letters"].outcome is Outcome.FAILED
    assert "broker:9092" in found["topic letters"].text


def test_a_broker_that_refuses_connections() -> None:
    broker = FailingBroker(0, LoseConnection)
    broker.network.down.add(1)
    with broker.admin as admin:
        (found,) = bootstrap_addresses(admin, OPTIONS.producer.security, 1000)
    assert (found.outcome, found.subject) == (Outcome.FAILED, "bootstrap broker:9092")
    assert found.text == "Connection refused [PKS-CONNECT-001]"


def test_a_login_that_brokers_reject_after_the_first_address() -> None:
    def reject(host: str) -> SaslClient:
        raise AuthenticationError(f"{host}: the token has expired")

    broker = FailingBroker(1000, Silence)
    bootstrap = [(NODE.host, NODE.port)]
    network, clock, rng = broker.network, broker.clock, random.Random(1)
    with AdminClient(bootstrap, DEFAULT_SETTINGS, network, clock, rng, reject) as admin:
        (found,) = broker_addresses(admin, 1000)
    assert (found.outcome, found.subject) == (Outcome.FAILED, "cluster")
    assert "the token has expired" in found.text


def test_a_producer_that_cannot_log_in() -> None:
    """For example, the token endpoint has failed since the first checks."""
    config = ProducerConfig.parse(
        {
            "bootstrap.servers": "broker:9092",
            "security.protocol": "SSL",
            "ssl.truststore.location": "/missing/truststore.pem",
            "ssl.truststore.type": "PEM",
        }
    )
    (found,) = write_record(config, "flights", SimClock(0))
    assert (found.outcome, found.subject) == (Outcome.FAILED, "test record to flights")
    assert "/missing/truststore.pem" in found.text
