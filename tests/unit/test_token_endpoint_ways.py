"""The way to a token endpoint: connections that do not come about, TLS, proxies."""

import base64
import threading
from dataclasses import replace

import pytest

from spark_kafka_sink.base.errors import AuthenticationError, CredentialsUnavailableError
from spark_kafka_sink.config.security_config import LoginConfig
from spark_kafka_sink.localkafka.certificates import Authority
from spark_kafka_sink.security.login import new_login
from tests.security.issuer import Issuer
from tests.unit.scripted_endpoint import HOST, Scripted, http_proxy, scripted
from tests.unit.token_logins import (
    SECRET,
    Pauses,
    config_for,
    refused,
    token_answer,
    token_from,
)

pytestmark = pytest.mark.usefixtures("no_proxy")


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
        config = config_for(f"http://{host}/token")
        error = refused(replace(config, login=LoginConfig(retry_backoff_max_ms=0)))
        assert isinstance(error, CredentialsUnavailableError)
        assert f"http://{host}/token cannot be reached" in str(error)

    @pytest.mark.parametrize("raw", [b"", b"S3CRET\r\n\r\n", b"HTTP/1.1 999999 S3CRET\r\n\r\n"])
    def test_what_does_not_speak_http(self, raw):
        with scripted(Scripted(raw=raw), token_answer()) as (url, received):
            token_from(config_for(url))
        assert len(received) == 2
        with scripted(Scripted(raw=raw)) as (url, _):
            config = config_for(url)
            error = refused(replace(config, login=LoginConfig(retry_backoff_max_ms=0)))
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
            config = config_for(url)
            error = refused(replace(config, login=LoginConfig(retry_backoff_max_ms=0)))
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
            "http://",
            "https://:443/x",
            "http://host:port/",
            "http://[::1/",
            "http://h:99999/",
            "http://h/ü",
            "http://h/a b",
            "http://ü/",
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
        error = refused(replace(config_for(url), login=LoginConfig(retry_backoff_max_ms=0)))
        assert isinstance(error, CredentialsUnavailableError)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            (
                'ssl.protocol="TLSv1.1"',
                "kafka.sasl.jaas.config, for the token endpoint: Invalid value TLSv1.1 for "
                "configuration ssl.protocol: must be one of",
            ),
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
            error = refused(
                replace(
                    config_for("http://issuer.example:8080/token?a=b"),
                    login=LoginConfig(retry_backoff_max_ms=0),
                )
            )
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
