"""What users are told of what a schema registry answers, and of wrong options."""

from __future__ import annotations

import base64
import json
import re
import socket
import threading

import pytest

from spark_kafka_sink.base.errors import ConfigError, KafkaSinkError
from spark_kafka_sink.config.sink_options import SinkOptions
from spark_kafka_sink.registry.client import RegistryClient
from tests.unit.registry_asking import (  # noqa: F401
    HUSH,
    OTHER,
    TEXT,
    Times,
    asked_of,
    found,
    fresh_registry,
    options,
    paths,
    refusal,
)
from tests.unit.test_printable import ENCODERS


@pytest.fixture
def registry():
    with fresh_registry() as made:
        yield made


# --- what goes wrong --------------------------------------------------------------------------


def unused_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
    return port


def client_of(*urls: str, times: Times) -> RegistryClient:
    registry = options(",".join(urls)).registry
    assert registry.config is not None
    return RegistryClient(registry.config, times, times.wait)


def test_one_that_is_down_is_tried_again_for_a_while_and_told(registry):
    times = Times()
    url = f"http://user:{HUSH}@127.0.0.1:{unused_port()}"
    with pytest.raises(KafkaSinkError) as refused:
        client_of(url, times=times).version("t-value")
    words = str(refused.value)
    assert "no schema registry of schema.registry.url answers: http://127.0.0.1:" in words
    assert "Connection refused" in words
    assert HUSH not in words
    assert times.pauses[:5] == [200, 400, 800, 1600, 2000]
    assert times.ms <= 12_500


def test_the_next_address_is_asked_and_stays_the_first(registry):
    registry.add("t-value", {"schema": TEXT})
    times = Times()
    client = client_of(f"http://127.0.0.1:{unused_port()}", registry.url, times=times)
    assert client.version("t-value").id == 1
    assert client.version("t-value").id == 1
    assert times.pauses == []


def test_one_that_recovers_is_waited_for(registry):
    registry.fails = 503, {"error_code": 50003, "message": "forwarding"}
    registry.add("t-value", {"schema": TEXT})
    times = Times()

    def recovers(pause_ms: int) -> None:
        times.wait(pause_ms)
        registry.fails = None

    client = client_of(registry.url, times=times)
    client._wait = recovers
    assert client.version("t-value").id == 1


def test_one_that_does_not_answer_is_given_up(registry):
    registry.waits_for = threading.Event()
    told = refusal(registry.url, schema_registry_timeout_ms="60")
    assert re.search(r"no answer within \d\d? ms", told)


@pytest.mark.parametrize(
    ("status", "content", "words"),
    [
        (401, {"error_code": 401, "message": "Unauthorized"}, "it wants credentials: set schema"),
        (403, {"error_code": 40301, "message": "User is denied"}, "answers 403 (40301), User is denied: these"),
        (422, {"error_code": 42201, "message": "Invalid schema"}, "does not take the schema of subject 't-value'"),
        (200, "<html>login</html>", "answers 200 with text/html that is no answer of one: it is no schema registry"),
        (404, "<html>Not Found</html>", "Apicurio's ends with /apis/ccompat/v7"),
        (200, {"other": 1}, "without an id or a schema"),
        (200, [1], "a JSON list instead of an object"),
        (301, "", "a redirect, which is not followed"),
        (500, {"error_code": 50001, "message": "Error in the backend"}, "answers 500 (50001), Error in the backend"),
    ],
)  # fmt: skip
def test_what_is_told_of_an_answer(registry, status, content, words):
    registry.fails = status, content
    assert words in refusal(registry.url, schema_registry_timeout_ms="2000")


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
    assert "in which new fields have a default (value.avro.schema or key.avro.schema)" in words
    assert words.endswith("drop the columns that are new, or change the subject's compatibility")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"auto_register_schemas": "false"}, "has no subject 't-value': register it"),
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
    assert words.endswith(TEXT)


def test_a_port_that_speaks_no_tls(registry):
    words = refusal(registry.url.replace("http:", "https:"))
    assert "schema registry: TLS with 127.0.0.1:" in words
    assert "a URL that begins with http:" in words


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


# --- options ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"schema_registry_url": "registry:8081"}, "each must begin with http:// or https://"),
        ({"schema_registry_bearer_auth_token": "x", "schema_registry_basic_auth_user_info": "u:p"}, "leave one of them out"),
        ({"schema_registry_basic_auth_credentials_source": "USER_INFO"}, "needs schema.registry.basic.auth.user.info"),
        ({"schema_registry_basic_auth_credentials_source": "SASL_INHERIT"}, "needs kafka.sasl.username"),
        ({"schema_registry_bearer_auth_credentials_source": "OAUTHBEARER"}, "needs schema.registry.bearer.auth.issuer.endpoint.url"),
        ({"schema_registry_ssl_keystore_key": "x"}, "schema.registry.ssl.keystore.key and"),
        ({"value_format": "raw", "value_schema_id_prefix": "true"}, "a schema is derived from columns for avro and json only"),
        ({"value_format": "string", "value_schema_id_prefix": "true"}, "has no schema"),
        ({"use_latest_version": "true", "value_avro_schema": TEXT}, "both say which schema"),
    ],
)  # fmt: skip
def test_what_options_are_refused(given, words):
    with pytest.raises(ConfigError) as refused:
        options(
            **{"url": "http://r:1", **given}
            if "schema_registry_url" not in given
            else {"url": given["schema_registry_url"]}
        )
    assert words in str(refused.value)


@pytest.mark.parametrize("host", ["h℀:1", "[::1"])
def test_an_address_that_is_none_is_not_shown(host):
    with pytest.raises(ConfigError) as refused:
        options(f"http://user:{HUSH}@{host}")
    assert "must be of the form https://host:port" in str(refused.value)
    assert HUSH not in str(refused.value)


def test_an_address_that_a_reference_completes_is_looked_at_when_that_is_known(monkeypatch):
    monkeypatch.setenv("SCHEMAS_HOST", "[::1")
    words = refusal(f"http://user:{HUSH}@[${{env:SCHEMAS_HOST}}", schema_registry_timeout_ms="50")
    assert "must be of the form https://host:port" in words


IN_URL = {"schema_registry_basic_auth_credentials_source": "URL"}


@pytest.mark.parametrize("more", [{}, {"schema_registry_basic_auth_user_info": f"u:{HUSH}"}])
def test_credentials_that_must_be_in_the_url_and_are_not(more):
    """Of several addresses the one without them is told."""
    words = (
        r"credentials\.source=URL needs user and password in schema\.registry\.url, as "
        r"https://user:password@host:port: http://b:1/x has none"
    )
    with pytest.raises(ConfigError, match=words) as refused:
        options(f"http://u:{HUSH}@a:1,http://b:1/x", **IN_URL, **more)
    assert HUSH not in str(refused.value)
    assert options(f"http://u:{HUSH}@a:1,https://u@b:1", **IN_URL, **more).registry is not None


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


def test_a_prefix_needs_a_registry_or_an_id():
    base = {"kafka.bootstrap.servers": "b:1", "topic": "t", "value.schema.id.prefix": "true"}
    with pytest.raises(ConfigError, match=r"needs schema\.registry\.url"):
        SinkOptions.parse(base)
    registry = SinkOptions.parse({**base, "use.schema.id": "5"}).registry
    assert registry.config is None


def test_what_has_no_effect_or_is_seen_by_others_is_told():
    given = {"kafka.bootstrap.servers": "b:1", "topic": "t"}
    notes = SinkOptions.parse({**given, "schema.registry.url": "http://r:1"}).notes
    assert any("option 'schema.registry.url' has no effect without a schema" in n for n in notes)
    notes = options("http://r:1", schema_registry_basic_auth_user_info="u:p").notes
    assert any("schema.registry.url begins with http:" in note for note in notes)
    assert any("schema.registry.basic.auth.user.info" in note for note in notes)
    assert any("schema.registry.url" in n for n in options("https://u:p@r:1").notes)
    assert options("https://r:1").notes == ()


# --- pykafka-sink check -----------------------------------------------------------------------


def checked(url: str, **more: str) -> list[tuple[str, str, str]]:
    from spark_kafka_sink.tools.checks import schemas as look

    return [(f.outcome.value, f.subject, f.text) for f in look(options(url, **more))]


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
    assert checked(registry.url, value_subject_name_strategy="RecordNameStrategy")[0][0] == "passed"


def test_check_compares_a_given_schema(registry):
    registry.add("t-value", {"schema": TEXT})
    found = checked(registry.url, value_avro_schema=OTHER)
    assert found[1][:2] == ("passed", "value.avro.schema")
    registry.refuses.add("t-value")
    found = checked(registry.url, value_avro_schema=OTHER)
    assert found[1][0] == "warned"
    assert "reader type" in found[1][2]


def test_check_compares_with_what_a_schema_builds_on(registry):
    registry.add("t-value", {"schema": TEXT})
    registry.add("home", {"schema": OTHER})
    reference = {"name": "R", "subject": "home"}
    given = {"value_schema_references": json.dumps([reference]), "value_avro_schema": TEXT}
    assert checked(registry.url, **given)[1][:2] == ("passed", "value.avro.schema")
    assert registry.asked[-1].body["references"] == [{**reference, "version": 1}]


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
    assert "Connection refused" in text
