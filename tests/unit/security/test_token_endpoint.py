"""Tokens from an HTTP endpoint that really listens: requests, answers and retries."""

import base64
import json
import logging
import threading
import time
from dataclasses import replace
from urllib.parse import quote

import pytest

from spark_kafka_sink.base.errors import AuthenticationError, CredentialsUnavailableError
from spark_kafka_sink.base.secret import Secret
from spark_kafka_sink.config.security_config import LoginConfig
from spark_kafka_sink.localkafka.certificates import Authority
from spark_kafka_sink.security.login import new_login
from tests.security.issuer import Issuer, RefusalError
from tests.unit.scripted_endpoint import HOST, Scripted, http_proxy, scripted
from tests.unit.security.token_logins import (
    SECRET,
    Pauses,
    config_for,
    jwt,
    refused,
    token_answer,
    token_from,
)
from tests.unit.test_redaction import ENCODERS

pytestmark = pytest.mark.usefixtures("no_proxy")


class TestRequest:
    def test_id_and_secret_by_default_as_they_are(self):
        with scripted(token_answer()) as (url, received):
            token_from(config_for(url, scope="kafka read"))
        request = received[0]
        pair = base64.b64decode(request.headers["authorization"].removeprefix("Basic ")).decode()
        assert request.line == "POST /token HTTP/1.1"
        assert pair == f"app:{SECRET}"
        assert request.body == "grant_type=client_credentials&scope=kafka+read"
        assert request.headers["content-type"] == "application/x-www-form-urlencoded"
        assert request.headers["accept"] == "application/json"
        assert request.headers["cache-control"] == "no-cache"

    def test_id_and_secret_encoded_for_urls(self):
        with scripted(token_answer()) as (url, received):
            token_from(config_for(url, client_id="a:b", header_urlencode=True))
        pair = base64.b64decode(received[0].headers["authorization"].removeprefix("Basic "))
        assert pair.decode() == "a%3Ab:S3CRET%7E*%2F%2B+%C3%BC"

    def test_id_secret_and_scope_in_jaas(self):
        jaas = 'clientId="app" clientSecret="S3CRET-2" scope="kafka" extension_a="b"'
        config = config_for("", jaas, client_id=None, client_secret=None)
        with scripted(token_answer()) as (url, received):
            config = replace(config, oauth=replace(config.oauth, token_endpoint_url=url))
            token_from(config)
        assert received[0].body == "grant_type=client_credentials&scope=kafka"
        assert received[0].headers["authorization"] == (
            "Basic " + base64.b64encode(b"app:S3CRET-2").decode()
        )

    def test_options_win_over_jaas_and_that_is_told(self, caplog):
        caplog.set_level(logging.WARNING)
        jaas = 'clientId="other" clientSecret="S3CRET-2" scope="other"'
        with scripted(token_answer()) as (url, received):
            token_from(config_for(url, jaas, scope="mine"))
        assert received[0].body.endswith("&scope=mine")
        assert received[0].headers["authorization"] == (
            "Basic " + base64.b64encode(f"app:{SECRET}".encode()).decode()
        )
        assert "client.credentials.client.secret wins over clientSecret" in caplog.text
        assert "S3CRET" not in caplog.text

    def test_path_and_query_are_kept_but_not_shown(self):
        with scripted(Scripted(400)) as (url, received):
            error = refused(config_for(url + "?tenant=S3CRET"))
        assert received[0].line == "POST /token?tenant=S3CRET HTTP/1.1"
        assert "/token answers 400" in str(error)

    def test_references_are_resolved_for_each_request(self, tmp_path, monkeypatch):
        secret = tmp_path / "secret"
        config = config_for("${env:TEST_URL}", client_secret=Secret(f"${{dir:{tmp_path}:secret}}"))
        with scripted(Scripted(500), token_answer(), token_answer()) as (url, received):
            monkeypatch.setenv("TEST_URL", url)
            secret.write_text("S3CRET-old")
            token_from(config)
            secret.write_text("S3CRET-new")
            token_from(config)
        pairs = [base64.b64decode(r.headers["authorization"].split()[1]) for r in received]
        assert pairs == [b"app:S3CRET-old", b"app:S3CRET-old", b"app:S3CRET-new"]


class TestAnswer:
    def test_a_real_issuer(self, issuer):
        assert token_from(config_for(issuer.token_url)).count(".") == 2

    @pytest.mark.parametrize("status", [200, 201])
    def test_an_access_token_else_an_id_token(self, status):
        first, second = jwt(jti="1"), jwt(jti="2")
        for fields, expected in (
            ({"access_token": first, "id_token": second}, first),
            ({"id_token": f" {second}\n"}, second),
            ({"access_token": "", "id_token": second}, second),
        ):
            with scripted(Scripted(status, json.dumps(fields).encode())) as (url, _):
                assert token_from(config_for(url)) == expected

    @pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
    def test_what_may_pass_is_tried_again(self, status):
        pauses = Pauses()
        with scripted(Scripted(status), Scripted(status), token_answer()) as (url, received):
            token_from(config_for(url), pauses)
        assert len(received) == 3
        assert pauses.all == [100, 200]

    @pytest.mark.parametrize(
        "status",
        [400, 401, 402, 403, 404, 405, 406, 407, 409, 410, 411, 412, 413, 414, 415, 501, 505],
    )
    def test_what_is_refused_is_not_tried_again(self, status):
        with scripted(Scripted(status)) as (url, received):
            error = refused(config_for(url))
        assert len(received) == 1
        assert f"{url} answers {status}" in str(error)
        assert not isinstance(error, CredentialsUnavailableError)

    @pytest.mark.parametrize(
        ("body", "shown"),
        [
            (
                b'{"error":"invalid_client","error_description":"no such"}',
                "(invalid_client - no such)",
            ),
            (b'{"errorCode":"E1","errorSummary":"no such"}', "(E1 - no such)"),
            (b'{"error":"invalid_client"}', "(invalid_client)"),
            (b'{"error":"x\\n\\u0007y"}', r"(x\n\x07y)"),
            (b'{"error":"you sent S3CRET~*/+ \\u00fc"}', "(you sent [hidden])"),
            (b"<html>S3CRET</html>", "answers 400. Check"),
            (b'["S3CRET"]', "answers 400. Check"),
            (b"", "answers 400. Check"),
            (b"[" * 100_000, "answers 400. Check"),
        ],
    )
    def test_the_reason_is_the_endpoints_own(self, body, shown):
        with scripted(Scripted(400, body)) as (url, _):
            assert shown in str(refused(config_for(url)))

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

    def test_a_long_reason_is_cut(self):
        with scripted(Scripted(400, json.dumps({"error": "x" * 5_000}).encode())) as (url, _):
            assert len(str(refused(config_for(url)))) < 2_000

    @pytest.mark.parametrize(
        ("body", "message"),
        [
            (b"<html>S3CRET</html>", "what is not a JSON object (19 bytes of application/json)"),
            (b"", "what is not a JSON object (0 bytes"),
            (b'["S3CRET"]', "what is not a JSON object"),
            (b'{"token":"S3CRET"}', "without access_token and id_token"),
            (b'{"access_token":5}', "without access_token and id_token"),
            (b'{"access_token":"S3CRET"}', "is not a JWT of three parts"),
            (b'{"access_token":"S3CRET.S3CRET.S3CRET"}', "is not a JWT: its second part"),
            (b'{"access_token":"a.W10.c"}', "its claims are not a JSON object"),
        ],
    )
    def test_a_success_that_holds_no_token(self, body, message):
        with scripted(Scripted(200, body)) as (url, received):
            assert message in str(refused(config_for(url)))
        assert len(received) == 1

    @pytest.mark.parametrize("status", [301, 302, 307, 308])
    def test_a_redirect_is_not_followed(self, status):
        location = (("Location", "https://user:S3CRET@elsewhere.example/t?x=S3CRET"),)
        with scripted(Scripted(status, headers=location)) as (url, received):
            error = refused(config_for(url))
        assert len(received) == 1
        assert "a redirect to https://elsewhere.example/t. It is not followed" in str(error)

    def test_a_token_that_has_expired(self):
        with scripted(token_answer(exp=int(time.time()) - 100)) as (url, _):
            error = refused(config_for(url))
        assert isinstance(error, CredentialsUnavailableError)
        assert "expired 100 s ago" in str(error) or "expired 101 s ago" in str(error)
        assert "clock" in str(error)


def test_a_real_issuer_that_is_away_for_a_moment(issuer):
    issuer.refusals = iter([RefusalError(503, "S3CRET")] * 2)
    pauses = Pauses()
    assert token_from(config_for(issuer.token_url), pauses)
    assert pauses.all == [100, 200]


def test_logs_show_no_secret(issuer, caplog):
    caplog.set_level(logging.DEBUG)
    token = token_from(config_for(issuer.token_url, 'clientSecret="S3CRET-4"'))
    assert token not in caplog.text
    assert "S3CRET" not in caplog.text


def asking_once(url):
    return replace(config_for(url), login=LoginConfig(retry_backoff_max_ms=0))


class TestWays:
    """Connections that do not come about, or break."""

    def test_nobody_listens(self):
        pauses = Pauses()
        with scripted() as (url, _):
            pass
        error = refused(config_for(url), pauses)
        assert isinstance(error, CredentialsUnavailableError)
        assert f"{url} cannot be reached: [Errno 111]" in str(error)
        assert "kafka.sasl.oauthbearer.token.endpoint.url" in str(error)
        assert "tried" in str(error)
        assert pauses.all[:7] == [100, 200, 400, 800, 1600, 3200, 6400]

    @pytest.mark.parametrize("host", ["nowhere.invalid", "a" * 64, "a..b"])
    def test_no_such_host(self, host):
        error = refused(asking_once(f"http://{host}/token"))
        assert isinstance(error, CredentialsUnavailableError)
        assert f"http://{host}/token cannot be reached" in str(error)

    @pytest.mark.parametrize("raw", [b"", b"S3CRET\r\n\r\n", b"HTTP/1.1 999999 S3CRET\r\n\r\n"])
    def test_what_does_not_speak_http(self, raw):
        with scripted(Scripted(raw=raw), token_answer()) as (url, received):
            token_from(config_for(url))
        assert len(received) == 2
        with scripted(Scripted(raw=raw)) as (url, _):
            error = refused(asking_once(url))
        assert isinstance(error, CredentialsUnavailableError)

    @pytest.mark.parametrize("form", ["Content-Length: 1000\r\n\r\n", "{chunked}"])
    @pytest.mark.parametrize("status", [200, 400])
    def test_an_answer_that_is_cut_may_be_whole_the_next_time(self, form, status):
        """Whatever its first half says."""
        head = form.replace("{chunked}", "Transfer-Encoding: chunked\r\n\r\n3e8\r\n")
        cut = f'HTTP/1.1 {status} X\r\n{head}{{"access_token":"S3CRET'.encode()
        pauses = Pauses()
        with scripted(Scripted(raw=cut), token_answer()) as (url, received):
            assert token_from(config_for(url), pauses)
        assert len(received) == 2
        with scripted(Scripted(raw=cut)) as (url, _):
            error = refused(asking_once(url))
        assert isinstance(error, CredentialsUnavailableError)
        assert "the answer was cut" in str(error)

    def test_an_endpoint_that_does_not_answer(self):
        never = threading.Event()
        login = LoginConfig(read_timeout_ms=50, retry_backoff_max_ms=0)
        with scripted(Scripted(waits=never)) as (url, _):
            error = refused(replace(config_for(url), login=login))
            never.set()
        assert isinstance(error, CredentialsUnavailableError)
        assert "does not answer in time" in str(error)
        assert "kafka.sasl.login.read.timeout.ms" in str(error)

    def test_who_waits_for_less_is_told_sooner(self):
        never = threading.Event()
        with scripted(Scripted(waits=never)) as (url, _):
            login = new_login(config_for(url))
            with pytest.raises(CredentialsUnavailableError, match="does not answer in time"):
                login.login(50)
            login.close()
            never.set()

    @pytest.mark.parametrize(
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
        with scripted(Scripted(503, waits=may_answer), token_answer()) as (url, received):
            # Would pause for an hour.
            config = replace(config_for(url), login=LoginConfig(retry_backoff_ms=3_600_000))
            config = replace(config, login=replace(config.login, retry_backoff_max_ms=9_000_000))
            login = new_login(config)

            def prepare():
                asked.set()
                try:
                    login.login(9_000_000)
                except AuthenticationError as error:
                    errors.append(error)

            thread = threading.Thread(target=prepare)
            thread.start()
            assert asked.wait(120)
            login.close()
            may_answer.set()
            thread.join(120)
            assert not thread.is_alive()
        assert [str(error) for error in errors] == [
            "the login was closed while a token was fetched"
        ]
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

    def jaas(self, authority, tmp_path, more=""):
        path = tmp_path / "authority.pem"
        path.write_text(authority.pem)
        return f'ssl.truststore.location="{path}" ssl.truststore.type=PEM {more}'

    def test_the_jaas_options_say_whom_to_trust(self, https, authority, tmp_path):
        assert token_from(config_for(https.token_url, self.jaas(authority, tmp_path)))

    def test_an_authority_that_is_not_trusted_is_told_at_once(self, https):
        pauses = Pauses()
        error = refused(config_for(https.token_url), pauses)
        assert not isinstance(error, CredentialsUnavailableError)
        assert "ssl.truststore.location" in str(error)
        assert pauses.all == []

    def test_a_name_that_is_not_the_certificates(self, https, authority, tmp_path):
        url = https.token_url.replace(HOST, "localhost")
        error = refused(config_for(url, self.jaas(authority, tmp_path)))
        assert "localhost" in str(error)
        assert not isinstance(error, CredentialsUnavailableError)

    def test_http_where_https_is_meant(self, issuer):
        url = issuer.token_url.replace("http:", "https:")
        error = refused(asking_once(url))
        assert isinstance(error, CredentialsUnavailableError)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ('ssl.protocol="TLSv1.1"', "kafka.sasl.jaas.config, for the token endpoint: Invalid"),
            ("ssl.nonsense=x", "begins with 'ssl.' is not known"),
            ('ssl.truststore.location="/no/such"', "/no/such"),
        ],
    )
    def test_wrong_options(self, https, options, message):
        assert message in str(refused(config_for(https.token_url, options)))

    def test_through_a_proxy(self, https, authority, tmp_path, monkeypatch):
        with http_proxy() as (port, received):
            monkeypatch.setenv("https_proxy", f"http://us%20er:S3CRET-3@{HOST}:{port}")
            assert token_from(config_for(https.token_url, self.jaas(authority, tmp_path)))
        assert received[0].line.startswith(f"CONNECT {HOST}:{https.port} ")
        assert received[0].headers["proxy-authorization"] == (
            "Basic " + base64.b64encode(b"us er:S3CRET-3").decode()
        )
        assert "authorization" not in received[0].headers
        assert len(https.requests) == 1

    def test_past_the_proxy(self, https, authority, tmp_path, monkeypatch):
        monkeypatch.setenv("https_proxy", "http://nowhere.invalid:1")
        monkeypatch.setenv("no_proxy", HOST)
        assert token_from(config_for(https.token_url, self.jaas(authority, tmp_path)))


class TestProxy:
    def test_http_through_a_proxy(self, monkeypatch):
        with http_proxy() as (port, received):
            monkeypatch.setenv("http_proxy", f"{HOST}:{port}")
            error = refused(asking_once("http://issuer.example:8080/token?a=b"))
        assert received[0].line == "POST http://issuer.example:8080/token?a=b HTTP/1.1"
        assert received[0].headers["host"] == "issuer.example:8080"
        assert "answers 418" in str(error)

    @pytest.mark.parametrize(
        "proxy", ["https://proxy:1", "http://", "http://h:port", "socks5://h:1"]
    )
    def test_what_is_no_proxy(self, proxy, monkeypatch):
        monkeypatch.setenv("http_proxy", proxy)
        error = refused(config_for("http://issuer.example/token"))
        assert "http_proxy must be of the form http://host:port" in str(error)
