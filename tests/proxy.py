"""A TCP proxy in front of a broker: it counts connections, holds them back, or cuts them."""

import contextlib
import socket
import struct
import threading

from spark_kafka_sink.base.model import format_address
from tests.patience import PATIENCE_S

_CHUNK_BYTES = 1 << 16
_NO_LINGER = struct.pack("ii", 1, 0)


class TcpProxy:
    """Listens at ``host``, an IPv4 or IPv6 address; forwards to ``target()``.

    ``target`` is asked at each connection: the broker may not have a port yet. ``tls``: the server's
    ``SSLContext``, if clients speak TLS and the target does not.
    """

    def __init__(self, target, host="127.0.0.1", port=0, tls=None):
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._server = socket.create_server((host, port), family=family)
        self.host, self.port = self._server.getsockname()[:2]
        if tls is not None:
            # The handshake is left to the first read, in the connection's own thread.
            self._server = tls.wrap_socket(
                self._server, server_side=True, do_handshake_on_connect=False
            )
        self._target = target
        self._lets_through = threading.Event()
        self._lets_through.set()
        self._lets_answers_through = threading.Event()
        self._lets_answers_through.set()
        self._lock = threading.Lock()
        self._open = set()
        self.accepted_count = 0
        self.cuts_count = 0
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self):
        return format_address(self.host, self.port)

    @property
    def open_count(self):
        """Connections that neither side has closed."""
        with self._lock:
            return len(self._open)

    @contextlib.contextmanager
    def held_back(self):
        """As a broker that hangs: connections are accepted, nothing is ever answered."""
        self._lets_through.clear()
        try:
            yield
        finally:
            self._lets_through.set()

    @contextlib.contextmanager
    def answers_held_back(self):
        """Requests reach the broker, and nobody hears what it answers."""
        self._lets_answers_through.clear()
        try:
            yield
        finally:
            self._lets_answers_through.set()

    def cut(self):
        """Reset all connections, in the middle of whatever they carry."""
        for pair in self._pairs():
            for end in pair:
                # Without linger, close() sends a reset and drops what is still buffered.
                with contextlib.suppress(OSError):
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
            self._hang_up(pair)
            self.cuts_count += 1

    def close(self):
        # shutdown() wakes the thread up that waits in accept(), close() alone does not.
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._lets_through.set()
        self._lets_answers_through.set()
        for pair in self._pairs():
            self._hang_up(pair)

    def __enter__(self):
        return self

    def __exit__(self, exc_type, exc, traceback):
        self.close()

    def _pairs(self):
        with self._lock:
            return list(self._open)

    def _accept(self):
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return  # closed
            try:
                broker = socket.create_connection(self._target(), timeout=PATIENCE_S)
            except OSError:
                client.close()
                continue
            broker.settimeout(None)
            pair = (client, broker)
            await_passage = self._passage_of(client)
            with self._lock:
                self._open.add(pair)
                self.accepted_count += 1
            for source, sink in (pair, pair[::-1]):
                passages = [await_passage]
                if source is broker:
                    passages.append(self._lets_answers_through.wait)
                threading.Thread(
                    target=self._forward, args=(source, sink, pair, passages), daemon=True
                ).start()

    def _passage_of(self, client):
        """What a connection waits for before it carries anything on; asked once, at its begin."""
        return self._lets_through.wait

    def _forward(self, source, sink, pair, passages):
        with contextlib.suppress(OSError):
            while chunk := source.recv(_CHUNK_BYTES):
                for await_passage in passages:
                    await_passage()
                sink.sendall(chunk)
        self._hang_up(pair)

    def _hang_up(self, pair):
        with self._lock:
            self._open.discard(pair)
        for end in pair:
            # Ends the other direction's recv(), which close() alone does not.
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
