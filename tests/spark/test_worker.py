"""What the sink does to Spark's Python processes."""

import gc

import pyarrow as pa

from tests.reading import read_topic

FEW_OBJECTS = 20_000
"""A worker that has written: with numba and pandas loaded it has about 170,000."""


class CountObjects:
    """An interceptor: values become the number of objects that a collection walks over."""

    def on_send(self, arrow_batch):
        count = str(len(gc.get_objects())).encode()
        values = pa.array([count] * arrow_batch.num_rows, pa.binary())
        return pa.RecordBatch.from_arrays([values], schema=arrow_batch.schema)


def test_a_collection_after_a_task_walks_over_few_objects(spark, kafka, write):
    """Spark makes one after each task; the next one of the worker waits for it."""
    frame = spark.range(0, 20, 1, 4).selectExpr("CAST(CAST(id AS STRING) AS BINARY) AS value")
    topic = "collections"
    kafka.create_topic(topic, 1)
    for _ in range(2):
        write(
            frame,
            topic,
            interceptors=f"{__name__}:CountObjects",
            kafka_connections_max_idle_ms="1000",
        )
    counts = [int(read.value) for read in read_topic(kafka.bootstrap_servers, topic) if read.value]
    assert len(counts) == 40
    assert max(counts) < FEW_OBJECTS, counts
