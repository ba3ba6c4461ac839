"""Looks host names up in threads of its own: the operating system's call waits for the name server,
for a minute and more if that does not answer.

Source: ``ClientUtils.resolve``, which waits, ``ClientUtils.parseAndValidateAddresses``.
"""

from __future__ import annotations

import socket
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple, Optional, Union

from spark_kafka_sink.base.printable import shown
from spark_kafka_sink.network.interface import Address

# A cluster may have hundreds of brokers: not a thread for each.
_MOST_THREADS = 8

OnFound = Callable[[Union[list[Address], OSError]], None]
"""Called with at least one address, or with the reason why there is none."""


class LookUp(NamedTuple):
    """A name that is to be looked up, and who wants to know."""

    host: str
    port: int
    on_found: OnFound


Take = Callable[[], Optional[LookUp]]
"""The next look-up; None ends the thread that asks."""


def _in_a_thread(take: Take) -> None:
    """Raises RuntimeError when the operating system gives no more threads."""
    thread = threading.Thread(
        target=_look_up_all, args=(take,), name="pykafka-sink-resolver", daemon=True
    )
    thread.start()


def _look_up_all(take: Take) -> None:
    while (asked := take()) is not None:
        asked.on_found(look_up(asked.host, asked.port))


class Resolver:
    """Looks names up without making the caller wait. A few slow names do not hold up the others."""

    def __init__(self, begin: Callable[[Take], None] = _in_a_thread) -> None:
        """``begin``: starts what looks up one name after the other; tests simulate the thread."""
        self._begin = begin
        self._lock = threading.Lock()
        self._waiting: deque[LookUp] = deque()
        self._threads_count = 0

    def resolve(self, host: str, port: int, on_found: OnFound) -> None:
        """Call ``on_found``: before this returns for an IP address, else from another thread."""
        addresses = _numeric_addresses(host, port)
        if addresses:
            on_found(addresses)
            return
        with self._lock:
            self._waiting.append(LookUp(host, port, on_found))
            if self._threads_count >= _MOST_THREADS:
                return
            self._threads_count += 1
        try:
            self._begin(self._next)
        except RuntimeError as error:
            self._give_up(OSError(str(error)))

    def close(self) -> None:
        """Look up nothing more. Look-ups under way end by themselves."""
        with self._lock:
            self._waiting.clear()

    def _next(self) -> LookUp | None:
        with self._lock:
            if self._waiting:
                return self._waiting.popleft()
            self._threads_count -= 1
            return None

    def _give_up(self, error: OSError) -> None:
        """A thread could not be started. If there is no other, all look-ups fail with ``error``."""
        with self._lock:
            self._threads_count -= 1
            failed = [] if self._threads_count else list(self._waiting)
            if failed:
                self._waiting.clear()
        for waiting in failed:
            waiting.on_found(error)


def look_up(host: str, port: int) -> list[Address] | OSError:
    """All addresses of ``host``, in the operating system's order. Waits for a name server."""
    try:
        return _addresses(host, port)
    except OSError as error:
        return error
    except UnicodeError as error:  # an empty label, or one of more than 63 characters
        return OSError(shown(error))


def _numeric_addresses(host: str, port: int) -> list[Address]:
    """The address if ``host`` is one; empty if it is a name. Does not wait."""
    try:
        return _addresses(host, port, socket.AI_NUMERICHOST)
    except (OSError, UnicodeError):
        return []


def _addresses(host: str, port: int, flags: int = 0) -> list[Address]:
    if not host.isprintable():
        # The system's call ends a name at U+0000, and would look up another one.
        raise OSError(
            f"'{shown(host)}' holds a character that no name has: check the brokers' "
            "advertised.listeners"
        )
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)
    return list(dict.fromkeys(Address(family, sockaddr) for family, _, _, _, sockaddr in found))


def canonical_addresses(addresses: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
    """Each address replaced by the canonical names of all addresses behind it. Waits.

    A name that cannot be resolved stays as it is: connecting to it will say why. Source:
    ``ClientUtils.parseAndValidateAddresses`` with RESOLVE_CANONICAL_BOOTSTRAP_SERVERS_ONLY.
    """
    names: dict[tuple[str, int], None] = {}
    for host, port in addresses:
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            for _, _, _, _, sockaddr in found:
                canonical, _ = socket.getnameinfo(sockaddr, socket.NI_NUMERICSERV)
                names[canonical, port] = None
        except (OSError, UnicodeError):
            names[host, port] = None
    return list(names)
