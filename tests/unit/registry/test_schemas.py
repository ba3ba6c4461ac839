"""The client of schema registries: what it asks, and what users are told of each answer."""

import base64
import json
import pickle
from uuid import UUID

import pytest

from spark_kafka_sink.base.errors import KafkaSinkError
from spark_kafka_sink.formats.avro_layout import checked_types
from spark_kafka_sink.formats.plan import FormatError, ProtobufFile
from spark_kafka_sink.registry import schemas
from spark_kafka_sink.registry.client import Schema
from spark_kafka_sink.registry.schemas import find, schema_id_header, schema_id_prefix
from tests.formats.generate_avro_schemas import VERDICTS as VERDICTS_FILE
from tests.tables import each_row
from tests.unit.registry.server import (
    HUSH,
    OTHER,
    TEXT,
    Times,
    asked_of,
    found,
    oauth,
    options,
    paths,
    refusal,
    request_of,
    serving_token,
)

VERDICTS = json.loads(VERDICTS_FILE.read_text(encoding="utf-8"))["cases"]
"""What Java's Avro says of schemas, in the order in which its parser gets them."""


def test_a_schema_is_registered_and_its_id_goes_before_values(registry):
    assert found(registry.url).id == 1
    assert paths(registry) == ["POST /subjects/t-value/versions"]
    assert registry.asked[0].body == {"schema": TEXT}
    assert schema_id_prefix(Schema(1, TEXT)) == b"\0\0\0\0\1"


@pytest.mark.parametrize(
    ("strategy", "topic", "subject"),
    [
        ("TopicNameStrategy", "a/b c", "a/b c-value"),
        ("io.confluent.kafka.serializers.subject.RecordNameStrategy", "t", "n.R"),
        ("topicrecordnamestrategy", "t", "t-n.R"),
    ],
)
def test_the_subject_follows_the_strategy(registry, strategy, topic, subject):
    found(registry.url, topic=topic, value_subject_name_strategy=strategy)
    assert [*registry.subjects] == [subject]


def test_what_is_there_is_looked_up_where_nothing_may_be_registered(registry):
    registry.add("t-value", {"schema": OTHER})
    registry.add("t-value", {"schema": TEXT})
    given = {"auto_register_schemas": "false", "normalize_schemas": "true"}
    assert found(registry.url, **given).id == 2
    assert paths(registry) == ["POST /subjects/t-value?normalize=true"]


def test_the_latest_version_and_an_id_bring_their_schema(registry):
    registry.add("t-value", {"schema": OTHER})
    registry.add("t-value", {"schema": TEXT})
    assert found(registry.url, OTHER, use_latest_version="true")[:2] == (2, TEXT)
    assert found(registry.url, OTHER, use_schema_id="1")[:2] == (1, OTHER)


def ask_in_stream(registry, clock, **more):
    given = options(registry.url, schema_registry_timeout_ms="500", **more)
    return find(*request_of(given), clock, is_stream=True).id


@pytest.mark.parametrize("more", [{}, {"use_latest_version": "true"}])
def test_a_stream_asks_again_after_a_while(registry, more):
    clock = Times()
    registry.add("t-value", {"schema": TEXT})
    assert ask_in_stream(registry, clock, **more) == 1
    registry.schemas[:] = [{"schema": OTHER}, {"schema": TEXT}]
    registry.subjects["t-value"] = [2]
    assert ask_in_stream(registry, clock, **more) == 1
    clock.wait(schemas._MAX_AGE_MS)
    assert ask_in_stream(registry, clock, **more) == 2


@pytest.mark.parametrize("status", [429, 503])
def test_a_registry_that_asks_for_time_gets_it_and_a_warning_is_logged_each_minute(
    registry, status, caplog
):
    clock = Times()
    ask_in_stream(registry, clock)
    registry.fails, registry.headers = (status, {}), [("Retry-After", "600")]
    clock.wait(schemas._MAX_AGE_MS)
    registry.asked.clear()
    for minute in range(10):
        assert ask_in_stream(registry, clock) == 1
        assert ask_in_stream(registry, clock) == 1
        assert (len(registry.asked), caplog.text.count("PKS-REGISTRY-018")) == (1, minute + 1)
        clock.wait(60_000)
    registry.fails = None
    assert ask_in_stream(registry, clock) == 1
    assert len(registry.asked) == 2
    clock.wait(60_000)
    ask_in_stream(registry, clock)
    assert caplog.text.count("PKS-REGISTRY-018") == 10


def test_a_registry_that_asks_for_a_year_is_asked_again_after_an_hour(registry):
    clock = Times()
    ask_in_stream(registry, clock)
    registry.fails, registry.headers = (429, {}), [("Retry-After", str(365 * 86_400))]
    clock.wait(schemas._MAX_AGE_MS)
    ask_in_stream(registry, clock)
    registry.asked.clear()
    clock.wait(3_600_000)
    ask_in_stream(registry, clock)
    assert len(registry.asked) == 1


@each_row("case", [case for case in VERDICTS if len(case) > 2])
def test_schemas_that_build_on_others_are_taken_where_java_takes_them(registry, case):
    """Whatever the references are called: the names of types are in the schemas."""
    *schemas_in_order, verdict = case
    schemas._answers.clear()
    registry.subjects.clear()
    *others, own = schemas_in_order
    references = [
        {"name": f"any {n}", "subject": f"s{n}", "version": 1} for n in range(len(others))
    ]
    for n, other in enumerate(others):
        registry.add(f"s{n}", {"schema": other, "references": references[:n]})
    registry.add("t-value", {"schema": own, "references": references})
    refused = ""
    try:
        text = found(registry.url, use_latest_version="true").text
        checked_types(json.loads(text))
        assert json.loads(text)["name"] == json.loads(own)["name"].rpartition(".")[2]
    except (FormatError, KafkaSinkError) as error:
        refused = str(error)
    assert bool(refused) is bool(verdict), (refused, verdict)


def test_a_type_of_another_schema_is_written_as_it_is_there(registry):
    place = '{"type":"record","name":"Place","fields":[{"name":"x","type":"int"}]}'
    home = '{"type":"record","name":"n.Home","fields":[{"name":"at","type":%s}]}'
    registry.add("home", {"schema": home % place})
    outer = '{"type":"record","name":"R","fields":[{"name":"p","type":%s},{"name":"h","type":"n.Home"}]}'
    reference = {"name": "home", "subject": "home", "version": 1}
    registry.add("t-value", {"schema": outer % '{"type":"n.Place"}', "references": [reference]})
    first, second = json.loads(found(registry.url, use_latest_version="true").text)["fields"]
    assert first["type"] == {**json.loads(place), "namespace": "n"}
    assert second["type"]["fields"] == [{"name": "at", "type": "n.Place"}]
    other = place.replace("int", "long").replace("Place", "n.Place")
    registry.add("t-value", {"schema": outer % other, "references": [reference]})
    schemas._answers.clear()
    words = "has another type 'n.Place' than a schema that it builds on"
    assert words in refusal(registry.url, use_latest_version="true")


def test_the_header_has_the_guid(registry):
    schema = found(registry.url, value_schema_id_location="header")
    assert schema_id_header("value", schema) == ("__value_schema_id", b"\1" + b"\0" * 15 + b"\1")
    asked = len(registry.asked)
    schemas._answers.clear()
    latest = found(registry.url, use_latest_version="true", value_schema_id_location="header")
    assert latest == schema._replace(text=latest.text, version=latest.version)
    assert len(registry.asked) == asked + 1, "the answer has the GUID"


def test_a_guid_is_written_from_its_first_digit_on():
    """As ``HeaderSchemaIdSerializer``, by the two longs of a Java UUID."""
    schema = Schema(1, TEXT, guid="00112233-4455-6677-8899-aabbccddeeff")
    written = bytes.fromhex("01 00112233445566778899aabbccddeeff")
    assert schema_id_header("key", schema) == ("__key_schema_id", written)


def test_a_registry_without_guids_has_no_header_to_give(registry):
    registry.has_guids = False
    found(registry.url)
    assert len(registry.asked) == 1, "only a header needs a GUID"
    schemas._answers.clear()
    schema = found(registry.url, value_schema_id_location="header")
    with pytest.raises(KafkaSinkError, match=r"leave value\.schema\.id\.location out"):
        schema_id_header("value", schema)


def test_protobuf_has_the_index_of_its_message_behind_the_id():
    assert schema_id_prefix(Schema(258, "", "PROTOBUF")) == b"\0\0\0\1\2\0"
    schema = Schema(1, "", "PROTOBUF", str(UUID(int=1)))
    assert schema_id_prefix(schema, (1,)) == b"\0\0\0\0\1\x02\x02"
    assert schema_id_prefix(schema, (0, 64)) == b"\0\0\0\0\1\x04\x00\x80\x01"
    _, header = schema_id_header("value", schema, (0,))
    assert header == b"\1" + bytes(15) + b"\1" + b"\0"


def wanted_protobuf(given, text=None, **more):
    return request_of(given, text, kind="PROTOBUF", **more)


def test_files_that_a_protobuf_schema_imports_are_registered_under_their_names(registry):
    files = (
        ProtobufFile("c.proto", "CCCC"),
        ProtobufFile("b.proto", "BBBB", ("c.proto",)),
        ProtobufFile("a.proto", "AAAA", ("b.proto", "c.proto")),
    )
    asked = wanted_protobuf(options(registry.url), text="AAAA", files=files)
    assert find(*asked).id == 3
    assert [*registry.subjects] == ["c.proto", "b.proto", "t-value"]
    assert [len(s.get("references", ())) for s in registry.schemas] == [0, 1, 2]
    assert all(schema["schemaType"] == "PROTOBUF" for schema in registry.schemas)
    schemas._answers.clear()
    is_looked_up = options(registry.url, auto_register_schemas="false")
    assert find(*wanted_protobuf(is_looked_up, text="AAAA", files=files)).id == 3
    assert len(registry.schemas) == 3


def test_a_registrys_protobuf_schema_comes_with_the_files_that_it_imports(registry):
    registry.add("c", {"schema": "text of c", "schemaType": "PROTOBUF"})
    of_c = {"name": "c.proto", "subject": "c", "version": 1}
    schema = {"schema": "text of b", "schemaType": "PROTOBUF", "references": [of_c]}
    registry.add("b", schema)
    of_b = {"name": "b.proto", "subject": "b", "version": 1}
    schema = {"schema": "text of a", "schemaType": "PROTOBUF", "references": [of_b]}
    number = registry.add("t-value", schema)
    registry.serialized = {f"text of {name}": name * 4 for name in "abc"}
    for more in ({"use_latest_version": "true"}, {"use_schema_id": str(number)}):
        given = options(registry.url, value_format="protobuf", **more)
        found = find(*wanted_protobuf(given))
        assert (found.text, found.files) == ("aaaa", (("c.proto", "cccc"), ("b.proto", "bbbb")))


@pytest.mark.parametrize(("refused", "subject"), [("t-value", "t-value"), ("b.proto", "b.proto")])
def test_an_incompatible_protobuf_schema_is_told_without_its_bytes(registry, refused, subject):
    registry.add(subject, {"schema": "old", "schemaType": "PROTOBUF"})
    registry.refuses.add(refused)
    files = (ProtobufFile("b.proto", "BBBB"), ProtobufFile("a.proto", "AAAA", ("b.proto",)))
    with pytest.raises(KafkaSinkError) as told:
        find(*wanted_protobuf(options(registry.url), text="AAAA", files=files))
    words = str(told.value)
    assert "refuses the schema of the descriptor file, which is not compatible with" in words
    assert f"version 1 of subject '{subject}'" in words
    assert "Either change the message, or" in words
    given = options(registry.url, auto_register_schemas="false")
    with pytest.raises(KafkaSinkError, match=r"auto\.register\.schemas=false") as told:
        find(*wanted_protobuf(given, text="AAAA"))
    assert "AAAA" not in str(told.value)


def test_the_subject_of_a_protobuf_message(registry):
    more = {"value_subject_name_strategy": "TopicRecordNameStrategy"}
    given = options(registry.url, **more)
    find(*wanted_protobuf(given, text="AAAA", record="pkg.M"))
    assert [*registry.subjects] == ["t-pkg.M"]
    _, wanted = wanted_protobuf(given)
    with pytest.raises(KafkaSinkError, match=r"set value\.protobuf\.message"):
        wanted.subject(None)


def basic(text):
    return "Basic " + base64.b64encode(text.encode()).decode()


def test_credentials_are_sent_and_are_in_no_pickle(registry, monkeypatch):
    monkeypatch.setenv("REGISTRY_USER", f"user:{HUSH}")
    asked = {"schema_registry_basic_auth_user_info": "${env:REGISTRY_USER}"}
    found(registry.url, **asked)
    found(registry.url, schema_registry_basic_auth_user_info=f"user:{HUSH}")
    found(registry.url.replace("//", f"//user:{HUSH}@"))
    assert [a.headers["Authorization"] for a in registry.asked] == [basic(f"user:{HUSH}")] * 3
    given = options(registry.url, schema_registry_bearer_auth_token=HUSH)
    asked_of(given)
    assert registry.asked[-1].headers["Authorization"] == f"Bearer {HUSH}"
    assert HUSH.encode() not in pickle.dumps(given)
    assert HUSH not in repr(given)


def test_credentials_of_the_brokers_may_be_those_of_the_registry(registry):
    given = {
        "schema_registry_basic_auth_credentials_source": "SASL_INHERIT",
        "kafka_security_protocol": "SASL_SSL",
        "kafka_sasl_mechanism": "PLAIN",
        "kafka_sasl_username": "user",
        "kafka_sasl_password": HUSH,
    }
    found(registry.url, **given)
    assert registry.asked[0].headers["Authorization"] == basic(f"user:{HUSH}")


def test_an_issuer_that_refuses_is_told_by_the_names_of_these_options(registry):
    with serving_token(401, {"error": "invalid_client"}) as (issuer, _):
        words = refusal(registry.url, **oauth(issuer))
    assert "no token for the schema registry" in words
    assert "schema.registry.bearer.auth.client.id" in words
    assert registry.asked == []
