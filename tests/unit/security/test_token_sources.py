"""Which source of a token wins, what a token must hold, tokens of files and of users' own code."""

import base64
import json
import logging
import time
from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_sink.base.errors import (
    AuthenticationError,
    ConfigError,
    CredentialsUnavailableError,
)
from spark_kafka_sink.base.secret import Secret
from spark_kafka_sink.config.security_config import AssertionConfig, OAuthConfig, SaslConfig
from spark_kafka_sink.security.login import check, new_login
from spark_kafka_sink.security.oauth import OPTION, provided_token, sends_in_clear
from spark_kafka_sink.security.oauth_assertion import assertion
from spark_kafka_sink.security.oauth_endpoint import (
    TokenSource,
    overridden_options,
    token_source_of,
)
from spark_kafka_sink.security.oauth_tokens import ClaimNames, token_of_jwt
from tests.security.issuer import Issuer
from tests.security.jwt import claims_of, is_signed_by, new_key
from tests.unit.security.token_logins import MODULE, jwt, login_for

URL = "https://issuer.example/token"
NAMES = ClaimNames()


def jwt_of(claims):
    payload = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"e30.{payload}.S1GNATURE"


def oauth_config(jaas=None, **oauth):
    return SaslConfig(
        "OAUTHBEARER",
        jaas_config=None if jaas is None else Secret(f"{MODULE} required {jaas};"),
        oauth=OAuthConfig(**oauth),
    )


CLIENT = {"client_id": "app", "client_secret": Secret("S3CRET")}
CREDENTIALS = "ClientCredentialsJwtRetriever"
OF_PLAIN = Secret("org.apache.kafka.common.security.plain.PlainLoginModule required;")


def with_url(jaas=None, **oauth):
    return oauth_config(jaas, **{"token_endpoint_url": URL, **oauth})


class TestWhichWins:
    @pytest.mark.parametrize(
        ("oauth", "source"),
        [
            ({}, TokenSource.SECRET),
            ({"token_endpoint_url": "file:/a"}, TokenSource.FILE),
            ({"token_endpoint_url": " FILE:///a"}, TokenSource.FILE),
            ({"retriever": "FileJwtRetriever"}, TokenSource.FILE),
            ({"retriever": "JwtBearerJwtRetriever"}, TokenSource.JWT_BEARER),
            ({"retriever": "ClientCredentialsJwtRetriever"}, TokenSource.SECRET),
            ({"assertion": AssertionConfig(claim_iss="a")}, TokenSource.CLIENT_ASSERTION),
            ({"assertion": AssertionConfig(file="/a")}, TokenSource.CLIENT_ASSERTION),
            ({"token_provider": "a:b"}, TokenSource.PROVIDER),
        ],
    )
    def test_way(self, oauth, source):
        assert token_source_of(OAuthConfig(**{"token_endpoint_url": URL, **oauth})) is source

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
            with_url(**CLIENT),
            with_url('clientId="a" clientSecret="b"'),
            with_url('clientSecret="${env:X}"', client_id="a"),
            with_url(token_endpoint_url="file:/a/b"),
            with_url(token_endpoint_url="${env:URL}"),
            oauth_config(token_provider="a:b"),
            oauth_config('extension_a="${env:A}"', token_provider="a:b"),
            with_url('unsecuredLoginStringClaim_sub="a"', **CLIENT),
            replace(with_url(), jaas_config=Secret("${env:JAAS}")),
        ],
    )
    def test_what_is_complete(self, config):
        check(config)

    @pytest.mark.parametrize(
        ("config", "message"),
        [
            (oauth_config(), "Set kafka.sasl.oauthbearer.token.endpoint"),
            (oauth_config('unsecuredLoginStringClaim_sub="S3CRET"'), "unsecured tokens (unsecured"),
            (with_url(), "client.credentials.client.id (or clientId"),
            (with_url('clientId="a"'), "client.credentials.client.secret (or clientSecret"),
            (with_url(token_endpoint_url="file:/a", retriever=CREDENTIALS), "is a file:, but"),
            (with_url(retriever="FileJwtRetriever"), "begin with file: for FileJwtRetriever"),
            (with_url(token_endpoint_url="file:"), "names no file"),
            (with_url(token_endpoint_url="file://[a"), "names no file"),
            (with_url('extension_auth="S3CRET"', **CLIENT), "begins with 'extension_'"),
            (with_url('ssl.truststore.type="XYZ"', **CLIENT), "for the token endpoint"),
            (replace(with_url(), jaas_config=OF_PLAIN), "PlainLoginModule is that of PLAIN, but"),
        ],
    )
    def test_what_is_missing_or_contradicts(self, config, message):
        with pytest.raises(ConfigError) as raised:
            check(config)
        assert message in str(raised.value)
        assert "S3CRET" not in str(raised.value)


class TestToken:
    def test_what_is_read_of_it(self):
        text = jwt_of(
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
        text = jwt_of({"email": "a@b", "exp": 5, "scp": "x"})
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
            token_of_jwt(jwt_of(claims), NAMES, "the file /a")
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
            jwt_of,
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


class TestFile:
    def test_a_token_of_a_file(self, tmp_path):
        path = tmp_path / "token.jwt"
        path.write_text(jwt_of({"sub": "a", "exp": time.time() + 300}) + "\n")
        login = login_for(oauth_config("extension_x=y", token_endpoint_url=f"file://{path}"))
        login.login(1_000)
        assert (
            login.create_sasl_client("b")
            .initial_response()
            .decode()
            .endswith("S1GNATURE\x01x=y\x01\x01")
        )
        login.close()

    def test_a_file_that_is_not_there(self, tmp_path):
        login = login_for(oauth_config(token_endpoint_url=f"file:{tmp_path}/no"))
        with pytest.raises(AuthenticationError, match=r"token\.endpoint\.url=file:.*/no") as raised:
            login.login(1_000)
        assert not isinstance(raised.value, CredentialsUnavailableError)

    def test_a_file_that_nobody_renews(self, tmp_path):
        path = tmp_path / "token.jwt"
        path.write_text(jwt_of({"sub": "a", "exp": 5}))
        login = login_for(oauth_config(token_endpoint_url=f"file:{path}"))
        with pytest.raises(CredentialsUnavailableError, match="who renews the file"):
            login.login(1_000)


EXPIRY = time.time() + 86_400
"""Later than the last test, however slow the machine is."""


def gives_jwt():
    return jwt_of({"sub": "a", "exp": EXPIRY})


def returning(value):
    return lambda: value


gives_opaque = returning(("0paque", EXPIRY))
gives_nothing = returning(None)
gives_number = returning(5)
gives_duration = returning(("S3CRET", 900))
gives_milliseconds = returning(("S3CRET", 1_700_000_000_000))
gives_text_as_time = returning(("S3CRET", "S3CRET"))


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
        login = login_for(oauth_config(token_provider=name))
        with pytest.raises(AuthenticationError, match="cannot be loaded"):
            login.login(1_000)

    def test_it_wins_over_all_else(self, caplog):
        caplog.set_level(logging.WARNING)
        login = login_for(
            oauth_config(
                token_endpoint_url=URL, token_provider=f"{__name__}:gives_opaque", **CLIENT
            )
        )
        login.login(1_000)
        assert (
            login.create_sasl_client("b").initial_response() == b"n,,\x01auth=Bearer 0paque\x01\x01"
        )
        login.close()
        assert "token.provider wins over kafka.sasl.oauthbearer.token.endpoint.url" in caplog.text


def test_with_a_token_other_references_are_not_read_again(tmp_path):
    path, secret = tmp_path / "token.jwt", tmp_path / "secret"
    path.write_text(jwt(exp=time.time() + 300))
    secret.write_text("S3CRET")
    jaas = f'clientSecret="${{dir:{tmp_path}:secret}}" extension_x="${{env:TEST_EXTENSION}}"'
    config = SaslConfig(
        "OAUTHBEARER",
        jaas_config=Secret(f"{MODULE} required {jaas};"),
        oauth=OAuthConfig(token_endpoint_url=f"file://{path}"),
    )
    login = login_for(config)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TEST_EXTENSION", "y")
        login.login(1_000)
        secret.unlink()
        assert (
            login.create_sasl_client("b")
            .initial_response()
            .decode()
            .endswith("S1GNATURE\x01x=y\x01\x01")
        )
    with pytest.raises(AuthenticationError, match="TEST_EXTENSION"):
        login.create_sasl_client("b")
    login.close()


def test_extensions_of_a_jaas_text_that_is_one_reference(tmp_path, monkeypatch):
    path = tmp_path / "token.jwt"
    path.write_text(jwt(exp=time.time() + 300))
    config = SaslConfig(
        "OAUTHBEARER",
        jaas_config=Secret("${env:TEST_JAAS}"),
        oauth=OAuthConfig(token_endpoint_url=f"file://{path}"),
    )
    monkeypatch.setenv("TEST_JAAS", f"{MODULE} required extension_x=y;")
    login = login_for(config)
    login.login(1_000)
    assert (
        login.create_sasl_client("b")
        .initial_response()
        .decode()
        .endswith("S1GNATURE\x01x=y\x01\x01")
    )
    login.close()


NOW_MS = 1_700_000_000_123
JWT_BEARER = "JwtBearerJwtRetriever"


def pem(key, password=None, form=PrivateFormat.PKCS8):
    encryption = NoEncryption() if password is None else BestAvailableEncryption(password.encode())
    return key.private_bytes(Encoding.PEM, form, encryption).decode()


@pytest.fixture(scope="module")
def rsa_key():
    return new_key("RS256")


@pytest.fixture
def key_file(rsa_key, tmp_path):
    path = tmp_path / "key.pem"
    path.write_text(pem(rsa_key))
    return path


def header_of(text):
    part = text.split(".")[0]
    return json.loads(base64.urlsafe_b64decode(part + "=="))


class TestSigned:
    def test_claims_of_the_options(self, rsa_key, key_file):
        config = AssertionConfig(
            claim_aud="aud-1", claim_iss="iss-1", claim_sub="sub-1", private_key_file=str(key_file)
        )
        text = assertion(config, NOW_MS).reveal()
        assert is_signed_by(text, rsa_key.public_key())
        assert header_of(text) == {"alg": "RS256", "typ": "JWT"}
        assert claims_of(text) == {
            **{"aud": "aud-1", "iss": "iss-1", "sub": "sub-1"},
            **{"iat": 1_700_000_000, "exp": 1_700_000_300, "nbf": 1_699_999_940},
        }

    def test_seconds_and_ids(self, key_file):
        config = AssertionConfig(
            claim_exp_seconds=10,
            claim_nbf_seconds=0,
            claim_jti_include=True,
            private_key_file=str(key_file),
        )
        first, second = (claims_of(assertion(config, NOW_MS).reveal()) for _ in range(2))
        assert first["exp"] == 1_700_000_010
        assert first["nbf"] == 1_700_000_000
        assert len(first["jti"]) == 36
        assert first["jti"] != second["jti"]

    def test_es256_is_signed_as_the_rfc_has_it(self, tmp_path):
        key = new_key("ES256")
        path = tmp_path / "key.pem"
        path.write_text(pem(key))
        config = AssertionConfig(algorithm="ES256", private_key_file=str(path))
        text = assertion(config, NOW_MS).reveal()
        assert is_signed_by(text, key.public_key())
        assert header_of(text)["alg"] == "ES256"

    def test_the_template_wins_over_options_and_not_over_time(self, key_file, tmp_path):
        template = tmp_path / "template.json"
        template.write_text(
            json.dumps(
                {
                    "header": {"kid": "k-1", "alg": "none"},
                    "payload": {"iss": "of the file", "exp": 5, "more": ["a", 1, None, "ü"]},
                }
            )
        )
        config = AssertionConfig(
            claim_iss="of the options",
            private_key_file=str(key_file),
            template_file=str(template),
        )
        text = assertion(config, NOW_MS).reveal()
        assert header_of(text) == {"kid": "k-1", "alg": "RS256", "typ": "JWT"}
        claims = claims_of(text)
        assert claims["iss"] == "of the file"
        assert claims["exp"] == 1_700_000_300
        assert claims["more"] == ["a", 1, None, "ü"]
        template.write_text("{}")
        assert claims_of(assertion(config, NOW_MS).reveal())["iss"] == "of the options"

    def test_a_ready_assertion(self, tmp_path):
        path = tmp_path / "assertion.jwt"
        config = AssertionConfig(claim_iss="ignored", file=str(path))
        for text in ("aa.bb.cc", "dd.ee.ff"):
            path.write_text(f"{text}\n")
            assert assertion(config, NOW_MS).reveal() == text


class TestKeys:
    @pytest.mark.parametrize("form", [PrivateFormat.PKCS8, PrivateFormat.TraditionalOpenSSL])
    @pytest.mark.parametrize("password", [None, "S3CRET ü"])
    def test_formats(self, rsa_key, tmp_path, form, password):
        path = tmp_path / "key.pem"
        path.write_text("a comment\n" + pem(rsa_key, password, form))
        passphrase = None if password is None else Secret(password)
        config = AssertionConfig(private_key_file=str(path), private_key_passphrase=passphrase)
        assert is_signed_by(assertion(config, NOW_MS).reveal(), rsa_key.public_key())

    def test_base64_alone_as_java_takes_it(self, rsa_key, tmp_path):
        path = tmp_path / "key.b64"
        path.write_text("".join(pem(rsa_key).splitlines()[1:-1]))
        config = AssertionConfig(private_key_file=str(path))
        assert is_signed_by(assertion(config, NOW_MS).reveal(), rsa_key.public_key())

    def test_a_key_that_is_replaced_is_used(self, key_file):
        config = AssertionConfig(private_key_file=str(key_file))
        assertion(config, NOW_MS)
        key = new_key("RS256")
        key_file.write_text(pem(key))
        assert is_signed_by(assertion(config, NOW_MS).reveal(), key.public_key())

    @pytest.mark.parametrize(
        ("text", "changes", "message"),
        [
            ("", {}, "must hold text in UTF-8"),
            ("S3CRET", {}, "must be a private key in PEM"),
            (
                "-----BEGIN PRIVATE KEY-----\nS3CRET\n-----END PRIVATE KEY-----",
                {},
                "is not base64",
            ),
            ("rsa", {"private_key_passphrase": Secret("S3CRET")}, "is not encrypted, but"),
            ("encrypted", {}, "is encrypted, and"),
            ("encrypted", {"private_key_passphrase": Secret("S3CRET")}, "its password"),
            ("rsa", {"algorithm": "ES256"}, "ES256 needs an EC key on P-256"),
            ("p256", {}, "RS256 needs an RSA key"),
            ("p384", {"algorithm": "ES256"}, "the curve secp384r1, but ES256 needs P-256"),
            ("ed25519", {}, "RS256 needs an RSA key"),
        ],
    )
    def test_keys_that_do_not_fit(self, rsa_key, tmp_path, text, changes, message):
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        texts = {
            "rsa": lambda: pem(rsa_key),
            "encrypted": lambda: pem(rsa_key, "other"),
            "p256": lambda: pem(new_key("ES256")),
            "p384": lambda: pem(ec.generate_private_key(ec.SECP384R1())),
            "ed25519": lambda: pem(Ed25519PrivateKey.generate()),
        }
        path = tmp_path / "key.pem"
        path.write_text(texts.get(text, lambda: text)())
        config = AssertionConfig(private_key_file=str(path), **changes)
        with pytest.raises(AuthenticationError) as raised:
            assertion(config, NOW_MS)
        assert message in str(raised.value)
        assert "kafka.sasl.oauthbearer.assertion." in str(raised.value)
        assert "S3CRET" not in str(raised.value)
        assert raised.value.__cause__ is None

    def test_files_that_are_not_there(self, key_file):
        for config, option in (
            (AssertionConfig(private_key_file="/no/such"), "assertion.private.key.file=/no/such"),
            (AssertionConfig(file="/no/such"), "assertion.file=/no/such"),
            (
                AssertionConfig(private_key_file=str(key_file), template_file="/no/such"),
                "assertion.template.file=/no/such",
            ),
        ):
            with pytest.raises(AuthenticationError, match=option):
                assertion(config, NOW_MS)

    @pytest.mark.parametrize("text", ["S3CRET", "[]", '{"header": "S3CRET"}', '{"payload": []}'])
    def test_templates_that_are_none(self, key_file, tmp_path, text):
        template = tmp_path / "template.json"
        template.write_text(text)
        config = AssertionConfig(private_key_file=str(key_file), template_file=str(template))
        with pytest.raises(AuthenticationError, match=r"assertion\.template\.file") as raised:
            assertion(config, NOW_MS)
        assert "S3CRET" not in str(raised.value)


@pytest.fixture
def issuer():
    with Issuer({}) as running:
        yield running


def asserting(issuer, retriever, assertion, **oauth):
    return SaslConfig(
        "OAUTHBEARER",
        oauth=OAuthConfig(
            token_endpoint_url=issuer.token_url,
            retriever=retriever,
            assertion=assertion,
            **oauth,
        ),
    )


class TestGrants:
    """An issuer that verifies the signature gives a token."""

    def signed(self, issuer, key_file, rsa_key):
        issuer.assertion_keys["app"] = rsa_key.public_key()
        return AssertionConfig(
            claim_iss="app",
            claim_sub="alice",
            claim_aud=issuer.token_url,
            private_key_file=str(key_file),
        )

    def subject(self, config):
        check(config)
        login = new_login(config)
        login.login(120_000)
        first = login.create_sasl_client("broker-1").initial_response().decode()
        login.close()
        return claims_of(first.split("Bearer ")[1].split("\x01")[0])["sub"]

    def test_jwt_bearer(self, issuer, key_file, rsa_key):
        config = asserting(issuer, JWT_BEARER, self.signed(issuer, key_file, rsa_key), scope="a b")
        assert self.subject(config) == "alice"
        form = issuer.requests[0].form
        assert form["grant_type"] == "urn:ietf:params:oauth:grant-type:jwt-bearer"
        assert form["scope"] == "a b"
        assert "authorization" not in issuer.requests[0].headers

    @pytest.mark.parametrize("client_id", [None, "app"])
    def test_client_credentials(self, issuer, key_file, rsa_key, client_id):
        config = asserting(
            issuer,
            "DefaultJwtRetriever",
            self.signed(issuer, key_file, rsa_key),
            client_id=client_id,
        )
        assert self.subject(config) == "alice"
        form = issuer.requests[0].form
        assert form["grant_type"] == "client_credentials"
        assert form.get("client_id") == client_id
        assert "authorization" not in issuer.requests[0].headers

    def test_a_key_that_the_issuer_does_not_know(self, issuer, key_file, rsa_key):
        config = asserting(issuer, JWT_BEARER, self.signed(issuer, key_file, rsa_key))
        key_file.write_text(pem(new_key("RS256")))
        with pytest.raises(AuthenticationError, match="not signed by its issuer"):
            self.subject(config)

    def test_without_a_key(self, issuer):
        with pytest.raises(ConfigError, match=r"assertion\.private\.key\.file or"):
            check(asserting(issuer, JWT_BEARER, AssertionConfig()))
