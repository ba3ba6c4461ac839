"""The Spark driver of a week: all workloads at once, in one application.

``python -m evidence.week.program SETTINGS``; the settings are those of ``Settings``, in JSON. A write
that fails is noted in ``failures.jsonl`` and started again, as a supervisor of jobs does it. Once
the file ``finish`` exists, the program writes what is left of its input and ends.
"""

import json
import os
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import SparkSession

import spark_kafka_sink
from evidence.week.workloads import FILES_PER_BATCH

PAUSE_S = 2.0
APPLICATION_ENDED = 4
"""Exit status if Spark has ended the application: no write can be started again in it."""


class Settings(NamedTuple):
    """folder: of the driver's own files; source: of the Parquet files; checkpoints: on the small disk.

    workloads: ``workloads.Workload`` as dictionaries; port: of Prometheus' endpoint
    """

    folder: str
    source: str
    checkpoints: str
    metrics: str
    port: int
    conf: dict
    workloads: list


class Program:
    """One application with a thread for each workload."""

    def __init__(self, spark, settings):
        self.spark = spark
        self.settings = settings
        self.folder = Path(settings.folder)
        self._lock = threading.Lock()

    @property
    def is_finishing(self):
        return (self.folder / "finish").exists()

    def run(self):
        threads = [
            threading.Thread(target=self._keep_running, args=(workload,), name=workload["name"])
            for workload in self.settings.workloads
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _keep_running(self, workload):
        """Until it has written all of its input."""
        # Spark finds Python data sources only in threads that have an active session.
        self.spark.createDataFrame([], "id BIGINT")
        write = self._chunks if workload["kind"] == "batch" else self._stream
        while True:
            try:
                write(workload)
                return
            except Exception as error:
                self._note_failure(workload["name"], error)
                if self.spark.sparkContext._jsc.sc().isStopped():
                    os._exit(APPLICATION_ENDED)
                time.sleep(PAUSE_S)

    def _note_failure(self, name, error):
        lines = {"at": time.time(), "workload": name, "error": str(error)[:4000]}
        with self._lock, (self.folder / "failures.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(lines) + "\n")
        print(f"{name} failed: {''.join(traceback.format_exception_only(error))}", flush=True)

    # --- the kinds of writes -------------------------------------------------------------------

    def _stream(self, workload):
        files = self.spark.readStream.schema("id BIGINT")
        files = files.option("maxFilesPerTrigger", str(FILES_PER_BATCH))
        frame = self._columns(files.parquet(self.settings.source), workload)
        writer = frame.writeStream.queryName(workload["name"])
        if workload["kind"] == "foreachBatch":
            sink = spark_kafka_sink.batch_writer(workload["options"])
            writer = writer.foreachBatch(lambda rows, number: sink(shuffled(rows), number))
        else:
            writer = writer.format("pykafka-sink").options(**workload["options"])
        checkpoint = f"{self.settings.checkpoints}/{workload['name']}"
        writer = writer.option("checkpointLocation", checkpoint)
        query = writer.start()
        while not self.is_finishing:
            if query.awaitTermination(1):
                raise RuntimeError("the query ended by itself")
        query.processAllAvailable()
        query.stop()

    def _columns(self, ids, workload):
        frame = ids.selectExpr(*workload["columns"])
        return frame.drop("id") if workload["drops_id"] else frame

    def _chunks(self, workload):
        """Batch jobs, one after the other; what has begun is repeated until it has succeeded."""
        begun = self.folder / f"{workload['name']}.begun"
        done = self.folder / f"{workload['name']}.done"
        rows = workload["rows_per_job"]
        while True:
            number = number_in(done)
            if self.is_finishing and number_in(begun) <= number:
                return
            put_number(begun, number + 1)
            ids = self.spark.range(number * rows, (number + 1) * rows, 1, 4)
            frame = self._columns(ids, workload)
            options = workload["options"]
            frame.write.format("pykafka-sink").mode("append").options(**options).save()
            put_number(done, number + 1)


def number_in(path):
    return int(path.read_text()) if path.exists() else 0


def put_number(path, number):
    """Write it whole or not at all, because the driver may be killed here."""
    new = path.with_suffix(".new")
    new.write_text(str(number))
    new.rename(path)


def shuffled(rows):
    """Tasks read files of executors, which are lost with them; the ids of a key still rise."""
    return rows.repartition(4, "key").sortWithinPartitions("value")


def main(path):
    settings = Settings(**json.loads(Path(path).read_text(encoding="utf-8")))
    builder = SparkSession.builder.appName("week")
    for name, value in settings.conf.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    listening = spark_kafka_sink.metrics.listen(
        spark, port=settings.port, path=settings.metrics, host="127.0.0.1"
    )
    Path(settings.folder, "started").touch()
    Program(spark, settings).run()
    listening.close()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
