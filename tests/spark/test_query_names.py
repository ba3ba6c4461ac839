"""``{query}`` in ``transactional.id.prefix``: the name that Spark has for what writes."""

import json
from threading import Thread

import pytest

import spark_kafka_sink
from evidence.harness.scene import transactional_ids
from spark_kafka_sink.__main__ import main
from tests.patience import PATIENCE_S
from tests.spark.test_exactly_once import AS_RECORDS, exactly_once, ids, numbers
from tests.spark.test_streaming import ROWS_PER_FILE, read_files, write_file

pytestmark = pytest.mark.timeout(1800)


@pytest.fixture
def folder(tmp_path):
    """Of files for streams."""
    folder = tmp_path / "in"
    folder.mkdir()
    write_file(folder, 0)
    return folder


@pytest.fixture
def start(spark, kafka, new_topic, tmp_path, folder):
    """Starts a query of that name, with the data source or in foreachBatch, and awaits its end."""
    topic = new_topic(1)

    def run(name, function=None, **more):
        options = {
            "kafka.bootstrap.servers": kafka.bootstrap_servers,
            "topic": topic,
            **exactly_once("named-{query}", **more),
        }
        writer = read_files(spark, folder).writeStream.trigger(availableNow=True)
        writer = writer.option("checkpointLocation", str(tmp_path / f"checkpoint-{name}"))
        writer = writer if name is None else writer.queryName(name)
        if function is None:
            writer = writer.format("pykafka-sink").options(**options)
        else:
            writer = writer.foreachBatch(function(spark_kafka_sink.batch_writer(options)))
        assert writer.start().awaitTermination(PATIENCE_S)

    run.topic = topic
    return run


def in_a_thread(write):
    """A function for foreachBatch that writes in a thread of the user's."""

    def call(frame, batch_id):
        failed = []

        def work():
            try:
                write(frame, batch_id)
            except Exception as error:
                failed.append(error)

        thread = Thread(target=work)
        thread.start()
        thread.join()
        if failed:
            raise failed[0]

    return call


def test_queries_with_one_set_of_options(kafka, start, tmp_path, capsys):
    """Also in foreachBatch, where the sink's report has the name, too."""
    metrics = tmp_path / "metrics.jsonl"
    for name, function in (("a", None), ("late.b", None), ("each", lambda write: write)):
        start(name, function, **{"metrics.path": str(metrics)})
    assert ids(kafka, start.topic) == sorted([*range(ROWS_PER_FILE)] * 3)
    lines = [json.loads(line) for line in metrics.read_text(encoding="utf-8").splitlines()]
    assert [line["query_name"] for line in lines] == ["a", "late.b", "each"]
    prefixes = {"named-a", "named-late.b", "named-each"}
    names = {name.rpartition(".driver")[0] for name in transactional_ids(kafka)}
    assert prefixes <= names
    command = ["transactions", "list", "--bootstrap-server", kafka.bootstrap_servers]
    assert main(command) == 0
    listed = capsys.readouterr().out
    assert all(prefix in listed for prefix in prefixes)
    assert "{query}" not in listed


@pytest.mark.parametrize(
    ("name", "function", "words"),
    [
        (None, None, r"'named-{query}' needs the name of a query, and this query has none"),
        (None, lambda write: write, "this query has none"),
        ("thread", in_a_thread, "a thread of your own does not tell it"),
        ("two\nlines", None, r"has a character that cannot be printed"),
    ],
)
def test_queries_whose_name_is_not_known_or_not_fit(start, name, function, words):
    with pytest.raises(Exception, match=rf"{words}.*\[PKS-TXN-03[78]\]"):
        start(name, function)


def test_a_job_has_no_query(spark, write, new_topic):
    """An option queryName is none of Spark's there."""
    frame = numbers(spark, 1).selectExpr(*AS_RECORDS)
    with pytest.raises(Exception, match=r"a batch job is no query.*\[PKS-TXN-037\]"):
        write(frame, new_topic(1), queryName="mine", **exactly_once("named-{query}"))
