"""What many partitions cost: real brokers, one producer.

python -m evidence partitions

- one task writes to 1,000 partitions on three brokers; all of it arrives;
- metadata of 10,000 partitions is decoded and merged in at most ten times the CPU time that Python's
  json module, which is written in C, takes to read the same as JSON;
- CPU per record is flat from 1 to 1,000 partitions, within a factor of 1.5.

Batches are filled alike in both cases (``batch.size``, keyed rows), pairs alternate, and what counts
is the median of the pairs' ratios of process CPU time, sender thread included.
"""

import json
import random
import statistics
import time

import pyarrow as pa

from evidence.harness.jobs import judge
from evidence.harness.planning import parser_of, show
from spark_kafka_sink.base.clock import ExponentialBackoff, SystemClock
from spark_kafka_sink.localkafka import LocalKafka
from spark_kafka_sink.producer.metadata import Metadata, MetadataSettings
from spark_kafka_sink.protocol.messages.topics import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from spark_kafka_sink.protocol.schema import decode_message, encode_message
from spark_kafka_sink.protocol.types import Writer
from tests.broker.producing import plan_of, producer_for

PARTITIONS = 1000
ROWS = 2_000_000
PAIRS = 5
MOST_TIMES = 1.5
METADATA_PARTITIONS = 10_000
METADATA_MOST_TIMES = 10.0
_ROWS_PER_ARROW_BATCH = 50_000


def arrow_batches():
    """100-byte values that begin with their id; a key of its own for every row."""
    batches = []
    for first in range(0, ROWS, _ROWS_PER_ARROW_BATCH):
        ids = [b"%010d" % i for i in range(first, first + _ROWS_PER_ARROW_BATCH)]
        values = [i + b"x" * 90 for i in ids]
        batches.append(pa.record_batch([pa.array(ids), pa.array(values)], names=["key", "value"]))
    return batches


def cpu_ns_per_record(kafka, topic, batches):
    """Write all ``batches`` with one producer."""
    with producer_for(
        kafka.bootstrap_servers, batch_size="16384", buffer_memory=str(64 << 20)
    ) as producer:
        producer.append(batches[0].slice(0, 0), plan_of(batches[0], topic))
        started = time.process_time_ns()
        for batch in batches:
            producer.append(batch, plan_of(batch, topic))
        producer.flush()
        return (time.process_time_ns() - started) / ROWS


def metadata_ms():
    """CPU time, median of 15 refreshes: decode the answer's bytes, and merge them into what is known."""
    partitions = [
        MetadataResponsePartition(0, i, i % 3, 5, [0, 1, 2], [0, 1, 2], [])
        for i in range(METADATA_PARTITIONS)
    ]
    brokers = [MetadataResponseBroker(i, f"broker-{i}", 9092, None) for i in range(3)]
    topic = MetadataResponseTopic(error_code=0, name="wide", partitions=partitions)
    out = Writer()
    encode_message(MetadataResponse(brokers=brokers, topics=[topic]), 13, out)
    data = b"".join(out.buffers())
    metadata = _metadata()
    took = []
    for _ in range(15):
        started = time.thread_time()
        metadata.update(decode_message(MetadataResponse, 13, data), SystemClock().now_ms())
        took.append((time.thread_time() - started) * 1000)
    assert metadata.snapshot.partitions_count("wide") == METADATA_PARTITIONS
    return statistics.median(took)


def json_ms():
    """CPU time, median of 15, of the same content as JSON: how fast this machine is."""
    partition = {"error_code": 0, "leader_id": 0, "leader_epoch": 5}
    ids = {"replica_nodes": [0, 1, 2], "isr_nodes": [0, 1, 2], "offline_replicas": []}
    partitions = [{"partition_index": i, **partition, **ids} for i in range(METADATA_PARTITIONS)]
    text = json.dumps({"topics": [{"name": "wide", "partitions": partitions}]})
    took = []
    for _ in range(15):
        started = time.thread_time()
        json.loads(text)
        took.append((time.thread_time() - started) * 1000)
    return statistics.median(took)


def _metadata():
    settings = MetadataSettings(300_000, 300_000, True, 300_000)
    metadata = Metadata([("b", 9092)], settings, ExponentialBackoff(100, 1000, random.Random(1)))
    metadata.add_topic("wide", 0)
    return metadata


def main(words=None):
    if parser_of(__doc__).parse_args(words).plan:
        return show([f"{ROWS:,} rows to 1 and to {PARTITIONS:,} partitions, {PAIRS} times"])
    batches = arrow_batches()
    result = {"metadata_ms": round(metadata_ms(), 1)}
    result["metadata_times_json"] = round(result["metadata_ms"] / json_ms(), 1)
    with LocalKafka(brokers=3) as kafka:
        kafka.create_topic("one", 1, 1)
        kafka.create_topic("thousand", PARTITIONS, 1, timeout_ms=120_000)
        cpu_ns_per_record(kafka, "thousand", batches)  # loads kernels, and is what is judged
        result["verdict"] = judge(kafka.bootstrap_servers, "thousand", PARTITIONS, ROWS)._asdict()
        pairs = [
            [round(cpu_ns_per_record(kafka, topic, batches)) for topic in ("one", "thousand")]
            for _ in range(PAIRS)
        ]
    result["cpu_ns_per_record"] = pairs
    result["ratio"] = round(statistics.median(many / one for one, many in pairs), 2)
    print(json.dumps(result, indent=1))
    verdict = result["verdict"]
    is_whole = verdict["read"] == ROWS and not (verdict["lost"] or verdict["doubled"])
    is_fast = result["ratio"] <= MOST_TIMES
    is_fast = is_fast and result["metadata_times_json"] <= METADATA_MOST_TIMES
    return 0 if is_whole and is_fast else 1
