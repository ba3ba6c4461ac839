"""A Spark driver with one query, to be killed: numbered rows, the same after each restart.

python -m evidence.harness.query query.json     # see Settings
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import SparkSession

from evidence.harness.crash import announce_driver
from evidence.harness.jobs import ID_DIGITS, KEYS, VALUE_BYTES
from spark_kafka_sink.config.sink_options import UNIX_SOCKETS

TASKS = 4
BEGUN = ".begun"
"""Suffix of a file beside ``stop``: the query has begun to stop, and is interrupted."""


class Settings(NamedTuple):
    """``options``: of the sink. Rows from number ``records`` on are left away, so that micro-batches
    after the last one with rows change nothing. It ends when the file ``stop`` is there.
    """

    options: dict[str, str]
    conf: dict[str, str]
    checkpoint: str
    rows_per_batch: int
    records: int
    stop: str


def session(conf):
    """``conf`` must name a master."""
    builder = SparkSession.builder.appName("chaos")
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        # It runs for a minute: compile little.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        # A task appends, and reaches task.written, several times.
        "spark.sql.execution.arrow.maxRecordsPerBatch": "50",
        # As in the files under conf/; most other tests leave Spark's TCP.
        UNIX_SOCKETS: "true",
        **conf,
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def stop(query, begun):
    """Stop a query; raises what that raises. begun: called when it has begun, in another thread"""

    def watch():
        while query.isActive:
            time.sleep(0.01)
        begun()

    watching = threading.Thread(target=watch, daemon=True)
    watching.start()
    query.stop()
    watching.join()


def main(path):
    """Run until told to stop; raises what the query raises."""
    settings = Settings(**json.loads(Path(path).read_text(encoding="utf-8")))
    spark = session(settings.conf)
    gateway = spark.sparkContext._gateway
    announce_driver([os.getpid(), gateway.proc.pid])
    rows = (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", settings.rows_per_batch)
        .option("numPartitions", TASKS)
        .load()
    )
    query = (
        rows.where(f"value < {settings.records}")
        .selectExpr(
            f"cast(value % {KEYS} as string) as key",
            f"concat(lpad(value, {ID_DIGITS}, '0'), repeat('x', {VALUE_BYTES - ID_DIGITS})) value",
        )
        .writeStream.format("pykafka-sink")
        .options(**settings.options)
        .option("checkpointLocation", settings.checkpoint)
        .start()
    )
    while not Path(settings.stop).exists():
        if query.awaitTermination(0.1):
            break
    stop(query, Path(settings.stop).with_suffix(BEGUN).touch)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
