"""Free TCP ports for brokers."""

from __future__ import annotations

import os
import socket
from contextlib import ExitStack
from pathlib import Path
from random import SystemRandom

from spark_kafka_sink.localkafka.errors import LocalKafkaError

PORTS_VARIABLE = "PYKAFKA_SINK_PORTS"
"""Environment variable: from which port to which brokers may choose, such as ``15000-20000``."""

_FIRST_PORT = 15000
_USUAL_FIRST_EPHEMERAL_PORT = 32768
_RANGE_FILE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_ATTEMPTS = 1000


def free_ports(count: int, host: str) -> list[int]:
    """``count`` different ports of ``host`` that no process listens on at the moment.

    They lie below the range from which the operating system takes ports for outgoing connections:
    a broker must find its port free again after a restart, and a client that connects to a closed
    port of that range can be connected to itself. Nothing reserves the ports, another
    process may still be faster. Processes that stop brokers and start them again beside each other
    keep out of each other's way with ``PORTS_VARIABLE``.
    """
    candidates = usual_ports() if PORTS_VARIABLE not in os.environ else _given_ports()
    random = SystemRandom()
    ports: list[int] = []
    with ExitStack() as held:
        for _ in range(_ATTEMPTS):
            if len(ports) == count:
                break
            sock = held.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
            try:
                # Port 0: any port, where the machine leaves none below the ephemeral range.
                sock.bind((host, random.choice(candidates) if candidates else 0))
            except OSError:
                continue
            ports.append(sock.getsockname()[1])
    if len(ports) < count:
        raise OSError(f"no {count} free ports on {host}")
    return ports


def usual_ports() -> range:
    """Those that nobody else is likely to take."""
    return range(_FIRST_PORT, _first_ephemeral_port())


def _given_ports() -> range:
    text = os.environ[PORTS_VARIABLE]
    first, dash, last = text.partition("-")
    if not (dash and first.isdecimal() and last.isdecimal() and int(first) <= int(last)):
        raise LocalKafkaError(f"{PORTS_VARIABLE} is {text!r}, not a range such as 15000-20000")
    return range(int(first), int(last) + 1)


def _first_ephemeral_port() -> int:
    try:
        return int(_RANGE_FILE.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return _USUAL_FIRST_EPHEMERAL_PORT
