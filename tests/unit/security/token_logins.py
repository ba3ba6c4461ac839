"""Logins that fetch their token from an endpoint of the test, without waiting between attempts."""

import base64
import json
import random
import time
from dataclasses import replace

import pytest

from spark_kafka_sink.base.clock import SystemClock
from spark_kafka_sink.base.errors import AuthenticationError
from spark_kafka_sink.base.secret import Secret
from spark_kafka_sink.config.security_config import OAuthConfig, SaslConfig
from spark_kafka_sink.security.oauth import TokenLogin
from spark_kafka_sink.security.oauth_tokens import RetryTimer
from tests.unit.scripted_endpoint import Scripted

MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
SECRET = "S3CRET~*/+ ü"
PATIENCE_MS = 120_000


def jwt(**claims):
    """A token whose signature nobody looks at here."""
    texts = [{"alg": "none"}, {"sub": "app", "exp": int(time.time()) + 3_600, **claims}]
    parts = [base64.urlsafe_b64encode(json.dumps(t).encode()).decode().rstrip("=") for t in texts]
    return ".".join([*parts, "S1GNATURE"])


def token_answer(**claims):
    return Scripted(body=json.dumps({"access_token": jwt(**claims)}).encode())


class Pauses:
    """No pause is waited for."""

    def __init__(self):
        self.all = []

    def __call__(self, milliseconds):
        self.all.append(milliseconds)


def config_for(url, jaas="", **oauth):
    options = OAuthConfig(token_endpoint_url=url, client_id="app", client_secret=Secret(SECRET))
    return SaslConfig(
        "OAUTHBEARER",
        jaas_config=Secret(f"{MODULE} required {jaas};") if jaas else None,
        oauth=replace(options, **oauth),
    )


def login_for(config, pauses=None):
    waiting = RetryTimer(SystemClock(), pauses or Pauses())
    return TokenLogin(config, waiting, random.Random(1), lambda: None)


def token_from(config, pauses=None):
    """The token that a connection would send."""
    login = login_for(config, pauses)
    try:
        login.login(PATIENCE_MS)
        first = login.create_sasl_client("broker-1").initial_response().decode()
    finally:
        login.close()
    return first.split("Bearer ")[1].split("\x01")[0]


def refused(config, pauses=None):
    """The error, in whose texts nothing secret stands."""
    with pytest.raises(AuthenticationError) as raised:
        token_from(config, pauses)
    shown = str(raised.value) + repr(raised.value)
    for secret in ("S3CRET", "S1GNATURE", base64.b64encode(f"app:{SECRET}".encode()).decode()):
        assert secret not in shown
    return raised.value


def forget_proxies(monkeypatch):
    """The machine that runs the tests may have some."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
