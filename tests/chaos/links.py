"""Three brokers whose every word to each other goes through proxies, so that one can be cut off.

Clients reach each broker directly. A broker that is cut off keeps answering them: it does not hear
that others lead now what it has led, and serves what it has. Nothing is closed or refused then:
bytes between it and the others wait, as packets do on a network that is broken.
"""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path
from typing import NamedTuple

from spark_kafka_sink.localkafka import LocalKafka
from spark_kafka_sink.localkafka.settings import CONTROLLER_LISTENER
from tests.local_kafka import PatientKafka
from tests.proxy import TcpProxy

_BROKERS = (1, 2, 3)
_BETWEEN_BROKERS = "INTERNAL"
# Longer than FAST_FAILOVER: heartbeats pass through this process, on a machine that is busy.
_FAILOVER = {
    "broker.session.timeout.ms": "5000",
    "broker.heartbeat.interval.ms": "500",
    "controller.quorum.fetch.timeout.ms": "4000",
    "controller.quorum.election.timeout.ms": "2000",
}


class Links:
    """Which brokers hear each other. ``kafka`` is given when it is made: proxies come first."""

    def __init__(self):
        self._is_connected = {broker_id: threading.Event() for broker_id in _BROKERS}
        for event in self._is_connected.values():
            event.set()
        self._process_of = lambda _: -1

    def know(self, kafka):
        """Whose processes the brokers are."""
        self._process_of = kafka.process_id

    @contextlib.contextmanager
    def cut_off(self, broker_id):
        """Nothing passes between ``broker_id`` and the others, in either direction."""
        self._is_connected[broker_id].clear()
        try:
            yield
        finally:
            self._is_connected[broker_id].set()

    def await_link(self, source, target):
        """Wait until what ``source`` and ``target`` tell each other may pass."""
        if source != target:
            for end in (source, target):
                if end is not None:
                    self._is_connected[end].wait()

    def broker_at(self, port, connected_to):
        """The broker that has a connection from one port to the other; None: it is gone again."""
        wanted = {f"socket:[{inode}]" for inode in _inodes(port, connected_to)}
        for broker_id in _BROKERS:
            folder = Path("/proc", str(self._process_of(broker_id)), "fd")
            with contextlib.suppress(FileNotFoundError):
                for descriptor in os.listdir(folder):
                    with contextlib.suppress(FileNotFoundError):
                        if os.readlink(folder / descriptor) in wanted:
                            return broker_id
        return None


def _inodes(port, connected_to):
    """Of sockets with these ports. Quicker than psutil, which tells of all connections."""
    for name in ("tcp", "tcp6"):
        for line in Path("/proc/net", name).read_text(encoding="ascii").splitlines()[1:]:
            _, mine, theirs, *others = line.split()
            if mine.endswith(f":{port:04X}") and theirs.endswith(f":{connected_to:04X}"):
                yield others[6]


class _Link(TcpProxy):
    """In front of the listener of one broker: which other one connects, its process tells."""

    def __init__(self, links, broker_id, target):
        self._links = links
        self._broker_id = broker_id
        super().__init__(target)

    def _passage_of(self, client):
        source = self._links.broker_at(client.getpeername()[1], self.port)
        return lambda: self._links.await_link(source, self._broker_id)


class LinkedBrokers(NamedTuple):
    """Clients find the brokers of ``kafka`` at its ``bootstrap_servers``."""

    kafka: LocalKafka
    links: Links


@contextlib.contextmanager
def linked_brokers(version):
    """Three brokers that hear each other through links only."""
    links = Links()
    with contextlib.ExitStack() as stack:

        def link(broker_id, address_of):
            return stack.enter_context(_Link(links, broker_id, lambda: address_of(broker_id)))

        internal = [link(b, lambda i: kafka.address(i, _BETWEEN_BROKERS)) for b in _BROKERS]
        quorum = [link(b, lambda i: kafka.controller_address(i)) for b in _BROKERS]
        voters = [f"{b}@{proxy.address}" for b, proxy in zip(_BROKERS, quorum)]
        kafka = PatientKafka(
            len(_BROKERS),
            version=version,
            jvm_options=(),  # it runs for half an hour: Java's slower compiler is worth its time
            server_properties={
                **_FAILOVER,
                "inter.broker.listener.name": _BETWEEN_BROKERS,
                "controller.quorum.voters": ",".join(voters),
            },
            listeners={_BETWEEN_BROKERS: "PLAINTEXT"},
            advertised={
                _BETWEEN_BROKERS: [proxy.address for proxy in internal],
                CONTROLLER_LISTENER: [proxy.address for proxy in quorum],
            },
        )
        links.know(kafka)
        yield LinkedBrokers(stack.enter_context(kafka), links)
