"""Clusters that more than one module of this folder uses."""

import contextlib
import socket

import pytest

from tests.local_kafka import PatientKafka
from tests.proxy import TcpProxy

FORWARDED = "FORWARDED"


def _ipv6_loopback():
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return None
    return "::1"


IPV6_LOOPBACK = _ipv6_loopback()
"""None where the machine has no IPv6, as in many containers."""


class Pair(PatientKafka):
    """Two brokers, each also to be had through a forwarder, at an IPv6 address if possible.

    Clients that bootstrap at ``forwarded_servers`` get to know the forwarders' addresses alone.
    """

    def __init__(self, stack):
        host = IPV6_LOOPBACK or "127.0.0.1"
        self.forwarders = {
            broker_id: stack.enter_context(
                TcpProxy(lambda broker_id=broker_id: self.address(broker_id, FORWARDED), host)
            )
            for broker_id in (1, 2)
        }
        super().__init__(
            2,
            listeners={FORWARDED: "PLAINTEXT"},
            advertised={FORWARDED: [f.address for f in self.forwarders.values()]},
        )

    @property
    def forwarded_servers(self):
        return ",".join(forwarder.address for forwarder in self.forwarders.values())


@pytest.fixture(scope="session")
def pair():
    """Two brokers for the session. Leave both running; give topics names of your own."""
    with contextlib.ExitStack() as stack:
        yield stack.enter_context(Pair(stack))


@pytest.fixture(scope="session")
def kafka_3_9():
    """One broker of the oldest Kafka that is tested, for the session. Creates no topics itself.

    Whoever stops it starts it again.
    """
    properties = {"auto.create.topics.enable": "false"}
    with PatientKafka(version="3.9.1", server_properties=properties) as local_kafka:
        yield local_kafka
