"""Where Spark does not find the sink by itself, and what helps there."""

import threading

import pytest
from pyspark import InheritableThread

import pyspark_kafka_sink
from tests.reading import read_topic
from tests.spark.fresh_python import FreshPython

# Some start Kafka and Spark of their own, and compile: on a busy machine that takes minutes.
pytestmark = pytest.mark.timeout(1800)

NOT_FOUND = "[DATA_SOURCE_NOT_FOUND] Failed to find the data source: pykafka-sink."

STARTED_WITHOUT_PYSPARK_PYTHON = """
from pyspark.sql import SparkSession

import pyspark_kafka_sink

builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
spark = builder.config("spark.log.level", "ERROR").getOrCreate()
rows = spark.range(10).selectExpr("CAST(id AS STRING) AS value")
writer = rows.write.format("pykafka-sink").mode("append").option("topic", "{topic}")
writer = writer.option("kafka.bootstrap.servers", "{servers}")
try:
    writer.save()
except Exception as error:
    print(error)
pyspark_kafka_sink.register(spark)
writer.save()
print("the interpreter of everything else is still", spark.sparkContext.pythonExec)
"""


class Errors(list[BaseException]):
    """What was raised in threads."""

    def run(self, thread_class, *steps):
        """Call ``steps``, one after the other, in a thread of their own."""
        thread = thread_class(target=self._call, args=steps)
        thread.start()
        thread.join()

    def _call(self, *steps):
        try:
            for step in steps:
                step()
        except Exception as error:
            self.append(error)


@pytest.mark.parametrize("thread_class", [threading.Thread, InheritableThread])
def test_a_thread_finds_the_sink_after_register(spark, kafka, new_topic, write, thread_class):
    topic, errors = new_topic(1), Errors()
    rows = spark.range(10).selectExpr("CAST(id AS STRING) AS value")
    errors.run(thread_class, lambda: write(rows, topic))
    (error,) = errors
    assert NOT_FOUND in str(error)
    assert read_topic(kafka.bootstrap_servers, topic) == []
    errors.clear()
    errors.run(thread_class, lambda: pyspark_kafka_sink.register(spark), lambda: write(rows, topic))
    assert errors == []
    records = read_topic(kafka.bootstrap_servers, topic)
    assert sorted(r.value for r in records) == [b"%d" % number for number in range(10)]


def test_a_stream_started_in_a_thread_finds_the_sink_after_register(
    spark, kafka, new_topic, tmp_path
):
    topic, errors = new_topic(1), Errors()
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "rows.txt").write_text("a\nb\n", encoding="utf-8")

    def stream():
        query = (
            spark.readStream.text(str(tmp_path / "in"))
            .writeStream.format("pykafka-sink")
            .option("kafka.bootstrap.servers", kafka.bootstrap_servers)
            .option("topic", topic)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    errors.run(threading.Thread, lambda: pyspark_kafka_sink.register(spark), stream)
    assert errors == []
    assert sorted(r.value for r in read_topic(kafka.bootstrap_servers, topic)) == [b"a", b"b"]


@pytest.mark.long
def test_a_running_session_with_another_python_finds_the_sink_after_register(
    kafka, new_topic, tmp_path
):
    topic, script = new_topic(1), tmp_path / "write.py"
    code = STARTED_WITHOUT_PYSPARK_PYTHON.format(topic=topic, servers=kafka.bootstrap_servers)
    script.write_text(code, encoding="utf-8")
    done = FreshPython.create(tmp_path).run(script)
    assert done.returncode == 0, done.stderr
    assert NOT_FOUND in done.stdout
    assert "the interpreter of everything else is still python3" in done.stdout
    assert len(read_topic(kafka.bootstrap_servers, topic)) == 10
