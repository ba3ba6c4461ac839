"""The producer in transactions, stepped by hand against simulated coordinators and leaders."""

from __future__ import annotations

import pytest

from spark_kafka_sink.errors import (
    BrokerError,
    ConfigError,
    DeliveryError,
    KafkaSinkError,
    LocalProtocolError,
    UnsupportedVersionError,
)
from spark_kafka_sink.model import NO_PRODUCER, PreparedTransaction, ProducerIdAndEpoch
from spark_kafka_sink.producer.producer_batch import ProducerBatch
from spark_kafka_sink.protocol import schema
from spark_kafka_sink.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from spark_kafka_sink.protocol.messages.init_producer_id import InitProducerIdRequest
from spark_kafka_sink.protocol.messages.produce import ProduceRequest
from tests.simulation.harness import Simulation, keyed
from tests.simulation.partition import NO_LEADER
from tests.simulation.transactions import KAFKA_2_1, KAFKA_3_9, KAFKA_4_3

NAME, TIMEOUT_MS = "flights.0", 60_000


class Transactional(Simulation):
    """A simulation whose brokers coordinate transactions. ``asked``: (request, version)."""

    def __init__(self, transaction_version=2, offered=KAFKA_4_3, partitions=3, **options):
        super().__init__(0, **options)
        self.transactions = self.cluster.enable_transactions(transaction_version, offered)
        self.cluster.create_topic("t", partitions)
        self.asked: list[tuple[schema.Request, int]] = []
        handle = self.cluster.handle

        def noting(broker, request, version, reply):
            self.asked.append((request, version))
            handle(broker, request, version, reply)

        self.cluster.handle = noting

    def begin(self, name: str = NAME) -> None:
        self.producer.begin_task(["t"])
        self.producer.begin_transaction(name, TIMEOUT_MS)

    def write(self, partition: int, *values: bytes) -> None:
        self.append_to(partition, list(values))
        self.producer.flush()

    def task(self, name: str, partition: int, *values: bytes) -> PreparedTransaction | None:
        self.begin(name)
        self.write(partition, *values)
        return self.producer.transaction

    def versions(self, request_type: type[schema.Request]) -> set[int]:
        return {v for request, v in self.asked if isinstance(request, request_type)}

    def count(self, request_type: type[schema.Request]) -> int:
        return sum(isinstance(request, request_type) for request, _ in self.asked)

    def end(self, prepared: PreparedTransaction | None, is_commit: bool = True) -> str:
        """Somebody else ends the transaction; the error's name, when the markers are written."""
        assert prepared is not None
        name, producer_id, epoch, version = prepared
        answers: list[str] = []
        while not answers or answers[-1] == "CONCURRENT_TRANSACTIONS":
            coordinator = self.transactions.coordinators[self.transactions.coordinator_id(name)]
            coordinator.end_transaction(
                name, ProducerIdAndEpoch(producer_id, epoch), is_commit, version >= 2,
                lambda error, _: answers.append(error),
            )  # fmt: skip
            self.run_for(100)
        return answers[-1]

    def take_over(self, name: str = NAME) -> None:
        """Somebody else begins a transaction under the same id."""
        answers: list[str] = []
        while not answers or answers[-1] == "CONCURRENT_TRANSACTIONS":
            coordinator = self.transactions.coordinators[self.transactions.coordinator_id(name)]
            coordinator.init_producer_id(
                name, TIMEOUT_MS, NO_PRODUCER, lambda error, _: answers.append(error)
            )
            self.run_for(100)
        assert answers[-1] == "NONE"

    def committed(self) -> dict[int, list[bytes | None]]:
        return {
            index: [record.value for record in records]
            for index, records in self.transactions.committed("t").items()
        }


GENERATIONS = [(2, KAFKA_4_3), (1, KAFKA_4_3), (0, KAFKA_4_3), (0, KAFKA_3_9), (0, KAFKA_2_1)]


@pytest.fixture(params=GENERATIONS, ids=["TV2", "TV1", "TV0", "3.9", "2.1"])
def simulation(request) -> Transactional:
    """Brokers of each kind."""
    return Transactional(*request.param)


# --- one transaction ------------------------------------------------------------------------------


def test_what_is_written_is_visible_when_somebody_else_has_committed_it(simulation):
    version = simulation.transactions.transaction_version
    simulation.begin()
    rows = keyed(500)
    simulation.append(rows)
    simulation.producer.flush()
    prepared = simulation.producer.transaction
    assert prepared is not None
    assert (prepared.transactional_id, prepared.transaction_version) == (NAME, version)
    assert simulation.all_values() == sorted(value for _, value in rows)
    assert sum(len(values) for values in simulation.committed().values()) == 0
    assert simulation.end(prepared) == "NONE"
    assert sum(len(values) for values in simulation.committed().values()) == 500
    assert simulation.transactions.open_in_logs() == {}


def test_versions_follow_the_finalized_feature_and_not_what_brokers_offer(simulation):
    simulation.task(NAME, 0, b"a")
    _, highest = simulation.cluster.api_versions[ProduceRequest.api_key]
    if simulation.transactions.transaction_version == 2:
        assert simulation.versions(ProduceRequest) == {highest}
        assert highest >= 12
        assert simulation.count(AddPartitionsToTxnRequest) == 0
    else:
        assert simulation.versions(ProduceRequest) == {min(highest, 11)}
        _, adding = simulation.cluster.api_versions[AddPartitionsToTxnRequest.api_key]
        assert simulation.versions(AddPartitionsToTxnRequest) == {min(adding, 3)}


def test_every_batch_says_thrice_that_it_is_transactional(simulation):
    headers = []
    simulation.cluster.on_produce = lambda *told: headers.append(told[-1].header)
    simulation.begin()
    for start in range(0, 300, 100):
        simulation.append(keyed(300)[start : start + 100])
    simulation.producer.flush()
    prepared = simulation.producer.transaction
    requests = [r for r, _ in simulation.asked if isinstance(r, ProduceRequest)]
    assert requests
    assert headers
    assert {request.transactional_id for request in requests} == {NAME}
    assert all(header.attributes & 0x10 for header in headers)
    assert {(h.producer_id, h.producer_epoch) for h in headers} == {prepared[1:3]}


def test_nothing_written_is_no_transaction(simulation):
    simulation.begin()
    simulation.run_for(1000)
    simulation.producer.flush()
    assert simulation.producer.transaction is None
    assert simulation.transactions.open_ids() == []


def test_partitions_are_added_in_a_single_request_per_round():
    simulation = Transactional(1, partitions=50)
    simulation.begin()
    simulation.append(keyed(2000))
    simulation.producer.flush()
    assert simulation.count(AddPartitionsToTxnRequest) <= 3
    simulation.append(keyed(2000))
    count = simulation.count(AddPartitionsToTxnRequest)
    simulation.producer.flush()
    assert simulation.count(AddPartitionsToTxnRequest) == count


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_parts_of_a_batch_that_is_too_large_are_transactional_too(codec):
    simulation = Transactional(partitions=1, batch_size="100000", compression_type=codec)
    simulation.cluster.topics["t"].max_message_bytes = 4000
    simulation.begin()
    simulation.append(keyed(500, size=100))
    simulation.producer.flush()
    assert simulation.producer.metrics.batch_splits > 0
    assert simulation.end(simulation.producer.transaction) == "NONE"
    assert simulation.committed()[0] == [value for _, value in keyed(500, size=100)]


def test_what_needs_a_transaction():
    simulation = Transactional(enable_idempotence="false")
    with pytest.raises(ConfigError, match="enable.idempotence"):
        simulation.begin()
    simulation = Transactional()
    with pytest.raises(ConfigError, match="empty"):
        simulation.begin("")
    simulation.append_to(0, [b"a"])
    simulation.producer.flush()
    with pytest.raises(KafkaSinkError, match="before the first append"):
        simulation.producer.begin_transaction(NAME, TIMEOUT_MS)


def test_a_transaction_is_prepared_only_after_flush():
    simulation = Transactional(partitions=1)
    simulation.begin()
    simulation.write(0, b"a")
    simulation.cluster.on_produce = lambda *_: "NOT_ENOUGH_REPLICAS"
    simulation.append_to(0, [b"b"])
    simulation.producer._appender.close_open()
    simulation.run_for(50)
    with pytest.raises(KafkaSinkError, match="only after flush"):
        _ = simulation.producer.transaction


# --- several on one producer ----------------------------------------------------------------------


def test_one_producer_writes_for_many_ids_and_for_none(simulation):
    first = simulation.task("flights.0", 0, b"a", b"b")
    second = simulation.task("flights.1", 0, b"c")
    assert simulation.end(second, is_commit=False) == "NONE"
    assert simulation.end(first) == "NONE"
    simulation.producer.begin_task(["t"])
    simulation.write(0, b"d")
    assert simulation.producer.transaction is None
    third = simulation.task("flights.0", 0, b"e")
    assert simulation.end(third) == "NONE"
    assert simulation.committed()[0] == [b"a", b"b", b"d", b"e"]
    headers = [
        batch.header
        for batch in simulation.cluster.topics["t"].partitions[0].log.batches
        if batch.header.base_sequence >= 0
    ]
    assert [header.base_sequence for header in headers] == [0] * 4
    assert first[1] == third[1] != second[1]
    assert headers[2].producer_id not in {first[1], second[1]}
    assert not headers[2].attributes & 0x10
    assert third.producer_epoch > first.producer_epoch
    assert simulation.producer.is_clean


def test_a_hundred_transactions_take_one_producer_id():
    simulation = Transactional(partitions=1)
    simulation.run_for(500)
    ids = simulation.cluster.next_producer_id
    prepared = []
    for index in range(100):
        prepared.append(simulation.task(NAME, 0, b"%d" % index))
        assert simulation.end(prepared[-1]) == "NONE"
    assert simulation.cluster.next_producer_id == ids + 1
    assert len({p.producer_epoch for p in prepared}) == 100
    assert simulation.committed()[0] == [b"%d" % index for index in range(100)]


def test_between_transactions_no_producer_id_is_asked_for():
    """A pooled producer has no identity for a moment; each would be one more for the brokers."""
    simulation = Transactional(partitions=1)
    simulation.task(NAME, 0, b"a")
    asked = simulation.count(InitProducerIdRequest)
    simulation.producer.begin_task(["t"])
    simulation.run_for(1000)
    assert simulation.count(InitProducerIdRequest) == asked
    simulation.write(0, b"b")
    assert simulation.count(InitProducerIdRequest) == asked + 1


def test_a_late_answer_of_the_task_before_changes_nothing():
    """The task before had no rows; its InitProducerId is answered in the middle of the next."""
    simulation = Transactional(partitions=1)
    simulation.run_for(500)
    handle, held = simulation.cluster.handle, []

    def holding(broker, request, version, reply):
        if isinstance(request, InitProducerIdRequest) and not held:
            held.append(lambda: handle(broker, request, version, reply))
        else:
            handle(broker, request, version, reply)

    simulation.cluster.handle = holding
    simulation.begin("flights.0")
    simulation.run_for(100)
    assert held
    simulation.producer.flush()
    assert simulation.producer.transaction is None
    coordinator = simulation.transactions.coordinator_id("flights.0")
    name = next(
        name for name in (f"flights.{i}" for i in range(1, 20))
        if simulation.transactions.coordinator_id(name) != coordinator
    )  # fmt: skip
    simulation.begin(name)
    simulation.append_to(0, [b"a"])
    simulation.producer._appender.close_open()
    simulation.scheduler.after(50, held[0])
    simulation.producer.flush()
    simulation.run_for(1000)
    prepared = simulation.producer.transaction
    assert prepared is not None
    assert prepared.transactional_id == name
    assert simulation.end(prepared) == "NONE"
    assert simulation.committed()[0] == [b"a"]
    assert simulation.count(InitProducerIdRequest) == 3


# --- what passes ----------------------------------------------------------------------------------


def test_a_lost_answer_doubles_nothing(simulation):
    seen = []

    def lose_first_answer(broker, topic, index, batch):
        seen.append(batch.header)
        simulation.network.faults.cut_next_response = len(seen) == 1

    simulation.cluster.on_produce = lose_first_answer
    prepared = simulation.task(NAME, 0, b"a", b"b")
    assert seen == [seen[0]] * 2
    assert simulation.end(prepared) == "NONE"
    assert simulation.committed()[0] == [b"a", b"b"]


@pytest.mark.parametrize(("error", "limit_ms"), [("CONCURRENT_TRANSACTIONS", 100)])
def test_a_leader_that_ends_the_transaction_before_is_asked_again_soon(error, limit_ms):
    simulation = Transactional()
    failures = iter([error] * 2)
    simulation.begin()
    simulation.run_for(500)
    simulation.cluster.on_produce = lambda *_: next(failures, None)
    started_ms = simulation.clock.ms
    simulation.write(0, b"a")
    assert simulation.clock.ms - started_ms < limit_ms
    assert simulation.producer.metrics.retries == 2


def test_a_moved_leader_is_followed_within_the_transaction(simulation):
    simulation.begin()
    simulation.write(0, b"a")
    simulation.cluster.move_leader("t", 0, to=2)
    simulation.write(0, b"b")
    assert simulation.end(simulation.producer.transaction) == "NONE"
    assert simulation.committed()[0] == [b"a", b"b"]


def test_a_coordinator_that_moves_in_the_middle_is_found_again(simulation):
    simulation.begin()
    simulation.write(0, b"a")
    elsewhere = simulation.transactions.coordinator_id(NAME) % 3 + 1
    simulation.transactions.move_coordinator(NAME, elsewhere)
    simulation.append_to(1, [b"b"])
    simulation.append_to(2, [b"c"])
    simulation.producer.flush()
    assert simulation.end(simulation.producer.transaction) == "NONE"
    assert simulation.committed() == {0: [b"a"], 1: [b"b"], 2: [b"c"]}


@pytest.mark.parametrize("is_before", [True, False], ids=["before", "in the middle"])
def test_a_coordinator_that_dies_is_replaced(simulation, is_before):
    node_id = simulation.transactions.coordinator_id(NAME)
    partitions = [i for i in range(3) if simulation.cluster.topics["t"].partitions[i].leader_id
                  != node_id]  # fmt: skip
    simulation.begin()
    if not is_before:
        simulation.write(partitions[0], b"a")
    simulation.cluster.crash(node_id, election_delay_ms=3_000)
    for partition in partitions:
        simulation.append_to(partition, [b"b"])
    simulation.producer.flush()
    prepared = simulation.producer.transaction
    assert simulation.transactions.coordinator_id(NAME) != node_id
    assert simulation.end(prepared) == "NONE"
    values = [[b"b"] if is_before else [b"a", b"b"], [b"b"]]
    assert [simulation.committed()[partition] for partition in partitions] == values


# --- what does not pass ---------------------------------------------------------------------------


def test_a_writer_whose_id_was_taken_over_is_told_so(simulation):
    simulation.begin()
    simulation.write(0, b"a")
    prepared = simulation.producer.transaction
    simulation.take_over()
    simulation.append_to(0, [b"b"])
    with pytest.raises(DeliveryError) as caught:
        simulation.producer.flush()
    message = str(caught.value)
    for part in ("t-0", NAME, "somebody else", "transactional.id.prefix", "Let the batch run"):
        assert part in message
    assert simulation.end(prepared) in {"PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"}
    assert simulation.committed()[0] == []


def test_a_new_partition_after_the_takeover_is_refused_too(simulation):
    simulation.begin()
    simulation.write(0, b"a")
    simulation.take_over()
    simulation.append_to(1, [b"b"])
    with pytest.raises((DeliveryError, BrokerError), match="somebody else"):
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
        ("UNKNOWN_PRODUCER_ID", "has lost what it knew"),
        ("OUT_OF_ORDER_SEQUENCE_NUMBER", "has lost what it knew"),
        ("INVALID_PRODUCER_EPOCH", "somebody else"),
        ("PRODUCER_FENCED", "somebody else"),
        ("INVALID_TXN_STATE", "aborted it"),
        ("TRANSACTION_ABORTABLE", "aborted it"),
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
    with pytest.raises(BrokerError, match="grant the principal WRITE and DESCRIBE"):
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
    seal = ProducerBatch.seal

    def wrong(batch):
        seal(batch)
        batch.buffers[0][22] ^= 0x10

    monkeypatch.setattr(ProducerBatch, "seal", wrong)
    if is_transactional:
        simulation.begin()
    with pytest.raises(LocalProtocolError, match="defect"):
        simulation.write(0, b"a")
    assert simulation.count(ProduceRequest) == 0
