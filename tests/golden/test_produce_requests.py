"""Whole produce requests: rows in at one end, out comes the frame that the Java client would send."""

from __future__ import annotations

from typing import Any

import pytest

from spark_kafka_sink.base.model import ProducerIdAndEpoch
from spark_kafka_sink.protocol.messages.topics import ProduceRequest
from tests.golden import case_files as cases
from tests.golden.message_json import uuid_of
from tests.golden.producing import PRODUCE, Golden, Topic

CASES = cases.load("produce")
CORRELATION_ID = slice(8, 12)


def golden(case: dict[str, Any]) -> Golden:
    topics = {t["name"]: Topic(t["partitions_count"], uuid_of(t["id"])) for t in case["topics"]}
    producer = case["producer"]
    return Golden(
        topics,
        producer and ProducerIdAndEpoch(producer["id"], producer["epoch"]),
        versions={PRODUCE: case["version"]},
        acks=case["acks"],
        request_timeout_ms=case["timeout_ms"],
        client_id=case["client_id"],
    )


def rows_of(case: dict[str, Any]) -> list[cases.Row]:
    return [
        row
        for topic in case["topics"]
        for partition in topic["partitions"]
        for row in cases.rows(partition["rows"], topic["name"], partition["index"])
    ]


@pytest.mark.parametrize("case", CASES, ids=cases.name_of)
def test_request_is_javas(case):
    (sent,) = golden(case).write(rows_of(case))
    assert (sent.api_key, sent.version) == (PRODUCE, case["version"])
    # The number of requests before this one; golden in test_requests, where it is given.
    frame = bytearray(sent.frame)
    frame[CORRELATION_ID] = case["correlation_id"].to_bytes(4, "big")
    cases.assert_same_bytes(bytes(frame), case["frame"])


def test_every_version_that_we_speak_has_cases():
    ours = set(range(ProduceRequest.min_version, ProduceRequest.max_version + 1))
    assert {case["version"] for case in CASES} == ours
