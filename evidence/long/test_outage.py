"""Brokers that are away while a stream plans."""

import time

import pytest

from tests.local_kafka import PatientKafka
from tests.patience import eventually
from tests.reading import read_topic
from tests.spark.test_exactly_once import exactly_once
from tests.spark.test_streaming import ROWS_PER_FILE, read_files, write_file

TRIGGER = "90 seconds"
AWAY_S = 40


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
