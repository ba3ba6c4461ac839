"""The Spark data source: what ``format("pykafka-sink")`` stands for.

Example::

    df.selectExpr("CAST(id AS STRING) AS key", "to_json(struct(*)) AS value") \\
        .write.format("pykafka-sink") \\
        .option("kafka.bootstrap.servers", "broker:9092") \\
        .option("topic", "flights") \\
        .mode("append") \\
        .save()

Required option: ``kafka.bootstrap.servers``; and ``topic``, unless there is a topic column.
Columns: value (required), key, headers, topic, partition, timestamp. docs/options.md has all
options.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

try:
    import pyspark
except ImportError as error:
    raise ImportError(
        "pykafka-sink needs pyspark 4.1 or newer, and there is none: "
        "pip install 'pykafka-sink[spark]'"
    ) from error

from spark_kafka_sink.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from spark_kafka_sink.columns.plan import ColumnPlan
    from spark_kafka_sink.config.sink_options import SinkOptions
    from spark_kafka_sink.writer import KafkaBatchWriter, KafkaStreamWriter

NAME = "pykafka-sink"
_OLDEST_PYSPARK = (4, 1)

_found = tuple(int(part) for part in pyspark.__version__.split(".")[:2])
if _found < _OLDEST_PYSPARK:
    raise ImportError(
        f"pykafka-sink needs pyspark 4.1 or newer, for Arrow stream writers; this is pyspark "
        f"{pyspark.__version__}"
    )

from pyspark.sql.datasource import DataSource  # noqa: E402


class KafkaSinkDataSource(DataSource):
    """Writes DataFrames and streams to Apache Kafka."""

    @classmethod
    def name(cls) -> str:
        """The name to give to ``format()``."""
        return NAME

    def schema(self) -> StructType:
        """Raises: this source cannot be read from."""
        raise ConfigError(f"'{NAME}' only writes. To read from Kafka, use Spark's format('kafka').")

    def writer(self, schema: StructType, overwrite: bool) -> KafkaBatchWriter:
        """The writer of one batch write, after everything that can be checked now is checked."""
        from spark_kafka_sink.writer import KafkaBatchWriter

        if overwrite:
            raise ConfigError(
                "Save mode Overwrite not allowed for Kafka. Allowed save modes are Append and "
                "ErrorIfExists (default)."
            )
        return KafkaBatchWriter(*self._checked(schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> KafkaStreamWriter:  # noqa: N802
        """The writer of one micro-batch. Output mode complete arrives as ``overwrite``; as with
        Spark's own sink, its rows are appended.
        """
        from spark_kafka_sink.writer import KafkaStreamWriter

        return KafkaStreamWriter(*self._checked(schema))

    def _checked(self, schema: StructType) -> tuple[SinkOptions, ColumnPlan]:
        """Options and columns, or the error that says what is wrong with them."""
        from spark_kafka_sink.columns.input_schema import plan_columns
        from spark_kafka_sink.config.sink_options import SinkOptions
        from spark_kafka_sink.preflight import check_cluster

        options = SinkOptions.parse(dict(self.options))
        plan = plan_columns(schema, options.topic)
        check_cluster(options)
        return options, plan
