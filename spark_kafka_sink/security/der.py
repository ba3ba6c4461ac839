"""As much of ASN.1's DER as stores of keys need: elements one after the other, and inside another.

Lengths are definite, as DER has them. Source: X.690.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from spark_kafka_sink.security.material import DamagedStoreError

INTEGER, OCTET_STRING, OBJECT_IDENTIFIER, SEQUENCE = 0x02, 0x04, 0x06, 0x30
EXPLICIT_0 = 0xA0
_MANY_BYTES, _LONGEST_LENGTH = 0x80, 4


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
