"""A cluster of kfake brokers in a process of its own (main.go), and numbered records written to it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import NamedTuple

from tests.broker.producing import batch_of, plan_of, producer_for
from tests.reading import read_topic

FOLDER = Path(__file__).parent


def build(go, folder):
    """The program, compiled by ``go`` into ``folder``. Its modules are fetched at the first time."""
    program = folder / "kfake"
    command = [go, "build", "-o", str(program), "."]
    done = subprocess.run(command, cwd=FOLDER, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return program


class Seen(NamedTuple):
    """A request that a broker got. ``ns``: of the program's clock."""

    api: str
    node: int
    ns: int


class KfakeCluster:
    """A context manager. ``version``: of the Kafka whose versions of requests it knows.

    offered: highest version by API that differs from that Kafka's; -1: not offered
    limit: bytes of a request; a larger one ends its connection
    """

    def __init__(self, program, brokers=1, version="", configs=None, offered=None, limit=None):
        self.version = version
        self._process = subprocess.Popen(
            [
                *(str(program), "-brokers", str(brokers), "-version", version),
                *("-configs", json.dumps(configs or {}), "-offered", json.dumps(offered or {})),
                *(() if limit is None else ("-limit", str(limit))),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            self.bootstrap_servers = ",".join(self._answer())
        except BaseException:
            self.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, exc_type, exc, traceback):
        self.close()

    def close(self):
        """End the program."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def create_topic(self, name, partitions=1, **configs):
        self.do("topic", topic=name, partitions=partitions, configs=configs)

    def do(self, what, **more):
        """What main.go lists, done or begun when this returns."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": what, **more}) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def requests(self, api):
        """All that came so far, in their order."""
        return [Seen(**seen) for seen in self.do("requests") if seen["api"] == api]

    def _answer(self):
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"the program ended with {self._process.wait()}"
        answer = json.loads(line)
        assert "error" not in answer, answer["error"]
        return answer["result"]


ROWS_PER_CHUNK = 300
# Many small batches, several in flight; whatever is tried again is tried soon.
OPTIONS = {
    "batch_size": "512",
    "linger_ms": "0",
    "retry_backoff_ms": "5",
    "retry_backoff_max_ms": "20",
    "reconnect_backoff_ms": "5",
    "reconnect_backoff_max_ms": "20",
}


class Numbers(NamedTuple):
    """A topic that gets numbered records in chunks; row n goes to partition n % partitions."""

    cluster: KfakeCluster
    topic: str = "numbers"
    partitions: int = 3
    chunks: int = 10

    def create(self, **configs):
        self.cluster.create_topic(self.topic, self.partitions, **configs)
        return self

    def deliver(self, before=None, **options):
        """Write all, and check that each is there once and in order.

        ``before`` is called with the number of each chunk before it is written.
        """
        with producer_for(self.cluster.bootstrap_servers, **{**OPTIONS, **options}) as producer:
            self.write(producer, before)
            metrics = producer.metrics
        self.check()
        return metrics

    def write(self, producer, before=None):
        """All chunks, flushed in the middle and at the end."""
        for number in range(self.chunks):
            if before is not None:
                before(number)
            chunk = self.chunk(number)
            producer.append(chunk, plan_of(chunk, self.topic))
            if number == self.chunks // 2:
                producer.flush()
        producer.flush()

    def chunk(self, number):
        rows = range(number * ROWS_PER_CHUNK, (number + 1) * ROWS_PER_CHUNK)
        partitions = [row % self.partitions for row in rows]
        return batch_of(value=[b"%d" % row for row in rows], partition=partitions)

    def check(self):
        """By what confluent-kafka reads, and by what the broker has of each partition."""
        records = read_topic(self.cluster.bootstrap_servers, self.topic)
        for partition in range(self.partitions):
            rows = [int(r.value or b"") for r in records if r.partition == partition]
            assert rows == list(range(partition, self.chunks * ROWS_PER_CHUNK, self.partitions))
            log = self.cluster.do("partition", topic=self.topic, partition=partition)
            assert log["HighWatermark"] == len(rows)
