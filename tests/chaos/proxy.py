"""A TCP proxy in front of each broker that cuts every connection it has, again and again."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from types import TracebackType

_CHUNK_BYTES = 1 << 16
Address = tuple[str, int]


class CuttingProxy:
    """Listens on a port of its own; forwards to ``target()``, asked at each connection."""

    def __init__(self, target: Callable[[], Address]) -> None:
        self._target = target
        self._server = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Lock()
        self._sockets: set[socket.socket] = set()
        self.connections_count = 0
        self.cuts_count = 0
        self._acceptor = threading.Thread(target=self._accept, daemon=True)
        self._acceptor.start()

    @property
    def address(self) -> str:
        host, port = self._server.getsockname()
        return f"{host}:{port}"

    def cut(self) -> None:
        """Reset all connections, in the middle of whatever they carry."""
        with self._lock:
            doomed, self._sockets = self._sockets, set()
        for connected in doomed:
            # Linger 0 makes close() send a reset and drop what is still buffered.
            with contextlib.suppress(OSError):
                linger = b"\x01\x00\x00\x00\x00\x00\x00\x00"
                connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                connected.shutdown(socket.SHUT_RDWR)
            connected.close()
        self.cuts_count += len(doomed) // 2

    def __enter__(self) -> CuttingProxy:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._server.close()
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return  # closed
            try:
                broker = socket.create_connection(self._target(), timeout=5)
            except OSError:
                client.close()
                continue
            broker.settimeout(None)
            self.connections_count += 1
            with self._lock:
                self._sockets |= {client, broker}
            for source, sink in ((client, broker), (broker, client)):
                threading.Thread(target=self._forward, args=(source, sink), daemon=True).start()

    def _forward(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while chunk := source.recv(_CHUNK_BYTES):
                sink.sendall(chunk)
        for end in (source, sink):
            with self._lock:
                self._sockets.discard(end)
            end.close()
