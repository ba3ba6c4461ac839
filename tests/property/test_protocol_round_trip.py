"""Every message of every version survives encode → decode; wire types at their edges.

A round trip cannot see an error that encoder and decoder share, so the edges are compared with
bytes that were worked out by hand from the protocol guide.
"""

from __future__ import annotations

import dataclasses
from uuid import UUID

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_kafka_sink.base.errors import LocalProtocolError, RemoteProtocolError
from spark_kafka_sink.protocol import api, schema, types
from spark_kafka_sink.protocol.messages.client import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    SupportedFeatureKey,
)
from spark_kafka_sink.protocol.messages.topics import (
    CreatableTopic,
    CreateTopicsRequest,
    LeaderIdAndEpoch,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from spark_kafka_sink.protocol.messages.transactions import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from spark_kafka_sink.record.kernels.records import put_varint, varint_size
from tests.property.message_values import (
    MESSAGE_VERSIONS,
    REQUEST_VERSIONS,
    encode,
    label,
    message_strategy,
)

# No database, same examples each time: a failure on one machine must be one on every machine.
PROPERTY = settings(max_examples=30, deadline=None, derandomize=True, database=None)


def varint(value: int) -> bytes:
    out = bytearray()
    types.write_unsigned_varint(value, out)
    return bytes(out)


@pytest.mark.parametrize(("cls", "version"), MESSAGE_VERSIONS, ids=label)
def test_every_message_survives_a_round_trip(cls: type[schema.Message], version: int) -> None:
    @PROPERTY
    @given(message_strategy(cls, version))
    def check(message: schema.Message) -> None:
        encoded = encode(message, version)
        assert schema.decode_message(cls, version, encoded) == message

    check()


@pytest.mark.parametrize(("cls", "version"), MESSAGE_VERSIONS, ids=label)
def test_a_decoder_reads_to_the_last_byte(cls: type[schema.Message], version: int) -> None:
    """Each byte cut off is missed: no field is read short, none is left unread."""

    @settings(PROPERTY, max_examples=10)
    @given(message_strategy(cls, version))
    def check(message: schema.Message) -> None:
        encoded = encode(message, version)
        for end in range(len(encoded)):
            with pytest.raises(RemoteProtocolError):
                schema.decode_message(cls, version, encoded[:end])

    check()


@pytest.mark.parametrize(("cls", "version"), MESSAGE_VERSIONS, ids=label)
def test_defaults_survive_a_round_trip(cls: type[schema.Message], version: int) -> None:
    assert schema.decode_message(cls, version, encode(cls(), version)) == cls()


@pytest.mark.parametrize(("request_type", "version"), REQUEST_VERSIONS, ids=label)
def test_request_header(request_type: type[schema.Request], version: int) -> None:
    request = request_type()
    framed = b"".join(api.encode_request(request, version, 0x01020304, "ab"))
    body = encode(request, version)
    flexible = version >= request_type.flexible_from
    header = (
        request_type.api_key.to_bytes(2, "big")
        + version.to_bytes(2, "big")
        + b"\x01\x02\x03\x04\x00\x02ab"
        + (b"\x00" if flexible else b"")
    )
    assert framed == (len(header) + len(body)).to_bytes(4, "big") + header + body


@pytest.mark.parametrize(("request_type", "version"), REQUEST_VERSIONS, ids=label)
def test_response_header(request_type: type[schema.Request], version: int) -> None:
    response = request_type.response_type()
    # ApiVersions answers never have tags in their header (KIP-511).
    tagged = version >= request_type.flexible_from and request_type is not ApiVersionsRequest
    unknown_tag = b"\x01\x07\x02\xff\xff"
    frame = b"\x00\x00\x00\x09" + (unknown_tag if tagged else b"") + encode(response, version)
    assert api.decode_correlation_id(frame) == 9
    assert api.decode_response(request_type(), version, frame) == response


@pytest.mark.parametrize("version", range(5))
def test_unsupported_version_is_answered_in_version_0(version: int) -> None:
    answer = ApiVersionsResponse(error_code=35, api_keys=[ApiVersion(18, 0, 2)])
    frame = b"\x00\x00\x00\x00" + encode(answer, 0)
    assert api.decode_response(ApiVersionsRequest(), version, frame) == answer


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"),
        (1, "01"),
        (127, "7f"),
        (128, "8001"),
        (300, "ac02"),
        (16_383, "ff7f"),
        (16_384, "808001"),
        (2**21 - 1, "ffff7f"),
        (2**21, "80808001"),
        (2**28 - 1, "ffffff7f"),
        (2**28, "8080808001"),
        (2**31 - 1, "ffffffff07"),
        (2**32 - 1, "ffffffff0f"),
    ],
)
def test_unsigned_varint(value: int, encoded: str) -> None:
    assert varint(value).hex() == encoded
    assert types.read_unsigned_varint(b"\xff" + bytes.fromhex(encoded), 1) == (
        value,
        1 + len(encoded) // 2,
    )


@PROPERTY
@given(st.integers(0, 2**32 - 1), st.binary(max_size=3))
def test_unsigned_varint_round_trip(value: int, rest: bytes) -> None:
    encoded = varint(value)
    assert types.read_unsigned_varint(encoded + rest, 0) == (value, len(encoded))


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (-64, "7f"),
        (64, "8001"),
        (-65, "8101"),
        (2**31 - 1, "feffffff0f"),
        (-(2**31), "ffffffff0f"),
        (2**63 - 1, "feffffffffffffffff01"),
        (-(2**63), "ffffffffffffffffff01"),
    ],
)
def test_zigzag_varint_of_records(value: int, encoded: str) -> None:
    memory = np.full(16, 0xEE, np.uint8)
    address = memory.ctypes.data
    assert put_varint(address, value) - address == varint_size(value) == len(encoded) // 2
    assert memory.tobytes().hex() == encoded.ljust(32, "e")


@pytest.mark.parametrize("encoded", ["8080808010", "ffffffff7f", "808080808001", "ffffffffff0f"])
def test_varint_beyond_32_bits(encoded: str) -> None:
    with pytest.raises(RemoteProtocolError, match="longer than 32 bits"):
        types.read_unsigned_varint(bytes.fromhex(encoded), 0)


def test_a_padded_varint_is_read_as_java_reads_it() -> None:
    assert types.read_unsigned_varint(b"\x81\x80\x00", 0) == (1, 3)


@pytest.mark.parametrize(
    ("compact", "value", "encoded"),
    [
        (False, None, "ffff"),
        (False, "", "0000"),
        (False, "ä", "0002c3a4"),
        (True, None, "00"),
        (True, "", "01"),
        (True, "ä", "03c3a4"),
        (True, "x" * 126, "7f" + "78" * 126),
        (True, "x" * 127, "8001" + "78" * 127),
    ],
)
def test_strings(compact: bool, value: str | None, encoded: str) -> None:
    out = types.Writer()
    types.string_encoder(compact, nullable=True)(value, out)
    assert out.tail.hex() == encoded
    data = bytes.fromhex(encoded)
    assert types.string_decoder(compact, nullable=True)(data, 0) == (value, len(data))


@pytest.mark.parametrize(
    ("compact", "value", "encoded"),
    [
        (False, None, "ffffffff"),
        (False, b"", "00000000"),
        (False, b"\x01", "0000000101"),
        (True, None, "00"),
        (True, b"", "01"),
        (True, b"\x01", "0201"),
    ],
)
def test_bytes(compact: bool, value: bytes | None, encoded: str) -> None:
    out = types.Writer()
    types.bytes_encoder(compact, nullable=True)(value, out)
    assert out.tail.hex() == encoded
    data = bytes.fromhex(encoded)
    assert types.bytes_decoder(compact, nullable=True)(data, 0) == (value, len(data))


@pytest.mark.parametrize("compact", [False, True])
def test_null_where_none_may_be(compact: bool) -> None:
    for encoder in (types.string_encoder, types.bytes_encoder):
        with pytest.raises(LocalProtocolError, match="null"):
            encoder(compact, nullable=False)(None, types.Writer())
    null_string, null_bytes = (b"\0", b"\0") if compact else (b"\xff\xff", b"\xff" * 4)
    with pytest.raises(RemoteProtocolError, match="null"):
        types.string_decoder(compact, nullable=False)(null_string, 0)
    with pytest.raises(RemoteProtocolError, match="null"):
        types.bytes_decoder(compact, nullable=False)(null_bytes, 0)


@pytest.mark.parametrize("data", [b"\xff\xfe", b"\x80\x00"])
def test_negative_lengths_other_than_null(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="negative length"):
        types.string_decoder(False, nullable=True)(data, 0)


def test_a_string_that_is_too_long_is_an_error_of_this_side() -> None:
    request = InitProducerIdRequest(transactional_id="x" * 32_768)
    with pytest.raises(LocalProtocolError, match="32768"):
        encode(request, 0)
    encode(InitProducerIdRequest(transactional_id="x" * 32_767), 0)


@pytest.mark.parametrize(
    ("field", "value"),
    [("transaction_timeout_ms", 2**31), ("producer_id", 2**63), ("producer_epoch", -(2**15) - 1)],
)
def test_a_number_out_of_range_is_an_error_of_this_side(field: str, value: int) -> None:
    with pytest.raises(LocalProtocolError, match=str(value)):
        encode(InitProducerIdRequest(**{field: value}), 3)


def test_a_field_that_the_version_lacks_is_never_dropped_silently() -> None:
    with pytest.raises(LocalProtocolError, match="v2 cannot carry producer_id=7"):
        encode(InitProducerIdRequest(producer_id=7), 2)
    with pytest.raises(LocalProtocolError, match="cannot carry allow_auto_topic_creation"):
        encode(MetadataRequest(allow_auto_topic_creation=False), 3)


def test_an_ignorable_field_that_the_version_lacks_is_dropped() -> None:
    encoded = encode(ApiVersionsRequest(client_software_name="x"), 2)
    assert encoded == b""


def test_init_producer_id_by_hand() -> None:
    request = InitProducerIdRequest(None, 60_000, 5, 1)
    assert encode(InitProducerIdRequest(None, 60_000), 0).hex() == "ffff" + "0000ea60"
    assert encode(request, 4).hex() == "00" + "0000ea60" + "0000000000000005" + "0001" + "00"
    response = InitProducerIdResponse(1, 2, 3, 4)
    assert encode(response, 1).hex() == "00000001" + "0002" + "0000000000000003" + "0004"
    assert encode(response, 2).hex() == "00000001" + "0002" + "0000000000000003" + "0004" + "00"


def test_metadata_request_by_hand() -> None:
    named = MetadataRequest([MetadataRequestTopic(name="t")])
    assert encode(named, 1).hex() == "00000001" + "000174"
    assert encode(named, 4).hex() == "00000001" + "000174" + "01"
    assert encode(named, 8).hex() == "00000001" + "000174" + "01" + "0000"
    assert encode(named, 9).hex() == "02" + "0274" + "00" + "01" + "0000" + "00"
    by_id = MetadataRequest([MetadataRequestTopic(topic_id=UUID(int=1))])
    assert encode(by_id, 12).hex() == "02" + "00" * 15 + "01" + "00" + "00" + "01" + "00" + "00"
    assert encode(MetadataRequest(None), 1).hex() == "ffffffff"
    assert encode(MetadataRequest(None), 9).hex() == "00" + "01" + "0000" + "00"


def test_produce_request_by_hand() -> None:
    """Record batches are appended as they are: the writer's buffers hold the very objects."""
    parts = (memoryview(b"ab"), b"c")
    data = PartitionProduceData(3, types.Records(parts, 3))
    request = ProduceRequest(None, -1, 30_000, [TopicProduceData("t", partition_data=[data])])
    expected = "ffff" + "ffff" + "00007530" + "00000001" + "000174" + "00000001"
    assert encode(request, 3).hex() == expected + "00000003" + "00000003" + "616263"
    flexible = "00" + "ffff" + "00007530" + "02" + "0274" + "02" + "00000003" + "04" + "616263"
    assert encode(request, 9).hex() == flexible + "00" * 3
    out = types.Writer()
    schema.encode_message(request, 9, out)
    assert any(buffer is parts[0] for buffer in out.buffers())


def test_create_topics_request_by_hand() -> None:
    request = CreateTopicsRequest([CreatableTopic("t", 2, 1)], 1_000, True)
    body = "000174" + "00000002" + "0001" + "00000000" + "00000000"
    assert encode(request, 4).hex() == "00000001" + body + "000003e8" + "01"
    flexible = "0274" + "00000002" + "0001" + "01" + "01" + "00"
    assert encode(request, 5).hex() == "02" + flexible + "000003e8" + "01" + "00"


def test_tagged_fields_travel_only_when_they_differ_from_their_default() -> None:
    partition = PartitionProduceResponse(0, 6, -1, current_leader=LeaderIdAndEpoch(2, 9))
    with_hint = ProduceResponse([TopicProduceResponse("t", partition_responses=[partition])])
    without = dataclasses.replace(partition, current_leader=LeaderIdAndEpoch())
    no_hint = ProduceResponse([TopicProduceResponse("t", partition_responses=[without])])
    hint = "01" + "00" + "09" + "00000002" + "00000009" + "00"
    assert hint in encode(with_hint, 10).hex()
    assert len(encode(with_hint, 10)) - len(encode(no_hint, 10)) == len(hint) // 2 - 1


def test_tagged_fields_may_come_in_any_order_with_unknown_ones_between() -> None:
    supported = b"\x02" + b"\x02f" + b"\x00\x01" + b"\x00\x02" + b"\x00"
    body = b"\x00\x00" + b"\x01" + b"\x00\x00\x00\x00"
    tags = b"\x03" + b"\x01\x08" + (7).to_bytes(8, "big")
    tags += b"\x63\x02\xff\xff" + b"\x00" + varint(len(supported)) + supported
    decoded = schema.decode_message(ApiVersionsResponse, 3, body + tags)
    assert decoded == ApiVersionsResponse(
        supported_features=[SupportedFeatureKey("f", 1, 2)], finalized_features_epoch=7
    )


@pytest.mark.parametrize(
    ("tags", "message"),
    [
        ("010107" + "00" * 7, "requires a buffer"),
        ("010109" + "00" * 9, "8 bytes instead of 9"),
        ("01630500", "tagged field of 5 bytes, 1 left"),
        ("01638080808008", "left"),
        ("02", "ApiVersionsResponse v3"),
    ],
)
def test_broken_tagged_fields(tags: str, message: str) -> None:
    body = bytes.fromhex("0000" + "01" + "00000000" + tags)
    with pytest.raises(RemoteProtocolError) as raised:
        schema.decode_message(ApiVersionsResponse, 3, body)
    assert message in str(raised.value)


def test_null_topics_of_a_metadata_response_are_refused() -> None:
    """The response's arrays are not nullable, unlike the request's."""
    encoded = bytearray(encode(MetadataResponse(), 1))
    assert encoded.hex() == "00000000" + "ffffffff" + "00000000"
    encoded[-4:] = b"\xff" * 4
    with pytest.raises(RemoteProtocolError, match="null in an array"):
        schema.decode_message(MetadataResponse, 1, bytes(encoded))
