"""Simulated host names: look-ups that take long, names without an address, and addresses that change."""

from __future__ import annotations

from spark_kafka_sink.network.interface import Address

NO_ADDRESS = "Temporary failure in name resolution"


class NameServer:
    """Answers with what is true when it is asked, however long the answer takes.

    addresses: by name; a name that is not there is its own address
    takes_ms: names whose look-up takes long, and how long
    unknown: names that have no address
    silent: addresses that do not answer whoever connects
    """

    def __init__(self) -> None:
        self.addresses: dict[str, list[str]] = {}
        self.takes_ms: dict[str, int] = {}
        self.unknown: set[str] = set()
        self.silent: set[str] = set()

    def look_up(self, host: str, port: int) -> list[Address] | OSError:
        if host in self.unknown:
            return OSError(NO_ADDRESS)
        return [Address(0, (address, port)) for address in self.addresses.get(host, [host])]

    def heal(self) -> None:
        """Quick answers for all names, and nobody is silent."""
        self.takes_ms.clear()
        self.unknown.clear()
        self.silent.clear()
