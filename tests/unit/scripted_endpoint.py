"""HTTP servers for tests of token endpoints: one that answers as told, and a proxy."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

HOST = "127.0.0.1"
PATIENCE_S = 120


class Scripted(NamedTuple):
    """One answer.

    raw: sent as it is, in place of all else; waits: before anything is sent
    """

    status: int = 200
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = (("Content-Type", "application/json"),)
    raw: bytes | None = None
    waits: threading.Event | None = None


class Received(NamedTuple):
    """What was asked."""

    line: str
    headers: dict[str, str]
    body: str


class _Quiet(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients hang up: that is what some tests are about."""


@contextlib.contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[int]:
    """The port at which ``handler`` serves."""
    server = _Quiet((HOST, 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join(PATIENCE_S)


@contextlib.contextmanager
def scripted(*answers: Scripted) -> Iterator[tuple[str, list[Received]]]:
    """The URL of an endpoint that gives these answers in turn, and what it was asked."""
    received: list[Received] = []
    script = iter(answers)

    class Handler(BaseHTTPRequestHandler):
        timeout = PATIENCE_S

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"])).decode()
            headers = {name.lower(): value for name, value in self.headers.items()}
            received.append(Received(self.requestline, headers, body))
            answer = next(script)
            if answer.waits is not None:
                answer.waits.wait(PATIENCE_S)
            if answer.raw is not None:
                self.wfile.write(answer.raw)
                return
            self.send_response(answer.status)
            for name, value in answer.headers:
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            self.wfile.write(answer.body)

        def log_message(self, *arguments: object) -> None:
            pass

    with serving(Handler) as port:
        yield f"http://{HOST}:{port}/token", received


@contextlib.contextmanager
def http_proxy() -> Iterator[tuple[int, list[Received]]]:
    """The port of a proxy that tunnels, and forwards a POST; and what it was asked."""
    received: list[Received] = []

    class Handler(BaseHTTPRequestHandler):
        timeout = PATIENCE_S

        def _note(self, body: str = "") -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            received.append(Received(self.requestline, headers, body))

        def do_CONNECT(self) -> None:
            self._note()
            host, _, port = self.path.partition(":")
            with socket.create_connection((host, int(port)), PATIENCE_S) as there:
                self.send_response(200)
                self.end_headers()
                _pump(self.connection, there)

        def do_POST(self) -> None:
            """Answers in place of the endpoint."""
            self._note(self.rfile.read(int(self.headers["content-length"])).decode())
            self.send_response(418)
            self.end_headers()

        def log_message(self, *arguments: object) -> None:
            pass

    with serving(Handler) as port:
        yield port, received


def _pump(one: socket.socket, other: socket.socket) -> None:
    """Bytes in both directions, until one side hangs up."""
    while True:
        readable, _, _ = select.select([one, other], [], [], PATIENCE_S)
        for source in readable:
            data = source.recv(65_536)
            if not data:
                return
            (other if source is one else one).sendall(data)
        if not readable:
            return
