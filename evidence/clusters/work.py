"""A job that does all that the sink can do, one after the other, wherever Spark runs.

    python work.py BOOTSTRAP_SERVERS TOPIC FOLDER [WHAT ...] [--set NAME=VALUE ...] [--register] [--artifact ZIP] [--functions]

FOLDER has the input of streams, one file per micro-batch, and takes their checkpoints. Each WHAT
writes to a topic of its own, TOPIC-WHAT (a blank in WHAT is a "-"). With SPARK_REMOTE it is a client
of Spark Connect. It imports nothing of these tests.

What is written exactly once is written again: the job by its name, the last micro-batch because its commit is
forgotten. Spark 3.5 has no data sources in Python that write: there it writes with the sink's functions, which
its Python must have. FOLDER/refused-stream is made when Spark has refused the stream.
"""

import argparse
import os
from pathlib import Path

from pyspark.sql import SparkSession

BATCH_ROWS = 2000
EXACTLY_ONCE = {
    "delivery.guarantee": "exactly-once",
    # One broker.
    "transaction.log.replication.factor": "1",
}


class Work:
    """The kinds of writes, each to its own topic."""

    runs_of_a_job = 2

    def __init__(self, spark, servers, topic, folder):
        self._spark = spark
        self._servers = servers
        self._topic = topic
        self._folder = folder
        self.kinds = {
            "batch": self._batch,
            "stream": self._stream,
            "foreachBatch": self._foreach_batch,
            "exactly-once batch": self._exactly_once_batch,
            "exactly-once stream": self._exactly_once_stream,
        }

    def run(self, what):
        self.kinds[what](what)
        print("done:", what, flush=True)

    def _options(self, what):
        topic = f"{self._topic}-{what.replace(' ', '-')}"
        path = f"{self._folder}/metrics-{what.replace(' ', '-')}.jsonl"
        return {"kafka.bootstrap.servers": self._servers, "topic": topic, "metrics.path": path}

    def _batch(self, what, **more):
        numbers = self._spark.range(0, BATCH_ROWS, 1, 4)
        rows = numbers.selectExpr("cast(id as string) key", "cast(id as string) value")
        writer = rows.write.format("pykafka-sink").mode("append")
        writer.options(**self._options(what), **more).save()

    def _exactly_once_batch(self, what):
        named = {"write.id": "job", "write.version": "7"}
        for _ in range(self.runs_of_a_job):  # the second one is dropped
            prefix = {"transactional.id.prefix": f"{self._topic}-job"}
            self._batch(what, **EXACTLY_ONCE, **prefix, **named)

    def _input(self):
        lines = self._spark.readStream.option("maxFilesPerTrigger", "1")
        return lines.text(f"{self._folder}/in").selectExpr("value key", "value")

    def _finish(self, writer, what):
        """Until the end of the input; Spark 4 keeps what has stopped a query for the caller."""
        checkpoint = f"{self._folder}/checkpoint-{what.replace(' ', '-')}"
        writer = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True)
        for is_again in (False, True) if what.startswith("exactly-once") else (False,):
            if is_again:
                forget_last(Path(checkpoint, "commits"))
            query = started(writer)
            query.awaitTermination()
            error = query.exception()
            if error is not None:
                raise error

    def _stream(self, what, **more):
        writer = self._input().writeStream.format("pykafka-sink")
        self._finish(writer.options(**self._options(what), **more), what)

    def _exactly_once_stream(self, what):
        self._stream(what, **{**EXACTLY_ONCE, "transactional.id.prefix": f"{self._topic}-stream"})

    def _foreach_batch(self, what):
        options = self._options(what)

        def save(rows, batch_id):
            rows.write.format("pykafka-sink").mode("append").options(**options).save()

        self._finish(self._input().writeStream.foreachBatch(save), what)


class WorkOfFunctions(Work):
    """The same by ``write`` and ``batch_writer``; a stream by the data source must be refused."""

    runs_of_a_job = 1
    """Functions refuse a second write of one name in an application."""

    def _batch(self, what, **more):
        import spark_kafka_sink

        numbers = self._spark.range(0, BATCH_ROWS, 1, 4)
        rows = numbers.selectExpr("cast(id as string) key", "cast(id as string) value")
        spark_kafka_sink.write(rows, {**self._options(what), **more})

    def _stream(self, what, **more):
        try:
            super()._stream(what, **more)
        except Exception as error:
            if "Failed to find the data source: pykafka-sink" not in str(error):
                raise
            Path(self._folder, f"refused-{what}").touch()
        else:
            raise AssertionError("this Spark has data sources")

    def _exactly_once_stream(self, what):
        options = {**EXACTLY_ONCE, "transactional.id.prefix": f"{self._topic}-stream"}
        if "SPARK_REMOTE" in os.environ:
            options["write.id"] = "stream"  # Spark Connect does not tell functions the query's id.
        self._foreach_batch(what, **options)

    def _foreach_batch(self, what, **more):
        import spark_kafka_sink

        sink = spark_kafka_sink.batch_writer({**self._options(what), **more})
        self._finish(self._input().writeStream.foreachBatch(sink), what)


def forget_last(commits):
    """As when the driver dies before Spark has written down that the last micro-batch is done."""
    last = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
    for name in (str(last), f".{last}.crc"):
        (commits / name).unlink()


def started(writer):
    """Its query. A Spark Connect server gives the process of a function 10 s to begin, whatever
    else the machine does.
    """
    while True:
        try:
            return writer.start()
        except Exception as error:
            if "Python worker failed to connect back" not in str(error):
                raise


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("servers")
    parser.add_argument("topic")
    parser.add_argument("folder")
    parser.add_argument("what", nargs="*")
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--register", action="store_true")
    parser.add_argument(
        "--functions", action="store_true", help="also where Spark has data sources"
    )
    parser.add_argument("--artifact", help="with Spark Connect: a zip file for this session")
    arguments = parser.parse_args()
    builder = SparkSession.builder
    for setting in arguments.set:
        name, _, value = setting.partition("=")
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    if arguments.artifact is not None:
        spark.addArtifacts(arguments.artifact, pyfile=True)
    if arguments.register:
        import pyspark_kafka_sink

        pyspark_kafka_sink.register(spark)
    by_functions = arguments.functions or spark.version.startswith("3.")
    work = (WorkOfFunctions if by_functions else Work)(
        spark, arguments.servers, arguments.topic, arguments.folder
    )
    for what in arguments.what or work.kinds:
        work.run(what)
    spark.stop()


if __name__ == "__main__":
    main()
