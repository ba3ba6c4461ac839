"""Applications whose Python workers are forked by the sink's daemon: real Spark, real Kafka."""

from __future__ import annotations

import os

import psutil
import pyarrow as pa
import pytest
from pyspark.sql.functions import pandas_udf, udf

from tests.reading import read_values
from tests.spark.session import spark_session

DAEMON = "spark_kafka_sink.spark.daemon"
ROWS, TASKS = 20_000, 4


@pytest.fixture(scope="module")
def spark():
    with spark_session(settings={"spark.python.daemon.module": DAEMON}) as spark:
        yield spark


class TellWorker:
    """An interceptor: values become who writes them, and who forked that process."""

    def on_send(self, arrow_batch):
        told = f"{os.getpid()} {' '.join(psutil.Process(os.getppid()).cmdline())}".encode()
        values = pa.array([told] * arrow_batch.num_rows, pa.binary())
        return pa.RecordBatch.from_arrays([values], schema=arrow_batch.schema)


def write(spark, kafka, topic, **options):
    frame = spark.range(0, ROWS, 1, TASKS).selectExpr("cast(cast(id as string) as binary) value")
    writer = frame.write.format("pykafka-sink").mode("append").option("topic", topic)
    writer = writer.option("kafka.bootstrap.servers", kafka.bootstrap_servers)
    writer.options(**options).save()


def told_by_workers(kafka, topic):
    """By process id, the command of the process that forked it."""
    told = {bytes(v).decode() for v in read_values(kafka.bootstrap_servers, topic) if v}
    return dict(line.split(" ", 1) for line in told)


def test_a_batch_is_written_by_workers_of_the_daemon_which_are_used_again(spark, kafka, new_topic):
    first, second, plain = new_topic(), new_topic(), new_topic()
    for topic in (first, second):
        write(spark, kafka, topic, interceptors=f"{__name__}:TellWorker")
    workers, again = told_by_workers(kafka, first), told_by_workers(kafka, second)
    assert all(DAEMON in command for command in workers.values()), workers
    assert len({*workers, *again}) <= 2, "as many as task slots"
    write(spark, kafka, plain)
    assert sorted(map(int, read_values(kafka.bootstrap_servers, plain))) == list(range(ROWS))


def test_other_python_code_of_the_application_runs_in_these_workers(spark):
    @udf("string", useArrow=False)
    def parent(_):
        return " ".join(psutil.Process(os.getppid()).cmdline())

    @udf("double", useArrow=False)
    def drawn(_):
        import numpy as np

        return float(np.random.random())

    @pandas_udf("bigint")
    def doubled(column):
        return column * 2

    rows = spark.range(0, 1000, 1, TASKS)
    (found,) = rows.select(parent("id").alias("parent")).distinct().collect()
    assert DAEMON in found.parent
    assert rows.select(doubled("id").alias("d")).agg({"d": "sum"}).first()[0] == 999_000
    draws = [row.drawn for row in rows.select(drawn("id").alias("drawn")).collect()]
    assert len(set(draws)) == len(draws), "workers draw the same random numbers"
