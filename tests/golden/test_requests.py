"""Requests other than produce, headers included: the bytes of the Java client for the same content."""

from __future__ import annotations

import pytest

from spark_kafka_sink.base.model import ProducerIdAndEpoch
from spark_kafka_sink.protocol import api
from tests.golden import case_files as cases
from tests.golden.message_json import REQUESTS, from_json, speaks
from tests.golden.producing import API_VERSIONS, INIT_PRODUCER_ID, METADATA, Golden, Topic
from tests.unit.frames import asked, ready_connection

CASES = [case for case in cases.load("requests") if speaks(case)]
CORRELATION_ID = slice(8, 12)


@pytest.mark.parametrize("case", CASES, ids=cases.name_of)
def test_request_is_javas(case):
    request = from_json(REQUESTS[case["api"]], case["body"])
    buffers = api.encode_request(
        request, case["version"], case["correlation_id"], case["client_id"]
    )
    cases.assert_same_bytes(b"".join(buffers), case["frame"])


def test_requests_of_a_connection_are_javas():
    """As they follow each other, numbered by the connection itself."""
    connection = ready_connection("c")
    frames = {
        (case["version"], case["correlation_id"]): case
        for case in CASES
        if case["name"].startswith("InitProducerId") and "correlation id" in case["name"]
    }
    for correlation_id in (0, 1):
        case = frames[2, correlation_id]
        request = from_json(REQUESTS[case["api"]], case["body"])
        _, buffers = asked(connection, request, 2)
        cases.assert_same_bytes(b"".join(buffers), case["frame"])


@pytest.mark.parametrize("version", range(1, 14))
def test_metadata_request_of_the_producer_is_javas(version):
    sent = first_sent(METADATA, version, {"flights": Topic()})
    assert_java_sends(sent, f"Metadata v{version}: 1 topics, may create")


@pytest.mark.parametrize("version", range(6))
def test_producer_id_request_of_the_producer_is_javas(version):
    sent = first_sent(INIT_PRODUCER_ID, version, {"t": Topic()})
    assert_java_sends(sent, f"InitProducerId v{version}: idempotent")


def test_first_request_of_the_producer_is_javas(monkeypatch):
    monkeypatch.setattr("spark_kafka_sink.protocol.connection.__version__", "0.1.0")
    sent = first_sent(API_VERSIONS, 4, {"t": Topic()})
    assert_java_sends(sent, "ApiVersions v4: software name of 12 letters")


def first_sent(api_key, version, topics):
    golden = Golden(topics, ProducerIdAndEpoch(1, 1), versions={api_key: version})
    golden.write([cases.Row(0, None, b"v", [], 0, topic) for topic in topics])
    return next(sent for sent in golden.broker.sent if sent.api_key == api_key)


def assert_java_sends(sent, name):
    (case,) = (case for case in CASES if case["name"] == name)
    frame = bytearray(sent.frame)
    frame[CORRELATION_ID] = case["correlation_id"].to_bytes(4, "big")
    cases.assert_same_bytes(bytes(frame), case["frame"])
    assert sent.version == case["version"]


@pytest.mark.parametrize("name", [name for name in REQUESTS if name != "Produce"])
def test_every_version_that_we_speak_has_cases(name):
    request = REQUESTS[name]
    ours = set(range(request.min_version, request.max_version + 1))
    assert {case["version"] for case in CASES if case["api"] == name} == ours
