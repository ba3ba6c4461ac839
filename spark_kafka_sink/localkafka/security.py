"""Security of a local Kafka: the requested settings, and what a secured listener needs for them.

The module creates keys, files, brokers' settings and clients' options.
"""

from __future__ import annotations

import base64
import hashlib
import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Union

from spark_kafka_sink.base.machine import write_private
from spark_kafka_sink.base.model import dataclass
from spark_kafka_sink.localkafka.settings import LocalKafkaError

if TYPE_CHECKING:
    from spark_kafka_sink.localkafka.certificates import Authority, KeyType

SECURED_LISTENER = "SECURED"
"""The default name of a single secured listener."""

AUTHORIZER: Mapping[str, str] = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    # The brokers themselves, and every client of the listener without security.
    "super.users": "User:ANONYMOUS",
}
"""Server properties for ACLs: a user who logs in may do only what an ACL allows."""

_PROTOCOLS = ("SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI")
_USER_NAME = re.compile(r"[A-Za-z0-9._-]+")
_PASSWORD_BYTES = 16


@dataclass(frozen=True, slots=True)
class LocalOAuth:
    """An issuer of tokens; brokers fetch its keys (JWKS), and clients fetch tokens.

    Clients log in with a user's name and password as client id and secret.
    """

    token_url: str
    jwks_url: str
    issuer: str
    audience: str


def _one_user() -> Mapping[str, str]:
    return {"alice": secrets.token_urlsafe(_PASSWORD_BYTES)}


@dataclass(frozen=True)
class LocalSecurity:
    """One listener on every broker that admits only known clients.

    Its own authority signs the certificates. The listeners between brokers, and the listener for
    clients without security, stay unsecured on the loopback address.

    protocol: SSL, SASL_PLAINTEXT or SASL_SSL, in small letters too.
    mechanisms: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, GSSAPI; SCRAM-SHA-512 by default.
    users: passwords by name; by default one user, alice, with a generated password. With
        ``client_auth``, each user gets a certificate with the subject ``CN=<name>``.
    client_auth: certificates of clients: none, requested, required. Kafka's ``ssl.client.auth``.
    key_type: of the brokers' and the users' keys, EC or RSA.
    authority: signs the certificates instead of the listener's own authority.
    oauth: needed for OAUTHBEARER.
    properties: further settings of the listener, without its prefix; they override the generated
        settings: ``{"scram-sha-512.connections.max.reauth.ms": "15000"}``. GSSAPI takes its
        ``gssapi.sasl.jaas.config`` from here.
    """

    protocol: str = "SASL_SSL"
    mechanisms: Sequence[str] = ("SCRAM-SHA-512",)
    users: Mapping[str, str] = field(default_factory=_one_user, repr=False)
    client_auth: Literal["none", "requested", "required"] = "none"
    key_type: KeyType = "EC"
    authority: Authority | None = None
    oauth: LocalOAuth | None = None
    properties: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "protocol", self.protocol.upper())
        _check_one_of("protocol", self.protocol, _PROTOCOLS)
        _check_one_of("client_auth", self.client_auth, ("none", "requested", "required"))
        for mechanism in self.mechanisms:
            _check_one_of("mechanism", mechanism, _MECHANISMS)
        for name in self.users:
            if not _USER_NAME.fullmatch(name):
                raise ValueError(f"'{name}' is not a user's name: letters, digits, dots, _ and -")
        if self.has_sasl and "OAUTHBEARER" in self.mechanisms and self.oauth is None:
            raise ValueError("OAUTHBEARER needs oauth=LocalOAuth(...): who issues tokens")

    @property
    def has_tls(self) -> bool:
        return self.protocol in ("SSL", "SASL_SSL")

    @property
    def has_sasl(self) -> bool:
        return self.protocol in ("SASL_PLAINTEXT", "SASL_SSL")


Secured = Union[str, LocalSecurity, Mapping[str, LocalSecurity]]
"""A protocol, one listener, or several by name."""


def listeners_of(security: Secured | None) -> dict[str, LocalSecurity]:
    """Return the requested listeners by name. Raises ValueError for an unknown protocol."""
    if security is None:
        return {}
    if isinstance(security, str):
        return {SECURED_LISTENER: LocalSecurity(security)}
    if isinstance(security, LocalSecurity):
        return {SECURED_LISTENER: security}
    return dict(security)


def _check_one_of(what: str, value: str, known: Sequence[str]) -> None:
    if value not in known:
        raise ValueError(f"{what} '{value}' is none of {', '.join(known)}")


# --- the settings and files of a secured listener ------------------------------------------------

_KAFKA = "org.apache.kafka.common.security"
_OAUTH = f"{_KAFKA}.oauthbearer"
_OAUTH_URLS = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
_LOGIN_MODULES = {
    "PLAIN": f"{_KAFKA}.plain.PlainLoginModule",
    "SCRAM-SHA-256": f"{_KAFKA}.scram.ScramLoginModule",
    "SCRAM-SHA-512": f"{_KAFKA}.scram.ScramLoginModule",
    "OAUTHBEARER": f"{_OAUTH}.OAuthBearerLoginModule",
}
_SCRAM_HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_SCRAM_ITERATIONS = 4096
_SALT_BYTES = 16


class SecuredListener:
    """A secured listener. Its files, readable only for this user, stay in ``folder``.

    authority_file: PEM of the authority, the clients' trust store
    broker_file: PEM of the brokers' key and certificates
    """

    def __init__(self, name: str, security: LocalSecurity, folder: Path) -> None:
        self.name = name
        self.security = security
        self._folder = folder / f"security-{name.lower()}"
        self._folder.mkdir(mode=0o700)
        self.authority_file = self._folder / "authority.pem"
        self.broker_file = self._folder / "broker.pem"
        if security.has_tls:
            # Imported here because it loads the package cryptography.
            from spark_kafka_sink.localkafka.certificates import LOCAL_HOSTS, Authority

            key_type = security.key_type
            authority = security.authority or Authority(key_type=key_type)
            write_private(self.authority_file, authority.pem)
            broker = authority.issue("broker", LOCAL_HOSTS, key_type)
            write_private(self.broker_file, broker.pem())
            if security.client_auth != "none":
                for user in security.users:
                    write_private(
                        self.user_file(user), authority.issue(user, key_type=key_type).pem()
                    )

    def user_file(self, user: str) -> Path:
        """Return the PEM file of a user's key and certificates."""
        return self._folder / f"user-{user}.pem"

    def scram_credentials(self) -> list[str]:
        """Return ``kafka-storage format --add-scram`` arguments, without passwords in clear."""
        mechanisms = self.security.mechanisms if self.security.has_sasl else ()
        return [
            _scram_credential(mechanism, user, password)
            for mechanism in mechanisms
            if mechanism in _SCRAM_HASHES
            for user, password in self.security.users.items()
        ]

    def broker_properties(self) -> dict[str, str]:
        """Return the brokers' settings with the listener's prefix."""
        security = self.security
        own: dict[str, str] = {}
        if security.has_tls:
            own |= _pem_store("keystore", self.broker_file)
            own |= _pem_store("truststore", self.authority_file)
            own["ssl.client.auth"] = security.client_auth
        if security.has_sasl:
            own["sasl.enabled.mechanisms"] = ",".join(security.mechanisms)
            for mechanism in security.mechanisms:
                for key, value in _mechanism_of_brokers(mechanism, security).items():
                    own[f"{mechanism.lower()}.{key}"] = value
        own.update(security.properties)
        return {f"listener.name.{self.name.lower()}.{key}": value for key, value in own.items()}

    def client_properties(self, user: str | None, mechanism: str | None) -> dict[str, str]:
        """Return the client properties of a Kafka client, without the address."""
        security = self.security
        name = next(iter(security.users)) if user is None else user
        if name not in security.users:
            raise LocalKafkaError(
                f"there is no user {name}, only {', '.join(security.users)}", code="LOCAL-011"
            )
        properties = {"security.protocol": security.protocol}
        if security.has_tls:
            properties |= _pem_store("truststore", self.authority_file)
            if security.client_auth != "none":
                properties |= _pem_store("keystore", self.user_file(name))
        if security.has_sasl:
            chosen = security.mechanisms[0] if mechanism is None else mechanism
            properties |= _mechanism_of_clients(chosen, security, name)
        return properties


def allowed_urls(listeners: Iterable[SecuredListener]) -> list[str]:
    """Return JVM options: Kafka 3.9.1 and newer call no other URLs than those in them."""
    issuers = [one.security.oauth for one in listeners if one.security.oauth is not None]
    urls = [url for issuer in issuers for url in (issuer.jwks_url, issuer.token_url)]
    return [f"-D{_OAUTH_URLS}={','.join(urls)}"] if urls else []


def jaas_config(module: str, options: Mapping[str, str]) -> str:
    """Return the text of ``sasl.jaas.config``. ``module``: its class."""
    escaped = {k: v.replace("\\", "\\\\").replace('"', '\\"') for k, v in options.items()}
    return " ".join([module, "required", *(f'{k}="{v}"' for k, v in escaped.items())]) + ";"


def _pem_store(store: str, file: Path) -> dict[str, str]:
    return {f"ssl.{store}.type": "PEM", f"ssl.{store}.location": str(file)}


def _mechanism_of_brokers(mechanism: str, security: LocalSecurity) -> dict[str, str]:
    if mechanism not in _LOGIN_MODULES:
        return {}
    users = security.users.items() if mechanism == "PLAIN" else ()
    passwords = {f"user_{user}": password for user, password in users}
    properties = {"sasl.jaas.config": jaas_config(_LOGIN_MODULES[mechanism], passwords)}
    if mechanism == "OAUTHBEARER":
        assert security.oauth is not None
        properties |= {
            "sasl.server.callback.handler.class": f"{_OAUTH}.OAuthBearerValidatorCallbackHandler",
            "sasl.oauthbearer.jwks.endpoint.url": security.oauth.jwks_url,
            "sasl.oauthbearer.expected.issuer": security.oauth.issuer,
            "sasl.oauthbearer.expected.audience": security.oauth.audience,
        }
    return properties


def _mechanism_of_clients(mechanism: str, security: LocalSecurity, user: str) -> dict[str, str]:
    properties = {"sasl.mechanism": mechanism}
    if mechanism in _LOGIN_MODULES:
        is_oauth = mechanism == "OAUTHBEARER"
        names = ("clientId", "clientSecret") if is_oauth else ("username", "password")
        login = dict(zip(names, (user, security.users[user])))
        properties["sasl.jaas.config"] = jaas_config(_LOGIN_MODULES[mechanism], login)
    if mechanism == "OAUTHBEARER":
        assert security.oauth is not None
        properties |= {
            "sasl.login.callback.handler.class": f"{_OAUTH}.OAuthBearerLoginCallbackHandler",
            "sasl.oauthbearer.token.endpoint.url": security.oauth.token_url,
        }
    return properties


def _scram_credential(mechanism: str, user: str, password: str) -> str:
    salt = secrets.token_bytes(_SALT_BYTES)
    salted = hashlib.pbkdf2_hmac(
        _SCRAM_HASHES[mechanism], password.encode(), salt, _SCRAM_ITERATIONS
    )
    texts = {"salt": base64.b64encode(salt), "saltedpassword": base64.b64encode(salted)}
    quoted = ",".join(f'{key}="{text.decode()}"' for key, text in texts.items())
    return f"{mechanism}=[name={user},{quoted},iterations={_SCRAM_ITERATIONS}]"
