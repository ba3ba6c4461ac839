"""Token endpoints that answer as told, a proxy, and logins that ask without waiting."""

import base64
import contextlib
import json
import random
import select
import socket
import threading
import time
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple, Optional

import pytest

from spark_kafka_sink.base.clock import SystemClock
from spark_kafka_sink.base.errors import AuthenticationError
from spark_kafka_sink.base.text import Secret
from spark_kafka_sink.config.security_config import OAuthConfig, SaslConfig
from spark_kafka_sink.security.oauth import TokenLogin
from spark_kafka_sink.security.oauth_tokens import RetryTimer
from tests.patience import PATIENCE_MS, PATIENCE_S

HOST = "127.0.0.1"


class Scripted(NamedTuple):
    """One answer. raw: sent as it is, in place of all else; waits: before anything is sent"""

    status: int = 200
    body: bytes = b""
    headers: tuple = (("Content-Type", "application/json"),)
    raw: Optional[bytes] = None
    waits: Optional[threading.Event] = None


class Received(NamedTuple):
    """What was asked."""

    line: str
    headers: dict
    body: str


class Handler(BaseHTTPRequestHandler):
    """Notes what it is asked in ``received``."""

    timeout = PATIENCE_S

    def note(self):
        size = int(self.headers["content-length"] or 0)
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.received.append(Received(self.requestline, headers, self.rfile.read(size).decode()))

    def answer(self, status, headers=(), body=b""):
        self.send_response(status)
        for name, value in (*headers, ("Content-Length", str(len(body)))):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments):
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        """Clients hang up: that is what some tests are about."""


@contextlib.contextmanager
def serving(context=None, **methods):
    """The port at which a handler with these methods serves, and what it was asked.

    context: for https
    """
    received = []
    server = Server((HOST, 0), type("Handler", (Handler,), {"received": received, **methods}))
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server.server_port, received
    finally:
        server.shutdown()
        server.server_close()
        thread.join(PATIENCE_S)


@contextlib.contextmanager
def scripted(*answers, context=None):
    """The URL of an endpoint that gives these answers in turn, and what it was asked."""
    script = iter(answers)

    def post(handler):
        handler.note()
        answer = next(script)
        if answer.waits is not None:
            answer.waits.wait(PATIENCE_S)
        if answer.raw is not None:
            handler.wfile.write(answer.raw)
            return
        handler.answer(answer.status, answer.headers, answer.body)

    with serving(context, do_POST=post) as (port, received):
        yield f"http{'' if context is None else 's'}://{HOST}:{port}/token", received


def http_proxy():
    """The port of a proxy that tunnels, and answers a POST itself; and what it was asked."""

    def connect(handler):
        handler.note()
        host, _, port = handler.path.partition(":")
        with socket.create_connection((host, int(port)), PATIENCE_S) as there:
            handler.send_response(200)
            handler.end_headers()
            _pump(handler.connection, there)

    def post(handler):
        handler.note()
        handler.answer(418)

    return serving(do_CONNECT=connect, do_POST=post)


def _pump(one, other):
    """Bytes in both directions, until one side hangs up."""
    while readable := select.select([one, other], [], [], PATIENCE_S)[0]:
        for source in readable:
            data = source.recv(65_536)
            if not data:
                return
            (other if source is one else one).sendall(data)


MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
SECRET = "S3CRET~*/+ ü"


def encoded(content):
    return base64.urlsafe_b64encode(json.dumps(content).encode()).decode().rstrip("=")


def jwt_of(claims):
    """A token with these claims, whose signature nobody looks at here."""
    return f"{encoded({'alg': 'none'})}.{encoded(claims)}.S1GNATURE"


def jwt(**claims):
    return jwt_of({"sub": "app", "exp": int(time.time()) + 3_600, **claims})


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
    return TokenLogin(config, waiting, random.Random(1))


def first_message(login, host="broker-1"):
    """The message that a conversation of the login begins with."""
    return login.create_sasl_client(host).initial_response().decode()


def token_from(config, pauses=None):
    """The token that a connection would send."""
    login = login_for(config, pauses)
    try:
        login.login(PATIENCE_MS)
        return first_message(login).split("Bearer ")[1].split("\x01")[0]
    finally:
        login.close()


def basic(user_and_password):
    return f"Basic {base64.b64encode(user_and_password.encode()).decode()}"


def refused(config, pauses=None):
    """The error, in whose texts nothing secret stands."""
    with pytest.raises(AuthenticationError) as raised:
        token_from(config, pauses)
    shown = str(raised.value) + repr(raised.value)
    for secret in ("S3CRET", "S1GNATURE", basic(f"app:{SECRET}").split()[1]):
        assert secret not in shown
    return raised.value


def forget_proxies(monkeypatch):
    """The machine that runs the tests may have some."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
