"""Log one WARNING when a broker goes away and one when it is back, once per executor.

Each task slot of an executor has its own Python process, and each process its own connections. A
process that finds a broker away locks one byte of a file, whose position stands for the executor
and the broker. Only the process that gets the lock logs. The system releases the lock when the
process ends, so no outage can stay marked as logged.
"""

from __future__ import annotations

import fcntl
import logging
import os
from functools import cache
from zlib import crc32

from spark_kafka_sink.base.codes import warn
from spark_kafka_sink.base.machine import PrivateFolderError, private_folder
from spark_kafka_sink.base.model import Node
from spark_kafka_sink.network.node_connection import NodeConnection

logger = logging.getLogger(__name__)

_CODE = "CONNECT-009"
LOGGED_AFTER_MS = 3_000
"""A connection that is replaced within this time is no outage."""

# Address of a broker -> since when it is away. Its next client may be of another task.
_logged: dict[str, int] = {}


class Outages:
    """Brokers that a client still needs, and has lost or could not connect to."""

    def __init__(self) -> None:
        # Broker id -> its lost connection; until the outage is logged.
        self._lost: dict[int, NodeConnection] = {}
        # Broker id -> when the client first tried to replace the connection. A connection that was
        # lost without work may be replaced much later, and is no outage until then.
        self._tried_at_ms: dict[int, int] = {}

    def note_failure(self, connection: NodeConnection) -> None:
        """Record a lost connection. ``bootstrap.servers`` have errors of their own."""
        if connection.node.node_id >= 0 and connection.node.address not in _logged:
            self._lost.setdefault(connection.node.node_id, connection)

    def note_usable(self, node: Node, now_ms: int) -> None:
        """Record that requests can be sent to ``node``; log it if its outage was logged."""
        self._forget(node.node_id)
        since_ms = _logged.pop(node.address, None)
        if since_ms is not None:
            _unlock(node.address)
            seconds = (now_ms - since_ms) / 1000
            warn(logger, _CODE, f"{node} is back, after {seconds:.0f} s")

    def wait_ms(self, timeout_ms: int, now_ms: int) -> int:
        """Return ``timeout_ms``, or the shorter time after which an outage is to be logged.

        Called before each wait of the client, and so before the end of each new attempt.
        """
        for node_id, connection in self._lost.items():
            if connection.has_channel:
                self._tried_at_ms.setdefault(node_id, connection.connect_started_ms)
        for tried_at_ms in self._tried_at_ms.values():
            left_ms = tried_at_ms + LOGGED_AFTER_MS - now_ms
            if left_ms > 0:
                timeout_ms = min(timeout_ms, left_ms)
        return timeout_ms

    def log(self, now_ms: int) -> None:
        """Log the brokers that could not be reached for LOGGED_AFTER_MS since the first attempt."""
        for node_id, tried_at_ms in list(self._tried_at_ms.items()):
            if now_ms - tried_at_ms < LOGGED_AFTER_MS:
                continue
            connection = self._lost[node_id]
            self._forget(node_id)
            node = connection.node
            if node.address not in _logged and _lock(node.address):
                _logged[node.address] = tried_at_ms
                warn(
                    logger,
                    _CODE,
                    f"{node} cannot be reached: {connection.last_failure}. Records for its "
                    "partitions wait for it, or for another leader, up to "
                    "kafka.delivery.timeout.ms",
                )

    def _forget(self, node_id: int) -> None:
        self._lost.pop(node_id, None)
        self._tried_at_ms.pop(node_id, None)


# --- one process of an executor logs --------------------------------------------------------------


@cache
def _lock_file() -> int | None:
    """Return the descriptor of this user's lock file; None if there is no folder for it."""
    try:
        path = private_folder("outages") / "lock"
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except (OSError, PrivateFolderError):
        return None


def _position(address: str) -> int:
    """Return the byte of the file that stands for a broker and this executor.

    All Python workers of an executor are children of one process, Spark's daemon.
    """
    return os.getppid() << 32 | crc32(address.encode())


def _lock(address: str) -> bool:
    """Return True if this process is to log; also if the machine cannot lock files."""
    file = _lock_file()
    if file is None:
        return True
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _position(address))
    except (BlockingIOError, PermissionError):
        return False
    except OSError:
        return True
    return True


def _unlock(address: str) -> None:
    file = _lock_file()
    if file is not None:
        fcntl.lockf(file, fcntl.LOCK_UN, 1, _position(address))
