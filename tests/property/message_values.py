"""Values for every message class and version, drawn by a seeded Random.

The message tables say what there is: a field outside its versions keeps its default, because that is what
a decoder must give back for it.
"""

import dataclasses
from uuid import UUID

from spark_kafka_sink.protocol import schema, types
from spark_kafka_sink.protocol.messages import client, inspection, topics, transactions
from spark_kafka_sink.protocol.messages.topics import MetadataRequest

REQUEST_TYPES = tuple(
    kind
    for module in (client, inspection, topics, transactions)
    for kind in vars(module).values()
    if isinstance(kind, type) and issubclass(kind, schema.Request) and kind is not schema.Request
)
"""Each API of the package: what speaks of all of them needs no row of its own for a new one."""
REQUEST_VERSIONS = [
    (cls, version)
    for cls in REQUEST_TYPES
    for version in range(cls.min_version, cls.max_version + 1)
]
MESSAGE_VERSIONS = [
    (cls, version)
    for request, version in REQUEST_VERSIONS
    for cls in (request, request.response_type)
]


def any_request(cls):
    """A request that may be answered by any response of its class."""
    return cls(topics=None) if cls is MetadataRequest else cls()


def label(value):
    """A pytest id: the class' name, or the version."""
    return value.__name__ if isinstance(value, type) else f"v{value}"


def encode(message, version):
    out = types.Writer()
    schema.encode_message(message, version, out)
    encoded = b"".join(out.buffers())
    assert len(encoded) == out.size_bytes
    return encoded


def _holds(versions, version):
    return versions[0] <= version <= versions[1]


def _bits(wire_type):
    return {"b": 8, "h": 16, "i": 32, "q": 64}[wire_type.code]


def random_message(cls, version, rng):
    """One value of ``cls`` that ``version`` can carry."""
    values = {}
    for field in dataclasses.fields(cls):
        spec = field.metadata["wire"]
        if not _holds(spec.versions, version):
            continue
        null = _holds(spec.nullable, version) and rng.random() < 0.2
        values[field.name] = None if null else _random_value(spec.wire_type, version, rng)
    return cls(**values)


def _random_value(wire_type, version, rng):
    if wire_type is types.BOOL:
        return rng.random() < 0.5
    if wire_type is types.FLOAT64:
        return rng.random() * 1e9
    if isinstance(wire_type, types.FixedType):
        bits = _bits(wire_type)
        # Mostly small numbers, as brokers send them; now and then any.
        return rng.randrange(8) if rng.random() < 0.7 else rng.getrandbits(bits) - 2 ** (bits - 1)
    if wire_type in (types.STRING, types.TEXT):
        # 127 and 128 bytes are where a compact length takes its second byte.
        return rng.choice(("", "flights", "Flughäfen", "x" * (120 + rng.randrange(16))))
    if wire_type is types.BYTES:
        return rng.randbytes(rng.randrange(20))
    if wire_type is types.RECORDS:
        data = rng.randbytes(rng.randrange(100))
        return types.Records((data,), len(data))
    if wire_type is types.UUID_TYPE:
        return UUID(bytes=rng.randbytes(16))
    if isinstance(wire_type, types.ArrayOf):
        return [_random_value(wire_type.element, version, rng) for _ in range(rng.randrange(4))]
    return random_message(wire_type, version, rng)
