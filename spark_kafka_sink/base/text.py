"""Text from outside (records, brokers, servers, files of others) as it may be shown; secrets; JSON.

A :class:`Secret` is a text that is never shown: in no log, exception or representation, in no
pickle in clear.
"""

from __future__ import annotations

import base64
import json
import re
import secrets
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

if TYPE_CHECKING:
    from urllib.parse import SplitResult

HIDDEN = "[hidden]"


class Secret:
    """A password, a key, a token or a text that contains one. ``reveal`` gives it to who needs it.

    A pickle has it masked with random bytes that stand beside it: nobody reads it by chance, in a
    log or a dump of a task, but it is not encrypted. What must not travel comes by reference,
    ``${file:/path:key}``, ``${env:NAME}``, ``${dir:/path:file}``.
    """

    __slots__ = ("__weakref__", "_text")

    def __init__(self, text: str) -> None:
        self._text = text
        _ALIVE[id(self)] = self

    def reveal(self) -> str:
        """The text itself. Never put it into a message."""
        return self._text

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
        return _unmasked, (_masked(data, mask), mask)


_ALIVE: WeakValueDictionary[int, Secret] = WeakValueDictionary()
"""By identity: of two that are equal, one may outlive the other."""


def known_secrets() -> set[str]:
    """Return the texts of all secrets of this process that are in use."""
    found = (reference() for reference in _ALIVE.valuerefs())
    return {secret.reveal() for secret in found if secret is not None}


def _bytes(text: str) -> bytes:
    """Also of what Python reads from variables and file names that are not UTF-8."""
    return text.encode("utf-8", "surrogatepass")


def _masked(data: bytes, mask: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(data, mask))


def _unmasked(data: bytes, mask: bytes) -> Secret:
    return Secret(_masked(data, mask).decode("utf-8", "surrogatepass"))


MOST_SHOWN = 1_000
"""Characters of a text from outside, which may have 100 MiB."""

# What is looked at: more, so that no secret is cut before it is found.
_MOST_READ = 4 * MOST_SHOWN
_LEAST_SECRET = 4
_BLOCK = 8
# How often a text is decoded that was passed on, and encoded again, by several servers.
_MOST_ESCAPES, _MOST_DECODED = 4, 2
_ESCAPED = re.compile(
    r"(?P<percent>(?:%[0-9a-f]{2})+)|&#(?P<decimal>[0-9]{1,7});|&#x(?P<html>[0-9a-f]{1,6});"
    r"|(?P<amp>&amp;)|&[a-z]+;|\\{1,8}(?P<same>[/\"'])"
    r"|\\{1,8}(?:u(?P<utf16>[0-9a-f]{4})|x(?P<byte>[0-9a-f]{2})|(?P<octal>[0-3][0-7]{2})|[nrtbf])",
    re.IGNORECASE,
)
_NOT_BASE64 = re.compile(r"[^A-Za-z0-9+/_-]+")
_BETWEEN_BYTES = re.compile(r"\\x|0x|[\s:,+-]", re.IGNORECASE)
_NOT_HEX = re.compile(r"[^0-9A-Fa-f]+")
_NOT_CORE = re.compile(r"[^a-z0-9]+")


def printable(text: str) -> str:
    r"""Return ``text`` in one line, each character that is not printable escaped as in Python.

    An escape sequence repaints a terminal, a line feed forges a line of a log, and a character of
    text direction shows another name than there is: ``\x1b[2J``, ``\n``, ``\u202e``.
    """
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text
    )


def shown(text: object, secrets: Iterable[str] = ()) -> str:
    """Return what a peer has said (a broker, an issuer, a registry, their errors) for a message.

    It is ``printable``, has at most ``MOST_SHOWN`` characters, and holds no secret: whoever refuses
    a request may quote it. Hidden are ``secrets``, which the peer was sent, and all that this
    process knows (each ``Secret`` that is alive).
    """
    words = str(text)
    if len(words) > _MOST_READ:
        # What is cut may end in the middle of a secret, or be the beginning of a very long one.
        words, secrets = words[:_MOST_READ], {*secrets, *known_secrets()}
    told = printable(without(words, secrets))
    return told if len(told) <= MOST_SHOWN else told[:MOST_SHOWN] + " …"


def shown_url(url: str) -> str:
    """Return ``url`` for a message: neither user and password, nor query and fragment.

    All up to the last @ is left out: a password may hold / ? or # that nobody has escaped.
    """
    scheme, separator, rest = url.partition("://") if "://" in url else ("", "", url)
    return printable(scheme + separator + re.split("[?#]", rest.rpartition("@")[2])[0])


def misplaced_at(url: SplitResult) -> str | None:
    """Return what is wrong with a URL that has an @ behind its host, and nothing of it; else None.

    What stands before that @ is part of a password.
    """
    if not any("@" in part for part in (url.path, url.query, url.fragment)):
        return None
    return (
        "has an @ after its host. In user and password write %2F for /, %3F for ?, %23 for #; in a "
        "path or query write %40 for @"
    )


def without(text: str, secrets: Iterable[str]) -> str:
    """Return ``text`` without ``secrets`` and those that are known, in whatever encoding.

    A secret as it is gives way to a mark. For encodings the text is decoded as servers encode, and
    compared by its letters and digits alone: a word that holds a secret is hidden as a whole, and
    so is the text if its words together do. Of ``secrets`` a half is enough: a server may cut what
    it quotes. Very short ones are kept.
    """
    sent = {secret for secret in secrets if len(secret) >= _LEAST_SECRET}
    known = {secret for secret in known_secrets() if len(secret) >= _LEAST_SECRET}
    secrets = sent | known
    if not secrets:
        return text
    forms = _forms_and_cores(text)
    # Encoded, over several words: what hides another secret in them would leave the rest.
    encoded = [_is_quoted(secret) for secret in secrets if secret not in text]
    found = [test for test in encoded if any(test(*form) for form in forms)]
    if any(not _is_in_a_word(text, test) for test in found):
        return HIDDEN
    # The longest first: one may begin with another.
    for secret in sorted(secrets, key=len, reverse=True):
        if secret in text:
            text = text.replace(secret, HIDDEN)
            forms = _forms_and_cores(text)
    whole = [_is_quoted(secret) for secret in secrets]
    tests = [*whole, *map(_is_cited, sent)]
    if not any(test(*form) for form in forms for test in tests):
        return text
    words = re.split(r"(\s+)", text)
    text = "".join(HIDDEN if _is_in(word, whole) else word for word in words)
    return HIDDEN if _is_in(text, tests) else text


_Test = Callable[[str, str], bool]
"""Whether a secret is in a text; takes that, and its ``_core``."""


def _forms_and_cores(text: str) -> list[tuple[str, str]]:
    return [(form, _core(form)) for form in _forms(text)]


def _is_in(text: str, tests: Iterable[_Test]) -> bool:
    return any(test(form, _core(form)) for form in _forms(text) for test in tests)


def _is_in_a_word(text: str, test: _Test) -> bool:
    return any(_is_in(word, [test]) for word in text.split())


def _core(text: str) -> str:
    """Return its letters and digits of ASCII, as no encoding of the others leaves them."""
    return _NOT_CORE.sub("", text.lower())


def _is_quoted(secret: str) -> _Test:
    core = _core(secret)
    if len(core) < _LEAST_SECRET:
        return lambda form, _: secret in form
    return lambda _, form: core in form


def _is_cited(secret: str) -> _Test:
    """Return whether at least half of it is there."""
    core = _core(secret)
    blocks = {core[at : at + _BLOCK] for at in range(0, len(core) - _BLOCK + 1, _BLOCK)}
    if not blocks:
        return _is_quoted(secret)
    return lambda _, form: 2 * sum(block in form for block in blocks) >= len(blocks)


def _forms(text: str, depth: int = _MOST_DECODED) -> Iterator[str]:
    """Return ``text``, and what it is when it is decoded, once and again."""
    for _ in range(_MOST_ESCAPES):
        yield text
        if depth:
            for decoded in _decoded(text):
                yield from _forms(decoded, depth - 1)
        plain = _ESCAPED.sub(_unescaped, text)
        if plain == text:
            return
        text = plain


def _unescaped(found: re.Match[str]) -> str:
    """Return the characters of ``%61``, ``&#97;`` or ``\\u0061``; else a blank."""
    kind, digits = found.lastgroup, found[found.lastgroup or 0]
    if kind is None:
        return " "
    if kind in ("amp", "same"):
        return digits[0]
    if kind == "percent":
        return bytes.fromhex(digits.replace("%", "")).decode("utf-8", "replace")
    code = int(digits, {"decimal": 10, "octal": 8}.get(kind, 16))
    return chr(code) if code <= 0x10FFFF else " "


def _decoded(text: str) -> Iterator[str]:
    """Return what is base64 or hexadecimal in ``text``, from each offset that it may begin at."""
    runs = [r for r in _NOT_BASE64.split("".join(text.split())) if len(r) >= _LEAST_SECRET]
    for skipped in range(4) if runs else ():
        parts = (run[skipped:].replace("-", "+").replace("_", "/") for run in runs)
        found = (base64.b64decode(part + "A" * (-len(part) % 4)) for part in parts)
        yield b"".join(found).decode("utf-8", "replace")
    digits = _NOT_HEX.split(_BETWEEN_BYTES.sub("", text))
    digits = [run for run in digits if len(run) >= 2 * _LEAST_SECRET]
    for skipped in range(2) if digits else ():
        pairs = (run[skipped : skipped + (len(run) - skipped) // 2 * 2] for run in digits)
        yield b"".join(map(bytes.fromhex, pairs)).decode("utf-8", "replace")


def parse_json(text: str) -> Any:
    """Return what a JSON text holds, as ``json.loads`` has it.

    Raises ValueError, also for the NaN and Infinity that Python takes and JSON does not have, and
    for what is nested more deeply than Python can follow.
    """
    try:
        return json.loads(text, parse_constant=_refuse)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")
