"""Brokers that are away at planning, or die for good while a job writes."""

import re
import threading
import time

import pytest

from tests.chaos.faults import Situation
from tests.chaos.jobs import run_batch
from tests.local_kafka import PatientKafka
from tests.patience import AN_HOUR_MS, eventually
from tests.reading import read_topic
from tests.spark.test_exactly_once import exactly_once
from tests.spark.test_streaming import ROWS_PER_FILE, read_files, write_file

TRIGGER = "90 seconds"
AWAY_S = 40


@pytest.mark.long
@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_a_broker_that_is_away_at_planning(spark, tmp_path, guarantee):
    folder = tmp_path / "in"
    folder.mkdir()
    write_file(folder, 0)
    with PatientKafka() as kafka:
        kafka.create_topic("t", 1)
        query = (
            read_files(spark, folder)
            .writeStream.format("pykafka-sink")
            .option("kafka.bootstrap.servers", kafka.bootstrap_servers)
            .option("topic", "t")
            .options(**exactly_once("outage", **{"delivery.guarantee": guarantee}))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(processingTime=TRIGGER)
            .start()
        )
        try:
            commits = tmp_path / "checkpoint" / "commits"
            assert eventually((commits / "0").exists)
            assert eventually(lambda: not query.status["isTriggerActive"])
            write_file(folder, 1)
            kafka.stop(1)
            assert eventually(lambda: query.status["isTriggerActive"])
            time.sleep(AWAY_S)  # what is tested is an outage of this length
            kafka.restart(1)
            assert eventually(lambda: (commits / "1").exists() or not query.isActive)
            assert query.exception() is None
        finally:
            query.stop()
        records = read_topic(kafka.bootstrap_servers, "t")
    assert sorted(int(r.value) for r in records) == list(range(2 * ROWS_PER_FILE))


# Minutes of CPU, on a machine of any load.
pytestmark = pytest.mark.timeout(1800)

DELIVERY_TIMEOUT_MS = 15_000


def test_the_job_fails_when_delivery_timeout_is_over(spark, tmp_path):
    with PatientKafka() as kafka:
        kafka.create_topic("doomed", partitions=2)
        situation = Situation(kafka, [], "doomed", 2, threading.Event())

        def kill():
            situation.await_records(2000)
            kafka.kill(1)

        options = {
            "kafka.bootstrap.servers": kafka.bootstrap_servers,
            "kafka.request.timeout.ms": "2000",
            "kafka.delivery.timeout.ms": str(DELIVERY_TIMEOUT_MS),
            # Nothing else ends the wait.
            "kafka.max.block.ms": str(AN_HOUR_MS),
            "kafka.batch.size": "2000",
            "topic": "doomed",
        }
        killer = threading.Thread(target=kill)
        killer.start()
        with pytest.raises(Exception) as caught:
            run_batch(spark, options, 400_000, 50, tmp_path)
        situation.is_over.set()
        killer.join()
    message = str(caught.value)
    line = next(line for line in message.splitlines() if "DeliveryError" in line)
    for pattern in (
        r"doomed-[01]\b",
        r"broker 1 \(127\.0\.0\.1:\d+\)",
        r"NETWORK_EXCEPTION|Connection refused|REQUEST_TIMED_OUT",
        r"\d+ (failed )?attempt",
        r"\d+ ms",
        r"delivery\.timeout\.ms",
    ):
        assert re.search(pattern, line), f"{pattern} is not in: {line}"
