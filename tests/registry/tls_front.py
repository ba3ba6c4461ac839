"""TLS in front of a registry that speaks HTTP alone, as a proxy or a load balancer has it."""

from __future__ import annotations

import contextlib
import socket
import socketserver
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from tests.patience import PATIENCE_S


@contextmanager
def tls_in_front_of(url: str, context: ssl.SSLContext, host: str = "localhost") -> Iterator[str]:
    """The URL, with https:, that leads to ``url``."""
    target = urlsplit(url)

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.settimeout(PATIENCE_S)
            with contextlib.suppress(OSError):
                channel = context.wrap_socket(self.request, server_side=True)
                behind = socket.create_connection((target.hostname or "", target.port or 80))
                with channel, behind:
                    back = threading.Thread(target=_copy, args=(behind, channel), daemon=True)
                    back.start()
                    _copy(channel, behind)
                    back.join()

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        block_on_close = False

    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield f"https://{host}:{server.server_address[1]}{target.path}"
        server.shutdown()
        thread.join()


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65_536):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)
