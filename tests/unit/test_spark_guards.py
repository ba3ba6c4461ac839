"""Second checks, keys of caches, forgetting and limits in spark/, each with a case that needs it.

Nothing else fails without one of these, as the first check or the usual case hides it.
"""

from __future__ import annotations

import os
from contextlib import nullcontext
from threading import Lock
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import BooleanType, LongType, StringType, StructField, StructType

from spark_kafka_sink.base.entry_points import Hook, RefusedRowsError
from spark_kafka_sink.base.errors import BootstrapError, ConfigError, TopicError, error_named
from spark_kafka_sink.columns import positions
from spark_kafka_sink.config.sink_keys import RowRules
from spark_kafka_sink.config.sink_options import SinkOptions
from spark_kafka_sink.formats import encoder
from spark_kafka_sink.formats.encoder import RowsEncoder
from spark_kafka_sink.formats.plan import VALUE
from spark_kafka_sink.protocol.messages.topics import MetadataResponse, MetadataResponseTopic
from spark_kafka_sink.spark import frames, preflight, row_planning, task, writer
from spark_kafka_sink.spark.commit import KafkaCommitMessage, Planned
from spark_kafka_sink.spark.frames import WriteIdentity, WriteRegistry
from spark_kafka_sink.spark.planning import plan_schemas
from spark_kafka_sink.spark.row_planning import plan_rows
from spark_kafka_sink.spark.task import Interceptors
from spark_kafka_sink.transactions import session
from spark_kafka_sink.transactions.model import DriverToken, WorkerTransactionalIds
from tests.unit.registry.server import fresh_registry
from tests.unit.simulated_time import SimulatedClock

TOKEN = DriverToken(1, 2, 0, 2)


def options(**more: str) -> SinkOptions:
    named = {name.replace("_", "."): value for name, value in more.items()}
    return SinkOptions.parse({"kafka.bootstrap.servers": "b:1", "topic": "t", **named})


class NoProducer:
    """Begins a transaction, and nothing else."""

    transaction = None

    def begin_transaction(self, *_: object) -> None:
        pass


def test_the_id_of_a_task_that_failed_is_not_taken_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A late request of it would fence the task that has the id then: the next plan counts anew."""
    ids = WorkerTransactionalIds("w")
    monkeypatch.setattr(task, "TRANSACTIONAL_IDS", ids)
    monkeypatch.setattr(session, "abort_task", lambda *_: None)
    plan: Any = type("", (), {"prefix": "p", "token": TOKEN, "coordinator": None, "timeout_ms": 1})
    producer: Any = NoProducer()
    failed = task._TaskTransaction(producer, plan, positions.ColumnPositions(value=0))
    assert failed._transactional_id == "p.w.0"
    failed.abort(options(), ValueError("the task's own"))
    assert ids.next_id("p", TOKEN._replace(producer_epoch=3)) == "p.w.1"


@pytest.mark.parametrize("given", ["raw", "string"])
def test_tombstones_of_values_that_are_no_format(given: str) -> None:
    kind = StringType()
    schema = StructType(
        [
            StructField("key", LongType()),
            StructField("value", kind),
            StructField("gone", BooleanType()),
        ]
    )
    planned = plan_rows(
        schema, options(value_format=given, value_null_when="gone", key_format="string")
    )
    assert planned.plan is not None
    batch = pa.record_batch(
        [
            pa.array([1, 2, 3, 4], pa.int64()),
            pa.array(["a", "b", None, "d"]),
            pa.array([False, True, False, None]),
        ],
        names=["key", "value", "gone"],
    )
    made = RowsEncoder(planned.plan, returns_faulty_rows=False).encode(batch)
    values = [
        v if v is None else bytes(v, "utf-8") if isinstance(v, str) else v
        for v in made.rows.column(VALUE).to_pylist()
    ]
    assert values == [b"a", None, None, b"d"]


def test_tasks_do_not_get_the_registrys_configuration() -> None:
    """It has its password, and Spark writes options of tasks to its event log and disks."""
    with fresh_registry() as registry:
        given = options(
            value_format="avro",
            schema_registry_url=registry.url,
            schema_registry_basic_auth_credentials_source="USER_INFO",
            schema_registry_basic_auth_user_info="u:hush-4711",
        )
        assert given.registry is not None
        assert given.registry.config is not None
        schema = StructType([StructField("a", LongType())])
        _, of_tasks = plan_schemas(plan_rows(schema, given), given)
    assert of_tasks.registry is not None
    assert of_tasks.registry.config is None


class TestCallsOfOneProcess:
    """Writes that a prefix would take for one another."""

    def test_one_that_failed_does_not_forget_the_one_that_came_after_it(self) -> None:
        calls = WriteRegistry()
        first, second = (
            WriteIdentity("p", 1, "t", query_id="q"),
            WriteIdentity("p", 1, "t", query_id="q"),
        )
        calls.begin(first)
        calls.begin(second)
        calls.forget(first)
        with pytest.raises(ConfigError, match="a second time"):
            calls.check(WriteIdentity("p", 1, "t", query_id="q"))

    def test_names_have_numbers_of_their_own(self) -> None:
        calls = WriteRegistry()
        calls.finish(WriteIdentity("p", 7, "t", write_id="a"))
        calls.check_dropped(WriteIdentity("p", 7, "u", write_id="b"))

    def test_an_earlier_number_in_one_call_is_a_repetition(self) -> None:
        calls = WriteRegistry()
        calls.finish(WriteIdentity("p", 7, "t", write_id="a", execution_id="1"))
        calls.check_dropped(WriteIdentity("p", 6, "t", write_id="a", execution_id="1"))


@pytest.mark.parametrize("number", [0, 1])
def test_one_task_alone_tells_of_the_plan(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """It may be as large as all messages."""
    message, planned = KafkaCommitMessage(number, 0), Planned(1, 2.5)
    monkeypatch.setattr(writer, "_message", lambda: message)
    plan: Any = type("", (), {"token": TOKEN, "is_repeated": True})
    where = positions.ColumnPositions(value=0)
    writer.write_partition(iter([]), options(), where, plan, planned)
    told = (message.token, message.plan, message.planned)
    assert told == (TOKEN, *((plan, planned) if number == 0 else (None, None)))


def test_rows_that_an_interceptor_refuses_later_have_their_numbers() -> None:
    """Each time it is given those that are left, whose numbers are others."""
    refuses = iter([{0: "a"}, {0: "b"}, {1: "c"}])

    def on_send(batch: pa.RecordBatch) -> pa.RecordBatch:
        for rows in refuses:
            raise RefusedRowsError(rows)
        return batch

    given = Interceptors([])
    given._on_send = [Hook("on_send", on_send)]
    found: dict[int, str] = {}
    batch = pa.record_batch([pa.array([b"0", b"1", b"2", b"3"])], names=["value"])
    left = given.on_send(batch, lambda _, reasons: found.update(reasons))
    assert found == {0: "a", 1: "b", 3: "c"}
    assert left.column(0).to_pylist() == [b"2"]


def test_a_topic_without_a_leader_yet_may_be_written_to() -> None:
    for error, is_told in (("LEADER_NOT_AVAILABLE", False), ("INVALID_TOPIC_EXCEPTION", True)):
        described = MetadataResponse(topics=[MetadataResponseTopic(error_named(error).code, "t")])
        with pytest.raises(TopicError) if is_told else nullcontext():
            preflight._check_topic("t", described)


def test_a_fork_has_no_turn_of_the_process_that_it_comes_from(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever has it there does not give it back here."""
    monkeypatch.setitem(frames._locks, "p", Lock())
    child = os.fork()
    if child == 0:
        os._exit(len(frames._locks))
    assert os.waitpid(child, 0)[1] == 0


class TestWhatWasFoundEncodable:
    """Plans and schemas that are not looked at again, in this process."""

    @pytest.fixture(autouse=True)
    def looked_at(self, monkeypatch: pytest.MonkeyPatch) -> list[object]:
        done: list[object] = []
        monkeypatch.setattr(row_planning, "_checked", [])
        monkeypatch.setattr(encoder, "RowEncoder", lambda plan, schema: done.append(schema))
        return done

    def test_another_schema_is_looked_at(self, looked_at: list[object]) -> None:
        whole = StructType([StructField("a", LongType())])
        planned = plan_rows(whole, options(value_format="json"))
        for schema in (whole, whole, StructType([StructField("a", StringType())])):
            row_planning.check_encodable(planned._replace(schema=schema))
        assert len(looked_at) == 2

    def test_only_the_latest_are_kept(self) -> None:
        for number in range(row_planning._MOST_CHECKED + 3):
            schema = StructType([StructField(f"a{number}", LongType())])
            row_planning.check_encodable(plan_rows(schema, options(value_format="json")))
        assert len(row_planning._checked) == row_planning._MOST_CHECKED


class TestCachedVerdict:
    """Of the check of a cluster, in this process."""

    @pytest.fixture(autouse=True)
    def checks(self, monkeypatch: pytest.MonkeyPatch) -> list[SinkOptions]:
        done: list[SinkOptions] = []
        monkeypatch.setattr(preflight, "_passed_at_ms", {})
        monkeypatch.setattr(preflight, "_rules", {})
        monkeypatch.setattr(preflight, "_check", lambda asked, clock: done.append(asked))
        return done

    @pytest.mark.parametrize(
        "more",
        [
            {"topic": "u"},
            {"kafka_bootstrap_servers": "b:2"},
            {"kafka_security_protocol": "SSL"},
            {"errors_tolerance": "all", "errors_deadletterqueue_topic_name": "d"},
        ],
        ids=lambda more: next(iter(more)),
    )
    def test_it_is_of_the_same_options_only(self, checks: list[Any], more: dict[str, str]) -> None:
        preflight.check_cluster(options(), False)
        preflight.check_cluster(options(), False)
        assert len(checks) == 1
        preflight.check_cluster(options(**more), False)
        assert len(checks) == 2

    def test_what_the_topics_accept_is_remembered_with_it(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Also while brokers are away: each attempt at a batch has the same dead letters."""
        given = options(
            kafka_metadata_max_age_ms="1000",
            errors_tolerance="all",
            errors_deadletterqueue_topic_name="d",
        )
        assert given.dead_letters is not None
        found = given.dead_letters._replace(target=RowRules(7))

        def away(*_: object) -> None:
            raise BootstrapError("away")

        clock = SimulatedClock()
        for check, passes_ms in ((lambda *_: found, 0), (away, 0), (away, 2000)):
            monkeypatch.setattr(preflight, "_check", check)
            clock.sleep(passes_ms)
            assert preflight.check_cluster(given, True, clock).dead_letters == found

    def test_it_ends_with_the_age_of_metadata(self, checks: list[Any]) -> None:
        clock = SimulatedClock()
        for passes_ms, expected in ((0, 1), (999, 1), (1, 2), (1000, 3)):
            clock.sleep(passes_ms)
            preflight.check_cluster(options(kafka_metadata_max_age_ms="1000"), False, clock)
            assert len(checks) == expected

    def test_a_failure_that_is_not_transient_is_raised_also_after_a_success(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        clock = SimulatedClock()
        preflight.check_cluster(options(kafka_metadata_max_age_ms="1000"), True, clock)

        def gone(*_: object) -> None:
            raise TopicError("there is no such topic")

        monkeypatch.setattr(preflight, "_check", gone)
        clock.sleep(2000)
        with pytest.raises(TopicError):
            preflight.check_cluster(options(kafka_metadata_max_age_ms="1000"), True, clock)
