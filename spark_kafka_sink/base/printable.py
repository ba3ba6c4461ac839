"""Text from outside (records, brokers, servers, files of others), as it may be shown."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache

from spark_kafka_sink.base.secret import HIDDEN, known_secrets

MOST_SHOWN = 1_000
"""Characters of a text from outside, which may have 100 MiB."""

# What is looked at: far more, so that no secret is cut before it is found.
_MOST_READ = 64 * MOST_SHOWN
_LEAST_SECRET = 4
# Longer ones (tokens, keys) have no characters that are encoded on their way.
_LONGEST_ENCODED = 256
_HTML = {'"': "quot", "&": "amp", "'": "apos", "<": "lt", ">": "gt"}
_ESCAPES = {"\n": r"\\n", "\r": r"\\r", "\t": r"\\t"}
_BASE64 = "A-Za-z0-9+/_-"


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
    a request may quote it. Hidden are ``secrets`` and all that this process knows (each ``Secret``
    that is alive), as they are and as URLs, JSON, HTML and base64 have them.
    """
    told = str(text)[:_MOST_READ]
    told = printable(without(told, [*secrets, *known_secrets()]))
    return told if len(told) <= MOST_SHOWN else told[:MOST_SHOWN] + " …"


def without(text: str, secrets: Iterable[str]) -> str:
    """Return ``text`` without ``secrets`` in whatever encoding; very short ones are kept."""
    # The longest first: one may begin with another.
    for secret in sorted({s for s in secrets if len(s) >= _LEAST_SECRET}, key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
        if len(secret) <= _LONGEST_ENCODED:
            text = _encodings(secret).sub(HIDDEN, text)
    return text


@lru_cache(maxsize=64)
def _encodings(secret: str) -> re.Pattern[str]:
    """Return what matches ``secret``, each character as it is or encoded in any of the ways."""
    in_base64 = "|".join(re.escape(part) for part in _inside_base64(secret))
    # From the beginning of a word only: else a long one would be read from each of its letters.
    whole = f"(?<![{_BASE64}])[{_BASE64}]*(?:{in_base64})[{_BASE64}]*=*" if in_base64 else "(?!)"
    return re.compile(f"(?:{''.join(map(_encoded, secret))})|{whole}")


def _encoded(character: str) -> str:
    """Return the alternatives of one character: ``a``, ``%61``, ``\\u0061``, ``&#97;``."""
    data = character.encode("utf-8", "surrogatepass")
    units = character.encode("utf-16-be", "surrogatepass").hex()
    ways = [
        r"\\?" + re.escape(character),
        # A % may be encoded itself, as often as a text is passed on.
        "(?i:" + "".join(f"%(?:25)*{byte:02x}" for byte in data) + ")",
        "(?i:" + "".join(rf"\\u{units[at : at + 4]}" for at in range(0, len(units), 4)) + ")",
        f"(?i:&#(?:0*{ord(character)}|x0*{ord(character):x});)",
    ]
    if character == " ":
        ways.append(r"\+")
    if character in _HTML:
        ways.append(f"&{_HTML[character]};")
    if character in _ESCAPES:
        ways.append(_ESCAPES[character])
    return f"(?:{'|'.join(ways)})"


def _inside_base64(secret: str) -> Iterator[str]:
    """Return what base64 of any text with ``secret`` in it has for it, at each of three offsets.

    Of the first and the last byte some bits stand in a character that others share.
    """
    data = secret.encode("utf-8", "surrogatepass")
    for offset in range(3):
        text = base64.b64encode(bytes(offset) + data).decode()
        first = -(-8 * offset // 6)
        last = 8 * (offset + len(data)) // 6
        part = text[first:last]
        if len(part) >= _LEAST_SECRET:
            yield part
            yield part.replace("+", "-").replace("/", "_")
