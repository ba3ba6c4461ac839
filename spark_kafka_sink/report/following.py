"""A local web page that updates itself while lines are appended to a file."""

from __future__ import annotations

from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock

from spark_kafka_sink.metrics.reading import LineTail
from spark_kafka_sink.report.collecting import LineAggregate
from spark_kafka_sink.report.page import render
from spark_kafka_sink.report.reading import read_pieces

HOST = "127.0.0.1"


class FollowedReport:
    """The report of a growing file. The file may not exist yet, and may be rotated."""

    def __init__(self, path: str, query: str | None) -> None:
        self._lines = LineTail(path, from_end=False)
        self._aggregate = LineAggregate(query)
        self._lock = Lock()
        self._page = (-1, b"")
        for texts in read_pieces(self._lines.older()):
            self._aggregate.add(texts)

    def version(self) -> int:
        """Return a number that grows with every line."""
        with self._lock:
            return self._read()

    def page(self) -> bytes:
        """Return the current page."""
        with self._lock:
            version = self._read()
            if self._page[0] != version:
                self._page = (version, render(self._aggregate, version).encode())
            return self._page[1]

    def _read(self) -> int:
        data = self._lines.read_texts()
        if data:
            self._aggregate.add(data.splitlines())
        return self._aggregate.lines + self._aggregate.left_out


class ReportServer(ThreadingHTTPServer):
    """Answers browsers on this machine at ``/`` and ``/version``."""

    daemon_threads = True

    def __init__(self, report: FollowedReport, port: int) -> None:
        """Listen on ``port``; 0 picks a free port. Raises OSError if the port is in use."""
        super().__init__((HOST, port), _Handler)
        self.report = report

    @property
    def address(self) -> str:
        return f"http://{HOST}:{self.server_port}/"


class _Handler(BaseHTTPRequestHandler):
    server: ReportServer
    timeout = 10

    def do_GET(self) -> None:
        """Answer a request. The library gives the methods' names."""
        # Another site, whose host name resolves to this address, must not read this page.
        host = (self.headers.get("Host") or "").rpartition(":")[0]
        answers = {"/": self._page, "/version": self._version}
        if host not in (HOST, "localhost") or self.path not in answers:
            self.send_error(404)
            return
        kind, body = answers[self.path]()
        self.send_response(200)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(body)

    def _page(self) -> tuple[str, bytes]:
        return "text/html", self.server.report.page()

    def _version(self) -> tuple[str, bytes]:
        return "text/plain", str(self.server.report.version()).encode()

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: a line for each request of the page would hide other output."""
