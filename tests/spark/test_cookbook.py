"""Each recipe of docs/cookbook.md, with a real Kafka and a real Spark: it writes the records that the page shows."""

import random
import re
from datetime import datetime, timedelta, timezone

import pytest

from tests.reading import read_topic
from tests.snippets import REPOSITORY

pytestmark = pytest.mark.timeout(900)

_SECTION = re.compile(r"^##+ (.+?)\n\n```python\n(.+?)^```\n\n```text\n(.+?)^```", re.M | re.S)
_PAGE = (REPOSITORY / "docs" / "cookbook.md").read_text(encoding="utf-8")
RECIPES = {title: (code, shown) for title, code, shown in _SECTION.findall(_PAGE)}
OWN = "cookbook-"
COLUMNS = "order_id BIGINT, customer STRING, country STRING, amount DOUBLE, ordered_at TIMESTAMP, deleted BOOLEAN"
ONE_BROKER = {"transaction.log.replication.factor": "1"}


def at(hour, minute):
    return datetime(2026, 1, 5, hour, minute, tzinfo=timezone.utc)


ORDERS = [
    (1, "ada", "DE", 19.5, at(10, 0), False),
    (2, "bob", "FR", 7.0, at(10, 20), False),
    (3, "ada", "DE", 3.25, at(11, 5), True),
    (4, None, "FR", 12.0, at(11, 30), False),
]


@pytest.fixture(scope="module")
def data(spark, tmp_path_factory):
    folder = tmp_path_factory.mktemp("cookbook")
    # Two files, so that each recipe has two tasks.
    spark.createDataFrame(ORDERS, COLUMNS).repartition(2).write.parquet(f"{folder}/orders")
    return folder


@pytest.fixture
def run(spark, kafka, data, tmp_path):
    """Runs a recipe to its end, with topics of its own; returns the lines that the page shows."""

    def run_recipe(title, change=lambda code: code, data=data):
        code, shown = RECIPES[title]
        code = change(code).replace("broker:9092", kafka.bootstrap_servers)
        code = code.replace('"/data/', f'"{data}/').replace('"/checkpoints/', f'"{tmp_path}/')
        code = re.sub(r'"((?:orders|payments)[a-z-]*)"', rf'"{OWN}\1"', code)
        if "exactly-once" in code:
            code = re.sub(r"\.(start|save)\(\)", r".options(**one_broker).\1()", code)
        names = {"spark": spark, "one_broker": ONE_BROKER}
        exec(compile(code, "docs/cookbook.md", "exec"), names)
        if "query" in names:
            names["query"].processAllAvailable()
            names["query"].stop()
        return set(shown.splitlines())

    return run_recipe


@pytest.fixture
def records(kafka):
    def read(topic):
        return read_topic(kafka.bootstrap_servers, OWN + topic)

    return read


def as_lines(records):
    """Lines as the page shows them."""
    return sorted(f"{text(record.key)}\t{text(record.value)}" for record in records)


def text(content):
    return "null" if content is None else content.decode()


def test_there_are_ten():
    """And one of them for batches and for streams."""
    tests = [name for name in globals() if name.startswith("test_recipe_")]
    assert len(RECIPES) == len(tests) == 11


def test_recipe_table(run, records):
    shown = run("Write a table as JSON, with a key")
    found = as_lines(records("orders"))
    assert len(found) == len(ORDERS)
    assert shown <= set(found)
    assert 'null\t{"order_id":4,"amount":12.0}' in found


def test_recipe_stream(run, records):
    shown = run("Stream new files into a topic")
    found = as_lines(records("orders-stream"))
    assert len(found) == len(ORDERS)
    assert shown <= set(found)


def test_recipe_copy(run, records, spark, write):
    values = ['{"customer":"ada","cents":1950}', '{"customer":"bob","cents":700}', None]
    rows = [(value, [("source", b"till")]) for value in values]
    columns = "value STRING, headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
    write(spark.createDataFrame(rows, columns), f"{OWN}payments")
    shown = run("Copy a topic to another, exactly once")
    found = records("payments-by-customer")
    assert len(found) == 2
    assert shown <= set(as_lines(found))
    assert {record.headers for record in found} == {(("source", b"till"),)}


def test_recipe_topic_by_row(run, records):
    shown = run("Choose the topic by row")
    found = [
        f"{topic}\t{text(record.value)}"
        for topic in ("orders-de", "orders-fr")
        for record in records(topic)
    ]
    assert len(found) == len(ORDERS)
    assert shown <= set(found)


def test_recipe_tombstones(run, records):
    shown = run("Delete keys from a compacted topic")
    found = as_lines(records("orders-current"))
    assert len(found) == len(ORDERS)
    assert shown <= set(found)
    assert [line for line in found if line.endswith("\tnull")] == ["3\tnull"]


def test_recipe_headers(run, records):
    shown = run("Set headers and the event time")
    found = records("orders-with-headers")
    assert shown <= set(as_lines(found))
    by_order = {record.value: (record.headers, record.timestamp) for record in found}
    assert by_order == {
        f'{{"order_id":{order_id}}}'.encode(): (
            (("country", country.encode()),),
            int(ordered_at.timestamp() * 1000),
        )
        for order_id, _, country, _, ordered_at, _ in ORDERS
    }


def test_recipe_order(run, records):
    shown = run("Keep the order of each key")
    found = records("orders-in-order")
    assert len(found) == len(ORDERS)
    lines = [f"{text(record.key)}\t{text(record.value)}" for record in found]
    assert [line for line in lines if line in shown] == sorted(shown)


@pytest.fixture(scope="module")
def changes(spark, tmp_path_factory):
    """Orders whose last one of each customer is in any of many files, and anywhere in it."""
    folder = tmp_path_factory.mktemp("changes")
    rows = [
        (n, f"c{n % 40}", "DE", 1.0, at(10, 0) + timedelta(seconds=n), False) for n in range(800)
    ]
    random.Random(5).shuffle(rows)
    spark.createDataFrame(rows, COLUMNS).repartition(6).write.parquet(f"{folder}/orders")
    return folder


def to_exactly_once(code):
    more = '"delivery.guarantee": "exactly-once", "transactional.id.prefix": "cookbook-once"'
    code = code.replace("orders-latest", "orders-once")
    return code.replace('"value.format"', f'{more}, **one_broker, "value.format"')


def test_recipe_order_in_a_stream(run, records, changes):
    """All files are one micro-batch. With both guarantees, the last record of a key is its newest."""
    title = "Keep the order of each key in a stream"
    run(title, data=changes)
    run(title, to_exactly_once, changes)
    newest = {f"c{n % 40}": f'{{"order_id":{n}}}' for n in range(800)}
    for topic in ("orders-latest", "orders-once"):
        found = records(topic)
        assert len(found) == 800
        assert {text(record.key): text(record.value) for record in found} == newest


def test_the_lines_of_the_stream_are_those_of_its_page(run, records):
    shown = run(
        "Keep the order of each key in a stream", lambda code: code.replace("-latest", "-few")
    )
    lines = [f"{text(record.key)}\t{text(record.value)}" for record in records("orders-few")]
    assert [line for line in lines if line in shown] == sorted(shown)


def test_recipe_avro_and_dead_letters(run, records):
    shown = run("Write Avro, and set bad rows aside")
    assert as_lines(records("orders-dead-letters")) == sorted(shown)
    # Avro: the number as a zigzag varint, the length of the text, the text.
    written = {record.key: record.value for record in records("orders-avro")}
    assert written == {b"1": b"\x02\x06ada", b"2": b"\x04\x06bob", b"3": b"\x06\x06ada"}


def test_recipe_job_again(run, records):
    title = "Run a job again without duplicates"
    shown = run(title)
    run(title)
    found = as_lines(records("orders-daily"))
    assert len(found) == len(ORDERS)
    assert shown <= set(found)


def test_recipe_counts(run, records):
    shown = run("Publish counts that change")
    found = as_lines(records("orders-per-hour"))
    assert len(found) == 4  # two countries, two hours
    assert shown <= set(found)
