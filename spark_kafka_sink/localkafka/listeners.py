"""Where the brokers of a local Kafka are to be reached: listeners, ports, what clients are told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from spark_kafka_sink.base.model import format_address
from spark_kafka_sink.localkafka import settings
from spark_kafka_sink.localkafka.errors import LocalKafkaError
from spark_kafka_sink.localkafka.ports import free_ports


class Listeners:
    """Those for clients, the same on every broker, and the one of the Raft quorum.

    protocols : security protocol by name; the first is the one that clients get if they name none.
    advertised : by name, what clients are told instead of the brokers' addresses.
    """

    def __init__(
        self,
        broker_ids: Sequence[int],
        protocols: Mapping[str, str],
        advertised: Mapping[str, Sequence[str]],
    ) -> None:
        self._broker_ids = tuple(broker_ids)
        self._protocols = dict(protocols)
        self._advertised = dict(advertised)
        self._ports: dict[int, settings.BrokerPorts] = {}

    def choose_ports(self) -> None:
        """Other ports than before, free at the moment."""
        ports = iter(free_ports(len(self._broker_ids) * (1 + len(self._protocols)), settings.HOST))
        for broker_id in self._broker_ids:
            clients = {listener: next(ports) for listener in self._protocols}
            self._ports[broker_id] = settings.BrokerPorts(next(ports), clients)

    def address(self, broker_id: int, listener: str | None = None) -> tuple[str, int]:
        """Host and port. Raises LocalKafkaError if there is no such listener."""
        name = next(iter(self._protocols)) if listener is None else listener
        if name not in self._protocols:
            known = ", ".join(self._protocols)
            raise LocalKafkaError(f"there is no listener {name}, only {known}")
        return settings.HOST, self._ports[broker_id].listeners[name]

    def controller_address(self, broker_id: int) -> tuple[str, int]:
        return settings.HOST, self._ports[broker_id].controller

    def bootstrap_servers(self, listener: str | None = None) -> str:
        """``host:port`` of every broker, separated by commas."""
        addresses = (self.address(broker_id, listener) for broker_id in self._broker_ids)
        return ",".join(format_address(host, port) for host, port in addresses)

    def server_properties(self, broker_id: int, data_directory: Path) -> dict[str, str]:
        """What a broker is told of itself and the others."""
        index = self._broker_ids.index(broker_id)
        told = {listener: addresses[index] for listener, addresses in self._advertised.items()}
        return settings.server_properties(
            broker_id, self._ports, self._protocols, data_directory, told
        )
