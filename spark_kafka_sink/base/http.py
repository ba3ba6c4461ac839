"""One HTTP request within one deadline, through the proxies of the environment.

A slow server, which sends a byte now and then, stays within every limit of a single read. Therefore
each read and write of the socket waits at most for the rest of the whole request's time. A redirect
is not followed, because the request holds a secret. Answers are wanted as they are, not compressed:
a kilobyte of gzip can be a megabyte of text.
"""

from __future__ import annotations

import base64
import io
import queue
import re
import socket
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing
from email.utils import parsedate_to_datetime
from http.client import HTTPConnection, IncompleteRead
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from spark_kafka_sink.base.clock import Clock, wait_seconds
from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.base.text import HIDDEN, HeaderCredential, problem_of_at_sign

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

_PORTS = {"http": 80, "https": 443}
# Every other header may hold a credential: services have names of their own for keys.
_PUBLIC_HEADERS = {
    *("accept", "accept-encoding", "cache-control", "connection"),
    *("content-encoding", "content-length", "content-type", "host", "user-agent"),
}
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"[\t -~\x80-\xff]*")


class Request(NamedTuple):
    """A request to ``url`` (http or https).

    option: the URL's option, for errors
    most_bytes: limit of the response's body
    """

    url: SplitResult
    headers: Mapping[str, str]
    body: bytes
    method: str
    option: str
    most_bytes: int

    def __repr__(self) -> str:
        return f"Request({HIDDEN})"


class Response(NamedTuple):
    """The response.

    body: at most the requested number of bytes
    is_whole: False if the body is longer
    retry_after_ms: how long the server asks clients to wait before the next request
    reason: the server's words beside the status
    credentials: of the request; ``redacted`` hides them while the response is in use
    """

    status: int
    content_type: str
    location: str
    body: bytes
    is_whole: bool = True
    retry_after_ms: int = 0
    reason: str = ""
    credentials: tuple[HeaderCredential, ...] = ()

    def __repr__(self) -> str:
        return f"Response({self.status}, {HIDDEN})"


class Limits(NamedTuple):
    """Timeouts in milliseconds.

    connect_ms: for the connection, from the look-up of its host to the end of the TLS handshake
    read_ms: for the whole response, from then on
    total_ms: for both
    """

    connect_ms: int
    read_ms: int
    total_ms: int


class TruncatedResponseError(OSError):
    """The connection ended before the response was complete, so the received part is worthless."""

    def __init__(self) -> None:
        super().__init__("the answer was cut")


def host_and_port(url: SplitResult, option: str) -> tuple[str, int]:
    """Return host and port of ``url``.

    Raises ConfigError, which shows nothing of the URL, for a missing host or an invalid port.
    """
    problem = problem_of_at_sign(url)
    if problem is not None:
        raise ConfigError(f"{option} {problem}", code="OPTION-022")
    try:
        port = url.port
    except ValueError:
        port = 0
    if not url.hostname or port == 0:
        raise ConfigError(f"{option} must be of the form https://host:port/path", code="OPTION-022")
    return url.hostname, port or _PORTS[url.scheme]


def check_header(name: str, value: str, source: str) -> None:
    """Raise ConfigError for a header that HTTP cannot have. Python's own error would quote it.

    source: where the header comes from; the error shows nothing else of it
    """
    if not _HEADER_NAME.fullmatch(name):
        problem = "has a name that no header of HTTP can have"
    elif not _HEADER_VALUE.fullmatch(value):
        problem = (
            "has a line break, or another character that no header of HTTP can have: it must be "
            "one line (base64 breaks a long one unless it is called as base64 -w0)"
        )
    else:
        return
    raise ConfigError(f"{source} {problem}", code="OPTION-003")


def exchange(
    request: Request, context: ssl.SSLContext | None, limits: Limits, clock: Clock
) -> Response:
    """Return the response to ``request``.

    context: for https

    Raises TimeoutError when a limit has passed; OSError, including ssl.SSLError; HTTPException;
    UnicodeError for an invalid host name; ConfigError, also for a header that HTTP cannot have.
    """
    url = request.url
    route = _route_to(url, request.option)
    target = (url.path or "/") + (f"?{url.query}" if url.query else "")
    headers = dict(request.headers)
    if route.proxy is not None and context is None:
        target = f"http://{url.netloc.rpartition('@')[2]}{target}"
        headers.update(route.proxy.headers)
    for name, value in headers.items():
        check_header(name, value, f"a header of the request to {request.option}")
    # From here on, because `redacted` must know them in errors, too: an error's traceback has them.
    credentials = tuple(_credentials_in(headers))
    end_ms = clock.now_ms() + limits.total_ms
    try:
        until = _Deadline(clock, min(end_ms, clock.now_ms() + limits.connect_ms))
        with closing(_open_socket(route, context, until)) as sock:
            until = _Deadline(clock, min(end_ms, clock.now_ms() + limits.read_ms))
            connection = _http_connection(_DeadlineSocket(sock, until), route.host, route.port)
            connection.default_port = _PORTS[url.scheme]
            try:
                connection.request(request.method, target, request.body or None, headers)
            except OSError as error:
                raise _tls_alert_or(_DeadlineSocket(sock, until), error) from None
            answer = _answer(connection, request.most_bytes, clock)
            return answer._replace(credentials=credentials)
    except socket.timeout:  # no TimeoutError before Python 3.10
        raise _no_time() from None


def _credentials_in(headers: Mapping[str, str]) -> Iterator[HeaderCredential]:
    for name, value in headers.items():
        if name.lower() not in _PUBLIC_HEADERS:
            yield HeaderCredential(value)


def speaks_tls(url: SplitResult, option: str, limit_ms: int, clock: Clock) -> bool:
    """Return True if a TLS handshake succeeds at ``url`` within ``limit_ms``.

    No certificate is checked, because no data is sent.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    route = _Route(*host_and_port(url, option), None)
    try:
        _open_socket(route, context, _Deadline(clock, clock.now_ms() + limit_ms)).close()
    except OSError:
        return False
    return True


def _no_time() -> TimeoutError:
    return TimeoutError("timed out")


class _Deadline(NamedTuple):
    clock: Clock
    end_ms: int

    def left_s(self) -> float:
        """Return the remaining seconds. Raises TimeoutError if there are none."""
        left_ms = self.end_ms - self.clock.now_ms()
        if left_ms <= 0:
            raise _no_time()
        return wait_seconds(left_ms)


class _DeadlineSocket(io.RawIOBase):
    """A socket for ``http.client``, whose every read and write ends with the deadline."""

    def __init__(self, sock: socket.socket, until: _Deadline) -> None:
        self._sock = sock
        self._until = until

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        self._sock.settimeout(self._until.left_s())
        return self._sock.recv_into(buffer)

    def sendall(self, data: ReadableBuffer) -> None:
        """Send all of ``data``. With TLS, ``socket.sendall`` has a new timeout for each part."""
        view = memoryview(data)
        while view:
            self._sock.settimeout(self._until.left_s())
            view = view[self._sock.send(view) :]

    def makefile(self, mode: str) -> io.BufferedReader:
        """Return a reader that outlives the connection, as ``http.client`` requires."""
        return io.BufferedReader(_DeadlineSocket(self._sock, self._until))


class _Proxy(NamedTuple):
    host: str
    port: int
    headers: dict[str, str]


class _Route(NamedTuple):
    """The way to a server.

    proxy: None for a direct connection
    """

    host: str
    port: int
    proxy: _Proxy | None


def _route_to(url: SplitResult, option: str) -> _Route:
    host, port = host_and_port(url, option)
    return _Route(host, port, _proxy(url.scheme, host))


def _open_socket(route: _Route, context: ssl.SSLContext | None, until: _Deadline) -> socket.socket:
    """Return a connected socket: with ``context`` inside TLS, through a proxy's tunnel."""
    next_host, next_port = (route.host, route.port) if route.proxy is None else route.proxy[:2]
    sock = _connected(next_host, next_port, until)
    try:
        if context is None:
            return sock
        if route.proxy is not None:
            _tunnel(_DeadlineSocket(sock, until), route, route.proxy)
        # This timeout limits the whole handshake.
        sock.settimeout(until.left_s())
        return context.wrap_socket(sock, server_hostname=route.host)
    except BaseException:
        sock.close()
        raise


def _connected(host: str, port: int, until: _Deadline) -> socket.socket:
    """Return a connection to the first address of ``host`` that accepts one.

    Each address has its share of the remaining time, so an unresponsive one does not use it up.
    """
    found = _addresses(host, port, until)
    problem: OSError = _no_time()
    for number, (family, kind, protocol, _, address) in enumerate(found):
        sock = socket.socket(family, kind, protocol)
        try:
            sock.settimeout(until.left_s() / (len(found) - number))
            sock.connect(address)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return sock
        except OSError as error:
            sock.close()
            problem = error
    raise problem


def _addresses(host: str, port: int, until: _Deadline) -> list[Any]:
    """Look up ``host`` in a thread, because the operating system's call has no timeout."""
    found: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def look_up() -> None:
        try:
            found.put(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except (OSError, UnicodeError) as error:
            found.put(error)

    threading.Thread(target=look_up, name="pykafka-sink host name", daemon=True).start()
    try:
        answer = found.get(timeout=until.left_s())
    except queue.Empty:
        raise _no_time() from None
    if isinstance(answer, Exception):
        raise answer
    return list(answer)


def _tunnel(wire: _DeadlineSocket, route: _Route, proxy: _Proxy) -> None:
    connection = _http_connection(wire, route.host, route.port)
    name = f"[{route.host}]" if ":" in route.host else route.host
    target = f"{name}:{route.port}"
    connection.request("CONNECT", target, headers={"Host": target, **proxy.headers})
    status = connection.getresponse().status
    if not 200 <= status < 300:
        raise OSError(f"the proxy {proxy.host}:{proxy.port} answers {status}")


def _http_connection(wire: _DeadlineSocket, host: str, port: int) -> HTTPConnection:
    connection = HTTPConnection(host, port)
    connection.sock = wire
    return connection


def _tls_alert_or(wire: _DeadlineSocket, error: OSError) -> OSError:
    """Return the server's TLS alert, if any, as the reason for a failed write; else ``error``."""
    try:
        wire.readinto(bytearray(1))
    except (ssl.SSLEOFError, ssl.SSLZeroReturnError):
        return error
    except ssl.SSLError as alert:
        return alert
    except OSError:
        pass
    return error


def _answer(connection: HTTPConnection, most_bytes: int, clock: Clock) -> Response:
    """Return the response with its whole body, or with the first ``most_bytes``."""
    answer = connection.getresponse()
    body = bytearray()
    try:
        while len(body) <= most_bytes and (more := answer.read1(65_536)):
            body += more
    except IncompleteRead:  # of a chunked body
        raise TruncatedResponseError from None
    is_whole = len(body) <= most_bytes
    # The rest of Content-Length: `read1` does not report a connection that has ended.
    if answer.length and is_whole:
        raise TruncatedResponseError
    return Response(
        answer.status,
        answer.headers.get("Content-Type", "").split(";")[0].strip(),
        answer.headers.get("Location", ""),
        bytes(body[:most_bytes]),
        is_whole,
        _retry_after_ms(answer.headers.get("Retry-After", "").strip(), clock),
        answer.reason.strip(),
    )


_MOST_SECONDS = 10  # digits: 300 years


def _retry_after_ms(text: str, clock: Clock) -> int:
    """Return the milliseconds of a Retry-After, which has seconds or a date; 0 without one."""
    if text.isdecimal():
        return 1000 * int(text[:_MOST_SECONDS])
    try:
        until_ms = int(1000 * parsedate_to_datetime(text).timestamp())
    except (ValueError, TypeError, OverflowError):
        return 0
    return max(0, until_ms - clock.timestamp_ms())


def _proxy(scheme: str, host: str) -> _Proxy | None:
    """Return the proxy of ``https_proxy``, ``http_proxy`` and ``no_proxy``, in any case."""
    text = getproxies().get(scheme)
    if not text or proxy_bypass(host):
        return None
    try:
        url = urlsplit(text if "://" in text else f"http://{text}")
        port = url.port or 80
        pair = f"{unquote(url.username or '')}:{unquote(url.password or '')}".encode()
    except ValueError:  # its message quotes the password
        url, port, pair = urlsplit(""), 0, b""
    if url.scheme != "http" or not url.hostname or not port:
        raise ConfigError(
            f"the environment's {scheme}_proxy must be of the form http://host:port, or no_proxy "
            f"must name {host}",
            code="OPTION-022",
        )
    headers: dict[str, str] = {}
    if url.username is not None:
        headers["Proxy-Authorization"] = f"Basic {base64.b64encode(pair).decode()}"
    return _Proxy(url.hostname, port, headers)
