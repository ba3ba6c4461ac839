"""Write files to a Kafka topic once.

Every row becomes a value, as JSON or in another format, and one of its columns may be the key.

    spark-submit --properties-file conf/throughput.conf jobs/batch_to_kafka.py \\
        --input /data/flights --topic flights --key dest

Every setting may stand in the properties file instead: spark.pykafka.job.input,
spark.pykafka.topic, spark.pykafka.kafka.bootstrap.servers, … Ctrl-C and SIGTERM cancel the write;
records written until then stay in the topic.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from spark_kafka_sink.base.clock import SystemClock
from spark_kafka_sink.jobs.records import (
    declare_input,
    file_format,
    input_schema,
    with_record_options,
)
from spark_kafka_sink.jobs.settings import JobArguments, JobSettings
from spark_kafka_sink.jobs.shutdown import GracefulStop
from spark_kafka_sink.jobs.watched import CancellableAction

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def declare_arguments() -> JobArguments:
    """Return the job's arguments."""
    arguments = JobArguments("Write files to a Kafka topic, as JSON or another format.")
    declare_input(arguments)
    return arguments


def run(spark: SparkSession, settings: JobSettings) -> int:
    """Write all rows, or cancel the write if a stop is requested."""
    from spark_kafka_sink.jobs.failures import EXIT_FAILED, EXIT_OK, SPARK_ERRORS, report

    rows = (
        spark.read.format(file_format(settings))
        .schema(input_schema(spark, settings))
        .options(**settings.reader_options)
        .load(settings.require("input"))
    )
    settings = with_record_options(rows, settings)
    writer = rows.write.format("pykafka-sink").options(**settings.sink_options).mode("append")
    with GracefulStop(spark) as stop:
        write = CancellableAction(spark, stop, SystemClock())
        try:
            write.run(writer.save)
        except SPARK_ERRORS as error:
            if not write.was_cancelled:
                return report("batch_to_kafka", error, "the write failed: ")
            cancelled = "batch_to_kafka: cancelled; what was written stays in the topic"
            print(cancelled, file=sys.stderr)
            return EXIT_FAILED
    return EXIT_OK


def main() -> int:
    """Return the exit status: 0 for success, 1 for a failed write, 2 for wrong settings."""
    return declare_arguments().run("batch_to_kafka", run)


if __name__ == "__main__":
    sys.exit(main())
