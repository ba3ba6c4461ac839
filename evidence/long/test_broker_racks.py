"""Brokers get racks one after the other, under a producer that runs (KIP-1123)."""

from collections import Counter

import pytest
from confluent_kafka.admin import AdminClient

from spark_kafka_sink.localkafka.settings import render_properties
from tests.broker.producing import append, producer_for
from tests.local_kafka import PatientKafka
from tests.patience import NO_OTHER_TIMEOUT, PATIENCE_S, eventually
from tests.reading import read_topic, read_values

pytestmark = pytest.mark.timeout(1800)

TOPIC = "racks-later"
ZONES = {2: "zone-b", 3: "zone-c", 1: "zone-a"}
"""In order of the rolling restart: the zone of the producer comes last."""
HOME = 1
ROWS = 2000
OPTIONS = {
    "partitioner_rack_aware": "true",
    "client_rack": ZONES[HOME],
    "metadata_max_age_ms": "200",
    "batch_size": "4096",
    # Each batch goes to any partition with the same chance, however slow a broker is.
    "partitioner_adaptive_partitioning_enable": "false",
    **NO_OTHER_TIMEOUT,
}


class Unzoned(PatientKafka):
    """Three brokers without a rack at first, and what another client sees of them."""

    def __init__(self, **properties):
        properties = {name.replace("_", "."): value for name, value in properties.items()}
        super().__init__(3, server_properties={"auto.create.topics.enable": "false", **properties})
        self._other = None

    def start(self):
        super().start()
        self._other = AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})

    def leaders(self, topic):
        """The leader of each partition."""
        partitions = self._other.list_topics(topic, timeout=PATIENCE_S).topics[topic].partitions
        return {number: one.leader for number, one in partitions.items()}

    def zones(self):
        """The rack of each broker that runs."""
        nodes = self._other.describe_cluster(request_timeout=PATIENCE_S).result(PATIENCE_S).nodes
        return {node.id: node.rack for node in nodes}

    def put_into_zone(self, broker_id):
        """Add a line to the properties of a broker that is stopped."""
        file = self.data_directory(broker_id).parent / "server.properties"
        line = render_properties({"broker.rack": ZONES[broker_id]})
        file.write_text(file.read_text(encoding="ascii") + line, encoding="ascii")


@pytest.fixture(scope="module")
def kafka():
    """One partition at each broker, which never moves."""
    with Unzoned() as brokers:
        brokers.create_topic(TOPIC, 3, 1)
        yield brokers


class Rounds:
    """One producer that writes the same number of rows without a key, again and again."""

    def __init__(self, kafka, producer):
        self._kafka, self._producer = kafka, producer
        self._leaders = kafka.leaders(TOPIC)
        self.count = 0

    def append(self):
        rows = [f"{self.count}:{row}:{'x' * 100}".encode() for row in range(ROWS)]
        append(self._producer, TOPIC, rows)
        self.count += 1

    def write(self):
        """How many rows of a new round are at each broker."""
        self.append()
        self._producer.flush()
        prefix = b"%d:" % (self.count - 1)
        return Counter(
            self._leaders[record.partition]
            for record in read_topic(self._kafka.bootstrap_servers, TOPIC)
            if record.value.startswith(prefix)
        )


def test_rows_go_to_the_rack_of_the_producer_once_its_brokers_have_racks(kafka):
    assert kafka.zones() == dict.fromkeys(ZONES)
    with producer_for(kafka.bootstrap_servers, **OPTIONS) as producer:
        rounds = Rounds(kafka, producer)
        assert rounds.write().keys() == ZONES.keys()
        for broker_id in ZONES:
            kafka.stop(broker_id)
            rounds.append()
            kafka.put_into_zone(broker_id)
            kafka.restart(broker_id)
            if broker_id != HOME:
                assert eventually(lambda: rounds.write().keys() == ZONES.keys())
                assert producer.metrics.same_rack_bytes == 0
        assert eventually(lambda: kafka.zones() == ZONES)
        assert eventually(lambda: rounds.write() == {HOME: ROWS})
        assert producer.metrics.same_rack_bytes > 0
        assert producer.is_healthy
    found = Counter(value.split(b":x")[0] for value in read_values(kafka.bootstrap_servers, TOPIC))
    expected = [b"%d:%d" % (number, row) for number in range(rounds.count) for row in range(ROWS)]
    assert found == Counter(expected)
