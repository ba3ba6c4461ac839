"""Frames of requests and answers, as scripted brokers read and write them."""

from __future__ import annotations

import struct
from typing import NamedTuple

from spark_kafka_sink.protocol import schema, types
from spark_kafka_sink.protocol.connection import Connection, Stage
from spark_kafka_sink.protocol.messages.client import ApiVersionsRequest

_HEADER = struct.Struct(">ihhih")


class RequestFrame(NamedTuple):
    """A request, and what its header says."""

    request: schema.Request
    version: int
    correlation_id: int


def read_request(buffers, known):
    """The request in ``buffers``, which is of one of the types ``known``."""
    frame = b"".join(buffers)
    _, api_key, version, correlation_id, client_id_bytes = _HEADER.unpack_from(frame)
    request_type = next(t for t in known if t.api_key == api_key)
    body_at = _HEADER.size + client_id_bytes + (version >= request_type.flexible_from)
    request = schema.decode_message(request_type, version, frame, body_at)
    return RequestFrame(request, version, correlation_id)


def answer_frame(request, version, correlation_id, answer):
    """``answer`` to ``request``, with its size."""
    out = types.Writer()
    out.tail += struct.pack(">i", correlation_id)
    if version >= request.flexible_from and not isinstance(request, ApiVersionsRequest):
        out.tail.append(0)
    schema.encode_message(answer, version, out)
    body = b"".join(out.buffers())
    return struct.pack(">i", len(body)) + body


def ready_connection(client_id="client"):
    """A connection that takes any request, the first with correlation id 0."""
    connection = Connection(client_id)
    connection.stage = Stage.READY
    return connection


def asked(connection, request, version, expects_response=True):
    """Send ``request``: what is in flight then, and its bytes."""
    buffers = connection.send(request, version, 0, 30_000, None, expects_response)
    return connection.in_flight[-1], buffers
