"""The producer in transactions, in a simulation whose brokers coordinate them."""

from __future__ import annotations

from spark_kafka_sink.base.model import NO_PRODUCER, PreparedTransaction, ProducerIdAndEpoch
from spark_kafka_sink.protocol import schema
from tests.simulation.harness import Simulation
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
                name,
                ProducerIdAndEpoch(producer_id, epoch),
                is_commit,
                version >= 2,
                lambda error, _: answers.append(error),
            )
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
