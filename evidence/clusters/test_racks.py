"""Rack-aware partitioning: two standalone workers in zones of their own, three brokers with racks."""

import json
from collections import Counter

from confluent_kafka.admin import AdminClient

from evidence.clusters.working import run, with_this_python
from evidence.harness.standalone import RACKS, InZones
from tests.local_kafka import PatientKafka
from tests.patience import PATIENCE_S
from tests.reading import read_topic

TOPIC, ROWS = "racks", 4000
OF_EXECUTORS = {
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": f"{PATIENCE_S}s",
}
JOB = '''
import json, sys
from pyspark.sql import SparkSession

def name_zone(batches):
    """Let each row name the zone of the machine whose task writes it."""
    import os
    import pyarrow as pa
    for batch in batches:
        texts = [f"{os.environ['AZ']}:{i}:{'x' * 100}" for i in batch.column(0).to_pylist()]
        yield pa.record_batch([pa.array(texts)], ["value"])

rows, options = json.loads(sys.argv[1])
spark = SparkSession.builder.getOrCreate()
frame = spark.range(0, rows, 1, 4).mapInArrow(name_zone, "value string")
frame.write.format("pykafka-sink").mode("append").options(**options).save()
'''


def test_bytes_stay_in_the_rack_of_each_task(tmp_path):
    """Partitions are skewed over racks, executors too: no zone has workers in zone-c."""
    (tmp_path / "job.py").write_text(JOB)
    metrics = tmp_path / "metrics.jsonl"
    environment = with_this_python()
    environment.pop("AZ", None)  # the driver has none
    with PatientKafka(3, racks=[*RACKS.values()]) as kafka, InZones(tmp_path / "spark") as cluster:
        kafka.create_topic(TOPIC, 7, 1)
        options = {
            "kafka.bootstrap.servers": kafka.bootstrap_servers,
            "topic": TOPIC,
            "metrics.path": str(metrics),
            "kafka.partitioner.rack.aware": "true",
            "kafka.client.rack": "${env:AZ}",
            "kafka.batch.size": "4096",
        }
        settings = [word for pair in OF_EXECUTORS.items() for word in ("--conf", "=".join(pair))]
        job = [str(tmp_path / "job.py"), json.dumps([ROWS, options])]
        run(cluster.submit(*settings, *job), environment)
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        partitions = admin.list_topics(TOPIC, timeout=PATIENCE_S).topics[TOPIC].partitions
        found = Counter(
            (record.value.decode().split(":")[0], RACKS[partitions[record.partition].leader])
            for record in read_topic(kafka.bootstrap_servers, TOPIC)
        )
        stored = {
            rack: sum(p.stat().st_size for p in kafka.data_directory(b).glob(f"{TOPIC}-*/*.log"))
            for b, rack in RACKS.items()
        }
    assert found.keys() == {("zone-a", "zone-a"), ("zone-b", "zone-b")}
    assert found.total() == ROWS
    assert stored["zone-c"] == 0
    assert stored["zone-a"] > 0 < stored["zone-b"]
    line = json.loads(metrics.read_text(encoding="utf-8").splitlines()[-1])
    assert line["metrics"]["same_rack_bytes"] == sum(stored.values())
