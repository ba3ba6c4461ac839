"""A Spark driver with one sink and one stream, which it starts when it is told. Its log is on stderr.

python -m evidence.outage.stream kafka     # reads a JSON document per line, answers with one
"""

from __future__ import annotations

import json
import sys

from benchmarks.harness import spark_session

_ROWS_PER_SECOND = 50
_VALUE_BYTES = 200


def start(spark, sink, options, checkpoint):
    """Start a stream of rows with key and value, a micro-batch each second."""
    rows = spark.readStream.format("rate").option("rowsPerSecond", _ROWS_PER_SECOND).load()
    frame = rows.selectExpr("cast(value as string) key", f"repeat('x', {_VALUE_BYTES}) value")
    writer = frame.writeStream.format(sink).options(**options)
    writer = writer.option("checkpointLocation", checkpoint).trigger(processingTime="1 second")
    return writer.start()


def state_of(query):
    """The number of its latest micro-batch, and what ended it."""
    progress = query.lastProgress
    error = query.exception()
    return {
        "batch": -1 if progress is None else progress["batchId"],
        "error": None if error is None else str(error),
    }


def main(sink):
    with spark_session(4, **{"spark.log.level": "WARN"}) as spark:
        query, failed = None, {"batch": -1, "error": None}
        for line in sys.stdin:
            asked = json.loads(line)
            if asked:
                try:
                    query = start(spark, sink, **asked)
                except Exception as error:
                    failed["error"] = str(error)
            print(json.dumps(failed if query is None else state_of(query)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
