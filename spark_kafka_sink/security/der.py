"""As much of ASN.1's DER as stores of keys need: elements one after the other, and inside another.

Lengths are definite, as DER has them. Source: X.690.
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
_MANY_BYTES, _LONGEST_LENGTH = 0x80, 4

MOST_ITERATIONS = 5_000_000
"""Of what makes a key of a password. Source: ``MAX_ITERATION_COUNT`` of JDK's ``PKCS12KeyStore``;
the JDK's own stores have 10,000."""

# Identifiers of PBES1, PBKDF2, PKCS12's own, and scrypt (RFC 8018, 7292, 7914), with their tags.
_FROM_PASSWORD = re.compile(
    rb"\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x05[\x01\x03\x04\x06\x0a\x0b\x0c]"
    rb"|\x06\x0a\x2a\x86\x48\x86\xf7\x0d\x01\x0c\x01[\x01-\x06]"
    rb"|\x06\x09\x2b\x06\x01\x04\x01\xda\x47\x04\x0b"
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
    are looked for wherever they stand: what is around them may be BER, which others read.
    """
    for found in _FROM_PASSWORD.finditer(data):
        # The salt, then how often; of scrypt, three numbers that are multiplied.
        parameters = list(elements(first(memoryview(data)[found.end() :], SEQUENCE).content))
        numbers = [integer(e) for e in parameters[1:4] if e.tag == INTEGER]
        is_scrypt = found[0].startswith(b"\x06\x09\x2b")
        check_count(math.prod(numbers) if is_scrypt else max(numbers[:1], default=0))


def check_count(iterations: int) -> None:
    """Raise DamagedStoreError for more than MOST_ITERATIONS."""
    if iterations > MOST_ITERATIONS:
        raise DamagedStoreError(
            f"it asks for {iterations:,} iterations with its password, and {MOST_ITERATIONS:,} at "
            "most are computed, as by Java: write it anew with the usual number"
        )


def integer(element: Element) -> int:
    """Return a number that is not negative; of one with more than 16 bytes, those in front."""
    return int.from_bytes(element.value.lstrip(b"\0")[:16], "big")


def _read(data: memoryview, at: int) -> Element:
    if at + 2 > len(data):
        raise DamagedStoreError("it is cut")
    tag, length, start = data[at], data[at + 1], at + 2
    if length >= _MANY_BYTES:
        size = length - _MANY_BYTES
        if not 0 < size <= _LONGEST_LENGTH:
            raise DamagedStoreError("it is not DER: it has lengths of another kind")
        length = int.from_bytes(data[start : start + size], "big")
        start += size
    end = start + length
    if end > len(data):
        raise DamagedStoreError("it is cut")
    return Element(tag, data[start:end], end)
