"""The producer's keys against Kafka 4.4's ProducerConfig: defaults, bounds, rules across keys."""

import dataclasses
import re

import pytest

from spark_kafka_sink.base.errors import ConfigError, sentence
from spark_kafka_sink.config.config_def import (
    REQUIRED,
    ConfigDef,
    ConfigKey,
    at_least,
    between,
    one_of,
)
from spark_kafka_sink.config.producer_config import ACKS_ALL, PRODUCER_CONFIG, ProducerConfig
from spark_kafka_sink.config.sink_options import (
    PASSED_BY_SPARK,
    SinkOptions,
    closest_option,
    rejection_reason,
)
from tests.tables import each_row

INT, LONG, STRING = "int", "long", "string"
BOOLEAN = "boolean"

# From the ConfigDef of Kafka 4.4.0: ProducerConfig.CONFIG, CommonClientConfigs, CompressionType.
JAVA = {
    "acks": (STRING, "all"),
    "batch.size": (INT, 16384),
    "buffer.memory": (LONG, 33554432),
    "client.dns.lookup": (STRING, "use_all_dns_ips"),
    "client.rack": (STRING, ""),
    "compression.gzip.level": (INT, -1),
    "compression.lz4.level": (INT, 9),
    "compression.type": (STRING, "none"),
    "compression.zstd.level": (INT, 3),
    "connections.max.idle.ms": (LONG, 540000),
    "delivery.timeout.ms": (INT, 120000),
    "enable.idempotence": (BOOLEAN, True),
    "enable.metrics.push": (BOOLEAN, True),
    "linger.ms": (LONG, 5),
    "max.block.ms": (LONG, 60000),
    "max.in.flight.requests.per.connection": (INT, 5),
    "max.request.size": (INT, 1048576),
    "metadata.cluster.check.enable": (BOOLEAN, True),
    "metadata.max.age.ms": (LONG, 300000),
    "metadata.max.idle.ms": (LONG, 300000),
    "metadata.recovery.rebootstrap.trigger.ms": (LONG, 300000),
    "metadata.recovery.strategy": (STRING, "rebootstrap"),
    "partitioner.adaptive.partitioning.enable": (BOOLEAN, True),
    "partitioner.availability.timeout.ms": (LONG, 0),
    "partitioner.ignore.keys": (BOOLEAN, False),
    "partitioner.rack.aware": (BOOLEAN, False),
    "receive.buffer.bytes": (INT, 32768),
    "reconnect.backoff.max.ms": (LONG, 1000),
    "reconnect.backoff.ms": (LONG, 50),
    "request.timeout.ms": (INT, 30000),
    "retries": (INT, 2147483647),
    "retry.backoff.max.ms": (LONG, 1000),
    "retry.backoff.ms": (LONG, 100),
    "send.buffer.bytes": (INT, 131072),
    "socket.connection.setup.timeout.max.ms": (LONG, 30000),
    "socket.connection.setup.timeout.ms": (LONG, 10000),
    "transaction.timeout.ms": (INT, 60000),
}


def parse(**values):
    """Keys with underscores for dots; bootstrap.servers is given unless named."""
    named = {name.replace("_", "."): value for name, value in values.items()}
    return ProducerConfig.parse({"bootstrap.servers": "b:9092", **named})


def refusal(**values):
    with pytest.raises(ConfigError) as raised:
        parse(**values)
    return sentence(raised.value)


@each_row("name", JAVA)
def test_types_and_defaults_are_javas_or_the_difference_is_told(name):
    config_type, default = JAVA[name]
    key = PRODUCER_CONFIG.keys[name]
    assert key.type == config_type
    if key.default != default:
        assert key.java_default == str(default)
        assert key.difference


def test_keys_that_java_does_not_have_as_such():
    others = {name for name in PRODUCER_CONFIG.keys if name not in JAVA}
    own = {"bootstrap.servers", "client.id", "partitioner"}
    assert others == own | {"allow.auto.create.topics"}
    assert PRODUCER_CONFIG.keys["bootstrap.servers"].default is REQUIRED
    assert PRODUCER_CONFIG.keys["client.id"].java_default == "producer-N"


@each_row("name", PRODUCER_CONFIG.keys)
def test_the_table_itself(name):
    key = PRODUCER_CONFIG.keys[name]
    assert key.doc.endswith(".")
    assert key.when.endswith(".")
    assert key.java_default is None or key.difference
    if key.default is not REQUIRED and key.validator is not None:
        assert key.validator(key.default) is None


def test_fields_and_keys_are_the_same():
    fields = {field.name for field in dataclasses.fields(ProducerConfig)}
    assert fields - {
        "decision_log",
        "max_bytes_per_second",
        "topic_creation",
        "security",
    } == {key.field for key in PRODUCER_CONFIG.keys.values()}


def test_defaults_parsed():
    config = parse()
    assert config.bootstrap_servers == (("b", 9092),)
    assert config.acks == ACKS_ALL == -1
    assert config.enable_idempotence
    assert config.delivery_timeout_ms == 120_000
    assert config.topic_creation is None


def test_bootstrap_servers():
    servers = parse(bootstrap_servers=" a:1 , b:2 ,[::1]:3").bootstrap_servers
    assert servers == (("a", 1), ("b", 2), ("::1", 3))
    with pytest.raises(ConfigError, match="Missing required configuration kafka.bootstrap.servers"):
        ProducerConfig.parse({})
    assert "names no broker" in refusal(bootstrap_servers=" ")


@pytest.mark.parametrize(("text", "acks"), [("all", -1), ("-1", -1), ("0", 0), ("1", 1)])
def test_acks(text, acks):
    assert parse(acks=text).acks == acks


# Lowest and highest allowed value of each bounded number, and the first that are not.
BOUNDS = {
    "batch.size": (0, None),
    "linger.ms": (0, None),
    "max.block.ms": (0, None),
    "max.request.size": (0, None),
    "retries": (0, 2**31 - 1),
    "retry.backoff.ms": (0, None),
    "retry.backoff.max.ms": (0, None),
    "max.in.flight.requests.per.connection": (1, None),
    "compression.lz4.level": (1, 17),
    "compression.zstd.level": (-131072, 22),
    "partitioner.availability.timeout.ms": (0, None),
    "metadata.max.age.ms": (0, None),
    "metadata.max.idle.ms": (5000, None),
    "metadata.recovery.rebootstrap.trigger.ms": (0, None),
    "reconnect.backoff.ms": (0, None),
    "reconnect.backoff.max.ms": (0, None),
    "send.buffer.bytes": (-1, None),
    "receive.buffer.bytes": (-1, None),
    "delivery.timeout.ms": (0, None),
    "request.timeout.ms": (0, None),
}


@each_row("name", BOUNDS)
def test_bounds_are_javas(name):
    key = PRODUCER_CONFIG.keys[name]
    lowest, highest = BOUNDS[name]
    assert key.parse(str(lowest)) == lowest
    beyond = [lowest - 1]
    if highest is not None:
        assert key.parse(str(highest)) == highest
        beyond.append(highest + 1)
    for value in beyond:
        with pytest.raises(
            ConfigError, match=f"Invalid value {value} for configuration kafka.{name}: "
        ):
            key.parse(str(value))


def test_gzip_levels():
    for level in ("-1", "1", "9"):
        assert parse(compression_gzip_level=level).compression_gzip_level == int(level)
    for level in ("0", "10", "-2"):
        assert "must be -1 or between 1 and 9" in refusal(compression_gzip_level=level)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_the_level_is_that_of_the_codec(codec):
    levels = {"none": None, "gzip": 6, "snappy": None, "lz4": 12, "zstd": -5}
    config = parse(
        compression_type=codec,
        compression_gzip_level="6",
        compression_lz4_level="12",
        compression_zstd_level="-5",
    )
    assert config.compression_level == levels[codec]


def test_codecs_that_do_not_exist():
    assert "must be one of none, gzip, snappy, lz4, zstd" in refusal(compression_type="brotli")


def test_idempotence_gives_way_to_acks_and_retries():
    assert not parse(acks="1").enable_idempotence
    assert not parse(acks="0").enable_idempotence
    assert not parse(retries="0").enable_idempotence
    assert parse(acks="-1", retries="1").enable_idempotence
    assert not parse(enable_idempotence="false", acks="1").enable_idempotence


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"retries": "0"},
            "Must set kafka.retries to non-zero when using the idempotent producer.",
        ),
        (
            {"acks": "1"},
            "Must set kafka.acks to all in order to use the idempotent producer. "
            "Otherwise we cannot guarantee idempotence.",
        ),
        (
            {"max_in_flight_requests_per_connection": "6"},
            "To use the idempotent producer, kafka.max.in.flight.requests.per.connection must be set "
            "to at most 5. Current value is 6.",
        ),
    ],
)
def test_idempotence_that_was_asked_for_does_not_give_way(values, message):
    assert refusal(enable_idempotence="true", **values) == message


def test_more_requests_in_flight_without_idempotence():
    assert "Current value is 6" in refusal(max_in_flight_requests_per_connection="6")
    config = parse(enable_idempotence="false", max_in_flight_requests_per_connection="6")
    assert config.max_in_flight_requests_per_connection == 6


def test_the_delivery_timeout_covers_linger_and_request():
    assert parse(request_timeout_ms="130000").delivery_timeout_ms == 130_005
    config = parse(delivery_timeout_ms="1100", linger_ms="100", request_timeout_ms="1000")
    assert config.delivery_timeout_ms == 1100
    message = refusal(delivery_timeout_ms="1099", linger_ms="100", request_timeout_ms="1000")
    assert message == (
        "kafka.delivery.timeout.ms should be equal to or larger than kafka.linger.ms + "
        "kafka.request.timeout.ms"
    )


def test_the_delivery_timeout_does_not_overflow():
    config = parse(linger_ms=str(2**40), request_timeout_ms=str(2**31 - 1))
    assert config.delivery_timeout_ms == 2**31 - 1
    parse(linger_ms=str(2**40), delivery_timeout_ms=str(2**31 - 1))


@pytest.mark.parametrize("ms", ["200", "5000"])
def test_a_reconnect_pause_without_maximum_is_constant(ms):
    """As CommonClientConfigs.postProcessReconnectBackoffConfigs: it was set to be just that."""
    config = parse(reconnect_backoff_ms=ms)
    assert config.reconnect_backoff_max_ms == int(ms)
    both = parse(reconnect_backoff_ms=ms, reconnect_backoff_max_ms="9000")
    assert both.reconnect_backoff_max_ms == 9000


@pytest.mark.parametrize(
    ("name", "value", "canonical"),
    [
        ("metadata.recovery.strategy", "NONE", "none"),
        ("metadata.recovery.strategy", "Rebootstrap", "rebootstrap"),
    ],
)
def test_words_whose_case_does_not_matter_to_java(name, value, canonical):
    """CaseInsensitiveValidString in Java's table: the JVM sink takes them."""
    config = ProducerConfig.parse({"bootstrap.servers": "b:9092", name: value})
    assert getattr(config, PRODUCER_CONFIG.keys[name].field) == canonical


@pytest.mark.parametrize(
    "value", ["default", "round-robin", "murmur3", "crc32", "package.module:name"]
)
def test_partitioners(value):
    assert parse(partitioner=value).partitioner == value


def test_a_partitioner_that_does_not_exist():
    assert "must be one of default, round-robin, murmur3, crc32, or package.module:callable" in (
        refusal(partitioner="sticky")
    )


def test_a_configuration_can_be_a_key():
    """The pool keeps producers by configuration."""
    assert hash(parse()) == hash(parse())
    assert parse() == parse()
    assert parse() != parse(acks="1")


def key(config_type, default=None, validator=None, name="some.key"):
    return ConfigKey(name, config_type, default, validator)


@each_row(
    ("config_type", "text", "value"),
    [
        ("boolean", "true", True),
        ("boolean", " FALSE ", False),
        ("boolean", "True", True),
        ("int", "0", 0),
        ("int", " 42\n", 42),
        ("int", "+7", 7),
        ("int", "007", 7),
        ("int", "-2147483648", -(2**31)),
        ("int", "2147483647", 2**31 - 1),
        ("long", "2147483648", 2**31),
        ("long", "9223372036854775807", 2**63 - 1),
        ("long", "-9223372036854775808", -(2**63)),
        ("string", " text ", "text"),
        ("string", "", ""),
        ("list", "a, b ,c", ["a", "b", "c"]),
        ("list", "", []),
        ("list", " , a,,", ["a"]),
    ],
)
def test_values(config_type, text, value):
    parsed = key(config_type).parse(text)
    assert parsed == value
    assert type(parsed) is type(value)


@each_row(
    ("config_type", "text"),
    [
        ("boolean", ""),
        ("boolean", "yes"),
        ("boolean", "1"),
        ("int", ""),
        ("int", "1.0"),
        ("int", "1e3"),
        ("int", "0x10"),
        ("long", "five"),
        # Python's own notations: Java's parseInt refuses them, and so would a broker's tools.
        ("int", "1_000"),
        ("long", "60_000"),
    ],
)
def test_what_is_not_of_the_type(config_type, text):
    with pytest.raises(ConfigError) as raised:
        key(config_type).parse(text)
    valid = "true or false" if config_type == "boolean" else "a whole number"
    assert (
        sentence(raised.value)
        == f"Invalid value {text} for configuration some.key: must be {valid}"
    )


@pytest.mark.parametrize(
    ("config_type", "text", "problem"),
    [
        ("int", "2147483648", "must be between -2147483648 and 2147483647"),
        ("int", "-2147483649", "must be between -2147483648 and 2147483647"),
        ("int", "9" * 5000, "must be between -2147483648 and 2147483647"),
        (
            "long",
            "9223372036854775808",
            "must be between -9223372036854775808 and 9223372036854775807",
        ),
        (
            "int",
            "128k",
            "not a whole number: write it without a unit, in milliseconds or bytes",
        ),
        (
            "long",
            "1.5 s",
            "not a whole number: write it without a unit, in milliseconds or bytes",
        ),
    ],
)
def test_numbers_out_of_range_and_with_a_unit(config_type, text, problem):
    with pytest.raises(ConfigError) as raised:
        key(config_type).parse(text)
    assert sentence(raised.value) == f"Invalid value {text} for configuration some.key: {problem}"


@pytest.mark.parametrize(
    ("validator", "good", "bad", "problem"),
    [
        (at_least(0), ["0", "5"], "-1", "must be at least 0"),
        (between(1, 17), ["1", "17"], "18", "must be between 1 and 17"),
        (between(1, 17), ["9"], "0", "must be between 1 and 17"),
    ],
)
def test_validators_of_numbers(validator, good, bad, problem):
    checked = key("int", validator=validator)
    assert [checked.parse(text) for text in good] == [int(text) for text in good]
    with pytest.raises(ConfigError) as raised:
        checked.parse(bad)
    assert sentence(raised.value) == f"Invalid value {bad} for configuration some.key: {problem}"


def test_one_of_is_exact():
    checked = key("string", validator=one_of("none", "zstd"))
    assert checked.parse(" zstd ") == "zstd"
    for text in ("ZSTD", "zst", ""):
        with pytest.raises(ConfigError, match="must be one of none, zstd"):
            checked.parse(text)


def test_field_names():
    assert key("int", name="max.in.flight.requests").field == "max_in_flight_requests"


TABLE = ConfigDef(
    "",
    key("string", REQUIRED, name="bootstrap.servers"),
    key("int", 5, at_least(0), name="linger.ms"),
    key("string", None, name="topic"),
)


def test_every_key_is_in_the_result():
    parsed = TABLE.parse({"bootstrap.servers": "a:1"})
    assert parsed == {"bootstrap_servers": "a:1", "linger_ms": 5, "topic": None}
    parsed = TABLE.parse({"bootstrap.servers": "a:1", "linger.ms": "9", "topic": "t"})
    assert parsed == {"bootstrap_servers": "a:1", "linger_ms": 9, "topic": "t"}


def test_a_required_key():
    with pytest.raises(ConfigError) as raised:
        TABLE.parse({"topic": "t"})
    assert sentence(raised.value) == (
        "Missing required configuration bootstrap.servers, which has no default"
    )


def test_an_unknown_key_is_told_before_one_that_is_missing():
    with pytest.raises(ConfigError) as raised:
        TABLE.parse({"bootstrap.server": "a:1"})
    assert sentence(raised.value) == (
        "unknown option 'bootstrap.server'. Did you mean 'bootstrap.servers'?"
    )


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [
        ("lingerms", ". Did you mean 'linger.ms'?"),
        ("linger_ms", ". Did you mean 'linger.ms'?"),
        ("tpoic", ". Did you mean 'topic'?"),
        ("group.id", ""),
        ("", ""),
    ],
)
def test_near_names(name, suggestion):
    assert TABLE.suggestion(name) == suggestion


def test_messages_have_the_tables_prefix():
    table = ConfigDef("kafka.", key("int", REQUIRED, at_least(0), name="linger.ms"))
    assert table.suggestion("lingerms") == ". Did you mean 'kafka.linger.ms'?"
    assert table.closest_name("interceptors", ["interceptor.s"]) == "interceptor.s"
    assert table.closest_name("zzz", ["interceptor.s"]) is None
    assert table.suggestion("zzz") == ""
    expected = [
        ({}, "Missing required configuration kafka.linger.ms, which has no default"),
        ({"lingerms": "1"}, "unknown option 'kafka.lingerms'. Did you mean 'kafka.linger.ms'?"),
        (
            {"linger.ms": "-1"},
            "Invalid value -1 for configuration kafka.linger.ms: must be at least 0",
        ),
    ]
    for values, message in expected:
        with pytest.raises(ConfigError) as raised:
            table.parse(values)
        assert sentence(raised.value) == message


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("kafka.batchsize", "kafka.batch.size"),
        ("kafka.compresion.type", "kafka.compression.type"),
        ("kafka.bootstrap.server", "kafka.bootstrap.servers"),
        ("kafka.partitioner.clas", "kafka.partitioner.class"),
        ("kafka.Linger_MS", "kafka.linger.ms"),
    ],
)
def test_a_misspelt_kafka_option_is_refused_with_the_nearest_name(name, near):
    assert rejection_reason(name.lower()) == (
        f"Kafka option '{name.lower()}' is not a producer option of this sink. "
        f"Did you mean '{near}'?"
    )


@pytest.mark.parametrize(
    ("name", "near"),
    [("sesion.timeout.ms", "session.timeout.ms"), ("grup.id", "group.id")],
)
def test_a_misspelt_consumers_option_is_answered_with_its_own_name(name, near):
    assert f"Did you mean 'kafka.{near}'?" in (rejection_reason(f"kafka.{name}") or "")


CONSUMERS_AND_ADMINS = [
    *("auto.commit.interval.ms", "auto.offset.reset", "check.crcs"),
    *("default.api.timeout.ms", "enable.auto.commit", "exclude.internal.topics"),
    *("fetch.max.bytes", "fetch.max.wait.ms", "fetch.min.bytes", "group.id", "group.instance.id"),
    *("group.protocol", "group.remote.assignor", "heartbeat.interval.ms", "isolation.level"),
    *("key.deserializer", "max.partition.fetch.bytes", "max.poll.interval.ms", "max.poll.records"),
    *("partition.assignment.strategy", "session.timeout.ms", "share.acknowledgement.mode"),
    *("share.acquire.mode", "value.deserializer", "bootstrap.controllers"),
]
"""Of ConsumerConfig and AdminClientConfig of kafka-clients 4.4.0, without this sink's own."""


@each_row("name", CONSUMERS_AND_ADMINS)
def test_options_of_consumers_and_admins_are_accepted_and_told(name):
    """One dict for Spark's reader and for the writer works with the JVM sink."""
    options = {"kafka.bootstrap.servers": "b:9092", f"kafka.{name}": "45000"}
    (note,) = SinkOptions.parse(options).notes
    assert note.startswith(f"option 'kafka.{name}' has no effect: it is a")
    assert note.endswith("and this is a writer")
    assert closest_option(name) is None


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("sasl.enabled.mechanisms", "kafka.sasl.mechanism"),
        ("ssl.ca.cert", "kafka.ssl.truststore.location"),
        ("ssl.cafile", "kafka.ssl.truststore.location"),
        ("ssl.ca.locaton", "kafka.ssl.truststore.location"),
        ("ssl.truststore", "kafka.ssl.truststore.location"),
        ("ssl.truststore.path", "kafka.ssl.truststore.location"),
        ("ssl.keystore", "kafka.ssl.keystore.location"),
        ("ssl.crl.location", "leave it out"),
    ],
)
def test_what_is_answered_is_not_refused_next(name, instead):
    told = rejection_reason(f"kafka.{name}") or ""
    assert f" Instead: {instead}" in told
    assert "Did you mean" not in told
    if instead.startswith("kafka."):
        assert rejection_reason(instead) is None


def test_a_name_of_librdkafka_without_its_prefix():
    assert (rejection_reason("ssl.ca.location") or "").startswith(
        "option 'ssl.ca.location' is not one of this sink's. Instead: kafka.ssl.truststore.location"
    )


def test_a_kafka_option_like_no_other():
    assert rejection_reason("kafka.zzz") == (
        "Kafka option 'kafka.zzz' is not a producer option of this sink. "
        "See docs/options.md (pykafka-sink docs options)."
    )


def test_a_misspelt_option_beats_missing_servers():
    """bootstrap.server without s: "must be specified" would send the user looking elsewhere."""
    with pytest.raises(ConfigError, match=r"Did you mean 'kafka\.bootstrap\.servers'"):
        SinkOptions.parse({"kafka.bootstrap.server": "b:9092"})


@each_row(
    ("name", "near"),
    [
        ("topc", "topic"),
        ("topics", "topic"),
        ("bootstrap.servers", "kafka.bootstrap.servers"),
        ("bootstrap.server", "kafka.bootstrap.servers"),
        ("delivery.guarante", "delivery.guarantee"),
        ("deliveryGuarantee", "delivery.guarantee"),
        ("metrics_path", "metrics.path"),
        ("transactional.id.prefx", "transactional.id.prefix"),
        ("includeHeader", "includeheaders"),
        ("linger.ms", "kafka.linger.ms"),
        ("kafkalinger.ms", "kafka.linger.ms"),
        ("acks", "kafka.acks"),
        ("batchsize", "kafka.batch.size"),
        ("partitions", "kafka.partitioner"),
        ("metrics", "metrics.log"),
        ("delivery", "delivery.guarantee"),
        ("transactional.id", "transactional.id.prefix"),
        ("interceptor.classes", "kafka.interceptor.classes"),
    ],
)
def test_a_name_near_one_of_ours_is_refused_before_anything_else(name, near):
    """What was asked for would not happen. "topic option required" would not help who wrote it."""
    with pytest.raises(ConfigError) as raised:
        SinkOptions.parse({name: "exactly-once"})
    assert sentence(raised.value) == (
        f"option '{name.lower()}' is not one of this sink's. Did you mean '{near}'?"
    )


@each_row(
    "name",
    [
        *("mergeSchema", "compression", "header", "mode", "format", "encoding", "timestampFormat"),
        *("failOnDataLoss", "subscribe", "assign", "startingOffsets", "maxOffsetsPerTrigger"),
        *(
            "minPartitions",
            "groupIdPrefix",
            "kafkaConsumer.pollTimeoutMs",
            "maxRecordsPerPartition",
        ),
        *("subscribePattern", "endingOffsets", "startingTimestamp", "endingTimestamp"),
        *("startingOffsetsByTimestamp", "endingOffsetsByTimestamp", "minOffsetsPerTrigger"),
        *("startingOffsetsByTimestampStrategy", "maxTriggerDelay", "fetchOffset.numRetries"),
        "fetchOffset.retryIntervalMs",
        *("url", "dbtable", "driver", "fetchsize", "numPartitions", "truncate", "isolationLevel"),
        *("queryTimeout", "partitionColumn", "maxFilesPerTrigger", "maxRecordsPerFile"),
        *("partitionOverwriteMode", "rowsPerSecond", "txnAppId", "txnVersion", "replaceWhere"),
        *(
            "table",
            "database",
            "keyspace",
            "collection",
            "connection.uri",
            "es.nodes",
            "write-format",
        ),
    ],
)
def test_options_of_other_sinks_and_of_sources_are_not_near(name):
    """What one set of options for several sinks may have. JDBC's batchsize alone is refused: who
    writes to Kafka means batch.size, and it would have no effect.
    """
    assert closest_option(name.lower()) is None


OF_ROWS = [
    ("value.schema.registry.url", "schema.registry.url"),
    ("registry.url", "schema.registry.url"),
    ("basic.auth.user.info", "schema.registry.basic.auth.user.info"),
    ("basic.auth.credentials.source", "schema.registry.basic.auth.credentials.source"),
    ("subject.name.strategy", "value.subject.name.strategy"),
    ("value.converter.schema.registry.url", "schema.registry.url"),
    ("schema.id", "use.schema.id"),
    ("use.latest.schema", "use.latest.version"),
    ("avroSchema", "value.avro.schema"),
    ("avro.schema", "value.avro.schema"),
    ("timestampFormat", "value.json.timestampFormat"),
    ("value.timestampFormat", "value.json.timestampFormat"),
    ("key.timestampFormat", "key.json.timestampFormat"),
    ("json.timestampFormat", "value.json.timestampFormat"),
    ("timeZone", "value.json.timeZone"),
    ("ignoreNullFields", "value.json.ignoreNullFields"),
    ("json.ignoreNullFields", "value.json.ignoreNullFields"),
    ("protobuf.message", "value.protobuf.message"),
    ("messageName", "value.protobuf.message"),
    ("descFilePath", "value.protobuf.descriptor.file"),
    ("format", "value.format"),
    ("columns", "value.columns"),
]


@each_row(("name", "near"), OF_ROWS)
def test_what_others_call_an_option_of_rows_is_refused_where_rows_are_made(name, near):
    base = {"kafka.bootstrap.servers": "b:9092", name: "x"}
    with pytest.raises(ConfigError) as refused:
        SinkOptions.parse({**base, "value.format": "json"})
    assert sentence(refused.value) == (
        f"option '{name.lower()}' is not one of this sink's. Did you mean '{near}'?"
    )
    assert rejection_reason(near.lower(), ["value"]) is None
    if name.startswith(("value.", "key.")):
        with pytest.raises(ConfigError, match=re.escape(str(refused.value))):
            SinkOptions.parse(base)
    else:
        assert len(SinkOptions.parse(base).notes) == 1


@each_row(
    ("name", "advice"),
    [
        ("value.json.ignoreNulls", "Did you mean 'value.json.ignoreNullFields'?"),
        ("key.json.ignoreNulls", "Did you mean 'key.json.ignoreNullFields'?"),
        ("schema.registry.uri", "Did you mean 'schema.registry.url'?"),
        ("schema.registry.basic.auth.user", "Did you mean 'schema.registry.basic.auth.user.info'?"),
        ("value.avro.schemaText", "Did you mean 'value.avro.schema'?"),
        ("value.zzzzzzzzzzzzzzzzzzzz", "See docs/options.md (pykafka-sink docs options)."),
    ],
)
@each_row("format_options", [{}, {"value.format": "json"}])
def test_an_unknown_name_with_a_prefix_of_ours_is_refused(name, advice, format_options):
    """A warning alone let rows be written in another way than the user asked for."""
    with pytest.raises(ConfigError) as refused:
        SinkOptions.parse({"kafka.bootstrap.servers": "b:9092", name: "x", **format_options})
    assert sentence(refused.value) == f"option '{name.lower()}' is not one of this sink's. {advice}"


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("max.records.per.second", "Instead: max.bytes.per.second.per.task"),
        ("pause.path", "To pause a query, stop it"),
        ("transaction.log.missing", "Instead: transaction.accept"),
        ("transaction.log.min.isr", "min.insync.replicas of transaction.log.topic"),
    ],
)
def test_a_removed_option_that_restricts_is_refused(name, advice):
    with pytest.raises(ConfigError) as refused:
        SinkOptions.parse({"kafka.bootstrap.servers": "b:9092", name: "1"})
    assert refused.value.code == "OPTION-001"
    assert advice in sentence(refused.value)


def test_what_is_meant_follows_the_part_that_has_a_format():
    assert "'key.json.timeZone'" in (rejection_reason("timezone", ["key"]) or "")
    assert "'key.use.schema.id'" in (rejection_reason("schema.id", ["key"]) or "")


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("schema.registry.url", "schema.registry.url"),
        ("value.schema.registry.url", "schema.registry.url"),
        ("auto.register.schemas", "auto.register.schemas"),
        ("value.format", "value.format"),
        ("topic", "topic"),
    ],
)
def test_the_sinks_own_with_the_prefix_of_kafka(name, near):
    assert rejection_reason(f"kafka.{name}") == (
        f"Kafka option 'kafka.{name}' is not a producer option of this sink. Did you mean '{near}'?"
    )


FOR_OTHERS = [
    *("path", "mergeSchema", "compression", "header", "mode", "encoding", "url", "dbtable"),
    *("failOnDataLoss", "startingOffsets", "provider", "name", "connection.uri"),
    *("table", "es.nodes", "write-format", "txnAppId", "replaceWhere", "client.timeout.ms"),
]


@each_row("name", [*sorted(PASSED_BY_SPARK), *FOR_OTHERS])
def test_options_of_others_are_taken_where_rows_are_made(name):
    assert rejection_reason(name.lower(), ["value", "key"]) is None


@pytest.mark.parametrize("name", [*sorted(PASSED_BY_SPARK), "checkpointLocation", "queryName"])
def test_sparks_own_options_are_not_ours_to_judge(name):
    assert SinkOptions.parse({"kafka.bootstrap.servers": "b:9092", name: "x"}).notes == ()
