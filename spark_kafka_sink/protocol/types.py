"""Kafka's wire types: how one value is written and read.

Every type gives a pair of plain functions, compiled once per message class and version by
:mod:`spark_kafka_sink.protocol.schema`:

- ``encode(value, out)`` appends to a :class:`Writer`;
- ``decode(data, at)`` returns ``(value, next_at)``.

Decoders never trust a length: whatever does not fit into the bytes at hand raises, and
``schema.decode_message`` turns that into one RemoteProtocolError.

Source: Kafka protocol guide; KIP-482 for compact and tagged forms.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Union
from uuid import UUID

from spark_kafka_sink.base.errors import LocalProtocolError, RemoteProtocolError
from spark_kafka_sink.base.printable import shown

Buffer = Union[bytes, bytearray, memoryview]
Decoder = Callable[[bytes, int], tuple[Any, int]]


class Records(NamedTuple):
    """Record batches as they go to the socket: buffers that are never copied, and their sum."""

    buffers: Sequence[Buffer]
    size_bytes: int


class Writer:
    """Collects a message as a list of buffers; record batches are appended as views, not copied."""

    __slots__ = ("_parts", "_parts_bytes", "tail")

    def __init__(self) -> None:
        self._parts: list[Buffer] = []
        self._parts_bytes = 0
        self.tail = bytearray()

    def append_buffers(self, records: Records) -> None:
        """Append record batches without copying them."""
        self._parts.append(self.tail)
        self._parts.extend(records.buffers)
        self._parts_bytes += len(self.tail) + records.size_bytes
        self.tail = bytearray()

    @property
    def size_bytes(self) -> int:
        return self._parts_bytes + len(self.tail)

    def buffers(self) -> list[Buffer]:
        """All parts in order. The writer must not be used afterwards."""
        return [part for part in (*self._parts, self.tail) if len(part)]


Encoder = Callable[[Any, Writer], None]


class FixedType(NamedTuple):
    """A type of constant size, so that neighbours can be read by one struct call."""

    name: str
    code: str
    default: Any = 0


class VariableType(NamedTuple):
    """STRING, TEXT, BYTES, RECORDS, UUID: own functions for plain and compact, nullable or not."""

    name: str
    default: Any


class ArrayOf(NamedTuple):
    """An array of a wire type or of a message class."""

    element: Any


INT8 = FixedType("int8", "b")
INT16 = FixedType("int16", "h")
INT32 = FixedType("int32", "i")
INT64 = FixedType("int64", "q")
FLOAT64 = FixedType("float64", "d", 0.0)
BOOL = FixedType("bool", "?", False)
STRING = VariableType("string", "")
TEXT = VariableType("text", "")
"""A STRING for people, in a broker's own words: decoded as it may be shown, with ``shown``."""
BYTES = VariableType("bytes", b"")
RECORDS = VariableType("records", None)
UUID_TYPE = VariableType("uuid", UUID(int=0))

WireType = Union[FixedType, VariableType, ArrayOf, type]

_MAX_VARINT_BYTES = 5


def write_unsigned_varint(value: int, out: bytearray) -> None:
    """Append ``value`` (0 … 2^32-1) in base 128, least significant group first."""
    while value >= 0x80:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)


def read_unsigned_varint(data: bytes, at: int) -> tuple[int, int]:
    """Read an unsigned varint of at most 32 bits."""
    byte = data[at]
    if byte < 0x80:
        return byte, at + 1
    value = byte & 0x7F
    for position in range(1, _MAX_VARINT_BYTES):
        byte = data[at + position]
        value |= (byte & 0x7F) << (7 * position)
        if byte < 0x80:
            if value > 0xFFFFFFFF:
                break
            return value, at + position + 1
    raise RemoteProtocolError("varint longer than 32 bits")


def fixed_encoder(wire_type: FixedType) -> Encoder:
    """Writer of one fixed-size value; a value out of range is a LocalProtocolError."""
    pack = struct.Struct(">" + wire_type.code).pack

    def encode(value: Any, out: Writer) -> None:
        try:
            out.tail += pack(value)
        except struct.error as error:
            raise LocalProtocolError(f"{value!r} is not an {wire_type.name}") from error

    return encode


def fixed_decoder(codes: str) -> tuple[Callable[[bytes, int], tuple[Any, ...]], int]:
    """One reader for neighbouring fixed types: returns (unpack_from, size in bytes)."""
    layout = struct.Struct(">" + codes)
    return layout.unpack_from, layout.size


def uuid_encoder() -> Encoder:
    """Writer of a topic id: 16 bytes."""

    def encode(value: UUID, out: Writer) -> None:
        out.tail += value.bytes

    return encode


def uuid_decoder() -> Decoder:
    """Reader of a topic id."""

    def decode(data: bytes, at: int) -> tuple[UUID, int]:
        return UUID(bytes=_take(data, at, 16)), at + 16

    return decode


def _take(data: bytes, at: int, count: int) -> bytes:
    end = at + count
    if end > len(data):
        raise RemoteProtocolError(f"{count} bytes announced, {len(data) - at} left")
    return data[at:end]


def length_encoder(code: str, compact: bool) -> Callable[[int, Writer], None]:
    """Writer of a length prefix; a length of -1 is null. Compact: unsigned varint of length + 1."""
    if compact:
        return lambda length, out: write_unsigned_varint(length + 1, out.tail)
    pack = struct.Struct(">" + code).pack

    def encode(length: int, out: Writer) -> None:
        try:
            out.tail += pack(length)
        except struct.error as error:
            raise LocalProtocolError(f"length {length} does not fit the protocol") from error

    return encode


def length_decoder(code: str, compact: bool) -> Callable[[bytes, int], tuple[int, int]]:
    """Reader of a length prefix; returns -1 for null and raises for other negative lengths."""
    if compact:

        def decode_compact(data: bytes, at: int) -> tuple[int, int]:
            value, at = read_unsigned_varint(data, at)
            return value - 1, at

        return decode_compact
    layout = struct.Struct(">" + code)

    def decode(data: bytes, at: int) -> tuple[int, int]:
        (length,) = layout.unpack_from(data, at)
        if length < -1:
            raise RemoteProtocolError(f"negative length {length}")
        return length, at + layout.size

    return decode


def string_encoder(compact: bool, nullable: bool) -> Encoder:
    """Writer of a UTF-8 string."""
    write_length = length_encoder("h", compact)

    def encode(value: str | None, out: Writer) -> None:
        if value is None:
            if not nullable:
                raise LocalProtocolError("null in a string that may not be null")
            write_length(-1, out)
            return
        encoded = value.encode()
        write_length(len(encoded), out)
        out.tail += encoded

    return encode


def string_decoder(compact: bool, nullable: bool) -> Decoder:
    """Reader of a UTF-8 string."""
    read_length = length_decoder("h", compact)

    def decode(data: bytes, at: int) -> tuple[str | None, int]:
        length, at = read_length(data, at)
        if length < 0:
            if not nullable:
                raise RemoteProtocolError("null in a string that may not be null")
            return None, at
        return str(_take(data, at, length), "utf-8"), at + length

    return decode


def text_decoder(compact: bool, nullable: bool) -> Decoder:
    """Reader of a string that nobody compares, and that an error may show."""
    decode_string = string_decoder(compact, nullable)

    def decode(data: bytes, at: int) -> tuple[str | None, int]:
        text, at = decode_string(data, at)
        told = None if text is None else TEXTS.shown(text)
        return (told if nullable else told or ""), at

    return decode


_MOST_CLEANED, _EACH = 250_000, 100


class _Texts:
    """The texts of the answer that is decoded; of several, where threads decode at once.

    To clean one takes up to 100 ms, and an answer may hold 20,000: a peer could keep this process
    from looking at its deadlines. So of one answer at most ``_MOST_CLEANED`` characters are
    cleaned, each text as if it had ``_EACH`` more, and the other texts count as not there.
    """

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Another answer."""
        self._left = _MOST_CLEANED
        self._known: dict[str, str] = {}

    def shown(self, text: str) -> str | None:
        """Return ``text`` as it may be shown; None for what is not cleaned."""
        # A broker says the same of each of 10,000 records that it refuses.
        found = self._known.get(text)
        if found is None and self._left > 0:
            self._left -= len(text) + _EACH
            found = self._known[text] = shown(text)
        return found


TEXTS = _Texts()


def bytes_encoder(compact: bool, nullable: bool) -> Encoder:
    """Writer of bytes."""
    write_length = length_encoder("i", compact)

    def encode(value: Buffer | None, out: Writer) -> None:
        if value is None:
            if not nullable:
                raise LocalProtocolError("null in bytes that may not be null")
            write_length(-1, out)
            return
        write_length(len(value), out)
        out.tail += value

    return encode


def bytes_decoder(compact: bool, nullable: bool) -> Decoder:
    """Reader of bytes."""
    read_length = length_decoder("i", compact)

    def decode(data: bytes, at: int) -> tuple[bytes | None, int]:
        length, at = read_length(data, at)
        if length < 0:
            if not nullable:
                raise RemoteProtocolError("null in bytes that may not be null")
            return None, at
        return _take(data, at, length), at + length

    return decode


def records_encoder(compact: bool) -> Encoder:
    """Writer of record batches, as uncopied views."""
    write_length = length_encoder("i", compact)

    def encode(value: Records | None, out: Writer) -> None:
        if value is None:
            write_length(-1, out)
            return
        write_length(value.size_bytes, out)
        out.append_buffers(value)

    return encode


def records_decoder(compact: bool) -> Decoder:
    """The read side serves tests and the simulated broker: record batches as one buffer."""
    read_bytes = bytes_decoder(compact, nullable=True)

    def decode(data: bytes, at: int) -> tuple[Records | None, int]:
        value, at = read_bytes(data, at)
        return (None if value is None else Records((value,), len(value))), at

    return decode
