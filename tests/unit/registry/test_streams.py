"""Queries in one session: none takes what another one, or an earlier one, was told."""

import itertools
import json
import logging
import os
import pickle
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest
from pyspark.sql.types import BinaryType, StringType

from spark_kafka_sink.base import machine
from spark_kafka_sink.base.errors import KafkaSinkError
from spark_kafka_sink.base.machine import process_identity
from spark_kafka_sink.registry import schemas
from spark_kafka_sink.registry.client import Schema
from spark_kafka_sink.registry.schemas import SchemaCache, find
from spark_kafka_sink.spark.planning import plan_schemas
from spark_kafka_sink.spark.row_planning import plan_rows
from tests.formats.protobuf_files import descriptor_set, one_message
from tests.unit.registry.server import (
    JWT,
    OTHER,
    TEXT,
    Registry,
    columns_of,
    fresh_registry,
    let_answers_age,
    oauth,
    options,
    request_of,
    serving,
    serving_token,
)
from tests.unit.security.tls_ends import authority, load_identity, server_context

FIRST = '{"type":"record","name":"R","fields":[{"name":"a","type":["null","string"]}]}'
SECOND = FIRST.replace('"R"', '"S"')
COLUMNS, ENCODED = columns_of(a=StringType()), columns_of(value=BinaryType())
MORE_COLUMNS = columns_of(a=StringType(), b=StringType())
RAW = {"value_format": "raw", "value_schema_id_prefix": "true"}
AWAY = 503, {"error_code": 50301, "message": "away"}
REFUSED = 401, {"error_code": 401, "message": "who are you"}


@pytest.fixture
def registry():
    with fresh_registry() as made:
        made.add("t-value", {"schema": FIRST})
        yield made


def plan(registry, checkpoint, is_new_process=False, columns=COLUMNS, **more):
    """As Spark has a micro-batch planned; of a job where there is no checkpoint."""
    if is_new_process:
        schemas._answers.clear()
    place = {} if checkpoint is None else {"checkpointLocation": checkpoint}
    given = {"use_latest_version": "true", "schema_registry_timeout_ms": "500", **place, **more}
    made = options(registry.url, **given)
    rows = plan_rows(ENCODED if "value_schema_id_prefix" in more else columns, made)
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
def test_a_query_with_a_new_checkpoint_in_the_place_of_another_asks(
    registry, tmp_path, is_new_process
):
    """As where somebody has removed it, and begins anew: without its registry it does not start."""
    checkpoint = str(tmp_path / "c")
    _, commit = files = [tmp_path / "c" / name / "0" for name in ("offsets", "commits")]
    for file in files:
        file.parent.mkdir(parents=True)
        file.touch()
    assert plan(registry, checkpoint) == b"\1"
    registry.add("t-value", {"schema": SECOND})
    assert plan(registry, checkpoint) == b"\1"
    registry.fails = AWAY
    commit.unlink()
    with pytest.raises(KafkaSinkError, match="no schema registry of schema"):
        plan(registry, checkpoint, is_new_process)
    commit.touch()
    assert plan(registry, checkpoint, is_new_process) == b"\1"
    commit.unlink()
    registry.fails = None
    assert plan(registry, checkpoint, is_new_process) == b"\2"


def test_what_this_process_was_told_needs_no_file(registry, tmp_path):
    assert plan(registry, "/c/one") == b"\1"
    for path in tmp_path.rglob("*.json"):
        path.unlink()
    let_answers_age()
    registry.fails = AWAY
    assert plan(registry, "/c/one") == b"\1"


@pytest.mark.parametrize("is_new_process", [True, False])
def test_a_query_goes_on_while_there_is_no_token_for_its_registry(registry, is_new_process, caplog):
    with serving_token(200, {"access_token": JWT}) as (issuer, _):
        given = {"schema_registry_bearer_auth_credentials_source": "OAUTHBEARER", **oauth(issuer)}
        assert plan(registry, "/c/one", **given) == b"\1"
    if not is_new_process:  # as when 10 seconds are over
        let_answers_age()
    assert plan(registry, "/c/one", is_new_process, **given) == b"\1"
    assert "no token for the schema registry" in caplog.text
    with pytest.raises(KafkaSinkError, match="no token for the schema registry"):
        plan(registry, "/c/two", is_new_process, **given)


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
        let_answers_age()
        load_identity(context, authority().issue("registry", ["elsewhere"]))
        registry.asked.clear()
        assert plan(registry, "/c/one", is_new_process, **trust) == b"\1"
        assert "not for the name or address 127.0.0.1" in caplog.text
        with pytest.raises(KafkaSinkError, match="not for the name or address"):
            plan(registry, "/c/two", is_new_process, **trust)
        assert registry.asked == []


NO_ANSWER = "no schema registry of schema"
NO_SUBJECT = 404, {"error_code": 40401, "message": "Subject 't-value' not found."}
FAILURES = {
    "deleted": (NO_SUBJECT, "has no subject|has no schema of"),
    "401": ((401, {"error_code": 401, "message": "no"}), "answers 401"),
    "403": ((403, {"error_code": 40301, "message": "no"}), "answers 403"),
    "404": ((404, {"error_code": 404, "message": "no"}), "answers 404"),
    "409": ((409, {"error_code": 409, "message": "no"}), "not compatible|answers 409"),
    "422": ((422, {"error_code": 42201, "message": "no"}), "answers 422"),
    "429": ((429, {"error_code": 429, "message": "no"}), NO_ANSWER),
    "500": ((500, {"error_code": 50001, "message": "no"}), NO_ANSWER),
    "503": (AWAY, NO_ANSWER),
    "another server": ((200, []), "with a JSON list"),
    "a redirect": ((302, []), "a redirect, which is not followed"),
    "another server's 404": ((404, []), "answers 404"),
    "damaged": ((200, {"id": -1, "schema": FIRST}), "an id that is none"),
}
CHOSEN = {
    "latest": {"use_latest_version": "true"},
    "look-up": {"use_latest_version": "false", "auto_register_schemas": "false"},
    "register": {"use_latest_version": "false"},
    "id": {"use_latest_version": "false", "use_schema_id": "1"},
}


ANSWERED = [name for name, (_, words) in FAILURES.items() if words != NO_ANSWER]


@pytest.mark.parametrize(
    ("failure", "chosen"),
    [*itertools.product(ANSWERED, CHOSEN), *((name, "latest") for name in ("429", "500", "503"))],
)
def test_what_a_running_query_knows_stays_valid_and_a_first_look_up_fails(
    registry, failure, chosen, caplog
):
    """Whatever has happened to the registry: a subject may have been deleted, a key rotated."""
    answer, words = FAILURES[failure]
    timeout_ms = "500" if words == NO_ANSWER else "30000"
    given = {**CHOSEN[chosen], "schema_registry_timeout_ms": timeout_ms}
    plan(registry, None, use_latest_version="false")
    known = plan(registry, "/c/one", **given)
    registry.fails = answer
    let_answers_age()
    assert plan(registry, "/c/one", **given) == known
    assert caplog.text.count("PKS-REGISTRY-018") == 1
    registry.asked.clear()
    for is_new_process in (False, True):
        assert plan(registry, "/c/one", is_new_process, **given) == known
    assert registry.asked == [], "one request a minute, whichever process plans"
    assert caplog.text.count("PKS-REGISTRY-018") == 1, "and one warning"
    for checkpoint, is_new_process in itertools.product(("/c/two", None), (False, True)):
        with pytest.raises(KafkaSinkError, match=words):
            plan(registry, checkpoint, is_new_process, **given)


def test_a_registry_that_hangs_fails_no_running_query(registry, caplog):
    assert plan(registry, "/c/one") == b"\1"
    registry.waits_for = threading.Event()
    let_answers_age()
    assert plan(registry, "/c/one") == b"\1"
    assert "no answer within" in caplog.text
    with pytest.raises(KafkaSinkError, match="no answer within"):
        plan(registry, "/c/two")


def test_a_new_schema_that_the_registry_refuses_ends_a_query(registry):
    given = {"use_latest_version": "false"}
    plan(registry, "/c/one", **given)
    registry.refuses.add("t-value")
    let_answers_age()
    plan(registry, "/c/one", **given)
    with pytest.raises(KafkaSinkError, match="not compatible"):
        plan(registry, "/c/one", columns=MORE_COLUMNS, **given)


def test_values_that_are_encoded_already_never_have_an_earlier_id(registry):
    """Whoever encodes them does so by the schema that is the latest now; but it may be away."""
    assert plan(registry, "/c/one", **RAW) == b"\1"
    registry.add("t-value", {"schema": SECOND})
    assert plan(registry, "/c/one", **RAW) == b"\2"
    registry.fails = AWAY
    assert plan(registry, "/c/one", **RAW) == b"\2"
    registry.asked.clear()
    assert plan(registry, "/c/one", **RAW) == b"\2"
    assert registry.asked == []  # nobody waits for it each time


def test_values_that_are_encoded_as_protobuf_have_the_index_of_the_first_message(registry):
    number = registry.add("t-value", {"schema": "message A {}", "schemaType": "PROTOBUF"})
    assert plan(registry, "/c/one", **RAW) == b"\0"
    assert plan(registry, "/c/one", **RAW, use_schema_id=str(number)) == b"\0"
    assert plan(registry, "/c/one", **RAW, use_schema_id="1") == b"\1"


def test_a_schemas_id_is_known_for_other_columns_while_its_registry_is_away(registry):
    """The schema of the columns has no part in the question."""
    given = {"use_schema_id": "1", "id_compatibility_strict": "false"}
    assert plan(registry, "/c/one", **given) == b"\1"
    registry.fails = AWAY
    assert plan(registry, "/c/one", columns=MORE_COLUMNS, **given) == b"\1"


@pytest.mark.parametrize("is_new_process", [True, False])
def test_another_registry_is_asked_at_once(registry, is_new_process):
    """Its ids are others: what one has told is not true of another, nor while that refuses."""
    patient = {"schema_registry_timeout_ms": "30000"}
    assert plan(registry, "/c/one", **patient) == b"\1"
    with serving(Registry()) as other:
        other.add("elsewhere", {"schema": SECOND})
        other.add("t-value", {"schema": FIRST})
        assert plan(other, "/c/one", is_new_process, **patient) == b"\2"
    with serving(Registry()) as other:
        other.fails = REFUSED
        with pytest.raises(KafkaSinkError, match="401"):
            plan(other, "/c/one", is_new_process, **patient)


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
    text = "package pkg; message Root { optional string a = 1; }"
    registry.add("t-value", {"schema": text, "schemaType": "PROTOBUF"})
    given = {
        "value_format": "protobuf",
        "value_protobuf_descriptor_file": str(file),
        "value_protobuf_message": "pkg.Root",
    }
    for fields in ({"a": "string"}, {"a": "string", "b": "int32"}):
        file.write_bytes(descriptor_set([one_message(**fields)]))
        for is_asked in (True, False):
            registry.asked.clear()
            assert plan(registry, "/c/one", **given) == b"\0"  # the index of the message
            assert bool(registry.asked) is is_asked


SCHEMA = Schema(7, TEXT, "AVRO", None, 2, (("n.Home", "home", 1),), (("b.proto", "text"),))
KNOWN = schemas._Answer(SCHEMA, 5, "away", 6)


def ask(registry, text=TEXT):
    """As a new process does, with this process for the one that they have in common."""
    schemas._answers.clear()
    timeout_ms = "100" if registry.fails else "36000"
    url = registry.url.replace("//", "//user:hush@")
    given = options(url, schema_registry_timeout_ms=timeout_ms)
    return find(*request_of(given, text), None, SchemaCache(os.getpid()), is_stream=True)


def test_nothing_secret_is_kept_and_nobody_else_reads_it(registry, folder):
    found = ask(registry)
    (path,) = folder.iterdir()
    assert folder.stat().st_mode & 0o077 == 0
    assert "hush" not in path.read_text() + path.name
    assert json.loads(path.read_text())["schema"]["text"] == TEXT
    registry.fails = AWAY
    assert ask(registry) == found
    with pytest.raises(KafkaSinkError, match="no schema registry of schema"):
        ask(registry, OTHER)


def test_files_are_where_spark_removes_them_at_the_end_of_its_driver(tmp_path, folder, monkeypatch):
    local = tmp_path / "blockmgr-1"
    local.mkdir(mode=0o700)
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{local},/elsewhere")
    SchemaCache(os.getpid()).write("asked", KNOWN)
    assert SchemaCache(os.getpid()).read("asked") == KNOWN
    assert [path.parent.stat().st_mode & 0o777 for path in local.rglob("*.json")] == [0o700]
    assert [*folder.iterdir()] == []


@pytest.mark.parametrize(("name", "mode"), [("scratch", 0o700), ("blockmgr-1", 0o777)])
def test_other_local_folders_are_not_used(tmp_path, folder, monkeypatch, name, mode):
    local = tmp_path / name
    local.mkdir()
    local.chmod(mode)
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(local))
    SchemaCache(os.getpid()).write("asked", KNOWN)
    assert len([*folder.iterdir()]) == 1
    assert [*local.iterdir()] == []


@pytest.mark.parametrize("proc", ["/proc", "/no/such/folder"])
def test_files_of_processes_that_have_ended_are_removed(folder, monkeypatch, proc):
    monkeypatch.setattr(machine, "_PROC", Path(proc))
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    with child:
        SchemaCache(child.pid).write("asked", KNOWN)
        assert SchemaCache(child.pid).read("asked") == KNOWN
        SchemaCache(os.getpid()).write("asked", KNOWN)
        assert len([*folder.iterdir()]) == 2
        child.kill()
    SchemaCache(os.getpid()).write("asked", KNOWN)
    (left,) = folder.iterdir()
    assert left.name.startswith(f"{process_identity(os.getpid())}_")
    assert SchemaCache(child.pid).read("asked") is None
    SchemaCache(child.pid).write("asked", KNOWN)
    assert [*folder.iterdir()] == [left], "nothing is kept for a process that has ended"


def test_other_credentials_are_no_other_question(registry):
    """They change while a query runs."""
    url = registry.url
    registry.url = url.replace("//", "//a:1@")
    assert plan(registry, "/c/one") == b"\1"
    registry.fails, registry.url = AWAY, url.replace("//", "//b:2@")
    assert plan(registry, "/c/one", is_new_process=True) == b"\1"


@pytest.mark.parametrize(
    "content",
    [
        *("", "{", "[]", "{}", "5", "null", "[" * 99_999, '{"schema":5}', '{"schema":{}}'),
        '{"schema":{"id":"x","text":"t","references":[],"files":[]},"ask_at_ms":0}',
        '{"schema":{"id":1,"text":5,"references":[],"files":[]},"ask_at_ms":0}',
        '{"schema":{"id":1,"text":"t","references":[],"files":[],"more":1},"ask_at_ms":0}',
        '{"schema":{"id":1,"text":"t","references":[],"files":[]}}',
        '{"schema":{"id":1,"text":"t","references":[],"files":[]},"ask_at_ms":"0"}',
        '{"schema":{"id":1,"text":"t","references":[],"files":[]},"ask_at_ms":0,"warn_at_ms":"0"}',
    ],
    ids=range(15),
)
def test_a_file_that_is_damaged_is_as_none(folder, content):
    SchemaCache(os.getpid()).write("asked", KNOWN)
    (path,) = folder.iterdir()
    path.write_text(content)
    assert SchemaCache(os.getpid()).read("asked") is None


def test_a_question_may_have_any_text_and_what_else_is_in_the_folder_stays(folder):
    """A name that is no Unicode is refused elsewhere, in words."""
    (folder / "of_nobody").touch()
    SchemaCache(os.getpid()).write("\ud800", KNOWN)
    assert (folder / "of_nobody").exists()
    assert SchemaCache(os.getpid()).read("\ud800") == KNOWN


def test_what_cannot_be_written_is_told_and_fails_nothing(folder, caplog):
    SchemaCache(os.getpid()).write("asked", KNOWN)
    (path,) = folder.iterdir()
    path.unlink()
    path.mkdir()  # as a full disk: another error of the operating system
    with caplog.at_level(logging.WARNING):
        SchemaCache(os.getpid()).write("asked", KNOWN)
    assert "is not kept for later micro-batches" in caplog.text
    assert SchemaCache(os.getpid()).read("asked") is None


def test_a_folder_that_is_too_open_is_tightened_and_files_of_others_are_not_read(folder, caplog):
    SchemaCache(os.getpid()).write("asked", KNOWN)
    folder.chmod(0o777)
    with caplog.at_level(logging.WARNING):
        assert SchemaCache(os.getpid()).read("asked") == KNOWN
    assert "could be read or written by others, and no longer is" in caplog.text
    assert folder.stat().st_mode & 0o777 == 0o700
    (path,) = folder.iterdir()
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")
    assert SchemaCache(os.getpid()).read("asked") is None


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="acts as another user")


@pytest.fixture
def shared(monkeypatch):
    """As /tmp is: everybody makes folders there."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        Path(name).chmod(0o1777)
        monkeypatch.setattr(machine.tempfile, "gettempdir", lambda: name)
        yield Path(name)


@needs_root
def test_folders_that_another_user_makes_first_are_not_in_the_way(shared, caplog):
    names = [f"pykafka-sink-registry-{os.geteuid()}", f"pykafka-sink-registry-{os.geteuid()}-0"]
    subprocess.run(["mkdir", "-m", "777", *names], cwd=shared, user="nobody", check=True)
    (shared / f"pykafka-sink-registry-{os.geteuid()}-00").symlink_to(shared / names[0])
    SchemaCache(os.getpid()).write("asked", KNOWN)
    assert SchemaCache(os.getpid()).read("asked") == KNOWN
    assert caplog.text == ""
    assert [*(shared / names[0]).iterdir(), *(shared / names[1]).iterdir()] == []


@needs_root
def test_what_another_user_has_written_is_not_read(folder):
    SchemaCache(os.getpid()).write("asked", KNOWN)
    (path,) = folder.iterdir()
    os.chown(path, 65534, -1)
    assert SchemaCache(os.getpid()).read("asked") is None


@needs_root
@pytest.mark.parametrize("change", [lambda p: p.chmod(0o777), lambda p: os.chown(p, 65534, -1)])
def test_a_place_where_others_replace_folders_is_not_used(shared, change, caplog):
    change(shared)
    with caplog.at_level(logging.WARNING):
        SchemaCache(os.getpid()).write("asked", KNOWN)
    assert f"other users may replace what is in {shared}: set TMPDIR" in caplog.text
    assert SchemaCache(os.getpid()).read("asked") is None
    assert [*shared.iterdir()] == []


def test_processes_that_begin_at_the_same_time_find_the_same_folder(tmp_path):
    code = "from spark_kafka_sink.base.machine import private_folder as f; print(f('x'))"
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    started = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env=environment)
        for _ in range(4)
    ]
    for process in started:
        process.communicate()
        assert process.returncode == 0
    last = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, env=environment)
    assert Path(last.stdout.decode().strip()) == min(tmp_path.glob("pykafka-sink-x-*"))
