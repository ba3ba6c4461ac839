"""As much of ASN.1 as stores of keys need: elements one after the other, and inside another.

Lengths are definite, as DER has them, or not, as BER may have them. Source: X.690.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator
from datetime import datetime, timezone
from typing import NamedTuple

from spark_kafka_sink.security.material import DamagedStoreError

INTEGER, OCTET_STRING, OBJECT_IDENTIFIER, SEQUENCE = 0x02, 0x04, 0x06, 0x30
UTC_TIME, GENERALIZED_TIME = 0x17, 0x18
EXPLICIT_0 = 0xA0
_CONSTRUCTED = 0x20
_MANY_BYTES, _SIZE_BYTES = 0x80, 4
_END = b"\0\0"
_MOST_LEVELS = 32
"""Of elements without a length inside another: a store has ten."""

MOST_ITERATIONS = 5_000_000
"""Of what makes a key of a password. Source: ``MAX_ITERATION_COUNT`` of JDK's ``PKCS12KeyStore``;
the JDK's own stores have 10,000."""

# Identifiers of PBES1, PBKDF2, PKCS12's own, and scrypt (RFC 8018, 7292, 7914): without tag and
# length, which BER can write in several ways.
_SCRYPT = bytes.fromhex("2b06010401da47040b")
_FROM_PASSWORD = re.compile(
    rb"\x2a\x86\x48\x86\xf7\x0d\x01\x05[\x01\x03\x04\x06\x0a\x0b\x0c]"
    rb"|\x2a\x86\x48\x86\xf7\x0d\x01\x0c\x01[\x01-\x06]"
    rb"|" + re.escape(_SCRYPT)
)


class Element(NamedTuple):
    """One element: its tag, its content, and where it ends in what it was read from."""

    tag: int
    content: memoryview
    end: int

    @property
    def value(self) -> bytes:
        return bytes(self.content)


def first(data: bytes | memoryview, tag: int) -> Element:
    """The element that ``data`` begins with. Raises DamagedStoreError if it is not a ``tag``."""
    element = _read(memoryview(data), 0)
    if element.tag != tag:
        raise DamagedStoreError("it is not the ASN.1 that it should be")
    return element


def elements(data: bytes | memoryview) -> Iterator[Element]:
    """All elements of ``data``. Raises DamagedStoreError where the last one is cut."""
    view, at = memoryview(data), 0
    while at < len(view):
        element = _read(view, at)
        yield element
        at = element.end


def expires_at_ms(certificate: bytes) -> int | None:
    """Return the end of a certificate's validity, in milliseconds since 1970-01-01 UTC.

    certificate: DER of an X.509 one. None where it has no end (year 9999) or cannot be read.

    Here, as the package that reads certificates takes longer to load than a task has.

    Source: RFC 5280, 4.1.2.5.
    """
    try:
        of_it = elements(first(first(certificate, SEQUENCE).content, SEQUENCE).content)
        # version, serialNumber, signature, issuer, validity; the first one may be left out.
        of_it = (element for element in of_it if element.tag != EXPLICIT_0)
        validity = next(itertools.islice(of_it, 3, None))
        _, end = elements(validity.content)
        text = end.value.decode("ascii")
        if end.tag == UTC_TIME:
            text = ("19" if text >= "5" else "20") + text
        at = datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=timezone.utc)
    except (ValueError, StopIteration):
        return None
    return None if at.year == datetime.max.year else int(at.timestamp() * 1000)


def check_iterations(data: bytes) -> None:
    """Raise DamagedStoreError where a store or key in ``data`` asks for more than MOST_ITERATIONS.

    Whoever reads it would compute for minutes, under a lock that connections wait for. Identifiers
    are looked for wherever they stand.
    """
    data = _in_one_piece(data, _MOST_LEVELS)
    for found in _FROM_PASSWORD.finditer(data):
        # The salt, then how often; of scrypt, three numbers that are multiplied.
        parameters = list(elements(first(memoryview(data)[found.end() :], SEQUENCE).content))
        numbers = parameters[1:4] if found[0] == _SCRYPT else parameters[1:2]
        check_count(math.prod(map(integer, numbers)))


def check_count(iterations: int) -> None:
    """Raise DamagedStoreError for more than MOST_ITERATIONS."""
    if iterations > MOST_ITERATIONS:
        raise DamagedStoreError(
            f"it asks for {iterations:,} iterations with its password, and {MOST_ITERATIONS:,} at "
            "most are computed, as by Java: write it anew with the usual number"
        )


def integer(element: Element) -> int:
    """Return a number that is not negative; of one with more than 16 bytes, those in front.

    Raises DamagedStoreError for what is no INTEGER.
    """
    if element.tag != INTEGER:
        raise DamagedStoreError("it is not the ASN.1 that it should be")
    return int.from_bytes(element.value.lstrip(b"\0")[:16], "big")


def _in_one_piece(data: bytes | memoryview, levels: int) -> bytes:
    """Return ``data`` with whole strings where BER has cut them: what is looked for may stand
    across a cut. What is no ASN.1, as it is encrypted, stays as it is.
    """
    parts: list[bytes] = []
    at = 0
    try:
        for element in elements(data) if levels else ():
            tag, inner = element.tag, element.value
            if tag == OCTET_STRING | _CONSTRUCTED:
                tag, inner = OCTET_STRING, _string(element, levels)
            if tag == OCTET_STRING or tag & _CONSTRUCTED:
                inner = _in_one_piece(inner, levels - 1)
            size = len(inner).to_bytes(_SIZE_BYTES, "big")
            parts += bytes([tag, _MANY_BYTES + _SIZE_BYTES]) + size, inner
            at = element.end
    except DamagedStoreError:
        pass
    return b"".join(parts) + data[at:]


def _string(element: Element, levels: int) -> bytes:
    """Return the whole of a string, of which a piece may itself be in pieces."""
    if not levels or not element.tag & _CONSTRUCTED:
        return element.value
    return b"".join(_string(piece, levels - 1) for piece in elements(element.content))


def _read(data: memoryview, at: int, levels: int = _MOST_LEVELS) -> Element:
    if at + 2 > len(data):
        raise DamagedStoreError("it is cut")
    tag, length, start = data[at], data[at + 1], at + 2
    if length == _MANY_BYTES and tag & _CONSTRUCTED and levels:
        end = start
        while data[end : end + 2] != _END:
            end = _read(data, end, levels - 1).end
        return Element(tag, data[start:end], end + 2)
    if length >= _MANY_BYTES:
        size = length - _MANY_BYTES
        if not size:
            raise DamagedStoreError("it is not the ASN.1 that it should be")
        length = int.from_bytes(data[start : start + size], "big")
        start += size
    end = start + length
    if end > len(data):
        raise DamagedStoreError("it is cut")
    return Element(tag, data[start:end], end)
