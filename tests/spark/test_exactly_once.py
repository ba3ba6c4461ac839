"""Exactly-once with a real broker and a real Spark: what readers of committed records get."""

import json
import shlex

import pytest
from pyspark.sql.functions import udf

from evidence.harness.crash import COMMIT_STARTS, HOLD, KILL_DRIVER, Trap
from evidence.harness.driver import SparkDriver
from evidence.harness.jobs import judge
from evidence.harness.query import TASKS
from evidence.harness.scene import EndOffsets, lingering, transactional_ids
from spark_kafka_sink.__main__ import main
from tests.lineage import HAS_LINEAGE, events_in, kinds, outputs_of, to_file
from tests.patience import AN_HOUR_MS, PATIENCE_S, eventually
from tests.reading import read_topic
from tests.spark.test_streaming import ROWS_PER_FILE, read_files, start, write_file

# Minutes of CPU, on a machine of any load.
pytestmark = pytest.mark.timeout(1800)

COMMITTED = {"isolation.level": "read_committed"}
ROWS = 400
ROWS_PER_BATCH = 200


def exactly_once(prefix, **more):
    """Options, for a single broker."""
    return {
        "delivery.guarantee": "exactly-once",
        "transactional.id.prefix": prefix,
        "transaction.log.replication.factor": "1",
        **more,
    }


def ids(kafka, topic):
    """What a reader of committed records finds."""
    return sorted(int(r.value) for r in read_topic(kafka.bootstrap_servers, topic, **COMMITTED))


def numbers(spark, tasks=4):
    return spark.range(0, ROWS, 1, tasks)


AS_RECORDS = ("cast(id as string) as key", "cast(id as string) as value")


class TestStream:
    def test_each_row_once_and_on_after_a_restart(self, spark, kafka, new_topic, tmp_path):
        topic, folder, checkpoint = new_topic(3), tmp_path / "in", tmp_path / "checkpoint"
        metrics = tmp_path / "metrics.jsonl"
        options = exactly_once("eo-stream", **{"metrics.path": str(metrics)})
        folder.mkdir()
        for first in (0, 4):
            for number in range(first, first + 4):
                write_file(folder, number)
            frame = read_files(spark, folder).repartition(2)
            query = start(frame, kafka, topic, checkpoint, **options)
            assert query.awaitTermination(PATIENCE_S)
        assert ids(kafka, topic) == list(range(8 * ROWS_PER_FILE))
        lines = [json.loads(line) for line in metrics.read_text(encoding="utf-8").splitlines()]
        assert [(e["event"], e["batch_id"]) for e in lines] == [("commit", n) for n in range(8)]
        assert all(1 <= line["transactions"] <= 2 for line in lines)
        for name in ("commit_ms", "oldest_transaction_ms", "decided_for_ms"):
            assert all(0 <= line[name] < AN_HOUR_MS for line in lines)
        # One id per Python worker and task slot of a batch, not one per batch; and the driver's.
        states = transactional_ids(kafka)
        mine = {i: state for i, state in states.items() if i.startswith("eo-stream.")}
        assert 2 <= len(mine) <= 5
        assert lingering(kafka, "eo-stream.") == []

    def test_another_query_cannot_have_the_prefix(self, spark, kafka, new_topic, tmp_path):
        topic, folder = new_topic(1), tmp_path / "in"
        folder.mkdir()
        write_file(folder, 0)
        options = exactly_once("eo-shared")
        first, second = tmp_path / "first", tmp_path / "second"
        assert start(read_files(spark, folder), kafka, topic, first, **options).awaitTermination(
            PATIENCE_S
        )
        query = start(read_files(spark, folder), kafka, topic, second, **options)
        with pytest.raises(
            Exception, match="'eo-shared' belongs to query .*, driver .*checkpoint.*/first"
        ):
            query.awaitTermination(PATIENCE_S)
        assert ids(kafka, topic) == list(range(ROWS_PER_FILE))
        # Nor was the owner disturbed.
        write_file(folder, 1)
        assert start(read_files(spark, folder), kafka, topic, first, **options).awaitTermination(
            PATIENCE_S
        )
        assert ids(kafka, topic) == list(range(2 * ROWS_PER_FILE))

    def test_a_checkpoint_that_has_lost_offsets_is_noticed(
        self, spark, kafka, new_topic, tmp_path, capsys
    ):
        """Its second micro-batch is planned anew, with other rows: as many, and as large."""
        topic, folder, checkpoint = new_topic(3), tmp_path / "in", tmp_path / "checkpoint"
        folder.mkdir()
        frame = read_files(spark, folder)

        def run():
            query = start(frame, kafka, topic, checkpoint, **exactly_once("eo lost"))
            assert query.awaitTermination(PATIENCE_S)

        write_file(folder, 0)
        write_file(folder, 1)
        run()
        lose_micro_batch(checkpoint, 1)
        run()
        assert ids(kafka, topic) == list(range(2 * ROWS_PER_FILE))

        lose_micro_batch(checkpoint, 1)
        (folder / "00001.json").unlink()
        write_file(folder, 2)
        with pytest.raises(Exception, match="come again with as many of both, and other") as error:
            run()
        assert ids(kafka, topic) == list(range(2 * ROWS_PER_FILE))
        command = next(line for line in str(error.value).splitlines() if "--as-written" in line)
        assert main([*shlex.split(command)[1:], "--yes"]) == 0
        assert "counts as written, with its 20 records" in capsys.readouterr().out
        write_file(folder, 3)
        run()
        expected = [*range(2 * ROWS_PER_FILE), *range(3 * ROWS_PER_FILE, 4 * ROWS_PER_FILE)]
        assert ids(kafka, topic) == expected
        assert lingering(kafka, "eo lost.") == []


def lose_micro_batch(checkpoint, batch_id):
    """The last one, as in a backup from before it."""
    for log in ("offsets", "commits", "sources/0"):
        (checkpoint / log / str(batch_id)).unlink()
        (checkpoint / log / f".{batch_id}.crc").unlink()


class TestJob:
    def test_whose_last_task_fails_leaves_nothing_and_is_complete_when_repeated(
        self, spark, kafka, new_topic, write
    ):
        topic, options = new_topic(3), exactly_once("eo-job")

        @udf("bigint")
        def failing(number):
            if number == ROWS - 1:
                raise ValueError("the last row of the last task")
            return number

        bad = numbers(spark).select(failing("id").alias("id")).selectExpr(*AS_RECORDS)
        with pytest.raises(Exception, match="the last row of the last task"):
            write(bad, topic, **options)
        ends = EndOffsets(kafka.bootstrap_servers, topic, 3, PATIENCE_S)
        assert sum(ends.ask().high.values()) > 0, "no task has written: this proves nothing"
        assert eventually(lambda: ends.ask().is_all_stable)
        assert ids(kafka, topic) == []
        write(numbers(spark).selectExpr(*AS_RECORDS), topic, **options)
        assert ids(kafka, topic) == list(range(ROWS))
        assert ends.ask().is_all_stable

    def test_that_names_its_write_is_written_once_however_often_it_is_run(
        self, spark, kafka, new_topic, write
    ):
        topic = new_topic(3)
        for version in ("1", "1", "2", "1"):
            named = {"write.id": "numbers", "write.version": version}
            options = exactly_once("eo-named", **named)
            write(numbers(spark).selectExpr(*AS_RECORDS), topic, **options)
        assert ids(kafka, topic) == sorted([*range(ROWS)] * 2)
        # Nor was anything written that is not visible.
        markers = 2 * 4 * 3  # two jobs, four tasks each, at most in all three partitions
        assert sum(EndOffsets(kafka.bootstrap_servers, topic, 3).ask().high.values()) <= (
            2 * ROWS + markers
        )


class TestKilledDriver:
    """Drivers in processes of their own, killed at a named point of the commit protocol."""

    @pytest.fixture
    def driver(self, kafka, new_topic, tmp_path, monkeypatch):
        """Creates drivers of one query, on one checkpoint; leaves none behind."""
        for variable, value in to_file(tmp_path / "events").items():
            monkeypatch.setenv(variable, value)
        topic = new_topic(3)
        drivers = []

        def create(name, batches):
            options = exactly_once(
                f"eo-{topic}",
                **{
                    "kafka.bootstrap.servers": kafka.bootstrap_servers,
                    "topic": topic,
                    "metrics.openlineage.enable": HAS_LINEAGE,
                    # A driver that is held back must not give up before it finds out why.
                    "kafka.max.block.ms": "600000",
                },
            )
            records = batches * ROWS_PER_BATCH
            checkpoint = tmp_path / "checkpoint"
            drivers.append(
                SparkDriver(tmp_path / name, options, ROWS_PER_BATCH, records, checkpoint)
            )
            return drivers[-1]

        create.topic = topic
        yield create
        for each in drivers:
            each.clean_up()

    # Each life of a driver is half a minute. `make evidence NAME=exactly-once` has hundreds of deaths.
    @pytest.mark.parametrize(
        "is_killed_again",
        [False, pytest.param(True, marks=pytest.mark.long)],
        ids=["once", "twice"],
    )
    def test_after_the_decision_and_between_two_commits(
        self, kafka, driver, is_killed_again, tmp_path
    ):
        query = driver("query", 6)
        decided = query.traps.set(Trap("commit.decided", KILL_DRIVER, nth=3))
        query.start()
        query.await_sprung(decided)
        assert query.wait() == -9
        committed = query.committed
        if is_killed_again:
            # While the next one finishes what that one had decided.
            ending = query.traps.set(Trap("commit.ending", KILL_DRIVER))
            query.start()
            query.await_sprung(ending)
            assert query.wait() == -9
            assert query.committed == committed
        query.start()
        query.await_committed(6)
        assert query.stop() == 0, query.tail()
        verdict = judge(kafka.bootstrap_servers, driver.topic, 3, 6 * ROWS_PER_BATCH)
        assert verdict.is_good, verdict
        assert lingering(kafka, f"eo-{driver.topic}.") == []
        if (
            HAS_LINEAGE == "true"
        ):  # the run that was killed has no end; the other does not go on with it
            path = tmp_path / "events"
            assert eventually(lambda: kinds(events_in(path)).count("START") == 2)
            assert kinds(events_in(path)[:2]) == ["START", "RUNNING"]
            assert outputs_of(events_in(path)[1])[driver.topic][0] == ROWS_PER_BATCH
            assert {"START", "RUNNING"} == set(kinds(events_in(path)))
            assert len({event["run"]["runId"] for event in events_in(path)}) == 2

    def test_a_stop_between_the_tasks_and_the_commit(self, kafka, driver):
        """Spark can start neither commit nor abort: its thread is interrupted."""
        query = driver("query", 6)
        held = query.traps.set(Trap(COMMIT_STARTS, HOLD))
        query.start()
        query.await_sprung(held)
        assert len(lingering(kafka, f"eo-{driver.topic}.")) == TASKS
        query.begin_stop()
        query.traps.release(held)
        assert query.wait() == 0
        assert eventually(lambda: not lingering(kafka, f"eo-{driver.topic}."), PATIENCE_S)

    @pytest.mark.long
    def test_the_older_of_two_drivers_stops(self, kafka, driver):
        """Both work on the same checkpoint, as after a failover while the first driver still runs."""
        older, newer = driver("older", 4), driver("newer", 4)
        held = older.traps.set(Trap("commit.checked", HOLD, nth=2))
        older.start()
        older.await_sprung(held)
        newer.start()
        newer.await_committed(4)
        older.traps.release(held)
        assert older.wait() == 1
        text = older.text()
        assert f"another driver has taken over transactional.id.prefix 'eo-{driver.topic}'" in text
        aborts = [e for e in older.events() if e["event"] == "abort"]
        assert len(aborts) == 1
        assert "has taken over" in aborts[0]["note"]
        batch_id = newer.committed
        newer.await_committed(batch_id + 2)
        assert newer.stop() == 0, newer.tail()
        verdict = judge(kafka.bootstrap_servers, driver.topic, 3, 4 * ROWS_PER_BATCH)
        assert verdict.is_good, verdict


class TestRefusals:
    """Before the first task, and without waiting for max.block.ms."""

    def refused(self, spark, write, topic, **options):
        with pytest.raises(Exception) as caught:
            write(
                numbers(spark, 1).selectExpr(*AS_RECORDS),
                topic,
                **{"kafka.max.block.ms": str(AN_HOUR_MS), **options},
            )
        return str(caught.value)

    def test_a_timeout_above_the_brokers_maximum(self, spark, kafka, new_topic, write):
        options = exactly_once("eo-timeout", **{"kafka.transaction.timeout.ms": "900001"})
        topic = new_topic(1)
        message = self.refused(spark, write, topic, **options)
        assert "kafka.transaction.timeout.ms = 900001" in message
        assert "transaction.max.timeout.ms = 900000" in message
        ends = EndOffsets(kafka.bootstrap_servers, topic, 1, PATIENCE_S)
        assert sum(ends.ask().high.values()) == 0

    def test_a_log_that_is_not_compacted(self, spark, new_topic, write):
        log = new_topic(1, cleanup_policy="delete")
        options = exactly_once("eo-deleted", **{"transaction.log.topic": log})
        message = self.refused(spark, write, new_topic(1), **options)
        assert f"topic '{log}', has cleanup.policy=delete: it must be compact" in message

    def test_a_log_with_too_few_replicas(self, spark, new_topic, write):
        log = new_topic(1, cleanup_policy="compact")
        options = exactly_once("eo-replicas", **{"transaction.log.topic": log})
        options["transaction.log.replication.factor"] = "3"
        message = self.refused(spark, write, new_topic(1), **options)
        assert f"topic '{log}', has 1 replica(s), less than" in message
        assert "transaction.log.replication.factor = 3" in message
