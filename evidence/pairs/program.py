"""Writes jobs in one version of Spark, in that version's own interpreter.

``python -m evidence.pairs.program FOLDER`` reads a job per line of standard input, in JSON: its
``name``, ``factors`` and ``options``. For each it prints a line with the error, null if there was
none. Python 3.9, and nothing but the sink and pyspark.
"""

import json
import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

import spark_kafka_sink
from evidence.pairs.daemon import ARMED, FOLDER

ROWS = 3000
TASKS = 3
FILES = 4
PARTITIONS = 6
TOPICS = 3
EPOCH_S = 1_700_000_000
BAD = (5, 1005, 2005)
"""Rows that no broker takes where there are dead letters: their timestamp is before 1970."""
_KEYS = {"unique": "concat('key-', id)", "few": "concat('key-', id % 7)"}


def columns_of(factors, topic):
    """The columns of a job, as SQL over ``id``."""
    text = "sha2(cast(id as string), 256)"
    if factors["format"] == "raw":
        columns = [f"concat(lpad(id, 10, '0'), {text}) as value"]
    else:
        columns = ["id", f"{text} as text"]
    if factors["key"] != "none":
        columns.append(f"{_KEYS[factors['key']]} as key")
    if factors["topic"] == "column":
        columns.append(f"concat('{topic}-', id % {TOPICS}) as topic")
    if factors["partitioner"] == "column":
        columns.append(f"cast(id % {PARTITIONS} as int) as partition")
    if factors["headers"] == "column":
        value = "cast(cast(id as string) as binary)"
        columns.append(f"array(named_struct('key', 'n', 'value', {value})) as headers")
    good = f"timestamp_seconds({EPOCH_S} + id)"
    if factors["dead_letters"] == "on":
        columns.append(f"if(id in {BAD}, timestamp'1960-01-01', {good}) as timestamp")
    else:
        columns.append(f"{good} as timestamp")
    return columns


class Program:
    """One session, in which jobs run one after the other."""

    def __init__(self, spark, folder):
        self.spark = spark
        self.folder = folder
        self.source = folder / "in"
        spark.range(0, ROWS, 1, FILES).write.mode("overwrite").parquet(str(self.source))
        for number, path in enumerate(sorted(self.source.glob("part-*"))):
            # A stream takes files in order of their modification time.
            os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))

    def run(self, job):
        factors, options = job["factors"], {**job["options"], "timestamp.column": "timestamp"}
        columns = columns_of(factors, job["name"])
        getattr(self, factors["api"])(columns, options, self.folder / f"checkpoint-{job['name']}")

    def rows(self, columns):
        return self.spark.range(0, ROWS, 1, TASKS).selectExpr(*columns)

    def files(self, columns):
        ids = self.spark.readStream.schema("id BIGINT").option("maxFilesPerTrigger", "2")
        return ids.parquet(str(self.source)).selectExpr(*columns)

    def batch(self, columns, options, checkpoint):
        rows = self.rows(columns)
        rows.write.format("pykafka-sink").mode("append").options(**options).save()

    def write(self, columns, options, checkpoint):
        spark_kafka_sink.write(self.rows(columns), options)

    def stream(self, columns, options, checkpoint):
        writer = self.files(columns).writeStream.format("pykafka-sink").options(**options)
        self.run_query(writer, checkpoint)

    def batch_writer(self, columns, options, checkpoint):
        function = spark_kafka_sink.batch_writer(options)
        self.run_query(self.files(columns).writeStream.foreachBatch(function), checkpoint)

    def run_query(self, writer, checkpoint):
        located = writer.option("checkpointLocation", str(checkpoint))
        located.trigger(availableNow=True).start().awaitTermination()


def session():
    """Two task slots; a task is tried four times."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master("local[2,4]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.python.daemon.module", "evidence.pairs.daemon")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "200")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    return spark


def main():
    folder = Path(sys.argv[1])
    os.environ[FOLDER] = str(folder)
    program = Program(session(), folder)
    print(json.dumps({"spark": program.spark.version}), flush=True)
    for line in sys.stdin:
        (folder / ARMED).touch()
        error = None
        try:
            program.run(json.loads(line))
        except Exception as raised:
            error = f"{type(raised).__name__}: {raised}"
        print(json.dumps({"error": error}), flush=True)
    program.spark.stop()


if __name__ == "__main__":
    main()
