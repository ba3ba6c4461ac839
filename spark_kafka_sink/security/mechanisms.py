r"""SASL mechanisms PLAIN, SCRAM and OAUTHBEARER: conversations of bytes, without I/O.

``security.py`` chooses the mechanism. ``kerberos.py`` has GSSAPI, ``aws.py`` AWS_MSK_IAM. No error
of this module contains a password.

PLAIN is one message, ``NUL name NUL password`` in UTF-8, without an authorization id.

With SCRAM the client proves that it knows the password, and so does the broker::

    client-first   n,,n=<name>,r=<nonce>[,tokenauth=true]
    server-first   r=<nonce><more>,s=<salt>,i=<iterations>
    client-final   c=biws,r=<nonce><more>,p=<proof>
    server-final   v=<signature>, or e=<error>

Kafka has neither channel binding nor SASLprep. ``tokenauth`` says that the name is the id of a
delegation token, and the password its HMAC.

OAUTHBEARER is a bearer token, and extensions, in one message::

    client   n,,\x01auth=Bearer <token>[\x01<key>=<value>]…\x01\x01
    broker   nothing, or the refusal as JSON, which the client answers with \x01

After that \x01 the broker answers with an error code and the same text, and closes.

Source: RFC 4616, RFC 5802, RFC 7677, RFC 7628; ``PlainSaslServer``, ``ScramSaslClient``,
``ScramMessages``, ``ScramFormatter``, ``OAuthBearerSaslClient``,
``OAuthBearerClientInitialResponse`` of Kafka.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from collections.abc import Callable, Mapping
from enum import Enum
from typing import NamedTuple

from spark_kafka_sink.base.errors import AuthenticationError, ConfigError
from spark_kafka_sink.base.text import Credential, Secret, redacted

# --- names and passwords as bytes ----------------------------------------------------------------


def encode_utf8(text: str, what: str) -> bytes:
    """Return ``text`` in UTF-8, without SASLprep, as Kafka does.

    what: the name of the text in the error

    Bytes of an environment variable that are not UTF-8 are sent unchanged.
    """
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        # Omit the cause, which quotes the text.
        raise AuthenticationError(
            f"{what} holds a character that UTF-8 does not have", code="AUTH-020"
        ) from None


def unexpected_challenge(mechanism: str) -> AuthenticationError:
    """Return the error for a broker that continues after the mechanism's last message."""
    return AuthenticationError(
        f"the broker goes on with SASL {mechanism} after the conversation has ended: it does not "
        "speak this mechanism as Kafka does",
        code="AUTH-010",
    )


# --- PLAIN ---------------------------------------------------------------------------------------

NUL = "\0"


class PlainSaslClient:
    """Authentication with PLAIN: name and password in clear text."""

    configured = mechanism = "PLAIN"

    def __init__(self, username: str, password: Secret) -> None:
        if NUL in username or NUL in password.reveal():
            raise AuthenticationError(
                "SASL PLAIN cannot send the character U+0000, which ends the user name: it stands "
                "in the user name or in the password",
                code="AUTH-020",
            )
        self._username = username
        self._password = Credential(password.reveal())
        self._is_complete = False

    def initial_response(self) -> bytes:
        name = encode_utf8(self._username, "the user name")
        return b"\0" + name + b"\0" + encode_utf8(self._password.reveal(), "the password")

    def evaluate_challenge(self, challenge: bytes) -> bytes | None:
        """Accept the broker's answer; its bytes are ignored, as in Java."""
        if self._is_complete:
            raise unexpected_challenge(self.mechanism)
        self._is_complete = True
        return None


# --- SCRAM ---------------------------------------------------------------------------------------

HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
"""Mechanism -> name of its hash in ``hashlib``."""

LEAST_ITERATIONS = 4096
MOST_ITERATIONS = 65_536
"""Four times what Kafka's brokers store at most. A false broker, which has proved nothing yet, can
occupy a thread for less than 0.1 s."""

_GS2_HEADER = "n,,"
# Extensions are ",name=value", repeated. A message with a mandatory extension begins with "m=" and
# matches neither pattern.
_EXTENSIONS = rb"(?:,[A-Za-z]+=[\x01-\x7f]*)?"
_BASE64 = rb"[A-Za-z0-9+/]+={0,2}"
_SERVER_FIRST = re.compile(
    rb"r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+),s=(?P<salt>" + _BASE64 + rb"),i=(?P<iterations>\d{1,9})"
    rb"" + _EXTENSIONS
)
_SERVER_FINAL = re.compile(
    rb"(?:e=(?P<error>[\x01-\x2b\x2d-\x7f]+)|v=(?P<signature>" + _BASE64 + rb"))" + _EXTENSIONS
)


class ScramUser(NamedTuple):
    """A user's name and password.

    is_token: a delegation token, by its id and HMAC
    """

    username: str
    password: Secret
    is_token: bool = False


class _ScramState(Enum):
    BEGIN = "nothing is sent"
    FIRST_SENT = "client-first is sent"
    FINAL_SENT = "client-final is sent"
    COMPLETE = "the broker has proved that it knows the password"


def new_nonce() -> str:
    """Return 144 random bits in printable characters without a comma."""
    return secrets.token_urlsafe(18)


class ScramSaslClient:
    """One authentication with SCRAM-SHA-256 or SCRAM-SHA-512."""

    def __init__(
        self, mechanism: str, user: ScramUser, nonce: Callable[[], str] = new_nonce
    ) -> None:
        self.configured = self.mechanism = mechanism
        self._hash = HASHES[mechanism]
        self._password = Credential(user.password.reveal())
        self._nonce = nonce()
        name = user.username.replace("=", "=3D").replace(",", "=2C")
        extension = ",tokenauth=true" if user.is_token else ""
        first_bare = f"n={name},r={self._nonce}{extension}"
        self._first_bare = encode_utf8(first_bare, "the user name")
        self._server_signature = b""
        self._state = _ScramState.BEGIN

    def initial_response(self) -> bytes:
        self._state = _ScramState.FIRST_SENT
        return _GS2_HEADER.encode() + self._first_bare

    def evaluate_challenge(self, challenge: bytes) -> bytes | None:
        """Return client-final for server-first; None for a server-final with a valid signature."""
        if self._state is _ScramState.FIRST_SENT:
            answer = self._client_final(challenge)
            self._state = _ScramState.FINAL_SENT
            return answer
        if self._state is _ScramState.FINAL_SENT:
            self._check_final(challenge)
            self._state = _ScramState.COMPLETE
            return None
        raise unexpected_challenge(self.mechanism)

    def _client_final(self, server_first: bytes) -> bytes:
        """Check nonce and iterations, and return client-final, whose proof covers all messages."""
        found = _SERVER_FIRST.fullmatch(server_first)
        salt = None if found is None else _decoded(found["salt"])
        if found is None or salt is None:
            raise self._wrong("the broker's first message is not of the form of SCRAM")
        nonce, iterations = found["nonce"].decode("ascii"), int(found["iterations"])
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise self._wrong("the broker's nonce does not begin with the client's")
        if not LEAST_ITERATIONS <= iterations <= MOST_ITERATIONS:
            raise self._wrong(
                f"the broker asks for {iterations} iterations, and only {LEAST_ITERATIONS} to "
                f"{MOST_ITERATIONS} are accepted; kafka-configs.sh --alter --add-config "
                f"'{self.mechanism}=[iterations=4096,password=…]' sets them for a user"
            )
        channel = base64.b64encode(_GS2_HEADER.encode()).decode()
        without_proof = f"c={channel},r={nonce}".encode("ascii")
        signed = b",".join((self._first_bare, server_first, without_proof))
        proof = self._proof(salt, iterations, signed)
        return without_proof + b",p=" + base64.b64encode(proof)

    def _proof(self, salt: bytes, iterations: int, signed: bytes) -> bytes:
        """Return ClientProof, and keep ServerSignature to compare it with the broker's."""
        password = encode_utf8(self._password.reveal(), "the password")
        salted = hashlib.pbkdf2_hmac(self._hash, password, salt, iterations)
        client_key = self._hmac(salted, b"Client Key")
        stored_key = hashlib.new(self._hash, client_key).digest()
        self._server_signature = self._hmac(self._hmac(salted, b"Server Key"), signed)
        signature = self._hmac(stored_key, signed)
        return bytes(a ^ b for a, b in zip(client_key, signature))

    def _check_final(self, server_final: bytes) -> None:
        found = _SERVER_FINAL.fullmatch(server_final)
        if found is None:
            raise self._wrong("the broker's last message is not of the form of SCRAM")
        if found["error"] is not None:
            words = redacted(found["error"].decode("ascii"))
            raise self._wrong(f"the broker answers: {words}", "AUTH-009")
        signature = _decoded(found["signature"])
        if signature is None or not hmac.compare_digest(signature, self._server_signature):
            raise self._wrong(
                "the broker's signature is wrong, so the server does not know the password of "
                "this user. Check kafka.bootstrap.servers, and which program listens there"
            )

    def _hmac(self, key: bytes, data: bytes) -> bytes:
        return hmac.new(key, data, self._hash).digest()

    def _wrong(self, what: str, code: str = "AUTH-010") -> AuthenticationError:
        return AuthenticationError(f"SASL {self.mechanism} failed: {what}", code=code)


def _decoded(text: bytes) -> bytes | None:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        return None


# --- OAUTHBEARER ---------------------------------------------------------------------------------

SEPARATOR = "\x01"
EXTENSION_PREFIX = "extension_"
RESERVED = "auth"

_KEY = re.compile(r"[A-Za-z]+")
_VALUE = re.compile(r"[\x21-\x7e \t\r\n]+")
_TOKEN = re.compile(r"[-_~+/.a-zA-Z0-9]+=*")


class _OAuthBearerState(Enum):
    BEGIN = "nothing is sent"
    TOKEN_SENT = "the token is sent"
    REFUSED = "the broker has refused, and was answered"
    COMPLETE = "the broker has accepted"


class OAuthBearerSaslClient:
    """Authentication with one token.

    extensions: of the JAAS options ``extension_<key>``, checked
    configured: the value of kafka.sasl.mechanism
    """

    mechanism = "OAUTHBEARER"

    def __init__(
        self, token: Secret, extensions: Mapping[str, str], configured: str = "OAUTHBEARER"
    ) -> None:
        self.configured = configured
        if not _TOKEN.fullmatch(token.reveal()):
            raise AuthenticationError(
                "the token cannot be sent: it may hold letters, digits and - . _ ~ + / only, and "
                "= at its end (RFC 6750)",
                code="AUTH-020",
            )
        self._token = Credential(token.reveal())
        self._extensions = dict(extensions)
        self._refusal = ""
        self._state = _OAuthBearerState.BEGIN

    def initial_response(self) -> bytes:
        """Return the token, which is the only message unless the broker rejects it."""
        self._state = _OAuthBearerState.TOKEN_SENT
        extensions = "".join(f"{SEPARATOR}{k}={v}" for k, v in self._extensions.items())
        text = f"n,,{SEPARATOR}auth=Bearer {self._token.reveal()}{extensions}{SEPARATOR}{SEPARATOR}"
        return text.encode("ascii")

    def evaluate_challenge(self, challenge: bytes) -> bytes | None:
        r"""Return None if the broker accepts with an empty message; ``\x01`` for a JSON error."""
        if self._state is _OAuthBearerState.TOKEN_SENT and not challenge:
            self._state = _OAuthBearerState.COMPLETE
            return None
        if self._state is _OAuthBearerState.TOKEN_SENT:
            self._refusal = redacted(challenge.decode("utf-8", "replace"))
            self._state = _OAuthBearerState.REFUSED
            return SEPARATOR.encode()
        if self._state is _OAuthBearerState.REFUSED:
            raise AuthenticationError(
                f"the broker refuses the token: {self._refusal}. The reason stands in the broker's "
                "log: audience, issuer, signature or expiry",
                code="AUTH-011",
            )
        raise unexpected_challenge(self.mechanism)


def extensions_of(options: Mapping[str, str]) -> dict[str, str]:
    """Return the SASL extensions of JAAS options. Raises ConfigError, which shows no value."""
    extensions: dict[str, str] = {}
    for name, value in options.items():
        if not name.startswith(EXTENSION_PREFIX):
            continue
        key = name.removeprefix(EXTENSION_PREFIX)
        if not _KEY.fullmatch(key) or key == RESERVED:
            raise ConfigError(
                f"kafka.sasl.jaas.config has an option that begins with '{EXTENSION_PREFIX}' and "
                f"goes on with other than letters, or with '{RESERVED}'",
                code="AUTH-007",
            )
        if not _VALUE.fullmatch(value):
            raise ConfigError(
                f"kafka.sasl.jaas.config: the value of '{EXTENSION_PREFIX}{key}' must hold at "
                "least one character, and printable ASCII only",
                code="AUTH-007",
            )
        extensions[key] = value
    return extensions
