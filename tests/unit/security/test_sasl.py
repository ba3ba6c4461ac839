"""The bytes of each SASL mechanism, the dialogue of a connection, and wrong brokers."""

import base64
import hashlib
import hmac
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_sink.base.errors import (
    AuthenticationError,
    ConfigError,
    LocalProtocolError,
    MisroutedConnectionError,
    RemoteProtocolError,
    UnsupportedVersionError,
    error_named,
)
from spark_kafka_sink.base.text import Secret
from spark_kafka_sink.protocol.api import decode_response
from spark_kafka_sink.protocol.connection import (
    MAX_OWN_RESPONSE_BYTES,
    NEVER_MS,
    STAGE_CHANGES,
    UNLIMITED,
    Authentication,
    Connection,
    ExpectedBroker,
    OwnRequest,
    Ready,
    Session,
    Stage,
    Step,
    stage_after,
)
from spark_kafka_sink.protocol.messages.client import (
    ApiVersion,
    ApiVersionsResponse,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from spark_kafka_sink.protocol.messages.topics import MetadataRequest, MetadataResponse
from spark_kafka_sink.security.mechanisms import (
    OAuthBearerSaslClient,
    PlainSaslClient,
    ScramSaslClient,
    ScramUser,
    extensions_of,
    new_nonce,
)
from tests.tables import each_row
from tests.unit.frames import answer_frame
from tests.unit.simulated_time import Chance

# RFC 7677, section 3.
USER = ScramUser("user", Secret("pencil"))
NONCE = "rOprNGfwEbeRWgbNEkqO"

SERVER_FIRST = (
    b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
)

CLIENT_FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
    b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def scram(user=USER, mechanism="SCRAM-SHA-256", nonce=NONCE):
    return ScramSaslClient(mechanism, user, nonce=lambda: nonce)


def first_of(name="user", password="x", is_token=False):
    return scram(ScramUser(name, Secret(password), is_token)).initial_response().decode()


def begun(conversation, *challenges):
    """A conversation after its first message and these challenges."""
    conversation.initial_response()
    for challenge in challenges:
        conversation.evaluate_challenge(challenge)
    return conversation


def refused(conversation, challenge, told):
    with pytest.raises(AuthenticationError, match=told) as raised:
        conversation.evaluate_challenge(challenge)
    assert "pencil" not in str(raised.value)


class TestPlain:
    def test_the_only_message(self):
        conversation = PlainSaslClient("alice", Secret('Sp"ec,=i\\al ü;'))
        assert conversation.mechanism == "PLAIN"
        assert conversation.initial_response() == b'\0alice\0Sp"ec,=i\\al \xc3\xbc;'
        assert conversation.evaluate_challenge(b"") is None
        # Bytes of the environment that are no UTF-8 are sent as they are.
        assert PlainSaslClient("a", Secret("\udcff")).initial_response() == b"\0a\0\xff"

    def test_what_cannot_be_sent_is_refused_without_the_password(self):
        for name, password in (("a\0b", "S3CRET"), ("a", "S3CRET\0"), ("a", "S3CRET\ud800")):
            with pytest.raises(AuthenticationError, match=r"U\+0000|the password holds") as raised:
                PlainSaslClient(name, Secret(password)).initial_response()
            assert "S3CRET" not in repr(raised.value)
            assert raised.value.__cause__ is None
            assert raised.value.__context__ is None or raised.value.__suppress_context__


class TestScram:
    def test_the_example_of_the_rfc(self):
        for more in (b"", b",x=y,zz=a=b"):  # extensions of the broker mean nothing
            conversation = scram()
            assert conversation.initial_response() == b"n,,n=user,r=" + NONCE.encode()
            final = conversation.evaluate_challenge(SERVER_FIRST + more)
            assert more or final == CLIENT_FINAL
        final = begun(scram(), SERVER_FIRST).evaluate_challenge(SERVER_FINAL)
        assert final is None

    def test_sha_512_against_a_server_of_the_test(self):
        """A second writing of RFC 5802, the server's side."""
        conversation = scram(ScramUser("user", Secret("pässword")), "SCRAM-SHA-512")
        bare = conversation.initial_response().removeprefix(b"n,,")
        salted = hashlib.pbkdf2_hmac("sha512", "pässword".encode(), b"salt", 5000)
        server_first = b"r=" + NONCE.encode() + b"more,s=" + base64.b64encode(b"salt") + b",i=5000"
        final = conversation.evaluate_challenge(server_first)
        without_proof, proof = final.split(b",p=")
        message = bare + b"," + server_first + b"," + without_proof
        stored = hashlib.sha512(hmac.digest(salted, b"Client Key", "sha512")).digest()
        signature = hmac.digest(stored, message, "sha512")
        key = bytes(a ^ b for a, b in zip(base64.b64decode(proof), signature))
        assert hashlib.sha512(key).digest() == stored
        server_key = hmac.digest(salted, b"Server Key", "sha512")
        answer = base64.b64encode(hmac.digest(server_key, message, "sha512"))
        assert conversation.evaluate_challenge(b"v=" + answer) is None

    def test_names_and_tokens(self):
        first = first_of("kT8qVq3bQSmm1w", "aG1hYw==", is_token=True)
        assert first == f"n,,n=kT8qVq3bQSmm1w,r={NONCE},tokenauth=true"
        assert first_of("a=b,c").startswith("n,,n=a=3Db=2Cc,r=")
        assert "n,,n=Ⅸ\u00ad,r=" in first_of("Ⅸ\u00ad"), "without SASLprep"
        nonces = {new_nonce() for _ in range(100)}
        assert len(nonces) == 100
        assert all(n.isascii() and n.isprintable() and "," not in n for n in nonces)

    @each_row(
        ("server_first", "message"),
        [
            (b"", "not of the form"),
            (b"r=other,s=QSXCR+Q6sek8bf92,i=4096", "nonce does not begin"),
            (b"r=rOprNGfwEbeRWgbNEkqO,s=QSXCR+Q6sek8bf92,i=4096", "nonce does not begin"),
            (b"r=rOprNGfwEbeRWgbNEkqOx,s=QSXCR+Q6sek8bf92,i=4095", "4095 iterations"),
            # Kafka stores 16,384 at most.
            (b"r=rOprNGfwEbeRWgbNEkqOx,s=QSXCR+Q6sek8bf92,i=65537", "65537 iterations"),
            (b"r=rOprNGfwEbeRWgbNEkqOx,s=QSXCR+Q6sek8bf92,i=99999999999", "not of the form"),
            (b"r=rOprNGfwEbeRWgbNEkqOx,s=,i=4096", "not of the form"),
            (b"r=rOprNGfwEbeRWgbNEkqOx,s=QSX,i=4096", "not of the form"),
            (b"m=x,r=rOprNGfwEbeRWgbNEkqOx,s=QSXCR+Q6sek8bf92,i=4096", "not of the form"),
        ],
    )
    def test_a_wrong_first_answer(self, server_first, message):
        refused(begun(scram()), server_first, message)

    def test_a_broker_that_does_not_know_the_password(self):
        for server_final, message in (
            (b"", "not of the form"),
            (b"v=A", "signature is wrong"),
            (b"v=7rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=", "signature is wrong"),
            (b"e=invalid-proof", "the broker answers: invalid-proof"),
        ):
            refused(begun(scram(), SERVER_FIRST), server_final, message)


class TestOAuthBearer:
    def test_a_token_with_and_without_extensions(self):
        conversation = OAuthBearerSaslClient(Secret("aa.bb.cc"), {})
        assert conversation.mechanism == "OAUTHBEARER"
        assert conversation.initial_response() == b"n,,\x01auth=Bearer aa.bb.cc\x01\x01"
        assert conversation.evaluate_challenge(b"") is None
        own = {"extension_logicalCluster": "lkc-1", "extension_identityPoolId": "p 2"}
        extensions = extensions_of({"clientId": "a", **own})
        conversation = OAuthBearerSaslClient(Secret("aa.bb.cc"), extensions)
        assert conversation.initial_response() == (
            b"n,,\x01auth=Bearer aa.bb.cc\x01logicalCluster=lkc-1\x01identityPoolId=p 2\x01\x01"
        )

    def test_a_refusal_is_answered_and_then_told(self):
        conversation = begun(OAuthBearerSaslClient(Secret("aa.bb.cc"), {}))
        assert conversation.evaluate_challenge(b'{"status":"invalid_token"}') == b"\x01"
        refused(conversation, b"", 'refuses the token: {"status":"invalid_token"}')

    def test_what_cannot_be_sent_is_refused_without_showing_it(self):
        for token in ("", "S3CRET token", "S3CRET\n", "S3CRET\x01auth=Bearer x", "ä"):
            with pytest.raises(AuthenticationError, match="cannot be sent") as raised:
                OAuthBearerSaslClient(Secret(token), {})
            assert "S3CRET" not in str(raised.value)
        wrong = ("auth=S3CRET", "=S3CRET", "a1=S3CRET", "a=", "a=S3CRET\x01b=c", "a=S3CRETé")
        for name, _, text in (option.partition("=") for option in wrong):
            with pytest.raises(ConfigError) as raised:
                extensions_of({f"extension_{name}": text})
            assert "S3CRET" not in str(raised.value)


@pytest.mark.parametrize(
    ("conversation", "last", "mechanism"),
    [
        # The answer is ignored, as in Java.
        (begun(PlainSaslClient("a", Secret("b")), b"ignored"), b"", "PLAIN"),
        (begun(scram(), SERVER_FIRST, SERVER_FINAL), SERVER_FINAL, "SCRAM-SHA-256"),
        (begun(OAuthBearerSaslClient(Secret("aa.bb.cc"), {}), b""), b"", "OAUTHBEARER"),
    ],
)
def test_a_broker_that_goes_on(conversation, last, mechanism):
    refused(conversation, last, f"goes on with SASL {mechanism}")


CHALLENGES = st.binary() | st.builds(
    lambda template, at, data: template[:at] + data + template[at + len(data) :],
    st.sampled_from([SERVER_FIRST, SERVER_FINAL, b'{"status":"invalid_token"}']),
    st.integers(0, 80),
    st.binary(max_size=3),
)


@given(st.lists(CHALLENGES, max_size=4), st.sampled_from(["scram", "scram2", "plain", "oauth"]))
def test_whatever_a_broker_sends_only_an_authentication_error_comes(challenges, which):
    conversation = {
        "scram": scram,
        "scram2": lambda: scram(mechanism="SCRAM-SHA-512"),
        "plain": lambda: PlainSaslClient("a", Secret("b")),
        "oauth": lambda: OAuthBearerSaslClient(Secret("aa.bb.cc"), {}),
    }[which]()
    conversation.initial_response()
    try:
        for challenge in challenges:
            if conversation.evaluate_challenge(challenge) is None:
                break
    except AuthenticationError:
        pass


# --- the dialogue of a connection ------------------------------------------------------------------

DEADLINE_MS = 10_000
LIFETIME_MS = 60_000
PASSWORD = b"p@ssw0rd-never-shown"
VERSIONS = {18: (0, 4), 17: (0, 1), 36: (0, 2), 3: (0, 13)}
MIDDLE = Chance(0.5)
HANDSHAKE = SaslHandshakeResponse(mechanisms=["SCRAM-SHA-256"])
CHALLENGE = SaslAuthenticateResponse(auth_bytes=b"challenge")


class Rounds:
    """A conversation of two rounds: each message of the broker has an answer, but the last."""

    def __init__(self, messages=(b"first" + PASSWORD, b"second")):
        self.configured = self.mechanism = "SCRAM-SHA-256"
        self.challenges = []
        self._messages = iter(messages)

    def initial_response(self):
        return next(self._messages)

    def evaluate_challenge(self, challenge):
        self.challenges.append(challenge)
        if challenge == b"forged":
            raise AuthenticationError("the broker's signature is wrong")
        return next(self._messages, None)


class Dialogue:
    """A connection, and a broker's end of it that answers what it is told to."""

    def __init__(self, is_authenticated=True, chunk_bytes=0):
        self.conversations = []
        self._chunk_bytes = chunk_bytes
        authentication = Authentication(self._create_sasl_client, MIDDLE)
        self.connection = Connection("client", authentication if is_authenticated else None)
        self.now_ms = 1_000

    def _create_sasl_client(self):
        self.conversations.append(Rounds())
        return self.conversations[-1]

    @property
    def asked(self):
        """What the connection has asked last."""
        return self.connection.in_flight[-1]

    def open(self):
        self.connection.open(self.now_ms, DEADLINE_MS)
        return self

    def answer(self, message, sent=None):
        """``message`` as the answer to ``sent``, or to what was asked last; what follows."""
        sent = self.asked if sent is None else sent
        frame = answer_frame(sent.request, sent.version, sent.correlation_id, message)
        size = self._chunk_bytes or len(frame)
        events = []
        for at in range(0, len(frame), size):
            events += self.connection.receive(frame[at : at + size], self.now_ms)
        return events

    def tell_versions(self, versions=VERSIONS, **more):
        keys = [ApiVersion(key, *its) for key, its in versions.items()]
        return self.answer(ApiVersionsResponse(api_keys=keys, **more))

    def authenticate(self, lifetime_ms=0):
        """The rest of the dialogue, from the mechanism on."""
        self.answer(HANDSHAKE)
        self.answer(CHALLENGE)
        last = {"auth_bytes": b"signature", "session_lifetime_ms": lifetime_ms}
        return self.answer(SaslAuthenticateResponse(**last))

    def at_mechanism(self):
        self.open().tell_versions()
        return self

    def at_messages(self):
        self.at_mechanism().answer(HANDSHAKE)
        return self

    def become_usable(self, lifetime_ms=0):
        self.at_mechanism()
        assert self.authenticate(lifetime_ms) == [Ready(0)]
        return self

    def refuses(self, answer, error=AuthenticationError):
        with pytest.raises(error) as raised:
            self.answer(answer)
        return str(raised.value)


CHUNKS = pytest.mark.parametrize("chunk_bytes", [0, 1], ids=["whole", "byte by byte"])


def test_the_table_of_stages_and_steps():
    """One row for each, which has a reason; every stage is reached and ends; others are errors."""
    assert len({(c.stage, c.step) for c in STAGE_CHANGES}) == len(STAGE_CHANGES)
    assert all(c.reason for c in STAGE_CHANGES)
    assert {c.next_stage for c in STAGE_CHANGES} == set(Stage) - {Stage.NEW}
    assert {c.stage for c in STAGE_CHANGES if c.next_stage is not c.stage} == set(Stage)
    pairs = set(itertools.product(Stage, Step)) - {(c.stage, c.step) for c in STAGE_CHANGES}
    for stage, step in pairs:
        with pytest.raises(LocalProtocolError, match=f"{step.name} while {stage.name}"):
            stage_after(stage, step)


def test_without_sasl_any_request_follows_the_versions():
    dialogue = Dialogue(is_authenticated=False).open()
    assert dialogue.tell_versions() == [Ready(0)]
    assert dialogue.connection.stage is Stage.READY
    assert (dialogue.connection.renew_at_ms, dialogue.connection.ends_at_ms) == UNLIMITED


@CHUNKS
def test_versions_mechanism_messages(chunk_bytes):
    """Each request of the connection's own has the deadline of all."""
    dialogue = Dialogue(chunk_bytes=chunk_bytes).open()
    asked = [dialogue.asked]
    for step in (
        dialogue.tell_versions,
        lambda: dialogue.answer(HANDSHAKE),
        lambda: dialogue.answer(CHALLENGE),
    ):
        [event] = step()
        assert isinstance(event, OwnRequest)
        asked.append(dialogue.asked)
    assert [sent.request for sent in asked[1:]] == [
        SaslHandshakeRequest("SCRAM-SHA-256"),
        SaslAuthenticateRequest(b"first" + PASSWORD),
        SaslAuthenticateRequest(b"second"),
    ]
    assert [sent.version for sent in asked] == [4, 1, 2, 2]
    assert {sent.deadline_ms for sent in asked} == {DEADLINE_MS}
    assert dialogue.answer(SaslAuthenticateResponse(auth_bytes=b"signature")) == [Ready(0)]
    assert dialogue.conversations[0].challenges == [b"challenge", b"signature"]
    assert not dialogue.connection.in_flight


def test_a_password_is_in_the_bytes_that_are_sent_and_nowhere_else():
    dialogue = Dialogue().at_mechanism()
    [outgoing] = dialogue.answer(HANDSHAKE)
    assert PASSWORD in b"".join(outgoing.buffers)
    shown = f"{[outgoing]} {dialogue.asked} {SaslAuthenticateResponse(auth_bytes=PASSWORD)}"
    assert PASSWORD.decode() not in shown
    assert "SaslAuthenticateRequest" in shown


def test_no_other_request_before_the_connection_is_usable():
    dialogue = Dialogue().open()
    for stage in ("CHECKING_API_VERSIONS", "CHOOSING_MECHANISM"):
        with pytest.raises(LocalProtocolError, match=f"Metadata.* while {stage}"):
            dialogue.connection.send(MetadataRequest(), 12, 0, 0, None)
        if stage == "CHECKING_API_VERSIONS":
            # The pause that the versions ask for comes when requests may.
            dialogue.tell_versions(throttle_time_ms=70)
    assert dialogue.authenticate() == [Ready(70)]


def test_a_broker_with_older_or_no_sasl_requests():
    dialogue = Dialogue().open()
    dialogue.tell_versions({**VERSIONS, 36: (0, 0)})
    dialogue.answer(HANDSHAKE)
    assert dialogue.asked.version == 0
    with pytest.raises(UnsupportedVersionError, match="SaslHandshake"):
        Dialogue().open().tell_versions({18: (0, 4)})


# --- refusals --------------------------------------------------------------------------------------


def refusal(error_name, **more):
    return SaslHandshakeResponse(error_named(error_name).code, **more)


def failed(text):
    return SaslAuthenticateResponse(error_named("SASL_AUTHENTICATION_FAILED").code, text)


def test_a_mechanism_that_is_not_enabled_and_a_listener_without_sasl():
    answer = refusal("UNSUPPORTED_SASL_MECHANISM", mechanisms=["PLAIN", "OAUTHBEARER"])
    told = Dialogue().at_mechanism().refuses(answer)
    for words in ("SCRAM-SHA-256", "enabled there: PLAIN, OAUTHBEARER", "kafka.sasl.mechanism"):
        assert words in told
    told = Dialogue().at_mechanism().refuses(refusal("ILLEGAL_SASL_STATE"))
    assert "has no SASL: use kafka.security.protocol=SSL" in told


def test_credentials_that_are_refused_and_a_broker_that_is_not_what_it_says():
    """The broker's own text, and what to look at."""
    text = "Authentication failed during authentication due to invalid credentials"
    told = Dialogue().at_messages().refuses(failed(text))
    assert text in told
    assert "kafka.sasl.jaas.config" in told
    forged = SaslAuthenticateResponse(auth_bytes=b"forged")
    assert "signature" in Dialogue().at_messages().refuses(forged)
    # A new session can be refused, too.
    dialogue = Dialogue().become_usable(LIFETIME_MS)
    dialogue.connection.authenticate_again(55_000, 85_000)
    dialogue.answer(HANDSHAKE)
    assert "Cannot change principals" in dialogue.refuses(failed("Cannot change principals"))


@pytest.mark.parametrize(
    ("configured", "parts"),
    [
        ("PLAIN", ("kafka.sasl.jaas.config", "kafka.sasl.password")),
        ("OAUTHBEARER", ("audience", "expiry")),
        # It is OAUTHBEARER on the wire, and no issuer has given a token.
        ("AWS_MSK_IAM", ("check the AWS credentials, ", "kafka-cluster:Connect", "AUTH-029")),
        ("GSSAPI", ("clocks", "5 minutes", "kafka.sasl.kerberos.service.name", "its log")),
    ],
)
def test_what_a_refusal_may_mean(configured, parts):
    """Brokers say the same for everything."""
    dialogue = Dialogue().at_messages()
    dialogue.conversations[-1].configured = configured
    told = dialogue.refuses(failed("invalid credentials"))
    assert told.startswith(f"{configured}: invalid credentials: ")
    for part in parts:
        assert part in told


@pytest.mark.parametrize("error_name", ["UNKNOWN_SERVER_ERROR", "COORDINATOR_NOT_AVAILABLE"])
def test_an_error_that_says_nothing_of_the_credentials_may_pass(error_name):
    code = error_named(error_name).code
    for dialogue, answer in (
        (Dialogue().at_mechanism(), SaslHandshakeResponse(code)),
        (Dialogue().at_messages(), SaslAuthenticateResponse(code, "the user database is away")),
    ):
        assert error_name in dialogue.refuses(answer, RemoteProtocolError)


# --- sizes -----------------------------------------------------------------------------------------


def announce(dialogue, size_bytes):
    assert not list(dialogue.connection.receive(size_bytes.to_bytes(4, "big"), dialogue.now_ms))


def at_each_step():
    """Before the versions, the mechanism and each message; the same in a session that goes on."""
    usable = Dialogue().become_usable(LIFETIME_MS)
    usable.connection.authenticate_again(usable.now_ms, DEADLINE_MS)
    for dialogue in (Dialogue().open(), usable):
        if dialogue is not usable:
            yield dialogue
            dialogue.tell_versions()
        yield dialogue
        for answer in (HANDSHAKE, CHALLENGE):
            dialogue.answer(answer)
            yield dialogue


@pytest.mark.parametrize("step", range(7))
def test_who_is_not_authenticated_yet_may_not_send_100_mib(step):
    announce(next(itertools.islice(at_each_step(), step, None)), MAX_OWN_RESPONSE_BYTES)
    dialogue = next(itertools.islice(at_each_step(), step, None))
    with pytest.raises(RemoteProtocolError, match=f"announces {MAX_OWN_RESPONSE_BYTES + 1} bytes"):
        announce(dialogue, MAX_OWN_RESPONSE_BYTES + 1)


def test_answers_to_others_may_be_large_also_while_a_session_is_renewed():
    dialogue = Dialogue().become_usable(LIFETIME_MS)
    dialogue.connection.send(MetadataRequest(), 12, 0, DEADLINE_MS, None)
    dialogue.connection.authenticate_again(dialogue.now_ms, DEADLINE_MS)
    announce(dialogue, MetadataRequest().limits().size_bytes)


@pytest.mark.parametrize(("count", "is_remembered"), [(60, True), (20_000, False)])
def test_only_versions_of_a_brokers_size_are_remembered(count, is_remembered):
    answers = []
    for _ in range(2):
        sent = Dialogue(is_authenticated=False).open().asked
        message = ApiVersionsResponse(api_keys=[ApiVersion(n, 0, count % 7) for n in range(count)])
        frame = answer_frame(sent.request, sent.version, sent.correlation_id, message)
        answers.append(decode_response(sent.request, sent.version, frame[4:]))
    assert answers[0] == answers[1]
    assert (answers[0] is answers[1]) == is_remembered


# --- sessions --------------------------------------------------------------------------------------


@each_row(
    ("asked_ms", "answered_ms", "lifetime_ms", "chance", "session"),
    [
        # It is renewed at 85 to 95 percent of its life.
        (1_000, 1_000, LIFETIME_MS, 0.0, (52_000, 61_000)),
        (1_000, 1_000, LIFETIME_MS, 0.5, (55_000, 61_000)),
        (1_000, 1_000, LIFETIME_MS, 0.999, (57_994, 61_000)),
        (1_000, 1_000, 0, 0.5, (NEVER_MS, NEVER_MS)),
        (1_000, 1_000, -1, 0.5, (NEVER_MS, NEVER_MS)),
        # Not within a second, which brokers take for an error; a short life ends the connection.
        (0, 0, 1_150, 0.5, (1_100, 1_150)),
        (0, 0, 1_000, 0.5, (1_000, 1_000)),
        (0, 0, 1, 0.5, (1, 1)),
        # The second counts from a late answer: the broker counts from some instant before it.
        (0, 900, 10_000, 0.5, (9_000, 10_000)),
        (0, 900, 1_500, 0.5, (1_500, 1_500)),
        (0, 900, 2_100, 0.5, (2_000, 2_100)),
    ],
)
def test_when_a_session_is_renewed_and_ends(asked_ms, answered_ms, lifetime_ms, chance, session):
    assert Session.of(asked_ms, answered_ms, lifetime_ms, Chance(chance)) == session


def test_a_session_counts_from_the_question():
    """The broker counts from when it has answered, which is later: this side is never late."""
    dialogue = Dialogue().at_messages()
    dialogue.answer(CHALLENGE)
    dialogue.now_ms += 400
    dialogue.answer(SaslAuthenticateResponse(session_lifetime_ms=LIFETIME_MS))
    session = dialogue.connection.renew_at_ms, dialogue.connection.ends_at_ms
    assert session == (1_000 + 54_000, 1_000 + LIFETIME_MS)


@CHUNKS
def test_a_session_is_begun_anew_while_earlier_requests_are_answered(chunk_bytes):
    dialogue = Dialogue(chunk_bytes=chunk_bytes).become_usable(LIFETIME_MS)
    connection = dialogue.connection
    connection.send(MetadataRequest(), 12, 0, 0, None)
    earlier = dialogue.asked
    dialogue.now_ms = 55_000
    assert connection.authenticate_again(dialogue.now_ms, 85_000)
    assert dialogue.asked.request == SaslHandshakeRequest("SCRAM-SHA-256")
    assert dialogue.asked.deadline_ms == 85_000
    with pytest.raises(LocalProtocolError, match="CHOOSING_MECHANISM_AGAIN"):
        connection.send(MetadataRequest(), 12, 0, 0, None)
    [received] = dialogue.answer(MetadataResponse(), earlier)
    assert received.sent == earlier
    assert dialogue.authenticate(LIFETIME_MS) == [Ready(0)]
    assert connection.renew_at_ms == 55_000 + 54_000
    assert connection.send(MetadataRequest(), 12, 0, 0, None)
    assert len(dialogue.conversations) == 2


EXPECTED = ExpectedBroker("cluster", 3)
OF_4_4 = {**VERSIONS, 18: (0, 5)}


def compared():
    """A dialogue whose last request names the expected broker."""
    dialogue = Dialogue()
    authentication = Authentication(dialogue._create_sasl_client, MIDDLE)
    dialogue.connection = Connection("client", authentication, EXPECTED)
    dialogue.open()
    assert (dialogue.asked.version, dialogue.asked.request.cluster_id) == (4, None)
    dialogue.tell_versions(OF_4_4)
    [event] = dialogue.authenticate(lifetime_ms=60_000)
    assert isinstance(event, OwnRequest)
    asked = dialogue.asked.request
    assert (asked.cluster_id, asked.node_id, dialogue.asked.version) == ("cluster", 3, 5)
    return dialogue


def test_the_connection_is_usable_after_the_comparison_and_not_compared_again():
    dialogue = compared()
    assert dialogue.tell_versions(OF_4_4, throttle_time_ms=7) == [Ready(7)]
    dialogue.connection.authenticate_again(2_000, 3_000)
    assert dialogue.authenticate() == [Ready(0)]


@pytest.mark.parametrize(
    ("name", "version", "error"),
    [
        ("REBOOTSTRAP_REQUIRED", 5, MisroutedConnectionError),
        ("INVALID_REQUEST", 5, RemoteProtocolError),
        # One that takes the version back: brokers answer that in version 0.
        ("UNSUPPORTED_VERSION", 0, RemoteProtocolError),
    ],
)
def test_a_broker_that_rejects_the_comparison_is_not_asked_again(name, version, error):
    dialogue = compared()
    answer = ApiVersionsResponse(error_code=error_named(name).code)
    with pytest.raises(error, match=name):
        dialogue.answer(answer, dialogue.asked._replace(version=version))
