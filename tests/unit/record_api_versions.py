"""Records what real brokers answer to ApiVersions, for test_network_client.

    python -m tests.unit.record_api_versions 3.9.1 4.4.0

starts each Kafka and writes tests/unit/data/api_versions_<version>.json: by version of the request,
the frame of the answer in hexadecimal, without its size, with correlation id 0. Requests are built
here by hand. tests/broker/test_records.py compares the files with the brokers.
"""

import json
import socket
import struct
import sys
from pathlib import Path

from spark_kafka_sink.localkafka import LocalKafka

DATA = Path(__file__).parent / "data"
FUTURE_VERSION = 99
"""A version that no broker knows: it answers UNSUPPORTED_VERSION, in version 0 (KIP-511)."""

_API_KEY = 18
_FLEXIBLE_FROM = 3
_IDENTITY_FROM = 5
_REQUEST_VERSIONS = (0, 1, 2, 3, 4, 5, FUTURE_VERSION)


def recorded(kafka_version):
    """Answers by version of the request, as they were recorded."""
    text = (DATA / f"api_versions_{kafka_version}.json").read_text(encoding="ascii")
    return {int(version): bytes.fromhex(frame) for version, frame in json.loads(text).items()}


def ask(address, version):
    """A broker's answer to ApiVersions, without its size."""
    client_id = b"recorder"
    request = struct.pack(">hhih", _API_KEY, version, 0, len(client_id)) + client_id
    if version >= _FLEXIBLE_FROM:
        # No tags in the header; client software name and version as compact strings; no tags.
        request += b"\0" + b"\x05test" + b"\x021"
        # No cluster id, no node id (KIP-1242).
        request += (b"\0" + struct.pack(">i", -1) if version >= _IDENTITY_FROM else b"") + b"\0"
    with socket.create_connection(address, timeout=30) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        with connection.makefile("rb") as stream:
            (size,) = struct.unpack(">i", stream.read(4))
            return stream.read(size)


def record(kafka_version):
    with LocalKafka(version=kafka_version) as kafka:
        frames = {version: ask(kafka.address(1), version).hex() for version in _REQUEST_VERSIONS}
    text = json.dumps(frames, indent=1) + "\n"
    (DATA / f"api_versions_{kafka_version}.json").write_text(text, encoding="ascii")


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        record(argument)
