"""Each request goes out in the highest version that broker and client have in common."""

import itertools
import struct

import pytest

from spark_kafka_sink.protocol.messages.topics import (
    CreateTopicsRequest,
    MetadataRequest,
    ProduceRequest,
)
from spark_kafka_sink.protocol.messages.transactions import InitProducerIdRequest
from tests.broker.producing import creating, write
from tests.broker.test_records import sent  # noqa: F401 (a fixture)
from tests.unit.record_api_versions import ask

pytestmark = pytest.mark.long

SENT = (ProduceRequest, MetadataRequest, InitProducerIdRequest, CreateTopicsRequest)
_numbers = itertools.count()


def versions_of(address):
    """The highest version of each API that the broker says it has, read from its bytes."""
    answer = ask(address, 0)
    correlation_id, error_code, count = struct.unpack_from(">ihi", answer)
    assert (correlation_id, error_code) == (0, 0)
    entries = struct.iter_unpack(">hhh", answer[10 : 10 + 6 * count])
    return {key: last for key, _, last in entries}


def test_versions_are_the_highest_common_ones(broker, sent):  # noqa: F811
    config = creating(broker.bootstrap_servers, partitions="1", replication_factor="1")
    write(config, f"negotiation-{next(_numbers)}", [b"v"])
    theirs = versions_of(broker.address(1))
    for request in SENT:
        used = {version for key, version in sent if key == request.api_key}
        assert used == {min(request.max_version, theirs[request.api_key])}, request
