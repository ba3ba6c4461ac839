"""What a task does with its producer, whatever becomes of it afterwards; plans, schemas and verdicts
that a process remembers; what is arranged in it.
"""

import ctypes
import importlib
import io
import logging
import os
import pickle
import platform
import re
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from threading import Lock
from types import SimpleNamespace
from uuid import UUID

import pyarrow as pa
import pyspark
import pytest
from pyspark import cloudpickle
from pyspark.sql.types import BooleanType, LongType, StringType, StructField, StructType

import spark_kafka_sink
from spark_kafka_sink.base.entry_points import Hook, RefusedRowsError
from spark_kafka_sink.base.errors import (
    BootstrapError,
    ConfigError,
    SupersededError,
    TopicError,
    error_named,
)
from spark_kafka_sink.base.model import ColumnPositions, PlannedTopic, TopicPartition
from spark_kafka_sink.config.sink_keys import TopicLimits
from spark_kafka_sink.config.sink_options import SinkOptions
from spark_kafka_sink.formats import encoder
from spark_kafka_sink.formats.encoder import RowsEncoder
from spark_kafka_sink.formats.plan import VALUE, PartSpec, RowSpec
from spark_kafka_sink.producer.metrics import PartitionReport, ProducerMetrics
from spark_kafka_sink.producer.producer import ProducerPool
from spark_kafka_sink.protocol.messages.topics import MetadataResponse, MetadataResponseTopic
from spark_kafka_sink.spark import commit, frames, preflight, row_planning, task, worker, writer
from spark_kafka_sink.spark.commit import (
    KafkaCommitMessage,
    PlanningSpan,
    TimedInput,
    VersionMismatchError,
)
from spark_kafka_sink.spark.planning import plan_schemas
from spark_kafka_sink.spark.row_planning import plan_rows
from spark_kafka_sink.spark.task import LARGE_BYTES, ArrowSizeWarning, Interceptors
from spark_kafka_sink.spark.writer import KafkaBatchWriter, KafkaStreamWriter, write_partition
from spark_kafka_sink.transactions import model, session
from tests.unit.batches import T0
from tests.unit.registry.server import fresh_registry
from tests.unit.simulated_time import SimulatedClock
from tests.unit.spark_frame import EXACTLY_ONCE

VALUE_ALONE = ColumnPositions(value=0, topic_option="t")
TOKEN = model.DriverToken(7, 2, 0, 2)


def options(**more):
    named = {name.replace("_", "."): value for name, value in more.items()}
    return SinkOptions.parse({"kafka.bootstrap.servers": "b:1", "topic": "t", **named})


# --- the producer of a task -----------------------------------------------------------------------


class FlushedProducer:
    """Has everything acknowledged, and cannot be given back."""

    is_healthy = True

    def __init__(self, config, topics, plan):
        self.report = {T0: PartitionReport(first_offset=0, last_offset=9, records=10)}
        self.metrics = ProducerMetrics()
        self.nodes, self.longest_wait = {}, None
        self.closed = 0

    def flush(self):
        pass

    def push_final_telemetry(self):
        pass

    def mark_idle(self, until_ms):
        raise RuntimeError("the sender thread is gone")

    def close(self):
        self.closed += 1
        raise RuntimeError("nor can it be closed")


@pytest.fixture
def made(monkeypatch):
    """Producers of ``made.kind`` that tasks were given."""
    found = SimpleNamespace(kind=FlushedProducer, producers=[])

    def create(config, topics, plan):
        found.producers.append(found.kind(config, topics, plan))
        return found.producers[-1]

    monkeypatch.setattr(task, "POOL", ProducerPool(create))
    return found


def write_rows(given=None, plan=None):
    message = KafkaCommitMessage(partition_id=0, attempt_number=0)
    more = () if plan is None else (plan,)
    task.write_rows([], given or options(), VALUE_ALONE, message, *more)
    return message


def test_a_producer_that_cannot_be_kept_does_not_fail_what_is_acknowledged(made, caplog):
    assert write_rows().records == 10
    assert made.producers[0].closed == 1
    assert "the next task will have a producer of its own" in caplog.text


def test_a_producer_that_fails_is_closed_and_the_task_fails(made):
    class FailingProducer(FlushedProducer):
        def flush(self):
            raise ValueError("not acknowledged")

        def close(self):
            self.closed += 1

    made.kind = FailingProducer
    with pytest.raises(ValueError, match="not acknowledged"):
        write_rows()
    assert made.producers[0].closed == 1


def planned(epoch, **more):
    owner, token = model.Driver("d", "h", 0, "/ck", None), TOKEN._replace(producer_epoch=epoch)
    return model.TransactionPlan("p", owner, token, model.Decision(owner), None, 60_000, **more)


@pytest.mark.parametrize("error", [ValueError("the user's own"), SupersededError("too late")])
def test_the_transactional_id_of_a_task_that_fails_is_not_taken_again(made, monkeypatch, error):
    """A request of it may reach the coordinator late, and would fence whoever has the id then.
    Nobody sweeps after who is superseded: it has more time to abort its transaction.
    """
    begun, aborted = [], []

    class TransactionalProducer(FlushedProducer):
        def begin_transaction(self, transactional_id, timeout_ms, token):
            begun.append(transactional_id)

        def flush(self):
            raise error

        def close(self):
            pass

    made.kind = TransactionalProducer
    monkeypatch.setattr(task, "TRANSACTIONAL_IDS", model.WorkerTransactionalIds("0123456789ab"))
    monkeypatch.setattr(session, "abort_task", lambda *arguments: aborted.append(arguments[1:]))
    for epoch in range(3):
        with pytest.raises(type(error)):
            write_rows(SinkOptions.parse(EXACTLY_ONCE), planned(epoch))
    names = [f"p.0123456789ab.{n}" for n in range(3)]

    assert begun == names
    assert aborted == [(name, isinstance(error, SupersededError)) for name in names]


@pytest.fixture
def properties(monkeypatch):
    """Local properties of a Spark task, which is that of partition 0."""
    found = {}
    context = SimpleNamespace(
        partitionId=lambda: 0, attemptNumber=lambda: 0, getLocalProperty=found.get
    )
    monkeypatch.setattr(pyspark, "TaskContext", SimpleNamespace(get=lambda: context))
    return found


@pytest.mark.usefixtures("properties")
def test_the_rows_of_a_write_that_is_done_are_only_read(monkeypatch):
    monkeypatch.setattr(task, "POOL", None)
    rows = iter(pa.record_batch([pa.array([b"row"] * n)], names=["value"]) for n in (2, 1))
    plan = planned(0, is_repeated=True)
    message = write_partition(rows, SinkOptions.parse(EXACTLY_ONCE), ColumnPositions(0), plan)
    assert next(rows, None) is None
    assert (message.records, message.transaction, message.plan) == (0, None, plan)
    assert message.dropped_rows == 3


@pytest.mark.parametrize(
    ("of_session", "planned", "expected"),
    [(None, True, True), (None, False, False), ("true", False, True), ("false", True, False)],
)
def test_texts_go_by_ansi_and_null_fields_as_the_session_has_it(
    properties, monkeypatch, of_session, planned, expected
):
    properties["spark.sql.ansi.enabled"] = of_session
    properties["spark.sql.session.timeZone"] = "Asia/Tokyo"
    properties["spark.sql.jsonGenerator.ignoreNullFields"] = of_session
    given = []
    monkeypatch.setattr(task, "prepare_process", lambda _: None)
    monkeypatch.setattr(task, "write_rows", lambda *arguments: given.append(arguments[-1]))
    rows = iter([pa.record_batch({"c": [1]})])
    plan = RowSpec(PartSpec(0, is_text=True), is_ansi=planned)
    write_partition(rows, options(), ColumnPositions(0), None, encoding_plan=plan)
    of_zone = plan._replace(session_zone="Asia/Tokyo")
    assert given == [of_zone._replace(is_ansi=expected, ignores_nulls=of_session != "false")]


@pytest.mark.parametrize(
    ("speculation", "more", "key", "is_warned"),
    [
        ("true", {}, 1, True),
        ("true", {}, None, False),
        ("false", {}, 1, False),
        (None, {}, 1, False),
        ("true", {"delivery.guarantee": "exactly-once", "transactional.id.prefix": "p"}, 1, False),
    ],
)
def test_copies_of_tasks_that_may_change_the_order_of_keys_are_told_once_per_query(
    properties, monkeypatch, caplog, speculation, more, key, is_warned
):
    monkeypatch.setattr(session, "commit_unit", lambda *_: {})
    properties["spark.speculation"] = speculation
    given = SinkOptions.parse({"kafka.bootstrap.servers": "s:1", "topic": "t", **more})
    plan = planned(0, is_repeated=True) if more else None
    for query in ("q1", "q2", "q1"):
        properties["sql.streaming.queryId"] = f"{query} {speculation} {key} {more}"
        message = write_partition(iter([]), given, ColumnPositions(0, key=key), plan)
        with caplog.at_level("WARNING", "spark_kafka_sink"):
            writer.commit_batch(given, [message], model.Unit(message.query_id, 1, None))
    told = [m for m in caplog.messages if m.endswith("[PKS-DELIVERY-009]")]
    assert len(told) == 2 * is_warned
    assert all("topic 't', query q" in m for m in told)


@pytest.mark.parametrize("number", [0, 1])
def test_one_task_alone_tells_of_the_plan(monkeypatch, number):
    """It may be as large as all messages."""
    message, when = KafkaCommitMessage(number, 0), PlanningSpan(1, 2.5)
    monkeypatch.setattr(writer, "_message", lambda: message)
    plan = type("", (), {"token": TOKEN, "is_repeated": True})
    writer.write_partition(iter([]), options(), ColumnPositions(value=0), plan, when)
    found = (message.token, message.plan, message.planned)
    assert found == (TOKEN, *((plan, when) if number == 0 else (None, None)))


# --- rows -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", ["raw", "string"])
def test_tombstones_of_values_that_are_no_format(given):
    kinds = {"key": LongType(), "value": StringType(), "gone": BooleanType()}
    schema = StructType([StructField(name, kind) for name, kind in kinds.items()])
    more = {"value_format": given, "value_null_when": "gone", "key_format": "string"}
    plan = plan_rows(schema, options(**more)).plan
    keys, values, gone = [1, 2, 3, 4], ["a", "b", None, "d"], [False, True, False, None]
    batch = pa.record_batch({"key": keys, "value": values, "gone": gone})
    encoded = RowsEncoder(plan, returns_faulty_rows=False).encode(batch)
    written = encoded.rows.column(VALUE).cast(pa.binary()).to_pylist()
    assert written == [b"a", None, None, b"d"]


def test_tasks_do_not_get_the_registrys_configuration():
    """It has its password, and Spark writes options of tasks to its event log and disks."""
    with fresh_registry() as registry:
        given = options(
            value_format="avro",
            schema_registry_url=registry.url,
            schema_registry_basic_auth_credentials_source="USER_INFO",
            schema_registry_basic_auth_user_info="u:hush-4711",
        )
        assert given.registry.config is not None
        schema = StructType([StructField("a", LongType())])
        _, of_tasks = plan_schemas(plan_rows(schema, given), given)
    assert of_tasks.registry is not None
    assert of_tasks.registry.config is None


def test_rows_that_an_interceptor_refuses_later_have_their_numbers():
    """Each time it is given those that are left, whose numbers are others."""
    refuses = iter([{0: "a"}, {0: "b"}, {1: "c"}])

    def on_send(batch):
        for rows in refuses:
            raise RefusedRowsError(rows)
        return batch

    given = Interceptors([])
    given._on_send = [Hook("on_send", on_send)]
    found = {}
    batch = pa.record_batch([pa.array([b"0", b"1", b"2", b"3"])], names=["value"])
    left = given.on_send(batch, lambda _, reasons: found.update(reasons))
    assert found == {0: "a", 1: "b", 3: "c"}
    assert left.column(0).to_pylist() == [b"2"]


# --- what a process remembers ---------------------------------------------------------------------


def test_a_topic_without_a_leader_yet_may_be_written_to():
    for error, is_told in (("LEADER_NOT_AVAILABLE", False), ("INVALID_TOPIC_EXCEPTION", True)):
        described = MetadataResponse(topics=[MetadataResponseTopic(error_named(error).code, "t")])
        with pytest.raises(TopicError) if is_told else nullcontext():
            preflight._check_topic("t", described)


def test_a_fork_has_no_turn_of_the_process_that_it_comes_from(monkeypatch):
    """Whoever has it there does not give it back here."""
    monkeypatch.setitem(frames._locks, "p", Lock())
    child = os.fork()
    if child == 0:
        os._exit(len(frames._locks))
    assert os.waitpid(child, 0)[1] == 0


def test_a_schema_is_found_encodable_once_and_only_the_latest_are_kept(monkeypatch):
    looked_at = []
    monkeypatch.setattr(row_planning, "_checked", [])
    monkeypatch.setattr(encoder, "RowEncoder", lambda plan, schema: looked_at.append(schema))
    for number in (0, 0, *range(row_planning._MOST_CHECKED + 3)):
        schema = StructType([StructField(f"a{number}", LongType())])
        row_planning.check_encodable(plan_rows(schema, options(value_format="json")))
    assert len(looked_at) == row_planning._MOST_CHECKED + 3
    assert len(row_planning._checked) == row_planning._MOST_CHECKED


FOUND = preflight._Found(None, {})


class TestCachedVerdict:
    """Of the check of a cluster, in this process."""

    @pytest.fixture(autouse=True)
    def checks(self, monkeypatch):
        monkeypatch.setattr(preflight, "_passed_at_ms", {})
        monkeypatch.setattr(preflight, "_letters_with_limits", {})
        monkeypatch.setattr(preflight, "_check", lambda asked, clock: FOUND)
        monkeypatch.setattr(preflight, "ask_for_topics", lambda *_: {})

    def test_what_the_topics_accept_is_remembered_with_it(self, monkeypatch):
        """Also while brokers are away: each attempt at a batch has the same dead letters."""
        letters = {"errors_tolerance": "all", "errors_deadletterqueue_topic_name": "d"}
        given = options(kafka_metadata_max_age_ms="1000", **letters)
        found = given.dead_letters._replace(data_topic_limits=TopicLimits(7))

        def away(*_):
            raise BootstrapError("away")

        clock = SimulatedClock()
        passed = FOUND._replace(letters=found)
        for check, passes_ms in ((lambda *_: passed, 0), (away, 0), (away, 2000)):
            monkeypatch.setattr(preflight, "_check", check)
            clock.sleep(passes_ms)
            assert preflight.check_cluster(given, True, clock).dead_letters == found

    def test_the_topics_of_a_plan_are_no_older_than_the_job_or_a_second(self, monkeypatch):
        """The cached verdict is of before."""
        answers = iter({"t": PlannedTopic(UUID(int=n), n)} for n in range(1, 9))
        asked = []

        def ask(config, names, clock):
            asked.append(names)
            return next(answers)

        monkeypatch.setattr(preflight, "ask_for_topics", ask)
        clock, plans = SimulatedClock(), []
        for is_stream, passes_ms in ((True, 0), (True, 999), (False, 0), (True, 999), (True, 1)):
            clock.sleep(passes_ms)
            plans.append(preflight.check_cluster(options(), is_stream, clock).topics_plan)
        counts = [sum(topic.partitions_count for topic in p.topics.values()) for p in plans]
        assert counts == [0, 0, 1, 1, 2]
        assert asked == [["t"]] * 2
        assert len({plan.number for plan in plans}) == len(plans)

    def test_a_plan_while_brokers_are_away_has_no_topics(self, monkeypatch):
        """Tasks then trust nothing that they knew before."""
        known = FOUND._replace(topics={"t": PlannedTopic(UUID(int=1), 1)})
        monkeypatch.setattr(preflight, "_check", lambda *_: known)
        clock = SimulatedClock()
        given = options(kafka_metadata_max_age_ms="1000")
        assert preflight.check_cluster(given, True, clock).topics_plan.topics == known.topics

        def away(*_):
            raise BootstrapError("away")

        monkeypatch.setattr(preflight, "_check", away)
        clock.sleep(2000)
        assert preflight.check_cluster(given, True, clock).topics_plan.topics == {}

        def gone(*_):
            raise TopicError("there is no such topic")

        monkeypatch.setattr(preflight, "_check", gone)
        clock.sleep(2000)
        with pytest.raises(TopicError):
            preflight.check_cluster(given, True, clock)


# --- what is arranged in a process, each time in one of its own -----------------------------------

only_with_glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="it is glibc's")
FAULTS_BY_BLOCK = """
import resource
from spark_kafka_sink.spark.worker import keep_large_blocks
{setup}
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
def block():
    before = faults()
    bytearray(64 << 20)[::4096] = bytes(16384)
    return faults() - before
block()
print(block())
"""
PAGES = (64 << 20) // 4096


def run(code, **environment):
    environment = {**os.environ, **environment}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return done.stdout.split()


def test_what_is_loaded_is_frozen_once_and_what_is_loaded_later_too():
    """As the exporters of metrics are, by a thread, after the first commit."""
    code = """
import gc, weakref
from spark_kafka_sink.spark.worker import freeze_loaded
freeze_loaded()
frozen = gc.get_freeze_count()
class Cycle: pass
cycle = Cycle(); cycle.itself = cycle; gone = weakref.ref(cycle); del cycle
freeze_loaded()
gc.collect()
print(frozen > 1000, gc.get_freeze_count() <= frozen, gone() is None)
import http.server, sqlite3, xml.dom.minidom
freeze_loaded()
print(gc.get_freeze_count() > frozen + 1000)
"""
    assert run(code) == ["True"] * 4


@pytest.mark.slow
@only_with_glibc
@pytest.mark.parametrize(
    ("setup", "of_user", "is_kept"),
    [
        pytest.param("", {}, False, id="mapped anew each time"),
        pytest.param("keep_large_blocks()", {}, True, id="kept if asked"),
        pytest.param(
            "keep_large_blocks()", {"MALLOC_MMAP_THRESHOLD_": "1048576"}, False, id="the user's"
        ),
    ],
)
def test_large_blocks_are_kept_if_asked_unless_the_user_has_set_glibc(setup, of_user, is_kept):
    faults = int(run(FAULTS_BY_BLOCK.format(setup=setup), **of_user)[0])
    assert faults < PAGES // 10 if is_kept else faults >= PAGES


def test_a_glibc_that_refuses_is_left_as_it_is_and_without_one_nothing_is_set(monkeypatch):
    """Older versions answer 0 to a block size above 32 MiB; macOS has no mallopt."""
    asked = []

    class OldGlibc:
        def mallopt(self, threshold, size_bytes):
            asked.append((threshold, size_bytes))
            return 0

    for name in worker._OF_THE_USER:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    worker.keep_large_blocks()
    worker.keep_one_arena()
    monkeypatch.setattr(ctypes, "CDLL", lambda name: OldGlibc())
    worker.keep_large_blocks()
    assert asked == [(worker._M_MMAP_THRESHOLD, worker.LARGEST_KEPT_BYTES)]


PLANNING = """
from pyspark.sql.types import StringType, StructField, StructType
from spark_kafka_sink.spark.source import KafkaSinkDataSource
options = {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t", "preflight.timeout.ms": "1"}
source = KafkaSinkDataSource(options)
source.streamWriter(StructType([StructField("value", StringType())]), False)
"""
TASK = "from spark_kafka_sink.spark.task import prepare_process\nprepare_process()\n"


@pytest.mark.slow
@pytest.mark.parametrize("code", ["", PLANNING, TASK], ids=["neither", "planning", "task"])
def test_processes_that_plan_or_write_are_arranged(code):
    assert run(code + "import gc\nprint(gc.get_freeze_count() > 0)") == [str(bool(code))]


LATER = """
import gc, socket, sys
from spark_kafka_sink.spark.task import prepare_process
prepare_process("lz4")
from spark_kafka_sink.producer.sender import produce_request
from spark_kafka_sink.protocol.api import encode_request
from spark_kafka_sink.record.compression import create_compressor
modules = set(sys.modules)
create_compressor("lz4", None)
socket.getaddrinfo("localhost", 9092)
encode_request(produce_request([], -1, 1000, None), 13, 1, "client")
print(sorted(set(sys.modules) - modules))
new = [o for o in gc.get_objects() if getattr(o, "__module__", "") == "spark_kafka_sink.protocol.types"]
print(len(new))
"""


@pytest.mark.slow
def test_what_every_task_needs_is_loaded_before_garbage_is_frozen():
    assert run(LATER) == ["[]", "0"]


def test_a_rack_is_resolved_by_the_task_alone(monkeypatch, tmp_path):
    """The driver may lack the variable, and machines have different values."""

    def rack_of(text):
        options = {"kafka.bootstrap.servers": "h:1", "kafka.client.rack": text}
        return task.with_own_rack(SinkOptions.parse(options).producer).client_rack

    monkeypatch.delenv("RACK_OF_TEST", raising=False)
    for text in ("${env:RACK_OF_TEST}", f"${{file:{tmp_path}/RACK_OF_TEST:az}}"):
        with pytest.raises(ConfigError, match=r"kafka\.client\.rack.*RACK_OF_TEST") as raised:
            rack_of(text)
        # Neither one variable for all executors, nor one file for all, can name their racks.
        assert "its own value" in str(raised.value)
        assert not re.search(r"executorEnv|--files", str(raised.value))
    for zone in ("a", "b"):
        monkeypatch.setenv("RACK_OF_TEST", f"zone-{zone}")
        assert rack_of("${env:RACK_OF_TEST}") == f"zone-{zone}"
    (tmp_path / "rack.properties").write_text("az=c\n")
    assert rack_of(f"${{file:{tmp_path}/rack.properties:az}}") == "c"
    assert rack_of("zone-d") == "zone-d"
    assert rack_of("") == ""


# --- the time of a task ---------------------------------------------------------------------------

ONE_ROW = pa.record_batch([pa.array([b"v"])], names=["value"])
MODULE = "spark_kafka_sink.localkafka.processes"


@pytest.mark.parametrize("loads", [True, False])
def test_loading_is_a_part_of_the_first_tasks_time(loads):
    metrics, rows = ProducerMetrics(), TimedInput([ONE_ROW[:0], ONE_ROW])
    assert rows.has_rows()
    if loads:
        with rows.loading():
            sys.modules.pop(MODULE, None)
            importlib.import_module(MODULE)
    assert list(rows) == [ONE_ROW]
    rows.note_in(metrics)
    assert (0 < metrics.load_ns < metrics.task_ns - metrics.input_wait_ns) is loads
    assert loads or metrics.load_ns == 0


# --- large Arrow batches --------------------------------------------------------------------------

ARROW_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"


def arrow_batch(value_bytes, rows):
    return pa.record_batch([pa.array([bytes(value_bytes)] * rows, pa.binary())], names=["value"])


def test_it_is_said_once_with_the_figure(caplog):
    sizes = ArrowSizeWarning()
    large = arrow_batch(10_000, LARGE_BYTES // 10_000 + 1)
    with caplog.at_level(logging.WARNING):
        sizes.check(arrow_batch(10_000, 400))
        assert caplog.messages == []
        sizes.check(large)
        sizes.check(large)
    (message,) = caplog.messages
    assert message.startswith(
        f"Arrow batches of 32 MiB ({large.num_rows} rows): with {ARROW_BYTES}=4m"
    )


# --- what goes between driver and tasks: only the version that has made it reads it --------------

PACKAGE = Path(spark_kafka_sink.__file__).parent
TEXTS = {"kafka.bootstrap.servers": "b:9092", "topic": "t", "kafka.acks": "all"}
OPTIONS = SinkOptions.parse(TEXTS)
POSITIONS = ColumnPositions(value=0, key=1)
MESSAGE = KafkaCommitMessage(3, 1, "q", {TopicPartition("t", 0): PartitionReport()})


def sent():
    return {
        "batch writer": KafkaBatchWriter(OPTIONS, POSITIONS),
        "stream writer": KafkaStreamWriter(OPTIONS, POSITIONS),
        "message": MESSAGE,
        "writer of micro-batches": frames.BatchWriter(TEXTS),
        "task": frames.Task(OPTIONS, POSITIONS, None, ["value"]),
    }


class Unpickler(pickle.Unpickler):
    """Notes what of the sink is imported by name; not by what is called then."""

    def __init__(self, pickled):
        super().__init__(io.BytesIO(pickled))
        self.names = set()

    def find_class(self, module, name):
        if module.startswith(spark_kafka_sink.__name__):
            self.names.add(f"{module}.{name}")
        return super().find_class(module, name)


ENVELOPE = {"spark_kafka_sink.spark.commit.open_envelope"}


@pytest.mark.parametrize("dumps", [pickle.dumps, cloudpickle.dumps], ids=["pickle", "cloudpickle"])
@pytest.mark.parametrize("what", [*sent(), "function"])
def test_a_pickle_has_the_version_outside_and_all_else_inside(what, dumps, monkeypatch):
    """Of another version nothing is read. A function's code is sent too, so that a Connect client's
    code runs in the server's installation.
    """
    if what == "function":
        dumps, value = cloudpickle.dumps, sent()["task"].function()
    else:
        value = sent()[what]
    unpickler = Unpickler(dumps(value))
    arrived = unpickler.load()
    assert unpickler.names == ENVELOPE
    assert type(arrived) is type(value)
    assert what == "function" or vars(arrived) == vars(value)
    with monkeypatch.context() as patch:
        patch.setattr(commit, "__version__", "9.8.7")
        pickled = dumps(value)
    unreadable = pickled.replace(b"spark_kafka_sink.config", b"spark_kafka_sink.absent")
    with pytest.raises(VersionMismatchError) as refused:
        pickle.loads(unreadable)
    said = str(refused.value)
    assert "pykafka-sink 9.8.7" in said
    assert f"pykafka-sink {spark_kafka_sink.__version__} in {PACKAGE} on " in said


def test_tasks_of_a_process_share_the_values_of_a_writer_and_of_nothing_that_changes():
    """Spark unpickles the same bytes for each task; the options take long to build."""
    other = KafkaBatchWriter(SinkOptions.parse({**TEXTS, "topic": "other"}), POSITIONS)
    writer, message = pickle.dumps(sent()["batch writer"]), pickle.dumps(MESSAGE)
    first = pickle.loads(writer)
    assert pickle.loads(message).partitions is not pickle.loads(message).partitions
    again = pickle.loads(writer)
    assert again is not first
    assert again._options is first._options
    assert pickle.loads(pickle.dumps(other))._options.topic == "other"
    assert pickle.loads(writer)._options == OPTIONS
