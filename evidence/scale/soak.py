"""Micro-batches of one second for half an hour: what must stay flat, stays flat.

python -m evidence soak --minutes 30

Memory of the Python workers and of the driver (its Python process; the JVM's heap after a
collection), connections to the broker, producer ids that the broker remembers. Writes
evidence/scale/soak.json.
"""

import json
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import psutil

from evidence.chaos.brokers import session
from evidence.harness.planning import parser_of, show
from spark_kafka_sink.localkafka import LocalKafka

RESULT = Path(__file__).parent / "soak.json"
SAMPLE_EVERY_S = 10.0
MOST_MIB_PER_MINUTE = 1.0
_MIB = 1 << 20
_TOPIC = "soak"


def python_workers():
    """Python processes below this one: Spark's daemon and workers."""
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            if "python" in process.name():
                found.append(process)
        except psutil.NoSuchProcess:
            continue
    return found


def resident_mib(processes):
    """The largest of them."""
    sizes = [0]
    for process in processes:
        try:
            sizes.append(process.memory_info().rss)
        except psutil.NoSuchProcess:
            continue
    return max(sizes) / _MIB


def heap_mib(spark):
    """What the driver's JVM uses after a collection."""
    jvm = spark.sparkContext._jvm
    jvm.java.lang.System.gc()
    runtime = jvm.java.lang.Runtime.getRuntime()
    return float((runtime.totalMemory() - runtime.freeMemory()) / _MIB)


def connections_count(kafka):
    """Connections of clients that the broker has open."""
    port = kafka.address(1)[1]
    broker = psutil.Process(kafka.process_id(1))
    return sum(
        c.status == psutil.CONN_ESTABLISHED and c.laddr.port == port and c.raddr.port != port
        for c in broker.net_connections("tcp")
    )


def producer_ids_count(kafka, topic=_TOPIC):
    """Producer ids that the broker remembers for the topic's first partition."""
    told = kafka.run_tool(
        "org.apache.kafka.tools.TransactionsCommand",
        *("--bootstrap-server", kafka.bootstrap_servers),
        *("describe-producers", "--topic", topic, "--partition", "0"),
    )
    return len([line for line in told.splitlines() if line[:1].isdigit()])


def per_minute(samples, name):
    """Slope of the line through the samples."""
    minutes = [sample["minute"] for sample in samples]
    return float(np.polyfit(minutes, [sample[name] for sample in samples], 1)[0])


def watch(spark, kafka, query, minutes):
    """Samples, as long as the query is to run."""
    samples = []
    started = time.monotonic()
    tick = threading.Event()
    while (minute := (time.monotonic() - started) / 60) < minutes:
        assert query.isActive, query.exception()
        sample = {
            "minute": round(minute, 2),
            "worker_mib": round(resident_mib(python_workers()), 1),
            "driver_mib": round(psutil.Process().memory_info().rss / _MIB, 1),
            "heap_mib": round(heap_mib(spark), 1),
            "connections": connections_count(kafka),
        }
        if len(samples) % 30 == 3:
            sample["producer_ids"] = producer_ids_count(kafka)
            print(json.dumps(sample), flush=True)
        samples.append(sample)
        tick.wait(SAMPLE_EVERY_S)
    return samples


def judge(samples, warm_up_minutes):
    """Slopes after warm-up, and the extremes of what is counted."""
    warm = [sample for sample in samples if sample["minute"] >= warm_up_minutes]
    names = ("worker_mib", "driver_mib", "heap_mib")
    ids = [sample["producer_ids"] for sample in samples if "producer_ids" in sample]
    connections = [sample["connections"] for sample in warm]
    return {
        "mib_per_minute": {name: round(per_minute(warm, name), 3) for name in names},
        "last_mib": {name: warm[-1][name] for name in names},
        "connections": [min(connections), max(connections)],
        "connections_first": connections[0],
        "producer_ids": [min(ids), max(ids)],
    }


def main(words=None):
    parser = parser_of(__doc__)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--warm-up-minutes", type=float, default=5)
    arguments = parser.parse_args(words)
    if arguments.plan:
        return show([f"micro-batches for {arguments.minutes:.0f} minutes"])
    with LocalKafka() as kafka, session() as spark, tempfile.TemporaryDirectory() as folder:
        kafka.create_topic(_TOPIC, partitions=3)
        source = spark.readStream.format("rate").option("rowsPerSecond", "2000")
        query = (
            source.option("numPartitions", "2")
            .load()
            .selectExpr("cast(value as string) as key", "repeat('x', 100) as value")
            .writeStream.format("pykafka-sink")
            .option("kafka.bootstrap.servers", kafka.bootstrap_servers)
            .option("topic", _TOPIC)
            .option("metrics.log", "false")
            .option("checkpointLocation", str(Path(folder) / "checkpoint"))
            .trigger(processingTime="1 second")
            .start()
        )
        samples = watch(spark, kafka, query, arguments.minutes)
        progress = query.lastProgress
        query.stop()
    result = judge(samples, arguments.warm_up_minutes)
    result.update(minutes=arguments.minutes, micro_batches=progress["batchId"] + 1)
    print(json.dumps(result, indent=1))
    RESULT.write_text(json.dumps({**result, "samples": samples}) + "\n", encoding="utf-8")
    is_flat = all(slope < MOST_MIB_PER_MINUTE for slope in result["mib_per_minute"].values())
    # They may become fewer: the connections to bootstrap addresses are closed when idle.
    few = result["connections"][1] <= result["connections_first"]
    ids = result["producer_ids"]
    return 0 if is_flat and few and ids[1] <= ids[0] + 2 else 1
