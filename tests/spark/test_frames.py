"""``spark_kafka_sink.write`` and ``batch_writer``, with the current Spark; others: tests/versions."""

import json

import pyarrow as pa
import pytest

import spark_kafka_sink
from spark_kafka_sink.base.errors import SchemaError
from tests.patience import PATIENCE_S
from tests.reading import read_topic
from tests.spark.rows import mixed_rows
from tests.spark.test_exactly_once import exactly_once, ids
from tests.spark.test_streaming import ROWS_PER_FILE, read_files, write_file
from tests.versions.program import forget_last


@pytest.fixture
def options(kafka, tmp_path):
    """As a user gives them, to a topic."""

    def of(topic, **more):
        address = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": topic}
        return {**address, "metrics.path": str(tmp_path / "metrics.jsonl"), **more}

    return of


def lines(tmp_path):
    text = (tmp_path / "metrics.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def records(kafka, topic):
    """With the partition of keyed ones."""
    read = read_topic(kafka.bootstrap_servers, topic)
    found = [(r.key and r.partition, r.key or b"", r.value or b"", r.headers) for r in read]
    return sorted(found, key=repr)


def test_a_data_frame_is_written_as_by_the_data_source(
    spark, kafka, new_topic, write, options, tmp_path
):
    rows = mixed_rows(spark, 500)
    source, function = new_topic(3), new_topic(3)
    write(rows, source)
    spark_kafka_sink.write(rows, options(function, **{"Kafka.Linger.Ms": 5, "metrics.log": False}))
    assert records(kafka, function) == records(kafka, source)
    spark_kafka_sink.write(rows.filter("ignored < 0"), options(function))
    assert [line["records_acknowledged"] for line in lines(tmp_path)] == [500, 0]
    with pytest.raises(SchemaError, match="Required attribute 'value' not found"):
        spark_kafka_sink.write(rows.select("key"), options(function))
    assert len(records(kafka, function)) == 500


class NamesAsKeys:
    """An interceptor, which finds columns by their names."""

    def on_send(self, arrow_batch):
        names = pa.array(["|".join(arrow_batch.schema.names)] * arrow_batch.num_rows)
        return arrow_batch.set_column(arrow_batch.schema.get_field_index("key"), "key", names)


def test_interceptors_get_columns_by_their_own_names(spark, kafka, new_topic, write, options):
    rows = spark.range(0, 3, 1, 1).selectExpr(
        "cast(id as string) as value", "'' as key", "id as `a.b`"
    )
    source, function, own = new_topic(1), new_topic(1), f"{__name__}:NamesAsKeys"
    write(rows, source, interceptors=own)
    spark_kafka_sink.write(rows, options(function, interceptors=own))
    assert records(kafka, function) == records(kafka, source)
    assert {record[1] for record in records(kafka, function)} == {b"value|key|a.b"}


def test_columns_that_are_not_written_may_have_any_names(spark, kafka, new_topic, write, options):
    names = ("user.id", "us``er", "a", "A", "s", "s.b", "")
    rows = spark.range(0, 3, 1, 1).selectExpr(
        *(f"named_struct('b', id) as `{name}`" for name in names), "cast(id as string) as value"
    )
    source, function = new_topic(1), new_topic(1)
    write(rows, source)
    spark_kafka_sink.write(rows, options(function))
    assert ids(kafka, function) == ids(kafka, source) == [0, 1, 2]


def test_a_micro_batch_that_is_repeated_is_there_once(spark, kafka, new_topic, options, tmp_path):
    topic, folder, checkpoint = new_topic(2), tmp_path / "in", tmp_path / "checkpoint"
    folder.mkdir()
    frame = read_files(spark, folder).repartition(2)

    def run(function, checkpoint=checkpoint):
        writer = frame.writeStream.foreachBatch(function).trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(checkpoint)).start()
        assert query.awaitTermination(PATIENCE_S)

    sink = spark_kafka_sink.batch_writer(options(topic, **exactly_once("frames")))
    write_file(folder, 0)
    run(sink)
    forget_last(checkpoint / "commits")
    write_file(folder, 1)
    run(sink)
    assert ids(kafka, topic) == list(range(2 * ROWS_PER_FILE))
    assert [line["batch_id"] for line in lines(tmp_path)] == [0, 0, 1]
    assert "dropped" in str(lines(tmp_path)[1]["replay"])

    def grouped(df, batch_id):
        """With jobs in a group of its own; then something fails."""
        spark.sparkContext.setJobGroup("the user's own", "")
        sink(df, batch_id)
        assert fine, "something after the sink"

    write_file(folder, 2)
    fine = False
    with pytest.raises(Exception, match="something after the sink"):
        run(grouped)
    fine = True
    run(grouped)
    assert ids(kafka, topic) == list(range(3 * ROWS_PER_FILE))
    assert "dropped" in str(lines(tmp_path)[4]["replay"])

    def twice(df, batch_id):
        sink(df, batch_id)
        sink(df, batch_id)

    write_file(folder, 3)
    with pytest.raises(Exception, match="is written a second time under"):
        run(twice)
    assert ids(kafka, topic) == list(range(4 * ROWS_PER_FILE))

    named, other_topic = exactly_once("frames named", **{"write.id": "w"}), new_topic(1)
    sinks = [
        spark_kafka_sink.batch_writer(options(t, **named)) for t in (new_topic(1), other_topic)
    ]
    with pytest.raises(
        Exception, match="version 0 of write.id 'w' is for topic '.*', and would be"
    ):
        run(lambda df, batch_id: [sink(df, batch_id) for sink in sinks], tmp_path / "named")
    assert ids(kafka, other_topic) == []


def test_a_failed_job_leaves_nothing_visible(spark, kafka, new_topic, options, tmp_path):
    topic = new_topic(1)
    rows = spark.range(0, 2000, 1, 2).selectExpr(
        "cast(id as string) as key",
        "if(id = 1999, cast(raise_error('cannot be computed') as string), cast(id as string)) as value",
    )
    with pytest.raises(Exception, match="cannot be computed"):
        spark_kafka_sink.write(rows, options(topic, **exactly_once("frames failed")))
    assert ids(kafka, topic) == []
    (line,) = lines(tmp_path)
    assert line["event"] == "abort"
    assert "nothing that was not committed before is visible" in str(line["note"])
    assert "tasks" not in line
