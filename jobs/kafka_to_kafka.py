"""Kafka to Kafka, each record exactly once: read topics, transform their records, write them.

    spark-submit --properties-file conf/kafka-to-kafka.conf jobs/kafka_to_kafka.py \\
        --bootstrap-servers broker:9092 --input orders --topic orders-by-customer \\
        --select "get_json_object(CAST(value AS STRING), '$.customer') AS key, value" \\
        --checkpoint /checkpoints/orders-by-customer

The job reads with Spark's own Kafka source, which needs --packages
org.apache.spark:spark-sql-kafka-0-10_2.13:<version of Spark>. The checkpoint holds the offsets that
were read, not a consumer group. docs/exactly-once.md explains what makes the job exactly once.

--select and --where are SQL over the source's columns: key and value (both binary), topic,
partition, offset, timestamp, timestampType, headers. A selected column timestamp becomes the
record's timestamp, unless --timestamp-column or --value-format is given. Any option of the source
may be given as --reader-option, e.g. startingOffsets=earliest. Every setting may stand in the
properties file instead: spark.pykafka.job.select, spark.pykafka.job.reader.startingOffsets, …

Ctrl-C and SIGTERM stop the stream after the micro-batch in progress. If it starts again with the
same checkpoint, it continues there.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.config.security_config import for_java_client
from spark_kafka_sink.jobs.settings import JobArguments, JobSettings
from spark_kafka_sink.jobs.streams import declare_stream, run_stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BOOTSTRAP_SERVERS = "kafka.bootstrap.servers"
SECURITY_PROTOCOL = "kafka.security.protocol"
# Omit topic and partition, because the rows would return to their input topic.
DEFAULT_SELECT = "key, value, headers, timestamp"


def declare_arguments() -> JobArguments:
    """Return the job's arguments."""
    arguments = JobArguments("Read topics, transform their records, write them to Kafka.")
    arguments.add("input", "topics to read, separated by commas")
    arguments.add("select", f"columns to write, as SQL (default: {DEFAULT_SELECT})")
    arguments.add("where", "records to write, as an SQL condition (default: all)")
    declare_stream(arguments)
    arguments.add("max_offsets", "offsets per micro-batch at most (default: all there are)")
    return arguments


def read_stream(spark: SparkSession, settings: JobSettings) -> DataFrame:
    """Return the stream of the input topics.

    By default the job reads committed records of the cluster that it writes to, with the same
    security settings. A reader with its own servers or protocol needs its own settings.
    """
    from pyspark.errors import AnalysisException

    defaults = {"includeHeaders": "true", "kafka.isolation.level": "read_committed"}
    if BOOTSTRAP_SERVERS in settings.sink_options:
        defaults[BOOTSTRAP_SERVERS] = settings.sink_options[BOOTSTRAP_SERVERS]
    if not {BOOTSTRAP_SERVERS, SECURITY_PROTOCOL} & settings.reader_options.keys():
        defaults.update(for_java_client(settings.sink_options))
    max_offsets = settings.count("max_offsets")
    if max_offsets is not None:
        defaults["maxOffsetsPerTrigger"] = max_offsets
    reader = spark.readStream.format("kafka").options(**{**defaults, **settings.reader_options})
    reader = reader.option("subscribe", settings.require("input"))
    try:
        return reader.load()
    except AnalysisException as error:
        if "Failed to find data source" not in str(error):
            raise
        raise ConfigError(
            "Spark's own Kafka source is not there, which this job reads with: spark-submit "
            f"--packages org.apache.spark:spark-sql-kafka-0-10_2.13:{spark.version}",
            code="JOB-005",
        ) from error


def transform(rows: DataFrame, settings: JobSettings) -> DataFrame:
    """Return the rows to write. Put your own code here."""
    from pyspark.errors import AnalysisException

    rows.createOrReplaceTempView("records")
    select, where = settings.get("select", DEFAULT_SELECT), settings.get("where", "true")
    try:
        return rows.sparkSession.sql(f"SELECT {select} FROM records WHERE {where}")
    except AnalysisException as error:
        text = f"--select or --where: {str(error).splitlines()[0]}"
        raise ConfigError(text, code="JOB-004") from error


def with_timestamp(rows: DataFrame, settings: JobSettings) -> JobSettings:
    """Return the settings with the sink's option that writes a selected column ``timestamp``."""
    given = {name.lower() for name in settings.sink_options}
    if "timestamp" not in rows.columns or given & {"timestamp.column", "value.format"}:
        return settings
    options = {**settings.sink_options, "timestamp.column": "timestamp"}
    return replace(settings, sink_options=options)


def run(spark: SparkSession, settings: JobSettings) -> int:
    """Stream until the input ends (available-now) or a stop is requested."""
    records = transform(read_stream(spark, settings), settings)
    return run_stream("kafka_to_kafka", records, with_timestamp(records, settings))


def main() -> int:
    """Return the exit status: 0 for a stop as requested, 1 for a failure, 2 for wrong settings."""
    return declare_arguments().run("kafka_to_kafka", run)


if __name__ == "__main__":
    sys.exit(main())
