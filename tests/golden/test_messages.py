"""Messages are Kafka's own: requests byte for byte, responses by content, conversations of SASL."""

from weakref import WeakValueDictionary

import pytest

from spark_kafka_sink.base import text
from spark_kafka_sink.base.errors import AuthenticationError, RemoteProtocolError
from spark_kafka_sink.base.model import ProducerIdAndEpoch
from spark_kafka_sink.base.text import Secret
from spark_kafka_sink.protocol import api
from spark_kafka_sink.protocol.connection import Connection, ExpectedBroker
from spark_kafka_sink.protocol.messages.topics import MetadataRequest
from spark_kafka_sink.security.mechanisms import (
    OAuthBearerSaslClient,
    PlainSaslClient,
    ScramSaslClient,
    ScramUser,
)
from tests.golden import case_files as cases
from tests.golden.case_files import REQUESTS, from_json, speaks, to_json, uuid_of
from tests.golden.producing import API_VERSIONS, INIT_PRODUCER_ID, METADATA, PRODUCE, Golden, Topic
from tests.tables import each_row
from tests.unit import frames
from tests.unit.frames import ready_connection

REQUEST_CASES = [case for case in cases.load("requests") if speaks(case)]
PRODUCE_CASES = cases.load("produce")
RESPONSE_CASES = [case for case in cases.load("responses") if speaks(case)]
SASL_CASES = cases.load("sasl")
SCRAM = [case for case in SASL_CASES if case["mechanism"].startswith("SCRAM")]
CORRELATION_ID = slice(8, 12)
TOO_NEW = "unsupported version"


def versions_of(some, api):
    return {case["version"] for case in some if case.get("api", "Produce") == api}


@each_row("name", REQUESTS)
def test_every_version_that_we_speak_has_cases(name):
    kind = REQUESTS[name]
    ours = set(range(kind.min_version, kind.max_version + 1))
    requests = PRODUCE_CASES if name == "Produce" else REQUEST_CASES
    assert versions_of(requests, name) == versions_of(RESPONSE_CASES, name) == ours


# --- requests -------------------------------------------------------------------------------------


@each_row("case", REQUEST_CASES, ids=cases.name_of)
def test_request_is_javas(case):
    request = from_json(REQUESTS[case["api"]], case["body"])
    numbers = case["version"], case["correlation_id"], case["client_id"]
    cases.assert_same_bytes(b"".join(api.encode_request(request, *numbers)), case["frame"])


@each_row("version", range(1, 14))
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


def test_first_request_to_a_known_broker_is_javas(monkeypatch):
    """It names the cluster and the broker that it is meant for (KIP-1242)."""
    monkeypatch.setattr("spark_kafka_sink.protocol.connection.__version__", "0.1.0")
    (case,) = (c for c in REQUEST_CASES if c["name"] == "ApiVersions v5: of a broker")
    meant = ExpectedBroker(case["body"]["clusterId"], case["body"]["nodeId"])
    sent = b"".join(Connection(case["client_id"], None, meant).open(0, 1_000))
    frame = sent[: CORRELATION_ID.start] + case["correlation_id"].to_bytes(4, "big")
    cases.assert_same_bytes(frame + sent[CORRELATION_ID.stop :], case["frame"])


def test_a_real_offer_of_unstable_versions_is_not_taken():
    """Brokers that enable unstable versions offer InitProducerId 6 (KIP-939)."""
    (case,) = (c for c in RESPONSE_CASES if c["name"] == "ApiVersions v5: every API")
    (received,) = asked(case).receive(bytes.fromhex(case["frame"]), 0)
    offered = {one.api_key: one.max_version for one in received.response.api_keys}
    assert offered[INIT_PRODUCER_ID] == 6
    versions = api.BrokerApiVersions.from_response(received.response)
    assert versions.latest_usable_version(REQUESTS["InitProducerId"]) == 5


def first_sent(api_key, version, topics):
    golden = Golden(topics, ProducerIdAndEpoch(1, 1), versions={api_key: version})
    golden.write([cases.Row(0, None, b"v", [], 0, topic) for topic in topics])
    return next(sent for sent in golden.broker.sent if sent.api_key == api_key)


def assert_java_sends(sent, name):
    (case,) = (case for case in REQUEST_CASES if case["name"] == name)
    assert_same_but_for_the_number(sent, case)


def assert_same_but_for_the_number(sent, case):
    """But for the correlation id, which counts the requests before this one."""
    frame = bytearray(sent.frame)
    frame[CORRELATION_ID] = case["correlation_id"].to_bytes(4, "big")
    cases.assert_same_bytes(bytes(frame), case["frame"])
    assert sent.version == case["version"]


@each_row("case", PRODUCE_CASES, ids=cases.name_of)
def test_whole_produce_request_is_javas(case):
    """Rows in at one end, out comes the frame that the Java client would send."""
    producer = case["producer"]
    golden = Golden(
        {t["name"]: Topic(t["partitions_count"], uuid_of(t["id"])) for t in case["topics"]},
        producer and ProducerIdAndEpoch(producer["id"], producer["epoch"]),
        versions={PRODUCE: case["version"]},
        acks=case["acks"],
        request_timeout_ms=case["timeout_ms"],
        client_id=case["client_id"],
    )
    rows = [
        row
        for topic in case["topics"]
        for partition in topic["partitions"]
        for row in cases.rows(partition["rows"], topic["name"], partition["index"])
    ]
    (sent,) = golden.write(rows)
    assert sent.api_key == PRODUCE
    assert_same_but_for_the_number(sent, case)


# --- responses ------------------------------------------------------------------------------------


def asked(case):
    """A connection that waits for the answer of a case."""
    connection = ready_connection("c")
    request = REQUESTS[case["api"]]()
    if isinstance(request, MetadataRequest):
        request.topics = None  # all: an answer may have no more than were asked for
    frames.asked(connection, request, case["version"])
    return connection


@pytest.fixture
def no_secrets(monkeypatch):
    """Another test of this process may have left a password of which half is in a text of these."""
    monkeypatch.setattr(text, "_ALIVE", WeakValueDictionary())


@pytest.mark.usefixtures("no_secrets")
@each_row("case", RESPONSE_CASES, ids=cases.name_of)
def test_content_of_a_response_is_javas(case):
    """Every byte of Java's is needed: a decoder that reads too little would not notice."""
    frame = bytes.fromhex(case["frame"])
    (received,) = asked(case).receive(frame, 0)
    # An unknown version of ApiVersions is answered in version 0.
    version = 0 if TOO_NEW in case["name"] else case["version"]
    assert to_json(received.response, version) == case["body"]
    assert received.size_bytes == len(frame)
    shorter = (len(frame) - 5).to_bytes(4, "big") + frame[4:-1]
    with pytest.raises(RemoteProtocolError):
        list(asked(case).receive(shorter, 0))


# --- SASL -----------------------------------------------------------------------------------------


def conversation(case, **more):
    case = {**case, **more}
    if case["mechanism"] == "OAUTHBEARER":
        return OAuthBearerSaslClient(Secret(case["token"]), case["extensions"])
    if case["mechanism"] == "PLAIN":
        return PlainSaslClient(case["user"], Secret(case["password"]))
    user = ScramUser(case["user"], Secret(case["password"]), case["is_token"])
    return ScramSaslClient(case["mechanism"], user, nonce=lambda: case["nonce"])


def test_every_mechanism_without_a_library_has_cases():
    mechanisms = {"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"}
    assert {case["mechanism"] for case in SASL_CASES} == mechanisms


@each_row("case", SASL_CASES, ids=cases.name_of)
def test_first_message_is_javas(case):
    assert conversation(case).initial_response().hex() == case["client_first"]


@pytest.mark.parametrize("is_wrong", [False, True], ids=["right", "wrong"])
@each_row("case", SCRAM, ids=cases.name_of)
def test_proof_is_javas_and_that_of_a_broker_which_knows_the_password_is_believed(case, is_wrong):
    ours = conversation(case, password=case["password"] + "x" * is_wrong)
    ours.initial_response()
    answer = ours.evaluate_challenge(bytes.fromhex(case["server_first"]))
    assert (answer.hex() == case["client_final"]) is not is_wrong
    if is_wrong:
        with pytest.raises(AuthenticationError, match="signature is wrong"):
            ours.evaluate_challenge(bytes.fromhex(case["server_final"]))
    else:
        assert ours.evaluate_challenge(bytes.fromhex(case["server_final"])) is None
