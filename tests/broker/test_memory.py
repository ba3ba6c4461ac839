"""What docs/tuning.md promises of a worker's memory, while a broker keeps everything waiting."""

import json
import subprocess
import sys
import threading
from pathlib import Path

import pyarrow as pa
import pytest

from tests.local_kafka import PatientKafka
from tests.patience import eventually
from tests.reading import read_topic

_MIB = 1 << 20
BUFFER_MIB = 32
PANDAS_MIB = 40
ROWS, VALUE_BYTES = 10_000, 1_000
BATCHES = 5
ARROW_MIB = ROWS * VALUE_BYTES / _MIB


@pytest.fixture
def broker():
    """One that may be frozen."""
    with PatientKafka() as kafka:
        yield kafka


def arrow_batch(rows):
    return pa.record_batch([pa.array([b"x" * VALUE_BYTES] * rows, pa.binary())], ["value"])


def promised_mib():
    """By the formula, as it is written."""
    text = Path("docs/tuning.md").read_text(encoding="utf-8")
    assert "    240 MiB + kafka.buffer.memory + 3 × the largest Arrow batch\n" in text
    return 240 + BUFFER_MIB + 3 * ARROW_MIB


def is_waiting(process_id):
    """Whether no thread of the process runs or is about to."""
    states = Path(f"/proc/{process_id}/task").glob("*/stat")
    return all(path.read_text("utf-8").rpartition(")")[2].split()[0] == "S" for path in states)


def feed(worker, broker):
    """All Arrow batches; the broker is frozen until the worker waits for memory."""
    assert worker.stdin is not None
    large = arrow_batch(ROWS)
    with worker.stdin, pa.ipc.new_stream(worker.stdin, large.schema) as stream:
        stream.write_batch(arrow_batch(10))
        assert eventually(lambda: len(read_topic(broker.bootstrap_servers, "memory")) == 10)
        broker.pause(1)
        rest = threading.Thread(target=lambda: [stream.write_batch(large) for _ in range(BATCHES)])
        rest.start()
        # The one that is taken when all before it fill the buffer can only wait.
        waits = str(1 + int(BUFFER_MIB / ARROW_MIB)).encode()
        while worker.stdout.readline().strip() != waits:
            assert worker.poll() is None
        assert eventually(lambda: is_waiting(worker.pid))
        broker.resume(1)
        rest.join()


@pytest.mark.skipif(sys.platform != "linux", reason="the high-water mark is Linux's")
def test_a_worker_stays_within_what_is_promised(broker):
    options = {
        "kafka.bootstrap.servers": broker.bootstrap_servers,
        "topic": "memory",
        "kafka.buffer.memory": str(BUFFER_MIB * _MIB),
        "kafka.linger.ms": "0",
        "metrics.log": "false",
    }
    command = [sys.executable, "-m", "tests.broker.worker", json.dumps(options)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as worker:
        feed(worker, broker)
        told = json.loads(worker.stdout.read().splitlines()[-1])
    assert worker.returncode == 0
    written = read_topic(broker.bootstrap_servers, "memory")
    assert len(written) == 10 + BATCHES * ROWS
    assert told["peak_mib"] <= promised_mib() + PANDAS_MIB * told["has_pandas"]
    # The buffer was full: else this test would show nothing.
    assert told["buffer_wait_ms"] > 0


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux keeps the limit")
@pytest.mark.parametrize(("limit", "is_enough"), [("512", True), ("+20", False)])
def test_a_limit_of_addresses_is_kept_or_told(kafka, limit, is_enough):
    """spark.executor.pyspark.memory=512m of a single slot is enough for the defaults."""
    topic = f"addresses-{limit.strip('+')}"
    given = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": topic}
    command = [sys.executable, "-m", "tests.broker.worker", json.dumps(given), limit]
    rows = pa.BufferOutputStream()
    with pa.ipc.new_stream(rows, arrow_batch(1).schema) as stream:
        for _ in range(2):
            stream.write_batch(arrow_batch(4000))
    done = subprocess.run(command, input=rows.getvalue().to_pybytes(), capture_output=True)
    told = done.stderr.decode()
    assert (done.returncode == 0) is is_enough, told
    if is_enough:
        assert len(read_topic(kafka.bootstrap_servers, topic)) == 8000
    else:
        assert "spark.executor.pyspark.memory leaves" in told
        assert "[PKS-SPARK-011]" in told
