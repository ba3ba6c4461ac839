"""Queries in one session: none takes what another one, or an earlier one, was told."""

from __future__ import annotations

import os
import pickle

import pytest
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from spark_kafka_sink.base.errors import KafkaSinkError
from spark_kafka_sink.registry import schemas
from spark_kafka_sink.spark.planning import plan_schemas
from spark_kafka_sink.spark.row_planning import plan_rows
from tests.formats.protobuf_files import descriptor_set, one_message
from tests.unit.registry.server import (
    Registry,
    fresh_registry,
    jwt,
    options,
    serving,
    serving_token,
)
from tests.unit.security.tls_ends import authority, load_identity, server_context

FIRST = '{"type":"record","name":"R","fields":[{"name":"a","type":["null","string"]}]}'
SECOND = FIRST.replace('"R"', '"S"')
COLUMNS = StructType([StructField("a", StringType())])
ENCODED = StructType([StructField("value", BinaryType())])
RAW = {"value_format": "raw", "value_schema_id_prefix": "true"}
AWAY = 503, {"error_code": 50301, "message": "away"}


@pytest.fixture
def registry():
    with fresh_registry() as made:
        made.add("t-value", {"schema": FIRST})
        yield made


def plan(registry, checkpoint, is_new_process=False, **more):
    """As Spark has a micro-batch planned; of a job where there is no checkpoint."""
    if is_new_process:
        schemas._answers.clear()
    place = {} if checkpoint is None else {"checkpointLocation": checkpoint}
    given = {"use_latest_version": "true", "schema_registry_timeout_ms": "200", **place, **more}
    made = options(registry.url, **given)
    rows = plan_rows(ENCODED if "value_schema_id_prefix" in more else COLUMNS, made)
    owner = None if checkpoint is None else os.getpid()
    found = plan_schemas(rows, made, owner, checkpoint is not None)[0].plan
    value = found.value
    return (value.prefix if value.plan is None else value.plan.prefix)[-1:]


def test_another_query_asks_at_once(registry):
    assert plan(registry, "/c/one") == b"\1"
    registry.add("t-value", {"schema": SECOND})
    assert plan(registry, "/c/two") == b"\2"
    assert plan(registry, "/c/one") == b"\1"
    assert plan(registry, "/c/one", queryName="other") == b"\2"


@pytest.mark.parametrize("is_new_process", [True, False])
def test_another_query_is_not_told_what_this_one_was(registry, is_new_process):
    plan(registry, "/c/one")
    registry.fails = AWAY
    with pytest.raises(KafkaSinkError, match="no schema registry of schema"):
        plan(registry, "/c/two", is_new_process)
    with pytest.raises(KafkaSinkError, match="no schema registry of schema"):
        plan(registry, None, is_new_process)
    assert plan(registry, "/c/one", is_new_process) == b"\1"


def test_a_query_with_a_new_checkpoint_in_the_place_of_another_asks(registry, tmp_path):
    """As where somebody has removed it, and begins anew."""
    checkpoint = tmp_path / "c"
    for name in ("offsets", "commits"):
        (checkpoint / name).mkdir(parents=True)
        (checkpoint / name / "0").touch()
    assert plan(registry, str(checkpoint)) == b"\1"
    registry.add("t-value", {"schema": SECOND})
    assert plan(registry, str(checkpoint)) == b"\1"
    (checkpoint / "commits" / "0").unlink()
    assert plan(registry, str(checkpoint)) == b"\2"


@pytest.mark.parametrize("is_new_process", [True, False])
def test_a_query_with_a_new_checkpoint_does_not_start_without_its_registry(
    registry, tmp_path, is_new_process
):
    """What an earlier one in the same place was told is not taken."""
    checkpoint = tmp_path / "c"
    (checkpoint / "offsets").mkdir(parents=True)
    (checkpoint / "offsets" / "0").touch()
    assert plan(registry, str(checkpoint)) == b"\1"
    registry.fails = AWAY
    with pytest.raises(KafkaSinkError, match="no schema registry of schema"):
        plan(registry, str(checkpoint), is_new_process)
    (checkpoint / "commits").mkdir()
    (checkpoint / "commits" / "0").touch()
    assert plan(registry, str(checkpoint), is_new_process) == b"\1"


def test_what_this_process_was_told_needs_no_file(registry, tmp_path):
    assert plan(registry, "/c/one") == b"\1"
    for path in tmp_path.rglob("*.json"):
        path.unlink()
    schemas._answers.update({key: (0, told) for key, (_, told) in schemas._answers.items()})
    registry.fails = AWAY
    assert plan(registry, "/c/one") == b"\1"


@pytest.mark.parametrize("is_new_process", [True, False])
def test_a_query_goes_on_while_there_is_no_token_for_its_registry(registry, is_new_process, caplog):
    bearer = "schema_registry_bearer_auth"
    given = {
        f"{bearer}_credentials_source": "OAUTHBEARER",
        f"{bearer}_client_id": "i",
        f"{bearer}_client_secret": "s",
    }
    with serving_token(200, {"access_token": jwt()}) as issuer:
        given[f"{bearer}_issuer_endpoint_url"] = f"{issuer}/token"
        assert plan(registry, "/c/one", **given) == b"\1"
    if not is_new_process:  # as when 10 seconds are over
        schemas._answers.update({key: (0, told) for key, (_, told) in schemas._answers.items()})
    assert plan(registry, "/c/one", is_new_process, **given) == b"\1"
    assert "no token for the schema registry" in caplog.text
    with pytest.raises(KafkaSinkError, match="no token for the schema registry"):
        plan(registry, "/c/two", is_new_process, **given)


@pytest.mark.parametrize("is_new_process", [True, False])
@pytest.mark.parametrize("status", [200, 302, 404])
def test_a_query_goes_on_while_another_answers_in_the_place_of_its_registry(
    registry, status, is_new_process, caplog
):
    """As a load balancer does that has no registry to ask."""
    assert plan(registry, "/c/one") == b"\1"
    schemas._answers.update({key: (0, told) for key, (_, told) in schemas._answers.items()})
    registry.fails = status, []
    assert plan(registry, "/c/one", is_new_process) == b"\1"
    assert f"answers {status}" in caplog.text or "with a JSON list" in caplog.text
    with pytest.raises(KafkaSinkError, match="no schema registry|a redirect"):
        plan(registry, "/c/two", is_new_process)


@pytest.mark.parametrize("is_new_process", [True, False])
def test_a_query_goes_on_while_the_certificate_is_another_ones(is_new_process, caplog):
    """As that of a load balancer that has no registry to ask, or one that has expired. Nothing is
    sent there.
    """
    context = server_context(authority().issue("registry", ["127.0.0.1"]))
    trust = {
        "schema_registry_ssl_truststore_type": "PEM",
        "schema_registry_ssl_truststore_certificates": authority().pem,
    }
    schemas._answers.clear()
    with serving(Registry(), context) as registry:
        registry.add("t-value", {"schema": FIRST})
        assert plan(registry, "/c/one", **trust) == b"\1"
        schemas._answers.update({key: (0, told) for key, (_, told) in schemas._answers.items()})
        load_identity(context, authority().issue("registry", ["elsewhere"]))
        registry.asked.clear()
        assert plan(registry, "/c/one", is_new_process, **trust) == b"\1"
        assert "not for the name or address 127.0.0.1" in caplog.text
        with pytest.raises(KafkaSinkError, match="not for the name or address"):
            plan(registry, "/c/two", is_new_process, **trust)
        assert registry.asked == []


def test_values_that_are_encoded_already_never_have_an_earlier_id(registry):
    """Whoever encodes them does so by the schema that is the latest now."""
    assert plan(registry, "/c/one", **RAW) == b"\1"
    registry.add("t-value", {"schema": SECOND})
    assert plan(registry, "/c/one", **RAW) == b"\2"


def test_values_that_are_encoded_as_protobuf_have_the_index_of_the_first_message(registry):
    number = registry.add("t-value", {"schema": "message A {}", "schemaType": "PROTOBUF"})
    assert plan(registry, "/c/one", **RAW) == b"\0"
    assert plan(registry, "/c/one", **RAW, use_schema_id=str(number)) == b"\0"
    assert plan(registry, "/c/one", **RAW, use_schema_id="1") == b"\1"


def test_a_schemas_id_is_known_for_other_columns_while_its_registry_is_away(registry, monkeypatch):
    """The schema of the columns has no part in the question."""
    given = {"use_schema_id": "1", "id_compatibility_strict": "false"}
    assert plan(registry, "/c/one", **given) == b"\1"
    registry.fails = AWAY
    other = StructType([*COLUMNS.fields, StructField("b", StringType())])
    monkeypatch.setitem(globals(), "COLUMNS", other)
    assert plan(registry, "/c/one", **given) == b"\1"


def test_encoded_values_of_a_query_whose_registry_is_away(registry):
    plan(registry, "/c/one", **RAW)
    registry.fails = AWAY
    assert plan(registry, "/c/one", **RAW) == b"\1"
    registry.asked.clear()
    assert plan(registry, "/c/one", **RAW) == b"\1"
    assert registry.asked == []  # nobody waits for it each time


def test_a_job_of_encoded_values_does_not_run_without_its_registry(registry):
    plan(registry, None, **RAW)
    registry.fails = AWAY
    with pytest.raises(KafkaSinkError, match="no schema registry of schema"):
        plan(registry, None, **RAW)


@pytest.mark.parametrize("is_new_process", [True, False])
def test_another_registry_is_asked_at_once(registry, is_new_process):
    """Its ids are others: what one has told is not true of another, nor while that is away."""
    assert plan(registry, "/c/one") == b"\1"
    with serving(Registry()) as other:
        other.add("elsewhere", {"schema": SECOND})
        other.add("t-value", {"schema": FIRST})
        assert plan(other, "/c/one", is_new_process) == b"\2"
    with serving(Registry()) as other:
        other.fails = AWAY
        with pytest.raises(KafkaSinkError, match="no schema registry of schema"):
            plan(other, "/c/one", is_new_process)


def test_tasks_get_nothing_of_the_registry_s_configuration(registry):
    """It holds credentials, and tasks ask no registry."""
    given = {"use_latest_version": "true", "schema_registry_basic_auth_user_info": "u:hush-0815"}
    made = options(registry.url, **given)
    _, for_tasks = plan_schemas(plan_rows(COLUMNS, made), made)
    assert made.registry.config is not None
    assert for_tasks.registry.config is None
    assert b"hush-0815" not in pickle.dumps(for_tasks)


def test_another_message_in_the_file_asks_at_once(registry, tmp_path):
    file = tmp_path / "made.desc"
    text = "package pkg; message Root {}"
    registry.add("t-value", {"schema": text, "schemaType": "PROTOBUF"})
    given = {
        "value_format": "protobuf",
        "value_protobuf_descriptor_file": str(file),
        "value_protobuf_message": "pkg.Root",
    }
    file.write_bytes(descriptor_set([one_message(a="string")]))
    assert plan(registry, "/c/one", **given) == b"\0"  # the index of the message comes last
    asked = len(registry.asked)
    assert plan(registry, "/c/one", **given) == b"\0"
    assert len(registry.asked) == asked
    file.write_bytes(descriptor_set([one_message(a="string", b="int32")]))
    plan(registry, "/c/one", **given)
    assert len(registry.asked) > asked
