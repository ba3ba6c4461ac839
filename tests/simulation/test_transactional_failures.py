"""What ends a transactional task, and what the user is told."""

from __future__ import annotations

import pytest

from spark_kafka_sink.base.errors import (
    BrokerError,
    DeliveryError,
    LocalProtocolError,
    UnsupportedVersionError,
)
from spark_kafka_sink.producer.producer_batch import ProducerBatch
from spark_kafka_sink.protocol.messages.topics import ProduceRequest
from tests.simulation.partition import NO_LEADER
from tests.simulation.transactional import NAME, TIMEOUT_MS, Transactional
from tests.simulation.transactions import KAFKA_4_3


def test_a_writer_whose_id_was_taken_over_is_told_so(simulation):
    simulation.begin()
    simulation.write(0, b"a")
    prepared = simulation.producer.transaction
    simulation.take_over()
    simulation.append_to(0, [b"b"])
    with pytest.raises(DeliveryError) as caught:
        simulation.producer.flush()
    message = str(caught.value)
    for part in ("t-0", NAME, "another driver", "transactional.id.prefix", "Let the batch run"):
        assert part in message
    assert simulation.end(prepared) in {"PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"}
    assert simulation.committed()[0] == []


def test_a_new_partition_after_the_takeover_is_refused_too(simulation):
    simulation.begin()
    simulation.write(0, b"a")
    simulation.take_over()
    simulation.append_to(1, [b"b"])
    with pytest.raises((DeliveryError, BrokerError), match="another driver"):
        simulation.producer.flush()


def test_a_transaction_that_timed_out_fails_the_task_and_names_the_option(simulation):
    simulation.begin()
    simulation.write(0, b"a")
    simulation.run_for(TIMEOUT_MS + 15_000)
    simulation.append_to(0, [b"b"])
    with pytest.raises((DeliveryError, BrokerError), match=r"kafka\.transaction\.timeout\.ms"):
        simulation.producer.flush()
    simulation.run_for(1000)
    assert simulation.transactions.open_in_logs() == {}
    assert simulation.committed()[0] == []


@pytest.mark.parametrize(
    ("error", "part"),
    [
        ("UNKNOWN_PRODUCER_ID", "has lost its state"),
        ("OUT_OF_ORDER_SEQUENCE_NUMBER", "has lost its state"),
        ("INVALID_PRODUCER_EPOCH", "another driver"),
        ("PRODUCER_FENCED", "another driver"),
        ("INVALID_TXN_STATE", "brokers aborted"),
        ("TRANSACTION_ABORTABLE", "brokers aborted"),
        ("TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "grant the principal"),
        ("INVALID_PRODUCER_ID_MAPPING", "transactional.id.expiration.ms"),
    ],
)
def test_errors_that_need_another_epoch_end_the_task(simulation, error, part):
    simulation.begin()
    simulation.write(0, b"a")
    producer = simulation.producer.sender.transaction
    simulation.cluster.on_produce = lambda *_: error
    simulation.append_to(0, [b"b"])
    with pytest.raises(DeliveryError) as caught:
        simulation.producer.flush()
    for expected in (error, f"in transaction {NAME}", "What to do", part):
        assert expected in str(caught.value)
    simulation.run_for(1000)
    assert simulation.producer.sender.transaction == producer


def test_an_id_that_may_not_be_used_fails_the_task(simulation):
    simulation.cluster.on_init_producer_id = lambda: "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"
    simulation.producer = simulation._create_producer()
    simulation.begin()
    with pytest.raises(BrokerError, match="grant the principal WRITE on all ids"):
        simulation.write(0, b"a")


def test_a_coordinator_that_cannot_be_had_is_named_when_time_is_up(simulation):
    index = simulation.transactions.log.partition_for(NAME)
    simulation.transactions.log.partitions[index].elect(NO_LEADER)
    simulation.cluster.publish(now=True)
    simulation.begin()
    started_ms = simulation.clock.ms
    with pytest.raises(DeliveryError) as caught:
        simulation.write(0, b"a")
    assert 120_000 <= simulation.clock.ms - started_ms < 121_000
    for part in (NAME, "no coordinator", "COORDINATOR_NOT_AVAILABLE", "delivery.timeout.ms"):
        assert part in str(caught.value)


def test_a_leader_too_old_for_the_feature_fails_the_task_and_says_so():
    simulation = Transactional(2, {**KAFKA_4_3, 0: (0, 11)})
    simulation.begin()
    with pytest.raises(UnsupportedVersionError, match=r"transaction\.version is 2"):
        simulation.write(0, b"a")
    assert simulation.count(ProduceRequest) == 0


@pytest.mark.parametrize("is_transactional", [True, False])
def test_a_batch_whose_bit_is_wrong_is_never_sent(simulation, is_transactional, monkeypatch):
    close = ProducerBatch.close

    def wrong(batch):
        close(batch)
        batch.buffers[0][22] ^= 0x10

    monkeypatch.setattr(ProducerBatch, "close", wrong)
    if is_transactional:
        simulation.begin()
    with pytest.raises(LocalProtocolError, match="defect"):
        simulation.write(0, b"a")
    assert simulation.count(ProduceRequest) == 0
