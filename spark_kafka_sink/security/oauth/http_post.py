"""One HTTP request: with the proxies of the environment, without following redirects.

A redirect is not followed, for the request holds a secret.
"""

from __future__ import annotations

import base64
import ssl
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPResponse, HTTPSConnection, IncompleteRead
from typing import NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from spark_kafka_sink.base.clock import Clock, wait_seconds
from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.base.secret import HIDDEN

MOST_BYTES = 1_000_000
_PORTS = {"http": 80, "https": 443}


URL_OPTION = "kafka.sasl.oauthbearer.token.endpoint.url"


class Request(NamedTuple):
    """A request to ``url`` (http or https).

    option: the one that the URL is of, for errors; most_bytes: of the answer's body
    """

    url: SplitResult
    headers: Mapping[str, str]
    body: bytes
    method: str = "POST"
    option: str = URL_OPTION
    most_bytes: int = MOST_BYTES

    def __repr__(self) -> str:
        return f"Request({HIDDEN})"


class Answer(NamedTuple):
    """What came back. body: at most as much as was asked for; is_whole: whether that is all"""

    status: int
    content_type: str
    location: str
    body: bytes
    is_whole: bool = True

    def __repr__(self) -> str:
        return f"Answer({self.status}, {HIDDEN})"


class Limits(NamedTuple):
    """How long to wait, in milliseconds: for the connection, for the answer, for all of it."""

    connect_ms: int
    read_ms: int
    total_ms: int


class SlowAnswerError(OSError):
    """The answer came, but not all of it in time."""


class CutAnswerError(OSError):
    """The connection ended before the answer did: what came of it means nothing."""

    def __init__(self) -> None:
        super().__init__("the answer was cut")


def host_and_port(url: SplitResult, option: str = URL_OPTION) -> tuple[str, int]:
    """Raises ConfigError for a URL that names no host, or a port that is none."""
    try:
        port = url.port
    except ValueError:
        port = 0
    if not url.hostname or port == 0:
        raise ConfigError(f"{option} must be of the form https://host:port/path")
    return url.hostname, port or _PORTS[url.scheme]


def post(request: Request, context: ssl.SSLContext | None, limits: Limits, clock: Clock) -> Answer:
    """The answer to ``request``. Raises OSError, of which ssl.SSLError is one, and HTTPException.

    context: for https
    """
    end_ms = clock.now_ms() + limits.total_ms
    connection, target, proxy_headers = _way_to(request, context)
    connection.timeout = wait_seconds(max(min(limits.connect_ms, limits.total_ms), 1))
    try:
        connection.connect()
        left_ms = min(limits.read_ms, end_ms - clock.now_ms())
        connection.sock.settimeout(wait_seconds(max(left_ms, 1)))
        body = request.body or None
        headers = {**request.headers, **proxy_headers}
        try:
            connection.request(request.method, target, body, headers)
        except OSError as error:
            raise _told_before(connection, error) from None
        answer = connection.getresponse()
        content = _body_of(answer, request.most_bytes, end_ms, clock)
        return Answer(
            answer.status,
            answer.headers.get("Content-Type", "").split(";")[0].strip(),
            answer.headers.get("Location", ""),
            content[: request.most_bytes],
            len(content) <= request.most_bytes,
        )
    finally:
        connection.close()


def _told_before(connection: HTTPConnection, error: OSError) -> OSError:
    """Why the server has ended a connection that cannot be written to: its alert can be read."""
    try:
        connection.sock.recv(1)
    except (ssl.SSLEOFError, ssl.SSLZeroReturnError):
        return error
    except ssl.SSLError as told:
        return told
    except OSError:
        pass
    return error


def _body_of(answer: HTTPResponse, most_bytes: int, end_ms: int, clock: Clock) -> bytes:
    """All of it, or more than ``most_bytes``."""
    body = bytearray()
    try:
        while len(body) <= most_bytes and (more := answer.read1(65_536)):
            body += more
            if clock.now_ms() > end_ms:
                raise SlowAnswerError("the answer comes too slowly")
    except IncompleteRead:  # in chunks
        raise CutAnswerError from None
    # What is left of Content-Length: `read1` does not tell a connection that has ended.
    if answer.length and len(body) <= most_bytes:
        raise CutAnswerError
    return bytes(body)


class _Way(NamedTuple):
    """connection: not made yet; target: of the request's first line; headers: a proxy's."""

    connection: HTTPConnection
    target: str
    headers: dict[str, str]


def _way_to(request: Request, context: ssl.SSLContext | None) -> _Way:
    url = request.url
    host, port = host_and_port(url, request.option)
    path = (url.path or "/") + (f"?{url.query}" if url.query else "")
    proxy = _proxy(url.scheme, host)
    if url.scheme == "https":
        if proxy is None:
            return _Way(HTTPSConnection(host, port, context=context), path, {})
        tunnel = HTTPSConnection(proxy.host, proxy.port, context=context)
        tunnel.set_tunnel(host, port, headers=proxy.headers)
        return _Way(tunnel, path, {})
    if proxy is None:
        return _Way(HTTPConnection(host, port), path, {})
    target = f"http://{url.netloc.rpartition('@')[2]}{path}"
    return _Way(HTTPConnection(proxy.host, proxy.port), target, proxy.headers)


class _Proxy(NamedTuple):
    host: str
    port: int
    headers: dict[str, str]


def _proxy(scheme: str, host: str) -> _Proxy | None:
    """Of the variables ``https_proxy``, ``http_proxy`` and ``no_proxy``, in either case."""
    text = getproxies().get(scheme)
    if not text or proxy_bypass(host):
        return None
    url = urlsplit(text if "://" in text else f"http://{text}")
    try:
        port = url.port or 80
    except ValueError:
        port = 0
    if url.scheme != "http" or not url.hostname or not port:
        raise ConfigError(
            f"the environment's {scheme}_proxy must be of the form http://host:port, or no_proxy "
            f"must name {host}"
        )
    headers: dict[str, str] = {}
    if url.username is not None:
        pair = f"{unquote(url.username)}:{unquote(url.password or '')}"
        headers["Proxy-Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
    return _Proxy(url.hostname, port, headers)
