"""Options of a schema registry without effect: told, or refused where something would be missing."""

from __future__ import annotations

from typing import Any

import pytest

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.config.sink_options import SinkOptions
from tests.unit.registry_asking import HUSH, TEXT, options

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
LATEST: dict[str, Any] = {"use_latest_version": "true"}
ID: dict[str, Any] = {"use_schema_id": "7"}
RECORD = {"value_subject_name_strategy": "RecordNameStrategy"}


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(
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
@pytest.mark.parametrize("chosen", ["avro", "protobuf"])
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
