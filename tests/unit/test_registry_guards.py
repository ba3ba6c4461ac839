"""Second checks of what asks a schema registry: what each of them keeps from going wrong."""

from __future__ import annotations

import base64
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import pytest

from spark_kafka_sink.base import machine
from spark_kafka_sink.base.errors import CredentialsUnavailableError, KafkaSinkError
from spark_kafka_sink.config.security_config import SaslConfig
from spark_kafka_sink.registry.client import (
    NoRegistryError,
    RegistryClient,
    RegistryUnavailableError,
    Schema,
)
from spark_kafka_sink.registry.references import with_references
from spark_kafka_sink.registry.schemas import (
    SchemaFile,
    SchemaRequest,
    check_subjects,
    find,
    user_defined_subject,
    version_of,
)
from spark_kafka_sink.security import oauth as oauth_login
from tests.unit.registry_asking import (
    TEXT,
    Times,
    found,
    fresh_registry,
    jwt,
    options,
    refusal,
)
from tests.unit.registry_server import Registry, serving
from tests.unit.tls_server import authority, server_context

LATEST = {"use_latest_version": "true"}
TRUST = {
    "schema_registry_ssl_truststore_type": "PEM",
    "schema_registry_ssl_truststore_certificates": authority().pem,
}


@pytest.fixture
def registry():
    with fresh_registry() as made:
        yield made


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(machine.tempfile, "gettempdir", lambda: str(tmp_path))


def client_of(url: str, **more: str) -> RegistryClient:
    given = options(url, **more).registry
    assert given.config is not None
    return RegistryClient(given.config)


@contextmanager
def listening(serve: Callable[[socket.socket], None]) -> Iterator[str]:
    """A host and port where each connection is given to ``serve``, and closed then."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))

        def accept() -> None:
            while True:
                try:
                    taken, _ = listener.accept()
                except OSError:
                    return
                with taken:
                    serve(taken)

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        stack.callback(thread.join)
        stack.callback(listener.shutdown, socket.SHUT_RDWR)
        yield f"127.0.0.1:{listener.getsockname()[1]}"


# --- answers ------------------------------------------------------------------------------------


def test_json_that_is_nested_too_deeply_is_no_answer(registry):
    registry.fails = 200, "[" * 200_000
    assert "answers 200 with text/html that is no answer of one" in refusal(registry.url)


def test_a_code_that_is_no_number_is_none(registry):
    registry.fails = 404, {"error_code": True, "message": "no route"}
    with pytest.raises(NoRegistryError, match="404, no route, with .* that is no answer of one"):
        client_of(registry.url).version("t-value")


def test_the_version_that_a_registry_tells_is_kept(registry):
    registry.fails = 200, {"id": 1, "version": 7}
    assert client_of(registry.url).register("s", Schema(None, TEXT), False).version == 7


def test_a_schema_has_the_id_that_was_asked_for(registry):
    """The answer has none: ``SchemaString`` of Confluent."""
    registry.fails = 200, {"schema": TEXT}
    assert found(registry.url, use_schema_id="5").id == 5


def test_subjects_are_a_list(registry):
    registry.fails = 200, {"other": 1}
    with pytest.raises(NoRegistryError, match="with a JSON dict instead of a list"):
        client_of(registry.url).check_answers()


# --- addresses and time -------------------------------------------------------------------------


def test_a_handshake_that_is_cut_may_pass():
    """The client's certificate may be refused so, or a load balancer may be away."""
    with listening(lambda taken: taken.recv(4096) and None) as address:
        client = client_of(f"https://{address}", schema_registry_timeout_ms="300", **TRUST)
        with pytest.raises(RegistryUnavailableError, match="no schema registry of .* answers"):
            client.version("t-value")


def test_a_port_that_tells_of_tls_in_its_own_words():
    """OpenSSL answers HTTP with an alert, which is no HTTP."""
    context = server_context(authority().issue("registry", ["127.0.0.1"]))

    def serve(taken: socket.socket) -> None:
        if taken.recv(1, socket.MSG_PEEK) != b"\x16":
            taken.recv(65_536)
            taken.sendall(b"\x15\x03\x01\x00\x02\x02\x46")
            return
        with ExitStack() as stack:
            try:
                stack.enter_context(context.wrap_socket(taken.dup(), server_side=True))
            except (OSError, ssl.SSLError):
                pass

    with listening(serve) as address:
        assert "the port speaks TLS: schema.registry.url must begin with https:" in refusal(
            f"http://{address}"
        )


def test_https_is_not_told_to_be_https():
    context = server_context(authority().issue("registry", ["127.0.0.1"]))
    with serving(Registry(), context) as registry:
        registry.fails = 400, {"error_code": 400, "message": "bad"}
        words = refusal(registry.url, **TRUST)
    assert "answers 400, bad" in words
    assert "must begin with https" not in words


def test_an_issuer_that_is_away_is_told_once(registry):
    """It has been asked for as long as a registry may be: not again for each address."""
    bearer = "schema_registry_bearer_auth"
    with socket.create_server(("127.0.0.1", 0)) as unused:
        issuer = f"http://127.0.0.1:{unused.getsockname()[1]}/token"
    given = {
        f"{bearer}_issuer_endpoint_url": issuer,
        f"{bearer}_client_id": "i",
        f"{bearer}_client_secret": "s",
        "schema_registry_timeout_ms": "300",
    }
    assert refusal(registry.url, **given).startswith("no token for the schema registry")


@pytest.mark.parametrize("status", [400, 403])
def test_a_port_of_tls_that_answers_http_with_400(status):
    """As nginx does: "The plain HTTP request was sent to HTTPS port"."""
    context = server_context(authority().issue("registry", ["127.0.0.1"]))

    def serve(taken: socket.socket) -> None:
        if taken.recv(1, socket.MSG_PEEK) != b"\x16":
            taken.recv(65_536)
            taken.sendall(b"HTTP/1.1 %d No\r\nContent-Length: 0\r\n\r\n" % status)
            return
        try:
            context.wrap_socket(taken.dup(), server_side=True).close()
        except OSError:
            pass

    with listening(serve) as address:
        words = refusal(f"http://{address}")
    assert ("the port speaks TLS" in words) is (status == 400)


def test_a_token_that_comes_back_as_the_kind_of_an_answer_is_hidden():
    def serve(taken: socket.socket) -> None:
        sent = taken.recv(65_536).decode()
        token = sent.partition("Authorization: Bearer ")[2].split()[0]
        taken.sendall(
            f"HTTP/1.1 200 OK\r\nContent-Type: {token}\r\nContent-Length: 1\r\n\r\nx".encode()
        )

    with listening(serve) as address:
        words = refusal(f"http://{address}", schema_registry_bearer_auth_token="hush-0815")
    assert "[hidden]" in words


def test_the_line_break_behind_a_token_is_not_sent(registry, monkeypatch):
    """Files and variables end with one."""
    monkeypatch.setenv("REGISTRY_TOKEN", "abc\n")
    found(registry.url, schema_registry_bearer_auth_token="${env:REGISTRY_TOKEN}")
    assert registry.asked[0].headers["Authorization"] == "Bearer abc"


@pytest.mark.parametrize("more", ["/?a=b", "/#a", "/?a=b#c"])
def test_an_address_has_neither_query_nor_fragment(registry, monkeypatch, more):
    monkeypatch.setenv("REGISTRY", registry.url + more)
    assert "must be of the form https://host:port" in refusal("${env:REGISTRY}")
    assert registry.asked == []


def test_a_host_has_no_space():
    assert "a space or another character" in refusal("http://a b:1")


def test_a_subject_with_a_slash_is_asked_for_by_its_metadata(registry):
    registry.metadata[registry.add("a/b-value", {"schema": TEXT})] = {"k": "v"}
    assert found(registry.url, topic="a/b", use_latest_with_metadata="k=v").id == 1


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ({}, None),
        ([], None),
        ({"is_compatible": True, "messages": ["x"]}, None),
        ({"is_compatible": False}, ["it does not say why"]),
        ({"is_compatible": False, "messages": 5}, ["it does not say why"]),
        ({"is_compatible": False, "messages": ["a\x1b[2J"]}, ["a\\x1b[2J"]),
    ],
)
def test_what_is_told_of_compatibility(registry, content, told):
    registry.fails = 200, content
    assert client_of(registry.url).is_compatible("s", Schema(None, TEXT)) == told


# --- who asks -----------------------------------------------------------------------------------


def sent(registry: Registry) -> str:
    return base64.b64decode(registry.asked[-1].headers["Authorization"].split()[1]).decode()


def test_credentials_in_an_address_are_escaped_and_come_after_those_of_options(registry):
    url = registry.url.replace("//", "//us%40er:a%2Fb%25@")
    found(url)
    assert sent(registry) == "us@er:a/b%"
    found(url, schema_registry_basic_auth_user_info="other:c")
    assert sent(registry) == "other:c"


def test_the_issuer_of_tokens_is_trusted_as_the_registry_is(registry):
    context = server_context(authority().issue("issuer", ["127.0.0.1"]))
    body = f'{{"access_token":"{jwt()}"}}'

    def serve(taken: socket.socket) -> None:
        with context.wrap_socket(taken.dup(), server_side=True) as inside:
            inside.recv(65_536)
            inside.sendall(f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())

    bearer = "schema_registry_bearer_auth"
    with listening(serve) as address:
        given = {
            f"{bearer}_issuer_endpoint_url": f"https://{address}/token",
            f"{bearer}_client_id": "i",
            f"{bearer}_client_secret": "s",
        }
        found(registry.url, **TRUST, **given)
    assert registry.asked[0].headers["Authorization"] == f"Bearer {jwt()}"


# --- what a schema builds on --------------------------------------------------------------------


def reference(subject: str, name: str = "any") -> dict[str, Any]:
    return {"name": name, "subject": subject, "version": 1}


def test_of_two_files_of_one_name_the_first_is_taken(registry):
    """As ``AbstractSchemaProvider`` of Confluent: what the first one builds on comes before."""
    kind = {"schemaType": "PROTOBUF"}
    registry.add("deep", {"schema": "deep", **kind})
    registry.add("deeper", {"schema": "deeper", **kind})
    inner = [reference("deep", "n"), reference("deeper", "n")]
    registry.add("a", {"schema": "a", "references": inner, **kind})
    registry.add("b", {"schema": "b", **kind})
    outer = [reference("a", "m"), reference("b", "m")]
    registry.add("t-value", {"schema": "t", "references": outer, **kind})
    client = client_of(registry.url)
    whole = with_references(client, client.version("t-value"))
    assert whole.files == (("n", "deep"), ("m", "a"))


PLACE = '{"type":"record","name":"Place","fields":[{"name":"x","type":"int"}]}'


@pytest.mark.parametrize("kind", ['{"type":"array","items":%s}', '{"type":"map","values":%s}'])
def test_a_type_in_a_list_or_map_of_another_schema_is_known(registry, kind):
    home = '{"type":"record","name":"n.Home","fields":[{"name":"at","type":%s}]}'
    registry.add("home", {"schema": home % (kind % PLACE)})
    own = '{"type":"record","name":"R","fields":[{"name":"p","type":"n.Place"}]}'
    registry.add("t-value", {"schema": own, "references": [reference("home")]})
    (field,) = json.loads(found(registry.url, **LATEST).text)["fields"]
    assert field["type"] == {**json.loads(PLACE), "namespace": "n"}


def test_a_namespace_may_be_none(registry):
    """An empty one is another than one that is left out: Avro's specification, "Names"."""
    bare = PLACE.replace('"fields"', '"namespace":"","fields"')
    home = '{"type":"record","name":"n.Home","fields":[{"name":"at","type":%s}]}'
    registry.add("home", {"schema": home % bare})
    own = '{"type":"record","name":"R","fields":[{"name":"p","type":"Place"}]}'
    registry.add("t-value", {"schema": own, "references": [reference("home")]})
    (field,) = json.loads(found(registry.url, **LATEST).text)["fields"]
    assert field["type"] == json.loads(bare)


@pytest.mark.parametrize(
    "own",
    [
        '{"type":"record","name":"R","fields":5}',
        '{"type":"array","items":' * 700 + '"int"' + "}" * 700,
    ],
    ids=["no list", "deep"],
)
def test_what_cannot_be_read_with_its_references_is_told(registry, own):
    registry.add("home", {"schema": PLACE})
    registry.add("t-value", {"schema": own, "references": [reference("home")]})
    assert "is no Avro schema" in refusal(registry.url, **LATEST)


# --- what a registry refuses --------------------------------------------------------------------


@pytest.mark.parametrize("given", [LATEST, {"use_latest_with_metadata": "k=v"}])
def test_another_refusal_is_not_told_as_a_missing_subject(registry, given):
    registry.fails = 400, {"error_code": 40099, "message": "odd"}
    assert "answers 400 (40099), odd" in refusal(registry.url, **given)


def test_an_incompatible_schema_is_told_where_its_version_cannot_be_asked_for(
    registry, monkeypatch
):
    away = 503, {"error_code": 50301, "message": "away"}
    answer = registry.answer
    registry.refuses.add("t-value")
    monkeypatch.setattr(registry, "answer", lambda a: answer(a) if a.method == "POST" else away)
    told = refusal(registry.url, schema_registry_timeout_ms="150")
    assert "not compatible with an earlier version of subject 't-value'" in told


def test_an_imported_file_needs_a_version(registry, monkeypatch):
    monkeypatch.setattr(registry, "answer", lambda _: (200, {"id": 1}))
    given = options(registry.url).registry
    assert given.config is not None
    assert given.value is not None
    files = (SchemaFile("b.proto", "BBBB"), SchemaFile("a.proto", "AAAA", ("b.proto",)))
    wanted = SchemaRequest("value", "t", "AAAA", "prefix", given.value, "PROTOBUF", files=files)
    with pytest.raises(KafkaSinkError, match="does not tell which version of subject 'b.proto'"):
        find(given.config, wanted)


def nameless(*_: object) -> str:
    return ""


def test_a_function_names_no_subject_by_an_empty_text():
    with pytest.raises(KafkaSinkError, match="must return the name of a subject, not ''"):
        user_defined_subject(f"{__name__}:nameless", "value", "t", None)


@pytest.mark.parametrize(
    ("more", "is_refused"), [({}, True), (LATEST, False), ({"use_schema_id": "1"}, False)]
)
def test_schemas_that_the_registry_has_may_share_their_subject(more, is_refused):
    strategy = {"value_subject_name_strategy": "RecordNameStrategy"}
    given = options("http://r:1", **strategy, **more).registry
    assert given.value is not None
    value = SchemaRequest("value", "t", TEXT, "prefix", given.value)
    key = value._replace(part="key", text=TEXT.replace('"int"', '"string"'))
    as_json = value._replace(part="key", kind="JSON", record="n.R")
    check_subjects([value, value._replace(part="key")])
    for other in (key, as_json):
        if is_refused:
            with pytest.raises(KafkaSinkError, match=r"both have the subject 'n\.R'"):
                check_subjects([value, other])
        else:
            check_subjects([value, other])


@pytest.mark.parametrize("status", [408, 429, 502])
def test_what_may_pass_is_tried_again(registry, status):
    registry.fails = status, {"error_code": status, "message": "later"}
    client = client_of(registry.url, schema_registry_timeout_ms="150")
    with pytest.raises(RegistryUnavailableError, match=f"answers {status}, later"):
        client.version("t-value")


def test_no_address_is_asked_when_time_is_up(monkeypatch):
    """The first one takes all of it: of the second nothing is known."""
    given = options("http://first,http://second").registry
    times, most_ms, asked = Times(), given.config.timeout_ms, list[int]()
    client = RegistryClient(given.config, times, times.wait)

    def take_all(number: int, *_: object) -> None:
        asked.append(number)
        times.ms += most_ms
        raise RegistryUnavailableError("no answer")

    monkeypatch.setattr(client, "_ask_at", take_all)
    with pytest.raises(RegistryUnavailableError, match=r"no answer \(tried for"):
        client.check_answers()
    assert asked == [0]


def test_an_issuer_of_tokens_has_the_time_that_a_registry_has(monkeypatch):
    limits: list[int] = []

    class Retrieval:
        def __init__(self, sasl: SaslConfig, *_: object) -> None:
            limits.extend((sasl.login.connect_timeout_ms, sasl.login.read_timeout_ms))

        def fetch(self, most_ms: int) -> None:
            limits.append(most_ms)
            raise CredentialsUnavailableError("no answer")

    monkeypatch.setattr(oauth_login, "TokenRetrieval", Retrieval)
    more = {"issuer_endpoint_url": "http://issuer", "client_id": "app", "client_secret": "x"}
    given = options(
        "http://r", **{f"schema_registry_bearer_auth_{name}": value for name, value in more.items()}
    ).registry
    assert given.config is not None
    client = RegistryClient(replace(given.config, timeout_ms=900, request_timeout_ms=70))
    with pytest.raises(RegistryUnavailableError, match="no token .* no answer"):
        client.check_answers()
    assert limits == [70, 70, 900]


def test_a_reference_has_the_version_that_was_given(monkeypatch):
    client = client_of("http://r")
    monkeypatch.setattr(client, "version", lambda *_: Schema(1, TEXT, version=5))
    assert version_of(client, ("n", "s", 3)) == ("n", "s", 3)
    assert version_of(client, ("n", "s", None)) == ("n", "s", 5)
