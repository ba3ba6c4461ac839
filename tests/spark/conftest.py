"""A Spark session with the sink under test, and Spark's own JVM Kafka sink beside it."""

import itertools

import pytest

from tests.spark.session import spark_session

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def spark():
    with spark_session() as session:
        yield session


@pytest.fixture
def new_topic(kafka):
    """Creates a topic with a name of its own."""

    def create(partitions=3, **configs):
        name = f"spark-{next(_numbers)}"
        kafka.create_topic(
            name, partitions, configs={k.replace("_", "."): v for k, v in configs.items()}
        )
        return name

    return create


@pytest.fixture
def write(kafka):
    """Writes a DataFrame with the sink under test, or with ``format``."""

    def save(frame, topic, sink="pykafka-sink", **options):
        writer = frame.write.format(sink).mode("append")
        writer = writer.option("kafka.bootstrap.servers", kafka.bootstrap_servers)
        if topic is not None:
            writer = writer.option("topic", topic)
        writer.options(**{k.replace("_", "."): v for k, v in options.items()}).save()

    return save


@pytest.fixture
def read_by_spark(spark, kafka):
    """All that is in a topic now, read by Spark's own Kafka source."""

    def read(topic, **options):
        reader = spark.read.format("kafka").option("subscribe", topic)
        reader = reader.option("kafka.bootstrap.servers", kafka.bootstrap_servers)
        return reader.option("includeHeaders", "true").options(**options).load()

    return read
