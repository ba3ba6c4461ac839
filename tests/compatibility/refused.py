"""What does not work, and why, as docs/compatibility.md gives it."""

NOT_IN_3_5 = (
    "Spark 3.5 has no data sources in Python that write: foreachBatch with "
    "`spark_kafka_sink.batch_writer` writes streams"
)
"""Of streams, wherever Spark 3.5 runs; tests see that Spark refuses them."""

IN_SPARK = {}
"""(Spark, where, what) -> why it does not work. Words of where and what: results.py."""

IN_BROKERS = {}
"""(Kafka, what) -> why it does not work. Words of what: table.py."""
