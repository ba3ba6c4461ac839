"""SASL as a connection sees it: a conversation of bytes, without I/O.

The mechanisms are in ``security/``; ``protocol/connection.py`` carries their bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Conversation(Protocol):
    """One authentication of one connection. Source: ``SaslClient`` of Java."""

    @property
    def mechanism(self) -> str:
        """The mechanism's name on the wire, for SaslHandshake."""
        ...

    def first(self) -> bytes:
        """The first message to the broker."""
        ...

    def next(self, challenge: bytes) -> bytes | None:
        """The message that answers the broker's; None when there is nothing more to be said.

        After None the broker is authenticated as far as the mechanism does that. Raises
        AuthenticationError when the broker's message is wrong (a SCRAM signature that does not
        match), or tells a refusal that has no answer.
        """
        ...


Converse = Callable[[str], Conversation]
"""Begins a conversation with the broker of this host name. Raises AuthenticationError when there
are no credentials. Does not wait for anything slow, as tokens are fetched beforehand; only GSSAPI's
first message asks the KDC.
"""
