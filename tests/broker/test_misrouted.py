"""The address of a broker of Kafka 4.4 leads to another broker (KIP-1242). Logins: tests/simulation/test_changed_clusters.py."""

import contextlib
import json

import pytest

from tests.broker.producing import batch_of, plan_of, producer_for
from tests.local_kafka import QUICK_START, PatientKafka
from tests.patience import NO_OTHER_TIMEOUT, eventually
from tests.proxy import TcpProxy
from tests.reading import read_values

LISTENER = "FORWARDED"
TOPIC = "misrouted"
UNCHECKED = (
    {"metadata_cluster_check_enable": "false"},
    {"metadata_recovery_strategy": "none"},
)
"""Options that switch the check off."""
REQUEST_LOG = "-Dorg.slf4j.simpleLogger.log.kafka.request.logger=debug"
"""Lets brokers log each request with its response."""
NOT_LEADER = 6


class Forwarded(PatientKafka):
    """Two brokers, whose forwarders ``targets`` can exchange."""

    def __init__(self, stack):
        self.targets = {1: 1, 2: 2}
        self.forwarders = [
            stack.enter_context(TcpProxy(lambda b=b: self.address(self.targets[b], LISTENER)))
            for b in (1, 2)
        ]
        self.forwarded_servers = ",".join(one.address for one in self.forwarders)
        super().__init__(
            2,
            "4.4.0",
            listeners={LISTENER: "PLAINTEXT"},
            advertised={LISTENER: self.forwarded_servers.split(",")},
            jvm_options=(*QUICK_START, REQUEST_LOG),
        )

    def exchange(self):
        """Connections to the one lead to the other from now on; the open ones are cut."""
        self.targets = {1: self.targets[2], 2: self.targets[1]}
        for forwarder in self.forwarders:
            forwarder.cut()

    def misrouted_count(self, client_id):
        """How many of a client's Produce requests the wrong broker got, by the brokers' logs."""
        return sum(
            any(p["errorCode"] == NOT_LEADER for r in responses for p in r["partitionResponses"])
            for broker_id in self.broker_ids
            for responses in produced(self.log_file(broker_id), client_id)
        )

    def producer(self, **options):
        return producer_for(self.forwarded_servers, **options, **NO_OTHER_TIMEOUT)


def produced(log_file, client_id):
    """The responses of a broker to a client's Produce requests, by its request log."""
    for line in log_file.read_text(encoding="utf-8").split("\n")[:-1]:
        _, is_request, text = line.partition("Completed request:")
        if is_request and '"PRODUCE"' in text:
            completed = json.loads(text)
            if completed["requestHeader"]["clientId"] == client_id:
                yield completed["response"]["responses"]


@pytest.fixture(scope="module")
def forwarded():
    with contextlib.ExitStack() as stack:
        yield stack.enter_context(Forwarded(stack))


def write(producer, topic, value):
    batch = batch_of(value=[value] * 2, partition=[0, 1])
    producer.append(batch, plan_of(batch, topic))


def test_the_broker_rejects_the_connection_and_no_record_is_lost(forwarded):
    forwarded.create_topic(TOPIC, 2, 1)
    with forwarded.producer(client_id=TOPIC) as producer:

        def are_rejected():
            nodes = producer._metadata.snapshot.nodes.values()
            reasons = [producer.client.last_failure(node) or "" for node in nodes]
            return all("REBOOTSTRAP_REQUIRED" in reason for reason in reasons)

        write(producer, TOPIC, b"1")
        producer.flush()
        before = forwarded.misrouted_count(TOPIC)
        forwarded.exchange()
        write(producer, TOPIC, b"2")
        assert eventually(are_rejected)
        forwarded.exchange()
        producer.flush()
        assert producer.is_healthy
    assert forwarded.misrouted_count(TOPIC) == before
    assert read_values(forwarded.bootstrap_servers, TOPIC) == [b"1", b"2"] * 2


@pytest.mark.parametrize("unchecked", UNCHECKED)
def test_without_the_check_the_wrong_broker_gets_the_records(forwarded, unchecked):
    """The test above could not fail otherwise."""
    topic = f"{TOPIC}-{UNCHECKED.index(unchecked)}"
    forwarded.create_topic(topic, 2, 1)
    with forwarded.producer(client_id=topic, **unchecked) as producer:
        write(producer, topic, b"1")
        producer.flush()
        before = forwarded.misrouted_count(topic)
        forwarded.exchange()
        write(producer, topic, b"2")
        assert eventually(lambda: forwarded.misrouted_count(topic) > before)
        forwarded.exchange()
        producer.flush()
        assert producer.is_healthy
    assert read_values(forwarded.bootstrap_servers, topic) == [b"1", b"2"] * 2
