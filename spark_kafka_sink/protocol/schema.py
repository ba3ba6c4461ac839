"""Messages as tables: a message is a dataclass whose fields carry wire type and version ranges.

::

    @message(slots=True)
    class CreatableTopicConfig(Struct):
        name: str = wire(STRING)
        value: str | None = wire(STRING, nullable="0+")

From the table, this module compiles one encoder and one decoder per class and version, and caches
them. Field order is wire order. A field outside its versions reads as its default. Unknown tagged
fields are skipped. The rules are those of Kafka's own message generator (KIP-482).
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

from spark_kafka_sink.base.errors import LocalProtocolError, RemoteProtocolError
from spark_kafka_sink.base.model import dataclass
from spark_kafka_sink.protocol import types as t

_ALWAYS_ABSENT = (1, 0)
M = TypeVar("M")


class WireField(NamedTuple):
    """The encoding of one field. Ranges are (first, last) versions, inclusive."""

    wire_type: t.WireType
    versions: tuple[int, int]
    nullable: tuple[int, int]
    tag: int | None
    ignorable: bool


class Struct:
    """Base of messages and their parts. All share one ``__eq__`` and one ``__repr__``."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return _values(self) == _values(other)

    def __repr__(self) -> str:
        values = (f"{name}={value!r}" for name, value in _values(self).items())
        return f"{type(self).__qualname__}({', '.join(values)})"


def _values(struct: Any) -> dict[str, Any]:
    return {field.name: getattr(struct, field.name) for field in dataclasses.fields(struct)}


if TYPE_CHECKING:
    from typing_extensions import dataclass_transform

    @dataclass_transform()
    def message(*, slots: bool) -> Callable[[type[M]], type[M]]:
        """Make a dataclass of a message or of a part of one."""

else:
    # To compile __eq__ and __repr__ of each class took half of the time of loading the messages.
    message = partial(dataclass, repr=False, eq=False)


class Message(Struct):
    """Base of requests and responses, with the API's version table."""

    __slots__ = ()
    api_key: ClassVar[int]
    min_version: ClassVar[int]
    max_version: ClassVar[int]
    flexible_from: ClassVar[int]


class ResponseLimits(NamedTuple):
    """Limits of a response, so that no broker takes the memory of this process.

    size_bytes: of the frame
    objects: elements of all arrays; of numbers, eight count as one
    """

    size_bytes: int
    objects: int


LARGEST_RESPONSE = ResponseLimits(100 << 20, 1_000_000)
"""Limits of a response that has records, or an error for each record of a batch."""
SMALL_RESPONSE = ResponseLimits(4 << 20, 100_000)
"""Limits of a response that has at most an error code for each partition of the request."""


class Request(Message):
    """A request names the class of its response.

    throttled_from: first version in which the broker answers at once, and the client must pause for
        ``throttle_time_ms`` (KIP-219)
    """

    __slots__ = ()
    response_type: ClassVar[type[Message]]
    throttled_from: ClassVar[int] = 0
    response_limits: ClassVar[ResponseLimits] = LARGEST_RESPONSE

    def limits(self) -> ResponseLimits:
        """Return the limits of the response to this request."""
        return self.response_limits

    def check_response(self, response: Any) -> None:
        """Raise RemoteProtocolError if the response has more than was asked for."""


def wire(
    wire_type: t.WireType,
    versions: str = "0+",
    *,
    nullable: str | None = None,
    tag: int | None = None,
    default: Any = dataclasses.MISSING,
    ignorable: bool = False,
) -> Any:
    """Return a dataclass field with its place on the wire; versions as in Kafka's schemas."""
    field = WireField(wire_type, _range(versions), _range(nullable), tag, ignorable)
    metadata = {"wire": field}
    if default is not dataclasses.MISSING:
        return dataclasses.field(default=default, metadata=metadata)
    if isinstance(wire_type, t.ArrayOf):
        return dataclasses.field(default_factory=list, metadata=metadata)
    if isinstance(wire_type, (t.FixedType, t.VariableType)):
        null_first = nullable is not None and wire_type is not t.RECORDS
        return dataclasses.field(
            default=None if null_first else wire_type.default, metadata=metadata
        )
    return dataclasses.field(default_factory=wire_type, metadata=metadata)


def _range(text: str | None) -> tuple[int, int]:
    """Parse ``"3+"`` as (3, 32767), ``"0-12"`` as (0, 12), and None as an empty range."""
    if text is None:
        return _ALWAYS_ABSENT
    if text.endswith("+"):
        return int(text[:-1]), 32767
    first, _, last = text.partition("-")
    return int(first), int(last or first)


def _holds(versions: tuple[int, int], version: int) -> bool:
    return versions[0] <= version <= versions[1]


def encode_message(message: Message, version: int, out: t.Writer) -> None:
    """Append ``message``. Raises LocalProtocolError if the version cannot carry a value."""
    encode, _ = _codec(type(message), version, version >= message.flexible_from)
    encode(message, out)


def decode_message(
    cls: type[M],
    version: int,
    data: bytes,
    at: int = 0,
    most_objects: int = LARGEST_RESPONSE.objects,
) -> M:
    """Decode a ``cls`` from ``data``.

    Raises RemoteProtocolError for any other content, and for more than ``most_objects``.
    """
    _objects_left.set(_Counter(most_objects))
    flexible_from: int = cls.flexible_from  # type: ignore[attr-defined]
    _, decode = _codec(cls, version, version >= flexible_from)
    t.TEXT_SANITIZER.begin()
    try:
        message, _ = decode(data, at)
    except (struct.error, IndexError, UnicodeDecodeError, ValueError) as error:
        if isinstance(error, RemoteProtocolError):
            raise
        raise RemoteProtocolError(f"{cls.__name__} v{version}: {error}") from error
    return message  # type: ignore[no-any-return]


class _Counter:
    """Counts the objects that may still be made of a response."""

    __slots__ = ("left",)

    def __init__(self, left: int) -> None:
        self.left = left


_objects_left: ContextVar[_Counter] = ContextVar("objects_left")
"""The counter of the response that is being decoded in this thread."""
_NUMBERS_PER_OBJECT = 8
_codecs: dict[tuple[type, int, bool], tuple[t.Encoder, t.Decoder]] = {}


def _codec(cls: type, version: int, flexible: bool) -> tuple[t.Encoder, t.Decoder]:
    """Return encoder and decoder of ``cls``, compiled on first use and cached."""
    key = (cls, version, flexible)
    codec = _codecs.get(key)
    if codec is None:
        codec = _struct_encoder(cls, version, flexible), _struct_decoder(cls, version, flexible)
        _codecs[key] = codec
    return codec


def compile_codecs(requests: Iterable[type[Request]]) -> None:
    """Compile what the newest version of each request and its response needs."""
    for request in requests:
        version = request.max_version
        for cls in (request, request.response_type):
            _codec(cls, version, version >= request.flexible_from)


def _wire_fields(cls: type) -> list[tuple[dataclasses.Field[Any], WireField]]:
    return [(field, field.metadata["wire"]) for field in dataclasses.fields(cls)]


def _value_encoder(wire_type: Any, version: int, flexible: bool, nullable: bool) -> t.Encoder:
    if isinstance(wire_type, t.FixedType):
        return t.fixed_encoder(wire_type)
    if wire_type in (t.STRING, t.TEXT):
        return t.string_encoder(flexible, nullable)
    if wire_type is t.BYTES:
        return t.bytes_encoder(flexible, nullable)
    if wire_type is t.RECORDS:
        return t.records_encoder(flexible)
    if wire_type is t.UUID_TYPE:
        return t.uuid_encoder()
    if isinstance(wire_type, t.ArrayOf):
        return _array_encoder(wire_type, version, flexible, nullable)
    return _codec(wire_type, version, flexible)[0]


def _value_decoder(wire_type: Any, version: int, flexible: bool, nullable: bool) -> t.Decoder:
    if isinstance(wire_type, t.FixedType):
        return _single_fixed_decoder(wire_type)
    if wire_type is t.STRING:
        return t.string_decoder(flexible, nullable)
    if wire_type is t.TEXT:
        return t.text_decoder(flexible, nullable)
    if wire_type is t.BYTES:
        return t.bytes_decoder(flexible, nullable)
    if wire_type is t.RECORDS:
        return t.records_decoder(flexible)
    if wire_type is t.UUID_TYPE:
        return t.uuid_decoder()
    if isinstance(wire_type, t.ArrayOf):
        return _array_decoder(wire_type, version, flexible, nullable)
    return _codec(wire_type, version, flexible)[1]


def _single_fixed_decoder(wire_type: t.FixedType) -> t.Decoder:
    unpack_from, size = t.fixed_decoder(wire_type.code)

    def decode(data: bytes, at: int) -> tuple[Any, int]:
        return unpack_from(data, at)[0], at + size

    return decode


def _array_encoder(array: t.ArrayOf, version: int, flexible: bool, nullable: bool) -> t.Encoder:
    write_length = t.length_encoder("i", flexible)
    encode_element = _value_encoder(array.element, version, flexible, nullable=False)

    def encode(values: list[Any] | None, out: t.Writer) -> None:
        if values is None:
            if not nullable:
                raise LocalProtocolError("null in an array that may not be null")
            write_length(-1, out)
            return
        write_length(len(values), out)
        for value in values:
            encode_element(value, out)

    return encode


def _array_decoder(array: t.ArrayOf, version: int, flexible: bool, nullable: bool) -> t.Decoder:
    read_length = t.length_decoder("i", flexible)
    numbers = _NUMBERS_PER_OBJECT if isinstance(array.element, t.FixedType) else 1

    def check(length: int, data: bytes, at: int) -> None:
        if length < 0 and not nullable:
            raise RemoteProtocolError("null in an array that may not be null")
        # Every element has at least one byte: reject a higher count before allocating memory.
        if length > len(data) - at:
            raise RemoteProtocolError(f"array of {length} elements in {len(data) - at} bytes")
        objects = length // numbers
        if objects > 0:
            counter = _objects_left.get()
            counter.left -= objects
            if counter.left < 0:
                raise RemoteProtocolError(f"array of {length} elements is beyond the limit")

    if isinstance(array.element, t.FixedType):
        code = array.element.code
        element_size = struct.calcsize(">" + code)

        def decode_fixed(data: bytes, at: int) -> tuple[list[Any] | None, int]:
            length, at = read_length(data, at)
            check(length, data, at)
            if length <= 0:
                return (None if length < 0 else []), at
            values = struct.unpack_from(f">{length}{code}", data, at)
            return list(values), at + length * element_size

        return decode_fixed
    decode_element = _value_decoder(array.element, version, flexible, nullable=False)

    def decode(data: bytes, at: int) -> tuple[list[Any] | None, int]:
        length, at = read_length(data, at)
        check(length, data, at)
        if length < 0:
            return None, at
        values = []
        for _ in range(length):
            value, at = decode_element(data, at)
            values.append(value)
        return values, at

    return decode


def _struct_encoder(cls: type, version: int, flexible: bool) -> t.Encoder:
    plain: list[tuple[str, t.Encoder]] = []
    tagged: list[tuple[int, str, t.Encoder, Any]] = []
    absent: list[tuple[str, Any]] = []
    defaults = cls()
    for field, spec in _wire_fields(cls):
        default = getattr(defaults, field.name)
        if not _holds(spec.versions, version):
            if not spec.ignorable:
                absent.append((field.name, default))
            continue
        nullable = _holds(spec.nullable, version)
        encode_value = _value_encoder(spec.wire_type, version, flexible, nullable)
        if spec.tag is None:
            plain.append((field.name, encode_value))
        else:
            tagged.append((spec.tag, field.name, encode_value, default))
    tagged.sort(key=lambda entry: entry[0])

    def encode(message: Any, out: t.Writer) -> None:
        for name, default in absent:
            if getattr(message, name) != default:
                raise LocalProtocolError(
                    f"{cls.__name__} v{version} cannot carry {name}={getattr(message, name)!r}"
                )
        for name, encode_value in plain:
            encode_value(getattr(message, name), out)
        if flexible:
            _encode_tags(message, tagged, out)

    return encode


def _encode_tags(
    message: Any, tagged: list[tuple[int, str, t.Encoder, Any]], out: t.Writer
) -> None:
    """Write the tagged fields that differ from their default."""
    present = []
    for tag, name, encode_value, default in tagged:
        value = getattr(message, name)
        if value != default:
            nested = t.Writer()
            encode_value(value, nested)
            present.append((tag, bytes(nested.tail)))
    t.write_unsigned_varint(len(present), out.tail)
    for tag, encoded in present:
        t.write_unsigned_varint(tag, out.tail)
        t.write_unsigned_varint(len(encoded), out.tail)
        out.tail += encoded


class _Step(NamedTuple):
    """Decodes fields ``first … last-1``: neighbours of fixed size at once, others one by one."""

    first: int
    last: int
    unpack_from: Callable[[bytes, int], tuple[Any, ...]] | None
    size: int
    decode: t.Decoder | None


def _decode_steps(cls: type, version: int, flexible: bool) -> list[_Step]:
    steps: list[_Step] = []
    codes, first = "", 0

    def end_run(last: int) -> None:
        nonlocal codes
        if codes:
            unpack_from, size = t.fixed_decoder(codes)
            steps.append(_Step(first, last, unpack_from, size, None))
            codes = ""

    fields = _wire_fields(cls)
    for index, (_, spec) in enumerate(fields):
        if not _holds(spec.versions, version) or spec.tag is not None:
            end_run(index)
        elif isinstance(spec.wire_type, t.FixedType):
            if not codes:
                first = index
            codes += spec.wire_type.code
        else:
            end_run(index)
            nullable = _holds(spec.nullable, version)
            decode = _value_decoder(spec.wire_type, version, flexible, nullable)
            steps.append(_Step(index, index + 1, None, 0, decode))
    end_run(len(fields))
    return steps


def _struct_decoder(cls: type, version: int, flexible: bool) -> t.Decoder:
    steps = _decode_steps(cls, version, flexible)
    read_here = {index for step in steps for index in range(step.first, step.last)}
    template: list[Any] = []
    factories: list[tuple[int, Callable[[], Any]]] = []
    tagged: dict[int, tuple[int, t.Decoder]] = {}
    for index, (field, spec) in enumerate(_wire_fields(cls)):
        has_default = field.default is not dataclasses.MISSING
        template.append(field.default if has_default else None)
        if index not in read_here and callable(field.default_factory):
            factories.append((index, field.default_factory))
        if spec.tag is not None and _holds(spec.versions, version):
            nullable = _holds(spec.nullable, version)
            decoder = _value_decoder(spec.wire_type, version, flexible, nullable)
            tagged[spec.tag] = (index, decoder)

    def decode(data: bytes, at: int) -> tuple[Any, int]:
        values = template[:]
        for index, factory in factories:
            values[index] = factory()
        for first, last, unpack_from, size, decode_value in steps:
            if decode_value is not None:
                values[first], at = decode_value(data, at)
            elif unpack_from is not None:
                values[first:last] = unpack_from(data, at)
                at += size
        if flexible:
            at = _decode_tags(data, at, tagged, values)
        return cls(*values), at

    return decode


def _decode_tags(
    data: bytes, at: int, tagged: dict[int, tuple[int, t.Decoder]], values: list[Any]
) -> int:
    count, at = t.read_unsigned_varint(data, at)
    for _ in range(count):
        tag, at = t.read_unsigned_varint(data, at)
        size, at = t.read_unsigned_varint(data, at)
        end = at + size
        if end > len(data):
            raise RemoteProtocolError(f"tagged field of {size} bytes, {len(data) - at} left")
        known = tagged.get(tag)
        if known is not None:
            index, decode_value = known
            values[index], stop = decode_value(data, at)
            if stop != end:
                raise RemoteProtocolError(
                    f"tagged field {tag}: {stop - at} bytes instead of {size}"
                )
        at = end
    return at


def skip_tags(data: bytes, at: int) -> int:
    """Skip a tag buffer of unknown fields (response headers)."""
    return _decode_tags(data, at, {}, [])
