"""Writes that a prefix would take for one another: what one process knows of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from threading import Thread
from typing import cast

import pytest
from pyspark.sql.types import StringType, StructField, StructType

import spark_kafka_sink
from spark_kafka_sink.base.errors import ConfigError, KafkaSinkError
from spark_kafka_sink.config.sink_options import SinkOptions
from spark_kafka_sink.spark import frames
from spark_kafka_sink.spark.frames import WriteIdentity, WriteRegistry
from spark_kafka_sink.transactions.model import (
    Decision,
    Driver,
    DriverToken,
    Plan,
    Unit,
    Write,
)
from tests.unit.spark_frame import EXACTLY_ONCE, ONE_COLUMN, Frame


class WithTopics(Frame):
    """Whose rows say where they go."""

    schema = StructType([*ONE_COLUMN.fields, StructField("topic", StringType())])


@pytest.fixture(autouse=True)
def _no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "check_surroundings", lambda options, is_stream: options)


class Kafka:
    """Of what reaches the brokers: which writes were planned, committed and dropped."""

    def __init__(self) -> None:
        self.planned: list[str | None] = []
        self.committed: list[str | None] = []
        self.log = Decision(Driver("d", "h", 0, None, None))

    def plan(self, options: SinkOptions, is_job: bool, unit: Unit | None) -> Plan:
        self.planned.append(options.topic)
        token = DriverToken(7, 3, 0, 2)
        is_repeated = self.log.has(_write(options))
        return Plan("p", self.log.owner, token, self.log, None, 0, is_repeated=is_repeated)

    def commit(self, options: SinkOptions, *arguments: object) -> None:
        self.committed.append(options.topic)
        if not self.log.has(_write(options)):
            self.log = replace(self.log, write=_write(options)).done()


def _write(options: SinkOptions) -> Write | None:
    if options.write_id is None or options.write_version is None:
        return None
    return Write(options.write_id, options.write_version)


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> Kafka:
    """None that runs: it is about what is settled in this process."""
    written = Kafka()
    monkeypatch.setattr(frames, "plan_transactions", written.plan)
    monkeypatch.setattr(frames, "commit_batch", written.commit)
    monkeypatch.setattr(frames, "abort_batch", lambda *arguments: None)
    return written


def sink(prefix: str, **more: str) -> Callable[[Frame, int], None]:
    """For one micro-batch after the other. Prefixes are of one test each."""
    options: dict[str, object] = {**EXACTLY_ONCE, "transactional.id.prefix": prefix}
    options.update({name.replace("_", "."): value for name, value in more.items()})
    return cast("Callable[[Frame, int], None]", spark_kafka_sink.batch_writer(options))


class TestTheSameMicroBatch:
    """Under one prefix, without a ``write.id``."""

    def test_twice_in_one_call_of_the_function(self, kafka: Kafka) -> None:
        first, second = sink("twice", topic="a"), sink("twice", topic="b")
        first(Frame([0], "q"), 0)
        with pytest.raises(ConfigError, match="micro-batch 0 of query q is written a second time"):
            second(Frame([0], "q"), 0)
        assert kafka.planned == ["a"]
        for batch_id in (1, 2):
            first(Frame([0], "q", call=batch_id), batch_id)

    def test_in_a_call_that_comes_after_a_failure(self, kafka: Kafka) -> None:
        """Its rows are compared and dropped; a group of jobs tells nothing of calls."""
        write = sink("again")
        for call in (0, 1):
            write(Frame([0], "q", call), 5)
        assert len(kafka.committed) == 2

    def test_in_two_threads_of_a_function(self, kafka: Kafka) -> None:
        """The second one comes when the first one's tasks run."""
        first, second = sink("threads", topic="a"), sink("threads", topic="b")
        refused: list[BaseException] = []

        class Beside(Frame):
            def collect(self) -> list[tuple[bytearray]]:
                thread = Thread(target=beside)
                thread.start()
                thread.join()
                return super().collect()

        def beside() -> None:
            try:
                second(Frame([0], "q"), 0)
            except ConfigError as error:
                refused.append(error)

        first(Beside([0], "q"), 0)
        assert kafka.planned == kafka.committed == ["a"]
        assert "is written a second time" in str(refused)

    def test_after_a_write_that_failed(self, kafka: Kafka) -> None:
        write = sink("failed")
        with pytest.raises(KafkaSinkError, match="not one for each partition"):
            write(Frame([1], "q"), 5)
        write(Frame([0], "q"), 5)


class TestNamedWrites:
    """That come again are dropped by the decision log, without being looked at."""

    def test_to_another_topic(self, kafka: Kafka) -> None:
        """As on Spark Connect, which tells nothing of query and call."""
        first, second = (sink("topics", topic=topic, write_id="w") for topic in "ab")
        first(Frame([0]), 7)
        for batch_id in (6, 7):
            with pytest.raises(ConfigError, match="is for topic 'b', .* 7 .* was for topic 'a'"):
                second(Frame([0]), batch_id)
        assert kafka.committed == ["a"]
        sink("topics", topic="b", write_id="v")(Frame([0]), 7)
        sink("other topics", topic="b", write_id="w")(Frame([0]), 7)
        second(Frame([0]), 8)

    def test_after_release(self, kafka: Kafka) -> None:
        """The decision log has forgotten the name: nothing is dropped."""
        first, second = (sink("released", topic=topic, write_id="w") for topic in "ab")
        first(Frame([0], "q"), 7)
        kafka.log = Decision(kafka.log.owner)
        second(Frame([0], "r", call=1), 0)
        assert kafka.committed == ["a", "b"]

    def test_to_another_topic_beside_each_other(self, kafka: Kafka) -> None:
        first, second = (sink("beside", topic=topic, write_id="w") for topic in "ab")

        class Beside(Frame):
            def collect(self) -> list[tuple[bytearray]]:
                with pytest.raises(ConfigError, match="would be dropped"):
                    second(Frame([0]), 7)
                return super().collect()

        first(Beside([0]), 7)
        assert kafka.planned == kafka.committed == ["a"]

    def test_of_jobs_to_another_topic(self, kafka: Kafka) -> None:
        options = {**EXACTLY_ONCE, "transactional.id.prefix": "jobs", "write.id": "w"}
        for _ in range(2):
            frames.write(Frame([0]), {**options, "write.version": 7})  # type: ignore[arg-type]
        del options["topic"]
        with pytest.raises(
            ConfigError, match="is for the topics of its rows, and would be dropped"
        ):
            frames.write(WithTopics([0]), {**options, "write.version": 7})  # type: ignore[arg-type]

    def test_a_second_time_in_one_call_of_the_function(self, kafka: Kafka) -> None:
        write = sink("named twice", write_id="w")
        write(Frame([0], "q"), 7)
        with pytest.raises(ConfigError, match="version 7 of write.id 'w' is written a second time"):
            write(Frame([0], "q"), 7)
        write(Frame([0], "q", call=1), 7)
        write(Frame([0], "q", call=2), 8)

    def test_of_another_query(self, kafka: Kafka) -> None:
        write = sink("queries", write_id="w")
        write(Frame([0], "q"), 7)
        with pytest.raises(ConfigError, match="version 7 .* was one of query q. .*new checkpoint"):
            write(Frame([0], "r", call=1), 0)

    def test_that_were_written_and_then_failed(self, kafka: Kafka) -> None:
        first, second = (sink("then failed", topic=topic, write_id="w") for topic in "ab")
        first(Frame([0], "q"), 7)
        with pytest.raises(KafkaSinkError, match="not one for each partition"):
            first(Frame([1], "q", call=1), 7)
        with pytest.raises(ConfigError, match="was for topic 'a'"):
            second(Frame([0], "q", call=2), 7)


# --- what a process remembers -------------------------------------------------------------------

NAMED = WriteIdentity("p", 4, "t", write_id="etl", query_id="q", execution_id="1")


def test_a_write_that_was_overtaken_does_not_end_the_one_under_way() -> None:
    """It fails late: the later one of the same name is still there."""
    calls, later = WriteRegistry(), NAMED._replace(number=5, execution_id="2")
    calls.begin(NAMED)
    calls.begin(later)
    calls.forget(NAMED)
    with pytest.raises(ConfigError, match="written a second time"):
        calls.check(later._replace())
    calls.forget(later)
    calls.check(later._replace())


def test_each_name_has_numbers_of_its_own() -> None:
    calls = WriteRegistry()
    calls.begin(NAMED)
    calls.finish(NAMED)
    calls.check_dropped(NAMED._replace(write_id="other", topic="elsewhere"))
    with pytest.raises(ConfigError, match="is for topic 'elsewhere'"):
        calls.check_dropped(NAMED._replace(topic="elsewhere", execution_id="2"))


@pytest.mark.parametrize(("before", "now"), [("q", None), (None, "q"), ("q", "q")])
def test_only_queries_that_are_known_are_told_apart(before: str | None, now: str | None) -> None:
    calls = WriteRegistry()
    calls.finish(NAMED._replace(query_id=before))
    calls.check_dropped(NAMED._replace(query_id=now, execution_id="2"))


def test_a_later_version_may_go_elsewhere() -> None:
    calls = WriteRegistry()
    calls.finish(NAMED)
    calls.check_dropped(NAMED._replace(number=5, topic="elsewhere", query_id="q-2"))
