"""A Spark driver that starts a query or a job, and stops it, as it is told on standard input.

Each line is a JSON document: ``{"start": "stream", "options": {…}, "checkpoint": …}``, the same for a
``job``, or ``{"stop": true}``. It answers on standard output: ``started``, ``stopping``, ``ended``.
What ends with an error says ``ended:`` and the error on standard error before.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading

from evidence.harness.crash import announce_driver
from evidence.harness.jobs import rows_of
from evidence.harness.query import TASKS, session, stop

_ROWS = 4_000
_PAUSE_MS = 500
_ROWS_PER_BATCH = 400


class Driver:
    """One query or job at a time."""

    def __init__(self, spark):
        self._spark = spark
        self._query = None

    def run(self, command):
        """Start, and wait for the end, whichever it is."""
        try:
            if command["start"] == "stream":
                self._stream(command["options"], command["checkpoint"])
            else:
                self._job(command["options"])
        except Exception as error:
            print(f"ended: {str(error)[:200]!r}", file=sys.stderr, flush=True)
        say("ended")

    def _stream(self, options, checkpoint):
        rows = (
            self._spark.readStream.format("rate-micro-batch")
            .option("rowsPerBatch", _ROWS_PER_BATCH)
            .option("numPartitions", TASKS)
            .load()
            .selectExpr("cast(value as string) as key", "cast(value as string) as value")
        )
        self._query = (
            rows.writeStream.format("pykafka-sink")
            .options(**options)
            .option("checkpointLocation", checkpoint)
            .start()
        )
        say("started")
        self._query.awaitTermination()

    def _job(self, options):
        self._query = None
        say("started")
        rows = rows_of(self._spark.range(0, _ROWS, 1, TASKS), "'j'", _PAUSE_MS)
        rows.write.format("pykafka-sink").options(**options).mode("append").save()

    def stop(self):
        """Stop it; say so when it is interrupted."""
        if self._query is None:
            self._spark.sparkContext.cancelAllJobs()
            say("stopping")
            return
        stop(self._query, lambda: say("stopping"))


def say(word):
    print(word, flush=True)


def main(conf):
    """Obey until the input ends."""
    spark = session(conf)
    announce_driver([os.getpid(), spark.sparkContext._gateway.proc.pid])
    driver = Driver(spark)
    starts: queue.Queue = queue.Queue()

    def read():
        for line in sys.stdin:
            command = json.loads(line)
            if "start" in command:
                starts.put(command)
            else:
                driver.stop()
        starts.put(None)

    threading.Thread(target=read, daemon=True).start()
    say("ready")
    while (command := starts.get()) is not None:
        driver.run(command)
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
