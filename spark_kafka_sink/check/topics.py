"""Checks of topics: can they take records with these options, and how do they change records?

``--write`` writes one test record, which stays in the topic.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace

from spark_kafka_sink import __version__
from spark_kafka_sink.base.clock import Clock
from spark_kafka_sink.base.errors import KafkaSinkError, advice_for, error_for_code
from spark_kafka_sink.base.model import NO_NODE_ID
from spark_kafka_sink.check.finding import Finding, Outcome, failed, passed, unknown, warned
from spark_kafka_sink.client.admin import AdminClient, configs_or_reason
from spark_kafka_sink.config.producer_config import ACKS_ALL, ProducerConfig, TopicCreation
from spark_kafka_sink.config.sink_keys import DeadLetterConfig
from spark_kafka_sink.protocol.messages.topics import TOPIC_RESOURCE, MetadataResponsePartition

_MIN_ISR = "min.insync.replicas"
_CODEC = "compression.type"
_LARGEST = "max.message.bytes"
_CONFIGS = [
    _LARGEST,
    _MIN_ISR,
    "cleanup.policy",
    _CODEC,
    "message.timestamp.type",
]
_MOST_NAMED = 5


def topic(
    admin: AdminClient, name: str, config: ProducerConfig, timeout_ms: int
) -> Iterator[Finding]:
    """Check partitions, leaders, in-sync replicas, and the topic's settings against the options."""
    subject = f"topic {name}"
    described = admin.metadata([name], False, admin.deadline_in(timeout_ms)).topics[0]
    error = error_for_code(described.error_code)
    if error.name == "UNKNOWN_TOPIC_OR_PARTITION":
        yield _missing(admin, subject, config.topic_creation, timeout_ms)
        return
    if described.error_code:
        yield failed(subject, str(error), advice_for(error))
        return
    yield passed(subject, f"{len(described.partitions)} partitions")
    yield from _leaders(subject, described.partitions)
    node = admin.any_node(admin.deadline_in(timeout_ms))
    deadline_ms = admin.deadline_in(timeout_ms)
    try:
        told, reason = configs_or_reason(admin, node, TOPIC_RESOURCE, name, _CONFIGS, deadline_ms)
    except KafkaSinkError as failure:
        yield unknown(f"{subject}: settings", str(failure))
        return
    if not told:
        told_not = f"not told: {reason}" if reason else "not told"
        yield unknown(f"{subject}: settings", told_not, "it needs DESCRIBE_CONFIGS on the topic")
        return
    yield from _in_sync(subject, described.partitions, told, config)
    yield from _settings(subject, told, config)


def dead_letters(
    admin: AdminClient, letters: DeadLetterConfig, config: ProducerConfig, timeout_ms: int
) -> Iterator[Finding]:
    """Check the topic of dead letters like any topic; it must not be compacted.

    If the topic is missing, the job creates it.
    """
    config = replace(config, topic_creation=letters.creation)
    for finding in topic(admin, letters.topic, config, timeout_ms):
        if finding.subject.endswith(": cleanup.policy"):
            yield failed(
                finding.subject,
                f"{finding.text}: dead letters without a key would be refused",
                "set cleanup.policy=delete, or name another topic in "
                "errors.deadletterqueue.topic.name",
            )
        elif finding.outcome is Outcome.WARNED and finding.subject.endswith(f": {_LARGEST}"):
            cure = "a larger dead letter is cut off to it: raise it, to keep such rows whole"
            yield finding._replace(cure=cure)
        else:
            yield finding


def _missing(
    admin: AdminClient, subject: str, creation: TopicCreation | None, timeout_ms: int
) -> Finding:
    if creation is None:
        return failed(
            subject,
            "does not exist, or this principal may not DESCRIBE it",
            "create it, or set topic.creation.enable=true; brokers with auto.create.topics.enable "
            "create it when the job starts",
        )
    brokers = len(admin.nodes(admin.deadline_in(timeout_ms)))
    if creation.replication_factor > brokers:
        return failed(
            subject,
            f"not there, and cannot be created with {creation.replicas_by} = "
            f"{creation.replication_factor}: there are {brokers} brokers",
            f"set {creation.replicas_by} to their number at most",
        )
    return passed(subject, f"not there yet: {creation.asked_by} creates it, with the right CREATE")


def _leaders(subject: str, partitions: list[MetadataResponsePartition]) -> Iterator[Finding]:
    without = [p.partition_index for p in partitions if p.leader_id == NO_NODE_ID]
    if without:
        yield failed(
            subject,
            f"no leader for {_named(without)}",
            "no broker with an in-sync replica is up: start it; records for these would wait for "
            "kafka.delivery.timeout.ms",
        )


def _in_sync(
    subject: str,
    partitions: list[MetadataResponsePartition],
    told: Mapping[str, str],
    config: ProducerConfig,
) -> Iterator[Finding]:
    needed = int(told.get(_MIN_ISR, "1"))
    few = [p.partition_index for p in partitions if len(p.isr_nodes) < needed]
    replicas = min((len(p.replica_nodes) for p in partitions), default=0)
    if few and config.acks == ACKS_ALL:
        cure = (
            f"the topic has {replicas} replicas: no record is ever taken; lower {_MIN_ISR}"
            if replicas < needed
            else "start the brokers of the missing replicas: until then nothing is acknowledged"
        )
        yield failed(f"{subject}: {_MIN_ISR}", f"{needed}, and fewer for {_named(few)}", cure)
    elif needed == 1 and replicas > 1:
        yield warned(
            f"{subject}: {_MIN_ISR}",
            f"1, with {replicas} replicas",
            "a record is acknowledged when only its leader has it, and lost with that broker: "
            f"set the topic's {_MIN_ISR}=2",
        )
    else:
        yield passed(f"{subject}: {_MIN_ISR}", f"{needed}, with {replicas} replicas")


def _settings(subject: str, told: Mapping[str, str], config: ProducerConfig) -> Iterator[Finding]:
    largest = int(told.get(_LARGEST, config.max_request_size))
    limit = f"{subject}: {_LARGEST}"
    if largest < config.max_request_size:
        yield warned(
            limit,
            f"{largest}, less than kafka.max.request.size = {config.max_request_size}",
            "a single record between the two fails its task: set both alike, if there are such",
        )
    else:
        yield passed(limit, f"{largest}")
    codec = told.get(_CODEC, "producer")
    if codec not in ("producer", config.compression_type.replace("none", "uncompressed")):
        yield warned(
            f"{subject}: {_CODEC}",
            f"{codec}: the brokers compress every batch again",
            f"set kafka.compression.type={codec.replace('uncompressed', 'none')}, or the topic's "
            "to producer",
        )
    if "compact" in told.get("cleanup.policy", ""):
        yield warned(
            f"{subject}: cleanup.policy",
            told["cleanup.policy"],
            "rows without a key are refused by the brokers",
        )
    if told.get("message.timestamp.type") == "LogAppendTime":
        yield warned(
            f"{subject}: message.timestamp.type",
            "LogAppendTime",
            "the brokers replace the timestamps of all rows",
        )


def _named(partitions: list[int]) -> str:
    shown = ", ".join(map(str, partitions[:_MOST_NAMED]))
    more = len(partitions) - _MOST_NAMED
    return f"partitions {shown}" + (f" and {more} more" if more > 0 else "")


# --- test record ---------------------------------------------------------------------------------

_KEY = b"pykafka-sink check"


def write_record(config: ProducerConfig, topic: str, clock: Clock) -> Iterator[Finding]:
    """Write a record with the tasks' producer and its options, outside a transaction."""
    # Only this check loads pyarrow and the kernels.
    import pyarrow as pa

    from spark_kafka_sink.columns.positions import ColumnPositions
    from spark_kafka_sink.producer.producer import ThreadedProducer

    subject = f"test record to {topic}"
    value = json.dumps({"pykafka-sink check": __version__}).encode()
    columns = {"key": [_KEY], "value": [value]}
    row = pa.record_batch([pa.array(c, pa.binary()) for c in columns.values()], [*columns])
    began_ms = clock.now_ms()
    producer = ThreadedProducer(config, [topic])
    try:
        producer.append(row, ColumnPositions(value=1, key=0, topic_option=topic))
        producer.flush()
    except KafkaSinkError as error:
        yield failed(subject, str(error))
        return
    finally:
        producer.close()
    for partition, report in producer.report.items():
        place = f"{partition}, offset {report.first_offset}"
        yield passed(subject, f"acknowledged: {place}, after {clock.now_ms() - began_ms} ms")
