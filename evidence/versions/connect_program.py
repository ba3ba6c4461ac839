"""``write`` and ``batch_writer`` with Spark Connect. Runs in a client that has the sink.

``python connect_program.py SERVERS FOLDER PREFIX``, as program.py; SPARK_REMOTE is the server.
"""

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession

import spark_kafka_sink
from evidence.clusters.work import started
from evidence.harness.checkpoints import forget_last
from evidence.versions.program import FILES, write_file

ROWS = 3000


def main():
    servers, folder, prefix = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
    spark = SparkSession.builder.getOrCreate()
    rows = spark.range(0, ROWS, 1, 3).selectExpr(
        "cast(id as string) as value", "id as `i.d`", "id as `i``d`", "id as Value"
    )

    def options(way, **more):
        named = {name.replace("_", "."): value for name, value in more.items()}
        return {"kafka.bootstrap.servers": servers, "topic": f"{prefix}{way}", **named}

    def exactly_once(way, **more):
        return options(
            way,
            delivery_guarantee="exactly-once",
            transactional_id_prefix=f"{prefix}{way}",
            transaction_log_replication_factor=1,
            **more,
        )

    def stream(way, sink):
        files, checkpoint = folder / way, folder / f"{way}-checkpoint"
        files.mkdir()
        frame = spark.readStream.schema("id long").option("maxFilesPerTrigger", 1).json(str(files))
        frame = frame.selectExpr("cast(id as string) as value")
        for first in (0, FILES):
            for number in range(first, first + FILES):
                write_file(files, number)
            writer = frame.writeStream.foreachBatch(sink).trigger(availableNow=True)
            started(writer.option("checkpointLocation", str(checkpoint))).awaitTermination()
            if first == 0 and "once" in way:
                forget_last(checkpoint / "commits")

    def named():
        way = "foreach-exactly-once"
        stream(way, spark_kafka_sink.batch_writer(exactly_once(way, write_id="w")))

    def without_a_name():
        way = "foreach-nameless"
        stream(way, spark_kafka_sink.batch_writer(exactly_once(way)))

    ways = {
        "write": lambda: spark_kafka_sink.write(rows, options("write")),
        "write-exactly-once": lambda: spark_kafka_sink.write(
            rows, exactly_once("write-exactly-once")
        ),
        "foreach": lambda: stream("foreach", spark_kafka_sink.batch_writer(options("foreach"))),
        "foreach-exactly-once": named,
        "foreach-nameless": without_a_name,
    }
    for way, run in ways.items():
        error = None
        try:
            run()
        except Exception as raised:
            error = f"{type(raised).__name__}: {raised}"
        print(json.dumps({"way": way, "error": error}), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
