"""Secrets: texts that no log, exception, representation or pickle shows in clear."""

from __future__ import annotations

import re
import secrets
from weakref import WeakValueDictionary

HIDDEN = "[hidden]"


class Secret:
    """A password, a key, a token or a text that contains one. Only ``reveal`` returns the text.

    A pickle has the text masked with random bytes, which are stored beside it. This prevents
    accidental reading in a log or a dump of a task, but is no encryption. A secret that must not
    travel is given by reference: ``${file:/path:key}``, ``${env:NAME}``, ``${dir:/path:file}``.
    """

    __slots__ = ("__weakref__", "_text")

    def __init__(self, text: str) -> None:
        self._text = text
        _ALIVE[id(self)] = self

    def reveal(self) -> str:
        """Return the text. Never put it into a message."""
        return self._text

    def parts(self) -> set[str]:
        """Return the texts that messages must not have."""
        return {self._text}

    def __repr__(self) -> str:
        return HIDDEN

    def __str__(self) -> str:
        return HIDDEN

    def __format__(self, specification: str) -> str:
        return HIDDEN

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return secrets.compare_digest(_bytes(self._text), _bytes(other._text))

    def __hash__(self) -> int:
        return hash((Secret, self._text))

    def __reduce__(self) -> tuple[object, ...]:
        data = _bytes(self._text)
        mask = secrets.token_bytes(len(data))
        return _unmasked, (type(self), _masked(data, mask), mask)


class SecretUrl(Secret):
    """A URL that may have a user, a password and a query, which are secret; its host is not."""

    __slots__ = ()

    def parts(self) -> set[str]:
        """Return user and password together, the password, and what follows the path."""
        from urllib.parse import unquote  # a write without a registry does not pay for it

        rest = self._text.partition("://")[2] or self._text
        # Everything up to the last @ may be a password with an unescaped / ? or #.
        user_info, _, rest = rest.rpartition("@")
        password = user_info.partition(":")[2]
        return {user_info, password, unquote(password), *re.split("[?#]", rest)[1:]} - {""}


_ALIVE: WeakValueDictionary[int, Secret] = WeakValueDictionary()
"""Keyed by identity, because one of two equal secrets may outlive the other."""


def known_secrets() -> set[str]:
    """Return the texts of all secrets of this process that are in use."""
    found = (reference() for reference in _ALIVE.valuerefs())
    return {part for secret in found if secret is not None for part in secret.parts()}


def _bytes(text: str) -> bytes:
    """Encode ``text``, including bytes of variables and file names that are not UTF-8."""
    return text.encode("utf-8", "surrogatepass")


def _masked(data: bytes, mask: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(data, mask))


def _unmasked(kind: type[Secret], data: bytes, mask: bytes) -> Secret:
    return kind(_masked(data, mask).decode("utf-8", "surrogatepass"))
