"""The client of schema registries: answers as its API does not have them, faults, and how long it tries.

Each fault is in one table: the message, and whether the client waits. It waits on a clock of the tests.
That a registry which dies while a query runs has no effect is in ``evidence/registry/test_spark.py``.
"""

from __future__ import annotations

import base64
import json
import socket
import threading
import tracemalloc
from collections.abc import Callable
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from spark_kafka_sink.base.errors import CredentialsUnavailableError, KafkaSinkError
from spark_kafka_sink.base.text import parse_json
from spark_kafka_sink.formats.plan import ProtobufFile
from spark_kafka_sink.registry import client, schemas
from spark_kafka_sink.registry.client import (
    NoRegistryError,
    RegistryClient,
    RegistryUnavailableError,
    Schema,
)
from spark_kafka_sink.registry.schemas import (
    check_subjects,
    find,
    version_of,
    with_references,
)
from spark_kafka_sink.security import oauth as oauth_login
from tests.unit.registry.server import (
    JWT,
    OTHER,
    TEXT,
    Registry,
    Times,
    client_of,
    found,
    oauth,
    options,
    paths,
    refusal,
    request_of,
    serving,
    serving_token,
    unused_port,
)
from tests.unit.security.tls_ends import authority, other_authority, server_context

LATEST = {"use_latest_version": "true"}
PLACE = '{"type":"record","name":"Place","fields":[{"name":"x","type":"int"}]}'


def reference(subject, name="any"):
    return {"name": name, "subject": subject, "version": 1}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"id": -1}, "with an id that is none: -1"),
        ({"id": 1, "version": 0}, "with a version that is none: 0"),
        ({"id": 1, "references": [{"name": "x", "subject": "s", "version": 0}]}, "without name, subject or version"),
        ({"id": 1, "references": [{"name": 5, "subject": "s", "version": 1}]}, "without name, subject or version"),
        ({"id": 2**31}, "with an id that is none: 2147483648"),
        ({"id": True}, "with an id that is none: true"),
        ({"id": 1.0}, "with an id that is none: 1.0"),
        ({"id": 1, "schema": 5}, "with a schema that is no text"),
        ({"id": 1, "guid": "x"}, 'with a guid that is none: "x"'),
        ({"id": 1, "version": "1"}, 'with a version that is none: "1"'),
        ({"id": 1, "schemaType": 5}, "with a schemaType that is none: 5"),
        ({"id": 1, "references": 5}, "with references that are none: 5"),
        ({"id": 1, "references": [{"name": "x"}]}, 'without name, subject or version: {"name": "x"}'),
        ({"id": 1, "references": ["x"]}, 'without name, subject or version: "x"'),
    ],
)  # fmt: skip
def test_what_the_api_does_not_have_is_refused(registry, content, words):
    registry.fails = 200, content
    told = refusal(registry.url)
    assert words in told
    assert "its API does not have that" in told
    assert len(registry.asked) == 1


@pytest.mark.parametrize(
    ("inner", "outer", "words"),
    [
        ("no JSON", TEXT, "the schema n.Home that the schema registry http"),
        (OTHER, "no JSON", "is no Avro schema, for it is no JSON"),
        (OTHER, '{"type":"record","name":"S","fields":[{"name":"x"}]}', "is no Avro schema"),
        (OTHER, '{"items":"n.Home"}', "is no Avro schema"),
        (OTHER, '{"type":"record","name":1,"fields":[]}', "is no Avro schema"),
        (PLACE, '{"type":"record","name":"R","fields":5}', "is no Avro schema"),
        (PLACE, '{"type":"array","items":' * 700 + '"int"' + "}" * 700, "is no Avro schema"),
    ],
    ids=range(7),
)
def test_what_a_schema_builds_on_must_be_one(registry, inner, outer, words):
    registry.add("home", {"schema": inner})
    registry.add("t-value", {"schema": outer, "references": [reference("home", "n.Home")]})
    assert words in refusal(registry.url, **LATEST)


def test_the_address_that_answered_is_asked_first(registry):
    times = Times()
    with serving(Registry()) as away:
        away.fails = 503, {"error_code": 50301, "message": "away"}
        asking = client_of(away.url, registry.url, times=times)
        for _ in range(3):
            asking.check_answers()
    assert (len(away.asked), len(registry.asked), times.pauses) == (1, 3, [])


def test_an_address_that_asks_for_time_is_not_asked_before(registry):
    """The other one is, as it has not asked for any."""
    times = Times()
    registry.fails, registry.headers = (503, {}), [("Retry-After", "30")]
    other = f"http://127.0.0.1:{unused_port()}"
    for urls, asked in (((registry.url,), 3), ((registry.url, other), 3)):
        registry.asked.clear()
        client = client_of(*urls, times=times, schema_registry_timeout_ms="89000")
        start_ms, times.pauses[:] = times.ms, []
        with pytest.raises(KafkaSinkError, match="answers 503"):
            client.check_answers()
        assert len(registry.asked) == asked
        assert times.ms - start_ms < 89_000
        assert (len(times.pauses) == 2) is (len(urls) == 1)


def test_a_first_look_up_does_not_wait_longer_than_it_may(registry):
    times = Times()
    registry.fails, registry.headers = (429, {}), [("Retry-After", "30")]
    with pytest.raises(KafkaSinkError, match="answers 429"):
        client_of(registry.url, times=times).check_answers()
    assert (len(registry.asked), times.pauses) == (1, [])


def test_a_token_is_asked_for_once(registry):
    """Of one planning: its requests are many, and an issuer may be slow. It is trusted as the registry."""
    context = server_context(authority().issue("issuer", ["127.0.0.1"]))
    cluster = {"schema_registry_bearer_auth_logical_cluster": "lsrc-1"}
    with serving_token(200, {"access_token": JWT}, context) as (issuer, _):
        more = {**TRUST, **cluster, **oauth(issuer)}
        asking = client_of(registry.url, schema_registry_timeout_ms="500", **more)
        asking.check_answers()
    asking.check_answers()
    sent = [(a.headers["Authorization"], a.headers["target-sr-cluster"]) for a in registry.asked]
    assert sent == [(f"Bearer {JWT}", "lsrc-1")] * 2


NO_ANSWER = "that is no answer of one"


@pytest.mark.parametrize(
    ("status", "content", "words"),
    [
        (400, {"error_code": 40099, "message": "odd"}, "answers 400 (40099), odd"),
        (404, {"error_code": 40404, "message": "odd"}, "answers 404 (40404), odd"),
        (405, {"error_code": 405, "message": "odd"}, "answers 405, odd"),
        (501, {"error_code": 501, "message": "odd"}, "answers 501, odd"),
        (422, {"message": "odd"}, "answers 422, odd"),
        (404, {"error_code": 404, "message": "odd"}, "answers 404, odd: the path in schema.registry.url is wrong"),
        (404, {"status": 404, "message": "odd"}, f"404, odd, with application/json {NO_ANSWER}"),
        (404, {"error_code": True, "message": "odd"}, f"404, odd, with application/json {NO_ANSWER}"),
        (200, "[" * 200_000, f"answers 200 with text/html {NO_ANSWER}"),
    ],
)  # fmt: skip
def test_the_reason_of_a_registry_is_told(registry, status, content, words):
    registry.fails = status, content
    for given in ({}, LATEST, {"use_latest_with_metadata": "k=v"}):
        told = refusal(registry.url, **given)
        assert words in told
        assert (NO_ANSWER in told) is (NO_ANSWER in words)


def test_a_large_schema_is_taken_and_a_larger_one_told(registry, monkeypatch):
    large = json.dumps({**json.loads(TEXT), "doc": "x" * 1_200_000})
    registry.add("t-value", {"schema": large})
    given = {**LATEST, "schema_registry_timeout_ms": "36000"}
    assert found(registry.url, **given).text == large
    schemas._answers.clear()
    monkeypatch.setattr(client, "MAX_RESPONSE_BYTES", 1_000_000)
    words = refusal(registry.url, **given)
    assert "answers 200 with more than 1,000,000 bytes, which are not taken" in words


def test_a_body_of_more_values_than_a_schema_has_is_not_parsed():
    """32 MB of empty lists take 0.9 GB."""
    assert len(client.json_of(b"[" + b"[]," * 600_000 + b"[]]")) == 600_001
    body = b"[" + b"[]," * 1_000_000 + b"[]]"
    tracemalloc.start()
    assert client.json_of(body) is None
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1_000_000


@pytest.mark.parametrize(
    ("url", "words"),
    [
        *((url, "a space or another character") for url in ("{}/a b", "{}/é", "{}/a\x01", "http://a b:1")),
        *(("{}" + more, "must be of the form https://host:port") for more in ("/?a=b", "/#a", "/?a=b#c")),
        ("http://a..b:1", "has a host that cannot be looked up"),
    ],
)  # fmt: skip
def test_an_address_that_cannot_be_asked_is_told_at_once(registry, monkeypatch, url, words):
    monkeypatch.setenv("REGISTRY", url.format(registry.url))
    assert words in refusal("${env:REGISTRY}", schema_registry_timeout_ms="500")
    assert paths(registry) == []


class Fault(NamedTuple):
    """words: in the message

    is_waited_for: whether it may pass, so that it is tried for a while; None where that depends on
        what is lost with the connection

    change: makes it of a registry; url: of its address; options: of the query
    request_timeout_ms: instead of the sink's own
    """

    words: str
    is_waited_for: bool | None = False
    change: Callable[[Registry], Any] = lambda registry: None
    url: Callable[[str], str] = lambda url: url
    options: dict[str, str] = {}  # noqa: RUF012
    has_tls: bool = False
    request_timeout_ms: int | None = None
    kind: str = "AVRO"


def answers(status, content):
    def change(registry):
        registry.fails = status, content

    return change


def is_slow(registry):
    registry.waits_for = threading.Event()


def is_incompatible(registry):
    registry.add("t-value", {"schema": '"string"'})
    registry.refuses.add("t-value")


def code(number):
    return {"error_code": number, "message": "Reason"}


def trusting(trusted):
    return {
        "schema_registry_ssl_truststore_type": "PEM",
        "schema_registry_ssl_truststore_certificates": trusted.pem,
    }


def showing(client):
    return {
        "schema_registry_ssl_keystore_type": "PEM",
        "schema_registry_ssl_keystore_key": client.private_key(),
        "schema_registry_ssl_keystore_certificate_chain": client.certificate_chain,
    }


TRUST = trusting(authority())
STRANGER = {**TRUST, **showing(other_authority().issue("stranger", []))}
FAULTS = {
    "down": Fault("Connection refused", True, url=lambda _: f"http://127.0.0.1:{unused_port()}"),
    "slow": Fault("no answer within 20 ms", True, is_slow, request_timeout_ms=20),
    "slow, with little time": Fault("no answer within 2", None, is_slow, options={"schema_registry_timeout_ms": "30"}),
    "not ready": Fault("answers 503 (50301), Reason", True, answers(503, code(50301))),
    "too many requests": Fault("answers 429, Reason", True, answers(429, code(429))),
    "a slow request": Fault("answers 408, Reason", True, answers(408, code(408))),
    "a proxy without it": Fault("answers 502, Reason", True, answers(502, code(502))),
    "another object": Fault("without an id or a schema", False, answers(200, {"other": 1})),
    "a list": Fault("a JSON list instead of an object", False, answers(200, [1])),
    "a name that is not known": Fault("http://registry.invalid:", True, url=lambda _: "http://registry.invalid:8081"),
    "401": Fault("it wants credentials", False, answers(401, code(401))),
    "403": Fault("do not allow it", False, answers(403, code(40301))),
    "409": Fault("not compatible with version 1", False, is_incompatible),
    "422": Fault("does not take the schema of subject 't-value'", False, answers(422, code(42201))),
    "422, Protobuf": Fault("set use.latest.version=true", False, answers(422, code(42201)), kind="PROTOBUF"),
    "not registered": Fault("has no subject 't-value'", options={"auto_register_schemas": "false"}),
    "a wrong path": Fault("Apicurio's ends with", False, answers(404, "<html>")),
    "a page to log in": Fault("answers 200 with text/html that is no answer of one: it is no schema registry", False, answers(200, "<html>")),
    "a redirect": Fault("a redirect, which is not followed", False, answers(301, "")),
    "a bug in the registry": Fault("answers 500 (50001), Reason", True, answers(500, code(50001))),
    "nobody is trusted": Fault("schema.registry.ssl.truststore.location is not set", has_tls=True),
    "another name": Fault("not for the name or address 127.0.0.1", options=TRUST, has_tls=True),
    "another authority": Fault("is not signed by an authority of schema.registry.ssl.truststore.certificates", options=trusting(other_authority()), has_tls=True),
    "expired": Fault("has expired", options=TRUST, has_tls=True),
    "clear text to TLS": Fault("the port speaks TLS", url=lambda url: url.replace("https:", "http:"), has_tls=True),
    "TLS to clear text": Fault("a URL that begins with http:", url=lambda url: url.replace("http:", "https:")),
    "no client certificate": Fault("wants a client certificate, and schema.registry.ssl.keystore.location is not set", None, options=TRUST, has_tls=True),
    "a stranger's client certificate": Fault("refuses the client's certificate", None, options=STRANGER, has_tls=True),
}  # fmt: skip


@pytest.fixture
def running():
    schemas._answers.clear()
    with ExitStack() as stack:
        yield stack


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_is_told_within_seconds(running, name):
    fault = FAULTS[name]
    host = "elsewhere" if name == "another name" else "127.0.0.1"
    shown = authority().issue("registry", [host], expired=name == "expired")
    context = (
        server_context(shown, authority() if "client" in name else None) if fault.has_tls else None
    )
    registry = running.enter_context(serving(Registry(), context))
    fault.change(registry)
    given = options(fault.url(registry.url), **fault.options)
    times = Times()
    config, wanted = request_of(given, kind=fault.kind)
    if fault.request_timeout_ms is not None:
        config = replace(config, request_timeout_ms=fault.request_timeout_ms)
    client = schemas.RegistryClient(config, times, times.wait)
    with pytest.raises(KafkaSinkError) as refused:
        schemas._fetch(client, wanted)
    assert fault.words in str(refused.value)
    if fault.is_waited_for is not None:
        assert bool(times.pauses) == fault.is_waited_for
    assert times.ms <= given.registry.config.timeout_ms


def test_a_client_certificate_is_shown():
    context = server_context(authority().issue("registry", ["127.0.0.1"]), authority())
    with serving(Registry(), context) as registry:
        assert found(registry.url, **TRUST, **showing(authority().issue("client", []))).id == 1


@contextmanager
def listening(serve):
    """A host and port where each connection is given to ``serve``, and closed then."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))

        def accept():
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


def test_ids_and_versions_that_a_registry_tells_are_kept(registry):
    for number in (0, 2**31 - 1):
        registry.fails = 200, {"id": number, "version": 7}
        schema = client_of(registry.url).register("s", Schema(None, TEXT), False)
        assert (schema.id, schema.version) == (number, 7)
    # The answer has none: ``SchemaString`` of Confluent.
    registry.fails = 200, {"schema": TEXT}
    assert found(registry.url, use_schema_id="5").id == 5


def test_a_version_has_an_id_and_a_schema_and_subjects_are_a_list(registry):
    for content in ({"id": 1}, {"schema": TEXT}):
        registry.fails = 200, content
        assert "without an id or a schema" in refusal(registry.url, **LATEST)
    with pytest.raises(NoRegistryError, match="with a JSON dict instead of a list"):
        client_of(registry.url).check_answers()


def test_a_handshake_that_is_cut_may_pass():
    """The client's certificate may be refused so, or a load balancer may be away."""
    with listening(lambda taken: taken.recv(4096) and None) as address:
        client = client_of(f"https://{address}", schema_registry_timeout_ms="300", **TRUST)
        with pytest.raises(RegistryUnavailableError, match="no schema registry of .* is available"):
            client.version("t-value")


@pytest.mark.parametrize(
    ("answer", "is_tls"),
    [
        (b"\x15\x03\x01\x00\x02\x02\x46", True),  # OpenSSL's alert, which is no HTTP
        (b"HTTP/1.1 400 No\r\nContent-Length: 0\r\n\r\n", True),  # as nginx
        (b"HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n", False),
    ],
)
def test_a_port_of_tls_that_answers_clear_text(answer, is_tls):
    context = server_context(authority().issue("registry", ["127.0.0.1"]))

    def serve(taken):
        if taken.recv(1, socket.MSG_PEEK) == b"\x16":
            with suppress(OSError):
                context.wrap_socket(taken.dup(), server_side=True).close()
            return
        taken.recv(65_536)
        taken.sendall(answer)

    with listening(serve) as address:
        told = refusal(f"http://{address}")
    assert ("the port speaks TLS: schema.registry.url must begin with https:" in told) is is_tls


def test_https_is_not_told_to_be_https():
    context = server_context(authority().issue("registry", ["127.0.0.1"]))
    with serving(Registry(), context) as registry:
        registry.fails = 400, {"error_code": 400, "message": "bad"}
        words = refusal(registry.url, **TRUST)
    assert "answers 400, bad" in words
    assert "must begin with https" not in words


def test_an_issuer_that_is_away_is_told_once(registry):
    """It has been asked for as long as a registry may be: not again for each address."""
    issuer = oauth(f"http://127.0.0.1:{unused_port()}/token")
    given = {**issuer, "schema_registry_timeout_ms": "300"}
    assert refusal(registry.url, **given).startswith("no token for the schema registry")


def test_a_token_that_comes_back_as_the_kind_of_an_answer_is_hidden():
    def serve(taken):
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
        ({"is_compatible": False, "messages": ["a"] * 10}, ["a"] * 10),
        ({"is_compatible": False, "messages": ["a"] * 2010}, ["a"] * 10 + ["2000 more"]),
    ],
)
def test_what_is_told_of_compatibility(registry, content, told):
    registry.fails = 200, content
    assert client_of(registry.url).is_compatible("s", Schema(None, TEXT)) == told


def sent(registry):
    return base64.b64decode(registry.asked[-1].headers["Authorization"].split()[1]).decode()


def test_credentials_in_an_address_are_escaped_and_come_after_those_of_options(registry):
    url = registry.url.replace("//", "//us%40er:a%2Fb%25@")
    found(url)
    assert sent(registry) == "us@er:a/b%"
    found(url, schema_registry_basic_auth_user_info="other:c")
    assert sent(registry) == "other:c"


@pytest.mark.parametrize(
    ("kind", "files"),
    [
        ("PROTOBUF", (("n", '"deep"'), ("m", '"a"'))),
        ("JSON", (("n", '"deep"'), ("n", '"deeper"'), ("m", '"a"'), ("x", '"deepest"'), ("m", '"b"'))),
    ],
)  # fmt: skip
def test_of_two_files_of_one_name_the_first_is_taken_and_both_of_json_schemas(
    registry, kind, files
):
    """As ``AbstractSchemaProvider`` of Confluent: what the first one builds on comes before."""

    def add(subject, *references):
        body = {"schema": json.dumps(subject), "schemaType": kind, "references": [*references]}
        registry.add(subject, body)

    add("deep")
    add("deeper")
    add("a", reference("deep", "n"), reference("deeper", "n"))
    add("deepest")
    add("b", reference("deepest", "x"))
    add("t-value", reference("a", "m"), reference("b", "m"))
    client = client_of(registry.url)
    assert with_references(client, client.version("t-value")).files == files


LIMITS = {
    "text": ("MAX_RESPONSE_BYTES", 400),
    "values": ("MOST_SCHEMA_VALUES", 35),
    "references": ("MOST_SCHEMA_VALUES", 20),
    "others": ("_MAX_REFERENCES", 2),
}


@pytest.mark.parametrize("kind", ["AVRO", "JSON", "PROTOBUF"])
@pytest.mark.parametrize("what", LIMITS)
def test_a_schema_and_those_it_builds_on_have_the_limits_of_one(registry, monkeypatch, kind, what):
    """A hundred of them, each within the limits of an answer, would take gigabytes."""
    assert schemas._MAX_REFERENCES == 100, "each needs a request"
    monkeypatch.setattr(schemas, *LIMITS[what])
    text = "[[],[],[],[]]" if what == "values" else '"' + "x" * 100 + '"'
    inner = [reference("s0", f"n{n}") for n in range(2)] if what == "references" else []
    for number in range(3):
        body = {"schema": text, "schemaType": kind, "references": inner if number else []}
        registry.add(f"s{number}", body)
    client = client_of(registry.url)
    for count, is_refused in ((2, False), (3, True)):
        outer = tuple((f"s{n}", f"s{n}", 1) for n in range(count))
        schema = Schema(1, text, kind, references=outer)
        refused = pytest.raises(KafkaSinkError, match="not taken|builds on more than 2 others")
        with refused if is_refused else nullcontext():
            with_references(client, schema)


NO_NAMESPACE = PLACE.replace('"fields"', '"namespace":"","fields"')
IN_N = {**json.loads(PLACE), "namespace": "n"}


@pytest.mark.parametrize(
    ("kind", "name", "written"),
    [
        (f'{{"type":"array","items":{PLACE}}}', "n.Place", IN_N),
        (f'{{"type":"map","values":{PLACE}}}', "n.Place", IN_N),
        # An empty namespace is another than one that is left out: Avro's specification, "Names".
        (NO_NAMESPACE, "Place", json.loads(NO_NAMESPACE)),
    ],
)
def test_a_type_inside_another_schema_is_known(registry, kind, name, written):
    home = '{"type":"record","name":"n.Home","fields":[{"name":"at","type":%s}]}'
    registry.add("home", {"schema": home % kind})
    own = '{"type":"record","name":"R","fields":[{"name":"p","type":"%s"}]}'
    registry.add("t-value", {"schema": own % name, "references": [reference("home")]})
    (field,) = json.loads(found(registry.url, **LATEST).text)["fields"]
    assert field["type"] == written


def nested(depth):
    return "[" * depth + "]" * depth


def test_a_schema_that_is_nested_too_deeply_once_it_is_whole_is_told(registry):
    """Each of the two texts can be parsed."""
    parsed, too_deep = 1, 1 << 22
    while too_deep - parsed > 1:
        depth = (parsed + too_deep) // 2
        try:
            parse_json(nested(depth))
        except ValueError:
            too_deep = depth
        else:
            parsed = depth
    inner = '{"type":"record","name":"B","fields":[],"p":' + nested(parsed - 100) + "}"
    registry.add("B", {"schema": inner})
    outer = '{"type":"array","items":' * 200 + '"B"' + "}" * 200
    own = '{"type":"record","name":"R","fields":[{"name":"b","type":' + outer + "}]}"
    registry.add("t-value", {"schema": own, "references": [reference("B")]})
    assert "is no Avro schema" in refusal(registry.url, **LATEST)


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
    files = (ProtobufFile("b.proto", "BBBB"), ProtobufFile("a.proto", "AAAA", ("b.proto",)))
    asked = request_of(options(registry.url), "AAAA", kind="PROTOBUF", files=files)
    with pytest.raises(KafkaSinkError, match="does not tell which version of subject 'b.proto'"):
        find(*asked)


@pytest.mark.parametrize(
    ("more", "is_refused"), [({}, True), (LATEST, False), ({"use_schema_id": "1"}, False)]
)
def test_schemas_that_the_registry_has_may_share_their_subject(more, is_refused):
    strategy = {"value_subject_name_strategy": "RecordNameStrategy"}
    _, value = request_of(options("http://r:1", **strategy, **more))
    key = value._replace(part="key", text=TEXT.replace('"int"', '"string"'))
    as_json = value._replace(part="key", kind="JSON", record="n.R")
    check_subjects([value, value._replace(part="key")])
    for other in (key, as_json):
        refused = pytest.raises(KafkaSinkError, match=r"both have the subject 'n\.R'")
        with refused if is_refused else nullcontext():
            check_subjects([value, other])


def test_no_address_is_asked_when_time_is_up(monkeypatch):
    given = options("http://first,http://second").registry
    times, most_ms, asked = Times(), given.config.timeout_ms, list[int]()
    client = RegistryClient(given.config, times, times.wait)

    def take_all(number, *_):
        asked.append(number)
        times.ms += most_ms
        raise RegistryUnavailableError("no answer")

    monkeypatch.setattr(client, "_ask_at", take_all)
    with pytest.raises(RegistryUnavailableError, match=r"no answer \(tried for"):
        client.check_answers()
    assert asked == [0]


def test_an_issuer_of_tokens_has_the_time_that_a_registry_has(monkeypatch):
    limits = []

    class Retrieval:
        def __init__(self, sasl, *_):
            limits.extend((sasl.login.connect_timeout_ms, sasl.login.read_timeout_ms))

        def fetch(self, most_ms):
            limits.append(most_ms)
            raise CredentialsUnavailableError("no answer")

    monkeypatch.setattr(oauth_login, "TokenRetrieval", Retrieval)
    given = options("http://r", **oauth("http://issuer")).registry
    client = RegistryClient(replace(given.config, timeout_ms=900, request_timeout_ms=70))
    with pytest.raises(RegistryUnavailableError, match="no token .* no answer"):
        client.check_answers()
    assert limits == [70, 70, 900]


def test_a_reference_has_the_version_that_was_given(monkeypatch):
    client = client_of("http://r")
    monkeypatch.setattr(client, "version", lambda *_: Schema(1, TEXT, version=5))
    assert version_of(client, ("n", "s", 3)) == ("n", "s", 3)
    assert version_of(client, ("n", "s", None)) == ("n", "s", 5)
