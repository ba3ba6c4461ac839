"""A network with TLS, and its one channel."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable
from typing import Any

from spark_kafka_sink.network.interface import Address, Disconnected, NetworkEvent, Received
from spark_kafka_sink.network.tls import TlsChannels
from spark_kafka_sink.network.transport import SelectorNetwork
from tests.unit.tls_server import DEADLINE_S, HOST, TlsServer, client_context

CHANNEL = 7


def explain(error: ssl.SSLError | OSError, host: str, port: int) -> str:
    return f"{host}: {error}"


class Client:
    """A network, and its one channel."""

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        context = client_context() if context is None else context
        self.network = SelectorNetwork(open_channel=TlsChannels(lambda: context, explain))

    def connect(self, server: TlsServer, host: str = HOST) -> NetworkEvent:
        """The first event: Connected or Disconnected."""
        self.network.connect(CHANNEL, Address(socket.AF_INET, server.address), host)
        return self.until(bool)[0]

    def until(
        self, is_done: Callable[[list[NetworkEvent]], Any], poll_ms: int = 1_000
    ) -> list[NetworkEvent]:
        """All events up to the one after which ``is_done(events)``."""
        events: list[NetworkEvent] = []
        deadline = time.monotonic() + DEADLINE_S
        while not is_done(events):
            assert time.monotonic() < deadline, f"only {events}"
            events += self.network.poll(poll_ms)
        return events

    def until_lost(self) -> Disconnected:
        event = self.until(lambda events: any(isinstance(e, Disconnected) for e in events))[-1]
        assert isinstance(event, Disconnected)
        return event

    def until_received(self, size: int) -> bytes:
        return received(self.until(lambda events: len(received(events)) >= size))


def received(events: list[NetworkEvent]) -> bytes:
    return b"".join(event.data for event in events if isinstance(event, Received))


def limited(context: ssl.SSLContext, version: str) -> ssl.SSLContext:
    context.maximum_version = context.minimum_version = ssl.TLSVersion[version]
    return context
