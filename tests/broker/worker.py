"""A process like Spark's Python worker: reads Arrow batches from stdin, writes them with the sink.

``python -m tests.broker.worker OPTIONS [MIB]``, the sink's options as JSON, and a limit of addresses,
as of spark.executor.pyspark.memory, or + and those that are left from the beginning on. Prints the number of each Arrow
batch when it is taken, and at last what memory it took and how long it waited for buffer.memory.
"""

import json
import resource
import sys
from pathlib import Path

import pyarrow as pa
import pyspark.worker  # noqa: F401  what a worker has in memory besides the sink

from spark_kafka_sink.base.model import ColumnPositions
from spark_kafka_sink.config.sink_options import SinkOptions
from spark_kafka_sink.spark.commit import KafkaCommitMessage
from spark_kafka_sink.spark.task import prepare_process, write_rows
from spark_kafka_sink.spark.writer import within_addresses


def taken(reader):
    """All Arrow batches, each announced."""
    for number, arrow_batch in enumerate(reader):
        print(number, flush=True)
        yield arrow_batch


def limit_addresses(given=None):
    """As ``pyspark.worker_util.setup_memory_limits``."""
    if given is not None:
        mib = int(given) + (size_mib("VmSize") if given.startswith("+") else 0)
        resource.setrlimit(resource.RLIMIT_AS, (int(mib) << 20, int(mib) << 20))


def size_mib(name):
    """Of this process: ``VmHWM``, the high-water mark of resident memory; ``VmSize``, addresses."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    line = next(line for line in status.splitlines() if line.startswith(name))
    return int(line.split()[1]) / 1024


def main():
    options = SinkOptions.parse(json.loads(sys.argv[1]))
    plan = ColumnPositions(0, topic_option=options.topic)
    limit_addresses(*sys.argv[2:])
    with within_addresses(), pa.ipc.open_stream(sys.stdin.buffer) as reader:
        message = KafkaCommitMessage(0, 0)
        prepare_process()
        write_rows(taken(reader), options, plan, message)
    told = {
        "peak_mib": size_mib("VmHWM"),
        "has_pandas": "pandas" in sys.modules,
        "buffer_wait_ms": message.metrics.buffer_wait_ns / 1e6,
    }
    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
