"""Responses that Kafka's own classes wrote: read by our connection, with the same content."""

from __future__ import annotations

import pytest

from spark_kafka_sink.base.errors import RemoteProtocolError
from tests.golden import case_files as cases
from tests.golden.message_json import REQUESTS, speaks, to_json
from tests.unit import frames
from tests.unit.frames import ready_connection

CASES = [case for case in cases.load("responses") if speaks(case)]
TOO_NEW = "unsupported version"


def asked(case):
    """A connection that waits for the answer of a case."""
    request = REQUESTS[case["api"]]()
    connection = ready_connection("c")
    frames.asked(connection, request, case["version"])
    return connection


@pytest.mark.parametrize("case", CASES, ids=cases.name_of)
def test_content_is_javas(case):
    frame = bytes.fromhex(case["frame"])
    (received,) = asked(case).receive(frame, 0)
    # An unknown version of ApiVersions is answered in version 0.
    version = 0 if TOO_NEW in case["name"] else case["version"]
    assert to_json(received.response, version) == case["body"]
    assert received.size_bytes == len(frame)


@pytest.mark.parametrize("case", CASES, ids=cases.name_of)
def test_content_is_javas_when_it_comes_in_pieces(case):
    frame = bytes.fromhex(case["frame"])
    connection = asked(case)
    third = len(frame) // 3
    assert list(connection.receive(frame[:third], 0)) == []
    assert list(connection.receive(frame[third:-1], 0)) == []
    (received,) = connection.receive(frame[-1:], 0)
    (at_once,) = asked(case).receive(frame, 0)
    assert received.response == at_once.response


@pytest.mark.parametrize("case", CASES, ids=cases.name_of)
def test_a_byte_less_is_refused(case):
    """Every byte of Java's is needed: a decoder that reads too little would not notice."""
    frame = bytes.fromhex(case["frame"])
    shorter = (len(frame) - 5).to_bytes(4, "big") + frame[4:-1]
    with pytest.raises(RemoteProtocolError):
        list(asked(case).receive(shorter, 0))


@pytest.mark.parametrize("name", REQUESTS)
def test_every_version_that_we_speak_has_cases(name):
    request = REQUESTS[name]
    ours = set(range(request.min_version, request.max_version + 1))
    assert {case["version"] for case in CASES if case["api"] == name} == ours
