"""The bytes of each SASL mechanism, and what a wrong broker gets: an AuthenticationError."""

import base64
import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_sink.base.errors import AuthenticationError, ConfigError
from spark_kafka_sink.base.secret import Secret
from spark_kafka_sink.security.mechanisms import (
    OAuthBearerSaslClient,
    PlainSaslClient,
    ScramSaslClient,
    ScramUser,
    extensions_of,
    new_nonce,
)

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


def scram(user=USER, mechanism="SCRAM-SHA-256"):
    return ScramSaslClient(mechanism, user, nonce=lambda: NONCE)


class TestPlain:
    def test_the_only_message(self):
        conversation = PlainSaslClient("alice", Secret('Sp"ec,=i\\al ü;'))
        assert conversation.mechanism == "PLAIN"
        assert conversation.initial_response() == b'\0alice\0Sp"ec,=i\\al \xc3\xbc;'
        assert conversation.evaluate_challenge(b"") is None

    def test_bytes_of_the_environment_that_are_no_utf8_are_sent_as_they_are(self):
        assert PlainSaslClient("a", Secret("\udcff")).initial_response() == b"\0a\0\xff"

    @pytest.mark.parametrize(("name", "password"), [("a\0b", "S3CRET"), ("a", "S3CRET\0")])
    def test_the_separator_cannot_be_sent(self, name, password):
        with pytest.raises(AuthenticationError, match=r"U\+0000") as raised:
            PlainSaslClient(name, Secret(password))
        assert "S3CRET" not in str(raised.value)

    def test_what_utf8_does_not_have_is_refused_without_the_password(self):
        with pytest.raises(AuthenticationError, match="the password holds") as raised:
            PlainSaslClient("a", Secret("S3CRET\ud800")).initial_response()
        assert "S3CRET" not in repr(raised.value)
        assert raised.value.__cause__ is None
        assert raised.value.__suppress_context__

    def test_a_broker_that_goes_on(self):
        conversation = PlainSaslClient("a", Secret("b"))
        conversation.initial_response()
        conversation.evaluate_challenge(b"ignored, as in Java")
        with pytest.raises(AuthenticationError, match="goes on with SASL PLAIN"):
            conversation.evaluate_challenge(b"")


class TestScram:
    def test_the_example_of_rfc_7677(self):
        conversation = scram()
        assert conversation.initial_response() == b"n,,n=user,r=" + NONCE.encode()
        assert conversation.evaluate_challenge(SERVER_FIRST) == CLIENT_FINAL
        assert conversation.evaluate_challenge(SERVER_FINAL) is None

    def test_the_example_of_rfc_5802_by_its_algorithm(self, monkeypatch):
        """Its hash, SHA-1, is not one of Kafka's: the messages are the same otherwise."""
        from spark_kafka_sink.security import mechanisms as module

        monkeypatch.setitem(module.HASHES, "SCRAM-SHA-1", "sha1")
        conversation = ScramSaslClient(
            "SCRAM-SHA-1", USER, nonce=lambda: "fyko+d2lbbFgONRv9qkxdawL"
        )
        assert conversation.initial_response() == b"n,,n=user,r=fyko+d2lbbFgONRv9qkxdawL"
        assert conversation.evaluate_challenge(
            b"r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096"
        ) == (b"c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=")
        assert conversation.evaluate_challenge(b"v=rmF9pqV8S7suAoZWja4dJRkFsKQ=") is None

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

    def test_a_delegation_token_is_told_by_an_extension(self):
        user = ScramUser("kT8qVq3bQSmm1w", Secret("aG1hYw=="), is_token=True)
        first = scram(user).initial_response()
        assert first == b"n,,n=kT8qVq3bQSmm1w,r=" + NONCE.encode() + b",tokenauth=true"

    def test_names_are_escaped(self):
        assert (
            scram(ScramUser("a=b,c", Secret("x")))
            .initial_response()
            .startswith(b"n,,n=a=3Db=2Cc,r=")
        )

    def test_names_are_sent_without_saslprep(self):
        assert (
            "n,,n=Ⅸ\u00ad,r=".encode()
            in scram(ScramUser("Ⅸ\u00ad", Secret("x"))).initial_response()
        )

    def test_nonces_are_printable_and_differ(self):
        nonces = {new_nonce() for _ in range(100)}
        assert len(nonces) == 100
        assert all(n.isascii() and n.isprintable() and "," not in n for n in nonces)

    @pytest.mark.parametrize(
        ("server_first", "message"),
        [
            (b"", "not of the form"),
            (b"r=other,s=QSXCR+Q6sek8bf92,i=4096", "nonce does not begin"),
            (b"r=rOprNGfwEbeRWgbNEkqO,s=QSXCR+Q6sek8bf92,i=4096", "nonce does not begin"),
            (b"r=rOprNGfwEbeRWgbNEkqOx,s=QSXCR+Q6sek8bf92,i=4095", "4095 iterations"),
            (b"r=rOprNGfwEbeRWgbNEkqOx,s=QSXCR+Q6sek8bf92,i=999999999", "999999999 iterations"),
            (b"r=rOprNGfwEbeRWgbNEkqOx,s=QSXCR+Q6sek8bf92,i=99999999999", "not of the form"),
            (b"r=rOprNGfwEbeRWgbNEkqOx,s=,i=4096", "not of the form"),
            (b"r=rOprNGfwEbeRWgbNEkqOx,s=QSX,i=4096", "not of the form"),
            (b"m=x,r=rOprNGfwEbeRWgbNEkqOx,s=QSXCR+Q6sek8bf92,i=4096", "not of the form"),
            (b"e=unknown-user", "not of the form"),
        ],
    )
    def test_a_wrong_first_answer(self, server_first, message):
        conversation = scram()
        conversation.initial_response()
        with pytest.raises(AuthenticationError, match=message) as raised:
            conversation.evaluate_challenge(server_first)
        assert "pencil" not in str(raised.value)

    def test_extensions_of_the_broker_mean_nothing(self):
        conversation = scram()
        conversation.initial_response()
        assert conversation.evaluate_challenge(SERVER_FIRST + b",x=y,zz=a=b") is not None

    @pytest.mark.parametrize(
        ("server_final", "message"),
        [
            (b"", "not of the form"),
            (b"v=AAAA", "signature is wrong"),
            (b"v=7rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=", "signature is wrong"),
            (b"v=A", "signature is wrong"),
            (b"e=invalid-proof", "the broker answers: invalid-proof"),
        ],
    )
    def test_a_broker_that_does_not_know_the_password(self, server_final, message):
        conversation = scram()
        conversation.initial_response()
        conversation.evaluate_challenge(SERVER_FIRST)
        with pytest.raises(AuthenticationError, match=message):
            conversation.evaluate_challenge(server_final)

    def test_a_broker_that_goes_on(self):
        conversation = scram()
        conversation.initial_response()
        conversation.evaluate_challenge(SERVER_FIRST)
        conversation.evaluate_challenge(SERVER_FINAL)
        with pytest.raises(AuthenticationError, match="goes on with SASL SCRAM-SHA-256"):
            conversation.evaluate_challenge(SERVER_FINAL)


class TestOAuthBearer:
    def test_a_token(self):
        conversation = OAuthBearerSaslClient(Secret("aa.bb.cc"), {})
        assert conversation.mechanism == "OAUTHBEARER"
        assert conversation.initial_response() == b"n,,\x01auth=Bearer aa.bb.cc\x01\x01"
        assert conversation.evaluate_challenge(b"") is None

    def test_a_token_with_extensions(self):
        extensions = extensions_of(
            {
                "clientId": "a",
                "extension_logicalCluster": "lkc-1",
                "extension_identityPoolId": "p 2",
            }
        )
        conversation = OAuthBearerSaslClient(Secret("aa.bb.cc"), extensions)
        assert conversation.initial_response() == (
            b"n,,\x01auth=Bearer aa.bb.cc\x01logicalCluster=lkc-1\x01identityPoolId=p 2\x01\x01"
        )

    def test_a_refusal_is_answered_and_then_told(self):
        conversation = OAuthBearerSaslClient(Secret("aa.bb.cc"), {})
        conversation.initial_response()
        assert conversation.evaluate_challenge(b'{"status":"invalid_token"}') == b"\x01"
        with pytest.raises(
            AuthenticationError, match='refuses the token: {"status":"invalid_token"}'
        ):
            conversation.evaluate_challenge(b"")

    def test_a_broker_that_goes_on(self):
        conversation = OAuthBearerSaslClient(Secret("aa.bb.cc"), {})
        conversation.initial_response()
        conversation.evaluate_challenge(b"")
        with pytest.raises(AuthenticationError, match="goes on with SASL OAUTHBEARER"):
            conversation.evaluate_challenge(b"")

    @pytest.mark.parametrize(
        "token", ["", "S3CRET token", "S3CRET\n", "S3CRET\x01auth=Bearer x", "ä"]
    )
    def test_what_is_no_token_is_not_sent(self, token):
        with pytest.raises(AuthenticationError, match="cannot be sent") as raised:
            OAuthBearerSaslClient(Secret(token), {})
        assert "S3CRET" not in str(raised.value)

    @pytest.mark.parametrize(
        "options",
        [
            {"extension_auth": "S3CRET"},
            {"extension_": "S3CRET"},
            {"extension_a1": "S3CRET"},
            {"extension_a": ""},
            {"extension_a": "S3CRET\x01b=c"},
            {"extension_a": "S3CRETé"},
        ],
    )
    def test_wrong_extensions(self, options):
        with pytest.raises(ConfigError) as raised:
            extensions_of(options)
        assert "S3CRET" not in str(raised.value)


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
