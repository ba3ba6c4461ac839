"""Listeners that are no brokers."""

import socket
import threading
from contextlib import suppress


class SameAnswer(threading.Thread):
    """Answers the first bytes of each connection with the same bytes.

    ``accepted``: how many connections; ``asked``: the first bytes of each
    """

    def __init__(self, answer, address=("127.0.0.1", 0)):
        super().__init__(daemon=True)
        self._answer = answer
        self.accepted = 0
        self.asked = []
        self._listener = socket.create_server(address)
        self.port = self._listener.getsockname()[1]
        self.address = f"{address[0]}:{self.port}"

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *exception):
        self._listener.close()

    def run(self):
        while True:
            try:
                channel, _ = self._listener.accept()
            except OSError:
                return
            self.accepted += 1
            with channel, suppress(OSError):
                self.asked.append(channel.recv(4096))
                channel.sendall(self._answer)
                channel.shutdown(socket.SHUT_WR)
                channel.recv(4096)  # until the client closes
