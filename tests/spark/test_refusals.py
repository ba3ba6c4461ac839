"""Bad input: the message, where it comes from, and that it does not wait for max.block.ms."""

import socket

import pytest

from tests.patience import NO_OTHER_TIMEOUT, reason_given_time
from tests.reading import read_topic

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
        (f"{GOOD}, 5L as timestamp", "t", "timestamp attribute unsupported type bigint."),
    ],
)
def test_columns(spark, write, columns, topic, message):
    assert message in refused(write, spark.sql(f"select {columns}"), topic)


@pytest.mark.parametrize(
    "columns", ["'k' as key", f"{GOOD}, 1 as key", f"{GOOD}, 'x' as partition"]
)
def test_the_jvm_sink_says_the_same(spark, write, columns):
    frame = spark.sql(f"select {columns}")
    ours, theirs = refused(write, frame, "t"), refused(write, frame, "t", sink="kafka")
    message = theirs.strip().splitlines()[0].split("] ")[-1].removesuffix(".")
    sentence = next(line for line in ours.splitlines() if "SchemaError:" in line)
    assert sentence.split("SchemaError: ")[1].removesuffix(".") in message or message in sentence


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
        ({"kafka.linger.ms": "soon"}, "Invalid value soon for configuration kafka.linger.ms: not"),
        ({"kafka.acks": "2"}, "Invalid value 2 for configuration kafka.acks: must be one of all"),
        ({"kafka.key.serializer": "x"}, "Kafka option 'kafka.key.serializer' is not supported as"),
        ({"kafka.value.serializer": "x"}, "Kafka option 'kafka.value.serializer' is not"),
        ({"kafka.partitioner.class": "org.x.Y"}, "kafka.partitioner=round-robin, murmur3, crc32"),
        ({"kafka.interceptor.classes": "org.x.Y"}, "interceptors=package.module:Class"),
        ({"kafka.enable.idempotence": "true", "kafka.acks": "1"}, "Must set kafka.acks to all in"),
        ({"kafka.delivery.timeout.ms": "10"}, "kafka.delivery.timeout.ms should be equal to or"),
    ],
)
def test_options(spark, kafka, options, message):
    writer = spark.sql(f"select {GOOD}").write.format("pykafka-sink").mode("append")
    writer = writer.option("kafka.bootstrap.servers", kafka.bootstrap_servers).option("topic", "t")
    with pytest.raises(Exception) as caught:
        writer.options(**options).save()
    assert message in str(caught.value)


def test_missing_bootstrap_servers(spark):
    writer = spark.sql(f"select {GOOD}").write.format("pykafka-sink").mode("append")
    with pytest.raises(Exception, match=r"Option 'kafka.bootstrap.servers' must be specified"):
        writer.option("topic", "t").save()


def test_no_broker_reachable_gives_a_reason_for_each_address(spark, write):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    servers = f"127.0.0.1:{port},no-such-host.invalid:9092"
    message = refused(write, spark.sql(f"select {GOOD}"), "t", kafka_bootstrap_servers=servers)
    assert f"127.0.0.1:{port} (Connection refused)" in message
    assert "no-such-host.invalid:9092 (host name:" in message


def test_a_peer_that_is_not_kafka(spark, write):
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        message = refused(write, spark.sql(f"select {GOOD}"), "t", kafka_bootstrap_servers=address)
    assert f"no broker reachable: {address}" in message


def test_an_unknown_topic_that_brokers_do_not_create(spark, write, strict_kafka):
    options = {**SOON, "kafka_bootstrap_servers": strict_kafka.bootstrap_servers}

    def write_within(timeout_ms):
        frame = spark.sql(f"select {GOOD}")
        write(frame, "nowhere", preflight_timeout_ms=str(timeout_ms), **options)

    reason = "topic 'nowhere' does not exist, and the brokers did not create it"
    assert reason in reason_given_time(write_within, Exception, 10_000, reason)


def test_a_topic_that_brokers_create_when_asked(spark, kafka, write):
    write(spark.sql(f"select {GOOD}"), "made-on-demand")
    assert len(read_topic(kafka.bootstrap_servers, "made-on-demand")) == 1


def test_an_illegal_topic_name(spark, write):
    message = refused(write, spark.sql(f"select {GOOD}"), "no spaces")
    assert "topic 'no spaces': INVALID_TOPIC_EXCEPTION (17)" in message


def test_a_null_topic_in_the_data(spark, write):
    frame = spark.sql("select 'v' as value, cast(null as string) as topic")
    assert (
        "null topic present in the data. Use the topic option for setting a default topic."
        in refused(write, frame, None)
    )


def test_a_partition_that_does_not_exist(spark, write, new_topic):
    topic = new_topic(3)
    # It may have been added a moment ago: only this is waited for.
    frame = spark.sql("select 'v' as value, 3 as partition")
    message = refused(write, frame, topic, kafka_max_block_ms="5000")
    assert f"Invalid partition 3 for topic '{topic}', which has 3 partition(s)" in message


def test_a_record_larger_than_max_request_size_and_nothing_of_its_batch_sent(
    spark, kafka, write, new_topic
):
    topic = new_topic(1)
    frame = spark.sql("select explode(array('small', repeat('x', 2000000))) as value").coalesce(1)
    message = refused(write, frame, topic)
    assert "The message is 2000088 bytes when serialized which is larger than 1048576" in message
    assert "max.request.size" in message
    assert read_topic(kafka.bootstrap_servers, topic) == []


def test_a_record_larger_than_the_topic_allows(spark, write, new_topic):
    topic = new_topic(1, max_message_bytes="100000")
    message = refused(write, spark.sql("select repeat('x', 200000) as value"), topic)
    for part in (f"{topic}-0", "MESSAGE_TOO_LARGE (10)", "max.message.bytes", "broker 1"):
        assert part in message


def test_a_timestamp_before_1970(spark, write, new_topic):
    frame = spark.sql("select 'v' as value, timestamp'1969-12-31 23:59:59.9' as timestamp")
    assert "Invalid timestamp: -100 ms since 1970" in refused(write, frame, new_topic(1))


def test_a_header_without_key(spark, write, new_topic):
    frame = spark.sql(
        "select 'v' as value,"
        " array(named_struct('key', cast(null as string), 'value', cast('x' as binary))) as headers"
    )
    assert "null header key in the data" in refused(write, frame, new_topic(1))


def test_reading_is_refused(spark):
    with pytest.raises(Exception, match="'pykafka-sink' only writes"):
        spark.read.format("pykafka-sink").load()
