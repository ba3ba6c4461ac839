"""Resolves host names in separate threads, because the operating system's call blocks.

The call may block for a minute and more if the name server does not answer.

Source: ``ClientUtils.resolve``, which blocks, ``ClientUtils.parseAndValidateAddresses``.
"""

from __future__ import annotations

import socket
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple, Optional, Union

from spark_kafka_sink.base.text import redacted
from spark_kafka_sink.network.interface import Address

# A cluster may have hundreds of brokers, which is too many for a thread each.
_MAX_THREADS = 8

OnFound = Callable[[Union[list[Address], OSError]], None]
"""Called with at least one address, or with the reason why there is none."""


class LookUp(NamedTuple):
    """A host name to resolve, and the callback for the result."""

    host: str
    port: int
    on_found: OnFound


Take = Callable[[], Optional[LookUp]]
"""Returns the next look-up; None ends the calling thread."""


def _in_a_thread(take: Take) -> None:
    """Start a resolver thread. Raises RuntimeError if the operating system allows no more."""
    thread = threading.Thread(
        target=_look_up_all, args=(take,), name="pykafka-sink-resolver", daemon=True
    )
    thread.start()


def _look_up_all(take: Take) -> None:
    while (look_up_request := take()) is not None:
        look_up_request.on_found(look_up(look_up_request.host, look_up_request.port))


class Resolver:
    """Resolves names without blocking the caller. A few slow names do not delay the others."""

    def __init__(self, begin: Callable[[Take], None] = _in_a_thread) -> None:
        """``begin`` starts a thread that resolves names in turn; tests simulate the thread."""
        self._begin = begin
        self._lock = threading.Lock()
        self._waiting: deque[LookUp] = deque()
        self._threads_count = 0

    def resolve(self, host: str, port: int, on_found: OnFound) -> None:
        """Call ``on_found``: at once for an IP address, otherwise from another thread."""
        addresses = _numeric_addresses(host, port)
        if addresses:
            on_found(addresses)
            return
        with self._lock:
            self._waiting.append(LookUp(host, port, on_found))
            if self._threads_count >= _MAX_THREADS:
                return
            self._threads_count += 1
        try:
            self._begin(self._next)
        except RuntimeError as error:
            self._fail_waiting(OSError(str(error)))

    def close(self) -> None:
        """Begin no more look-ups. Look-ups in progress end by themselves."""
        with self._lock:
            self._waiting.clear()

    def _next(self) -> LookUp | None:
        with self._lock:
            if self._waiting:
                return self._waiting.popleft()
            self._threads_count -= 1
            return None

    def _fail_waiting(self, error: OSError) -> None:
        """Handle a failed thread start: without another thread, look-ups fail with ``error``."""
        with self._lock:
            self._threads_count -= 1
            failed = [] if self._threads_count else list(self._waiting)
            if failed:
                self._waiting.clear()
        for waiting in failed:
            waiting.on_found(error)


def look_up(host: str, port: int) -> list[Address] | OSError:
    """Return all addresses of ``host``, in the operating system's order. Blocks."""
    try:
        return _addresses(host, port)
    except OSError as error:
        return error
    except UnicodeError as error:  # an empty label, or one of more than 63 characters
        return OSError(redacted(error))


def _numeric_addresses(host: str, port: int) -> list[Address]:
    """Return the address if ``host`` is an IP address; empty for a name. Does not block."""
    try:
        return _addresses(host, port, socket.AI_NUMERICHOST)
    except (OSError, UnicodeError):
        return []


def _addresses(host: str, port: int, flags: int = 0) -> list[Address]:
    if not host.isprintable():
        # The operating system's call ends a name at U+0000, and would resolve another name.
        raise OSError(
            f"'{redacted(host)}' holds a character that no name has: check the brokers' "
            "advertised.listeners"
        )
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)
    return list(dict.fromkeys(Address(family, sockaddr) for family, _, _, _, sockaddr in found))


def canonical_addresses(addresses: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
    """Return the canonical names of all addresses behind each of ``addresses``. Blocks.

    A name that cannot be resolved stays as it is, because connecting to it reports the reason.
    Source: ``ClientUtils.parseAndValidateAddresses`` with RESOLVE_CANONICAL_BOOTSTRAP_SERVERS_ONLY.
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
