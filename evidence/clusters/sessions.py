"""A client of Spark Connect with two sessions that write at the same time.

python sessions.py BOOTSTRAP_SERVERS TOPIC_OF_0 TOPIC_OF_1 FOLDER
"""

import os
import sys
import threading

from pyspark.sql import SparkSession

WRITES, ROWS = 3, 200


def write(number, servers, topic, folder):
    """In a session of its own. Its options are those of this session's writes alone."""
    spark = SparkSession.builder.remote(os.environ["SPARK_REMOTE"]).create()
    for start in range(0, WRITES * ROWS, ROWS):
        rows = spark.range(start, start + ROWS, 1, 2).selectExpr(
            "cast(id as string) value",
            f"array(struct('session' as key, cast('{number}' as binary) as value)) headers",
        )
        writer = rows.write.format("pykafka-sink").mode("append")
        writer = writer.option("kafka.bootstrap.servers", servers).option("topic", topic)
        writer = writer.option("kafka.compression.type", ("lz4", "zstd")[number])
        writer.option("metrics.path", f"{folder}/session-{number}.jsonl").save()
    spark.stop()


def main():
    servers, *topics, folder = sys.argv[1:]
    failures = []

    def attempt(number, topic):
        try:
            write(number, servers, topic, folder)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=attempt, args=item) for item in enumerate(topics)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


if __name__ == "__main__":
    main()
