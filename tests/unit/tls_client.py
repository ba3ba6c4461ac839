"""A network with TLS, and its one channel."""

import socket
import ssl
import time

from spark_kafka_sink.network.interface import Address, Disconnected, Received
from spark_kafka_sink.network.tls import TlsChannels
from spark_kafka_sink.network.transport import SelectorNetwork
from tests.unit.tls_server import DEADLINE_S, HOST, client_context

CHANNEL = 7


def explain(error, host, port):
    return f"{host}: {error}"


class Client:
    """A network, and its one channel."""

    def __init__(self, context=None):
        context = client_context() if context is None else context
        self.network = SelectorNetwork(open_channel=TlsChannels(lambda: context, explain))

    def connect(self, server, host=HOST):
        """The first event: Connected or Disconnected."""
        self.network.connect(CHANNEL, Address(socket.AF_INET, server.address), host)
        return self.until(bool)[0]

    def until(self, is_done, poll_ms=1_000):
        """All events up to the one after which ``is_done(events)``."""
        events = []
        deadline = time.monotonic() + DEADLINE_S
        while not is_done(events):
            assert time.monotonic() < deadline, f"only {events}"
            events += self.network.poll(poll_ms)
        return events

    def until_lost(self):
        event = self.until(lambda events: any(isinstance(e, Disconnected) for e in events))[-1]
        assert isinstance(event, Disconnected)
        return event

    def until_received(self, size):
        return received(self.until(lambda events: len(received(events)) >= size))


def received(events):
    return b"".join(event.data for event in events if isinstance(event, Received))


def limited(context, version):
    context.maximum_version = context.minimum_version = ssl.TLSVersion[version]
    return context
