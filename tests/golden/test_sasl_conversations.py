"""Conversations of SASL: the bytes of Kafka's own classes, and its brokers' proofs are believed."""

from __future__ import annotations

from typing import Any

import pytest

from spark_kafka_sink.base.errors import AuthenticationError
from spark_kafka_sink.base.secret import Secret
from spark_kafka_sink.protocol.connection import SaslClient
from spark_kafka_sink.security.mechanisms import (
    OAuthBearerSaslClient,
    PlainSaslClient,
    ScramSaslClient,
    ScramUser,
)
from tests.golden import case_files as cases

Case = dict[str, Any]
CASES = cases.load("sasl")
SCRAM = [case for case in CASES if case["mechanism"].startswith("SCRAM")]


def conversation(case: Case) -> SaslClient:
    if case["mechanism"] == "OAUTHBEARER":
        return OAuthBearerSaslClient(Secret(case["token"]), case["extensions"])
    if case["mechanism"] == "PLAIN":
        return PlainSaslClient(case["user"], Secret(case["password"]))
    user = ScramUser(case["user"], Secret(case["password"]), case["is_token"])
    return ScramSaslClient(case["mechanism"], user, nonce=lambda: case["nonce"])


@pytest.mark.parametrize("case", CASES, ids=cases.name_of)
def test_first_message_is_javas(case: Case) -> None:
    assert conversation(case).initial_response().hex() == case["client_first"]


@pytest.mark.parametrize("case", SCRAM, ids=cases.name_of)
def test_proof_is_javas_and_that_of_the_broker_is_believed(case: Case) -> None:
    ours = conversation(case)
    ours.initial_response()
    answer = ours.evaluate_challenge(bytes.fromhex(case["server_first"]))
    assert answer is not None
    assert answer.hex() == case["client_final"]
    assert ours.evaluate_challenge(bytes.fromhex(case["server_final"])) is None


@pytest.mark.parametrize("case", SCRAM, ids=cases.name_of)
def test_proof_for_another_password_is_not_believed(case: Case) -> None:
    ours = conversation({**case, "password": case["password"] + "x"})
    ours.initial_response()
    answer = ours.evaluate_challenge(bytes.fromhex(case["server_first"]))
    assert answer is not None
    assert answer.hex() != case["client_final"]
    with pytest.raises(AuthenticationError, match="signature is wrong"):
        ours.evaluate_challenge(bytes.fromhex(case["server_final"]))


def test_every_mechanism_without_a_library_has_cases() -> None:
    assert {case["mechanism"] for case in CASES} == {
        "PLAIN",
        "SCRAM-SHA-256",
        "SCRAM-SHA-512",
        "OAUTHBEARER",
    }
