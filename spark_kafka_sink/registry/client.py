"""Asks a schema registry: at each of its addresses in turn, for a limited time.

The answers are those of Confluent's REST API, which Apicurio (``/apis/ccompat/v7``), Karapace and
Redpanda give, too.

Source: ``RestService`` of Confluent's client.
"""

from __future__ import annotations

import base64
import json
import ssl
from collections.abc import Callable, Iterable, Iterator, Mapping
from http.client import HTTPException
from typing import Any
from urllib.parse import SplitResult, quote, urlencode, urlsplit

from spark_kafka_sink.base.clock import Clock, SystemClock, pause
from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.base.http import Answer, Limits, Request, exchange, host_and_port, speaks_tls
from spark_kafka_sink.base.printable import shown, shown_url
from spark_kafka_sink.base.secret import Secret
from spark_kafka_sink.config.registry import RegistryConfig, check_credentials_in
from spark_kafka_sink.config.registry_keys import split_url
from spark_kafka_sink.registry.answers import Schema, json_of, reason_in, schema_in
from spark_kafka_sink.registry.credentials import headers_of
from spark_kafka_sink.registry.errors import (
    MAY_PASS,
    NoRegistryError,
    RegistryError,
    RegistryRefusedError,
    RegistryUnavailableError,
)
from spark_kafka_sink.security.references import resolve
from spark_kafka_sink.security.tls import TlsContext
from spark_kafka_sink.security.tls_errors import Peer

URL_OPTION = "schema.registry.url"
_PEER = Peer("schema.registry.", URL_OPTION, "a URL that begins with http:")
_JSON = "application/vnd.schemaregistry.v1+json"
_FIRST_PAUSE_MS, _LONGEST_PAUSE_MS = 200, 2000
_ABOUT_PATH = f"the path in {URL_OPTION} is wrong; Apicurio's ends with /apis/ccompat/v7"
MOST_BYTES = 32_000_000
"""Of an answer: what a schema has, and those that a registry may tell with it."""
_BY_ID = "/schemas/ids/"
_SERIALIZED = "format=serialized"


class RegistryClient:
    """For one configuration. wait: does nothing for milliseconds"""

    def __init__(
        self,
        config: RegistryConfig,
        clock: Clock | None = None,
        wait: Callable[[int], None] = pause,
    ) -> None:
        self._config = config
        self._clock = SystemClock() if clock is None else clock
        self._wait = wait
        self._tls = TlsContext(config.ssl, _PEER)
        self._urls = [_checked(url) for url in config.urls]
        if config.is_in_url:
            for url in self._urls:
                check_credentials_in(url)
        self._headers: dict[int, dict[str, Secret]] = {}
        self._first = 0

    @property
    def name(self) -> str:
        """Its addresses, without credentials."""
        return ", ".join(_shown(url) for url in self._urls)

    def register(self, subject: str, schema: Schema, is_normalized: bool) -> Schema:
        """``schema`` with its id; it is registered if the subject does not have it."""
        found = self._schema_at("POST", _versions(subject, is_normalized), schema)
        return schema._replace(id=found.id, guid=found.guid, version=found.version)

    def look_up(self, subject: str, schema: Schema, is_normalized: bool) -> Schema:
        """``schema`` with its id, if the subject has it. Raises RegistryRefusedError."""
        path = f"/subjects/{quote(subject, safe='')}{_normalize(is_normalized)}"
        found = self._schema_at("POST", path, schema)
        return schema._replace(id=found.id, guid=found.guid, version=found.version)

    def version(
        self, subject: str, number: int | None = None, is_serialized: bool = False
    ) -> Schema:
        """A version of a subject; the latest without ``number``. Raises RegistryRefusedError.

        is_serialized: Protobuf as a FileDescriptorProto in Base64, where the registry can do that
        """
        which = "latest" if number is None else str(number)
        path = f"{_versions(subject, False)}/{which}"
        return self._schema_at("GET", path + (f"?{_SERIALIZED}" if is_serialized else ""))

    def with_metadata(
        self, subject: str, metadata: Iterable[tuple[str, str]], is_serialized: bool = False
    ) -> Schema:
        """The latest version of a subject that has these. Raises RegistryRefusedError.

        is_serialized: as for ``version``
        """
        asked = urlencode([pair for k, v in metadata for pair in (("key", k), ("value", v))])
        asked += f"&{_SERIALIZED}" if is_serialized else ""
        return self._schema_at("GET", f"/subjects/{quote(subject, safe='')}/metadata?{asked}")

    def by_id(self, schema_id: int, is_serialized: bool = False) -> Schema:
        """Raises RegistryRefusedError."""
        path = f"{_BY_ID}{schema_id}" + (f"?{_SERIALIZED}" if is_serialized else "")
        return self._schema_at("GET", path)._replace(id=schema_id)

    def check_answers(self) -> None:
        """Raise what is wrong with the registry, or with these credentials."""
        # One subject: a registry may have tens of thousands. One that does not know of limits
        # tells them all.
        found = self._ask("GET", "/subjects?offset=0&limit=1", None)
        if not isinstance(found, list):
            raise self._no_registry(f"with a JSON {type(found).__name__} instead of a list")

    def is_compatible(self, subject: str, schema: Schema) -> list[str] | None:
        """None if it may become the subject's next version, else why not.

        Raises RegistryRefusedError where there is no such subject.
        """
        path = f"/compatibility{_versions(subject, False)}/latest?verbose=true"
        found = self._ask("POST", path, _body(schema))
        if not isinstance(found, dict) or found.get("is_compatible", True):
            return None
        messages = found.get("messages")
        told = [shown(message) for message in messages] if isinstance(messages, list) else []
        return told or ["it does not say why"]

    def _schema_at(self, method: str, path: str, schema: Schema | None = None) -> Schema:
        """What is told of a schema: its text where none is sent, its id where that is not known."""
        found = self._ask(method, path, None if schema is None else _body(schema))
        try:
            return schema_in(found, not path.startswith(_BY_ID), schema is None)
        except ValueError as error:
            what = f"{method} {path.partition('?')[0]} with {error}"
            if isinstance(found, dict) and ("id" in found or "schema" in found):
                raise RegistryError(
                    f"the schema registry {self.name} answers {what}: its API does not have that, "
                    "and it is not taken"
                ) from None
            raise self._no_registry(what) from None

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None) -> Any:
        """What is in the answer.

        Raises RegistryUnavailableError when time is up, RegistryRefusedError, RegistryError.
        """
        start_ms, rounds = self._clock.now_ms(), 0
        problems: dict[str, None] = {}
        while True:
            for turn in range(len(self._urls)):
                number = (self._first + turn) % len(self._urls)
                left_ms = start_ms + self._config.timeout_ms - self._clock.now_ms()
                if left_ms <= 0:
                    break
                # Outside: whoever issues tokens has been asked for as long as a registry may be.
                self._prepare_headers(number)
                try:
                    found = self._ask_at(number, method, path, body, left_ms)
                except RegistryUnavailableError as error:
                    problems[str(error)] = None
                else:
                    self._first = number
                    return found
            pause_ms = min(_FIRST_PAUSE_MS * 2**rounds, _LONGEST_PAUSE_MS)
            rounds += 1
            now_ms = self._clock.now_ms()
            if now_ms + pause_ms > start_ms + self._config.timeout_ms:
                raise RegistryUnavailableError(
                    f"no schema registry of {URL_OPTION} answers: {'; '.join(problems)} (tried for "
                    f"{now_ms - start_ms} ms). Check the address and the way from the driver to it"
                )
            self._wait(pause_ms)

    def _prepare_headers(self, number: int) -> None:
        if number not in self._headers:
            url = self._urls[number]
            self._headers[number] = headers_of(self._config, url, self._tls, self._clock)

    def _ask_at(
        self, number: int, method: str, path: str, body: Mapping[str, Any] | None, left_ms: int
    ) -> Any:
        url = self._urls[number]
        whole = urlsplit(f"{url.scheme}://{url.netloc}{url.path.rstrip('/')}{path}")
        headers = {name: secret.reveal() for name, secret in self._headers[number].items()}
        headers.update({"Accept": f"{_JSON}, application/json", "Content-Type": _JSON})
        sent = b"" if body is None else json.dumps(body).encode()
        request = Request(whole, headers, sent, method, URL_OPTION, MOST_BYTES)
        most_ms = min(self._config.request_timeout_ms, left_ms)
        end_ms = self._clock.now_ms() + most_ms
        context = self._tls.context() if url.scheme == "https" else None
        try:
            answer = exchange(request, context, Limits(most_ms, most_ms, most_ms), self._clock)
        except ssl.SSLError as error:
            host, port = host_and_port(url, URL_OPTION)
            told = f"schema registry: {self._tls.explain(error, host, port)}"
            # Where a server has refused a client, its alert may be lost with the connection.
            if isinstance(error, (ssl.SSLEOFError, ssl.SSLZeroReturnError)):
                raise RegistryUnavailableError(told) from None
            raise NoRegistryError(told) from None
        except UnicodeError as error:  # of a host's name, before anything is sent
            raise ConfigError(
                f"{_shown(url)} has a host that cannot be looked up ({error}): check {URL_OPTION}"
            ) from None
        except TimeoutError:
            raise RegistryUnavailableError(
                f"{_shown(url)}: no answer within {most_ms} ms"
            ) from None
        except OSError as error:
            if isinstance(error, ConnectionError):
                self._check_clear_text(url, end_ms)
            raise RegistryUnavailableError(f"{_shown(url)}: {error}") from None
        except HTTPException as error:
            self._check_clear_text(url, end_ms)
            raise NoRegistryError(
                f"{_shown(url)} does not speak HTTP ({type(error).__name__}): check {URL_OPTION}"
            ) from None
        if answer.status == 400:  # as some servers answer to what should have been TLS
            self._check_clear_text(url, end_ms)
        return self._content_of(answer, url, tuple(_sent(self._headers[number])))

    def _content_of(self, answer: Answer, url: SplitResult, secrets: tuple[str, ...]) -> Any:
        if not answer.is_whole:
            raise RegistryError(
                f"the schema registry {_shown(url)} answers {answer.status} with more than "
                f"{MOST_BYTES:,} bytes, which are not taken"
            )
        content = json_of(answer.body)
        if answer.status == 200 and content is not None:
            return content
        code, reason = reason_in(content, answer.status, secrets)
        what = f"the schema registry {_shown(url)} answers {answer.status}"
        if code is not None and code != answer.status:
            what += f" ({code})"
        if reason:
            what += f", {reason}"
        if answer.status in MAY_PASS:
            raise RegistryUnavailableError(what)
        if answer.status == 401:
            raise RegistryError(f"{what}: {self._about_credentials()}")
        if answer.status == 403:
            raise RegistryError(
                f"{what}: these credentials do not allow it. Ask for the right to read and, for "
                "auto.register.schemas=true, to write the subject"
            )
        if code is not None:
            what += f": {_ABOUT_PATH}" if code == 404 else ""
            raise RegistryRefusedError(what, answer.status, code, reason)
        if 300 <= answer.status < 400:
            raise NoRegistryError(
                f"{what}, a redirect, which is not followed: set {URL_OPTION} to where it leads"
            )
        told = f"{answer.status}, {reason}," if reason else f"{answer.status}"
        kind = shown(answer.content_type, secrets) or "no type"
        raise self._no_registry(f"{told} with {kind} that is no answer of one")

    def _check_clear_text(self, url: SplitResult, end_ms: int) -> None:
        """Raise RegistryError if ``url`` begins with http:, and its port speaks TLS."""
        left_ms = end_ms - self._clock.now_ms()
        if url.scheme == "http" and speaks_tls(url, URL_OPTION, left_ms, self._clock):
            raise RegistryError(
                f"{_shown(url)}: the port speaks TLS: {URL_OPTION} must begin with https: there"
            )

    def _about_credentials(self) -> str:
        if self._config.bearer is not None:
            return "it does not take the token: check schema.registry.bearer.auth.*"
        is_given = self._config.user_info is not None
        if is_given or any(url.username is not None for url in self._urls):
            return "it does not take user and password: check schema.registry.basic.auth.user.info"
        return (
            "it wants credentials: set schema.registry.basic.auth.user.info, or "
            "schema.registry.bearer.auth.token"
        )

    def _no_registry(self, what: str) -> NoRegistryError:
        return NoRegistryError(
            f"{self.name} answers {what}: it is no schema registry, or {_ABOUT_PATH}"
        )


def _versions(subject: str, is_normalized: bool) -> str:
    # A strategy may put a slash into a subject.
    return f"/subjects/{quote(subject, safe='')}/versions{_normalize(is_normalized)}"


def _normalize(is_normalized: bool) -> str:
    return "?normalize=true" if is_normalized else ""


def _body(schema: Schema) -> dict[str, Any]:
    body: dict[str, Any] = {"schema": schema.text}
    if schema.kind != "AVRO":
        body["schemaType"] = schema.kind
    if schema.references:
        body["references"] = [
            {"name": name, "subject": subject, "version": version}
            for name, subject, version in schema.references
        ]
    return body


def _checked(url: Secret) -> SplitResult:
    """Raises ConfigError, which does not show it."""
    parts = split_url(resolve(url.reveal(), URL_OPTION).strip())
    host = ""
    if parts is not None and parts.scheme in ("http", "https"):
        host, _ = host_and_port(parts, URL_OPTION)
    if parts is None or not host or parts.query or parts.fragment:
        raise ConfigError(
            f"{URL_OPTION} must be of the form https://host:port or https://host:port/path"
        )
    address = f"{host}{parts.path}"
    if not (address.isprintable() and parts.path.isascii()) or " " in address:
        raise ConfigError(
            f"{URL_OPTION} has a space or another character that an address cannot have: write "
            "it as in a browser's address, a space as %20"
        )
    return parts


def _shown(url: SplitResult) -> str:
    return shown_url(url.geturl())


def _sent(headers: Mapping[str, Secret]) -> Iterator[str]:
    """Return what a registry must not be quoted with: a token; a password, and its base64."""
    for header in headers.values():
        scheme, _, credential = header.reveal().partition(" ")
        yield credential
        if scheme == "Basic":
            yield base64.b64decode(credential).decode().partition(":")[2]
