"""What the network client uses: the interface of the real and of the simulated network.

Source: ``Selectable``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, Union

from spark_kafka_sink.protocol.types import Buffer


class Address(NamedTuple):
    """A resolved socket address."""

    family: int
    sockaddr: tuple[object, ...]

    def __str__(self) -> str:
        return str(self.sockaddr[0])


class Resolved(NamedTuple):
    """The addresses of the host name that was asked for, at least one."""

    channel_id: int
    addresses: list[Address]


class Connected(NamedTuple):
    """The channel can be written to; with TLS, after its handshake.

    expires_at_ms: when the certificate expires that this side has shown, in milliseconds since
        1970-01-01 UTC; None for none
    """

    channel_id: int
    expires_at_ms: int | None = None


class Disconnected(NamedTuple):
    """The channel is closed, or could not be opened; ``reason`` is the operating system's or TLS'.

    is_refused: by TLS, this side's check of the broker's certificate or the broker's of this side.
        To connect again would not help
    """

    channel_id: int
    reason: str
    is_refused: bool = False


class Received(NamedTuple):
    """Bytes have arrived, in chunks of any size."""

    channel_id: int
    data: bytes


class SendCompleted(NamedTuple):
    """All buffers of one ``send`` have been given to the operating system."""

    channel_id: int


NetworkEvent = Union[Resolved, Connected, Disconnected, Received, SendCompleted]


class Network(Protocol):
    """What the network client needs. Channel ids are chosen by the caller and never reused.

    No method waits for anything but ``poll``. Only ``wakeup`` may be called from any thread.
    """

    def resolve(self, channel_id: int, host: str, port: int) -> None:
        """Begin to look up ``host``. Ends as Resolved or Disconnected in a later ``poll``."""
        ...

    def connect(self, channel_id: int, address: Address, host: str) -> None:
        """Begin to connect. Ends as Connected or Disconnected in a later ``poll``.

        host: the name that ``address`` is of, for TLS: it must stand in the broker's certificate
        """
        ...

    def send(self, channel_id: int, buffers: Sequence[Buffer]) -> None:
        """Queue one request. At most one may be under way per channel."""
        ...

    def poll(self, timeout_ms: int) -> list[NetworkEvent]:
        """Wait up to ``timeout_ms`` for events; ``wakeup`` ends the wait."""
        ...

    def disconnect(self, channel_id: int) -> None:
        """Close at once. Only the result of a look-up that is under way may still follow."""
        ...

    def wakeup(self) -> None:
        """End a ``poll`` that another thread is in, or the next one."""
        ...

    def close(self) -> None:
        """Close every channel."""
        ...
