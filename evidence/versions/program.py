"""Writes in each way that one version of Spark has. Runs in that version's own interpreter.

``python program.py SERVERS FOLDER PREFIX WAY ...`` writes to topics named PREFIX and the way. It
prints one line of JSON with the versions, and then one for each way: its name, and the error that
came out of it, null if there was none. Python 3.9, and nothing but the sink, pyspark and this checkout.
"""

import json
import os
import platform
import sys
from pathlib import Path

from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import spark_kafka_sink
from evidence.harness.checkpoints import forget_last
from spark_kafka_sink.config.sink_options import UNIX_SOCKETS

ROWS = 3000
FILES, ROWS_OF_A_FILE = 4, 50
TYPED = {"value_format": "json", "key_columns": "id"}


def typed(rows):
    """Columns of which the sink makes values."""
    return rows.selectExpr(
        *("id", "id / 7 as ratio", "cast(id as decimal(12,3)) as price"),
        *("current_timestamp() as at", "array(id, null) as list"),
        "map('a', named_struct('b', date'2024-02-29')) as nested",
    )


class Program:
    """One session, in which each way is tried."""

    def __init__(self, spark, servers, folder, prefix):
        self.spark = spark
        self.servers = servers
        self.folder = folder
        self.prefix = prefix

    def run(self, names):
        for name in names:
            error = None
            try:
                getattr(self, name.replace("-", "_"))(f"{self.prefix}{name}")
            except Exception as raised:
                error = f"{type(raised).__name__}: {raised}"
            print(json.dumps({"way": name, "error": error}), flush=True)

    def options(self, topic, exactly_once=None, **more):
        options = {"kafka.bootstrap.servers": self.servers, "topic": topic}
        options["metrics.log"] = False
        options["metrics.path"] = str(self.folder / f"{topic}.metrics")
        if exactly_once is not None:
            options["delivery.guarantee"] = "exactly-once"
            options["transactional.id.prefix"] = exactly_once
            options["transaction.log.replication.factor"] = 1
        options.update({name.replace("_", "."): value for name, value in more.items()})
        return options

    def rows(self, tasks=3):
        ids = self.spark.range(0, ROWS, 1, tasks)
        return ids.selectExpr("cast(id as string) as key", "cast(id as string) as value", "id")

    def write(self, name):
        rows = self.rows().selectExpr("*", "id as `i.d`", "id as `i``d`", "id as ID")
        spark_kafka_sink.write(rows, self.options(name))
        spark_kafka_sink.write(self.rows().filter("id < 0"), self.options(name))

    def write_exactly_once(self, name):
        options = self.options(name, name, write_id="rows", write_version=7)
        for _ in range(2):  # the second one is dropped
            spark_kafka_sink.write(self.rows(), options)

    def write_retried(self, name):
        spark_kafka_sink.write(failing(self.rows(), attempts=1), self.options(name, name))

    def write_failed(self, name):
        spark_kafka_sink.write(failing(self.rows(), attempts=99), self.options(name, name))

    def write_bad_schema(self, name):
        spark_kafka_sink.write(self.rows().select("key"), self.options(name))

    def write_typed(self, name):
        spark_kafka_sink.write(typed(self.rows()), self.options(name, **TYPED))

    def format(self, name):
        import pyspark_kafka_sink

        # Of no use where Spark finds the sink by itself, and must do no harm there: 4.0 refuses it.
        pyspark_kafka_sink.register(self.spark)
        self.save(self.rows(), self.options(name))

    def format_exactly_once(self, name):
        self.save(self.rows(), self.options(name, name))

    def format_retried(self, name):
        self.save(failing(self.rows(), attempts=1), self.options(name, name))

    def format_typed(self, name):
        self.save(typed(self.rows()), self.options(name, **TYPED))

    def format_bad_schema(self, name):
        self.save(self.rows().select("key"), self.options(name))

    def save(self, df, options):
        df.write.format("pykafka-sink").options(**options).mode("append").save()

    def foreach(self, name):
        self.twice(name, lambda: spark_kafka_sink.batch_writer(self.options(name)), repeat=False)

    def foreach_exactly_once(self, name):
        """The sink reads the query's name where Spark describes the jobs of a micro-batch."""
        options = self.options(name, "of-{query}")
        self.twice(name, lambda: spark_kafka_sink.batch_writer(options))

    def foreach_named(self, name):
        options = self.options(name, name, write_id="stream")
        self.twice(name, lambda: spark_kafka_sink.batch_writer(options))

    def foreach_two_sinks(self, name):
        """Two prefixes, one topic: each row is there twice."""
        sinks = [spark_kafka_sink.batch_writer(self.options(name, f"{name}-{n}")) for n in (1, 2)]

        def both(df, batch_id):
            for sink in sinks:
                sink(df, batch_id)

        self.twice(name, lambda: both)

    def foreach_twice(self, name):
        """One prefix for two writes: refused before the second one."""
        sink = spark_kafka_sink.batch_writer(self.options(name, name))

        def twice(df, batch_id):
            sink(df, batch_id)
            sink(df, batch_id)

        self.twice(name, lambda: twice)

    def stream(self, name):
        self.twice(name, None, self.options(name), repeat=False)

    def stream_exactly_once(self, name):
        self.twice(name, None, self.options(name, "of-{query}"))

    def twice(self, name, new_function, options=None, repeat=True):
        folder, checkpoint = self.folder / name, self.folder / f"{name}-checkpoint"
        folder.mkdir()
        for first in (0, FILES):
            for number in range(first, first + FILES):
                write_file(folder, number)
            writer = self.read_stream(folder).writeStream.queryName(name)
            writer = writer.option("checkpointLocation", str(checkpoint))
            if new_function is not None:
                writer = writer.foreachBatch(new_function())
            else:
                writer = writer.format("pykafka-sink").options(**(options or {}))
            writer.trigger(availableNow=True).start().awaitTermination()
            if repeat and first == 0:
                forget_last(checkpoint / "commits")

    def read_stream(self, folder):
        reader = self.spark.readStream.schema("id long").option("maxFilesPerTrigger", 1)
        return reader.json(str(folder)).selectExpr(
            "cast(id as string) as key", "cast(id as string) as value"
        )


def write_file(folder, number):
    """Named and dated so that Spark takes them one after the other."""
    first = number * ROWS_OF_A_FILE
    lines = "".join(f'{{"id": {n}}}\n' for n in range(first, first + ROWS_OF_A_FILE))
    hidden = folder / f".{number:05}.json"
    hidden.write_text(lines, encoding="utf-8")
    os.utime(hidden, (1_000_000_000 + number, 1_000_000_000 + number))
    hidden.rename(folder / f"{number:05}.json")


def failing(df, attempts):
    """The first ``attempts`` attempts of one task fail after most of its rows."""

    def check(number):
        context = TaskContext.get()
        if number == ROWS - 1 and context is not None and context.attemptNumber() < attempts:
            raise ValueError("the row that this task cannot compute")
        return number

    checked = F.udf(check, "long")("id").alias("id")
    return df.select("key", "value", checked)


def main():
    servers, folder, prefix, *names = sys.argv[1:]
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master("local[2,3]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "500")
        .config(UNIX_SOCKETS, "true")  # since Spark 4.1, as in the files under conf/
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    print(json.dumps({"spark": spark.version, "python": platform.python_version()}), flush=True)
    program = Program(spark, servers, Path(folder), prefix)
    program.run(names)
    spark.stop()


if __name__ == "__main__":
    main()
