"""The fixtures of the tests with Spark."""

from tests.spark.conftest import new_topic, read_by_spark, spark, write  # noqa: F401
