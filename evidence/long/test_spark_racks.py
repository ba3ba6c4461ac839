"""Brokers get racks one after the other, under a stream (KIP-1123); later its tasks' rack goes and comes back."""

import json
from collections import Counter
from typing import NamedTuple

import pytest
from confluent_kafka.admin import AdminClient

from spark_kafka_sink.localkafka.settings import render_properties
from tests.local_kafka import PatientKafka
from tests.patience import NO_OTHER_TIMEOUT, PATIENCE_S, eventually
from tests.reading import read_topic
from tests.spark.test_streaming import read_files, write_file
from tests.twin import partition_for_key

pytestmark = pytest.mark.timeout(1800)

TOPIC, PARTITIONS, ROWS = "racks-stream", 6, 1000
IN_A_ROW = 3
"""Micro-batches that must look alike before the brokers change again."""
ZONES = {2: "zone-b", 3: "zone-c", 1: "zone-a"}
"""In order of the rolling restart: the zone of the producer comes last."""
HOME = 1
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
    """Two partitions prefer each broker. A leader that was stopped leads again after its return."""
    with Unzoned(
        auto_leader_rebalance_enable="true",
        leader_imbalance_check_interval_seconds="1",
        leader_imbalance_per_broker_percentage="0",
    ) as brokers:
        brokers.create_topic(TOPIC, PARTITIONS, 3)
        yield brokers


def is_balanced(kafka):
    """Whether each broker leads as many partitions."""
    return Counter(kafka.leaders(TOPIC).values()) == dict.fromkeys(ZONES, PARTITIONS // len(ZONES))


def rows_of(spark, folder):
    """The value of a row begins with its id. Half of the rows have no key."""
    return (
        read_files(spark, folder)
        .selectExpr(
            "if(value % 2 = 0, key, null) as key",
            "concat(value, ':', repeat('x', 200)) as value",
        )
        .repartition(2)
    )


def id_of(record):
    return int(record.value.split(b":")[0])


class Written(NamedTuple):
    """One micro-batch.

    unkeyed: partitions of its rows without a key
    same_rack_bytes: of its metrics
    home_bytes: by how much the home's segments have grown, of partitions that it leads
    """

    unkeyed: set[int]
    same_rack_bytes: int
    home_bytes: int


class Stream:
    """One query. Each micro-batch reads one file."""

    def __init__(self, spark, kafka, folder):
        self._kafka, self._input = kafka, folder / "in"
        self._checkpoint, self._metrics = folder / "checkpoint", folder / "metrics.jsonl"
        self.count = 0
        self._input.mkdir()
        options = {f"kafka.{name.replace('_', '.')}": value for name, value in OPTIONS.items()}
        self.query = (
            rows_of(spark, self._input)
            .writeStream.format("pykafka-sink")
            .options(**options)
            .option("kafka.bootstrap.servers", kafka.bootstrap_servers)
            .option("kafka.compression.type", "none")
            .option("topic", TOPIC)
            .option("metrics.path", str(self._metrics))
            .option("checkpointLocation", str(self._checkpoint))
            .start()
        )

    def lines(self):
        if not self._metrics.exists():
            return []
        return [json.loads(line) for line in self._metrics.read_text("utf-8").splitlines()]

    def write(self):
        """What one more micro-batch has written."""
        number, before = self.count, self._home_sizes()
        write_file(self._input, number, ROWS)
        self.count += 1
        commit = self._checkpoint / "commits" / str(number)
        assert eventually(lambda: commit.exists() or not self.query.isActive)
        assert self.query.isActive, self.query.exception()
        assert eventually(lambda: len(self.lines()) > number)
        line = self.lines()[number]
        assert (line["batch_id"], line["event"]) == (number, "commit")
        after, leaders = self._home_sizes(), self._kafka.leaders(TOPIC)
        return Written(
            {r.partition for r in self.records() if r.key is None and id_of(r) // ROWS == number},
            line["metrics"]["same_rack_bytes"],
            sum(after[p] - before[p] for p, leader in leaders.items() if leader == HOME),
        )

    def settles(self, condition):
        """Whether ``condition`` holds from some micro-batch on."""
        return eventually(lambda: all(condition(self.write()) for _ in range(IN_A_ROW)))

    def is_everywhere(self, written):
        return written.unkeyed == set(range(PARTITIONS)) and written.same_rack_bytes == 0

    def is_at_home(self, written):
        leaders = self._kafka.leaders(TOPIC)
        home = {partition for partition, leader in leaders.items() if leader == HOME}
        return written.unkeyed == home and written.same_rack_bytes == written.home_bytes > 0

    def records(self):
        return read_topic(self._kafka.bootstrap_servers, TOPIC)

    def _home_sizes(self):
        folder = self._kafka.data_directory(HOME)
        return {
            partition: sum(
                segment.stat().st_size for segment in folder.glob(f"{TOPIC}-{partition}/*.log")
            )
            for partition in range(PARTITIONS)
        }


def put_into_zones(kafka, stream):
    """Restart the brokers one after the other, the home last, while the query goes on."""
    for broker_id in ZONES:
        kafka.stop(broker_id)
        stream.write()
        kafka.put_into_zone(broker_id)
        kafka.restart(broker_id)
        kafka.await_in_sync()
        assert eventually(lambda b=broker_id: kafka.zones()[b] == ZONES[b])
        if broker_id != HOME:
            assert stream.settles(stream.is_everywhere)
            assert not any(line["metrics"]["same_rack_bytes"] for line in stream.lines())


def test_a_stream_follows_racks_that_come_go_and_come_back(spark, kafka, tmp_path):
    assert kafka.zones() == dict.fromkeys(ZONES)
    stream = Stream(spark, kafka, tmp_path)
    try:
        assert stream.settles(stream.is_everywhere)
        put_into_zones(kafka, stream)
        assert eventually(lambda: is_balanced(kafka))
        assert stream.settles(stream.is_at_home)
        kafka.stop(HOME)
        assert eventually(lambda: HOME not in kafka.leaders(TOPIC).values())
        assert stream.settles(stream.is_everywhere)
        kafka.restart(HOME)
        assert eventually(lambda: is_balanced(kafka))
        assert stream.settles(stream.is_at_home)
    finally:
        stream.query.stop()
    records = stream.records()
    assert sorted(id_of(r) for r in records) == list(range(stream.count * ROWS))
    keyed = [r for r in records if r.key is not None]
    assert sorted(int(r.key) for r in keyed) == list(range(0, stream.count * ROWS, 2))
    assert all(int(r.key) == id_of(r) for r in keyed)
    assert all(r.partition == partition_for_key(r.key, PARTITIONS) for r in keyed)
