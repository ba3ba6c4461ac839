"""A simulated network: the producer's Network interface on one side, brokers on the other; host names.

Bytes of a request are read from the producer's buffers in two halves at different times, as a
socket does with a large request: a buffer that is reused too early changes what the broker gets.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Protocol

from spark_kafka_sink.network.channels import (
    Address,
    Connected,
    Disconnected,
    Received,
    Resolved,
    SendCompleted,
)
from spark_kafka_sink.network.transport import Resolver

NO_ADDRESS = "Temporary failure in name resolution"


class NameServer:
    """Answers with what is true when it is asked, however long the answer takes.

    addresses: by name; a name that is not there is its own address
    takes_ms: names whose look-up takes long, and how long
    unknown: names that have no address
    silent: addresses that do not answer whoever connects
    """

    def __init__(self):
        self.addresses = {}
        self.takes_ms = {}
        self.unknown = set()
        self.silent = set()

    def look_up(self, host, port):
        if host in self.unknown:
            return OSError(NO_ADDRESS)
        return [Address(0, (address, port)) for address in self.addresses.get(host, [host])]

    def heal(self):
        """Quick answers for all names, and nobody is silent."""
        self.takes_ms.clear()
        self.unknown.clear()
        self.silent.clear()


# --- the network --------------------------------------------------------------------------------


class Server(Protocol):
    """A broker as the network sees it."""

    host: str
    is_up: bool

    def receive(self, channel, data): ...


@dataclass(eq=False)
class Channel:
    """One simulated connection."""

    channel_id: int
    server: Server
    owner: SimNetwork
    is_open: bool = True
    is_connected: bool = False
    to_server: bytearray = field(default_factory=bytearray)
    # Answers of a connection arrive in the order in which they were sent.
    last_arrival_ms: int = 0
    # When each request was sent that is not delivered yet.
    sent_at_ms: deque[int] = field(default_factory=deque)


@dataclass
class NetworkFaults:
    """Chances in each step, all zero unless a test sets them."""

    latency_ms: tuple[int, int] = (1, 3)
    whole_requests: float = 0.0
    """The operating system takes a request at once, as it mostly does with a real socket."""
    cut_during_handshake: float = 0.0
    cut_during_request: float = 0.0
    cut_before_response: float = 0.0
    cut_next_response: bool = False
    delay_next_response_ms: int = 0
    drop_response: float = 0.0
    delay_response: float = 0.0
    long_delay_ms: tuple[int, int] = (1000, 40_000)
    unheard: set[str] = field(default_factory=set)
    """Hosts of brokers whose answers are all lost; the connections stay."""


class SimNetwork:
    """A Network whose other side are simulated brokers."""

    def __init__(self, scheduler, rng):
        self._scheduler = scheduler
        self._rng = rng
        self._servers = {}
        # Addresses of servers that lead to another one.
        self._routes = {}
        self.names = NameServer()
        self._resolver = Resolver(self._look_up_all)
        self._channels = {}
        self._events = []
        self._is_woken = False
        self.faults = NetworkFaults()
        self.polls = 0
        # Clients of other processes on the same network, see tests/simulation/processes.py.
        self.members = [self]

    def add_server(self, host, port, server):
        self._servers[host, port] = server

    def move_server(self, server, address):
        """It is reached at ``address`` only, and its connections are cut. Names do not know yet."""
        old = self._address_of(server)
        self._servers[address, old[1]] = self._servers.pop(old)
        self.cut_all(server, "Connection reset by peer")

    def route(self, server, other):
        """Connections to ``server`` lead to ``other`` from now on, with None to itself again.

        The open ones are cut.
        """
        address = self._address_of(server)
        before = self._routes.pop(address, server)
        if other is not None:
            self._routes[address] = other
        self.cut_all(before, "Connection reset by peer")

    def tell_address(self, server):
        """Who looks the server's name up from now on gets its address."""
        self.names.addresses[server.host] = [self._address_of(server)[0]]

    def _address_of(self, server):
        return next(address for address, there in self._servers.items() if there is server)

    def open_channels(self):
        return len(self._channels)

    # --- the producer's side -------------------------------------------------------------------

    def resolve(self, channel_id, host, port):
        def on_found(found):
            if isinstance(found, OSError):
                self._tell(Disconnected(channel_id, f"host name: {found}"))
            else:
                self._tell(Resolved(channel_id, found))

        self._resolver.resolve(host, port, on_found)

    def _look_up_all(self, take):
        """What a thread of the resolver does, without a thread."""
        asked = take()
        if asked is None:
            return
        found = self.names.look_up(asked.host, asked.port)

        def answer():
            asked.on_found(found)
            self._look_up_all(take)

        takes_ms = self._rng.randint(*self.faults.latency_ms)
        self._scheduler.after(takes_ms + self.names.takes_ms.get(asked.host, 0), answer)

    def connect(self, channel_id, address, host):
        if address.sockaddr[0] in self.names.silent:
            return  # as a firewall does: whoever connects hears nothing
        sockaddr = address.sockaddr
        server = self._routes.get(sockaddr) or self._servers.get(sockaddr)
        if server is None or not server.is_up:
            self._after(lambda: self._tell(Disconnected(channel_id, "Connection refused")))
            return
        channel = self._channels[channel_id] = Channel(channel_id, server, self)
        self._after(lambda: self._finish_connect(channel))

    def send(self, channel_id, buffers):
        channel = self._channels.get(channel_id)
        if channel is None:
            return False  # already cut; the producer learns of it at its next poll
        channel.sent_at_ms.append(self._scheduler.clock.ms)
        half = len(buffers) // 2
        if self._chance(self.faults.cut_during_request):
            channel.to_server += b"".join(buffers[:half])
            self._after(lambda: self.cut(channel, "cut during the request"))
            return False
        if self._chance(self.faults.whole_requests):
            channel.to_server += b"".join(buffers)
            self._after(lambda: self._deliver(channel))
            return True
        channel.to_server += b"".join(buffers[:half])

        def finish():
            if channel.is_open:
                channel.to_server += b"".join(buffers[half:])
                self._tell(SendCompleted(channel_id))
                self._after(lambda: self._deliver(channel))

        self._after(finish)
        return False

    def poll(self, timeout_ms):
        self.polls += 1
        deadline_ms = self._scheduler.clock.ms + timeout_ms
        while True:
            self._scheduler.run_due()
            if self._events or self._is_woken:
                self._is_woken = False
                events, self._events = self._events, []
                return events
            next_at_ms = self._scheduler.next_at_ms()
            if next_at_ms is None or next_at_ms > deadline_ms:
                self._scheduler.clock.ms = deadline_ms
                return []
            self._scheduler.clock.ms = next_at_ms

    def disconnect(self, channel_id):
        channel = self._channels.pop(channel_id, None)
        if channel is not None:
            channel.is_open = False

    def wakeup(self):
        self._is_woken = True

    def close(self):
        for channel_id in list(self._channels):
            self.disconnect(channel_id)

    # --- the brokers' side ---------------------------------------------------------------------

    def respond(self, channel, data):
        """Send bytes to the producer, in chunks of any size."""
        if self.faults.cut_next_response or self._chance(self.faults.cut_before_response):
            self.faults.cut_next_response = False
            self._after(lambda: self.cut(channel, "cut before the response"))
            return
        delay_ms, self.faults.delay_next_response_ms = self.faults.delay_next_response_ms, 0
        if self._chance(self.faults.delay_response):
            delay_ms += self._rng.randint(*self.faults.long_delay_ms)
        is_unheard = channel.server.host in self.faults.unheard
        if self._chance(self.faults.drop_response) or is_unheard:
            return  # as if the broker had forgotten to answer; the connection stays
        now_ms = self._scheduler.clock.ms
        arrival_ms = now_ms + self._rng.randint(*self.faults.latency_ms) + delay_ms
        channel.last_arrival_ms = max(channel.last_arrival_ms, arrival_ms)
        delay_ms = channel.last_arrival_ms - now_ms
        self._scheduler.after(delay_ms, lambda: self._arrive(channel, data))

    def cut(self, channel, reason):
        """Break a connection: what is on its way is lost."""
        if channel.is_open:
            channel.owner.disconnect(channel.channel_id)
            channel.owner._tell(Disconnected(channel.channel_id, reason))

    def cut_all(self, server, reason):
        for member in self.members:
            for channel in [c for c in member._channels.values() if c.server is server]:
                self.cut(channel, reason)

    # --- inside --------------------------------------------------------------------------------

    def _finish_connect(self, channel):
        if not channel.is_open:
            return
        if self._chance(self.faults.cut_during_handshake):
            self.cut(channel, "cut during the TLS handshake")
        elif channel.server.is_up:
            channel.is_connected = True
            self._tell(Connected(channel.channel_id))
        else:
            self.cut(channel, "Connection refused")

    def _deliver(self, channel):
        if channel.is_open and channel.server.is_up:
            data = bytes(channel.to_server)
            channel.to_server.clear()
            channel.server.receive(channel, data)

    def _arrive(self, channel, data):
        if channel.is_open:
            middle = self._rng.randint(0, len(data))
            for part in (data[:middle], data[middle:]):
                if part:
                    channel.owner._tell(Received(channel.channel_id, part))

    def _tell(self, event):
        self._events.append(event)

    def _after(self, callback):
        self._scheduler.after(self._rng.randint(*self.faults.latency_ms), callback)

    def _chance(self, probability):
        return probability > 0 and self._rng.random() < probability


class ClientNetwork(SimNetwork):
    """One client's network in a world of several: events are its own, brokers and faults shared."""

    def __init__(self, root):
        self._root = root
        self._scheduler = root._scheduler
        self._rng = root._rng
        self._servers, self._routes = root._servers, root._routes
        self.names = root.names
        self._resolver = Resolver(self._look_up_all)
        self._channels = {}
        self._events = []
        self._is_woken = False
        self.polls = 0
        root.members.append(self)

    @property
    def faults(self):
        return self._root.faults
