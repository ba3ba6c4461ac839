# Type checkers take types from packages only; pyspark_kafka_sink.py is a module.
from spark_kafka_sink.spark.registration import register as register
from spark_kafka_sink.spark.source import KafkaSinkDataSource as DefaultSource

__all__ = ["DefaultSource", "register"]
