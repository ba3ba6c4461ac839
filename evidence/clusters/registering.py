"""A client of Spark Connect that prints what a write and ``register`` say."""

from pyspark.sql import SparkSession

import pyspark_kafka_sink


def main():
    spark = SparkSession.builder.getOrCreate()
    rows = spark.range(1).selectExpr("cast(id as string) value")
    try:
        rows.write.format("pykafka-sink").mode("append").save()
    except Exception as error:
        print(error)
    try:
        pyspark_kafka_sink.register(spark)
    except Exception as error:
        print(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
