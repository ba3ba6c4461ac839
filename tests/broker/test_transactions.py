"""Transactions that a producer begins and somebody else ends, on real brokers.

What is visible is asked of confluent-kafka; transactions are ended by a client of their own, as the
driver does.
"""

import pickle
import subprocess
import sys
from contextlib import contextmanager

import pytest

from spark_kafka_sink.base.errors import DeliveryError, KafkaSinkError, error_for_code
from spark_kafka_sink.base.model import Node
from spark_kafka_sink.client.admin import AdminClient
from spark_kafka_sink.protocol.messages.transactions import (
    TRANSACTION_KEY_TYPE,
    EndTxnRequest,
    FindCoordinatorRequest,
)
from tests.broker.creating import producer_for
from tests.broker.processes import eventually
from tests.broker.producing import batch_of, plan_of
from tests.broker.test_broker_versions import batches_of
from tests.local_kafka import PatientKafka
from tests.patience import PATIENCE_MS
from tests.reading import read_topic, values

TIMEOUT_MS = 60_000
PARTITIONS = 3


class EndTxnRequestV4(EndTxnRequest):
    """What ends a transaction below transaction.version 2, though brokers offer version 5."""

    max_version = 4


@pytest.fixture(scope="module")
def kafka_tv1():
    """A broker of today whose transaction.version is not: it offers more than it can do."""
    with PatientKafka() as local_kafka:
        local_kafka.run_tool(
            "FeatureCommand",
            "--bootstrap-server",
            local_kafka.bootstrap_servers,
            "downgrade",
            "--feature",
            "transaction.version=1",
        )
        yield local_kafka


TRANSACTION_VERSIONS = {"kafka": 2, "kafka_tv1": 1, "kafka_3_9": 0}


@pytest.fixture(params=TRANSACTION_VERSIONS)
def version(request):
    """The finalized level of transaction.version of ``broker``."""
    return TRANSACTION_VERSIONS[request.param]


@pytest.fixture
def broker(request, version):
    [name] = [name for name, level in TRANSACTION_VERSIONS.items() if level == version]
    return request.getfixturevalue(name)


def rows(start, count=300):
    numbers = range(start, start + count)
    return batch_of(
        key=[b"%d" % n for n in numbers],
        value=[b"%d" % n for n in numbers],
        partition=[n % PARTITIONS for n in numbers],
    )


def write(producer, topic, transactional_id, batches):
    """One task."""
    producer.begin_task([topic])
    producer.begin_transaction(transactional_id, TIMEOUT_MS)
    for batch in batches:
        producer.append(batch, plan_of(batch, topic))
    producer.flush()
    return producer.transaction


def write_rows(producer, topic):
    producer.append(rows(0), plan_of(rows(0), topic))
    producer.flush()


@contextmanager
def coordinator_of(kafka, transactional_id):
    with AdminClient.connect(kafka.bootstrap_servers) as admin:
        request = FindCoordinatorRequest(
            key_type=TRANSACTION_KEY_TYPE, coordinator_keys=[transactional_id]
        )
        response = admin.request(None, request, admin.deadline_in(PATIENCE_MS))
        [found] = response.coordinators
        assert found.error_code == 0
        yield admin, Node(found.node_id, found.host, found.port)


def end(kafka, prepared, is_commit=True):
    """End the transaction as the driver does; the name of the broker's error."""
    request_type = EndTxnRequest if prepared.transaction_version >= 2 else EndTxnRequestV4
    request = request_type(*prepared[:3], committed=is_commit)
    with coordinator_of(kafka, prepared.transactional_id) as (admin, node):
        while True:
            response = admin.request(node, request, admin.deadline_in(PATIENCE_MS))
            name = error_for_code(response.error_code).name
            if name != "CONCURRENT_TRANSACTIONS":
                return name


def committed(kafka, topic):
    records = read_topic(kafka.bootstrap_servers, topic, **{"isolation.level": "read_committed"})
    return sorted(int(value or b"") for value in values(records))


def uncommitted(kafka, topic):
    records = read_topic(kafka.bootstrap_servers, topic, **{"isolation.level": "read_uncommitted"})
    return sorted(int(value or b"") for value in values(records))


def test_a_transaction_is_visible_once_somebody_else_has_committed_it(broker, version):
    """Also that the version follows the finalized feature, not what the broker offers."""
    topic, name = f"txn-ended-{version}", "txn.ended"
    broker.create_topic(topic, PARTITIONS)
    with producer_for(broker.bootstrap_servers, batch_size="1024") as producer:
        prepared = write(producer, topic, name, [rows(0), rows(300)])
    assert prepared.transactional_id == name
    assert prepared.transaction_version == version
    assert pickle.loads(pickle.dumps(prepared)) == prepared
    assert uncommitted(broker, topic) == list(range(600))
    assert committed(broker, topic) == []
    assert end(broker, prepared) == "NONE"
    assert eventually(lambda: committed(broker, topic) == list(range(600)))
    for partition in range(PARTITIONS):
        batches = [b for b in batches_of(broker, topic, partition) if b.base_sequence >= 0]
        assert len(batches) > 1
        assert {(b.producer_id, b.producer_epoch) for b in batches} == {prepared[1:3]}
        assert [b.base_sequence for b in batches] == [b.base_offset for b in batches]


def test_one_producer_writes_transactions_of_several_ids_and_of_none(broker, version):
    """One is committed, one aborted, one empty; then without, and the first id once more."""
    topic = f"txn-several-{version}"
    broker.create_topic(topic, PARTITIONS)
    with producer_for(broker.bootstrap_servers) as producer:
        first = write(producer, topic, "txn.several.0", [rows(0)])
        second = write(producer, topic, "txn.several.1", [rows(1000)])
        assert write(producer, topic, "txn.several.2", []) is None
        assert (end(broker, first), end(broker, second, is_commit=False)) == ("NONE", "NONE")
        producer.begin_task([topic])
        producer.append(rows(2000), plan_of(rows(2000), topic))
        producer.flush()
        assert producer.transaction is None
        third = write(producer, topic, "txn.several.0", [rows(3000)])
        assert end(broker, third) == "NONE"
        assert producer.is_healthy
    expected = [*range(300), *range(2000, 2300), *range(3000, 3300)]
    assert eventually(lambda: committed(broker, topic) == expected)
    assert third.producer_id == first.producer_id
    assert third.producer_epoch > first.producer_epoch
    producers = {(b.producer_id, b.producer_epoch) for b in batches_of(broker, topic)}
    assert len({producer_id for producer_id, _ in producers}) == 3


def test_a_writer_whose_id_was_taken_over_is_told_so(broker, version):
    """And what it wrote before is not visible, whatever it does afterwards."""
    topic, name = f"txn-fenced-{version}", "txn.fenced"
    broker.create_topic(topic, PARTITIONS)
    with (
        producer_for(broker.bootstrap_servers) as older,
        producer_for(broker.bootstrap_servers) as newer,
    ):
        lost = write(older, topic, name, [rows(0)])
        kept = write(newer, topic, name, [rows(1000)])
        older.append(rows(2000), plan_of(rows(2000), topic))
        with pytest.raises(DeliveryError) as caught:
            older.flush()
        with pytest.raises(DeliveryError):
            _ = older.transaction
    for part in (f"transaction {name}", "somebody else", "kafka.transaction.timeout.ms"):
        assert part in str(caught.value)
    assert end(broker, lost) in {"PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"}
    assert end(broker, kept) == "NONE"
    assert eventually(lambda: committed(broker, topic) == list(range(1000, 1300)))


def test_a_transaction_outlives_the_process_that_wrote_it(kafka):
    """A worker that ends with its connections open; the driver has three numbers and a name."""
    topic = "txn-outlives"
    kafka.create_topic(topic, PARTITIONS)
    code = f"""
import pickle, sys
from tests.broker.producing import open_producer
from tests.broker.test_transactions import rows, write
producer = open_producer({kafka.bootstrap_servers!r})
prepared = write(producer, {topic!r}, "txn.outlives", [rows(0)])
sys.stdout.buffer.write(pickle.dumps(prepared))
sys.stdout.flush()
import os; os.kill(os.getpid(), 9)
"""
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=False)
    assert done.returncode == -9
    assert committed(kafka, topic) == []
    assert end(kafka, pickle.loads(done.stdout)) == "NONE"
    assert eventually(lambda: committed(kafka, topic) == list(range(300)))


def test_a_timeout_beyond_the_brokers_maximum_fails_the_task_and_names_the_options(kafka):
    with producer_for(kafka.bootstrap_servers) as producer:
        producer.begin_task([])
        producer.begin_transaction("txn.timeout", 900_001)
        with pytest.raises(KafkaSinkError) as caught:
            write_rows(producer, "txn-timeout")
    for part in ("txn.timeout", "INVALID_TRANSACTION_TIMEOUT", "transaction.max.timeout.ms"):
        assert part in str(caught.value)
