"""Fetches one token, by the way that the options ask for. Every reference and file is read anew."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

from spark_kafka_sink.base.errors import (
    AuthenticationError,
    ConfigError,
    CredentialsUnavailableError,
)
from spark_kafka_sink.base.secret import Secret
from spark_kafka_sink.config.security_config import OAuthConfig, SaslConfig, SslConfig
from spark_kafka_sink.config.security_keys import RESOLVED_SSL_CONFIG
from spark_kafka_sink.config.security_rules import parse_ssl
from spark_kafka_sink.security.credentials import Resolve, login_options
from spark_kafka_sink.security.jaas import OPTION as JAAS
from spark_kafka_sink.security.jaas import shown
from spark_kafka_sink.security.oauth.choice import (
    URL_OPTION,
    Client,
    Way,
    client_of,
    losers,
    path_of_file_url,
    resolved,
    way_of,
)
from spark_kafka_sink.security.oauth.endpoint import Tls, TokenEndpoint, TokenRequest
from spark_kafka_sink.security.oauth.files import read_text
from spark_kafka_sink.security.oauth.requests import (
    assertion_request,
    jwt_bearer_request,
    secret_request,
)
from spark_kafka_sink.security.oauth.retry import Waiting
from spark_kafka_sink.security.oauth.token import ClaimNames, Token, token_of_jwt
from spark_kafka_sink.security.oauth.token_provider import provided_token

logger = logging.getLogger(__name__)

_SSL = "ssl."
_LOCAL = ("localhost", "127.0.0.1", "::1")


class TokenRetrieval:
    """Tokens for one SaslConfig with mechanism OAUTHBEARER."""

    def __init__(
        self,
        config: SaslConfig,
        waiting: Waiting,
        make_tls: Callable[[SslConfig], Tls],
        resolve: Resolve,
    ) -> None:
        self._config = config
        self._waiting = waiting
        self._make_tls = make_tls
        self._resolve = resolve
        self._tls: dict[SslConfig, Tls] = {}
        self._has_warned = False

    def fetch(self, timeout_ms: int) -> Token:
        """A new token. Waits for it.

        Raises AuthenticationError; CredentialsUnavailableError if it may be tried again.
        """
        try:
            options = login_options(self._config, self._resolve)
            oauth = resolved(self._config.oauth, self._resolve)
            self._warn_once(oauth, options)
            token = self._fetch(oauth, options, timeout_ms)
        except ConfigError as error:
            raise AuthenticationError(str(error)) from None
        late_ms = self._waiting.clock.timestamp_ms() - token.expires_at_ms
        if late_ms >= 0:
            raise CredentialsUnavailableError(
                f"the token of {URL_OPTION} expired {late_ms // 1000} s ago: check this machine's "
                "clock and the issuer's, or who renews the file"
            )
        return token

    def _fetch(self, oauth: OAuthConfig, options: Mapping[str, str], timeout_ms: int) -> Token:
        names = ClaimNames(oauth.scope_claim_name, oauth.sub_claim_name)
        if oauth.token_provider is not None:
            return provided_token(oauth.token_provider, names)
        if oauth.token_endpoint_url is None:
            raise ConfigError(f"{URL_OPTION} is missing")
        way = way_of(oauth)
        if way is Way.FILE:
            path = path_of_file_url(oauth.token_endpoint_url)
            text = read_text(oauth.token_endpoint_url.strip(), URL_OPTION)
            return token_of_jwt(text, names, f"the file {path}")
        endpoint = TokenEndpoint(
            oauth.token_endpoint_url, self._tls_of(options), self._config.login, self._waiting
        )
        request = self._request(way, client_of(oauth, options, way), oauth)
        return token_of_jwt(endpoint.fetch(request, timeout_ms), names, endpoint.name)

    def _request(self, way: Way, client: Client, oauth: OAuthConfig) -> TokenRequest:
        if way is Way.SECRET:
            return secret_request(client, oauth.header_urlencode)
        # Here, for only assertions need the package cryptography.
        from spark_kafka_sink.security.oauth.assertion import assertion

        signed: Secret = assertion(oauth.assertion, self._waiting.clock.timestamp_ms())
        if way is Way.JWT_BEARER:
            return jwt_bearer_request(client, signed)
        return assertion_request(client, signed)

    def _tls_of(self, options: Mapping[str, str]) -> Tls:
        """Kept while the options stay the same: it looks after its files itself."""
        config = endpoint_ssl(options)
        if config not in self._tls:
            self._tls = {config: self._make_tls(config)}
        return self._tls[config]

    def _warn_once(self, oauth: OAuthConfig, options: Mapping[str, str]) -> None:
        if not self._has_warned:
            self._has_warned = True
            for sentence in losers(oauth, options):
                logger.warning(sentence)
            if sends_in_clear(oauth):
                logger.warning(
                    f"{URL_OPTION} begins with http:, so the client's credentials and the tokens "
                    "can be read by whoever is on the way: use https:"
                )


def endpoint_ssl(options: Mapping[str, str]) -> SslConfig:
    """TLS of the token endpoint, which has the JAAS options ``ssl.*``. Raises ConfigError.

    options: with their references resolved
    """
    given = {name: value for name, value in options.items() if name.startswith(_SSL)}
    unknown = [name for name in given if name not in RESOLVED_SSL_CONFIG.keys]
    if unknown:
        raise ConfigError(f"{JAAS}: {shown(unknown[0])} that begins with '{_SSL}' is not known")
    try:
        return parse_ssl(RESOLVED_SSL_CONFIG.parse(given))
    except ConfigError as error:
        named = str(error).replace("kafka.ssl.", _SSL)
        raise ConfigError(f"{JAAS}, for the token endpoint: {named}") from None


def sends_in_clear(oauth: OAuthConfig) -> bool:
    """Whether credentials leave this machine without TLS."""
    if oauth.token_provider is not None or oauth.token_endpoint_url is None:
        return False
    try:
        url = urlsplit(oauth.token_endpoint_url.strip())
    except ValueError:
        return False
    return url.scheme == "http" and url.hostname not in _LOCAL
