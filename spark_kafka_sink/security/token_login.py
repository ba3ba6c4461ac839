"""The login of OAUTHBEARER: one token, kept and renewed, and the extensions of JAAS."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from spark_kafka_sink.base.backoff import RandomSource
from spark_kafka_sink.base.errors import AuthenticationError, ConfigError
from spark_kafka_sink.config.reference_syntax import has_reference
from spark_kafka_sink.config.security_config import SaslConfig, SslConfig
from spark_kafka_sink.protocol.sasl import Conversation
from spark_kafka_sink.security.credentials import known_entry, login_options
from spark_kafka_sink.security.mechanisms.oauthbearer import (
    EXTENSION_PREFIX,
    OAuthBearerConversation,
    extensions_of,
)
from spark_kafka_sink.security.oauth.choice import check_oauth
from spark_kafka_sink.security.oauth.endpoint import Tls
from spark_kafka_sink.security.oauth.keeper import Surroundings, TokenKeeper
from spark_kafka_sink.security.oauth.retrieval import TokenRetrieval, endpoint_ssl
from spark_kafka_sink.security.oauth.retry import Waiting
from spark_kafka_sink.security.references import resolve


class TokenLogin:
    """OAUTHBEARER. ``on_close``: ends the pauses of a retrieval."""

    mechanism = "OAUTHBEARER"

    def __init__(
        self,
        config: SaslConfig,
        waiting: Waiting,
        rng: RandomSource,
        on_close: Callable[[], None],
    ) -> None:
        self._config = config
        self._on_close = on_close
        retrieval = TokenRetrieval(config, waiting, endpoint_tls, resolve)
        self._keeper = TokenKeeper(retrieval.fetch, config.login, Surroundings(waiting.clock, rng))

    def prepare(self, timeout_ms: int, hosts: Sequence[str] = ()) -> None:
        self._keeper.prepare(timeout_ms)

    def converse(self, host: str) -> Conversation:
        token = self._keeper.token()
        try:
            # Those alone: a secret that cannot be read now is needed for the next token only.
            options = login_options(self._config, prefix=EXTENSION_PREFIX)
            extensions = extensions_of(options)
        except ConfigError as error:
            raise AuthenticationError(str(error)) from None
        return OAuthBearerConversation(token, extensions)

    def identity(self) -> None:
        """Nothing that is replaced from outside."""

    def close(self) -> None:
        self._keeper.close()
        self._on_close()


def endpoint_tls(config: SslConfig) -> Tls:
    """TLS as the token endpoint's own options have it."""
    from spark_kafka_sink.security.tls import TlsContext
    from spark_kafka_sink.security.tls_errors import TOKEN_ENDPOINT

    tls = TlsContext(config, TOKEN_ENDPOINT, _as_it_is)
    return Tls(tls.context, tls.explain)


def _as_it_is(text: str, _: str) -> str:
    """For TLS of the token endpoint: the references of JAAS options are resolved before."""
    return text


def check_token_options(config: SaslConfig) -> None:
    """All that is known before a token is fetched. Raises ConfigError."""
    entry = known_entry(config)
    has_jaas = config.jaas_config is not None
    options = entry.options if entry is not None else None if has_jaas else {}
    check_oauth(config.oauth, options)
    if options is None:
        return
    known = {name: value for name, value in options.items() if not has_reference(value)}
    extensions_of(known)
    if known == options:
        endpoint_ssl(options)
