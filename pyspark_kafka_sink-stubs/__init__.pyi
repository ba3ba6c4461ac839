# Type checkers take types from packages only; pyspark_kafka_sink.py is a module.
from spark_kafka_sink.spark.source import KafkaSinkDataSource as DefaultSource
from spark_kafka_sink.spark.source import register as register

__all__ = ["DefaultSource", "register"]
