"""The login of OAUTHBEARER: one token, kept and renewed, and the extensions of JAAS.

The options choose how a token is fetched. Every reference and file is read again for each token.

The user's own code, ``kafka.sasl.oauthbearer.token.provider``, is a callable without arguments. It
returns a JWT, or any token together with its expiry in seconds since 1970-01-01 UTC, as
confluent-kafka's ``oauth_cb`` does. docs/your-own-code.md has an example. The sink calls it on the
driver and in Spark's Python workers, in a thread of its own, whenever a token is needed. If it
raises, the sink retries.

Source: ``ClientSecretRequestFormatter``, ``ClientAssertionRequestFormatter``,
``JwtBearerRequestFormatter`` of Kafka; RFC 6749, RFC 7523.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote_plus, urlsplit

from spark_kafka_sink.base.clock import RandomSource
from spark_kafka_sink.base.entry_points import load, raised_at
from spark_kafka_sink.base.errors import (
    AuthenticationError,
    ConfigError,
    CredentialsUnavailableError,
    warn,
)
from spark_kafka_sink.base.text import Secret, redacted
from spark_kafka_sink.config.config_def import has_reference
from spark_kafka_sink.config.security_config import OAuthConfig, SaslConfig, SslConfig, parse_ssl
from spark_kafka_sink.config.security_keys import RESOLVED_SSL_CONFIG
from spark_kafka_sink.protocol.connection import SaslClient
from spark_kafka_sink.security.credentials import OPTION as JAAS
from spark_kafka_sink.security.credentials import (
    Login,
    login_options,
    shown_word,
    unresolved_jaas_entry,
)
from spark_kafka_sink.security.mechanisms import (
    EXTENSION_PREFIX,
    OAuthBearerSaslClient,
    encode_utf8,
    extensions_of,
)
from spark_kafka_sink.security.oauth_endpoint import (
    URL_OPTION,
    Client,
    TokenEndpoint,
    TokenRequest,
    TokenSource,
    check_oauth,
    client_of,
    overridden_options,
    path_of_file_url,
    resolved,
    token_source_of,
)
from spark_kafka_sink.security.oauth_tokens import (
    RetryTimer,
    Token,
    TokenKeeper,
    assertion,
    token_of_jwt,
)
from spark_kafka_sink.security.references import Resolve, authentication_errors, read_text, resolve

if TYPE_CHECKING:
    from spark_kafka_sink.security.tls import TlsContext

# --- tokens from the user's own code -------------------------------------------------------------

OPTION = "kafka.sasl.oauthbearer.token.provider"

# The years 2001 and 5138: a smaller number is a duration, a larger one is in milliseconds.
_LEAST_SECONDS, _MOST_SECONDS = 1e9, 1e11


def provided_token(entry_point: str, oauth: OAuthConfig) -> Token:
    """Return the checked result of the callable ``package.module:name``.

    Raises ConfigError (it cannot be loaded), CredentialsUnavailableError (it raised) or
    AuthenticationError (its result is no token).
    """
    provider = load(entry_point, OPTION)
    try:
        returned = provider()
    except Exception as error:
        raise CredentialsUnavailableError(
            f"{OPTION} {entry_point} failed: {redacted(repr(error))}{raised_at(error)}",
            code="HOOK-001",
        ) from error
    source = f"{OPTION} {entry_point}"
    if isinstance(returned, str):
        return token_of_jwt(returned, oauth, source)
    if isinstance(returned, tuple) and len(returned) == 2 and isinstance(returned[0], str):
        return Token(Secret(returned[0].strip()), None, _expiry_ms(returned[1], source))
    raise AuthenticationError(
        f"{source} returned {_type_of(returned)}: it must return a token as text, or a tuple of a "
        "token and the time at which it expires",
        code="HOOK-002",
    )


def _expiry_ms(value: Any, source: str) -> int:
    what = "the second value that it returned, the time at which the token expires,"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise AuthenticationError(
            f"{source}: {what} is {_type_of(value)}, not a number of seconds", code="HOOK-002"
        )
    if not _LEAST_SECONDS <= value < _MOST_SECONDS:
        hint = (
            "a number of milliseconds: divide it by 1000"
            if value >= _MOST_SECONDS
            else "a duration: add time.time() to it"
        )
        raise AuthenticationError(
            f"{source}: {what} must be in seconds since 1970-01-01 UTC. {value} looks like {hint}",
            code="HOOK-002",
        )
    return int(value * 1000)


def _type_of(value: Any) -> str:
    return "nothing" if value is None else f"a value of type {type(value).__name__}"


# --- requests to a token endpoint, for each grant ------------------------------------------------

_JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_CLIENT_ASSERTION = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"


def _secret_request(client: Client, header_urlencode: bool) -> TokenRequest:
    """Return the request for client_credentials with id and secret in the Authorization header."""
    if client.id is None or client.secret is None:
        raise AuthenticationError(
            "the client's id and secret are needed for client credentials", code="AUTH-005"
        )
    name, secret = client.id, client.secret.reveal()
    encode_utf8(name, "the client's id")
    encode_utf8(secret, "the client's secret")
    pair = f"{_encoded(name)}:{_encoded(secret)}" if header_urlencode else f"{name}:{secret}"
    basic = base64.b64encode(encode_utf8(pair, "the client's secret")).decode("ascii")
    return TokenRequest(
        _form(client, grant_type="client_credentials"),
        {"Authorization": f"Basic {basic}"},
        (secret, _encoded(secret), basic),
    )


def _form(client: Client, **values: str | None) -> str:
    """Return the body of a request, with the client's scope."""
    given = {**values, "scope": client.scope}
    return "&".join(f"{name}={_encoded(v)}" for name, v in given.items() if v is not None)


def _encoded(text: str) -> str:
    """Encode as Java's ``URLEncoder`` does: a blank becomes +, and * stays."""
    return quote_plus(text, safe="*", errors="surrogateescape").replace("~", "%7E")


# --- fetching a token ----------------------------------------------------------------------------

logger = logging.getLogger(__name__)

_SSL = "ssl."
_LOCAL = ("localhost", "127.0.0.1", "::1")


class TokenRetrieval:
    """Fetches tokens for one SaslConfig with mechanism OAUTHBEARER."""

    def __init__(
        self,
        config: SaslConfig,
        timer: RetryTimer,
        make_tls: Callable[[SslConfig], TlsContext],
        resolve: Resolve,
    ) -> None:
        self._config = config
        self._timer = timer
        self._make_tls = make_tls
        self._resolve = resolve
        self._tls: dict[SslConfig, TlsContext] = {}
        self._has_warned = False

    def fetch(self, timeout_ms: int) -> Token:
        """Return a new token, and wait for it.

        Raises AuthenticationError; CredentialsUnavailableError if a retry may succeed.
        """
        with authentication_errors():
            options = login_options(self._config, self._resolve)
            oauth = resolved(self._config.oauth, self._resolve)
            self._warn_once(oauth, options)
            token = self._fetch(oauth, options, timeout_ms)
        late_ms = self._timer.clock.timestamp_ms() - token.expires_at_ms
        if late_ms >= 0:
            raise CredentialsUnavailableError(
                f"the token of {URL_OPTION} expired {late_ms // 1000} s ago: check this machine's "
                "clock and the issuer's, or the program that renews the file",
                code="AUTH-016",
            )
        return token

    def _fetch(self, oauth: OAuthConfig, options: Mapping[str, str], timeout_ms: int) -> Token:
        if oauth.token_provider is not None:
            return provided_token(oauth.token_provider, oauth)
        if oauth.token_endpoint_url is None:
            raise ConfigError(f"{URL_OPTION} is missing", code="AUTH-005")
        source = token_source_of(oauth)
        if source is TokenSource.FILE:
            path = path_of_file_url(oauth.token_endpoint_url)
            text = read_text(oauth.token_endpoint_url.strip(), URL_OPTION)
            return token_of_jwt(text, oauth, f"the file {path}")
        endpoint = TokenEndpoint(
            oauth.token_endpoint_url, self._tls_of(options), self._config.login, self._timer
        )
        request = self._request(source, client_of(oauth, options, source), oauth)
        return token_of_jwt(endpoint.fetch(request, timeout_ms), oauth, endpoint.name)

    def _request(self, source: TokenSource, client: Client, oauth: OAuthConfig) -> TokenRequest:
        if source is TokenSource.SECRET:
            return _secret_request(client, oauth.header_urlencode)
        signed: str = assertion(oauth.assertion, self._timer.clock.timestamp_ms()).reveal()
        if source is TokenSource.JWT_BEARER:
            return TokenRequest(
                _form(client, grant_type=_JWT_BEARER, assertion=signed), {}, (signed,)
            )
        form = _form(
            client,
            client_assertion_type=_CLIENT_ASSERTION,
            client_assertion=signed,
            grant_type="client_credentials",
            client_id=client.id,
        )
        return TokenRequest(form, {}, (signed,))

    def _tls_of(self, options: Mapping[str, str]) -> TlsContext:
        """Return the TLS of these options, cached because it checks its files itself."""
        config = endpoint_ssl(options)
        if config not in self._tls:
            self._tls = {config: self._make_tls(config)}
        return self._tls[config]

    def _warn_once(self, oauth: OAuthConfig, options: Mapping[str, str]) -> None:
        if not self._has_warned:
            self._has_warned = True
            for sentence in overridden_options(oauth, options):
                warn(logger, "OPTION-018", sentence)
            if sends_in_clear(oauth):
                warn(
                    logger,
                    "AUTH-002",
                    f"{URL_OPTION} begins with http:, so the client's credentials and the tokens "
                    "cross the network unencrypted: use https:",
                )


def endpoint_ssl(options: Mapping[str, str]) -> SslConfig:
    """Return the token endpoint's TLS, from the JAAS options ``ssl.*``. Raises ConfigError.

    options: with their references resolved
    """
    given = {name: value for name, value in options.items() if name.startswith(_SSL)}
    unknown = [name for name in given if name not in RESOLVED_SSL_CONFIG.keys]
    if unknown:
        raise ConfigError(
            f"{JAAS}: {shown_word(unknown[0])} that begins with '{_SSL}' is not known",
            code="AUTH-007",
        )
    try:
        return parse_ssl(RESOLVED_SSL_CONFIG.parse(given))
    except ConfigError as error:
        named = str(error).replace("kafka.ssl.", _SSL)
        raise ConfigError(f"{JAAS}, for the token endpoint: {named}", code=error.code) from None


def sends_in_clear(oauth: OAuthConfig) -> bool:
    """Return True if credentials leave this machine without TLS."""
    if oauth.token_provider is not None or oauth.token_endpoint_url is None:
        return False
    try:
        url = urlsplit(oauth.token_endpoint_url.strip())
    except ValueError:
        return False
    return url.scheme == "http" and url.hostname not in _LOCAL


# --- login ---------------------------------------------------------------------------------------


class TokenLogin(Login):
    """Login with OAUTHBEARER."""

    mechanism = "OAUTHBEARER"

    def __init__(self, config: SaslConfig, timer: RetryTimer, rng: RandomSource) -> None:
        self._config = config
        self._timer = timer
        retrieval = TokenRetrieval(config, timer, endpoint_tls, resolve)
        self._keeper = TokenKeeper(retrieval.fetch, config.login, timer.clock, rng)

    def login(self, timeout_ms: int, hosts: Sequence[str] = ()) -> None:
        self._keeper.prepare(timeout_ms)

    def create_sasl_client(self, host: str) -> SaslClient:
        token = self._keeper.token()
        with authentication_errors():
            # Resolve extensions only: an unreadable secret matters for the next token only.
            extensions = extensions_of(login_options(self._config, prefix=EXTENSION_PREFIX))
        return OAuthBearerSaslClient(token, extensions)

    def close(self) -> None:
        self._keeper.close()
        self._timer.close()


def endpoint_tls(config: SslConfig) -> TlsContext:
    """Return the TLS of the token endpoint's own options."""
    from spark_kafka_sink.security.tls import TOKEN_ENDPOINT, TlsContext

    # The references of JAAS options are already resolved.
    return TlsContext(config, TOKEN_ENDPOINT, lambda text, _: text)


def check_token_options(config: SaslConfig) -> None:
    """Check what is known before a token is fetched. Raises ConfigError."""
    entry = unresolved_jaas_entry(config)
    has_jaas = config.jaas_config is not None
    options = entry.options if entry is not None else None if has_jaas else {}
    check_oauth(config.oauth, options)
    if options is None:
        return
    known = {name: value for name, value in options.items() if not has_reference(value)}
    extensions_of(known)
    if known == options:
        endpoint_ssl(options)
