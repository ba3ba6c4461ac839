"""What is made for a secured listener: keys, files, brokers' settings and clients' options."""

from __future__ import annotations

import base64
import hashlib
import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path

from spark_kafka_sink.localkafka.certificates import LOCAL_HOSTS, Authority, write_private
from spark_kafka_sink.localkafka.errors import LocalKafkaError
from spark_kafka_sink.localkafka.security import LocalOAuth, LocalSecurity

_MODULES = "org.apache.kafka.common.security"
_OAUTH = f"{_MODULES}.oauthbearer"
_OAUTH_URLS = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
_SCRAM_HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_SCRAM_ITERATIONS = 4096
_SALT_BYTES = 16


class SecuredListener:
    """Files are made in ``folder``, which nobody else may read, and stay where they are."""

    def __init__(self, name: str, security: LocalSecurity, folder: Path) -> None:
        self.name = name
        self.security = security
        self._folder = folder / f"security-{name.lower()}"
        self._folder.mkdir(mode=0o700)
        if security.has_tls:
            self._write_certificates(security.authority or Authority(key_type=security.key_type))

    @property
    def authority_file(self) -> Path:
        """What clients trust, PEM."""
        return self._folder / "authority.pem"

    @property
    def broker_file(self) -> Path:
        """The brokers' key and certificates, PEM."""
        return self._folder / "broker.pem"

    def user_file(self, user: str) -> Path:
        """A user's key and certificates, PEM."""
        return self._folder / f"user-{user}.pem"

    def _write_certificates(self, authority: Authority) -> None:
        key_type = self.security.key_type
        write_private(self.authority_file, authority.pem)
        broker = authority.issue("broker", LOCAL_HOSTS, key_type)
        write_private(self.broker_file, broker.pem())
        if self.security.client_auth != "none":
            for user in self.security.users:
                identity = authority.issue(user, key_type=key_type)
                write_private(self.user_file(user), identity.pem())

    # --- for brokers ---------------------------------------------------------------------------

    def broker_properties(self) -> dict[str, str]:
        """Settings with the listener's prefix."""
        own = {**self._tls_of_brokers(), **self._sasl_of_brokers(), **self.security.properties}
        return {f"listener.name.{self.name.lower()}.{key}": value for key, value in own.items()}

    def called_urls(self) -> list[str]:
        """What brokers, and clients on a JVM, call."""
        oauth = self.security.oauth
        return [] if oauth is None else [oauth.jwks_url, oauth.token_url]

    def scram_credentials(self) -> list[str]:
        """Each user's, as ``kafka-storage format --add-scram`` takes it; no password in clear."""
        if not self.security.has_sasl:
            return []
        return [
            _scram_credential(mechanism, user, password)
            for mechanism in self.security.mechanisms
            if mechanism in _SCRAM_HASHES
            for user, password in self.security.users.items()
        ]

    def _tls_of_brokers(self) -> dict[str, str]:
        if not self.security.has_tls:
            return {}
        return {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.broker_file),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority_file),
            "ssl.client.auth": self.security.client_auth,
        }

    def _sasl_of_brokers(self) -> dict[str, str]:
        if not self.security.has_sasl:
            return {}
        properties = {"sasl.enabled.mechanisms": ",".join(self.security.mechanisms)}
        for mechanism in self.security.mechanisms:
            own = _mechanism_of_brokers(mechanism, self.security)
            properties.update({f"{mechanism.lower()}.{key}": value for key, value in own.items()})
        return properties

    # --- for clients ---------------------------------------------------------------------------

    def client_properties(self, user: str | None, mechanism: str | None) -> dict[str, str]:
        """What a client of Kafka's needs besides the address."""
        users = self.security.users
        name = next(iter(users)) if user is None else user
        if name not in users:
            raise LocalKafkaError(f"there is no user {name}, only {', '.join(users)}")
        properties = {"security.protocol": self.security.protocol}
        if self.security.has_tls:
            properties["ssl.truststore.type"] = "PEM"
            properties["ssl.truststore.location"] = str(self.authority_file)
            if self.security.client_auth != "none":
                properties["ssl.keystore.type"] = "PEM"
                properties["ssl.keystore.location"] = str(self.user_file(name))
        if self.security.has_sasl:
            chosen = self.security.mechanisms[0] if mechanism is None else mechanism
            properties.update(_mechanism_of_clients(chosen, self.security, name))
        return properties


def allowed_urls(listeners: Iterable[SecuredListener]) -> list[str]:
    """JVM options: Kafka 3.9.1 and newer call no other URLs than those."""
    urls = [url for listener in listeners for url in listener.called_urls()]
    return [f"-D{_OAUTH_URLS}={','.join(urls)}"] if urls else []


def jaas_config(module: str, options: Mapping[str, str]) -> str:
    """The text of ``sasl.jaas.config``. ``module``: its class."""
    escaped = {k: v.replace("\\", "\\\\").replace('"', '\\"') for k, v in options.items()}
    return " ".join([module, "required", *(f'{k}="{v}"' for k, v in escaped.items())]) + ";"


def _mechanism_of_brokers(mechanism: str, security: LocalSecurity) -> dict[str, str]:
    if mechanism == "PLAIN":
        passwords = {f"user_{user}": password for user, password in security.users.items()}
        return {"sasl.jaas.config": jaas_config(f"{_MODULES}.plain.PlainLoginModule", passwords)}
    if mechanism in _SCRAM_HASHES:
        return {"sasl.jaas.config": jaas_config(f"{_MODULES}.scram.ScramLoginModule", {})}
    if mechanism == "OAUTHBEARER":
        assert security.oauth is not None
        return _oauth_of_brokers(security.oauth)
    return {}


def _oauth_of_brokers(oauth: LocalOAuth) -> dict[str, str]:
    return {
        "sasl.jaas.config": jaas_config(f"{_OAUTH}.OAuthBearerLoginModule", {}),
        "sasl.server.callback.handler.class": f"{_OAUTH}.OAuthBearerValidatorCallbackHandler",
        "sasl.oauthbearer.jwks.endpoint.url": oauth.jwks_url,
        "sasl.oauthbearer.expected.issuer": oauth.issuer,
        "sasl.oauthbearer.expected.audience": oauth.audience,
    }


def _mechanism_of_clients(mechanism: str, security: LocalSecurity, user: str) -> dict[str, str]:
    properties = {"sasl.mechanism": mechanism}
    password = security.users[user]
    if mechanism == "PLAIN" or mechanism in _SCRAM_HASHES:
        module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
        login = {"username": user, "password": password}
        properties["sasl.jaas.config"] = jaas_config(f"{_MODULES}.{module}", login)
    elif mechanism == "OAUTHBEARER":
        assert security.oauth is not None
        login = {"clientId": user, "clientSecret": password}
        properties |= {
            "sasl.jaas.config": jaas_config(f"{_OAUTH}.OAuthBearerLoginModule", login),
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
