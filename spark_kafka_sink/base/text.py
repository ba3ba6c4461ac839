"""Texts that may be shown: of others (records, brokers, servers, files), and secrets; JSON.

No log, exception, representation or pickle shows a :class:`Secret` in clear.
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


_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
"""The bytes that would encode a surrogate, which UTF-8 does not have, or the first two bytes."""


def java_text(data: bytes) -> str:
    """Return the text of Java's ``new String(data, UTF_8)``, with U+FFFD for malformed bytes.

    Python replaces the same bytes as Java, except that each byte of a surrogate becomes one U+FFFD
    in Python, and a whole surrogate becomes one in Java.

    Source: ``String.decodeUTF8_UTF16`` of JDK 17
    """
    return _SURROGATE.sub(b"\xff", data).decode("utf-8", "replace")


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


class Credential(Secret):
    """A secret that a peer is sent, and may quote in part: half of it is hidden, too."""

    __slots__ = ()


class HeaderCredential(Credential):
    """The value of a header of HTTP: ``<scheme> <credential>``, or a credential alone."""

    __slots__ = ()

    def parts(self) -> set[str]:
        """Return the value, what follows its scheme, and the user and password of Basic."""
        scheme, _, credential = self._text.partition(" ")
        found = {self._text, credential}
        if scheme.lower() == "basic":
            try:
                user_info = base64.b64decode(credential).decode("utf-8", "replace")
            except ValueError:
                user_info = ""
            found |= {user_info, user_info.partition(":")[2]}
        return found - {""}


class SecretUrl(Credential):
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


def known_secrets(kind: type[Secret] = Secret) -> set[str]:
    """Return the texts of all secrets of this process that are in use, or of one kind."""
    found = (reference() for reference in _ALIVE.valuerefs())
    return {part for secret in found if isinstance(secret, kind) for part in secret.parts()}


def _bytes(text: str) -> bytes:
    """Encode ``text``, including bytes of variables and file names that are not UTF-8."""
    return text.encode("utf-8", "surrogatepass")


def _masked(data: bytes, mask: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(data, mask))


def _unmasked(kind: type[Secret], data: bytes, mask: bytes) -> Secret:
    return kind(_masked(data, mask).decode("utf-8", "surrogatepass"))


MOST_SHOWN = 1_000
"""Most characters shown of a text from outside, which may have 100 MiB."""

# More characters are searched than shown, so that no secret is cut before it is found.
_MOST_READ = 4 * MOST_SHOWN
_LEAST_SECRET = 4
_BLOCK = 8
# Characters. A piece that is half of a longer text has about half of its blocks.
_LONGEST_PASSWORD = 64
# Limits for decoding a text that several servers have forwarded and encoded again.
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
    r"""Return ``text`` in one line, with each unprintable character escaped as in Python.

    An escape sequence could repaint a terminal, a line feed could forge a line of a log, and a
    character of text direction could disguise a name: ``\x1b[2J``, ``\n``, ``\u202e``.
    """
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text
    )


def redacted(text: object, secrets: Iterable[str] = ()) -> str:
    """Return a peer's text (a broker's, an issuer's, a registry's, their errors') for a message.

    The result is ``printable``, has at most ``MOST_SHOWN`` characters, and holds no secret, because
    a peer that rejects a request may quote it. Redacted are ``secrets``, which the peer was sent,
    and all secrets of this process (each ``Secret`` that is alive). Of what a peer was sent
    (``secrets``, and each ``Credential``) half is enough.
    """
    words = str(text)
    if len(words) > _MOST_READ:
        # The cut may be in the middle of a secret: half of a known secret must suffice, too.
        words, secrets = words[:_MOST_READ], {*secrets, *known_secrets()}
    shown = printable(redact(words, secrets))
    return shown if len(shown) <= MOST_SHOWN else shown[:MOST_SHOWN] + " …"


def redacted_url(url: str) -> str:
    """Return ``url`` for a message, without user, password, query and fragment.

    Everything up to the last @ is omitted, because a password may hold an unescaped / ? or #.
    """
    scheme, separator, rest = url.partition("://") if "://" in url else ("", "", url)
    return printable(scheme + separator + re.split("[?#]", rest.rpartition("@")[2])[0])


def problem_of_at_sign(url: SplitResult) -> str | None:
    """Return the problem of a URL with an @ after its host, without quoting the URL; else None.

    The text before that @ is part of a password.
    """
    if not any("@" in part for part in (url.path, url.query, url.fragment)):
        return None
    return (
        "has an @ after its host. In user and password write %2F for /, %3F for ?, %23 for #; in a "
        "path or query write %40 for @"
    )


def redact(text: str, secrets: Iterable[str]) -> str:
    """Return ``text`` without ``secrets`` and known secrets, in any encoding.

    A plain secret is replaced by a mark. To find encoded secrets, the text is decoded as servers
    encode, and compared by letters and digits alone. A word with a secret is hidden as a whole; the
    whole text is hidden if only its words together hold one. Half of one of ``secrets``, or of a
    known credential, is enough, because a server may truncate its quote. Very short secrets stay.
    """
    sent = {s for s in {*secrets, *known_secrets(Credential)} if len(s) >= _LEAST_SECRET}
    known = {secret for secret in known_secrets() if len(secret) >= _LEAST_SECRET}
    secrets = sent | known
    if not secrets:
        return text
    forms = _forms_and_cores(text)
    # An encoded secret over several words: replacing another secret in it would leave the rest.
    encoded = [_contains_whole(secret) for secret in secrets if secret not in text]
    found = [test for test in encoded if any(test(*form) for form in forms)]
    if any(not _is_in_a_word(text, test) for test in found):
        return HIDDEN
    # The longest first, because one secret may begin with another.
    for secret in sorted(secrets, key=len, reverse=True):
        if secret in text:
            text = text.replace(secret, HIDDEN)
            forms = _forms_and_cores(text)
    whole = [_contains_whole(secret) for secret in secrets]
    tests = [*whole, *map(_contains_half, sent)]
    if not any(test(*form) for form in forms for test in tests):
        return text
    words = re.split(r"(\s+)", text)
    text = "".join(HIDDEN if _is_in(word, whole) else word for word in words)
    return HIDDEN if _is_in(text, tests) else text


_Test = Callable[[str, str], bool]
"""Returns True if a secret is in a text; takes the text, and its ``_alphanumeric``."""


def _forms_and_cores(text: str) -> list[tuple[str, str]]:
    return [(form, _alphanumeric(form)) for form in _forms(text)]


def _is_in(text: str, tests: Iterable[_Test]) -> bool:
    return any(test(form, _alphanumeric(form)) for form in _forms(text) for test in tests)


def _is_in_a_word(text: str, test: _Test) -> bool:
    return any(_is_in(word, [test]) for word in text.split())


def _alphanumeric(text: str) -> str:
    """Return the ASCII letters and digits of ``text``; encodings change only other characters."""
    return _NOT_CORE.sub("", text.lower())


def _contains_whole(secret: str) -> _Test:
    core = _alphanumeric(secret)
    if len(core) < _LEAST_SECRET:
        return lambda form, _: secret in form
    return lambda _, form: core in form


def _contains_half(secret: str) -> _Test:
    """Return a test for half of the secret: of its letters and digits, or of all its characters."""
    of_core, of_text = _half_of(_alphanumeric(secret)), _half_of(secret.casefold())
    return lambda form, core: of_core(core) or of_text(form.casefold())


def _half_of(secret: str) -> Callable[[str], bool]:
    """Return a test for half of the characters: in blocks, or of a password in one piece."""
    blocks = {secret[at : at + _BLOCK] for at in range(0, len(secret) - _BLOCK + 1, _BLOCK)}
    if len(secret) > _LONGEST_PASSWORD:
        return lambda text: 2 * sum(block in text for block in blocks) >= len(blocks)
    half = max(_LEAST_SECRET, -(-len(secret) // 2))
    pieces = {secret[at : at + half] for at in range(len(secret) - half + 1)}
    return lambda text: (
        any(piece in text for piece in pieces)
        or _BLOCK * sum(block in text for block in blocks) >= half
    )


def _forms(text: str, depth: int = _MOST_DECODED) -> Iterator[str]:
    """Yield ``text``, and its decoded forms, decoded once and again."""
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
    r"""Return the characters of ``%61``, ``&#97;`` or ``\u0061``; otherwise a blank."""
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
    """Yield the decoded base64 and hexadecimal parts of ``text``, from each possible offset."""
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


MOST_JSON_VALUES = 4 << 20


def bounded_json(text: str | bytes, most_values: int = MOST_JSON_VALUES) -> Any:
    """Return the content of a JSON text, as ``json.loads`` does, with ``most_values`` at most.

    An empty list takes 3 bytes of text and 64 of memory. Commas and brackets within texts count,
    too, because that is faster.

    Raises ValueError for more values, and RecursionError.
    """
    _check_values(text, most_values)
    return json.loads(text)


def some_of(names: Iterable[str], most: int = 3) -> str:
    """Return the first names, and how many more there are: ``a, b, c and 4 more``."""
    every = list(names)
    more = len(every) - most
    return ", ".join(every[:most]) + (f" and {more} more" if more > 0 else "")


def values_in(text: str | bytes) -> int:
    """Return the most values that a JSON text may have: its commas and opening brackets."""
    marks: tuple[Any, ...] = (",", "[", "{") if isinstance(text, str) else (b",", b"[", b"{")
    return sum(map(text.count, marks))


def _check_values(text: str | bytes, most_values: int) -> None:
    if values_in(text) > most_values:
        raise ValueError(f"a JSON text of more than {most_values} values")


MOST_SCHEMA_VALUES = 2_000_000
"""32 MB of empty lists take 0.9 GB. A schema of 10 MB has 600,000 commas and brackets."""


def parse_json(text: str) -> Any:
    """Return the content of a schema's text, as ``json.loads`` does.

    Raises ValueError, also for NaN and Infinity, which Python accepts and JSON lacks, for more than
    ``MOST_SCHEMA_VALUES``, and for text that is nested too deeply for Python.
    """
    _check_values(text, MOST_SCHEMA_VALUES)
    try:
        return json.loads(text, parse_constant=_refuse)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")
