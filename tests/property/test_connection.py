"""The connection without I/O: chunks do not matter, and a peer that breaks the protocol is refused."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_kafka_sink.base.errors import (
    AuthenticationError,
    LocalProtocolError,
    RemoteProtocolError,
)
from spark_kafka_sink.protocol import connection as connection_module
from spark_kafka_sink.protocol.connection import (
    MAX_RESPONSE_BYTES,
    Connection,
    InFlightRequest,
    ProtocolEvent,
    ResponseReceived,
)
from spark_kafka_sink.protocol.messages.client import ApiVersionsRequest
from spark_kafka_sink.protocol.messages.topics import (
    MetadataRequest,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from spark_kafka_sink.protocol.messages.transactions import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from spark_kafka_sink.protocol.schema import Message
from spark_kafka_sink.protocol.types import Records
from tests.property.message_values import REQUEST_VERSIONS, encode, random_message
from tests.unit.frames import asked, ready_connection

PROPERTY = settings(max_examples=200, deadline=None, derandomize=True, database=None)


def sized(frame: bytes) -> bytes:
    return len(frame).to_bytes(4, "big") + frame


def answer(sent: InFlightRequest, response: Message) -> bytes:
    """The bytes of ``response`` as a broker sends them."""
    request_type = type(sent.request)
    tagged = sent.version >= request_type.flexible_from and request_type is not ApiVersionsRequest
    header = sent.correlation_id.to_bytes(4, "big") + (b"\0" if tagged else b"")
    return sized(header + encode(response, sent.version))


def conversation(seed: int, count: int) -> tuple[Connection, list[ResponseReceived], bytes]:
    """A connection with ``count`` requests sent, what it should get, and the bytes of it."""
    rng = random.Random(seed)
    connection = ready_connection()
    expected, stream = [], b""
    for _ in range(count):
        request_type, version = rng.choice(REQUEST_VERSIONS)
        sent, _ = asked(connection, request_type(), version)
        response = random_message(request_type.response_type, version, rng)
        if getattr(response, "error_code", 0) == 35:
            # UNSUPPORTED_VERSION of ApiVersions is read as version 0: not what is tested here.
            response.error_code = 0
        encoded = answer(sent, response)
        expected.append(ResponseReceived(sent, response, len(encoded)))
        stream += encoded
    return connection, expected, stream


def received(connection: Connection, data: bytes) -> list[ProtocolEvent]:
    return list(connection.receive(data, 0))


@PROPERTY
@given(st.integers(0, 2**32), st.integers(0, 6), st.data())
def test_chunks_do_not_matter(seed: int, count: int, data: st.DataObject) -> None:
    connection, expected, stream = conversation(seed, count)
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=12).map(sorted))
    got: list[ProtocolEvent] = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)]):
        got += connection.receive(stream[start:end], 0)
    assert got == expected
    assert len(connection.in_flight) == 0


@pytest.mark.parametrize("seed", range(10))
def test_byte_by_byte(seed: int) -> None:
    """Each answer is given with its last byte: not before, and not with the next one's first."""
    connection, expected, stream = conversation(seed, 3)
    ends, end = [], 0
    for one in expected:
        end += one.size_bytes
        ends.append(end)
    got_at = []
    for at in range(len(stream)):
        got_at += [at + 1] * len(received(connection, stream[at : at + 1]))
    assert got_at == ends


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_a_buffer_may_be_used_again_after_it_was_received(kind: type) -> None:
    connection, expected, stream = conversation(1, 2)
    memory = bytearray(stream)
    chunk = kind(memory)
    got = connection.receive(chunk, 0)
    first = next(got)
    memory[:] = bytes(len(memory))
    assert [first, *got] == expected


def test_nothing_received_is_no_answer() -> None:
    connection, _, _ = conversation(1, 1)
    assert received(connection, b"") == []
    assert len(connection.in_flight) == 1


def test_correlation_ids_count_up_and_wrap_before_the_sign() -> None:
    connection = ready_connection()
    ids = [asked(connection, MetadataRequest(), 12)[0].correlation_id for _ in range(3)]
    assert ids == [0, 1, 2]
    connection._next_correlation_id = 0x7FFFFFFF
    last, buffers = asked(connection, MetadataRequest(), 12)
    assert last.correlation_id == 0x7FFFFFFF
    assert b"".join(buffers)[8:12] == b"\x7f\xff\xff\xff"
    assert asked(connection, MetadataRequest(), 12)[0].correlation_id == 0


@PROPERTY
@given(st.integers(-(2**31), 2**31 - 1).filter(lambda i: i != 0))
def test_a_foreign_correlation_id(correlation_id: int) -> None:
    connection = ready_connection()
    asked(connection, InitProducerIdRequest(), 1)
    frame = correlation_id.to_bytes(4, "big", signed=True) + encode(InitProducerIdResponse(), 1)
    with pytest.raises(RemoteProtocolError) as raised:
        received(connection, sized(frame))
    assert str(raised.value) == f"response {correlation_id} instead of 0"


def test_answers_in_the_wrong_order() -> None:
    connection = ready_connection()
    first, _ = asked(connection, InitProducerIdRequest(), 1)
    second, _ = asked(connection, InitProducerIdRequest(), 1)
    response = InitProducerIdResponse()
    with pytest.raises(RemoteProtocolError, match="response 1 instead of 0"):
        received(connection, answer(second, response) + answer(first, response))


def test_an_answer_that_was_never_asked_for() -> None:
    connection = ready_connection()
    with pytest.raises(RemoteProtocolError, match="response 7 was never asked for"):
        received(connection, sized((7).to_bytes(4, "big") + bytes(20)))


def test_a_second_answer_to_one_request() -> None:
    connection, expected, stream = conversation(5, 1)
    got = connection.receive(stream + stream, 0)
    assert next(got) == expected[0]
    with pytest.raises(RemoteProtocolError, match="never asked for"):
        next(got)


def test_acks_0_waits_for_no_answer() -> None:
    connection = ready_connection()
    records = PartitionProduceData(0, Records((b"batch",), 5))
    produce = ProduceRequest(acks=0, topic_data=[TopicProduceData("t", partition_data=[records])])
    sent, buffers = asked(connection, produce, 9, expects_response=False)
    assert sent.correlation_id == 0
    assert b"batch" in b"".join(buffers)
    assert connection.written() == sent
    assert len(connection.in_flight) == 0
    # The id is used up all the same: the next answer has the next id.
    then, _ = asked(connection, InitProducerIdRequest(), 1)
    assert connection.written() is None
    [got] = received(connection, answer(then, InitProducerIdResponse()))
    assert isinstance(got, ResponseReceived)
    assert got.sent.correlation_id == 1


@pytest.mark.parametrize("chunk_bytes", [1, 3, 4, 100])
@pytest.mark.parametrize("size", [MAX_RESPONSE_BYTES + 1, 2**31 - 1, -1, -(2**31)])
def test_an_impossible_size(size: int, chunk_bytes: int) -> None:
    """Refused with its fourth byte, before anything is collected for it."""
    connection, _, _ = conversation(1, 1)
    data = size.to_bytes(4, "big", signed=True) + bytes(96)
    fed = 0

    def feed() -> None:
        nonlocal fed
        while fed < len(data):
            fed += chunk_bytes
            received(connection, data[fed - chunk_bytes : fed])

    with pytest.raises(RemoteProtocolError, match=f"response announces {size} bytes"):
        feed()
    assert fed < 4 + chunk_bytes


def test_the_largest_size_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "MAX_RESPONSE_BYTES", 64)
    connection, _, _ = conversation(1, 1)
    assert received(connection, (64).to_bytes(4, "big")) == []
    with pytest.raises(RemoteProtocolError, match="65 bytes"):
        received(conversation(1, 1)[0], (65).to_bytes(4, "big"))


@pytest.mark.parametrize("size", range(4))
def test_a_frame_too_small_for_its_header(size: int) -> None:
    connection, _, _ = conversation(1, 1)
    with pytest.raises(RemoteProtocolError, match=f"response of {size} bytes"):
        received(connection, sized(bytes(size)))


def test_an_http_server_is_named() -> None:
    connection, _, _ = conversation(1, 1)
    with pytest.raises(RemoteProtocolError, match="this address is an HTTP server"):
        received(connection, b"HTTP/1.1 400 Bad Request\r\n")


def test_a_tls_listener_is_named_and_not_tried_again() -> None:
    """What a broker answers to clear text: an alert, internal_error."""
    connection, _, _ = conversation(1, 1)
    with pytest.raises(AuthenticationError, match=r"TLS listener: use kafka.security.protocol=SSL"):
        received(connection, b"\x15\x03\x03\x00\x02\x02\x50")


def test_an_answer_before_a_broken_one_is_given() -> None:
    connection, expected, stream = conversation(3, 2)
    cut = expected[0].size_bytes
    got = connection.receive(stream[:cut] + sized(b"\0\0\0\1"), 0)
    assert next(got) == expected[0]
    with pytest.raises(RemoteProtocolError):
        next(got)


@PROPERTY
@given(st.binary(max_size=60), st.integers(0, 4))
def test_garbage_after_good_answers(garbage: bytes, count: int) -> None:
    """No other exception, and the good answers are given first whatever follows them."""
    connection, expected, stream = conversation(count, count)
    got = []
    try:
        for response in connection.receive(stream + garbage, 0):
            got.append(response)
    except RemoteProtocolError:
        pass
    assert got == expected


@pytest.mark.parametrize("version", [-1, 2, 14])
def test_a_version_that_this_client_does_not_speak(version: int) -> None:
    connection = ready_connection()
    with pytest.raises(LocalProtocolError, match=f"ProduceRequest has no version {version} here"):
        asked(connection, ProduceRequest(), version)
    assert len(connection.in_flight) == 0


def test_a_request_that_cannot_be_written_is_not_waited_for() -> None:
    """Its failure is this side's: the connection goes on, with no gap in what it awaits."""
    connection = ready_connection()
    with pytest.raises(LocalProtocolError):
        asked(connection, InitProducerIdRequest(producer_id=7), 2)
    assert len(connection.in_flight) == 0
    sent, _ = asked(connection, InitProducerIdRequest(), 2)
    [got] = received(connection, answer(sent, InitProducerIdResponse(producer_id=4)))
    assert isinstance(got, ResponseReceived)
    assert got.response == InitProducerIdResponse(producer_id=4)
