"""Client of a schema registry: tries each address in turn, for a limited time.

The API is Confluent's REST API, which Apicurio (``/apis/ccompat/v7``), Karapace and Redpanda
support too. Answers that do not follow that API are rejected:

    answer                                 | meaning
    ---------------------------------------+-----------------------------------------------
    200                                    | the result, if it is JSON
    3xx                                    | error: wrong address
    401, 403                               | error: credentials or permissions
    404 with 40401, 40402, 40403           | the subject, version or schema does not exist
    404 without error_code, or with 404    | error: wrong address
    409                                    | error: incompatible with an earlier version
    422                                    | error: invalid schema or subject
    any other with error_code              | error with the registry's reason
    more bytes than the limit              | error
    408, 429, 5xx, no connection, no answer| transient: the next address, then a retry
    a certificate that is not trusted      | error
    no answer of a registry                | error

An address that asks for time with Retry-After is not asked again before that.

References in credentials are resolved again for each query.

Source: ``RestService``, ``UserInfoCredentialProvider``, ``OauthCredentialProvider`` of Confluent's
client, ``Schema``, ``RegisterSchemaResponse``, ``SchemaString``, ``ErrorMessage`` of its REST API,
and ``io.confluent.kafka.schemaregistry.rest.exceptions.Errors``.
"""

from __future__ import annotations

import base64
import json
import ssl
from collections.abc import Callable, Iterable, Mapping
from http.client import HTTPException
from typing import Any, NamedTuple
from urllib.parse import SplitResult, quote, unquote, urlencode, urlsplit
from uuid import UUID

from spark_kafka_sink.base.clock import Clock, SystemClock, pause
from spark_kafka_sink.base.errors import ConfigError, CredentialsUnavailableError, KafkaSinkError
from spark_kafka_sink.base.http import (
    Limits,
    Request,
    Response,
    exchange,
    host_and_port,
    speaks_tls,
)
from spark_kafka_sink.base.text import (
    MOST_SCHEMA_VALUES,
    HeaderCredential,
    Secret,
    bounded_json,
    redacted,
    redacted_url,
)
from spark_kafka_sink.config.registry import (
    BearerConfig,
    RegistryConfig,
    check_credentials_in,
    split_url,
)
from spark_kafka_sink.config.security_config import LoginConfig, OAuthConfig, SaslConfig
from spark_kafka_sink.security.references import resolve
from spark_kafka_sink.security.tls import Peer, TlsContext

SUBJECT_NOT_FOUND, VERSION_NOT_FOUND, SCHEMA_NOT_FOUND = 40401, 40402, 40403
NOT_FOUND = (SUBJECT_NOT_FOUND, VERSION_NOT_FOUND, SCHEMA_NOT_FOUND)
INCOMPATIBLE = 409
INVALID = 422
TRANSIENT_STATUSES = frozenset({408, 429, *range(500, 600)} - {501, 505})


class RegistryError(KafkaSinkError):
    """A schema registry returned an error or cannot be asked. Nothing was written."""


class RegistryUnavailableError(RegistryError):
    """The registry does not answer or reports a transient error; a retry may succeed.

    retry_after_ms: how long the registry asks its clients to wait
    """

    code = "REGISTRY-007"

    def __init__(self, message: str, retry_after_ms: int = 0) -> None:
        super().__init__(message)
        self.retry_after_ms = retry_after_ms


class NoRegistryError(RegistryError):
    """The server at the address is no registry or is not trusted.

    The address is wrong, or another server answers, such as a load balancer without its registry.
    """

    code = "REGISTRY-008"


class RegistryRefusedError(RegistryError):
    """The registry answered with an error.

    status: HTTP status; number: the registry's error code, or the status; reason: its message
    """

    code = "REGISTRY-011"

    def __init__(
        self, message: str, status: int, number: int, reason: str, *, code: str = ""
    ) -> None:
        super().__init__(message, code=code)
        self.status = status
        self.number = number
        self.reason = reason


_MAX_ID = 2**31 - 1
_MOST_REASONS = 10


class Schema(NamedTuple):
    """A schema in a registry.

    id: in that registry; None if not requested. guid: None if the registry has no GUIDs
    kind: AVRO, JSON or PROTOBUF; references: names, subjects and versions that ``text`` refers to
    files: of Protobuf and JSON: names and texts of all references, direct or not
    """

    id: int | None
    text: str
    kind: str = "AVRO"
    guid: str | None = None
    version: int | None = None
    references: tuple[tuple[str, str, int], ...] = ()
    files: tuple[tuple[str, str], ...] = ()


def parse_schema(response: Any, has_id: bool, has_text: bool) -> Schema:
    """Return the schema in an answer. Raises ValueError with the reason for an invalid answer.

    has_id, has_text: whether the answer must have an id, a text
    """
    if not isinstance(response, dict):
        raise ValueError(f"a JSON {type(response).__name__} instead of an object")
    number, text = response.get("id"), response.get("schema")
    if (has_id and number is None) or (has_text and text is None):
        raise ValueError("an answer without an id or a schema")
    if not isinstance(text, (str, type(None))):
        raise ValueError("a schema that is no text")
    if number is not None and not _is_number(number, 0):
        raise ValueError(f"an id that is none: {_redacted_json(number)}")
    version, guid = response.get("version"), response.get("guid")
    if version is not None and not _is_number(version, 1):
        raise ValueError(f"a version that is none: {_redacted_json(version)}")
    kind = response.get("schemaType") or "AVRO"
    if not isinstance(kind, str):
        raise ValueError(f"a schemaType that is none: {_redacted_json(kind)}")
    references = response.get("references")
    if not isinstance(references, (list, type(None))):
        raise ValueError(f"references that are none: {_redacted_json(references)}")
    referenced = tuple(map(_reference, references or ()))
    return Schema(number, text or "", kind, _guid(guid), version, referenced)


def _is_number(value: Any, lowest: int) -> bool:
    """Return True for a Java int of at least ``lowest``; JSON's true and false are no numbers."""
    return type(value) is int and lowest <= value <= _MAX_ID


def _reference(value: Any) -> tuple[str, str, int]:
    if isinstance(value, dict):
        name, subject, version = (value.get(key) for key in ("name", "subject", "version"))
        if isinstance(name, str) and isinstance(subject, str) and _is_number(version, 1):
            return name, subject, int(str(version))
    raise ValueError(f"a reference without name, subject or version: {_redacted_json(value)}")


def _guid(value: Any) -> str | None:
    if value is None:
        return None
    try:
        return str(UUID(value))
    except (ValueError, AttributeError, TypeError):
        raise ValueError(f"a guid that is none: {_redacted_json(value)}") from None


def _redacted_json(value: Any) -> str:
    return redacted(json.dumps(value))


def json_of(body: bytes) -> Any:
    """Parse JSON; return None for another text, and for more than a schema may have."""
    try:
        return bounded_json(body, MOST_SCHEMA_VALUES)
    except (ValueError, RecursionError):
        return None


def parse_error(content: Any, status: int) -> tuple[int | None, str]:
    """Return the code and the message of an error; None and "" if the answer has none.

    status: HTTP status, the code of some answers
    """
    if not isinstance(content, dict):
        return None, ""
    code, message = content.get("error_code"), content.get("message")
    reason = redacted(message) if message else ""
    if not isinstance(code, int) or isinstance(code, bool):
        code = status if reason and status in (INCOMPATIBLE, INVALID) else None
    return code, reason


_BEARER = "schema.registry.bearer.auth."
ISSUER_OPTION = f"{_BEARER}issuer.endpoint.url"
# Option of tokens for brokers -> option of tokens for the registry, in messages.
_REGISTRY_OPTIONS = (
    ("kafka.sasl.oauthbearer.token.endpoint.url", ISSUER_OPTION),
    ("kafka.sasl.oauthbearer.client.credentials.client.id", f"{_BEARER}client.id"),
    ("kafka.sasl.oauthbearer.client.credentials.client.secret", f"{_BEARER}client.secret"),
    ("kafka.sasl.oauthbearer.scope", f"{_BEARER}scope"),
    (
        "kafka.sasl.login.connect.timeout.ms, kafka.sasl.login.read.timeout.ms",
        "schema.registry.timeout.ms",
    ),
)


def credential_headers(
    config: RegistryConfig, url: SplitResult, tls: TlsContext, clock: Clock
) -> dict[str, HeaderCredential]:
    """Return the headers with credentials, by name.

    Raises RegistryError if the issuer rejects the request, RegistryUnavailableError if no token can
    be fetched now, ConfigError for a wrong reference and for a text that a header cannot hold.
    """
    if config.bearer is not None:
        return _bearer(config.bearer, config, tls, clock)
    if config.user_info is not None:
        text = resolve(config.user_info.reveal(), "schema.registry.basic.auth.user.info")
    elif url.username is not None:
        text = f"{unquote(url.username)}:{unquote(url.password or '')}"
    else:
        return {}
    return {"Authorization": HeaderCredential(f"Basic {base64.b64encode(text.encode()).decode()}")}


def _bearer(
    bearer: BearerConfig, config: RegistryConfig, tls: TlsContext, clock: Clock
) -> dict[str, HeaderCredential]:
    if bearer.token is not None:
        option = f"{_BEARER}token"
        token = resolve(bearer.token.reveal(), option).strip()
    else:
        option = ISSUER_OPTION
        token = _fetch_token(bearer, config, tls, clock).reveal()
    headers = (
        ("Authorization", f"Bearer {token}", option),
        ("target-sr-cluster", bearer.logical_cluster, f"{_BEARER}logical.cluster"),
        ("Confluent-Identity-Pool-Id", bearer.identity_pool, f"{_BEARER}identity.pool.id"),
    )
    return {name: _header(text, given) for name, text, given in headers if text is not None}


def _header(text: str, option: str) -> HeaderCredential:
    """Check the text of a header: Python's own error would show the text."""
    if not (text.isascii() and text.isprintable()):
        raise ConfigError(
            f"{option} has a line break, or a character that is not of ASCII, which no header of "
            "HTTP can have: it must be one line",
            code="OPTION-003",
        )
    return HeaderCredential(text)


def _fetch_token(
    bearer: BearerConfig, config: RegistryConfig, tls: TlsContext, clock: Clock
) -> Secret:
    """Fetch a token by client credentials, with the code of tokens for brokers."""
    # Imported here because only client credentials need these modules.
    from spark_kafka_sink.security.oauth import TokenRetrieval
    from spark_kafka_sink.security.oauth_tokens import RetryTimer

    oauth = OAuthConfig(
        token_endpoint_url=bearer.issuer,
        client_id=bearer.client_id,
        client_secret=bearer.client_secret,
        scope=bearer.scope,
    )
    timeout_ms = config.request_timeout_ms
    login = LoginConfig(connect_timeout_ms=timeout_ms, read_timeout_ms=timeout_ms)
    sasl = SaslConfig("OAUTHBEARER", oauth=oauth, login=login)
    retrieval = TokenRetrieval(sasl, RetryTimer(clock, pause), lambda _: tls, _resolved)
    try:
        return Secret(retrieval.fetch(config.timeout_ms).value.reveal())
    except KafkaSinkError as error:
        is_transient = isinstance(error, CredentialsUnavailableError)
        kind = RegistryUnavailableError if is_transient else RegistryError
        raise kind(
            f"no token for the schema registry: {_with_registry_options(str(error))}"
        ) from None


def _resolved(text: str, option: str) -> str:
    return resolve(text, _with_registry_options(option))


def _with_registry_options(text: str) -> str:
    for kafka_option, registry_option in _REGISTRY_OPTIONS:
        text = text.replace(kafka_option, registry_option)
    return text


URL_OPTION = "schema.registry.url"
_PEER = Peer("schema.registry.", URL_OPTION, "a URL that begins with http:")
_JSON = "application/vnd.schemaregistry.v1+json"
_FIRST_PAUSE_MS, _LONGEST_PAUSE_MS = 200, 2000
_PATH_ADVICE = f"the path in {URL_OPTION} is wrong; Apicurio's ends with /apis/ccompat/v7"
MAX_RESPONSE_BYTES = 32_000_000
"""Limit of an answer, bytes: room for a schema and for references sent with it."""
_BY_ID = "/schemas/ids/"
_SERIALIZED = "format=serialized"


class RegistryClient:
    """A client of one registry configuration. wait: sleeps for milliseconds"""

    def __init__(
        self,
        config: RegistryConfig,
        clock: Clock | None = None,
        wait: Callable[[int], None] = pause,
    ) -> None:
        self._config = config
        self._clock = clock or SystemClock()
        self._wait = wait
        self._tls = TlsContext(config.ssl, _PEER)
        self._urls = [_parse_url(url) for url in config.urls]
        if config.has_url_credentials:
            for url in self._urls:
                check_credentials_in(url)
        self._headers: dict[int, dict[str, HeaderCredential]] = {}
        self._first_url = 0
        self._ask_at_ms = [0] * len(self._urls)

    @property
    def name(self) -> str:
        """Return the addresses without credentials, for messages."""
        return ", ".join(_redacted(url) for url in self._urls)

    def register(self, subject: str, schema: Schema, is_normalized: bool) -> Schema:
        """Return ``schema`` with its id; register it if the subject does not have it."""
        return self._registered(f"{_subject(subject)}/versions", schema, is_normalized)

    def look_up(self, subject: str, schema: Schema, is_normalized: bool) -> Schema:
        """Return ``schema`` with its id. Raises RegistryRefusedError if the subject lacks it."""
        return self._registered(_subject(subject), schema, is_normalized)

    def _registered(self, path: str, schema: Schema, is_normalized: bool) -> Schema:
        path += "?normalize=true" if is_normalized else ""
        found = self._schema_at("POST", path, schema)
        if schema.kind == "AVRO" and not found.text and is_normalized and found.id is not None:
            found = found._replace(text=self.by_id(found.id).text)
        # Avro is encoded in the order of the registry's own text, which may not be that of ours.
        text = found.text if schema.kind == "AVRO" and found.text else schema.text
        return schema._replace(id=found.id, text=text, guid=found.guid, version=found.version)

    def version(
        self, subject: str, number: int | None = None, is_serialized: bool = False
    ) -> Schema:
        """Return a version of a subject; the latest without ``number``.

        is_serialized: request Protobuf as a FileDescriptorProto in Base64; some registries ignore
        it. Raises RegistryRefusedError.
        """
        version = "latest" if number is None else str(number)
        path = f"{_subject(subject)}/versions/{version}"
        return self._schema_at("GET", path + (f"?{_SERIALIZED}" if is_serialized else ""))

    def with_metadata(
        self, subject: str, metadata: Iterable[tuple[str, str]], is_serialized: bool = False
    ) -> Schema:
        """Return a subject's latest version with this metadata. Raises RegistryRefusedError.

        is_serialized: as for ``version``
        """
        query = "&".join(urlencode({"key": name, "value": value}) for name, value in metadata)
        query += f"&{_SERIALIZED}" if is_serialized else ""
        return self._schema_at("GET", f"{_subject(subject)}/metadata?{query}")

    def by_id(self, schema_id: int, is_serialized: bool = False) -> Schema:
        """Return the schema of an id. Raises RegistryRefusedError."""
        path = f"{_BY_ID}{schema_id}" + (f"?{_SERIALIZED}" if is_serialized else "")
        return self._schema_at("GET", path)._replace(id=schema_id)

    def check_answers(self) -> None:
        """Raise RegistryError if the registry or the credentials do not work."""
        # Request one subject: a registry may have tens of thousands. Some ignore the limit.
        response = self._ask("GET", "/subjects?offset=0&limit=1", None)
        if not isinstance(response, list):
            raise self._no_registry(f"with a JSON {type(response).__name__} instead of a list")

    def is_compatible(self, subject: str, schema: Schema) -> list[str] | None:
        """Return None if ``schema`` may become the subject's next version, else the first reasons.

        Raises RegistryRefusedError if the subject does not exist.
        """
        path = f"/compatibility{_subject(subject)}/versions/latest?verbose=true"
        response = self._ask("POST", path, _body(schema))
        if not isinstance(response, dict) or response.get("is_compatible", True):
            return None
        messages = response.get("messages")
        told = messages if isinstance(messages, list) else []
        reasons = [redacted(message) for message in told[:_MOST_REASONS]]
        if len(told) > _MOST_REASONS:
            reasons.append(f"{len(told) - _MOST_REASONS} more")
        return reasons or ["it does not say why"]

    def _schema_at(self, method: str, path: str, schema: Schema | None = None) -> Schema:
        """Return the schema in the answer: with its text if none is sent, its id if unknown."""
        response = self._ask(method, path, None if schema is None else _body(schema))
        try:
            return parse_schema(response, not path.startswith(_BY_ID), schema is None)
        except ValueError as error:
            what = f"{method} {path.partition('?')[0]} with {error}"
            if isinstance(response, dict) and ("id" in response or "schema" in response):
                raise RegistryError(
                    f"the schema registry {self.name} answers {what}: its API does not have that, "
                    "and it is not taken",
                    code="REGISTRY-016",
                ) from None
            raise self._no_registry(what) from None

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None) -> Any:
        """Send a request to the addresses in turn and return the parsed answer.

        Raises RegistryUnavailableError after the timeout, RegistryRefusedError, RegistryError.
        """
        start_ms, rounds = self._clock.now_ms(), 0
        problems: dict[str, None] = {}
        while True:
            for turn in range(len(self._urls)):
                number = (self._first_url + turn) % len(self._urls)
                now_ms = self._clock.now_ms()
                left_ms = start_ms + self._config.timeout_ms - now_ms
                if left_ms <= 0:
                    break
                if now_ms < self._ask_at_ms[number]:
                    continue
                # Outside of the try: the token's issuer was retried up to the timeout already.
                self._prepare_headers(number)
                try:
                    response = self._ask_at(number, method, path, body, left_ms)
                except RegistryUnavailableError as error:
                    problems[str(error)] = None
                    self._ask_at_ms[number] = self._clock.now_ms() + error.retry_after_ms
                else:
                    self._first_url = number
                    return response
            pause_ms = min(_FIRST_PAUSE_MS * 2**rounds, _LONGEST_PAUSE_MS)
            rounds += 1
            now_ms = self._clock.now_ms()
            retry_after_ms = max(0, min(self._ask_at_ms) - now_ms)
            pause_ms = max(pause_ms, retry_after_ms)
            if now_ms + pause_ms > start_ms + self._config.timeout_ms:
                raise RegistryUnavailableError(
                    f"no schema registry of {URL_OPTION} is available: {'; '.join(problems)} "
                    f"(tried for {now_ms - start_ms} ms). Check the address and the way from the "
                    "driver to it",
                    retry_after_ms,
                )
            self._wait(pause_ms)

    def _prepare_headers(self, number: int) -> None:
        if number not in self._headers:
            url = self._urls[number]
            self._headers[number] = credential_headers(self._config, url, self._tls, self._clock)

    def _ask_at(
        self, number: int, method: str, path: str, body: Mapping[str, Any] | None, left_ms: int
    ) -> Any:
        url = self._urls[number]
        target = urlsplit(f"{url.scheme}://{url.netloc}{url.path.rstrip('/')}{path}")
        headers = {name: secret.reveal() for name, secret in self._headers[number].items()}
        headers.update({"Accept": f"{_JSON}, application/json", "Content-Type": _JSON})
        content = b"" if body is None else json.dumps(body).encode()
        request = Request(target, headers, content, method, URL_OPTION, MAX_RESPONSE_BYTES)
        timeout_ms = min(self._config.request_timeout_ms, left_ms)
        end_ms = self._clock.now_ms() + timeout_ms
        try:
            context = self._tls.context() if url.scheme == "https" else None
        except CredentialsUnavailableError as error:
            raise RegistryUnavailableError(f"schema registry: {error}") from None
        limits = Limits(timeout_ms, timeout_ms, timeout_ms)
        try:
            answer = exchange(request, context, limits, self._clock)
        except ssl.SSLError as error:
            host, port = host_and_port(url, URL_OPTION)
            message = f"schema registry: {self._tls.explain(error, host, port)}"
            # If a server rejects the client, its TLS alert may be lost with the connection.
            if isinstance(error, (ssl.SSLEOFError, ssl.SSLZeroReturnError)):
                raise RegistryUnavailableError(message) from None
            raise NoRegistryError(message) from None
        except UnicodeError as error:  # a host name, before the request is sent
            raise ConfigError(
                f"{_redacted(url)} has a host that cannot be looked up ({error}): check "
                f"{URL_OPTION}",
                code="OPTION-003",
            ) from None
        except OSError as error:
            if isinstance(error, ConnectionError):
                self._check_clear_text(url, end_ms)
            is_late = isinstance(error, TimeoutError)
            why = f"no answer within {timeout_ms} ms" if is_late else error
            raise RegistryUnavailableError(f"{_redacted(url)}: {why}") from None
        except HTTPException as error:
            self._check_clear_text(url, end_ms)
            raise NoRegistryError(
                f"{_redacted(url)} does not speak HTTP ({type(error).__name__}): check {URL_OPTION}"
            ) from None
        if answer.status == 400:  # some TLS servers answer so to a request without TLS
            self._check_clear_text(url, end_ms)
        return self._parse_response(answer, url)

    def _parse_response(self, answer: Response, url: SplitResult) -> Any:
        if not answer.is_whole:
            raise RegistryError(
                f"the schema registry {_redacted(url)} answers {answer.status} with more than "
                f"{MAX_RESPONSE_BYTES:,} bytes, which are not taken",
                code="REGISTRY-016",
            )
        content = json_of(answer.body)
        if answer.status == 200 and content is not None:
            return content
        code, reason = parse_error(content, answer.status)
        problem = f"the schema registry {_redacted(url)} answers {answer.status}"
        problem += f" ({code})" if code not in (None, answer.status) else ""
        problem += f", {reason}" if reason else ""
        if answer.status in TRANSIENT_STATUSES:
            raise RegistryUnavailableError(problem, answer.retry_after_ms)
        if answer.status == 401:
            raise RegistryError(f"{problem}: {self._credentials_advice()}", code="REGISTRY-009")
        if answer.status == 403:
            raise RegistryError(
                f"{problem}: these credentials do not allow it. Ask for the right to read and, for "
                "auto.register.schemas=true, to write the subject",
                code="REGISTRY-010",
            )
        if code is not None:
            is_path = code == 404
            raise RegistryRefusedError(
                f"{problem}: {_PATH_ADVICE}" if is_path else problem,
                answer.status,
                code,
                reason,
                code=NoRegistryError.code if is_path else "",
            )
        if 300 <= answer.status < 400:
            raise NoRegistryError(
                f"{problem}, a redirect, which is not followed: set {URL_OPTION} to where it leads"
            )
        summary = f"{answer.status}, {reason}," if reason else f"{answer.status}"
        kind = redacted(answer.content_type) or "no type"
        raise self._no_registry(f"{summary} with {kind} that is no answer of one")

    def _check_clear_text(self, url: SplitResult, end_ms: int) -> None:
        """Raise RegistryError if ``url`` begins with http: but its port speaks TLS."""
        left_ms = end_ms - self._clock.now_ms()
        if url.scheme == "http" and speaks_tls(url, URL_OPTION, left_ms, self._clock):
            raise RegistryError(
                f"{_redacted(url)}: the port speaks TLS: {URL_OPTION} must begin with https: there",
                code=NoRegistryError.code,
            )

    def _credentials_advice(self) -> str:
        if self._config.bearer is not None:
            return "it does not take the token: check schema.registry.bearer.auth.*"
        has_user_info = self._config.user_info is not None
        if has_user_info or any(url.username is not None for url in self._urls):
            return "it does not take user and password: check schema.registry.basic.auth.user.info"
        return (
            "it wants credentials: set schema.registry.basic.auth.user.info, or "
            "schema.registry.bearer.auth.token"
        )

    def _no_registry(self, what: str) -> NoRegistryError:
        return NoRegistryError(
            f"{self.name} answers {what}: it is no schema registry, or {_PATH_ADVICE}"
        )


def _subject(subject: str) -> str:
    # A subject may contain a slash, for example with the user's strategy.
    return f"/subjects/{quote(subject, safe='')}"


def _body(schema: Schema) -> dict[str, Any]:
    body: dict[str, Any] = {"schema": schema.text}
    if schema.kind != "AVRO":
        body["schemaType"] = schema.kind
    if schema.references:
        names = ("name", "subject", "version")
        body["references"] = [dict(zip(names, reference)) for reference in schema.references]
    return body


def _parse_url(url: Secret) -> SplitResult:
    """Resolve and check a URL. Raises ConfigError, which hides the URL."""
    parts = split_url(resolve(url.reveal(), URL_OPTION).strip())
    host = ""
    if parts is not None and parts.scheme in ("http", "https"):
        host, _ = host_and_port(parts, URL_OPTION)
    if parts is None or not host or parts.query or parts.fragment:
        raise ConfigError(
            f"{URL_OPTION} must be of the form https://host:port or https://host:port/path",
            code="OPTION-003",
        )
    address = f"{host}{parts.path}"
    if not (address.isprintable() and parts.path.isascii()) or " " in address:
        raise ConfigError(
            f"{URL_OPTION} has a space or another character that an address cannot have: write "
            "it as in a browser's address, a space as %20",
            code="OPTION-003",
        )
    return parts


def _redacted(url: SplitResult) -> str:
    return redacted_url(url.geturl())
