"""Tokens from an HTTP endpoint that listens: requests, answers, retries and assertions."""

import base64
import json
import logging
import threading
import time
from dataclasses import replace
from urllib.parse import quote

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)

from spark_kafka_sink.base.errors import (
    AuthenticationError,
    ConfigError,
    CredentialsUnavailableError,
    sentence,
)
from spark_kafka_sink.base.text import Secret
from spark_kafka_sink.config.security_config import (
    AssertionConfig,
    LoginConfig,
    OAuthConfig,
    SaslConfig,
)
from spark_kafka_sink.localkafka.certificates import Authority
from spark_kafka_sink.security.oauth_tokens import assertion
from spark_kafka_sink.security.security import check, new_login
from tests.patience import AN_HOUR_MS, PATIENCE_S
from tests.security.issuer import Issuer, RefusalError
from tests.security.jwt import claims_of, is_signed_by, new_key
from tests.tables import each_row
from tests.unit.security.token_endpoints import (
    HOST,
    SECRET,
    Pauses,
    Scripted,
    basic,
    config_for,
    http_proxy,
    jwt,
    refused,
    scripted,
    token_answer,
    token_from,
)
from tests.unit.test_redaction import ENCODERS

pytestmark = pytest.mark.usefixtures("no_proxy")
ASKED_ONCE = LoginConfig(retry_backoff_max_ms=0)


def asking_once(url):
    return replace(config_for(url), login=ASKED_ONCE)


def refusal_by(*answers, config=config_for):
    """The URL of an endpoint that answers so, the error, and what the endpoint was asked."""
    with scripted(*answers) as (url, received):
        error = refused(config(url))
    return url, error, received


JAAS = 'clientId="other" clientSecret="S3CRET-2" scope="other" extension_a="b"'
NOT_GIVEN = {"client_id": None, "client_secret": None}


class TestRequest:
    @pytest.mark.parametrize(
        ("jaas", "options", "user", "more"),
        [
            ("", {}, f"app:{SECRET}", ""),
            ("", {"scope": "kafka read"}, f"app:{SECRET}", "&scope=kafka+read"),
            ("", {"client_id": "a:b", "header_urlencode": True}, "a%3Ab:S3CRET%7E*%2F%2B+%C3%BC", ""),
            (JAAS, NOT_GIVEN, "other:S3CRET-2", "&scope=other"),
            (JAAS, {"scope": "mine"}, f"app:{SECRET}", "&scope=mine"),
        ],
    )  # fmt: skip
    def test_id_secret_and_scope(self, jaas, options, user, more, caplog):
        """Options win over JAAS, and that is told."""
        caplog.set_level(logging.WARNING)
        with scripted(token_answer()) as (url, received):
            token_from(config_for(url, jaas, **options))
        (request,) = received
        assert request.line == "POST /token HTTP/1.1"
        assert request.headers["authorization"] == basic(user)
        assert request.body == f"grant_type=client_credentials{more}"
        assert request.headers["content-type"] == "application/x-www-form-urlencoded"
        assert request.headers["accept"] == "application/json"
        assert request.headers["cache-control"] == "no-cache"
        told = "client.credentials.client.secret wins over clientSecret"
        assert (told in caplog.text) == (jaas != "" and options is not NOT_GIVEN)
        assert "S3CRET" not in caplog.text

    def test_path_and_query_are_kept_but_not_shown(self):
        asked = refusal_by(Scripted(400), config=lambda url: config_for(f"{url}?tenant=S3CRET"))
        assert asked[2][0].line == "POST /token?tenant=S3CRET HTTP/1.1"
        assert "/token answers 400" in str(asked[1])

    def test_references_are_resolved_for_each_request(self, tmp_path, monkeypatch):
        secret = tmp_path / "secret"
        config = config_for("${env:TEST_URL}", client_secret=Secret(f"${{dir:{tmp_path}:secret}}"))
        with scripted(Scripted(500), token_answer(), token_answer()) as (url, received):
            monkeypatch.setenv("TEST_URL", url)
            for text in ("S3CRET-old", "S3CRET-new"):
                secret.write_text(text)
                token_from(config)
        users = [request.headers["authorization"] for request in received]
        assert users == [basic(f"app:S3CRET-{which}") for which in ("old", "old", "new")]


NO_JSON = "a body that is no JSON object"
NO_TOKEN = "without access_token and id_token"


class TestAnswer:
    def test_a_real_issuer_also_one_that_is_away_for_a_moment(self, issuer, caplog):
        caplog.set_level(logging.DEBUG)
        config = config_for(issuer.token_url, 'clientSecret="S3CRET-4"')
        for refusals, expected in ((0, []), (2, [100, 200])):
            issuer.refusals = iter([RefusalError(503, "S3CRET")] * refusals)
            pauses = Pauses()
            token = token_from(config, pauses)
            assert token.count(".") == 2
            assert pauses.all == expected
            assert token not in caplog.text
        assert "S3CRET" not in caplog.text

    def test_an_access_token_else_an_id_token(self):
        first, second = jwt(jti="1"), jwt(jti="2")
        for status, fields, expected in (
            (200, {"access_token": first, "id_token": second}, first),
            (201, {"id_token": f" {second}\n"}, second),
            (200, {"access_token": "", "id_token": second}, second),
        ):
            with scripted(Scripted(status, json.dumps(fields).encode())) as (url, _):
                assert token_from(config_for(url)) == expected

    @each_row("status", [408, 429, 500, 502, 503, 504])
    def test_what_may_pass_is_tried_again(self, status):
        pauses = Pauses()
        with scripted(Scripted(status), Scripted(status), token_answer()) as (url, received):
            token_from(config_for(url), pauses)
        assert len(received) == 3
        assert pauses.all == [100, 200]

    @each_row("status", [400, 401, 403, 404, 407, 409, 415, 501, 505])
    def test_what_is_refused_is_not_tried_again(self, status):
        url, error, received = refusal_by(Scripted(status))
        assert len(received) == 1
        assert f"{url} answers {status}" in str(error)
        assert not isinstance(error, CredentialsUnavailableError)

    @each_row(
        ("body", "shown"),
        [
            (b'{"error":"invalid_client","error_description":"no"}', "(invalid_client - no)"),
            (b'{"errorCode":"E1","errorSummary":"no such"}', "(E1 - no such)"),
            (b'{"error":"invalid_client"}', "(invalid_client)"),
            (b'{"error":"x\\n\\u0007y"}', r"(x\n\x07y)"),
            (b'{"error":"you sent S3CRET~*/+ \\u00fc"}', "(you sent [hidden])"),
            (b"<html>S3CRET</html>", "answers 400. Check"),
            (b'["S3CRET"]', "answers 400. Check"),
            (b'{"S3CRET":"S3CRET"}', "answers 400. Check"),
            (b"", "answers 400. Check"),
            (b"[" * 100_000, "answers 400. Check"),
            (json.dumps({"error": "x" * 5_000}).encode(), "(xxx"),
        ],
        ids=lambda value: str(value)[:40],
    )
    def test_the_reason_is_the_endpoints_own_and_cut(self, body, shown):
        _, error, _ = refusal_by(Scripted(400, body))
        assert shown in str(error)
        assert len(str(error)) < 2_000

    @pytest.mark.parametrize("field", ["error", "error_description", "errorSummary", "Location"])
    def test_credentials_that_are_sent_back_are_hidden(self, field):
        pair = base64.b64encode(f"app:{SECRET}".encode()).decode()
        echoes = [f(text).replace("\n", "") for f in ENCODERS.values() for text in (SECRET, pair)]
        if field == "Location":
            echoes = [quote(echo, safe="%") for echo in echoes]
            answers = [Scripted(302, headers=(("Location", f"http://h/{e}"),)) for e in echoes]
        else:
            bodies = [json.dumps({field: f"you sent {echo}"}).encode() for echo in echoes]
            answers = [Scripted(400, body) for body in bodies]
        with scripted(*answers) as (url, _):
            for echo in echoes:
                error = str(refused(config_for(url)))
                assert "[hidden]" in error
                assert echo not in error

    @each_row(
        ("body", "message"),
        [
            (b"<html>S3CRET</html>", f"{NO_JSON} (19 bytes of application/json)"),
            (b"", f"{NO_JSON} (0 bytes"),
            (b'["S3CRET"]', NO_JSON),
            (b'{"token":"S3CRET"}', NO_TOKEN),
            (b'{"access_token":5}', NO_TOKEN),
            (b'{"access_token":"S3CRET"}', "is not a JWT of three parts"),
        ],
    )
    def test_a_success_that_holds_no_token(self, body, message):
        _, error, received = refusal_by(Scripted(200, body))
        assert message in str(error)
        assert len(received) == 1

    @each_row("status", [301, 302, 307, 308])
    def test_a_redirect_is_not_followed(self, status):
        location = (("Location", "https://user:S3CRET@elsewhere.example/t?x=S3CRET"),)
        _, error, received = refusal_by(Scripted(status, headers=location))
        assert len(received) == 1
        assert "a redirect to https://elsewhere.example/t. The sink does not" in str(error)

    def test_a_token_that_has_expired(self):
        _, error, _ = refusal_by(token_answer(exp=int(time.time()) - 100))
        assert isinstance(error, CredentialsUnavailableError)
        assert "expired 1" in str(error)
        assert "clock" in str(error)


LENGTH = " X\r\nContent-Length: 1000"
CHUNKED = " X\r\nTransfer-Encoding: chunked"


class TestWays:
    """Connections that do not come about, or break."""

    def test_nobody_listens(self):
        pauses = Pauses()
        with scripted() as (url, _):
            pass
        error = refused(config_for(url), pauses)
        assert isinstance(error, CredentialsUnavailableError)
        option = "kafka.sasl.oauthbearer.token.endpoint.url"
        for words in (f"{url} cannot be reached: [Errno 111]", option, "tried"):
            assert words in str(error)
        assert pauses.all[:7] == [100, 200, 400, 800, 1600, 3200, 6400]

    @pytest.mark.parametrize("host", ["nowhere.invalid", "a" * 64, "a..b"])
    def test_no_such_host(self, host):
        error = refused(asking_once(f"http://{host}/token"))
        assert isinstance(error, CredentialsUnavailableError)
        assert f"http://{host}/token cannot be reached" in str(error)

    @each_row(
        ("raw", "told"),
        [
            *((b"", ""), (b"S3CRET\r\n\r\n", ""), (b"HTTP/1.1 999999 S3CRET\r\n\r\n", "")),
            *(
                (f'HTTP/1.1 {status}{head}\r\n\r\n{{"access_token":"S3CRET'.encode(), "was cut")
                for status in (200, 400)
                for head in (LENGTH, f"{CHUNKED}\r\n\r\n3e8")
            ),
        ],
    )
    def test_what_is_no_http_or_cut_may_be_whole_the_next_time(self, raw, told):
        """Whatever its first half says."""
        with scripted(Scripted(raw=raw), token_answer()) as (url, received):
            assert token_from(config_for(url))
        assert len(received) == 2
        _, error, _ = refusal_by(Scripted(raw=raw), config=asking_once)
        assert isinstance(error, CredentialsUnavailableError)
        assert told in str(error)

    def test_an_endpoint_that_does_not_answer_in_time(self):
        """The option's, or that of who waits for less."""
        never = threading.Event()
        login = replace(ASKED_ONCE, read_timeout_ms=50)
        with scripted(Scripted(waits=never), Scripted(waits=never)) as (url, _):
            error = refused(replace(config_for(url), login=login))
            sooner = new_login(config_for(url))
            with pytest.raises(CredentialsUnavailableError, match="does not answer in time"):
                sooner.login(50)
            sooner.close()
            never.set()
        assert isinstance(error, CredentialsUnavailableError)
        assert "does not answer in time" in str(error)
        assert "kafka.sasl.login.read.timeout.ms" in str(error)

    @each_row(
        "url",
        [
            *("http://", "https://:443/x", "http://host:port/", "http://[::1/", "http://h:99999/"),
            *("http://h/ü", "http://h/a b", "http://ü/"),
        ],
    )
    def test_what_is_no_url(self, url):
        error = refused(config_for(url))
        assert str(error).startswith("kafka.sasl.oauthbearer.token.endpoint.url ")

    def test_a_login_that_is_closed_does_not_ask_again(self):
        asked, may_answer = threading.Event(), threading.Event()
        errors = []
        hour = LoginConfig(retry_backoff_ms=AN_HOUR_MS, retry_backoff_max_ms=3 * AN_HOUR_MS)
        with scripted(Scripted(503, waits=may_answer), token_answer()) as (url, received):
            login = new_login(replace(config_for(url), login=hour))

            def prepare():
                asked.set()
                try:
                    login.login(3 * AN_HOUR_MS)
                except AuthenticationError as error:
                    errors.append(sentence(error))

            thread = threading.Thread(target=prepare)
            thread.start()
            assert asked.wait(PATIENCE_S)
            login.close()
            may_answer.set()
            thread.join(PATIENCE_S)
            assert not thread.is_alive()
        assert errors == ["the login was closed while a token was fetched"]
        assert len(received) == 1


class TestTls:
    @pytest.fixture
    def authority(self):
        return Authority()

    @pytest.fixture
    def https(self, authority, tmp_path):
        certificate = tmp_path / "endpoint.pem"
        certificate.write_text(authority.issue("endpoint", [HOST]).pem())
        with Issuer({"app": SECRET}, certificate=certificate) as running:
            yield running

    @pytest.fixture
    def jaas(self, authority, tmp_path):
        path = tmp_path / "authority.pem"
        path.write_text(authority.pem)
        return f'ssl.truststore.location="{path}" ssl.truststore.type=PEM'

    def test_who_is_trusted(self, https, jaas):
        """Whom the JAAS options say; other authorities and names are refused at once."""
        assert token_from(config_for(https.token_url, jaas))
        pauses = Pauses()
        error = refused(config_for(https.token_url), pauses)
        assert not isinstance(error, CredentialsUnavailableError)
        assert "ssl.truststore.location" in str(error)
        assert pauses.all == []
        missing = refused(config_for(https.token_url, 'ssl.truststore.location="/no/such"'))
        assert "/no/such" in str(missing)
        error = refused(config_for(https.token_url.replace(HOST, "localhost"), jaas))
        assert not isinstance(error, CredentialsUnavailableError)
        assert "localhost" in str(error)

    def test_http_where_https_is_meant(self, issuer):
        error = refused(asking_once(issuer.token_url.replace("http:", "https:")))
        assert isinstance(error, CredentialsUnavailableError)

    def test_through_a_proxy_and_past_it(self, https, jaas, monkeypatch):
        with http_proxy() as (port, received):
            monkeypatch.setenv("https_proxy", f"http://us%20er:S3CRET-3@{HOST}:{port}")
            assert token_from(config_for(https.token_url, jaas))
        (request,) = received
        assert request.line.startswith(f"CONNECT {HOST}:{https.port} ")
        assert request.headers["proxy-authorization"] == basic("us er:S3CRET-3")
        assert "authorization" not in request.headers
        assert len(https.requests) == 1
        monkeypatch.setenv("https_proxy", "http://nowhere.invalid:1")
        monkeypatch.setenv("no_proxy", HOST)
        assert token_from(config_for(https.token_url, jaas))


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
    return json.loads(base64.urlsafe_b64decode(text.split(".")[0] + "=="))


def signed(key_file, **options):
    """The text of an assertion that is signed with the key of a file."""
    config = AssertionConfig(**{"private_key_file": str(key_file), **options})
    return assertion(config, NOW_MS).reveal()


class TestSigned:
    def test_claims_of_the_options(self, rsa_key, key_file):
        text = signed(key_file, claim_aud="aud-1", claim_iss="iss-1", claim_sub="sub-1")
        assert is_signed_by(text, rsa_key.public_key())
        assert header_of(text) == {"alg": "RS256", "typ": "JWT"}
        assert claims_of(text) == {
            **{"aud": "aud-1", "iss": "iss-1", "sub": "sub-1"},
            **{"iat": 1_700_000_000, "exp": 1_700_000_300, "nbf": 1_699_999_940},
        }
        given = {"claim_exp_seconds": 10, "claim_nbf_seconds": 0, "claim_jti_include": True}
        first, second = (claims_of(signed(key_file, **given)) for _ in range(2))
        assert (first["exp"], first["nbf"]) == (1_700_000_010, 1_700_000_000)
        assert len(first["jti"]) == 36
        assert first["jti"] != second["jti"]

    def test_es256_is_signed_as_the_rfc_has_it(self, key_file):
        key = new_key("ES256")
        key_file.write_text(pem(key))
        text = signed(key_file, algorithm="ES256")
        assert is_signed_by(text, key.public_key())
        assert header_of(text)["alg"] == "ES256"

    def test_the_template_wins_over_options_and_not_over_time(self, key_file, tmp_path):
        template = tmp_path / "template.json"
        payload = {"iss": "of the file", "exp": 5, "more": ["a", 1, None, "ü"]}
        header = {"kid": "k-1", "alg": "none"}
        template.write_text(json.dumps({"header": header, "payload": payload}))
        options = {"claim_iss": "of the options", "template_file": str(template)}
        text = signed(key_file, **options)
        assert header_of(text) == {"kid": "k-1", "alg": "RS256", "typ": "JWT"}
        expected = {**payload, "exp": 1_700_000_300}
        assert {name: claims_of(text)[name] for name in payload} == expected
        template.write_text("{}")
        assert claims_of(signed(key_file, **options))["iss"] == "of the options"

    def test_a_ready_assertion(self, tmp_path):
        path = tmp_path / "assertion.jwt"
        config = AssertionConfig(claim_iss="ignored", file=str(path))
        for text in ("aa.bb.cc", "dd.ee.ff"):
            path.write_text(f"{text}\n")
            assert assertion(config, NOW_MS).reveal() == text


NO_BASE64 = "-----BEGIN PRIVATE KEY-----\nS3CRET\n-----END PRIVATE KEY-----"
KEYS = {
    "encrypted": lambda: pem(new_key("RS256"), "other"),
    "p256": lambda: pem(new_key("ES256")),
    "p384": lambda: pem(ec.generate_private_key(ec.SECP384R1())),
    "ed25519": lambda: pem(Ed25519PrivateKey.generate()),
}
PASSPHRASE = {"private_key_passphrase": Secret("S3CRET")}


class TestKeys:
    @pytest.mark.parametrize("form", [PrivateFormat.PKCS8, PrivateFormat.TraditionalOpenSSL])
    @pytest.mark.parametrize("password", [None, "S3CRET ü"])
    def test_formats(self, rsa_key, key_file, form, password):
        key_file.write_text("a comment\n" + pem(rsa_key, password, form))
        passphrase = None if password is None else Secret(password)
        text = signed(key_file, private_key_passphrase=passphrase)
        assert is_signed_by(text, rsa_key.public_key())

    def test_a_key_that_is_replaced_is_used_also_base64_alone_as_java_takes_it(self, key_file):
        signed(key_file)
        key = new_key("RS256")
        for text in (pem(key), "".join(pem(key).splitlines()[1:-1])):
            key_file.write_text(text)
            assert is_signed_by(signed(key_file), key.public_key())

    @pytest.mark.parametrize(
        ("text", "changes", "message"),
        [
            ("", {}, "must hold text in UTF-8"),
            ("S3CRET", {}, "must be a private key in PEM"),
            (NO_BASE64, {}, "is not base64"),
            (None, PASSPHRASE, "is not encrypted, but"),
            ("encrypted", {}, "is encrypted, and"),
            ("encrypted", PASSPHRASE, "its password"),
            (None, {"algorithm": "ES256"}, "ES256 needs an EC key on P-256"),
            ("p256", {}, "RS256 needs an RSA key"),
            ("p384", {"algorithm": "ES256"}, "the curve secp384r1, but ES256 needs P-256"),
            ("ed25519", {}, "RS256 needs an RSA key"),
        ],
    )
    def test_keys_that_do_not_fit(self, key_file, text, changes, message):
        if text is not None:
            key_file.write_text(KEYS.get(text, lambda: text)())
        with pytest.raises(AuthenticationError) as raised:
            signed(key_file, **changes)
        assert message in str(raised.value)
        assert "kafka.sasl.oauthbearer.assertion." in str(raised.value)
        assert "S3CRET" not in str(raised.value)
        assert raised.value.__cause__ is None

    def test_files_that_are_not_there_and_templates_that_are_none(self, key_file, tmp_path):
        template = tmp_path / "template.json"
        texts = ("S3CRET", "[]", '{"header": "S3CRET"}', '{"payload": []}')
        for option, path, text in (
            *(("template_file", str(template), text) for text in texts),
            *((option, "/no/such", "") for option in ("private_key_file", "file", "template_file")),
        ):
            template.write_text(text)
            name = f"assertion.{option.replace('_', '.')}" + "=/no/such" * (path == "/no/such")
            with pytest.raises(AuthenticationError, match=name) as raised:
                signed(key_file, **{option: path})
            assert "S3CRET" not in str(raised.value)


class TestGrants:
    """An issuer that verifies the signature gives a token."""

    @pytest.fixture
    def config(self, issuer, key_file, rsa_key):
        """What is asked for by a retriever and with options; at an issuer that knows the key."""
        issuer.assertion_keys["app"] = rsa_key.public_key()
        claims = {"claim_iss": "app", "claim_sub": "alice", "claim_aud": issuer.token_url}

        def make(retriever, **options):
            own = AssertionConfig(private_key_file=str(key_file), **claims)
            given = {"token_endpoint_url": issuer.token_url, "assertion": own, **options}
            return SaslConfig("OAUTHBEARER", oauth=OAuthConfig(retriever=retriever, **given))

        return make

    @pytest.mark.parametrize(
        ("retriever", "options", "form"),
        [
            (
                JWT_BEARER,
                {"scope": "a b"},
                {"grant_type": "urn:ietf:params:oauth:grant-type:jwt-bearer", "scope": "a b"},
            ),
            ("DefaultJwtRetriever", {}, {"grant_type": "client_credentials", "client_id": None}),
            (
                "DefaultJwtRetriever",
                {"client_id": "app"},
                {"grant_type": "client_credentials", "client_id": "app"},
            ),
        ],
    )
    def test_what_is_asked_for(self, config, issuer, retriever, options, form):
        given = config(retriever, **options)
        check(given)
        assert claims_of(token_from(given))["sub"] == "alice"
        (request,) = issuer.requests
        assert {name: request.form.get(name) for name in form} == form
        assert "authorization" not in request.headers

    def test_a_key_that_the_issuer_does_not_know(self, config, key_file):
        key_file.write_text(pem(new_key("RS256")))
        assert "not signed by its issuer" in str(refused(config(JWT_BEARER)))

    def test_without_a_key(self, config):
        with pytest.raises(ConfigError, match=r"assertion\.private\.key\.file or"):
            check(config(JWT_BEARER, assertion=AssertionConfig()))
