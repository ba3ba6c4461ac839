"""10,000 rows with all combinations of what can be wrong with them, through Spark, whose Python worker
is killed in the middle: each row is in its topic or a dead letter, and with exactly-once it is there
once.
"""

import json
from collections import Counter

import pytest
from pyspark.errors import StreamingQueryException

from spark_kafka_sink.columns import dead_letters as faults
from tests.patience import PATIENCE_S
from tests.reading import read_topic

# The lives of tests/simulation/test_queries.py do the same in a second, with a simulated Spark.
pytestmark = pytest.mark.long

ROWS = 10_000
FILES = 4
LATE_TIMESTAMP = "late timestamp"
"""Of the year 2100: only the broker knows that it takes none."""
BITS = (
    faults.NULL_HEADER,
    faults.NULL_TOPIC,
    faults.INVALID_TOPIC,
    faults.BAD_TIMESTAMP,
    faults.TOO_LARGE,
    faults.BAD_PARTITION,
    LATE_TIMESTAMP,
    faults.REFUSED,
)

KINDS = 2 ** (len(BITS) + 1)
AFTER = "message.timestamp.after.max.ms"


def fault_of(row_id):
    """Half of the rows are in order; the others have each combination.

    The last two, and half of what is too large, are what the broker finds out. It looks at sizes
    first, then at keys, then at timestamps.
    """
    wrong = {name for n, name in enumerate(BITS) if is_wrong(row_id, n)}
    before = [name for name in BITS[:6] if name in wrong]
    if faults.TOO_LARGE in before and row_id % 3:
        before.remove(faults.TOO_LARGE)
        before.append(faults.TOO_LARGE)
    if before:
        return before[0]
    if faults.REFUSED in wrong:
        return faults.REFUSED
    return faults.BAD_TIMESTAMP if LATE_TIMESTAMP in wrong else None


def is_wrong(row_id, bit):
    kind = row_id % KINDS
    return kind < KINDS // 2 and bool(kind >> bit & 1)


def rows(spark, topic, folder):
    def has(bit):
        return f"(id % {KINDS} < {KINDS // 2} and (id % {KINDS}) & {1 << BITS.index(bit)} != 0)"

    return spark.range(0, ROWS, 1, FILES).selectExpr(
        f"rpad(lpad(id, 6, '0'), if({has(faults.TOO_LARGE)}, if(id % 3 = 0, 2500, 1500), 20), "
        "'.') as value",
        f"if({has(faults.REFUSED)}, null, cast(id % 50 as string)) as key",
        f"array(named_struct('key', if({has(faults.NULL_HEADER)}, null, 'h'), 'value', "
        "cast('x' as binary))) as headers",
        f"case when {has(faults.NULL_TOPIC)} then null when {has(faults.INVALID_TOPIC)} "
        f"then 'bad topic' else '{topic}' end as topic",
        f"cast(if({has(faults.BAD_PARTITION)}, 9, null) as int) as partition",
        f"timestamp_millis(if({has(faults.BAD_TIMESTAMP)}, -5, if({has(LATE_TIMESTAMP)}, 4102444800000, "
        "1700000000000 + id))) as timestamp",
        f"'{folder}' as folder",
    )


def id_of(record):
    return int(record.value[:6])


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
def test_each_row_is_in_its_topic_or_a_dead_letter(spark, kafka, new_topic, tmp_path, guarantee):
    refusing = {"cleanup.policy": "compact", "max.message.bytes": "1000", AFTER: "3600000"}
    topic, dead = new_topic(3, **refusing), f"dead-{guarantee}"
    kafka.create_topic(dead, 2, configs={AFTER: "3600000"})
    given = rows(spark, topic, tmp_path)
    given.write.parquet(str(tmp_path / "input"))
    source = spark.readStream.schema(given.schema).option("maxFilesPerTrigger", 2)
    metrics = tmp_path / "metrics.jsonl"
    writer = (
        source.parquet(str(tmp_path / "input"))
        .writeStream.format("pykafka-sink")
        .option("kafka.bootstrap.servers", kafka.bootstrap_servers)
        .option("kafka.max.request.size", "2000")
        .option("kafka.max.block.ms", "10000")
        .option("delivery.guarantee", guarantee)
        .option("transactional.id.prefix", topic)
        .option("transaction.log.replication.factor", "1")
        .option("interceptors", "tests.killing:KillOnce")
        .option("errors.tolerance", "all")
        .option("errors.deadletterqueue.topic.name", dead)
        .option("errors.deadletterqueue.max.ratio", "1")
        .option("metrics.path", str(metrics))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
    )
    before = spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch")
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "500")
    try:
        with pytest.raises(StreamingQueryException):
            writer.start().awaitTermination(PATIENCE_S)
        assert writer.start().awaitTermination(PATIENCE_S)
    finally:
        spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", before)

    committed = {"isolation.level": "read_committed"}
    good = read_topic(kafka.bootstrap_servers, topic, **committed)
    letters = read_topic(kafka.bootstrap_servers, dead, **committed)
    expected = {n: fault_of(n) for n in range(ROWS)}
    assert {id_of(r) for r in good} == {n for n, fault in expected.items() if fault is None}
    for letter in letters:
        told = {name: (value or b"").decode() for name, value in letter.headers}
        assert told["__connect.errors.cause"] == expected[id_of(letter)]
        assert told["__connect.errors.spark.batch.id"] in ("0", "1")
    assert {id_of(r) for r in letters} == {n for n, fault in expected.items() if fault is not None}
    if guarantee == "exactly-once":
        assert len(good) + len(letters) == ROWS
    lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    counts = Counter()
    for line in lines:
        if line["event"] == "commit":
            counts.update(line["dead_letters"])
    assert counts == Counter(fault for fault in expected.values() if fault is not None)
