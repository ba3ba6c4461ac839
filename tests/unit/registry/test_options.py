"""Options of a schema registry: which are refused or without effect, and what users read of credentials."""

import base64
import json

import pytest

from spark_kafka_sink.base.errors import ConfigError, KafkaSinkError, sentence
from spark_kafka_sink.config.sink_options import SinkOptions
from tests.tables import each_row
from tests.unit.registry.server import (
    HUSH,
    OTHER,
    TEXT,
    Times,
    client_of,
    found,
    options,
    refusal,
    unused_port,
)
from tests.unit.test_redaction import ENCODERS

URL = "https://r:1"
SASL = {
    "kafka_security_protocol": "SASL_SSL",
    "kafka_sasl_mechanism": "PLAIN",
    "kafka_sasl_username": "u",
    "kafka_sasl_password": "p",
}
BASIC, BEARER = "schema_registry_basic_auth_", "schema_registry_bearer_auth_"
ISSUER = {
    f"{BEARER}issuer_endpoint_url": "https://i/t",
    f"{BEARER}client_id": "x",
    f"{BEARER}client_secret": HUSH,
}
LATEST = {"use_latest_version": "true"}
ID = {"use_schema_id": "7"}
RECORD = {"value_subject_name_strategy": "RecordNameStrategy"}


@each_row(
    ("name", "given"),
    [
        ("key.use.schema.id", {"key_format": "json", "key_columns": "a", "key_use_schema_id": "5"}),
        ("use.schema.id", {"value_format": "json", "key_format": "avro", "key_columns": "a", **ID}),
        ("key.subject.name.strategy", {"key_subject_name_strategy": "RecordNameStrategy"}),
        ("key.schema.references", {"key_schema_references": "[]"}),
        ("use.latest.version", {**ID, **LATEST}),
        ("use.latest.with.metadata", {**ID, "use_latest_with_metadata": "a=b"}),
        ("latest.compatibility.strict", {"latest_compatibility_strict": "false"}),
        ("latest.compatibility.strict", {"latest_compatibility_strict": "false", **ID}),
        ("id.compatibility.strict", {"id_compatibility_strict": "false", **LATEST}),
        ("auto.register.schemas", {"auto_register_schemas": "true", **LATEST}),
        ("auto.register.schemas", {"auto_register_schemas": "true", **ID}),
        ("normalize.schemas", {"normalize_schemas": "true", **LATEST}),
        ("avro.record.name", {"avro_record_name": "X", "value_avro_schema": TEXT}),
        ("avro.namespace", {"avro_namespace": "x", **LATEST}),
        ("avro.record.name", {"avro_record_name": "X", **ID}),
        ("value.schema.id.location", {"value_schema_id_prefix": "false", "value_schema_id_location": "header"}),
        ("value.subject.name.strategy", {**ID, **RECORD}),
        (f"{BEARER}issuer.endpoint.url", {f"{BEARER}token": "t", **ISSUER}),
        (f"{BEARER}client.secret", {f"{BEARER}token": "t", **ISSUER}),
        (f"{BEARER}token", {f"{BEARER}credentials_source": "OAUTHBEARER", f"{BEARER}token": "t", **ISSUER}),
        (f"{BASIC}user.info", {f"{BASIC}credentials_source": "URL", f"{BASIC}user_info": f"u:{HUSH}"}),
        (f"{BASIC}user.info", {f"{BASIC}credentials_source": "SASL_INHERIT", f"{BASIC}user_info": f"u:{HUSH}", **SASL}),
    ],
)  # fmt: skip
def test_an_option_without_effect_is_told(name, given):
    has_url_credentials = given.get(f"{BASIC}credentials_source") == "URL"
    notes = options(
        URL.replace("//", f"//u:{HUSH}@") if has_url_credentials else URL, **given
    ).notes
    told = [n for n in notes if f"option '{name.replace('_', '.')}' has no effect" in n]
    assert len(told) == 1
    assert HUSH not in " ".join(notes)


@pytest.mark.parametrize("given", [{f"{BEARER}token": "t"}, {f"{BASIC}user_info": "u:p"}])
def test_credentials_in_the_url_beside_others_are_told(given):
    notes = options(f"https://u:{HUSH}@r:1", **given).notes
    (told,) = (n for n in notes if "user and password in schema.registry.url have no effect" in n)
    assert HUSH not in " ".join(notes)
    assert next(iter(given)).rpartition("_")[0].replace("_", ".")[:25] in told


PLAIN = {"kafka.bootstrap.servers": "b:1", "topic": "t", "value.format": "avro"}


@each_row(
    ("name", "value"),
    [
        ("use.schema.id", "7"),
        ("use.latest.version", "true"),
        ("use.latest.with.metadata", "a=b"),
        ("auto.register.schemas", "false"),
        ("normalize.schemas", "true"),
        ("latest.compatibility.strict", "false"),
        ("id.compatibility.strict", "false"),
        ("value.subject.name.strategy", "RecordNameStrategy"),
        ("value.schema.references", "[]"),
        ("schema.registry.basic.auth.user.info", f"u:{HUSH}"),
        ("schema.registry.ssl.truststore.location", "/x.pem"),
    ],
)
@each_row("chosen", ["avro", "protobuf"])
def test_an_option_of_a_registry_without_its_address_is_refused(chosen, name, value):
    with pytest.raises(ConfigError) as refused:
        SinkOptions.parse({**PLAIN, "value.format": chosen, name: value})
    words = str(refused.value)
    assert f"option '{name}' needs schema.registry.url: without it value.format={chosen}" in words
    assert HUSH not in words


def test_an_option_of_keys_without_the_registrys_address_is_refused():
    keys = {"value.format": "json", "key.format": "avro", "key.columns": "a"}
    with pytest.raises(ConfigError, match=r"'key\.use\.schema\.id' needs .*key\.format=avro"):
        SinkOptions.parse({**PLAIN, **keys, "key.use.schema.id": "7"})


@pytest.mark.parametrize(
    "given",
    [
        {"value.schema.id.prefix": "false", "use.schema.id": "7"},
        {"value.format": "json", "use.latest.version": "true"},
        {"value.format": "raw", "value.schema.id.prefix": "true", "use.schema.id": "7"},
        {
            "value.format": "protobuf",
            "value.protobuf.descriptor.file": "x.desc",
            "value.protobuf.message": "X",
            "value.schema.id.prefix": "true",
            "use.schema.id": "7",
        },
    ],
)
def test_where_nobody_has_to_be_asked_no_address_is_needed(given):
    assert SinkOptions.parse({**PLAIN, **given}).formats is not None


def test_a_location_without_a_registry_is_told():
    given = {"kafka.bootstrap.servers": "b:1", "topic": "t", "value.format": "avro"}
    notes = SinkOptions.parse({**given, "value.schema.id.location": "header"}).notes
    (told,) = (n for n in notes if "'value.schema.id.location' has no effect" in n)
    assert told.endswith("this needs schema.registry.url")


def test_what_is_without_a_schema_is_told_once():
    notes = options(URL, value_schema_id_prefix="false", **ID).notes
    assert len([n for n in notes if "'use.schema.id' has no effect" in n]) == 1


@pytest.mark.parametrize(
    "given",
    [
        {"avro_record_name": "X"},
        {"avro_record_name": "X", **LATEST, **RECORD},
        {"auto_register_schemas": "false", **LATEST},
        {"latest_compatibility_strict": "false", **LATEST},
        {"normalize_schemas": "true"},
        {"value_schema_id_location": "header"},
        {"key_format": "avro", "key_columns": "a", "key_use_schema_id": "5", **LATEST},
    ],
)
def test_an_option_with_effect_is_not_told(given):
    assert options(URL, **given).notes == ()


@pytest.mark.parametrize(
    "name", ["client_id", "client_secret", "scope", "logical_cluster", "identity_pool_id"]
)
def test_options_of_a_token_without_one_are_refused(name):
    with pytest.raises(ConfigError) as refused:
        options(URL, **{BEARER + name: HUSH})
    words = str(refused.value)
    assert f"schema.registry.bearer.auth.{name.replace('_', '.')} needs a token: set" in words
    assert HUSH not in words


@pytest.mark.parametrize("url", [URL, ""])
def test_without_a_registry_nothing_tells_that_bytes_are_protobuf(url):
    """So no index of a message is put behind the id, which consumers of Protobuf need."""
    given = {"value_format": "raw", "value_schema_id_prefix": "true", **ID}
    if url:
        notes = options(url, **given).notes
    else:
        named = {name.replace("_", "."): value for name, value in given.items()}
        notes = SinkOptions.parse({"kafka.bootstrap.servers": "b:1", "topic": "t", **named}).notes
    told = [note for note in notes if "of Protobuf set schema.registry.url" in note]
    assert len(told) == (0 if url else 1)


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


@pytest.mark.parametrize("given", [{}, {"value.format": "json"}, {"value.column": "v"}])
def test_an_address_that_nothing_uses_is_refused(given):
    base = {"kafka.bootstrap.servers": "b:1", "topic": "t", "schema.registry.url": "http://r:1"}
    with pytest.raises(ConfigError) as refused:
        SinkOptions.parse({**base, **given})
    assert "'schema.registry.url' is used by neither value.format nor key.format" in str(
        refused.value
    )
    prefix = {"value.schema.id.prefix": "true", "use.latest.version": "true"}
    assert SinkOptions.parse({**base, **given, **prefix}).registry
    assert SinkOptions.parse({**base, "key.format": "avro", "key.columns": "a"}).registry


def test_what_has_no_effect_or_is_seen_by_others_is_told():
    notes = options("http://r:1", schema_registry_basic_auth_user_info="u:p").notes
    assert any("schema.registry.url begins with http:" in note for note in notes)
    assert any("schema.registry.basic.auth.user.info" in note for note in notes)
    assert any("schema.registry.url" in n for n in options("https://u:p@r:1").notes)
    assert options("https://r:1").notes == ()


def checked(url, **more):
    from spark_kafka_sink.tools.check_cluster import schemas as look

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
    assert "no schema registry of schema.registry.url answers" in text
