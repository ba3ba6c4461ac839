"""What users read of a registry: where it is, its credentials, its schemas; and what a check tells."""

import base64
import json

import pytest

from spark_kafka_sink.base.errors import ConfigError, KafkaSinkError, sentence
from spark_kafka_sink.tools.check_cluster import schemas as check
from tests.unit.registry.server import (
    HUSH,
    OTHER,
    TEXT,
    Times,
    client_of,
    found,
    options,
    paths,
    refusal,
    unused_port,
)
from tests.unit.test_redaction import ENCODERS


def test_one_that_is_down_is_tried_again_for_a_while_and_told(registry):
    times = Times()
    url = f"http://user:{HUSH}@127.0.0.1:{unused_port()}"
    with pytest.raises(KafkaSinkError) as refused:
        client_of(url, times=times).version("t-value")
    words = str(refused.value)
    assert "no schema registry of schema.registry.url is available: http://127.0.0.1:" in words
    assert "Connection refused" in words
    assert HUSH not in words
    assert times.pauses[:5] == [200, 400, 800, 1600, 2000]
    assert times.ms <= 12_500


def test_one_that_recovers_is_waited_for(registry):
    registry.fails = 503, {"error_code": 50003, "message": "forwarding"}
    registry.add("t-value", {"schema": TEXT})
    times = Times()

    def recovers(pause_ms):
        times.wait(pause_ms)
        registry.fails = None

    client = client_of(registry.url, times=times)
    client._wait = recovers
    assert client.version("t-value").id == 1


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"schema_registry_basic_auth_user_info": f"u:{HUSH}"}, "check schema.registry.basic.auth.user.info"),
        ({"schema_registry_bearer_auth_token": HUSH}, "it does not take the token"),
    ],
)  # fmt: skip
def test_wrong_credentials_are_told_by_their_option(registry, given, words):
    registry.fails = 401, {"error_code": 401, "message": "Unauthorized"}
    assert words in refusal(registry.url, **given)


@pytest.mark.parametrize("kind", ["user_info", "url", "token"])
def test_credentials_that_a_registry_sends_back_are_hidden(registry, kind):
    secret = "marked-0815-pass"
    sent = secret if kind == "token" else f"user:{secret}"
    url = registry.url.replace("//", f"//{sent}@") if kind == "url" else registry.url
    given = {
        "user_info": {"schema_registry_basic_auth_user_info": sent},
        "token": {"schema_registry_bearer_auth_token": secret},
    }.get(kind, {})
    header = secret if kind == "token" else base64.b64encode(sent.encode()).decode()
    for echo in (encode(text) for encode in ENCODERS.values() for text in (secret, header)):
        registry.fails = 403, {"error_code": 40301, "message": f"you sent {echo}"}
        words = refusal(url, **given)
        assert "[hidden]" in words
        assert echo not in words


@pytest.mark.parametrize("mark", ["/", "?", "#"])
def test_a_password_with_an_unescaped_mark_is_not_shown(mark, monkeypatch):
    url = f"http://user:1234{mark}{HUSH}@127.0.0.1:8081"
    for more in ({}, IN_URL):
        with pytest.raises(ConfigError, match="In user and password write %2F for /") as refused:
            options(url, **more)
        assert HUSH not in str(refused.value)
        assert "1234" not in str(refused.value)
        monkeypatch.setenv("SCHEMAS_URL", url)
        words = refusal("${env:SCHEMAS_URL}", **more)
        assert "In user and password write %2F for /" in words
        assert "1234" not in words


def test_an_incompatible_schema_is_told_with_the_version_and_the_registrys_reason(registry):
    registry.add("t-value", {"schema": OTHER})
    registry.refuses.add("t-value")
    words = refusal(registry.url)
    assert "not compatible with version 1 of subject 't-value'" in words
    assert "reader type: STRING not compatible" in words
    assert sentence(words).endswith(
        "Either write the columns and types that this version has, give a schema that is "
        "compatible (value.avro.schema or key.avro.schema), or change the subject's compatibility"
    )


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"use_latest_version": "true"}, "has no subject 't-value': register a schema for it"),
        ({"use_schema_id": "7"}, "use.schema.id=7: the schema registry"),
    ],
)
def test_what_is_missing(registry, given, words):
    assert words in refusal(registry.url, **given)


def test_topics_of_rows_have_no_subject(registry):
    assert "needs option 'topic'" in refusal(registry.url, topic="")
    assert found(registry.url, topic="", value_subject_name_strategy="RecordNameStrategy").id == 1


def test_a_subject_without_the_schema(registry):
    registry.add("t-value", {"schema": OTHER})
    words = refusal(registry.url, auto_register_schemas="false")
    assert "has not this schema in 't-value': register it" in words
    assert sentence(words).endswith(TEXT)


@pytest.mark.parametrize("text", [f"{HUSH}\nX-More: 1", f"{HUSH}\r\nX", f"{HUSH}€", f"{HUSH}é"])
@pytest.mark.parametrize("option", ["token", "logical_cluster", "identity_pool_id"])
def test_what_no_header_can_have_is_refused_and_not_shown(registry, option, text):
    given = {
        "schema_registry_bearer_auth_token": "t",
        f"schema_registry_bearer_auth_{option}": text,
    }
    words = refusal(registry.url, **given)
    assert f"schema.registry.bearer.auth.{option.replace('_', '.')} has a line break" in words
    assert registry.asked == []


def test_an_address_that_a_reference_completes_is_looked_at_when_that_is_known(monkeypatch):
    monkeypatch.setenv("SCHEMAS_HOST", "[::1")
    words = refusal(f"http://user:{HUSH}@[${{env:SCHEMAS_HOST}}", schema_registry_timeout_ms="50")
    assert "must be of the form https://host:port" in words


IN_URL = {"schema_registry_basic_auth_credentials_source": "URL"}


def test_credentials_in_a_url_that_a_reference_completes_are_looked_for_when_that_is_known(
    registry, monkeypatch
):
    monkeypatch.setenv("SCHEMAS_URL", registry.url)
    words = refusal("${env:SCHEMAS_URL}", **IN_URL)
    assert "credentials.source=URL needs user and password in schema.registry.url" in words
    assert f": {registry.url} has none" in words
    assert registry.asked == []
    monkeypatch.setenv("SCHEMAS_URL", registry.url.replace("//", f"//u:{HUSH}@"))
    assert found("${env:SCHEMAS_URL}", **IN_URL).id == 1
    assert registry.asked[0].headers["Authorization"].startswith("Basic ")


def checked(url, **more):
    return [(f.outcome.value, f.subject, f.text) for f in check(options(url, **more))]


def test_check_tells_of_the_subject_and_registers_nothing(registry):
    ((outcome, subject, text),) = checked(registry.url)
    assert (outcome, subject) == ("passed", "schema of values")
    assert text == "subject 't-value' is not there, and will be registered"
    assert registry.subjects == {}
    registry.add("t-value", {"schema": TEXT})
    assert checked(registry.url)[0][2] == "subject 't-value' has version 1, of id 1"
    given = {"auto_register_schemas": "false", "topic": "u"}
    assert checked(registry.url, **given)[0][0] == "failed"
    assert checked(registry.url, use_schema_id="1")[0][2] == "AVRO, of id 1"
    given = {"value_subject_name_strategy": "RecordNameStrategy"}
    assert checked(registry.url, **given)[0][0] == "passed"
    assert paths(registry)[-1] == "GET /subjects?offset=0&limit=1", "and not all of them"


def test_check_compares_a_given_schema_with_what_it_builds_on(registry):
    registry.add("t-value", {"schema": TEXT})
    registry.add("home", {"schema": OTHER})
    reference = {"name": "R", "subject": "home"}
    given = {"value_schema_references": json.dumps([reference]), "value_avro_schema": TEXT}
    assert checked(registry.url, **given)[1][:2] == ("passed", "value.avro.schema")
    assert registry.asked[-1].body["references"] == [{**reference, "version": 1}]
    registry.refuses.add("t-value")
    outcome, _, text = checked(registry.url, **given)[1]
    assert outcome == "warned"
    assert "reader type" in text


def test_check_looks_for_the_schema_with_metadata(registry):
    registry.metadata[registry.add("t-value", {"schema": TEXT})] = {"owner": "a"}
    registry.add("t-value", {"schema": OTHER})
    found = checked(registry.url, use_latest_with_metadata="owner=a")
    assert found[0][2] == "subject 't-value' has version 1, of id 1"
    found = checked(registry.url, use_latest_with_metadata="owner=b")
    assert found[0][0] == "failed"
    assert "with these metadata is not there" in found[0][2]


def test_check_tells_of_a_registry_that_is_away():
    url = f"http://127.0.0.1:{unused_port()}"
    ((outcome, subject, text),) = checked(url, schema_registry_timeout_ms="100")
    assert (outcome, subject) == ("failed", "schema registry")
    assert "no schema registry of schema.registry.url is available" in text
