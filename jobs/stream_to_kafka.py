"""Stream files into a Kafka topic.

Every row becomes a value, as JSON or in another format, and one of its columns may be the key.

    spark-submit --properties-file conf/demo.conf jobs/stream_to_kafka.py --input /data/flights

The stream also processes files that appear under --input later. Every setting may stand in the
properties file instead: spark.pykafka.job.input, spark.pykafka.topic,
spark.pykafka.kafka.bootstrap.servers, …

Ctrl-C and SIGTERM stop the stream after the micro-batch in progress. If it starts again with the
same checkpoint, it continues there.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from spark_kafka_sink.jobs.file_lag import FileLag
from spark_kafka_sink.jobs.records import (
    declare_input,
    file_format,
    input_schema,
    with_record_options,
)
from spark_kafka_sink.jobs.settings import JobArguments, JobSettings
from spark_kafka_sink.jobs.streams import declare_stream, run_stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def declare_arguments() -> JobArguments:
    """Return the job's arguments."""
    arguments = JobArguments("Stream files into a Kafka topic, as JSON or another format.")
    declare_input(arguments)
    declare_stream(arguments)
    arguments.add("max_files", "files per micro-batch at most (default: all there are)")
    return arguments


def read_stream(spark: SparkSession, settings: JobSettings) -> DataFrame:
    """Return the stream of the input files."""
    reader = (
        spark.readStream.format(file_format(settings))
        .schema(input_schema(spark, settings))
        .options(**settings.reader_options)
    )
    max_files = settings.count("max_files")
    if max_files is not None:
        reader = reader.option("maxFilesPerTrigger", max_files)
    return reader.load(settings.require("input"))


def run(spark: SparkSession, settings: JobSettings) -> int:
    """Stream until the input ends (available-now) or a stop is requested."""
    rows = read_stream(spark, settings)
    settings = with_record_options(rows, settings)
    lag = FileLag(spark, settings.require("input"), settings.require("checkpoint"))
    return run_stream("stream_to_kafka", rows, settings, lag)


def main() -> int:
    """Return the exit status: 0 for a stop as requested, 1 for a failure, 2 for wrong settings."""
    return declare_arguments().run("stream_to_kafka", run)


if __name__ == "__main__":
    sys.exit(main())
