"""The headers that say who asks a schema registry. References are resolved for each query anew.

Source: ``UserInfoCredentialProvider``, ``OauthCredentialProvider`` of Confluent.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, unquote

from spark_kafka_sink.base.clock import Clock, pause
from spark_kafka_sink.base.errors import ConfigError, CredentialsUnavailableError, KafkaSinkError
from spark_kafka_sink.base.secret import Secret
from spark_kafka_sink.config.registry import BearerConfig, RegistryConfig
from spark_kafka_sink.config.security_config import (
    LoginConfig,
    OAuthConfig,
    SaslConfig,
    SslConfig,
)
from spark_kafka_sink.registry.errors import RegistryError, RegistryUnavailableError
from spark_kafka_sink.security.references import resolve

if TYPE_CHECKING:
    from spark_kafka_sink.security.tls import TlsContext

_BASIC = "schema.registry.basic.auth."
_BEARER = "schema.registry.bearer.auth."
ISSUER_OPTION = f"{_BEARER}issuer.endpoint.url"
# What the sink's own code for tokens calls its options, and what they are called here.
_OWN_NAMES = (
    ("kafka.sasl.oauthbearer.token.endpoint.url", ISSUER_OPTION),
    ("kafka.sasl.oauthbearer.client.credentials.client.id", f"{_BEARER}client.id"),
    ("kafka.sasl.oauthbearer.client.credentials.client.secret", f"{_BEARER}client.secret"),
    ("kafka.sasl.oauthbearer.scope", f"{_BEARER}scope"),
    (
        "kafka.sasl.login.connect.timeout.ms, kafka.sasl.login.read.timeout.ms",
        "schema.registry.timeout.ms",
    ),
)


def headers_of(
    config: RegistryConfig, url: SplitResult, tls: TlsContext, clock: Clock
) -> dict[str, Secret]:
    """By name.

    Raises RegistryError where a token is refused, RegistryUnavailableError where none can be had
    now, ConfigError for a reference, and for a text that no header can have, which is not shown.
    """
    if config.bearer is not None:
        return _bearer(config.bearer, config, tls, clock)
    if config.user_info is not None:
        text = resolve(config.user_info.reveal(), f"{_BASIC}user.info")
        return {"Authorization": _basic(text)}
    if url.username is not None:
        return {"Authorization": _basic(f"{unquote(url.username)}:{unquote(url.password or '')}")}
    return {}


def _basic(user_info: str) -> Secret:
    return Secret("Basic " + base64.b64encode(user_info.encode()).decode())


def _bearer(
    bearer: BearerConfig, config: RegistryConfig, tls: TlsContext, clock: Clock
) -> dict[str, Secret]:
    if bearer.token is not None:
        option = f"{_BEARER}token"
        token = resolve(bearer.token.reveal(), option).strip()
    else:
        option = ISSUER_OPTION
        token = _issued(bearer, config, tls, clock).reveal()
    headers = {"Authorization": _header(f"Bearer {token}", option)}
    if bearer.logical_cluster is not None:
        option = f"{_BEARER}logical.cluster"
        headers["target-sr-cluster"] = _header(bearer.logical_cluster, option)
    if bearer.identity_pool is not None:
        option = f"{_BEARER}identity.pool.id"
        headers["Confluent-Identity-Pool-Id"] = _header(bearer.identity_pool, option)
    return headers


def _header(text: str, option: str) -> Secret:
    """What may be sent in a header: Python's own error would show it."""
    if not (text.isascii() and text.isprintable()):
        raise ConfigError(
            f"{option} has a line break, or a character that is not of ASCII, which no header of "
            "HTTP can have: it must be one line"
        )
    return Secret(text)


def _issued(bearer: BearerConfig, config: RegistryConfig, tls: TlsContext, clock: Clock) -> Secret:
    """A token by client credentials, as those for brokers are had."""
    # Not above: only this way of asking needs them.
    from spark_kafka_sink.security.oauth.endpoint import Tls
    from spark_kafka_sink.security.oauth.keeper import Waiting
    from spark_kafka_sink.security.oauth.login import TokenRetrieval

    oauth = OAuthConfig(
        token_endpoint_url=bearer.issuer,
        client_id=bearer.client_id,
        client_secret=bearer.client_secret,
        scope=bearer.scope,
    )

    def tls_of(_: SslConfig) -> Tls:
        return Tls(tls.context, tls.explain)

    most_ms = config.request_timeout_ms
    login = LoginConfig(connect_timeout_ms=most_ms, read_timeout_ms=most_ms)
    sasl = SaslConfig("OAUTHBEARER", oauth=oauth, login=login)
    retrieval = TokenRetrieval(sasl, Waiting(clock, pause), tls_of, _resolved)
    try:
        return Secret(retrieval.fetch(config.timeout_ms).value.reveal())
    except KafkaSinkError as error:
        may_pass = isinstance(error, CredentialsUnavailableError)
        kind = RegistryUnavailableError if may_pass else RegistryError
        raise kind(f"no token for the schema registry: {_in_own_words(str(error))}") from None


def _resolved(text: str, option: str) -> str:
    return resolve(text, _in_own_words(option))


def _in_own_words(text: str) -> str:
    for theirs, own in _OWN_NAMES:
        text = text.replace(theirs, own)
    return text
