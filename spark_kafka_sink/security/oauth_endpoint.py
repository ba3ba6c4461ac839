"""The token endpoint: how a token is fetched there, and the meaning of the responses.

The way of fetching follows from options and JAAS options, with Java's precedence::

    1. sasl.oauthbearer.token.provider: the user's own code
    2. jwt.retriever.class; DefaultJwtRetriever means FileJwtRetriever if the URL is file:,
       else ClientCredentialsJwtRetriever
    3. of ClientCredentialsJwtRetriever: assertion.file, else assertion.claim.iss, else the secret

An option takes precedence over the JAAS option of the same meaning. Java's unsecured tokens, which
its login module creates if there is no endpoint, are rejected.

Source: ``DefaultJwtRetriever``, ``ClientCredentialsRequestFormatterFactory``, ``ConfigOrJaas`` of
Kafka 4.4.

The endpoint's responses::

    response                                      | meaning
    ----------------------------------------------+---------------------------------------
    200, 201 with access_token or id_token        | a token
    200, 201 with anything else                   | rejected: it is no token endpoint
    400 to 407, 409 to 415, 501, 505              | rejected, not retried
    3xx                                           | rejected: the URL is another one
    any other code, no connection, no response,   | retried
    a truncated response                          |
    an untrusted certificate                      | rejected, not retried, unlike in Java

Source: ``HttpJwtRetriever``, ``JwtResponseParser`` of Kafka; RFC 6749, section 5.
"""

from __future__ import annotations

import json
import re
import ssl
from collections.abc import Mapping
from dataclasses import replace
from enum import Enum
from http.client import HTTPException
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import SplitResult, urlsplit

from spark_kafka_sink.base.errors import (
    AuthenticationError,
    ConfigError,
    CredentialsUnavailableError,
    code_of,
)
from spark_kafka_sink.base.http import Limits, Request, Response, exchange, host_and_port
from spark_kafka_sink.base.text import HIDDEN, Secret, redacted, redacted_url
from spark_kafka_sink.config.config_def import RECIPES, has_reference
from spark_kafka_sink.config.security_config import LoginConfig, OAuthConfig
from spark_kafka_sink.security.credentials import OPTION as JAAS
from spark_kafka_sink.security.oauth_tokens import RetryTimer, with_retries
from spark_kafka_sink.security.references import Resolve, resolve_fields

if TYPE_CHECKING:
    from spark_kafka_sink.security.tls import TlsContext

PREFIX = "kafka.sasl.oauthbearer."
URL_OPTION = f"{PREFIX}token.endpoint.url"
ID_OPTION = f"{PREFIX}client.credentials.client.id"
SECRET_OPTION = f"{PREFIX}client.credentials.client.secret"
SCOPE_OPTION = f"{PREFIX}scope"

_UNSECURED = "unsecuredLoginStringClaim_"
_STRIMZI = "oauth."
_FILE_SCHEME = "file:"


class TokenSource(Enum):
    """The ways to fetch a token."""

    PROVIDER = "token provider"
    FILE = "file"
    SECRET = "client credentials with a secret"
    CLIENT_ASSERTION = "client credentials with a signed assertion"
    JWT_BEARER = "jwt-bearer"


class Client(NamedTuple):
    """The client of the token endpoint, and its scope; None if not configured."""

    id: str | None
    secret: Secret | None
    scope: str | None


def token_source_of(oauth: OAuthConfig) -> TokenSource:
    """Return the way, for a URL with its references resolved. Raises ConfigError without a URL."""
    if oauth.token_provider is not None:
        return TokenSource.PROVIDER
    is_file = (oauth.token_endpoint_url or "").strip().lower().startswith(_FILE_SCHEME)
    if oauth.retriever == "JwtBearerJwtRetriever":
        return TokenSource.JWT_BEARER
    if oauth.retriever == "FileJwtRetriever" or (oauth.retriever.startswith("Default") and is_file):
        return TokenSource.FILE
    if oauth.assertion.file is not None or oauth.assertion.claim_iss is not None:
        return TokenSource.CLIENT_ASSERTION
    return TokenSource.SECRET


def _check_names(options: Mapping[str, str]) -> None:
    if any(name.startswith(_STRIMZI) for name in options):
        raise ConfigError(
            f"{JAAS} has options that begin with '{_STRIMZI}': they belong to Strimzi's Java "
            f"classes, and the sink does not read them. {RECIPES} has a table of what to write "
            "instead",
            code="AUTH-007",
        )


def client_of(oauth: OAuthConfig, options: Mapping[str, str], source: TokenSource) -> Client:
    """Return id, secret and scope from options, else from JAAS options. Raises ConfigError."""
    _check_names(options)
    client_id = _first(oauth.client_id, options.get("clientId"))
    given = None if oauth.client_secret is None else oauth.client_secret.reveal()
    secret = _first(given, options.get("clientSecret"))
    if source is TokenSource.SECRET and (client_id is None or secret is None):
        missing = (
            f"{ID_OPTION} (or clientId"
            if client_id is None
            else f"{SECRET_OPTION} (or clientSecret"
        )
        raise ConfigError(
            f"{missing} in {JAAS}) is missing: {URL_OPTION} asks for client credentials",
            code="AUTH-005",
        )
    jaas_scope = options.get("scope") if source is not TokenSource.JWT_BEARER else None
    return Client(
        client_id,
        None if secret is None else Secret(secret),
        _first(oauth.scope, jaas_scope),
    )


def _first(*texts: str | None) -> str | None:
    """Return the first given text, stripped of blanks; None if that text is blank."""
    given = next((text for text in texts if text is not None), "")
    return given.strip() or None


def path_of_file_url(url: str) -> str:
    """Return the path in ``file:/path`` or ``file:///path``. Raises ConfigError."""
    text = url.strip()
    if not text.lower().startswith(_FILE_SCHEME):
        raise ConfigError(
            f"{URL_OPTION} must begin with file: for FileJwtRetriever", code="AUTH-014"
        )
    try:
        path = urlsplit(text).path
    except ValueError:
        path = ""
    if not path:
        raise ConfigError(f"{URL_OPTION} names no file", code="AUTH-014")
    return path


def check_oauth(oauth: OAuthConfig, options: Mapping[str, str] | None) -> None:
    """Check what is known before a token is fetched. Raises ConfigError.

    options: of JAAS, with unresolved references; None if the whole JAAS text is a reference
    """
    url = oauth.token_endpoint_url
    if oauth.token_provider is not None:
        return
    _check_names(options or {})
    if url is None:
        unsecured = any(name.startswith(_UNSECURED) for name in options or {})
        what = (
            f"unsecured tokens ({_UNSECURED}… in {JAAS}) prove nothing and are not made"
            if unsecured
            else "there is nothing that gives a token"
        )
        raise ConfigError(
            f"kafka.sasl.mechanism=OAUTHBEARER: {what}. Set {URL_OPTION}, or "
            f"{PREFIX}token.provider=package.module:callable",
            code="AUTH-005",
        )
    if has_reference(url):
        return
    source = token_source_of(oauth)
    if source is TokenSource.FILE:
        path_of_file_url(url)
        return
    if url.strip().lower().startswith(_FILE_SCHEME):
        raise ConfigError(
            f"{URL_OPTION} is a file:, but {PREFIX}jwt.retriever.class={oauth.retriever} needs "
            "https:// or http://",
            code="AUTH-014",
        )
    assertion = oauth.assertion
    has_key = assertion.file is not None or assertion.private_key_file is not None
    if source is not TokenSource.SECRET and not has_key:
        raise ConfigError(
            f"{PREFIX}assertion.private.key.file or {PREFIX}assertion.file is missing: there is "
            "nothing to sign assertions with",
            code="AUTH-005",
        )
    if options is not None:
        client_of(oauth, options, source)


def overridden_options(oauth: OAuthConfig, options: Mapping[str, str]) -> list[str]:
    """Return a sentence for each given option that another option overrides."""
    found = [
        f"{option} wins over {name} in {JAAS}, which is not used"
        for option, given, name in (
            (ID_OPTION, oauth.client_id, "clientId"),
            (SECRET_OPTION, oauth.client_secret, "clientSecret"),
            (SCOPE_OPTION, oauth.scope, "scope"),
        )
        if given is not None and name in options
    ]
    assertion = oauth.assertion
    if oauth.token_provider is not None and oauth.token_endpoint_url is not None:
        found.append(f"{PREFIX}token.provider wins over {URL_OPTION}, which is not used")
    elif assertion.file is not None and assertion.claim_iss is not None:
        found.append(
            f"{PREFIX}assertion.file wins over {PREFIX}assertion.claim.iss and the other options "
            "of assertions, which are not used"
        )
    has_secret = oauth.client_secret is not None or "clientSecret" in options
    if has_secret and token_source_of(oauth) is TokenSource.CLIENT_ASSERTION:
        found.append("a signed assertion takes the place of the client's secret, which is not used")
    return found


def resolved(config: OAuthConfig, resolve: Resolve) -> OAuthConfig:
    """Return ``config`` with the references in all its texts resolved. Raises ConfigError."""

    def option_of(field: str) -> str:
        return _NAMES.get(field, PREFIX + field.replace("_", "."))

    def option_of_assertion(field: str) -> str:
        return f"{PREFIX}assertion.{field.replace('_', '.')}"

    assertion = resolve_fields(config.assertion, option_of_assertion, resolve)
    return replace(resolve_fields(config, option_of, resolve), assertion=assertion)


_NAMES = {"client_id": ID_OPTION, "client_secret": SECRET_OPTION}


DEFAULT_TIMEOUT_MS = 10_000
"""Default of ``sasl.login.connect.timeout.ms`` and ``.read.timeout.ms``. Java waits as long as the
operating system does, or forever."""

_SUCCESS = (200, 201)
_REFUSED = frozenset({*range(400, 408), *range(409, 416), 501, 505})
_MOST_BYTES = 1_000_000
_FORM = "application/x-www-form-urlencoded"


_TOO_LATE = (
    "it does not answer in time (kafka.sasl.login.connect.timeout.ms, "
    "kafka.sasl.login.read.timeout.ms)"
)


class TokenRequest(NamedTuple):
    """A request to the endpoint.

    form: the body
    headers: besides the usual ones
    secrets: never shown in messages
    """

    form: str
    headers: Mapping[str, str]
    secrets: tuple[str, ...]

    def __repr__(self) -> str:
        return f"TokenRequest({HIDDEN})"


class TokenEndpoint:
    """The endpoint ``sasl.oauthbearer.token.endpoint.url``, over http or https."""

    def __init__(self, url: str, tls: TlsContext, config: LoginConfig, timer: RetryTimer) -> None:
        self._url = checked_url(url)
        self._tls = tls
        self._config = config
        self._timer = timer
        self.name = f"the token endpoint {redacted_url(self._url.geturl())}"

    def fetch(self, request: TokenRequest, timeout_ms: int) -> str:
        """Return a token's text. Retries retriable errors.

        Raises AuthenticationError; CredentialsUnavailableError when time is up.
        """

        def attempt(left_ms: int) -> str:
            return self._token_of(self._post(request, left_ms), request.secrets)

        return with_retries(attempt, self._config, self._timer, timeout_ms)

    def _post(self, request: TokenRequest, left_ms: int) -> Response:
        headers = {
            "Accept": "application/json",
            "Cache-Control": "no-cache",
            "Content-Type": _FORM,
            **request.headers,
        }
        limits = Limits(
            self._config.connect_timeout_ms or DEFAULT_TIMEOUT_MS,
            self._config.read_timeout_ms or DEFAULT_TIMEOUT_MS,
            left_ms,
        )
        context = self._tls.context() if self._url.scheme == "https" else None
        http = Request(self._url, headers, request.form.encode(), "POST", URL_OPTION, _MOST_BYTES)
        try:
            return exchange(http, context, limits, self._timer.clock)
        except ssl.SSLError as error:
            what = f"{self.name}: {self._tls.explain(error, *host_and_port(self._url, URL_OPTION))}"
            if isinstance(error, ssl.SSLCertVerificationError):
                raise AuthenticationError(what, code=code_of(what)) from None
            raise CredentialsUnavailableError(what, code=code_of(what)) from None
        except TimeoutError:
            raise self._unavailable(_TOO_LATE) from None
        except (OSError, UnicodeError) as error:
            # An impossible host name raises UnicodeError.
            raise self._unavailable(str(error)) from None
        except HTTPException as error:
            # Omit its text, which quotes the response.
            raise self._unavailable(
                f"the server does not speak HTTP ({type(error).__name__})"
            ) from None

    def _unavailable(self, cause: str) -> CredentialsUnavailableError:
        return CredentialsUnavailableError(
            f"{self.name} cannot be reached: {cause}. Check {URL_OPTION} and the way from this "
            "machine to it",
            code="AUTH-012",
        )

    def _token_of(self, answer: Response, secrets: tuple[str, ...]) -> str:
        if answer.status in _SUCCESS:
            return self._token_in(answer)
        what = f"{self.name} answers {answer.status}{_reason(answer, secrets)}"
        if 300 <= answer.status < 400:
            where = redacted(redacted_url(re.split("[?#]", answer.location)[0]), secrets)
            raise AuthenticationError(
                f"{what}, a redirect to {where or 'nowhere'}. The sink does not follow it, "
                f"because the request holds credentials: set {URL_OPTION} to where tokens are "
                "issued",
                code="AUTH-014",
            )
        if answer.status in _REFUSED:
            code, advice = _ADVICE.get(answer.status, ("AUTH-013", _DEFAULT_ADVICE))
            raise AuthenticationError(f"{what}. {advice}", code=code)
        raise CredentialsUnavailableError(what, code="AUTH-012")

    def _token_in(self, answer: Response) -> str:
        """Return the response's ``access_token``, else its ``id_token``."""
        fields = _json_object(answer)
        if fields is None:
            raise AuthenticationError(
                f"{self.name} answers {answer.status} with a body that is no JSON object "
                f"({len(answer.body)} bytes of {redacted(answer.content_type) or 'no type'}): "
                f"check {URL_OPTION}",
                code="AUTH-014",
            )
        for name in ("access_token", "id_token"):
            value = fields.get(name)
            if isinstance(value, str) and value.strip():
                return value.strip()
        raise AuthenticationError(
            f"{self.name} answers {answer.status} without access_token and id_token: check "
            f"{URL_OPTION} and the client's grants there",
            code="AUTH-014",
        )


_DEFAULT_ADVICE = (
    "Check the client's id, secret or assertion (clientId and clientSecret in "
    "kafka.sasl.jaas.config, or kafka.sasl.oauthbearer.client.credentials.client.id and "
    "client.secret, or kafka.sasl.oauthbearer.assertion.*), its grants and its scope there"
)
_ADVICE = {
    404: ("AUTH-014", f"Check the path in {URL_OPTION}"),
    405: ("AUTH-014", f"Check the path in {URL_OPTION}"),
    407: ("AUTH-012", "Check the user and password in https_proxy"),
    501: ("AUTH-014", f"Check {URL_OPTION}"),
    505: ("AUTH-014", f"Check {URL_OPTION}"),
}
"""Status -> code and advice."""


def checked_url(text: str) -> SplitResult:
    """Return an http or https URL.

    Raises ConfigError, without the URL, which may hold a password.
    """
    try:
        url = urlsplit(text.strip())
    except ValueError:
        raise ConfigError(f"{URL_OPTION} is not a URL", code="AUTH-014") from None
    if url.scheme not in ("http", "https"):
        raise ConfigError(
            f"{URL_OPTION} must begin with https://, http:// or file:", code="AUTH-014"
        )
    if not all("!" <= character <= "~" for character in url.geturl()):
        raise ConfigError(
            f"{URL_OPTION} may hold printable ASCII only: encode the rest with %", code="AUTH-014"
        )
    host_and_port(url, URL_OPTION)
    return url


def _reason(answer: Response, secrets: tuple[str, ...]) -> str:
    """Return the endpoint's own words: OAuth's two fields for errors, or Okta's."""
    fields = _json_object(answer)
    if fields is None:
        return ""
    pairs = (("error", "error_description"), ("errorCode", "errorSummary"))
    for code, description in pairs:
        texts = [fields[name] for name in (code, description) if isinstance(fields.get(name), str)]
        if texts:
            return f" ({' - '.join(redacted(text, secrets) for text in texts)})"
    return ""


def _json_object(answer: Response) -> Mapping[str, object] | None:
    try:
        fields = json.loads(answer.body)
    except (ValueError, RecursionError):
        return None
    return fields if isinstance(fields, dict) else None
