"""Every way to log in, every form of a store, every version of TLS: options by a name.

The same table is written by the producer, by both of Spark's sinks, and searched for secrets.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from spark_kafka_sink.base.machine import write_private
from spark_kafka_sink.localkafka import LocalKafka, LocalKafkaError
from spark_kafka_sink.localkafka.certificates import Authority
from spark_kafka_sink.localkafka.security import jaas_config
from spark_kafka_sink.localkafka.settings import render_properties
from tests.patience import eventually
from tests.security.issuer import Issuer
from tests.security.listeners import MECHANISMS, SECRETS
from tests.security.stores import FORMS, Options, Stores

_SECURITY = "org.apache.kafka.common.security"
_OAUTH = f"{_SECURITY}.oauthbearer"
_SASL = "kafka.sasl.oauthbearer"


@dataclass(frozen=True)
class World:
    """What cases are made of. Files are made in ``folder``."""

    kafka: LocalKafka
    issuer: Issuer
    authority: Authority
    folder: Path

    def client(self, listener, mechanism=None):
        return self.kafka.client_options("alice", listener, mechanism)

    def stores(self, key_type):
        """Of alice, in a folder of their own, so that files are made once."""
        folder = self.folder / key_type
        folder.mkdir(exist_ok=True)
        return Stores(self.authority, self.authority.issue("alice", key_type=key_type), folder)


Case = Callable[[World], Options]


def _mechanism(listener, mechanism, world):
    return world.client(listener, mechanism)


def _name_and_password(mechanism, world):
    options = world.client("SASL_TLS", mechanism)
    del options["kafka.sasl.jaas.config"]
    login = {"kafka.sasl.username": "alice", "kafka.sasl.password": SECRETS["alice"]}
    return {**options, **login}


def _delegation_token(mechanism, world):
    options = {**world.client("SASL_TLS", mechanism), **new_delegation_token(world)}
    await_login(world, options)
    return options


def new_delegation_token(world):
    """How to log in with a new token of alice's, from Kafka's own tool."""
    file = world.folder / "client.properties"
    world.kafka.write_client_properties(file, "alice", "SASL_TLS")
    shown = world.kafka.run_tool(
        "DelegationTokenCommand",
        *("--bootstrap-server", world.kafka.bootstrap_servers_of("SASL_TLS")),
        *("--command-config", str(file), "--create", "--max-life-time-period", "-1"),
    )
    token_id, hmac = next(line for line in shown.splitlines() if "User:alice" in line).split()[:2]
    login = {"username": token_id, "password": hmac, "tokenauth": "true"}
    return {"kafka.sasl.jaas.config": jaas_config(f"{_SECURITY}.scram.ScramLoginModule", login)}


def await_login(world, options):
    """Until a tool of Kafka's that asks every broker is let in by each.

    Brokers learn of a token one after the other. `kafka-delegation-tokens --describe` cannot tell
    which of them knows it: it asks any one, and without an owner's name it asks for no token.
    """
    properties = {key.removeprefix("kafka."): value for key, value in options.items()}
    file = write_private(world.folder / "login.properties", render_properties(properties))
    servers = options["kafka.bootstrap.servers"]
    arguments = ("--bootstrap-server", servers, "--command-config", str(file))

    def is_let_in():
        try:
            shown = world.kafka.run_tool("BrokerApiVersionsCommand", *arguments)
        except LocalKafkaError:
            return False
        return shown.count("-> (") == len(servers.split(","))

    assert eventually(is_let_in)


def _oauth(world):
    """Without credentials."""
    options = world.client("SASL_TLS", "OAUTHBEARER")
    return {**options, "kafka.sasl.jaas.config": f"{_OAUTH}.OAuthBearerLoginModule required;"}


def _client_credentials(world):
    credentials = f"{_SASL}.client.credentials.client"
    return {
        **_oauth(world),
        f"{credentials}.id": "alice",
        f"{credentials}.secret": SECRETS["alice"],
        f"{_SASL}.scope": "kafka",
    }


def _token_in_a_file(algorithm, world):
    path = world.folder / f"token-{algorithm}"
    path.write_text(world.issuer.token("alice", algorithm))
    return {**_oauth(world), f"{_SASL}.token.endpoint.url": path.as_uri()}


def _signed_assertion(retriever, algorithm, world):
    identity = world.authority.issue("c", key_type="RSA" if algorithm == "RS256" else "EC")
    issuer_name = f"{retriever}-{algorithm}"
    world.issuer.assertion_keys[issuer_name] = identity.key.public_key()
    path = world.folder / f"{issuer_name}.pem"
    path.write_text(identity.private_key())
    return {
        **_oauth(world),
        f"{_SASL}.jwt.retriever.class": f"{_OAUTH}.{retriever}JwtRetriever",
        f"{_SASL}.assertion.algorithm": algorithm,
        f"{_SASL}.assertion.claim.iss": issuer_name,
        f"{_SASL}.assertion.claim.sub": "alice",
        f"{_SASL}.assertion.claim.aud": world.issuer.token_url,
        f"{_SASL}.assertion.private.key.file": str(path),
    }


def _stores(form, key_type, listener, world):
    return {
        "kafka.bootstrap.servers": world.kafka.bootstrap_servers_of(listener),
        "kafka.security.protocol": "SSL",
        **world.stores(key_type).options(form),
    }


def _tls(listener, changed, world):
    return world.client(listener) | {f"kafka.ssl.{key}": value for key, value in changed.items()}


_TLS = {
    "tls-1.2": ("TLS_12", {}),
    "tls-1.3": ("TLS_13", {}),
    "tls-1.2-alone": ("TLS_12", {"enabled.protocols": "TLSv1.2"}),
    "tls-1.3-alone": ("TLS_13", {"enabled.protocols": "TLSv1.3"}),
    "tls-1.2-by-protocol": ("TLS_12", {"protocol": "TLSv1.2"}),
    "tls-suite": ("TLS_12", {"cipher.suites": "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"}),
    "tls-no-host-check": ("WRONG_HOST", {"endpoint.identification.algorithm": ""}),
}
_KEY_TYPES = ("RSA", "EC")

CASES = {
    **{
        f"{listener}-{mechanism}": partial(_mechanism, listener, mechanism)
        for listener, mechanism in itertools.product(("SASL", "SASL_TLS"), MECHANISMS)
    },
    **{f"password-{m}": partial(_name_and_password, m) for m in ("PLAIN", "SCRAM-SHA-256")},
    **{f"token-{m}": partial(_delegation_token, m) for m in ("SCRAM-SHA-256", "SCRAM-SHA-512")},
    "oauth-client-credentials": _client_credentials,
    **{f"oauth-file-{a}": partial(_token_in_a_file, a) for a in ("RS256", "ES256")},
    **{
        f"oauth-{retriever}-{algorithm}": partial(_signed_assertion, retriever, algorithm)
        for retriever, algorithm in itertools.product(
            ("ClientCredentials", "JwtBearer"), ("RS256", "ES256")
        )
    },
    **{
        f"{form}-{key_type}-at-{listener}": partial(_stores, form, key_type, listener)
        for form, key_type in itertools.product(FORMS, _KEY_TYPES)
        for listener in ("MUTUAL_RSA", "MUTUAL_EC", "MUTUAL_12")
    },
    **{name: partial(_tls, *case) for name, case in _TLS.items()},
}

NOT_OF_JAVA = (
    "password-",
    # PBES2, which Java 17 does not know.
    *("pem-encrypted-RSA", "pem-encrypted-EC"),
    # Of a chain in one line, Java takes the last certificate alone.
    "pem-text-in-one-line",
)
"""Cases, by how they begin, that Java's client does not have, or does not read."""
