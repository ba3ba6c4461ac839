"""The Spark data source: what ``format("pykafka-sink")`` stands for.

Example::

    df.selectExpr("CAST(id AS STRING) AS key", "to_json(struct(*)) AS value") \\
        .write.format("pykafka-sink") \\
        .option("kafka.bootstrap.servers", "broker:9092") \\
        .option("topic", "flights") \\
        .mode("append") \\
        .save()

Required option: ``kafka.bootstrap.servers``; and ``topic``, unless there is a topic column.
Columns: value, key, headers, topic, partition, timestamp; or any, of which ``value.format`` makes a
value: docs/formats.md. docs/options.md has all options.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.base.secret import Secret
from spark_kafka_sink.spark.planning import (
    PlanningTime,
    check_surroundings,
    parse_options,
    plan_schemas,
    plan_transactions,
)
from spark_kafka_sink.spark.versions import DataSource, require_data_sources

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from spark_kafka_sink.config.sink_options import SinkOptions
    from spark_kafka_sink.spark.row_planning import PlannedRows
    from spark_kafka_sink.spark.writer import KafkaBatchWriter, KafkaStreamWriter

NAME = "pykafka-sink"

require_data_sources()


class KafkaSinkDataSource(DataSource):
    """Writes DataFrames and streams to Apache Kafka."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        # Spark makes the instance that plans, and unpickles the one that commits: only before the
        # tasks may planning take the transactional ids.
        self._plans = True

    def __getstate__(self) -> dict[str, Any]:
        masked = [(name, Secret(value)) for name, value in self.options.items()]
        return {**self.__dict__, "options": (type(self.options), masked), "_plans": False}

    def __setstate__(self, state: dict[str, Any]) -> None:
        made, masked = state["options"]
        options = made({name: value.reveal() for name, value in masked})
        self.__dict__.update({**state, "options": options})

    @classmethod
    def name(cls) -> str:
        """The name to give to ``format()``."""
        return NAME

    def schema(self) -> StructType:
        """Raises: this source cannot be read from."""
        raise ConfigError(f"'{NAME}' only writes. To read from Kafka, use Spark's format('kafka').")

    def writer(self, schema: StructType, overwrite: bool) -> KafkaBatchWriter:
        """The writer of one batch write, after everything that can be checked now is checked."""
        from spark_kafka_sink.spark.writer import KafkaBatchWriter

        time = PlanningTime()
        if overwrite:
            raise ConfigError(
                "Save mode Overwrite not allowed for Kafka. The only save mode that Spark and this "
                'sink both allow is Append: .mode("append").'
            )
        options, rows = self._checked(schema, is_stream=False)
        plan = plan_transactions(options, is_job=True)
        return KafkaBatchWriter(options, rows.positions, plan, time.until_now(), rows.plan)

    def streamWriter(self, schema: StructType, overwrite: bool) -> KafkaStreamWriter:  # noqa: N802
        """The writer of one micro-batch. Output mode complete arrives as ``overwrite``; as with
        Spark's own sink, its rows are appended.
        """
        from spark_kafka_sink.spark.writer import KafkaStreamWriter

        time = PlanningTime()
        options, rows = self._checked(schema, is_stream=True)
        transactions = plan_transactions(options, is_job=False) if self._plans else None
        planned = time.until_now() if self._plans else None
        return KafkaStreamWriter(options, rows.positions, transactions, planned, rows.plan)

    def _checked(self, schema: StructType, is_stream: bool) -> tuple[SinkOptions, PlannedRows]:
        """Options and columns, or the error that says what is wrong with them or the cluster."""
        from spark_kafka_sink.spark.row_planning import plan_rows
        from spark_kafka_sink.spark.worker import freeze_loaded

        options = parse_options(dict(self.options))
        rows = plan_rows(schema, options)
        if self._plans:  # else everything is written, and only the commit is missing
            options = check_surroundings(options, is_stream)
            # The process that starts those that plan, and ends with the driver.
            owner = os.getppid()
            rows, options = plan_schemas(rows, options, owner if is_stream else None, is_stream)
        freeze_loaded()
        return options, rows
