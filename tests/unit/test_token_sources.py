"""Which source of a token wins, what a token must hold, tokens of files and of users' own code."""

import base64
import json
import logging
import random
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_sink.base.clock import SystemClock
from spark_kafka_sink.base.errors import (
    AuthenticationError,
    ConfigError,
    CredentialsUnavailableError,
)
from spark_kafka_sink.base.secret import Secret
from spark_kafka_sink.config.security_config import AssertionConfig, OAuthConfig, SaslConfig
from spark_kafka_sink.security.login import check
from spark_kafka_sink.security.oauth import OPTION, TokenLogin, provided_token, sends_in_clear
from spark_kafka_sink.security.oauth_endpoint import (
    TokenSource,
    overridden_options,
    token_source_of,
)
from spark_kafka_sink.security.oauth_tokens import ClaimNames, RetryTimer, token_of_jwt

MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
URL = "https://issuer.example/token"
NAMES = ClaimNames()


def jwt(claims):
    payload = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"e30.{payload}.S1GNATURE"


def sasl(jaas=None, **oauth):
    return SaslConfig(
        "OAUTHBEARER",
        jaas_config=None if jaas is None else Secret(f"{MODULE} required {jaas};"),
        oauth=OAuthConfig(**oauth),
    )


CLIENT = {"client_id": "app", "client_secret": Secret("S3CRET")}


class TestWhichWins:
    @pytest.mark.parametrize(
        ("oauth", "source"),
        [
            (OAuthConfig(token_endpoint_url=URL), TokenSource.SECRET),
            (OAuthConfig(token_endpoint_url="file:/a"), TokenSource.FILE),
            (OAuthConfig(token_endpoint_url=" FILE:///a"), TokenSource.FILE),
            (OAuthConfig(token_endpoint_url=URL, retriever="FileJwtRetriever"), TokenSource.FILE),
            (
                OAuthConfig(token_endpoint_url=URL, retriever="JwtBearerJwtRetriever"),
                TokenSource.JWT_BEARER,
            ),
            (
                OAuthConfig(token_endpoint_url=URL, retriever="ClientCredentialsJwtRetriever"),
                TokenSource.SECRET,
            ),
            (
                OAuthConfig(token_endpoint_url=URL, assertion=AssertionConfig(claim_iss="a")),
                TokenSource.CLIENT_ASSERTION,
            ),
            (
                OAuthConfig(token_endpoint_url=URL, assertion=AssertionConfig(file="/a")),
                TokenSource.CLIENT_ASSERTION,
            ),
            (OAuthConfig(token_endpoint_url=URL, token_provider="a:b"), TokenSource.PROVIDER),
        ],
    )
    def test_way(self, oauth, source):
        assert token_source_of(oauth) is source

    def test_the_losers_are_told(self):
        oauth = OAuthConfig(
            token_endpoint_url=URL,
            client_id="a",
            client_secret=Secret("S3CRET"),
            assertion=AssertionConfig(file="/a", claim_iss="b"),
        )
        told = overridden_options(oauth, {"clientId": "x", "clientSecret": "S3CRET"})
        assert [sentence.split(" ", 1)[1].split(",")[0] for sentence in told] == [
            "wins over clientId in kafka.sasl.jaas.config",
            "wins over clientSecret in kafka.sasl.jaas.config",
            "wins over kafka.sasl.oauthbearer.assertion.claim.iss and the other options of assertions",
            "signed assertion takes the place of the client's secret",
        ]
        assert "S3CRET" not in str(told)
        provider = OAuthConfig(token_endpoint_url=URL, token_provider="a:b")
        assert "token.provider wins over" in overridden_options(provider, {})[0]
        assert overridden_options(OAuthConfig(token_endpoint_url=URL), {"clientId": "a"}) == []


@pytest.mark.parametrize(
    ("oauth", "expected"),
    [
        (OAuthConfig(token_endpoint_url="http://issuer.example/token"), True),
        (OAuthConfig(token_endpoint_url=URL), False),
        (OAuthConfig(token_endpoint_url="http://127.0.0.1:8080/token"), False),
        (OAuthConfig(token_endpoint_url="file:/a"), False),
        (OAuthConfig(token_endpoint_url="http://issuer.example", token_provider="a:b"), False),
    ],
)
def test_credentials_without_tls_deserve_a_warning(oauth, expected):
    assert sends_in_clear(oauth) is expected


class TestCheck:
    @pytest.mark.parametrize(
        "config",
        [
            sasl(token_endpoint_url=URL, **CLIENT),
            sasl('clientId="a" clientSecret="b"', token_endpoint_url=URL),
            sasl('clientSecret="${env:X}"', token_endpoint_url=URL, client_id="a"),
            sasl(token_endpoint_url="file:/a/b"),
            sasl(token_endpoint_url="${env:URL}"),
            sasl(token_provider="a:b"),
            sasl('extension_a="${env:A}"', token_provider="a:b"),
            sasl('unsecuredLoginStringClaim_sub="a"', token_endpoint_url=URL, **CLIENT),
            SaslConfig(
                "OAUTHBEARER",
                jaas_config=Secret("${env:JAAS}"),
                oauth=OAuthConfig(token_endpoint_url=URL),
            ),
        ],
    )
    def test_what_is_complete(self, config):
        check(config)

    @pytest.mark.parametrize(
        ("config", "message"),
        [
            (
                sasl(),
                "there is nothing that gives a token. Set kafka.sasl.oauthbearer.token.endpoint",
            ),
            (
                sasl('unsecuredLoginStringClaim_sub="S3CRET"'),
                "unsecured tokens (unsecuredLoginStringClaim_… in kafka.sasl.jaas.config) prove nothing",
            ),
            (sasl(token_endpoint_url=URL), "client.credentials.client.id (or clientId"),
            (
                sasl('clientId="a"', token_endpoint_url=URL),
                "client.credentials.client.secret (or clientSecret",
            ),
            (
                sasl(token_endpoint_url="file:/a", retriever="ClientCredentialsJwtRetriever"),
                "is a file:, but",
            ),
            (
                sasl(token_endpoint_url=URL, retriever="FileJwtRetriever"),
                "must begin with file: for FileJwtRetriever",
            ),
            (sasl(token_endpoint_url="file:"), "names no file"),
            (sasl(token_endpoint_url="file://[a"), "names no file"),
            (
                sasl('extension_auth="S3CRET"', token_endpoint_url=URL, **CLIENT),
                "begins with 'extension_'",
            ),
            (
                sasl('ssl.truststore.type="XYZ"', token_endpoint_url=URL, **CLIENT),
                "for the token endpoint",
            ),
            (
                SaslConfig(
                    "OAUTHBEARER",
                    jaas_config=Secret(
                        "org.apache.kafka.common.security.plain.PlainLoginModule required;"
                    ),
                    oauth=OAuthConfig(token_endpoint_url=URL),
                ),
                "PlainLoginModule is that of PLAIN, but kafka.sasl.mechanism is OAUTHBEARER",
            ),
        ],
    )
    def test_what_is_missing_or_contradicts(self, config, message):
        with pytest.raises(ConfigError) as raised:
            check(config)
        assert message in str(raised.value)
        assert "S3CRET" not in str(raised.value)


class TestToken:
    def test_what_is_read_of_it(self):
        text = jwt(
            {"sub": "app", "exp": 1_700_000_300, "iat": 1_700_000_000.5, "scope": ["a", "b"]}
        )
        token = token_of_jwt(f" {text}\n", NAMES, "a file")
        assert token.value.reveal() == text
        assert token.issued_at_ms == 1_700_000_000_500
        assert token.expires_at_ms == 1_700_000_300_000
        assert token.is_valid(1_700_000_299_999)
        assert not token.is_valid(1_700_000_300_000)
        assert "S1GNATURE" not in repr(token)

    def test_other_names_of_claims(self):
        text = jwt({"email": "a@b", "exp": 5, "scp": "x"})
        assert token_of_jwt(text, ClaimNames("scp", "email"), "a file").expires_at_ms == 5_000

    @pytest.mark.parametrize(
        ("claims", "message"),
        [
            ({"sub": "S3CRET"}, "has no claim 'exp'"),
            ({"exp": None, "sub": "S3CRET"}, "has no claim 'exp'"),
            ({"exp": "S3CRET", "sub": "a"}, "claim 'exp' that is not a number"),
            ({"exp": True, "sub": "a"}, "claim 'exp' that is not a number"),
            ({"exp": -1, "sub": "a"}, "claim 'exp' that is not a number"),
            ({"exp": 10**400, "sub": "a"}, "claim 'exp' that is not a number"),
            ({"exp": 10**30, "sub": "a"}, "claim 'exp' that is not a number"),
            ({"exp": float("nan"), "sub": "a"}, "claim 'exp' that is not a number"),
            ({"exp": 5}, "has no text in claim 'sub'"),
            ({"exp": 5, "sub": " "}, "has no text in claim 'sub'"),
            ({"exp": 5, "sub": 7}, "has no text in claim 'sub'"),
            ({"exp": 5, "sub": "a", "iat": "S3CRET"}, "claim 'iat' that is not a number"),
            ({"exp": 5, "sub": "a", "scope": ["x", "x"]}, "repeated scope"),
            ({"exp": 5, "sub": "a", "scope": [""]}, "empty or repeated scope"),
            ({"exp": 5, "sub": "a", "scope": " "}, "empty or repeated scope"),
            ({"exp": 5, "sub": "a", "scope": [None]}, "empty or repeated scope"),
            (["S3CRET"], "claims are not a JSON object"),
        ],
    )
    def test_claims_that_java_refuses_too(self, claims, message):
        with pytest.raises(AuthenticationError) as raised:
            token_of_jwt(jwt(claims), NAMES, "the file /a")
        assert message in str(raised.value)
        assert str(raised.value).startswith("the token of the file /a ")
        assert "S3CRET" not in str(raised.value)

    @pytest.mark.parametrize(
        "text", ["", "S3CRET", "a.S3CRET", "a.b.c.S3CRET", "a..c", "S3CRET.é.c"]
    )
    def test_opaque_tokens_need_a_token_provider(self, text):
        with pytest.raises(AuthenticationError) as raised:
            token_of_jwt(text, NAMES, "the file /a")
        assert "S3CRET" not in str(raised.value)
        assert "is not a JWT" in str(raised.value)

    @given(
        st.text()
        | st.text(alphabet="abcdeyJ.-_=")
        | st.builds(
            jwt,
            st.recursive(
                st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
                lambda inner: st.dictionaries(
                    st.sampled_from(["exp", "sub", "iat", "scope"]), inner
                ),
            ),
        )
    )
    def test_anything_is_a_token_or_refused(self, text):
        try:
            token_of_jwt(text, NAMES, "a file")
        except AuthenticationError:
            pass


def login_for(config):
    waiting = RetryTimer(SystemClock(), lambda _: None)
    return TokenLogin(config, waiting, random.Random(1), lambda: None)


class TestFile:
    def test_a_token_of_a_file(self, tmp_path):
        path = tmp_path / "token.jwt"
        path.write_text(jwt({"sub": "a", "exp": time.time() + 300}) + "\n")
        login = login_for(sasl("extension_x=y", token_endpoint_url=f"file://{path}"))
        login.login(1_000)
        assert (
            login.create_sasl_client("b")
            .initial_response()
            .decode()
            .endswith("S1GNATURE\x01x=y\x01\x01")
        )
        login.close()

    def test_a_file_that_is_not_there(self, tmp_path):
        login = login_for(sasl(token_endpoint_url=f"file:{tmp_path}/no"))
        with pytest.raises(AuthenticationError, match=r"token\.endpoint\.url=file:.*/no") as raised:
            login.login(1_000)
        assert not isinstance(raised.value, CredentialsUnavailableError)

    def test_a_file_that_nobody_renews(self, tmp_path):
        path = tmp_path / "token.jwt"
        path.write_text(jwt({"sub": "a", "exp": 5}))
        login = login_for(sasl(token_endpoint_url=f"file:{path}"))
        with pytest.raises(CredentialsUnavailableError, match="who renews the file"):
            login.login(1_000)


EXPIRY = time.time() + 86_400
"""Later than the last test, however slow the machine is."""


def gives_jwt():
    return jwt({"sub": "a", "exp": EXPIRY})


def gives_opaque():
    return "0paque", EXPIRY


def gives_nothing(): ...


def gives_number():
    return 5


def gives_duration():
    return "S3CRET", 900


def gives_milliseconds():
    return "S3CRET", 1_700_000_000_000


def gives_text_as_time():
    return "S3CRET", "S3CRET"


def raises():
    raise RuntimeError("my own words")


class TestProvider:
    """The user's own code."""

    def test_a_jwt(self):
        token = provided_token(f"{__name__}:gives_jwt", NAMES)
        assert token.expires_at_ms == int(EXPIRY * 1000)

    def test_any_token_with_the_time_at_which_it_expires(self):
        token = provided_token(f"{__name__}:gives_opaque", NAMES)
        assert token.value.reveal() == "0paque"
        assert token.expires_at_ms == int(EXPIRY * 1000)

    @pytest.mark.parametrize(
        ("name", "message"),
        [
            ("gives_nothing", "returned nothing: it must return a token as text"),
            ("gives_number", "returned a value of type int"),
            ("gives_duration", "900 looks like a duration: add time.time() to it"),
            ("gives_milliseconds", "looks like a number of milliseconds: divide it by 1000"),
            ("gives_text_as_time", "is a value of type str, not a number of seconds"),
        ],
    )
    def test_what_is_no_token(self, name, message):
        with pytest.raises(AuthenticationError) as raised:
            provided_token(f"{__name__}:{name}", NAMES)
        assert message in str(raised.value)
        assert f"{OPTION} {__name__}:{name}" in str(raised.value)
        assert "S3CRET" not in str(raised.value)

    def test_what_it_raises_may_be_tried_again(self):
        with pytest.raises(CredentialsUnavailableError, match="my own words") as raised:
            provided_token(f"{__name__}:raises", NAMES)
        assert isinstance(raised.value.__cause__, RuntimeError)

    @pytest.mark.parametrize("name", ["no_module_at_all:x", f"{__name__}:nothing"])
    def test_what_cannot_be_loaded(self, name):
        login = login_for(sasl(token_provider=name))
        with pytest.raises(AuthenticationError, match="cannot be loaded"):
            login.login(1_000)

    def test_it_wins_over_all_else(self, caplog):
        caplog.set_level(logging.WARNING)
        login = login_for(
            sasl(token_endpoint_url=URL, token_provider=f"{__name__}:gives_opaque", **CLIENT)
        )
        login.login(1_000)
        assert (
            login.create_sasl_client("b").initial_response() == b"n,,\x01auth=Bearer 0paque\x01\x01"
        )
        login.close()
        assert "token.provider wins over kafka.sasl.oauthbearer.token.endpoint.url" in caplog.text
