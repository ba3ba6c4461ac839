"""Signed assertions: their bytes, their keys, and issuers that verify them."""

import base64
import json

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)

from spark_kafka_sink.base.errors import AuthenticationError, ConfigError
from spark_kafka_sink.base.secret import Secret
from spark_kafka_sink.config.security_config import AssertionConfig, OAuthConfig, SaslConfig
from spark_kafka_sink.security.login import check, new_login
from spark_kafka_sink.security.oauth_assertion import assertion
from tests.security.issuer import Issuer
from tests.security.jwt import claims_of, is_signed_by, new_key

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


def sasl(issuer, retriever, assertion, **oauth):
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
        config = sasl(issuer, JWT_BEARER, self.signed(issuer, key_file, rsa_key), scope="a b")
        assert self.subject(config) == "alice"
        form = issuer.requests[0].form
        assert form["grant_type"] == "urn:ietf:params:oauth:grant-type:jwt-bearer"
        assert form["scope"] == "a b"
        assert "authorization" not in issuer.requests[0].headers

    @pytest.mark.parametrize("client_id", [None, "app"])
    def test_client_credentials(self, issuer, key_file, rsa_key, client_id):
        config = sasl(
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
        config = sasl(issuer, JWT_BEARER, self.signed(issuer, key_file, rsa_key))
        key_file.write_text(pem(new_key("RS256")))
        with pytest.raises(AuthenticationError, match="not signed by its issuer"):
            self.subject(config)

    def test_without_a_key(self, issuer):
        with pytest.raises(ConfigError, match=r"assertion\.private\.key\.file or"):
            check(sasl(issuer, JWT_BEARER, AssertionConfig()))
