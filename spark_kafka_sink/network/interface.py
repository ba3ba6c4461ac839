"""Interface of the real and the simulated network, as the network client uses it.

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
    """The addresses of the requested host name, at least one."""

    channel_id: int
    addresses: list[Address]


class Connected(NamedTuple):
    """The channel can be written to; with TLS, after its handshake.

    expires_at_ms: expiry of the certificate that this side has sent, in milliseconds since
        1970-01-01 UTC; None without one
    """

    channel_id: int
    expires_at_ms: int | None = None


class Disconnected(NamedTuple):
    """The channel is closed, or could not be opened.

    reason: from the operating system or TLS
    is_refused: in TLS, one side rejects the certificate of the other, so a retry would not help
    """

    channel_id: int
    reason: str
    is_refused: bool = False


class Received(NamedTuple):
    """Bytes have arrived, in chunks of any size."""

    channel_id: int
    data: bytes


class SendCompleted(NamedTuple):
    """All buffers of one ``send`` that had returned False were handed to the operating system."""

    channel_id: int


NetworkEvent = Union[Resolved, Connected, Disconnected, Received, SendCompleted]


class Network(Protocol):
    """Network of the client. The caller chooses channel ids, and never reuses one.

    Only ``poll`` blocks. Only ``wakeup`` may be called from any thread.
    """

    def resolve(self, channel_id: int, host: str, port: int) -> None:
        """Begin to resolve ``host``. Ends as Resolved or Disconnected in a later ``poll``."""
        ...

    def connect(self, channel_id: int, address: Address, host: str) -> None:
        """Begin to connect. Ends as Connected or Disconnected in a later ``poll``.

        host: the name of ``address``, which TLS expects in the broker's certificate
        """
        ...

    def send(self, channel_id: int, buffers: Sequence[Buffer]) -> bool:
        """Send one request. At most one may be in progress per channel.

        Returns True if all buffers were handed to the operating system. Otherwise SendCompleted
        follows in a later ``poll``, unless the channel is lost.
        """
        ...

    def poll(self, timeout_ms: int) -> list[NetworkEvent]:
        """Wait up to ``timeout_ms`` for events; ``wakeup`` ends the wait."""
        ...

    def disconnect(self, channel_id: int) -> None:
        """Close at once. Only the result of a look-up in progress may still follow."""
        ...

    def wakeup(self) -> None:
        """End the current ``poll`` of another thread, or else the next ``poll``."""
        ...

    def close(self) -> None:
        """Close every channel."""
        ...
