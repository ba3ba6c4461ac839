"""Kafka's wire types: encoders and decoders of single values.

Every type has a pair of plain functions. :mod:`spark_kafka_sink.protocol.schema` compiles them once
per message class and version:

- ``encode(value, out)`` appends to a :class:`Writer`;
- ``decode(data, at)`` returns ``(value, next_at)``.

Decoders never trust a length: a value that exceeds the available bytes raises an error, which
``schema.decode_message`` converts to RemoteProtocolError.

Source: Kafka protocol guide; KIP-482 for compact and tagged forms.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Union
from uuid import UUID

from spark_kafka_sink.base.errors import LocalProtocolError, RemoteProtocolError
from spark_kafka_sink.base.text import redacted

Buffer = Union[bytes, bytearray, memoryview]
Decoder = Callable[[bytes, int], tuple[Any, int]]


class Records(NamedTuple):
    """Record batches for the socket: buffers that are never copied, and their total size."""

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
        """Return all parts in order. The writer must not be used afterwards."""
        return [part for part in (*self._parts, self.tail) if len(part)]


Encoder = Callable[[Any, Writer], None]


class FixedType(NamedTuple):
    """A type of constant size; one struct call reads neighbouring fields of such types."""

    name: str
    code: str
    default: Any = 0


class VariableType(NamedTuple):
    """STRING, TEXT, BYTES, RECORDS, UUID: own functions for plain, compact and nullable forms."""

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
"""A STRING in a broker's own words, for people; decoded with ``redacted``, so that
errors may show it."""
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
    """Return the encoder of a fixed-size value. It raises LocalProtocolError if out of range."""
    pack = struct.Struct(">" + wire_type.code).pack

    def encode(value: Any, out: Writer) -> None:
        try:
            out.tail += pack(value)
        except struct.error as error:
            raise LocalProtocolError(f"{value!r} is not an {wire_type.name}") from error

    return encode


def fixed_decoder(codes: str) -> tuple[Callable[[bytes, int], tuple[Any, ...]], int]:
    """Return one decoder for neighbouring fixed types: (unpack_from, size in bytes)."""
    layout = struct.Struct(">" + codes)
    return layout.unpack_from, layout.size


def uuid_encoder() -> Encoder:
    """Return the encoder of a topic id: 16 bytes."""

    def encode(value: UUID, out: Writer) -> None:
        out.tail += value.bytes

    return encode


def uuid_decoder() -> Decoder:
    """Return the decoder of a topic id."""

    def decode(data: bytes, at: int) -> tuple[UUID, int]:
        return UUID(bytes=_take(data, at, 16)), at + 16

    return decode


def _take(data: bytes, at: int, count: int) -> bytes:
    end = at + count
    if end > len(data):
        raise RemoteProtocolError(f"{count} bytes announced, {len(data) - at} left")
    return data[at:end]


def length_encoder(code: str, compact: bool) -> Callable[[int, Writer], None]:
    """Return the encoder of a length prefix; -1 is null. Compact: unsigned varint of length + 1."""
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
    """Return the decoder of a length prefix, which returns -1 for null and rejects less than -1."""
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
    """Return the encoder of a UTF-8 string."""
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
    """Return the decoder of a UTF-8 string."""
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
    """Return the decoder of a string that is never compared, and that an error may show."""
    decode_string = string_decoder(compact, nullable)

    def decode(data: bytes, at: int) -> tuple[str | None, int]:
        text, at = decode_string(data, at)
        told = None if text is None else TEXT_SANITIZER.sanitized(text)
        return (told if nullable else told or ""), at

    return decode


_MAX_SANITIZED, _CHARGE_PER_TEXT = 250_000, 100


class _TextSanitizer:
    """Cleans the texts of the response being decoded, or of several if threads decode concurrently.

    Cleaning one text takes up to 100 ms, and a response may hold 20,000: a peer could keep this
    process from checking its deadlines. Therefore at most ``_MAX_SANITIZED`` characters of a
    response are cleaned, where each text counts as ``_CHARGE_PER_TEXT`` characters more. Further
    texts are treated as missing.
    """

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Start with another response."""
        self._left = _MAX_SANITIZED
        self._known: dict[str, str] = {}

    def sanitized(self, text: str) -> str | None:
        """Return ``text`` as an error may show it; None beyond the limit."""
        # A broker sends the same text for each of 10,000 rejected records.
        found = self._known.get(text)
        if found is None and self._left > 0:
            self._left -= len(text) + _CHARGE_PER_TEXT
            found = self._known[text] = redacted(text)
        return found


TEXT_SANITIZER = _TextSanitizer()


def bytes_encoder(compact: bool, nullable: bool) -> Encoder:
    """Return the encoder of bytes."""
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
    """Return the decoder of bytes."""
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
    """Return the encoder of record batches, as uncopied views."""
    write_length = length_encoder("i", compact)

    def encode(value: Records | None, out: Writer) -> None:
        if value is None:
            write_length(-1, out)
            return
        write_length(value.size_bytes, out)
        out.append_buffers(value)

    return encode


def records_decoder(compact: bool) -> Decoder:
    """Return the decoder of record batches as one buffer; tests and readers of a log use it."""
    read_bytes = bytes_decoder(compact, nullable=True)

    def decode(data: bytes, at: int) -> tuple[Records | None, int]:
        value, at = read_bytes(data, at)
        return (None if value is None else Records((value,), len(value))), at

    return decode
