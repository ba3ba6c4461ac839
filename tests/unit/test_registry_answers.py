"""Answers of a schema registry that are not as its API has them: told at once, and as they are."""

from __future__ import annotations

import json
from typing import Any

import pytest

from spark_kafka_sink.base.errors import KafkaSinkError
from spark_kafka_sink.formats.plan import FormatError
from spark_kafka_sink.registry import client, schemas
from spark_kafka_sink.spark.format_schemas import check_json_fits
from spark_kafka_sink.tools.checks import schemas as check
from tests.unit.registry_asking import (
    OTHER,
    TEXT,
    found,
    fresh_registry,
    jwt,
    options,
    paths,
    refusal,
    serving_token,
)
from tests.unit.registry_server import Registry, serving

LATEST = {"use_latest_version": "true"}


@pytest.fixture
def registry():
    with fresh_registry() as made:
        yield made


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"id": -1}, "with an id that is none: -1"),
        ({"id": 1, "version": 0}, "with a version that is none: 0"),
        ({"id": 1, "references": [{"name": "x", "subject": "s", "version": 0}]}, "without name, subject or version"),
        ({"id": 1, "references": [{"name": 5, "subject": "s", "version": 1}]}, "without name, subject or version"),
        ({"id": -5}, "with an id that is none: -5"),
        ({"id": 2**31}, "with an id that is none: 2147483648"),
        ({"id": True}, "with an id that is none: true"),
        ({"id": False}, "with an id that is none: false"),
        ({"id": 1.0}, "with an id that is none: 1.0"),
        ({"id": 1, "schema": 5}, "with a schema that is no text"),
        ({"id": 1, "guid": "x"}, 'with a guid that is none: "x"'),
        ({"id": 1, "version": "1"}, 'with a version that is none: "1"'),
        ({"id": 1, "schemaType": 5}, "with a schemaType that is none: 5"),
        ({"id": 1, "references": 5}, "with references that are none: 5"),
        ({"id": 1, "references": [{"name": "x"}]}, 'without name, subject or version: {"name": "x"}'),
    ],
)  # fmt: skip
def test_what_the_api_does_not_have_is_refused(registry, content, words):
    registry.fails = 200, content
    told = refusal(registry.url)
    assert words in told
    assert "its API does not have that" in told
    assert len(registry.asked) == 1


@pytest.mark.parametrize("number", [0, 2**31 - 1])
def test_ids_at_their_ends(registry, number):
    registry.fails = 200, {"id": number}
    assert found(registry.url).id == number


@pytest.mark.parametrize("content", [{"id": 1}, {"schema": TEXT}])
def test_a_version_has_an_id_and_a_schema(registry, content):
    registry.fails = 200, content
    assert "without an id or a schema" in refusal(registry.url, **LATEST)


@pytest.mark.parametrize(
    ("inner", "outer", "words"),
    [
        ("no JSON", TEXT, "the schema n.Home that the schema registry http"),
        (OTHER, "no JSON", "is no Avro schema, for it is no JSON"),
        (OTHER, '{"type":"record","name":"S","fields":[{"name":"x"}]}', "is no Avro schema"),
        (OTHER, '{"items":"n.Home"}', "is no Avro schema"),
        (OTHER, '{"type":"record","name":1,"fields":[]}', "is no Avro schema"),
    ],
)
def test_what_a_schema_builds_on_must_be_one(registry, inner, outer, words):
    registry.add("home", {"schema": inner})
    reference = {"name": "n.Home", "subject": "home", "version": 1}
    registry.add("t-value", {"schema": outer, "references": [reference]})
    assert words in refusal(registry.url, **LATEST)


@pytest.mark.parametrize("kind", ["AVRO", "JSON", "PROTOBUF"])
def test_a_schema_that_builds_on_too_many_others_is_refused(registry, kind):
    """Each needs a request, and a registry may tell any number of them."""
    text = {
        "AVRO": '{"type":"fixed","name":"F%d","size":1}',
        "JSON": "{}",
        "PROTOBUF": "message M%d {}",
    }
    references: list[dict[str, Any]] = []
    for number in range(102):
        more = {"references": references[-1:]} if references else {}
        body = {"schema": text[kind].replace("%d", str(number)), "schemaType": kind, **more}
        registry.add(f"s{number}", body)
        references.append({"name": f"n{number}", "subject": f"s{number}", "version": 1})
    given = options(
        registry.url, value_format=kind.lower(), value_schema_id_prefix="true", **LATEST
    )
    assert given.registry.config is not None
    assert given.registry.value is not None
    for last, is_refused in ((100, False), (101, True)):
        schemas._answers.clear()
        more = {"references": references[last - 1 : last]}
        body = {"schema": text[kind].replace("%d", "102"), "schemaType": kind, **more}
        registry.add("t-value", body)
        wanted = schemas.SchemaRequest("value", "t", None, "prefix", given.registry.value, kind)
        if is_refused:
            with pytest.raises(KafkaSinkError, match="builds on more than 100 others"):
                schemas.find(given.registry.config, wanted)
        else:
            schemas.find(given.registry.config, wanted)


def test_the_address_that_answered_is_asked_first(registry):
    with serving(Registry()) as away:
        away.fails = 503, {"error_code": 50301, "message": "away"}
        given = options(f"{away.url},{registry.url}")
        assert given.registry.config is not None
        asking = client.RegistryClient(given.registry.config)
        for _ in range(3):
            asking.check_answers()
    assert (len(away.asked), len(registry.asked)) == (1, 3)


def test_a_token_is_asked_for_once(registry):
    """Of one planning: its requests are many, and an issuer may be slow."""
    bearer = "schema_registry_bearer_auth"
    more = {f"{bearer}_client_id": "i", f"{bearer}_client_secret": "s"}
    with serving_token(200, {"access_token": jwt()}) as issuer:
        more[f"{bearer}_issuer_endpoint_url"] = f"{issuer}/token"
        given = options(registry.url, schema_registry_timeout_ms="500", **more)
        assert given.registry.config is not None
        asking = client.RegistryClient(given.registry.config)
        asking.check_answers()
    asking.check_answers()
    first, second = (asked.headers["Authorization"] for asked in registry.asked)
    assert first == second == f"Bearer {jwt()}"


@pytest.mark.parametrize(
    ("status", "code"),
    [(400, 400), (404, 40404), (404, 40406), (404, 40408), (405, 405), (406, 406), (413, 413), (415, 415), (501, 501)],
)  # fmt: skip
def test_the_reason_of_a_registry_is_told(registry, status, code):
    registry.fails = status, {"error_code": code, "message": "Registry is read-only"}
    words = refusal(registry.url)
    shown = f"{status} ({code})" if code != status else f"{status}"
    assert f"answers {shown}, Registry is read-only" in words
    assert "no schema registry" not in words


def test_a_wrong_path_is_told_with_what_is_there(registry):
    registry.fails = 404, {"error_code": 404, "message": "HTTP 404 Not Found"}
    words = refusal(registry.url)
    assert "answers 404, HTTP 404 Not Found: the path in schema.registry.url is wrong" in words
    registry.fails = 404, {"status": 404, "message": "No resource"}
    assert "404, No resource, with application/json that is no answer" in refusal(registry.url)


def test_a_large_schema_is_taken_and_a_larger_one_told(registry, monkeypatch):
    large = json.dumps({**json.loads(TEXT), "doc": "x" * 1_200_000})
    registry.add("t-value", {"schema": large})
    given = {**LATEST, "schema_registry_timeout_ms": "36000"}
    assert found(registry.url, **given).text == large
    schemas._answers.clear()
    monkeypatch.setattr(client, "MAX_RESPONSE_BYTES", 1_000_000)
    words = refusal(registry.url, **given)
    assert "answers 200 with more than 1,000,000 bytes, which are not taken" in words


def test_check_does_not_ask_for_all_subjects(registry):
    registry.add("t-value", {"schema": TEXT})
    given = options(registry.url, value_subject_name_strategy="RecordNameStrategy")
    assert [f.outcome.value for f in check(given)] == ["passed"]
    assert paths(registry) == ["GET /subjects?offset=0&limit=1"]


@pytest.mark.parametrize("wanted", ["no JSON", '{"properties": 5}', '{"required": 5}'])
def test_a_json_schema_of_a_registry_must_be_one(wanted):
    written = {"type": "object", "properties": {"a": {"type": "integer"}}}
    with pytest.raises(FormatError, match=r"latest schema of the registry .* no JSON Schema"):
        check_json_fits("value", json.dumps(written), wanted, ())


@pytest.mark.parametrize("path", ["/a b", "/é", "/a\x01"])
def test_an_address_that_cannot_be_asked_is_told_at_once(registry, path):
    assert "a space or another character" in refusal(registry.url + path)
    assert paths(registry) == []


def test_a_host_that_cannot_be_looked_up_is_told_at_once(registry):
    words = refusal("http://a..b:1", schema_registry_timeout_ms="500")
    assert "has a host that cannot be looked up" in words
