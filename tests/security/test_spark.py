"""A few cases through Spark: batch, stream, exactly-once, on two brokers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.patience import PATIENCE_S
from tests.security.cases import CASES, World
from tests.security.spark_writing import ROWS, ids_in, numbers, save
from tests.spark.test_streaming import ROWS_PER_FILE, read_files, write_file

pytestmark = pytest.mark.long

NewTopic = Callable[..., str]
A_FEW = (
    "SASL_TLS-SCRAM-SHA-512",
    "SASL_TLS-OAUTHBEARER",
    "pem-text-RSA-at-MUTUAL_RSA",
    "jks-EC-at-MUTUAL_EC",
)


@pytest.mark.parametrize("case", A_FEW)
def test_batch(spark: SparkSession, world: World, new_topic: NewTopic, case: str) -> None:
    topic = new_topic()
    save(numbers(spark), "pykafka-sink", topic, CASES[case](world))
    assert ids_in(world, topic) == list(range(ROWS))


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_stream(
    spark: SparkSession, world: World, new_topic: NewTopic, tmp_path: Path, guarantee: str
) -> None:
    topic, folder = new_topic(), tmp_path / "in"
    folder.mkdir()
    for number in range(3):
        write_file(folder, number)
    options = CASES["SASL_TLS-SCRAM-SHA-512"](world)
    if guarantee == "exactly-once":
        options["delivery.guarantee"] = guarantee
        options["transactional.id.prefix"] = f"secured-{topic}"
        options["transaction.log.replication.factor"] = "2"
    query = (
        read_files(spark, folder)
        .repartition(2)
        .writeStream.format("pykafka-sink")
        .options(**options)
        .option("topic", topic)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(PATIENCE_S)
    assert ids_in(world, topic) == list(range(3 * ROWS_PER_FILE))
