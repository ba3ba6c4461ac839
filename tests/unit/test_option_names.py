"""Names of options: misspelt ones are refused with the right name, those of others are not."""

from __future__ import annotations

import re

import pytest

from spark_kafka_sink.base.codes import sentence
from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.config.option_names import (
    PASSED_BY_SPARK,
    closest_option,
    rejection_reason,
)
from spark_kafka_sink.config.sink_options import SinkOptions


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
def test_a_misspelt_kafka_option_is_refused_with_the_nearest_name(name: str, near: str) -> None:
    assert rejection_reason(name.lower()) == (
        f"Kafka option '{name.lower()}' is not a producer option of this sink. "
        f"Did you mean '{near}'?"
    )


@pytest.mark.parametrize(
    ("name", "near"),
    [("sesion.timeout.ms", "session.timeout.ms"), ("grup.id", "group.id")],
)
def test_a_misspelt_consumers_option_is_answered_with_its_own_name(name: str, near: str) -> None:
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


@pytest.mark.parametrize("name", CONSUMERS_AND_ADMINS)
def test_options_of_consumers_and_admins_are_accepted_and_told(name: str) -> None:
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
def test_what_is_answered_is_not_refused_next(name: str, instead: str) -> None:
    told = rejection_reason(f"kafka.{name}") or ""
    assert f" Instead: {instead}" in told
    assert "Did you mean" not in told
    if instead.startswith("kafka."):
        assert rejection_reason(instead) is None


def test_a_name_of_librdkafka_without_its_prefix() -> None:
    assert (rejection_reason("ssl.ca.location") or "").startswith(
        "option 'ssl.ca.location' is not one of this sink's. Instead: kafka.ssl.truststore.location"
    )


def test_a_kafka_option_like_no_other() -> None:
    assert rejection_reason("kafka.zzz") == (
        "Kafka option 'kafka.zzz' is not a producer option of this sink. "
        "See docs/options.md (pykafka-sink docs options)."
    )


def test_a_misspelt_option_beats_missing_servers() -> None:
    """bootstrap.server without s: "must be specified" would send the user looking elsewhere."""
    with pytest.raises(ConfigError, match=r"Did you mean 'kafka\.bootstrap\.servers'"):
        SinkOptions.parse({"kafka.bootstrap.server": "b:9092"})


@pytest.mark.parametrize(
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
def test_a_name_near_one_of_ours_is_refused_before_anything_else(name: str, near: str) -> None:
    """What was asked for would not happen. "topic option required" would not help who wrote it."""
    with pytest.raises(ConfigError) as raised:
        SinkOptions.parse({name: "exactly-once"})
    assert sentence(raised.value) == (
        f"option '{name.lower()}' is not one of this sink's. Did you mean '{near}'?"
    )


@pytest.mark.parametrize(
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
def test_options_of_other_sinks_and_of_sources_are_not_near(name: str) -> None:
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


@pytest.mark.parametrize(("name", "near"), OF_ROWS)
def test_what_others_call_an_option_of_rows_is_refused_where_rows_are_made(
    name: str, near: str
) -> None:
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


@pytest.mark.parametrize(
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
@pytest.mark.parametrize("format_options", [{}, {"value.format": "json"}])
def test_an_unknown_name_with_a_prefix_of_ours_is_refused(
    name: str, advice: str, format_options: dict[str, str]
) -> None:
    """A warning alone let rows be written in another way than the user asked for."""
    with pytest.raises(ConfigError) as refused:
        SinkOptions.parse({"kafka.bootstrap.servers": "b:9092", name: "x", **format_options})
    assert sentence(refused.value) == f"option '{name.lower()}' is not one of this sink's. {advice}"


def test_what_is_meant_follows_the_part_that_has_a_format() -> None:
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
def test_the_sinks_own_with_the_prefix_of_kafka(name: str, near: str) -> None:
    assert rejection_reason(f"kafka.{name}") == (
        f"Kafka option 'kafka.{name}' is not a producer option of this sink. Did you mean '{near}'?"
    )


FOR_OTHERS = [
    *("path", "mergeSchema", "compression", "header", "mode", "encoding", "url", "dbtable"),
    *("failOnDataLoss", "startingOffsets", "provider", "name", "connection.uri"),
    *("table", "es.nodes", "write-format", "txnAppId", "replaceWhere", "client.timeout.ms"),
]


@pytest.mark.parametrize("name", [*sorted(PASSED_BY_SPARK), *FOR_OTHERS])
def test_options_of_others_are_taken_where_rows_are_made(name: str) -> None:
    assert rejection_reason(name.lower(), ["value", "key"]) is None


@pytest.mark.parametrize("name", [*sorted(PASSED_BY_SPARK), "checkpointLocation", "queryName"])
def test_sparks_own_options_are_not_ours_to_judge(name: str) -> None:
    assert SinkOptions.parse({"kafka.bootstrap.servers": "b:9092", name: "x"}).notes == ()


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("max.bytes.per.second", "max.bytes.per.second.per.task"),
        ("pause.path", "start it again with its checkpoint"),
        ("batch.growth.enable", "kafka.batch.size"),
        ("value.avro.schema.file", "value.avro.schema with the path of the file"),
        ("key.avro.schema.file", "key.avro.schema with the path"),
        ("value.json.schema.file", "value.json.schema with the path"),
        ("key.json.schema.file", "key.json.schema with the path"),
        ("preflight.topic.timeout.ms", "preflight.timeout.ms"),
        ("worker.tuning", "leave it out"),
        ("schema.registry.request.timeout.ms", "schema.registry.timeout.ms"),
        ("json.schema.title", "value.json.schema with a title"),
        ("metrics.path.backups", "five files are kept"),
        ("transaction.log.min.isr", "it is 2, or 1 with one replica"),
    ],
)
def test_a_removed_option_is_refused_with_its_replacement(name: str, instead: str) -> None:
    with pytest.raises(ConfigError, match=rf"option '{name}' was removed\. Instead: .*{instead}"):
        SinkOptions.parse({"kafka.bootstrap.servers": "b:1", name: "1"})
