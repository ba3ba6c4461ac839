"""An OIDC issuer on this machine: token endpoint and JWKS, whose tokens a real broker validates.

Grants: client_credentials with an id and a secret (HTTP Basic) or with a signed assertion
(RFC 7523, section 2.2), and jwt-bearer (section 2.1).
"""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import ssl
import threading
import time
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from spark_kafka_sink.localkafka import LocalOAuth
from tests.security import jwt

HOST = "127.0.0.1"
AUDIENCE = "kafka"
_JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_CLIENT_ASSERTION = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
# Claims are in seconds: a token counts as issued a moment ago.
_BEFORE_S = 1


@dataclass(frozen=True)
class RefusalError(Exception):
    """What the token endpoint answers in place of a token."""

    status: int
    error: str
    description: str = ""


@dataclass(frozen=True)
class TokenRequest:
    """What a client asked for, for tests to look at."""

    form: Mapping[str, str]
    headers: Mapping[str, str]


class Issuer:
    """Serves from ``with`` on. What it answers may be changed while it serves.

    clients : secrets by client id.
    life_s : how long tokens are valid.
    audience : of the tokens that are issued.
    refusals : one for each of the next requests for a token, taken in turn.
    certificate : PEM file of key and chain; then it speaks https.
    port : to listen on; 0 takes one that another process may take while the issuer is away.
    """

    def __init__(self, clients, life_s=300, certificate=None, port=0):
        self.clients = dict(clients)
        self.assertion_keys = {}
        self.life_s = life_s
        self.audience = AUDIENCE
        self.refusals = iter(())
        self.requests = []
        self.issued = []
        self._certificate = certificate
        self._keys = {algorithm: jwt.new_key(algorithm) for algorithm in ("RS256", "ES256")}
        self._server = self._listen(port)
        self.port = self._server.server_port

    @property
    def url(self):
        return f"{'http' if self._certificate is None else 'https'}://{HOST}:{self.port}"

    @property
    def token_url(self):
        return f"{self.url}/token"

    @property
    def oauth(self):
        """As a local Kafka wants it. Not with https: the broker's JVM would have to trust it."""
        return LocalOAuth(self.token_url, f"{self.url}/jwks", self.url, AUDIENCE)

    def __enter__(self):
        self._serve()
        return self

    def __exit__(self, *reason):
        self._close()

    @contextlib.contextmanager
    def away(self):
        """Nobody listens at its port in the meantime."""
        self._close()
        try:
            yield
        finally:
            self._server = self._listen(self.port)
            self._serve()

    def be_away_for(self, seconds):
        """Returns at once; it comes back by itself."""
        self._close()

        def come_back():
            self._server = self._listen(self.port)
            self._serve()

        threading.Timer(seconds, come_back).start()

    def _listen(self, port):
        server = _Server((HOST, port), _handler_of(self))
        if self._certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(self._certificate)
            # The handshake is the connection's own thread's business.
            server.socket = context.wrap_socket(
                server.socket, server_side=True, do_handshake_on_connect=False
            )
        return server

    def _serve(self):
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def _close(self):
        self._server.shutdown()
        self._server.server_close()

    def token(self, subject, algorithm="RS256", **claims):
        """A token as the endpoint issues it; ``claims`` are added, or replace those of it."""
        now = int(time.time())
        usual = {
            "iss": self.url,
            "sub": subject,
            "aud": self.audience,
            "iat": now - _BEFORE_S,
            "exp": now + self.life_s,
            "scope": "kafka",
        }
        return jwt.sign({**usual, **claims}, self._keys[algorithm], kid=algorithm)

    def jwks(self):
        return {"keys": [jwt.jwk(key.public_key(), name) for name, key in self._keys.items()]}

    def answer(self, request):
        """To a request for a token. Raises RefusalError."""
        self.requests.append(request)
        for refusal in itertools.islice(self.refusals, 1):
            raise refusal
        token = self.token(self._subject(request))
        self.issued.append(token)
        return {"access_token": token, "token_type": "Bearer", "expires_in": self.life_s}

    def _subject(self, request):
        grant = request.form.get("grant_type")
        if grant == _JWT_BEARER:
            return self._subject_of_assertion(request.form.get("assertion", ""))
        if grant != "client_credentials":
            raise RefusalError(400, "unsupported_grant_type")
        if request.form.get("client_assertion_type") == _CLIENT_ASSERTION:
            return self._subject_of_assertion(request.form.get("client_assertion", ""))
        return self._subject_of_secret(request.headers.get("authorization", ""))

    def _subject_of_secret(self, authorization):
        scheme, _, encoded = authorization.partition(" ")
        client_id, _, secret = base64.b64decode(encoded).decode().partition(":")
        if scheme != "Basic" or self.clients.get(client_id) != secret:
            raise RefusalError(401, "invalid_client", "Client id or secret is wrong")
        return client_id

    def _subject_of_assertion(self, assertion):
        if assertion.count(".") != 2:
            raise RefusalError(400, "invalid_grant", "No assertion")
        claims = jwt.claims_of(assertion)
        key = self.assertion_keys.get(claims.get("iss", ""))
        if key is None or not jwt.is_signed_by(assertion, key):
            raise RefusalError(400, "invalid_grant", "The assertion is not signed by its issuer")
        if claims["exp"] <= time.time() or claims["aud"] != self.token_url:
            raise RefusalError(400, "invalid_grant", "The assertion has expired, or is for another")
        return str(claims["sub"])


class _Server(ThreadingHTTPServer):
    """Quiet about clients that hang up, or do not trust it."""

    daemon_threads = True

    def handle_error(self, request, client_address):
        pass


def _handler_of(issuer):
    class Handler(BaseHTTPRequestHandler):
        # Reading without an end from a client that says nothing would hold a thread for ever.
        timeout = 60

        def do_GET(self):
            known = self.path == "/jwks"
            self._send(200 if known else 404, issuer.jwks() if known else {})

        def do_POST(self):
            length = int(self.headers["content-length"])
            form = dict(urllib.parse.parse_qsl(self.rfile.read(length).decode()))
            headers = {name.lower(): value for name, value in self.headers.items()}
            try:
                self._send(200, issuer.answer(TokenRequest(form, headers)))
            except RefusalError as refused:
                description = {"error_description": refused.description}
                self._send(refused.status, {"error": refused.error, **description})

        def _send(self, status, document):
            body = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments):
            pass

    return Handler
