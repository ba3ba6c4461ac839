"""The quickstart of README.md: a real Kafka on this machine, rows written, records read back."""

import sys

from pyspark.sql import SparkSession

import spark_kafka_sink
from spark_kafka_sink.jobs.progress import Steps
from spark_kafka_sink.localkafka import LocalKafka

step = Steps(out=sys.stderr).step  # shows each step and its time
with step("Starting Spark"):
    builder = SparkSession.builder.master("local[2]")
    spark = spark_kafka_sink.configure(builder).getOrCreate()  # its workers run this Python
with LocalKafka(step=step) as kafka:  # a real broker; its data are removed at the end
    kafka.create_topic("numbers")
    options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "value.format": "json"}
    with step("Writing 1,000 rows"):
        sink = spark.range(1000).coalesce(1).write.format("pykafka-sink").mode("append")
        sink.options(**options).save(topic="numbers")
    reader = ["--bootstrap-server", kafka.bootstrap_servers, "--topic", "numbers"]
    print(kafka.run_tool("ConsoleConsumer", *reader, "--from-beginning", "--max-messages", "5"))
