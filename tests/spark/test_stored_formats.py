"""What the first format that is kept has stored is read and continued: checkpoints, decisions, dead
letters, lines of metrics.

``stored/`` was written with Spark 4.3.0 and Kafka 4.3.0: an exactly-once query of four micro-batches,
by the commit that gave the decision log's record format 2, and a job with four dead letters, by 0.1.0.
Only its folder is named ``/stored`` there.
"""

import json
import re
from pathlib import Path

import pytest
from confluent_kafka import Producer

from spark_kafka_sink.__main__ import main
from tests.patience import PATIENCE_S
from tests.reading import read_topic
from tests.spark.test_exactly_once import exactly_once, ids
from tests.spark.test_streaming import ROWS_PER_FILE, read_files, start, write_file

STORED = Path(__file__).parent / "stored"
FILES = 4
"""As many micro-batches are in the checkpoint, each of one file."""


def write_again(kafka, name, topic, folder="/stored", **settings):
    """Write the records of a file into ``topic``; in a transaction where ``settings`` name its id.

    folder: in the place of ``/stored``, as a query is known by the folder of its checkpoint
    """
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, **settings})
    if settings:
        producer.init_transactions(PATIENCE_S)
        producer.begin_transaction()
    for line in (STORED / name).read_text(encoding="utf-8").splitlines():
        record = json.loads(line.replace("/stored", folder))
        headers = [(key, value.encode()) for key, value in record["headers"]]
        producer.produce(topic, record["value"], record["key"], headers=headers)
    assert producer.flush(PATIENCE_S) == 0
    if settings:
        producer.commit_transaction(PATIENCE_S)


def restored_checkpoint(folder):
    """Return a copy of the checkpoint whose sources are in ``folder``."""
    checkpoint = folder / "checkpoint"
    for path in (STORED / "checkpoint").rglob("*"):
        if path.is_file():
            target = checkpoint / path.relative_to(STORED / "checkpoint")
            target.parent.mkdir(parents=True, exist_ok=True)
            text = path.read_text(encoding="utf-8")
            target.write_text(text.replace("/stored", str(folder)), encoding="utf-8")
    return checkpoint


@pytest.mark.parametrize("is_commit_lost", [False, True], ids=["as it was", "a commit is lost"])
def test_an_exactly_once_query_goes_on(spark, kafka, new_topic, tmp_path, is_commit_lost):
    """The records of its four micro-batches are elsewhere: none is written once more."""
    topic, log = new_topic(3), new_topic(1, cleanup_policy="compact")
    folder, checkpoint = tmp_path / "in", restored_checkpoint(tmp_path)
    transactional = {"transactional.id": "stored.driver"}
    write_again(kafka, "decision_log.jsonl", log, str(tmp_path), **transactional)
    folder.mkdir()
    for number in range(FILES + 1):
        write_file(folder, number)
    if is_commit_lost:
        for log_name in ("offsets", "commits", "sources/0"):
            (checkpoint / log_name / str(FILES - 1)).unlink()
    options = exactly_once("stored", **{"transaction.log.topic": log})
    query = start(read_files(spark, folder).repartition(2), kafka, topic, checkpoint, **options)
    assert query.awaitTermination(PATIENCE_S)
    assert ids(kafka, topic) == [*range(FILES * ROWS_PER_FILE, (FILES + 1) * ROWS_PER_FILE)]


def test_dead_letters_are_counted_and_replayed(kafka, new_topic, capsys):
    dead, orders = new_topic(1), new_topic(2)
    write_again(kafka, "dead_letters.jsonl", dead)
    at = ("--bootstrap-server", kafka.bootstrap_servers, "--topic", dead)
    assert main(["dead-letters", "count", *at, "--json"]) == 0
    assert "bad-partition" in capsys.readouterr().out
    more = ("--cause", "bad-partition", "--to-topic", orders, "--without-partition", "--yes")
    assert main(["dead-letters", "replay", *at, *more]) == 0
    replayed = read_topic(kafka.bootstrap_servers, orders)
    assert sorted((r.key, r.value) for r in replayed) == [
        (b"0", b"0"),
        (b"3", b"30"),
        (b"6", b"60"),
        (b"9", b"90"),
    ]
    assert {r.headers for r in replayed} == {(("h", b"x"),)}


def test_lines_of_metrics_make_a_page(tmp_path):
    page, metrics = tmp_path / "report.html", STORED / "metrics.jsonl"
    query = json.loads(metrics.read_text(encoding="utf-8").splitlines()[0])["query_id"]
    assert main(["report", str(metrics), "--query", query, "--output", str(page)]) == 0
    found = re.search(r"id='data'>(.*?)</script>", page.read_text(encoding="utf-8"), re.DOTALL)
    assert json.loads(found[1])["points"]["first"] == [*range(FILES)]
