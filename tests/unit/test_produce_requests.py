"""What a produce request says of a transaction: all of it, or nothing, or it is not sent."""

from __future__ import annotations

from uuid import UUID

import pytest

from spark_kafka_sink.base.errors import LocalProtocolError, UnsupportedVersionError
from spark_kafka_sink.base.model import NO_PRODUCER, PreparedTransaction, ProducerIdAndEpoch
from spark_kafka_sink.producer.producer_batch import ProducerBatch
from spark_kafka_sink.producer.sender import (
    check_adds_partitions,
    highest_version,
    produce_request,
)
from spark_kafka_sink.protocol.api import BrokerApiVersions, VersionRange
from spark_kafka_sink.protocol.messages.topics import ProduceRequest
from tests.unit.batches import NODES, T0, T1, make_batch

TRANSACTION = PreparedTransaction("flights.0", 42, 3, 2)
OLD_TRANSACTION = TRANSACTION._replace(transaction_version=1)
PRODUCER = ProducerIdAndEpoch(42, 3)


def sealed(
    producer: ProducerIdAndEpoch, transactional_id: str | None, topic_partition=T0
) -> ProducerBatch:
    batch = make_batch(topic_partition)
    batch.set_producer_state(producer, 0, transactional_id)
    batch.close()
    return batch


def request_of(transaction: PreparedTransaction | None, *batches: ProducerBatch) -> ProduceRequest:
    return produce_request(batches, -1, 30_000, transaction)


def offering(first: int, last: int) -> BrokerApiVersions:
    return BrokerApiVersions({ProduceRequest.api_key: VersionRange(first, last)})


def test_id_bit_and_producer_come_together():
    batches = [sealed(PRODUCER, "flights.0", tp) for tp in (T0, T1)]
    request = request_of(TRANSACTION, *batches)
    assert request.transactional_id == "flights.0"
    assert [p.index for t in request.topic_data for p in t.partition_data] == [0, 1]


def test_a_topic_has_the_id_that_its_batches_were_found_ready_with():
    """The task thread may forget an idle topic's metadata before the request is made."""
    topic_id = UUID(int=7)
    batch = sealed(PRODUCER, None)
    batch.topic_id = topic_id
    request = request_of(None, batch)
    assert [topic.topic_id for topic in request.topic_data] == [topic_id]
    assert highest_version(request, None) is None


@pytest.mark.parametrize("producer", [PRODUCER, NO_PRODUCER])
def test_or_not_at_all(producer):
    request = request_of(None, sealed(producer, None))
    assert request.transactional_id is None


@pytest.mark.parametrize(
    ("transaction", "producer", "transactional_id"),
    [
        (TRANSACTION, PRODUCER, None),
        (None, PRODUCER, "flights.0"),
        (TRANSACTION, PRODUCER, "flights.1"),
        (TRANSACTION, NO_PRODUCER, "flights.0"),
        (TRANSACTION, ProducerIdAndEpoch(42, 2), "flights.0"),
        (TRANSACTION, ProducerIdAndEpoch(41, 3), "flights.0"),
        (PreparedTransaction("flights.0", -1, -1, 2), NO_PRODUCER, "flights.0"),
        (PreparedTransaction("", 42, 3, 2), PRODUCER, ""),
    ],
)
def test_a_mixture_is_never_sent(transaction, producer, transactional_id):
    """Brokers would take some of these as records of no transaction."""
    with pytest.raises(LocalProtocolError, match="t-0 was about to be sent"):
        request_of(transaction, sealed(producer, transactional_id))


def test_one_wrong_batch_is_enough():
    right, wrong = sealed(PRODUCER, "flights.0", T1), sealed(PRODUCER, None)
    with pytest.raises(LocalProtocolError, match="t-0 was about to be sent"):
        request_of(TRANSACTION, right, wrong)


@pytest.mark.parametrize("is_transactional", [True, False])
def test_what_counts_are_the_bytes(is_transactional):
    batch = sealed(PRODUCER, "flights.0" if is_transactional else None)
    batch.buffers[0][22] ^= 0x10
    with pytest.raises(LocalProtocolError, match="defect"):
        request_of(TRANSACTION if is_transactional else None, batch)


def test_versions_follow_the_transaction_version():
    batch = sealed(PRODUCER, "flights.0")
    request = request_of(TRANSACTION, batch)
    assert highest_version(request_of(OLD_TRANSACTION, batch), OLD_TRANSACTION) == 11
    # This cluster's topics have no ids, which version 13 needs.
    assert highest_version(request, TRANSACTION) == 12
    assert highest_version(request_of(None, sealed(PRODUCER, None)), None) == 12


@pytest.mark.parametrize("last", [12, 13])
def test_a_leader_that_adds_partitions(last):
    check_adds_partitions(NODES[1], offering(0, last), TRANSACTION)


@pytest.mark.parametrize("transaction", [None, OLD_TRANSACTION])
def test_a_leader_that_need_not_add_partitions(transaction):
    check_adds_partitions(NODES[1], offering(0, 9), transaction)


def test_a_leader_that_would_not_add_partitions_is_refused():
    with pytest.raises(UnsupportedVersionError) as caught:
        check_adds_partitions(NODES[1], offering(0, 11), TRANSACTION)
    for part in ("broker 1", "11", "transaction.version is 2", "12"):
        assert part in str(caught.value)
