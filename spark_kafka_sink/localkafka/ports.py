"""Free TCP ports for brokers."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from pathlib import Path
from random import SystemRandom

_FIRST_PORT = 15000
_USUAL_FIRST_EPHEMERAL_PORT = 32768
_RANGE_FILE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_ATTEMPTS = 1000


def free_ports(count: int, host: str) -> list[int]:
    """``count`` different ports of ``host`` that no process listens on at the moment.

    They lie below the range from which the operating system takes ports for outgoing connections:
    a broker must find its port free again after a restart, and a client that connects to a closed
    port of that range can be connected to itself. Nothing reserves the ports, another
    process may still be faster.
    """
    candidates = range(_FIRST_PORT, _first_ephemeral_port())
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


def _first_ephemeral_port() -> int:
    try:
        return int(_RANGE_FILE.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return _USUAL_FIRST_EPHEMERAL_PORT
