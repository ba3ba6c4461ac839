"""The golden cases: JSON that the generator wrote, turned into the rows and bytes it stands for."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

import pyarrow as pa

from spark_kafka_sink.base.model import ColumnPositions
from spark_kafka_sink.protocol import types
from tests.property.message_values import REQUEST_TYPES

CLIENT_VERSION = "4.4.0"
FOLDER = Path(__file__).parent / "cases"
HEADERS_TYPE = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


class Row(NamedTuple):
    """One record to be written."""

    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    partition: int | None = 0
    topic: str = "t"


def load(name):
    """The cases of one file."""
    return load_file(name)["cases"]


def load_file(name):
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))


def name_of(case):
    """For pytest's ids."""
    return str(case["name"])


def blob(rule):
    """The bytes that a rule stands for. Twin of ``Blob.java``."""
    if rule is None:
        return None
    if "text" in rule:
        return str(rule["text"]).encode()
    if "hex" in rule:
        return bytes.fromhex(rule["hex"])
    if "repeat" in rule:
        return str(rule["repeat"]).encode() * int(rule["times"])
    state, out = rule["random"], bytearray()
    for _ in range(rule["length"]):
        state = (state * 1103515245 + 12345) & 0x7FFFFFFF
        out.append((state >> 16) & 0xFF)
    return bytes(out)


def rows(rule, topic="t", partition=0):
    """The rows that a rule stands for. Twin of ``Rows.java``."""
    if isinstance(rule, list):
        return [
            Row(
                row["timestamp"],
                blob(row["key"]),
                blob(row["value"]),
                [(name, blob(value)) for name, value in row.get("headers", ())],
                partition,
                topic,
            )
            for row in rule
        ]
    return [
        Row(
            rule["first_timestamp"] + index * rule["timestamp_step"],
            None if rule["key"] is None else (rule["key"] % index).encode(),
            (rule["value"] % index).encode(),
            [],
            partition,
            topic,
        )
        for index in range(rule["count"])
    ]


PLAN = ColumnPositions(value=0, key=1, headers=2, topic=3, partition=4, timestamp=5)


def arrow_batch(rows, is_large=False):
    """What Spark would hand over; ``is_large``: with 64-bit offsets."""
    data_type = pa.large_binary() if is_large else pa.binary()
    headers = [[{"key": k, "value": v} for k, v in row.headers] or None for row in rows]
    arrays = [
        pa.array([row.value for row in rows], data_type),
        pa.array([row.key for row in rows], data_type),
        pa.array(headers, HEADERS_TYPE),
        pa.array([row.topic for row in rows], pa.string()),
        pa.array([row.partition for row in rows], pa.int32()),
        pa.array([row.timestamp * 1000 for row in rows], pa.timestamp("us", "UTC")),
    ]
    names = ["value", "key", "headers", "topic", "partition", "timestamp"]
    return pa.record_batch(arrays, names=names)


def assert_same_bytes(ours, javas):
    """``javas``: hex, or size, beginning and digest of what is too long to be kept."""
    if isinstance(javas, str):
        assert ours.hex() == javas
        return
    begins = javas["begins"]
    assert ours[: len(begins) // 2].hex() == begins
    assert len(ours) == javas["size"]
    assert hashlib.sha256(ours).hexdigest() == javas["sha256"]


# --- our messages and the JSON that Kafka's own generated converters make of theirs ---------------

REQUESTS = {kind.__name__.removesuffix("Request"): kind for kind in REQUEST_TYPES}
"""By Kafka's names, which the cases have."""


def speaks(case):
    """Whether this package knows the version of a case."""
    request = REQUESTS[case["api"]]
    return request.min_version <= case["version"] <= request.max_version


def uuid_of(text):
    """Kafka writes ids in URL-safe base64 without padding."""
    return UUID(bytes=base64.urlsafe_b64decode(text + "=="))


def from_json(cls, body):
    """An instance of ``cls``; what the JSON does not mention keeps its default."""
    given = {}
    names = set(body)
    for field in dataclasses.fields(cls):
        name = _camel_case(field.name)
        if name in names:
            names.remove(name)
            given[field.name] = _value_from_json(field.metadata["wire"].wire_type, body[name])
    assert not names, f"{cls.__name__} has no {names}"
    return cls(**given)


def to_json(message, version):
    """The fields that ``version`` has; tagged ones only where they are not the default.

    Fields that it has not must have their default.
    """
    defaults = type(message)()
    out = {}
    for field in dataclasses.fields(message):
        spec = field.metadata["wire"]
        value = getattr(message, field.name)
        first, last = spec.versions
        is_default = value == getattr(defaults, field.name)
        if not first <= version <= last:
            assert is_default, f"{field.name} has a value in version {version}"
        elif spec.tag is None or not is_default:
            out[_camel_case(field.name)] = _value_to_json(value, version)
    return out


def _camel_case(name):
    first, *rest = name.split("_")
    return first + "".join(word.title() for word in rest)


def _value_from_json(wire_type, value):
    if value is None:
        return None
    if isinstance(wire_type, types.ArrayOf):
        return [_value_from_json(wire_type.element, element) for element in value]
    if wire_type is types.UUID_TYPE:
        return uuid_of(value)
    if wire_type is types.BYTES:
        return base64.b64decode(value)
    return from_json(wire_type, value) if isinstance(value, dict) else value


def _value_to_json(value, version):
    if isinstance(value, types.Records):
        return b"".join(value.buffers).hex()
    if isinstance(value, list):
        return [_value_to_json(element, version) for element in value]
    if isinstance(value, UUID):
        return base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return to_json(value, version) if dataclasses.is_dataclass(value) else value
