"""Errors that brokers answer: what is tried again arrives once and in order, what is not is told."""

import pytest

from spark_kafka_sink.base.errors import KafkaSinkError
from tests.kfake.writing import Numbers

pytestmark = pytest.mark.long

TRIED_AGAIN = (
    "NOT_LEADER_FOR_PARTITION",
    "LEADER_NOT_AVAILABLE",
    "REPLICA_NOT_AVAILABLE",
    "UNKNOWN_TOPIC_OR_PARTITION",
    "REQUEST_TIMED_OUT",  # the records are in the log all the same
    "NOT_ENOUGH_REPLICAS",
    "NOT_ENOUGH_REPLICAS_AFTER_APPEND",  # and here
    "KAFKA_STORAGE_ERROR",
    "CORRUPT_MESSAGE",
    "FENCED_LEADER_EPOCH",
    "UNKNOWN_LEADER_EPOCH",
    "THROTTLING_QUOTA_EXCEEDED",
    "UNKNOWN_TOPIC_ID",
    "INCONSISTENT_TOPIC_ID",
)
NEW_EPOCH = ("OUT_OF_ORDER_SEQUENCE_NUMBER", "UNKNOWN_PRODUCER_ID")
REFUSED = (
    "TOPIC_AUTHORIZATION_FAILED",
    "CLUSTER_AUTHORIZATION_FAILED",
    "INVALID_TOPIC_EXCEPTION",
    "INVALID_RECORD",
    "INVALID_REQUIRED_ACKS",
    "INVALID_TIMESTAMP",
    "POLICY_VIOLATION",
    "UNSUPPORTED_COMPRESSION_TYPE",
    "UNSUPPORTED_FOR_MESSAGE_FORMAT",
    "UNKNOWN_SERVER_ERROR",
    "INVALID_REQUEST",
    "INVALID_PRODUCER_EPOCH",
)

skip = pytest.mark.parametrize("skip", [0, 3], ids=["at first", "after three"])


@skip
@pytest.mark.parametrize("error", TRIED_AGAIN)
def test_what_may_pass_is_tried_again(cluster, error, skip):
    numbers = Numbers(cluster).create()
    cluster.do("fault", api="Produce", error=error, count=3, skip=skip)
    assert numbers.deliver().retries >= 3


@skip
@pytest.mark.parametrize("error", NEW_EPOCH)
def test_lost_sequences_begin_anew(cluster, error, skip):
    """In one partition: other partitions go on with the older epoch while they have batches in
    flight, as the Java client's do, which Apache Kafka takes and kfake does not.
    """
    numbers = Numbers(cluster, partitions=1).create()
    cluster.do("fault", api="Produce", error=error, count=3, skip=skip)
    assert numbers.deliver().retries >= 3


@pytest.mark.parametrize("error", REFUSED)
def test_what_will_not_pass_fails_the_task(cluster, error):
    numbers = Numbers(cluster).create()
    cluster.do("fault", api="Produce", error=error, count=-1)
    with pytest.raises(KafkaSinkError) as raised:
        numbers.deliver()
    assert error in str(raised.value)
    assert numbers.topic in str(raised.value)


@pytest.mark.parametrize(
    "error", ["LEADER_NOT_AVAILABLE", "UNKNOWN_TOPIC_OR_PARTITION", "KAFKA_STORAGE_ERROR"]
)
def test_metadata_that_are_not_there_yet(cluster, error):
    numbers = Numbers(cluster).create()
    cluster.do("fault", api="Metadata", error=error, topic=numbers.topic, count=3)
    numbers.deliver()
    assert cluster.do("hits") == 3


@pytest.mark.parametrize("error", ["TOPIC_AUTHORIZATION_FAILED", "INVALID_TOPIC_EXCEPTION"])
def test_metadata_that_are_refused(cluster, error):
    numbers = Numbers(cluster).create()
    cluster.do("fault", api="Metadata", error=error, topic=numbers.topic, count=-1)
    with pytest.raises(KafkaSinkError, match=f"{numbers.topic}.*{error}"):
        numbers.deliver()


@pytest.mark.parametrize(
    "error", ["COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR"]
)
def test_a_producer_id_is_asked_for_again(cluster, error):
    numbers = Numbers(cluster).create()
    cluster.do("fault", api="InitProducerID", error=error, count=3)
    numbers.deliver()
    assert cluster.do("hits") == 3


def test_a_producer_id_that_is_refused(cluster):
    numbers = Numbers(cluster).create()
    cluster.do("fault", api="InitProducerID", error="CLUSTER_AUTHORIZATION_FAILED", count=-1)
    with pytest.raises(KafkaSinkError, match="CLUSTER_AUTHORIZATION_FAILED") as raised:
        numbers.deliver()
    assert "kafka.enable.idempotence=false" in str(raised.value)


def test_batches_that_are_too_large_are_split(cluster):
    numbers = Numbers(cluster).create(**{"max.message.bytes": "1000"})
    metrics = numbers.deliver(batch_size="16384")
    assert metrics.batch_splits > 0
