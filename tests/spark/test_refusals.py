"""Bad input and limits: what is said, where, and without a wait for max.block.ms."""

import json
import socket
import traceback
from pathlib import Path

import pytest
from pyspark.errors import PythonException

import spark_kafka_sink
from tests.patience import NO_OTHER_TIMEOUT, PATIENCE_S
from tests.reading import read_topic
from tests.spark import mistaken_hooks
from tests.spark.test_exactly_once import exactly_once

GOOD = "'v' as value"
# Whoever waits for the producer's own timeout is ended by pytest's.
SOON = {f"kafka_{name}": value for name, value in NO_OTHER_TIMEOUT.items()}


def refused(write, frame, topic, **options):
    with pytest.raises(Exception) as caught:
        write(frame, topic, **{**SOON, **options})
    return str(caught.value)


@pytest.mark.parametrize(
    ("columns", "topic", "message"),
    [
        ("'k' as key", "t", "Required attribute 'value' not found"),
        (GOOD, None, "topic option required when no 'topic' attribute is present. Use the topic"),
        (f"{GOOD}, 1 as key", "t", "key attribute unsupported type int. key must be a(n) string"),
        ("1.5 as value", "t", "value attribute unsupported type decimal(2,1). value must be a(n)"),
        (f"{GOOD}, 1 as topic", None, "topic attribute unsupported type int. topic must be a(n)"),
        (f"{GOOD}, 'x' as partition", "t", "partition attribute unsupported type string."),
        (f"{GOOD}, array('x') as headers", "t", "headers attribute unsupported type"),
    ],
)
def test_columns(spark, write, columns, topic, message):
    assert message in refused(write, spark.sql(f"select {columns}"), topic)


SINK = Path(spark_kafka_sink.__file__).parent
HOOKS = "tests.spark.mistaken_hooks"


def shown(write_it):
    """What Python prints of an error that a script does not catch: the sentence, and its lines."""
    with pytest.raises(Exception) as caught:
        write_it()
    text = "".join(traceback.format_exception(caught.type, caught.value, caught.tb))
    assert f'File "{SINK}' not in text, text
    assert "Traceback" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"kafka_acks": "2"}, "ConfigError: Invalid value 2 for configuration kafka.acks: "),
        (
            {"interceptors": f"{HOOKS}:Forgets"},
            f"HookError: on_send of interceptor '{HOOKS}:Forgets' failed: TypeError('it returned",
        ),
        (
            {"kafka_max_request_size": "100"},
            "RecordTooLargeError: The message is ",
        ),
    ],
)
def test_an_error_is_its_sentence_without_frames_of_the_sink(
    spark, kafka, new_topic, write, tmp_path, options, sentence
):
    (tmp_path / "rows").mkdir()
    (tmp_path / "rows" / "1.txt").write_text("v" * 200)
    topic, rows = new_topic(), str(tmp_path / "rows")

    def stream():
        named = {name.replace("_", "."): value for name, value in options.items()}
        writer = spark.readStream.text(rows).writeStream.format("pykafka-sink").options(**named)
        writer = writer.option("kafka.bootstrap.servers", kafka.bootstrap_servers)
        writer = writer.option("topic", topic).option("checkpointLocation", str(tmp_path / "c"))
        writer.trigger(availableNow=True).start().awaitTermination(PATIENCE_S)

    for write_it in (lambda: write(spark.read.text(rows), topic, **options), stream):
        told = shown(write_it)
        first = next(line for line in told.splitlines() if "spark_kafka_sink." in line)
        assert sentence in first


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"interceptors": f"{HOOKS}:Raises"}, "on_send"),
        ({"interceptors": f"{HOOKS}:CannotBeMade"}, "__init__"),
        ({"kafka_partitioner": f"{HOOKS}:raises"}, "raises"),
        (
            {
                "kafka_security_protocol": "SASL_PLAINTEXT",
                "kafka_sasl_mechanism": "OAUTHBEARER",
                "kafka_sasl_oauthbearer_token_provider": f"{HOOKS}:gives_no_token",
                "preflight_timeout_ms": "2000",
            },
            "gives_no_token",
        ),
    ],
)
def test_an_error_in_the_users_own_code_names_their_file_and_line(
    spark, new_topic, write, options, name
):
    lines = Path(mistaken_hooks.__file__).read_text(encoding="utf-8").splitlines()
    number = next(n for n, text in enumerate(lines, 1) if f'raise KeyError("{name}")' in text)
    frame, topic = spark.sql(f"select {GOOD}"), new_topic()
    told = shown(lambda: write(frame, topic, **options))
    assert f"(file {mistaken_hooks.__file__}, line {number}, in {name})" in told


def test_overwrite(spark, kafka):
    frame = spark.sql(f"select {GOOD}")
    writer = frame.write.format("pykafka-sink").mode("overwrite").option("topic", "t")
    with pytest.raises(
        Exception,
        match=r"Save mode Overwrite not allowed for Kafka\. The only save mode that Spark and this sink "
        r"both allow is Append: \.mode\(\"append\"\)\.",
    ):
        writer.option("kafka.bootstrap.servers", kafka.bootstrap_servers).save()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kafka.batchsize": "1"}, "Did you mean 'kafka.batch.size'?"),
        ({"kafka.key.serializer": "x"}, "Kafka option 'kafka.key.serializer' is not supported as"),
    ],
)
def test_options(spark, kafka, options, message):
    writer = spark.sql(f"select {GOOD}").write.format("pykafka-sink").mode("append")
    writer = writer.option("kafka.bootstrap.servers", kafka.bootstrap_servers).option("topic", "t")
    with pytest.raises(Exception) as caught:
        writer.options(**options).save()
    assert message in str(caught.value)


def test_no_broker_reachable_gives_a_reason_for_each_address(spark, write):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    servers = f"127.0.0.1:{port},no-such-host.invalid:9092"
    message = refused(write, spark.sql(f"select {GOOD}"), "t", kafka_bootstrap_servers=servers)
    assert f"127.0.0.1:{port} (Connection refused)" in message
    assert "no-such-host.invalid:9092 (host name:" in message


def test_a_null_topic_in_the_data(spark, write):
    frame = spark.sql("select 'v' as value, cast(null as string) as topic")
    assert (
        "null topic present in the data. Use the topic option for setting a default topic."
        in refused(write, frame, None)
    )


def test_a_record_larger_than_max_request_size_and_nothing_of_its_batch_sent(
    spark, kafka, write, new_topic
):
    topic = new_topic(1)
    frame = spark.sql("select explode(array('small', repeat('x', 2000000))) as value").coalesce(1)
    message = refused(write, frame, topic)
    assert "The message is 2000088 bytes when serialized which is larger than 1048576" in message
    assert "max.request.size" in message
    assert read_topic(kafka.bootstrap_servers, topic) == []


def test_reading_is_refused(spark):
    with pytest.raises(Exception, match="'pykafka-sink' only writes"):
        spark.read.format("pykafka-sink").load()


RATE = 200_000
LIMITED_ROWS = 1_000
TASKS = 2


def write_slowly(spark, options):
    """Rows of 1,000 bytes, in two tasks."""
    rows = spark.range(0, LIMITED_ROWS, 1, TASKS)
    rows = rows.selectExpr("rpad(lpad(id, 7, '0'), 1000, '.') AS value")
    rows.write.format("pykafka-sink").mode("append").options(**options).save()


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_no_task_is_faster_than_its_limit(spark, kafka, new_topic, tmp_path, guarantee):
    topic, path = new_topic(4), tmp_path / "metrics.jsonl"
    options = {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "topic": topic,
        **(exactly_once(topic) if guarantee == "exactly-once" else {}),
        "max.bytes.per.second.per.task": str(RATE),
        "kafka.delivery.timeout.ms": "1500",
        "kafka.request.timeout.ms": "1000",
        "kafka.linger.ms": "0",
        "metrics.path": str(path),
    }
    write_slowly(spark, options)
    found = read_topic(kafka.bootstrap_servers, topic)
    assert sorted(int((record.value or b"")[:7]) for record in found) == list(range(LIMITED_ROWS))
    (line,) = map(json.loads, path.read_text().splitlines())
    metrics = line["metrics"]
    # A bucket begins empty: what is sent is earned before.
    due_ms = metrics["compressed_bytes"] * 1000 / (RATE * TASKS)
    assert line["elapsed_ms"] >= due_ms
    assert metrics["limit_wait_ms"] > 0
    assert metrics["throttle_left_ms"] == metrics["retries"] == 0


def test_a_transaction_that_cannot_end_in_time(spark, kafka, new_topic):
    topic = new_topic(1)
    options = {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "topic": topic,
        **exactly_once(topic),
        "max.bytes.per.second.per.task": "1000",
        "kafka.transaction.timeout.ms": "20000",
    }
    both = r"max\.bytes\.per\.second\.per\.task = 1000.*kafka\.transaction\.timeout\.ms = 20000"
    with pytest.raises(PythonException, match=both):
        write_slowly(spark, options)
    assert read_topic(kafka.bootstrap_servers, topic) == []
