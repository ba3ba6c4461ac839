"""The limit server: a process on the driver that answers reservations, until its owner has ended.

::

    python -m spark_kafka_sink.limits.server OWNER_PID OWNER_IDENTITY HOST PORT FILE < TOKEN

It listens, writes FILE with its port and token, says so with a line on stdout, and goes on in the
background, in a session of its own: Spark's Python processes, which start it, come and go with each
micro-batch. HOST is empty for all addresses of the machine. When its owner has ended, it removes
FILE and ends.
"""

from __future__ import annotations

import json
import os
import resource
import selectors
import socket
import sys
from contextlib import suppress
from pathlib import Path

from spark_kafka_sink.base.clock import Clock, SystemClock
from spark_kafka_sink.base.secret import Secret
from spark_kafka_sink.limits.ledger import Ledger
from spark_kafka_sink.limits.messages import MOST_BYTES
from spark_kafka_sink.limits.process import identity_of

_LOOK_S = 1.0
_READ_BYTES = 65536
_BACKLOG = 1024
STRANGER_MS = 10_000
"""For how long somebody may be connected without having said the token."""
MOST_STRANGERS = 256


class LimitServer:
    """Serves whoever connects.

    owner: the process, with its identity, with which it ends
    file: where it is found
    """

    def __init__(
        self,
        listener: socket.socket,
        ledger: Ledger,
        owner: tuple[int, str],
        file: Path,
        clock: Clock | None = None,
    ) -> None:
        self._file = file
        self._listener = listener
        self._ledger = ledger
        self._owner_id, self._owner_identity = owner
        self._clock = clock or SystemClock()
        self._selector = selectors.DefaultSelector()
        listener.setblocking(False)
        self._is_listening = False
        self.listen()
        self._received: dict[socket.socket, bytearray] = {}
        # Who has not said the token yet, since when, in that order.
        self._strangers: dict[socket.socket, int] = {}

    def run(self) -> None:
        """Until the owner has ended."""
        looked_at_ms = self._clock.now_ms()
        while True:
            self.serve_once(_LOOK_S)
            now_ms = self._clock.now_ms()
            if now_ms - looked_at_ms >= _LOOK_S * 1000:
                looked_at_ms = now_ms
                if identity_of(self._owner_id) != self._owner_identity:
                    return
                self.listen()
                with suppress(OSError):
                    os.utime(self._file)  # what looks old is removed by some systems

    def serve_once(self, timeout_s: float) -> int:
        """Serve who is there, or comes within ``timeout_s``; returns how many events there were."""
        self._drop_strangers(self._clock.now_ms() - STRANGER_MS)
        events = self._selector.select(timeout_s)
        for key, _ in events:
            if key.data is None:
                self._accept()
            else:
                self._serve(key.data)
        return len(events)

    def listen(self) -> None:
        """Accept connections (again)."""
        if not self._is_listening:
            self._is_listening = True
            self._selector.register(self._listener, selectors.EVENT_READ, None)

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except (BlockingIOError, ConnectionError):
            return  # gone again
        except OSError:
            # Too many open files: whoever waits is accepted later. It would be ready all the time.
            self._is_listening = False
            self._selector.unregister(self._listener)
            return
        connection.setblocking(False)
        with suppress(OSError):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._received[connection] = bytearray()
        self._strangers[connection] = self._clock.now_ms()
        if len(self._strangers) > MOST_STRANGERS:
            self._drop(next(iter(self._strangers)))
        self._selector.register(connection, selectors.EVENT_READ, connection)

    def _serve(self, connection: socket.socket) -> None:
        received = self._received[connection]
        try:
            data = connection.recv(_READ_BYTES)
            received += data
            answers = b""
            while b"\n" in received:
                line, _, rest = received.partition(b"\n")
                received[:] = rest
                if len(line) > MOST_BYTES:
                    raise ValueError("longer than any of ours")
                answers += self._answer(connection, bytes(line))
            # An answer is short. Who does not read any is given up.
            if not data:
                self._ledger.closed(connection, self._clock.perf_ns())
            if not data or len(received) > MOST_BYTES or connection.send(answers) < len(answers):
                self._drop(connection)
        except Exception:  # of this connection only: others need the server
            self._drop(connection)

    def _answer(self, connection: socket.socket, line: bytes) -> bytes:
        if connection in self._strangers and self._ledger.knows(line):
            del self._strangers[connection]
        return self._ledger.answer(line, self._clock.perf_ns(), connection)

    def _drop_strangers(self, before_ms: int) -> None:
        """Those who came before that."""
        for connection, since_ms in list(self._strangers.items()):
            if since_ms >= before_ms:
                break
            self._drop(connection)

    def _drop(self, connection: socket.socket) -> None:
        self._ledger.lost(connection)
        self._strangers.pop(connection, None)
        self._selector.unregister(connection)
        del self._received[connection]
        connection.close()


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens; an empty host is all addresses. Raises OSError."""
    if host:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    if socket.has_dualstack_ipv6():
        with suppress(OSError):  # this machine may have none in spite of that
            return socket.create_server(
                ("", port), family=socket.AF_INET6, backlog=_BACKLOG, dualstack_ipv6=True
            )
    return socket.create_server(("", port), backlog=_BACKLOG)


def _go_into_background() -> None:
    """Nobody waits for this process, or reads what it writes."""
    if os.fork():
        os._exit(0)
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    # A connection for each Python worker of the cluster.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def lock_of(path: Path) -> Path:
    """Who holds it may start the server that is found through ``path``."""
    return path.with_suffix(".lock")


def write_privately(path: Path, document: dict[str, object]) -> None:
    """A file that only this user may read, all of it or nothing."""
    new = path.with_suffix(f".{os.getpid()}")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(descriptor, "w") as file:
        json.dump(document, file)
    os.replace(new, path)


def main() -> None:
    """Entry point: see the module's head."""
    owner_id, owner_identity, host, port, file = sys.argv[1:]
    token = sys.stdin.readline().strip()
    try:
        listener = listen(host, int(port))
    except OSError as error:
        print(json.dumps({"error": error.strerror or str(error)}), flush=True)
        return
    path = Path(file)
    document: dict[str, object] = {"port": listener.getsockname()[1], "token": token}
    write_privately(path, document)
    print(json.dumps(document), flush=True)
    _go_into_background()
    ledger, owner = Ledger(Secret(token), os.path.exists), (int(owner_id), owner_identity)
    try:
        LimitServer(listener, ledger, owner, path).run()
    finally:
        for left in (path, lock_of(path)):
            with suppress(OSError):
                left.unlink()


if __name__ == "__main__":
    main()
