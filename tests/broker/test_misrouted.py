"""The address of a broker of Kafka 4.4 leads to another broker, with and without SASL (KIP-1242)."""

import contextlib

import pytest

from spark_kafka_sink.localkafka import LocalSecurity
from spark_kafka_sink.localkafka.settings import MAIN_LISTENER
from tests.broker.producing import batch_of, plan_of, producer_for
from tests.local_kafka import PatientKafka
from tests.patience import NO_OTHER_TIMEOUT, eventually
from tests.proxy import TcpProxy
from tests.reading import read_values

CLEAR, SASL = "FORWARDED", "SASL"
TOPIC = "misrouted"


class Forwarded(PatientKafka):
    """Two brokers, whose forwarders ``targets`` can exchange."""

    def __init__(self, stack):
        self.targets = {1: 1, 2: 2}
        self.forwarders = {
            (listener, broker_id): stack.enter_context(
                TcpProxy(
                    lambda listener=listener, broker_id=broker_id: self.address(
                        self.targets[broker_id], listener
                    )
                )
            )
            for listener in (CLEAR, SASL)
            for broker_id in (1, 2)
        }
        super().__init__(
            2,
            "4.4.0",
            listeners={CLEAR: "PLAINTEXT"},
            security={SASL: LocalSecurity("SASL_PLAINTEXT", ("SCRAM-SHA-512",))},
            advertised={
                listener: [self.forwarders[listener, broker_id].address for broker_id in (1, 2)]
                for listener in (CLEAR, SASL)
            },
        )

    def exchange(self, listener):
        """Connections to the one lead to the other from now on; the open ones are cut."""
        self.targets = {1: self.targets[2], 2: self.targets[1]}
        for broker_id in (1, 2):
            self.forwarders[listener, broker_id].cut()

    def producer(self, listener):
        options = {}
        if listener == SASL:
            options = {
                key.removeprefix("kafka."): value
                for key, value in self.client_options(listener=SASL).items()
            }
            del options["bootstrap.servers"]
        servers = ",".join(self.forwarders[listener, broker_id].address for broker_id in (1, 2))
        return producer_for(servers, **options, **NO_OTHER_TIMEOUT)


@pytest.fixture(scope="module")
def forwarded():
    with contextlib.ExitStack() as stack:
        yield stack.enter_context(Forwarded(stack))


@pytest.mark.parametrize("listener", [CLEAR, SASL])
def test_the_broker_rejects_the_connection_and_no_record_is_lost(forwarded, listener):
    topic = f"{TOPIC}-{listener.lower()}"
    forwarded.create_topic(topic, 2, 1)
    with forwarded.producer(listener) as producer:

        def write(value):
            batch = batch_of(value=[value] * 2, partition=[0, 1])
            producer.append(batch, plan_of(batch, topic))

        def are_rejected():
            nodes = producer._metadata.snapshot.nodes.values()
            reasons = [producer.client.last_failure(node) or "" for node in nodes]
            return all("REBOOTSTRAP_REQUIRED" in reason for reason in reasons)

        write(b"1")
        producer.flush()
        forwarded.exchange(listener)
        write(b"2")
        assert eventually(are_rejected)
        forwarded.exchange(listener)
        producer.flush()
        assert producer.is_healthy
    assert read_values(forwarded.bootstrap_servers_of(MAIN_LISTENER), topic) == [b"1", b"2"] * 2
