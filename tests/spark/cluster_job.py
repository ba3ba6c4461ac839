"""Run by test_cluster.py: a batch and a stream on two executor JVMs of one machine."""

import sys

from pyspark.sql import SparkSession


def main(bootstrap_servers, topic, folder):
    spark = (
        SparkSession.builder.master("local-cluster[2,1,600]")
        # It runs for a minute: Java's slower compiler would take half of the CPU.
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1")
        .config("spark.executor.extraJavaOptions", "-XX:TieredStopAtLevel=1")
        .config("spark.ui.enabled", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.executor.memory", "600m")
        .getOrCreate()
    )
    options = {"kafka.bootstrap.servers": bootstrap_servers, "topic": topic}
    rows = spark.range(0, 20_000, 1, 4).selectExpr(
        "cast(id as string) key", "cast(id as string) value"
    )
    rows.write.format("pykafka-sink").options(**options).mode("append").save()
    query = (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", 1000)
        .option("numPartitions", 4)
        .load()
        .selectExpr("cast(value + 20000 as string) key", "cast(value + 20000 as string) value")
        .writeStream.format("pykafka-sink")
        .options(**options)
        .option("checkpointLocation", f"{folder}/checkpoint")
        .start()
    )
    while len(query.recentProgress) < 5:
        query.awaitTermination(1)
    query.stop()
    executors = spark.sparkContext._jsc.sc().statusTracker().getExecutorInfos()
    print("executors:", len(executors) - 1)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
