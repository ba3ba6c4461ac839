"""How a local Kafka is secured, as it is asked for."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Literal, Union

from spark_kafka_sink.base.dataclass import dataclass
from spark_kafka_sink.localkafka.certificates import Authority, KeyType

SECURED_LISTENER = "SECURED"
"""The name of the listener where only one is asked for."""

AUTHORIZER: Mapping[str, str] = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    # The brokers themselves, and whoever uses the listener without security.
    "super.users": "User:ANONYMOUS",
}
"""Server properties for rights by ACL: a user who logs in may do nothing that no ACL allows."""

_PROTOCOLS = ("SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI")
_USER_NAME = re.compile(r"[A-Za-z0-9._-]+")
_PASSWORD_BYTES = 16


@dataclass(frozen=True, slots=True)
class LocalOAuth:
    """An issuer of tokens, which the brokers ask for its keys (JWKS) and clients for a token.

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
    """One listener that only lets in who is known; on every broker.

    Certificates are made by an authority of its own. Listeners of brokers among each other stay
    without security, on the loopback address; so does the one for clients without security.

    protocol : SSL, SASL_PLAINTEXT or SASL_SSL, in small letters too.
    mechanisms : PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, GSSAPI; SCRAM-SHA-512 by default.
    users : passwords by name; by default one, alice, with a password made on the fly. With
        ``client_auth``, each gets a certificate with the subject ``CN=<name>``.
    client_auth : whether clients show a certificate: none, requested, required. Kafka's
        ``ssl.client.auth``.
    key_type : of the brokers' and the users' keys, EC or RSA.
    authority : that signs, instead of one of the listener's own.
    oauth : needed for OAUTHBEARER.
    properties : further settings of the listener, without its prefix, or replacing those made here:
        ``{"scram-sha-512.connections.max.reauth.ms": "15000"}``. GSSAPI takes its
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
    """By name, what is asked for. Raises ValueError for what does not exist."""
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
