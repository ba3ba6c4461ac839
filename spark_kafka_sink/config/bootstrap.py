"""``bootstrap.servers``: a list of addresses as text.

Source: ``ClientUtils.parseAndValidateAddresses``, ``Utils.HOST_PORT_PATTERN`` of Kafka 4.3.
"""

from __future__ import annotations

import re

from spark_kafka_sink.base.errors import ConfigError

_ADDRESS = re.compile(r"(?:\[(?P<bracketed>[^\[\]]+)\]|(?P<plain>[^\[\]:]+)):(?P<port>[0-9]+)")
_PROTOCOL = re.compile(r"(?P<name>[0-9A-Za-z%._-]*)://")
_MAX_PORT = 65535


def parse_bootstrap_servers(text: str, option: str = "bootstrap.servers") -> list[tuple[str, int]]:
    """Hosts and ports of ``"host:port,[::1]:9092"``, in order, each once.

    A protocol before an address, as in ``SASL_SSL://host:9092``, means nothing, as in Java.

    Raises ConfigError, which names the ``option`` and the entry, for whatever is not ``host:port``.
    """
    entries = [entry.strip() for entry in text.split(",")]
    addresses = [_parse_address(entry, option) for entry in entries if entry]
    if not addresses:
        raise ConfigError(f"{option} names no broker: expected host:port,host:port")
    return list(dict.fromkeys(addresses))


def _parse_address(entry: str, option: str) -> tuple[str, int]:
    match = _ADDRESS.fullmatch(entry, _start(entry))
    if match is None or "/" in match[0] or any(character.isspace() for character in entry):
        raise ConfigError(f"{option}: '{entry}' is not host:port{_hint(entry[_start(entry) :])}")
    port = int(match["port"])
    if not 0 < port <= _MAX_PORT:
        raise ConfigError(f"{option}: '{entry}' has a port outside 1 to {_MAX_PORT}")
    return match["bracketed"] or match["plain"], port


def protocols_in(text: str) -> list[str]:
    """The protocols that stand before addresses in a list of them, in upper case."""
    found = (_PROTOCOL.match(entry.strip()) for entry in text.split(","))
    return [match["name"].upper() for match in found if match is not None]


def _start(entry: str) -> int:
    """Where the address begins."""
    match = _PROTOCOL.match(entry)
    return 0 if match is None else match.end()


def _hint(entry: str) -> str:
    """What is most likely wrong with ``entry``."""
    if "/" in entry:
        return ": a broker address has no path"
    if any(character in entry for character in "; \t\n"):
        return ": separate addresses with commas"
    if entry.count(":") > 1 and "[" not in entry:
        return ": write an IPv6 address in brackets, like [::1]:9092"
    if ":" not in entry.rpartition("]")[2]:
        return f": the port is missing, write {entry}:9092 if the broker uses Kafka's usual port"
    if entry.startswith(":"):
        return ": the host is missing"
    return ": the port must be a number"
