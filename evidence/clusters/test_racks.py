"""Rack-aware partitioning: two standalone workers in zones of their own, three brokers with racks."""

import json
import subprocess
import sys
from collections import Counter
from typing import NamedTuple

import pytest
from confluent_kafka.admin import AdminClient

from evidence.clusters.working import with_this_python
from evidence.harness.standalone import CLIENT_CONF, StandaloneCluster
from tests.local_kafka import PatientKafka
from tests.patience import PATIENCE_S, eventually
from tests.reading import read_topic

pytestmark = pytest.mark.timeout(1800)

RACKS = {1: "zone-a", 2: "zone-b", 3: "zone-c"}
ZONE_OF_WORKER = {"worker-0": "zone-a", "worker-1": "zone-b"}
ROWS, TASKS = 4000, 4
OF_EXECUTORS = {
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": f"{PATIENCE_S}s",
}
DRIVER = '''
import json, sys
from pyspark.sql import SparkSession
builder = SparkSession.builder.master(sys.argv[1])
for setting in sys.argv[2:]:
    builder = builder.config(*setting.split("=", 1))
spark = builder.getOrCreate()

def name_zone(batches):
    """Let each row name the zone of the machine whose task writes it."""
    import os
    import pyarrow as pa
    for batch in batches:
        texts = [f"{os.environ['AZ']}:{i}:{'x' * 100}" for i in batch.column(0).to_pylist()]
        yield pa.record_batch([pa.array(texts)], ["value"])

for line in sys.stdin:
    asked = json.loads(line)
    frame = spark.range(0, asked["rows"], 1, asked["tasks"]).mapInArrow(name_zone, "value string")
    frame.write.format("pykafka-sink").mode("append").options(**asked["options"]).save()
    print("done", flush=True)
'''


class InZones(StandaloneCluster):
    """Each worker, with its executors, has the variable AZ of its own; nothing else has one."""

    def launch(self, name, command, environment=None):
        zone = ZONE_OF_WORKER.get(name)
        own = environment if zone is None else {**self._environment, "AZ": zone}
        return super().launch(name, command, own)


class Driver:
    """A driver without the variable AZ."""

    def __init__(self, process, kafka, metrics):
        self._process, self._kafka, self._metrics = process, kafka, metrics

    def write(self, topic, **options):
        """Write rows to a topic; return the metrics of the batch."""
        chosen = {
            "kafka.bootstrap.servers": self._kafka.bootstrap_servers,
            "topic": topic,
            "metrics.path": str(self._metrics),
            "kafka.partitioner.rack.aware": "true",
            "kafka.client.rack": "${env:AZ}",
            "kafka.batch.size": "4096",
            "kafka.metadata.max.age.ms": "1000",
            **options,
        }
        asked = json.dumps({"rows": ROWS, "tasks": TASKS, "options": chosen})
        self._process.stdin.write(asked + "\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == "done\n"
        return json.loads(self._metrics.read_text(encoding="utf-8").splitlines()[-1])


@pytest.fixture(scope="module")
def kafka():
    """Three brokers, each in a rack. A leader that was stopped leads again soon after its return."""
    properties = {
        "auto.leader.rebalance.enable": "true",
        "leader.imbalance.check.interval.seconds": "1",
        "leader.imbalance.per.broker.percentage": "0",
    }
    with PatientKafka(3, server_properties=properties, racks=list(RACKS.values())) as brokers:
        yield brokers


@pytest.fixture(scope="module")
def driver(kafka, tmp_path_factory):
    folder = tmp_path_factory.mktemp("racks")
    with InZones(folder) as cluster:
        conf = {**CLIENT_CONF, **OF_EXECUTORS}
        settings = [f"{name}={value}" for name, value in conf.items()]
        environment = with_this_python()
        environment.pop("AZ", None)
        with (
            (folder / "driver.log").open("wb") as log,
            subprocess.Popen(
                [sys.executable, "-c", DRIVER, cluster.master, *settings],
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            ) as process,
        ):
            yield Driver(process, kafka, folder / "metrics.jsonl")
            process.stdin.close()
            process.wait(PATIENCE_S)


class Written(NamedTuple):
    """Where a row is, and the zone of the machine that wrote it."""

    zone: str
    rack: str


def leaders(kafka, topic):
    """The rack of each partition's leader, as another client sees it."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    partitions = admin.list_topics(topic, timeout=PATIENCE_S).topics[topic].partitions
    return {number: RACKS.get(one.leader) for number, one in partitions.items()}


def written(kafka, topic, skipped=0):
    """How many rows of each zone are in partitions of each rack, beyond ``skipped`` in all."""
    racks = leaders(kafka, topic)
    records = sorted(read_topic(kafka.bootstrap_servers, topic), key=lambda r: r.timestamp)
    new = records[skipped:]
    return Counter(Written(r.value.decode().split(":")[0], racks[r.partition]) for r in new)


def bytes_by_rack(kafka, topic):
    """The sizes of the segments of a topic, at each broker."""
    return {
        rack: sum(
            path.stat().st_size for path in kafka.data_directory(broker).glob(f"{topic}-*/*.log")
        )
        for broker, rack in RACKS.items()
    }


def test_bytes_stay_in_the_rack_of_each_task(kafka, driver):
    """Partitions are skewed over racks, executors too: no zone has workers in zone-c."""
    topic = "racks-bytes"
    kafka.create_topic(topic, 7, 1)
    line = driver.write(topic)
    found = written(kafka, topic)
    assert found.keys() == {Written("zone-a", "zone-a"), Written("zone-b", "zone-b")}
    assert found.total() == ROWS
    stored = bytes_by_rack(kafka, topic)
    assert stored["zone-c"] == 0
    assert stored["zone-a"] > 0 < stored["zone-b"]
    assert line["metrics"]["same_rack_bytes"] == sum(stored.values())


def test_a_rack_of_no_broker_and_the_option_off_use_all_racks(kafka, driver):
    everywhere = {
        Written(zone, rack) for zone in ZONE_OF_WORKER.values() for rack in RACKS.values()
    }
    for number, options in enumerate(
        ({"kafka.client.rack": "zone-x"}, {"kafka.partitioner.rack.aware": "false"})
    ):
        topic = f"racks-all-{number}"
        kafka.create_topic(topic, 3, 1)
        line = driver.write(topic, **options)
        assert written(kafka, topic).keys() == everywhere
        has_rack = "kafka.client.rack" not in options
        assert (line["metrics"]["same_rack_bytes"] > 0) == has_rack


def test_a_leader_that_moves_away_and_back_is_followed(kafka, driver):
    topic = "racks-moved"
    kafka.create_topic(topic, 3, 3)
    by_rack = [Written(zone, zone) for zone in ZONE_OF_WORKER.values()]
    driver.write(topic)
    assert written(kafka, topic).keys() == set(by_rack)
    kafka.stop(1)
    try:
        assert eventually(lambda: "zone-a" not in leaders(kafka, topic).values())
        driver.write(topic)
        rest = {rack for zone, rack in written(kafka, topic, ROWS) if zone == "zone-a"}
        assert rest == {"zone-b", "zone-c"}
    finally:
        kafka.restart(1)
    assert eventually(lambda: "zone-a" in leaders(kafka, topic).values())
    total = 2 * ROWS

    def is_back():
        nonlocal total
        driver.write(topic)
        total += ROWS
        return written(kafka, topic, total - ROWS).keys() == set(by_rack)

    assert eventually(is_back)
    assert written(kafka, topic).total() == total
