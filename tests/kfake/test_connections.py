"""Connections that end, answers that are late or lost, leaders that move, brokers that throttle."""

import random
import threading

import pytest

from tests.kfake.writing import ROWS_PER_CHUNK, Numbers
from tests.patience import eventually

pytestmark = pytest.mark.long

THROTTLE_MS = 300
BROKERS = 3


@pytest.mark.parametrize("api", ["Produce", "Metadata", "InitProducerID", "ApiVersions"])
@pytest.mark.parametrize("what", ["close", "lose"])
def test_connections_that_end_instead_of_an_answer(cluster, what, api):
    """Before anything is done, or after it: then records are in the log that nobody acknowledged."""
    numbers = Numbers(cluster).create()
    cluster.do(what, api=api, count=1 if api == "InitProducerID" else 3)
    numbers.deliver()


def test_answers_that_are_lost_at_any_time(cluster):
    numbers = Numbers(cluster, chunks=40).create()
    metrics = numbers.deliver(
        lambda n: cluster.do("lose", api="Produce", count=1, skip=n % 4) if n % 4 == 0 else None
    )
    assert metrics.retries > 0


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


def test_leaders_that_move(cluster):
    """Before each chunk, each partition to another broker."""
    numbers = Numbers(cluster, chunks=40).create()

    def move(number):
        for partition in range(numbers.partitions):
            node = (number + partition) % BROKERS
            cluster.do("move", topic=numbers.topic, partition=partition, node=node)

    numbers.deliver(move)
    assert len({seen.node for seen in cluster.requests("Produce")}) == BROKERS


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
