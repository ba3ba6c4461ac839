"""Writes of a DataFrame: what is settled before Spark is asked to do anything, with a data source and
without one; and writes that a prefix would take for one another.
"""

import json
import logging
import os
import pickle
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from threading import Event, Thread
from weakref import ref

import numpy
import pyarrow as pa
import pytest
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import UserDefinedType

import spark_kafka_sink
from spark_kafka_sink.base.errors import BootstrapError, ConfigError, KafkaSinkError, code_of
from spark_kafka_sink.config.sink_options import SinkOptions
from spark_kafka_sink.spark import frames, planning, versions
from spark_kafka_sink.spark import source as source_module
from spark_kafka_sink.spark.commit import KafkaCommitMessage, decode_message, encode_message
from spark_kafka_sink.spark.frames import WriteIdentity, WriteRegistry
from spark_kafka_sink.spark.source import KafkaSinkDataSource
from spark_kafka_sink.transactions import model, session
from tests.unit.spark_frame import EXACTLY_ONCE, ONE_COLUMN, OPTIONS, Frame

NOT_ONE_EACH = "not one for each partition"
TOKEN = model.DriverToken(7, 3, 0, 2)


@pytest.fixture(autouse=True)
def _no_cluster(monkeypatch):
    monkeypatch.setattr(frames, "check_surroundings", lambda options, is_stream: options)


def run_python(code, **environment):
    command = [sys.executable, "-c", code]
    environment = {**os.environ, **environment}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return done.stdout.split()


def test_missing_pandas_is_an_error_before_anything_runs(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    for made in (spark_kafka_sink.batch_writer, lambda given: frames.write(Frame([0]), given)):
        with pytest.raises(ConfigError, match="need pandas"):
            made(OPTIONS)


class TestWrite:
    def test_a_message_from_each_partition(self):
        frames.write(Frame([1, 0, 2]), OPTIONS)
        for partitions in ([0, 2], [0, 1, 1], [1]):
            with pytest.raises(KafkaSinkError, match=NOT_ONE_EACH):
                frames.write(Frame(partitions), OPTIONS)

    def test_a_stream_is_told_how_it_is_written(self):
        stream = Frame([])
        stream.isStreaming = True
        words = r"foreachBatch\(spark_kafka_sink\.batch_writer\(options"
        with pytest.raises(ConfigError, match=words):
            frames.write(stream, OPTIONS)

    @pytest.mark.parametrize("unpickles", [True, False])
    def test_a_client_of_spark_connect_is_told_that_its_pyspark_unpickles_types(
        self, unpickles, monkeypatch, caplog
    ):
        """Before the schema is asked for, and once; the newest PySpark reads names only."""
        logged = []

        class OnConnect(Frame):
            __module__ = "pyspark.sql.connect.dataframe"

            @property
            def schema(self):
                logged.append(list(caplog.messages))
                return ONE_COLUMN

        if unpickles:
            monkeypatch.setattr(UserDefinedType, "fromJson", lambda json: json["serializedClass"])
        versions.warn_of_unpickling.cache_clear()
        frames.write(OnConnect([0]), OPTIONS)
        frames.write(OnConnect([0]), OPTIONS)
        assert ["PKS-SPARK-012" in message for message in logged[0]] == [True] * unpickles
        assert logged[-1] == logged[0]

    def test_values_of_options_become_texts_as_spark_writes_them(self):
        values = [True, 5, 1.5, "Text", Path("/m"), numpy.int64(5), Decimal("1.5")]
        texts = frames._as_text({**dict(zip("ABCDEFG", values)), "e": None, "h": None})
        assert texts == dict(zip("abcdefg", ["true", "5", "1.5", "Text", "/m", "5", "1.5"]))

    @pytest.mark.parametrize(
        ("more", "words"),
        [
            *(({"X": value}, "with commas") for value in (["a:1"], ("a:1",), {"a": 1}, b"a:1")),
            *(({name: "x"}, "names of options are texts") for name in (1, None, b"topic")),
            ({"kafka.ack": "all"}, r"kafka\.acks"),
            ({"Topic": "u"}, "option 'topic' is set twice"),
        ],
    )
    def test_options_are_refused_before_a_query_starts(self, more, words):
        with pytest.raises(ConfigError, match=words):
            spark_kafka_sink.batch_writer({**OPTIONS, **more})

    def test_what_writes_a_micro_batch_can_be_pickled_and_hides_secrets(self):
        login = {"username": "u", "password": "marked-hush", "mechanism": "PLAIN"}
        options = {f"kafka.sasl.{name}": value for name, value in login.items()}
        options["kafka.security.protocol"] = "SASL_PLAINTEXT"
        sink = spark_kafka_sink.batch_writer({**OPTIONS, **options})
        pickled = pickle.dumps(sink)
        assert b"marked-hush" not in pickled
        assert pickle.loads(pickled)._options == sink._options

    @pytest.mark.parametrize("partitions", [[], [0]])
    def test_the_line_of_a_micro_batch_names_its_query_also_without_tasks(
        self, partitions, tmp_path
    ):
        metrics = tmp_path / "metrics.jsonl"
        sink = spark_kafka_sink.batch_writer({**OPTIONS, "metrics.path": metrics})
        sink(Frame(partitions, query="q"), 7)
        line = json.loads(metrics.read_text(encoding="utf-8"))
        assert (line["query_id"], line["batch_id"]) == ("q", 7)

    @pytest.mark.parametrize("options", [OPTIONS, EXACTLY_ONCE])
    def test_a_failed_abort_does_not_take_the_place_of_the_error(
        self, options, monkeypatch, caplog
    ):
        class Failing(Frame):
            def collect(self):
                raise RuntimeError("the job's own")

        def abort(*arguments):
            raise OSError("of the abort")

        monkeypatch.setattr(frames, "plan_transactions", lambda options, is_job, unit: None)
        monkeypatch.setattr(frames, "abort_batch", abort)
        with pytest.raises(RuntimeError, match="the job's own"):
            frames.write(Failing([0]), options)
        assert "OSError: of the abort" in caplog.text

    def test_a_task_has_columns_by_their_own_names_and_returns_its_message_as_a_row(
        self, monkeypatch
    ):
        message, got = KafkaCommitMessage(3, 1), []

        def write(arrow_batches, *arguments):
            got.extend(arrow_batches)
            return message

        monkeypatch.setattr(frames, "write_partition", write)
        options = planning.parse_options(OPTIONS)
        positions = frames.plan_rows(ONE_COLUMN, options).positions
        types = {"c0": pa.binary(), "c1": pa.list_(pa.field("element", pa.int32(), nullable=False))}
        fields = [pa.field(name, kind, nullable=name == "c1") for name, kind in types.items()]
        sent = pa.record_batch([[b"v"], [[1]]], schema=pa.schema(fields))
        task = frames.Task(options, positions, None, ["value", "a.b"]).function()
        (row,) = task(iter([sent]))
        assert row.schema.equals(pa.schema([("message", pa.binary())]))
        assert decode_message(row.column(0)[0].as_py()) == message
        (written,) = got
        named = [fields[0].with_name("value"), fields[1].with_name("a.b")]
        assert written.schema.equals(pa.schema(named), check_metadata=True)
        assert written.columns == sent.columns

    def test_importing_the_package_imports_nothing_of_it(self):
        code = "import sys, spark_kafka_sink as s; assert 'write' in dir(s); print(*sys.modules)"
        loaded = run_python(code)
        ours = [name for name in loaded if name.startswith("spark_kafka_sink")]
        assert ours == ["spark_kafka_sink"]
        assert "pyspark" not in loaded
        with pytest.raises(AttributeError, match="no attribute 'wrote'"):
            spark_kafka_sink.wrote  # noqa: B018


class TestExactlyOnce:
    def test_the_number_of_a_named_write_is_that_of_the_micro_batch(self, monkeypatch):
        with pytest.raises(ConfigError, match=r"a thread of your own does not tell: .*write\.id"):
            spark_kafka_sink.batch_writer(EXACTLY_ONCE)(Frame([0]), 7)
        with pytest.raises(ConfigError, match="write.version is the number of the micro-batch"):
            spark_kafka_sink.batch_writer({**EXACTLY_ONCE, "write.id": "w", "write.version": 1})
        planned = []

        def plan(options, is_job, unit):
            planned.append((options.write_id, options.write_version, is_job))
            raise KafkaSinkError("enough")

        monkeypatch.setattr(frames, "plan_transactions", plan)
        for guarantee in ("exactly-once", " Exactly-Once "):
            given = {**EXACTLY_ONCE, "write.id": "w", "delivery.guarantee": guarantee}
            with pytest.raises(KafkaSinkError, match="enough"):
                spark_kafka_sink.batch_writer(given)(Frame([0]), 7)
        assert planned == [("w", 7, True)] * 2

    def test_a_write_that_fails_aborts_its_own_plan(self, monkeypatch):
        owner = model.Driver("d", "h", 0, None, None)
        plan = model.TransactionPlan("p", owner, TOKEN, model.Decision(owner), "job", 60_000)
        aborted = []

        class OfOthers:
            def abort(self, driver, planned):
                aborted.append(planned)
                raise model.FencedError("a later write of this process has taken over")

        monkeypatch.setattr(frames, "plan_transactions", lambda options, is_job, unit: plan)
        monkeypatch.setattr(session, "_protocol", lambda options: OfOthers())
        with pytest.raises(KafkaSinkError, match=NOT_ONE_EACH):
            frames.write(Frame([1]), EXACTLY_ONCE)
        assert aborted == [TOKEN]

    @pytest.mark.parametrize(
        ("error", "begins", "code"),
        [
            (model.FencedError("a later write"), "nothing was done: a later write", "TXN-015"),
            # It does not give its code to the failure.
            (BootstrapError("no broker", code="CONNECT-001"), "open transactions could not", None),
        ],
    )
    def test_what_is_told_of_an_abort_that_fails(self, error, begins, code, monkeypatch):
        class Failing:
            def abort(self, driver, planned):
                raise error

        monkeypatch.setattr(session, "_protocol", lambda options: Failing())
        note = session.abort_unit(SinkOptions.parse(EXACTLY_ONCE), TOKEN)
        assert note.startswith(begins)
        assert (code_of(note) or None) == code

    @pytest.mark.parametrize("named", [{}, {"write.id": "w"}])
    def test_what_a_micro_batch_may_not_follow_is_refused_before_rows_are_written(
        self, monkeypatch, named
    ):
        planned = []

        class Refusing:
            def plan(self, driver, job_id, write, unit):
                planned.append((driver.query_id, write, unit))
                raise model.MissingRecordError("its record is missing")

        monkeypatch.setattr(session, "_protocol", lambda options: Refusing())
        monkeypatch.setattr(session, "_check_cluster", lambda options: None)
        frame = Frame([0], "q")
        monkeypatch.setattr(frame, "mapInArrow", None)
        with pytest.raises(model.MissingRecordError):
            spark_kafka_sink.batch_writer({**EXACTLY_ONCE, **named})(frame, 1)
        write = model.Write("w", 1, EXACTLY_ONCE["topic"], "q") if named else None
        assert planned == [(None if named else "q", write, model.Unit("q", 1, None))]

    def test_all_threads_of_a_process_are_one_driver_and_a_fork_is_another(self):
        """A module that is loaded anew: the first to ask are threads that begin together.
        A cluster may give all drivers the same folders, as Kubernetes does.
        """
        code = f"""
import os, threading
from spark_kafka_sink.config.sink_options import SinkOptions
from spark_kafka_sink.transactions import model, session
options = SinkOptions.parse({EXACTLY_ONCE!r})
both, read = threading.Barrier(2, timeout=60), threading.Event()
make = model.driver_environment
def wait_for_both():
    made = make()
    if both.wait(): read.wait(60)
    return made
session.driver_environment = wait_for_both
found = []
def drive():
    with session.as_driver(): found.append(session._driver(options).driver_id)
    read.set()
def run(count):
    threads = [threading.Thread(target=drive) for _ in range(count)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
run(2)
session.driver_environment = make
run(2)
assert len(found) == 4 and len(set(found)) == 1, found
assert session._driver(options).driver_id not in found
pid = os.fork()
if pid == 0:
    found.clear(); run(2); print(*set(found), flush=True); os._exit(0)
os.waitpid(pid, 0)
print(*set(found))
"""
        both = [run_python(code, SPARK_LOCAL_DIRS="/var/data/spark") for _ in range(2)]
        assert len({driver for found in both for driver in found}) == 4


class TestDataSource:
    @pytest.mark.parametrize("kind", [dict, CaseInsensitiveDict])
    def test_no_pickle_of_a_source_shows_an_option(self, kind):
        """Spark keeps it between planning and committing, and ships it."""
        options = {"kafka.bootstrap.servers": "b:9092", "kafka.sasl.pasword": "marked-hush"}
        pickled = pickle.dumps(KafkaSinkDataSource(kind(options)))
        assert b"marked-hush" not in pickled
        restored = pickle.loads(pickled)
        assert restored.options == options
        assert type(restored.options) is kind
        assert b"marked-hush" not in pickle.dumps(restored)

    def test_credentials_that_are_missing_are_told_before_anybody_is_asked(self):
        login = {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "PLAIN"}
        with pytest.raises(ConfigError, match=r"needs kafka\.sasl\.username"):
            KafkaSinkDataSource({**OPTIONS, **login}).writer(ONE_COLUMN, False)

    def test_a_table_of_sql_passes_no_options(self):
        with pytest.raises(ConfigError, match=r"CREATE TABLE … USING, INSERT.*df\.write"):
            KafkaSinkDataSource({}).writer(ONE_COLUMN, False)

    def test_the_process_that_commits_plans_nothing(self, monkeypatch):
        """All is written: a cluster that is away, or other transactional ids, must not end that."""

        def planned(*_):
            raise AssertionError("planned")

        source = KafkaSinkDataSource(OPTIONS)
        for name in ("check_surroundings", "plan_schemas", "plan_transactions"):
            monkeypatch.setattr(source_module, name, planned)
        pickle.loads(pickle.dumps(source)).streamWriter(ONE_COLUMN, False)
        with pytest.raises(AssertionError, match="planned"):
            source.streamWriter(ONE_COLUMN, False)

    @pytest.mark.parametrize("method", ["writer", "streamWriter"])
    def test_advice_follows_what_has_worked(self, monkeypatch, method):
        """A flow of a pipeline that fails is tried three times, in new processes."""
        advised = []

        def fails(options, is_stream):
            raise BootstrapError("no broker", code="CONNECT-001")

        monkeypatch.setattr(source_module, "advise_on_sockets", lambda: advised.append(True))
        monkeypatch.setattr(source_module, "check_surroundings", fails)
        with pytest.raises(BootstrapError):
            getattr(KafkaSinkDataSource(OPTIONS), method)(ONE_COLUMN, False)
        assert advised == []
        monkeypatch.setattr(source_module, "check_surroundings", lambda options, is_stream: options)
        getattr(KafkaSinkDataSource(OPTIONS), method)(ONE_COLUMN, False)
        assert advised == [True]


# --- writes that a prefix would take for one another ----------------------------------------------


class Kafka:
    """Of what reaches the brokers: which writes were planned, committed and dropped."""

    def __init__(self):
        self.planned = []
        self.committed = []
        self.units = []
        self.log = model.Decision(model.Driver("d", "h", 0, None, None))

    def plan(self, options, is_job, unit):
        self.planned.append(options.topic)
        is_repeated = self.log.has(_write(options))
        return model.TransactionPlan(
            "p",
            self.log.owner,
            TOKEN,
            self.log,
            "j" if is_job else None,
            0,
            is_repeated=is_repeated,
        )

    def commit(self, options, messages, unit, *arguments):
        self.committed.append(options.topic)
        self.units.append(unit)
        if not self.log.has(_write(options)):
            self.log = replace(self.log, write=_write(options)).done()


def _write(options):
    if options.write_id is None or options.write_version is None:
        return None
    return model.Write(options.write_id, options.write_version)


@pytest.fixture
def kafka(monkeypatch):
    """None that runs: it is about what is settled in this process."""
    written = Kafka()
    monkeypatch.setattr(frames, "plan_transactions", written.plan)
    monkeypatch.setattr(frames, "commit_batch", written.commit)
    monkeypatch.setattr(frames, "abort_batch", lambda *arguments: None)
    return written


def sink(prefix, **more):
    """For one micro-batch after the other. Prefixes are of one test each."""
    named = {name.replace("_", "."): value for name, value in more.items()}
    options = {**EXACTLY_ONCE, "transactional.id.prefix": prefix, **named}
    return spark_kafka_sink.batch_writer(options)


A_SECOND_TIME = "micro-batch 0 of query q is written a second time"
OF_BATCH = "id = q\nrunId = r\nbatch = 0"


@pytest.mark.parametrize(
    ("description", "told"),
    [
        (OF_BATCH, "this query has none. Name it"),
        (f"\n{OF_BATCH}", "this query has none. Name it"),
        ("copying", "the job description of this thread is not Spark's any more"),
        (None, "the job description of this thread is not Spark's any more"),
        (f"orders\n{OF_BATCH.replace('q', 'other')}", "is not Spark's any more"),
    ],
)
@pytest.mark.usefixtures("kafka")
def test_why_there_is_no_name_of_a_query(description, told):
    """The user's function may call setJobDescription."""
    micro_batch = Frame([0], "q")
    micro_batch.properties["spark.job.description"] = description
    with pytest.raises(ConfigError, match=told) as refused:
        sink("p-{query}")(micro_batch, 0)
    assert refused.value.code == "TXN-037"


# Writes under one prefix and, but for the first ones, one write.id: topic, query, call of the
# function, number of the micro-batch, and why it is refused.
HISTORIES = {
    "twice in one call": [
        ("a", "q", 0, 0, None),
        ("b", "q", 0, 0, A_SECOND_TIME),
        ("a", "q", 1, 1, None),
        ("a", "q", 2, 2, None),
    ],
    # Its rows are compared and dropped; a group of jobs tells nothing of calls.
    "again after a failure of the function": [("a", "q", 0, 5, None), ("a", "q", 1, 5, None)],
    "again after a write that failed": [("a", "q", 0, 5, NOT_ONE_EACH), ("a", "q", 0, 5, None)],
    # As on Spark Connect, which tells nothing of query and call.
    "named, to another topic": [
        ("a", None, 0, 7, None),
        ("b", None, 0, 7, "is for topic 'b', .* 7 .* was for topic 'a'"),
        ("b", None, 0, 8, None),
    ],
    "named, twice in one call": [
        ("a", "q", 0, 7, None),
        ("a", "q", 0, 7, "version 7 of write.id 'w' is written a second time"),
        ("a", "q", 1, 7, None),
        ("a", "q", 2, 8, None),
    ],
    "named, in any order in one call": [
        ("a", "q", 0, 5, None),
        ("a", "q", 0, 3, None),
        ("a", "q", 0, 5, "version 5 of write.id 'w' is written a second time"),
        ("a", "q", 1, 5, None),
    ],
    "named, written and then failed": [
        ("a", "q", 0, 7, None),
        ("a", "q", 1, 7, NOT_ONE_EACH),
        ("b", "q", 2, 7, "was for topic 'a'"),
    ],
}


@pytest.mark.parametrize("history", HISTORIES)
def test_writes_that_come_again(kafka, history):
    """Those with a name are dropped by the decision log, without being looked at."""
    named = {"write_id": "w"} if history.startswith("named") else {}
    sinks = {topic: sink(history, topic=topic, **named) for topic in "ab"}
    for topic, query, call, number, words in HISTORIES[history]:
        frame = Frame([1 if words == NOT_ONE_EACH else 0], query, call)
        with nullcontext() if words is None else pytest.raises(KafkaSinkError, match=words):
            sinks[topic](frame, number)
    accepted = [topic for topic, *_, words in HISTORIES[history] if words is None]
    assert kafka.committed == accepted


class Returning(Frame):
    """Spark, or a server of Spark Connect, returns these rows."""

    def __init__(self, *rows):
        super().__init__([0], "q")
        self.rows = rows

    def collect(self):
        return [(bytearray(row),) for row in self.rows]


def test_what_spark_returns_runs_no_code(tmp_path):
    """With Spark Connect it comes from a server, where tenants may run code."""
    trace = tmp_path / "trace"

    class Hostile:
        def __reduce__(self):
            return Path.touch, (trace,)

    with pytest.raises(KafkaSinkError, match="something else than the message") as raised:
        frames.write(Returning(pickle.dumps(Hostile())), OPTIONS)
    assert raised.value.code == "SPARK-010"
    assert not trace.exists()


TRANSACTION = model.TaskTransaction("p.0123456789ab.0", 1, 0, 2, 0, 5, "5-9-w1.00")


@pytest.mark.parametrize(
    "changes",
    [
        {"token": None},
        {"token": TOKEN._replace(next_sequence=9)},
        {"transaction": TRANSACTION._replace(transactional_id="another.0123456789ab.0")},
        {"transaction": TRANSACTION._replace(partition_id=1)},
    ],
    ids=["no token", "another token", "transaction of another application", "another task's"],
)
def test_what_no_task_of_the_plan_can_have_written_is_not_committed(kafka, changes):
    """The client would commit it with its own rights."""
    own = KafkaCommitMessage(0, 0, token=TOKEN, transaction=TRANSACTION)
    write = sink(f"hostile-{hash(str(changes))}", topic="a")
    with pytest.raises(KafkaSinkError, match=NOT_ONE_EACH):
        write(Returning(encode_message(replace(own, **changes))), 0)
    assert kafka.committed == []
    write(Returning(encode_message(own)), 0)
    assert kafka.committed == ["a"]


def test_what_is_committed_is_what_was_planned(kafka):
    sink("units", topic="a")(Frame([0], "q"), 0)
    spark_kafka_sink.write(
        Frame([0]), {**EXACTLY_ONCE, "transactional.id.prefix": "units of a job", "topic": "a"}
    )
    assert kafka.units == [model.Unit("q", 0, None), model.Unit(None, None, "j")]


class Beside(Frame):
    """Meanwhile, a thread does something else: as ``failed`` tells, if it is refused."""

    def __init__(self, act, *more):
        super().__init__([0], *more)
        self.act, self.failed = act, []

    def beside(self):
        try:
            self.act()
        except ConfigError as error:
            self.failed.append(str(error))

    def collect(self):
        thread = Thread(target=self.beside, daemon=True)
        thread.start()
        thread.join(30)
        return super().collect()


@pytest.mark.parametrize("named", [{}, {"write_id": "w"}])
def test_a_write_beside_one_that_runs(kafka, named):
    first, second = (sink(f"beside {len(named)}", topic=topic, **named) for topic in "ab")
    frame = Beside(lambda: second(Frame([0], "q"), 0), "q")
    first(frame, 0)
    assert kafka.planned == kafka.committed == ["a"]
    assert "is written a second time" in frame.failed[0]


@pytest.mark.parametrize("named", [{}, {"write_id": "w"}])
def test_one_prefix_in_two_clusters_is_two_prefixes(kafka, named):
    """The second write neither waits for the first nor is taken for it."""
    servers = {"kafka.bootstrap.servers": "127.0.0.1:2"}
    first = sink(f"clusters {len(named)}", topic="a", **named)
    second = sink(f"clusters {len(named)}", topic="b", **named, **servers)
    first(Beside(lambda: second(Frame([0], "q"), 0), "q"), 0)
    assert kafka.committed == ["b", "a"]


def test_a_released_name_may_be_used_elsewhere(kafka):
    first, second = (sink("released", topic=topic, write_id="w") for topic in "ab")
    first(Frame([0], "q"), 7)
    kafka.log = model.Decision(kafka.log.owner)
    second(Frame([0], "r", call=1), 0)
    assert kafka.committed == ["a", "b"]


def test_a_version_is_one_write_of_a_program(kafka):
    """Spark repeats no job, so another one of the same version has other rows."""
    options = {**EXACTLY_ONCE, "transactional.id.prefix": "versions", "write.id": "w"}
    for version in (7, 8, 7, 8):
        is_again = len(kafka.committed) == 2
        words = f"version {version} .* a second time .*TXN-008"
        with pytest.raises(ConfigError, match=words) if is_again else nullcontext():
            frames.write(Frame([0]), {**options, "write.version": version})
    assert len(kafka.committed) == 2


def test_parts_of_a_micro_batch_in_threads_that_know_no_call(kafka):
    """Both come from the session that Spark has wrapped for this call; one that comes again does not."""
    write = sink("parts", write_id="w")
    micro_batch = Frame([0])
    first, second = Frame([0]), Frame([0])
    first.sparkSession = second.sparkSession = micro_batch
    write(first, 7)
    with pytest.raises(ConfigError, match="version 7 of write.id 'w' is written a second time"):
        write(second, 7)
    write(Frame([0]), 7)
    assert len(kafka.committed) == 2


def test_a_version_from_a_thread_may_come_again_in_another_call(kafka):
    """Spark repeats the micro-batch in a new run of the query, whose thread knows no call, either."""
    options = {**EXACTLY_ONCE, "transactional.id.prefix": "runs", "write.id": "w"}
    options["write.version"] = 7
    failed = []

    def in_thread(frame):
        def write():
            try:
                frames.write(frame, options)
            except ConfigError as error:
                failed.append(str(error))

        thread = Thread(target=write)
        thread.start()
        thread.join()

    run, part = Frame([0]), Frame([0])
    part.sparkSession = run
    in_thread(run)
    in_thread(part)
    assert "version 7 of write.id 'w' is written a second time" in failed.pop()
    in_thread(Frame([0]))
    assert failed == []
    assert len(kafka.committed) == 2


def test_writes_of_two_threads_under_one_prefix_take_turns(kafka, monkeypatch):
    """A plan makes the transactions of other tasks invalid: "begun to write too late"."""
    steps, waits_or_plans = [], Event()

    class Told(logging.Handler):
        def emit(self, record):
            if "comes first" in record.getMessage():
                waits_or_plans.set()

    def plan(options, *arguments):
        steps.append(("plan", options.topic))
        if options.topic == "b":
            waits_or_plans.set()
        return kafka.plan(options, *arguments)

    def commit(options, *arguments):
        steps.append(("commit", options.topic))
        kafka.commit(options, *arguments)

    class WithAnother(Frame):
        def collect(self):
            thread.start()
            assert waits_or_plans.wait(60)
            return super().collect()

    monkeypatch.setattr(frames, "plan_transactions", plan)
    monkeypatch.setattr(frames, "commit_batch", commit)
    monkeypatch.setattr(frames.logger, "handlers", [Told()])
    monkeypatch.setattr(frames.logger, "level", logging.INFO)
    first, second = (sink("turns", topic=topic, write_id=topic) for topic in "ab")
    thread = Thread(target=lambda: second(Frame([0]), 0))
    first(WithAnother([0]), 0)
    thread.join()
    assert steps == [("plan", "a"), ("commit", "a"), ("plan", "b"), ("commit", "b")]


SESSION = Frame([])
PLACE = frames.Place((("127.0.0.1", 1),), "p")


def in_call(execution_id):
    return frames.FunctionCall(execution_id, ref(SESSION))


class TestWhatAProcessRemembers:
    @pytest.fixture
    def calls(self):
        return WriteRegistry()

    def test_one_that_failed_does_not_forget_the_one_that_came_after_it(self, calls):
        first, second, third = (
            WriteIdentity(PLACE, 1, "t", query_id="q", call=in_call(call)) for call in "122"
        )
        calls.begin(first)
        calls.begin(second)
        calls.forget(first)
        with pytest.raises(ConfigError, match="a second time"):
            calls.begin(third)

    def test_each_name_has_numbers_of_its_own(self, calls):
        named = WriteIdentity(PLACE, 4, "t", write_id="etl", query_id="q", call=in_call("1"))
        calls.begin(named)
        calls.finish(named)
        calls.check_dropped(named._replace(write_id="other", topic="elsewhere"))
        # A later version may go elsewhere, and an earlier one in one call is a repetition.
        calls.check_dropped(named._replace(number=5, topic="elsewhere"))
        calls.check_dropped(named._replace(number=3))
        with pytest.raises(ConfigError, match="is for topic 'elsewhere'") as refused:
            calls.check_dropped(named._replace(topic="elsewhere", call=in_call("2")))
        assert refused.value.code == "TXN-030", "as if another process had written it"
