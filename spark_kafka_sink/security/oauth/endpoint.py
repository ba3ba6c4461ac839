"""The token endpoint: the meaning of its responses, and its retriable errors.

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
from collections.abc import Callable, Mapping
from http.client import HTTPException
from typing import NamedTuple
from urllib.parse import SplitResult, urlsplit

from spark_kafka_sink.base.errors import (
    AuthenticationError,
    ConfigError,
    CredentialsUnavailableError,
)
from spark_kafka_sink.base.http import Answer, Limits, Request, exchange, host_and_port
from spark_kafka_sink.base.text import HIDDEN, shown, shown_url
from spark_kafka_sink.config.security_config import LoginConfig
from spark_kafka_sink.security.oauth.choice import URL_OPTION
from spark_kafka_sink.security.oauth.keeper import Waiting, with_retries

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


class Tls(NamedTuple):
    """The endpoint's TLS.

    explain: an error, host and port -> cause and option
    """

    context: Callable[[], ssl.SSLContext]
    explain: Callable[[ssl.SSLError | OSError, str, int], str]


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

    def __init__(self, url: str, tls: Tls, config: LoginConfig, waiting: Waiting) -> None:
        self._url = checked_url(url)
        self._tls = tls
        self._config = config
        self._waiting = waiting
        self.name = f"the token endpoint {shown_url(self._url.geturl())}"

    def fetch(self, request: TokenRequest, timeout_ms: int) -> str:
        """Return a token's text. Retries retriable errors.

        Raises AuthenticationError; CredentialsUnavailableError when time is up.
        """

        def attempt(left_ms: int) -> str:
            return self._token_of(self._post(request, left_ms), request.secrets)

        return with_retries(attempt, self._config, self._waiting, timeout_ms)

    def _post(self, request: TokenRequest, left_ms: int) -> Answer:
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
            return exchange(http, context, limits, self._waiting.clock)
        except ssl.SSLCertVerificationError as error:
            raise AuthenticationError(f"{self.name}: {self._explained(error)}") from None
        except ssl.SSLError as error:
            raise CredentialsUnavailableError(f"{self.name}: {self._explained(error)}") from None
        except TimeoutError:
            raise self._away(_TOO_LATE) from None
        except (OSError, UnicodeError) as error:
            # An impossible host name raises UnicodeError.
            raise self._away(str(error)) from None
        except HTTPException as error:
            # Omit its text, which quotes the response.
            raise self._away(f"what answers does not speak HTTP ({type(error).__name__})") from None

    def _explained(self, error: ssl.SSLError) -> str:
        host, port = host_and_port(self._url, URL_OPTION)
        return self._tls.explain(error, host, port)

    def _away(self, cause: str) -> CredentialsUnavailableError:
        return CredentialsUnavailableError(
            f"{self.name} cannot be reached: {cause}. Check {URL_OPTION} and the way from this "
            "machine to it"
        )

    def _token_of(self, answer: Answer, secrets: tuple[str, ...]) -> str:
        if answer.status in _SUCCESS:
            return self._token_in(answer)
        what = f"{self.name} answers {answer.status}{_reason(answer, secrets)}"
        if 300 <= answer.status < 400:
            where = shown(shown_url(re.split("[?#]", answer.location)[0]), secrets)
            raise AuthenticationError(
                f"{what}, a redirect to {where or 'nowhere'}. It is not followed, for the "
                f"request holds credentials: set {URL_OPTION} to where tokens are issued"
            )
        if answer.status in _REFUSED:
            raise AuthenticationError(f"{what}. {_ADVICE.get(answer.status, _DEFAULT_ADVICE)}")
        raise CredentialsUnavailableError(what)

    def _token_in(self, answer: Answer) -> str:
        """Return the response's ``access_token``, else its ``id_token``."""
        fields = _json_object(answer)
        if fields is None:
            raise AuthenticationError(
                f"{self.name} answers {answer.status} with what is not a JSON object "
                f"({len(answer.body)} bytes of {shown(answer.content_type) or 'no type'}): "
                f"check {URL_OPTION}"
            )
        for name in ("access_token", "id_token"):
            value = fields.get(name)
            if isinstance(value, str) and value.strip():
                return value.strip()
        raise AuthenticationError(
            f"{self.name} answers {answer.status} without access_token and id_token: check "
            f"{URL_OPTION} and the client's grants there"
        )


_DEFAULT_ADVICE = (
    "Check the client's id, secret or assertion (clientId and clientSecret in "
    "kafka.sasl.jaas.config, or kafka.sasl.oauthbearer.client.credentials.client.id and "
    "client.secret, or kafka.sasl.oauthbearer.assertion.*), its grants and its scope there"
)
_ADVICE = {
    404: f"Check the path in {URL_OPTION}",
    405: f"Check the path in {URL_OPTION}",
    407: "Check the user and password in https_proxy",
    501: f"Check {URL_OPTION}",
    505: f"Check {URL_OPTION}",
}


def checked_url(text: str) -> SplitResult:
    """Return an http or https URL.

    Raises ConfigError, without the URL, which may hold a password.
    """
    try:
        url = urlsplit(text.strip())
    except ValueError:
        raise ConfigError(f"{URL_OPTION} is not a URL") from None
    if url.scheme not in ("http", "https"):
        raise ConfigError(f"{URL_OPTION} must begin with https://, http:// or file:")
    if not all("!" <= character <= "~" for character in url.geturl()):
        raise ConfigError(f"{URL_OPTION} may hold printable ASCII only: encode the rest with %")
    host_and_port(url, URL_OPTION)
    return url


def _reason(answer: Answer, secrets: tuple[str, ...]) -> str:
    """Return the endpoint's own words: OAuth's two fields for errors, or Okta's."""
    fields = _json_object(answer)
    if fields is None:
        return ""
    pairs = (("error", "error_description"), ("errorCode", "errorSummary"))
    for code, description in pairs:
        texts = [fields[name] for name in (code, description) if isinstance(fields.get(name), str)]
        if texts:
            return f" ({' - '.join(shown(text, secrets) for text in texts)})"
    return ""


def _json_object(answer: Answer) -> Mapping[str, object] | None:
    try:
        fields = json.loads(answer.body)
    except (ValueError, RecursionError):
        return None
    return fields if isinstance(fields, dict) else None
