"""Applications whose Python workers are forked by the sink's daemon: real Spark, real Kafka."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager

import psutil
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.functions import pandas_udf, udf

from tests.reading import read_values

DAEMON = "spark_kafka_sink.spark.daemon"
ROWS, TASKS = 20_000, 4


@contextmanager
def session(**conf):
    """Two task slots, each task tried twice."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    assert SparkSession.getActiveSession() is None
    builder = SparkSession.builder.master("local[2,2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.log.level", "ERROR")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    builder = builder.config("spark.python.daemon.module", DAEMON)
    for name, value in conf.items():
        builder = builder.config(name.replace("_", "."), value)
    spark = builder.getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()


@pytest.fixture(scope="module")
def spark():
    with session() as spark:
        yield spark


class TellWorker:
    """An interceptor: values become who writes them, and who forked that process."""

    def on_send(self, arrow_batch):
        told = f"{os.getpid()} {' '.join(psutil.Process(os.getppid()).cmdline())}".encode()
        return with_values(arrow_batch, [told] * arrow_batch.num_rows)


def with_values(arrow_batch, new):
    return pa.RecordBatch.from_arrays([pa.array(new, pa.binary())], schema=arrow_batch.schema)


def write(spark, kafka, topic, **options):
    frame = spark.range(0, ROWS, 1, TASKS).selectExpr("cast(cast(id as string) as binary) value")
    writer = frame.write.format("pykafka-sink").mode("append").option("topic", topic)
    writer = writer.option("kafka.bootstrap.servers", kafka.bootstrap_servers)
    writer.options(**options).save()


def numbers(kafka, topic):
    return sorted(int(value) for value in read_values(kafka.bootstrap_servers, topic))


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
    assert numbers(kafka, plain) == list(range(ROWS))


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


def test_what_cannot_be_loaded_fails_no_other_python_code(spark, tmp_path):
    (tmp_path / "crc32c.py").write_text("raise ImportError('broken')\n")

    @udf("string", useArrow=False)
    def parent(_):
        return " ".join(psutil.Process(os.getppid()).cmdline())

    spark.stop()
    with session(spark_executorEnv_PYTHONPATH=str(tmp_path)) as another:
        (found,) = another.range(1).select(parent("id").alias("parent")).collect()
    assert "pyspark.daemon" in found.parent
