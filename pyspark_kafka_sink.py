"""Lets Spark find the sink by itself.

Spark imports every top-level module whose name begins with ``pyspark_`` and registers its
``DefaultSource``. An exception here would break the lookup of everybody's Python data sources, so
none leaves this module: with a pyspark that is too old, the sink says so when it is used.

Where Spark looks into another Python, ``pyspark_kafka_sink.register(spark)`` registers the sink.
"""

try:
    from spark_kafka_sink.spark.source import KafkaSinkDataSource as DefaultSource
    from spark_kafka_sink.spark.source import register
except ImportError as error:
    _reason = str(error)

    def register(spark):  # type: ignore[no-untyped-def]
        """Raises: says why the sink cannot be loaded."""
        raise ImportError(_reason)

    try:
        from pyspark.sql.datasource import DataSource
    except ImportError:
        pass  # this Spark has no Python data sources, so it looks for none
    else:

        class DefaultSource(DataSource):  # type: ignore[no-redef]
            """Stands in where the sink cannot be loaded."""

            @classmethod
            def name(cls):  # type: ignore[no-untyped-def]
                """The name to give to ``format()``."""
                return "pykafka-sink"

            def writer(self, schema, overwrite):  # type: ignore[no-untyped-def]
                """Raises: says why the sink cannot be loaded."""
                raise ImportError(_reason)

            def streamWriter(self, schema, overwrite):  # type: ignore[no-untyped-def]  # noqa: N802
                """Raises: says why the sink cannot be loaded."""
                raise ImportError(_reason)


__all__ = ["DefaultSource", "register"]
