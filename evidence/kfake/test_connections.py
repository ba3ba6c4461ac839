"""What kfake's brokers do to connections, answers and leaders, the errors that they answer, and their versions."""

import random
import threading

import pytest

from evidence.kfake.writing import ROWS_PER_CHUNK, Numbers
from spark_kafka_sink.base.errors import KafkaSinkError
from tests.broker.test_records import CODECS
from tests.patience import eventually

THROTTLE_MS = 300
BROKERS = 3


@pytest.mark.parametrize("api", ["Produce", "Metadata", "InitProducerID", "ApiVersions"])
@pytest.mark.parametrize("what", ["close", "lose"])
def test_connections_that_end_instead_of_an_answer(cluster, what, api):
    """Before anything is done, or after it: then records are in the log that nobody acknowledged."""
    numbers = Numbers(cluster).create()
    cluster.do(what, api=api, count=1 if api == "InitProducerID" else 3)
    numbers.deliver()


def test_an_answer_that_comes_after_its_request_was_sent_again(new_cluster):
    """The broker does what it was asked for only once the same has been done for a later request."""
    cluster = new_cluster()
    numbers = Numbers(cluster).create()
    cluster.do("hold", api="Produce", count=1, skip=2)
    released = []

    def release_when_sent_again():
        assert eventually(lambda: cluster.do("held") == 1)
        before = len(cluster.requests("Produce"))
        assert eventually(lambda: len(cluster.requests("Produce")) > before)
        released.append(cluster.do("release"))

    releasing = threading.Thread(target=release_when_sent_again)
    releasing.start()
    metrics = numbers.deliver(lambda n: releasing.join() if n == 9 else None, **SHORT)
    assert released
    assert metrics.retries > 0


SHORT = {"request_timeout_ms": "500", "delivery_timeout_ms": "900000"}


def test_a_broker_that_throttles_is_left_alone(new_cluster):
    """For as long as it says (KIP-219), while nothing of it is acknowledged."""
    cluster = new_cluster()
    numbers = Numbers(cluster, partitions=1).create()
    cluster.do("throttle", error="NOT_ENOUGH_REPLICAS", ms=THROTTLE_MS, count=3)
    metrics = numbers.deliver(max_in_flight_requests_per_connection="1")
    assert metrics.throttle_time_ms == 3 * THROTTLE_MS
    times_ms = [seen.ns / 1e6 for seen in cluster.requests("Produce")]
    pauses = [later - earlier for earlier, later in zip(times_ms, times_ms[1:])][:3]
    assert all(pause >= THROTTLE_MS for pause in pauses), pauses


@pytest.mark.parametrize("seed", range(20))
def test_all_of_it_in_any_order(cluster, seed):
    chance = random.Random(seed)
    numbers = Numbers(cluster, chunks=30).create()
    errors = ("NOT_LEADER_FOR_PARTITION", "REQUEST_TIMED_OUT", "NOT_ENOUGH_REPLICAS_AFTER_APPEND")

    def disturb(number):
        when = {"api": "Produce", "count": chance.randint(1, 3), "skip": chance.randint(0, 5)}
        what = chance.choice(["nothing", "fault", "close", "lose", "move"])
        if what == "fault":
            cluster.do("fault", error=chance.choice(errors), **when)
        elif what == "move":
            partition, node = chance.randrange(numbers.partitions), chance.randrange(BROKERS)
            cluster.do("move", topic=numbers.topic, partition=partition, node=node)
        elif what != "nothing":
            cluster.do(what, **when)

    numbers.deliver(disturb)


def test_without_idempotence_the_same_doubles_records(cluster):
    """So these tests would see it."""
    numbers = Numbers(cluster).create()
    cluster.do("lose", api="Produce", count=3, skip=3)
    with pytest.raises(AssertionError):
        numbers.deliver(
            enable_idempotence="false", max_in_flight_requests_per_connection="1", acks="all"
        )
    log_ends = [
        cluster.do("partition", topic=numbers.topic, partition=n)["HighWatermark"]
        for n in range(numbers.partitions)
    ]
    assert sum(log_ends) > numbers.chunks * ROWS_PER_CHUNK


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


OF_METADATA = ("TOPIC_AUTHORIZATION_FAILED", "INVALID_TOPIC_EXCEPTION")


@pytest.mark.parametrize(
    ("api", "error"),
    [
        *(("Produce", error) for error in REFUSED),
        *(("Metadata", error) for error in OF_METADATA),
        ("InitProducerID", "CLUSTER_AUTHORIZATION_FAILED"),
    ],
)
def test_what_will_not_pass_fails_the_task(cluster, api, error):
    numbers = Numbers(cluster).create()
    cluster.do("fault", api=api, error=error, count=-1)
    with pytest.raises(KafkaSinkError, match=error) as raised:
        numbers.deliver()
    named = "kafka.enable.idempotence=false" if api == "InitProducerID" else numbers.topic
    assert named in str(raised.value)


NOT_YET = {
    "Metadata": ("LEADER_NOT_AVAILABLE", "UNKNOWN_TOPIC_OR_PARTITION", "KAFKA_STORAGE_ERROR"),
    "InitProducerID": (
        *("COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR"),
    ),
}


@pytest.mark.parametrize(("api", "error"), [(api, one) for api in NOT_YET for one in NOT_YET[api]])
def test_what_may_be_there_later_is_asked_for_again(cluster, api, error):
    numbers = Numbers(cluster).create()
    topic = {"topic": numbers.topic} if api == "Metadata" else {}
    cluster.do("fault", api=api, error=error, count=3, **topic)
    numbers.deliver()
    assert cluster.do("hits") == 3


VERSIONS = (
    *(f"2.{minor}" for minor in range(1, 9)),
    *(f"3.{minor}" for minor in range(10)),
    *(f"4.{minor}" for minor in range(5)),
)


@pytest.mark.parametrize("version", VERSIONS)
def test_each_is_spoken_with(new_cluster, version):
    cluster = new_cluster(version=version, brokers=2)
    for codec in CODECS:
        numbers = Numbers(cluster, codec, chunks=3).create()
        cluster.do("fault", api="Produce", error="NOT_LEADER_FOR_PARTITION", count=1, skip=1)
        cluster.do("lose", api="Produce", count=1, skip=2)
        assert numbers.deliver(compression_type=codec).retries > 0


def test_too_old(new_cluster):
    numbers = Numbers(new_cluster(version="0.10.2")).create()
    with pytest.raises(KafkaSinkError, match="does not offer InitProducerId"):
        numbers.deliver()
