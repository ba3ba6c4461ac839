"""What a connection says before others may, and again before its session ends: whole, byte by byte."""

import itertools

import pytest

from spark_kafka_sink.base.errors import (
    AuthenticationError,
    LocalProtocolError,
    RemoteProtocolError,
    UnsupportedVersionError,
    error_named,
)
from spark_kafka_sink.protocol.api import decode_response
from spark_kafka_sink.protocol.connection import (
    MAX_OWN_RESPONSE_BYTES,
    MAX_RESPONSE_BYTES,
    NEVER_MS,
    STAGE_CHANGES,
    UNLIMITED,
    Authentication,
    Connection,
    OwnRequest,
    Ready,
    ResponseReceived,
    Session,
    Stage,
    Step,
    _authentication_error,
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
from tests.unit.frames import answer_frame

DEADLINE_MS = 10_000
LIFETIME_MS = 60_000
PASSWORD = b"p@ssw0rd-never-shown"
VERSIONS = {18: (0, 4), 17: (0, 1), 36: (0, 2), 3: (0, 13)}


class Rounds:
    """A conversation of two rounds: each message of the broker has an answer, but the last."""

    def __init__(self, messages=(b"first" + PASSWORD, b"second")):
        self.mechanism = "SCRAM-SHA-256"
        self.challenges = []
        self._messages = iter(messages)

    def initial_response(self):
        return next(self._messages)

    def evaluate_challenge(self, challenge):
        self.challenges.append(challenge)
        if challenge == b"forged":
            raise AuthenticationError("the broker's signature is wrong")
        return next(self._messages, None)


class Middle:
    def random(self):
        return 0.5


class Dialogue:
    """A connection, and a broker's end of it that answers what it is told to."""

    def __init__(self, is_authenticated=True, chunk_bytes=0):
        self.conversations = []
        self._chunk_bytes = chunk_bytes
        authentication = (
            Authentication(self._create_sasl_client, Middle()) if is_authenticated else None
        )
        self.connection = Connection("client", authentication)
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

    def tell_versions(self, versions=VERSIONS):
        keys = [ApiVersion(key, *its) for key, its in versions.items()]
        return self.answer(ApiVersionsResponse(api_keys=keys))

    def authenticate(self, lifetime_ms=0):
        """The rest of the dialogue, from the mechanism on."""
        self.answer(SaslHandshakeResponse(mechanisms=["SCRAM-SHA-256"]))
        self.answer(SaslAuthenticateResponse(auth_bytes=b"challenge"))
        return self.answer(
            SaslAuthenticateResponse(auth_bytes=b"signature", session_lifetime_ms=lifetime_ms)
        )

    def become_usable(self, lifetime_ms=0):
        self.open().tell_versions()
        assert self.authenticate(lifetime_ms) == [Ready(0)]
        return self


CHUNKS = pytest.mark.parametrize("chunk_bytes", [0, 1], ids=["whole", "byte by byte"])


# --- the table -------------------------------------------------------------------------------------


def test_one_row_for_each_stage_and_step_and_each_has_a_reason():
    assert len({(c.stage, c.step) for c in STAGE_CHANGES}) == len(STAGE_CHANGES)
    assert all(c.reason for c in STAGE_CHANGES)


def test_every_stage_is_reached_and_ends():
    assert {c.next_stage for c in STAGE_CHANGES} == set(Stage) - {Stage.NEW}
    assert {c.stage for c in STAGE_CHANGES if c.next_stage is not c.stage} == set(Stage)


@pytest.mark.parametrize("stage", Stage)
def test_a_step_without_a_row_is_an_error_of_this_side(stage):
    for step in set(Step) - {c.step for c in STAGE_CHANGES if c.stage is stage}:
        with pytest.raises(LocalProtocolError, match=f"{step.name} while {stage.name}"):
            stage_after(stage, step)


# --- from the first request on ---------------------------------------------------------------------


@CHUNKS
def test_without_sasl_any_request_follows_the_versions(chunk_bytes):
    dialogue = Dialogue(is_authenticated=False, chunk_bytes=chunk_bytes).open()
    assert dialogue.tell_versions() == [Ready(0)]
    assert dialogue.connection.stage is Stage.READY
    assert (dialogue.connection.renew_at_ms, dialogue.connection.ends_at_ms) == UNLIMITED


@CHUNKS
def test_versions_mechanism_messages(chunk_bytes):
    """Each request of the connection's own has the deadline of all."""
    dialogue = Dialogue(chunk_bytes=chunk_bytes).open()
    asked = [dialogue.asked]
    for message in (
        ApiVersionsResponse(api_keys=[ApiVersion(key, *its) for key, its in VERSIONS.items()]),
        SaslHandshakeResponse(mechanisms=["SCRAM-SHA-256"]),
        SaslAuthenticateResponse(auth_bytes=b"challenge"),
    ):
        [event] = dialogue.answer(message)
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


def test_the_bytes_of_a_message_are_what_is_sent():
    dialogue = Dialogue().open()
    dialogue.tell_versions()
    [outgoing] = dialogue.answer(SaslHandshakeResponse(mechanisms=["SCRAM-SHA-256"]))
    assert isinstance(outgoing, OwnRequest)
    assert PASSWORD in b"".join(outgoing.buffers)


def test_nothing_that_may_hold_a_password_shows_it():
    dialogue = Dialogue().open()
    dialogue.tell_versions()
    events = dialogue.answer(SaslHandshakeResponse(mechanisms=["SCRAM-SHA-256"]))
    shown = f"{events} {dialogue.asked} {SaslAuthenticateResponse(auth_bytes=PASSWORD)}"
    assert PASSWORD.decode() not in shown
    assert "SaslAuthenticateRequest" in shown


def test_no_other_request_before_the_connection_is_usable():
    dialogue = Dialogue().open()
    with pytest.raises(LocalProtocolError, match="Metadata.* while CHECKING_API_VERSIONS"):
        dialogue.connection.send(MetadataRequest(), 12, 0, 0, None)
    dialogue.tell_versions()
    with pytest.raises(LocalProtocolError, match="Metadata.* while CHOOSING_MECHANISM"):
        dialogue.connection.send(MetadataRequest(), 12, 0, 0, None)


def test_the_pause_that_the_versions_ask_for_comes_when_requests_may():
    dialogue = Dialogue().open()
    keys = [ApiVersion(key, *its) for key, its in VERSIONS.items()]
    dialogue.answer(ApiVersionsResponse(api_keys=keys, throttle_time_ms=70))
    assert dialogue.authenticate() == [Ready(70)]


def test_a_broker_without_authenticate_v2_is_asked_in_what_it_has():
    dialogue = Dialogue().open()
    dialogue.tell_versions({**VERSIONS, 36: (0, 0)})
    dialogue.answer(SaslHandshakeResponse(mechanisms=["SCRAM-SHA-256"]))
    assert dialogue.asked.version == 0


def test_a_broker_without_sasl_requests():
    dialogue = Dialogue().open()
    with pytest.raises(UnsupportedVersionError, match="SaslHandshake"):
        dialogue.tell_versions({18: (0, 4)})


# --- refusals --------------------------------------------------------------------------------------


def refusal(error_name, **more):
    return SaslHandshakeResponse(error_named(error_name).code, **more)


def test_a_mechanism_that_is_not_enabled():
    dialogue = Dialogue().open()
    dialogue.tell_versions()
    answer = refusal("UNSUPPORTED_SASL_MECHANISM", mechanisms=["PLAIN", "OAUTHBEARER"])
    with pytest.raises(AuthenticationError) as raised:
        dialogue.answer(answer)
    for words in ("SCRAM-SHA-256", "enabled there: PLAIN, OAUTHBEARER", "kafka.sasl.mechanism"):
        assert words in str(raised.value)


def test_a_listener_without_sasl():
    dialogue = Dialogue().open()
    dialogue.tell_versions()
    with pytest.raises(AuthenticationError, match="has no SASL: use kafka.security.protocol=SSL"):
        dialogue.answer(refusal("ILLEGAL_SASL_STATE"))


def test_credentials_that_are_refused():
    """The broker's own text, and what to look at."""
    dialogue = Dialogue().open()
    dialogue.tell_versions()
    dialogue.answer(SaslHandshakeResponse(mechanisms=["SCRAM-SHA-256"]))
    text = "Authentication failed during authentication due to invalid credentials"
    code = error_named("SASL_AUTHENTICATION_FAILED").code
    with pytest.raises(AuthenticationError) as raised:
        dialogue.answer(SaslAuthenticateResponse(code, text))
    assert text in str(raised.value)
    assert "kafka.sasl.jaas.config" in str(raised.value)


@pytest.mark.parametrize(
    ("mechanism", "parts"),
    [
        ("PLAIN", ("kafka.sasl.jaas.config", "kafka.sasl.password")),
        ("OAUTHBEARER", ("audience", "expiry")),
        ("AWS_MSK_IAM", ("kafka-cluster:Connect",)),
        ("GSSAPI", ("clocks", "5 minutes", "kafka.sasl.kerberos.service.name", "its log")),
    ],
)
def test_what_a_refusal_may_mean(mechanism, parts):
    """Brokers say the same for everything."""
    code = error_named("SASL_AUTHENTICATION_FAILED").code
    error = _authentication_error(mechanism, SaslAuthenticateResponse(code, "invalid credentials"))
    assert isinstance(error, AuthenticationError)
    for part in (mechanism, "invalid credentials", *parts):
        assert part in str(error)


def test_a_broker_that_is_not_what_it_says():
    dialogue = Dialogue().open()
    dialogue.tell_versions()
    dialogue.answer(SaslHandshakeResponse(mechanisms=["SCRAM-SHA-256"]))
    with pytest.raises(AuthenticationError, match="signature"):
        dialogue.answer(SaslAuthenticateResponse(auth_bytes=b"forged"))


@pytest.mark.parametrize("error_name", ["UNKNOWN_SERVER_ERROR", "COORDINATOR_NOT_AVAILABLE"])
def test_an_error_that_says_nothing_of_the_credentials_may_pass(error_name):
    code = error_named(error_name).code
    dialogue = Dialogue().open()
    dialogue.tell_versions()
    with pytest.raises(RemoteProtocolError, match=error_name):
        dialogue.answer(SaslHandshakeResponse(code))
    dialogue = Dialogue().open()
    dialogue.tell_versions()
    dialogue.answer(SaslHandshakeResponse(mechanisms=["SCRAM-SHA-256"]))
    with pytest.raises(RemoteProtocolError, match=error_name):
        dialogue.answer(SaslAuthenticateResponse(code, "the user database is away"))


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
        dialogue.answer(SaslHandshakeResponse(mechanisms=["SCRAM-SHA-256"]))
        yield dialogue
        dialogue.answer(SaslAuthenticateResponse(auth_bytes=b"challenge"))
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
    announce(dialogue, MAX_RESPONSE_BYTES)


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


class Chance:
    def __init__(self, value):
        self._value = value

    def random(self):
        return self._value


@pytest.mark.parametrize(("chance", "after_ms"), [(0.0, 51_000), (0.5, 54_000), (0.999, 56_994)])
def test_it_is_renewed_at_85_to_95_percent_of_its_life(chance, after_ms):
    session = Session.of(1_000, 1_000, LIFETIME_MS, Chance(chance))
    assert session == (1_000 + after_ms, 1_000 + LIFETIME_MS)


@pytest.mark.parametrize("lifetime_ms", [0, -1])
def test_a_session_without_end(lifetime_ms):
    assert Session.of(1_000, 1_000, lifetime_ms, Middle()) == (NEVER_MS, NEVER_MS)


@pytest.mark.parametrize(("lifetime_ms", "after_ms"), [(1_150, 1_100), (1_000, 1_000), (1, 1)])
def test_a_session_is_not_renewed_within_a_second(lifetime_ms, after_ms):
    """Brokers take that for an error; a life so short ends with the connection."""
    assert Session.of(0, 0, lifetime_ms, Middle()) == (after_ms, lifetime_ms)


def test_a_session_counts_from_the_question():
    """The broker counts from when it has answered, which is later: this side is never late."""
    dialogue = Dialogue().open()
    dialogue.tell_versions()
    dialogue.answer(SaslHandshakeResponse(mechanisms=["SCRAM-SHA-256"]))
    dialogue.answer(SaslAuthenticateResponse(auth_bytes=b"challenge"))
    dialogue.now_ms += 400
    dialogue.answer(SaslAuthenticateResponse(session_lifetime_ms=LIFETIME_MS))
    assert dialogue.connection.renew_at_ms == 1_000 + 54_000
    assert dialogue.connection.ends_at_ms == 1_000 + LIFETIME_MS


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
    assert isinstance(received, ResponseReceived)
    assert received.sent == earlier
    assert dialogue.authenticate(LIFETIME_MS) == [Ready(0)]
    assert connection.renew_at_ms == 55_000 + 54_000
    assert connection.send(MetadataRequest(), 12, 0, 0, None)
    assert len(dialogue.conversations) == 2


def test_a_new_session_can_be_refused():
    dialogue = Dialogue().become_usable(LIFETIME_MS)
    dialogue.connection.authenticate_again(55_000, 85_000)
    dialogue.answer(SaslHandshakeResponse(mechanisms=["SCRAM-SHA-256"]))
    code = error_named("SASL_AUTHENTICATION_FAILED").code
    with pytest.raises(AuthenticationError, match="Cannot change principals"):
        dialogue.answer(SaslAuthenticateResponse(code, "Cannot change principals"))


def test_the_second_is_counted_from_an_answer_that_comes_late():
    """The broker counts from some instant between question and answer."""
    assert Session.of(0, 900, 10_000, Middle()).renew_at_ms == 9_000
    assert Session.of(0, 900, 1_500, Middle()) == (1_500, 1_500)
    assert Session.of(0, 900, 2_100, Middle()).renew_at_ms == 2_000
