"""One HTTP request against servers that are slow on purpose: each place of an answer, one deadline.

A server here sends a byte now and then until the client hangs up, so that no verdict depends on the
machine's load: a client without a deadline is ended by pytest's own timeout.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import ssl
import threading
from dataclasses import replace
from http.client import HTTPException
from typing import NamedTuple
from urllib.parse import urlsplit

import pytest

from spark_kafka_sink.base import http
from spark_kafka_sink.base.clock import SystemClock
from spark_kafka_sink.base.errors import ConfigError, CredentialsUnavailableError
from spark_kafka_sink.config.security_config import LoginConfig
from spark_kafka_sink.registry.client import RegistryClient
from tests.patience import AN_HOUR_MS, PATIENCE_MS, PATIENCE_S
from tests.tables import each_row
from tests.unit.registry.server import TEXT, Registry, oauth, options, refusal
from tests.unit.registry.server import serving as serving_registry
from tests.unit.security.tls_ends import client_context, server_context
from tests.unit.security.token_endpoints import HOST, basic, config_for, http_proxy, refused

pytestmark = pytest.mark.usefixtures("no_proxy")

SHORT_MS = 150
OPTION = "the.option"
ENOUGH = http.Limits(*[PATIENCE_MS] * 3)
OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"


class Drip(NamedTuple):
    """first: sent at once; then: sent byte by byte, again and again, without end

    in_tls: the handshake is made before that; has_request: whether the client's request is awaited
    """

    first: bytes
    then: bytes
    in_tls: bool = False
    has_request: bool = True


ANSWERS = {
    "nothing at all": Drip(b"", b""),
    "status line": Drip(b"HTTP/1.1 200 ", b"x"),
    "headers": Drip(OK + b"X: ", b"x"),
    "body of a known length": Drip(OK + b"Content-Length: 9999999\r\n\r\n", b"x"),
    "body until the connection ends": Drip(OK + b"\r\n", b"x"),
    "chunk size": Drip(CHUNKED, b"0"),
    "chunk extension": Drip(CHUNKED + b"1;", b"x"),
    "chunk data": Drip(CHUNKED + b"ffffff\r\n", b"x"),
    "small chunks": Drip(CHUNKED, b"1\r\nx\r\n"),
    "trailers": Drip(CHUNKED + b"0\r\n", b"X: y\r\n"),
    "100 Continue": Drip(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "status line in TLS": Drip(b"HTTP/1.1 200 ", b"x", in_tls=True),
    "chunk size in TLS": Drip(CHUNKED, b"0", in_tls=True),
}


HANDSHAKES = {
    "no handshake": Drip(b"", b"", has_request=False),
    "handshake": Drip(b"\x16\x03\x03\x40\x00\x02\x00\x3f\xfc\x03\x03", b"x", has_request=False),
}


class Dripping:
    """address: of the server; dripped: how many bytes the client was sent of what has no end"""

    def __init__(self, drip, port):
        self.drip = drip
        self.address = f"{HOST}:{port}"
        self.dripped = 0

    @property
    def url(self):
        return f"{'https' if self.drip.in_tls else 'http'}://{self.address}/"

    @property
    def is_reached(self):
        return self.dripped > 3 or not self.drip.then


@contextlib.contextmanager
def dripping(*drip, **more):
    drip = drip[0] if isinstance(drip[0], Drip) else Drip(*drip, **more)
    listener = socket.create_server((HOST, 0))
    server = Dripping(drip, listener.getsockname()[1])
    stop = threading.Event()

    def serve(sock):
        with contextlib.suppress(OSError):
            sock.settimeout(PATIENCE_S)
            channel = server_context().wrap_socket(sock, server_side=True) if drip.in_tls else sock
            with channel:
                data = b""
                while drip.has_request and b"\r\n\r\n" not in data:
                    data += channel.recv(65_536)
                channel.sendall(drip.first)
                for byte in itertools.cycle(drip.then):
                    channel.sendall(bytes([byte]))
                    server.dripped += 1
                    if stop.wait(0.001):
                        return
                stop.wait(PATIENCE_S)

    def accept():
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield server
    finally:
        stop.set()
        listener.close()


def request_of(url, body=b"body"):
    return http.Request(urlsplit(url), {"X-Secret": "x"}, body, "POST", OPTION, 1000)


def asked(url, limits=ENOUGH, clock=None, body=b"body"):
    context = client_context() if url.startswith("https") else None
    return http.exchange(request_of(url, body), context, limits, clock or SystemClock())


def times_out(server, url, *limits):
    """With more time where a busy machine has not come as far as to what is dripped."""
    factor = 1
    while factor == 1 or not server.is_reached:
        given = http.Limits(*(limit if limit == AN_HOUR_MS else limit * factor for limit in limits))
        with pytest.raises(TimeoutError):
            asked(url, given)
        factor *= 10
        assert factor * SHORT_MS < PATIENCE_MS


OF_CONNECTION = (SHORT_MS, AN_HOUR_MS, AN_HOUR_MS)
OF_ANSWER = (AN_HOUR_MS, SHORT_MS, AN_HOUR_MS)
LIMITS = {"the answer's": OF_ANSWER, "the whole": (AN_HOUR_MS, AN_HOUR_MS, SHORT_MS)}


@each_row("limits", LIMITS)
@each_row("place", ANSWERS)
def test_an_answer_that_drips_ends_with_the_request(place, limits):
    with dripping(ANSWERS[place]) as server:
        times_out(server, server.url, *LIMITS[limits])


@pytest.mark.parametrize("place", HANDSHAKES)
def test_a_handshake_that_drips_ends_with_the_connections_limit(place):
    with dripping(HANDSHAKES[place]) as server:
        times_out(server, f"https://{server.address}/", *OF_CONNECTION)
        assert not http.speaks_tls(urlsplit(server.url), OPTION, SHORT_MS, SystemClock())


@pytest.mark.parametrize("place", ["nothing at all", "status line", "headers", "100 Continue"])
def test_a_proxy_that_drips_ends_with_the_connections_limit(place, monkeypatch):
    with dripping(ANSWERS[place]) as server:
        monkeypatch.setenv("https_proxy", server.url)
        times_out(server, "https://a.example/", *OF_CONNECTION)


def test_a_server_that_takes_nothing_ends_with_the_request():
    """Its socket is full."""
    with socket.create_server((HOST, 0)) as listener:
        url = f"http://{HOST}:{listener.getsockname()[1]}/"
        with pytest.raises(TimeoutError):
            asked(url, http.Limits(*OF_ANSWER), body=b"x" * 50_000_000)


class Counting:
    """A clock that goes on with each look, by 1 ms unless it stands."""

    def __init__(self, step_ms=1):
        self.ms = 0
        self._step_ms = step_ms

    def now_ms(self):
        self.ms += self._step_ms
        return self.ms

    timestamp_ms = perf_ns = now_ms


STILL = Counting(0)


def test_no_more_is_read_when_the_clock_is_past_the_end():
    """However fast bytes come: the socket's own timeout has no part in it."""
    clock = Counting()
    with dripping(ANSWERS["headers"]) as server, pytest.raises(TimeoutError):
        # As many seconds as bytes.
        asked(server.url, http.Limits(*[60] * 3), clock, body=b"")
    assert clock.ms <= 70


@each_row(
    ("head", "is_whole"),
    [
        (b"Content-Length: 9999999\r\n\r\n", False),
        (b"\r\n", False),
        (b"Content-Length: 1000\r\n\r\n", True),
    ],
)
def test_a_body_that_is_too_large_is_not_read_to_its_end(head, is_whole):
    with dripping(OK + head + b"x" * 2000, b"x") as server:
        answer = asked(server.url)
    assert answer.is_whole is is_whole
    assert len(answer.body) == 1000


@pytest.mark.parametrize("line", [b"X: y\r\n", b"X: " + b"y" * 200_000])
def test_headers_without_end_are_refused(line):
    with dripping(OK + line * 200, b"") as server, pytest.raises(HTTPException):
        asked(server.url)


@contextlib.contextmanager
def not_answering():
    """A port whose queue of connections is full: the next one is not answered."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind((HOST, 0))
        listener.listen(0)
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
        yield listener.getsockname()[1]


def test_a_connection_that_does_not_come_about_ends_with_its_limit(monkeypatch):
    with not_answering() as port, pytest.raises(TimeoutError):
        asked(f"http://{HOST}:{port}/", http.Limits(*OF_CONNECTION))
    # Nor does a name server answer.
    never = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *a, **k: never.wait(PATIENCE_S))
    with pytest.raises(TimeoutError):
        asked("http://a.example/", http.Limits(*OF_CONNECTION))
    never.set()


def test_the_next_address_of_a_host_has_its_share_of_the_time(monkeypatch):
    with not_answering() as silent, dripping(OK + b"\r\n" + b"x" * 2000, b"") as good:
        ports = (silent, int(good.address.split(":")[1]))
        found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (HOST, port)) for port in ports]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *a, **k: found)
        for limit_ms in (SHORT_MS, PATIENCE_MS // 10):  # the second for a busy machine
            with contextlib.suppress(TimeoutError):
                limits = http.Limits(limit_ms, PATIENCE_MS, PATIENCE_MS)
                assert asked("http://a.example/", limits).status == 200
                return
    pytest.fail("the second address was not asked")


def test_the_registrys_next_address_is_asked_after_one_that_drips():
    with dripping(ANSWERS["headers"]) as slow, serving_registry(Registry()) as registry:
        registry.add("t-value", {"schema": TEXT})
        more = {"schema_registry_timeout_ms": "900000"}
        given = options(f"http://{slow.address},{registry.url}", **more).registry
        config = replace(given.config, request_timeout_ms=1000)
        assert RegistryClient(config).version("t-value").id == 1


def test_a_token_endpoint_that_drips_is_told_in_time():
    """The sink's, and the one of the registry's tokens."""
    with dripping(ANSWERS["100 Continue"]) as slow:
        login = LoginConfig(read_timeout_ms=SHORT_MS, retry_backoff_max_ms=0)
        error = refused(replace(config_for(f"{slow.url}token"), login=login))
    assert isinstance(error, CredentialsUnavailableError)
    assert "does not answer in time" in str(error)
    with dripping(ANSWERS["headers"]) as slow:
        given = {"schema_registry_timeout_ms": str(SHORT_MS), **oauth(f"{slow.url}token")}
        words = refusal("http://registry.example", **given)
    assert "does not answer in time (schema.registry.timeout.ms)" in words


@pytest.mark.parametrize(
    ("url", "told"),
    [
        *((f"http://user:1234{m}hush@host/x", "In user and password write %2F") for m in "/?#"),
        ("http://r:0/", "must be of the form"),
    ],
)
def test_a_password_with_an_unescaped_mark_is_not_taken_for_a_path(url, told):
    with pytest.raises(ConfigError, match=told) as refused:
        http.host_and_port(urlsplit(url), OPTION)
    assert "hush" not in str(refused.value)
    assert "1234" not in str(refused.value)


@contextlib.contextmanager
def answered(monkeypatch, data, seam="_open_socket"):
    """Another end of a connection, which answers with ``data`` and ends; and this one."""
    ours, theirs = socket.socketpair()
    monkeypatch.setattr(http, seam, lambda *_: ours)
    with theirs:
        theirs.sendall(data)
        theirs.shutdown(socket.SHUT_WR)
        yield theirs, ours


@pytest.mark.parametrize(("scheme", "port"), [("http", 80), ("https", 443)])
def test_a_host_is_told_without_the_port_of_its_scheme(monkeypatch, scheme, port):
    for given, told in (("", ""), (f":{port}", ""), (":8443", ":8443")):
        with answered(monkeypatch, OK + b"\r\n") as (theirs, _):
            asked(f"{scheme}://r.example{given}/", clock=STILL)
            assert f"\r\nHost: r.example{told}\r\n".encode() in theirs.recv(65_536)


@pytest.mark.parametrize("cut", [OK + b"Content-Length: 9\r\n\r\nab", CHUNKED + b"5\r\nab"])
def test_an_answer_that_ends_too_soon_is_none(monkeypatch, cut):
    with answered(monkeypatch, cut), pytest.raises(http.TruncatedResponseError):
        asked("http://r/", clock=STILL)


@pytest.mark.parametrize(("limits", "ends"), [((9, 8, 7), [7, 7]), ((3, 4, 90), [3, 4])])
def test_neither_limit_goes_beyond_the_whole(monkeypatch, limits, ends):
    found, made = [], http._Deadline
    monkeypatch.setattr(http, "_Deadline", lambda c, end_ms: found.append(end_ms) or made(c, 9000))
    with answered(monkeypatch, OK + b"\r\n"):
        asked("http://r/", http.Limits(*limits), STILL)
    assert found == ends
    with pytest.raises(TimeoutError):
        made(STILL, 0).left_s()


def test_a_proxy_gets_its_own_credentials_and_none_of_the_servers(monkeypatch):
    with http_proxy() as (port, received):
        monkeypatch.setenv("http_proxy", f"http://us%20er:pw@{HOST}:{port}")
        asked("http://name:hush@r.example:8080/p?q=1")
    assert received[0].line == "POST http://r.example:8080/p?q=1 HTTP/1.1"
    assert received[0].headers["host"] == "r.example:8080"
    assert received[0].headers["proxy-authorization"] == basic("us er:pw")
    monkeypatch.setenv("no_proxy", "r.example")
    assert http._proxy("http", "r.example") is None


NO_PROXIES = ["\u2100@proxy:3128", "@[::1:3128", "@proxy:x", "\udcff@proxy:1"]
OTHERS = ["https://p:1", "http://", "http://h:port", "socks5://h:1"]


@pytest.mark.parametrize("proxy", [*OTHERS, *(f"http://svc:hush{h}" for h in NO_PROXIES)])
def test_a_proxys_password_is_in_no_error(monkeypatch, proxy):
    """A message of ``urlsplit`` quotes the user and the password."""
    monkeypatch.setenv("http_proxy", proxy)
    with pytest.raises(ConfigError, match="http_proxy must be of the form") as caught:
        http._proxy("http", "other.example")
    assert "hush" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


@pytest.mark.parametrize(("status", "told"), [(200, "EOF"), (407, "proxy p:1 answers 407")])
def test_a_tunnel_is_asked_for_and_what_is_refused_leaves_nothing_open(monkeypatch, status, told):
    route = http._Route("::1", 443, http._Proxy("p", 1, {"Proxy-Authorization": "x"}))
    answer = f"HTTP/1.1 {status} So\r\n\r\n".encode()
    with answered(monkeypatch, answer, "_connected") as (theirs, ours):
        with pytest.raises(OSError, match=told):
            http._open_socket(route, client_context(), http._Deadline(STILL, PATIENCE_MS))
        sent = theirs.recv(65_536)
    assert ours.fileno() == -1
    assert sent.startswith(b"CONNECT [::1]:443 HTTP/1.1\r\n")
    assert b"\r\nHost: [::1]:443\r\nProxy-Authorization: x\r\n" in sent


class Ended:
    """A socket that takes ``most`` bytes at a time, none if that is 0, and is read as ``told``."""

    def __init__(self, told=None, most=0):
        self.told, self.most = told, most

    def settimeout(self, seconds): ...

    def send(self, data):
        if not self.most:
            raise BrokenPipeError("broken")
        return min(self.most, len(data))

    def recv_into(self, buffer):
        if self.told is not None:
            raise self.told
        return 1

    def close(self): ...


@pytest.mark.parametrize(
    ("told", "raised"),
    [
        (ssl.SSLError(1, "alert"), "alert"),
        (ssl.SSLEOFError(1, "eof"), "broken"),
        (ssl.SSLZeroReturnError(1, "closed"), "broken"),
        (ConnectionResetError("reset"), "broken"),
        (None, "broken"),
    ],
)
def test_why_a_server_takes_no_request_is_read(monkeypatch, told, raised):
    """With TLS 1.3 it refuses a client's certificate when the handshake is over."""
    monkeypatch.setattr(http, "_open_socket", lambda *_: Ended(told))
    with pytest.raises(OSError, match=raised):
        asked("https://r/", http.Limits(*[9000] * 3), STILL)


def test_a_server_that_takes_a_byte_at_a_time_ends_with_the_request():
    sock = http._DeadlineSocket(Ended(most=1), http._Deadline(Counting(), 10))
    with pytest.raises(TimeoutError):
        sock.sendall(b"x" * 1000)


class At(Counting):
    """A clock that stands at the first of January 2026."""

    def timestamp_ms(self):
        return 1_767_225_600_000


@each_row(
    ("text", "expected_ms"),
    [
        *(("", 0), ("0", 0), ("120", 120_000), (" 5 ", 5_000), ("9" * 5_000, 9_999_999_999_000)),
        *(("Thu, 01 Jan 2026 00:01:00 GMT", 60_000), ("Wed, 31 Dec 2025 23:59:00 GMT", 0)),
        *(("soon", 0), ("-5", 0), ("1.5", 0), ("Thu, 99 Jan 2026 00:01:00 GMT", 0)),
    ],
    ids=range(11),
)
def test_how_long_a_server_asks_to_wait(monkeypatch, text, expected_ms):
    data = OK + f"Retry-After: {text}\r\n\r\n".encode()
    with monkeypatch.context() as patch, answered(patch, data):
        assert asked("http://r/", clock=At(0)).retry_after_ms == expected_ms
