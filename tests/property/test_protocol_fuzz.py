"""Bytes that are no answer: whatever a peer sends, RemoteProtocolError is all that comes of it.

A plain loop over a seeded Random for volume, Hypothesis for examples that shrink. Environment:

- ``FUZZ_CASES``: how many frames the loop tries (20,000 if not set; a million takes half a
  minute on one core, and the rate is printed);
- ``FUZZ_SEED``: where the loop starts. A failure shows the seed, the case's number and its bytes.
"""

from __future__ import annotations

import gc
import os
import random
import struct
import sys
import threading
import time
import tracemalloc
from typing import NamedTuple

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_kafka_sink.base import text
from spark_kafka_sink.base.errors import RemoteProtocolError
from spark_kafka_sink.base.model import ProducerIdAndEpoch
from spark_kafka_sink.protocol import api, schema
from spark_kafka_sink.protocol.api import decode_response
from spark_kafka_sink.protocol.messages.client import ApiVersionsRequest
from spark_kafka_sink.protocol.messages.topics import (
    LeaderIdAndEpoch,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from spark_kafka_sink.protocol.types import write_unsigned_varint
from spark_kafka_sink.record.compression import CODEC_IDS
from spark_kafka_sink.record.record_batch import NewRecord, crc32c, encode_batch, read_batches
from tests.patience import PATIENCE_S
from tests.property.message_values import (
    REQUEST_VERSIONS,
    any_request,
    encode,
    label,
    random_message,
)
from tests.tables import each_row

CASES = int(os.environ.get("FUZZ_CASES", "20000"))
SEED = int(os.environ.get("FUZZ_SEED", "20240229"))
CASES_PER_FRAME = 20
MIB = 1024 * 1024

# What a length or count must not be believed to be: big-endian integers and varints.
_HUGE_LENGTHS = (
    b"\x7f\xff\xff\xff",
    b"\xff\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\x00\xff\xff\xff",
    b"\x7f\xff",
    b"\x80\x00",
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\x07",
    b"\xff\xff\xff\x7f",
    b"\xff\xff\xff\xff\xff\x01",
)


class Frame(NamedTuple):
    """A response without its size, and what asked for it."""

    request: schema.Request
    version: int
    data: bytes


def valid_frame(request_type, version, rng):
    body = encode(random_message(request_type.response_type, version, rng), version)
    tagged = version >= request_type.flexible_from and request_type is not ApiVersionsRequest
    return Frame(any_request(request_type), version, bytes(4) + (b"\0" if tagged else b"") + body)


# The bytes at a place that are taken out, and what comes there instead.
_MUTATIONS = (
    lambda data, at, rng: (1, bytes([data[at] ^ 1 << rng.randrange(8)])),
    lambda data, at, rng: (1, bytes([rng.randrange(256)])),
    lambda data, at, rng: (0, rng.randbytes(1 + rng.randrange(4))),
    lambda data, at, rng: (1 + rng.randrange(8), b""),
    lambda data, at, rng: (len(lie := rng.choice(_HUGE_LENGTHS)), lie),
    lambda data, at, rng: (0, data[at : at + 1 + rng.randrange(32)]),
    lambda data, at, rng: (len(data), b""),
    lambda data, at, rng: (len(data), rng.randbytes(rng.randrange(64))),
)


def mutated(data, rng):
    for _ in range(1 + rng.randrange(3)):
        if data:
            at = rng.randrange(len(data))
            taken, put = rng.choice(_MUTATIONS)(data, at, rng)
            data = data[:at] + put + data[at + taken :]
    return data


def least_memory_of_decoding(frame, *, enough):
    """Bytes at the peak while ``frame`` is decoded; less than ``enough`` needs no second look.

    What other threads of this process take meanwhile is counted, too (pytest-xdist's receive what
    to run): what decoding takes, it takes each time.
    """
    least = sys.maxsize
    for _ in range(5):
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        decode(frame)
        _, peak = tracemalloc.get_traced_memory()
        least = min(least, peak - before)
        if least < enough:
            break
    return least


def decode(frame):
    """The answer as the connection reads it, None if refused. Lets any other exception out."""
    try:
        api.decode_correlation_id(frame.data)
        return api.decode_response(frame.request, frame.version, frame.data)
    except RemoteProtocolError:
        return None


def check_sane(frame, response):
    """What was taken for an answer is one: of the right class, and it can be written again."""
    assert type(response) is frame.request.response_type
    version = frame.version
    if isinstance(frame.request, ApiVersionsRequest) and response.error_code == 35:
        version = 0
    again = schema.decode_message(type(response), version, encode(response, version))
    # No NaN is equal to itself.
    assert again == response or repr(again) == repr(response)


def run_cases(cases, rng, first_case=0):
    """Try so many frames; how many of them were taken for answers."""
    accepted = 0
    frame = valid_frame(*REQUEST_VERSIONS[0], rng)
    for case in range(first_case, first_case + cases):
        if case % CASES_PER_FRAME == 0:
            combination = case // CASES_PER_FRAME % len(REQUEST_VERSIONS)
            frame = valid_frame(*REQUEST_VERSIONS[combination], rng)
            # Refusals come of the mutations alone.
            check_sane(frame, decode(frame))
        broken = frame._replace(data=mutated(frame.data, rng))
        try:
            response = decode(broken)
            if response is not None:
                accepted += 1
                if accepted % 4 == 0:
                    check_sane(broken, response)
        except Exception as error:
            name = type(broken.request).__name__
            pytest.fail(
                f"{error!r} from {name} v{broken.version}: bytes.fromhex({broken.data.hex()!r}) "
                f"(FUZZ_SEED={SEED}, case {case})"
            )
    return accepted


@pytest.mark.timeout(7200)
def test_broken_answers_raise_nothing_but_remote_protocol_error(capsys):
    """And memory does not grow: caches that hostile bytes could fill would show over a million."""
    rng = random.Random(SEED)
    warm_up = max(CASES // 4, 1)
    accepted = run_cases(warm_up, rng)
    gc.collect()
    process = psutil.Process()
    rss_before = process.memory_info().rss
    start = time.perf_counter()
    accepted += run_cases(CASES - warm_up, rng, first_case=warm_up)
    seconds = time.perf_counter() - start
    gc.collect()
    growth = process.memory_info().rss - rss_before
    if "FUZZ_CASES" in os.environ:
        rate = (CASES - warm_up) / seconds
        with capsys.disabled():
            print(
                f"\n{CASES:,} cases (seed {SEED}), {rate:,.0f} a second, {accepted:,} of them "
                f"readable, RSS {growth / MIB:+.1f} MiB"
            )
    # Both kinds must occur, or the mutations change too little or too much to find anything.
    assert CASES * 0.02 < accepted < CASES * 0.9
    assert growth < 8 * MIB, f"RSS grew by {growth / MIB:.1f} MiB (FUZZ_SEED={SEED})"


@each_row(("request_type", "version"), REQUEST_VERSIONS, ids=label)
def test_arbitrary_bytes(request_type, version):
    rng = random.Random(SEED)
    for size in range(80):
        # Small values are counts and lengths that are believed.
        for largest in (1, 8, 255):
            data = bytes(rng.randint(0, largest) for _ in range(size))
            frame = Frame(any_request(request_type), version, data)
            response = decode(frame)
            if response is not None:
                check_sane(frame, response)


FIRST_AND_LAST = [
    (kind, version)
    for kind, version in REQUEST_VERSIONS
    if version in (kind.min_version, kind.max_version)
]
BETWEEN = [one for one in REQUEST_VERSIONS if one not in FIRST_AND_LAST]


@pytest.mark.parametrize(
    "versions",
    [
        pytest.param(FIRST_AND_LAST, id="first and last"),
        pytest.param(BETWEEN, id="between", marks=pytest.mark.slow),
    ],
)
def test_truncated_and_lying_frames_take_no_memory(versions, monkeypatch):
    # To look for the secrets that other tests of this process have left takes memory of its own.
    monkeypatch.setattr(text, "known_secrets", lambda *_: ())
    for request_type, version in versions:
        rng = random.Random(SEED + version)
        frame = valid_frame(request_type, version, rng)
        decode(frame)
        tracemalloc.start()
        try:
            for at in range(0, len(frame.data), 1 + len(frame.data) // 25):
                for lie in (None, *_HUGE_LENGTHS):
                    rest = b"" if lie is None else lie + frame.data[at + len(lie) :]
                    broken = frame._replace(data=frame.data[:at] + rest)
                    # An object or two per byte, never what the length announces (32 KiB at least).
                    limit = 100 * len(broken.data) + 8 * 1024
                    assert least_memory_of_decoding(broken, enough=limit) < limit, broken
        finally:
            tracemalloc.stop()


@pytest.mark.parametrize("version", [1, 9, 13])
def test_the_densest_answer_takes_memory_in_proportion(version):
    body = encode(MetadataResponse(), version)
    for count in (b"\x00\x00\xff\xff", b"\xff\xff\x03"):
        for at in range(len(body)):
            data = body[:at] + count + bytes(50 * 1024)
            tracemalloc.start()
            try:
                schema.decode_message(MetadataResponse, version, data)
            except RemoteProtocolError:
                pass
            finally:
                _, peak = tracemalloc.get_traced_memory()
                tracemalloc.stop()
            assert peak < 100 * len(data)


def metadata_frame(response, version):
    return bytes(4) + (b"\0" if version >= 9 else b"") + encode(response, version)


def many(count, of, version):
    """The frame of ``of(count)``, whose elements are all the same.

    To encode them one by one takes ten times as long as what is tested.
    """
    one, two = (metadata_frame(of(number), version) for number in (1, 2))
    size = len(two) - len(one)
    # They differ first in the last byte of the number, which is one more if it is compact.
    differs = next(at for at, (a, b) in enumerate(zip(one, two)) if a != b)
    number = bytearray()
    if version >= 9:
        begins = differs
        write_unsigned_varint(count + 1, number)
    else:
        begins = differs - 3
        number += struct.pack(">i", count)
    element = one[differs + 1 : differs + 1 + size]
    return one[:begins] + number + element * count + one[differs + 1 + size :]


def brokers(count):
    return MetadataResponse(brokers=[MetadataResponseBroker()] * count)


def topics(count):
    return MetadataResponse(topics=[MetadataResponseTopic(name="")] * count)


def partitions(count):
    return metadata_of([MetadataResponsePartition()] * count)


def replicas(count):
    return metadata_of([MetadataResponsePartition(replica_nodes=[0] * count)])


@pytest.mark.parametrize("version", [1, 9, 12])
@pytest.mark.parametrize(
    ("of", "for_each", "more"),
    [(brokers, 1, 1), (topics, 1, 1), (partitions, 1, 0), (replicas, 8, 0)],
    ids=["brokers", "topics", "partitions", "replicas"],
)
def test_metadata_has_no_more_objects_than_a_cluster(of, for_each, more, version):
    """A megabyte of the smallest elements is more than a hundred megabytes of objects."""
    request = MetadataRequest([MetadataRequestTopic(name="t")])
    assert many(3, of, version) == metadata_frame(of(3), version)
    frame = many(for_each * request.limits().objects + more, of, version)
    tracemalloc.start()
    with pytest.raises(RemoteProtocolError, match="beyond the limit"):
        decode_response(request, version, frame)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2 * len(frame)


def metadata_of(partitions):
    return MetadataResponse(topics=[MetadataResponseTopic(name="t", partitions=partitions)])


def full_partitions(count):
    replicas = {"replica_nodes": [1, 2, 3], "isr_nodes": [1, 2, 3]}
    return metadata_of([MetadataResponsePartition(**replicas)] * count)


def test_a_topic_of_200_000_partitions_is_read():
    """The largest clusters have two million, of all topics."""
    request = MetadataRequest([MetadataRequestTopic(name="t")])
    frame = many(200_000, full_partitions, 12)
    assert len(frame) < request.limits().size_bytes
    (topic,) = decode_response(request, 12, frame).topics
    assert len(topic.partitions) == 200_000


@pytest.mark.parametrize("asked", [1, 2])
def test_no_more_topics_than_were_asked_for(asked):
    request = MetadataRequest([MetadataRequestTopic(name="t")] * asked)
    for count in (asked, asked + 1):
        response = MetadataResponse(topics=[MetadataResponseTopic(name="t")] * count)
        frame = metadata_frame(response, 12)
        if count == asked:
            assert len(decode_response(request, 12, frame).topics) == count
        else:
            with pytest.raises(RemoteProtocolError, match=f"{count} topics, asked for: {asked}"):
                decode_response(request, 12, frame)


def test_all_topics_may_answer_a_request_for_none():
    """As of protocol handlers that follow version 0, where no topics meant all of them."""
    request = MetadataRequest([])
    response = MetadataResponse(topics=[MetadataResponseTopic(name="t" * 60)] * 50_000)
    frame = metadata_frame(response, 12)
    assert len(frame) < request.limits().size_bytes
    assert len(decode_response(request, 12, frame).topics) == 50_000


def test_a_response_is_not_copied():
    size_bytes = 10 << 20
    unknown = bytearray(b"\x01\x63")
    write_unsigned_varint(size_bytes, unknown)
    data = encode(MetadataResponse(), 12)[:-1] + unknown + bytes(size_bytes)
    tracemalloc.start()
    assert schema.decode_message(MetadataResponse, 12, data) == MetadataResponse()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < size_bytes // 10


def test_a_thread_does_not_use_up_the_objects_of_another():
    partition = MetadataResponsePartition(replica_nodes=[1] * 8)
    small, large = (metadata_of([partition] * count) for count in (4, 20_000))
    started, is_over = threading.Event(), threading.Event()

    def decode_small():
        data = encode(small, 12)
        while not is_over.is_set():
            schema.decode_message(MetadataResponse, 12, data, 0, 10)
            started.set()

    thread = threading.Thread(target=decode_small)
    thread.start()
    try:
        assert started.wait(PATIENCE_S)
        assert schema.decode_message(MetadataResponse, 12, encode(large, 12)) == large
    finally:
        is_over.set()
        thread.join()


@pytest.mark.parametrize("version", [1, 9])
def test_a_count_is_checked_before_the_first_element(version):
    lie = b"\x7f\xff\xff\xff" if version == 1 else b"\xff\xff\xff\xff\x07"
    body = (b"" if version == 1 else bytes(4)) + lie + bytes(100)
    with pytest.raises(RemoteProtocolError, match=r"array of 214748364\d elements in 100 bytes"):
        schema.decode_message(MetadataResponse, version, body)


class CountedBytes(bytes):
    """Bytes that know how much of them was copied by slicing."""

    copied_bytes = 0

    def __getitem__(self, key):
        part = super().__getitem__(key)
        if isinstance(key, slice):
            self.copied_bytes += len(part)
        return part


def test_leader_hints_are_read_in_linear_time():
    """Each partition's hint (KIP-951) is a tagged field: reading it must not copy what is before."""
    hint = LeaderIdAndEpoch(1, 2)
    partitions = [PartitionProduceResponse(i, 6, -1, current_leader=hint) for i in range(4000)]
    response = ProduceResponse([TopicProduceResponse("t", partition_responses=partitions)])
    frame = CountedBytes(bytes(5) + encode(response, 10))
    assert api.decode_response(ProduceRequest(), 10, frame) == response
    copies = frame.copied_bytes / len(frame)
    assert copies < 4, f"every byte was copied {copies:.0f} times"


CASES_PER_CODEC = CASES // 40
_CRC_AT, _CRC_END, _HEADER_END = 17, 21, 61
_CONTROL_FLAG = 0x20


def with_lengths_and_crc(data):
    """The same with the length that it has, and the CRC of what is in it."""
    right = bytearray(data.ljust(_HEADER_END, b"\0"))
    struct.pack_into(">i", right, 8, len(right) - 12)
    right[16] = 2
    struct.pack_into(">I", right, _CRC_AT, crc32c(memoryview(right)[_CRC_END:]))
    return bytes(right)


def valid_batch(codec, rng):
    records = [
        NewRecord(b"\0\0\0" + rng.choice((b"\0", b"\1")), b"\0\0" + rng.randbytes(4)),
        NewRecord(None, rng.randbytes(60), [("h", None), ("größe", b"x")]),
        NewRecord(b"k" * 70, None),
    ]
    data = encode_batch(records, 1_700_000_000_000, ProducerIdAndEpoch(7, 0), 0, codec=codec)
    if rng.random() < 0.3:
        data = data[:22] + bytes([data[22] | _CONTROL_FLAG]) + data[23:]
    return with_lengths_and_crc(data)


def read(data):
    """None if refused. Lets any other exception out."""
    try:
        return [(list(b.records()), [*b.keyed_records(None, 100)]) for b in read_batches(data)]
    except RemoteProtocolError:
        return None


@pytest.mark.parametrize("codec", CODEC_IDS)
def test_broken_batches_raise_nothing_but_remote_protocol_error(codec):
    rng = random.Random(SEED)
    accepted = 0
    for case in range(CASES_PER_CODEC):
        data = valid_batch(codec, rng)
        assert read(data) is not None
        broken = with_lengths_and_crc(data[:_CRC_END] + mutated(data[_CRC_END:], rng))
        try:
            accepted += read(broken) is not None
        except Exception as error:
            pytest.fail(f"{error!r} from bytes.fromhex({broken.hex()!r}) ({codec}, case {case})")
    assert CASES_PER_CODEC * 0.02 < accepted < CASES_PER_CODEC * 0.9


@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(st.integers(0, 7), st.integers(0, 5), st.binary(max_size=60))
def test_arbitrary_records(attributes, count, body):
    header = struct.pack(">hiqqqhii", attributes, 0, 0, 0, 1, 1, 0, count)
    read(with_lengths_and_crc(bytes(_CRC_END) + header + body))


@settings(max_examples=200, deadline=None, derandomize=True, database=None)
@given(st.binary(max_size=100))
def test_arbitrary_batches(data):
    read(data)


def test_lies_about_counts_take_no_memory():
    data = valid_batch("none", random.Random(SEED))
    lie = b"\xfe\xff\xff\xff\x0f"
    for at in range(57, len(data)):
        broken = with_lengths_and_crc(data[:at] + lie + data[at + len(lie) :])
        tracemalloc.start()
        read(broken)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 100 * len(data), at
