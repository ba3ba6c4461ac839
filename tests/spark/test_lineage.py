"""Lineage of a real Spark with a real broker, by the client's file transport."""

import json
from importlib.util import find_spec
from uuid import uuid4

import pytest

import spark_kafka_sink
from tests.lineage import events_in, kinds, outputs_of
from tests.patience import PATIENCE_S, eventually
from tests.reading import read_topic
from tests.spark.session import LINEAGE
from tests.spark.test_streaming import ROWS_PER_FILE, read_files, start, write_file

pytestmark = [
    pytest.mark.timeout(1800),
    pytest.mark.skipif(
        find_spec("openlineage") is None, reason="openlineage-python is not installed"
    ),
]

ON = {"metrics.openlineage.enable": "true"}
PARENT = {"parentRunId": str(uuid4()), "parentJobNamespace": "airflow", "parentJobName": "dag.task"}


@pytest.fixture
def sent(tmp_path):
    """Returns the events of a topic, once they have these kinds. On a slow machine RUNNING repeats."""
    path = tmp_path / "events"
    transport = {"type": "file", "log_file_path": str(path), "append": True}
    LINEAGE.parent.mkdir(exist_ok=True)
    LINEAGE.write_text(json.dumps({"transport": transport}), encoding="utf-8")

    def events(topic, *wanted):
        def found():
            mine = [event for event in events_in(path) if topic in outputs_of(event)]
            return [e for n, e in enumerate(mine) if kinds([e]) != kinds(mine[n - 1 : n])]

        assert eventually(lambda: kinds(found()) == list(wanted)), kinds(found())
        return found()

    yield events
    LINEAGE.unlink()
    LINEAGE.parent.rmdir()


@pytest.fixture
def _parent(spark):
    for name, value in PARENT.items():
        spark.conf.set(f"spark.openlineage.{name}", value)
    yield
    for name in PARENT:
        spark.conf.unset(f"spark.openlineage.{name}")


@pytest.mark.usefixtures("_parent")
def test_a_job_with_dead_letters(spark, kafka, new_topic, write, sent, tmp_path):
    topic, letters, metrics = new_topic(), new_topic(), tmp_path / "metrics.jsonl"
    is_bad = "id = 7"
    rows = spark.range(10).selectExpr(
        "cast(id as string) as value",
        f"if({is_bad}, timestamp_millis(-1), null) as timestamp",
        "id as unused",
    )
    dead = {"errors.tolerance": "all", "errors.deadletterqueue.topic.name": letters}
    dead |= {"errors.deadletterqueue.max.ratio": "1", "timestamp.column": "timestamp"}
    write(rows, topic, **ON, **dead, **{"metrics.path": str(metrics)})
    _, complete = sent(topic, "START", "COMPLETE")
    line = json.loads(metrics.read_text(encoding="utf-8"))
    assert outputs_of(complete) == {
        name: (count, line["topics"][name]["compressed_bytes"])
        for name, count in ((topic, 9), (letters, 1))
    }
    data = complete["outputs"][0]
    assert data["namespace"] == f"kafka://{kafka.bootstrap_servers}"
    fields = [(one["name"], one["type"]) for one in data["facets"]["schema"]["fields"]]
    assert fields == [("value", "string"), ("timestamp", "timestamp")]
    parent = complete["run"]["facets"]["parent"]
    assert parent["run"] == {"runId": PARENT["parentRunId"]}
    assert len(read_topic(kafka.bootstrap_servers, topic)) == 9


def test_a_job_whose_tasks_fail(spark, new_topic, write, sent):
    topic = new_topic()
    with pytest.raises(Exception, match="wrong"):
        write(
            spark.range(1).selectExpr("cast(raise_error('wrong') as string) as value"), topic, **ON
        )
    events = sent(topic, "START", "FAIL")
    assert "wrong" not in json.dumps(events)


def test_a_query_from_its_start_to_its_end_and_to_its_failure(
    spark, kafka, new_topic, sent, tmp_path
):
    spark_kafka_sink.metrics.follow_lineage(spark)
    topic, folder, checkpoint = new_topic(), tmp_path / "in", tmp_path / "checkpoint"
    folder.mkdir()
    for number in range(3):
        write_file(folder, number)
    query = start(read_files(spark, folder), kafka, topic, checkpoint, **ON)
    assert query.awaitTermination(PATIENCE_S)
    events = sent(topic, "START", "RUNNING", "COMPLETE")
    assert len({event["run"]["runId"] for event in events}) == 1
    counts = [outputs_of(event)[topic] for event in events]
    assert [count and count[0] for count in counts] == [None, ROWS_PER_FILE, 3 * ROWS_PER_FILE]

    write_file(folder, 3)
    broken = read_files(spark, folder).selectExpr("cast(raise_error(value) as string) as value")
    with pytest.raises(Exception, match="60"):
        start(broken, kafka, topic, checkpoint, **ON).awaitTermination(PATIENCE_S)
    events = sent(topic, "START", "RUNNING", "COMPLETE", "START", "FAIL")[3:]
    assert events[0]["job"] == events[1]["job"]


def test_foreach_batch(spark, kafka, new_topic, sent, tmp_path):
    spark_kafka_sink.metrics.follow_lineage(spark)
    topic, folder = new_topic(), tmp_path / "in"
    folder.mkdir()
    for number in range(2):
        write_file(folder, number)
    servers = {"kafka.bootstrap.servers": kafka.bootstrap_servers}
    sink = spark_kafka_sink.batch_writer({**servers, "topic": topic, **ON})
    query = read_files(spark, folder).writeStream.foreachBatch(sink).queryName("lineage")
    query = query.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True)
    assert query.start().awaitTermination(PATIENCE_S)
    events = sent(topic, "START", "RUNNING", "COMPLETE")
    assert events[2]["job"]["name"].endswith(f".lineage.{topic}")
    assert outputs_of(events[2])[topic][0] == 2 * ROWS_PER_FILE
