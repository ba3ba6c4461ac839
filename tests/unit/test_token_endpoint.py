"""Tokens from an HTTP endpoint that really listens: requests, answers and retries."""

import base64
import json
import logging
import time
from dataclasses import replace
from urllib.parse import quote

import pytest

from spark_kafka_sink.base.errors import CredentialsUnavailableError
from spark_kafka_sink.base.secret import Secret
from tests.security.issuer import RefusalError
from tests.unit.scripted_endpoint import Scripted, scripted
from tests.unit.test_printable import ENCODERS
from tests.unit.token_logins import (
    SECRET,
    Pauses,
    config_for,
    jwt,
    refused,
    token_answer,
    token_from,
)

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
